// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scheduler, which assigns tasks to threads.
//!
//! Workers are threads that take tasks: look at a bucket of the semaphore unit, stream a queue, or join a
//! work that has units left. Host threads that wait may do the same meanwhile (see [`helper`]).
//!
//! There is no lock of the whole scheduler. The state of a queue is one atomic word of its own
//! (`queue/run.rs`); tasks that wait for a thread are in shards (`shards.rs`); sleeping workers are bits
//! (`idle.rs`). Three rules prevent lost wakes, each with a store, a full fence and a load on either side:
//!
//! 1. A thread with a new task (a queue, a work, a look) first enlists it and then looks for a thread. A worker
//!    that goes to sleep first announces that and then looks for tasks.
//! 2. While a worker *searches*, no other is woken. A worker that stops searching first says so and then looks
//!    for tasks; one that has found a task and was the last to search wakes another if more tasks wait.
//! 3. If no worker can be woken, all are busy: each looks for tasks when it is done, and the watchdog, which
//!    is awake from then on, takes care of those that are not done soon.

use crate::sync::{AtomicBool, AtomicUsize, Ordering, fence};
use crate::sync::{Condvar, Mutex};
use crate::sync::{Instant, thread};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tally_uapi::cell::WAITERS;
use tally_uapi::eu::MAX_COOPERATIVE_GROUPS;

use crate::cell::CellWait;
use crate::queue::{Bell, Enqueue, Queue, Run, Stream};
use crate::tuning::{WORTH_A_PLACE, WORTH_A_WAKE};
use crate::wakeup::Dozer;
use crate::work::Work;

mod cooperative;
mod elision;
mod helper;
mod idle;
mod job;
mod looks;
mod placement;
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
use placement::Placement;
use pool::Pool;
use shards::Shards;
pub(crate) use shared::Shared;
pub(crate) use worker::{Slot, Worker};

/// The function that the engine provides: it streams a queue that the thread has taken, until the queue has to
/// leave. The caller may have the stream already.
pub(crate) type StreamQueue = fn(&mut Worker, &Arc<Queue>, Option<Box<Stream>>);

/// The reason why a thread leaves a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// The ring is empty and `asleep` is set.
    Idle,
    /// A wait is not met.
    Park(CellWait),
    /// Its own commands are still in flight.
    Drain,
    /// Other queues have precedence; this one stays runnable.
    Yield,
    /// It was stopped or lost.
    Stop,
}

/// The outcome of an attempt to wake a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woken {
    /// One was woken.
    One,
    /// A searching worker will find the task.
    Searcher,
    /// All are busy.
    None,
}

/// A value alone in its cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Apart<T>(T);

/// The scheduler of a device.
pub(crate) struct Sched {
    stream: StreamQueue,
    shards: Shards,
    idle: IdleSet,
    /// The processors of each worker; none where Linux places woken threads well.
    placements: Box<[Placement]>,
    looks: Looks,
    /// Workers that look for a task before they sleep.
    searchers: Apart<AtomicUsize>,
    /// The processor of the worker that searches, where workers are placed.
    searches_on: AtomicUsize,
    /// Entries of queues of the highest priority.
    urgent: Apart<AtomicUsize>,
    /// Threads that poll an empty ring.
    lingering: Apart<AtomicUsize>,
    /// Workers that exist, substitutes not counted.
    started: AtomicUsize,
    /// The watchdog has seen a work without a thread: once, works have precedence over streams.
    works_first: AtomicBool,
    shutdown: AtomicBool,
    /// The number of workers that the device was configured with.
    workers: usize,
    /// Most threads: workers and substitutes.
    max_threads: usize,
    /// Most threads for cooperative launches.
    max_cooperative: usize,
    watchdog: Dozer,
    /// A doorbell has rung since the watchdog last asked.
    rung: AtomicBool,
    /// The next worker that wakes is to wake the watchdog, without which no wake can be deferred.
    wants_watchdog: AtomicBool,
    pool: Mutex<Pool>,
    /// Notified when a thread is ready.
    readiness: Condvar,
    /// Notified when a queue that is being stopped has changed.
    stoppers: (Mutex<()>, Condvar),
    cooperative: Mutex<cooperative::Cooperative>,
    /// Notified when there are units of cooperative launches.
    cooperative_units: Condvar,
}

