// SPDX-License-Identifier: MIT OR Apache-2.0
//! A lock of one word for a few instructions of work, uncontended in any correct program.
//!
//! Two threads meet here only if one uses an event while another appends with it. A mutex would
//! cost a second atomic exchange on every append.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fmt, hint, thread};

/// Tries before the holder is assumed to have been preempted.
const TRIES: u32 = 64;

/// A value that one thread at a time looks at, briefly.
pub struct SpinLock<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `with` gives one thread at a time access to the value.
unsafe impl<T: Send> Send for SpinLock<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for SpinLock<T> {}

impl<T> SpinLock<T> {
    /// A free lock.
    pub const fn new(value: T) -> Self {
        Self { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Runs `f` with the value. `f` neither blocks nor comes back here.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        /// Frees the lock also when `f` panics.
        struct Release<'a>(&'a AtomicBool);
        impl Drop for Release<'_> {
            fn drop(&mut self) {
                self.0.store(false, Ordering::Release);
            }
        }
        if self.held.swap(true, Ordering::Acquire) {
            self.contend();
        }
        let _release = Release(&self.held);
        // SAFETY: the swap made this thread the only holder until `_release` is dropped.
        f(unsafe { &mut *self.value.get() })
    }

    #[cold]
    fn contend(&self) {
        loop {
            for _ in 0..TRIES {
                if !self.held.load(Ordering::Relaxed) && !self.held.swap(true, Ordering::Acquire) {
                    return;
                }
                hint::spin_loop();
            }
            thread::yield_now();
        }
    }
}

impl<T> fmt::Debug for SpinLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SpinLock")
    }
}
