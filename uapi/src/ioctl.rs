// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The ioctls: structs, numbers, flags and errors. `UAPI.md` says what each does.
//!
//! Every struct has the same layout for 32 and 64-bit callers. A field named
//! `pad` or `reserved`, and every flag bit without a name, must be zero.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Name of the DRM driver.
pub const DRIVER_NAME: &str = "tally";
/// Major version: changes when an old caller would break.
pub const VERSION_MAJOR: u32 = 0;
/// Minor version: grows when something is added.
pub const VERSION_MINOR: u32 = 3;

/// First DRM command number that belongs to drivers.
const COMMAND_BASE: u32 = 0x40;

/// An ioctl's argument, and with it its number.
pub trait Ioctl: FromBytes + IntoBytes + KnownLayout + Immutable + Copy {
    /// Number within the driver.
    const NUMBER: u32;
    /// Name in reports.
    const NAME: &'static str;
    /// The request number on Linux: read and write, type 'd'.
    const REQUEST: u32 = 3 << 30
        | (core::mem::size_of::<Self>() as u32) << 16
        | (b'd' as u32) << 8
        | (COMMAND_BASE + Self::NUMBER);
}

/// Error numbers that the ioctls answer, as positive Linux errno values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Errno {
    /// No such handle, id or binding.
    NoEntry = 2,
    /// A wait was interrupted by a signal.
    Interrupted = 4,
    /// The VM is lost.
    Io = 5,
    /// No such file descriptor.
    BadFile = 9,
    /// Out of host memory.
    NoMemory = 12,
    /// The buffer is another client's, who shares it to be read only.
    Access = 13,
    /// A pointer does not point to readable (or writable) memory.
    Fault = 14,
    /// In use: another binding or queue needs it.
    Busy = 16,
    /// Exists already.
    Exists = 17,
    /// The device is gone.
    NoDevice = 19,
    /// A field, flag or combination that has no meaning.
    Invalid = 22,
    /// A limit of the module or the device is reached.
    NoSpace = 28,
    /// Known, but not on this lane.
    NotSupported = 95,
    /// The time-out passed first.
    TimedOut = 62,
}

impl Errno {
    /// The symbolic name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoEntry => "ENOENT",
            Self::Interrupted => "EINTR",
            Self::Io => "EIO",
            Self::BadFile => "EBADF",
            Self::NoMemory => "ENOMEM",
            Self::Access => "EACCES",
            Self::Fault => "EFAULT",
            Self::Busy => "EBUSY",
            Self::Exists => "EEXIST",
            Self::NoDevice => "ENODEV",
            Self::Invalid => "EINVAL",
            Self::NoSpace => "ENOSPC",
            Self::NotSupported => "EOPNOTSUPP",
            Self::TimedOut => "ETIME",
        }
    }

    /// The errno whose number is `raw`, where the ioctls answer it.
    pub const fn from_raw(raw: i32) -> Option<Self> {
        Some(match raw {
            2 => Self::NoEntry,
            4 => Self::Interrupted,
            5 => Self::Io,
            9 => Self::BadFile,
            12 => Self::NoMemory,
            13 => Self::Access,
            14 => Self::Fault,
            16 => Self::Busy,
            17 => Self::Exists,
            19 => Self::NoDevice,
            22 => Self::Invalid,
            28 => Self::NoSpace,
            62 => Self::TimedOut,
            95 => Self::NotSupported,
            _ => return None,
        })
    }
}

/// QUERY: what a [`Query`] asks for.
pub mod query {
    /// One [`super::DeviceInfo`].
    pub const DEVICE: u32 = 0;
    /// An array of [`super::EngineInfo`], one an engine class.
    pub const ENGINES: u32 = 1;
    /// The execution units' CPU as LLVM names it: `name` NUL `features` NUL.
    pub const TARGET: u32 = 2;
    /// One [`super::ClockPair`], sampled now.
    pub const CLOCK: u32 = 3;
}

