// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engines: which queue is streamed on each, and which wait for it.
//!
//! What is asked with every command, whether anything waits and where, is kept in a few words of bits: after
//! a sleep each line of memory that is looked at costs as much as many instructions.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::PRIORITIES;
use crate::queue::Queue;

#[derive(Debug, Default)]
struct Engine {
    /// The queue that is streamed on it.
    current: Option<Arc<Queue>>,
    ready: [VecDeque<Arc<Queue>>; PRIORITIES],
}

/// A device's engines, each by its index over all classes.
#[derive(Debug)]
pub(super) struct Engines {
    all: Box<[Engine]>,
    /// Engines that stream a queue.
    taken: Set,
    /// By priority, the engines that queues of it wait for.
    wanted: [Set; PRIORITIES],
    /// Where the search for a stream starts, so that engines take turns.
    turn: usize,
    hints: Arc<Hints>,
}

/// What is known of the engines without the scheduler's lock; by now it may be otherwise.
#[derive(Debug)]
pub(super) struct Hints {
    /// The best priority that waits for each engine, or [`PRIORITIES`].
    best: Box<[AtomicUsize]>,
    idle_and_wanted: AtomicBool,
}

impl Hints {
    /// The best priority of a queue that waits for engine `index`, or [`PRIORITIES`].
    pub(super) fn best(&self, index: usize) -> usize {
        self.best[index].load(Ordering::Relaxed)
    }

    /// Whether some engine is free while a queue waits for it.
    pub(super) fn idle_and_wanted(&self) -> bool {
        self.idle_and_wanted.load(Ordering::Relaxed)
    }
}

/// Some of the engines: bit i is engine i.
type Set = u128;

/// Most engines of a device.
pub const MAX_ENGINES: usize = Set::BITS as usize;

impl Engines {
    /// At most [`MAX_ENGINES`].
    pub(super) fn new(count: usize) -> Self {
        assert!(count <= MAX_ENGINES, "{count} engines");
        let all = (0..count).map(|_| Engine::default()).collect();
        let best = (0..count).map(|_| AtomicUsize::new(PRIORITIES)).collect();
        let hints = Arc::new(Hints { best, idle_and_wanted: AtomicBool::new(false) });
        Self { all, taken: 0, wanted: [0; PRIORITIES], turn: 0, hints }
    }

    pub(super) fn hints(&self) -> &Arc<Hints> {
        &self.hints
    }

    /// Something has changed on engine `index`.
    fn tell(&self, index: usize) {
        let best = self.best(index).unwrap_or(PRIORITIES);
        self.hints.best[index].store(best, Ordering::Relaxed);
        self.hints.idle_and_wanted.store(self.idle_and_wanted(), Ordering::Relaxed);
    }

    /// The best priority of a queue that waits for engine `index`.
    pub(super) fn best(&self, index: usize) -> Option<usize> {
        self.wanted.iter().position(|set| set & bit(index) != 0)
    }

    pub(super) fn is_free(&self, index: usize) -> bool {
        self.taken & bit(index) == 0
    }

    /// Engines that some queue waits for.
    fn wanted(&self) -> Set {
        self.wanted.iter().fold(0, |all, set| all | set)
    }

    /// Whether any queue waits for an engine.
    pub(super) fn anything_waits(&self) -> bool {
        self.wanted() != 0
    }

    /// Whether some engine is free while a queue waits for it.
    pub(super) fn idle_and_wanted(&self) -> bool {
        self.wanted() & !self.taken != 0
    }

    /// Whether queues wait for an engine that streams another.
    pub(super) fn is_contended(&self) -> bool {
        self.wanted() & self.taken != 0
    }

