// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queues and address spaces: the state that the scheduler, the engines and the
//! semaphore unit share.

use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Counter, Ordering};
use crate::sync::{Mutex, MutexGuard};
use std::sync::{Arc, OnceLock, PoisonError, Weak};

use tally_uapi::fault::Fault;

use crate::cell::CellWait;
use crate::config::{QueueConfig, QueueState, QueueStatus};
use crate::guard::Guard;
use crate::host::{QueueId, VmId};
use crate::trace::Trace;

mod completion;
mod run;
mod stream;
#[cfg(test)]
pub(crate) mod testing;

pub(crate) use completion::{CallEnd, Completion, PostSync};
pub(crate) use run::{Bell, Enqueue, Run, RunWord};
pub(crate) use stream::{Frame, ParkedWait, Prefix, Stream};

/// A scope of a queue's commands.
pub(crate) type Scope = crate::scope::Scope<Completion>;

/// An address space: queues that live and are lost together.
#[derive(Debug)]
pub(crate) struct VmState {
    pub(crate) id: VmId,
    lost: AtomicBool,
    queues: Mutex<Vec<Weak<Queue>>>,
}

impl VmState {
    pub(crate) fn new(id: VmId) -> Self {
        Self { id, lost: AtomicBool::new(false), queues: Mutex::new(Vec::new()) }
    }

    pub(crate) fn lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }

    /// Marks it lost. True for the first caller.
    pub(crate) fn lose(&self) -> bool {
        !self.lost.swap(true, Ordering::SeqCst)
    }

    /// Adds a new queue. Removes queues that are gone before the list would grow.
    pub(crate) fn add(&self, queue: &Arc<Queue>) {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if queues.len() == queues.capacity() {
            queues.retain(|queue| queue.strong_count() != 0);
        }
        queues.push(Arc::downgrade(queue));
    }

    /// The queues that exist now.
    pub(crate) fn queues(&self) -> Vec<Arc<Queue>> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.retain(|queue| queue.strong_count() != 0);
        queues.iter().filter_map(Weak::upgrade).collect()
    }
}

/// The place of a queue's stream. The thread that takes it out owns the fetching.
#[derive(Debug)]
enum Place {
    /// At rest: the next worker that streams the queue takes it.
    Home(Box<Stream>),
    /// The worker of this number runs a command of the queue itself. It takes
    /// the stream back afterwards, unless the command lasts so long that the
    /// watchdog takes the stream first.
    Exposed(Box<Stream>, usize),
    /// The worker of this number polls the empty ring. It takes the stream back
    /// afterwards, unless a helping thread takes it first.
    Lingering(Box<Stream>, usize),
    /// A worker has it.
    Taken,
}

/// A queue's own time, which runs while an engine or a worker is busy with it.
#[derive(Debug, Default)]
struct OwnTime {
    users: usize,
    since: u64,
    total: u64,
}

/// Priorities of queues: 0 is the highest.
pub(crate) const PRIORITIES: usize = 3;

/// A queue.
///
/// It is alone in its cache lines: some fields change with every packet, and the embedded driver's objects,
/// which host threads write at the same time, are in the same heap.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Queue {
    pub(crate) id: QueueId,
    /// A number that is unique among the queues of all devices of the process; aborts name queues by it.
    pub(crate) serial: u64,
    pub(crate) vm: Arc<VmState>,
    /// Whether its engine runs kernels.
    pub(crate) compute: bool,
    /// 0 is the highest.
    pub(crate) priority: usize,
    /// Pieces of work that may still touch client memory.
    work: AtomicUsize,
    stopping: AtomicBool,
    /// Whether its last command suited helping threads: a prediction for the next one.
    brisk: AtomicBool,
    /// Whether its last command suited several threads: a prediction, too.
    wide: AtomicBool,
    fault: OnceLock<Fault>,
    pub(crate) head: AtomicU64,
    pub(crate) trace: Trace,
    /// Its state, and the lists that contain it.
    pub(crate) run: RunWord,
    /// The cell that it waits for while it is parked.
    parked: Mutex<Option<CellWait>>,
    /// The worker that streamed it last.
    last_worker: AtomicUsize,
    /// The time in ticks when its wake was last deferred, and whether the host thread did not arrive in time.
    deferred_at: AtomicU64,
    missed: AtomicBool,
    stream: Mutex<Place>,
    time: Mutex<OwnTime>,
}

static SERIALS: Counter = Counter::new(1);

