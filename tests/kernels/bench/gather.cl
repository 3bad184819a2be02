// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Addresses that are read from memory.

// A sparse matrix of about eight elements a row, times a vector.
kernel void sparse(global float *out, global const uint *columns, global const float *values, int n)
{
    int row = get_global_id(0);
    int begin = row * 8, end = begin + 4 + (columns[begin] & 7);
    float sum = 0;
    for (int k = begin; k < end; k++)
        sum += values[k] * values[columns[k] & (n - 1)];
    out[row] = sum;
}

kernel void table(global float *out, global const uint *in, constant float *curve)
{
    size_t i = get_global_id(0);
    uint x = in[i];
    float from = curve[x & 255], to = curve[(x + 1) & 255];
    out[i] = mix(from, to, (x >> 8 & 0xff) / 256.0f);
}

kernel void permute(global float *out, global const float *in, global const uint *order, uint mask)
{
    size_t i = get_global_id(0);
    out[i] = in[order[i] & mask];
}
