// SPDX-License-Identifier: MIT OR Apache-2.0
//! Event pools. For regular events a pool is the memory of their cells and timestamp slots, which other
//! processes may share; for counter-based events it only carries their flags.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tally_uapi::packet::TimestampSlot;

use super::cell::Cell;
use super::shared::Shared;
use crate::backend::BoUse;
use crate::error::{Error, Result};
use crate::ipc::Imported;
use crate::ipc::pool::ImportedPool;
use crate::log::warn_once;
use crate::vm::heap::Block;

/// Bytes of an event in its pool: the cell, and the timestamp slot in the second half.
const STRIDE: u64 = 64;
const SLOT: u64 = STRIDE / 2;

/// The memory of a pool's events. Its events keep it.
#[derive(Debug)]
pub struct EventPool {
    id: u64,
    count: u32,
    memory: Memory,
    /// Number of regular events in each place.
    taken: Mutex<Vec<u32>>,
    /// Whether other processes may have events in it.
    shared: AtomicBool,
    destroyed: AtomicBool,
}

/// The memory of the cells.
#[derive(Debug)]
enum Memory {
    /// None: counter-based events have no memory in a pool.
    None,
    /// Memory of this process. `None` once it is freed.
    Own(Option<Block>, Arc<Shared>),
    /// Memory of another process.
    Imported(ImportedPool),
}

/// A place in a pool.
#[derive(Debug)]
pub struct PoolPlace {
    pool: Arc<EventPool>,
    index: u32,
}

impl EventPool {
    /// A pool of regular events, none of them signalled. With `shareable` its buffer holds nothing else.
    ///
    /// # Errors
    /// Those of the heap.
    pub fn regular(shared: &Arc<Shared>, count: u32, shareable: bool) -> Result<Arc<Self>> {
        let (vm, bytes) = (shared.vm(), Self::bytes(count));
        let mut memory = match shareable {
            true => Block::whole(vm.map_for(BoUse::Shared, bytes, STRIDE)?),
            false => vm.heap().alloc(bytes, STRIDE)?,
        };
        memory.clear();
        Ok(Self::new(count, Memory::Own(Some(memory), shared.clone())))
    }

    /// A pool of counter-based events, which need no memory.
    pub fn counter_based(count: u32) -> Arc<Self> {
        Self::new(count, Memory::None)
    }

    /// A pool of another process.
    pub fn imported(count: u32, import: ImportedPool) -> Arc<Self> {
        Self::new(count, Memory::Imported(import))
    }

