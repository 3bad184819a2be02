// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scheduler: which thread does what.
//!
//! Workers are threads that take tasks: look at a bucket of the semaphore unit, stream a queue, or join a
//! work that has units left. Host threads that wait may do the same meanwhile (see [`helper`]).
//!
//! There is no lock of the whole scheduler. What a queue is doing is one atomic word of its own
//! (`queue/run.rs`); what waits for a thread lies in shards (`shards.rs`); workers that sleep are bits
//! (`idle.rs`). A wake is never lost because of three rules, each a store, a full fence and a load on either
//! side:
//!
//! 1. Who makes something wait (a queue, a work, a look) enlists it first and looks for a thread then. A
//!    worker that goes to sleep announces that first and looks for tasks then.
//! 2. While a worker *searches*, no other is woken. A worker that stops searching says so first and looks
//!    for tasks then; one that has found a task and was the last to search wakes another if more waits.
//! 3. If no worker can be woken, all are busy: each looks for tasks when it is done, and the watchdog, which
//!    is awake from then on, sees to those that are not done soon.

use crate::sync::{AtomicBool, AtomicUsize, Ordering, fence};
use crate::sync::{Condvar, Mutex};
use crate::sync::{Instant, thread};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tally_uapi::cell::WAITERS;
use tally_uapi::eu::MAX_COOPERATIVE_GROUPS;

use crate::cell::CellWait;
use crate::queue::{Bell, Enqueue, Queue, Run, Stream};
use crate::tuning::WORTH_A_WAKE;
use crate::wakeup::Dozer;
use crate::work::Work;

mod cooperative;
mod elision;
mod helper;
mod idle;
mod job;
mod looks;
mod pool;
mod shards;
mod shared;
mod stop;
#[cfg(test)]
pub(crate) mod testing;
mod watchdog;
mod worker;

use idle::IdleSet;
pub(crate) use job::Job;
use looks::Looks;
use pool::Pool;
use shards::Shards;
pub(crate) use shared::Shared;
pub(crate) use worker::{Slot, Worker};

/// The function that the engine provides: it streams a queue that is the thread's, until it has to leave. The caller may
/// have the stream already.
pub(crate) type StreamQueue = fn(&mut Worker, &Arc<Queue>, Option<Box<Stream>>);

/// Why a thread leaves a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// The ring is empty and `asleep` is set.
    Idle,
    /// A wait is not met.
    Park(CellWait),
    /// Its own commands are still in flight.
    Drain,
    /// Others come first; the queue stays runnable.
    Yield,
    /// It was stopped or lost.
    Stop,
}

/// The outcome of an attempt to wake a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woken {
    /// One comes.
    One,
    /// One that searches will find what there is.
    Searcher,
    /// All are busy.
    None,
}

/// Alone in its lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Apart<T>(T);

/// The scheduler of a device.
pub(crate) struct Sched {
    stream: StreamQueue,
    shards: Shards,
    idle: IdleSet,
    looks: Looks,
    /// Workers that look for a task before they sleep.
    searchers: Apart<AtomicUsize>,
    /// Entries of queues of the highest priority.
    urgent: Apart<AtomicUsize>,
    /// Threads that look at an empty ring.
    lingering: Apart<AtomicUsize>,
    /// Workers that exist, substitutes not counted.
    started: AtomicUsize,
    /// The watchdog has seen a work that no thread attends: it goes before streams, once.
    works_first: AtomicBool,
    shutdown: AtomicBool,
    /// Workers, as the device was asked for.
    workers: usize,
    /// Most threads: workers and substitutes.
    max_threads: usize,
    /// Most threads for cooperative launches.
    max_cooperative: usize,
    watchdog: Dozer,
    /// A doorbell has come since the watchdog asked last.
    rung: AtomicBool,
    /// The next worker that comes is to wake the watchdog, without which no wake can be left out.
    wants_watchdog: AtomicBool,
    pool: Mutex<Pool>,
    /// Told when a thread is ready.
    readiness: Condvar,
    /// Told when a queue that is being stopped has changed.
    stoppers: (Mutex<()>, Condvar),
    cooperative: Mutex<cooperative::Cooperative>,
    /// Told when there are units of cooperative launches.
    cooperative_units: Condvar,
}

