// SPDX-License-Identifier: MIT OR Apache-2.0
//! Timestamps: the slot for a command's times, and the ownership of its memory.

use std::ptr;
use std::sync::Arc;

use tally_uapi::packet::TimestampSlot;

use crate::submit::arena::Chunk;

/// A slot for the times of one command, and the memory that contains it.
///
/// Events share the slot of the append that they name. It is reused only when no event shares it and the
/// command is complete.
#[derive(Clone, Debug)]
pub struct Timestamp {
    chunk: Arc<Chunk>,
    va: u64,
}

impl Timestamp {
    /// The slot at `va`, which lies in `chunk`.
    pub fn new(chunk: Arc<Chunk>, va: u64) -> Self {
        debug_assert!(va.is_multiple_of(8) && chunk.holds(va, size_of::<TimestampSlot>() as u64));
        Self { chunk, va }
    }

    /// The slot's address.
    pub fn va(&self) -> u64 {
        self.va
    }

    /// The memory that contains it.
    pub fn chunk(&self) -> Arc<Chunk> {
        self.chunk.clone()
    }

    /// The times. Before the command is complete they are all zero or those of an earlier use.
    pub fn read(&self) -> TimestampSlot {
        debug_assert!(self.chunk.holds(self.va, size_of::<TimestampSlot>() as u64));
        // SAFETY: the slot lies in the chunk, which this keeps mapped; any bits are a slot, and the
        // device writes it before the signal that the caller has waited for.
        unsafe { ptr::with_exposed_provenance::<TimestampSlot>(self.va as usize).read_volatile() }
    }
}
