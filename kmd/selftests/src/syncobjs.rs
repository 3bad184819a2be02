// SPDX-License-Identifier: GPL-2.0
//! SEM_NOTIFY with SYNCOBJ: counters feed points of DRM's sync objects, for which others wait by the core's ioctls.

use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering::{Acquire, Release};
use std::thread;

use libc::POLLIN;
use tally_uapi::ioctl::{SemNotify, SemWaitEntry, VmDestroy, notify_kind};
use tally_uapi::packet::Packet;

use crate::Outcome;
use crate::device::{FOREVER, Fixture, Node, core_request, counter, entry, nobody_is_left};
use crate::half::{Gone, device_file, is_pci};
use crate::notifies::Bell;
use crate::polls::polled;
use crate::processes::process;

#[repr(C)]
struct GetCap {
    capability: u64,
    value: u64,
}

#[repr(C)]
struct Create {
    handle: u32,
    flags: u32,
}

#[repr(C)]
struct ToFd {
    handle: u32,
    flags: u32,
    fd: i32,
    pad: u32,
    point: u64,
}

#[repr(C)]
struct Transfer {
    from: u32,
    to: u32,
    from_point: u64,
    to_point: u64,
    flags: u32,
    pad: u32,
}

#[repr(C)]
struct TimelineWait {
    handles: u64,
    points: u64,
    timeout_ns: i64,
    count: u32,
    flags: u32,
    first: u32,
    pad: u32,
    deadline_ns: u64,
}

#[repr(C)]
struct TimelineArray {
    handles: u64,
    points: u64,
    count: u32,
    flags: u32,
}

#[repr(C)]
struct Eventfd {
    handle: u32,
    flags: u32,
    point: u64,
    fd: i32,
    pad: u32,
}

/// DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT.
pub const FOR_SUBMIT: u32 = 1 << 1;
/// DRM_SYNCOBJ_WAIT_FLAGS_WAIT_AVAILABLE.
const AVAILABLE: u32 = 1 << 2;

pub fn core<T>(node: &Node, number: u32, arg: &mut T) -> Result<(), i32> {
    // SAFETY: each caller passes the core's struct of that number, with addresses of its own.
    unsafe { node.raw(core_request(number, size_of::<T>()), arg) }
}

/// A sync object, by its handle in a node.
pub struct Syncobj<'a> {
    node: &'a Node,
    pub handle: u32,
}

impl<'a> Syncobj<'a> {
    pub fn new(node: &'a Node) -> Self {
        Self::try_new(node).expect("a sync object")
    }

    /// As [`Self::new`], of a device that may be gone.
    pub fn try_new(node: &'a Node) -> Result<Self, i32> {
        let mut arg = Create { handle: 0, flags: 0 };
        core(node, 0xbf, &mut arg)?;
        Ok(Self { node, handle: arg.handle })
    }

    /// DRM_IOCTL_SYNCOBJ_HANDLE_TO_FD; with flag 1 a sync file of the fence that it has now.
    pub fn export(&self, flags: u32) -> Result<OwnedFd, i32> {
        let mut arg = ToFd { handle: self.handle, flags, fd: -1, pad: 0, point: 0 };
        core(self.node, 0xc1, &mut arg)?;
        // SAFETY: the core has just made it.
        Ok(unsafe { OwnedFd::from_raw_fd(arg.fd) })
    }

    pub fn import(node: &'a Node, fd: RawFd) -> Self {
        let mut arg = ToFd { handle: 0, flags: 0, fd, pad: 0, point: 0 };
        core(node, 0xc2, &mut arg).expect("a sync object");
        Self { node, handle: arg.handle }
    }

    /// DRM_IOCTL_SYNCOBJ_FD_TO_HANDLE with IMPORT_SYNC_FILE: gives a binary sync object the file's fence.
    pub fn take(&self, sync_file: RawFd) {
        self.try_take(sync_file).expect("a fence");
    }

    /// As [`Self::take`], of a device that may be gone.
    pub fn try_take(&self, sync_file: RawFd) -> Result<(), i32> {
        let mut arg = ToFd { handle: self.handle, flags: 1, fd: sync_file, pad: 0, point: 0 };
        core(self.node, 0xc2, &mut arg)
    }

