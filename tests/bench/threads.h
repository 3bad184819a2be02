// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The interface between the benchmark of many threads and the API that it measures: Level Zero or
// OpenCL.

#ifndef THREADS_H
#define THREADS_H

#include <stdint.h>

struct device;
struct worker;

struct operation {
    const char *name;
    // The number of engines over which the threads' lists are spread.
    uint32_t engines;
    // Does the operation `times` times, and does not wait for commands that are still running.
    void (*run)(struct worker *, unsigned times);
};

// All operations that this API has; the last name is NULL.
extern const struct operation operations[];

// The first device, with the module empty.spv of a folder.
struct device *open_device(const char *modules);
// A thread's own objects: lists, events, memory. Its lists belong to the engine of this number.
struct worker *create_worker(struct device *device, uint32_t engine);
// Waits for all commands that the thread has left running.
void finish_worker(struct worker *worker);
void destroy_worker(struct worker *worker);

#endif
