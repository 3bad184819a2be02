// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses of memory that is accessed side by side with other memory: `c[i] = a[i] + b[i]`.
//!
//! AMD's processors find a line in their first-level cache by a tag of eight bits, a hash of its linear address. Of two
//! lines of one set that have the same tag, only one can be found. So arrays whose elements with the same index have the
//! same tag keep displacing each other, whatever room there is in the cache. Its bits are those of the address, combined in pairs:
//!
//! ```text
//!   tag   16^21  17^22  18^23  19^24  15^20  14^25  13^26
//!   two arrays that are 2 MiB + 64 KiB apart       bits 16 and 21 differ: the same tag
//! ```
//!
//! (M. Lipp and others, "Take A Way: Exploring the Security Implications of AMD's Cache Way Predictors", 2020, for Zen to
//! Zen 2; seen on Zen 5 too: a loop over four arrays of 64 KiB that are so far apart takes 8 times as long.) Arrays of
//! 2 MiB with a granule behind each are that far apart. So a block that would have the tags of another one begins some
//! granules later.

use std::collections::VecDeque;

use super::Space;

/// The blocks that a new one is compared with: the last ones.
const RECENT: usize = 8;
/// The granules by which a block may begin later, and one more.
const CHOICES: u64 = 16;
/// The places of a block at which tags are compared.
const SAMPLES: u64 = 64;
/// Up to so many of them, tags may be the same.
const FEW: usize = 2;

/// Start and size in bytes of the last blocks.
#[derive(Debug, Default)]
pub(super) struct Blocks(VecDeque<(u64, u64)>);

impl Blocks {
    /// At how many of [`SAMPLES`] places a block at an address has the tag of another one there, at most.
    fn shared(&self, start: u64, size: u64) -> usize {
        let shared = |&(other, other_size): &(u64, u64)| {
            let size = size.min(other_size);
            let places = (0..SAMPLES).map(|sample| size / SAMPLES * sample);
            places.filter(|place| tag(start + place) == tag(other + place)).count()
        };
        self.0.iter().map(shared).max().unwrap_or(0)
    }

    fn push(&mut self, start: u64, size: u64) {
        if self.0.len() == RECENT {
            self.0.pop_front();
        }
        self.0.push_back((start, size));
    }
}

/// The bits of a line's tag. Those of bits below 16 are left out: blocks begin at multiples of 64 KiB, so for the same
/// place in two blocks they are the same.
fn tag(address: u64) -> u64 {
    let bits = address >> 16;
    ((bits ^ bits >> 5) & 0xf) | (bits & 0x10) | (bits >> 4 & 0x60)
}

impl Space {
    /// Allocates addresses for memory of the application as [`Space::alloc_apart`] does, at a multiple of `granule`, which is
    /// 64 KiB or more: at the lowest place at which the processor tells the memory from what was allocated just before.
    pub fn alloc_beside(&self, size: u64, granule: u64) -> Option<u64> {
        if self.is_open() || self.is_apart() {
            return self.alloc_apart(size, granule);
        }
        let mut blocks = self.blocks();
        let first = self.alloc_close(self.start, size, granule)?;
        let start = match blocks.shared(first, size) {
            0..=FEW => first,
            _ => match self.alloc_with_choices(&blocks, size, granule) {
                Some(better) => {
                    self.free_close(first, size);
                    better
                }
                None => first,
            },
        };
        blocks.push(start, size);
        Some(start)
    }

    /// Allocates addresses that have the fewest tags of other blocks, of several that follow one another.
    fn alloc_with_choices(&self, blocks: &Blocks, size: u64, granule: u64) -> Option<u64> {
        let spare = (CHOICES - 1) * granule;
        let first = self.alloc_close(self.start, size.checked_add(spare)?, granule)?;
        let starts = (0..CHOICES).map(|choice| first + choice * granule);
        let start = starts.min_by_key(|&start| (blocks.shared(start, size), start))?;
        for (from, to) in [(first, start), (start + size, first + spare + size)] {
            if from < to {
                self.free_close(from, to - from);
            }
        }
        Some(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRANULE: u64 = 64 << 10;

    /// The most tags that two of some blocks of one size share.
    fn shared(starts: &[u64], size: u64) -> usize {
        let pairs =
            starts.iter().enumerate().flat_map(|(i, &a)| starts[..i].iter().map(move |&b| (a, b)));
        let shared = |(a, b): (u64, u64)| Blocks([(a, size)].into()).shared(b, size);
        pairs.map(shared).max().unwrap_or(0)
    }

    /// Arrays of one size that are allocated in a row have few tags in common, whatever the size.
    #[test]
    fn blocks_of_one_size_can_be_told_apart() {
        let sizes = [
            1 << 20,
            2 << 20,
            3 << 20,
            4 << 20,
            (4 << 20) + 4096,
            6 << 20,
            8_000_000,
            16 << 20,
            40_000_000,
        ];
        let mut were_alike = false;
        for size in sizes {
            let space = Space::reserve(Some(4 << 30), 0, u64::MAX).expect("addresses");
            let room = u64::next_multiple_of(size, GRANULE) + GRANULE;
            let close: Vec<u64> = (0..RECENT as u64).map(|i| space.start() + i * room).collect();
            were_alike |= shared(&close, size) >= 32;
            let starts: Vec<u64> = (0..RECENT)
                .map(|_| space.alloc_beside(room, GRANULE).expect("there is room"))
                .collect();
            assert!(shared(&starts, size) <= 6, "{size}: {}", shared(&starts, size));
            assert!(starts.iter().all(|start| start.is_multiple_of(GRANULE)));
            // What was left free is free.
            starts.iter().for_each(|&start| space.free(start, room));
            assert_eq!(space.alloc_at(space.start(), space.size()), Some(space.start()), "{size}");
        }
        assert!(were_alike, "without choices some would be alike");
    }

    /// The last room is used, whatever tags it has.
    #[test]
    fn a_full_space_has_no_choice() {
        let space = Space::reserve(Some(64 << 20), 0, u64::MAX).expect("addresses");
        let room = (2 << 20) + GRANULE;
        let mut starts = Vec::new();
        while let Some(start) = space.alloc_beside(room, GRANULE) {
            assert!(starts.iter().all(|&other| start >= other + room || start + room <= other));
            starts.push(start);
        }
        assert!(starts.len() >= 28, "{}", starts.len());
        assert_eq!(space.alloc_beside(u64::MAX - GRANULE, GRANULE), None);
    }
}
