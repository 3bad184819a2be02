// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tasks that wait for a thread: runnable queues, works that others may join, and queues whose wake was
//! deferred.
//!
//! All three are kept in shards, each with a lock of its own. A queue always uses the same shard, and queues that
//! were made one after the other use different ones, so submissions to different queues share no lock. A word of
//! bits summarises each shard's content, so that threads find tasks without taking locks.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::queue::{PRIORITIES, Queue};
use crate::sync::{AtomicU32, Mutex, MutexGuard, Ordering, lock};
use crate::work::Work;

/// Bit of the runnable queues of a priority.
const fn runnable(priority: usize) -> u32 {
    1 << priority
}

/// Bit of the works of a priority.
const fn works(priority: usize) -> u32 {
    1 << (4 + priority)
}

/// Bits of all runnable queues.
const RUNNABLE: u32 = (1 << PRIORITIES) - 1;
/// Bits of all works.
const WORKS: u32 = RUNNABLE << 4;
/// Bit of the queues whose wake was deferred.
const DEFERRED: u32 = 1 << 8;

#[derive(Default)]
struct Lists {
    runnable: [VecDeque<Arc<Queue>>; PRIORITIES],
    works: [VecDeque<Arc<Work>>; PRIORITIES],
    deferred: Vec<Arc<Queue>>,
    /// Works that the adversarial device holds back. Their streams take them later.
    held: Vec<Arc<Work>>,
}

impl Lists {
    fn bits(&self) -> u32 {
        let mut bits = if self.deferred.is_empty() { 0 } else { DEFERRED };
        for priority in 0..PRIORITIES {
            if !self.runnable[priority].is_empty() {
                bits |= runnable(priority);
            }
            if !self.works[priority].is_empty() {
                bits |= works(priority);
            }
        }
        bits
    }
}

/// A shard, alone in its cache lines.
#[derive(Default)]
#[repr(align(128))]
struct Shard {
    bits: AtomicU32,
    lists: Mutex<Lists>,
}

/// A locked shard. Its bits are brought up to date when it is dropped.
struct Locked<'a> {
    bits: &'a AtomicU32,
    lists: MutexGuard<'a, Lists>,
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let bits = self.lists.bits();
        if self.bits.load(Ordering::Relaxed) != bits {
            self.bits.store(bits, Ordering::Release);
        }
    }
}

impl Shard {
    fn lock(&self) -> Locked<'_> {
        crate::sync::race();
        Locked { bits: &self.bits, lists: lock(&self.lists) }
    }

    fn bits(&self) -> u32 {
        self.bits.load(Ordering::Acquire)
    }
}

/// All shards of a device.
pub(super) struct Shards {
    all: Box<[Shard]>,
}

impl Shards {
    /// Shards for a device with `workers` workers.
    pub(super) fn new(workers: usize) -> Self {
        let count = workers.next_power_of_two().min(64);
        Self { all: (0..count).map(|_| Shard::default()).collect() }
    }

    fn of(&self, queue: &Queue) -> &Shard {
        &self.all[queue.serial as usize % self.all.len()]
    }

    /// The bits of all shards together.
    fn bits(&self) -> u32 {
        self.all.iter().fold(0, |bits, shard| bits | shard.bits())
    }

    /// Whether a queue is runnable and no thread has taken it. Entries of queues that helping threads have
    /// taken count until a thread looks at them.
    pub(super) fn any_runnable(&self) -> bool {
        self.bits() & RUNNABLE != 0
    }

    /// Whether a queue of a priority better than `priority` is runnable.
    pub(super) fn any_better(&self, priority: usize) -> bool {
        self.bits() & (runnable(priority) - 1) != 0
    }

    /// Whether a work may have units left.
    pub(super) fn any_works(&self) -> bool {
        self.bits() & WORKS != 0
    }

    /// Whether a queue may be deferred.
    pub(super) fn any_deferred(&self) -> bool {
        self.bits() & DEFERRED != 0
    }

    /// Adds the entry of a runnable queue, after the others of its priority.
    pub(super) fn push_back(&self, queue: &Arc<Queue>) {
        self.of(queue).lock().lists.runnable[queue.priority].push_back(Arc::clone(queue));
    }

    /// Adds the entry of a runnable queue, before the others of its priority.
    pub(super) fn push_front(&self, queue: &Arc<Queue>) {
        self.of(queue).lock().lists.runnable[queue.priority].push_front(Arc::clone(queue));
    }

