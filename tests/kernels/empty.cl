// SPDX-License-Identifier: MIT OR Apache-2.0
// Does nothing with three pointers, for measuring what a launch costs the host.

kernel void empty(global const float *a, global const float *b, global float *c)
{
    (void)a;
    (void)b;
    (void)c;
}
