// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits of the fields of packets.

use tally_uapi::fault::FaultKind;
use tally_uapi::packet::PACKET_SIZE;

use crate::guard::Trap;

/// Most units of a command's work: claims may pass it without overflow.
pub(crate) const MAX_UNITS: u64 = 1 << 62;

/// The trap for a field with an invalid value.
pub(crate) fn bad_field(value: u64) -> Trap {
    Trap::new(FaultKind::BadField, value)
}

/// VA of packet `index` of an array, which must not leave the address space.
pub(crate) fn packet_address(base: u64, index: u64) -> Option<u64> {
    base.checked_add(index.checked_mul(PACKET_SIZE)?)
}
