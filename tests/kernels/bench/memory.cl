// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Kernels that are limited by memory: each element is read and written once or a few times.

kernel void triad(global float *a, global const float *b, global const float *c, float s)
{
    size_t i = get_global_id(0);
    a[i] = b[i] + s * c[i];
}

kernel __attribute__((reqd_work_group_size(16, 16, 1)))
void transpose(global const float *in, global float *out, int n)
{
    local float t[16][17];
    size_t x = get_local_id(0), y = get_local_id(1);
    size_t column = get_group_id(0) * 16, row = get_group_id(1) * 16;
    t[y][x] = in[(row + y) * n + column + x];
    barrier(CLK_LOCAL_MEM_FENCE);
    out[(column + y) * n + row + x] = t[x][y];
}

kernel void stencil(global const float *in, global float *out, int n)
{
    int x = get_global_id(0), y = get_global_id(1);
    if (x > 0 && y > 0 && x < n - 1 && y < n - 1)
        out[y * n + x] = 0.25f * (in[y * n + x - 1] + in[y * n + x + 1] + in[(y - 1) * n + x] +
                                  in[(y + 1) * n + x]);
}

kernel void saxpy4(global float4 *y, global const float4 *x, float a)
{
    size_t i = get_global_id(0);
    y[i] = a * x[i] + 1;
}

// An array of structures of three.
kernel void lengths(global float *out, global const float *xyz)
{
    size_t i = get_global_id(0);
    float3 v = vload3(i, xyz);
    out[i] = sqrt(dot(v, v));
}

// One number for each cell, whose coordinates are computed from it.
kernel void stencil3d(global const float *in, global float *out, int nx, int ny)
{
    int i = get_global_id(0), n = get_global_size(0);
    int x = i % nx, y = i / nx % ny, z = i / (nx * ny), plane = nx * ny;
    if (x > 0 && y > 0 && z > 0 && x < nx - 1 && y < ny - 1 && z < n / plane - 1)
        out[i] = in[i - 1] + in[i + 1] + in[i - nx] + in[i + nx] + in[i - plane] + in[i + plane] -
                 6 * in[i];
}
