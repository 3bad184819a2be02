// SPDX-License-Identifier: MIT OR Apache-2.0
//! The waiters page, by which waiters outside of a VM tell its engine process
//! which signals it has to report.
//!
//! The driver counts its own threads there, and the hub counts the queues of
//! engine processes. Engine processes only read the page.

use std::sync::atomic::{Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tally_uapi::cell::WAITERS;
use tally_uapi::firmware::WaitersPage;

use crate::machine::View;

/// The page, and the hub's share of each count.
#[derive(Debug)]
pub struct Waiters {
    page: View<WaitersPage>,
    /// Locked while both change, so that a look never mistakes one of our counts
    /// for the driver's, or one of the driver's for ours.
    ours: Mutex<Box<[u32]>>,
}

impl Waiters {
    pub fn new(page: View<WaitersPage>) -> Self {
        Self { page, ours: Mutex::new(vec![0; WAITERS].into()) }
    }

    fn ours(&self) -> MutexGuard<'_, Box<[u32]>> {
        self.ours.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a VM's queues that begin to wait in the bucket. They read their cells
    /// again afterwards, which is the waiter's half of the handshake.
    pub fn enter(&self, bucket: usize) {
        let mut ours = self.ours();
        ours[bucket] += 1;
        self.page.waiters[bucket].fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Ends the count of a VM's queues in the bucket.
    pub fn leave(&self, bucket: usize) {
        let mut ours = self.ours();
        ours[bucket] -= 1;
        self.page.waiters[bucket].fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether a thread of the driver sleeps in the bucket.
    pub fn driver_sleeps(&self, bucket: usize) -> bool {
        let ours = self.ours();
        self.page.waiters[bucket].load(Ordering::SeqCst) > ours[bucket]
    }
}
