// SPDX-License-Identifier: MIT OR Apache-2.0
//! The watch: a thread that sees to it that nobody waits for a worker that is
//! stuck, and that re-reads foreign cells. It sleeps while all others do.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{PRIORITIES, Run, Sched, State};
use crate::Shared;
use crate::guard::{Guard, Seat};

/// How long a piece of work may keep a worker before others are helped.
const TICK: Duration = Duration::from_millis(5);
/// Ticks without work before the watch sleeps: waking it costs more than this.
const QUIET_TICKS: u32 = 20;

/// Foreign cells are re-read after this time, then after twice as long, ...
const FOREIGN_FIRST: Duration = Duration::from_micros(50);
/// ... up to this time.
const FOREIGN_LAST: Duration = Duration::from_millis(10);

pub(super) fn spawn(shared: &Arc<Shared>) -> io::Result<JoinHandle<()>> {
    let seat = Seat::new()?;
    let shared = Arc::clone(shared);
    std::thread::Builder::new().name("tally-watch".into()).spawn(move || {
        if let Ok(guard) = Guard::attach(seat) {
            Watch { guard, seen: Vec::new(), foreign: 0, back_off: FOREIGN_FIRST }.run(&shared);
        }
    })
}

struct Watch {
    guard: Guard,
    /// The piece of work that each worker was in at the last tick.
    seen: Vec<Option<u64>>,
    /// Waits on foreign cells that have begun, as last seen.
    foreign: u64,
    back_off: Duration,
}

impl Watch {
    fn run(&mut self, shared: &Arc<Shared>) {
        let sched = &shared.sched;
        let mut quiet = 0;
        let mut next_tick = Instant::now() + TICK;
        loop {
            let foreign = shared.sem.foreign() != 0;
            let nap = if foreign { self.back_off.min(TICK) } else { TICK };
            let mut state = sched.lock();
            if state.shutdown {
                return;
            }
            if state.busy == 0 && quiet >= QUIET_TICKS && shared.sem.foreign() == 0 {
                state.watch_asleep = true;
                while state.watch_asleep && !state.shutdown {
                    state = sched.watch.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                quiet = 0;
                next_tick = Instant::now() + TICK;
                continue;
            }
            let (mut state, _) =
                sched.watch.wait_timeout(state, nap).unwrap_or_else(PoisonError::into_inner);
            if Instant::now() >= next_tick {
                next_tick = Instant::now() + TICK;
                quiet = if state.busy == 0 { quiet + 1 } else { 0 };
                self.tick(sched, shared, &mut state);
            }
            drop(state);
            if foreign {
                self.look_foreign(shared);
            }
        }
    }

    fn look_foreign(&mut self, shared: &Arc<Shared>) {
        let begun = shared.sem.foreign_begun();
        self.back_off = if begun == self.foreign {
            (self.back_off * 2).min(FOREIGN_LAST)
        } else {
            FOREIGN_FIRST
        };
        self.foreign = begun;
        let resume = |queue| shared.sched.resume(shared, &queue);
        shared.sem.look_foreign(&mut self.guard, resume);
    }

    /// Finds workers that are in the same piece of work as a tick ago.
    fn tick(&mut self, sched: &Sched, shared: &Arc<Shared>, state: &mut State) {
        let slots = state.slots.clone();
        self.seen.resize(slots.len(), None);
        let mut lent = 0;
        for (slot, seen) in slots.iter().zip(&mut self.seen) {
            let piece = slot.piece();
            let stuck = piece.is_some() && piece == *seen;
            *seen = piece;
            if stuck && !slot.stuck.swap(true, Ordering::Relaxed) {
                state.permits += 1;
                lent += 1;
                lend_engine(state, slot.index);
            }
        }
        if lent != 0 && state.has_more(sched.workers) {
            sched.rouse(shared, state, lent);
        }
        let engine_wanted = state.engines.iter().any(|e| e.current.is_some() && e.best().is_some());
        let unattended = state.works.iter_mut().any(|works| {
            works.retain(|work| !work.exhausted());
            works.iter().any(|work| !work.attended())
        });
        state.works_first = unattended;
        if engine_wanted || unattended || sched.streams_wait() {
            for slot in &slots {
                slot.preempt.store(true, Ordering::Relaxed);
            }
        }
    }
}

/// Takes the queue that a stuck worker streams, so that it can go on.
fn lend_engine(state: &mut State, worker: usize) {
    for engine in &mut state.engines {
        let Some(queue) = engine.current.take_if(|queue| queue.steal_stream(worker)) else {
            continue;
        };
        debug_assert!(queue.priority < PRIORITIES);
        *queue.run() = (Run::Runnable, false);
        engine.ready[queue.priority].push_back(queue);
    }
}
