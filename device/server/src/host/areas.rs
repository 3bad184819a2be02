// SPDX-License-Identifier: MIT OR Apache-2.0
//! An engine process's mappings of its VM's file: the whole window for data, and over it the ranges that need a
//! mapping of their own: where code is bound, for execution, and where memory of another driver is bound, which the
//! driver gives the mapping when it is made. The offset in the file always is the VA.
//!
//! Linux does not join such mappings. So former ranges would leave cuts behind. When there are many, the mapping
//! that replaces a range is made as large as possible without touching others.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use tally_engine::mailbox::Piece;
use tally_uapi::firmware::map_flag;

/// Number of mappings beyond those that are needed from which on they are joined.
const MANY: usize = 1_000;

/// The mappings of an engine process.
#[derive(Debug)]
pub struct Areas {
    window: Range<u64>,
    /// Ranges with a mapping of their own: maps each start to its end. Neighbours are not joined.
    ranges: BTreeMap<u64, u64>,
    /// The starts of mappings, as Linux counts them.
    starts: BTreeSet<u64>,
    /// The most mappings.
    most: usize,
}

fn piece(range: &Range<u64>, access: u32) -> Piece {
    let (address, bytes) = (range.start, range.end - range.start);
    Piece { address, bytes, offset: address, file: Some(0), access }
}

impl Areas {
    /// No mappings, with a limit of `most`.
    pub fn new(most: usize) -> Self {
        Self { window: 0..0, ranges: BTreeMap::new(), starts: BTreeSet::new(), most }
    }

    /// Maps a window.
    pub fn begin(&mut self, window: &Range<u64>) -> Piece {
        self.window = window.clone();
        self.data(window)
    }

    /// Gives a range a mapping of its own. None if there would be too many mappings.
    pub fn add(&mut self, range: &Range<u64>, access: u32) -> Option<Piece> {
        if self.starts.len() + 2 > self.most {
            return None;
        }
        self.cut(range);
        self.ranges.insert(range.start, range.end);
        self.map(range);
        Some(piece(range, access))
    }

    /// Takes the mappings of their own from what is in a range.
    pub fn remove(&mut self, range: &Range<u64>) -> Vec<Piece> {
        let parts = self.cut(range);
        let joined = self.starts.len() > 2 * self.ranges.len() + MANY;
        let parts = parts.into_iter().map(|part| if joined { self.around(&part) } else { part });
        let parts: Vec<_> = parts.collect();
        parts.iter().map(|part| self.data(part)).collect()
    }

    fn data(&mut self, range: &Range<u64>) -> Piece {
        self.map(range);
        piece(range, map_flag::READ | map_flag::WRITE)
    }

    /// Notes that the range is one mapping from now on.
    fn map(&mut self, range: &Range<u64>) {
        let inside: Vec<u64> = self.starts.range(range.clone()).copied().collect();
        for start in inside {
            self.starts.remove(&start);
        }
        self.starts.insert(range.start);
        if range.end < self.window.end {
            self.starts.insert(range.end);
        }
    }

    /// Removes a range from those with a mapping of their own. Returns the parts of it that had one.
    fn cut(&mut self, range: &Range<u64>) -> Vec<Range<u64>> {
        let from = match self.ranges.range(..range.start).next_back() {
            Some((&start, &end)) if end > range.start => start,
            _ => range.start,
        };
        let cut: Vec<_> = self.ranges.range(from..range.end).map(|(&s, &e)| s..e).collect();
        for old in &cut {
            self.ranges.remove(&old.start);
            if old.start < range.start {
                self.ranges.insert(old.start, range.start);
            }
            if old.end > range.end {
                self.ranges.insert(range.end, old.end);
            }
        }
        let within = |old: Range<u64>| old.start.max(range.start)..old.end.min(range.end);
        cut.into_iter().map(within).collect()
    }

    /// The largest part of the window around a range that contains none with a mapping of its own.
    fn around(&self, range: &Range<u64>) -> Range<u64> {
        let before = self.ranges.range(..range.start).next_back().map(|(_, &end)| end);
        let after = self.ranges.range(range.end..).next().map(|(&start, _)| start);
        before.unwrap_or(self.window.start)..after.unwrap_or(self.window.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const X: u32 = map_flag::READ | map_flag::EXECUTE;
    const RW: u32 = map_flag::READ | map_flag::WRITE;

    fn areas(most: usize) -> Areas {
        let mut areas = Areas::new(most);
        assert_eq!(areas.begin(&(0x1000..0x100_0000)), piece(&(0x1000..0x100_0000), RW));
        areas
    }

    #[test]
    fn the_offset_is_the_va() {
        let piece = areas(100).add(&(0x4000..0x6000), X).unwrap();
        assert_eq!((piece.address, piece.offset, piece.bytes), (0x4000, 0x4000, 0x2000));
        assert_eq!((piece.file, piece.access), (Some(0), X));
    }

    #[test]
    fn only_what_had_a_mapping_is_mapped_anew() {
        let mut areas = areas(100);
        areas.add(&(0x4000..0x8000), X).unwrap();
        // Memory of another driver.
        assert_eq!(areas.add(&(0x8000..0x9000), RW), Some(piece(&(0x8000..0x9000), RW)));
        assert!(areas.remove(&(0x2000..0x4000)).is_empty());
        let pieces = areas.remove(&(0x6000..0xa000));
        assert_eq!(pieces, [piece(&(0x6000..0x8000), RW), piece(&(0x8000..0x9000), RW)]);
        // The rest of the first range still has its own.
        assert_eq!(areas.remove(&(0..0x100_0000)), [piece(&(0x4000..0x6000), RW)]);
    }

    #[test]
    fn cuts_do_not_grow_without_bound() {
        let mut areas = areas(1 << 20);
        let lasting = 0x80_0000..0x80_1000;
        areas.add(&lasting, X).unwrap();
        for round in 0..3 * MANY as u64 {
            let range = 0x2000 * (1 + round % 1000)..0x2000 * (1 + round % 1000) + 0x1000;
            areas.add(&range, X).unwrap();
            for piece in areas.remove(&range) {
                let mapped = piece.address..piece.address + piece.bytes;
                assert!(mapped.end <= lasting.start || mapped.start >= lasting.end);
            }
        }
        assert!(areas.starts.len() <= MANY + 4, "{}", areas.starts.len());
    }

    #[test]
    fn there_is_a_bound_on_mappings() {
        let mut areas = areas(9);
        for i in 0..4 {
            areas.add(&(0x10_000 + i * 0x2000..0x11_000 + i * 0x2000), X).unwrap();
        }
        assert_eq!(areas.add(&(0x80_000..0x81_000), X), None);
        areas.remove(&(0x10_000..0x11_000));
    }
}
