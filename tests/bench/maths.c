// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Measures the mathematical functions of tests/kernels/bench_maths.cl, each time that a line of
// standard input has the name of one with its bits ("exp32"). Prints the processor time of one value in
// nanoseconds, the worst error of 262,144 values in units of the last place, and the argument of that
// error.
// Usage: maths MODULE.spv
#include "kernels.h"

#include <math.h>
#include <quadmath.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { VALUES = 1 << 18, ITEMS = 1 << 16, TURNS = 64, GROUP = 256 };

// The same as in kernels.c.
static const struct timespec SETTLED = {.tv_nsec = 20 * 1000 * 1000};

typedef __float128 quad;

static quad exp10_quad(quad x)
{
    return powq(10, x);
}

static quad rsqrt_quad(quad x)
{
    return 1 / sqrtq(x);
}

static quad sinpi_quad(quad x)
{
    return sinq(M_PIq * (x - 2 * roundq(x / 2)));
}

static quad cospi_quad(quad x)
{
    return cosq(M_PIq * (x - 2 * roundq(x / 2)));
}

static const struct function {
    const char *name;
    // The range of the arguments, the same for both formats.
    double least, most;
    quad (*one)(quad);
    quad (*two)(quad, quad);
} FUNCTIONS[] = {
    {"exp", -80, 80, expq, NULL},
    {"exp2", -120, 120, exp2q, NULL},
    {"exp10", -35, 35, exp10_quad, NULL},
    {"expm1", -2, 2, expm1q, NULL},
    {"log", 0.01, 20, logq, NULL},
    {"log2", 0.01, 20, log2q, NULL},
    {"log10", 0.01, 20, log10q, NULL},
    {"log1p", -0.9, 4, log1pq, NULL},
    {"sqrt", 0, 20, sqrtq, NULL},
    {"rsqrt", 0.01, 20, rsqrt_quad, NULL},
    {"cbrt", -20, 20, cbrtq, NULL},
    {"pow", 0.1, 10, NULL, powq},
    {"powr", 0.1, 10, NULL, powq},
    {"hypot", 0.1, 10, NULL, hypotq},
    {"sin", -20, 20, sinq, NULL},
    {"cos", -20, 20, cosq, NULL},
    {"tan", -20, 20, tanq, NULL},
    // Only its time is used.
    {"sine_and_cosine", -20, 20, NULL, NULL},
    {"sinpi", -4, 4, sinpi_quad, NULL},
    {"cospi", -4, 4, cospi_quad, NULL},
    {"asin", -0.99, 0.99, asinq, NULL},
    {"acos", -0.99, 0.99, acosq, NULL},
    {"atan", -5, 5, atanq, NULL},
    {"atan2", 0.1, 10, NULL, atan2q},
    {"sinh", -4, 4, sinhq, NULL},
    {"cosh", -4, 4, coshq, NULL},
    {"tanh", -4, 4, tanhq, NULL},
    {"asinh", -4, 4, asinhq, NULL},
    {"acosh", 1.01, 8, acoshq, NULL},
    {"atanh", -0.99, 0.99, atanhq, NULL},
    {"erf", -4, 4, erfq, NULL},
    {"erfc", -4, 8, erfcq, NULL},
    {"tgamma", 0.1, 20, tgammaq, NULL},
    {"lgamma", 0.1, 20, lgammaq, NULL},
    {"fmod", 0.1, 10, NULL, fmodq},
};

static double now(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double value(const void *at, size_t i, int bits)
{
    return bits == 32 ? ((const float *)at)[i] : ((const double *)at)[i];
}

static void set(void *at, size_t i, int bits, double to)
{
    if (bits == 32)
        ((float *)at)[i] = (float)to;
    else
        ((double *)at)[i] = to;
}

// The error in units of the last place of the exact number.
static double error(double got, quad exact, int bits)
{
    int exponent, least = bits == 32 ? -149 : -1074;

    if (isnan(got) || isinf(got))
        return INFINITY;
    frexpq(exact, &exponent);
    exponent -= bits == 32 ? 24 : 53;
    return (double)(fabsq((quad)got - exact) / scalbnq(1, exponent < least ? least : exponent));
}

int main(int argc, char **argv)
{
    const size_t values[2] = {VALUES, 1}, items[2] = {ITEMS, 1}, group[2] = {GROUP, 1};
    char line[64], name[80];

    if (argc != 2) {
        fprintf(stderr, "usage: maths MODULE.spv\n");
        return 2;
    }
    struct device *device = open_device();
    load_module(device, argv[1]);
    const size_t bytes = VALUES * sizeof(double);
    void *out = allocate_memory(device, bytes), *x = allocate_memory(device, bytes);
    void *y = allocate_memory(device, bytes);
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        size_t length = strlen(line);
        if (length < 3)
            continue;
        int bits = atoi(line + length - 2);
        for (const struct function *f = FUNCTIONS; f != FUNCTIONS + sizeof FUNCTIONS / sizeof *FUNCTIONS; f++) {
            if (strncmp(line, f->name, length - 2) != 0 || strlen(f->name) != length - 2)
                continue;
            uint64_t random = 1;
            for (size_t i = 0; i < VALUES; i++) {
                for (int which = 0; which < 2; which++) {
                    random = random * 6364136223846793005 + 1442695040888963407;
                    double part = (double)(random >> 11) * 0x1p-53;
                    set(which ? y : x, i, bits, f->least + (f->most - f->least) * part);
                }
            }
            // So small that the arguments do not change.
            float step = 0x1p-20f;
            double wide_step = 0x1p-20;
            struct argument arguments[] = {
                {MEMORY, bytes, out},
                {MEMORY, bytes, x},
                {MEMORY, bytes, y},
                {VALUE, bits / 8, bits == 32 ? (void *)&step : (void *)&wide_step},
            };
            double worst = 0, where = 0;
            if (f->one || f->two) {
                run(device, prepare(device, line, 3, arguments), values, group);
                for (size_t i = 0; i < VALUES; i++) {
                    quad first = value(x, i, bits), second = value(y, i, bits);
                    quad exact = f->one ? f->one(first) : f->two(first, second);
                    double off = error(value(out, i, bits), exact, bits);

                    if (off > worst) {
                        worst = off;
                        where = (double)first;
                    }
                }
            }
            snprintf(name, sizeof name, "many_%s", line);
            struct launch *launch = prepare(device, name, 4, arguments);
            run(device, launch, items, group);
            nanosleep(&SETTLED, NULL);
            double best = INFINITY;
            for (int repeat = 0; repeat < 5; repeat++) {
                double cpu = now(CLOCK_PROCESS_CPUTIME_ID);
                run(device, launch, items, group);
                nanosleep(&SETTLED, NULL);
                cpu = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
                best = cpu < best ? cpu : best;
            }
            printf("%.4f %.4f %.17g\n", best / ((double)ITEMS * TURNS), worst, where);
            fflush(stdout);
        }
    }
    return 0;
}
