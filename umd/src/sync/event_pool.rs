// SPDX-License-Identifier: MIT OR Apache-2.0
//! Event pools: for regular events the memory of their cells and timestamp slots; for
//! counter-based ones only a name for their flags.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tally_uapi::packet::TimestampSlot;

use super::counter::Cell;
use super::shared::Shared;
use crate::error::{Error, Result};
use crate::heap::Block;

/// Bytes of an event in its pool: the cell, and the slot in the second half.
const STRIDE: u64 = 64;
const SLOT: u64 = STRIDE / 2;

/// The memory of a pool's events. Its events keep it.
#[derive(Debug)]
pub struct EventPool {
    count: u32,
    memory: Option<Block>,
    /// Places that hold a regular event.
    taken: Mutex<Vec<bool>>,
    destroyed: AtomicBool,
}

/// A place in a pool.
#[derive(Debug)]
pub struct PoolPlace {
    pool: Arc<EventPool>,
    index: u32,
}

impl EventPool {
    /// A pool of regular events, none of them signalled.
    ///
    /// # Errors
    /// As the heap's.
    pub fn regular(shared: &Shared, count: u32) -> Result<Arc<Self>> {
        let mut memory = shared.vm().heap().alloc(u64::from(count) * STRIDE, STRIDE)?;
        memory.clear();
        Ok(Self::new(count, Some(memory)))
    }

    /// A pool of counter-based events, which need no memory.
    pub fn counter_based(count: u32) -> Arc<Self> {
        Self::new(count, None)
    }

    fn new(count: u32, memory: Option<Block>) -> Arc<Self> {
        let taken = Mutex::new(vec![false; if memory.is_some() { count as usize } else { 0 }]);
        Arc::new(Self { count, memory, taken, destroyed: AtomicBool::new(false) })
    }

    /// Events that fit in.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Its handle was destroyed: events that are left may not be used any more.
    pub fn destroy(&self) {
        self.destroyed.store(true, Ordering::Relaxed);
    }

    /// Whether the handle was destroyed.
    #[inline]
    pub fn is_destroyed(&self) -> bool {
        self.destroyed.load(Ordering::Relaxed)
    }

    /// Takes a place for a regular event and its cell, not signalled.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: beyond the pool, or taken.
    pub fn place(self: &Arc<Self>, index: u32) -> Result<PoolPlace> {
        self.check(index)?;
        if std::mem::replace(&mut self.taken()[index as usize], true) {
            return Err(Error::invalid(format!(
                "desc->index: place {index} of the pool holds another event, which is not destroyed"
            )));
        }
        let place = PoolPlace { pool: self.clone(), index };
        place.cell().store(0);
        Ok(place)
    }

    /// Checks an index.
    ///
    /// # Errors
    /// INVALID_ARGUMENT.
    pub fn check(&self, index: u32) -> Result {
        if index < self.count {
            return Ok(());
        }
        let count = self.count;
        Err(Error::invalid(format!("desc->index: {index} in a pool of {count} events")))
    }

    /// Index and cell of the event whose cell is at an address.
    pub fn find(&self, address: u64) -> Option<(u32, Cell)> {
        let memory = self.memory.as_ref()?;
        let index = u32::try_from(address.checked_sub(memory.va())? / STRIDE).ok()?;
        let cell = (index < self.count).then(|| self.cell(index))?;
        (cell.va() == address).then_some((index, cell))
    }

    /// The cell of an event, which lives as long as the pool. `index` lies in the pool.
    #[inline]
    fn cell(&self, index: u32) -> Cell {
        let at = u64::from(index) * STRIDE;
        // The waiters word is chosen by the address within a page: use all words of the first half.
        let word = u64::from(index) / (tally_uapi::PAGE_SIZE / STRIDE) % (SLOT / 8) * 8;
        // SAFETY: whoever uses the cell keeps the event, and with it its place and the pool, or the
        // pool itself; the place is this event's alone.
        unsafe { Cell::new(self.block(), at + word) }
    }

    fn taken(&self) -> MutexGuard<'_, Vec<bool>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn block(&self) -> &Block {
        // Places exist only in pools of regular events, which have memory.
        self.memory.as_ref().unwrap_or_else(|| unreachable!("a place in a pool without memory"))
    }
}

impl PoolPlace {
    /// The event's cell.
    #[inline]
    pub fn cell(&self) -> Cell {
        self.pool.cell(self.index)
    }

    /// Address of the slot for the times of whoever signals the event.
    pub fn slot(&self) -> u64 {
        self.pool.block().va() + u64::from(self.index) * STRIDE + SLOT
    }

    /// The times in the slot.
    pub fn times(&self) -> TimestampSlot {
        let at = self.slot() - self.pool.block().va();
        // SAFETY: the slot lies in the block; any bits are a slot.
        unsafe { self.pool.block().ptr().add(at as usize).cast::<TimestampSlot>().read_volatile() }
    }
}

impl Drop for PoolPlace {
    fn drop(&mut self) {
        self.pool.taken()[self.index as usize] = false;
    }
}
