// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Small grids, launched one after the other.

kernel void small(global float *out, float a)
{
    size_t i = get_global_id(0);
    out[i] = out[i] * 0.5f + a;
}
