// SPDX-License-Identifier: MIT OR Apache-2.0
//
// How long a program waits for the first launch of a kernel: milliseconds of the module's creation, of
// the kernel's, and of the launch until its end. Usage: first FOLDER-OF-MODULES.
#include "gpu.h"

#include <stdio.h>
#include <time.h>

enum { SIDE = 16 };

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

int main(int argc, char **argv)
{
    const ze_group_count_t one = {1, 1, 1};
    ze_command_list_handle_t list;
    struct kernel kernel;
    struct gpu gpu;
    uint32_t n = SIDE;
    double begin, built, done;
    float *buffers[3];

    if (argc != 2)
        stop("usage: first FOLDER-OF-MODULES");
    open_gpu(&gpu, argv[1]);
    list = create_immediate_list(&gpu, gpu.compute, IN_ORDER, ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
    for (int i = 0; i < 3; i++)
        buffers[i] = allocate(&gpu, SHARED_MEMORY, SIDE * SIDE * sizeof(float));
    begin = now_ms();
    kernel = build_kernel(&gpu, "matmul", "matmul");
    built = now_ms();
    must(zeKernelSetGroupSize(kernel.handle, SIDE, SIDE, 1));
    for (int i = 0; i < 3; i++)
        set_argument(kernel, i, sizeof(buffers[i]), &buffers[i]);
    set_argument(kernel, 3, sizeof(n), &n);
    must(zeCommandListAppendLaunchKernel(list, kernel.handle, &one, NULL, 0, NULL));
    done = now_ms();
    printf("%.3f %.3f\n", built - begin, done - begin);
    destroy_kernel(kernel);
    for (int i = 0; i < 3; i++)
        release(&gpu, buffers[i]);
    must(zeCommandListDestroy(list));
    close_gpu(&gpu);
    return 0;
}
