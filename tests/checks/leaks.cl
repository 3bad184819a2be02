// SPDX-License-Identifier: MIT OR Apache-2.0
// The kernel of leaks.c.

kernel void fill(global int *a)
{
    a[get_global_id(0)] = 1;
}
