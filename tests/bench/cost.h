// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The cost of an operation: wall time, processor time, and the share of its processor that a program
// had meanwhile.
#ifndef TALLY_BENCH_COST_H
#define TALLY_BENCH_COST_H

#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>

// Nanoseconds per operation: of wall time, and of processor time of all threads of the process.
struct cost {
    double wall, cpu;
};

static inline double now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static inline double used_ns(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e9 +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e3;
}

// The time of a loop that calls nothing and stays in the nearest cache. On a shared machine, where
// other threads sometimes run on the same core, it takes up to twice as long then, like all other code.
static inline double loop_ns(void)
{
    static volatile uint64_t words[512];
    double best = 0;

    for (int turn = 0; turn < 5; turn++) {
        double start = now_ns();
        for (unsigned i = 0; i < 2000; i++)
            words[i * 8 % 512] += i;
        double took = now_ns() - start;
        best = turn == 0 || took < best ? took : best;
    }
    return best;
}

// Prints a line for host.py: the name of a measurement, its cost, and the longer of the loops before
// and after it.
static inline void print_cost(const char *name, struct cost cost)
{
    static double before;
    double after = loop_ns();

    printf("%s\t%.1f\t%.1f\t%.1f\n", name, cost.wall, cost.cpu, before > after ? before : after);
    before = after;
}

#endif
