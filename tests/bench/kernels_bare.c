// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The benchmarks of kernels without a driver: the compiler's code on as many threads as there are
// processors. They wait on one futex and claim groups from one counter, about 64 times each. So this is
// the limit that the code and the machine set, which a driver with its queue, scheduler and protection
// can at best reach.
//
// The module is a folder written by compiler/examples/blobs.rs.
#define _GNU_SOURCE
#include "kernels.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BLOCK = 64, LOCAL_BYTES = 64 << 10, SCRATCH_BYTES = 1 << 20, CLAIMS = 64, MOST_ARGUMENTS = 8 };

// The header that compiler/examples/blobs.rs writes in front of the code.
struct header {
    uint32_t entry, args_size, local_static, scratch_fixed, scratch_per_item, args, size, zero;
};

struct place {
    uint32_t is_local, offset, size;
};

// device/SPEC.md, chapter "Execution units".
struct launch_info {
    uint64_t offset[3], global[3];
    uint32_t groups[3], group[3], dimensions, zero;
    uint64_t grid_wait, grid;
};

struct group_context {
    const struct launch_info *launch;
    const void *args;
    void *local, *scratch;
    uint32_t group[3], zero;
};

typedef void entry(const struct group_context *);

struct launch {
    entry *entry;
    void *args;
    struct launch_info info;
};

struct device {
    const char *folder;
    long threads;
    struct launch *launch;
    uint32_t groups, claim;
    // The number of the current launch; threads wait for it to change.
    atomic_uint number;
    atomic_uint claimed, busy;
};

static void stop(const char *what)
{
    perror(what);
    exit(1);
}

static void *block(size_t bytes)
{
    void *at = aligned_alloc(BLOCK, (bytes + BLOCK) / BLOCK * BLOCK);

    if (!at)
        stop("memory");
    return memset(at, 0, bytes);
}

static void wait_while(atomic_uint *word, unsigned value)
{
    while (atomic_load(word) == value)
        syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void wake(atomic_uint *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void work(struct device *device, struct group_context *context)
{
    const struct launch *launch = device->launch;
    uint32_t first, x = launch->info.groups[0];

    context->launch = &launch->info;
    context->args = launch->args;
    while ((first = atomic_fetch_add(&device->claimed, device->claim)) < device->groups)
        for (uint32_t i = first; i < first + device->claim && i < device->groups; i++) {
            context->group[0] = i % x;
            context->group[1] = i / x;
            launch->entry(context);
        }
}

static struct group_context own_context(void)
{
    return (struct group_context){.local = block(LOCAL_BYTES), .scratch = block(SCRATCH_BYTES)};
}

static void *life(void *argument)
{
    struct device *device = argument;
    struct group_context context = own_context();

    for (unsigned number = 0;; number++) {
        wait_while(&device->number, number);
        work(device, &context);
        if (atomic_fetch_sub(&device->busy, 1) == 1)
            wake(&device->busy);
    }
    return NULL;
}

struct device *open_device(void)
{
    struct device *device = calloc(1, sizeof *device);
    cpu_set_t set;
    pthread_t thread;

    if (!device || sched_getaffinity(0, sizeof set, &set))
        stop("device");
    device->threads = CPU_COUNT(&set);
    // The caller is one of the threads.
    for (long i = 1; i < device->threads; i++)
        if (pthread_create(&thread, NULL, life, device))
            stop("thread");
    return device;
}

void load_module(struct device *device, const char *path)
{
    device->folder = path;
}

void *allocate_memory(struct device *device, size_t bytes)
{
    (void)device;
    return block(bytes);
}

struct launch *prepare(struct device *device, const char *kernel, int count,
                       const struct argument *arguments)
{
    struct launch *launch = calloc(1, sizeof *launch);
    struct header header;
    struct place places[MOST_ARGUMENTS];
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/%s.kernel", device->folder, kernel);
    FILE *file = fopen(path, "rb");
    if (!launch || !file || fread(&header, sizeof header, 1, file) != 1 ||
        header.args != (uint32_t)count || fread(places, sizeof *places, header.args, file) != header.args)
        stop(path);
    void *code = mmap(NULL, header.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED || fread(code, 1, header.size, file) != header.size ||
        mprotect(code, header.size, PROT_READ | PROT_EXEC))
        stop(path);
    fclose(file);
    launch->entry = (entry *)((uintptr_t)code + header.entry);
    launch->args = block(header.args_size);
    uint64_t local = (header.local_static + BLOCK - 1) / BLOCK * BLOCK;
    for (int i = 0; i < count; i++) {
        const struct argument *argument = &arguments[i];
        void *to = (char *)launch->args + places[i].offset;

        if (argument->kind == VALUE)
            memcpy(to, argument->value, argument->size);
        else if (argument->kind == MEMORY)
            memcpy(to, &argument->value, sizeof argument->value);
        else {
            memcpy(to, &local, sizeof local);
            local += (argument->size + BLOCK - 1) / BLOCK * BLOCK;
        }
    }
    if (local > LOCAL_BYTES || header.scratch_fixed + header.scratch_per_item * 1024 > SCRATCH_BYTES) {
        fprintf(stderr, "%s needs more memory than a group has here\n", kernel);
        exit(1);
    }
    return launch;
}

void run(struct device *device, struct launch *launch, const size_t global[2],
         const size_t local[2])
{
    static struct group_context context;

    if (!context.local)
        context = own_context();
    launch->info = (struct launch_info){.global = {global[0], global[1], 1},
                                        .group = {(uint32_t)local[0], (uint32_t)local[1], 1},
                                        .dimensions = global[1] > 1 ? 2 : 1};
    for (int i = 0; i < 3; i++)
        launch->info.groups[i] = (uint32_t)launch->info.global[i] / launch->info.group[i];
    device->launch = launch;
    device->groups = launch->info.groups[0] * launch->info.groups[1];
    device->claim = device->groups / (uint32_t)device->threads / CLAIMS + 1;
    atomic_store(&device->claimed, 0);
    atomic_store(&device->busy, (unsigned)device->threads - 1);
    atomic_fetch_add(&device->number, 1);
    wake(&device->number);
    work(device, &context);
    // The last thread wakes this one; those that are late find nothing to claim.
    for (unsigned busy; (busy = atomic_load(&device->busy)) != 0;)
        wait_while(&device->busy, busy);
}
