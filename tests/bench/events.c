// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The cost of counter-based events: appends, waits, wakes, aggregation, chains, memory, and the effect
// of parked queues on others. Usage: events FOLDER-OF-MODULES. Figures are medians of REPEATS repeats
// unless they say otherwise.
#include "cost.h"
#include "counter_events.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { REPEATS = 25, APPENDS = 2000, PRODUCERS = 64, INCREMENTS = 6400, HOPS = 10000, PARKED = 1000 };
enum { LIVE = 1000000, SLEEPERS = 100 };

// Constants of zex_event.h, which loaders do not install.
enum { IMMEDIATE = 1, NON_IMMEDIATE = 2, HOST_VISIBLE = 4, SHARED = 8, KERNEL_TIMESTAMP = 16 };

struct ipc_handle {
    char bytes[ZE_MAX_IPC_HANDLE_SIZE];
};

struct event_desc {
    uint32_t stype;
    const void *next;
    uint32_t flags, signal, wait;
};

struct storage {
    uint32_t stype;
    void *next;
    uint64_t *word;
    uint64_t increment, completion;
};

typedef ze_result_t (*get_handle_fn)(ze_event_handle_t, struct ipc_handle *);
typedef ze_result_t (*open_handle_fn)(ze_context_handle_t, struct ipc_handle, ze_event_handle_t *);
typedef ze_result_t (*close_handle_fn)(ze_event_handle_t);
typedef ze_result_t (*create_fn)(ze_context_handle_t, ze_device_handle_t, const struct event_desc *,
                                 ze_event_handle_t *);

struct bench {
    struct gpu gpu;
    create_fn create;
    ze_event_pool_handle_t pool;
    ze_event_handle_t gate;
};

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static ze_event_handle_t create_event(const struct bench *b, uint32_t more, const void *next)
{
    struct event_desc desc = {0x0003001C, next, IMMEDIATE | NON_IMMEDIATE | HOST_VISIBLE | more, 0, 0};
    ze_event_handle_t event;

    must(b->create(b->gpu.context, b->gpu.device, &desc, &event));
    return event;
}

static ze_command_list_handle_t create_on(const struct bench *b, uint32_t index)
{
    return create_immediate_list_on(&b->gpu, b->gpu.compute, index, IN_ORDER,
                                    ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
}

// A barrier that waits for and signals events, either of which may be NULL.
static void barrier(ze_command_list_handle_t list, ze_event_handle_t signal, ze_event_handle_t wait)
{
    must(zeCommandListAppendBarrier(list, signal, wait ? 1 : 0, wait ? &wait : NULL));
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof(*values), by_size);
    return values[count / 2];
}

static void report(const char *what, double value, const char *unit)
{
    printf("%-62s%12.*f %s\n", what, value < 100 ? 1 : 0, value, unit);
}

// Appends of an empty kernel, so that the cost of an event shows.
static void appends(struct bench *b)
{
    static double plain[REPEATS], signal[REPEATS], waits[REPEATS];
    ze_command_list_handle_t list = create_list(&b->gpu, b->gpu.compute, IN_ORDER);
    ze_event_handle_t event = create_event(b, 0, NULL), done = create_event(b, 0, NULL);

    for (int repeat = 0; repeat < REPEATS; repeat++)
        for (int kind = 0; kind < 3; kind++) {
            double *times = kind == 0 ? plain : kind == 1 ? signal : waits;
            must(zeCommandListReset(list));
            double start = now_ns();
            for (int i = 0; i < APPENDS; i++)
                barrier(list, kind ? event : NULL, kind == 2 ? done : NULL);
            times[repeat] = (now_ns() - start) / APPENDS;
        }
    report("append of a barrier to a regular in-order list", median(plain, REPEATS), "ns");
    report("  with a counter-based signal", median(signal, REPEATS), "ns");
    report("  with a wait for a completed event, and a signal", median(waits, REPEATS), "ns");
    must(zeEventDestroy(event));
    must(zeEventDestroy(done));
    must(zeCommandListDestroy(list));
}

