// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions of the application that lists call (`zeCommandListAppendHostFunction`).
//!
//! Each append has a cell, and all of a VM share a doorbell. The device stores REQUESTED in the cell,
//! rings the doorbell, and parks the list until the cell holds DONE; a thread of the driver that
//! sleeps at the doorbell calls the function and stores that. Last the device stores IDLE again, so
//! that the next execution of a recording finds the cell as the first one did.
//!
//! There is one such thread for each VM, started by the first append: functions are called one at a
//! time, never on a worker of the device and never with a lock of the driver held.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tally_uapi::cell::Compare;
use tally_uapi::ioctl::{Errno, SemWait, SemWaitEntry, SemWake, sem_wait_flag};
use tally_ze::ze_result_t;

use super::counter::Cell;
use crate::error::{Error, Result};
use crate::heap::Block;
use crate::vm::Vm;

/// No function is requested.
pub const IDLE: u64 = 0;
/// The list has reached the function.
pub const REQUESTED: u64 = 1;
/// The function has returned.
pub const DONE: u64 = 2;

/// Pause before a thread that could not sleep looks again.
const AGAIN: Duration = Duration::from_millis(1);

/// What the application passes: the function and what it is called with.
#[derive(Clone, Copy, Debug)]
pub struct Callback {
    /// The function.
    pub function: unsafe extern "C" fn(*mut c_void),
    /// Its argument.
    pub data: *mut c_void,
}

// SAFETY: the pointer is only handed to the function, which the application has written to be
// called on a thread of the driver's.
unsafe impl Send for Callback {}
// SAFETY: as above.
unsafe impl Sync for Callback {}

/// One append. The list keeps it as long as the device may ask for it.
pub struct HostFunction {
    callback: Callback,
    cell: Cell,
    doorbell: Cell,
    /// What the cell lies in.
    _block: Block,
    /// What the doorbell lies in.
    _service: Arc<Service>,
}

impl HostFunction {
    /// Where the device asks, and finds the answer.
    pub fn cell(&self) -> Cell {
        self.cell
    }

    /// What the application has passed.
    pub fn callback(&self) -> Callback {
        self.callback
    }

    /// What the device adds 1 to, to wake the thread.
    pub fn doorbell(&self) -> Cell {
        self.doorbell
    }
}

/// The thread's side. Dropping the last reference ends the thread.
pub struct Service {
    vm: Arc<Vm>,
    doorbell: Cell,
    /// 1: the thread is to end.
    end: Cell,
    calls: Arc<Calls>,
    /// What both cells lie in; the thread's too.
    _block: Arc<Block>,
}

/// The functions that the device may ask for.
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
    /// OUT_OF_HOST_MEMORY: no thread; the heap's.
    pub fn start(vm: &Arc<Vm>) -> Result<Arc<Self>> {
        let block = Arc::new(vm.heap().alloc(64, 64)?);
        // SAFETY: the service, each function through it, and the thread keep the block, in which
        // nothing else is; both places are aligned.
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

    /// A function that a list will call.
    ///
    /// # Errors
    /// The heap's.
    pub fn register(self: &Arc<Self>, callback: Callback) -> Result<Arc<HostFunction>> {
        let block = self.vm.heap().alloc(8, 8)?;
        // SAFETY: the function keeps the block, in which nothing else is.
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
}

impl Drop for Service {
    fn drop(&mut self) {
        self.end.store(1);
        wake(&self.vm, self.end);
    }
}

/// The thread, and what it needs of its own: the service may go at any time.
struct Thread {
    vm: Arc<Vm>,
    doorbell: Cell,
    end: Cell,
    calls: Arc<Calls>,
    _block: Arc<Block>,
}

impl Thread {
    /// Calls what is asked for, then sleeps until the doorbell rings.
    fn serve(&self) {
        loop {
            let rung = self.doorbell.load();
            for call in self.asked() {
                let Callback { function, data } = call.callback;
                self.vm.refresh_host();
                // SAFETY: the application has passed the function to be called with this argument.
                unsafe { function(data) };
                self.vm.flush_host();
                call.cell.store(DONE);
                wake(&self.vm, call.cell);
            }
            // A lost VM asks for nothing any more.
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

    /// Sleeps until the doorbell has this value, the end has come, or sleep is not to be had; false if the
    /// VM is lost. Not one of the waits that the hang report looks at: it lasts as long as the VM.
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
            // SAFETY: the entries lie there until the call returns.
            match unsafe { self.vm.backend().sem_wait(&mut wait) } {
                Ok(()) => return true,
                Err(Errno::Interrupted) => {}
                Err(Errno::Io | Errno::NoEntry | Errno::NoDevice) => return false,
                // Such as memory that runs short for a moment: lists go on waiting for the thread.
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
