// SPDX-License-Identifier: MIT OR Apache-2.0
//! The threads: workers, the substitutes that take the places of stuck ones, and their slots.
//!
//! The number of *active* workers is that of the execution units. Further threads, the reserve, sleep until the
//! watchdog finds a worker stuck in one piece of work while something waits: then one of them becomes active in
//! its place. The stuck worker joins the reserve when it returns. None of this is on the path of a command, so
//! one lock protects it.

use crate::sync::MutexGuard;
use crate::sync::Ordering;
use crate::sync::thread::JoinHandle;
use std::io;
use std::sync::{Arc, PoisonError};

use super::worker::{self, Slot, Worker};
use super::{Sched, Shared};

/// The threads of a device.
#[derive(Default)]
pub(super) struct Pool {
    /// Slots of workers and substitutes, by their indices.
    pub(super) slots: Vec<Arc<Slot>>,
    /// Slots of host threads that help, now or before.
    pub(super) helpers: Vec<Arc<Slot>>,
    /// Slots of the threads for cooperative launches.
    pub(super) cooperative: Vec<Arc<Slot>>,
    /// Threads that are not active, by their indices.
    reserve: Vec<usize>,
    /// Number of workers that the watchdog has found stuck and that have not returned.
    stuck: usize,
    /// Number of active threads beyond the number of workers.
    substitutes: usize,
    pub(super) threads: Vec<JoinHandle<()>>,
    /// Number of threads that have finished their start, and whether one has failed to get its memory.
    ready: usize,
    unfit: bool,
}

impl Pool {
    /// The slots of all threads that run commands.
    pub(super) fn all_slots(&self) -> Vec<Arc<Slot>> {
        let others = self.helpers.iter().chain(&self.cooperative);
        self.slots.iter().chain(others).cloned().collect()
    }

    /// Starts one more thread, active or for the reserve.
    fn spawn(&mut self, shared: &Arc<Shared>, active: bool) -> io::Result<()> {
        let index = self.slots.len();
        let (slot, thread) = worker::start(shared, index, "tally-eu", Worker::work)?;
        slot.active.store(active, Ordering::Relaxed);
        self.threads.push(thread);
        self.slots.push(slot);
        if !active {
            self.reserve.push(index);
        }
        Ok(())
    }
}

impl Sched {
    pub(super) fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the first worker and the watchdog, so that the creation of a device that cannot have threads
    /// fails.
    pub(crate) fn start(&self, shared: &Arc<Shared>) -> io::Result<()> {
        self.pool().spawn(shared, true)?;
        self.started.store(1, Ordering::Relaxed);
        let watchdog = super::watchdog::spawn(shared)?;
        self.pool().threads.push(watchdog);
        Ok(())
    }

    /// Starts all threads, and waits until each has all the memory that it will ever need.
    pub(crate) fn start_all(&self, shared: &Arc<Shared>) -> io::Result<()> {
        self.start(shared)?;
        let mut pool = self.pool();
        while pool.slots.len() < self.max_threads {
            let active = pool.slots.len() < self.workers;
            pool.spawn(shared, active)?;
        }
        self.started.store(self.workers, Ordering::Relaxed);
        drop(pool);
        self.recruit_all(shared)?;
        let mut pool = self.pool();
        while pool.ready < pool.threads.len() && !pool.unfit {
            pool = self.readiness.wait(pool).unwrap_or_else(PoisonError::into_inner);
        }
        if pool.unfit { Err(io::ErrorKind::OutOfMemory.into()) } else { Ok(()) }
    }

    /// Notes that a thread has, or has not, got the memory that it needs.
    pub(super) fn thread_ready(&self, fit: bool) {
        let mut pool = self.pool();
        pool.ready += 1;
        pool.unfit |= !fit;
        self.readiness.notify_all();
    }

    /// Starts a worker if there are fewer than allowed. False: none was started.
    pub(super) fn start_worker(&self, shared: &Arc<Shared>) -> bool {
        if self.started.load(Ordering::Relaxed) >= self.workers {
            return false;
        }
        let mut pool = self.pool();
        if pool.slots.len() >= self.workers || self.shutting_down() {
            return false;
        }
        let made = pool.spawn(shared, true).is_ok();
        // A worker that cannot be started is not tried again: the others do its tasks.
        self.started.fetch_add(1, Ordering::Relaxed);
        made
    }

    /// Notes that the watchdog has found a thread stuck. If it is a worker, its place is free for another.
    pub(super) fn mark_stuck(&self, slot: &Slot) {
        let mut pool = self.pool();
        if !slot.stuck.swap(true, Ordering::Relaxed) && slot.is_worker() {
            pool.stuck += 1;
        }
    }

    /// Makes threads of the reserve active, one for each stuck worker that has none in its place yet.
    pub(super) fn substitute(&self, shared: &Arc<Shared>) {
        let mut pool = self.pool();
        while pool.substitutes < pool.stuck && !self.shutting_down() {
            if let Some(index) = pool.reserve.pop() {
                pool.slots[index].active.store(true, Ordering::Release);
                self.idle.notify(index);
            } else if pool.slots.len() >= self.max_threads || pool.spawn(shared, true).is_err() {
                return;
            }
            pool.substitutes += 1;
        }
    }

    /// Notes that a worker that was found stuck has returned. If another is active in its place, it sleeps until
    /// it is needed.
    pub(super) fn comes_back(&self, slot: &Slot) {
        let mut pool = self.pool();
        slot.stuck.store(false, Ordering::Relaxed);
        pool.stuck -= 1;
        if pool.substitutes > pool.stuck {
            pool.substitutes -= 1;
            pool.reserve.push(slot.index);
            slot.active.store(false, Ordering::Relaxed);
        }
    }

    /// Sleeps while the thread is in the reserve.
    pub(super) fn await_activation(&self, slot: &Slot) {
        while !slot.active.load(Ordering::Acquire) && !self.shutting_down() {
            self.idle.sleep(slot.index);
        }
    }

    /// Whether the maximum number of threads exists and all are stuck.
    pub(super) fn all_stuck(&self) -> bool {
        let pool = self.pool();
        let stuck = |slot: &Arc<Slot>| slot.stuck.load(Ordering::Relaxed);
        pool.slots.len() >= self.max_threads && pool.slots.iter().all(stuck)
    }
}
