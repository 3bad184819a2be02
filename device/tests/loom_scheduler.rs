// SPDX-License-Identifier: MIT OR Apache-2.0
//! Models of the scheduler's protocols, using the real code: the queue's run word, the sleep of workers and
//! that of the watchdog. loom runs every interleaving and every reordering that the memory model allows, and
//! reports if a thread would sleep endlessly.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p tally-device --test loom_scheduler --release`
//!
//! Each protocol is also run with an injected fault, which has to be found.
#![cfg(loom)]
#![allow(dead_code, reason = "the modules are the device's; a model needs a part of each")]

#[path = "../src/sched/idle.rs"]
mod idle;
#[path = "../src/queue/run.rs"]
mod run;
#[path = "../src/sync.rs"]
mod sync;
#[path = "../src/wakeup.rs"]
mod wakeup;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use loom::thread;
use run::{Bell, Enqueue, Run, RunWord};
use tally_uapi::queue::QueueControl;

/// A worker that goes to sleep while a task is published for it.
fn worker_sleeps(announces_first: bool, publisher_fences: bool) {
    loom::model(move || {
        let idle = Arc::new(idle::IdleSet::new(1));
        let task = Arc::new(AtomicBool::new(false));
        let publisher = {
            let (idle, task) = (idle.clone(), task.clone());
            thread::spawn(move || {
                task.store(true, Ordering::Release);
                if publisher_fences {
                    fence(Ordering::SeqCst);
                }
                idle.wake(0, |_| {})
            })
        };
        let early = task.load(Ordering::Acquire);
        idle.announce(0);
        let found = if announces_first { task.load(Ordering::Acquire) } else { early };
        let woken = publisher.join().unwrap();
        assert!(found || woken, "the worker sleeps over a task");
        if woken {
            // It was claimed, so this ends at once, even if the notification is late.
            idle.sleep(0);
        }
    });
}

#[test]
fn a_worker_sees_the_task_or_is_woken() {
    worker_sleeps(true, true);
}

#[test]
#[should_panic(expected = "sleeps over a task")]
fn a_worker_that_looks_before_it_announces_sleeps_over_a_task() {
    worker_sleeps(false, true);
}

#[test]
#[should_panic(expected = "sleeps over a task")]
fn a_task_that_is_published_without_a_fence_is_slept_over() {
    worker_sleeps(true, false);
}

