// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The admin ring: the kernel module's requests to the device, and the two pages
//! that they share.
//!
//! `device/SPEC.md`, chapters "The admin ring" and "Interrupts". Addresses of
//! memory are bus addresses, VAs are addresses in a VM.

use crate::cell::WAITERS;
use crate::ioctl::{DeviceInfo, EngineInfo};
use crate::sync::{AtomicU32, AtomicU64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Maximum number of VMs on the device. Ids are 1 to this.
pub const MAX_VMS: u32 = 255;
/// Slots of the answers: one for each VM id, and slot 0 for commands without a VM.
pub const ANSWERS: u32 = MAX_VMS + 1;
/// Maximum number of queues on the device. Ids are 1 to this.
pub const MAX_QUEUES: u32 = 4095;
/// Maximum number of extents of one [`op::VM_MAP`]: a page of them.
pub const MAX_EXTENTS: u32 = 256;
/// Minimum number of commands of an admin ring.
pub const RING_MIN: u32 = 16;
/// Maximum number of commands of an admin ring.
pub const RING_MAX: u32 = 1024;

/// [`Command::opcode`].
pub mod op {
    /// Nothing.
    pub const NOP: u32 = 0;
    /// Writes an [`super::Identity`] to `args[0]`, a page.
    pub const IDENTIFY: u32 = 1;
    /// Creates VM `vm`; `args[0]`: first VA of its window, `args[1]`: bytes.
    pub const VM_CREATE: u32 = 2;
    /// Ends VM `vm` and its queues. When answered, the device touches none of its pages.
    pub const VM_DESTROY: u32 = 3;
    /// Maps `args[1]` bytes at VA `args[0]` of VM `vm`, over what is mapped there:
    /// `args[3]` extents at `args[2]`, a page of [`super::Extent`]; `flags` of
    /// [`super::map_flag`].
    pub const VM_MAP: u32 = 4;
    /// Unmaps `args[1]` bytes at VA `args[0]` of VM `vm`. When answered, the device
    /// touches none of these pages.
    pub const VM_UNMAP: u32 = 5;
    /// Creates queue `queue` of VM `vm`: `args[0]` VA of the ring, `args[1]` VA of the
    /// control page, `args[2]` packets, `args[3]` engine class, `args[4]` engine
    /// index, `args[5]` priority ([`crate::ioctl::priority`]).
    pub const QUEUE_CREATE: u32 = 6;
    /// Stops queue `queue` of VM `vm`, as described in `SPEC.md`, chapter 10.
    pub const QUEUE_DESTROY: u32 = 7;
    /// Queries the state of queue `queue` of VM `vm`: see [`super::query_value`].
    pub const QUEUE_QUERY: u32 = 8;
    /// Orphans the cells in `args[1]` bytes at VA `args[0]` of VM `vm`, as described in
    /// `SPEC.md`, chapter 6, until the range is unmapped.
    pub const VM_ORPHAN: u32 = 9;
}

/// Maximum number of ranges of orphaned cells of a VM; adjacent ranges count as one.
pub const MAX_ORPHANS: usize = 1024;

/// [`Command::flags`] of [`op::VM_MAP`]: access as in [`crate::ioctl::bind_flag`], and NULL.
pub mod map_flag {
    /// Packets and kernels may read.
    pub const READ: u32 = 1 << 0;
    /// Packets and kernels may write.
    pub const WRITE: u32 = 1 << 1;
    /// Kernels' code; never together with WRITE.
    pub const EXECUTE: u32 = 1 << 2;
    /// No extents: the device's own memory, which begins as zero and is discarded.
    pub const NULL: u32 = 1 << 3;
    /// All bits that have a meaning.
    pub const ALL: u32 = READ | WRITE | EXECUTE | NULL;
}

/// A command. Unused fields are zero.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct Command {
    /// One of [`op`].
    pub opcode: u32,
    /// Bits that belong to the opcode.
    pub flags: u32,
    /// The VM, chosen by the driver.
    pub vm: u32,
    /// The queue, chosen by the driver.
    pub queue: u32,
    /// The meaning of each depends on the opcode.
    pub args: [u64; 6],
}

