// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The effect of other work on one thread's round trips: an empty kernel on an immediate list and the
// wait for it, alone, beside lists that wait for an event, and beside threads that submit. Then the
// cost of threads that only wait. Usage: neighbours FOLDER-OF-MODULES.
#include "cost.h"
#include "counter_events.h"
#include "gpu.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum { TRIPS = 20000, WARM_UP = 1000, PARKED = 1000, SUBMITTERS = 64, WAITERS = 100, STREAMED = 64 };

static struct gpu gpu;
static struct kernel kernel;
static atomic_bool is_over;

struct list {
    ze_command_list_handle_t handle;
    ze_event_handle_t event;
};

static struct list make_list(uint32_t engine)
{
    struct list list = {
        create_immediate_list_on(&gpu, gpu.compute, engine, IN_ORDER, ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS),
        create_counter_event(&gpu),
    };

    return list;
}

static void destroy_list(struct list list)
{
    must(zeCommandListDestroy(list.handle));
    must(zeEventDestroy(list.event));
}

static void launch(const struct list *list, ze_event_handle_t signal, ze_event_handle_t wait)
{
    const ze_group_count_t one = {1, 1, 1};

    must(zeCommandListAppendLaunchKernel(list->handle, kernel.handle, &one, signal, wait ? 1 : 0,
                                         wait ? &wait : NULL));
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

// Prints median, 99th percentile and the longest of a thread's round trips.
static void measure(const char *what)
{
    static double took[TRIPS];
    struct list list = make_list(0);

    for (int i = -WARM_UP; i < TRIPS; i++) {
        double start = now_ns();

        launch(&list, list.event, NULL);
        must(zeEventHostSynchronize(list.event, UINT64_MAX));
        if (i >= 0)
            took[i] = now_ns() - start;
    }
    qsort(took, TRIPS, sizeof(*took), by_value);
    printf("%-44s%12.2f%12.2f%12.1f\n", what, took[TRIPS / 2] / 1e3, took[TRIPS / 100 * 99] / 1e3,
           took[TRIPS - 1] / 1e3);
    fflush(stdout);
    destroy_list(list);
}

// An event that is not complete, with its pool.
static ze_event_handle_t make_gate(ze_event_pool_handle_t *pool)
{
    const ze_event_pool_desc_t pool_desc = {
        .stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, .flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE, .count = 1};
    const ze_event_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_EVENT_DESC};
    ze_event_handle_t gate;

    must(zeEventPoolCreate(gpu.context, &pool_desc, 1, &gpu.device, pool));
    must(zeEventCreate(*pool, &desc, &gate));
    return gate;
}

static void beside_parked_lists(void)
{
    static struct list lists[PARKED];
    ze_event_pool_handle_t pool;
    ze_event_handle_t gate = make_gate(&pool);

    for (int i = 0; i < PARKED; i++) {
        lists[i] = make_list(i);
        launch(&lists[i], lists[i].event, gate);
    }
    measure("beside 1,000 lists that wait for an event");
    must(zeEventHostSignal(gate));
    for (int i = 0; i < PARKED; i++) {
        wait_for_event(lists[i].event);
        destroy_list(lists[i]);
    }
    must(zeEventDestroy(gate));
    must(zeEventPoolDestroy(pool));
}

static void *submit(void *number)
{
    struct list list = make_list((uint32_t)(uintptr_t)number);

    while (!is_over) {
        for (int i = 0; i < STREAMED; i++)
            launch(&list, i == STREAMED - 1 ? list.event : NULL, NULL);
        wait_for_event(list.event);
    }
    destroy_list(list);
    return NULL;
}

// Without the driver: the effect of the machine on a thread among so many.
static void *spin(void *unused)
{
    while (!is_over)
        for (volatile int i = 0; i < 1000; i++)
            ;
    return unused;
}

static void beside_threads(const char *what, void *(*body)(void *))
{
    pthread_t threads[SUBMITTERS];

    is_over = false;
    for (int i = 0; i < SUBMITTERS; i++)
        if (pthread_create(&threads[i], NULL, body, (void *)(uintptr_t)i))
            stop("no thread");
    measure(what);
    is_over = true;
    for (int i = 0; i < SUBMITTERS; i++)
        pthread_join(threads[i], NULL);
}

static void *wait_for_gate(void *gate)
{
    must(zeEventHostSynchronize(gate, UINT64_MAX));
    return NULL;
}

static void count_waiters(void)
{
    pthread_t threads[WAITERS];
    ze_event_pool_handle_t pool;
    ze_event_handle_t gate = make_gate(&pool);

    for (int i = 0; i < WAITERS; i++)
        if (pthread_create(&threads[i], NULL, wait_for_gate, gate))
            stop("no thread");
    // Wait until all of them sleep.
    sleep(1);
    double start = now_ns(), used = used_ns();
    sleep(1);
    double part = (used_ns() - used) / (now_ns() - start);
    must(zeEventHostSignal(gate));
    for (int i = 0; i < WAITERS; i++)
        pthread_join(threads[i], NULL);
    printf("\n100 threads that wait use %.2f %% of a processor\n", part * 100);
    must(zeEventDestroy(gate));
    must(zeEventPoolDestroy(pool));
}

int main(int count, char **arguments)
{
    if (count != 2) {
        fprintf(stderr, "usage: %s FOLDER-OF-MODULES\n", arguments[0]);
        return 2;
    }
    open_gpu(&gpu, arguments[1]);
    kernel = build_kernel(&gpu, "empty", "empty");
    must(zeKernelSetGroupSize(kernel.handle, 1, 1, 1));
    for (uint32_t i = 0; i < 3; i++)
        set_argument(kernel, i, sizeof(void *), &(void *){NULL});
    printf("%-44s%12s%12s%12s\n", "round trip of one thread, µs", "median", "99 %", "longest");
    measure("alone");
    beside_parked_lists();
    beside_threads("beside 64 threads that submit", submit);
    beside_threads("no driver: beside 64 threads that compute", spin);
    count_waiters();
    destroy_kernel(kernel);
    close_gpu(&gpu);
    return 0;
}
