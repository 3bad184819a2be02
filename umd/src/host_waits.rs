// SPDX-License-Identifier: MIT OR Apache-2.0
//! The waits of host threads: the thread, the awaited object, the call, and the start of each wait.
//!
//! This module is below everything that waits. `hang`, which is above, makes reports from these notes.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::{settings, trace};

thread_local! {
    /// The entry point that this thread is in.
    static CURRENT: Cell<&'static str> = const { Cell::new("a call") };
}

/// Notes that this thread enters an entry point of this name.
pub fn enter(function: &'static str) {
    // After its thread-local destructors have run the thread makes no more appends.
    let _ = CURRENT.try_with(|current| current.set(function));
}

/// The entry point that this thread is in.
pub fn current() -> &'static str {
    CURRENT.try_with(Cell::get).unwrap_or("a call")
}

/// The time after which a host wait is reported, in ns; `None`: waits are never reported.
pub fn limit_ns() -> Option<u64> {
    /// The time after which the check `sync` looks at a wait, in ms.
    const LOOKED_AT: u64 = 1000;
    let settings = settings::get();
    let ms = settings.hang_ms.or(settings.checks.sync.then_some(LOOKED_AT));
    ms.map(|ms| ms * 1_000_000)
}

/// The object of a host thread's wait.
#[derive(Clone, Copy, Debug)]
pub enum Waiting {
    /// A cell that has to reach at least a value.
    Cell {
        /// VA of the cell.
        address: u64,
        /// The value.
        value: u64,
    },
    /// A fence that was passed to no execution since it was made or reset.
    Fence,
}

static REPORT: OnceLock<fn(Waiting, Duration)> = OnceLock::new();

/// Sets the function that reports a wait which lasts longer than [`limit_ns`].
pub fn report_with(report: fn(Waiting, Duration)) {
    // Set once per process; later calls pass the same function.
    let _ = REPORT.set(report);
}

/// Reports a wait that has lasted for `lasted`.
#[cold]
pub fn report(waiting: Waiting, lasted: Duration) {
    if let Some(report) = REPORT.get() {
        report(waiting, lasted);
    }
}

/// A wait of a host thread.
#[derive(Clone, Copy, Debug)]
pub struct HostWait {
    /// The system's id of the thread.
    pub thread: i32,
    /// The entry point that it is in.
    pub call: &'static str,
    /// The object of the wait.
    pub waiting: Waiting,
    /// The start of the wait.
    pub since: Instant,
}

impl HostWait {
    /// The system's id of the calling thread.
    pub fn this_thread() -> i32 {
        // SAFETY: takes no arguments and cannot fail.
        unsafe { libc::gettid() }
    }

    /// A wait of the calling thread.
    pub fn here(waiting: Waiting, since: Instant) -> Self {
        let thread = Self::this_thread();
        Self { thread, call: current(), waiting, since }
    }
}

fn waits() -> MutexGuard<'static, BTreeMap<u64, HostWait>> {
    static WAITS: Mutex<BTreeMap<u64, HostWait>> = Mutex::new(BTreeMap::new());
    WAITS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All waits that are noted now, in the order of their starts.
pub fn all() -> Vec<HostWait> {
    waits().values().copied().collect()
}

/// A noted wait of this thread: it is among [`all`] until this is dropped, and then on the timeline.
pub struct Noted {
    number: Option<u64>,
    _traced: Option<trace::HostWait>,
}

/// Notes a wait of this thread that may last, if `tally-top` may ask for it or a timeline is written.
pub fn note(waiting: Waiting) -> Option<Noted> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let traced = match waiting {
        Waiting::Cell { address, value } => trace::host_wait(address, value),
        Waiting::Fence => None,
    };
    let number = settings::get().top.then(|| {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        waits().insert(number, HostWait::here(waiting, Instant::now()));
        number
    });
    (number.is_some() || traced.is_some()).then_some(Noted { number, _traced: traced })
}

impl Drop for Noted {
    fn drop(&mut self) {
        if let Some(number) = &self.number {
            waits().remove(number);
        }
    }
}
