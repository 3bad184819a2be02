// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Two regular lists that wait for each other, executed twice:
//
//   list 1:   A  ------------>  wait for B, C
//             |                     ^
//             v                     |
//   list 2:   wait for A, W  --->   B  -------->  D
//
// A wait refers to the latest execution that is submitted when the waiting list is executed. So the
// second execution of list 1 waits for B of the first execution of list 2, and the second execution of
// list 2 for A of the second execution of list 1.
//
// Each letter is a kernel that counts its runs and records how often the kernel that it depends on had
// run by then. Two gates, events that the host signals, hold A and B back until a wait on a wrong
// execution would have had time to pass and leave a wrong record.
#include "counter_events.h"
#include "parts.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { EXECUTIONS = 2 };

// One kernel's records in host memory.
struct notes {
    uint32_t runs;
    uint32_t seen[EXECUTIONS]; // by run: runs of the watched kernel
};

enum letter { A, B, C, D, W, LETTERS };

static const struct {
    char name;
    enum letter watched;
} letters[LETTERS] = {
    [A] = {'A', A}, [B] = {'B', A}, [C] = {'C', B}, [D] = {'D', B}, [W] = {'W', A},
};

// The record of run n of each letter, from 0. C shows which B list 1 waited for, W and B which A list 2
// waited for. A watches itself.
static const uint32_t expected[EXECUTIONS][LETTERS] = {
    {[A] = 0, [W] = 1, [B] = 1, [C] = 1, [D] = 1},
    {[A] = 1, [W] = 2, [B] = 2, [C] = 1, [D] = 2},
};

struct two_way {
    struct kernel kernel;
    struct notes *notes;
    ze_event_pool_handle_t pool;
    ze_event_handle_t gate_a, gate_b;    // regular events
    ze_event_handle_t event_a, event_b;  // counter-based
    ze_command_queue_handle_t queue1, queue2;
    ze_command_list_handle_t list1, list2;
};

static void append(const struct two_way *t, ze_command_list_handle_t list, enum letter letter,
                   ze_event_handle_t signal, ze_event_handle_t wait)
{
    const ze_group_count_t one = {1, 1, 1};
    uint32_t *runs = &t->notes[letter].runs, *seen = t->notes[letter].seen;
    uint32_t *watched = &t->notes[letters[letter].watched].runs;

    set_argument(t->kernel, 0, sizeof(runs), &runs);
    set_argument(t->kernel, 1, sizeof(watched), &watched);
    set_argument(t->kernel, 2, sizeof(seen), &seen);
    must(zeCommandListAppendLaunchKernel(list, t->kernel.handle, &one, signal, wait ? 1 : 0,
                                         wait ? &wait : NULL));
}

static ze_event_handle_t create_gate(ze_event_pool_handle_t pool, uint32_t index)
{
    ze_event_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_EVENT_DESC,
                            .index = index,
                            .signal = ZE_EVENT_SCOPE_FLAG_HOST,
                            .wait = ZE_EVENT_SCOPE_FLAG_DEVICE};
    ze_event_handle_t gate;

    must(zeEventCreate(pool, &desc, &gate));
    return gate;
}

static void create(const struct gpu *gpu, struct two_way *t)
{
    ze_event_pool_desc_t pool = {.stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC,
                                 .flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE,
                                 .count = 2};
    ze_device_handle_t device = gpu->device;

    t->kernel = build_kernel(gpu, "order", "order");
    must(zeKernelSetGroupSize(t->kernel.handle, 1, 1, 1));
    t->notes = allocate(gpu, HOST_MEMORY, LETTERS * sizeof(*t->notes));
    memset(t->notes, 0, LETTERS * sizeof(*t->notes));
    must(zeEventPoolCreate(gpu->context, &pool, 1, &device, &t->pool));
    t->gate_a = create_gate(t->pool, 0);
    t->gate_b = create_gate(t->pool, 1);
    t->event_a = create_counter_event(gpu);
    t->event_b = create_counter_event(gpu);
    t->queue1 = create_queue(gpu, gpu->compute, 0);
    t->queue2 = create_queue(gpu, gpu->compute, 1);
    t->list1 = create_list(gpu, gpu->compute, IN_ORDER);
    t->list2 = create_list(gpu, gpu->compute, IN_ORDER);
}

// A wait refers to the event's state at that moment, so each signal is recorded before the wait for it:
// the two lists are recorded in step.
static void record(const struct two_way *t)
{
    append(t, t->list1, A, t->event_a, t->gate_a);
    append(t, t->list2, W, NULL, t->event_a);
    append(t, t->list2, B, t->event_b, t->gate_b);
    append(t, t->list2, D, NULL, NULL);
    append(t, t->list1, C, NULL, t->event_b);
    must(zeCommandListClose(t->list1));
    must(zeCommandListClose(t->list2));
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
}

static void execute_once(const struct two_way *t, int execution, struct line *line)
{
    must(zeEventHostReset(t->gate_a));
    must(zeEventHostReset(t->gate_b));
    execute(t->queue1, t->list1);
    execute(t->queue2, t->list2);
    nap(); // A is held: W must not run, although A of an earlier execution may have
    must(zeEventHostSignal(t->gate_a));
    nap(); // B is held: in the first execution C must not run, in the second it must
    if (execution > 0 && !queue_finishes(t->queue1))
        differs(line, "execution 2 of list 1 waits for B of execution 2 of list 2");
    must(zeEventHostSignal(t->gate_b));
    finish(t->queue1);
    finish(t->queue2);
}

static void compare(const struct two_way *t, struct line *line)
{
    for (int run = 0; run < EXECUTIONS; run++)
        for (enum letter letter = 0; letter < LETTERS; letter++)
            if (t->notes[letter].seen[run] != expected[run][letter])
                differs(line, "run %d of %c saw run %u of %c, not run %u", run + 1,
                        letters[letter].name, t->notes[letter].seen[run],
                        letters[letters[letter].watched].name, expected[run][letter]);
    for (enum letter letter = 0; letter < LETTERS; letter++)
        if (t->notes[letter].runs != EXECUTIONS)
            differs(line, "%c ran %u times instead of %d", letters[letter].name, t->notes[letter].runs,
                    EXECUTIONS);
}

static void destroy(const struct gpu *gpu, struct two_way *t)
{
    must(zeCommandListDestroy(t->list1));
    must(zeCommandListDestroy(t->list2));
    must(zeCommandQueueDestroy(t->queue1));
    must(zeCommandQueueDestroy(t->queue2));
    must(zeEventDestroy(t->event_a));
    must(zeEventDestroy(t->event_b));
    must(zeEventDestroy(t->gate_a));
    must(zeEventDestroy(t->gate_b));
    must(zeEventPoolDestroy(t->pool));
    release(gpu, t->notes);
    destroy_kernel(t->kernel);
}

void part_two_way(const struct gpu *gpu, struct line *line)
{
    struct two_way t;

    create(gpu, &t);
    record(&t);
    double start = now_ms();
    for (int execution = 0; execution < EXECUTIONS; execution++)
        execute_once(&t, execution, line);
    line->milliseconds = now_ms() - start;
    compare(&t, line);
    snprintf(line->size, sizeof(line->size), "%d executions, gated", EXECUTIONS);
    snprintf(line->note, sizeof(line->note),
             "execution 2 of list 1 went by run %u of B, execution 2 of list 2 by run %u of A",
             t.notes[C].seen[1], t.notes[W].seen[1]);
    destroy(gpu, &t);
}
