// SPDX-License-Identifier: GPL-2.0
//! Facts about the machine and the calling process.

extern "C" {
    fn tally_memory_bytes() -> u64;
    fn tally_current_user() -> u32;
}

/// Bytes of memory that the machine has.
pub(crate) fn memory_bytes() -> u64 {
    // SAFETY: has no requirements.
    unsafe { tally_memory_bytes() }
}

/// The number of the user of the calling process, in the first user namespace.
pub(crate) fn current_user() -> u32 {
    // SAFETY: has no requirements.
    unsafe { tally_current_user() }
}
