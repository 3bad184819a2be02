// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Compares copies and fills of the device with memcpy and memset in this thread, on the same memory, in
// turn. Usage: copies FOLDER-OF-MODULES [LARGEST]; with a number of MiB, the first table only, up to that size.
// Small ones are appended many at a time and waited for once, or each waited for; a figure is the median
// of REPEATS repeats. Then long batches and the engine alone, several engines at once, and copies beside a
// kernel, the last two one run each.
//
// A batch of the first table takes 10 to 100 microseconds and begins with a device that has fallen
// asleep while the host ran its own copies: the figure includes its wake, which the host's copies do
// not have. So from 16 KiB on, the second table has batches of 3 to 16 milliseconds, in which two wakes
// (50 to 100 microseconds each on a virtual machine) matter little, and the engine's time for commands
// that are all queued before it starts. The column beside it is the time of another thread that copies
// without a driver: a ring of 64-byte packets with source, target and size, and nothing else.
#include "counter_events.h"

#include <pthread.h>
#include <stdatomic.h>
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
// The minimum number of bytes of a repeat that does not have MOST operations; of a long batch, and its
// operations.
#define ENOUGH (4 * MIB)
#define PLENTY (512 * MIB)
#define LONGEST ((size_t)8192)
// Bytes of each copy of the last part.
#define EACH (256 * MIB)

