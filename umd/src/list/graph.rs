// SPDX-License-Identifier: MIT OR Apache-2.0
//! Executions of graphs: lists that wait for each other, each on a queue of its own.
//!
//! The first list is called by the list that the graph is appended to, when the execution before it
//! is complete in all lists. Whatever forked from it waits in its queue for the signal that begins the
//! first list, and then for values that the first list is about to count. So waits for events are bound
//! first, to what these name before the execution; then all lists get their bases; then their waits for
//! each other are bound. From the first base on nothing may fail.

use std::sync::{Arc, Mutex, PoisonError};

use tally_uapi::cell::CellKind;
use tally_uapi::packet::{Packet, flag};

use super::command::Target;
use super::immediate::{Held, Immediate};
use super::regular::{Bindings, Regular};
use super::waits::{self, Condition};
use crate::error::Result;

/// The first signal of a graph's first list: its execution has begun.
pub(super) const BEGIN: u64 = 1;

/// What the list that a graph is appended to has to do for an execution.
pub(super) struct Submission {
    /// Waits for the end of the execution before it.
    pub(super) before: Vec<Packet>,
    /// Runs the first list.
    pub(super) call: Packet,
    /// Waits for the ends of the others.
    pub(super) after: Vec<Packet>,
}

/// The lists of an executable graph.
pub struct Execution {
    first: Arc<Regular>,
    /// Those that forked from it, and their queues.
    others: Vec<(Arc<Regular>, Arc<Immediate>)>,
    /// Executions are submitted one after the other.
    one: Mutex<()>,
}

impl Execution {
    /// What executes these lists, which nobody else executes.
    pub fn new(first: Arc<Regular>, others: Vec<(Arc<Regular>, Arc<Immediate>)>) -> Self {
        Self { first, others, one: Mutex::new(()) }
    }

    /// Packets that an append of it takes at most.
    pub(super) fn bound(&self) -> usize {
        1 + 2 * waits::bound(self.others.len())
    }

    /// Whether an execution makes something visible to the host before its end.
    pub(super) fn publishes(&self) -> bool {
        self.first.publishes() || self.others.iter().any(|(list, _)| list.publishes())
    }

    /// Submits one execution of all lists but the first; answers what is left to do.
    ///
    /// # Errors
    /// INVALID_SYNCHRONIZATION_OBJECT, DEVICE_LOST, out of memory.
    pub(super) fn submit<T: Target>(&self, target: &mut T) -> Result<Submission> {
        let _one = self.one.lock().unwrap_or_else(PoisonError::into_inner);
        let bindings = self.first.bind(Regular::prepare(&[&self.first], target)?)?;
        let mut others = Vec::with_capacity(self.others.len());
        let mut held: Vec<Held<'_>> = Vec::with_capacity(self.others.len());
        for (list, queue) in &self.others {
            let mut queue = queue.hold();
            let bound = queue.begin(list);
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
        let bases: Vec<u64> = self.others.iter().map(|(list, _)| list.advance()).collect();
        let bound = self.others.iter().zip(held).zip(bases.into_iter().zip(others));
        for (((list, _), mut queue), (base, bindings)) in bound {
            let (cell, end) = list.end_of(base);
            if !cell.reached(base) {
                before.push(Condition::AtLeast(cell.va(), CellKind::Counter, base));
            }
            after.push(Condition::AtLeast(cell.va(), CellKind::Counter, end));
            queue.push(begin, list.call(base, bindings))?;
        }
        Ok(Submission {
            before: waits::packets(before),
            call: self.first.call(first, bindings),
            after: waits::packets(after),
        })
    }
}

impl Held<'_> {
    /// Makes room for an execution of a list, and binds its waits for events.
    fn begin(&mut self, list: &Regular) -> Result<Bindings> {
        let mut target = self.target();
        target.begin(2)?;
        list.bind(Regular::prepare(&[list], &mut target)?)
    }

    fn rollback(&mut self) {
        self.target().rollback();
    }

    /// Submits the execution, which waits for a condition.
    fn push(&mut self, condition: Condition, mut packet: Packet) -> Result {
        let mut target = self.target();
        waits::packets([condition]).into_iter().for_each(|packet| target.push(packet));
        packet.header.flags |= flag::ORDERED;
        if let Some(post) = target.promise() {
            post.attach(&mut packet);
        }
        target.push(packet);
        target.commit()
    }
}

impl Drop for Execution {
    fn drop(&mut self) {
        for (_, queue) in self.others.drain(..) {
            queue.destroy();
        }
    }
}
