// SPDX-License-Identifier: MIT OR Apache-2.0
//! The access attributes for atomics that programs set on their memory (`zeMemSetAtomicAccessAttributeExp`).
//!
//! They have no effect, since host and device have the same atomics on all memory that both reach; they
//! are only stored for queries. An allocation stores its own. System memory belongs to no allocation that
//! the driver knows, so its attributes belong to addresses and remain when the program frees the memory.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Allocation, Found, Vm};

impl Vm {
    /// Stores the attributes that are requested for a device's atomics on an allocation, as bits of
    /// `ze_memory_atomic_attr_exp_flags_t`; no bits remove them.
    pub fn set_atomics(&self, of: &Found, device: u32, bits: u32) {
        self.usm.with(of.base, of.id, |allocation| match bits {
            0 => allocation.atomics.remove(&device),
            bits => allocation.atomics.insert(device, bits),
        });
    }

    /// The requested attributes.
    pub fn atomics(&self, of: &Found, device: u32) -> Option<u32> {
        let asked = |it: &mut Allocation| it.atomics.get(&device).copied();
        self.usm.with(of.base, of.id, asked).flatten()
    }

    /// The attributes of system memory.
    pub fn system_atomics(&self) -> &SystemAtomics {
        &self.system_atomics
    }
}

/// Attributes of atomics on system memory: for each device, ranges that do not overlap.
#[derive(Default)]
pub struct SystemAtomics(Mutex<BTreeMap<(u32, u64), Range>>);

/// A range; the map's key is its first address.
#[derive(Clone, Copy)]
struct Range {
    /// The last address, not the end, which may not be representable.
    last: u64,
    /// The requested attributes, never 0.
    bits: u32,
}

impl SystemAtomics {
    /// Stores the attributes for `size` bytes, which is not 0; the range must not exceed the address space.
    /// "only the attributes from last call are honored".
    pub fn set(&self, device: u32, start: u64, size: u64, bits: u32) {
        let last = start + (size - 1);
        let mut ranges = self.ranges();
        let before = ranges.range((device, 0)..=(device, last)).rev();
        let overlapped = before.take_while(|(_, it)| it.last >= start);
        let overlapped: Vec<_> = overlapped.map(|(&(_, at), &it)| (at, it)).collect();
        for (at, it) in overlapped {
            ranges.remove(&(device, at));
            if at < start {
                ranges.insert((device, at), Range { last: start - 1, ..it });
            }
            if it.last > last {
                ranges.insert((device, last + 1), it);
            }
        }
        if bits != 0 {
            ranges.insert((device, start), Range { last, bits });
        }
    }

    /// The attributes at an address.
    pub fn get(&self, device: u32, address: u64) -> Option<u32> {
        let ranges = self.ranges();
        let (_, it) = ranges.range((device, 0)..=(device, address)).next_back()?;
        (it.last >= address).then_some(it.bits)
    }

    fn ranges(&self) -> MutexGuard<'_, BTreeMap<(u32, u64), Range>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(atomics: &SystemAtomics, addresses: [u64; 4]) -> [Option<u32>; 4] {
        addresses.map(|address| atomics.get(0, address))
    }

    /// "When calling this function multiple times with different flags, only the attributes from last call
    /// are honored."
    #[test]
    fn the_last_call_counts_where_ranges_overlap() {
        let atomics = SystemAtomics::default();
        atomics.set(0, 100, 100, 1);
        assert_eq!(at(&atomics, [99, 100, 199, 200]), [None, Some(1), Some(1), None]);
        atomics.set(0, 120, 10, 2);
        assert_eq!(at(&atomics, [119, 120, 129, 130]), [Some(1), Some(2), Some(2), Some(1)]);
        atomics.set(0, 110, 200, 0);
        assert_eq!(at(&atomics, [109, 110, 150, 250]), [Some(1), None, None, None]);
        atomics.set(0, u64::MAX, 1, 4);
        assert_eq!(at(&atomics, [0, 100, u64::MAX - 1, u64::MAX]), [None, Some(1), None, Some(4)]);
        atomics.set(0, 1, u64::MAX, 0);
        assert!(atomics.ranges().is_empty());
    }

    #[test]
    fn devices_have_their_own() {
        let atomics = SystemAtomics::default();
        atomics.set(1, 100, 100, 1);
        atomics.set(0, 150, 100, 2);
        assert_eq!(at(&atomics, [100, 149, 150, 249]), [None, None, Some(2), Some(2)]);
        assert_eq!([100, 150, 200].map(|it| atomics.get(1, it)), [Some(1), Some(1), None]);
        assert_eq!(atomics.get(2, 150), None);
    }
}
