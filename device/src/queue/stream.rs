// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fetching state of a queue, which the engine keeps from packet to packet.

use std::sync::Arc;

use tally_uapi::packet::{Operand, Packet};

use super::Scope;
use crate::cell::CellWait;
use crate::config::QueueConfig;
use crate::guard::Guard;
use crate::ring::{Ahead, Ring};

/// The fetching side of a queue: everything that only its streaming worker
/// touches.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) ring: Ring,
    /// The ring's scope.
    pub(crate) scope: Arc<Scope>,
    /// The CALL that is being run.
    pub(crate) frame: Option<Frame>,
    /// The packet that was fetched last.
    pub(crate) packet: Packet,
    /// Whether that packet has not been taken yet.
    pub(crate) pending: bool,
    pub(crate) prefix: Prefix,
    /// The number of commands that the adversarial device has not let start yet. The scheduler
    /// keeps them.
    pub(crate) held: usize,
    /// The packet before which it has made the queue leave its engine.
    pub(crate) yielded: Option<u64>,
    /// The wait that has parked the queue; only while a trace is wanted.
    pub(crate) parked: Option<ParkedWait>,
}

/// A wait that has parked a queue, for its trace record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParkedWait {
    pub(crate) wait: CellWait,
    /// Time of parking, in ticks.
    pub(crate) since: u64,
    /// Index of the ring packet.
    pub(crate) packet: u64,
}

/// The prefixes of the next command: STAMP and PREDICATE.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Prefix {
    /// VA of the timestamp slot, or 0.
    pub(crate) stamp: u64,
    /// Index and VA of the count.
    pub(crate) predicate: Option<(u32, u64)>,
}

/// A CALL that is being run.
#[derive(Debug)]
pub(crate) struct Frame {
    /// The packets from the next one on.
    pub(crate) packets: Ahead,
    pub(crate) base: u64,
    pub(crate) operands: Vec<Operand>,
    pub(crate) scope: Arc<Scope>,
}

impl Stream {
    pub(crate) fn new(config: &QueueConfig) -> Self {
        Self {
            ring: Ring::new(config.ring, config.packets, config.control),
            scope: Arc::new(Scope::ring()),
            frame: None,
            packet: Packet::default(),
            pending: false,
            prefix: Prefix::default(),
            held: 0,
            yielded: None,
            parked: None,
        }
    }

    /// Whether there is a packet in the ring.
    pub(crate) fn has_more(&self, guard: &mut Guard) -> bool {
        self.ring.lookout().has_news(guard)
    }
}
