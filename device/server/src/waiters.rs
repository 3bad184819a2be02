// SPDX-License-Identifier: MIT OR Apache-2.0
//! The waiters page: by it sleepers outside of a VM tell its engine process
//! that a signal is worth telling.
//!
//! The driver counts there for its threads, the hub for the queues of
//! engine processes. Engine processes only read it.

use std::sync::atomic::{Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tally_uapi::cell::WAITERS;
use tally_uapi::firmware::WaitersPage;

use crate::machine::View;

/// The page, and the hub's share of each count.
#[derive(Debug)]
pub struct Waiters {
    page: View<WaitersPage>,
    /// Locked while both change, so that a look never takes one of ours for the
    /// driver's, nor the other way round.
    ours: Mutex<Box<[u32]>>,
}

impl Waiters {
    pub fn new(page: View<WaitersPage>) -> Self {
        Self { page, ours: Mutex::new(vec![0; WAITERS].into()) }
    }

    fn ours(&self) -> MutexGuard<'_, Box<[u32]>> {
        self.ours.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A VM's queues begin to wait in the bucket. Who is counted reads its cells
    /// again afterwards: the waiter's half of the handshake.
    pub fn enter(&self, bucket: usize) {
        let mut ours = self.ours();
        ours[bucket] += 1;
        self.page.waiters[bucket].fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// They no longer do.
    pub fn leave(&self, bucket: usize) {
        let mut ours = self.ours();
        ours[bucket] -= 1;
        self.page.waiters[bucket].fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether a thread of the driver's sleeps in the bucket.
    pub fn driver_sleeps(&self, bucket: usize) -> bool {
        let ours = self.ours();
        self.page.waiters[bucket].load(Ordering::SeqCst) > ours[bucket]
    }
}
