// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cache of free blocks, which keep their buffers and addresses between two allocations.
//!
//! ```text
//!  bytes              rests                            keeps its pages   found by
//!  up to 64 KiB       at the thread, else the depot    yes               next power of two
//!  up to 1 MiB        in the depot                     yes               next power of two
//!  more               in the depot, the last 32        closed            size of the block
//! ```
//!
//! Blocks of more than 1 MiB are closed, so that an access to freed memory is a fault. Their pages stay with
//! them, within limits ([`most_warm`]), because getting pages from the system takes ten times as long as
//! zeroing and closing those at hand: a loop that allocates 4 MiB, adds to it in a kernel and frees it takes
//! 0.63 ms a turn instead of 3.2 (0.36 without allocation; 64 MiB: 13 ms instead of 65; 2026-11-28, Xeon with
//! AVX-512, two processors).
//!
//! A thread keeps few blocks of its own; a thread that frees more, or that frees other threads'
//! allocations, passes half of them on to the depot, which all threads share. Blocks that do not fit there
//! are unmapped.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::allocation::{Allocation, MOST_KEPT};
use crate::shards::Shards;

/// Number of sizes from [`SMALLEST`] on, each twice the previous one.
const CLASSES: usize = (MOST_KEPT.ilog2() - SMALLEST.ilog2() + 1) as usize;
const SMALLEST: u64 = tally_uapi::PAGE_SIZE;
/// Number of classes of which threads keep blocks of their own.
const OWN: usize = 5;
/// The largest number of bytes and of blocks of a class that a thread keeps.
const OWN_BYTES: u64 = 256 << 10;
const OWN_BLOCKS: usize = 32;
/// The largest number of bytes of pages, and of blocks with pages, in the depot.
const DEPOT_BYTES: u64 = 64 << 20;
const DEPOT_BLOCKS: usize = 1024;
/// The largest number of closed blocks, and of the bytes of addresses that they have together.
const LARGE_BLOCKS: usize = 32;
const LARGE_BYTES: u64 = 16 << 30;
/// The largest number of bytes of pages that closed blocks keep together, and the divisor of the memory that
/// is not in use that gives the largest number where that is less.
const WARM_BYTES: u64 = 256 << 20;
const WARM_PART: u64 = 8;

/// A cached block. It is boxed, so that taking it copies nothing.
type Block = Box<Allocation>;

/// See the module's description.
#[derive(Default)]
pub(in super::super) struct Cache {
    own: Shards<Mutex<[Vec<Block>; OWN]>>,
    depot: Mutex<Depot>,
}

#[derive(Default)]
struct Depot {
    classes: [Vec<Block>; CLASSES],
    bytes: u64,
    blocks: usize,
    /// Closed blocks; the one that was cached first is in front.
    large: VecDeque<Block>,
    large_bytes: u64,
    /// Bytes of their pages.
    warm: u64,
}

/// The largest number of bytes of pages that closed blocks keep while `left` bytes of the device's memory are not
/// in use.
pub(super) fn most_warm(left: u64) -> u64 {
    WARM_BYTES.min(left / WARM_PART)
}

/// The class of blocks for `bytes`, not 0; closed blocks have none.
fn class(bytes: u64) -> Option<usize> {
    let doublings = bytes.next_power_of_two().max(SMALLEST).ilog2() - SMALLEST.ilog2();
    Some(doublings as usize).filter(|&class| class < CLASSES)
}

