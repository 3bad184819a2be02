// SPDX-License-Identifier: MIT OR Apache-2.0
//! One value for each of a few groups of threads, so that threads that do the same at once do not
//! write to the same cache line.
//!
//! A thread gets its number when it first asks. There are fewer shards than a program may have
//! threads, so a value may be shared and has to be safe for that; it is only rarely contended.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Shards of each kind. More threads than this share.
const COUNT: usize = 64;

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
    /// The calling thread's.
    #[inline]
    pub fn mine(&self) -> &T {
        &self.0[number() % self.0.len()].0
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|it| &it.0)
    }
}

/// The calling thread's number. While a thread ends it is 0, which is as good as any.
#[inline]
fn number() -> usize {
    const NONE: usize = usize::MAX;
    thread_local! {
        static NUMBER: Cell<usize> = const { Cell::new(NONE) };
    }
    let number = NUMBER.try_with(|number| match number.get() {
        NONE => {
            static NEXT: AtomicUsize = AtomicUsize::new(0);
            let new = NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
            number.set(new);
            new
        }
        known => known,
    });
    number.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_its_shard_and_others_have_theirs() {
        let shards = Shards::<AtomicUsize>::default();
        for _ in 0..10 {
            shards.mine().fetch_add(1, Ordering::Relaxed);
        }
        let used = |shards: &Shards<AtomicUsize>| {
            shards.iter().filter(|it| it.load(Ordering::Relaxed) != 0).count()
        };
        assert_eq!(used(&shards), 1);
        std::thread::scope(|scope| {
            for _ in 0..4 * COUNT {
                scope.spawn(|| shards.mine().fetch_add(1, Ordering::Relaxed));
            }
        });
        assert_eq!(used(&shards), COUNT, "threads are spread evenly");
        let sum: usize = shards.iter().map(|it| it.load(Ordering::Relaxed)).sum();
        assert_eq!(sum, 10 + 4 * COUNT);
    }
}
