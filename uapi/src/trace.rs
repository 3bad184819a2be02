// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The device's records of the commands that it has run, for the queue's owner.
//!
//! `device/SPEC.md`, chapter "Traces". The buffer is memory of the queue's own VM, so it does not
//! reveal to other processes what the VM's queues do.

use crate::sync::AtomicU64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of a [`TraceRecord`], and the alignment of a buffer.
pub const TRACE_RECORD_SIZE: u64 = 64;

/// The start of a trace buffer; `records` records follow it. Reader and device write different cache
/// lines.
///
/// `claimed` and `taken` count records since the buffer was made and never wrap; record `i` is in
/// place `i % records`.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct TraceBuffer {
    /// Records that the device has begun to write. Written by the device.
    pub claimed: AtomicU64,
    /// Commands without a record, for lack of room. Written by the device.
    pub dropped: AtomicU64,
    pad0: [u64; 6],
    /// Records that the reader is done with. Written by the reader.
    pub taken: AtomicU64,
    /// Places for records; 0: none. Written by the reader, before a queue names the buffer.
    pub records: AtomicU64,
    pad1: [u64; 6],
}

/// One command that has done its work, or one wait that blocked its queue.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct TraceRecord {
    /// The record's number, from 1 on. Written last, with release: once it is set, the record is complete.
    pub sequence: u64,
    /// [`trace_tag`](crate::queue::QueueControl::trace_tag) of the queue.
    pub tag: u64,
    /// VA of the kernel's entry; 0 for all but DISPATCH.
    pub entry: u64,
    /// Device ticks when its work started, or when the queue was parked.
    pub start: u64,
    /// Device ticks when its work was done, before its post-sync operation, or when the wait was met.
    pub end: u64,
    /// VA of the cell that it signals by a post-sync operation (a CALL without one: by its counter), or
    /// waits for; 0: none.
    pub cell: u64,
    /// The value that it stores or adds there, or the least value that ends the wait.
    pub value: u64,
    /// [`opcode`](crate::packet::opcode).
    pub opcode: u8,
    /// [`PostOp`](crate::packet::PostOp) of the signal, where there is a cell.
    pub post_op: u8,
    /// Zero.
    pub zero: u16,
    /// Lower half of the index of the ring packet (in a recording, of its CALL).
    pub packet: u32,
}

#[cfg(not(any(loom, shuttle)))]
const _: () = {
    assert!(core::mem::size_of::<TraceBuffer>() == 128);
    assert!(core::mem::offset_of!(TraceBuffer, taken) == 64);
    assert!(core::mem::size_of::<TraceRecord>() as u64 == TRACE_RECORD_SIZE);
};
