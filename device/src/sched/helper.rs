// SPDX-License-Identifier: MIT OR Apache-2.0
//! Helping threads: host threads that wait for the device and work for it meanwhile.
//!
//! Handing a command to another thread and being notified of its end takes two thread switches if both share a
//! processor, and two wakes if they do not: longer than a short command. So a host thread that waits without a
//! time limit streams the queues whose doorbells it has rung itself, then other queues that wait for a thread,
//! and joins works that others share. It takes only commands that it can leave soon or whose end it waits for,
//! and leaves as soon as its awaited value is reached.
//!
//! **It cannot deadlock on itself.** A kernel may wait for something that the thread does after its wait. So a
//! helping thread runs a kernel only if its own wait lasts until that kernel's end anyway: the kernel's signal,
//! or a later one of the same queue, is the awaited value. Everything else that it runs ends by itself: copies
//! and fills, between whose pieces it looks at the awaited value. It takes no lock that outlasts a step, and
//! never waits for another thread.
//!
//! **It leaves nothing unattended.** It leaves a queue that it has taken as any owner does: idle after the
//! sleep handshake of SPEC.md, parked, draining, or runnable with an entry in a run queue and a worker woken for
//! it. A work that it leaves with units left and without a thread gets a worker. It promotes queues whose wake
//! was deferred for it when it takes another queue and when it leaves. And if a command takes long, the watchdog
//! takes the stream from it as from a worker that is stuck.

use crate::sync::Instant;
use crate::sync::{Counter, Ordering};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use super::elision::{self, RECENT};
use super::worker::FIRST_HELPER;
use super::{Sched, Shared, Slot, Worker};
use crate::cell::CellWait;
use crate::eu::Arena;
use crate::guard::{Guard, Loan};
use crate::queue::{Queue, Stream};
use crate::spin::Spin;
use crate::work::Work;

/// The resources that a host thread needs to help. It keeps them for its next wait.
struct Kit {
    /// The device that the slot belongs to. It is kept, since all threads of a program would contend for its
    /// reference count if each wait changed it.
    shared: Arc<Shared>,
    loan: Loan,
    arena: Arena,
    slot: OwnSlot,
}

/// The slot of a helping thread, marked as gone on drop.
struct OwnSlot(Arc<Slot>);

impl Drop for OwnSlot {
    fn drop(&mut self) {
        self.0.gone.store(true, Ordering::Relaxed);
    }
}

crate::sync::thread_local! {
    #[allow(clippy::missing_const_for_thread_local, reason = "shuttle's macro knows no const")]
    static KIT: RefCell<Option<Kit>> = RefCell::new(None);
}

impl Kit {
    /// The calling thread's kit for this device. None: too many threads of the process help.
    fn take(shared: &Arc<Shared>) -> Option<Self> {
        let kept = KIT.try_with(RefCell::take).ok()?;
        kept.filter(|kit| Arc::ptr_eq(&kit.shared, shared)).or_else(|| Self::new(shared))
    }

    fn new(shared: &Arc<Shared>) -> Option<Self> {
        static NUMBERS: Counter = Counter::new(FIRST_HELPER as u64);
        let loan = Loan::take()?;
        let number = NUMBERS.next() as usize;
        let slot = Arc::new(Slot::new(number, loan.record()));
        let mut pool = shared.sched.pool();
        pool.helpers.retain(|slot| !slot.gone.load(Ordering::Relaxed));
        pool.helpers.push(Arc::clone(&slot));
        drop(pool);
        let slot = OwnSlot(slot);
        let arena = Arena::new(shared.group_memory);
        Some(Self { shared: Arc::clone(shared), loan, arena, slot })
    }

    /// Keeps it until the thread waits again, or ends.
    fn keep(self) {
        // A thread that is about to end drops it instead.
        let _ = KIT.try_with(|kept| kept.replace(Some(self)));
    }
}

impl Sched {
    /// Lets the calling thread help until `awaited` is met (true), or until there was nothing for it to do for
    /// `limit` (false). None: it cannot help. `stream` is a [`StreamQueue`](super::StreamQueue); its own type
    /// makes the call a direct one, on the shortest path of a command.
    pub(crate) fn help(
        &self,
        shared: &Arc<Shared>,
        awaited: CellWait,
        limit: Duration,
        stream: impl Fn(&mut Worker, &Arc<Queue>, Option<Box<Stream>>),
    ) -> Option<bool> {
        // The adversarial device's decisions must depend only on the submitted packets.
        if shared.chaos.is_some() || !Guard::has_room() {
            return None;
        }
        let Kit { shared: own, loan, arena, slot } = Kit::take(shared)?;
        elision::comes(shared);
        let recent = elision::recent(shared);
        let guard = loan.begin();
        let mut worker = Worker::new(own, guard, arena, Arc::clone(&slot.0), Some(awaited));
        let met = worker.help(shared, &recent, limit, stream);
        let Worker { shared: own, guard, arena, .. } = worker;
        drop(guard);
        Kit { shared: own, loan, arena, slot }.keep();
        self.promote_deferred(shared, &recent);
        Some(met)
    }

