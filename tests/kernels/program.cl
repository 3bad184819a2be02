// SPDX-License-Identifier: MIT OR Apache-2.0
// The kernels of random programs. Reading early and writing late shows where order is missing:
// `spin` counts the iterations of a loop between the two.

static uint delay(uint seed, uint spin)
{
    uint x = seed;
    for (uint i = 0; i < spin; i++)
        x = x * 1664525u + 1013904223u ^ x >> 7;
    return x;
}

kernel void mix(global uint *dst, global const uint *src, uint add, uint spin)
{
    uint value = *dst * 3 + *src + add;
    // The compiler cannot know that the loop never returns this value, so it has to run it.
    *dst = delay(value | 1, spin) == 0xfeedf00du && spin == 0xffffffffu ? 0 : value;
}

kernel void add(global atomic_uint *dst, uint add, uint spin)
{
    if (delay(add, spin) == 0xfeedf00du && spin == 0xffffffffu)
        add = 0;
    atomic_fetch_add_explicit(dst, add, memory_order_relaxed, memory_scope_device);
}