impl Sched {
    pub(crate) fn new(workers: usize, substitutes: usize, stream: StreamQueue) -> Self {
        let max_threads = workers + substitutes;
        Self {
            stream,
            shards: Shards::new(workers),
            idle: IdleSet::new(max_threads),
            looks: Looks::new(WAITERS),
            searchers: Apart::default(),
            urgent: Apart::default(),
            lingering: Apart::default(),
            started: AtomicUsize::new(0),
            works_first: AtomicBool::new(false),
            shutdown: AtomicBool::new(false),
            workers,
            max_threads,
            max_cooperative: MAX_COOPERATIVE_GROUPS as usize,
            watchdog: Dozer::default(),
            rung: AtomicBool::new(false),
            wants_watchdog: AtomicBool::new(false),
            pool: Mutex::default(),
            readiness: Condvar::new(),
            stoppers: (Mutex::new(()), Condvar::new()),
            cooperative: Mutex::default(),
            cooperative_units: Condvar::new(),
        }
    }

    /// Workers that may have a task at the same time.
    pub(crate) fn workers(&self) -> usize {
        self.workers
    }

    /// Threads that look at an empty ring. A hint.
    pub(crate) fn lingering(&self) -> &AtomicUsize {
        &self.lingering.0
    }

    /// Whether a worker is free to help. A hint.
    pub(crate) fn has_free_worker(&self) -> bool {
        self.idle.any()
            || self.started.load(Ordering::Relaxed) < self.workers
            || self.searchers.0.load(Ordering::Relaxed) != 0
    }

    /// Whether a queue could be streamed if there were a worker. A hint.
    pub(crate) fn streams_wait(&self) -> bool {
        self.shards.any_runnable() && !self.has_free_worker()
    }

    /// Whether a queue of higher priority waits for a thread. A hint.
    pub(crate) fn is_outranked(&self, queue: &Queue) -> bool {
        match queue.priority {
            0 => false,
            1 => self.urgent.0.load(Ordering::Relaxed) != 0,
            lower => self.shards.any_better(lower),
        }
    }

    pub(crate) fn shutting_down(&self) -> bool {
        self.shutdown.load(Ordering::Relaxed)
    }

    /// Wakes a worker for what the caller has just enlisted, worker `preferred` if it sleeps.
    fn wake(&self, shared: &Arc<Shared>, preferred: usize) -> Woken {
        fence(Ordering::SeqCst);
        if self.searchers.0.load(Ordering::Relaxed) != 0 {
            return Woken::Searcher;
        }
        if self.idle.wake(preferred) || self.start_worker(shared) {
            return Woken::One;
        }
        // A busy worker may be stuck, and something waits.
        self.watchdog.wake();
        Woken::None
    }

    /// A KICK. True: the wake is left out, since this host thread usually blocks right after its doorbell
    /// and then runs the queue itself. The producer goes on ringing now and then, by which the device sees
    /// that the thread does not block.
    pub(crate) fn kick(&self, shared: &Arc<Shared>, queue: &Arc<Queue>) -> bool {
        let defer = elision::doorbell(shared, queue);
        match queue.run.doorbell(defer) {
            Bell::Fresh { enlist } if defer => {
                if enlist {
                    self.shards.defer(queue);
                }
                fence(Ordering::SeqCst);
                // A watchdog that is about to sleep either sees the queue or is seen here.
                if self.watchdog.is_asleep() {
                    self.promote(shared, queue);
                    return false;
                }
                true
            }
            Bell::Fresh { enlist } => {
                if enlist {
                    self.enlist(queue);
                }
                self.wake(shared, queue.last_worker());
                elision::doorbell_ends(shared);
                false
            }
            Bell::Deferred if defer => true,
            Bell::Deferred => {
                self.promote(shared, queue);
                false
            }
            Bell::Noted => false,
        }
    }