static void completed(struct bench *b)
{
    static double waits[REPEATS], queries[REPEATS];
    ze_command_list_handle_t list = create_on(b, 0);
    ze_event_handle_t event = create_event(b, 0, NULL);

    barrier(list, event, NULL);
    wait_for_event(event);
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        double start = now_ns();
        for (int i = 0; i < APPENDS; i++)
            must(zeEventHostSynchronize(event, UINT64_MAX));
        waits[repeat] = (now_ns() - start) / APPENDS;
        start = now_ns();
        for (int i = 0; i < APPENDS; i++)
            must(zeEventQueryStatus(event));
        queries[repeat] = (now_ns() - start) / APPENDS;
    }
    report("host wait for a completed event", median(waits, REPEATS), "ns");
    report("query of a completed event", median(queries, REPEATS), "ns");
    must(zeEventDestroy(event));
    must(zeCommandListDestroy(list));
}

static void *open_gate_later(void *event)
{
    pause_ms(2);
    must(zeEventHostSignal(event));
    return NULL;
}

// From the device's end of the command that signals to the host's return from its wait. Both clocks
// have the same rate, so one pair of timestamps relates them.
static void wakes(struct bench *b)
{
    static double spinning[REPEATS], asleep[REPEATS];
    ze_command_list_handle_t list = create_on(b, 0);
    ze_event_handle_t event = create_event(b, KERNEL_TIMESTAMP, NULL);
    uint64_t host, device;

    must(zeDeviceGetGlobalTimestamps(b->gpu.device, &host, &device));
    for (int repeat = 0; repeat < REPEATS; repeat++)
        for (int sleeps = 0; sleeps < 2; sleeps++) {
            ze_kernel_timestamp_result_t times;
            pthread_t opener;

            must(zeEventHostReset(b->gate));
            barrier(list, event, sleeps ? b->gate : NULL);
            if (sleeps)
                pthread_create(&opener, NULL, open_gate_later, b->gate);
            wait_for_event(event);
            double back = now_ns();
            if (sleeps)
                pthread_join(opener, NULL);
            must(zeEventQueryKernelTimestamp(event, &times));
            double end = (double)(int64_t)(times.global.kernelEnd - device + host);
            (sleeps ? asleep : spinning)[repeat] = back - end;
        }
    report("signal of the device to return of a host wait, spinning", median(spinning, REPEATS), "ns");
    report("  asleep", median(asleep, REPEATS), "ns");
    must(zeEventDestroy(event));
    must(zeCommandListDestroy(list));
}

static void aggregated(struct bench *b)
{
    uint64_t *word = allocate(&b->gpu, DEVICE_MEMORY, 64);
    ze_command_list_handle_t lists[PRODUCERS];

    for (int i = 0; i < PRODUCERS; i++)
        lists[i] = create_on(b, (uint32_t)i);
    for (int producers = 1; producers <= PRODUCERS; producers *= 8) {
        static double times[REPEATS];
        char what[80];

        for (int repeat = 0; repeat < REPEATS; repeat++) {
            struct storage storage = {0x00030027, NULL, word, 1, INCREMENTS};
            ze_event_handle_t event = create_event(b, 0, &storage);

            *word = 0;
            must(zeEventHostReset(b->gate));
            for (int i = 0; i < producers; i++)
                barrier(lists[i], NULL, b->gate);
            for (int i = 0; i < INCREMENTS; i++)
                barrier(lists[i % producers], event, NULL);
            double start = now_ns();
            must(zeEventHostSignal(b->gate));
            wait_for_event(event);
            times[repeat] = (now_ns() - start) / INCREMENTS;
            for (int i = 0; i < producers; i++) {
                ze_event_handle_t idle = create_event(b, 0, NULL);
                barrier(lists[i], idle, NULL);
                wait_for_event(idle);
                must(zeEventDestroy(idle));
            }
            must(zeEventDestroy(event));
        }
        snprintf(what, sizeof(what), "aggregated event, an increment, %d producers", producers);
        report(what, median(times, REPEATS), "ns");
    }
    for (int i = 0; i < PRODUCERS; i++)
        must(zeCommandListDestroy(lists[i]));
    release(&b->gpu, word);
}

