// SPDX-License-Identifier: MIT OR Apache-2.0
// Atomic operations of OpenCL 1.2 and 2.0.

kernel void histogram(global const uint *in, global uint *bins, uint n) {
    local uint part[8];
    size_t lid = get_local_id(0);
    if (lid < 8) part[lid] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    size_t i = get_global_id(0);
    if (i < n) atomic_inc(&part[in[i] % 8]);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lid < 8) atomic_add(&bins[lid], part[lid]);
}

kernel void every(global int *cells, global atomic_int *orders, global atomic_uint *flags) {
    int i = get_global_id(0);
    atomic_sub(&cells[0], i);
    atomic_min(&cells[1], -i);
    atomic_max(&cells[2], i);
    atomic_and(&cells[3], ~(1 << i));
    atomic_or(&cells[4], 1 << i);
    atomic_xor(&cells[5], 3 << i);
    atomic_dec(&cells[6]);
    atomic_min((volatile global uint *)&cells[7], 100u - i);
    int old = cells[8];
    while (1) {
        int seen = atomic_cmpxchg(&cells[8], old, old * 3 + 1);
        if (seen == old) break;
        old = seen;
    }
    atomic_fetch_add_explicit(&orders[0], 2, memory_order_relaxed, memory_scope_device);
    atomic_store_explicit(&orders[1], 7, memory_order_release, memory_scope_device);
    int expected = 7;
    if (atomic_compare_exchange_strong_explicit(&orders[1], &expected, 8, memory_order_acq_rel,
                                                memory_order_acquire, memory_scope_device))
        atomic_fetch_max_explicit(&orders[2], i, memory_order_relaxed, memory_scope_device);
    atomic_exchange(&flags[0], atomic_load(&flags[1]) + 5u);
}