impl Sched {
    pub(crate) fn new(
        workers: usize,
        substitutes: usize,
        confined: bool,
        stream: StreamQueue,
    ) -> Self {
        let max_threads = workers + substitutes;
        let placed = if placement::is_needed(confined) { max_threads } else { 0 };
        Self {
            stream,
            shards: Shards::new(workers),
            idle: IdleSet::new(max_threads),
            placements: (0..placed).map(|_| Placement::default()).collect(),
            looks: Looks::new(WAITERS),
            searchers: Apart::default(),
            searches_on: AtomicUsize::new(usize::MAX),
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

    /// Threads that poll an empty ring. A hint.
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

    /// Wakes a worker for the task that the caller has just enlisted, worker `preferred` if it sleeps.
    fn wake(&self, shared: &Arc<Shared>, preferred: usize) -> Woken {
        self.wake_from(shared, preferred, None)
    }

    /// The same for a caller that goes on working: the worker runs on another processor.
    fn wake_beside(&self, shared: &Arc<Shared>, preferred: usize) -> Woken {
        let here = (!self.placements.is_empty()).then(placement::here);
        self.wake_from(shared, preferred, here)
    }

    /// Wakes a worker. It does not run on processor `here`, where the caller goes on working.
    fn wake_from(&self, shared: &Arc<Shared>, preferred: usize, here: Option<usize>) -> Woken {
        fence(Ordering::SeqCst);
        // One that searches on the caller's processor does not run while the caller does.
        let is_elsewhere = |here| self.searches_on.load(Ordering::Relaxed) != here;
        if self.searchers.0.load(Ordering::Relaxed) != 0 && here.is_none_or(is_elsewhere) {
            return Woken::Searcher;
        }
        let place = |index: usize| {
            if let (Some(here), Some(placement)) = (here, self.placements.get(index)) {
                placement.avoid(here);
            }
        };
        if self.idle.wake(preferred, place) || self.start_worker(shared) {
            return Woken::One;
        }
        // A busy worker may be stuck while a task waits.
        self.watchdog.wake();
        Woken::None
    }

    /// Handles a KICK. True: the wake is deferred, since this host thread usually blocks right after its doorbell
    /// and then runs the queue itself. The producer keeps ringing now and then, so that the device notices if the
    /// thread does not block.
    pub(crate) fn kick(&self, shared: &Arc<Shared>, queue: &Arc<Queue>) -> bool {
        let defer = elision::doorbell(shared, queue);
        match queue.run.doorbell(defer) {
            Bell::Fresh { enlist } if defer => {
                if enlist {
                    self.shards.defer(queue);
                }
                fence(Ordering::SeqCst);
                // A watchdog that is about to sleep either sees the queue, or its sleep is seen here.
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
                if queue.is_wide() {
                    self.wake_beside(shared, queue.last_worker());
                } else {
                    self.wake(shared, queue.last_worker());
                }
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

    /// Gives a queue whose wake was deferred a worker now, if it still needs one.
    fn promote(&self, shared: &Arc<Shared>, queue: &Arc<Queue>) {
        self.promoted(shared, queue, queue.run.enqueue());
    }

    fn promoted(&self, shared: &Arc<Shared>, queue: &Arc<Queue>, enqueued: Enqueue) {
        match enqueued {
            Enqueue::No => return,
            Enqueue::Push => self.enlist(queue),
            // The entry was there before the queue became runnable again, so maybe no thread was woken for
            // it.
            Enqueue::Listed => {}
        }
        self.wake(shared, queue.last_worker());
    }

    /// Continues a queue that was parked or draining.
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

    /// Publishes a work, for other threads to join; `attended`: the caller works on it. False if it is
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

    /// The works of a queue that were kept, in their order.
    pub(crate) fn take_held(&self, queue: &Queue) -> Vec<Arc<Work>> {
        self.shards.take_held(queue)
    }

    /// Wakes the threads that a work is worth. Threads that have joined take part in waking the others.
    pub(crate) fn call_others(&self, shared: &Arc<Shared>, work: &Work) {
        let is_long = work.estimate(&shared.times).is_none_or(|ticks| ticks >= WORTH_A_PLACE);
        let wake = if is_long { Self::wake_beside } else { Self::wake };
        while work.take_call() && wake(self, shared, usize::MAX) == Woken::One {}
    }

    /// Removes a shared work whose units are all claimed.
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

    /// Ends a thread's use of a queue, whose stream is at rest already. Returns
    /// false if the thread has to continue at once, since a KICK arrived.
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
                // A queue that was outranked keeps its turn within its priority.
                if enlist && outranked {
                    // Not the highest priority: nothing outranks that.
                    self.shards.push_front(queue);
                } else if enlist {
                    self.enlist(queue);
                }
                // This thread may be a helping one, which leaves.
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

    /// Called when a thread begins a piece of work that may take any time. The watchdog is awake from now on,
    /// because packets that are published meanwhile arrive without a KICK.
    pub(crate) fn keep_watch(&self) {
        self.watchdog.wake();
    }

    /// Tells the watchdog that there is a new wait on a foreign cell.
    pub(crate) fn tell_watchdog(&self) {
        self.watchdog.interrupt();
    }

    /// The next task, if there is one. The search begins at shard `start`.
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

    /// Takes the next runnable queue for which `suits` is true.
    fn pop(&self, start: usize, suits: impl Fn(&Queue) -> bool) -> Option<Arc<Queue>> {
        self.shards.pop(start, suits, |queue| self.unlisted(queue))
    }

    /// Notes that an entry of a queue has left its run queue.
    fn unlisted(&self, queue: &Queue) {
        if queue.priority == 0 {
            self.urgent.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether there is a task for a worker that would sleep, including works that it may join.
    fn anything_for_a_worker(&self) -> bool {
        self.anything_waits() || self.shards.any_works()
    }

    /// Whether a queue or a look waits for a thread.
    fn anything_waits(&self) -> bool {
        self.looks.any() || self.shards.any_runnable()
    }

    /// Ends all threads and waits for them; threads that are in kernels are
    /// interrupted after `grace`.
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
            // The result is ignored: a worker that panicked has ended, too.
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