struct bench {
    struct gpu gpu;
    ze_command_list_handle_t list;
    ze_event_handle_t done;
    // The event with which the host starts an engine.
    ze_event_pool_handle_t pool;
    ze_event_handle_t gate;
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

static void append_copies(struct bench *b, size_t size, int count)
{
    for (int i = 0; i < count; i++)
        must(zeCommandListAppendMemoryCopy(b->list, b->to, b->from, size, NULL, 0, NULL));
}

static void device_copy(struct bench *b, size_t size, int count)
{
    append_copies(b, size, count);
    wait_for(b, b->list);
}

static void host_copy(struct bench *b, size_t size, int count)
{
    for (int i = 0; i < count; i++) {
        memcpy(b->to, b->from, size);
        __asm__ volatile("" ::: "memory");
    }
}

static void append_fills(struct bench *b, size_t size, int count)
{
    const char pattern = 7;

    for (int i = 0; i < count; i++)
        must(zeCommandListAppendMemoryFill(b->list, b->to, &pattern, 1, size, NULL, 0, NULL));
}

static void device_fill(struct bench *b, size_t size, int count)
{
    append_fills(b, size, count);
    wait_for(b, b->list);
}

static void host_fill(struct bench *b, size_t size, int count)
{
    for (int i = 0; i < count; i++) {
        memset(b->to, 7, size);
        __asm__ volatile("" ::: "memory");
    }
}

// Each copy is waited for before the next is appended.
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

// The number of operations that move `bytes`: at least 1, at most `most`.
static int operations(size_t bytes, size_t size, size_t most)
{
    size_t wanted = bytes / size;

    return wanted < 1 ? 1 : wanted > most ? (int)most : (int)wanted;
}

// Medians of two operations, measured in turn, `count` at a time.
static void compare(struct bench *b, size_t size, int count, const operation run[2], double medians[2])
{
    double all[2][REPEATS];

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

static void print_size(size_t size)
{
    char name[32];

    snprintf(name, sizeof(name), size >= MIB ? "%zu MiB" : size >= KIB ? "%zu KiB" : "%zu B",
             size >= MIB ? size / MIB : size >= KIB ? size / KIB : size);
    printf("%-10s", name);
}

static const operation copy[2] = {device_copy, host_copy}, fill[2] = {device_fill, host_fill};

static void sizes(struct bench *b, size_t largest)
{
    static const operation trip[2] = {copy_and_wait, host_copy};

    printf("%-10s%9s%9s%7s%9s%9s%7s%12s%12s%12s\n", "GB/s", "copy", "memcpy", "ratio", "fill", "memset",
           "ratio", "ns: a copy", "and wait", "a fill");
    for (size_t size = 64; size <= largest; size *= 4) {
        double copies[2], fills[2], trips[2], giga = (double)size * 1e-9;
        int count = operations(ENOUGH, size, MOST);

        compare(b, size, count, copy, copies);
        compare(b, size, count, fill, fills);
        compare(b, size, count, trip, trips);
        print_size(size);
        printf("%9.2f%9.2f%7.2f%9.2f%9.2f%7.2f%12.0f%12.0f%12.0f\n", giga / copies[0],
               giga / copies[1], copies[1] / copies[0], giga / fills[0], giga / fills[1],
               fills[1] / fills[0], copies[0] * 1e9, trips[0] * 1e9, fills[0] * 1e9);
    }
}

// The engine's time for an operation that is queued already, in seconds.
static double engine_alone(struct bench *b, size_t size, operation run, int count)
{
    double all[REPEATS];

    for (int i = -1; i < REPEATS; i++) {
        must(zeEventHostReset(b->gate));
        must(zeCommandListAppendWaitOnEvents(b->list, 1, &b->gate));
        run(b, size, count);
        must(zeCommandListAppendSignalEvent(b->list, b->done));
        double start = now();
        must(zeEventHostSignal(b->gate));
        must(zeEventHostSynchronize(b->done, UINT64_MAX));
        if (i >= 0)
            all[i] = (now() - start) / count;
    }
    qsort(all, REPEATS, sizeof(double), by_size);
    return all[REPEATS / 2];
}

// The ring without a driver, and the counter that its consumer raises with each packet.
static struct {
    struct handed {
        _Alignas(64) char *to, *from;
        size_t size;
    } packets[1 << 10];
    _Alignas(64) atomic_size_t published;
    _Alignas(64) atomic_size_t done;
} bare;

static void *consume(void *last)
{
    const size_t slots = sizeof(bare.packets) / sizeof(*bare.packets);

    for (size_t i = 0; i < (size_t)last; i++) {
        while (atomic_load_explicit(&bare.published, memory_order_acquire) == i)
            ;
        struct handed packet = bare.packets[i % slots];
        memcpy(packet.to, packet.from, packet.size);
        atomic_store_explicit(&bare.done, i + 1, memory_order_release);
    }
    return NULL;
}

static void bare_copy(struct bench *b, size_t size, int count)
{
    const size_t slots = sizeof(bare.packets) / sizeof(*bare.packets);
    size_t done = 0, i = bare.published;

    for (size_t end = i + (size_t)count; i < end; i++) {
        while (i - done >= slots)
            done = atomic_load_explicit(&bare.done, memory_order_acquire);
        bare.packets[i % slots] = (struct handed){b->to, b->from, size};
        atomic_store_explicit(&bare.published, i + 1, memory_order_release);
    }
    while (atomic_load_explicit(&bare.done, memory_order_acquire) != i)
        ;
}

// The time of a copy without a driver, in seconds.
static double without_driver(struct bench *b, size_t size, int count)
{
    double all[REPEATS];
    pthread_t consumer;

    bare.published = bare.done = 0;
    if (pthread_create(&consumer, NULL, consume, (void *)((size_t)count * (REPEATS + 1))) != 0)
        stop("no thread");
    bare_copy(b, size, count);
    for (int i = 0; i < REPEATS; i++)
        all[i] = seconds(bare_copy, b, size, count);
    pthread_join(consumer, NULL);
    qsort(all, REPEATS, sizeof(double), by_size);
    return all[REPEATS / 2];
}

static void long_batches(struct bench *b)
{
    printf("\n%-14s%9s%9s%7s%11s%7s%9s%9s%7s%14s%7s%14s%7s\n", "ns, long runs", "a copy", "memcpy", "ratio",
           "no driver", "ratio", "a fill", "memset", "ratio", "engine: copy", "ratio", "engine: fill", "ratio");
    for (size_t size = 64; size <= 4 * MIB; size *= 4) {
        double copies[2], fills[2];
        int count = operations(PLENTY, size, LONGEST);

        compare(b, size, count, copy, copies);
        double floor = without_driver(b, size, count);
        compare(b, size, count, fill, fills);
        double copies_alone = engine_alone(b, size, append_copies, count);
        double fills_alone = engine_alone(b, size, append_fills, count);
        print_size(size);
        printf("    %9.0f%9.0f%7.2f%11.0f%7.2f%9.0f%9.0f%7.2f%14.0f%7.2f%14.0f%7.2f\n", copies[0] * 1e9,
               copies[1] * 1e9, copies[1] / copies[0], floor * 1e9, copies[1] / floor, fills[0] * 1e9,
               fills[1] * 1e9, fills[1] / fills[0], copies_alone * 1e9, copies[1] / copies_alone,
               fills_alone * 1e9, fills[1] / fills_alone);
    }
}

// The target begins a little further into its page than the source into its own.
static void misplaced(struct bench *b)
{
    printf("\n%-14s%9s%9s%7s\n", "ns, 8 bytes on", "a copy", "memcpy", "ratio");
    b->to += 8;
    for (size_t size = 4 * KIB; size <= MIB; size *= 4) {
        double copies[2];

        compare(b, size, operations(ENOUGH, size, MOST), copy, copies);
        print_size(size);
        printf("    %9.0f%9.0f%7.2f\n", copies[0] * 1e9, copies[1] * 1e9, copies[1] / copies[0]);
    }
    b->to -= 8;
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

// A kernel that computes, alone, beside a copy on a copy engine, and the copy alone.
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
        // The first round warms up. The rounds run the kernels, the copy, and both.
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

static void create_gate(struct bench *b)
{
    const ze_event_pool_desc_t pool = {
        .stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC,
        .flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE,
        .count = 1,
    };
    const ze_event_desc_t event = {
        .stype = ZE_STRUCTURE_TYPE_EVENT_DESC,
        .signal = ZE_EVENT_SCOPE_FLAG_HOST,
        .wait = ZE_EVENT_SCOPE_FLAG_HOST,
    };

    must(zeEventPoolCreate(b->gpu.context, &pool, 1, &b->gpu.device, &b->pool));
    must(zeEventCreate(b->pool, &event, &b->gate));
}

int main(int count, char **arguments)
{
    struct bench b = {0};
    size_t largest = count == 3 ? (size_t)atoi(arguments[2]) * MIB : LARGEST;

    if (count < 2 || count > 3 || largest < MIB || largest > LARGEST) {
        fprintf(stderr, "usage: %s FOLDER-OF-MODULES [LARGEST]\n", arguments[0]);
        return 2;
    }
    open_gpu(&b.gpu, arguments[1]);
    b.list = create_immediate_list(&b.gpu, b.gpu.compute, IN_ORDER, ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
    b.done = create_counter_event(&b.gpu);
    create_gate(&b);
    b.to = allocate(&b.gpu, SHARED_MEMORY, largest);
    b.from = allocate(&b.gpu, SHARED_MEMORY, largest);
    memset(b.to, 1, largest);
    memset(b.from, 2, largest);
    sizes(&b, largest);
    if (count == 2) {
        long_batches(&b);
        misplaced(&b);
        together(&b);
        beside_a_kernel(&b);
    }
    must(zeEventDestroy(b.gate));
    must(zeEventPoolDestroy(b.pool));
    must(zeEventDestroy(b.done));
    must(zeCommandListDestroy(b.list));
    release(&b.gpu, b.to);
    release(&b.gpu, b.from);
    close_gpu(&b.gpu);
    return 0;
}
