// SPDX-License-Identifier: MIT OR Apache-2.0
//! A worker thread: takes tasks while it has a permit, spins a little, sleeps.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use super::{IDLE_SPIN, Job, Spin, State};
use crate::Shared;
use crate::cell::CellWait;
use crate::eu::Arena;
use crate::guard::{Guard, Record, Seat};
use crate::queue::Queue;

/// A kernel's stack: at least the 64 KiB of SPEC.md, and what is above it.
pub(crate) const STACK_BYTES: usize = 1 << 20;
/// Slots from this number on are those of guests.
pub(super) const FIRST_GUEST: usize = 1 << 32;
/// Slots from this number on are those of the crew.
pub(super) const FIRST_CREW: usize = 1 << 33;

/// What others see of a worker. Alone in its lines, as [`Queue`] is.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Slot {
    pub(crate) index: usize,
    pub(crate) record: &'static Record,
    /// Of the queue that its last piece of work was for. The record may be another device's by now.
    serial: AtomicU64,
    /// Counts beginnings and ends of pieces of work: odd inside one.
    piece: AtomicU64,
    /// `piece` at the watch's last tick.
    seen: AtomicU64,
    /// The watch took this worker's permit. Changes under the scheduler's lock.
    pub(super) stuck: AtomicBool,
    /// Others wait: leave what you stream or join, but stay runnable.
    pub(crate) preempt: AtomicBool,
}

impl Slot {
    pub(crate) fn new(index: usize, record: &'static Record) -> Self {
        Self {
            index,
            record,
            serial: AtomicU64::new(0),
            piece: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            stuck: AtomicBool::new(false),
            preempt: AtomicBool::new(false),
        }
    }

    /// Interrupts what it does, if it is still this worker that does it.
    pub(super) fn interrupt(&self) {
        let serial = self.serial.load(Ordering::Relaxed);
        if serial != 0 && self.record.work() == serial {
            self.record.abort(serial);
        }
    }

    /// Whether it works by a permit: it is neither a host thread's that has lent itself nor of the
    /// crew.
    pub(super) fn has_permit(&self) -> bool {
        self.index < FIRST_GUEST
    }

    /// Whether to leave what it streams or joins for the sake of others.
    pub(crate) fn preempted(&self) -> bool {
        self.preempt.load(Ordering::Relaxed)
    }

    /// A piece of work begins or ends. Only its own thread says so.
    pub(super) fn bump(&self) {
        let piece = self.piece.load(Ordering::Relaxed);
        self.piece.store(piece + 1, Ordering::Relaxed);
    }

    /// Whether it is in the same piece of work as at the last call, which only the watch makes.
    pub(super) fn passes_tick(&self) -> bool {
        let piece = self.piece.load(Ordering::Relaxed);
        piece % 2 == 1 && self.seen.swap(piece, Ordering::Relaxed) == piece
    }
}

/// A worker thread's own things.
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) guard: Guard,
    pub(crate) arena: Arena,
    pub(crate) slot: Arc<Slot>,
    /// Of a guest: what its thread waits for.
    pub(crate) wish: Option<CellWait>,
    /// When foreign cells were last read at the end of a command, in ticks.
    last_foreign_look: u64,
}

/// Makes a worker more. The scheduler is locked.
pub(super) fn spawn(shared: &Arc<Shared>, state: &mut State) -> io::Result<()> {
    let (slot, thread) = start(shared, state.slots.len(), "tally-eu", Worker::work)?;
    state.threads.push(thread);
    state.slots.push(slot);
    Ok(())
}

/// Starts a thread that can run kernels.
pub(super) fn start(
    shared: &Arc<Shared>,
    index: usize,
    name: &str,
    life: fn(&mut Worker),
) -> io::Result<(Arc<Slot>, JoinHandle<()>)> {
    let seat = Seat::new()?;
    let slot = Arc::new(Slot::new(index, seat.record()));
    let (shared, own) = (Arc::clone(shared), Arc::clone(&slot));
    let thread = std::thread::Builder::new()
        .name(format!("{name}{}", index % FIRST_GUEST))
        .stack_size(STACK_BYTES)
        .spawn(move || {
            // Attaching fails only for arguments that are wrong, which is no
            // input: then there is a thread less.
            let guard = Guard::attach(seat);
            let mut arena = Arena::default();
            let fit = shared.sem.outside.is_none() || arena.reserve_all().is_ok();
            shared.sched.thread_ready(guard.is_ok() && fit);
            let Ok(guard) = guard else { return };
            life(&mut Worker::new(shared, guard, arena, own, None));
        })?;
    Ok((slot, thread))
}

