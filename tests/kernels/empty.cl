// SPDX-License-Identifier: MIT OR Apache-2.0
// Does nothing with three pointers, to measure the cost of a launch on the host.

kernel void empty(global const float *a, global const float *b, global float *c)
{
    (void)a;
    (void)b;
    (void)c;
}
