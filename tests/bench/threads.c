// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The throughput of several threads together. Usage: threads FOLDER-OF-MODULES. Each line of standard
// input requests a measurement: OPERATION THREADS START SECONDS, with START in nanoseconds of the
// monotonic clock, so that several processes can begin at the same time. The answer is a line of
// operations per second and processor nanoseconds per operation, or "unknown".
#define _GNU_SOURCE
#include "cost.h"
#include "threads.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// A thread reads the clock after BATCH operations, and copies COPIED bytes if it does so itself.
enum { BATCH = 16, COPIED = 1 << 16 };

struct measurement {
    struct device *device;
    const struct operation *operation;
    unsigned threads;
    double start, nanoseconds;
    pthread_barrier_t ready, done;
};

struct thread {
    pthread_t handle;
    const struct measurement *measurement;
    unsigned number;
    uint64_t operations;
    double took;
};

static void sleep_until(double time)
{
    const struct timespec at = {(time_t)(time / 1e9), (long)(time - (double)(time_t)(time / 1e9) * 1e9)};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL))
        ;
}

// The cost of a copy without a driver: the limit of the machine's memory and of its threads.
static void copy_bare(unsigned times)
{
    static _Thread_local uint8_t from[COPIED], to[COPIED];

    for (unsigned i = 0; i < times; i++) {
        memcpy(to, from, sizeof(to));
        // The compiler has to assume that both are used.
        __asm__ volatile("" ::"r"(from), "r"(to) : "memory");
    }
}

static void run(const struct operation *operation, struct worker *worker, unsigned times)
{
    if (operation->run)
        operation->run(worker, times);
    else
        copy_bare(times);
}

static void *work(void *argument)
{
    struct thread *thread = argument;
    const struct measurement *measurement = thread->measurement;
    const struct operation *operation = measurement->operation;
    struct worker *worker = NULL;

    if (operation->run)
        worker = create_worker(measurement->device, thread->number % operation->engines);
    run(operation, worker, BATCH);
    if (worker)
        finish_worker(worker);
    pthread_barrier_wait((pthread_barrier_t *)&measurement->ready);
    sleep_until(measurement->start);
    double start = now_ns(), now;
    do {
        run(operation, worker, BATCH);
        thread->operations += BATCH;
        now = now_ns();
    } while (now < measurement->start + measurement->nanoseconds);
    if (worker)
        finish_worker(worker);
    thread->took = now_ns() - start;
    pthread_barrier_wait((pthread_barrier_t *)&measurement->done);
    if (worker)
        destroy_worker(worker);
    return NULL;
}

static void measure(struct measurement *measurement)
{
    struct thread *threads = calloc(measurement->threads, sizeof(*threads));
    double rate = 0, operations = 0;

    if (!threads)
        exit(1);
    pthread_barrier_init(&measurement->ready, NULL, measurement->threads + 1);
    pthread_barrier_init(&measurement->done, NULL, measurement->threads + 1);
    for (unsigned i = 0; i < measurement->threads; i++) {
        threads[i].measurement = measurement;
        threads[i].number = i;
        if (pthread_create(&threads[i].handle, NULL, work, &threads[i]))
            exit(1);
    }
    pthread_barrier_wait(&measurement->ready);
    double used = used_ns();
    pthread_barrier_wait(&measurement->done);
    used = used_ns() - used;
    for (unsigned i = 0; i < measurement->threads; i++) {
        pthread_join(threads[i].handle, NULL);
        operations += (double)threads[i].operations;
        rate += (double)threads[i].operations / threads[i].took * 1e9;
    }
    pthread_barrier_destroy(&measurement->ready);
    pthread_barrier_destroy(&measurement->done);
    free(threads);
    printf("%.0f %.1f\n", rate, used / operations);
}

static const struct operation *find(const char *name)
{
    static const struct operation bare = {"memcpy", 1, NULL};
    const struct operation *operation = operations;

    if (strcmp(name, bare.name) == 0)
        return &bare;
    while (operation->name && strcmp(name, operation->name) != 0)
        operation++;
    return operation->name ? operation : NULL;
}

int main(int count, char **arguments)
{
    struct measurement measurement;
    char line[128], name[64];

    if (count != 2) {
        fprintf(stderr, "usage: %s FOLDER-OF-MODULES\n", arguments[0]);
        return 2;
    }
    measurement.device = open_device(arguments[1]);
    while (fgets(line, sizeof(line), stdin)) {
        double seconds;

        if (sscanf(line, "%63s %u %lf %lf", name, &measurement.threads, &measurement.start, &seconds) != 4 ||
            measurement.threads == 0)
            return 2;
        measurement.nanoseconds = seconds * 1e9;
        measurement.operation = find(name);
        if (measurement.operation)
            measure(&measurement);
        else
            puts("unknown");
        fflush(stdout);
    }
    return 0;
}
