// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scheduler: which worker does what.
//!
//! Workers are threads that take tasks: look at a bucket of the semaphore
//! unit, stream a queue on its engine, or join a work that has units left. A
//! thread needs a *permit* to have a task; there are as many permits as
//! workers. The watch takes the permit from a worker that is stuck in one piece
//! of work, so another thread, a substitute, goes on in its place.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tally_uapi::eu::MAX_COOPERATIVE_GROUPS;

use crate::Shared;
use crate::cell::CellWait;
use crate::queue::{Queue, Run};
use crate::work::Work;

mod crew;
mod engines;
mod guest;
mod habit;
mod locked;
mod stop;
#[cfg(test)]
pub(crate) mod testing;
mod watch;
mod worker;

pub use engines::MAX_ENGINES;
use engines::{Engines, Hints};
use locked::Locked;
pub(crate) use worker::{STACK_BYTES, Slot, Worker};

/// Priorities of queues.
pub(crate) const PRIORITIES: usize = 3;

/// How long a worker that just had work looks for more before it sleeps.
const IDLE_SPIN: Duration = Duration::from_micros(20);

/// A spin that first looks closely, then offers its processor between looks:
/// the thread that will end the spin may need this very one.
#[derive(Debug, Default)]
pub(crate) struct Spin(u32);

impl Spin {
    /// Looks before the first offer: about 2 µs.
    const CLOSE: u32 = 50;

