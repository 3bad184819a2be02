// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wake elision: an application thread that usually blocks right after its doorbell runs the queue itself
//! (see [`super::helper`]), so no worker is woken for it.
//!
//! Waking a sleeping thread takes its waker 5 to 25 µs on a virtual machine, and the thread as long to start. For
//! a thread that submits a command and then waits without a time limit, that wake is wasted, and most of its
//! round trip. So if a thread has blocked soon after its doorbells a few times in a row, the next wake is
//! *deferred*: the queue is runnable, and listed as deferred. Then
//!
//! - the thread arrives and streams the queue, as expected; or
//! - it submits more, for longer than a burst lasts, or asks for a result without helping: then a worker is
//!   woken; or
//! - it does neither, and the watchdog finds the queue at its next tick. While a queue is deferred the watchdog
//!   does not sleep, and while it sleeps nothing is deferred. This is the longest delay, and after it twice as
//!   many good turns are required.
//!
//! This is a policy in front of the scheduler. If it is switched off ([`ENABLED`]), all results are the same, and
//! a round trip from sleep takes longer by the wake. Its data belongs to one thread, in its thread-local memory.

use crate::sync::Ordering;
use std::cell::RefCell;
use std::sync::{Arc, Weak};

use super::helper::Recent;
use super::{Sched, Shared};
use crate::queue::Queue;
use crate::tuning::{
    ELISION_BURST, ELISION_FORGIVEN, ELISION_MOST_TURNS, ELISION_SOON, ELISION_TURNS,
    ELISION_WATCHED,
};

/// Whether wakes are deferred at all.
const ENABLED: bool = true;

/// The number of queues that a thread remembers as those whose doorbells it rang last.
pub(super) const RECENT: usize = 4;

/// The record of a host thread with one device.
#[derive(Debug, Default)]
struct Thread {
    device: u64,
    predictor: Predictor,
    /// Its queues, the latest first.
    recent: [Weak<Queue>; RECENT],
    /// It has not arrived since its last doorbell.
    expected: bool,
}

crate::sync::thread_local! {
    static THREAD: RefCell<Thread> = RefCell::default();
}

/// Runs `f` with the record of the calling thread. None: the thread is about to end.
fn thread<R>(shared: &Shared, f: impl FnOnce(&mut Thread) -> R) -> Option<R> {
    let device = shared.serial;
    let with = |thread: &RefCell<Thread>| {
        let mut thread = thread.borrow_mut();
        if thread.device != device {
            *thread = Thread { device, ..Thread::default() };
        }
        f(&mut thread)
    };
    THREAD.try_with(with).ok()
}

impl Thread {
    fn remember(&mut self, queue: &Arc<Queue>) {
        let is_it = |it: &Weak<Queue>| std::ptr::eq(it.as_ptr(), Arc::as_ptr(queue));
        match self.recent.iter().position(is_it) {
            Some(0) => {}
            Some(at) => self.recent[..=at].rotate_right(1),
            None => {
                self.recent.rotate_right(1);
                self.recent[0] = Arc::downgrade(queue);
            }
        }
    }
}

/// Notes that the calling thread rings the doorbell of a queue. Returns whether the thread is expected to run
/// it, so that its wake can be deferred.
pub(super) fn doorbell(shared: &Shared, queue: &Arc<Queue>) -> bool {
    let sched = &shared.sched;
    if !sched.rung.load(Ordering::Relaxed) {
        sched.rung.store(true, Ordering::Relaxed);
    }
    let now = shared.clock.ticks();
    let comes = thread(shared, |thread| {
        thread.remember(queue);
        thread.expected = true;
        if queue.take_missed() {
            thread.predictor.miss();
        }
        let apart = now.saturating_sub(std::mem::replace(&mut thread.predictor.last, now));
        (thread.predictor.doorbell(now), apart)
    });
    let Some((true, apart)) = comes else { return false };
    // If other threads are to help, they should wake as soon as possible.
    if !ENABLED || shared.chaos.is_some() || !queue.is_brisk() || queue.is_wide() {
        return false;
    }
    let watched = !sched.watchdog.is_asleep();
    if !watched && apart < ELISION_WATCHED {
        // If doorbells were rarer, the watchdog would be asleep again by the next one.
        sched.wants_watchdog.store(true, Ordering::Relaxed);
    }
    if watched {
        queue.set_deferred_at(now);
    }
    watched
}

