// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sharing with other processes.
//!
//! ```text
//!  memory   event ─► event::counter   pool        the shared objects, and the work of each end
//!     └───────────────┴────────────────┴─► transport   handles, sockets, notes
//! ```
//!
//! Shared memory is mapped here at addresses of this process's own; counters can only be read. Waits for such
//! cells are like other waits, with two differences: another device makes the signals, which notes report, and
//! the other process may die. Then its cells keep their values, and unmet waits end in DEVICE_LOST.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tally_uapi::cell::CELL_SIZE;
use tally_uapi::ioctl::{Errno, SemWake, VmOrphan};
use tally_ze::ze_result_t;

use crate::backend::SharedBo;
use crate::error::{Error, Result};
use crate::host_waits;
use crate::sync::cell::Cell;
use crate::sync::deadline::{Approach, Deadline};
use crate::sync::wait;
use crate::vm::Vm;
use crate::vm::heap::Block;

pub mod event;
pub mod memory;
pub mod pool;
pub mod transport;

/// Cells of another process, mapped here.
pub struct Imported {
    vm: Arc<Vm>,
    block: Block,
    /// The other process's name for reports.
    exporter: String,
    fate: Mutex<Fate>,
    /// Holds a cell that counts the changes of `fate`, for host waits.
    changes: Block,
    /// Whether only the other process signals.
    read_only: bool,
}

/// The cells that will not be signalled any more.
#[derive(Default)]
struct Fate {
    /// Whether none will be signalled any more, because the other process is gone.
    orphaned: bool,
    abandoned: Vec<Cell>,
}

impl Imported {
    /// Maps the cells.
    ///
    /// # Errors
    /// Those of [`Vm::import`].
    fn new(vm: &Arc<Vm>, bo: SharedBo, exporter: String) -> Result<Self> {
        let read_only = bo.read_only;
        let block = Block::whole(vm.import(bo)?);
        let mut changes = vm.heap().alloc(8, 8)?;
        changes.clear();
        Ok(Self { vm: vm.clone(), block, exporter, fate: Mutex::default(), changes, read_only })
    }

    /// The cells' memory.
    pub fn block(&self) -> &Block {
        &self.block
    }

    /// The other process's name for reports.
    pub fn exporter(&self) -> &str {
        &self.exporter
    }

    fn changes(&self) -> Cell {
        // SAFETY: it is used only here, while this exists; nothing else is in the block.
        unsafe { Cell::new(&self.changes, 0) }
    }

    fn fate(&self) -> MutexGuard<'_, Fate> {
        self.fate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the other process is gone.
    pub fn is_orphaned(&self) -> bool {
        self.fate().orphaned
    }

    /// Whether a cell will not be signalled any more. It keeps its value.
    fn is_dead(&self, cell: Cell) -> bool {
        let fate = self.fate();
        fate.orphaned || fate.abandoned.contains(&cell)
    }

    /// Waits until one of its cells holds at least `value`; false when the time passes first. It spins first if
    /// `spins` is set.
    ///
    /// # Errors
    /// DEVICE_LOST: here, or in the other process.
    pub fn wait(&self, cell: Cell, value: u64, timeout_ns: u64, spins: bool) -> Result<bool> {
        let mut approach = Approach::new(Deadline::after(timeout_ns), spins);
        let changes = self.changes();
        // The back end does waits that may have to be reported. It also does all waits if one kernel wakes the
        // sleepers of all processes, since its memory supports no futex.
        let own_device = self.vm.backend().sees_process();
        let naps = self.read_only && own_device && host_waits::limit_ns().is_none();
        let mut spins = spins;
        loop {
            // Both are read before the cell, so that signals before the end count.
            let next = changes.load() + 1;
            let dead = self.is_dead(cell);
            if cell.reached(value) {
                return Ok(true);
            }
            if dead {
                return Err(self.dead());
            }
            let left = approach.deadline().left();
            let met = match naps {
                true => {
                    wait::nap(&self.vm, cell, value, &mut approach, std::mem::take(&mut spins))?
                }
                false => wait::wait_or_end(&self.vm, (cell, value), (changes, next), left, spins)?,
            };
            if met {
                return Ok(true);
            }
            if left == 0 {
                return Ok(false);
            }
        }
    }

    /// Ends all unmet waits, because the other process is gone.
    fn set_orphaned(&self) {
        let mut fate = self.fate();
        if std::mem::replace(&mut fate.orphaned, true) {
            return;
        }
        self.changed(fate, self.block.va(), self.block.size());
    }

    /// Ends all unmet waits for a cell that will not be signalled any more.
    fn abandon(&self, cell: Cell) {
        let mut fate = self.fate();
        fate.abandoned.push(cell);
        self.changed(fate, cell.va(), CELL_SIZE);
    }

    fn changed(&self, fate: MutexGuard<'_, Fate>, address: u64, size: u64) {
        let changes = self.changes();
        changes.store(changes.load() + 1);
        drop(fate);
        let orphan = VmOrphan { vm_id: self.vm.id(), pad: 0, address, size };
        match self.vm.backend().vm_orphan(&orphan) {
            // A lost VM has no waits.
            Ok(()) | Err(Errno::Io | Errno::NoDevice) => {}
            Err(errno) => log::warn!("VM_ORPHAN: {}: queues may wait for ever", errno.name()),
        }
        wake(&self.vm, changes);
    }

    /// The error of a wait that will never be met.
    fn dead(&self) -> Error {
        let by = if self.is_orphaned() {
            "has ended, or lost its device, before it was signalled"
        } else {
            "has reset or destroyed the list that would signal it before it was executed"
        };
        Error::new(
            ze_result_t::ZE_RESULT_ERROR_DEVICE_LOST,
            format!("hEvent: {}, which shares it, {by}", self.exporter),
        )
    }
}

impl std::fmt::Debug for Imported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Imported({:?})", self.block)
    }
}

/// Wakes the sleepers on a cell, which read it again.
fn wake(vm: &Vm, cell: Cell) {
    let wake = SemWake { handle: cell.bo(), offset: cell.offset(), ..Default::default() };
    if let Err(errno) = vm.backend().sem_wake(&wake) {
        log::warn!("SEM_WAKE: {}", errno.name());
    }
}

/// The error for an exporter that has lost the object of a handle.
fn gone() -> Error {
    Error::new(ze_result_t::ZE_RESULT_ERROR_DEVICE_LOST, "what it stands for is gone")
}

/// The error for impossible facts.
fn bad_facts() -> Error {
    Error::invalid("the exporter has sent facts that do not fit the memory")
}
