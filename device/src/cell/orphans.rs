// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cells that can no longer be signalled, as ranges of VAs that do not touch.

use std::collections::BTreeMap;
use std::ops::Range;

use tally_uapi::firmware::MAX_ORPHANS;

/// The ranges: maps each start to its end.
#[derive(Debug, Default)]
pub(super) struct Orphans(BTreeMap<u64, u64>);

impl Orphans {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn contains(&self, address: u64) -> bool {
        self.0.range(..=address).next_back().is_some_and(|(_, &end)| address < end)
    }

    /// Adds a range. False, with nothing changed, if it touches none and there are
    /// [`MAX_ORPHANS`] already.
    pub(super) fn add(&mut self, cells: Range<u64>) -> bool {
        let touched = self.from(cells.start.saturating_sub(1), cells.end.saturating_add(1));
        if touched.is_empty() && self.0.len() >= MAX_ORPHANS {
            return false;
        }
        let mut joined = cells;
        for it in touched {
            self.0.remove(&it.start);
            joined = joined.start.min(it.start)..joined.end.max(it.end);
        }
        self.0.insert(joined.start, joined.end);
        true
    }

    /// Removes a range. A range that it cuts leaves one range or two, so there may be more afterwards than
    /// could be added.
    pub(super) fn remove(&mut self, cells: &Range<u64>) {
        for it in self.from(cells.start, cells.end) {
            self.0.remove(&it.start);
            for rest in [it.start..cells.start, cells.end..it.end] {
                if !rest.is_empty() {
                    self.0.insert(rest.start, rest.end);
                }
            }
        }
    }

    /// The ranges that have an address in common with `start..end`.
    fn from(&self, start: u64, end: u64) -> Vec<Range<u64>> {
        let before = self.0.range(..end).rev().map(|(&start, &end)| start..end);
        before.take_while(|it| start < it.end).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranges_are_sets(steps in prop::collection::vec((any::<bool>(), 0u64..64, 1u64..16), 0..40)) {
            let (mut orphans, mut cells) = (Orphans::default(), [false; 80]);
            for (adds, start, length) in steps {
                let range = start..start + length;
                cells[start as usize..(start + length) as usize].fill(adds);
                if adds {
                    prop_assert!(orphans.add(range));
                } else {
                    orphans.remove(&range);
                }
                for (address, &held) in cells.iter().enumerate() {
                    prop_assert_eq!(orphans.contains(address as u64), held);
                }
                let runs = cells.windows(2).filter(|pair| !pair[0] && pair[1]).count();
                prop_assert_eq!(orphans.0.len(), runs + usize::from(cells[0]), "neighbours are one");
            }
        }
    }

    #[test]
    fn there_are_not_more_ranges_than_promised() {
        let mut orphans = Orphans::default();
        let range = |i: usize| i as u64 * 16..i as u64 * 16 + 8;
        assert!((0..MAX_ORPHANS).all(|i| orphans.add(range(i))));
        assert!(!orphans.add(range(MAX_ORPHANS)));
        assert!(orphans.add(8..16), "it joins two");
        assert!(orphans.add(range(MAX_ORPHANS)));
    }
}
