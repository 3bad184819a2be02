// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The cost of a peer's path on the host: an OpenCL run time for CPUs, with the same empty kernel as
// host.c. Usage: host_cl FILE.cl REPEATS. Prints each repeat in ns per operation. The library is opened
// at run time, so that this builds without OpenCL; the functions that it uses are declared here.
#include "cost.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { APPENDS = 500, ROUND_TRIPS = 200, WARM_UP = 20, SERIES = 25, LONG_WAKES = 3 };

#define CL_DEVICE_TYPE_ALL UINT64_C(0xFFFFFFFF)

static struct {
    int (*clGetPlatformIDs)(uint32_t, void **, uint32_t *);
    int (*clGetDeviceIDs)(void *, uint64_t, uint32_t, void **, uint32_t *);
    void *(*clCreateContext)(const intptr_t *, uint32_t, void *const *, void *, void *, int *);
    void *(*clCreateCommandQueueWithProperties)(void *, void *, const uint64_t *, int *);
    void *(*clCreateProgramWithSource)(void *, uint32_t, const char **, const size_t *, int *);
    int (*clBuildProgram)(void *, uint32_t, void *const *, const char *, void *, void *);
    void *(*clCreateKernel)(void *, const char *, int *);
    void *(*clCreateBuffer)(void *, uint64_t, size_t, void *, int *);
    int (*clSetKernelArg)(void *, uint32_t, size_t, const void *);
    int (*clEnqueueNDRangeKernel)(void *, void *, uint32_t, const size_t *, const size_t *,
                                  const size_t *, uint32_t, void *const *, void **);
    int (*clFinish)(void *);
    void *(*clCreateUserEvent)(void *, int *);
    int (*clReleaseEvent)(void *);
} cl;

static void *queue, *context, *kernel;

static void good(int bad, const char *what)
{
    if (bad) {
        fprintf(stderr, "host_cl: %s failed\n", what);
        exit(1);
    }
}

static void open_library(void)
{
    void *library = dlopen("libOpenCL.so.1", RTLD_NOW);

    good(!library, library ? "" : dlerror());
#define FIND(name) good(!(*(void **)&cl.name = dlsym(library, #name)), #name)
    FIND(clGetPlatformIDs);
    FIND(clGetDeviceIDs);
    FIND(clCreateContext);
    FIND(clCreateCommandQueueWithProperties);
    FIND(clCreateProgramWithSource);
    FIND(clBuildProgram);
    FIND(clCreateKernel);
    FIND(clCreateBuffer);
    FIND(clSetKernelArg);
    FIND(clEnqueueNDRangeKernel);
    FIND(clFinish);
    FIND(clCreateUserEvent);
    FIND(clReleaseEvent);
#undef FIND
}

static char *read_source(const char *path)
{
    FILE *file = fopen(path, "rb");
    good(!file, path);
    char *text = calloc(1, 1 << 16);
    good(!fread(text, 1, (1 << 16) - 1, file), path);
    fclose(file);
    return text;
}

static void open_device(const char *source)
{
    void *platform, *device, *buffer;
    int bad = 0;

    good(cl.clGetPlatformIDs(1, &platform, NULL), "clGetPlatformIDs");
    good(cl.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), "clGetDeviceIDs");
    context = cl.clCreateContext(NULL, 1, &device, NULL, NULL, &bad);
    good(bad, "clCreateContext");
    queue = cl.clCreateCommandQueueWithProperties(context, device, NULL, &bad);
    good(bad, "clCreateCommandQueueWithProperties");
    char *text = read_source(source);
    void *program = cl.clCreateProgramWithSource(context, 1, (const char **)&text, NULL, &bad);
    good(bad, "clCreateProgramWithSource");
    free(text);
    good(cl.clBuildProgram(program, 1, &device, "", NULL, NULL), "clBuildProgram");
    kernel = cl.clCreateKernel(program, "empty", &bad);
    good(bad, "clCreateKernel");
    buffer = cl.clCreateBuffer(context, 1, 4096, NULL, &bad);
    good(bad, "clCreateBuffer");
    for (uint32_t i = 0; i < 3; i++)
        good(cl.clSetKernelArg(kernel, i, sizeof(buffer), &buffer), "clSetKernelArg");
}

static void enqueue(void)
{
    const size_t one = 1;

    good(cl.clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, &one, 0, NULL, NULL),
         "clEnqueueNDRangeKernel");
}

static void finish(void)
{
    good(cl.clFinish(queue), "clFinish");
}

static void report(const char *name, double start, double used, int count)
{
    print_cost(name, (struct cost){(now_ns() - start) / count, (used_ns() - used) / count});
}

static int by_wall(const void *left, const void *right)
{
    double a = ((const struct cost *)left)->wall, b = ((const struct cost *)right)->wall;

    return (a > b) - (a < b);
}

// The median by wall time of `count` round trips, each after `ms` ms of sleep.
static void report_asleep(const char *name, int count, int ms)
{
    struct cost costs[SERIES];

    for (int i = 0; i < count; i++) {
        nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
        double start = now_ns(), used = used_ns();
        enqueue();
        finish();
        costs[i] = (struct cost){now_ns() - start, used_ns() - used};
    }
    qsort(costs, (size_t)count, sizeof(*costs), by_wall);
    print_cost(name, costs[count / 2]);
}

static void measure(void)
{
    double start = now_ns(), used = used_ns();
    for (int i = 0; i < APPENDS; i++)
        enqueue();
    report("immediate", start, used, APPENDS);
    finish();

    start = now_ns(), used = used_ns();
    for (int i = 0; i < APPENDS; i++) {
        int bad;
        void *event = cl.clCreateUserEvent(context, &bad);

        good(bad || cl.clReleaseEvent(event), "clCreateUserEvent");
    }
    report("event", start, used, APPENDS);

    // Awake, and in the expectation of waits, like in host.c.
    for (int i = 0; i < WARM_UP; i++) {
        enqueue();
        finish();
    }
    start = now_ns(), used = used_ns();
    for (int i = 0; i < ROUND_TRIPS; i++) {
        enqueue();
        finish();
    }
    report("round-trip", start, used, ROUND_TRIPS);

    report_asleep("asleep", SERIES, 2);
    for (int i = 0; i < ROUND_TRIPS; i++)
        enqueue();
    finish();
    report_asleep("asleep-first", 1, 2);
    report_asleep("asleep-long", LONG_WAKES, 50);
}

int main(int count, char **arguments)
{
    if (count != 3) {
        fprintf(stderr, "usage: %s FILE.cl REPEATS\n", arguments[0]);
        return 2;
    }
    open_library();
    open_device(arguments[1]);
    enqueue();
    finish();
    for (int repeat = 0; repeat < atoi(arguments[2]); repeat++)
        measure();
    return 0;
}
