// SPDX-License-Identifier: MIT OR Apache-2.0
//! Worker threads: they take tasks, search a little for more, and sleep.

use crate::sync::Instant;
use crate::sync::Mutex;
use crate::sync::thread::JoinHandle;
use crate::sync::{AtomicBool, AtomicU64, Ordering, fence};
use std::io;
use std::sync::Arc;
use std::sync::PoisonError;

use tally_uapi::cell::{signaller_must_wake, waiters_index};
use tally_uapi::fault::Fault;

use super::{Job, Shared, placement};
use crate::cell::CellWait;
use crate::chaos::Chaos;
use crate::clock::Clock;
use crate::eu::{Arena, KernelTimes};
use crate::guard::{Guard, Record, STACK_BYTES, Seat, Trap};
use crate::queue::Queue;
use crate::spin::Spin;
use crate::tuning::{FOREIGN_APART, IDLE_SPIN};
use crate::work::Runner;

/// Slots from this number on are those of helping host threads.
pub(super) const FIRST_HELPER: usize = 1 << 32;
/// Slots from this number on are those of cooperative launches.
pub(super) const FIRST_COOPERATIVE: usize = 1 << 48;

/// The part of a worker that other threads see. Alone in its cache lines, like [`Queue`].
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Slot {
    pub(crate) index: usize,
    pub(crate) record: &'static Record,
    /// Serial of the queue of its last piece of work. Another device may use the record by now.
    serial: AtomicU64,
    /// Number of beginnings and ends of pieces of work; odd inside one.
    piece: AtomicU64,
    /// `piece` at the watchdog's last tick.
    seen: AtomicU64,
    /// Whether the watchdog has found it in one piece of work for too long; another may be active in its place.
    pub(super) stuck: AtomicBool,
    /// Set when other tasks wait: the thread has to leave the queue that it streams, which stays runnable, or
    /// the work that it has joined.
    pub(crate) preempt: AtomicBool,
    /// Whether a worker takes tasks. Changes under the pool's lock.
    pub(super) active: AtomicBool,
    /// Set for a helping thread that will not help again.
    pub(super) gone: AtomicBool,
    /// The queue that it streams, for the watchdog.
    streams: Mutex<Option<Arc<Queue>>>,
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
            active: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            streams: Mutex::new(None),
        }
    }

    /// Notes that it begins to stream a queue, or is done with it.
    pub(crate) fn set_stream(&self, queue: Option<Arc<Queue>>) {
        *self.streams.lock().unwrap_or_else(PoisonError::into_inner) = queue;
    }

    /// The queue that it streams.
    pub(super) fn stream(&self) -> Option<Arc<Queue>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether it is in a piece of work.
    pub(super) fn is_in_piece(&self) -> bool {
        self.piece.load(Ordering::Relaxed) % 2 == 1
    }

    /// Interrupts its guarded call, if that is still this worker's.
    pub(super) fn interrupt(&self) {
        let serial = self.serial.load(Ordering::Relaxed);
        if serial != 0 && self.record.work() == serial {
            self.record.abort(serial);
        }
    }

    /// Whether the slot is a worker's, not that of a helping thread or of a cooperative launch.
    pub(super) fn is_worker(&self) -> bool {
        self.index < FIRST_HELPER
    }

    /// Whether it has to leave its queue or work because other tasks wait.
    pub(crate) fn preempted(&self) -> bool {
        self.preempt.load(Ordering::Relaxed)
    }

    /// Notes that a piece of work begins or ends. Only its own thread calls this.
    pub(super) fn bump(&self) {
        let piece = self.piece.load(Ordering::Relaxed);
        self.piece.store(piece + 1, Ordering::Relaxed);
    }

    /// Whether it is in the same piece of work as at the last call. Only the watchdog calls this.
    pub(super) fn passes_tick(&self) -> bool {
        let piece = self.piece.load(Ordering::Relaxed);
        piece % 2 == 1 && self.seen.swap(piece, Ordering::Relaxed) == piece
    }
}

