// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one mechanism by which threads of Tally sleep and are woken.
//!
//! A thread that is about to sleep *announces* it where threads with news will look, executes a full fence, looks
//! for news once more, and sleeps. A thread that has news *publishes* it, executes a full fence, looks for
//! announcements, and notifies. So at least one side sees the other. [`Wakeup`] is the sleep itself: a
//! notification before the sleep is kept. [`Dozer`] adds the announcement for a single thread; `sched::idle`
//! does that for all workers, the waiters words (`tally_uapi::cell`) for threads that wait for cells.

#[cfg(not(shuttle))]
use crate::sync::Instant;
use std::time::Duration;

use crate::sync::{AtomicBool, Condvar, Mutex, Ordering, fence, lock, race};

/// The place where one thread sleeps until it is notified.
#[derive(Debug)]
pub struct Wakeup {
    notified: Mutex<bool>,
    changed: Condvar,
}

impl Default for Wakeup {
    fn default() -> Self {
        Self { notified: Mutex::new(false), changed: Condvar::new() }
    }
}

impl Wakeup {
    /// Sleeps until it is notified; returns at once if it was notified since the last wait.
    pub fn wait(&self) {
        let mut notified = lock(&self.notified);
        while !*notified {
            notified = self.changed.wait(notified).unwrap_or_else(|error| error.into_inner());
        }
        *notified = false;
    }

    /// Like [`Self::wait`], for no longer than `time`. In a model the time is over once other threads have run.
    #[cfg(shuttle)]
    pub fn wait_for(&self, _time: Duration) {
        crate::sync::thread::yield_now();
        *lock(&self.notified) = false;
    }

    /// Like [`Self::wait`], for no longer than `time`.
    #[cfg(not(shuttle))]
    pub fn wait_for(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut notified = lock(&self.notified);
        while !*notified {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.changed.wait_timeout(notified, left);
            notified = waited.unwrap_or_else(|error| error.into_inner()).0;
        }
        *notified = false;
    }

    /// Whether a notification waits to be taken.
    pub fn is_notified(&self) -> bool {
        *lock(&self.notified)
    }

    /// Wakes the thread, or keeps it from its next sleep.
    pub fn notify(&self) {
        race();
        *lock(&self.notified) = true;
        // Notified without the lock: otherwise the thread would try to take the lock before it is free.
        self.changed.notify_one();
    }
}

/// A [`Wakeup`] of one thread that announces its sleep.
#[derive(Debug, Default)]
pub(crate) struct Dozer {
    asleep: AtomicBool,
    wakeup: Wakeup,
}

impl Dozer {
    /// Announces that the thread is about to sleep. The thread looks for news after this.
    pub(crate) fn announce(&self) {
        race();
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Withdraws the announcement, since there was news.
    pub(crate) fn cancel(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Sleeps until a [`Self::wake`] after [`Self::announce`].
    pub(crate) fn sleep(&self) {
        while self.asleep.load(Ordering::Relaxed) {
            self.wakeup.wait();
        }
    }

    /// Rests for `time` or until [`Self::interrupt`], without an announcement.
    pub(crate) fn rest(&self, time: Duration) {
        self.wakeup.wait_for(time);
    }

    /// Whether the thread has announced its sleep. After a full fence, false means that it will see everything
    /// that was published before the fence.
    pub(crate) fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Relaxed)
    }

    /// Wakes the thread if it sleeps. The caller has published news.
    pub(crate) fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.is_asleep() && self.asleep.swap(false, Ordering::Relaxed) {
            self.wakeup.notify();
        }
    }

    /// Wakes the thread, and ends its rest.
    pub(crate) fn interrupt(&self) {
        self.asleep.store(false, Ordering::Relaxed);
        self.wakeup.notify();
    }
}
