// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters: the 64-bit words in which in-order lists, queues and recordings count their progress, and
//! the pool from which they are allocated.
//!
//! A counter only grows, even from one owner to the next: a pair {address, value} that was reached stays
//! reached and may be passed on freely. So the memory of counters is not freed as long as a list, a queue
//! or an event of the VM exists, a new owner continues from the last value, and a counter with a reserved
//! value that will not be reached is *retired*: it gets no new owner.
//! (`uapi/UAPI.md`, "Counters and recordings".)

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tally_uapi::cell::CELL_SIZE;

use super::cell::Cell;
use super::shared::Shared;
use crate::backend::BoUse;
use crate::error::Result;
use crate::vm::Vm;
use crate::vm::heap::Block;

/// A counter and the right to signal it. Dropping it returns the counter to the pool, or retires it.
#[derive(Debug)]
pub struct Counter {
    cell: Cell,
    reserved: AtomicU64,
    pool: Arc<Shared>,
}

impl Counter {
    /// The counter's cell.
    #[inline]
    pub fn cell(&self) -> Cell {
        self.cell
    }

    /// The largest value that was reserved or submitted.
    #[inline]
    pub fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Relaxed)
    }

    /// The value that [`Counter::reserve_next`] would reserve.
    #[inline]
    pub fn next(&self) -> u64 {
        self.reserved() + 1
    }

    /// Reserves the next value and returns it. Owners do this one at a time.
    #[inline]
    pub fn reserve_next(&self) -> u64 {
        let next = self.next();
        self.reserved.store(next, Ordering::Relaxed);
        next
    }

    /// Reserves all values up to `value`, which is not below the reserved one. Owners do this one at a time.
    #[inline]
    pub fn reserve(&self, value: u64) {
        debug_assert!(value >= self.reserved());
        self.reserved.store(value, Ordering::Relaxed);
    }

    /// Declares that the values reserved above `last` will not be reached.
    pub fn abandon(&self, last: u64) {
        self.pool.exports().abandon(self.cell, last);
    }

    /// Whether every reserved value is reached.
    pub fn is_settled(&self) -> bool {
        self.cell.reached(self.reserved())
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        if self.is_settled() {
            self.pool.counters().state().free.push(self.cell);
        }
    }
}

/// Bytes from one counter to the next: a cache line, since different engines write them.
const STRIDE: u64 = 64;
/// Counters in a block.
const PER_BLOCK: u64 = 1024;
/// Bytes of a page.
const PAGE: u64 = tally_uapi::PAGE_SIZE;

/// All counters of a VM.
#[derive(Default, Debug)]
pub struct Counters {
    state: Mutex<State>,
}

#[derive(Default, Debug)]
struct State {
    free: Vec<Cell>,
    /// Blocks from which counters were cut; never freed as long as the VM is used.
    blocks: Vec<Block>,
    /// Number of counters that were cut from the last block.
    cut: u64,
}

impl Counters {
    /// A counter without an owner.
    ///
    /// # Errors
    /// Those of the heap.
    pub(super) fn take(shared: &Arc<Shared>) -> Result<Counter> {
        let mut state = shared.counters().state();
        let cell = match state.free.pop() {
            Some(cell) => cell,
            None => state.cut(shared.vm())?,
        };
        Ok(Counter { cell, reserved: AtomicU64::new(cell.load()), pool: shared.clone() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn cut(&mut self, vm: &Arc<Vm>) -> Result<Cell> {
        if self.blocks.is_empty() || self.cut == PER_BLOCK {
            // A buffer that holds only counters, since other processes may get read access to it. New
            // memory is zero.
            let mapping = vm.map_for(BoUse::SharedReadOnly, PER_BLOCK * STRIDE, PAGE)?;
            self.blocks.push(Block::whole(mapping));
            self.cut = 0;
        }
        let at = self.cut * STRIDE;
        self.cut += 1;
        // The waiters word of a cell is chosen by its address within a page. Each page uses another word of
        // the cache line, so that more of the waiters words are in use.
        let at = at + at / PAGE % (STRIDE / CELL_SIZE) * CELL_SIZE;
        let block = &self.blocks[self.blocks.len() - 1];
        // SAFETY: the block lives as long as `Shared`, which all users of the cell keep alive, and counters
        // do not overlap.
        Ok(unsafe { Cell::new(block, at) })
    }
}
