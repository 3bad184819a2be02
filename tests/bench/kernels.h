// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The interface between the benchmarks of kernels and the API that they measure: Level Zero or OpenCL.

#ifndef KERNELS_H
#define KERNELS_H

#include <stddef.h>

struct device;
struct launch;

// The first device.
struct device *open_device(void);
// Builds the SPIR-V module of a file; a device has only one.
void load_module(struct device *device, const char *path);
// Memory that the host can write too.
void *allocate_memory(struct device *device, size_t bytes);

enum argument_kind { VALUE, MEMORY, LOCAL };

struct argument {
    enum argument_kind kind;
    size_t size;       // of the value, or of the memory
    const void *value; // the value, or the memory
};

// A kernel with its arguments.
struct launch *prepare(struct device *device, const char *kernel, int count,
                       const struct argument *arguments);
// Runs it over a grid and waits for its end.
void run(struct device *device, struct launch *launch, const size_t global[2],
         const size_t local[2]);

#endif
