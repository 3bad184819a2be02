// SPDX-License-Identifier: MIT OR Apache-2.0
// Sum of n unsigned integers: a tree in local memory within each work-group, whose size is a power of
// two, then one atomic addition per group. `partial` has one word per work-item of a group.

kernel void reduce(global const uint *data, uint n, global atomic_uint *sum, local uint *partial)
{
    size_t i = get_global_id(0), me = get_local_id(0);

    partial[me] = i < n ? data[i] : 0;
    for (size_t half_size = get_local_size(0) / 2; half_size > 0; half_size /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (me < half_size)
            partial[me] += partial[me + half_size];
    }
    if (me == 0)
        atomic_fetch_add_explicit(sum, partial[0], memory_order_relaxed, memory_scope_device);
}
