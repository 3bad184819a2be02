// SPDX-License-Identifier: MIT OR Apache-2.0
//! The crew: threads for cooperative works, whose units may wait for each other.
//!
//! All units of such a work run at once, each on a thread of its own, however few execution units
//! there are. The crew's threads have no permits and do nothing else, so units that wait for each
//! other, even for ever, keep no worker from other work. Works come in turn, each when there is a
//! thread for every unit.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::worker::{self, FIRST_CREW};
use super::{Locked, Sched, Slot, Worker};
use crate::Shared;
use crate::queue::Queue;
use crate::work::Work;

/// How often a thread may fail to start before the work that needs it is lost, and the VM with it; and the
/// pause between two tries: memory may run short for a moment. Everything waits meanwhile, so neither is
/// large.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(1);

/// Threads and works; all of it changes under the scheduler's lock.
#[derive(Default)]
pub(super) struct Crew {
    /// One for each thread that was ever made.
    slots: Vec<Arc<Slot>>,
    /// Threads that run no unit and are promised none.
    free: usize,
    /// Works without threads yet.
    waiting: VecDeque<Arc<Work>>,
    /// One entry for each unit that waits for its thread to come.
    units: VecDeque<Arc<Work>>,
}

impl Crew {
    pub(super) fn slots(&self) -> impl Iterator<Item = &Arc<Slot>> {
        self.slots.iter()
    }

    /// Whether a thread has a unit.
    pub(super) fn is_busy(&self) -> bool {
        self.free < self.slots.len()
    }
}

impl Sched {
    /// Takes a cooperative work; false if there can't be a thread for each of its units.
    pub(super) fn cooperate(
        &self,
        shared: &Arc<Shared>,
        state: &mut Locked<'_>,
        work: &Arc<Work>,
    ) -> bool {
        // Decoding has bounded it.
        let units = work.units() as usize;
        let crew = &state.crew;
        let ahead: u64 = crew.waiting.iter().map(|work| work.units()).sum();
        let wanted = crew.slots.len() - crew.free + ahead as usize + units;
        let mut failed = 0;
        while state.crew.slots.len() < wanted.min(self.max_crew) {
            if self.recruit(shared, state).is_ok() {
                continue;
            }
            // It will run, later, once there are threads for its own units.
            failed += 1;
            if failed > TRIES || state.crew.slots.len() >= units {
                break;
            }
            thread::sleep(PAUSE);
        }
        if state.crew.slots.len() < units {
            return false;
        }
        state.crew.waiting.push_back(Arc::clone(work));
        self.staff(state);
        state.tell_watch();
        true
    }

    /// Starts the works that are next, as long as there are threads for all their units.
    fn staff(&self, state: &mut Locked<'_>) {
        while let Some(work) = state.crew.waiting.front().cloned() {
            let units = work.units() as usize;
            if state.crew.free < units {
                return;
            }
            state.crew.waiting.pop_front();
            state.crew.free -= units;
            state.crew.units.extend(std::iter::repeat_n(work, units));
            self.crew.notify_all();
        }
    }

    /// Takes back the works of a queue that is being stopped and that have no threads yet: those that
    /// have them may never end. The queue's worker may bring one more until the queue has stopped.
    pub(super) fn dismiss_waiting(&self, state: &mut Locked<'_>, queue: &Queue, now: u64) {
        state.crew.waiting.retain(|work| !work.is_of(queue) || !work.withdraw(now));
        self.staff(state);
    }

    /// Makes a thread more.
    fn recruit(&self, shared: &Arc<Shared>, state: &mut Locked<'_>) -> io::Result<()> {
        let index = FIRST_CREW + state.crew.slots.len();
        let (slot, thread) = worker::start(shared, index, "tally-crew", Worker::serve)?;
        state.threads.push(thread);
        state.crew.slots.push(slot);
        state.crew.free += 1;
        Ok(())
    }

    /// Makes all threads, for a process that can make none later.
    pub(super) fn recruit_all(
        &self,
        shared: &Arc<Shared>,
        state: &mut Locked<'_>,
    ) -> io::Result<()> {
        while state.crew.slots.len() < self.max_crew {
            self.recruit(shared, state)?;
        }
        Ok(())
    }
}

impl Worker {
    /// The life of a thread of the crew.
    fn serve(&mut self) {
        let shared = Arc::clone(&self.shared);
        let sched = &shared.sched;
        let mut state = sched.lock();
        loop {
            if state.shutdown {
                return;
            }
            let Some(work) = state.crew.units.pop_front() else {
                state = state.wait(&sched.crew);
                continue;
            };
            drop(state);
            // One unit: the others have threads of their own.
            work.join(self, |_| true);
            state = sched.lock();
            state.crew.free += 1;
            sched.staff(&mut state);
        }
    }
}
