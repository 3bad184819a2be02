// SPDX-License-Identifier: MIT OR Apache-2.0
//! The data by which `work.rs` completes a command.

use crate::sync::{AtomicU64, lock};
use std::sync::Arc;

use tally_uapi::packet::PostOp;

use super::{Queue, Scope};

/// A post-sync operation with the base already added.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PostSync {
    pub(crate) op: PostOp,
    pub(crate) address: u64,
    pub(crate) value: u64,
}

/// The data that completes a command once its work is done.
#[derive(Debug)]
pub(crate) struct Completion {
    pub(crate) queue: Arc<Queue>,
    pub(crate) scope: Arc<Scope>,
    pub(crate) post: Option<PostSync>,
    /// VA of the timestamp slot, or 0.
    pub(crate) stamp: u64,
    /// Index of the ring packet.
    pub(crate) packet: u64,
    pub(crate) opcode: u8,
    /// VA of the kernel's entry; 0 for all but a DISPATCH.
    pub(crate) entry: u64,
    /// Device ticks and the queue's own time at the start, if they are wanted.
    /// The thread that starts the work writes them, the one that completes it reads them.
    pub(crate) start: [AtomicU64; 2],
}

/// The end of a CALL of a queue.
pub(crate) type CallEnd = crate::scope::CallEnd<Completion>;

impl CallEnd {
    /// The signal of the CALL itself.
    pub(crate) fn post(&self) -> Option<PostSync> {
        lock(&self.command).as_ref().and_then(|command| command.post)
    }
}
