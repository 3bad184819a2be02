// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The common part of the wrong programs. Each file has many of them: WRONG(name) { ... } is one, and
// the file's program runs the one that its command line names. Built with -DMENDED, it makes no
// mistake.
//
// A comment that begins with //! is the report expected for its line (tests/tests/ze_checks.rs).

#ifndef WRONG_H
#define WRONG_H

#include <level_zero/ze_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef MENDED
#define TWIN(wrong, right) (right)
#else
#define TWIN(wrong, right) (wrong)
#endif

// A program, found by its name.
struct wrong {
    const char *name;
    void (*run)(void);
    struct wrong *next;
};

void add_wrong(struct wrong *wrong);

#define WRONG(name)                                            \
    static void name(void);                                    \
    __attribute__((constructor)) static void add_##name(void)  \
    {                                                          \
        static struct wrong wrong = {#name, name, NULL};       \
        add_wrong(&wrong);                                     \
    }                                                          \
    static void name(void)

// Set before a program runs. The lists are in order.
extern ze_driver_handle_t driver;
extern ze_device_handle_t device;
extern ze_context_handle_t context;
extern ze_module_handle_t module;             // the file's kernels
extern ze_command_list_handle_t synchronous;  // immediate; each append returns when its command is complete
extern ze_command_list_handle_t asynchronous; // immediate
// Whether groups of the launches that follow may wait for each other.
extern bool cooperative;

#define must(call) check((call), #call)
void check(ze_result_t result, const char *call);

// Destroys the objects that were set before the program ran, except the context, and ends the process.
void leave(void);

void *device_memory(size_t bytes);
void *host_memory(size_t bytes);
void *shared_memory(size_t bytes);
void release(void *memory);
ze_kernel_handle_t kernel_of(const char *name);
// Records that the kernel was destroyed.
void forget(ze_kernel_handle_t kernel);
ze_command_list_handle_t regular_list(void);
// An immediate list.
ze_command_list_handle_t new_immediate(bool in_order);
ze_command_queue_handle_t new_queue(void);
ze_event_pool_handle_t new_pool(uint32_t events);
// A counter-based event for both kinds of lists.
ze_event_handle_t counter_based_event(void);
ze_event_handle_t new_event(ze_event_pool_handle_t pool, uint32_t index);
void finish(ze_command_list_handle_t list);
void execute(ze_command_list_handle_t list);

// An argument of a launch; local memory has no value.
struct argument {
    size_t size;
    const void *value;
};
#define ARG(x) ((struct argument){sizeof(x), &(x)})
#define LOCAL(bytes) ((struct argument){(bytes), NULL})

struct size {
    uint32_t groups[3];
    uint32_t items[3];
};
// Groups and items of each, in one dimension.
#define LINE(groups, items) ((struct size){{(groups), 1, 1}, {(items), 1, 1}})

// Appends a launch of a kernel by name.
#define launch(list, name, size, ...)                                                              \
    launch_with(list, name, size, (struct argument[]){__VA_ARGS__},                                \
                sizeof((struct argument[]){__VA_ARGS__}) / sizeof(struct argument))
void launch_with(ze_command_list_handle_t list, const char *name, struct size size,
                 const struct argument *arguments, size_t count);

#endif