    /// Puts an entry of a runnable queue into its run queue.
    fn enlist(&self, queue: &Arc<Queue>) {
        if queue.priority == 0 {
            self.urgent.0.fetch_add(1, Ordering::Relaxed);
        }
        self.shards.push_back(queue);
    }

    /// A queue whose wake was left out gets a worker now, if it still needs one.
    fn promote(&self, shared: &Arc<Shared>, queue: &Arc<Queue>) {
        self.promoted(shared, queue, queue.run.enqueue());
    }

    fn promoted(&self, shared: &Arc<Shared>, queue: &Arc<Queue>, enqueued: Enqueue) {
        match enqueued {
            Enqueue::No => return,
            Enqueue::Push => self.enlist(queue),
            // The entry was there before the queue became runnable anew: it may be that no thread was
            // woken for it.
            Enqueue::Listed => {}
        }
        self.wake(shared, queue.last_worker());
    }

    /// A queue that was parked or draining goes on.
    pub(crate) fn resume(&self, shared: &Arc<Shared>, queue: &Arc<Queue>) {
        if queue.must_stop() {
            queue.run.stop();
            queue.run.stop_parked();
            self.tell_stoppers();
            return;
        }
        match queue.run.resume() {
            Ok(true) => self.enlist(queue),
            Ok(false) => {}
            Err(()) => return,
        }
        self.wake(shared, queue.last_worker());
    }

    /// Publishes a work, for other threads to join; `attended`: the caller is at it. False if it is
    /// cooperative and there is no thread for each of its units.
    pub(crate) fn share(&self, shared: &Arc<Shared>, work: &Arc<Work>, attended: bool) -> bool {
        if work.is_cooperative() {
            return self.cooperate(shared, work);
        }
        let most = self.workers.saturating_sub(usize::from(attended));
        let ticks = work.estimate(&shared.times).unwrap_or(u64::MAX);
        let worth = (ticks / WORTH_A_WAKE).min(work.units() - u64::from(attended));
        let wanted = usize::try_from(worth).unwrap_or(usize::MAX).min(most);
        work.call(wanted.max(usize::from(!attended)));
        self.shards.push_work(work);
        self.call_others(shared, work);
        true
    }

    /// Keeps a work of the adversarial device until its stream lets it start.
    pub(crate) fn hold(&self, work: Arc<Work>) {
        self.shards.hold(work);
    }

    /// The works of a queue that were kept, the first first.
    pub(crate) fn take_held(&self, queue: &Queue) -> Vec<Arc<Work>> {
        self.shards.take_held(queue)
    }

    /// Wakes the threads that a work is worth. Those that have come take part in waking the others.
    pub(crate) fn call_others(&self, shared: &Arc<Shared>, work: &Work) {
        while work.take_call() && self.wake(shared, usize::MAX) == Woken::One {}
    }

    /// All units of a shared work are claimed.
    pub(crate) fn unshare(&self, work: &Arc<Work>) {
        if !work.is_cooperative() {
            self.shards.remove_work(work);
        }
    }

    /// Has a worker look at a bucket of the semaphore unit.
    pub(crate) fn look(&self, shared: &Arc<Shared>, bucket: usize) {
        self.looks.ask(bucket);
        self.wake(shared, usize::MAX);
    }

    /// Has a worker look at all foreign cells.
    pub(crate) fn look_foreign(&self, shared: &Arc<Shared>) {
        self.looks.ask_foreign();
        self.wake(shared, usize::MAX);
    }