impl Queue {
    pub(crate) fn new(config: &QueueConfig, vm: Arc<VmState>, compute: bool) -> Self {
        let stream = Box::new(Stream::new(config));
        Self {
            id: config.id,
            serial: SERIALS.next(),
            vm,
            compute,
            priority: config.priority as usize,
            work: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            brisk: AtomicBool::new(false),
            wide: AtomicBool::new(false),
            fault: OnceLock::new(),
            head: AtomicU64::new(0),
            trace: Trace::default(),
            run: RunWord::new(),
            parked: Mutex::new(None),
            last_worker: AtomicUsize::new(usize::MAX),
            deferred_at: AtomicU64::new(0),
            missed: AtomicBool::new(false),
            stream: Mutex::new(Place::Home(stream)),
            time: Mutex::new(OwnTime::default()),
        }
    }

    /// The cell that it waits for, if it is parked or about to be.
    pub(crate) fn parked(&self) -> Option<CellWait> {
        *self.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the cell that it is about to be parked on.
    pub(crate) fn set_parked(&self, wait: CellWait) {
        *self.parked.lock().unwrap_or_else(PoisonError::into_inner) = Some(wait);
    }

    /// The worker that streamed it last, or a number that no worker has.
    pub(crate) fn last_worker(&self) -> usize {
        self.last_worker.load(Ordering::Relaxed)
    }

    /// Notes the thread that begins to stream it.
    pub(crate) fn set_last_worker(&self, index: usize) {
        if self.last_worker() != index {
            self.last_worker.store(index, Ordering::Relaxed);
        }
    }

    /// The time in ticks when its wake was last deferred.
    pub(crate) fn deferred_at(&self) -> u64 {
        self.deferred_at.load(Ordering::Relaxed)
    }

    /// Notes that its wake is deferred at `now`.
    pub(crate) fn set_deferred_at(&self, now: u64) {
        self.deferred_at.store(now, Ordering::Relaxed);
    }

    /// Notes that the host thread did not arrive in time for it.
    pub(crate) fn set_missed(&self) {
        self.missed.store(true, Ordering::Relaxed);
    }

    /// Whether the host thread did not arrive in time since the last call.
    pub(crate) fn take_missed(&self) -> bool {
        self.missed.load(Ordering::Relaxed) && self.missed.swap(false, Ordering::Relaxed)
    }

    /// Whether no packet may be taken any more.
    pub(crate) fn must_stop(&self) -> bool {
        self.stopping.load(Ordering::SeqCst) || self.vm.lost()
    }

    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
    }

    pub(crate) fn stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Keeps the first fault.
    pub(crate) fn set_fault(&self, fault: Fault) {
        // A second fault is dropped: SPEC.md, chapter 9.
        let _ = self.fault.set(fault);
    }

    pub(crate) fn work_starts(&self) {
        self.work.fetch_add(1, Ordering::Relaxed);
    }

    /// Called after a command's last access to client memory. True if a thread waits for it.
    pub(crate) fn work_ends(&self) -> bool {
        self.work.fetch_sub(1, Ordering::SeqCst);
        self.stopping()
    }

    pub(crate) fn has_work(&self) -> bool {
        self.work.load(Ordering::SeqCst) != 0
    }

    fn place(&self) -> MutexGuard<'_, Place> {
        crate::sync::race();
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the stream that is at rest.
    pub(crate) fn take_stream(&self) -> Option<Box<Stream>> {
        let mut place = self.place();
        match std::mem::replace(&mut *place, Place::Taken) {
            Place::Home(stream) => Some(stream),
            other => {
                *place = other;
                None
            }
        }
    }

    /// Puts the stream to rest.
    pub(crate) fn put_stream(&self, stream: Box<Stream>) {
        *self.place() = Place::Home(stream);
    }

    /// Leaves the stream where the watchdog can take it, while `worker` is busy.
    pub(crate) fn expose_stream(&self, stream: Box<Stream>, worker: usize) {
        *self.place() = Place::Exposed(stream, worker);
    }

    /// Leaves the stream where a helping thread can take it, while `worker` polls the
    /// empty ring.
    pub(crate) fn linger_stream(&self, stream: Box<Stream>, worker: usize) {
        *self.place() = Place::Lingering(stream, worker);
    }

    /// Takes the stream from a worker that lingers, if a packet has arrived.
    pub(crate) fn take_lingering(&self, guard: &mut Guard) -> Option<Box<Stream>> {
        if !self.is_brisk() {
            return None;
        }
        let mut place = self.place();
        match std::mem::replace(&mut *place, Place::Taken) {
            Place::Lingering(stream, _) if stream.has_more(guard) => Some(stream),
            other => {
                *place = other;
                None
            }
        }
    }

    /// Whether the next command is likely to be short, or one that can be left soon.
    pub(crate) fn is_brisk(&self) -> bool {
        self.brisk.load(Ordering::Relaxed)
    }

    pub(crate) fn set_brisk(&self, brisk: bool) {
        self.brisk.store(brisk, Ordering::Relaxed);
    }

