// SPDX-License-Identifier: GPL-2.0
//! Sleeping until a wake or a deadline, with ns precision, and killably where needed.

use core::ffi::c_int;
use core::sync::atomic::{fence, AtomicU32, Ordering};

use kernel::bindings;
use kernel::prelude::*;
use kernel::types::Opaque;

// The empty structs that bindgen makes inside kernel structs depend on the configuration only.
#[allow(improper_ctypes)]
extern "C" {
    fn tally_waiter_init(queue: *mut bindings::wait_queue_head);
    fn tally_waiter_sleep(
        queue: *mut bindings::wait_queue_head,
        woken: *const u32,
        deadline: i64,
        killable: bool,
        freezable: bool,
    ) -> c_int;
    fn tally_waiter_wake(queue: *mut bindings::wait_queue_head, woken: *mut u32);
}

/// The reason why a sleep ended without a wake.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interrupted {
    /// The deadline passed.
    Late,
    /// A signal arrived.
    Signal,
}

/// Which signals end a sleep, and whether the sleeper may be frozen in it; a freezable sleeper holds no lock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sleep {
    /// All signals end it, and it may be frozen.
    Interruptible,
    /// Fatal signals end it.
    Killable,
    /// Fatal signals end it, and it may be frozen.
    KillableFreezable,
}

/// A place where one thread sleeps until it is woken, a deadline (CLOCK_MONOTONIC
/// to the ns, as the uapi promises), or a signal.
///
/// `CondVar` counts in jiffies and cannot sleep killably.
#[pin_data]
pub(crate) struct Waiter {
    #[pin]
    queue: Opaque<bindings::wait_queue_head>,
    woken: Opaque<u32>,
}

// SAFETY: the wait queue has its own lock, and `woken` is accessed atomically.
unsafe impl Send for Waiter {}
// SAFETY: as above.
unsafe impl Sync for Waiter {}

impl Waiter {
    /// A waiter that was not woken yet.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            // SAFETY: the slot is memory for a wait queue that stays where it is.
            queue <- Opaque::ffi_init(|slot| unsafe { tally_waiter_init(slot) }),
            woken: Opaque::new(0),
        })
    }

    /// Sleeps until [`Self::wake`] was called since the last [`Self::rearm`].
    ///
    /// `i64::MAX` is no deadline.
    pub(crate) fn sleep(&self, deadline_ns: i64, kind: Sleep) -> Result<(), Interrupted> {
        let killable = kind != Sleep::Interruptible;
        let freezable = kind != Sleep::Killable;
        // SAFETY: both are valid and pinned; the shim reads `woken` atomically.
        let ret = unsafe {
            let (queue, woken) = (self.queue.get(), self.woken.get());
            tally_waiter_sleep(queue, woken, deadline_ns, killable, freezable)
        };
        match ret {
            0 => Ok(()),
            late if late == ETIME.to_errno() => Err(Interrupted::Late),
            _ => Err(Interrupted::Signal),
        }
    }

    /// Wakes the sleeper, or keeps it from falling asleep.
    pub(crate) fn wake(&self) {
        // SAFETY: both are valid and pinned; the shim writes `woken` atomically.
        unsafe { tally_waiter_wake(self.queue.get(), self.woken.get()) };
    }

    /// Registers the poller of `table` to be woken by [`Self::wake`], then executes a full barrier.
    ///
    /// # Safety
    /// Both are arguments of a poll of a file that keeps this waiter until it is released.
    pub(super) unsafe fn register(
        &self,
        file: *mut bindings::file,
        table: *mut bindings::poll_table_struct,
    ) {
        // SAFETY: a live queue, which stays as long as the file; the caller guarantees the arguments.
        unsafe { bindings::poll_wait(file, self.queue.get(), table) };
        fence(Ordering::SeqCst);
    }

    /// Clears earlier wakes, and returns whether there were any. The caller checks its condition afterwards.
    pub(crate) fn rearm(&self) -> bool {
        // SAFETY: `woken` is valid for the life of `self` and accessed atomically only.
        let woken = unsafe { AtomicU32::from_ptr(self.woken.get()) };
        woken.swap(0, Ordering::SeqCst) != 0
    }
}
