// SPDX-License-Identifier: MIT OR Apache-2.0
//! One value for each of a few groups of threads, so that threads that run the same code at once do not
//! write to the same cache line.
//!
//! A thread gets its number on first use, and the number is free for the next thread when that thread
//! ends, so a program that starts thread after thread does not fill every shard. There are fewer shards
//! than a program may have threads, so a value may be shared and has to be safe for that; it is only
//! rarely contended.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Number of shards of each kind. Beyond this number, threads share them.
const COUNT: usize = u64::BITS as usize;

/// A value whose cache lines hold nothing else. Two lines: processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Apart<T>(T);

/// A value for each shard.
#[derive(Debug)]
pub struct Shards<T>(Box<[Apart<T>]>);

impl<T: Default> Default for Shards<T> {
    fn default() -> Self {
        Self((0..COUNT).map(|_| Apart::default()).collect())
    }
}

impl<T> Shards<T> {
    /// The value of the calling thread's shard.
    #[inline]
    pub fn mine(&self) -> &T {
        &self.0[number() % self.0.len()].0
    }

    /// The values of all shards.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|it| &it.0)
    }
}

/// The calling thread's number. While a thread is ending it is 0; any number would do.
#[inline]
fn number() -> usize {
    thread_local! {
        static NUMBER: Cell<usize> = const { Cell::new(NONE) };
    }
    let number = NUMBER.try_with(|number| match number.get() {
        NONE => {
            let new = first_number();
            number.set(new);
            new
        }
        known => known,
    });
    number.unwrap_or(0)
}

/// No number yet.
const NONE: usize = usize::MAX;

#[cold]
fn first_number() -> usize {
    thread_local! {
        static TAKEN: Cell<Option<Taken>> = const { Cell::new(None) };
    }
    static NUMBERS: Numbers = Numbers::new();
    static SHARED: AtomicUsize = AtomicUsize::new(0);
    let Some(number) = NUMBERS.take() else {
        return SHARED.fetch_add(1, Ordering::Relaxed) % COUNT;
    };
    // A thread that is already ending never gives the number back.
    let _ = TAKEN.try_with(|taken| taken.set(Some(Taken(&NUMBERS, number))));
    number
}

/// The number of a thread; dropping this frees the number for the next thread.
struct Taken(&'static Numbers, usize);

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.give(self.1);
    }
}

/// A set bit for each number that is taken.
struct Numbers(AtomicU64);

impl Numbers {
    const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// The lowest free number. None: all are taken.
    fn take(&self) -> Option<usize> {
        let with_lowest = |taken: u64| (taken != u64::MAX).then(|| taken | (taken + 1));
        let before = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with_lowest).ok()?;
        Some(before.trailing_ones() as usize)
    }

    fn give(&self, number: usize) {
        self.0.fetch_and(!(1 << number), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_its_shard() {
        let shards = Shards::<AtomicUsize>::default();
        for _ in 0..10 {
            shards.mine().fetch_add(1, Ordering::Relaxed);
        }
        let most = shards.iter().map(|it| it.load(Ordering::Relaxed)).max();
        assert_eq!(most, Some(10));
    }

    #[test]
    fn numbers_differ_while_they_are_taken_and_the_lowest_free_one_is_next() {
        let numbers = Numbers::new();
        for expected in 0..COUNT {
            assert_eq!(numbers.take(), Some(expected));
        }
        assert_eq!(numbers.take(), None);
        numbers.give(63);
        numbers.give(5);
        assert_eq!([numbers.take(), numbers.take(), numbers.take()], [Some(5), Some(63), None]);
    }

    #[test]
    fn threads_that_follow_each_other_use_few_shards() {
        let shards = Shards::<AtomicUsize>::default();
        for _ in 0..8 * COUNT {
            std::thread::scope(|scope| {
                scope.spawn(|| shards.mine().fetch_add(1, Ordering::Relaxed));
            });
        }
        let used = shards.iter().filter(|it| it.load(Ordering::Relaxed) != 0).count();
        // Threads of other tests have numbers too, and take and free some meanwhile.
        assert!(used < COUNT, "{used}");
    }
}
