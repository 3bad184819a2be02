// SPDX-License-Identifier: MIT OR Apache-2.0
//! Models of the two handshakes by which a side goes to sleep without missing
//! the other's news. loom runs every interleaving and every reordering that
//! the memory model allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p tally-device --test loom_handshakes --release`
//!
//! The real functions pass. Copies without one of the fences fail, which shows
//! that the models can fail and that both fences are needed.
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use loom::thread;
use tally_uapi::cell::{Compare, signaller_must_wake, waiter_enters, waiter_leaves};
use tally_uapi::queue::QueueControl;

/// The sleeper's news: a KICK, or a look of the semaphore unit.
fn told(news: &AtomicU32) -> bool {
    news.load(Ordering::SeqCst) != 0
}

#[test]
fn a_published_packet_is_seen_or_kicked_for() {
    loom::model(|| {
        let control = Arc::new(QueueControl::new());
        control.device_wakes();
        let kicked = Arc::new(AtomicU32::new(0));
        let producer = {
            let (control, kicked) = (control.clone(), kicked.clone());
            thread::spawn(move || {
                if control.publish(1) {
                    kicked.store(1, Ordering::SeqCst);
                }
            })
        };
        let sleeps = control.device_may_sleep(0);
        producer.join().unwrap();
        assert!(!sleeps || told(&kicked), "the device sleeps over a packet");
    });
}

#[test]
fn a_second_sleep_after_a_kick_is_as_safe_as_the_first() {
    loom::model(|| {
        let control = Arc::new(QueueControl::new());
        let kicked = Arc::new(AtomicU32::new(0));
        let producer = {
            let (control, kicked) = (control.clone(), kicked.clone());
            thread::spawn(move || {
                for tail in 1..=2 {
                    if control.publish(tail) {
                        kicked.fetch_add(1, Ordering::SeqCst);
                    }
                }
            })
        };
        // The device was asleep. It wakes once, for the first KICK, if there was one.
        let mut seen = 0;
        let handled = kicked.load(Ordering::SeqCst);
        if handled != 0 {
            control.device_wakes();
            seen = control.tail.load(Ordering::Acquire);
            while !control.device_may_sleep(seen) {
                seen = control.tail.load(Ordering::Acquire);
            }
        }
        producer.join().unwrap();
        if seen < 2 {
            let now = kicked.load(Ordering::SeqCst);
            assert!(now > handled, "asleep with {seen} of 2 packets and no KICK");
        }
    });
}

/// A producer that omits a KICK while the last one is unanswered; the device tells `head` before it sleeps, or
/// does not.
fn kicks_left_out(tells: bool) {
    loom::model(move || {
        let control = Arc::new(QueueControl::new());
        let kicks = Arc::new(AtomicU32::new(0));
        let producer = {
            let (control, kicks) = (control.clone(), kicks.clone());
            thread::spawn(move || {
                let mut kicked = 0;
                for tail in 1..=2 {
                    if control.publish(tail) && !control.owes_wake(kicked) {
                        kicked = tail;
                        kicks.fetch_add(1, Ordering::SeqCst);
                    }
                }
            })
        };
        let mut seen = 0;
        let handled = kicks.load(Ordering::SeqCst);
        if handled != 0 {
            control.device_wakes();
            loop {
                seen = control.tail.load(Ordering::Acquire);
                if tells {
                    control.head.store(seen, Ordering::Release);
                }
                if control.device_may_sleep(seen) {
                    break;
                }
            }
        }
        producer.join().unwrap();
        if seen < 2 {
            let now = kicks.load(Ordering::SeqCst);
            assert!(now > handled, "asleep with {seen} of 2 packets and no KICK");
        }
    });
}

#[test]
fn a_kick_is_left_out_only_while_one_is_to_be_answered() {
    kicks_left_out(true);
}

#[test]
#[should_panic(expected = "asleep with 1 of 2 packets")]
fn without_an_exact_head_a_kick_too_many_is_left_out() {
    kicks_left_out(false);
}

#[test]
fn a_signal_is_seen_or_wakes() {
    loom::model(|| {
        let (cell, waiters) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU32::new(0)));
        let woken = Arc::new(AtomicU32::new(0));
        let signaller = {
            let (cell, waiters, woken) = (cell.clone(), waiters.clone(), woken.clone());
            thread::spawn(move || {
                cell.store(1, Ordering::Release);
                if signaller_must_wake(&waiters) {
                    woken.store(1, Ordering::SeqCst);
                }
            })
        };
        let sleeps = waiter_enters(&waiters, &cell, Compare::GreaterEqual, 1);
        signaller.join().unwrap();
        assert!(!sleeps || told(&woken), "the waiter sleeps over a signal");
        waiter_leaves(&waiters);
        assert_eq!(waiters.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn what_a_signal_releases_is_visible_to_who_does_not_sleep() {
    loom::model(|| {
        let (cell, waiters) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU32::new(0)));
        let data = Arc::new(AtomicU64::new(0));
        let signaller = {
            let (cell, data) = (cell.clone(), data.clone());
            thread::spawn(move || {
                data.store(7, Ordering::Relaxed);
                cell.store(1, Ordering::Release);
            })
        };
        if !waiter_enters(&waiters, &cell, Compare::GreaterEqual, 1) {
            assert_eq!(data.load(Ordering::Relaxed), 7);
        }
        signaller.join().unwrap();
    });
}

/// The core of one side of either handshake: it stores its own word, fences, and
/// reads the other's.
fn side(words: &[AtomicU32; 2], own: usize, fenced: bool) -> bool {
    words[own].store(1, Ordering::Release);
    if fenced {
        fence(Ordering::SeqCst);
    }
    words[1 - own].load(Ordering::Acquire) != 0
}

/// Both sides at once; `fenced` says which has its fence.
fn store_then_look(fenced: [bool; 2]) {
    loom::model(move || {
        let words = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
        let other = {
            let words = words.clone();
            thread::spawn(move || side(&words, 1, fenced[1]))
        };
        let one = side(&words, 0, fenced[0]);
        let other = other.join().unwrap();
        assert!(one || other, "both sides missed the other");
    });
}

#[test]
fn with_both_fences_one_side_sees_the_other() {
    store_then_look([true, true]);
}

#[test]
#[should_panic(expected = "both sides missed the other")]
fn without_the_sleepers_fence_the_model_fails() {
    store_then_look([false, true]);
}

#[test]
#[should_panic(expected = "both sides missed the other")]
fn without_the_signallers_fence_the_model_fails() {
    store_then_look([true, false]);
}