/// [`Answer::status`].
pub mod answer_status {
    /// Done.
    pub const OK: u32 = 0;
    /// A field has no meaning, or an address is not the guest's memory.
    pub const INVALID: u32 = 1;
    /// No such VM or queue.
    pub const NO_ENTRY: u32 = 2;
    /// The id is in use.
    pub const EXISTS: u32 = 3;
    /// The VM is lost.
    pub const LOST: u32 = 4;
    /// A limit of the device is reached: pieces of mappings, NULL memory, orphaned ranges, processes, threads.
    pub const NO_SPACE: u32 = 5;
}

/// The answer to a command, in the slot of its VM.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct Answer {
    /// Values of the opcode; zero if it has none.
    pub values: [u64; 7],
    /// One of [`answer_status`].
    pub status: u32,
    /// The command's number + 1, modulo 2^32; written last, with release.
    pub sequence: u32,
}

/// Indices in [`Answer::values`] of [`op::QUEUE_QUERY`].
pub mod query_value {
    /// [`crate::ioctl::queue_state`] in the lower half, [`crate::fault::FaultKind`] or 0 in the upper.
    pub const STATE: usize = 0;
    /// The address that the fault names.
    pub const FAULT_ADDRESS: usize = 1;
    /// Index of the ring packet that faulted.
    pub const FAULT_PACKET: usize = 2;
    /// VA of the cell that the queue is parked on, or 0.
    pub const PARKED_ADDRESS: usize = 3;
    /// The value that it waits for there.
    pub const PARKED_VALUE: usize = 4;
    /// Ring packets consumed.
    pub const HEAD: usize = 5;
    /// Time on an engine, in ns.
    pub const BUSY_NS: usize = 6;
}

/// A piece of the guest's memory. Both page-aligned; bytes not 0.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct Extent {
    /// Bus address.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Engine classes that [`Identity`] has room for.
pub const IDENTITY_ENGINES: usize = 4;
/// Bytes of [`Identity::target`].
pub const IDENTITY_TARGET: usize = 3968;

/// The page that [`op::IDENTIFY`] writes.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct Identity {
    /// Facts. `memory_bytes` is 0, since the memory belongs to the guest and the module limits it.
    pub device: DeviceInfo,
    /// Engine classes in `engines`.
    pub engine_classes: u32,
    /// Bytes used of `target`.
    pub target_bytes: u32,
    /// The engines of each class.
    pub engines: [EngineInfo; IDENTITY_ENGINES],
    /// The answer to QUERY TARGET.
    pub target: [u8; IDENTITY_TARGET],
}

/// The page in which sleepers outside a VM announce to its engine that they sleep.
/// Written by the module and by the device, never by an engine process.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct WaitersPage {
    /// The number of sleepers on cells of each bucket ([`crate::cell::waiters_index`]).
    pub waiters: [AtomicU32; WAITERS],
}

/// The page in which the device reports the causes of its interrupts. The module
/// takes bits by exchanging words with 0.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct StatusPage {
    /// Bit set of buckets in which a cell was written while a waiter slept there.
    pub signalled: [AtomicU64; WAITERS / 64],
    /// Bit set of VMs that became lost.
    pub lost: [AtomicU64; 4],
    /// Answers written since ENABLE.
    pub answered: AtomicU64,
    /// Interrupts raised since ENABLE.
    pub interrupts: AtomicU64,
}

#[cfg(not(any(loom, shuttle)))]
const _: () = {
    assert!(core::mem::size_of::<Command>() == 64);
    assert!(core::mem::size_of::<Answer>() == 64);
    assert!(ANSWERS as usize * core::mem::size_of::<Answer>() == 4 * 4096);
    assert!(core::mem::offset_of!(Answer, sequence) == 60);
    assert!(core::mem::size_of::<Extent>() == 16);
    assert!(core::mem::size_of::<Identity>() == 4096);
    assert!(core::mem::size_of::<WaitersPage>() == 4096);
    assert!(core::mem::size_of::<StatusPage>() == 4096);
    assert!(core::mem::offset_of!(StatusPage, lost) == 64);
    assert!(core::mem::offset_of!(StatusPage, answered) == 96);
};
