// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scheduler's state under its lock.
//!
//! To wake a thread can take longer than the thread takes to arrive at the lock, on a virtual machine
//! 10 µs against 7. So nobody is woken under the lock: who is to be woken is noted, and woken when the
//! lock is free.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;
use std::sync::{Condvar, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Sched, State};

/// The state, locked. Dropping it unlocks and then wakes.
pub(super) struct Locked<'a> {
    // Dropped in this order.
    state: MutexGuard<'a, State>,
    tell: Tell<'a>,
}

/// Who is to be woken.
struct Tell<'a> {
    sched: &'a Sched,
    sleepers: usize,
    watch: bool,
}

impl Drop for Tell<'_> {
    fn drop(&mut self) {
        for _ in 0..self.sleepers {
            self.sched.wake.notify_one();
        }
        if self.watch {
            self.sched.watch.notify_one();
        }
    }
}

impl<'a> Locked<'a> {
    pub(super) fn new(sched: &'a Sched, state: MutexGuard<'a, State>) -> Self {
        Self { state, tell: Tell { sched, sleepers: 0, watch: false } }
    }

    /// A worker that sleeps is to wake.
    pub(super) fn tell_sleeper(&mut self) {
        self.state.wakes += 1;
        self.tell.sleepers += 1;
    }

    /// The watch is to look, if it sleeps.
    pub(super) fn tell_watch(&mut self) {
        self.tell.watch |= self.tell.sched.watch_asleep.swap(false, Ordering::Relaxed);
    }

    /// The watch is to look, whatever it does.
    pub(super) fn rush_watch(&mut self) {
        self.tell.sched.watch_asleep.store(false, Ordering::Relaxed);
        self.tell.watch = true;
    }

    /// Unlocks, waits for `condition`, locks again.
    pub(super) fn wait(self, condition: &Condvar) -> Self {
        let Self { state, tell } = self;
        let sched = tell.sched;
        drop(tell);
        Self::new(sched, condition.wait(state).unwrap_or_else(PoisonError::into_inner))
    }

    /// As [`Self::wait`], no longer than `time`.
    pub(super) fn wait_for(self, condition: &Condvar, time: Duration) -> Self {
        let Self { state, tell } = self;
        let sched = tell.sched;
        drop(tell);
        let waited = condition.wait_timeout(state, time);
        Self::new(sched, waited.unwrap_or_else(PoisonError::into_inner).0)
    }
}

impl Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}
