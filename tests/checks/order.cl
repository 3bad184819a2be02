// SPDX-License-Identifier: MIT OR Apache-2.0
// Kernels of order.c.

kernel void numbers(global int *a)
{
    int i = get_global_id(0);
    a[i] = i;
}

kernel void doubled(global const int *from, global int *to)
{
    int i = get_global_id(0);
    to[i] = 2 * from[i];
}