/// Notes the end of a doorbell that may have woken a worker. The wake counts as the device's time, not the
/// thread's.
pub(super) fn doorbell_ends(shared: &Shared) {
    let now = shared.clock.ticks();
    thread(shared, |thread| thread.predictor.doorbell_ends(now));
}

/// Notes that the calling thread helps, or would if needed.
pub(super) fn comes(shared: &Shared) {
    thread(shared, |thread| {
        if std::mem::take(&mut thread.expected) {
            thread.predictor.come(shared.clock.ticks());
        }
    });
}

/// The queues whose doorbells the calling thread has rung last.
pub(super) fn recent(shared: &Shared) -> Recent {
    thread(shared, |thread| thread.recent.each_ref().map(Weak::upgrade)).unwrap_or_default()
}

impl Sched {
    /// Notes that a host thread waits without a limit for something that has happened already.
    pub(crate) fn host_came(&self, shared: &Shared) {
        comes(shared);
    }

    /// Called when the calling thread asks for a result without helping: workers get its own deferred queues at
    /// once, and those of other threads if these have had the time to arrive.
    pub(crate) fn hurry(&self, shared: &Arc<Shared>) {
        if !self.shards.any_deferred() {
            return;
        }
        let recent = recent(shared);
        if recent.iter().flatten().any(|queue| queue.run.is_deferred()) {
            thread(shared, |thread| thread.predictor.decline());
            self.promote_deferred(shared, &recent);
        }
        let now = shared.clock.ticks();
        self.promote_overdue(shared, |queue| {
            now.saturating_sub(queue.deferred_at()) > ELISION_SOON
        });
    }

    /// Called at the watchdog's tick: promotes all queues that are still deferred.
    pub(super) fn promote_all(&self, shared: &Arc<Shared>) {
        self.promote_overdue(shared, |_| true);
    }

    fn promote_overdue(&self, shared: &Arc<Shared>, overdue: impl Fn(&Queue) -> bool) {
        for queue in self.shards.take_deferred(overdue) {
            if queue.run.is_deferred() {
                queue.set_missed();
            }
            let enqueued = queue.run.undefer();
            self.promoted(shared, &queue, enqueued);
        }
    }

    /// Whether a doorbell has rung since the last call.
    pub(super) fn take_rung(&self) -> bool {
        self.rung.swap(false, Ordering::Relaxed)
    }
}

/// A predictor of a thread's behaviour after its doorbells.
#[derive(Debug)]
struct Predictor {
    /// Times in a row that it arrived soon after a doorbell.
    turns: u32,
    /// Turns after which it is expected to arrive.
    wanted: u32,
    /// Time of the first doorbell since it last arrived.
    rung: Option<u64>,
    /// Time of the last doorbell.
    last: u64,
}

impl Default for Predictor {
    fn default() -> Self {
        Self { turns: 0, wanted: ELISION_TURNS, rung: None, last: 0 }
    }
}

impl Predictor {
    /// Notes a doorbell at `now`. Returns whether the thread is expected to arrive for it.
    fn doorbell(&mut self, now: u64) -> bool {
        let first = *self.rung.get_or_insert(now);
        if now.saturating_sub(first) > ELISION_BURST {
            self.turns = 0;
            self.rung = Some(now);
        }
        self.turns >= self.wanted
    }

    fn doorbell_ends(&mut self, now: u64) {
        if let Some(rung) = &mut self.rung {
            *rung = now;
        }
    }

    /// Notes that the thread helps at `now`.
    fn come(&mut self, now: u64) {
        let Some(first) = self.rung.take() else { return };
        if now.saturating_sub(first) > ELISION_SOON {
            self.turns = 0;
            return;
        }
        self.turns = self.turns.saturating_add(1);
        if self.turns >= ELISION_FORGIVEN {
            self.wanted = ELISION_TURNS;
        }
    }

