// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Pictures and numbers of 8 bits.

kernel void grey(global uchar *out, global const uchar4 *in)
{
    size_t i = get_global_id(0);
    uchar4 p = in[i];
    out[i] = (77 * p.x + 150 * p.y + 29 * p.z) >> 8;
}

kernel void blur8(global uchar *out, global const uchar *in, int n)
{
    int x = get_global_id(0), y = get_global_id(1);
    int sum = 0;
    for (int r = -1; r <= 1; r++)
        for (int c = -1; c <= 1; c++)
            sum += in[((y + r) & (n - 1)) * n + ((x + c) & (n - 1))];
    out[y * n + x] = convert_uchar_sat(sum * 7 >> 5);
}

// Eight bits times eight bits, as quantised networks do.
kernel void dot8(global int *out, global const char *x, global const char *y)
{
    size_t i = get_global_id(0);
    int sum = 0;
    for (int k = 0; k < 32; k++)
        sum += x[i * 32 + k] * y[k];
    out[i] = sum;
}
