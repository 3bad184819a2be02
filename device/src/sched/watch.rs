// SPDX-License-Identifier: MIT OR Apache-2.0
//! The watch: a thread that sees to it that nobody waits for a worker that is
//! stuck, and that re-reads foreign cells. It sleeps while all others do.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::locked::Locked;
use super::{Run, Sched, State};
use crate::Shared;
use crate::guard::{Guard, Seat};

/// How long a piece of work may keep a worker before others are helped.
const TICK: Duration = Duration::from_millis(5);
/// Ticks without work or KICKs before the watch sleeps: waking it costs more than this.
const QUIET_TICKS: u32 = 4;

/// Foreign cells are re-read after this time, then after twice as long, ...
const FOREIGN_FIRST: Duration = Duration::from_micros(50);
/// ... up to this time.
const FOREIGN_LAST: Duration = Duration::from_millis(10);

pub(super) fn spawn(shared: &Arc<Shared>) -> io::Result<JoinHandle<()>> {
    let seat = Seat::new()?;
    let shared = Arc::clone(shared);
    std::thread::Builder::new().name("tally-watch".into()).spawn(move || {
        let guard = Guard::attach(seat);
        shared.sched.thread_ready(guard.is_ok());
        if let Ok(guard) = guard {
            Watch::new(guard).run(&shared);
        }
    })
}

struct Watch {
    guard: Guard,
    next_tick: Instant,
    /// Ticks in a row at which nobody was busy.
    quiet: u32,
    /// Waits on foreign cells that have begun, as last seen.
    foreign: u64,
    next_look: Instant,
    back_off: Duration,
}

impl Watch {
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
        loop {
            let polls = self.polls(shared);
            let mut state = sched.lock();
            if state.shutdown {
                return;
            }
            let rests = !state.is_busy() && !sched.has_put_off();
            let quiet = rests && self.quiet >= QUIET_TICKS;
            // Asked again under the lock, which a worker takes after it has parked a queue.
            if quiet && shared.sem.foreign() == 0 {
                sched.watch_asleep.store(true, Ordering::Relaxed);
                while sched.watch_asleep.load(Ordering::Relaxed) && !state.shutdown {
                    state = state.wait(&sched.watch);
                }
                self.quiet = 0;
                self.next_tick = Instant::now() + TICK;
                // Who is in the same piece of work at the next tick is stuck.
                state.all_slots().iter().for_each(|slot| _ = slot.passes_tick());
                continue;
            }
            let until = match (polls, quiet) {
                (true, true) => self.next_look,
                (true, false) => self.next_look.min(self.next_tick),
                (false, _) => self.next_tick,
            };
            let nap = until.saturating_duration_since(Instant::now());
            let mut state = state.wait_for(&sched.watch, nap);
            if Instant::now() >= self.next_tick {
                self.next_tick = Instant::now() + TICK;
                // Without the watch nothing can be put off (see `habit`).
                let active = state.is_busy() | state.habit.take_active();
                self.quiet = if active { 0 } else { self.quiet + 1 };
                tick(sched, shared, &mut state);
                sched.look_after(shared, &mut state);
            }
            drop(state);
            if polls && Instant::now() >= self.next_look {
                self.look_foreign(shared);
            }
        }
    }

    /// Whether there are foreign cells to be re-read. A new one starts over.
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

/// Finds workers and guests that are in the same piece of work as a tick ago.
fn tick(sched: &Sched, shared: &Arc<Shared>, state: &mut Locked<'_>) {
    let slots = state.all_slots();
    let mut lent = 0;
    for slot in &slots {
        if !slot.passes_tick() {
            continue;
        }
        let is_new = !slot.stuck.swap(true, Ordering::Relaxed);
        if is_new {
            // Guests and the crew came without a permit.
            state.permits += usize::from(slot.has_permit());
        }
        // It may have been found stuck before it began this piece, with nothing to lend then.
        let has_lent = lend_engine(state, slot.index);
        lent += usize::from(is_new || has_lent);
    }
    sched.publish(state);
    state.works.iter_mut().for_each(|works| works.retain(|work| !work.exhausted()));
    // A guest that leaves a work leaves it to nobody.
    let unattended = state.has_unattended();
    if (lent != 0 || unattended) && state.has_more(sched.workers) {
        sched.rouse(shared, state, lent.max(1));
    }
    let engine_wanted = state.engines.is_contended();
    state.works_first = unattended;
    if engine_wanted || unattended || sched.streams_wait() {
        for slot in &slots {
            slot.preempt.store(true, Ordering::Relaxed);
        }
    }
}

/// Takes the queue that a stuck worker streams, so that it can go on. False if it streams none, or has
/// not left the stream where it can be taken.
fn lend_engine(state: &mut State, worker: usize) -> bool {
    let mut lent = false;
    for index in state.engines.in_use() {
        if let Some(queue) = state.engines.current(index)
            && queue.steal_stream(worker)
            && let Some(queue) = state.engines.end(index)
        {
            *queue.run() = (Run::Runnable, false);
            state.engines.push_back(&queue);
            lent = true;
        }
    }
    lent
}

#[cfg(test)]
mod tests {
    use super::super::{Slot, testing};
    use super::*;

    /// A worker that was found stuck comes back and begins another piece: that one is watched, too.
    #[test]
    fn whoever_is_stuck_a_second_time_lends_its_stream() {
        let (shared, queue) = testing::device();
        let (sched, seat) = (&shared.sched, Seat::new().unwrap());
        let slot = Arc::new(Slot::new(0, seat.record()));
        let mut state = sched.lock();
        state.slots.push(Arc::clone(&slot));
        // It has taken the queue, and with it the permit.
        state.permits = 0;
        state.busy = 1;
        state.engines.begin(&queue);
        *queue.run() = (Run::Running, false);
        let stream = queue.take_stream().unwrap();
        let ticks = |state: &mut Locked<'_>| (0..2).for_each(|_| tick(sched, &shared, state));
        // On the spot: nothing can be taken from it but the permit.
        slot.bump();
        ticks(&mut state);
        assert!(slot.stuck.load(Ordering::Relaxed) && state.permits == 1);
        slot.bump();
        // A kernel.
        queue.expose_stream(stream, slot.index);
        slot.bump();
        ticks(&mut state);
        assert!(queue.reclaim_stream(slot.index).is_none(), "the stream goes on without it");
        assert_eq!((state.permits, queue.run().0), (1, Run::Runnable), "one permit for one worker");
        assert!(state.engines.is_free(0));
    }
}