static void chain(struct bench *b)
{
    static ze_event_handle_t events[HOPS];
    double times[5];
    ze_command_list_handle_t lists[2] = {create_on(b, 0), create_on(b, 1)};

    for (int i = 0; i < HOPS; i++)
        events[i] = create_event(b, 0, NULL);
    for (int repeat = 0; repeat < 5; repeat++) {
        must(zeEventHostReset(b->gate));
        for (int i = 0; i < HOPS; i++)
            barrier(lists[i % 2], events[i], i ? events[i - 1] : b->gate);
        double start = now_ns();
        must(zeEventHostSignal(b->gate));
        wait_for_event(events[HOPS - 1]);
        times[repeat] = (now_ns() - start) / HOPS;
    }
    report("chain of 10,000 events over two engines, a hop (of 5)", median(times, 5), "ns");
    for (int i = 0; i < HOPS; i++)
        must(zeEventDestroy(events[i]));
    must(zeCommandListDestroy(lists[0]));
    must(zeCommandListDestroy(lists[1]));
}

static void *function(const struct bench *b, const char *name)
{
    void *address;

    must(zeDriverGetExtensionFunctionAddress(b->gpu.driver, name, &address));
    return address;
}

// The other process, controlled by its standard input and output: takes a handle, reports that it is
// about to wait, and prints the time when the wait has ended.
static int other_process(struct bench *b)
{
    open_handle_fn open_handle = (open_handle_fn)function(b, "zexCounterBasedEventOpenIpcHandle");
    close_handle_fn close_handle = (close_handle_fn)function(b, "zexCounterBasedEventCloseIpcHandle");
    struct ipc_handle handle;

    while (read(STDIN_FILENO, &handle, sizeof(handle)) == (ssize_t)sizeof(handle)) {
        ze_event_handle_t event;
        double back = 0;

        must(open_handle(b->gpu.context, handle, &event));
        if (write(STDOUT_FILENO, &back, sizeof(back)) != (ssize_t)sizeof(back))
            return 1;
        wait_for_event(event);
        back = now_ns();
        if (write(STDOUT_FILENO, &back, sizeof(back)) != (ssize_t)sizeof(back))
            return 1;
        must(close_handle(event));
    }
    return 0;
}

static double answer_of(int from)
{
    double answer;

    if (read(from, &answer, sizeof(answer)) != (ssize_t)sizeof(answer))
        stop("the other process has ended");
    return answer;
}

// From the host's signal, through a list of the device that waits for it, to the return of a wait in
// another process, which sleeps by then.
static void across(struct bench *b, char **arguments)
{
    static double times[REPEATS];
    get_handle_fn get_handle = (get_handle_fn)function(b, "zexCounterBasedEventGetIpcHandle");
    ze_command_list_handle_t list = create_on(b, 0);
    int to[2], from[2];

    if (pipe(to) || pipe(from))
        stop("no pipes");
    pid_t child = fork();
    if (child == 0) {
        char *program[] = {arguments[0], arguments[1], "other", NULL};
        dup2(to[0], STDIN_FILENO);
        dup2(from[1], STDOUT_FILENO);
        close(to[1]);
        close(from[0]);
        execv("/proc/self/exe", program);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        ze_event_handle_t event = create_event(b, SHARED, NULL);
        struct ipc_handle handle;

        must(zeEventHostReset(b->gate));
        barrier(list, event, b->gate);
        must(get_handle(event, &handle));
        if (write(to[1], &handle, sizeof(handle)) != (ssize_t)sizeof(handle))
            stop("the other process has ended");
        answer_of(from[0]);
        pause_ms(2);
        double start = now_ns();
        must(zeEventHostSignal(b->gate));
        times[repeat] = answer_of(from[0]) - start;
        must(zeEventDestroy(event));
    }
    close(to[1]);
    waitpid(child, NULL, 0);
    close(from[0]);
    report("host signal, device, return of a wait in another process", median(times, REPEATS), "ns");
    must(zeCommandListDestroy(list));
}

static double resident_bytes(void)
{
    long size, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");

    if (!file || fscanf(file, "%ld %ld", &size, &resident) != 2)
        stop("/proc/self/statm cannot be read");
    fclose(file);
    return (double)resident * (double)sysconf(_SC_PAGESIZE);
}

