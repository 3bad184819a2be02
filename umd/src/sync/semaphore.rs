// SPDX-License-Identifier: MIT OR Apache-2.0
//! Semaphores of other drivers: the kernel's sync objects, which lists signal and wait for.
//!
//! Each append has a counter of its own, a *gate*, and the kernel does the rest:
//!
//! ```text
//!  signal:  list ── raises the gate ──► SEM_NOTIFY ──► a signalled fence at the semaphore's point
//!  wait:    a fence at the semaphore's point ──► SEM_FOLLOW ── raises the gate ──► list
//! ```
//!
//! A wait may come before there is a fence at its point. Then a thread waits for one to be there.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use tally_uapi::cell::Compare;
use tally_uapi::ioctl::{Errno, SemFollow, SemNotify, SemWaitEntry, follow_kind, notify_kind};
use tally_ze::ze_result_t;

use super::cell::Cell;
use super::counter::Counter;
use super::shared::Shared;
use crate::backend::{Backend, Syncobjs};
use crate::error::{Error, Result};

/// A sync object under a handle of this process.
pub struct Semaphore {
    backend: Arc<dyn Backend>,
    handle: u32,
    is_timeline: bool,
}

impl Semaphore {
    /// The sync object of a file. A timeline has points; otherwise there is one fence.
    ///
    /// # Errors
    /// UNSUPPORTED_FEATURE: the lane has no kernel. INVALID_ARGUMENT: the file is none of a sync object.
    /// OUT_OF_HOST_MEMORY.
    pub fn import(
        backend: &Arc<dyn Backend>,
        file: BorrowedFd<'_>,
        is_timeline: bool,
    ) -> Result<Self> {
        let handle = syncobjs(&**backend)?.syncobj_import(file).map_err(|errno| match errno {
            Errno::Invalid => Error::invalid("pNext->fd: it is no file of a semaphore"),
            other => Error::kernel("SYNCOBJ_FD_TO_HANDLE", other),
        })?;
        Ok(Self { backend: backend.clone(), handle, is_timeline })
    }

    /// The point that stands for a value.
    fn point(&self, value: u64) -> u64 {
        if self.is_timeline { value } else { 0 }
    }
}

impl Drop for Semaphore {
    fn drop(&mut self) {
        if let Ok(syncobjs) = syncobjs(&*self.backend) {
            syncobjs.syncobj_destroy(self.handle);
        }
    }
}

/// Checks that the lane has semaphores of other drivers.
///
/// # Errors
/// UNSUPPORTED_FEATURE.
pub fn are_offered(backend: &dyn Backend) -> Result {
    syncobjs(backend).map(drop)
}

fn syncobjs(backend: &dyn Backend) -> Result<&dyn Syncobjs> {
    backend.syncobjs().ok_or_else(|| {
        Error::unsupported("semaphores are objects of a kernel, and here is no kernel's device")
    })
}

/// A semaphore, and the value that it is to be signalled with, or that is awaited.
pub type Target = (Arc<Semaphore>, u64);

/// Counters between a list and semaphores. The list keeps them until its command is complete.
pub struct Gate {
    counters: Vec<(Counter, u64)>,
    /// Ends the threads that wait for fences.
    end: OwnedFd,
}

impl Gate {
    fn new(shared: &Arc<Shared>, counters: usize) -> Result<Self> {
        let take = |_| {
            let counter = shared.counter()?;
            let value = counter.reserve_next();
            Ok((counter, value))
        };
        let counters = (0..counters).map(take).collect::<Result<_>>()?;
        Ok(Self { counters, end: bell()? })
    }

    /// A gate that signals `targets` once the device has raised it.
    ///
    /// # Errors
    /// OUT_OF_HOST_MEMORY: also if the kernel has too many waits of this user. DEVICE_LOST.
    pub fn of_signal(shared: &Arc<Shared>, targets: &[Target]) -> Result<Arc<Self>> {
        let gate = Self::new(shared, 1)?;
        let entries: Vec<_> = gate.cells().map(|(cell, value)| entry(cell, value)).collect();
        for (semaphore, value) in targets {
            let notify = SemNotify {
                entries: entries.as_ptr().addr() as u64,
                count: entries.len() as u32,
                vm_id: shared.vm().id(),
                kind: notify_kind::SYNCOBJ,
                target: semaphore.handle,
                point: semaphore.point(*value),
                ..Default::default()
            };
            // SAFETY: the entries live until the call returns.
            let armed = unsafe { semaphore.backend.sem_notify(&notify) };
            armed.map_err(|errno| Error::kernel("SEM_NOTIFY", errno))?;
        }
        Ok(Arc::new(gate))
    }

