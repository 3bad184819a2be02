// SPDX-License-Identifier: MIT OR Apache-2.0
//! The doorbell of a mailbox: how one side wakes the other, in memory that two processes share.
//!
//! The listener reads the count of rings, looks for news, announces its sleep and sleeps if the count is
//! still the same. A ringer publishes its news, counts, and wakes the listener if it has announced its sleep.
//! Only the listener takes its announcement back. A ringer that did so could come late: after the listener
//! has heard its ring and announced the next sleep, but does not sleep yet, so that no wake reaches it. It
//! would then sleep unannounced, and no ringer would wake it any more.

use crate::futex;
use crate::sync::{AtomicU32, Ordering, fence};

/// Wakes the other side.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Doorbell {
    /// How often it was rung. A futex.
    rings: AtomicU32,
    /// 1 while the listener sleeps or is about to.
    asleep: AtomicU32,
}

impl Doorbell {
    /// Something has changed.
    pub fn ring(&self) {
        self.rings.fetch_add(1, Ordering::Release);
        // Between the count and the look at the announcement; in `wait` it is the other way round.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) != 0 {
            futex::wake(&self.rings);
        }
    }

    /// The same, whatever the other side has made of its words.
    pub fn insist(&self) {
        self.rings.fetch_add(1, Ordering::Release);
        futex::wake(&self.rings);
    }

    /// To be read before looking what has changed.
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