/// QUERY: facts of the device.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct Query {
    /// One of [`query`].
    pub what: u32,
    /// In: bytes at `data`. Out: bytes that the answer has.
    pub size: u32,
    /// User address of the answer; 0 asks for `size` alone.
    pub data: u64,
    /// Zero.
    pub reserved: u64,
}

/// The answer to QUERY DEVICE.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct DeviceInfo {
    /// Names the device, the same in all processes and in later runs.
    pub uuid: [u8; 16],
    /// PCI vendor id, or that of the embedded device.
    pub vendor_id: u32,
    /// PCI device id, likewise.
    pub device_id: u32,
    /// Execution units.
    pub execution_units: u32,
    /// Lanes of 32 bits in an execution unit.
    pub simd_lanes: u32,
    /// Clock of an execution unit, in MHz.
    pub core_clock_mhz: u32,
    /// Bytes of a cache line.
    pub cache_line_bytes: u32,
    /// Memory that buffers may use in all, in bytes.
    pub memory_bytes: u64,
    /// Last-level cache, in bytes.
    pub cache_bytes: u64,
    /// Device ticks per second.
    pub clock_hz: u64,
    /// Lowest VA that a VM may start at.
    pub va_start: u64,
    /// First VA beyond those that a VM may hold.
    pub va_end: u64,
    /// Most VMs of a client.
    pub max_vms: u32,
    /// Most queues of a client.
    pub max_queues: u32,
}

/// The capabilities of an engine class: bits of [`EngineInfo::capabilities`].
pub mod engine_capability {
    /// DISPATCH.
    pub const COMPUTE: u32 = 1 << 0;
    /// COPY, COPY_REGION and FILL.
    pub const COPY: u32 = 1 << 1;
}

/// One entry of the answer to QUERY ENGINES. The class is the entry's index.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct EngineInfo {
    /// Bits of [`engine_capability`].
    pub capabilities: u32,
    /// Engines of this class.
    pub count: u32,
}

/// The answer to QUERY CLOCK: the same moment on two clocks.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct ClockPair {
    /// CLOCK_MONOTONIC, in ns.
    pub host_ns: u64,
    /// The device's clock, in ticks.
    pub device_ticks: u64,
}

/// BO_CREATE: bits of [`BoCreate::flags`].
pub mod bo_flag {
    /// Clients that import the buffer can read it, not write it.
    pub const IMPORT_READ_ONLY: u32 = 1 << 0;
    /// All bits that have a meaning.
    pub const ALL: u32 = IMPORT_READ_ONLY;
}

/// BO_CREATE: a buffer.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct BoCreate {
    /// Bytes, a multiple of the page size, not 0.
    pub size: u64,
    /// Bits of [`bo_flag`].
    pub flags: u32,
    /// Out: the handle.
    pub handle: u32,
}

/// BO_INFO: a buffer's size, and the offset at which the render node maps it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct BoInfo {
    /// The handle.
    pub handle: u32,
    /// Zero.
    pub pad: u32,
    /// Out: bytes.
    pub size: u64,
    /// Out: offset for mmap of the render node.
    pub mmap_offset: u64,
}

/// VM_CREATE: a GPU address space.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct VmCreate {
    /// First VA of the window, page-aligned.
    pub start: u64,
    /// Bytes of the window, a multiple of the page size.
    pub size: u64,
    /// Zero.
    pub flags: u32,
    /// Out: the VM's id, not 0.
    pub vm_id: u32,
}

/// VM_DESTROY: ends a VM and its queues.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct VmDestroy {
    /// The VM.
    pub vm_id: u32,
    /// Zero.
    pub pad: u32,
}

/// VM_BIND: what to do with a range of VAs.
pub mod bind_op {
    /// Maps a buffer.
    pub const MAP: u32 = 0;
    /// Unmaps whatever is mapped.
    pub const UNMAP: u32 = 1;
    /// Maps the caller's own memory at the same or another VA.
    pub const MAP_USERPTR: u32 = 2;
    /// Maps memory that reads as zero and forgets writes.
    pub const MAP_NULL: u32 = 3;
}

