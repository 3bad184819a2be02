// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The benchmark of many threads on OpenCL: every thread has an in-order queue of its own. The library is opened
// when the program runs, and the few declarations needed are here, so that it builds without OpenCL. OpenCL
// has no recorded lists and no engines.
#include "threads.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef void *handle;

enum { STREAMED = 256, COPIED = 1 << 16, ALLOCATED = 4096 };
enum { MEM_READ_WRITE = 1, MEM_ALLOC_HOST = 16 };

#define DEVICE_TYPE_ALL UINT64_C(0xFFFFFFFF)

static struct {
    int32_t (*clGetPlatformIDs)(uint32_t, handle *, uint32_t *);
    int32_t (*clGetDeviceIDs)(handle, uint64_t, uint32_t, handle *, uint32_t *);
    handle (*clCreateContext)(const void *, uint32_t, const handle *, handle, handle, int32_t *);
    handle (*clCreateCommandQueueWithProperties)(handle, handle, const uint64_t *, int32_t *);
    int32_t (*clReleaseCommandQueue)(handle);
    handle (*clCreateProgramWithIL)(handle, const void *, size_t, int32_t *);
    int32_t (*clBuildProgram)(handle, uint32_t, const handle *, const char *, handle, handle);
    handle (*clCreateKernel)(handle, const char *, int32_t *);
    int32_t (*clReleaseKernel)(handle);
    int32_t (*clSetKernelArg)(handle, uint32_t, size_t, const void *);
    handle (*clCreateBuffer)(handle, uint64_t, size_t, void *, int32_t *);
    int32_t (*clReleaseMemObject)(handle);
    int32_t (*clEnqueueNDRangeKernel)(handle, handle, uint32_t, const size_t *, const size_t *,
                                      const size_t *, uint32_t, const handle *, handle *);
    int32_t (*clEnqueueCopyBuffer)(handle, handle, handle, size_t, size_t, size_t, uint32_t, const handle *,
                                   handle *);
    int32_t (*clFinish)(handle);
    handle (*clCreateUserEvent)(handle, int32_t *);
    int32_t (*clReleaseEvent)(handle);
} cl;

struct device {
    handle processor, context, program;
};

struct worker {
    const struct device *device;
    handle queue, kernel, from, to;
    unsigned streamed;
};

static void check(int32_t code, const char *what)
{
    if (code == 0)
        return;
    fprintf(stderr, "%s: OpenCL error %d\n", what, code);
    exit(1);
}

static void load(void)
{
    void *library = dlopen("libOpenCL.so.1", RTLD_NOW);

    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
#define FIND(name) check((*(void **)&cl.name = dlsym(library, #name)) ? 0 : -1, #name)
    FIND(clGetPlatformIDs);
    FIND(clGetDeviceIDs);
    FIND(clCreateContext);
    FIND(clCreateCommandQueueWithProperties);
    FIND(clReleaseCommandQueue);
    FIND(clCreateProgramWithIL);
    FIND(clBuildProgram);
    FIND(clCreateKernel);
    FIND(clReleaseKernel);
    FIND(clSetKernelArg);
    FIND(clCreateBuffer);
    FIND(clReleaseMemObject);
    FIND(clEnqueueNDRangeKernel);
    FIND(clEnqueueCopyBuffer);
    FIND(clFinish);
    FIND(clCreateUserEvent);
    FIND(clReleaseEvent);
#undef FIND
}

static handle build(const struct device *device, const char *modules)
{
    static uint8_t bytes[1 << 16];
    char path[4096];
    int32_t code;

    snprintf(path, sizeof(path), "%s/empty.spv", modules);
    FILE *file = fopen(path, "rb");
    check(file ? 0 : -1, path);
    size_t size = fread(bytes, 1, sizeof(bytes), file);
    fclose(file);
    handle program = cl.clCreateProgramWithIL(device->context, bytes, size, &code);
    check(code, "clCreateProgramWithIL");
    check(cl.clBuildProgram(program, 1, &device->processor, "", NULL, NULL), "clBuildProgram");
    return program;
}

