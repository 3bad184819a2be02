// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of an engine process that all threads serving it share.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use tally_engine::mailbox::MailboxMap;
use tally_uapi::cell::WAITERS;
use tally_uapi::fault::{Fault, FaultKind};

/// The reason why a VM is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The queue that has faulted; none if the process has ended.
    pub queue: Option<u32>,
    /// Its fault.
    pub fault: Fault,
}

impl Loss {
    pub(super) fn engine() -> Self {
        let fault = Fault { kind: FaultKind::EngineLost, address: 0, packet: 0 };
        Self { queue: None, fault }
    }
}

/// A system call that the process may make: number and arguments.
pub(super) type Call = (i64, [u64; 6]);

/// The progress of the process, as far as the hub needs it.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Calls that the current order allows, in order; the last is its fence.
    pub(super) allowed: Vec<Call>,
    /// The number of these calls that were made.
    pub(super) made: usize,
    pub(super) ended: bool,
    /// Set once its end does not count as a loss any more.
    closing: bool,
    loss: Option<Loss>,
}

/// The part of an engine that all threads share.
pub struct Link {
    /// The VM's id.
    pub vm: u32,
    pub(super) mailbox: MailboxMap,
    progress: Mutex<Progress>,
    pub(super) changed: Condvar,
    /// Buckets in which the VM's queues are counted in the waiters page.
    pub(super) counted: [AtomicU64; WAITERS / 64],
    /// Tells the ear that the engine process has ended.
    pub(super) deaf: AtomicBool,
    pub(super) process: OnceLock<OwnedFd>,
}

impl Link {
    pub(super) fn new(vm: u32, mailbox: MailboxMap) -> Self {
        Self {
            vm,
            mailbox,
            progress: Mutex::default(),
            changed: Condvar::new(),
            counted: Default::default(),
            deaf: AtomicBool::new(false),
            process: OnceLock::new(),
        }
    }

    pub(super) fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the process that a queue was found asleep.
    pub fn kick(&self, queue: u32) {
        self.mailbox.to_engine.kicks.set(queue as usize);
        self.mailbox.to_engine.bell.ring();
    }

    /// Tells the process that cells of the bucket may have changed.
    pub fn recheck(&self, bucket: usize) {
        self.mailbox.to_engine.recheck.set(bucket);
        self.mailbox.to_engine.bell.ring();
    }

    /// Tells the process that all foreign cells may have changed.
    pub fn recheck_foreign(&self) {
        self.mailbox.to_engine.recheck_foreign.store(1, Ordering::SeqCst);
        self.mailbox.to_engine.bell.ring();
    }

    /// Whether the VM's queues are counted in the bucket.
    pub fn is_counted(&self, bucket: usize) -> bool {
        self.counted[bucket / 64].load(Ordering::SeqCst) & 1 << (bucket % 64) != 0
    }

    /// Kills the process. It has ended when [`super::Engine::end`] has returned.
    pub(super) fn kill(&self) {
        if let Some(process) = self.process.get() {
            kill(process);
        }
    }

    /// Ends the process with the session, which does not count as a loss.
    pub fn close(&self) {
        self.progress().closing = true;
        self.kill();
    }

    /// The reason why the VM is lost, if it is.
    pub fn loss(&self) -> Option<Loss> {
        self.progress().loss
    }

    /// Records the first loss. True if it was the first, and counts as one.
    pub(super) fn lose(&self, loss: Loss) -> bool {
        let mut progress = self.progress();
        if progress.closing || progress.loss.is_some() {
            return false;
        }
        progress.loss = Some(loss);
        true
    }
}

/// A descriptor by which a process can be awaited and killed without a race.
pub(super) fn open_process(pid: u32) -> io::Result<OwnedFd> {
    use std::os::fd::FromRawFd;
    // SAFETY: takes numbers; a descriptor that is returned has no other owner.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd as i32)) }
    }
}

/// Sends SIGKILL to the process of a descriptor.
pub(super) fn kill(process: impl AsFd) {
    let fd = process.as_fd().as_raw_fd();
    let nothing = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: takes numbers. The call fails harmlessly if the process has ended already.
    unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, libc::SIGKILL, nothing, 0) };
}
