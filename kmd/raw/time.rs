// SPDX-License-Identifier: GPL-2.0
//! The kernel's clock as a number.

use kernel::bindings;

/// CLOCK_MONOTONIC in ns. `Instant` gives no number, and user space sends numbers.
pub(crate) fn monotonic_ns() -> i64 {
    // SAFETY: has no requirements.
    unsafe { bindings::ktime_get() }
}
