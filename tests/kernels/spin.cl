// SPDX-License-Identifier: MIT OR Apache-2.0
// For one work-item: stays on the device until the host writes a non-zero word to *flag, for tests
// that need a running command. It gives up after `limit` reads, so a failing test does
// not hang. *outcome becomes the value seen, 0 if it gave up.

kernel void spin(global atomic_uint *flag, ulong limit, global uint *outcome)
{
    uint value = 0;
    for (ulong look = 0; look < limit && value == 0; look++)
        value = atomic_load_explicit(flag, memory_order_acquire, memory_scope_all_svm_devices);
    *outcome = value;
}