    /// DRM_IOCTL_SYNCOBJ_TRANSFER: gives the fence of a binary sync object to a point of `to`.
    pub fn transfer(&self, to: &Self, to_point: u64) {
        let (from, to) = (self.handle, to.handle);
        let mut arg = Transfer { from, to, from_point: 0, to_point, flags: 0, pad: 0 };
        core(self.node, 0xcc, &mut arg).expect("a point");
    }

    fn destroy(self) {
        self.try_destroy().expect("the handle");
    }

    /// Destroys the handle of a device that may be gone.
    pub fn try_destroy(self) -> Result<(), i32> {
        let mut arg = Create { handle: self.handle, flags: 0 };
        core(self.node, 0xc0, &mut arg)
    }

    /// DRM_IOCTL_SYNCOBJ_TIMELINE_WAIT.
    pub fn wait(&self, point: u64, flags: u32, timeout_ns: i64) -> Result<(), i32> {
        let mut arg = TimelineWait {
            handles: (&raw const self.handle).addr() as u64,
            points: (&raw const point).addr() as u64,
            timeout_ns,
            count: 1,
            flags,
            first: 0,
            pad: 0,
            deadline_ns: 0,
        };
        core(self.node, 0xca, &mut arg)
    }

    /// DRM_IOCTL_SYNCOBJ_QUERY: the last point that was signalled.
    pub fn last(&self) -> u64 {
        let mut point = u64::MAX;
        let mut arg = TimelineArray {
            handles: (&raw const self.handle).addr() as u64,
            points: (&raw mut point).addr() as u64,
            count: 1,
            flags: 0,
        };
        core(self.node, 0xcb, &mut arg).expect("a point");
        point
    }

    /// DRM_IOCTL_SYNCOBJ_EVENTFD: an eventfd that is told once the point is signalled.
    pub fn ring(&self, point: u64) -> Bell {
        let bell = Bell::new();
        let mut arg =
            Eventfd { handle: self.handle, flags: 0, point, fd: bell.0.as_raw_fd(), pad: 0 };
        core(self.node, 0xcf, &mut arg).expect("an eventfd");
        bell
    }

    /// SEM_NOTIFY with it.
    pub fn feed(&self, vm_id: u32, entries: &[SemWaitEntry], point: u64) -> Result<(), i32> {
        self.node.call(&mut SemNotify {
            entries: entries.as_ptr().addr() as u64,
            count: entries.len() as u32,
            vm_id,
            kind: notify_kind::SYNCOBJ,
            target: self.handle,
            point,
            ..Default::default()
        })
    }
}

/// The core offers sync objects to clients of this driver, timelines too.
pub fn the_driver_has_sync_objects() {
    let node = Node::open();
    for capability in [0x13, 0x14] {
        let mut arg = GetCap { capability, value: 0 };
        core(&node, 0x0c, &mut arg).unwrap();
        assert_eq!(arg.value, 1);
    }
}

/// "adds a signalled fence to the point once the wait is over": waiters for the submission get it then, by another
/// node, and before that there is no fence for anyone.
pub fn a_signal_adds_a_point() {
    nobody_is_left();
    let fixture = Fixture::new();
    let mut queue = fixture.queue(0);
    let syncobj = Syncobj::new(&fixture.node);
    let other = Node::open();
    let imported = Syncobj::import(&other, syncobj.export(0).unwrap().as_raw_fd());
    for value in 1..=10 {
        syncobj.feed(fixture.vm, &[queue.entry(0, value)], value).unwrap();
        assert_eq!((counter("waits"), counter("asleep")), (1, 1));
        assert_eq!(imported.wait(value, 0, FOREVER), Err(libc::EINVAL));
        assert_eq!(imported.wait(value, FOR_SUBMIT | AVAILABLE, 0), Err(libc::ETIME));
        assert_eq!(imported.last(), value - 1);
        let bell = imported.ring(value);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| imported.wait(value, FOR_SUBMIT, FOREVER));
            queue.push(queue.signal(0, value));
            assert_eq!(waiter.join().unwrap(), Ok(()));
        });
        assert_eq!((bell.wait(), imported.last()), (1, value));
        assert_eq!((counter("waits"), counter("asleep")), (0, 0));
        // It has signalled as soon as it is there.
        assert_eq!(imported.wait(value, 0, 0), Ok(()));
    }
}