impl Worker {
    pub(super) fn new(
        shared: Arc<Shared>,
        guard: Guard,
        arena: Arena,
        slot: Arc<Slot>,
        wish: Option<CellWait>,
    ) -> Self {
        Self { shared, guard, arena, slot, wish, last_foreign_look: 0 }
    }

    fn work(&mut self) {
        while let Some(job) = self.next() {
            match job {
                Job::Look(bucket) => self.look(bucket),
                Job::LookForeign => self.look_foreign(),
                Job::Stream(queue) => crate::engine::stream(self, &queue),
                Job::Join(work) => work.join(self, Worker::should_leave),
            }
            self.done();
        }
    }

    /// The next task; waits for one. None at the end.
    fn next(&mut self) -> Option<Job> {
        let shared = Arc::clone(&self.shared);
        let sched = &shared.sched;
        let mut may_spin = true;
        let mut state = sched.lock();
        loop {
            if state.shutdown {
                return None;
            }
            if let Some(job) = state.pick(sched.workers) {
                state.permits -= 1;
                state.busy += 1;
                sched.publish(&state);
                // The watch is for those who wait: if nobody does, whoever comes tells it.
                if state.anything_waits() {
                    state.tell_watch();
                }
                if state.permits != 0 && state.has_more(sched.workers) {
                    sched.rouse(&shared, &mut state, 1);
                }
                self.slot.preempt.store(false, Ordering::Relaxed);
                return Some(job);
            }
            if std::mem::take(&mut may_spin) {
                let seen = sched.epoch.load(Ordering::Acquire);
                sched.spinning.fetch_add(1, Ordering::SeqCst);
                drop(state);
                let until = Instant::now() + IDLE_SPIN;
                let mut spin = Spin::default();
                while sched.epoch.load(Ordering::Acquire) == seen && Instant::now() < until {
                    spin.turn();
                }
                state = sched.lock();
                sched.spinning.fetch_sub(1, Ordering::SeqCst);
                // If something came, whatever comes after it deserves a spin.
                may_spin = sched.epoch.load(Ordering::Acquire) != seen;
                continue;
            }
            state.sleepers += 1;
            while state.wakes == 0 && !state.shutdown {
                state = state.wait(&sched.wake);
            }
            state.wakes = state.wakes.saturating_sub(1);
            if state.habit.take_wants_watch() {
                state.tell_watch();
            }
        }
    }

    /// Gives the permit back, unless the watch has taken it.
    fn done(&mut self) {
        let mut state = self.shared.sched.lock();
        state.busy -= 1;
        if !self.slot.stuck.swap(false, Ordering::Relaxed) {
            state.permits += 1;
        }
        self.shared.sched.publish(&state);
    }

    /// A piece of work that cannot be left begins, for the queue of `serial`.
    pub(crate) fn begin_piece(&mut self, serial: u64) {
        self.slot.serial.store(serial, Ordering::Relaxed);
        self.slot.record.set_work(serial);
        self.slot.bump();
    }

    /// It is over.
    pub(crate) fn end_piece(&mut self) {
        self.slot.bump();
        self.slot.record.set_work(0);
    }

    /// Whether to leave a shared work: others are waiting, or nobody wants more.
    pub(crate) fn should_leave(&mut self) -> bool {
        if self.wish_is_met() {
            return true;
        }
        let sched = &self.shared.sched;
        self.slot.preempted()
            || self.slot.stuck.load(Ordering::Relaxed)
            || sched.shutting_down()
            || sched.streams_wait() && !sched.has_free_worker()
    }

    /// Looks at a bucket and resumes the queues that need not wait.
    pub(crate) fn look(&mut self, bucket: usize) {
        let shared = &self.shared;
        let resume = |queue: Arc<Queue>| shared.sched.resume(shared, &queue);
        shared.sem.look(&mut self.guard, bucket, resume);
    }

    fn look_foreign(&mut self) {
        let shared = &self.shared;
        let resume = |queue: Arc<Queue>| shared.sched.resume(shared, &queue);
        shared.sem.look_foreign(&mut self.guard, resume);
    }

    /// Lets a queue go on.
    pub(crate) fn resume(&self, queue: &Arc<Queue>) {
        self.shared.sched.resume(&self.shared, queue);
    }

    /// A command has ended: foreign cells are read again, if there are any and
    /// they were not read just now.
    pub(crate) fn command_ended(&mut self) {
        const APART: u64 = 50_000;
        if self.shared.sem.foreign() == 0 {
            return;
        }
        let now = self.shared.clock.ticks();
        if now.saturating_sub(self.last_foreign_look) >= APART {
            self.last_foreign_look = now;
            self.look_foreign();
        }
    }
}
