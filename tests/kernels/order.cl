// SPDX-License-Identifier: MIT OR Apache-2.0
// Kernels that record when they ran, for tests of ordering.

// For one work-item. The n-th run (from 0) of this command stores in seen[n] how often the watched
// command had run by then. Only commands that the API orders may share a counter.
kernel void order(global uint *runs, global const uint *watched, global uint *seen)
{
    uint n = *runs;
    seen[n] = *watched;
    *runs = n + 1;
}

// Takes the next ticket and writes its own name on that line of the log. Commands may run at the same
// time: the log holds each name once, in the order in which they took tickets.
kernel void ticket(global atomic_uint *next, global uint *log, uint name)
{
    log[atomic_fetch_add_explicit(next, 1, memory_order_acq_rel, memory_scope_device)] = name;
}
