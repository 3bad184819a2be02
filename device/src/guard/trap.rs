// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of a guarded call that does not return.

use tally_uapi::fault::FaultKind;

/// The reason why a guarded call did not return by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trap {
    pub(crate) kind: FaultKind,
    /// The address that was accessed or executed; 0 if the CPU does not report it.
    pub(crate) address: u64,
}

impl Trap {
    pub(crate) fn new(kind: FaultKind, address: u64) -> Self {
        Self { kind, address }
    }
}
