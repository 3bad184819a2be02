// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a queue is stopped: taken out of wherever it rests, its works waited for, taken back or
//! interrupted.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{Run, Sched, Slot, State};
use crate::Shared;
use crate::queue::Queue;

impl Sched {
    /// Waits until no packet or work of a stopped queue is in progress, or the
    /// time has passed. True if none is.
    pub(crate) fn wait_stopped(&self, queue: &Queue, until: Instant) -> bool {
        let mut state = self.lock();
        loop {
            let run = queue.run().0;
            if run != Run::Running && !queue.has_work() {
                return true;
            }
            let now = Instant::now();
            if now >= until {
                return false;
            }
            // The bound makes up for a wake-up between the check and the sleep
            // of a worker that does not take the lock to tell.
            let left = (until - now).min(Duration::from_millis(5));
            state = state.wait_for(&self.stopped, left);
        }
    }

    /// Something that `wait_stopped` looks at has changed.
    pub(crate) fn tell_stoppers(&self) {
        self.stopped.notify_all();
    }

    /// Takes a queue that must stop out of wherever it rests.
    pub(crate) fn retire(&self, shared: &Shared, queue: &Arc<Queue>) {
        let mut state = self.lock();
        let mut run = queue.run();
        match run.0 {
            Run::Idle | Run::Draining => run.0 = Run::Stopped,
            Run::Runnable => {
                run.0 = Run::Stopped;
                state.engines.remove(queue);
            }
            // If a look has it already, or its worker is about to put it
            // there, whoever has it sees that it must stop.
            Run::Parked(wait) if shared.sem.remove(queue, wait.address) => run.0 = Run::Stopped,
            Run::Parked(_) | Run::Running | Run::Stopped => {}
        }
    }

    /// Takes back the works of a queue that is being stopped and that nobody has begun; of a lost VM
    /// also what is left of the others. False if something is left that no thread will ever come to:
    /// all there may be are stuck.
    pub(crate) fn dismiss(&self, shared: &Shared, queue: &Queue) -> bool {
        let now = shared.clock.ticks();
        let lost = queue.vm.lost();
        let mut state = self.lock();
        self.dismiss_waiting(&mut state, queue, now);
        for works in &mut state.works {
            works.retain(|work| {
                let goes = work.is_of(queue) && (work.withdraw(now) || lost && work.abandon(now));
                !goes
            });
        }
        !(state.is_stuck(self.max_threads) && state.has_left(queue))
    }

    /// Whether a thread is in a guarded call for a queue: there is something to abort.
    pub(crate) fn is_guarding(&self, serial: u64) -> bool {
        let slots = self.lock().all_slots();
        slots.iter().any(|slot| slot.record.is_guarding(serial))
    }

    /// Interrupts every guarded call that works for the queue of this serial.
    pub(crate) fn abort(&self, serial: u64) {
        let slots = self.lock().all_slots();
        for slot in slots.iter().filter(|slot| slot.record.work() == serial) {
            slot.record.abort(serial);
        }
    }
}

impl State {
    /// Whether all threads that there may be are stuck.
    fn is_stuck(&self, max_threads: usize) -> bool {
        let stuck = |slot: &Arc<Slot>| slot.stuck.load(Ordering::Relaxed);
        self.slots.len() >= max_threads && self.slots.iter().all(stuck)
    }

    /// Whether a queue has a work that nobody is at and that is not all claimed.
    fn has_left(&self, queue: &Queue) -> bool {
        let mut works = self.works.iter().flatten();
        works.any(|work| work.is_of(queue) && !work.exhausted() && !work.attended())
    }
}