/// The state of a worker thread that only the thread itself uses.
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) guard: Guard,
    pub(crate) arena: Arena,
    pub(crate) slot: Arc<Slot>,
    /// The cell that a helping host thread waits for.
    pub(crate) awaited: Option<CellWait>,
    /// The time in ticks when foreign cells were last read at the end of a command.
    last_foreign_look: u64,
    /// The shard in which it looks for its next task first.
    turn: usize,
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
    let thread = crate::sync::thread::Builder::new()
        .name(format!("{name}{}", index % FIRST_HELPER))
        .stack_size(STACK_BYTES)
        .spawn(move || {
            // Attaching fails only for wrong arguments, which do not depend on
            // input: then there is one thread less.
            let guard = Guard::attach(seat);
            let mut arena = Arena::new(shared.group_memory);
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
        awaited: Option<CellWait>,
    ) -> Self {
        let turn = slot.index;
        Self { shared, guard, arena, slot, awaited, last_foreign_look: 0, turn }
    }

    /// The main loop of a worker or substitute.
    pub(super) fn work(&mut self) {
        let shared = Arc::clone(&self.shared);
        shared.sched.await_activation(&self.slot);
        while let Some(job) = self.next() {
            self.slot.preempt.store(false, Ordering::Relaxed);
            match job {
                Job::Look(bucket) => self.look(bucket),
                Job::LookForeign => self.look_foreign(),
                Job::Stream(queue) => (shared.sched.stream)(self, &queue, None),
                Job::Join(work) => {
                    shared.sched.call_others(&shared, &work);
                    work.join(self, Worker::should_leave);
                }
            }
            if self.slot.stuck.load(Ordering::Relaxed) {
                shared.sched.comes_back(&self.slot);
                shared.sched.await_activation(&self.slot);
            }
        }
    }

    /// Waits for the next task. None when the device shuts down.
    fn next(&mut self) -> Option<Job> {
        let shared = Arc::clone(&self.shared);
        let sched = &shared.sched;
        // While this thread had a task it was neither searching nor asleep, so no wake was omitted because of it.
        // Its search begins at another shard than the last time, so that each shard has its turn.
        self.turn = self.turn.wrapping_add(1);
        let mut found = sched.find(self.turn);
        let mut counted_on = false;
        while found.is_none() && !sched.shutting_down() {
            counted_on = true;
            found = self.search().or_else(|| self.sleep());
        }
        // Several tasks may have arrived at once for which one wake was omitted, or only one was made.
        if counted_on && sched.anything_waits() {
            sched.wake(&shared, usize::MAX);
        }
        found.filter(|_| !sched.shutting_down())
    }

    /// Looks for a task for a while, unless another worker does: one searcher finds the next doorbell, and more
    /// would only burn processor time.
    fn search(&self) -> Option<Job> {
        let (sched, turn) = (&self.shared.sched, self.turn);
        let searchers = &sched.searchers.0;
        let mut found = None;
        if searchers.fetch_add(1, Ordering::SeqCst) == 0 {
            if !sched.placements.is_empty() {
                sched.searches_on.store(placement::here(), Ordering::Relaxed);
            }
            let until = Instant::now() + IDLE_SPIN;
            let mut spin = Spin::default();
            while found.is_none() && Instant::now() < until {
                spin.turn();
                found = if sched.anything_for_a_worker() { sched.find(turn) } else { None };
            }
        }
        searchers.fetch_sub(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        found
    }

    /// Sleeps until a task may have arrived, and looks for it.
    fn sleep(&self) -> Option<Job> {
        let (sched, index) = (&self.shared.sched, self.slot.index);
        let placement = sched.placements.get(index);
        if let Some(placement) = placement {
            placement.is_own();
        }
        sched.idle.announce(index);
        let found = sched.find(self.turn);
        if found.is_some() || sched.shutting_down() {
            sched.idle.cancel(index);
            return found;
        }
        sched.idle.sleep(index);
        if let Some(placement) = placement {
            placement.restore();
        }
        if sched.wants_watchdog.swap(false, Ordering::Relaxed) {
            sched.watchdog.wake();
        }
        sched.find(self.turn)
    }

    /// Whether to leave a shared work: other tasks wait, or this thread's awaited value is reached.
    pub(crate) fn should_leave(&mut self) -> bool {
        if self.awaited_is_met() {
            return true;
        }
        let sched = &self.shared.sched;
        self.slot.preempted()
            || self.slot.stuck.load(Ordering::Relaxed)
            || sched.shutting_down()
            || sched.streams_wait()
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
}

impl Runner for Worker {
    fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    fn times(&self) -> &KernelTimes {
        &self.shared.times
    }

    fn chaos(&self) -> Option<&Chaos> {
        self.shared.chaos.as_ref()
    }

    fn sharers(&self) -> usize {
        self.shared.sched.workers()
    }

    fn place(&self) -> usize {
        // A model's threads have no processors.
        if cfg!(shuttle) { self.slot.index } else { placement::here() }
    }

    fn guard(&mut self) -> &mut Guard {
        &mut self.guard
    }

    fn eu(&mut self) -> (&mut Guard, &mut Arena) {
        (&mut self.guard, &mut self.arena)
    }

    /// Begins a piece of work. Unless it is `bounded`, the watchdog is awake from now on.
    fn begin_piece(&mut self, serial: u64, bounded: bool) {
        self.slot.serial.store(serial, Ordering::Relaxed);
        self.slot.record.set_work(serial);
        self.slot.bump();
        if !bounded {
            self.shared.sched.keep_watch();
        }
    }

    fn end_piece(&mut self) {
        self.slot.bump();
        self.slot.record.set_work(0);
    }

    fn signalled(&mut self, address: u64) {
        let bucket = waiters_index(address);
        let sem = &self.shared.sem;
        let own = signaller_must_wake(sem.waiters(bucket));
        let others = match &sem.outside {
            // Host threads count in the same words.
            None => own,
            Some(outside) => outside.waits(bucket),
        };
        if own && sem.has_queues(bucket) {
            self.look(bucket);
        }
        if others {
            self.shared.host.semaphore_interrupt(bucket);
        }
    }

    /// Reads foreign cells again, if there are any and they were not read just now.
    fn command_ended(&mut self) {
        if self.shared.sem.foreign() == 0 {
            return;
        }
        let now = self.shared.clock.ticks();
        if now.saturating_sub(self.last_foreign_look) >= FOREIGN_APART {
            self.last_foreign_look = now;
            self.look_foreign();
        }
    }

    fn resume(&self, queue: &Arc<Queue>) {
        self.shared.sched.resume(&self.shared, queue);
    }

    #[cold]
    fn fault(&self, queue: &Arc<Queue>, packet: u64, trap: Trap) {
        let fault = Fault { kind: trap.kind, address: trap.address, packet };
        self.shared.lose_vm(queue, fault);
    }

    fn tell_stoppers(&self) {
        self.shared.sched.tell_stoppers();
    }
}