/// VM_BIND: access of the device to a mapping.
pub mod bind_flag {
    /// Packets and kernels may read.
    pub const READ: u32 = 1 << 0;
    /// Packets and kernels may write.
    pub const WRITE: u32 = 1 << 1;
    /// Kernels' code; never together with WRITE.
    pub const EXECUTE: u32 = 1 << 2;
    /// All bits that have a meaning.
    pub const ALL: u32 = READ | WRITE | EXECUTE;
}

/// VM_BIND: most fences that a change waits for, and most points that are told of it.
pub const BIND_MAX_POINTS: u32 = 16;

/// VM_BIND: a point of a DRM sync object. Since 0.3.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct BindPoint {
    /// The sync object.
    pub handle: u32,
    /// Zero.
    pub pad: u32,
    /// The point of a timeline; zero for a binary sync object.
    pub point: u64,
}

/// VM_BIND: changes a VM's mappings; without fences to wait for, done when it returns.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct VmBind {
    /// The VM.
    pub vm_id: u32,
    /// One of [`bind_op`].
    pub op: u32,
    /// Bits of [`bind_flag`]; 0 for UNMAP.
    pub flags: u32,
    /// The buffer of MAP; else 0.
    pub handle: u32,
    /// MAP: offset in the buffer. MAP_USERPTR: the caller's address. Else 0. Page-aligned.
    pub offset: u64,
    /// First VA, page-aligned.
    pub address: u64,
    /// Bytes, a multiple of the page size, not 0.
    pub size: u64,
    /// User address of an array of [`BindPoint`]: the fences that the change waits for. Since 0.3.
    pub waits: u64,
    /// User address of an array of [`BindPoint`]: the points that are told once it is made. Since 0.3.
    pub signals: u64,
    /// Elements of `waits`, at most [`BIND_MAX_POINTS`].
    pub wait_count: u32,
    /// Elements of `signals`, at most [`BIND_MAX_POINTS`].
    pub signal_count: u32,
    /// The buffer of the word that takes the outcome, or 0.
    pub status_handle: u32,
    /// Zero.
    pub pad: u32,
    /// Offset of that word, a multiple of 8.
    pub status_offset: u64,
}

/// QUEUE_CREATE: priorities, as [`QueueCreate::priority`].
pub mod priority {
    /// Runs before NORMAL.
    pub const HIGH: u32 = 0;
    /// The default.
    pub const NORMAL: u32 = 1;
    /// Runs when nothing else is runnable.
    pub const LOW: u32 = 2;
}

/// QUEUE_CREATE: a ring that an engine reads.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct QueueCreate {
    /// The VM whose addresses the packets use.
    pub vm_id: u32,
    /// Engine class: index in QUERY ENGINES.
    pub engine_class: u32,
    /// The index of the engine in its class.
    pub engine_index: u32,
    /// One of [`priority`].
    pub priority: u32,
    /// VA of the ring, 64-byte aligned.
    pub ring: u64,
    /// VA of the control page ([`crate::queue::QueueControl`]), page-aligned.
    pub control: u64,
    /// Packets in the ring, a power of two.
    pub packets: u32,
    /// Zero.
    pub flags: u32,
    /// Out: the queue's id, not 0.
    pub queue_id: u32,
    /// Zero.
    pub pad: u32,
}

/// QUEUE_DESTROY: stops a queue. What it has not completed is never completed.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct QueueDestroy {
    /// The queue.
    pub queue_id: u32,
    /// Zero.
    pub pad: u32,
}

