// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands in flight that make writes of the device visible to the host where that is not automatic
//! (`vm::views`): barriers, and signals of events with host scope.
//!
//! A thread that has waited for one of them sees the writes before it, even through events without a
//! scope. A list's commands are not distinguished: as long as one of them publishes and is not complete,
//! every wait for an event counts as a wait for it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::cell::Cell;

/// By the address of each list's counter, the value at which the last of its publishing commands is
/// complete.
#[derive(Default)]
pub struct Publications(Mutex<BTreeMap<u64, (Cell, u64)>>);

impl Publications {
    /// Adds a command that is complete when `cell`, which lives as long as this, holds `value`.
    pub fn add(&self, cell: Cell, value: u64) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(cell.va(), (cell, value));
    }

    /// Whether there are any. Complete ones are removed, since the caller then makes the writes visible to the
    /// host.
    pub fn take(&self) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let any = !all.is_empty();
        all.retain(|_, (cell, value)| !cell.reached(*value));
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::tests::fake;

    #[test]
    fn each_counts_until_it_was_complete_at_a_wait() {
        let (_, vm) = fake();
        let block = vm.heap().alloc(16, 8).expect("room");
        // SAFETY: the block outlives both cells and contains nothing else.
        let [first, second] = [0, 8].map(|offset| unsafe { Cell::new(&block, offset) });
        let all = Publications::default();
        assert!(!all.take());
        first.store(0);
        second.store(7);
        all.add(first, 3);
        all.add(second, 7);
        assert!(all.take(), "both");
        assert!(all.take(), "the first is still under way");
        all.add(first, 4);
        first.store(3);
        assert!(all.take() && all.take(), "a later one of the same list");
        first.store(4);
        assert!(all.take(), "it is complete, which no wait has seen yet");
        assert!(!all.take());
    }
}
