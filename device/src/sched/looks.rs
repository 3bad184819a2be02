// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buckets of the semaphore unit that a worker is to look at.

use crate::sync::{AtomicBool, AtomicU64, Ordering};

use super::Job;

/// A bit for each bucket, and one for all foreign cells.
#[derive(Debug)]
pub(super) struct Looks {
    buckets: Box<[AtomicU64]>,
    foreign: AtomicBool,
}

impl Looks {
    pub(super) fn new(buckets: usize) -> Self {
        let words = (0..buckets.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Self { buckets: words, foreign: AtomicBool::new(false) }
    }

    /// Asks for a look at a bucket.
    pub(super) fn ask(&self, bucket: usize) {
        let bucket = bucket % (self.buckets.len() * 64);
        self.buckets[bucket / 64].fetch_or(1 << (bucket % 64), Ordering::Release);
    }

    /// Asks for a look at all foreign cells.
    pub(super) fn ask_foreign(&self) {
        self.foreign.store(true, Ordering::Release);
    }

    /// Whether a look is asked for.
    pub(super) fn any(&self) -> bool {
        self.foreign.load(Ordering::Relaxed)
            || self.buckets.iter().any(|word| word.load(Ordering::Relaxed) != 0)
    }

    /// Takes one look that is asked for.
    pub(super) fn take(&self) -> Option<Job> {
        for (i, word) in self.buckets.iter().enumerate() {
            let mut seen = word.load(Ordering::Relaxed);
            while seen != 0 {
                let bit = seen & seen.wrapping_neg();
                // Acquire: the look sees everything that was written before it was asked for.
                if word.fetch_and(!bit, Ordering::Acquire) & bit != 0 {
                    return Some(Job::Look(i * 64 + bit.trailing_zeros() as usize));
                }
                seen = word.load(Ordering::Relaxed);
            }
        }
        let foreign = self.foreign.load(Ordering::Relaxed);
        (foreign && self.foreign.swap(false, Ordering::Acquire)).then_some(Job::LookForeign)
    }
}
