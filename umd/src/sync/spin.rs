// SPDX-License-Identifier: MIT OR Apache-2.0
//! A lock of one word, uncontended in any correct program.
//!
//! Level Zero requires its callers to use a list from one thread at a time, and two threads contend for an
//! event only if one uses it while another appends with it. So only the cost of a free lock matters: a
//! mutex takes two atomic exchanges, this takes one. A thread that finds it taken spins, then yields, then
//! sleeps for short times: an unlock wakes no thread.
//!
//! Its critical sections are mostly short: an event's covers a few words. A list's is as long as the
//! append of a command, which may wait for room in its ring, or a clone of the list, which copies all of
//! it; another thread that uses the same list meanwhile waits in naps and burns no processor.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fmt, hint, thread};

/// Number of tries before the holder is assumed to have been preempted.
const TRIES: u32 = 64;
/// Number of yields before the holder is assumed to be in a longer critical section.
const OFFERS: u32 = 64;
/// The length of a sleep after that.
const NAP: Duration = Duration::from_micros(50);

/// A value that one thread at a time can access.
pub struct SpinLock<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: guards give access to the value to one thread at a time.
unsafe impl<T: Send> Send for SpinLock<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for SpinLock<T> {}

/// Exclusive access to the value of a [`SpinLock`], until it is dropped.
pub struct SpinGuard<'a, T>(&'a SpinLock<T>, PhantomData<&'a mut T>);

impl<T> SpinLock<T> {
    /// A free lock.
    pub const fn new(value: T) -> Self {
        Self { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Takes the lock. The holder must not take it again.
    #[inline]
    pub fn lock(&self) -> SpinGuard<'_, T> {
        if self.held.swap(true, Ordering::Acquire) {
            self.contend();
        }
        SpinGuard(self, PhantomData)
    }

    /// The value; an exclusive reference needs no lock.
    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Runs `f` with the value. `f` must not take the lock again.
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
        // SAFETY: the guard is the only one, and its creator has taken the lock.
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
