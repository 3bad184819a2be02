// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Atomic operations.

kernel void histogram(global const uint *x, global int *bins, local int *t)
{
    size_t l = get_local_id(0), n = get_local_size(0);
    for (size_t i = l; i < 256; i += n)
        t[i] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = 0; k < 16; k++)
        atomic_inc(&t[x[get_group_id(0) * n * 16 + k * n + l] & 255]);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (size_t i = l; i < 256; i += n)
        atomic_add(&bins[i], t[i]);
}

kernel void count_global(global const uint *in, global int *bins)
{
    atomic_inc(&bins[in[get_global_id(0)] & 255]);
}

kernel void largest(global const uint *in, global int *bins)
{
    size_t i = get_global_id(0);
    atomic_max(&bins[i & 15], (int)in[i]);
}