/// QUEUE_QUERY: values of [`QueueQuery::state`].
pub mod queue_state {
    /// Nothing to do.
    pub const IDLE: u32 = 0;
    /// Runnable or running.
    pub const RUNNING: u32 = 1;
    /// Waits for a cell.
    pub const PARKED: u32 = 2;
    /// Stopped: it faulted, or its VM is lost.
    pub const STOPPED: u32 = 3;
}

/// QUEUE_QUERY: what a queue does.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct QueueQuery {
    /// The queue.
    pub queue_id: u32,
    /// Out: one of [`queue_state`].
    pub state: u32,
    /// Out: a [`crate::fault::FaultKind`] if this queue faulted, else 0.
    pub fault_kind: u32,
    /// Zero.
    pub pad: u32,
    /// Out: the address that the fault names.
    pub fault_address: u64,
    /// Out: index of the ring packet that faulted.
    pub fault_packet: u64,
    /// Out: VA of the cell that the queue is parked on, or 0.
    pub parked_address: u64,
    /// Out: the value that it waits for there.
    pub parked_value: u64,
    /// Out: ring packets consumed.
    pub head: u64,
    /// Out: time on an engine, in ns.
    pub busy_ns: u64,
}

/// QUEUE_KICK: the device sleeps and has to look at the ring.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct QueueKick {
    /// The queue.
    pub queue_id: u32,
    /// Zero.
    pub pad: u32,
}

/// SEM_WAIT: bits of [`SemWait::flags`].
pub mod sem_wait_flag {
    /// Any entry ends the wait, not all of them.
    pub const ANY: u32 = 1 << 0;
    /// Does not sleep: makes a file that poll says is readable once the wait is met. Since 0.3.
    pub const FILE: u32 = 1 << 1;
    /// All bits that have a meaning.
    pub const ALL: u32 = ANY | FILE;
}

/// Most entries of a SEM_WAIT.
pub const SEM_WAIT_MAX_ENTRIES: u32 = 64;

/// SEM_WAIT: sleeps until cells are met.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct SemWait {
    /// User address of an array of [`SemWaitEntry`].
    pub entries: u64,
    /// Entries, 1 to [`SEM_WAIT_MAX_ENTRIES`].
    pub count: u32,
    /// Bits of [`sem_wait_flag`].
    pub flags: u32,
    /// Absolute CLOCK_MONOTONIC time in ns; 0 or the past asks only, the
    /// largest value never times out. With FILE it is 0.
    pub timeout_ns: i64,
    /// A VM whose loss ends the wait with EIO, or 0.
    pub vm_id: u32,
    /// Out: the first entry that is met. With FILE the new file descriptor.
    pub index: u32,
}

/// One cell of a SEM_WAIT.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct SemWaitEntry {
    /// The buffer that holds the cell.
    pub handle: u32,
    /// A [`crate::cell::Compare`].
    pub compare: u32,
    /// Offset of the cell, a multiple of 8.
    pub offset: u64,
    /// Value to compare with.
    pub value: u64,
}

/// SEM_NOTIFY: the kinds of targets, for [`SemNotify::kind`].
pub mod notify_kind {
    /// An eventfd, to which 1 is added.
    pub const EVENTFD: u32 = 0;
    /// A DRM sync object, whose point gets a fence that has signalled.
    pub const SYNCOBJ: u32 = 1;
}

/// SEM_NOTIFY: tells a target once when cells are met, or will not be. Since 0.3.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct SemNotify {
    /// User address of an array of [`SemWaitEntry`].
    pub entries: u64,
    /// Entries, 1 to [`SEM_WAIT_MAX_ENTRIES`].
    pub count: u32,
    /// ANY of [`sem_wait_flag`], or 0.
    pub flags: u32,
    /// A VM whose loss ends the wait, or 0.
    pub vm_id: u32,
    /// One of [`notify_kind`].
    pub kind: u32,
    /// The file descriptor of the eventfd, or the handle of the sync object.
    pub target: u32,
    /// Zero.
    pub pad: u32,
    /// The point of a timeline. Zero for a binary sync object, and for an eventfd.
    pub point: u64,
}

