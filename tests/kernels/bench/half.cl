// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Numbers of 16 bits in memory.

kernel void half_axpy(global half *y, global const half *x, float a)
{
    size_t i = get_global_id(0);
    vstore_half(a * vload_half(i, x) + 0.5f, i, y);
}

kernel void half_dot(global float *out, global const half *x)
{
    size_t i = get_global_id(0), n = get_global_size(0);
    float sum = 0;
    for (int k = 0; k < 16; k++)
        sum += vload_half(i + k * n, x) * vload_half(i, x);
    out[i] = sum;
}