    /// Whether the next command is likely to suit several threads.
    pub(crate) fn is_wide(&self) -> bool {
        self.wide.load(Ordering::Relaxed)
    }

    pub(crate) fn set_wide(&self, wide: bool) {
        self.wide.store(wide, Ordering::Relaxed);
    }

    /// Takes the stream back for `worker`. None if the watchdog or a helping thread has taken it.
    pub(crate) fn reclaim_stream(&self, worker: usize) -> Option<Box<Stream>> {
        let mut place = self.place();
        match std::mem::replace(&mut *place, Place::Taken) {
            Place::Exposed(stream, by) | Place::Lingering(stream, by) if by == worker => {
                Some(stream)
            }
            other => {
                *place = other;
                None
            }
        }
    }

    /// Drops the stream of a destroyed queue. A CALL in progress refers back to the
    /// queue, so without this neither would ever be freed.
    pub(crate) fn drop_stream(&self) {
        let stream = std::mem::replace(&mut *self.place(), Place::Taken);
        drop(stream);
    }

    /// Takes the stream from `worker`, which is stuck, and puts it to rest.
    pub(crate) fn steal_stream(&self, worker: usize) -> bool {
        match self.reclaim_stream(worker) {
            Some(stream) => {
                self.put_stream(stream);
                true
            }
            None => false,
        }
    }

    /// Starts its own time at `now`, unless it runs already.
    pub(crate) fn time_starts(&self, now: u64) {
        let mut time = self.time.lock().unwrap_or_else(PoisonError::into_inner);
        if time.users == 0 {
            time.since = now;
        }
        time.users += 1;
    }

    /// Undoes one [`Self::time_starts`].
    pub(crate) fn time_stops(&self, now: u64) {
        let mut time = self.time.lock().unwrap_or_else(PoisonError::into_inner);
        time.users = time.users.saturating_sub(1);
        if time.users == 0 {
            time.total += now.saturating_sub(time.since);
        }
    }

    /// Its own time, in ticks.
    pub(crate) fn own_time(&self, now: u64) -> u64 {
        let time = self.time.lock().unwrap_or_else(PoisonError::into_inner);
        let running = if time.users == 0 { 0 } else { now.saturating_sub(time.since) };
        time.total + running
    }

    /// A snapshot for QUEUE_QUERY.
    pub(crate) fn status(&self, now: u64) -> QueueStatus {
        let (state, parked) = match self.run.get() {
            _ if self.vm.lost() => (QueueState::Stopped, None),
            Run::Idle if self.has_work() => (QueueState::Running, None),
            Run::Idle => (QueueState::Idle, None),
            Run::Runnable | Run::Running | Run::Draining => (QueueState::Running, None),
            Run::Parked => {
                (QueueState::Parked, self.parked().map(|wait| (wait.address, wait.value)))
            }
            Run::Stopped => (QueueState::Stopped, None),
        };
        QueueStatus {
            state,
            fault: self.fault.get().copied(),
            parked,
            works: self.has_work(),
            head: self.head.load(Ordering::Relaxed),
            busy_ns: self.own_time(now),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::testing::queue;
    use super::*;

    #[test]
    fn a_vm_forgets_queues_that_are_gone() {
        let vm = Arc::new(VmState::new(VmId(1)));
        let kept = queue(&vm);
        vm.add(&kept);
        for _ in 0..10_000 {
            vm.add(&queue(&vm));
        }
        assert!(vm.queues.lock().unwrap().capacity() < 100);
        assert_eq!(vm.queues().len(), 1);
    }

    #[test]
    fn only_the_worker_that_exposed_a_stream_reclaims_it() {
        let queue = queue(&Arc::new(VmState::new(VmId(1))));
        let stream = queue.take_stream().unwrap();
        assert!(queue.take_stream().is_none());
        queue.expose_stream(stream, 1);
        assert!(queue.reclaim_stream(2).is_none() && !queue.steal_stream(2));
        // The watchdog takes it from worker 1; worker 3 streams and exposes it.
        assert!(queue.steal_stream(1));
        let stream = queue.take_stream().unwrap();
        queue.expose_stream(stream, 3);
        assert!(queue.reclaim_stream(1).is_none(), "it is not worker 1's any more");
        assert!(queue.reclaim_stream(3).is_some());
    }

    #[test]
    fn own_time_runs_while_anybody_is_busy_with_the_queue() {
        let queue = queue(&Arc::new(VmState::new(VmId(1))));
        queue.time_starts(100);
        queue.time_starts(110);
        queue.time_stops(120);
        assert_eq!(queue.own_time(125), 25);
        queue.time_stops(130);
        assert_eq!(queue.own_time(500), 30);
        queue.time_starts(600);
        assert_eq!(queue.own_time(605), 35);
    }
}
