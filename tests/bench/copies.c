// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Copies and fills of the device beside memcpy and memset in this thread, of the same memory, in turn.
// Usage: copies FOLDER-OF-MODULES. Small ones are appended many at a time and waited for once, or each
// waited for; a figure is the median of REPEATS repeats. Then several engines at once, and beside a kernel,
// one run each.
#include "counter_events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { REPEATS = 9, MOST = 256 };

// ZE_COMMAND_QUEUE_FLAG_IN_ORDER, which the header of an older loader lacks.
#define QUEUE_IN_ORDER ((ze_command_queue_flags_t)ZE_BIT(1))
#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define LARGEST ((size_t)1 << 30)
// Bytes that a repeat moves at least, if it is not of MOST operations.
#define ENOUGH (4 * MIB)
// Bytes of each copy of the last part.
#define EACH (256 * MIB)

struct bench {
    struct gpu gpu;
    ze_command_list_handle_t list;
    ze_event_handle_t done;
    char *to, *from;
};

static double now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void wait_for(struct bench *b, ze_command_list_handle_t list)
{
    must(zeCommandListAppendSignalEvent(list, b->done));
    must(zeEventHostSynchronize(b->done, UINT64_MAX));
}

static void device_copy(struct bench *b, size_t size, int count)
{
    for (int i = 0; i < count; i++)
        must(zeCommandListAppendMemoryCopy(b->list, b->to, b->from, size, NULL, 0, NULL));
    wait_for(b, b->list);
}

static void host_copy(struct bench *b, size_t size, int count)
{
    for (int i = 0; i < count; i++) {
        memcpy(b->to, b->from, size);
        __asm__ volatile("" ::: "memory");
    }
}

static void device_fill(struct bench *b, size_t size, int count)
{
    const char pattern = 7;

    for (int i = 0; i < count; i++)
        must(zeCommandListAppendMemoryFill(b->list, b->to, &pattern, 1, size, NULL, 0, NULL));
    wait_for(b, b->list);
}

static void host_fill(struct bench *b, size_t size, int count)
{
    for (int i = 0; i < count; i++) {
        memset(b->to, 7, size);
        __asm__ volatile("" ::: "memory");
    }
}

// Each waited for before the next is appended.
static void copy_and_wait(struct bench *b, size_t size, int count)
{
    for (int i = 0; i < count; i++)
        device_copy(b, size, 1);
}

typedef void (*operation)(struct bench *b, size_t size, int count);

