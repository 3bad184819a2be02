// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The cost on the host: appends, events, and the path from an append to its completion, through the
// loader. Usage: host FOLDER-OF-MODULES REPEATS [appends]. Prints each repeat in ns per operation;
// host.py makes a table of it. With `appends` nothing is executed: for a driver whose device is
// simulated.
#include "cost.h"
#include "counter_events.h"

#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { APPENDS = 2000, ROUND_TRIPS = 200, WARM_UP = 20, WAKES = 5, SERIES = 25, LONG_WAKES = 3 };

struct bench {
    struct gpu gpu;
    struct kernel kernel;
    ze_command_list_handle_t recorded, other, immediate;
    ze_event_handle_t signalled, waited;
    void *memory;
};

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

// The cost of the cheapest call: the loader's overhead in each.
static struct cost nothing(struct bench *b)
{
    double start = now_ns(), used = used_ns();

    for (int i = 0; i < APPENDS; i++)
        must(zeKernelSetIndirectAccess(b->kernel.handle, 0));
    return (struct cost){(now_ns() - start) / APPENDS, (used_ns() - used) / APPENDS};
}

static struct cost create_destroy(struct bench *b)
{
    double start = now_ns(), used = used_ns();

    for (int i = 0; i < APPENDS; i++)
        must(zeEventDestroy(create_counter_event(&b->gpu)));
    return (struct cost){(now_ns() - start) / APPENDS, (used_ns() - used) / APPENDS};
}

static struct cost append_immediate(struct bench *b)
{
    double start = now_ns(), used = used_ns();
    for (int i = 0; i < ROUND_TRIPS; i++)
        launch(b, b->immediate, b->signalled, NULL);
    struct cost cost = {(now_ns() - start) / ROUND_TRIPS, (used_ns() - used) / ROUND_TRIPS};
    wait_for_event(b->signalled);
    return cost;
}

static void round_trip(struct bench *b)
{
    launch(b, b->immediate, b->signalled, NULL);
    must(zeEventHostSynchronize(b->signalled, UINT64_MAX));
}

static struct cost round_trips(struct bench *b)
{
    // Awake, and in the expectation of waits: the measurement before did not wait.
    for (int i = 0; i < WARM_UP; i++)
        round_trip(b);
    double start = now_ns(), used = used_ns();
    for (int i = 0; i < ROUND_TRIPS; i++)
        round_trip(b);
    return (struct cost){(now_ns() - start) / ROUND_TRIPS, (used_ns() - used) / ROUND_TRIPS};
}

static void nap_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

static void nap(void)
{
    nap_ms(2);
}

static int by_wall(const void *left, const void *right)
{
    double a = ((const struct cost *)left)->wall, b = ((const struct cost *)right)->wall;

    return (a > b) - (a < b);
}

// The median by wall time of `count` round trips, each after `ms` ms of sleep.
static struct cost asleep(struct bench *b, int count, int ms)
{
    struct cost costs[SERIES];

    for (int i = 0; i < count; i++) {
        nap_ms(ms);
        double start = now_ns(), used = used_ns();
        round_trip(b);
        costs[i] = (struct cost){now_ns() - start, used_ns() - used};
    }
    qsort(costs, (size_t)count, sizeof(*costs), by_wall);
    return costs[count / 2];
}

static struct cost round_trips_asleep(struct bench *b)
{
    return asleep(b, SERIES, 2);
}

// After commands without waits of their own: a driver cannot know that this one is waited for.
static struct cost round_trip_unexpected(struct bench *b)
{
    append_immediate(b);
    return asleep(b, 1, 2);
}

static struct cost round_trips_long_asleep(struct bench *b)
{
    return asleep(b, LONG_WAKES, 50);
}

// The cost of a wake on this machine without a driver.
static struct {
    atomic_uint word, answer;
} bare;

static long futex(int operation, unsigned value)
{
    return syscall(SYS_futex, &bare.word, operation, value, NULL, NULL, 0);
}

static void *answer_wakes(void *unused)
{
    for (unsigned seen = 0; seen < WAKES;) {
        futex(FUTEX_WAIT_PRIVATE, seen);
        seen = bare.word;
        bare.answer = seen;
    }
    return unused;
}