    /// A thread is done with a queue, whose stream is at rest already. Returns
    /// false if there is a reason to go on at once: a KICK came.
    pub(crate) fn leave(&self, shared: &Arc<Shared>, queue: &Arc<Queue>, why: Leave) -> bool {
        let to = match why {
            _ if queue.must_stop() => Run::Stopped,
            Leave::Idle => Run::Idle,
            Leave::Park(_) => Run::Parked,
            Leave::Drain => Run::Draining,
            Leave::Yield => Run::Runnable,
            Leave::Stop => Run::Stopped,
        };
        let outranked = to == Run::Runnable && self.is_outranked(queue);
        let Ok(enlist) = queue.run.leave(to) else { return false };
        match to {
            Run::Runnable => {
                // One that was outranked keeps its turn among its equals.
                if enlist && outranked {
                    // Not the highest priority: nothing outranks that.
                    self.shards.push_front(queue);
                } else if enlist {
                    self.enlist(queue);
                }
                // This thread may be a helping one, which goes.
                self.wake(shared, usize::MAX);
            }
            Run::Stopped => self.tell_stoppers(),
            _ => {
                // A thread that stops the queue either finds it at rest or is seen here: it sets the flag,
                // executes a fence and looks at the word (`retire`).
                fence(Ordering::SeqCst);
                if queue.must_stop() {
                    queue.run.stop();
                    self.tell_stoppers();
                }
            }
        }
        true
    }

    /// A thread begins a piece of work that may take any time. The watchdog is awake from now on: what is
    /// published behind that comes without a KICK.
    pub(crate) fn keep_watch(&self) {
        self.watchdog.wake();
    }

    /// There is a new wait on a foreign cell.
    pub(crate) fn tell_watchdog(&self) {
        self.watchdog.interrupt();
    }

    /// The next task, if there is one. Shards are looked at from number `start` on.
    fn find(&self, start: usize) -> Option<Job> {
        if let Some(job) = self.looks.take() {
            return Some(job);
        }
        if self.works_first.load(Ordering::Relaxed)
            && self.works_first.swap(false, Ordering::Relaxed)
            && let Some(work) = self.shards.find_work(start, |work| !work.attended())
        {
            return Some(Job::Join(work));
        }
        if let Some(queue) = self.pop(start, |_| true) {
            return Some(Job::Stream(queue));
        }
        let joinable = |work: &Work| work.attendants() < self.workers;
        self.shards.find_work(start, joinable).map(Job::Join)
    }

    /// Takes the next runnable queue, if it `suits`.
    fn pop(&self, start: usize, suits: impl Fn(&Queue) -> bool) -> Option<Arc<Queue>> {
        self.shards.pop(start, suits, |queue| self.unlisted(queue))
    }

    /// An entry of a queue has left its run queue.
    fn unlisted(&self, queue: &Queue) {
        if queue.priority == 0 {
            self.urgent.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether a worker that would sleep has something to do: also a work that it may join.
    fn anything_for_a_worker(&self) -> bool {
        self.anything_waits() || self.shards.any_works()
    }

    /// Whether a queue or a look waits for a thread.
    fn anything_waits(&self) -> bool {
        self.looks.any() || self.shards.any_runnable()
    }

    /// Tells all threads to end; those that are in kernels are interrupted
    /// after `grace`. Waits for them.
    pub(crate) fn shut_down(&self, grace: Duration) {
        let threads = {
            // No thread is made after this.
            let mut pool = self.pool();
            self.shutdown.store(true, Ordering::SeqCst);
            std::mem::take(&mut pool.threads)
        };
        self.watchdog.interrupt();
        self.idle.notify_all();
        drop(self.cooperative.lock().unwrap_or_else(PoisonError::into_inner));
        self.cooperative_units.notify_all();
        let until = Instant::now() + grace;
        for thread in threads {
            let mut nap = Duration::from_micros(50);
            while !is_finished(&thread) {
                self.idle.notify_all();
                if Instant::now() >= until {
                    self.pool().all_slots().iter().for_each(|slot| slot.interrupt());
                }
                std::thread::sleep(nap);
                nap = (nap * 2).min(Duration::from_millis(5));
            }
            // A worker that panicked has nothing left to lose.
            let _ = thread.join();
        }
    }
}

/// Whether a thread has ended. A model waits for it in any case.
fn is_finished(thread: &thread::JoinHandle<()>) -> bool {
    #[cfg(not(shuttle))]
    return thread.is_finished();
    #[cfg(shuttle)]
    {
        let _ = thread;
        true
    }
}
