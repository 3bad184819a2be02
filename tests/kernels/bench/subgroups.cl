// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Sub-groups.

kernel void subgroup(global const float *x, global float *out)
{
    size_t i = get_global_id(0);
    out[i] = sub_group_reduce_add(x[i]) / get_sub_group_size();
}

kernel void subgroup_scan(global const float *x, global float *out)
{
    size_t i = get_global_id(0);
    out[i] = sub_group_scan_inclusive_add(x[i]);
}

// A small matrix times vectors; the elements of eight items are broadcast in turn.
kernel void subgroup_broadcast(global const float *x, global float *out)
{
    size_t i = get_global_id(0);
    float own = x[i], sum = 0;
    for (uint k = 0; k < 8; k++)
        sum += sub_group_broadcast(own, k) * (k + 1);
    out[i] = sum;
}