    /// A gate that is raised once `targets` have their values.
    ///
    /// # Errors
    /// OUT_OF_HOST_MEMORY: also if the kernel has too many waits of this user, or no thread. DEVICE_LOST.
    pub fn of_wait(shared: &Arc<Shared>, targets: &[Target]) -> Result<Arc<Self>> {
        let gate = Arc::new(Self::new(shared, targets.len())?);
        for (index, target) in targets.iter().enumerate() {
            if !gate.follow(index, target)? {
                Fenceless { gate: Arc::downgrade(&gate), index, target: target.clone() }
                    .start(&gate.end)?;
            }
        }
        Ok(gate)
    }

    /// The counters' cells, and the values at which the gate is raised.
    pub fn cells(&self) -> impl ExactSizeIterator<Item = (Cell, u64)> + '_ {
        self.counters.iter().map(|(counter, value)| (counter.cell(), *value))
    }

    /// Has a counter follow the fence at the point of `target`; false: there is no fence yet.
    fn follow(&self, index: usize, (semaphore, value): &Target) -> Result<bool> {
        let (counter, raised) = &self.counters[index];
        let follow = SemFollow {
            handle: counter.cell().bo(),
            offset: counter.cell().offset(),
            value: *raised,
            kind: follow_kind::SYNCOBJ,
            source: semaphore.handle,
            point: semaphore.point(*value),
            ..Default::default()
        };
        match semaphore.backend.sem_follow(&follow) {
            Ok(()) => Ok(true),
            Err(Errno::Invalid) => Ok(false),
            Err(errno) => Err(Error::kernel("SEM_FOLLOW", errno)),
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        // A waiter sees the fence, however late it looks.
        if let Err(error) = rustix::io::write(&self.end, &1_u64.to_ne_bytes()) {
            log::error!("the end of a semaphore's wait: {error}");
        }
    }
}

fn entry(cell: Cell, value: u64) -> SemWaitEntry {
    let compare = Compare::GreaterEqual as u32;
    SemWaitEntry { handle: cell.bo(), compare, offset: cell.offset(), value }
}

fn bell() -> Result<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(no_memory)
}

fn no_memory(error: impl std::fmt::Display) -> Error {
    let code = ze_result_t::ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    Error::new(code, format!("nothing to wait for a semaphore with: {error}"))
}

/// A wait for a semaphore that has no fence at the wait's point yet, so that no counter can follow it.
struct Fenceless {
    gate: Weak<Gate>,
    index: usize,
    target: Target,
}

impl Fenceless {
    /// Starts the thread that waits for the fence, or for `end`.
    fn start(self, end: &OwnedFd) -> Result {
        let end = end.try_clone().map_err(no_memory)?;
        let bell = bell()?;
        self.ask(&bell)?;
        let thread = std::thread::Builder::new().name("tally-semaphore".to_owned());
        thread.spawn(move || self.wait(&bell, &end)).map(drop).map_err(no_memory)
    }

    /// Has `bell` told once there is a fence.
    fn ask(&self, bell: &OwnedFd) -> Result {
        let (semaphore, value) = &self.target;
        syncobjs(&*semaphore.backend)?
            .syncobj_await(semaphore.handle, semaphore.point(*value), bell.as_fd())
            .map_err(|errno| Error::kernel("SYNCOBJ_EVENTFD", errno))
    }

    fn wait(&self, bell: &OwnedFd, end: &OwnedFd) {
        loop {
            let mut files = [bell, end].map(|file| PollFd::new(file, PollFlags::IN));
            // EINTR: it looks again.
            if poll(&mut files, None).is_err() || files.iter().all(|it| it.revents().is_empty()) {
                continue;
            }
            let _told = rustix::io::read(bell, &mut [0_u8; 8]);
            // Without a gate no thread waits any more.
            let Some(gate) = self.gate.upgrade() else { return };
            match gate.follow(self.index, &self.target) {
                Ok(true) => return,
                // The semaphore's fence was taken away again.
                Ok(false) if self.ask(bell).is_ok() => {}
                Ok(false) | Err(_) => {
                    log::error!("a wait for a semaphore cannot go on");
                    return;
                }
            }
        }
    }
}