    /// Between two looks.
    pub(crate) fn turn(&mut self) {
        self.0 += 1;
        if self.0 <= Self::CLOSE {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}

/// What a thread may have to do.
#[derive(Debug)]
pub(crate) enum Job {
    /// Look at a bucket of the semaphore unit.
    Look(usize),
    /// Look at all foreign cells.
    LookForeign,
    /// Stream a queue, which has its engine.
    Stream(Arc<Queue>),
    /// Help with a work.
    Join(Arc<Work>),
}

/// Why a worker leaves a queue.
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

struct State {
    shutdown: bool,
    /// Tasks that may be taken now.
    permits: usize,
    /// Threads that have a task, stuck ones included.
    busy: usize,
    engines: Engines,
    looks: VecDeque<usize>,
    look_foreign: bool,
    works: [VecDeque<Arc<Work>>; PRIORITIES],
    /// Set by the watch: a work nobody attends goes before streams, once.
    works_first: bool,
    sleepers: usize,
    /// Sleepers that were told to wake and have not yet.
    wakes: usize,
    slots: Vec<Arc<Slot>>,
    /// Of host threads that lent themselves, now or before.
    guests: guest::Guests,
    habit: habit::Habit,
    crew: crew::Crew,
    threads: Vec<std::thread::JoinHandle<()>>,
    /// Threads that have what they need, and whether one has not.
    ready: usize,
    unfit: bool,
}

/// The scheduler of a device.
pub(crate) struct Sched {
    state: Mutex<State>,
    wake: Condvar,
    /// Told when a queue that is being stopped has changed.
    stopped: Condvar,
    watch: Condvar,
    /// Told when there are units for the crew.
    crew: Condvar,
    /// Whether the watch sleeps until it is told. Changes only under the lock.
    watch_asleep: AtomicBool,
    /// Whether a queue waits for the host to come, and nobody was woken for it. Changes only under the
    /// lock.
    put_off: AtomicBool,
    /// Whether the host has not come since the last KICK. Changes only under the lock.
    expects: AtomicBool,
    /// Permits at the start: the workers.
    workers: usize,
    /// Most threads: workers and substitutes.
    max_threads: usize,
    /// Most threads of the crew.
    max_crew: usize,
    /// Copies of the state for looks without the lock; hints only.
    free: AtomicUsize,
    hints: Arc<Hints>,
    /// Streams whose worker looks at an empty ring.
    lingering: AtomicUsize,
    spinning: AtomicUsize,
    /// Changes whenever there is something new to do.
    epoch: AtomicU32,
    shutdown: AtomicBool,
}

impl Sched {
    pub(crate) fn new(engines: usize, workers: usize, substitutes: usize) -> Self {
        let engines = Engines::new(engines);
        let hints = Arc::clone(engines.hints());
        Self {
            state: Mutex::new(State {
                shutdown: false,
                permits: workers,
                busy: 0,
                engines,
                looks: VecDeque::new(),
                look_foreign: false,
                works: Default::default(),
                works_first: false,
                sleepers: 0,
                wakes: 0,
                slots: Vec::new(),
                guests: guest::Guests::default(),
                habit: habit::Habit::default(),
                crew: crew::Crew::default(),
                threads: Vec::new(),
                ready: 0,
                unfit: false,
            }),
            wake: Condvar::new(),
            stopped: Condvar::new(),
            watch: Condvar::new(),
            crew: Condvar::new(),
            watch_asleep: AtomicBool::new(false),
            put_off: AtomicBool::new(false),
            expects: AtomicBool::new(false),
            workers,
            max_threads: workers + substitutes,
            max_crew: MAX_COOPERATIVE_GROUPS as usize,
            free: AtomicUsize::new(workers),
            hints,
            lingering: AtomicUsize::new(0),
            spinning: AtomicUsize::new(0),
            epoch: AtomicU32::new(0),
            shutdown: AtomicBool::new(false),
        }
    }

    /// Workers that may have a task at the same time.
    pub(crate) fn workers(&self) -> usize {
        self.workers
    }

    /// How many streams linger at an empty ring. A hint.
    pub(crate) fn lingering(&self) -> &AtomicUsize {
        &self.lingering
    }

    /// Whether a worker is free to help. A hint.
    pub(crate) fn has_free_worker(&self) -> bool {
        self.free.load(Ordering::Relaxed) != 0
    }

    /// Whether a queue could be streamed if there were a worker. A hint.
    pub(crate) fn streams_wait(&self) -> bool {
        self.hints.idle_and_wanted()
    }

    /// Whether a queue of higher priority waits for this one's engine.
    pub(crate) fn is_outranked(&self, queue: &Queue) -> bool {
        self.hints.best(queue.engine) < queue.priority
    }

    /// Whether any other queue waits for this one's engine. A hint.
    pub(crate) fn engine_wanted(&self, queue: &Queue) -> bool {
        self.hints.best(queue.engine) < PRIORITIES
    }

    pub(crate) fn shutting_down(&self) -> bool {
        self.shutdown.load(Ordering::Relaxed)
    }

    fn lock(&self) -> Locked<'_> {
        Locked::new(self, self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The permits have changed.
    fn publish(&self, state: &State) {
        self.free.store(state.permits, Ordering::Relaxed);
    }

    /// There is something new to do for up to `count` threads.
    fn rouse(&self, shared: &Arc<Shared>, state: &mut Locked<'_>, count: usize) {
        // Whoever comes takes what was put off first, and wakes others for more.
        self.put_off.store(false, Ordering::Relaxed);
        // Whoever is busy may be stuck, and somebody waits.
        if state.is_busy() {
            state.tell_watch();
        }
        self.epoch.fetch_add(1, Ordering::Release);
        let mut wanted = count.min(state.permits);
        // A thread that spins sees the epoch; it wakes others if there is more.
        wanted = wanted.saturating_sub(self.spinning.load(Ordering::SeqCst) + state.wakes);
        while wanted != 0 && state.sleepers != 0 {
            state.sleepers -= 1;
            state.tell_sleeper();
            wanted -= 1;
        }
        while wanted != 0 && state.slots.len() < self.max_threads && !state.shutdown {
            if worker::spawn(shared, state).is_err() {
                // Those that exist take it later.
                break;
            }
            wanted -= 1;
        }
    }

    /// Starts the first worker and the watch, so that a device that cannot
    /// have threads is an error when it is made.
    pub(crate) fn start(&self, shared: &Arc<Shared>) -> std::io::Result<()> {
        let mut state = self.lock();
        worker::spawn(shared, &mut state)?;
        let watch = watch::spawn(shared)?;
        state.threads.push(watch);
        Ok(())
    }

    /// Starts all threads, and waits until each has all that it will ever need.
    pub(crate) fn start_all(&self, shared: &Arc<Shared>) -> std::io::Result<()> {
        self.start(shared)?;
        let mut state = self.lock();
        while state.slots.len() < self.max_threads {
            worker::spawn(shared, &mut state)?;
        }
        self.recruit_all(shared, &mut state)?;
        while state.ready < state.threads.len() && !state.unfit {
            state = state.wait(&self.stopped);
        }
        if state.unfit { Err(std::io::ErrorKind::OutOfMemory.into()) } else { Ok(()) }
    }

    /// A thread has, or has not, got what it needs.
    fn thread_ready(&self, fit: bool) {
        let mut state = self.lock();
        state.ready += 1;
        state.unfit |= !fit;
        self.stopped.notify_all();
    }

    /// A KICK.
    pub(crate) fn kick(&self, shared: &Arc<Shared>, queue: &Arc<Queue>) {
        let now = shared.clock.ticks();
        let mut state = self.lock();
        let mut run = queue.run();
        let fresh = run.0 == Run::Idle;
        run.1 |= !fresh;
        drop(run);
        if fresh {
            let put_off = state.can_put_off(self, queue, now);
            self.ready(shared, &mut state, queue, put_off);
            drop(state);
            if !put_off {
                self.kick_ends(shared);
            }
        } else if self.has_put_off() && !state.can_put_off(self, queue, now) {
            self.catch_up(shared, &mut state);
        }
    }

    /// A queue that was parked or draining goes on.
    pub(crate) fn resume(&self, shared: &Arc<Shared>, queue: &Arc<Queue>) {
        let mut state = self.lock();
        if matches!(queue.run().0, Run::Parked(_) | Run::Draining) {
            self.ready(shared, &mut state, queue, false);
        }
    }

    /// A queue can be streamed. Nobody is woken for it if it is `put_off`.
    fn ready(
        &self,
        shared: &Arc<Shared>,
        state: &mut Locked<'_>,
        queue: &Arc<Queue>,
        put_off: bool,
    ) {
        if queue.must_stop() {
            queue.run().0 = Run::Stopped;
            self.stopped.notify_all();
            return;
        }
        *queue.run() = (Run::Runnable, false);
        state.engines.push_back(queue);
        if put_off {
            self.put_off.store(true, Ordering::Relaxed);
        } else {
            self.rouse(shared, state, 1);
        }
    }

    /// Publishes a work, for other threads to join; `attended`: the caller is at it. False if it is
    /// cooperative and there is no thread for each of its units.
    pub(crate) fn share(&self, shared: &Arc<Shared>, work: &Arc<Work>, attended: bool) -> bool {
        let mut state = self.lock();
        if work.is_cooperative() {
            return self.cooperate(shared, &mut state, work);
        }
        state.works[work.priority()].push_back(Arc::clone(work));
        // A thread more than there are processors would only take one's time from another: who waits
        // in vain for its turn may hold the last units.
        let free =
            self.workers.saturating_sub(state.at_work() + state.guests.who_would(shared, work));
        let helpers = usize::try_from(work.units()).unwrap_or(usize::MAX).min(free);
        self.rouse(shared, &mut state, helpers.max(usize::from(!attended)));
        true
    }

    /// Has a worker look at a bucket of the semaphore unit.
    pub(crate) fn look(&self, shared: &Arc<Shared>, bucket: usize) {
        let mut state = self.lock();
        if !state.looks.contains(&bucket) {
            state.looks.push_back(bucket);
        }
        self.rouse(shared, &mut state, 1);
    }

    /// Has a worker look at all foreign cells.
    pub(crate) fn look_foreign(&self, shared: &Arc<Shared>) {
        let mut state = self.lock();
        state.look_foreign = true;
        self.rouse(shared, &mut state, 1);
    }

    /// A worker is done with a queue, whose stream is at rest already. Returns
    /// false if there is a reason to go on at once: a KICK came.
    pub(crate) fn leave(&self, shared: &Arc<Shared>, queue: &Arc<Queue>, why: Leave) -> bool {
        let mut state = self.lock();
        let mut run = queue.run();
        if run.0 != Run::Running {
            return true;
        }
        let kicked = std::mem::take(&mut run.1);
        run.0 = match why {
            _ if queue.must_stop() => Run::Stopped,
            Leave::Idle if kicked => return false,
            Leave::Idle => Run::Idle,
            Leave::Park(wait) => Run::Parked(wait),
            Leave::Drain => Run::Draining,
            Leave::Yield => Run::Runnable,
            Leave::Stop => Run::Stopped,
        };
        let now = run.0;
        drop(run);
        state.engines.end(queue.engine);
        match now {
            Run::Runnable if self.is_outranked(queue) => {
                // It was outranked and keeps its turn among its equals.
                state.engines.push_front(queue);
            }
            Run::Runnable => state.engines.push_back(queue),
            Run::Stopped => self.stopped.notify_all(),
            _ => {}
        }
        // The engine is free for the next queue; this thread looks for a task
        // right after, so nobody needs to be woken for one.
        let more = state.engines.best(queue.engine).is_some();
        if more && state.permits != 0 {
            self.rouse(shared, &mut state, 1);
        }
        true
    }

    /// A thread that has a task begins a piece of work that may take for ever, and whoever comes to
    /// its queue meanwhile sends no KICK: the watch has to be awake. It then stays so while anybody
    /// is busy, so this costs something only after a rest.
    pub(crate) fn keep_watch(&self) {
        if self.watch_asleep.load(Ordering::Relaxed) {
            self.lock().tell_watch();
        }
    }

    /// There is a new wait on a foreign cell.
    pub(crate) fn tell_watch(&self) {
        self.lock().rush_watch();
    }

    /// Tells all threads to end; those that are in kernels are interrupted
    /// after `grace`. Waits for them.
    pub(crate) fn shut_down(&self, grace: Duration) {
        self.shutdown.store(true, Ordering::Relaxed);
        let threads = {
            let mut state = self.lock();
            state.shutdown = true;
            self.epoch.fetch_add(1, Ordering::Release);
            self.wake.notify_all();
            self.watch.notify_all();
            self.crew.notify_all();
            std::mem::take(&mut state.threads)
        };
        let until = Instant::now() + grace;
        for thread in threads {
            let mut nap = Duration::from_micros(50);
            while !thread.is_finished() {
                if Instant::now() >= until {
                    self.lock().all_slots().iter().for_each(|slot| slot.interrupt());
                }
                std::thread::sleep(nap);
                nap = (nap * 2).min(Duration::from_millis(5));
            }
            // A worker that panicked has nothing left to lose.
            let _ = thread.join();
        }
    }
}

impl State {
    /// The next task, if a thread may take one.
    fn pick(&mut self, workers: usize) -> Option<Job> {
        if self.permits == 0 {
            return None;
        }
        if let Some(bucket) = self.looks.pop_front() {
            return Some(Job::Look(bucket));
        }
        if std::mem::take(&mut self.look_foreign) {
            return Some(Job::LookForeign);
        }
        if std::mem::take(&mut self.works_first)
            && let Some(work) = self.pick_work(0)
        {
            return Some(Job::Join(work));
        }
        if let Some(queue) = self.pick_stream() {
            return Some(Job::Stream(queue));
        }
        self.pick_work(workers).map(Job::Join)
    }

    fn pick_stream(&mut self) -> Option<Arc<Queue>> {
        let queue = self.engines.begin_best()?;
        *queue.run() = (Run::Running, false);
        Some(queue)
    }

    /// A work that may be joined: one that nobody attends, or, while fewer than
    /// `workers` threads are busy, any.
    fn pick_work(&mut self, workers: usize) -> Option<Arc<Work>> {
        if !self.has_works() {
            return None;
        }
        let may_help = self.at_work() < workers;
        for works in &mut self.works {
            works.retain(|work| !work.exhausted());
            if let Some(work) = works.iter().find(|work| may_help || !work.attended()) {
                return Some(Arc::clone(work));
            }
        }
        None
    }

    /// Whether any work is listed, be it exhausted. Mostly there is none, and to ask this way costs least.
    fn has_works(&self) -> bool {
        self.works.iter().any(|works| !works.is_empty())
    }

    /// Whether a work has units left and nobody is at it.
    fn has_unattended(&self) -> bool {
        self.works.iter().flatten().any(|work| !work.exhausted() && !work.attended())
    }

    /// Threads that have a task, guests among them.
    fn at_work(&self) -> usize {
        self.busy + self.guests.present()
    }

    /// Whether a thread, ours or lent, has a task.
    fn is_busy(&self) -> bool {
        self.busy != 0 || self.guests.present() != 0 || self.crew.is_busy()
    }

    /// Of workers, guests and the crew.
    fn all_slots(&self) -> Vec<Arc<Slot>> {
        let others = self.guests.slots().chain(self.crew.slots());
        self.slots.iter().chain(others).cloned().collect()
    }

    /// Whether anything waits for a thread or for an engine.
    fn anything_waits(&self) -> bool {
        self.engines.anything_waits()
            || self.has_works() && self.works.iter().flatten().any(|work| !work.exhausted())
    }

    /// Whether another thread would find a task.
    fn has_more(&mut self, workers: usize) -> bool {
        let stream = self.engines.idle_and_wanted();
        stream || !self.looks.is_empty() || self.look_foreign || self.pick_work(workers).is_some()
    }
}