/// The largest number of blocks of a class that a thread keeps.
const fn most(class: usize) -> usize {
    let blocks = (OWN_BYTES / (SMALLEST << class)) as usize;
    if blocks < OWN_BLOCKS { blocks } else { OWN_BLOCKS }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn take(blocks: &mut Vec<Block>, align: u64) -> Option<Block> {
    // Usually any block will do.
    let at = blocks.iter().rposition(|it| it.mapping.va().is_multiple_of(align))?;
    Some(blocks.swap_remove(at))
}

impl Cache {
    /// Takes a block for `bytes`, aligned to `align`; one for more than [`MOST_KEPT`] has `size` bytes.
    pub(super) fn get(&self, bytes: u64, size: u64, align: u64) -> Option<Block> {
        let Some(class) = class(bytes) else { return lock(&self.depot).get_large(size, align) };
        if class >= OWN {
            return lock(&self.depot).get(class, align);
        }
        let mut own = lock(self.own.mine());
        let own = &mut own[class];
        if own.is_empty() {
            let mut depot = lock(&self.depot);
            let many = most(class) / 2;
            own.extend(std::iter::from_fn(|| depot.get(class, 1)).take(many));
        }
        take(own, align)
    }

    /// Unmaps closed blocks until the others keep at most `most` bytes of pages.
    pub(super) fn cool(&self, most: u64) {
        let surplus = lock(&self.depot).cool(most);
        drop(surplus);
    }

    /// Caches a free block of which `bytes` were used.
    pub(super) fn put(&self, bytes: u64, block: Block) {
        // The surplus is unmapped without a lock.
        let Some(class) = class(bytes) else {
            let surplus = lock(&self.depot).put_large(block);
            return drop(surplus);
        };
        let mut surplus = vec![];
        if class < OWN {
            let mut own = lock(self.own.mine());
            let own = &mut own[class];
            own.push(block);
            if own.len() <= most(class) {
                return;
            }
            surplus.extend(own.drain(..own.len() / 2));
        } else {
            surplus.push(block);
        }
        lock(&self.depot).put(class, &mut surplus);
    }

    /// Unmaps all cached blocks; returns whether there were any.
    pub(super) fn drain(&self) -> bool {
        let mut all = vec![];
        for own in self.own.iter() {
            lock(own).iter_mut().for_each(|it| all.append(it));
        }
        let depot = std::mem::take(&mut *lock(&self.depot));
        !all.is_empty() || depot.blocks != 0 || !depot.large.is_empty()
    }
}

impl Depot {
    fn get(&mut self, class: usize, align: u64) -> Option<Block> {
        let block = take(&mut self.classes[class], align)?;
        self.bytes -= SMALLEST << class;
        self.blocks -= 1;
        Some(block)
    }

    /// Takes as many of `blocks` as there is room for.
    fn put(&mut self, class: usize, blocks: &mut Vec<Block>) {
        let bytes = SMALLEST << class;
        while self.blocks < DEPOT_BLOCKS && self.bytes + bytes <= DEPOT_BYTES {
            let Some(block) = blocks.pop() else { return };
            self.classes[class].push(block);
            self.bytes += bytes;
            self.blocks += 1;
        }
    }

    fn get_large(&mut self, size: u64, align: u64) -> Option<Block> {
        let fits = |it: &Block| it.mapping.size() == size && it.mapping.va().is_multiple_of(align);
        self.leave_large(self.large.iter().rposition(fits)?)
    }

    /// Keeps a block; returns the blocks for which there is no room any more.
    fn put_large(&mut self, block: Block) -> Vec<Block> {
        self.large_bytes += block.mapping.size();
        self.warm += block.warm;
        self.large.push_back(block);
        let mut surplus = vec![];
        while self.large.len() > LARGE_BLOCKS || self.large_bytes > LARGE_BYTES {
            surplus.extend(self.leave_large(0));
        }
        surplus
    }

    /// Takes out the oldest blocks with pages until the others keep at most `most` bytes of pages.
    fn cool(&mut self, most: u64) -> Vec<Block> {
        let mut surplus = vec![];
        while self.warm > most {
            let Some(oldest) = self.large.iter().position(|it| it.warm != 0) else { break };
            surplus.extend(self.leave_large(oldest));
        }
        surplus
    }

    fn leave_large(&mut self, index: usize) -> Option<Block> {
        let block = self.large.remove(index)?;
        self.large_bytes -= block.mapping.size();
        self.warm -= block.warm;
        Some(block)
    }
}