    /// Takes the next runnable queue of the best priority, which the caller then streams. The search begins at
    /// shard `start`, and looks only at the first queue of each, for which `suits` has to be true.
    pub(super) fn pop(
        &self,
        start: usize,
        suits: impl Fn(&Queue) -> bool,
        mut popped: impl FnMut(&Queue),
    ) -> Option<Arc<Queue>> {
        let bits = self.bits();
        for priority in (0..PRIORITIES).filter(|&it| bits & runnable(it) != 0) {
            for shard in self.from(start) {
                if shard.bits() & runnable(priority) == 0 {
                    continue;
                }
                let mut locked = shard.lock();
                let entries = &mut locked.lists.runnable[priority];
                while entries.front().is_some_and(|queue| suits(queue))
                    && let Some(queue) = entries.pop_front()
                {
                    popped(&queue);
                    if queue.run.pop() {
                        return Some(queue);
                    }
                }
            }
        }
        None
    }

    fn from(&self, start: usize) -> impl Iterator<Item = &Shard> {
        let count = self.all.len();
        (0..count).map(move |i| &self.all[start.wrapping_add(i) % count])
    }

    /// Adds a work that others may join.
    pub(super) fn push_work(&self, work: &Arc<Work>) {
        let queue = &work.completion.queue;
        self.of(queue).lock().lists.works[queue.priority].push_back(Arc::clone(work));
    }

    /// A work that has units left and for which `suits` is true, of the best priority that has one. Drops works
    /// without units left.
    pub(super) fn find_work(
        &self,
        start: usize,
        suits: impl Fn(&Work) -> bool,
    ) -> Option<Arc<Work>> {
        let bits = self.bits();
        for priority in (0..PRIORITIES).filter(|&it| bits & works(it) != 0) {
            for shard in self.from(start) {
                if shard.bits() & works(priority) == 0 {
                    continue;
                }
                let mut locked = shard.lock();
                let works = &mut locked.lists.works[priority];
                works.retain(|work| !work.exhausted());
                if let Some(work) = works.iter().find(|work| suits(work)) {
                    return Some(Arc::clone(work));
                }
            }
        }
        None
    }

    /// Removes a work whose units are all claimed.
    pub(super) fn remove_work(&self, work: &Arc<Work>) {
        let queue = &work.completion.queue;
        let mut locked = self.of(queue).lock();
        locked.lists.works[queue.priority].retain(|other| !Arc::ptr_eq(other, work));
    }

    /// Drops the works of a queue for which `goes` is true.
    pub(super) fn dismiss_works(&self, queue: &Queue, goes: impl Fn(&Work) -> bool) {
        let mut locked = self.of(queue).lock();
        let stays = |work: &Arc<Work>| !(work.is_of(queue) && goes(work));
        locked.lists.works[queue.priority].retain(stays);
        locked.lists.held.retain(stays);
    }

    /// Whether a queue has a work without a thread whose units are not all claimed.
    pub(super) fn has_left(&self, queue: &Queue) -> bool {
        let locked = self.of(queue).lock();
        let mut works = locked.lists.works[queue.priority].iter();
        works.any(|work| work.is_of(queue) && !work.exhausted() && !work.attended())
    }

    /// Keeps a work that is held back.
    pub(super) fn hold(&self, work: Arc<Work>) {
        self.of(&work.completion.queue).lock().lists.held.push(work);
    }

    /// Takes the works of a queue that are held back, in their order.
    pub(super) fn take_held(&self, queue: &Queue) -> Vec<Arc<Work>> {
        self.of(queue).lock().lists.held.extract_if(.., |work| work.is_of(queue)).collect()
    }

    /// Adds a queue whose wake was deferred.
    pub(super) fn defer(&self, queue: &Arc<Queue>) {
        self.of(queue).lock().lists.deferred.push(Arc::clone(queue));
    }

    /// Takes the queues whose wake was deferred and for which `picks` is true. Each queue's run word says
    /// whether it still has to run.
    pub(super) fn take_deferred(&self, picks: impl Fn(&Queue) -> bool) -> Vec<Arc<Queue>> {
        let mut taken = Vec::new();
        for shard in self.all.iter().filter(|shard| shard.bits() & DEFERRED != 0) {
            taken.extend(shard.lock().lists.deferred.extract_if(.., |queue| picks(queue)));
        }
        taken
    }

    /// Drops all entries of a queue that has stopped; `dropped` is called if it was in a run queue.
    pub(super) fn forget(&self, queue: &Queue, dropped: impl FnOnce()) {
        let is_other = |other: &Arc<Queue>| !std::ptr::eq(&**other, queue);
        let mut locked = self.of(queue).lock();
        locked.lists.deferred.retain(is_other);
        let entries = &mut locked.lists.runnable[queue.priority];
        if let Some(at) = entries.iter().position(|other| !is_other(other)) {
            entries.remove(at);
            dropped();
        }
    }
}