static void live(struct bench *b)
{
    ze_event_handle_t *events = malloc(LIVE * sizeof(*events));

    if (!events)
        stop("no memory for the handles of a million events");
    memset(events, 1, LIVE * sizeof(*events));
    double before = resident_bytes();
    for (int i = 0; i < LIVE; i++)
        events[i] = create_event(b, 0, NULL);
    report("1,000,000 events that live, each", (resident_bytes() - before) / LIVE, "bytes");
    for (int i = 0; i < LIVE; i++)
        must(zeEventDestroy(events[i]));
    free(events);
}

static void *wait_long(void *event)
{
    wait_for_event(event);
    return NULL;
}

static void sleepers(struct bench *b)
{
    pthread_t threads[SLEEPERS];
    ze_command_list_handle_t list = create_on(b, 0);
    ze_event_handle_t event = create_event(b, 0, NULL);

    must(zeEventHostReset(b->gate));
    barrier(list, event, b->gate);
    for (int i = 0; i < SLEEPERS; i++)
        pthread_create(&threads[i], NULL, wait_long, event);
    pause_ms(200);
    double start = now_ns(), used = used_ns();
    pause_ms(1000);
    report("processor used while 100 threads wait (once, 1 s)",
           (used_ns() - used) / (now_ns() - start) * 100, "%");
    must(zeEventHostSignal(b->gate));
    for (int i = 0; i < SLEEPERS; i++)
        pthread_join(threads[i], NULL);
    must(zeEventDestroy(event));
    must(zeCommandListDestroy(list));
}

static double round_trip(ze_command_list_handle_t list, ze_event_handle_t event)
{
    static double times[200];

    for (int i = 0; i < 200; i++) {
        double start = now_ns();
        barrier(list, event, NULL);
        wait_for_event(event);
        times[i] = now_ns() - start;
    }
    return median(times, 200);
}

static void neighbours(struct bench *b)
{
    static ze_command_list_handle_t parked[PARKED];
    static double alone[REPEATS], beside[REPEATS];
    ze_command_list_handle_t list = create_on(b, 0);
    ze_event_handle_t event = create_event(b, 0, NULL);

    for (int i = 0; i < PARKED; i++)
        parked[i] = create_on(b, 0);
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        alone[repeat] = round_trip(list, event);
        must(zeEventHostReset(b->gate));
        for (int i = 0; i < PARKED; i++)
            barrier(parked[i], NULL, b->gate);
        beside[repeat] = round_trip(list, event);
        must(zeEventHostSignal(b->gate));
        for (int i = 0; i < PARKED; i++) {
            ze_event_handle_t idle = create_event(b, 0, NULL);
            barrier(parked[i], idle, NULL);
            wait_for_event(idle);
            must(zeEventDestroy(idle));
        }
    }
    report("round trip of an immediate barrier, alone on its engine", median(alone, REPEATS), "ns");
    report("  while 1000 queues of the engine are parked", median(beside, REPEATS), "ns");
    for (int i = 0; i < PARKED; i++)
        must(zeCommandListDestroy(parked[i]));
    must(zeEventDestroy(event));
    must(zeCommandListDestroy(list));
}

int main(int count, char **arguments)
{
    struct bench b = {0};
    ze_event_pool_desc_t pool = {
        .stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, .flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE, .count = 1};
    ze_event_desc_t event = {.stype = ZE_STRUCTURE_TYPE_EVENT_DESC};

    if (count != 2 && count != 3) {
        fprintf(stderr, "usage: %s FOLDER-OF-MODULES\n", arguments[0]);
        return 2;
    }
    open_gpu(&b.gpu, arguments[1]);
    b.create = (create_fn)function(&b, "zexCounterBasedEventCreate2");
    must(zeEventPoolCreate(b.gpu.context, &pool, 0, NULL, &b.pool));
    must(zeEventCreate(b.pool, &event, &b.gate));
    if (count == 3)
        return other_process(&b);
    printf("medians of %d repeats\n", REPEATS);
    appends(&b);
    completed(&b);
    wakes(&b);
    across(&b, arguments);
    aggregated(&b);
    chain(&b);
    live(&b);
    sleepers(&b);
    neighbours(&b);
    must(zeEventDestroy(b.gate));
    must(zeEventPoolDestroy(b.pool));
    close_gpu(&b.gpu);
    return 0;
}
