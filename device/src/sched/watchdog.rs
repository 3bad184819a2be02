// SPDX-License-Identifier: MIT OR Apache-2.0
//! The watchdog: a thread that makes sure that nothing waits for a stuck thread, that promotes queues whose wake
//! was deferred, and that reads foreign cells again. It sleeps while it has none of this to do.
//!
//! It is awake whenever a thread is in a piece of work that may take any time, a queue is deferred, or a task
//! waits while no worker could be woken. Each of these is published before its thread checks, after a full
//! fence, whether the watchdog sleeps ([`Dozer`](crate::wakeup::Dozer)); the watchdog announces its sleep before
//! it looks for them.

use crate::sync::Instant;
use crate::sync::Ordering;
use crate::sync::thread::JoinHandle;
use std::io;
use std::sync::Arc;

use super::worker::Slot;
use super::{Sched, Shared};
use crate::guard::{Guard, Seat};
use crate::tuning::{FOREIGN_FIRST, FOREIGN_LAST, QUIET_TICKS, TICK};

pub(super) fn spawn(shared: &Arc<Shared>) -> io::Result<JoinHandle<()>> {
    let seat = Seat::new()?;
    let shared = Arc::clone(shared);
    crate::sync::thread::Builder::new().name("tally-watchdog".into()).spawn(move || {
        let guard = Guard::attach(seat);
        shared.sched.thread_ready(guard.is_ok());
        if let Ok(guard) = guard {
            Watchdog::new(guard).run(&shared);
        }
    })
}

struct Watchdog {
    guard: Guard,
    next_tick: Instant,
    /// Ticks in a row without anything to do.
    quiet: u32,
    /// Waits on foreign cells that have begun, as last seen.
    foreign: u64,
    next_look: Instant,
    back_off: std::time::Duration,
}

impl Watchdog {
    fn new(guard: Guard) -> Self {
        let now = Instant::now();
        Self {
            guard,
            next_tick: now,
            quiet: 0,
            foreign: 0,
            next_look: now,
            back_off: FOREIGN_FIRST,
        }
    }

    fn run(&mut self, shared: &Arc<Shared>) {
        let sched = &shared.sched;
        while !sched.shutting_down() {
            let polls = self.polls(shared);
            if self.quiet >= QUIET_TICKS && !polls && self.sleeps(shared) {
                continue;
            }
            let until = match polls {
                true => self.next_look.min(self.next_tick),
                false => self.next_tick,
            };
            sched.watchdog.rest(until.saturating_duration_since(Instant::now()));
            let now = Instant::now();
            if now >= self.next_tick {
                self.next_tick = now + TICK;
                let active = sched.take_rung() | sched.needs_watchdog();
                self.quiet = if active { 0 } else { self.quiet.saturating_add(1) };
                tick(shared);
            }
            if polls && now >= self.next_look {
                self.look_foreign(shared);
            }
        }
    }

    /// Sleeps if there is nothing to do. False: there is something.
    fn sleeps(&mut self, shared: &Arc<Shared>) -> bool {
        let sched = &shared.sched;
        sched.watchdog.announce();
        let needed = sched.needs_watchdog() || shared.sem.foreign() != 0 || sched.shutting_down();
        if needed {
            sched.watchdog.cancel();
            self.quiet = 0;
            return false;
        }
        sched.watchdog.sleep();
        self.quiet = 0;
        self.next_tick = Instant::now() + TICK;
        // A thread that is in the same piece of work at the next tick is stuck.
        sched.pool().all_slots().iter().for_each(|slot| _ = slot.passes_tick());
        true
    }

    /// Whether there are foreign cells to read again. A new wait restarts the intervals.
    fn polls(&mut self, shared: &Shared) -> bool {
        let begun = shared.sem.foreign_begun();
        if begun != self.foreign {
            self.foreign = begun;
            self.back_off = FOREIGN_FIRST;
            self.next_look = Instant::now() + FOREIGN_FIRST;
        }
        shared.sem.foreign() != 0
    }

    fn look_foreign(&mut self, shared: &Arc<Shared>) {
        self.back_off = (self.back_off * 2).min(FOREIGN_LAST);
        self.next_look = Instant::now() + self.back_off;
        let resume = |queue| shared.sched.resume(shared, &queue);
        shared.sem.look_foreign(&mut self.guard, resume);
    }
}

impl Sched {
    /// Whether there is anything for the watchdog to do.
    fn needs_watchdog(&self) -> bool {
        self.anything_waits()
            || self.shards.any_deferred()
            || self.shards.any_works()
            || self.is_cooperating()
            || self.pool().all_slots().iter().any(|slot| slot.is_in_piece())
    }
}

/// Finds threads that are in the same piece of work as a tick ago, and serves the tasks that wait for them.
fn tick(shared: &Arc<Shared>) {
    let sched = &shared.sched;
    let slots = sched.pool().all_slots();
    for slot in slots.iter().filter(|slot| slot.passes_tick()) {
        sched.mark_stuck(slot);
        // It may have been found stuck before it began this piece, with no stream to take then.
        take_stream(shared, slot);
    }
    sched.promote_all(shared);
    // If no worker can be woken, a work that a helping thread leaves may have no thread any more.
    let unattended = sched.shards.find_work(0, |work| !work.attended()).is_some();
    if unattended {
        sched.works_first.store(true, Ordering::Relaxed);
    }
    if (unattended || sched.anything_waits()) && !sched.has_free_worker() {
        sched.substitute(shared);
        for slot in &slots {
            slot.preempt.store(true, Ordering::Relaxed);
        }
    }
    if unattended {
        sched.wake(shared, usize::MAX);
    }
}

/// Takes the stream of a stuck thread, if the thread has exposed it, so that its queue continues.
fn take_stream(shared: &Arc<Shared>, slot: &Slot) {
    let Some(queue) = slot.stream() else { return };
    if queue.steal_stream(slot.index) {
        if queue.run.lend() {
            shared.sched.enlist(&queue);
        }
        shared.sched.wake(shared, usize::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Slot, testing};
    use super::*;
    use crate::queue::Run;

    /// A worker that was found stuck returns and begins another piece, which is watched, too.
    #[test]
    fn a_thread_that_is_stuck_a_second_time_loses_its_stream() {
        let (shared, queue) = testing::device();
        let (sched, seat) = (&shared.sched, Seat::new().unwrap());
        let slot = Arc::new(Slot::new(0, seat.record()));
        sched.pool().slots.push(Arc::clone(&slot));
        queue.run.doorbell(false);
        assert!(queue.run.pop());
        let stream = queue.take_stream().unwrap();
        slot.set_stream(Some(Arc::clone(&queue)));
        let ticks = || (0..2).for_each(|_| tick(&shared));
        // Executed inline: there is no stream to take.
        slot.bump();
        ticks();
        assert!(slot.stuck.load(Ordering::Relaxed));
        slot.bump();
        // A kernel.
        queue.expose_stream(stream, slot.index);
        slot.bump();
        ticks();
        assert!(queue.reclaim_stream(slot.index).is_none(), "the stream goes on without it");
        assert_eq!(queue.run.get(), Run::Runnable);
        assert!(sched.shards.any_runnable());
    }
}