/// SEM_FOLLOW: the kinds of fences, for [`SemFollow::kind`].
pub mod follow_kind {
    /// That of a sync file.
    pub const SYNC_FILE: u32 = 0;
    /// That of a DRM sync object, or of one of its points.
    pub const SYNCOBJ: u32 = 1;
}

/// SEM_FOLLOW: bits of [`SemFollow::flags`].
pub mod follow_flag {
    /// The fence's status is stored, too, before the value.
    pub const STATUS: u32 = 1 << 0;
    /// All bits that have a meaning.
    pub const ALL: u32 = STATUS;
}

/// SEM_FOLLOW: a cell takes a value once a fence of the kernel has signalled. Since 0.3.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct SemFollow {
    /// The buffer that holds the cell.
    pub handle: u32,
    /// Bits of [`follow_flag`].
    pub flags: u32,
    /// Offset of the cell, a multiple of 8.
    pub offset: u64,
    /// The value that the cell takes, unless it holds a larger one.
    pub value: u64,
    /// With STATUS, the offset of the word that takes the fence's status, a multiple of 8. Otherwise zero.
    pub status_offset: u64,
    /// One of [`follow_kind`].
    pub kind: u32,
    /// The file descriptor of the sync file, or the handle of the sync object.
    pub source: u32,
    /// The point of a timeline. Zero for a binary sync object, and for a sync file.
    pub point: u64,
}

/// SEM_WAKE: the host has written a cell; queues and hosts that wait for it look again.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct SemWake {
    /// The buffer that holds the cell, or 0: all foreign cells are read again.
    pub handle: u32,
    /// Zero.
    pub pad: u32,
    /// Offset of the cell, a multiple of 8; 0 without a buffer.
    pub offset: u64,
}

/// VM_ORPHAN: these cells can no longer be signalled.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct VmOrphan {
    /// The VM whose queues wait for them.
    pub vm_id: u32,
    /// Zero.
    pub pad: u32,
    /// VA of the first cell, a multiple of 8.
    pub address: u64,
    /// Bytes, a multiple of 8, not 0.
    pub size: u64,
}

macro_rules! ioctls {
    ($($number:literal $name:literal $type:ident $size:literal),* $(,)?) => {
        $(
            const _: () = assert!(core::mem::size_of::<$type>() == $size);
            impl Ioctl for $type {
                const NUMBER: u32 = $number;
                const NAME: &'static str = $name;
            }
        )*
        /// Every ioctl: its number within the driver, its name, its size in bytes.
        pub const IOCTLS: &[(u32, &str, usize)] = &[$(($number, $name, $size)),*];
    };
}
ioctls! {
    0x00 "QUERY" Query 24,
    0x01 "BO_CREATE" BoCreate 16,
    0x02 "BO_INFO" BoInfo 24,
    0x03 "VM_CREATE" VmCreate 24,
    0x04 "VM_DESTROY" VmDestroy 8,
    0x05 "VM_BIND" VmBind 80,
    0x06 "QUEUE_CREATE" QueueCreate 48,
    0x07 "QUEUE_DESTROY" QueueDestroy 8,
    0x08 "QUEUE_QUERY" QueueQuery 64,
    0x09 "QUEUE_KICK" QueueKick 8,
    0x0a "SEM_WAIT" SemWait 32,
    0x0b "SEM_WAKE" SemWake 16,
    0x0c "VM_ORPHAN" VmOrphan 24,
    0x0d "SEM_NOTIFY" SemNotify 40,
    0x0e "SEM_FOLLOW" SemFollow 48,
}

const _: () = {
    assert!(core::mem::size_of::<SemWaitEntry>() == 24);
    assert!(core::mem::size_of::<BindPoint>() == 16);
    assert!(core::mem::size_of::<DeviceInfo>() == 88);
    assert!(core::mem::size_of::<EngineInfo>() == 8);
};
