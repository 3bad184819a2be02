// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Numbers of 64 bits.

kernel void double_axpy(global double *y, global const double *x, float a)
{
    size_t i = get_global_id(0);
    y[i] = a * x[i] + 1;
}

kernel void double_maths(global float *out, global const double *x)
{
    size_t i = get_global_id(0);
    out[i] = exp(x[i]) + log(x[i] + 1) + sin(x[i] * 8);
}

kernel void double_stencil(global const double *in, global double *out, int n)
{
    int x = get_global_id(0), y = get_global_id(1);
    if (x > 0 && y > 0 && x < n - 1 && y < n - 1)
        out[y * n + x] = 0.25 * (in[y * n + x - 1] + in[y * n + x + 1] + in[(y - 1) * n + x] +
                                 in[(y + 1) * n + x]);
}