    fn new(count: u32, memory: Memory) -> Arc<Self> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let places = if matches!(memory, Memory::None) { 0 } else { count as usize };
        Arc::new(Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            count,
            shared: AtomicBool::new(matches!(memory, Memory::Imported(_))),
            memory,
            taken: Mutex::new(vec![0; places]),
            destroyed: AtomicBool::new(false),
        })
    }

    /// Size in bytes of the memory for a pool's events.
    pub fn bytes(count: u32) -> u64 {
        u64::from(count) * STRIDE
    }

    /// The id of the pool in this process; never reused.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the buffer of a shareable pool. From now on other processes may have events in it.
    pub fn share(&self) -> u32 {
        self.shared.store(true, Ordering::Relaxed);
        self.block().bo()
    }

    /// Whether other processes use it or may do so: it was shared or is imported.
    pub fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Relaxed)
    }

    /// The exporting process, if the pool is imported.
    pub fn import(&self) -> Option<&Imported> {
        match &self.memory {
            Memory::Imported(import) => Some(import.imported()),
            Memory::Own(..) | Memory::None => None,
        }
    }

    /// The cells of all events. They live as long as the pool.
    pub fn cells(&self) -> Vec<Cell> {
        Self::cells_of(self.block(), self.count)
    }

    /// The cells of a pool in `block`, which has to contain them all. They live as long as the block.
    pub fn cells_of(block: &Block, count: u32) -> Vec<Cell> {
        assert!(Self::bytes(count) <= block.size(), "a pool is larger than its memory");
        // SAFETY: the offsets lie in the block; the cells live as long as it, as documented above, and these
        // places of a pool's memory are used for nothing else.
        (0..count).map(|index| unsafe { Cell::new(block, Self::offset(index)) }).collect()
    }

    /// Number of events that the pool can hold.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Notes that the handle was destroyed: remaining events may not be used any more.
    pub fn destroy(&self) {
        self.destroyed.store(true, Ordering::Relaxed);
    }

    /// Whether the handle was destroyed.
    #[inline]
    pub fn is_destroyed(&self) -> bool {
        self.destroyed.load(Ordering::Relaxed)
    }

    /// Takes a place for a regular event. Its cell is not signalled; once the pool is shared, the cell keeps
    /// its state.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: the index is beyond the pool.
    pub fn place(self: &Arc<Self>, index: u32) -> Result<PoolPlace> {
        self.check(index)?;
        let held = {
            let mut taken = self.taken();
            let held = taken[index as usize];
            // Each event has a handle, and memory runs out long before the count saturates.
            taken[index as usize] = held.saturating_add(1);
            held
        };
        // The specification leaves this to the application. With Intel's driver, too, they are then one
        // event with several handles.
        if held != 0 {
            warn_once!(
                "desc->index: place {index} of the pool holds another event, which is not destroyed; \
                 both have one state"
            );
        }
        let place = PoolPlace { pool: self.clone(), index };
        if !self.is_shared() {
            place.cell().store(0);
        }
        // Otherwise another process may have signalled it already, which has to stay visible here.
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

    /// The index and the cell of the event whose cell is at an address.
    pub fn find(&self, address: u64) -> Option<(u32, Cell)> {
        if matches!(self.memory, Memory::None) {
            return None;
        }
        let index = u32::try_from(address.checked_sub(self.block().va())? / STRIDE).ok()?;
        let cell = (index < self.count).then(|| self.cell(index))?;
        (cell.va() == address).then_some((index, cell))
    }

    /// The cell of an event, which lives as long as the pool. `index` lies in the pool.
    #[inline]
    fn cell(&self, index: u32) -> Cell {
        // SAFETY: a user of the cell keeps the event, and with it its place and the pool, or the pool itself;
        // the place is used for nothing but such cells.
        unsafe { Cell::new(self.block(), Self::offset(index)) }
    }

    /// The offset of an event's cell in the pool.
    fn offset(index: u32) -> u64 {
        // The waiters word is chosen by the address within a page, so all words of the first half are used.
        let word = u64::from(index) / (tally_uapi::PAGE_SIZE / STRIDE) % (SLOT / 8) * 8;
        u64::from(index) * STRIDE + word
    }

    fn taken(&self) -> MutexGuard<'_, Vec<u32>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn block(&self) -> &Block {
        match &self.memory {
            Memory::Own(Some(block), _) => block,
            Memory::Imported(import) => import.imported().block(),
            // Places exist only in pools of regular events, which have memory until they are dropped.
            Memory::Own(None, _) | Memory::None => unreachable!("a place in a pool without memory"),
        }
    }
}

impl PoolPlace {
    /// The pool.
    #[inline]
    pub fn pool(&self) -> &EventPool {
        &self.pool
    }

    /// The event's cell.
    #[inline]
    pub fn cell(&self) -> Cell {
        self.pool.cell(self.index)
    }

    /// Address of the slot for the times of the command that signals the event.
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

impl Drop for EventPool {
    fn drop(&mut self) {
        // Commands that wait for its events or signal them should be complete by now. If an application
        // destroys the pool too early, they must not write to memory that has been reused.
        if let Memory::Own(memory, shared) = &mut self.memory
            && let Some(memory) = memory.take()
        {
            shared.retire_after(shared.unfinished().unwrap_or_default(), Box::new(memory));
        }
    }
}

impl Drop for PoolPlace {
    fn drop(&mut self) {
        self.pool.taken()[self.index as usize] -= 1;
    }
}