    /// Notes that the thread may wait, but without helping.
    fn decline(&mut self) {
        self.turns = 0;
        self.rung = None;
    }

    /// Notes that the thread did not arrive in time for a queue that was deferred for it, and raises the required
    /// turns.
    fn miss(&mut self) {
        self.wanted = (self.wanted * 2).min(ELISION_MOST_TURNS);
        self.decline();
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;
    use crate::queue::Run;

    /// A thread that arrived `turns` times, each time 1 µs after its doorbell.
    fn after(turns: u32) -> Predictor {
        let mut predictor = Predictor::default();
        for i in 0..u64::from(turns) {
            predictor.doorbell(i * 2_000_000);
            predictor.come(i * 2_000_000 + 1_000);
        }
        predictor
    }

    /// A time after everything that `after` has done.
    const LATER: u64 = 1 << 40;

    #[test]
    fn a_thread_is_counted_on_after_a_few_turns() {
        for turns in 0..10 {
            assert_eq!(after(turns).doorbell(LATER), turns >= ELISION_TURNS, "{turns}");
        }
    }

    #[test]
    fn a_burst_is_deferred_as_a_whole_and_no_longer() {
        let mut predictor = after(ELISION_TURNS);
        let burst = (0..=ELISION_BURST).step_by(500);
        assert!(burst.into_iter().all(|passed| predictor.doorbell(LATER + passed)));
        assert!(!predictor.doorbell(LATER + ELISION_BURST + 1));
        // The prediction failed, and the thread has to show again that it arrives.
        predictor.come(LATER + ELISION_BURST + 2);
        assert!(!predictor.doorbell(LATER * 2));
    }

    #[test]
    fn a_thread_that_comes_late_or_otherwise_starts_anew() {
        let mut late = after(ELISION_TURNS);
        late.doorbell(LATER);
        late.come(LATER + ELISION_SOON + 1);
        assert!(!late.doorbell(LATER * 2));
        let mut other = after(ELISION_TURNS);
        other.doorbell(LATER);
        other.decline();
        assert!(!other.doorbell(LATER * 2));
    }

    #[test]
    fn each_miss_doubles_what_is_asked_for_until_it_is_forgiven() {
        let mut predictor = after(ELISION_TURNS);
        for wanted in [8, 16, 32, 64, 128, 256, 256] {
            predictor.miss();
            assert_eq!((predictor.wanted, predictor.turns), (wanted, 0));
        }
        for i in 0..u64::from(ELISION_FORGIVEN) {
            let now = LATER + i * 2_000_000;
            predictor.doorbell(now);
            predictor.come(now + 1_000);
        }
        assert_eq!(predictor.wanted, ELISION_TURNS);
    }

    /// A device with one sleeping worker, and a queue for which the calling thread is expected to arrive.
    fn counted_on() -> (Arc<Shared>, Arc<Queue>) {
        let (shared, queue) = testing::device();
        queue.set_brisk(true);
        thread(&shared, |thread| thread.predictor.turns = ELISION_TURNS);
        shared.sched.started.store(1, Ordering::Relaxed);
        shared.sched.idle.announce(0);
        (shared, queue)
    }

    /// Whether the worker was told to wake since the last call.
    fn woken(shared: &Shared) -> bool {
        let woken = !shared.sched.idle.any();
        shared.sched.idle.announce(0);
        woken
    }

    /// Whether workers can find the queue.
    fn queued(shared: &Shared) -> bool {
        shared.sched.shards.any_runnable()
    }

    #[test]
    fn no_worker_is_woken_for_a_thread_that_comes() {
        // On a busy machine this thread may lose its processor, and seem to arrive late.
        for _ in 0..1000 {
            let (shared, queue) = counted_on();
            let start = shared.clock.ticks();
            let deferred = (0..3).all(|_| shared.sched.kick(&shared, &queue));
            let rings = shared.clock.ticks() - start;
            comes(&shared);
            if rings > ELISION_BURST || shared.clock.ticks() - start > ELISION_SOON {
                continue;
            }
            assert!(deferred && !woken(&shared) && !queued(&shared));
            let recent = recent(&shared);
            assert!(recent[0].as_ref().is_some_and(|it| Arc::ptr_eq(it, &queue)));
            assert!(queue.run.take(), "it is there for the thread");
            return;
        }
        panic!("this thread was never quick enough");
    }

    #[test]
    fn a_deferred_queue_is_a_workers_when_the_thread_asks_without_helping() {
        let (shared, queue) = counted_on();
        assert!(shared.sched.kick(&shared, &queue));
        shared.sched.hurry(&shared);
        assert!(woken(&shared) && queued(&shared));
        assert!(queue.run.pop(), "the worker");
        shared.sched.hurry(&shared);
        assert!(!woken(&shared), "once");
        assert!(!after_miss(&shared, &queue), "it starts anew");
    }

    /// Whether the wake of the queue's next doorbell, after it was idle again, is deferred.
    fn after_miss(shared: &Arc<Shared>, queue: &Arc<Queue>) -> bool {
        if queue.run.get() == Run::Running {
            let _ = queue.run.leave(Run::Idle);
        }
        shared.sched.kick(shared, queue)
    }

    #[test]
    fn another_thread_leaves_a_deferred_queue_alone_while_its_thread_may_come() {
        let (shared, queue) = counted_on();
        assert!(shared.sched.kick(&shared, &queue));
        queue.set_deferred_at(u64::MAX);
        std::thread::scope(|scope| {
            scope.spawn(|| shared.sched.hurry(&shared));
        });
        assert!(!woken(&shared));
        queue.set_deferred_at(0);
        std::thread::scope(|scope| {
            scope.spawn(|| shared.sched.hurry(&shared));
        });
        assert!(woken(&shared) && queued(&shared));
    }

    #[test]
    fn a_deferred_queue_is_a_workers_at_the_watchdogs_tick() {
        let (shared, queue) = counted_on();
        assert!(shared.sched.kick(&shared, &queue));
        assert!(shared.sched.shards.any_deferred(), "the watchdog does not fall asleep");
        shared.sched.promote_all(&shared);
        assert!(woken(&shared) && queued(&shared) && !shared.sched.shards.any_deferred());
        assert!(queue.run.pop());
        assert!(!after_miss(&shared, &queue), "the thread is trusted less");
    }

    #[test]
    fn a_deferred_queue_is_a_workers_when_the_thread_goes_on_submitting() {
        let (shared, queue) = counted_on();
        assert!(shared.sched.kick(&shared, &queue));
        thread(&shared, |thread| {
            thread.predictor.rung = thread.predictor.rung.map(|first| first - ELISION_BURST - 1);
        });
        assert!(!shared.sched.kick(&shared, &queue));
        assert!(woken(&shared) && queued(&shared));
    }

    #[test]
    fn a_watchdog_that_sleeps_is_woken_for_a_thread_that_comes_often() {
        let often = |apart| {
            let (shared, queue) = counted_on();
            shared.sched.watchdog.announce();
            let now = shared.clock.ticks();
            thread(&shared, |thread| thread.predictor.last = now - apart);
            assert!(!shared.sched.kick(&shared, &queue), "nothing is deferred");
            assert!(woken(&shared));
            shared.sched.wants_watchdog.load(Ordering::Relaxed)
        };
        assert!(often(ELISION_WATCHED / 2) && !often(ELISION_WATCHED));
    }

    #[test]
    fn no_wake_is_left_out_for_what_the_thread_would_not_run() {
        let spoil: [fn(&Queue); 2] = [|queue| queue.set_brisk(false), |queue| queue.set_wide(true)];
        for spoil in spoil {
            let (shared, queue) = counted_on();
            spoil(&queue);
            assert!(!shared.sched.kick(&shared, &queue));
            assert!(woken(&shared) && queued(&shared));
        }
    }
}