struct device *open_device(const char *modules)
{
    struct device *device = calloc(1, sizeof(*device));
    handle platform;
    int32_t code;

    load();
    check(device ? 0 : -1, "calloc");
    check(cl.clGetPlatformIDs(1, &platform, NULL), "clGetPlatformIDs");
    check(cl.clGetDeviceIDs(platform, DEVICE_TYPE_ALL, 1, &device->processor, NULL), "clGetDeviceIDs");
    device->context = cl.clCreateContext(NULL, 1, &device->processor, NULL, NULL, &code);
    check(code, "clCreateContext");
    device->program = build(device, modules);
    return device;
}

static handle create_buffer(const struct device *device, size_t bytes)
{
    int32_t code;
    handle buffer = cl.clCreateBuffer(device->context, MEM_READ_WRITE | MEM_ALLOC_HOST, bytes, NULL, &code);

    check(code, "clCreateBuffer");
    return buffer;
}

struct worker *create_worker(struct device *device, uint32_t engine)
{
    struct worker *worker = calloc(1, sizeof(*worker));
    int32_t code;

    (void)engine;
    check(worker ? 0 : -1, "calloc");
    worker->device = device;
    worker->queue = cl.clCreateCommandQueueWithProperties(device->context, device->processor, NULL, &code);
    check(code, "clCreateCommandQueueWithProperties");
    worker->kernel = cl.clCreateKernel(device->program, "empty", &code);
    check(code, "clCreateKernel");
    worker->from = create_buffer(device, COPIED);
    worker->to = create_buffer(device, COPIED);
    for (uint32_t i = 0; i < 3; i++)
        check(cl.clSetKernelArg(worker->kernel, i, sizeof(handle), &worker->from), "clSetKernelArg");
    return worker;
}

void finish_worker(struct worker *worker)
{
    check(cl.clFinish(worker->queue), "clFinish");
}

void destroy_worker(struct worker *worker)
{
    check(cl.clReleaseMemObject(worker->from), "clReleaseMemObject");
    check(cl.clReleaseMemObject(worker->to), "clReleaseMemObject");
    check(cl.clReleaseKernel(worker->kernel), "clReleaseKernel");
    check(cl.clReleaseCommandQueue(worker->queue), "clReleaseCommandQueue");
    free(worker);
}

static void create_event(struct worker *worker, unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        int32_t code;
        handle event = cl.clCreateUserEvent(worker->device->context, &code);

        check(code, "clCreateUserEvent");
        check(cl.clReleaseEvent(event), "clReleaseEvent");
    }
}

static void launch(struct worker *worker)
{
    const size_t one = 1;

    check(cl.clEnqueueNDRangeKernel(worker->queue, worker->kernel, 1, NULL, &one, &one, 0, NULL, NULL),
          "clEnqueueNDRangeKernel");
}

static void launch_and_wait(struct worker *worker, unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        launch(worker);
        finish_worker(worker);
    }
}

static void stream(struct worker *worker, unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        launch(worker);
        if (++worker->streamed % STREAMED == 0)
            finish_worker(worker);
    }
}

static void allocate_and_free(struct worker *worker, unsigned times)
{
    for (unsigned i = 0; i < times; i++)
        check(cl.clReleaseMemObject(create_buffer(worker->device, ALLOCATED)), "clReleaseMemObject");
}

static void copy(struct worker *worker, unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        check(cl.clEnqueueCopyBuffer(worker->queue, worker->from, worker->to, 0, 0, COPIED, 0, NULL, NULL),
              "clEnqueueCopyBuffer");
        finish_worker(worker);
    }
}

const struct operation operations[] = {
    {"event", 1, create_event},
    {"trip", 1, launch_and_wait},
    {"stream", 1, stream},
    {"allocate", 1, allocate_and_free},
    {"copy-4", 1, copy},
    {0},
};
