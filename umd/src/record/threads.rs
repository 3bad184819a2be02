// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the program's threads are: in a call, in a function that the device has called, or in code of their own.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

/// Threads that have made calls, and are in none.
static OUTSIDE: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static IN_FUNCTION: Cell<bool> = const { Cell::new(false) };
    /// How many calls of this thread are in progress, one in the other.
    static CALLS: Cell<u32> = const { Cell::new(0) };
    static CALLER: Caller = Caller::new();
}

/// A thread that has made calls.
struct Caller;

impl Caller {
    fn new() -> Self {
        OUTSIDE.fetch_add(1, Ordering::SeqCst);
        Self
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        OUTSIDE.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A call of this thread, as long as it is in progress.
pub struct Inside(bool);

impl Inside {
    /// A call begins.
    pub fn begins() -> Self {
        // A thread that is ending is not counted.
        let counts = !is_in_function() && CALLER.try_with(|_| {}).is_ok();
        let calls = CALLS.replace(CALLS.get() + 1);
        if counts && calls == 0 {
            OUTSIDE.fetch_sub(1, Ordering::SeqCst);
        }
        Self(counts)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let calls = CALLS.get() - 1;
        CALLS.set(calls);
        if self.0 && calls == 0 {
            OUTSIDE.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Whether a thread of the program may write memory now: one that has made calls, and is in none.
pub fn host_runs() -> bool {
    OUTSIDE.load(Ordering::SeqCst) != 0
}

/// Whether this thread is in a function that the device has called.
pub fn is_in_function() -> bool {
    IN_FUNCTION.get()
}

/// A function that the device calls begins or ends on this thread.
pub fn set_in_function(runs: bool) {
    IN_FUNCTION.set(runs);
}
