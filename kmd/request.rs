// SPDX-License-Identifier: GPL-2.0
//! The requests of ioctls as types. Every error that can be found without looking at objects
//! is found here, before anything has been done.

use core::ops::Range;

use kernel::prelude::*;
use tally_uapi::cell::{Compare, CELL_SIZE};
use tally_uapi::ioctl::{
    bind_flag, bind_op, bo_flag, follow_flag, follow_kind, notify_kind, priority, query,
    sem_wait_flag, BoCreate, BoInfo, Query, QueueCreate, QueueDestroy, QueueKick, QueueQuery,
    SemFollow, SemNotify, SemWait, SemWaitEntry, SemWake, VmBind, VmCreate, VmDestroy, VmOrphan,
    BIND_MAX_POINTS, SEM_WAIT_MAX_ENTRIES,
};
use tally_uapi::packet::PACKET_SIZE;
use tally_uapi::queue::{RING_MAX_PACKETS, RING_MIN_PACKETS};
use tally_uapi::PAGE_SIZE;

/// The device's access to memory: bits of `bind_flag`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Access(u32);

impl Access {
    /// Read.
    pub(crate) const READ: Self = Self(bind_flag::READ);
    /// Read and write.
    pub(crate) const READ_WRITE: Self = Self(bind_flag::READ | bind_flag::WRITE);

    /// Some of the bits in `allowed`, and not both WRITE and EXECUTE.
    fn new(bits: u32, allowed: u32) -> Result<Self> {
        let both = bind_flag::WRITE | bind_flag::EXECUTE;
        if bits == 0 || bits & !allowed != 0 || bits & both == both {
            return Err(EINVAL);
        }
        Ok(Self(bits))
    }

    /// The bits.
    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    /// Whether it includes `other`.
    pub(crate) fn includes(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether the device may write.
    pub(crate) fn writes(self) -> bool {
        self.0 & bind_flag::WRITE != 0
    }

    /// Whether the device may execute.
    pub(crate) fn executes(self) -> bool {
        self.0 & bind_flag::EXECUTE != 0
    }

    /// Whether the device may do more than read.
    pub(crate) fn is_more_than_read(self) -> bool {
        self.0 & (bind_flag::WRITE | bind_flag::EXECUTE) != 0
    }
}

fn zero(value: impl Into<u64>) -> Result {
    if value.into() == 0 {
        Ok(())
    } else {
        Err(EINVAL)
    }
}

/// `size` bytes from `start`: multiples of `unit`, at least one, that end within 64 bits.
fn range(start: u64, size: u64, unit: u64) -> Result<Range<u64>> {
    let end = start.checked_add(size).ok_or(EINVAL)?;
    if size == 0 || start % unit != 0 || size % unit != 0 {
        return Err(EINVAL);
    }
    Ok(start..end)
}

/// QUERY: a question.
pub(crate) enum Question {
    /// `query::DEVICE`.
    Device,
    /// `query::ENGINES`.
    Engines,
    /// `query::TARGET`.
    Target,
    /// `query::CLOCK`.
    Clock,
}

impl TryFrom<&Query> for Question {
    type Error = Error;

    fn try_from(arg: &Query) -> Result<Self> {
        zero(arg.reserved)?;
        Ok(match arg.what {
            query::DEVICE => Self::Device,
            query::ENGINES => Self::Engines,
            query::TARGET => Self::Target,
            query::CLOCK => Self::Clock,
            _ => return Err(EINVAL),
        })
    }
}

/// BO_CREATE: a buffer.
pub(crate) struct NewBuffer {
    /// Bytes, whole pages.
    pub(crate) size: usize,
    /// Bits of `bo_flag`.
    pub(crate) flags: u32,
}

impl TryFrom<&BoCreate> for NewBuffer {
    type Error = Error;

