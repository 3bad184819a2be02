// SPDX-License-Identifier: MIT OR Apache-2.0
//! A quota of bytes, counted without a word that all threads write.
//!
//! ```text
//!  limit ≥ reserved = bytes in use + credit of shard 0 + credit of shard 1 + ...
//! ```
//!
//! A thread takes from the credit of its shard and gives back to it. Only when that credit is empty or
//! large does the shared sum change. So the number in use is exact for every reader, and the limit is
//! exact too: before a request is refused, the credit of all shards is reclaimed.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::shards::Shards;

/// Bytes that a shard reserves beyond a request.
const STEP: u64 = 1 << 20;
/// The largest credit of a shard.
const MOST: u64 = 4 * STEP;

/// See the module's description.
#[derive(Debug)]
pub struct Quota {
    limit: u64,
    /// Bytes in use or in a shard's credit.
    reserved: AtomicU64,
    credit: Shards<AtomicU64>,
}

impl Quota {
    /// A quota of `limit` bytes, none of them in use.
    pub fn new(limit: u64) -> Self {
        Self { limit, reserved: AtomicU64::new(0), credit: Shards::default() }
    }

    /// The limit in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes in use. While other threads take and give back, this is a value from the time of the call.
    pub fn used(&self) -> u64 {
        let credit: u64 = self.credit.iter().map(|it| it.load(Ordering::Acquire)).sum();
        self.reserved.load(Ordering::Acquire).saturating_sub(credit)
    }

    /// Takes `bytes` if that many are left; returns whether they were.
    #[inline]
    #[must_use]
    pub fn take(&self, bytes: u64) -> bool {
        let less = |credit: u64| credit.checked_sub(bytes);
        let order = Ordering::Relaxed;
        self.credit.mine().fetch_update(order, order, less).is_ok() || self.reserve(bytes)
    }

    /// Gives back bytes that were taken.
    #[inline]
    pub fn give(&self, bytes: u64) {
        let credit = self.credit.mine();
        if credit.fetch_add(bytes, Ordering::Relaxed) + bytes > MOST {
            self.reserved.fetch_sub(credit.swap(0, Ordering::Relaxed), Ordering::Release);
        }
    }

    #[cold]
    fn reserve(&self, bytes: u64) -> bool {
        if let Some(all) = bytes.checked_add(STEP)
            && self.add(all)
        {
            self.credit.mine().fetch_add(STEP, Ordering::Release);
            return true;
        }
        if self.add(bytes) {
            return true;
        }
        for credit in self.credit.iter() {
            self.reserved.fetch_sub(credit.swap(0, Ordering::Relaxed), Ordering::Release);
        }
        self.add(bytes)
    }

    fn add(&self, bytes: u64) -> bool {
        let more = |it: u64| it.checked_add(bytes).filter(|&it| it <= self.limit);
        self.reserved.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_is_exact_and_the_limit_too() {
        let quota = Quota::new(3 * STEP);
        assert!(quota.take(100) && quota.take(STEP));
        assert_eq!(quota.used(), STEP + 100);
        assert!(!quota.take(2 * STEP), "100 bytes too many");
        assert!(quota.take(2 * STEP - 100), "the credit is called in");
        assert!(!quota.take(1) && !quota.take(u64::MAX));
        assert_eq!(quota.used(), 3 * STEP);
        quota.give(3 * STEP);
        assert_eq!(quota.used(), 0);
        assert!(quota.take(3 * STEP), "what was given back can all be taken");
    }

    #[test]
    fn credit_of_other_threads_is_called_in() {
        let quota = Quota::new(2 * STEP);
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(quota.take(10)));
        });
        assert!(quota.take(2 * STEP - 10));
        assert!(!quota.take(1));
    }

    #[test]
    fn threads_that_take_and_give_at_once_never_exceed_the_limit() {
        const EACH: u64 = STEP / 3;
        let quota = Quota::new(4 * STEP);
        let inside = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        if quota.take(EACH) {
                            let now = inside.fetch_add(EACH, Ordering::SeqCst) + EACH;
                            assert!(now <= quota.limit());
                            inside.fetch_sub(EACH, Ordering::SeqCst);
                            quota.give(EACH);
                        }
                    }
                });
            }
        });
        assert_eq!(quota.used(), 0);
    }
}
