// SPDX-License-Identifier: MIT OR Apache-2.0
// Atomic operations under contention. Every result is independent of the order of the work-items.

// bins[v] += 1 for each value v of the n bytes.
kernel void histogram(global const uchar *data, uint n, global atomic_uint *bins)
{
    size_t i = get_global_id(0);
    if (i < n)
        atomic_fetch_add_explicit(&bins[data[i]], 1, memory_order_relaxed, memory_scope_device);
}

// Lowest, highest, all bits seen, bits in common and the exclusive or of the n values, in that order.
kernel void extremes(global const int *data, uint n, global atomic_int *result)
{
    size_t i = get_global_id(0);
    if (i >= n)
        return;
    atomic_fetch_min_explicit(&result[0], data[i], memory_order_relaxed, memory_scope_device);
    atomic_fetch_max_explicit(&result[1], data[i], memory_order_relaxed, memory_scope_device);
    atomic_fetch_or_explicit(&result[2], data[i], memory_order_relaxed, memory_scope_device);
    atomic_fetch_and_explicit(&result[3], data[i], memory_order_relaxed, memory_scope_device);
    atomic_fetch_xor_explicit(&result[4], data[i], memory_order_relaxed, memory_scope_device);
}

// *total += 1 by compare-and-exchange, which must neither lose an addition nor succeed twice.
kernel void contend(global atomic_uint *total)
{
    uint old = atomic_load_explicit(total, memory_order_relaxed, memory_scope_device);
    while (!atomic_compare_exchange_strong_explicit(total, &old, old + 1, memory_order_acq_rel,
                                                    memory_order_relaxed, memory_scope_device))
        ;
}
