// SPDX-License-Identifier: GPL-2.0
//! Queues, and their time on engines.

use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::Arc;
use tally_uapi::firmware::{query_value, Answer};

use super::vm::Vm;
use crate::table::{Closed, Entry, Owner};

/// Names of engine classes, by their index in QUERY ENGINES.
pub(crate) const CLASSES: [&str; 2] = ["compute", "copy"];

/// Time of a client's queues on engines, in ns, by class. It only grows, even when queues end.
pub(crate) struct EngineTime([Atomic<u64>; CLASSES.len()]);

impl EngineTime {
    /// No time.
    pub(crate) const fn new() -> Self {
        Self([const { Atomic::new(0) }; CLASSES.len()])
    }

    /// The sums, in the order of [`CLASSES`].
    pub(crate) fn ns(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().map(|sum| sum.load(Relaxed))
    }

    /// Adds time of a queue of that class.
    pub(crate) fn add(&self, class: u32, ns: u64) {
        if let Some(sum) = self.0.get(class as usize) {
            sum.add(ns, Relaxed);
        }
    }
}

/// A ring that an engine reads.
pub(crate) struct Queue {
    id: u32,
    vm: Arc<Vm>,
    class: u32,
    closed: Closed,
    /// Time on its engine in the device's last answer, in ns.
    busy_ns: Atomic<u64>,
    /// Whether a reader of fdinfo is asking for that time.
    asked: Atomic<bool>,
    /// Its client's time, to which that time was added.
    engine_time: Arc<EngineTime>,
}

impl Entry for Queue {
    fn id(&self) -> u32 {
        self.id
    }

    fn owner(&self) -> Owner {
        self.vm.owner()
    }

    fn closed(&self) -> &Closed {
        &self.closed
    }
}

impl Queue {
    /// A queue of `vm` on an engine of `class`, whose time is added to `engine_time`.
    ///
    /// # Errors
    /// ENOMEM.
    pub(crate) fn new(
        id: u32,
        vm: Arc<Vm>,
        class: u32,
        engine_time: Arc<EngineTime>,
    ) -> Result<Arc<Self>> {
        let (closed, busy_ns, asked) = (Closed::new(), Atomic::new(0), Atomic::new(false));
        let queue = Self {
            id,
            vm,
            class,
            closed,
            busy_ns,
            asked,
            engine_time,
        };
        Ok(Arc::new(queue, GFP_KERNEL_ACCOUNT)?)
    }

    /// The id, which device and client use.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// The address space of its packets.
    pub(crate) fn vm(&self) -> &Arc<Vm> {
        &self.vm
    }

    /// The file that made it.
    pub(crate) fn owner_id(&self) -> u64 {
        self.vm.owner_id()
    }

    /// Engine class.
    pub(crate) fn class(&self) -> u32 {
        self.class
    }

    /// Whether its owner has ended it, or its VM.
    pub(crate) fn ended(&self) -> bool {
        self.closed.is() || self.vm.ended()
    }

    /// Time on its engine in the device's last answer, in ns.
    pub(crate) fn busy_ns(&self) -> u64 {
        self.busy_ns.load(Relaxed)
    }

    /// Ends it for its owner. False if it was ended before.
    pub(crate) fn close(&self) -> bool {
        self.closed.close()
    }

    /// Notes that its time is being asked for. False if it was being asked for already.
    pub(crate) fn begin_asking(&self) -> bool {
        !self.asked.xchg(true, Relaxed)
    }

    /// Notes that its time is not being asked for any more.
    pub(crate) fn end_asking(&self) {
        self.asked.store(false, Relaxed);
    }

    /// Keeps the time in the device's answer, and adds the increase to the client's time.
    pub(crate) fn note(&self, answer: &Answer) {
        self.end_asking();
        let now = answer.values[query_value::BUSY_NS];
        let mut before = self.busy_ns();
        // An answer that later ones have overtaken adds nothing.
        while before < now {
            match self.busy_ns.cmpxchg(before, now, Relaxed) {
                Ok(_) => return self.engine_time.add(self.class, now - before),
                Err(other) => before = other,
            }
        }
    }
}
