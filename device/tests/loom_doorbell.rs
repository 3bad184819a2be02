// SPDX-License-Identifier: MIT OR Apache-2.0
//! A model of the doorbell between tally-gpu and an engine process, using the real code. loom runs its
//! interleavings, and reports if the listener would sleep endlessly.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p tally-device --test loom_doorbell --release`
//!
//! Doorbells with an injected fault fail, which shows that the model can fail.
#![cfg(loom)]
#![allow(dead_code, reason = "the model needs a part of the doorbell")]

#[path = "../engine/src/doorbell.rs"]
mod doorbell;

/// The atomics of the doorbell. Each may be a futex, and keeps its sleepers.
mod sync {
    pub(crate) use loom::sync::atomic::{Ordering, fence};
    use loom::sync::{Condvar, Mutex};

    #[derive(Debug, Default)]
    pub(crate) struct AtomicU32 {
        value: loom::sync::atomic::AtomicU32,
        pub(crate) lock: Mutex<()>,
        pub(crate) woken: Condvar,
    }

    impl AtomicU32 {
        pub(crate) fn load(&self, order: Ordering) -> u32 {
            self.value.load(order)
        }

        pub(crate) fn store(&self, value: u32, order: Ordering) {
            self.value.store(value, order);
        }

        pub(crate) fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
            self.value.fetch_add(value, order)
        }

        pub(crate) fn fetch_or(&self, value: u32, order: Ordering) -> u32 {
            self.value.fetch_or(value, order)
        }

        pub(crate) fn swap(&self, value: u32, order: Ordering) -> u32 {
            self.value.swap(value, order)
        }
    }
}

mod futex {
    use super::sync::{AtomicU32, Ordering};

    /// Compares the word and enters the thread under one lock, as the kernel does.
    pub(crate) fn wait(word: &AtomicU32, seen: u32) {
        let guard = word.lock.lock().unwrap();
        if word.load(Ordering::Acquire) == seen {
            drop(word.woken.wait(guard).unwrap());
        }
    }

    pub(crate) fn wake(word: &AtomicU32) {
        let _guard = word.lock.lock().unwrap();
        word.woken.notify_all();
    }
}

use loom::thread;
use sync::{AtomicU32, Ordering, fence};

/// A doorbell, right or wrong.
trait Bell: Default + Send + Sync + 'static {
    fn ring(&self);
    fn rings(&self) -> u32;
    fn wait(&self, seen: u32);
}

impl Bell for doorbell::Doorbell {
    fn ring(&self) {
        self.ring();
    }

    fn rings(&self) -> u32 {
        self.rings()
    }

    fn wait(&self, seen: u32) {
        self.wait(seen);
    }
}

/// Two threads have news for a third, which hears all of it.
fn all_news_is_heard<B: Bell>() {
    let mut model = loom::model::Builder::new();
    // With this bound the faults below are found in a second. All orders take hours.
    model.preemption_bound = Some(3);
    model.check(|| {
        // Leaked, since loom ends a failing run while threads still share it.
        let shared: &(B, AtomicU32) = Box::leak(Box::default());
        let ringers: Vec<_> = (0..2)
            .map(|news| {
                thread::spawn(move || {
                    shared.1.fetch_or(1 << news, Ordering::SeqCst);
                    shared.0.ring();
                })
            })
            .collect();
        let mut heard = 0;
        while heard != 3 {
            let seen = shared.0.rings();
            heard |= shared.1.swap(0, Ordering::SeqCst);
            if heard != 3 {
                shared.0.wait(seen);
            }
        }
        ringers.into_iter().for_each(|ringer| ringer.join().unwrap());
    });
}

#[test]
fn no_ring_is_lost() {
    all_news_is_heard::<doorbell::Doorbell>();
}

/// A doorbell with an injected fault.
#[derive(Default)]
struct Wrong<const MISTAKE: u8> {
    rings: AtomicU32,
    asleep: AtomicU32,
}

/// The ringer withdraws the announcement.
const TAKES_BACK: u8 = 0;
/// The listener reads the count after it has looked for news.
const LOOKS_FIRST: u8 = 1;
/// The ringer may read the announcement before it counts.
const NO_FENCE: u8 = 2;

impl<const MISTAKE: u8> Bell for Wrong<MISTAKE> {
    fn ring(&self) {
        self.rings.fetch_add(1, Ordering::Release);
        if MISTAKE != NO_FENCE {
            fence(Ordering::SeqCst);
        }
        let asleep = match MISTAKE {
            TAKES_BACK => self.asleep.swap(0, Ordering::Relaxed),
            _ => self.asleep.load(Ordering::Relaxed),
        };
        if asleep != 0 {
            futex::wake(&self.rings);
        }
    }

    fn rings(&self) -> u32 {
        self.rings.load(Ordering::Acquire)
    }

    fn wait(&self, seen: u32) {
        let seen = if MISTAKE == LOOKS_FIRST { self.rings() } else { seen };
        self.asleep.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.rings() == seen {
            futex::wait(&self.rings, seen);
        }
        self.asleep.store(0, Ordering::Relaxed);
    }
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_ringer_that_takes_the_announcement_back_is_found() {
    all_news_is_heard::<Wrong<TAKES_BACK>>();
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_listener_that_counts_after_its_look_is_found() {
    all_news_is_heard::<Wrong<LOOKS_FIRST>>();
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_ringer_without_a_fence_is_found() {
    all_news_is_heard::<Wrong<NO_FENCE>>();
}
