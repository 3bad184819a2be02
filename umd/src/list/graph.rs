// SPDX-License-Identifier: MIT OR Apache-2.0
//! Executions of graphs: lists that wait for each other, with a queue of its own for each branch.
//!
//! The first list is called by the list to which the graph is appended, when the previous execution is
//! complete in all lists. Each branch that forked from it waits in its queue for the signal that begins
//! the first list, and then for values that the first list will store. So the waits for events are bound
//! first, to what the events name before the execution; then all lists get their bases; then their waits
//! for each other are bound. From the first base on nothing may fail.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

use tally_uapi::cell::CellKind;
use tally_uapi::packet::{Packet, flag};

use super::immediate::{Held, Immediate};
use super::regular::{Bindings, Regular};
use super::target::{Condition, Target};
use super::waits;
use crate::error::Result;

/// The first signal of a graph's first list: its execution has begun.
pub(super) const BEGIN: u64 = 1;

/// The packets of one execution in the list to which a graph is appended.
pub(super) struct Submission {
    /// Waits for the end of the previous execution.
    pub(super) before: Vec<Packet>,
    /// Runs the first list.
    pub(super) call: Packet,
    /// Waits for the ends of the others.
    pub(super) after: Vec<Packet>,
}

/// Lists that are executed one after the other, and their queue.
pub struct Queued {
    /// The lists before the last one, which waits for them; often none.
    pub gates: Vec<Arc<Regular>>,
    /// The last list.
    pub list: Arc<Regular>,
    /// The queue.
    pub queue: Arc<Immediate>,
}

/// The lists of an executable graph.
pub struct Execution {
    /// The graph from which it was made, for an append to another graph.
    source: Arc<dyn Any + Send + Sync>,
    first: Arc<Regular>,
    /// The lists that forked from the first one, and those of graphs that were appended to it.
    others: Vec<Queued>,
    /// Serialises the submissions of executions.
    one: Mutex<()>,
}

impl Execution {
    /// Makes an execution of these lists, which must not be executed by anything else.
    pub fn new(
        source: Arc<dyn Any + Send + Sync>,
        first: Arc<Regular>,
        others: Vec<Queued>,
    ) -> Self {
        Self { source, first, others, one: Mutex::new(()) }
    }

    /// The graph from which it was made.
    pub fn source(&self) -> Arc<dyn Any + Send + Sync> {
        self.source.clone()
    }

    /// The lists, each of which is executed once: the first one, those that forked from it, and those of graphs that were
    /// appended to it.
    pub fn lists(&self) -> impl Iterator<Item = &Regular> {
        [&self.first].into_iter().chain(self.others.iter().map(|it| &it.list)).map(|it| &**it)
    }

    /// Upper bound of the packets of an append of it.
    pub(super) fn bound(&self) -> usize {
        1 + 2 * waits::bound(self.others.len())
    }

    /// Whether an execution makes writes visible to the host before its end.
    pub(super) fn publishes(&self) -> bool {
        self.first.publishes() || self.others.iter().any(|it| it.list.publishes())
    }

    /// Submits one execution of all lists but the first; returns the packets that are left to append.
    ///
    /// # Errors
    /// INVALID_SYNCHRONIZATION_OBJECT, DEVICE_LOST, out of memory.
    pub(super) fn submit<T: Target>(&self, target: &mut T) -> Result<Submission> {
        let _one = self.one.lock().unwrap_or_else(PoisonError::into_inner);
        let bindings = self.first.bind(Regular::prepare(&[&self.first], target)?)?;
        let mut others = Vec::with_capacity(self.others.len());
        let mut held: Vec<Held<'_>> = Vec::with_capacity(self.others.len());
        for it in &self.others {
            let mut queue = it.queue.hold();
            let bound = queue.begin(it);
            held.push(queue);
            match bound {
                Ok(bindings) => others.push(bindings),
                Err(error) => {
                    held.iter_mut().for_each(Held::rollback);
                    return Err(error);
                }
            }
        }
        let first = self.first.advance();
        let begin = self.first.end_of(first).0;
        let begin = Condition::AtLeast(begin.va(), CellKind::Counter, first + BEGIN);
        let (mut before, mut after) = (Vec::new(), Vec::with_capacity(others.len()));
        let bases: Vec<Vec<u64>> =
            self.others.iter().map(|it| it.lists().map(Regular::advance).collect()).collect();
        let bound = self.others.iter().zip(held).zip(bases.into_iter().zip(others));
        for ((it, mut queue), (bases, bindings)) in bound {
            let Some(&base) = bases.last() else { continue };
            let (cell, end) = it.list.end_of(base);
            if !cell.reached(base) {
                before.push(Condition::AtLeast(cell.va(), CellKind::Counter, base));
            }
            after.push(Condition::AtLeast(cell.va(), CellKind::Counter, end));
            let lists = it.lists().zip(bases).zip(bindings);
            queue.push(begin, lists.map(|((list, base), bound)| list.call(base, bound)))?;
        }
        Ok(Submission {
            before: waits::packets(before),
            call: self.first.call(first, bindings),
            after: waits::packets(after),
        })
    }
}

impl Held<'_> {
    /// Reserves memory for an execution of lists and binds their waits for events.
    fn begin(&mut self, it: &Queued) -> Result<Vec<Bindings>> {
        let mut target = self.target();
        target.begin(2 + it.gates.len())?;
        it.lists().map(|list| list.bind(Regular::prepare(&[list], &mut target)?)).collect()
    }

    fn rollback(&mut self) {
        self.target().rollback();
    }

    /// Submits the executions one after the other; the first one waits for a condition.
    fn push(&mut self, condition: Condition, calls: impl Iterator<Item = Packet>) -> Result {
        let mut target = self.target();
        waits::packets([condition]).into_iter().for_each(|packet| target.push(packet));
        let mut calls = calls.peekable();
        while let Some(mut packet) = calls.next() {
            packet.header.flags |= flag::ORDERED;
            // The value of the last call covers all of them.
            if calls.peek().is_none()
                && let Some(post) = target.reserve()
            {
                post.attach(&mut packet);
            }
            target.push(packet);
        }
        target.commit()
    }
}

impl Queued {
    fn lists(&self) -> impl Iterator<Item = &Regular> {
        self.gates.iter().chain([&self.list]).map(|it| &**it)
    }
}

impl Drop for Execution {
    fn drop(&mut self) {
        for Queued { queue, .. } in self.others.drain(..) {
            queue.destroy();
        }
    }
}
