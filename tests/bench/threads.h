// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What the benchmark of many threads asks of the API that it measures: Level Zero or OpenCL.

#ifndef THREADS_H
#define THREADS_H

#include <stdint.h>

struct device;
struct worker;

struct operation {
    const char *name;
    // Over how many engines the threads' lists are spread.
    uint32_t engines;
    // Does it so many times, and does not wait for what it leaves to run.
    void (*run)(struct worker *, unsigned times);
};

// All that this API can do; ends with a name that is NULL.
extern const struct operation operations[];

// The first device, with the module empty.spv of a folder.
struct device *open_device(const char *modules);
// What a thread needs of its own: lists, events, memory. Its lists belong to the engine of this number.
struct worker *create_worker(struct device *device, uint32_t engine);
// Waits for everything that the thread has left to run.
void finish_worker(struct worker *worker);
void destroy_worker(struct worker *worker);

#endif