    /// Gives the queues that were deferred for this thread and that it has not taken to workers.
    pub(super) fn promote_deferred(&self, shared: &Arc<Shared>, recent: &Recent) {
        for queue in recent.iter().flatten().filter(|queue| queue.run.is_deferred()) {
            self.promote(shared, queue);
        }
    }

    /// A queue for a helping thread, whose last command was short. The thread's own queues are first, including
    /// one at which a worker lingers: on a busy machine that worker may not run for a while.
    fn offer(
        &self,
        worker: &mut Worker,
        recent: &Recent,
    ) -> Option<(Arc<Queue>, Option<Box<Stream>>)> {
        let lingers = self.lingering().load(Ordering::Relaxed) != 0;
        for queue in recent.iter().flatten().filter(|queue| queue.is_brisk()) {
            if queue.run.take() {
                return Some((Arc::clone(queue), None));
            }
            if lingers && let Some(stream) = queue.take_lingering(&mut worker.guard) {
                return Some((Arc::clone(queue), Some(stream)));
            }
        }
        if !self.shards.any_runnable() {
            return None;
        }
        self.pop(worker.slot.index, Queue::is_brisk).map(|queue| (queue, None))
    }

    /// A work for a helping thread.
    fn offer_work(&self, worker: &Worker) -> Option<Arc<Work>> {
        let awaited = worker.awaited.filter(|_| self.shards.any_works())?;
        self.shards.find_work(worker.slot.index, |work| {
            (work.attendants() < self.workers || work.can_be_left())
                && work.suits_helper(&worker.shared.times, awaited)
        })
    }
}

/// The queues whose doorbells a thread has rung last.
pub(super) type Recent = [Option<Arc<Queue>>; RECENT];

impl Worker {
    /// Whether this is a helping host thread.
    pub(crate) fn is_helper(&self) -> bool {
        self.awaited.is_some()
    }

    /// Whether this is a helping thread that may leave. A cell that cannot be read counts as met.
    pub(crate) fn awaited_is_met(&mut self) -> bool {
        let Self { shared, guard, awaited, .. } = self;
        awaited.is_some_and(|awaited| awaited.met(guard, &shared.sem).unwrap_or(true))
    }

    /// `shared` is the worker's own.
    fn help(
        &mut self,
        shared: &Arc<Shared>,
        recent: &Recent,
        limit: Duration,
        stream: impl Fn(&mut Self, &Arc<Queue>, Option<Box<Stream>>),
    ) -> bool {
        /// Turns between two looks at works that may not suit this thread, each of which takes a lock.
        const WORKS_EVERY: u32 = 16;
        // Set when there is first nothing to do: mostly there is, and reading clocks costs time.
        let mut until = None;
        let mut spin = Spin::default();
        let mut turns = 0_u32;
        while !self.awaited_is_met() {
            if let Some((queue, taken)) = shared.sched.offer(self, recent) {
                // Other deferred queues do not wait for this thread's return.
                shared.sched.promote_deferred(shared, recent);
                self.begins_task();
                stream(self, &queue, taken);
                (until, turns) = (None, 0);
                continue;
            }
            if turns.is_multiple_of(WORKS_EVERY)
                && let Some(work) = shared.sched.offer_work(self)
            {
                self.begins_task();
                shared.sched.call_others(shared, &work);
                work.join(self, Self::awaited_is_met);
                if !work.exhausted() && !work.attended() {
                    shared.sched.wake(shared, usize::MAX);
                }
                (until, turns) = (None, 0);
                continue;
            }
            turns += 1;
            let now = Instant::now();
            if now >= *until.get_or_insert(now + limit) {
                return false;
            }
            spin.turn();
        }
        true
    }

    fn begins_task(&mut self) {
        self.slot.preempt.store(false, Ordering::Relaxed);
        self.slot.stuck.store(false, Ordering::Relaxed);
    }
}
