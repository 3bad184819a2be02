// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Two kernels in the two basic ways of submission: a regular list with explicit barriers on a queue,
// and a synchronous immediate list.
#include "parts.h"

#include <stdio.h>
#include <stdlib.h>

// Small whole numbers: every sum and product is exact, so the order of additions does not matter and
// the results can be compared bit for bit.
static float whole(size_t i, unsigned range)
{
    return (float)((i * 2654435761u >> 7) % range);
}

// Not a multiple of any group size: the last group reaches beyond the data.
enum { SAXPY_ITEMS = 1000003 };

void part_saxpy(const struct gpu *gpu, struct line *line)
{
    const size_t bytes = SAXPY_ITEMS * sizeof(float);
    const uint32_t n = SAXPY_ITEMS;
    const float a = 3.0f;
    float *x = malloc(bytes), *y = malloc(bytes), *result = malloc(bytes);
    if (!x || !y || !result)
        stop("out of memory");
    for (size_t i = 0; i < n; i++) {
        x[i] = whole(i, 1000);
        y[i] = whole(i + n, 1000);
    }

    struct kernel saxpy = build_kernel(gpu, "saxpy", "saxpy");
    void *device_x = allocate(gpu, DEVICE_MEMORY, bytes), *device_y = allocate(gpu, DEVICE_MEMORY, bytes);
    ze_command_queue_handle_t queue = create_queue(gpu, gpu->compute, 0);
    ze_command_list_handle_t list = create_list(gpu, gpu->compute, OUT_OF_ORDER);
    ze_group_count_t groups = group_items(saxpy, n);
    set_argument(saxpy, 0, sizeof(a), &a);
    set_argument(saxpy, 1, sizeof(device_x), &device_x);
    set_argument(saxpy, 2, sizeof(device_y), &device_y);
    set_argument(saxpy, 3, sizeof(n), &n);

    must(zeCommandListAppendMemoryCopy(list, device_x, x, bytes, NULL, 0, NULL));
    must(zeCommandListAppendMemoryCopy(list, device_y, y, bytes, NULL, 0, NULL));
    must(zeCommandListAppendBarrier(list, NULL, 0, NULL));
    must(zeCommandListAppendLaunchKernel(list, saxpy.handle, &groups, NULL, 0, NULL));
    must(zeCommandListAppendBarrier(list, NULL, 0, NULL));
    must(zeCommandListAppendMemoryCopy(list, result, device_y, bytes, NULL, 0, NULL));
    must(zeCommandListClose(list));
    double start = now_ms();
    execute(queue, list);
    finish(queue);
    line->milliseconds = now_ms() - start;

    snprintf(line->size, sizeof(line->size), "%u floats", n);
    for (size_t i = 0; i < n; i++)
        y[i] = a * x[i] + y[i];
    same_floats(line, "y", result, y, n);

    must(zeCommandListDestroy(list));
    must(zeCommandQueueDestroy(queue));
    release(gpu, device_x);
    release(gpu, device_y);
    destroy_kernel(saxpy);
    free(x);
    free(y);
    free(result);
}

enum { MATRIX_SIDE = 512, MATRIX_TILE = 16 };

static void multiply_on_host(const float *a, const float *b, float *c)
{
    for (size_t row = 0; row < MATRIX_SIDE; row++)
        for (size_t k = 0; k < MATRIX_SIDE; k++)
            for (size_t column = 0; column < MATRIX_SIDE; column++)
                c[row * MATRIX_SIDE + column] += a[row * MATRIX_SIDE + k] * b[k * MATRIX_SIDE + column];
}

void part_matmul(const struct gpu *gpu, struct line *line)
{
    const size_t items = MATRIX_SIDE * MATRIX_SIDE, bytes = items * sizeof(float);
    const uint32_t n = MATRIX_SIDE;
    float *a = allocate(gpu, SHARED_MEMORY, bytes), *b = allocate(gpu, SHARED_MEMORY, bytes);
    float *c = allocate(gpu, SHARED_MEMORY, bytes), *expected = calloc(items, sizeof(float));
    if (!expected)
        stop("out of memory");
    for (size_t i = 0; i < items; i++) {
        a[i] = whole(i, 16);
        b[i] = whole(i + items, 16);
    }

    struct kernel matmul = build_kernel(gpu, "matmul", "matmul");
    ze_command_list_handle_t list =
        create_immediate_list(gpu, gpu->compute, OUT_OF_ORDER, ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
    ze_group_count_t groups = {MATRIX_SIDE / MATRIX_TILE, MATRIX_SIDE / MATRIX_TILE, 1};
    must(zeKernelSetGroupSize(matmul.handle, MATRIX_TILE, MATRIX_TILE, 1));
    set_argument(matmul, 0, sizeof(a), &a);
    set_argument(matmul, 1, sizeof(b), &b);
    set_argument(matmul, 2, sizeof(c), &c);
    set_argument(matmul, 3, sizeof(n), &n);

    double start = now_ms();
    must(zeCommandListAppendLaunchKernel(list, matmul.handle, &groups, NULL, 0, NULL));
    line->milliseconds = now_ms() - start;

    snprintf(line->size, sizeof(line->size), "%u x %u", n, n);
    multiply_on_host(a, b, expected);
    same_floats(line, "c", c, expected, items);

    must(zeCommandListDestroy(list));
    destroy_kernel(matmul);
    release(gpu, a);
    release(gpu, b);
    release(gpu, c);
    free(expected);
}
