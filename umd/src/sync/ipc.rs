// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cells that are shared with other processes.
//!
//! What another process has shared is mapped here at addresses of its own; counters can only be
//! read. Waits for such cells are waits like others. What differs: signals are made by another
//! device, of which notes tell, and the other process may die. Then what its cells hold stays, and
//! waits that are not met by it end in DEVICE_LOST.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tally_uapi::ioctl::SemWake;
use tally_ze::ze_result_t;

use super::counter::Cell;
use super::wait;
use crate::error::{Error, Result};
use crate::heap::Block;
use crate::kernel::SharedBo;
use crate::vm::Vm;

pub mod counter;
pub mod pool;

/// Cells of another process, mapped here.
pub struct Imported {
    vm: Arc<Vm>,
    block: Block,
    orphaned: AtomicBool,
    /// Holds a cell that is 1 when the other process is gone, for hosts that wait.
    orphan: Block,
}

impl Imported {
    /// Maps the cells.
    ///
    /// # Errors
    /// As [`Vm::import`].
    fn new(vm: &Arc<Vm>, bo: SharedBo) -> Result<Self> {
        let block = Block::whole(vm.import(bo)?);
        let mut orphan = vm.heap().alloc(8, 8)?;
        orphan.clear();
        Ok(Self { vm: vm.clone(), block, orphaned: AtomicBool::new(false), orphan })
    }

    /// The cells' memory.
    pub fn block(&self) -> &Block {
        &self.block
    }

    /// A cell that is 1 once the other process is gone. It lives as long as this.
    pub fn orphan(&self) -> Cell {
        // SAFETY: whoever uses the cell keeps this; nothing else is in the block.
        unsafe { Cell::new(&self.orphan, 0) }
    }

    /// Whether the other process is gone.
    pub fn is_orphaned(&self) -> bool {
        self.orphaned.load(Ordering::Acquire)
    }

    /// Waits until a cell of it holds at least `value`; false when the time passes first. It spins
    /// first if `spins`.
    ///
    /// # Errors
    /// DEVICE_LOST: here, or in the other process.
    pub fn wait(&self, cell: Cell, value: u64, timeout_ns: u64, spins: bool) -> Result<bool> {
        // Before the cell is looked at: what was signalled before the end counts.
        let over = self.is_orphaned();
        if cell.reached(value) {
            return Ok(true);
        }
        if !over {
            let end = self.orphan();
            if wait::wait_or_end(&self.vm, (cell, value), end, timeout_ns, spins)? {
                return Ok(true);
            }
        }
        match self.is_orphaned() && !cell.reached(value) {
            true => Err(orphaned()),
            false => Ok(cell.reached(value)),
        }
    }

    /// The other process is gone: ends all waits that are not met.
    fn set_orphaned(&self) {
        if self.orphaned.swap(true, Ordering::AcqRel) {
            return;
        }
        self.vm.kernel().orphan(self.block.va(), self.block.size());
        let orphan = self.orphan();
        orphan.store(1);
        wake(&self.vm, orphan);
    }
}

impl std::fmt::Debug for Imported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Imported({:?})", self.block)
    }
}

/// Whoever sleeps on a cell looks again.
fn wake(vm: &Vm, cell: Cell) {
    let wake = SemWake { handle: cell.bo(), offset: cell.offset(), ..Default::default() };
    if let Err(errno) = vm.kernel().sem_wake(&wake) {
        log::warn!("SEM_WAKE: {}", errno.name());
    }
}

/// The error of a wait that will not be met.
pub fn orphaned() -> Error {
    Error::new(
        ze_result_t::ZE_RESULT_ERROR_DEVICE_LOST,
        "hEvent: the process that shares it has ended, or lost its device, before it was signalled",
    )
}

/// The error for facts that cannot be.
fn bad_facts() -> Error {
    Error::invalid("the exporter has sent facts that do not fit the memory")
}
