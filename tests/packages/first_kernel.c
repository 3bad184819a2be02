// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A first program, on Level Zero or OpenCL: doubles numbers with a kernel and checks the result.
// Usage: first_kernel saxpy.spv
#include "kernels.h"

#include <stdint.h>
#include <stdio.h>

enum { COUNT = 1024, GROUP = 64 };

int main(int argc, char **argv)
{
    const uint32_t count = COUNT;
    const float one = 1;

    if (argc != 2) {
        fprintf(stderr, "usage: first_kernel saxpy.spv\n");
        return 2;
    }
    struct device *device = open_device();
    load_module(device, argv[1]);
    float *x = allocate_memory(device, COUNT * sizeof *x), *y = allocate_memory(device, COUNT * sizeof *y);
    for (int i = 0; i < COUNT; i++)
        x[i] = y[i] = (float)i;
    const struct argument arguments[] = {
        {VALUE, sizeof one, &one},
        {MEMORY, COUNT * sizeof *x, x},
        {MEMORY, COUNT * sizeof *y, y},
        {VALUE, sizeof count, &count},
    };
    run(device, prepare(device, "saxpy", 4, arguments), (size_t[]){COUNT, 1}, (size_t[]){GROUP, 1});
    for (int i = 0; i < COUNT; i++) {
        if (y[i] != 2 * (float)i) {
            fprintf(stderr, "y[%d] is %g\n", i, (double)y[i]);
            return 1;
        }
    }
    puts("right");
    return 0;
}
