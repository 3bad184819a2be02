// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What `scripts/bench kernels` measures. Each kernel is what a programmer would write first, with no
// thought of the processor that runs it.

kernel void triad(global float *a, global const float *b, global const float *c, float s)
{
    size_t i = get_global_id(0);
    a[i] = b[i] + s * c[i];
}

kernel void gemm_naive(global const float *a, global const float *b, global float *c, int n)
{
    int x = get_global_id(0), y = get_global_id(1);
    float sum = 0;
    for (int k = 0; k < n; k++)
        sum += a[y * n + k] * b[k * n + x];
    c[y * n + x] = sum;
}

kernel __attribute__((reqd_work_group_size(16, 16, 1)))
void gemm_tiled(global const float *a, global const float *b, global float *c, int n)
{
    local float ta[16][16], tb[16][16];
    int x = get_local_id(0), y = get_local_id(1);
    int column = get_global_id(0), row = get_global_id(1);
    float sum = 0;
    for (int tile = 0; tile < n; tile += 16) {
        ta[y][x] = a[row * n + tile + x];
        tb[y][x] = b[(tile + y) * n + column];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int k = 0; k < 16; k++)
            sum += ta[y][k] * tb[k][x];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    c[row * n + column] = sum;
}

kernel void mandelbrot(global int *out, int width, int limit)
{
    int x = get_global_id(0), y = get_global_id(1);
    float cr = x * (3.0f / width) - 2, ci = y * (2.0f / width) - 1;
    float zr = 0, zi = 0;
    int k = 0;
    while (k < limit && zr * zr + zi * zi < 4) {
        float next = zr * zr - zi * zi + cr;
        zi = 2 * zr * zi + ci;
        zr = next;
        k++;
    }
    out[y * width + x] = k;
}

kernel void nbody(global const float4 *bodies, global float4 *out, int n)
{
    size_t i = get_global_id(0);
    float4 here = bodies[i], sum = 0;
    for (int j = 0; j < n; j++) {
        float4 other = bodies[j];
        float4 d = other - here;
        float square = d.x * d.x + d.y * d.y + d.z * d.z + 0.01f;
        float inverse = rsqrt(square);
        sum += d * (other.w * inverse * inverse * inverse);
    }
    out[i] = sum;
}

kernel void maths(global float *out, global const float *x)
{
    size_t i = get_global_id(0);
    out[i] = exp(x[i]) + log(x[i] + 1) + sin(x[i] * 8);
}

kernel void reduce(global const float *x, global int *sum, local float *t)
{
    size_t l = get_local_id(0);
    t[l] = x[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (size_t stride = get_local_size(0) / 2; stride > 0; stride /= 2) {
        if (l < stride)
            t[l] += t[l + stride];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (l == 0)
        atomic_add(sum, (int)t[0]);
}

kernel void subgroup(global const float *x, global float *out)
{
    size_t i = get_global_id(0);
    out[i] = sub_group_reduce_add(x[i]) / get_sub_group_size();
}

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

kernel void sort_step(global uint *x, uint distance, uint stretch)
{
    uint i = get_global_id(0);
    uint low = 2 * i - (i & (distance - 1)), high = low + distance;
    uint a = x[low], b = x[high];
    int up = (low & stretch) == 0;
    if ((a > b) == up) {
        x[low] = b;
        x[high] = a;
    }
}
