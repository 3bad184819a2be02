// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Runs the kernels of tests/kernels/bench, each time that a line of standard input has the name of one.
// Prints the wall time of one run, its processor time until all threads sleep again, both in
// microseconds, and a sum over the results.
// Usage: kernels MODULE.spv
#include "kernels.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { LINE = 1 << 22, BINS = 256, MATRIX = 512, PICTURE = 1024, BODIES = 4096, CUBE = 128, SPHERES = 32, ARGUMENTS = 4 };

// The operating system adds the time of a thread on another processor to its process when the thread
// sleeps or at a tick. So processor time is read after threads that searched for more work after a run
// have gone to sleep.
static const struct timespec SETTLED = {.tv_nsec = 20 * 1000 * 1000};

struct bench {
    const char *name;
    size_t global[2], local[2];
    int count;
    struct argument arguments[ARGUMENTS];
    const void *result;
    size_t results;
    enum { FLOATS, INTS, DOUBLES, SHORTS, BYTES } type;
    int clears;   // the results are added up in place
    int launches; // in one run
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

static double element(const struct bench *bench, size_t i)
{
    switch (bench->type) {
    case FLOATS:
        return ((const float *)bench->result)[i];
    case INTS:
        return ((const int32_t *)bench->result)[i];
    case DOUBLES:
        return ((const double *)bench->result)[i];
    case SHORTS:
        return ((const uint16_t *)bench->result)[i];
    case BYTES:
        return ((const uint8_t *)bench->result)[i];
    }
    return 0;
}

static double sum(const struct bench *bench)
{
    double total = 0;

    for (size_t i = 0; i < bench->results; i++)
        total += element(bench, i);
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
    static const int matrix = MATRIX, picture = PICTURE, bodies = BODIES, limit = 200, cube = CUBE, spheres = SPHERES;
    static const uint32_t distance = 1 << 10, stretch = 1 << 12, key = 42, mask = LINE - 1;
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
    uint32_t *sorted = allocate_memory(device, LINE * sizeof *sorted);
    int32_t *bins = allocate_memory(device, BINS * sizeof *bins);
    double *wide = allocate_memory(device, LINE / 2 * sizeof *wide);
    double *wide_result = allocate_memory(device, LINE / 2 * sizeof *wide_result);
    uint16_t *halves = allocate_memory(device, LINE * sizeof(uint32_t));
    uint16_t *half_result = allocate_memory(device, LINE * sizeof(uint32_t));
    uint32_t random = 1;

    // One after the other: the position of an array's pages in the processor's caches depends on the
    // order in which the pages are first accessed.
    memset(a, 0, LINE * sizeof *a);
    memset(b, 0, LINE * sizeof *b);
    memset(c, 0, LINE * sizeof *c);
    memset(words, 0, LINE * sizeof *words);
    memset(sorted, 0, LINE * sizeof *sorted);
    memset(halves, 0, LINE * sizeof *halves);
    memset(wide, 0, LINE / 2 * sizeof *wide);
    memset(wide_result, 0, LINE / 2 * sizeof *wide_result);
    memset(half_result, 0, LINE * sizeof *half_result);
    for (size_t i = 0; i < LINE; i++) {
        random = random * 1664525 + 1013904223;
        a[i] = 0;
        b[i] = (float)(random >> 24) / 256;
        c[i] = (float)(i % 7);
        words[i] = random >> 8;
        sorted[i] = words[i];
        wide[i / 2] = b[i];
        // Normal numbers below one.
        halves[i] = (uint16_t)(0x0400 + (random >> 16) % 0x3800);
    }
    struct bench benches[] = {
        // Memory
        {"triad", {LINE, 1}, {256, 1}, 4, {memory(a), memory(b), memory(c), number(&factor)}, a, LINE, FLOATS, 0, 1, 0},
        {"saxpy4", {LINE / 4, 1}, {256, 1}, 3, {memory(a), memory(b), number(&factor)}, a, LINE, FLOATS, 0, 1, 0},
        {"lengths", {1 << 20, 1}, {256, 1}, 2, {memory(a), memory(b)}, a, 1 << 20, FLOATS, 0, 1, 0},
        {"transpose", {PICTURE, PICTURE}, {16, 16}, 3, {memory(b), memory(a), number(&picture)}, a, PICTURE * PICTURE, FLOATS, 0, 1, 0},
        {"stencil", {PICTURE, PICTURE}, {64, 4}, 3, {memory(b), memory(a), number(&picture)}, a, PICTURE * PICTURE, FLOATS, 0, 1, 0},
        {"stencil3d", {CUBE * CUBE * CUBE, 1}, {256, 1}, 4, {memory(b), memory(a), number(&cube), number(&cube)}, a, CUBE * CUBE * CUBE, FLOATS, 0, 1, 0},
        // Compute
        {"gemm_naive", {MATRIX, MATRIX}, {64, 4}, 4, {memory(b), memory(c), memory(a), number(&matrix)}, a, MATRIX * MATRIX, FLOATS, 0, 1, 0},
        {"nbody", {BODIES, 1}, {64, 1}, 3, {memory(b), memory(a), number(&bodies)}, a, 4 * BODIES, FLOATS, 0, 1, 0},
        {"maths", {LINE, 1}, {256, 1}, 2, {memory(a), memory(b)}, a, LINE, FLOATS, 0, 1, 0},
        {"pricing", {LINE, 1}, {256, 1}, 2, {memory(a), memory(b)}, a, LINE, FLOATS, 0, 1, 0},
        {"polynomial", {LINE, 1}, {256, 1}, 2, {memory(a), memory(b)}, a, LINE, FLOATS, 0, 1, 0},
        // Private arrays
        {"block_hash", {LINE / 16, 1}, {256, 1}, 2, {memory(a), memory(words)}, a, LINE / 16, INTS, 0, 1, 0},
        {"lattice", {LINE / 4, 1}, {256, 1}, 2, {memory(a), memory(b)}, a, LINE / 4, FLOATS, 0, 1, 0},
        {"attention", {LINE / 32, 1}, {256, 1}, 3, {memory(a), memory(b), memory(b)}, a, LINE / 32, FLOATS, 0, 1, 0},
        {"matrix4", {LINE / 16, 1}, {256, 1}, 2, {memory(a), memory(b)}, a, LINE / 16, FLOATS, 0, 1, 0},
        {"top8", {LINE / 64, 1}, {256, 1}, 2, {memory(a), memory(b)}, a, LINE / 64, FLOATS, 0, 1, 0},
        {"dct8", {LINE / 8, 1}, {256, 1}, 2, {memory(a), memory(b)}, a, LINE, FLOATS, 0, 1, 0},
        // Local memory and barriers
        {"gemm_tiled", {MATRIX, MATRIX}, {16, 16}, 4, {memory(b), memory(c), memory(a), number(&matrix)}, a, MATRIX * MATRIX, FLOATS, 0, 1, 0},
        {"reduce", {LINE, 1}, {256, 1}, 3, {memory(b), counters(bins), room(256 * 4)}, bins, 1, INTS, 1, 1, 0},
        {"scan", {LINE / 4, 1}, {256, 1}, 3, {memory(a), memory(b), room(256 * 4)}, a, LINE / 4, FLOATS, 0, 1, 0},
        {"bitonic", {LINE / 8, 1}, {256, 1}, 3, {memory(a), memory(b), room(256 * 4)}, a, LINE / 8, FLOATS, 0, 1, 0},
        {"fft256", {LINE / 8, 1}, {128, 1}, 2, {memory(a), memory(b)}, a, LINE / 4, FLOATS, 0, 1, 0},
        {"convolve", {PICTURE, PICTURE}, {16, 16}, 4, {memory(a), memory(b), memory(c), number(&picture)}, a, PICTURE * PICTURE, FLOATS, 0, 1, 0},
        // Divergence
        {"mandelbrot", {PICTURE, PICTURE}, {64, 4}, 3, {memory(a), number(&picture), number(&limit)}, a, PICTURE * PICTURE, INTS, 0, 1, 0},
        {"collatz", {LINE / 4, 1}, {256, 1}, 2, {memory(a), memory(words)}, a, LINE / 4, INTS, 0, 1, 0},
        {"spheres", {MATRIX, MATRIX}, {64, 4}, 4, {memory(a), memory(b), number(&spheres), number(&matrix)}, a, MATRIX * MATRIX, FLOATS, 0, 1, 0},
        {"cube_root", {LINE / 4, 1}, {256, 1}, 2, {memory(a), memory(b)}, a, LINE / 4, FLOATS, 0, 1, 0},
        // Gather
        {"sparse", {LINE / 16, 1}, {256, 1}, 4, {memory(a), memory(words), memory(b), number(&mask)}, a, LINE / 16, FLOATS, 0, 1, 0},
        {"table", {LINE, 1}, {256, 1}, 3, {memory(a), memory(words), memory(c)}, a, LINE, FLOATS, 0, 1, 0},
        {"permute", {LINE / 4, 1}, {256, 1}, 4, {memory(a), memory(b), memory(words), number(&mask)}, a, LINE / 4, FLOATS, 0, 1, 0},
        // Integers
        {"sort_step", {LINE / 2, 1}, {256, 1}, 3, {memory(sorted), number(&distance), number(&stretch)}, sorted, LINE, INTS, 0, 1, 0},
        {"philox", {LINE / 4, 1}, {256, 1}, 2, {memory(a), number(&key)}, a, LINE, INTS, 0, 1, 0},
        {"crc32", {LINE, 1}, {256, 1}, 2, {memory(a), memory(words)}, a, LINE, INTS, 0, 1, 0},
        {"murmur", {LINE, 1}, {256, 1}, 2, {memory(a), memory(words)}, a, LINE, INTS, 0, 1, 0},
        {"bits", {LINE, 1}, {256, 1}, 2, {memory(a), memory(words)}, a, LINE, INTS, 0, 1, 0},
        // Sub-groups
        {"subgroup", {LINE, 1}, {256, 1}, 2, {memory(b), memory(a)}, a, LINE, FLOATS, 0, 1, 0},
        {"subgroup_scan", {LINE, 1}, {256, 1}, 2, {memory(b), memory(a)}, a, LINE, FLOATS, 0, 1, 0},
        {"subgroup_broadcast", {LINE, 1}, {256, 1}, 2, {memory(b), memory(a)}, a, LINE, FLOATS, 0, 1, 0},
        // Numbers of 16 bits
        {"half_axpy", {LINE, 1}, {256, 1}, 3, {memory(half_result), memory(halves), number(&factor)}, half_result, LINE, SHORTS, 0, 1, 0},
        {"half_dot", {LINE / 16, 1}, {256, 1}, 2, {memory(a), memory(halves)}, a, LINE / 16, FLOATS, 0, 1, 0},
        // Numbers of 64 bits
        {"double_axpy", {LINE / 2, 1}, {256, 1}, 3, {memory(wide_result), memory(wide), number(&factor)}, wide_result, LINE / 2, DOUBLES, 0, 1, 0},
        {"double_maths", {LINE / 4, 1}, {256, 1}, 2, {memory(a), memory(wide)}, a, LINE / 4, FLOATS, 0, 1, 0},
        {"double_stencil", {PICTURE, PICTURE}, {64, 4}, 3, {memory(wide), memory(wide_result), number(&picture)}, wide_result, PICTURE * PICTURE, DOUBLES, 0, 1, 0},
        // Bytes
        {"grey", {LINE / 4, 1}, {256, 1}, 2, {memory(a), memory(words)}, a, LINE / 4, BYTES, 0, 1, 0},
        {"blur8", {PICTURE, PICTURE}, {64, 4}, 3, {memory(a), memory(words), number(&picture)}, a, PICTURE * PICTURE, BYTES, 0, 1, 0},
        {"dot8", {LINE / 16, 1}, {256, 1}, 3, {memory(a), memory(words), memory(words)}, a, LINE / 16, INTS, 0, 1, 0},
        // Atomics
        {"histogram", {LINE / 16, 1}, {256, 1}, 3, {memory(words), counters(bins), room(BINS * 4)}, bins, BINS, INTS, 1, 1, 0},
        {"count_global", {LINE / 4, 1}, {256, 1}, 2, {memory(words), counters(bins)}, bins, BINS, INTS, 1, 1, 0},
        {"largest", {LINE / 4, 1}, {256, 1}, 2, {memory(words), counters(bins)}, bins, 16, INTS, 1, 1, 0},
        // Launches
        {"small", {4096, 1}, {256, 1}, 2, {memory(a), number(&factor)}, a, 4096, FLOATS, 0, 200, 0},
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
            for (int n = 0; n < bench->launches; n++)
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
