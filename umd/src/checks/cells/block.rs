// SPDX-License-Identifier: MIT OR Apache-2.0
//! A block of memory whose accesses are remembered as rows ([`rows`]). `compiler/rt/rows.h` does the same for kernels.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tally_compiler_protocol::checks::{cell, release, rows};

/// Bytes of a block.
pub(super) const BYTES: u64 = 1 << release::BLOCK;

/// The words of a block: which rows are in use; the lock, in the first half; and each row's entry and bytes.
const STATE: u64 = 0;
const LOCK: u64 = rows::LOCK / 8;

const fn entry_at(row: u64) -> u64 {
    2 + 2 * row
}

const fn bytes_at(row: u64) -> u64 {
    entry_at(row) + 1
}

/// The rows of a block. But for the lock they are used while it is held.
pub(super) struct Block<'a>(pub [&'a AtomicU64; rows::BYTES as usize / 8]);

/// The run of an entry, of a cell or a row.
pub(super) fn run_of(entry: u64) -> u32 {
    (entry >> cell::RUN) as u32
}

/// The bytes of a block that lie in a range, one bit each.
pub(super) fn bytes_in(block: u64, range: &Range<u64>) -> u64 {
    let (first, end) = (range.start.max(block), range.end.min(block + BYTES));
    if first >= end {
        return 0;
    }
    u64::MAX >> (BYTES - (end - first)) << (first - block)
}

impl<'a> Block<'a> {
    fn get(&self, at: u64) -> u64 {
        self.0[at as usize].load(Ordering::Relaxed)
    }

    fn set(&self, at: u64, value: u64) {
        self.0[at as usize].store(value, Ordering::Relaxed);
    }

    /// The lock of the block, which covers its stamp and its cells, too.
    pub(super) fn lock(&self) -> &'a AtomicU32 {
        let word = self.0[LOCK as usize];
        // SAFETY: the word is aligned for its half, and lives as long. While anyone may hold the lock it is accessed as
        // this half alone: whole words are set to zero only when memory is allocated.
        unsafe { AtomicU32::from_ptr(word.as_ptr().cast()) }
    }

    /// Forgets the accesses to some bytes.
    pub(super) fn forget(&self, bytes: u64) {
        for at in (0..rows::COUNT).map(bytes_at) {
            self.set(at, self.get(at) & !bytes);
        }
    }

    /// A command's access to some bytes; `new` is its entry in a cell but for its bytes. Passes the rows, by number
    /// and entry, and the bytes that race with it to `raced`. Returns whether there was room for it.
    pub(super) fn access(
        &self,
        new: u64,
        bytes: u64,
        mut is_before: impl FnMut(u32) -> bool,
        mut raced: impl FnMut(u64, u64, u64),
    ) -> bool {
        let atomic = if new & cell::ATOMIC == 0 { 0 } else { rows::ATOMIC };
        let row = new & !cell::ATOMIC | atomic | rows::WHOLE;
        let (mut used, mut place) = (self.get(STATE), None);
        for number in 0..rows::COUNT {
            let (old, there) = (self.get(entry_at(number)), self.get(bytes_at(number)));
            let is_used = used >> number & 1 != 0 && there != 0;
            if is_used && old == row {
                place = Some((number, there | bytes));
                continue;
            }
            let both = if is_used { there & bytes } else { 0 };
            let before = both == 0 || run_of(old) == run_of(new) || is_before(run_of(old));
            let are_atomic = old & row & rows::ATOMIC != 0;
            if !before && (old | new) & cell::WRITES != 0 && !are_atomic {
                raced(number, old, both);
            }
            let covered =
                (new & cell::WRITES != 0 || old & cell::WRITES == 0) && (atomic == 0 || are_atomic);
            let left = if before && covered { there & !both } else { there };
            self.set(bytes_at(number), left);
            if !is_used || left == 0 {
                used &= !(1 << number);
                place = place.or(Some((number, bytes)));
            }
        }
        if let Some((number, bytes)) = place {
            self.set(entry_at(number), row);
            self.set(bytes_at(number), bytes);
            used |= 1 << number;
        }
        self.set(STATE, used);
        place.is_some()
    }
}
