// SPDX-License-Identifier: MIT OR Apache-2.0
// One link of a chain: data = data * factor + term, modulo 2^32. Links do not commute, so the final
// values show which links ran, how often and in which order.

kernel void chain(global uint *data, uint factor, uint term, uint n)
{
    size_t i = get_global_id(0);
    if (i < n)
        data[i] = data[i] * factor + term;
}
