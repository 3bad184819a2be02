// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Local memory and barriers.

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

// The inclusive prefix sums of each group, by doubling.
kernel void scan(global float *out, global const float *in, local float *t)
{
    size_t l = get_local_id(0), n = get_local_size(0);
    t[l] = in[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (size_t d = 1; d < n; d *= 2) {
        float before = l >= d ? t[l - d] : 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        t[l] += before;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    out[get_global_id(0)] = t[l];
}

// Sorts each group's elements.
kernel void bitonic(global float *out, global const float *in, local float *t)
{
    uint l = get_local_id(0), n = get_local_size(0);
    t[l] = in[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint size = 2; size <= n; size *= 2)
        for (uint d = size / 2; d > 0; d /= 2) {
            uint other = l ^ d;
            if (other > l) {
                float a = t[l], b = t[other];
                if ((a > b) == ((l & size) == 0)) {
                    t[l] = b;
                    t[other] = a;
                }
            }
            barrier(CLK_LOCAL_MEM_FENCE);
        }
    out[get_global_id(0)] = t[l];
}

// The Fourier transform of 256 complex numbers by each group of 128; the real parts.
kernel __attribute__((reqd_work_group_size(128, 1, 1)))
void fft256(global float *out, global const float *in)
{
    local float2 t[2][256];
    uint l = get_local_id(0), base = get_group_id(0) * 256, from = 0;
    t[0][l] = (float2)(in[base + l], 0);
    t[0][l + 128] = (float2)(in[base + l + 128], 0);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint half_size = 1; half_size < 256; half_size *= 2) {
        uint k = l & (half_size - 1);
        float2 a = t[from][l], b = t[from][l + 128];
        float s, c;
        s = sincos(-M_PI_F * k / half_size, &c);
        float2 turned = (float2)(b.x * c - b.y * s, b.x * s + b.y * c);
        uint to = 2 * l - k;
        t[1 - from][to] = a + turned;
        t[1 - from][to + half_size] = a - turned;
        from = 1 - from;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    out[base + l] = t[from][l].x;
    out[base + l + 128] = t[from][l + 128].x;
}

// A picture through a filter of 5 x 5, tile by tile.
kernel __attribute__((reqd_work_group_size(16, 16, 1)))
void convolve(global float *out, global const float *in, constant float *filter, int n)
{
    local float t[20][20];
    int x = get_local_id(0), y = get_local_id(1);
    int left = get_group_id(0) * 16 - 2, above = get_group_id(1) * 16 - 2;
    for (int r = y; r < 20; r += 16)
        for (int c = x; c < 20; c += 16)
            t[r][c] = in[clamp(above + r, 0, n - 1) * n + clamp(left + c, 0, n - 1)];
    barrier(CLK_LOCAL_MEM_FENCE);
    float sum = 0;
    for (int r = 0; r < 5; r++)
        for (int c = 0; c < 5; c++)
            sum += t[y + r][x + c] * filter[r * 5 + c];
    out[get_global_id(1) * n + get_global_id(0)] = sum;
}
