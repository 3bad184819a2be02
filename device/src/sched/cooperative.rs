// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cooperative-launch pool: threads for works whose units may wait for each other.
//!
//! All units of such a work run at once, each on a thread of its own, however few execution units there are.
//! These threads do nothing else, so units that wait for each other, even endlessly, keep no worker from other
//! work. A work starts once there is a thread for every unit. Until then it holds up no later one for which there
//! are threads: the kernel that it waits for may itself wait for that one.

use crate::sync::MutexGuard;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Duration;

use super::worker::{self, FIRST_COOPERATIVE};
use super::{Sched, Shared, Worker};
use crate::queue::Queue;
use crate::work::Work;

/// The number of failed starts of a thread after which the work that needs it is lost, and the VM with it, and
/// the pause between two tries: memory may run short for a moment. All works wait meanwhile, so neither is
/// large.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(1);

/// Threads and works, under one lock.
#[derive(Default)]
pub(super) struct Cooperative {
    /// Number of threads that were made.
    threads: usize,
    /// Number of threads that run no unit and are reserved for none.
    free: usize,
    /// Works without threads yet.
    waiting: VecDeque<Arc<Work>>,
    /// One entry for each unit whose thread has not taken it yet.
    units: VecDeque<Arc<Work>>,
}

impl Sched {
    fn cooperative(&self) -> MutexGuard<'_, Cooperative> {
        self.cooperative.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a thread has a unit, or a work waits for threads.
    pub(super) fn is_cooperating(&self) -> bool {
        let pool = self.cooperative();
        pool.free < pool.threads || !pool.waiting.is_empty()
    }

    /// Accepts a cooperative work; false if there cannot be a thread for each of its units.
    pub(super) fn cooperate(&self, shared: &Arc<Shared>, work: &Arc<Work>) -> bool {
        let mut pool = self.cooperative();
        // Decoding has bounded it.
        let units = work.units() as usize;
        let before: u64 = pool.waiting.iter().map(|work| work.units()).sum();
        let wanted = pool.threads - pool.free + before as usize + units;
        let mut failed = 0;
        while pool.threads < wanted.min(self.max_cooperative) {
            if self.recruit(shared, &mut pool).is_ok() {
                continue;
            }
            // It will run, later, once there are threads for its own units.
            failed += 1;
            if failed > TRIES || pool.threads >= units {
                break;
            }
            thread::sleep(PAUSE);
        }
        if pool.threads < units {
            return false;
        }
        pool.waiting.push_back(Arc::clone(work));
        self.staff(&mut pool);
        drop(pool);
        self.keep_watch();
        true
    }

    /// Starts the works for which there are threads, in order.
    fn staff(&self, pool: &mut Cooperative) {
        let mut next = 0;
        while let Some(work) = pool.waiting.get(next).cloned() {
            let units = work.units() as usize;
            if pool.free < units {
                next += 1;
                continue;
            }
            pool.waiting.remove(next);
            pool.free -= units;
            pool.units.extend(std::iter::repeat_n(work, units));
            self.cooperative_units.notify_all();
        }
    }

    /// Withdraws those works of a queue that is being stopped that have no threads yet; works with threads may
    /// never end. The queue's owner may add one more until the queue has stopped.
    pub(super) fn dismiss_waiting(&self, queue: &Queue, now: u64) {
        let mut pool = self.cooperative();
        pool.waiting.retain(|work| !work.is_of(queue) || !work.withdraw(now));
        self.staff(&mut pool);
    }

    /// Starts one more thread.
    fn recruit(&self, shared: &Arc<Shared>, pool: &mut Cooperative) -> io::Result<()> {
        let index = FIRST_COOPERATIVE + pool.threads;
        let (slot, thread) = worker::start(shared, index, "tally-coop", Worker::serve)?;
        let mut all = self.pool();
        all.threads.push(thread);
        all.cooperative.push(slot);
        drop(all);
        pool.threads += 1;
        pool.free += 1;
        Ok(())
    }

    /// Starts all threads, for a process that can start none later.
    pub(super) fn recruit_all(&self, shared: &Arc<Shared>) -> io::Result<()> {
        let mut pool = self.cooperative();
        while pool.threads < self.max_cooperative {
            self.recruit(shared, &mut pool)?;
        }
        Ok(())
    }
}

impl Worker {
    /// The main loop of a thread for cooperative launches.
    fn serve(&mut self) {
        let shared = Arc::clone(&self.shared);
        let sched = &shared.sched;
        let mut pool = sched.cooperative();
        while !sched.shutting_down() {
            let Some(work) = pool.units.pop_front() else {
                let waited = sched.cooperative_units.wait(pool);
                pool = waited.unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(pool);
            // It runs one unit, since the others have threads of their own.
            work.join(self, |_| true);
            pool = sched.cooperative();
            pool.free += 1;
            sched.staff(&mut pool);
        }
    }
}
