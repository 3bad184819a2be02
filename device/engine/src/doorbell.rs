// SPDX-License-Identifier: MIT OR Apache-2.0
//! The doorbell of a mailbox, by which one side wakes the other, in memory that two processes share.
//!
//! The listener reads the count of rings, looks for news, announces its sleep and sleeps if the count is
//! still the same. A ringer publishes its news, counts, and wakes the listener if it has announced its sleep.
//! Only the listener withdraws its announcement. A ringer that did so could be late: it could withdraw the
//! announcement of the listener's next sleep, after the listener has heard its ring and before it sleeps, when no
//! wake reaches it. The listener would then sleep unannounced, and no ringer would wake it any more.

use crate::futex;
use crate::sync::{AtomicU32, Ordering, fence};

/// A doorbell that one side rings to wake the other.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Doorbell {
    /// Number of rings. A futex.
    rings: AtomicU32,
    /// 1 while the listener sleeps or is about to.
    asleep: AtomicU32,
}

impl Doorbell {
    /// Tells the listener that something has changed.
    pub fn ring(&self) {
        self.rings.fetch_add(1, Ordering::Release);
        // Orders the count before the look at the announcement; `wait` has the opposite order.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) != 0 {
            futex::wake(&self.rings);
        }
    }

    /// Like [`Self::ring`], but wakes the listener whatever the other side has written to its words.
    pub fn insist(&self) {
        self.rings.fetch_add(1, Ordering::Release);
        futex::wake(&self.rings);
    }

    /// The number of rings, which the listener reads before it looks for changes.
    pub fn rings(&self) -> u32 {
        self.rings.load(Ordering::Acquire)
    }

    /// Sleeps until it is rung after `seen`. May return early.
    pub fn wait(&self, seen: u32) {
        self.asleep.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.rings() == seen {
            futex::wait(&self.rings, seen);
        }
        self.asleep.store(0, Ordering::Relaxed);
    }
}
