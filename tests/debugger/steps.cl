// SPDX-License-Identifier: MIT OR Apache-2.0
// Kernels of steps.c. tests/tests/debugger.rs finds lines by their comments.

float twice(float x)
{
    float result = 2 * x; // in twice
    return result;
}

kernel void scale(global float *a, int n)
{
    int i = get_global_id(0);
    float v = a[i]; // in scale
    if (i < n)
        v = twice(v);
    a[i] = v; // behind the call
}

kernel void rotate(global int *a, local int *tile)
{
    int l = get_local_id(0);
    tile[l] = a[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    int next = tile[(l + 1) % get_local_size(0)];
    a[get_global_id(0)] = next; // behind the barrier
}