// The cost of the call alone, or until the other thread has answered. The caller spins meanwhile.
static struct cost wakes(bool answered)
{
    struct cost sum = {0, 0};
    pthread_t other;

    bare.word = bare.answer = 0;
    if (pthread_create(&other, NULL, answer_wakes, NULL) != 0)
        stop("no thread");
    for (unsigned i = 1; i <= WAKES; i++) {
        nap();
        double start = now_ns(), used = used_ns(), called;
        bare.word = i;
        futex(FUTEX_WAKE_PRIVATE, 1);
        called = now_ns();
        while (bare.answer != i)
            ;
        sum.wall += ((answered ? now_ns() : called) - start) / WAKES;
        sum.cpu += (used_ns() - used) / WAKES;
    }
    pthread_join(other, NULL);
    return sum;
}

static struct cost wake_call(struct bench *b)
{
    (void)b;
    return wakes(false);
}

static struct cost wake_answered(struct bench *b)
{
    (void)b;
    return wakes(true);
}

static const struct {
    const char *name;
    struct cost (*run)(struct bench *b);
    bool executes;
} measures[] = {
    {"loader", nothing, false},
    {"append", record_plain, false},
    {"append-signal", record_signal, false},
    {"append-wait-signal", record_wait_signal, false},
    {"event", create_destroy, false},
    {"immediate", append_immediate, true},
    {"round-trip", round_trips, true},
    {"asleep", round_trips_asleep, true},
    {"asleep-first", round_trip_unexpected, true},
    {"asleep-long", round_trips_long_asleep, true},
    {"wake-call", wake_call, true},
    {"wake-answered", wake_answered, true},
};

static void open_bench(struct bench *b, const char *modules, bool executes)
{
    open_gpu(&b->gpu, modules);
    b->kernel = build_kernel(&b->gpu, "empty", "empty");
    must(zeKernelSetGroupSize(b->kernel.handle, 1, 1, 1));
    b->memory = allocate(&b->gpu, DEVICE_MEMORY, 4096);
    for (uint32_t i = 0; i < 3; i++)
        set_argument(b->kernel, i, sizeof(b->memory), &b->memory);
    b->recorded = create_list(&b->gpu, b->gpu.compute, IN_ORDER);
    b->other = create_list(&b->gpu, b->gpu.compute, IN_ORDER);
    b->signalled = create_counter_event(&b->gpu);
    b->waited = create_counter_event(&b->gpu);
    // The event that appends wait for belongs to another list than theirs and is not complete.
    launch(b, b->other, b->waited, NULL);
    must(zeCommandListClose(b->other));
    if (!executes)
        return;
    b->immediate = create_immediate_list(&b->gpu, b->gpu.compute, IN_ORDER,
                                         ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
    launch(b, b->immediate, b->signalled, NULL);
    wait_for_event(b->signalled);
}

static void close_bench(struct bench *b)
{
    must(zeEventDestroy(b->signalled));
    must(zeEventDestroy(b->waited));
    must(zeCommandListDestroy(b->recorded));
    must(zeCommandListDestroy(b->other));
    if (b->immediate)
        must(zeCommandListDestroy(b->immediate));
    release(&b->gpu, b->memory);
    destroy_kernel(b->kernel);
    close_gpu(&b->gpu);
}

int main(int count, char **arguments)
{
    struct bench b = {0};
    bool executes = count == 3;

    if (count != 3 && !(count == 4 && strcmp(arguments[3], "appends") == 0)) {
        fprintf(stderr, "usage: %s FOLDER-OF-MODULES REPEATS [appends]\n", arguments[0]);
        return 2;
    }
    open_bench(&b, arguments[1], executes);
    for (int repeat = 0; repeat < atoi(arguments[2]); repeat++)
        for (size_t i = 0; i < sizeof(measures) / sizeof(*measures); i++) {
            if (measures[i].executes && !executes)
                continue;
            print_cost(measures[i].name, measures[i].run(&b));
        }
    close_bench(&b);
    return 0;
}
