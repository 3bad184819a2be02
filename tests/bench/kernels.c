// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Runs the kernels of tests/kernels/bench.cl, one each time that its name comes in a line of standard
// input, and answers with the wall microseconds of one run, its processor microseconds until all threads
// sleep again, and a sum over the results.
// Usage: kernels MODULE.spv
#include "kernels.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { LINE = 1 << 22, BINS = 256, MATRIX = 512, PICTURE = 1024, BODIES = 4096, ARGUMENTS = 4 };

// The kernel adds the time of a thread on another processor to its process when the thread sleeps or at a
// tick. So processor time is read when threads that searched for more work after a run have given up.
static const struct timespec SETTLED = {.tv_nsec = 20 * 1000 * 1000};

struct bench {
    const char *name;
    size_t global[2], local[2];
    int count;
    struct argument arguments[ARGUMENTS];
    const void *result;
    size_t results;
    enum { FLOATS, INTS } type;
    int clears; // the results are added up in place
    struct launch *launch;
};

static double microseconds(struct timespec t)
{
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static double now(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return microseconds(t);
}

static double sum(const struct bench *bench)
{
    double total = 0;

    for (size_t i = 0; i < bench->results; i++)
        total += bench->type == FLOATS ? (double)((const float *)bench->result)[i]
                                       : (double)((const int32_t *)bench->result)[i];
    return total;
}

static struct argument memory(const void *at)
{
    return (struct argument){MEMORY, LINE * sizeof(float), at};
}

static struct argument counters(const void *at)
{
    return (struct argument){MEMORY, BINS * sizeof(int32_t), at};
}

static struct argument number(const void *at)
{
    return (struct argument){VALUE, 4, at};
}

static struct argument room(size_t bytes)
{
    return (struct argument){LOCAL, bytes, NULL};
}

int main(int argc, char **argv)
{
    static const int matrix = MATRIX, picture = PICTURE, bodies = BODIES, limit = 200;
    static const uint32_t distance = 1 << 10, stretch = 1 << 12;
    static const float factor = 3;
    char line[64];

    if (argc != 2) {
        fprintf(stderr, "usage: kernels MODULE.spv\n");
        return 2;
    }
    struct device *device = open_device();
    load_module(device, argv[1]);
    float *a = allocate_memory(device, LINE * sizeof *a);
    float *b = allocate_memory(device, LINE * sizeof *b);
    float *c = allocate_memory(device, LINE * sizeof *c);
    uint32_t *words = allocate_memory(device, LINE * sizeof *words);
    int32_t *bins = allocate_memory(device, BINS * sizeof *bins);
    uint32_t random = 1;

    // One after the other: where the processor finds the pages of an array in its caches depends on the order
    // in which the pages are touched first.
    memset(a, 0, LINE * sizeof *a);
    memset(b, 0, LINE * sizeof *b);
    memset(c, 0, LINE * sizeof *c);
    memset(words, 0, LINE * sizeof *words);
    for (size_t i = 0; i < LINE; i++) {
        random = random * 1664525 + 1013904223;
        a[i] = 0;
        b[i] = (float)(random >> 24) / 256;
        c[i] = (float)(i % 7);
        words[i] = random >> 8;
    }
    struct bench benches[] = {
        {"triad", {LINE, 1}, {256, 1}, 4, {memory(a), memory(b), memory(c), number(&factor)}, a, LINE, FLOATS, 0, 0},
        {"gemm_naive", {MATRIX, MATRIX}, {64, 4}, 4, {memory(b), memory(c), memory(a), number(&matrix)}, a, MATRIX * MATRIX, FLOATS, 0, 0},
        {"gemm_tiled", {MATRIX, MATRIX}, {16, 16}, 4, {memory(b), memory(c), memory(a), number(&matrix)}, a, MATRIX * MATRIX, FLOATS, 0, 0},
        {"mandelbrot", {PICTURE, PICTURE}, {64, 4}, 3, {memory(a), number(&picture), number(&limit)}, a, PICTURE * PICTURE, INTS, 0, 0},
        {"nbody", {BODIES, 1}, {64, 1}, 3, {memory(b), memory(a), number(&bodies)}, a, 4 * BODIES, FLOATS, 0, 0},
        {"maths", {LINE, 1}, {256, 1}, 2, {memory(a), memory(b)}, a, LINE, FLOATS, 0, 0},
        {"reduce", {LINE, 1}, {256, 1}, 3, {memory(b), counters(bins), room(256 * 4)}, bins, 1, INTS, 1, 0},
        {"subgroup", {LINE, 1}, {256, 1}, 2, {memory(b), memory(a)}, a, LINE, FLOATS, 0, 0},
        {"histogram", {LINE / 16, 1}, {256, 1}, 3, {memory(words), counters(bins), room(BINS * 4)}, bins, BINS, INTS, 1, 0},
        {"transpose", {PICTURE, PICTURE}, {16, 16}, 3, {memory(b), memory(a), number(&picture)}, a, PICTURE * PICTURE, FLOATS, 0, 0},
        {"stencil", {PICTURE, PICTURE}, {64, 4}, 3, {memory(b), memory(a), number(&picture)}, a, PICTURE * PICTURE, FLOATS, 0, 0},
        {"sort_step", {LINE / 2, 1}, {256, 1}, 3, {memory(words), number(&distance), number(&stretch)}, words, LINE, INTS, 0, 0},
    };
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        for (size_t i = 0; i < sizeof benches / sizeof *benches; i++) {
            struct bench *bench = &benches[i];

            if (strcmp(line, bench->name) != 0)
                continue;
            if (!bench->launch)
                bench->launch = prepare(device, bench->name, bench->count, bench->arguments);
            if (bench->clears)
                memset(bins, 0, BINS * sizeof *bins);
            double wall = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
            run(device, bench->launch, bench->global, bench->local);
            wall = now(CLOCK_MONOTONIC) - wall;
            nanosleep(&SETTLED, NULL);
            cpu = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
            printf("%.1f %.1f %.9g\n", wall, cpu, sum(bench));
            fflush(stdout);
        }
    }
    return 0;
}
