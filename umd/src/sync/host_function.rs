// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions of the application that lists call (`zeCommandListAppendHostFunction`).
//!
//! Each append has a cell, and all appends of a VM share a doorbell. The device stores REQUESTED in the
//! cell, rings the doorbell, and parks the list until the cell holds DONE; a thread of the driver that
//! sleeps at the doorbell calls the function and stores DONE. Finally the device stores IDLE again, so
//! that the next execution of a recording finds the cell in the same state as the first one.
//!
//! There is one such thread for each VM, started by the first append: functions are called one at a
//! time, never on a worker of the device and never while a lock of the driver is held.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tally_uapi::cell::Compare;
use tally_uapi::ioctl::{Errno, SemWait, SemWaitEntry, SemWake, sem_wait_flag};
use tally_ze::ze_result_t;

use super::cell::Cell;
use crate::checks;
use crate::error::{Error, Result};
use crate::vm::Vm;
use crate::vm::heap::Block;

/// No function is requested.
pub const IDLE: u64 = 0;
/// The list has reached the function.
pub const REQUESTED: u64 = 1;
/// The function has returned.
pub const DONE: u64 = 2;

/// The pause before a thread that could not sleep checks again.
const AGAIN: Duration = Duration::from_millis(1);

/// The application's function and its argument.
#[derive(Clone, Copy, Debug)]
pub struct Callback {
    /// The function.
    pub function: unsafe extern "C" fn(*mut c_void),
    /// Its argument.
    pub data: *mut c_void,
}

// SAFETY: the pointer is only passed to the function, which the application has provided to be called on
// a thread of the driver.
unsafe impl Send for Callback {}
// SAFETY: as above.
unsafe impl Sync for Callback {}

/// One append. The list keeps it as long as the device may request it.
pub struct HostFunction {
    callback: Callback,
    cell: Cell,
    doorbell: Cell,
    /// The memory of the cell.
    _block: Block,
    /// The memory of the doorbell.
    _service: Arc<Service>,
}

impl HostFunction {
    /// The cell in which the device makes its request and finds the answer.
    pub fn cell(&self) -> Cell {
        self.cell
    }

    /// The application's function and its argument.
    pub fn callback(&self) -> Callback {
        self.callback
    }

    /// The cell to which the device adds 1 to wake the thread.
    pub fn doorbell(&self) -> Cell {
        self.doorbell
    }
}

/// The thread's side. Dropping the last reference ends the thread.
pub struct Service {
    vm: Arc<Vm>,
    doorbell: Cell,
    /// 1 if the thread is to end.
    end: Cell,
    calls: Arc<Calls>,
    /// The memory of both cells, which the thread keeps too.
    _block: Arc<Block>,
}

/// The functions that the device may request.
#[derive(Default)]
struct Calls(Mutex<Vec<Weak<HostFunction>>>);

impl Calls {
    fn lock(&self) -> MutexGuard<'_, Vec<Weak<HostFunction>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Service {
    /// Starts the thread.
    ///
    /// # Errors
    /// OUT_OF_HOST_MEMORY: no thread can be started. Those of the heap.
    pub fn start(vm: &Arc<Vm>) -> Result<Arc<Self>> {
        let block = Arc::new(vm.heap().alloc(64, 64)?);
        // SAFETY: the service, each function through it, and the thread keep the block, which contains nothing
        // else; both places are aligned.
        let (doorbell, end) = unsafe { (Cell::new(&block, 0), Cell::new(&block, 8)) };
        doorbell.store(0);
        end.store(0);
        let calls = Arc::<Calls>::default();
        let thread =
            Thread { vm: vm.clone(), doorbell, end, calls: calls.clone(), _block: block.clone() };
        std::thread::Builder::new()
            .name("tally-host-fn".to_owned())
            .spawn(move || thread.serve())
            .map_err(|error| {
                let code = ze_result_t::ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
                Error::new(code, format!("no thread for host functions: {error}"))
            })?;
        let service = Arc::new(Self { vm: vm.clone(), doorbell, end, calls, _block: block });
        Ok(service)
    }