    /// The engines that stream a queue or are waited for, in order.
    pub(super) fn in_use(&self) -> impl Iterator<Item = usize> + use<> {
        let mut left = self.wanted() | self.taken;
        std::iter::from_fn(move || {
            let next = (left != 0).then(|| left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some(next)
        })
    }

    /// The queue that engine `index` streams.
    pub(super) fn current(&self, index: usize) -> Option<&Arc<Queue>> {
        if self.is_free(index) { None } else { self.all[index].current.as_ref() }
    }

    /// A free engine begins to stream a queue.
    pub(super) fn begin(&mut self, queue: &Arc<Queue>) {
        self.taken |= bit(queue.engine);
        self.all[queue.engine].current = Some(Arc::clone(queue));
        self.tell(queue.engine);
    }

    /// Engine `index` streams no queue any more; the one that it did.
    pub(super) fn end(&mut self, index: usize) -> Option<Arc<Queue>> {
        self.taken &= !bit(index);
        self.tell(index);
        self.all[index].current.take()
    }

    /// A queue waits for its engine, behind its equals.
    pub(super) fn push_back(&mut self, queue: &Arc<Queue>) {
        self.wanted[queue.priority] |= bit(queue.engine);
        self.all[queue.engine].ready[queue.priority].push_back(Arc::clone(queue));
        self.tell(queue.engine);
    }

    /// A queue waits for its engine, before its equals.
    pub(super) fn push_front(&mut self, queue: &Arc<Queue>) {
        self.wanted[queue.priority] |= bit(queue.engine);
        self.all[queue.engine].ready[queue.priority].push_front(Arc::clone(queue));
        self.tell(queue.engine);
    }

    /// The queue whose turn it is on engine `index`.
    pub(super) fn front(&self, index: usize) -> Option<&Arc<Queue>> {
        self.all[index].ready[self.best(index)?].front()
    }

    /// Takes that queue, and begins to stream it.
    pub(super) fn begin_front(&mut self, index: usize) -> Option<Arc<Queue>> {
        let best = self.best(index)?;
        let ready = &mut self.all[index].ready[best];
        let queue = ready.pop_front();
        if ready.is_empty() {
            self.wanted[best] &= !bit(index);
        }
        self.begin(queue.as_ref()?);
        queue
    }

    /// A queue waits for its engine no longer.
    pub(super) fn remove(&mut self, queue: &Arc<Queue>) {
        let ready = &mut self.all[queue.engine].ready[queue.priority];
        ready.retain(|other| !Arc::ptr_eq(other, queue));
        if ready.is_empty() {
            self.wanted[queue.priority] &= !bit(queue.engine);
        }
        self.tell(queue.engine);
    }

    /// Begins to stream the best queue that waits for a free engine; of equals, engines take turns.
    pub(super) fn begin_best(&mut self) -> Option<Arc<Queue>> {
        let free = self.wanted.iter().map(|set| set & !self.taken).find(|&set| set != 0)?;
        let behind = free & !(bit(self.turn) - 1);
        let index = if behind != 0 { behind } else { free }.trailing_zeros() as usize;
        self.turn = (index + 1) % self.all.len();
        self.begin_front(index)
    }
}

fn bit(index: usize) -> Set {
    1 << index
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::testing;
    use super::*;
    use crate::VmId;
    use crate::queue::VmState;

    /// A queue of `engine` with `priority`.
    fn queue(engine: usize, priority: usize) -> Arc<Queue> {
        let queue = testing::queue(&Arc::new(VmState::new(VmId(1))));
        let mut queue = Arc::into_inner(queue).unwrap();
        (queue.engine, queue.priority) = (engine, priority);
        Arc::new(queue)
    }

    /// What the bits are to say, from the queues themselves.
    fn agrees(engines: &Engines) {
        for (index, engine) in engines.all.iter().enumerate() {
            assert_eq!(engines.is_free(index), engine.current.is_none());
            let best = engine.ready.iter().position(|it| !it.is_empty());
            assert_eq!(engines.best(index), best);
            assert_eq!(engines.hints.best(index), best.unwrap_or(PRIORITIES));
        }
        assert_eq!(engines.hints.idle_and_wanted(), engines.idle_and_wanted());
        let used = |engine: &Engine| {
            engine.current.is_some() || engine.ready.iter().any(|it| !it.is_empty())
        };
        let used: Vec<_> = (0..engines.all.len()).filter(|&i| used(&engines.all[i])).collect();
        assert_eq!(engines.in_use().collect::<Vec<_>>(), used);
    }

    #[test]
    fn the_bits_are_what_the_queues_are() {
        let mut engines = Engines::new(MAX_ENGINES);
        let queues: Vec<_> = (0..400).map(|i| queue(i * 7 % MAX_ENGINES, i % PRIORITIES)).collect();
        let mut seed = 1u64;
        for _ in 0..20_000 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let queue = &queues[(seed >> 33) as usize % queues.len()];
            match seed >> 60 {
                0..5 => engines.push_back(queue),
                5 => engines.push_front(queue),
                6..9 => engines.remove(queue),
                9..12 => _ = engines.end(queue.engine),
                12 if engines.is_free(queue.engine) => _ = engines.begin_front(queue.engine),
                _ => _ = engines.begin_best(),
            }
            agrees(&engines);
        }
    }

    #[test]
    fn the_best_comes_first_and_equals_take_turns() {
        let mut engines = Engines::new(3);
        let (low, high) = (queue(0, 1), queue(2, 0));
        engines.push_back(&low);
        engines.push_back(&high);
        assert!(Arc::ptr_eq(&engines.begin_best().unwrap(), &high));
        assert!(Arc::ptr_eq(&engines.begin_best().unwrap(), &low));
        assert!(engines.begin_best().is_none() && !engines.anything_waits());
        let mut engines = Engines::new(3);
        let mut seen = HashSet::new();
        for _ in 0..3 {
            (0..3).for_each(|engine| engines.push_back(&queue(engine, 1)));
            let engine = engines.begin_best().unwrap().engine;
            engines.end(engine);
            seen.insert(engine);
        }
        assert_eq!(seen.len(), 3, "an engine came twice before another had its turn");
    }

    #[test]
    fn a_queue_waits_behind_its_equals_or_before_them() {
        let mut engines = Engines::new(1);
        let [first, second, third] = [0; 3].map(|_| queue(0, 1));
        engines.push_back(&second);
        engines.push_back(&third);
        engines.push_front(&first);
        for expected in [&first, &second, &third] {
            assert!(Arc::ptr_eq(engines.front(0).unwrap(), expected));
            assert!(engines.is_free(0) && engines.idle_and_wanted());
            assert!(Arc::ptr_eq(&engines.begin_front(0).unwrap(), expected));
            assert_eq!(engines.is_contended(), !Arc::ptr_eq(expected, &third));
            assert!(Arc::ptr_eq(&engines.end(0).unwrap(), expected));
        }
        assert!(engines.front(0).is_none());
    }
}
