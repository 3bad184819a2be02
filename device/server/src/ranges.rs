// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranges of addresses that a driver names.

use std::ops::Range;

use tally_uapi::PAGE_SIZE;

/// A range of whole pages; None if it is empty, unaligned or leaves the address space.
pub fn range(start: u64, bytes: u64) -> Option<Range<u64>> {
    let aligned = start.is_multiple_of(PAGE_SIZE) && bytes.is_multiple_of(PAGE_SIZE);
    let end = start.checked_add(bytes).filter(|&end| aligned && end > start)?;
    Some(start..end)
}