/// "If it is met already, the target is told before the ioctl returns." Points may be skipped.
pub fn met_waits_add_their_point_at_once() {
    let fixture = Fixture::new();
    let (handle, memory) = fixture.memory(0, 1);
    let syncobj = Syncobj::new(&fixture.node);
    memory.word(0).store(7, Release);
    for (value, point) in [(1, 3), (7, 1 << 40)] {
        syncobj.feed(fixture.vm, &[entry(handle, 0, value)], point).unwrap();
        assert_eq!((syncobj.wait(point, 0, 0), syncobj.last()), (Ok(()), point));
    }
    assert_eq!(counter("waits"), 0);
}

/// "point 0 stands for a binary sync object", whose fence becomes a sync file that anyone can poll.
pub fn binary_objects_give_sync_files() {
    let fixture = Fixture::new();
    let mut queue = fixture.queue(0);
    let syncobj = Syncobj::new(&fixture.node);
    syncobj.feed(fixture.vm, &[queue.entry(0, 1)], 0).unwrap();
    assert_eq!(syncobj.export(1).err(), Some(libc::EINVAL));
    let bell = syncobj.ring(0);
    queue.push(queue.signal(0, 1));
    assert_eq!(bell.wait(), 1);
    assert_eq!(polled(&syncobj.export(1).unwrap(), 0), POLLIN);
}

/// Timelines of several threads, whose signals race with the arming.
pub fn points_race_with_signals() {
    let fixture = Fixture::new();
    let (handle, memory) = fixture.memory(0, 1);
    thread::scope(|scope| {
        for thread in 0..3 {
            let (fixture, cell) = (&fixture, memory.word(thread));
            let offset = thread as u64 * 8;
            scope.spawn(move || {
                let syncobj = Syncobj::new(&fixture.node);
                for value in 1..=60 {
                    thread::scope(|scope| {
                        let waiter = scope.spawn(|| syncobj.wait(value, FOR_SUBMIT, FOREVER));
                        scope.spawn(|| {
                            cell.store(value, Release);
                            crate::notifies::wake(&fixture.node, handle, offset);
                        });
                        let cells = [entry(handle, offset, value)];
                        syncobj.feed(fixture.vm, &cells, value).unwrap();
                        assert_eq!(waiter.join().unwrap(), Ok(()));
                    });
                    assert_eq!((cell.load(Acquire), syncobj.last()), (value, value));
                }
                syncobj.destroy();
            });
        }
    });
    assert_eq!((counter("waits"), counter("asleep")), (0, 0));
}

/// "In all these cases the target is told": by the loss and the end of a VM, and by the end of the file that
/// has armed the wait, also after its handles were destroyed.
pub fn ends_add_points_too() {
    nobody_is_left();
    let other = Node::open();
    let points = {
        let fixture = Fixture::new();
        let lost = Fixture::new();
        let (handle, _memory) = fixture.memory(0, 1);
        let [mine, theirs] = [&fixture, &lost].map(|it| Syncobj::new(&it.node));
        let imported =
            [&mine, &theirs].map(|it| Syncobj::import(&other, it.export(0).unwrap().as_raw_fd()));
        let mut queue = lost.queue(0);
        theirs.feed(lost.vm, &[queue.entry(0, 1)], 1).unwrap();
        let mut packet = Packet::default();
        packet.header.opcode = 0xff;
        queue.push(packet);
        assert_eq!(imported[1].wait(1, FOR_SUBMIT, FOREVER), Ok(()));
        assert_eq!(lost.wait(&[queue.entry(0, 1)], 0, 0), Err(libc::EIO));
        assert_eq!(theirs.feed(lost.vm, &[queue.entry(0, 1)], 2), Err(libc::EIO));
        mine.feed(fixture.vm, &[entry(handle, 0, 1)], 1).unwrap();
        fixture.node.call(&mut VmDestroy { vm_id: fixture.vm, pad: 0 }).unwrap();
        assert_eq!(imported[0].wait(1, FOR_SUBMIT, FOREVER), Ok(()));
        mine.feed(0, &[entry(handle, 0, 1)], 2).unwrap();
        mine.destroy();
        assert_eq!((imported[0].last(), imported[1].last(), counter("waits")), (1, 1, 1));
        imported
    };
    assert_eq!(points[0].wait(2, FOR_SUBMIT, FOREVER), Ok(()));
    drop(other);
    nobody_is_left();
}