/// A queue whose wake is deferred while the watchdog goes to sleep. The producer promotes the queue itself if the
/// watchdog sleeps; otherwise the watchdog finds and promotes it.
fn deferral(asks_watchdog: bool) {
    loom::model(move || {
        let word = Arc::new(RunWord::new());
        let (listed, promoted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let watchdog = Arc::new(wakeup::Dozer::default());
        let producer = {
            let (word, listed, promoted) = (word.clone(), listed.clone(), promoted.clone());
            let watchdog = watchdog.clone();
            thread::spawn(move || {
                if word.doorbell(true) == (Bell::Fresh { enlist: true }) {
                    listed.store(true, Ordering::Release);
                    fence(Ordering::SeqCst);
                    if asks_watchdog && watchdog.is_asleep() && word.enqueue() == Enqueue::Push {
                        promoted.fetch_add(1, Ordering::SeqCst);
                    }
                }
            })
        };
        watchdog.announce();
        let looks = listed.load(Ordering::Acquire);
        if looks {
            watchdog.cancel();
            if word.undefer() == Enqueue::Push {
                promoted.fetch_add(1, Ordering::SeqCst);
            }
        }
        producer.join().unwrap();
        assert_eq!(
            promoted.load(Ordering::SeqCst),
            1,
            "a deferred queue that is left to no thread"
        );
    });
}

#[test]
fn a_deferred_queue_has_an_awake_watchdog_or_a_worker() {
    deferral(true);
}

#[test]
#[should_panic(expected = "left to no thread")]
fn a_queue_that_is_deferred_while_the_watchdog_sleeps_is_lost() {
    deferral(false);
}

/// A queue with its control page, its entries in a run queue, and the results of the threads that take them.
struct Model {
    control: QueueControl,
    word: RunWord,
    /// Entries in the run queue.
    entries: AtomicU32,
    /// Packets that were consumed.
    consumed: AtomicU32,
    /// Whether a device thread that has lost the stream stores an old `head` late.
    late_head: bool,
}

impl Model {
    fn new(late_head: bool) -> Self {
        Self {
            control: QueueControl::new(),
            word: RunWord::new(),
            entries: AtomicU32::new(0),
            consumed: AtomicU32::new(0),
            late_head,
        }
    }

    /// The producer publishes packets one by one, with a doorbell for each that needs one.
    fn produce(&self, packets: u64) {
        let mut kicked = 0;
        for tail in 1..=packets {
            if self.control.publish(tail) && !self.control.owes_wake(kicked) {
                kicked = tail;
                if self.word.doorbell(false) == (Bell::Fresh { enlist: true }) {
                    self.entries.fetch_add(1, Ordering::SeqCst);
                }
            }
        }
    }

    /// The owner consumes all packets and puts the queue to rest.
    fn stream(&self) {
        self.control.device_wakes();
        let mut seen = self.control.head.load(Ordering::Relaxed);
        loop {
            let tail = self.control.tail.load(Ordering::Acquire);
            self.consumed.fetch_add((tail - seen) as u32, Ordering::SeqCst);
            assert!(tail >= seen, "head goes back");
            seen = tail;
            self.control.head.store(seen, Ordering::Release);
            if self.control.device_may_sleep(seen) {
                match self.word.leave(Run::Idle) {
                    Ok(_) => return,
                    Err(()) => self.control.device_wakes(),
                }
            }
        }
    }

    /// A worker takes an entry out of the run queue, if there is one.
    fn work(&self) -> bool {
        let one_less = |entries: u32| entries.checked_sub(1);
        let (relaxed, acquire) = (Ordering::Relaxed, Ordering::SeqCst);
        let popped = self.entries.fetch_update(acquire, relaxed, one_less).is_ok();
        if popped && self.word.pop() {
            self.stream();
        }
        popped
    }

    /// A helping thread takes the queue without its entry.
    fn help(&self) {
        if self.word.take() {
            self.stream();
        }
    }

    /// Lets a worker run the remaining entries. Then all packets have to be consumed.
    fn end(&self, packets: u32) {
        while self.work() {}
        assert_eq!(
            self.consumed.load(Ordering::SeqCst),
            packets,
            "a packet that no thread comes for"
        );
        assert_eq!(self.word.get(), Run::Idle);
    }
}

#[test]
fn what_a_helping_thread_and_a_worker_take_in_turns_is_consumed() {
    loom::model(|| {
        let model = Arc::new(Model::new(false));
        let producer = {
            let model = model.clone();
            thread::spawn(move || model.produce(2))
        };
        let helper = {
            let model = model.clone();
            thread::spawn(move || model.help())
        };
        producer.join().unwrap();
        helper.join().unwrap();
        model.end(2);
    });
}

#[test]
fn what_is_published_while_a_worker_leaves_is_consumed() {
    loom::model(|| {
        let model = Arc::new(Model::new(false));
        let producer = {
            let model = model.clone();
            thread::spawn(move || model.produce(2))
        };
        model.work();
        producer.join().unwrap();
        model.end(2);
    });
}

/// A worker polled an empty ring, lost the stream to a helping thread, and stores its old `head`. The producer
/// then believes that its last KICK is still on its way.
#[test]
#[should_panic(expected = "a packet that no thread comes for")]
fn a_head_that_goes_back_loses_a_wake() {
    loom::model(|| {
        let model = Arc::new(Model::new(true));
        let late = {
            let model = model.clone();
            thread::spawn(move || {
                if model.late_head {
                    model.control.head.store(0, Ordering::Release);
                }
            })
        };
        let worker = {
            let model = model.clone();
            thread::spawn(move || _ = model.work())
        };
        model.produce(2);
        late.join().unwrap();
        worker.join().unwrap();
        // Workers find only queues in the run queue.
        while model.work() {}
        let consumed = model.consumed.load(Ordering::SeqCst);
        assert!(consumed >= 2, "a packet that no thread comes for");
    });
}

/// A doorbell while the owner leaves.
#[test]
fn a_doorbell_while_the_owner_leaves_is_not_lost() {
    loom::model(|| {
        let word = Arc::new(RunWord::new());
        word.doorbell(false);
        assert!(word.pop());
        let bell = {
            let word = word.clone();
            thread::spawn(move || word.doorbell(false))
        };
        let left = word.leave(Run::Idle);
        let bell = bell.join().unwrap();
        match left {
            // The doorbell was first, and the owner continues; or the doorbell finds the queue idle.
            Err(()) => assert_eq!((bell, word.get()), (Bell::Noted, Run::Running)),
            Ok(_) => assert_eq!((bell, word.get()), (Bell::Fresh { enlist: true }, Run::Runnable)),
        }
    });
}

/// The thread that wakes a parked queue races with the thread that stops it.
#[test]
fn a_queue_that_is_stopped_while_it_is_resumed_ends_in_one_of_both() {
    loom::model(|| {
        let word = Arc::new(RunWord::new());
        word.doorbell(false);
        assert!(word.pop() && word.leave(Run::Draining).is_ok());
        let resumes = {
            let word = word.clone();
            thread::spawn(move || word.resume())
        };
        let before = word.stop();
        let resumed = resumes.join().unwrap();
        assert_eq!(word.get(), Run::Stopped);
        assert_eq!(resumed.is_ok(), before == Run::Runnable);
        assert!(!word.pop(), "its entry stands for nothing");
    });
}