    fn try_from(arg: &BoCreate) -> Result<Self> {
        zero(arg.flags & !bo_flag::ALL)?;
        range(0, arg.size, PAGE_SIZE)?;
        Ok(Self {
            size: usize::try_from(arg.size).map_err(|_| ENOSPC)?,
            flags: arg.flags,
        })
    }
}

/// Requests that consist of a handle or an id, and zeros.
macro_rules! named {
    ($($(#[$doc:meta])* $name:ident: $($arg:ident.$field:ident),*;)*) => {
        $(
            $(#[$doc])*
            pub(crate) struct $name(pub(crate) u32);
            $(
                impl TryFrom<&$arg> for $name {
                    type Error = Error;

                    fn try_from(arg: &$arg) -> Result<Self> {
                        zero(arg.pad)?;
                        Ok(Self(arg.$field))
                    }
                }
            )*
        )*
    };
}

named! {
    /// The handle of a buffer.
    Handle: BoInfo.handle;
    /// The id of a VM.
    VmId: VmDestroy.vm_id;
    /// The id of a queue.
    QueueId: QueueDestroy.queue_id, QueueQuery.queue_id, QueueKick.queue_id;
}

/// VM_CREATE: an address space.
pub(crate) struct NewVm {
    /// Its VAs.
    pub(crate) window: Range<u64>,
}

impl TryFrom<&VmCreate> for NewVm {
    type Error = Error;

    fn try_from(arg: &VmCreate) -> Result<Self> {
        zero(arg.flags)?;
        Ok(Self {
            window: range(arg.start, arg.size, PAGE_SIZE)?,
        })
    }
}

/// VM_BIND: new content for the VAs of `range`.
pub(crate) struct Bind {
    /// The id of the VM.
    pub(crate) vm: u32,
    /// Whole pages.
    pub(crate) range: Range<u64>,
    /// The content afterwards.
    pub(crate) content: Content,
    /// The fences that it waits for.
    pub(crate) waits: Points,
    /// The points that are told when it is done.
    pub(crate) signals: Points,
    /// Handle of the buffer, and offset, of the word for its outcome.
    pub(crate) status: Option<(u32, u64)>,
}

/// An array of points of sync objects, before it is read.
pub(crate) struct Points {
    /// Its address in the caller's memory.
    pub(crate) address: u64,
    /// Number of elements.
    pub(crate) count: usize,
}

impl Points {
    fn new(address: u64, count: u32) -> Result<Self> {
        if count > BIND_MAX_POINTS || count == 0 && address != 0 {
            return Err(EINVAL);
        }
        Ok(Self {
            address,
            count: count as usize,
        })
    }
}

/// The new content of a range of VAs.
pub(crate) enum Content {
    /// Nothing: all mappings of the range are removed.
    Nothing,
    /// A part of a buffer, as long as the range.
    Buffer {
        /// Its handle.
        handle: u32,
        /// Start of the part in bytes, a multiple of the page size.
        offset: u64,
        /// The device's access.
        access: Access,
    },
    /// The caller's memory, as long as the range.
    User {
        /// Start of the memory, a multiple of the page size.
        address: u64,
        /// The device's access.
        access: Access,
    },
    /// Memory of the device.
    Null {
        /// The device's access.
        access: Access,
    },
}

impl TryFrom<&VmBind> for Bind {
    type Error = Error;

    fn try_from(arg: &VmBind) -> Result<Self> {
        let access = |allowed| Access::new(arg.flags, allowed);
        let data = bind_flag::READ | bind_flag::WRITE;
        let from = range(arg.offset, arg.size, PAGE_SIZE)?.start;
        let content = match arg.op {
            bind_op::MAP => {
                let access = access(bind_flag::ALL)?;
                Content::Buffer {
                    handle: arg.handle,
                    offset: from,
                    access,
                }
            }
            bind_op::UNMAP => {
                zero(arg.flags)?;
                Content::Nothing
            }
            bind_op::MAP_USERPTR => Content::User {
                address: from,
                access: access(data)?,
            },
            bind_op::MAP_NULL => Content::Null {
                access: access(data)?,
            },
            _ => return Err(EINVAL),
        };
        if !matches!(content, Content::Buffer { .. }) {
            zero(arg.handle)?;
        }
        if matches!(content, Content::Nothing | Content::Null { .. }) {
            zero(arg.offset)?;
        }
        zero(arg.pad)?;
        zero(arg.status_offset % CELL_SIZE)?;
        let status =
            Some((arg.status_handle, arg.status_offset)).filter(|(handle, _)| *handle != 0);
        if status.is_none() {
            zero(arg.status_offset)?;
        }
        Ok(Self {
            vm: arg.vm_id,
            range: range(arg.address, arg.size, PAGE_SIZE)?,
            content,
            waits: Points::new(arg.waits, arg.wait_count)?,
            signals: Points::new(arg.signals, arg.signal_count)?,
            status,
        })
    }
}

/// VM_ORPHAN: cells that will never be signalled.
pub(crate) struct Orphan {
    /// The id of the VM.
    pub(crate) vm: u32,
    /// Whole cells.
    pub(crate) cells: Range<u64>,
}

impl TryFrom<&VmOrphan> for Orphan {
    type Error = Error;

    fn try_from(arg: &VmOrphan) -> Result<Self> {
        zero(arg.pad)?;
        Ok(Self {
            vm: arg.vm_id,
            cells: range(arg.address, arg.size, CELL_SIZE)?,
        })
    }
}

/// QUEUE_CREATE: a ring on an engine. The device checks that the engine exists.
pub(crate) struct NewQueue {
    /// The id of the VM.
    pub(crate) vm: u32,
    /// Class of the engine.
    pub(crate) class: u32,
    /// Index of the engine in its class.
    pub(crate) index: u32,
    /// A value of `priority`.
    pub(crate) priority: u32,
    /// A power of two.
    pub(crate) packets: u32,
    /// The VAs of the packets.
    pub(crate) ring: Range<u64>,
    /// The VAs of the control page.
    pub(crate) control: Range<u64>,
}

impl TryFrom<&QueueCreate> for NewQueue {
    type Error = Error;

    fn try_from(arg: &QueueCreate) -> Result<Self> {
        zero(arg.flags)?;
        zero(arg.pad)?;
        if !matches!(
            arg.priority,
            priority::HIGH | priority::NORMAL | priority::LOW
        ) || !arg.packets.is_power_of_two()
            || !(RING_MIN_PACKETS..=RING_MAX_PACKETS).contains(&arg.packets)
        {
            return Err(EINVAL);
        }
        Ok(Self {
            vm: arg.vm_id,
            class: arg.engine_class,
            index: arg.engine_index,
            priority: arg.priority,
            packets: arg.packets,
            ring: range(arg.ring, u64::from(arg.packets) * PACKET_SIZE, PACKET_SIZE)?,
            control: range(arg.control, PAGE_SIZE, PAGE_SIZE)?,
        })
    }
}

/// The entries of a wait, before they are read.
pub(crate) struct Entries {
    /// Address of the entries in the caller's memory.
    pub(crate) address: u64,
    /// Number of entries, not 0.
    pub(crate) count: usize,
    /// Whether one met entry is enough.
    pub(crate) any: bool,
    /// The id of the VM whose end also ends the wait, if any.
    pub(crate) vm: Option<u32>,
}

impl Entries {
    fn new(address: u64, count: u32, flags: u32, vm: u32) -> Result<Self> {
        if !(1..=SEM_WAIT_MAX_ENTRIES).contains(&count) {
            return Err(EINVAL);
        }
        let any = flags & sem_wait_flag::ANY != 0;
        Ok(Self {
            address,
            count: count as usize,
            any,
            vm: Some(vm).filter(|&id| id != 0),
        })
    }
}

/// SEM_WAIT.
pub(crate) struct Wait {
    /// The entries.
    pub(crate) entries: Entries,
    /// Whether to make a file for the wait instead of sleeping.
    pub(crate) file: bool,
    /// The deadline in CLOCK_MONOTONIC ns.
    pub(crate) deadline_ns: i64,
}

impl TryFrom<&SemWait> for Wait {
    type Error = Error;

    fn try_from(arg: &SemWait) -> Result<Self> {
        zero(arg.flags & !sem_wait_flag::ALL)?;
        let file = arg.flags & sem_wait_flag::FILE != 0;
        if file && arg.timeout_ns != 0 {
            return Err(EINVAL);
        }
        let entries = Entries::new(arg.entries, arg.count, arg.flags, arg.vm_id)?;
        Ok(Self {
            entries,
            file,
            deadline_ns: arg.timeout_ns,
        })
    }
}

/// SEM_NOTIFY: a wait, and the target that is told of its end.
pub(crate) struct Notify {
    /// The entries of the wait.
    pub(crate) entries: Entries,
    /// The target that is told when the wait ends.
    pub(crate) target: NotifyTarget,
}

/// The target of a wait without a thread.
pub(crate) enum NotifyTarget {
    /// An eventfd, by its descriptor.
    Eventfd(u32),
    /// A point of a sync object, by its handle. Point 0: the sync object is binary.
    Point(u32, u64),
}

impl TryFrom<&SemNotify> for Notify {
    type Error = Error;

    fn try_from(arg: &SemNotify) -> Result<Self> {
        zero(arg.flags & !sem_wait_flag::ANY)?;
        zero(arg.pad)?;
        let target = match arg.kind {
            notify_kind::EVENTFD => {
                zero(arg.point)?;
                NotifyTarget::Eventfd(arg.target)
            }
            notify_kind::SYNCOBJ => NotifyTarget::Point(arg.target, arg.point),
            _ => return Err(EINVAL),
        };
        let entries = Entries::new(arg.entries, arg.count, arg.flags, arg.vm_id)?;
        Ok(Self { entries, target })
    }
}

/// SEM_FOLLOW: a cell that takes a value once a fence has signalled.
pub(crate) struct Follow {
    /// Handle of the buffer that holds the cell.
    pub(crate) handle: u32,
    /// Offset of the cell in it, in bytes.
    pub(crate) offset: u64,
    /// The cell's value afterwards, unless it is larger already.
    pub(crate) value: u64,
    /// Offset of the word for the fence's status.
    pub(crate) status: Option<u64>,
    /// The fence.
    pub(crate) source: FenceSource,
}

/// A fence of the kernel.
pub(crate) enum FenceSource {
    /// That of a sync file, by its descriptor.
    SyncFile(u32),
    /// That of a sync object at a point, by its handle. Point 0: the sync object is binary.
    Point(u32, u64),
}

impl TryFrom<&SemFollow> for Follow {
    type Error = Error;

    fn try_from(arg: &SemFollow) -> Result<Self> {
        zero(arg.flags & !follow_flag::ALL)?;
        let status = match arg.flags & follow_flag::STATUS {
            0 => {
                zero(arg.status_offset)?;
                None
            }
            _ if arg.status_offset == arg.offset => return Err(EINVAL),
            _ => Some(arg.status_offset),
        };
        let source = match arg.kind {
            follow_kind::SYNC_FILE => {
                zero(arg.point)?;
                FenceSource::SyncFile(arg.source)
            }
            follow_kind::SYNCOBJ => FenceSource::Point(arg.source, arg.point),
            _ => return Err(EINVAL),
        };
        zero(arg.offset % CELL_SIZE)?;
        zero(arg.status_offset % CELL_SIZE)?;
        let SemFollow {
            handle,
            offset,
            value,
            ..
        } = *arg;
        Ok(Self {
            handle,
            offset,
            value,
            status,
            source,
        })
    }
}

/// An entry of SEM_WAIT.
pub(crate) struct Condition {
    /// Handle of the buffer.
    pub(crate) handle: u32,
    /// Offset of a cell in it, in bytes.
    pub(crate) offset: u64,
    /// The comparison of the cell with `value`.
    pub(crate) compare: Compare,
    /// The value to compare with.
    pub(crate) value: u64,
}

impl TryFrom<&SemWaitEntry> for Condition {
    type Error = Error;

    fn try_from(arg: &SemWaitEntry) -> Result<Self> {
        let compare = u8::try_from(arg.compare)
            .ok()
            .and_then(Compare::from_raw)
            .ok_or(EINVAL)?;
        zero(arg.offset % CELL_SIZE)?;
        Ok(Self {
            handle: arg.handle,
            offset: arg.offset,
            compare,
            value: arg.value,
        })
    }
}

/// SEM_WAKE: the cells that were written.
pub(crate) enum Wake {
    /// All foreign cells.
    Foreign,
    /// A cell.
    Cell {
        /// Handle of the buffer.
        handle: u32,
        /// Offset of the cell in it, in bytes.
        offset: u64,
    },
}

impl TryFrom<&SemWake> for Wake {
    type Error = Error;

    fn try_from(arg: &SemWake) -> Result<Self> {
        zero(arg.pad)?;
        zero(arg.offset % CELL_SIZE)?;
        if arg.handle != 0 {
            return Ok(Self::Cell {
                handle: arg.handle,
                offset: arg.offset,
            });
        }
        zero(arg.offset)?;
        Ok(Self::Foreign)
    }
}

#[kernel::macros::kunit_tests(tally_request)]
mod tests {
    use super::*;

    const MAP: VmBind = VmBind {
        vm_id: 1,
        op: bind_op::MAP,
        flags: bind_flag::READ,
        handle: 2,
        offset: PAGE_SIZE,
        address: 4 * PAGE_SIZE,
        size: 2 * PAGE_SIZE,
        waits: 0,
        signals: 0,
        wait_count: 0,
        signal_count: 0,
        status_handle: 0,
        pad: 0,
        status_offset: 0,
    };

    fn refused(arg: VmBind) -> bool {
        Bind::try_from(&arg).err() == Some(EINVAL)
    }

    /// VM_BIND: each operation uses its own fields, and all others must be 0.
    #[test]
    fn a_bind_is_one_of_four() -> Result {
        let Bind {
            vm, range, content, ..
        } = Bind::try_from(&MAP)?;
        assert!((vm, range) == (1, 4 * PAGE_SIZE..6 * PAGE_SIZE));
        assert!(matches!(
            content,
            Content::Buffer {
                handle: 2,
                offset: PAGE_SIZE,
                ..
            }
        ));
        let unmap = VmBind {
            op: bind_op::UNMAP,
            flags: 0,
            handle: 0,
            offset: 0,
            ..MAP
        };
        assert!(matches!(Bind::try_from(&unmap)?.content, Content::Nothing));
        let null = VmBind {
            op: bind_op::MAP_NULL,
            handle: 0,
            offset: 0,
            ..MAP
        };
        assert!(matches!(
            Bind::try_from(&null)?.content,
            Content::Null { .. }
        ));
        let user = VmBind {
            op: bind_op::MAP_USERPTR,
            handle: 0,
            ..MAP
        };
        assert!(matches!(
            Bind::try_from(&user)?.content,
            Content::User {
                address: PAGE_SIZE,
                ..
            }
        ));
        assert!(refused(VmBind { op: 9, ..MAP }) && refused(VmBind { flags: 0, ..MAP }));
        for (good, other) in [
            (unmap, MAP.flags),
            (null, bind_flag::EXECUTE),
            (user, 1 << 9),
        ] {
            assert!(refused(VmBind {
                flags: other,
                ..good
            }));
            assert!(refused(VmBind { handle: 1, ..good }));
        }
        assert!(refused(VmBind {
            offset: PAGE_SIZE,
            ..unmap
        }));
        assert!(refused(VmBind {
            offset: PAGE_SIZE,
            ..null
        }));
        let both = bind_flag::WRITE | bind_flag::EXECUTE;
        assert!(refused(VmBind {
            flags: bind_flag::READ | both,
            ..MAP
        }));
        Ok(())
    }

    /// VM_BIND: arrays of points are empty or somewhere, and not too long; so is the word for the outcome.
    #[test]
    fn points_of_binds_are_checked() {
        assert!(Bind::try_from(&VmBind {
            waits: 8,
            wait_count: 16,
            ..MAP
        })
        .is_ok());
        assert!(refused(VmBind {
            waits: 8,
            wait_count: 17,
            ..MAP
        }));
        assert!(refused(VmBind { waits: 8, ..MAP }) && refused(VmBind { signals: 8, ..MAP }));
        assert!(refused(VmBind {
            signals: 8,
            signal_count: 17,
            ..MAP
        }));
        assert!(Bind::try_from(&VmBind {
            status_handle: 1,
            status_offset: 8,
            ..MAP
        })
        .is_ok());
        assert!(
            refused(VmBind {
                status_offset: 8,
                ..MAP
            }) && refused(VmBind { pad: 1, ..MAP })
        );
        assert!(refused(VmBind {
            status_handle: 1,
            status_offset: 4,
            ..MAP
        }));
    }

    /// Ranges are whole units, not empty, and end within 64 bits.
    #[test]
    fn ranges_are_checked() {
        assert!(range(PAGE_SIZE, PAGE_SIZE, PAGE_SIZE).is_ok());
        for (start, size) in [
            (0, 0),
            (1, PAGE_SIZE),
            (0, 1),
            (!0, PAGE_SIZE),
            (!0 << 12, PAGE_SIZE),
        ] {
            assert!(range(start, size, PAGE_SIZE).is_err());
        }
        assert!(refused(VmBind {
            offset: !0 << 12,
            ..MAP
        }));
        assert!(refused(VmBind { size: 0, ..MAP }));
    }

    /// SEM_WAKE: handle 0 stands for all foreign cells, and has no offset.
    #[test]
    fn a_wake_is_of_a_cell_or_foreign() {
        let wake = |handle, offset| {
            Wake::try_from(&SemWake {
                handle,
                pad: 0,
                offset,
            })
        };
        assert!(matches!(wake(0, 0), Ok(Wake::Foreign)));
        assert!(matches!(
            wake(3, 8),
            Ok(Wake::Cell {
                handle: 3,
                offset: 8
            })
        ));
        assert!(wake(0, 8).is_err() && wake(3, 4).is_err());
    }
}
