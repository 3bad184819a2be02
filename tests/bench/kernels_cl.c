// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The benchmarks of kernels on OpenCL. The library is opened when the program runs, and the few
// declarations needed are here, so that it builds without OpenCL.
#include "kernels.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef void *handle;

enum { DEVICE_TYPE_ALL = -1, MEM_READ_WRITE_HOST = 1 | 8 };

static int32_t (*get_platforms)(uint32_t, handle *, uint32_t *);
static int32_t (*get_devices)(handle, uint64_t, uint32_t, handle *, uint32_t *);
static handle (*create_context)(const void *, uint32_t, const handle *, handle, handle, int32_t *);
static handle (*create_queue)(handle, handle, const uint64_t *, int32_t *);
static handle (*create_program)(handle, const void *, size_t, int32_t *);
static int32_t (*build_program)(handle, uint32_t, const handle *, const char *, handle, handle);
static handle (*create_kernel)(handle, const char *, int32_t *);
static int32_t (*set_argument)(handle, uint32_t, size_t, const void *);
static handle (*create_buffer)(handle, uint64_t, size_t, void *, int32_t *);
static int32_t (*enqueue)(handle, handle, uint32_t, const size_t *, const size_t *, const size_t *,
                          uint32_t, const handle *, handle *);
static int32_t (*finish)(handle);

struct device {
    handle processor, context, queue, program;
};

struct launch {
    handle kernel;
};

static void check(int32_t code, const char *what)
{
    if (code == 0)
        return;
    fprintf(stderr, "%s: OpenCL error %d\n", what, code);
    exit(1);
}

static void *symbol(void *library, const char *name)
{
    void *found = dlsym(library, name);

    if (!found) {
        fprintf(stderr, "%s is missing\n", name);
        exit(1);
    }
    return found;
}

static void load(void)
{
    void *library = dlopen("libOpenCL.so.1", RTLD_NOW);

    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    get_platforms = symbol(library, "clGetPlatformIDs");
    get_devices = symbol(library, "clGetDeviceIDs");
    create_context = symbol(library, "clCreateContext");
    create_queue = symbol(library, "clCreateCommandQueueWithProperties");
    create_program = symbol(library, "clCreateProgramWithIL");
    build_program = symbol(library, "clBuildProgram");
    create_kernel = symbol(library, "clCreateKernel");
    set_argument = symbol(library, "clSetKernelArg");
    create_buffer = symbol(library, "clCreateBuffer");
    enqueue = symbol(library, "clEnqueueNDRangeKernel");
    finish = symbol(library, "clFinish");
}

struct device *open_device(void)
{
    struct device *device = calloc(1, sizeof *device);
    handle platform;
    int32_t code;

    load();
    if (!device)
        check(-1, "calloc");
    check(get_platforms(1, &platform, NULL), "clGetPlatformIDs");
    check(get_devices(platform, (uint32_t)DEVICE_TYPE_ALL, 1, &device->processor, NULL), "clGetDeviceIDs");
    device->context = create_context(NULL, 1, &device->processor, NULL, NULL, &code);
    check(code, "clCreateContext");
    device->queue = create_queue(device->context, device->processor, NULL, &code);
    check(code, "clCreateCommandQueueWithProperties");
    return device;
}

void load_module(struct device *device, const char *path)
{
    FILE *file = fopen(path, "rb");
    int32_t code;

    if (!file || fseek(file, 0, SEEK_END))
        check(-1, path);
    long size = ftell(file);
    void *bytes = malloc((size_t)size);
    rewind(file);
    if (!bytes || fread(bytes, 1, (size_t)size, file) != (size_t)size)
        check(-1, path);
    fclose(file);
    device->program = create_program(device->context, bytes, (size_t)size, &code);
    check(code, "clCreateProgramWithIL");
    check(build_program(device->program, 1, &device->processor, "", NULL, NULL), "clBuildProgram");
    free(bytes);
}

void *allocate_memory(struct device *device, size_t bytes)
{
    void *memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);

    (void)device;
    if (!memory)
        check(-1, "aligned_alloc");
    return memory;
}

struct launch *prepare(struct device *device, const char *name, int count,
                       const struct argument *arguments)
{
    struct launch *launch = calloc(1, sizeof *launch);
    int32_t code;

    if (!launch)
        check(-1, "calloc");
    launch->kernel = create_kernel(device->program, name, &code);
    check(code, name);
    for (int i = 0; i < count; i++) {
        const struct argument *argument = &arguments[i];
        const void *value = argument->value;
        size_t size = argument->size;
        handle buffer;

        if (argument->kind == MEMORY) {
            // The buffer uses the memory in place: a device that is a processor does not copy it.
            buffer = create_buffer(device->context, MEM_READ_WRITE_HOST, size, (void *)value, &code);
            check(code, "clCreateBuffer");
            value = &buffer;
            size = sizeof buffer;
        }
        check(set_argument(launch->kernel, (uint32_t)i, size, value), "clSetKernelArg");
    }
    return launch;
}

void run(struct device *device, struct launch *launch, const size_t global[2],
         const size_t local[2])
{
    check(enqueue(device->queue, launch->kernel, 2, NULL, global, local, 0, NULL, NULL), "enqueue");
    check(finish(device->queue), "clFinish");
}
