// SPDX-License-Identifier: MIT OR Apache-2.0
//! Executions of graphs: lists that wait for each other, each on a queue of its own.
//!
//! The first list is called by the list that the graph is appended to; whatever forked from it waits
//! in its queue for the value that the first list is about to count. So all lists of an execution get
//! their bases before any of their waits is bound, and nothing may fail in between.

use std::sync::{Arc, Mutex, PoisonError};

use tally_uapi::cell::CellKind;
use tally_uapi::packet::{Packet, flag};

use super::command::Target;
use super::immediate::{Held, Immediate};
use super::regular::Regular;
use super::waits::{self, Condition};
use crate::error::Result;

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
        1 + waits::bound(self.others.len())
    }

    /// Whether an execution makes something visible to the host before its end.
    pub(super) fn publishes(&self) -> bool {
        self.first.publishes() || self.others.iter().any(|(list, _)| list.publishes())
    }

    /// Submits one execution of all lists but the first; answers the packet that runs the first, and
    /// those that wait for the ends of the others.
    ///
    /// # Errors
    /// INVALID_SYNCHRONIZATION_OBJECT, DEVICE_LOST, out of memory.
    pub(super) fn submit<T: Target>(&self, target: &mut T) -> Result<(Packet, Vec<Packet>)> {
        let _one = self.one.lock().unwrap_or_else(PoisonError::into_inner);
        let mut calls = Regular::prepare(&[&self.first], target)?;
        let mut held: Vec<Held<'_>> = Vec::with_capacity(self.others.len());
        let mut others = Vec::with_capacity(self.others.len());
        for (list, queue) in &self.others {
            let mut queue = queue.hold();
            let prepared = queue.begin(list);
            held.push(queue);
            match prepared {
                Ok(calls) => others.push(calls),
                Err(error) => {
                    held.iter_mut().for_each(Held::rollback);
                    return Err(error);
                }
            }
        }
        let base = self.first.advance();
        let bases: Vec<u64> = self.others.iter().map(|(list, _)| list.advance()).collect();
        let first = self.first.call(base, &mut calls)?;
        let mut ends = Vec::with_capacity(bases.len());
        for (i, (list, _)) in self.others.iter().enumerate() {
            held[i].push(list.call(bases[i], &mut others[i])?)?;
            let (cell, value) = list.end_of(bases[i]);
            ends.push(Condition::AtLeast(cell.va(), CellKind::Counter, value));
        }
        Ok((first, waits::packets(ends)))
    }
}

impl Held<'_> {
    /// Makes room for an execution of a list.
    fn begin(&mut self, list: &Regular) -> Result<super::regular::Calls> {
        let mut target = self.target();
        target.begin(1)?;
        Regular::prepare(&[list], &mut target)
    }

    fn rollback(&mut self) {
        self.target().rollback();
    }

    /// Submits the execution.
    fn push(&mut self, mut packet: Packet) -> Result {
        let mut target = self.target();
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