/// A process that waits for a point is killed, and so is one that would have signalled the counter.
pub fn waiters_and_producers_are_killed() {
    nobody_is_left();
    let node = Node::open();
    let syncobj = Syncobj::new(&node);
    let shared = syncobj.export(0).unwrap();
    let ready = Bell::new();
    let producer = process(|| {
        let fixture = Fixture::new();
        let (handle, _memory) = fixture.memory(0, 1);
        let mine = Syncobj::import(&fixture.node, shared.as_raw_fd());
        mine.feed(fixture.vm, &[entry(handle, 0, 0)], 1).unwrap();
        mine.feed(fixture.vm, &[entry(handle, 0, 1)], 2).unwrap();
        polled(&ready.0, -1) == POLLIN
    });
    let waiter = process(|| syncobj.wait(2, FOR_SUBMIT, FOREVER).is_ok());
    assert_eq!(syncobj.wait(1, FOR_SUBMIT, FOREVER), Ok(()));
    waiter.kill();
    assert_eq!(syncobj.last(), 1);
    producer.kill();
    assert_eq!(syncobj.wait(2, FOR_SUBMIT, FOREVER), Ok(()));
    drop(node);
    nobody_is_left();
}

/// A reset adds the points of waits that name a VM, and no others.
pub fn a_reset_adds_points() -> Outcome {
    if !is_pci() {
        return Outcome::Skipped("only PCI resets devices");
    }
    let fixture = Fixture::new();
    let (handle, memory) = fixture.memory(0, 1);
    let timelines = [0, fixture.vm].map(|vm| {
        let syncobj = Syncobj::new(&fixture.node);
        syncobj.feed(vm, &[entry(handle, 0, 1)], 1).unwrap();
        syncobj
    });
    thread::scope(|scope| {
        let waiter = scope.spawn(|| timelines[1].wait(1, FOR_SUBMIT, FOREVER));
        fs::write(device_file("reset"), "1").expect("a reset");
        assert_eq!(waiter.join().unwrap(), Ok(()));
    });
    assert_eq!(timelines[0].last(), 0);
    memory.word(0).store(1, Release);
    crate::notifies::wake(&fixture.node, handle, 0);
    assert_eq!(timelines[0].wait(1, FOR_SUBMIT, FOREVER), Ok(()));
    Outcome::Passed
}

/// The end of the device adds points: a waiter that began before it ends.
pub fn the_end_of_the_device_adds_points() {
    let fixture = Fixture::new();
    let (handle, memory) = fixture.memory(0, 1);
    let syncobj = Syncobj::new(&fixture.node);
    syncobj.feed(0, &[entry(handle, 0, 1)], 1).unwrap();
    let bell = syncobj.ring(1);
    let gone = Gone::now();
    assert_eq!(bell.wait(), 1);
    drop(memory);
    drop(fixture);
    drop(gone);
    crate::queues::a_signal_arrives();
}

/// "ENOENT: no such sync object." Limits are those of all waits without a thread.
pub fn fed_points_are_checked() {
    nobody_is_left();
    let fixture = Fixture::new();
    let (handle, _memory) = fixture.memory(0, 1);
    let cells = [entry(handle, 0, 1)];
    let unknown = Syncobj { node: &fixture.node, handle: 9999 };
    for point in [0, 1] {
        assert_eq!(unknown.feed(fixture.vm, &cells, point), Err(libc::ENOENT));
    }
    // A buffer's handle is not the handle of a sync object.
    let buffer = Syncobj { node: &fixture.node, handle };
    assert_eq!(buffer.feed(fixture.vm, &cells, 1), Err(libc::ENOENT));
    let syncobj = Syncobj::new(&fixture.node);
    for point in 1..=1024 {
        syncobj.feed(fixture.vm, &cells, point).unwrap();
    }
    assert_eq!(syncobj.feed(fixture.vm, &cells, 1025), Err(libc::ENOSPC));
    // All at once, in whatever order: the last one is there in the end.
    let bell = syncobj.ring(1024);
    fixture.node.call(&mut VmDestroy { vm_id: fixture.vm, pad: 0 }).unwrap();
    assert_eq!(bell.wait(), 1);
    assert_eq!(polled(&bell.0, 0), 0);
    assert_eq!((syncobj.wait(1024, 0, 0), syncobj.last()), (Ok(()), 1024));
}
