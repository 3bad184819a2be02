// SPDX-License-Identifier: MIT OR Apache-2.0
//! A lock of one word, uncontended in any correct program.
//!
//! Level Zero has its callers use a list from one thread at a time, and two threads meet at an event
//! only if one uses it while another appends with it. So all that counts is what a free lock costs: a
//! mutex takes two atomic exchanges, this takes one. A thread that finds it taken spins, then
//! yields, then sleeps for short times: an unlock wakes no thread.
//!
//! Mostly what is done under it is short: an event's is a few words. A list's is as long as the append
//! of a command, which may wait for room in its ring, or a clone of the list, which copies it all;
//! another thread that uses the same list meanwhile waits as long, in naps, and burns no processor.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fmt, hint, thread};

/// Tries before the holder is assumed to have been preempted.
const TRIES: u32 = 64;
/// Offers of the processor before the holder is assumed to be at something longer.
const OFFERS: u32 = 64;
/// A nap then.
const NAP: Duration = Duration::from_micros(50);

/// A value that one thread at a time looks at.
pub struct SpinLock<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: a guard gives one thread at a time access to the value.
unsafe impl<T: Send> Send for SpinLock<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for SpinLock<T> {}

/// The right to the value of a [`SpinLock`] until it is dropped.
pub struct SpinGuard<'a, T>(&'a SpinLock<T>, PhantomData<&'a mut T>);

impl<T> SpinLock<T> {
    /// A free lock.
    pub const fn new(value: T) -> Self {
        Self { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Takes the lock. Who has it does not come back here.
    #[inline]
    pub fn lock(&self) -> SpinGuard<'_, T> {
        if self.held.swap(true, Ordering::Acquire) {
            self.contend();
        }
        SpinGuard(self, PhantomData)
    }

    /// The value; the exclusive reference needs no lock.
    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Runs `f` with the value. `f` does not come back here.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.lock())
    }

    #[cold]
    fn contend(&self) {
        for round in 0.. {
            for _ in 0..TRIES {
                if !self.held.load(Ordering::Relaxed) && !self.held.swap(true, Ordering::Acquire) {
                    return;
                }
                hint::spin_loop();
            }
            if round < OFFERS {
                thread::yield_now();
            } else {
                thread::sleep(NAP);
            }
        }
    }
}

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard is the only one, and its maker has taken the lock.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.held.store(false, Ordering::Release);
    }
}

impl<T> fmt::Debug for SpinLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SpinLock")
    }
}
