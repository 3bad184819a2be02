// SPDX-License-Identifier: MIT OR Apache-2.0
// Kernels of recorded.c.

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

kernel void more(global int *a)
{
    a[get_global_id(0)] += 1;
}