    /// Registers a function that a list will call.
    ///
    /// # Errors
    /// Those of the heap.
    pub fn register(self: &Arc<Self>, callback: Callback) -> Result<Arc<HostFunction>> {
        let block = self.vm.heap().alloc(8, 8)?;
        // SAFETY: the function keeps the block, which contains nothing else.
        let cell = unsafe { Cell::new(&block, 0) };
        cell.store(IDLE);
        let (doorbell, service) = (self.doorbell, self.clone());
        let function =
            Arc::new(HostFunction { callback, cell, doorbell, _block: block, _service: service });
        let mut calls = self.calls.lock();
        calls.retain(|it| it.strong_count() != 0);
        calls.push(Arc::downgrade(&function));
        Ok(function)
    }

    /// Whether a function is asked for, or runs.
    pub fn is_asked(&self) -> bool {
        let calls = self.calls.lock();
        calls.iter().filter_map(Weak::upgrade).any(|it| it.cell.load() == REQUESTED)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.end.store(1);
        wake(&self.vm, self.end);
    }
}

/// The thread with all that it needs itself, since the service may be dropped at any time.
struct Thread {
    vm: Arc<Vm>,
    doorbell: Cell,
    end: Cell,
    calls: Arc<Calls>,
    _block: Arc<Block>,
}

impl Thread {
    /// Calls the requested functions, then sleeps until the doorbell rings.
    fn serve(&self) {
        loop {
            let rung = self.doorbell.load();
            for call in self.asked() {
                let Callback { function, data } = call.callback;
                self.vm.refresh_host();
                let checked = checks::in_function(call.cell.va());
                // SAFETY: the application has provided the function to be called with this argument.
                unsafe { function(data) };
                drop(checked);
                self.vm.flush_host();
                call.cell.store(DONE);
                wake(&self.vm, call.cell);
            }
            // A lost VM requests nothing any more.
            if !self.sleep(rung + 1) || self.end.reached(1) {
                return;
            }
        }
    }

    fn asked(&self) -> Vec<Arc<HostFunction>> {
        let calls = self.calls.lock();
        let alive = calls.iter().filter_map(Weak::upgrade);
        alive.filter(|it| it.cell.load() == REQUESTED).collect()
    }

    /// Sleeps until the doorbell has this value, the thread is to end, or sleeping fails; false if the VM is
    /// lost. The hang report does not cover this wait, since it lasts as long as the VM.
    fn sleep(&self, doorbell: u64) -> bool {
        let entries =
            [(self.doorbell, doorbell), (self.end, 1)].map(|(cell, value)| SemWaitEntry {
                handle: cell.bo(),
                compare: Compare::GreaterEqual as u32,
                offset: cell.offset(),
                value,
            });
        let mut wait = SemWait {
            entries: entries.as_ptr() as u64,
            count: entries.len() as u32,
            flags: sem_wait_flag::ANY,
            timeout_ns: i64::MAX,
            vm_id: self.vm.id(),
            ..Default::default()
        };
        loop {
            // SAFETY: the entries exist until the call returns.
            match unsafe { self.vm.backend().sem_wait(&mut wait) } {
                Ok(()) => return true,
                Err(Errno::Interrupted) => {}
                Err(Errno::Io | Errno::NoEntry | Errno::NoDevice) => return false,
                // For example, memory is short for a moment: lists still wait for the thread.
                Err(errno) => {
                    log::warn!("SEM_WAIT for host functions: {}", errno.name());
                    std::thread::sleep(AGAIN);
                    return true;
                }
            }
        }
    }
}

fn wake(vm: &Vm, cell: Cell) {
    let wake = SemWake { handle: cell.bo(), offset: cell.offset(), ..Default::default() };
    if let Err(errno) = vm.backend().sem_wake(&wake) {
        log::error!("SEM_WAKE: {}", errno.name());
    }
}