static double seconds(operation run, struct bench *b, size_t size, int count)
{
    double start = now();

    run(b, size, count);
    return (now() - start) / count;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

// Medians of two operations, measured in turn.
static void compare(struct bench *b, size_t size, const operation run[2], double medians[2])
{
    double all[2][REPEATS];
    size_t wanted = ENOUGH / size;
    int count = wanted < 1 ? 1 : wanted > MOST ? MOST : (int)wanted;

    for (int k = 0; k < 2; k++)
        run[k](b, size, count);
    for (int i = 0; i < REPEATS; i++)
        for (int k = 0; k < 2; k++)
            all[k][i] = seconds(run[k], b, size, count);
    for (int k = 0; k < 2; k++) {
        qsort(all[k], REPEATS, sizeof(double), by_size);
        medians[k] = all[k][REPEATS / 2];
    }
}

static void sizes(struct bench *b)
{
    static const operation copy[2] = {device_copy, host_copy}, fill[2] = {device_fill, host_fill};
    static const operation trip[2] = {copy_and_wait, host_copy};

    printf("%-10s%9s%9s%7s%9s%9s%7s%12s%12s%12s\n", "GB/s", "copy", "memcpy", "ratio", "fill", "memset",
           "ratio", "ns: a copy", "and wait", "a fill");
    for (size_t size = 64; size <= LARGEST; size *= 4) {
        double copies[2], fills[2], trips[2], giga = (double)size * 1e-9;
        char name[32];

        compare(b, size, copy, copies);
        compare(b, size, fill, fills);
        compare(b, size, trip, trips);
        snprintf(name, sizeof(name), size >= MIB ? "%zu MiB" : size >= KIB ? "%zu KiB" : "%zu B",
                 size >= MIB ? size / MIB : size >= KIB ? size / KIB : size);
        printf("%-10s%9.2f%9.2f%7.2f%9.2f%9.2f%7.2f%12.0f%12.0f%12.0f\n", name, giga / copies[0],
               giga / copies[1], copies[1] / copies[0], giga / fills[0], giga / fills[1],
               fills[1] / fills[0], copies[0] * 1e9, trips[0] * 1e9, fills[0] * 1e9);
    }
}

// Copies on several engines at once, and beside a list of the compute engines.
static void together(struct bench *b)
{
    ze_command_list_handle_t lists[2];
    double alone, both, mixed;

    for (uint32_t i = 0; i < 2; i++) {
        const ze_command_queue_desc_t desc = {
            .stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
            .ordinal = b->gpu.copy.ordinal,
            .index = i % b->gpu.copy.count,
            .flags = QUEUE_IN_ORDER,
        };

        must(zeCommandListCreateImmediate(b->gpu.context, b->gpu.device, &desc, &lists[i]));
    }
    double start = now();
    host_copy(b, EACH, 2);
    double host = now() - start;
    start = now();
    for (int i = 0; i < 2; i++)
        must(zeCommandListAppendMemoryCopy(lists[0], b->to, b->from, EACH, NULL, 0, NULL));
    wait_for(b, lists[0]);
    alone = now() - start;
    start = now();
    for (int i = 0; i < 2; i++)
        must(zeCommandListAppendMemoryCopy(lists[i], b->to + (size_t)i * EACH,
                                           b->from + (size_t)i * EACH, EACH, NULL, 0, NULL));
    for (int i = 0; i < 2; i++)
        wait_for(b, lists[i]);
    both = now() - start;
    start = now();
    must(zeCommandListAppendMemoryCopy(lists[0], b->to, b->from, EACH, NULL, 0, NULL));
    device_copy(b, EACH, 1);
    wait_for(b, lists[0]);
    mixed = now() - start;
    double giga = 2 * (double)EACH * 1e-9;
    printf("\ntwo copies of %zu MiB, GB/s: memcpy %.2f; one engine %.2f; two engines %.2f; "
           "copy and compute engine %.2f\n",
           EACH / MIB, giga / host, giga / alone, giga / both, giga / mixed);
    for (int i = 0; i < 2; i++)
        must(zeCommandListDestroy(lists[i]));
}

// A kernel that reckons, alone, beside a copy on a copy engine, and the copy alone.
static void beside_a_kernel(struct bench *b)
{
    enum { SIDE = 512, TILE = 16, KERNELS = 8 };
    const ze_command_queue_desc_t desc = {
        .stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
        .ordinal = b->gpu.copy.ordinal,
        .flags = QUEUE_IN_ORDER,
    };
    const ze_group_count_t groups = {SIDE / TILE, SIDE / TILE, 1};
    const uint32_t side = SIDE;
    struct kernel kernel = build_kernel(&b->gpu, "matmul", "matmul");
    ze_command_list_handle_t copies;
    double alone[2], both;

    must(zeCommandListCreateImmediate(b->gpu.context, b->gpu.device, &desc, &copies));
    must(zeKernelSetGroupSize(kernel.handle, TILE, TILE, 1));
    for (uint32_t i = 0; i < 3; i++) {
        float *matrix = (float *)(b->to + i * MIB);

        set_argument(kernel, i, sizeof(matrix), &matrix);
    }
    set_argument(kernel, 3, sizeof(side), &side);
    for (int round = 0; round < 4; round++) {
        // The first round warms up. What is run: the kernels, the copy, both.
        double start = now();
        if (round != 2)
            for (int i = 0; i < KERNELS; i++)
                must(zeCommandListAppendLaunchKernel(b->list, kernel.handle, &groups, NULL, 0, NULL));
        if (round != 1)
            must(zeCommandListAppendMemoryCopy(copies, b->to + LARGEST / 2, b->from, EACH, NULL, 0, NULL));
        if (round != 2)
            wait_for(b, b->list);
        if (round != 1)
            wait_for(b, copies);
        double took = now() - start;
        if (round == 3)
            both = took;
        else if (round)
            alone[round - 1] = took;
    }
    printf("kernels %.1f ms, copy of %zu MiB %.1f ms, both at once %.1f ms: %.2f of their sum\n",
           alone[0] * 1e3, EACH / MIB, alone[1] * 1e3, both * 1e3, both / (alone[0] + alone[1]));
    must(zeCommandListDestroy(copies));
    destroy_kernel(kernel);
}

int main(int count, char **arguments)
{
    struct bench b = {0};

    if (count != 2) {
        fprintf(stderr, "usage: %s FOLDER-OF-MODULES\n", arguments[0]);
        return 2;
    }
    open_gpu(&b.gpu, arguments[1]);
    b.list = create_immediate_list(&b.gpu, b.gpu.compute, IN_ORDER, ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
    b.done = create_counter_event(&b.gpu);
    b.to = allocate(&b.gpu, SHARED_MEMORY, LARGEST);
    b.from = allocate(&b.gpu, SHARED_MEMORY, LARGEST);
    memset(b.to, 1, LARGEST);
    memset(b.from, 2, LARGEST);
    sizes(&b);
    together(&b);
    beside_a_kernel(&b);
    must(zeEventDestroy(b.done));
    must(zeCommandListDestroy(b.list));
    release(&b.gpu, b.to);
    release(&b.gpu, b.from);
    close_gpu(&b.gpu);
    return 0;
}
