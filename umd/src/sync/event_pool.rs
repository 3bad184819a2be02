// SPDX-License-Identifier: MIT OR Apache-2.0
//! Event pools. For regular events a pool is the memory of their cells and timestamp slots, which other
//! processes may share; for counter-based events it only carries their flags.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tally_uapi::packet::TimestampSlot;

use super::cell::Cell;
use super::resets::{Engine, Submitted};
use super::shared::Shared;
use crate::backend::BoUse;
use crate::error::{Error, Result};
use crate::ipc::Imported;
use crate::ipc::pool::ImportedPool;
use crate::log::warn_once;
use crate::vm::heap::Block;

/// Bytes of an event in its pool: the cell and the number of its resets, and the timestamp slot in the second
/// half.
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
    resets: Submitted,
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

/// A word that belongs to a regular event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Word {
    /// 0 or 1.
    Cell(Cell),
    /// The number of its resets by the device.
    Resets(Cell),
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
            resets: Submitted::default(),
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

    /// The index of the event of which a word is at an address, and the word: its cell, or the number of its
    /// resets.
    pub fn find(&self, address: u64) -> Option<(u32, Word)> {
        if matches!(self.memory, Memory::None) {
            return None;
        }
        let index = u32::try_from(address.checked_sub(self.block().va())? / STRIDE).ok()?;
        if index >= self.count {
            return None;
        }
        let (cell, resets) = (self.cell(index), self.resets(index));
        match address {
            _ if address == cell.va() => Some((index, Word::Cell(cell))),
            _ if address == resets.va() => Some((index, Word::Resets(resets))),
            _ => None,
        }
    }

    /// The cell of an event, which lives as long as the pool. `index` lies in the pool.
    #[inline]
    fn cell(&self, index: u32) -> Cell {
        // SAFETY: a user of the cell keeps the event, and with it its place and the pool, or the pool itself;
        // the place is used for nothing but such cells.
        unsafe { Cell::new(self.block(), Self::offset(index)) }
    }

    /// The number of resets of an event that the device has made. It lives as long as the pool, and `index` lies
    /// in the pool.
    fn resets(&self, index: u32) -> Cell {
        // SAFETY: as for `cell`; this place holds the number and nothing else.
        unsafe { Cell::new(self.block(), Self::offset_of_word(index, 1)) }
    }

    /// Counts a reset of an event that was submitted to an engine.
    pub fn reset_is_submitted(&self, index: u32, engine: Engine) {
        // Other processes count their own resets, and the device counts those of all.
        if !self.is_shared() {
            self.resets.add(index, self.count, engine);
        }
    }

    /// The offset of an event's cell in the pool.
    fn offset(index: u32) -> u64 {
        Self::offset_of_word(index, 0)
    }

    /// The offset of a word of an event: 0 for its cell, 1 for the number of its resets.
    fn offset_of_word(index: u32, word: u64) -> u64 {
        // The waiters word is chosen by the address within a page, so all words of the first half are used.
        let first = u64::from(index) / (tally_uapi::PAGE_SIZE / STRIDE);
        u64::from(index) * STRIDE + (first + word) % (SLOT / 8) * 8
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
    pub fn pool(&self) -> &Arc<EventPool> {
        &self.pool
    }

    /// The index in the pool.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The number of resets that the device has made.
    pub fn resets(&self) -> Cell {
        self.pool.resets(self.index)
    }

    /// Counts a reset that was submitted to an engine.
    pub fn reset_is_submitted(&self, engine: Engine) {
        self.pool.reset_is_submitted(self.index, engine);
    }

    /// The number of resets that the device has yet to reach before a wait that is submitted to an engine now:
    /// those that were submitted to the same engine before.
    #[inline]
    pub fn resets_before(&self, engine: Engine) -> Option<(Cell, u64)> {
        let submitted = self.pool.resets.of(self.index, engine)?;
        let made = self.resets();
        (!self.pool.is_shared() && !made.reached(submitted)).then_some((made, submitted))
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
