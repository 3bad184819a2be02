// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What the host pays: appends, events, and the way from an append to its completion, through the
// loader. Usage: host FOLDER-OF-MODULES. Every figure is the median of REPEATS repeats, which are
// interleaved so that a change of the machine's mood meets all of them.
#include "counter_events.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

enum { REPEATS = 25, APPENDS = 2000, ROUND_TRIPS = 200, WAKES = 5 };

struct bench {
    struct gpu gpu;
    struct kernel kernel;
    ze_command_list_handle_t recorded, immediate;
    ze_event_handle_t signalled, waited;
    void *memory;
};

// Nanoseconds per operation: of wall time, and of processor time of all threads of the process.
struct cost {
    double wall, cpu;
};

static double now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static double used_ns(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e9 +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e3;
}

static void launch(struct bench *b, ze_command_list_handle_t list, ze_event_handle_t signal,
                   ze_event_handle_t wait)
{
    const ze_group_count_t one = {1, 1, 1};

    must(zeCommandListAppendLaunchKernel(list, b->kernel.handle, &one, signal, wait ? 1 : 0,
                                         wait ? &wait : NULL));
}

static struct cost record(struct bench *b, ze_event_handle_t signal, ze_event_handle_t wait)
{
    must(zeCommandListReset(b->recorded));
    double start = now_ns(), used = used_ns();
    for (int i = 0; i < APPENDS; i++)
        launch(b, b->recorded, signal, wait);
    struct cost cost = {(now_ns() - start) / APPENDS, (used_ns() - used) / APPENDS};
    must(zeCommandListClose(b->recorded));
    return cost;
}

static struct cost record_plain(struct bench *b)
{
    return record(b, NULL, NULL);
}

static struct cost record_signal(struct bench *b)
{
    return record(b, b->signalled, NULL);
}

static struct cost record_wait_signal(struct bench *b)
{
    return record(b, b->signalled, b->waited);
}

static struct cost create_destroy(struct bench *b)
{
    double start = now_ns(), used = used_ns();

    for (int i = 0; i < APPENDS; i++)
        must(zeEventDestroy(create_counter_event(&b->gpu)));
    return (struct cost){(now_ns() - start) / APPENDS, (used_ns() - used) / APPENDS};
}

static struct cost round_trips(struct bench *b)
{
    double start = now_ns(), used = used_ns();

    for (int i = 0; i < ROUND_TRIPS; i++) {
        launch(b, b->immediate, b->signalled, NULL);
        must(zeEventHostSynchronize(b->signalled, UINT64_MAX));
    }
    return (struct cost){(now_ns() - start) / ROUND_TRIPS, (used_ns() - used) / ROUND_TRIPS};
}

static struct cost round_trips_asleep(struct bench *b)
{
    struct cost sum = {0, 0};

    for (int i = 0; i < WAKES; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        double start = now_ns(), used = used_ns();
        launch(b, b->immediate, b->signalled, NULL);
        must(zeEventHostSynchronize(b->signalled, UINT64_MAX));
        sum.wall += (now_ns() - start) / WAKES;
        sum.cpu += (used_ns() - used) / WAKES;
    }
    return sum;
}

static const struct {
    const char *what;
    struct cost (*run)(struct bench *b);
} measures[] = {
    {"append to a regular in-order list", record_plain},
    {"  with a counter-based signal", record_signal},
    {"  with a counter-based wait and signal", record_wait_signal},
    {"counter-based event, create and destroy", create_destroy},
    {"immediate append to completion", round_trips},
    {"  after 2 ms of sleep", round_trips_asleep},
};

enum { MEASURES = sizeof(measures) / sizeof(measures[0]) };

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values)
{
    qsort(values, REPEATS, sizeof(*values), by_size);
    return values[REPEATS / 2];
}

static void open_bench(struct bench *b, const char *modules)
{
    open_gpu(&b->gpu, modules);
    b->kernel = build_kernel(&b->gpu, "empty", "empty");
    must(zeKernelSetGroupSize(b->kernel.handle, 1, 1, 1));
    b->memory = allocate(&b->gpu, DEVICE_MEMORY, 4096);
    for (uint32_t i = 0; i < 3; i++)
        set_argument(b->kernel, i, sizeof(b->memory), &b->memory);
    b->recorded = create_list(&b->gpu, b->gpu.compute, IN_ORDER);
    b->immediate = create_immediate_list(&b->gpu, b->gpu.compute, IN_ORDER,
                                         ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
    b->signalled = create_counter_event(&b->gpu);
    b->waited = create_counter_event(&b->gpu);
    // The event that appends wait for belongs to another list than theirs.
    launch(b, b->immediate, b->waited, NULL);
    wait_for_event(b->waited);
}

static void close_bench(struct bench *b)
{
    must(zeEventDestroy(b->signalled));
    must(zeEventDestroy(b->waited));
    must(zeCommandListDestroy(b->recorded));
    must(zeCommandListDestroy(b->immediate));
    release(&b->gpu, b->memory);
    destroy_kernel(b->kernel);
    close_gpu(&b->gpu);
}

int main(int count, char **arguments)
{
    static double wall[MEASURES][REPEATS], cpu[MEASURES][REPEATS];
    struct bench b = {0};

    if (count != 2) {
        fprintf(stderr, "usage: %s FOLDER-OF-MODULES\n", arguments[0]);
        return 2;
    }
    open_bench(&b, arguments[1]);
    for (int repeat = 0; repeat < REPEATS; repeat++)
        for (int i = 0; i < MEASURES; i++) {
            struct cost cost = measures[i].run(&b);
            wall[i][repeat] = cost.wall;
            cpu[i][repeat] = cost.cpu;
        }
    close_bench(&b);
    printf("ns per operation, median of %d repeats\n%-42s%12s%12s\n", REPEATS, "", "wall", "processor");
    for (int i = 0; i < MEASURES; i++)
        printf("%-42s%12.0f%12.0f\n", measures[i].what, median(wall[i]), median(cpu[i]));
    return 0;
}
