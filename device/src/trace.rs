// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the device tells a listener about the commands that it runs.

use crate::QueueId;

/// What a command did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandKind {
    /// NOP.
    Nop,
    /// A whole CALL, from its start to its last command's end.
    Call,
    /// DISPATCH.
    Dispatch,
    /// COPY.
    Copy,
    /// COPY_REGION.
    CopyRegion,
    /// FILL.
    Fill,
}

/// One command that has completed.
#[derive(Clone, Copy, Debug)]
pub struct CommandRecord {
    /// Its queue.
    pub queue: QueueId,
    /// Its engine: compute engines first, then copy engines.
    pub engine: usize,
    /// What it did.
    pub kind: CommandKind,
    /// VA of the kernel's entry; 0 for anything but a DISPATCH.
    pub entry: u64,
    /// Index of the ring packet (for a recording, of its CALL).
    pub packet: u64,
    /// Device ticks when it started.
    pub start: u64,
    /// Device ticks when its work was done, before its post-sync operation.
    pub end: u64,
}

/// A listener. Called on worker threads, with no lock held; it must not block.
pub trait Sink: Send + Sync {
    /// A command has done its work.
    fn command(&self, record: &CommandRecord);
}
