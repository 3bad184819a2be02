// SPDX-License-Identifier: MIT OR Apache-2.0
//! The set of sleeping workers, and waking one of them.
//!
//! A worker *announces* its sleep with a bit, executes a full fence and looks for tasks once more. A thread with
//! a task publishes it, executes a full fence and looks at the bits. So either the worker sees the task or the
//! other thread sees the bit. The thread that clears a bit has claimed the worker and notifies it, one for each
//! task.

use crate::sync::{AtomicU64, Ordering, fence, race};
use crate::wakeup::Wakeup;

/// One word of bits, alone in its cache lines.
#[derive(Debug)]
#[repr(align(128))]
struct Word(AtomicU64);

/// The place where one worker sleeps, alone in its cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Bed(Wakeup);

/// The workers that sleep, by their indices.
#[derive(Debug)]
pub(super) struct IdleSet {
    words: Box<[Word]>,
    beds: Box<[Bed]>,
}

impl IdleSet {
    /// A set for `threads` threads.
    pub(super) fn new(threads: usize) -> Self {
        let words = (0..threads.div_ceil(64)).map(|_| Word(AtomicU64::new(0))).collect();
        Self { words, beds: (0..threads).map(|_| Bed::default()).collect() }
    }

    fn place(&self, index: usize) -> (&AtomicU64, u64) {
        (&self.words[index / 64].0, 1 << (index % 64))
    }

    /// Announces that worker `index` is about to sleep. The worker looks for tasks after this.
    pub(super) fn announce(&self, index: usize) {
        let (word, bit) = self.place(index);
        race();
        word.fetch_or(bit, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Withdraws the announcement of worker `index`, which has found a task. If it was claimed meanwhile, its
    /// next sleep ends at once.
    pub(super) fn cancel(&self, index: usize) {
        let (word, bit) = self.place(index);
        word.fetch_and(!bit, Ordering::Relaxed);
    }

    /// Puts worker `index` to sleep until it is notified.
    pub(super) fn sleep(&self, index: usize) {
        race();
        self.beds[index].0.wait();
        self.cancel(index);
    }

    /// Notifies thread `index`, whether it has announced its sleep or not.
    pub(super) fn notify(&self, index: usize) {
        self.beds[index].0.notify();
    }

    /// Notifies all threads.
    pub(super) fn notify_all(&self) {
        self.beds.iter().for_each(|bed| bed.0.notify());
    }

    /// Whether a worker sleeps that has not been claimed.
    pub(super) fn any(&self) -> bool {
        self.words.iter().any(|word| word.0.load(Ordering::Relaxed) != 0)
    }

    /// Wakes a worker, worker `preferred` if it sleeps, and calls `prepare` with its index before that. False: none
    /// sleeps. The caller has published a task and executed a full fence.
    pub(super) fn wake(&self, preferred: usize, prepare: impl FnOnce(usize)) -> bool {
        race();
        let claimed = self.claim(preferred);
        if let Some(index) = claimed {
            prepare(index);
            self.notify(index);
        }
        claimed.is_some()
    }

    fn claim(&self, preferred: usize) -> Option<usize> {
        if preferred < self.beds.len() {
            let (word, bit) = self.place(preferred);
            let there = word.load(Ordering::Relaxed) & bit != 0;
            if there && word.fetch_and(!bit, Ordering::Relaxed) & bit != 0 {
                return Some(preferred);
            }
        }
        for (i, word) in self.words.iter().enumerate() {
            let mut seen = word.0.load(Ordering::Relaxed);
            while seen != 0 {
                let bit = seen & seen.wrapping_neg();
                if word.0.fetch_and(!bit, Ordering::Relaxed) & bit != 0 {
                    return Some(i * 64 + bit.trailing_zeros() as usize);
                }
                seen = word.0.load(Ordering::Relaxed);
            }
        }
        None
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_sleeper_is_claimed_once_the_preferred_one_first() {
        let idle = IdleSet::new(130);
        [3, 64, 129].into_iter().for_each(|index| idle.announce(index));
        assert!(idle.any());
        assert_eq!(idle.claim(129), Some(129));
        assert_eq!(idle.claim(129), Some(3));
        idle.cancel(64);
        assert_eq!((idle.claim(0), idle.any()), (None, false));
    }

    #[test]
    fn a_notification_before_the_sleep_is_kept() {
        let idle = IdleSet::new(1);
        idle.announce(0);
        assert!(idle.wake(0, |index| assert_eq!(index, 0)));
        idle.sleep(0);
        assert!(!idle.any());
    }
}
