// SPDX-License-Identifier: MIT OR Apache-2.0
//! A gate in front of the engines of all devices of the process, for a recorder that wants to know which writes are
//! the host's: while it is closed, no queue gets on an engine. What has its engine already goes on.
//!
//! It is the standard library's also under the model checkers: nothing closes it there.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

static CLOSED: AtomicBool = AtomicBool::new(false);
static LOCK: Mutex<()> = Mutex::new(());
static OPENED: Condvar = Condvar::new();
/// The time between two looks whether a queue that waits at the gate has to stop.
const LOOK: Duration = Duration::from_millis(1);

/// Closes the gate.
pub fn close() {
    CLOSED.store(true, Ordering::SeqCst);
}

/// Opens the gate.
pub fn open() {
    let _lock = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    CLOSED.store(false, Ordering::SeqCst);
    OPENED.notify_all();
}

/// Waits until the gate is open, or `gives_up`.
#[inline]
pub(crate) fn pass(gives_up: impl Fn() -> bool) {
    if CLOSED.load(Ordering::Relaxed) {
        wait(gives_up);
    }
}

#[cold]
fn wait(gives_up: impl Fn() -> bool) {
    let mut lock = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    while CLOSED.load(Ordering::SeqCst) && !gives_up() {
        lock = OPENED.wait_timeout(lock, LOOK).unwrap_or_else(PoisonError::into_inner).0;
    }
}
