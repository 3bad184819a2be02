// SPDX-License-Identifier: MIT OR Apache-2.0
//! A kernel and a VM over a reserved window, and the operations of the tests on them.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tally_uapi::cell::{CellKind, Compare};
use tally_uapi::ioctl::{
    BoCreate, Errno, Query, QueueCreate, QueueKick, SemWait, SemWaitEntry, VmBind, VmCreate,
    bind_flag, bind_op,
};
use tally_uapi::packet::{Header, Nop, Packet, PostSync, Wait, WaitEntry, flag, opcode};
use tally_uapi::queue::QueueControl;
use ze_tally::backend::{self, Backend};
use ze_tally::settings::{self, Lane, Settings};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

pub const PAGE: u64 = 4096;
pub const RW: u32 = bind_flag::READ | bind_flag::WRITE;
pub const MEMORY: u64 = 64 << 20;

pub fn open() -> Arc<dyn Backend> {
    let lane = settings::get().lane.unwrap_or(Lane::Embedded);
    let embedded = Settings { memory: Some(MEMORY), workers: Some(2), ..Settings::default() };
    backend::open(&Settings { lane: Some(lane), ..embedded }).expect("a device")
}

/// A kernel, a reserved window and a VM over it.
pub struct Fixture {
    pub backend: Arc<dyn Backend>,
    pub vm: u32,
    pub start: u64,
}

pub const WINDOW: u64 = 1 << 24;

/// Makes a reservation where every device has addresses for windows. A place that the system chooses may
/// be beyond them: the device of a virtual machine ends its windows before its engine's own image.
pub fn reserve() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0x1000_0000_0000);
    let hint = NEXT.fetch_add(WINDOW, Ordering::Relaxed);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: this makes a new mapping; an address without MAP_FIXED replaces nothing.
    let start =
        unsafe { libc::mmap(hint as *mut _, WINDOW as usize, libc::PROT_NONE, flags, -1, 0) };
    assert_ne!(start, libc::MAP_FAILED);
    start.addr() as u64
}

impl Drop for Fixture {
    fn drop(&mut self) {
        // "A mapping or binding keeps it alive": on a lane whose device the tests share, also during the
        // next test. The device in the process removes its mappings itself.
        if !self.backend.sees_process() {
            // SAFETY: the test's own reservation, which nothing refers to any more.
            unsafe { libc::munmap(self.start as *mut _, WINDOW as usize) };
        }
    }
}

impl Fixture {
    pub fn new() -> Self {
        let (backend, start) = (open(), reserve());
        let mut create = VmCreate { start, size: WINDOW, ..Default::default() };
        backend.vm_create(&mut create).unwrap();
        assert_ne!(create.vm_id, 0);
        Self { backend, vm: create.vm_id, start }
    }

    pub fn bo(&self, pages: u64) -> u32 {
        let mut create = BoCreate { size: pages * PAGE, ..Default::default() };
        self.backend.bo_create(&mut create).unwrap();
        assert_ne!(create.handle, 0);
        create.handle
    }

    pub fn va(&self, page: u64) -> u64 {
        self.start + page * PAGE
    }

    /// A MAP operation for whole pages of a buffer.
    pub fn map(&self, handle: u32, from: u64, page: u64, pages: u64, flags: u32) -> VmBind {
        VmBind {
            vm_id: self.vm,
            op: bind_op::MAP,
            flags,
            handle,
            offset: from * PAGE,
            address: self.va(page),
            size: pages * PAGE,
            ..Default::default()
        }
    }

    pub fn unmap(&self, page: u64, pages: u64) -> VmBind {
        VmBind {
            vm_id: self.vm,
            op: bind_op::UNMAP,
            address: self.va(page),
            size: pages * PAGE,
            ..Default::default()
        }
    }

    pub fn bind(&self, bind: VmBind) -> Result<(), Errno> {
        // SAFETY: the tests bind in their own reserved window and hold no
        // references into it meanwhile.
        unsafe { self.backend.vm_bind(&bind) }
    }

    /// A buffer that is bound and mapped at page `page`.
    pub fn memory(&self, page: u64, pages: u64) -> u32 {
        let handle = self.bo(pages);
        self.bind(self.map(handle, 0, page, pages, RW)).unwrap();
        let at = NonNull::new(self.va(page) as *mut u8);
        // SAFETY: the range was just bound and belongs to the test.
        unsafe { self.backend.bo_map(handle, 0, (pages * PAGE) as usize, at) }.unwrap();
        handle
    }

    /// The word at an address of the window.
    pub fn word(&self, address: u64) -> &AtomicU64 {
        assert!((self.start..self.start + WINDOW).contains(&address));
        // SAFETY: the test has mapped the address; the device uses the word as an atomic too.
        unsafe { AtomicU64::from_ptr(address as *mut u64) }
    }

    /// Control page at page 0, ring at page 1, cells at page 2 of a buffer.
    pub fn queue(&self) -> (u32, u32) {
        let handle = self.memory(0, 3);
        // SAFETY: the page is mapped and not in use yet.
        unsafe { (self.va(0) as *mut QueueControl).write(QueueControl::new()) };
        let mut create = self.queue_create();
        self.backend.queue_create(&mut create).unwrap();
        assert_ne!(create.queue_id, 0);
        (create.queue_id, handle)
    }

    pub fn queue_create(&self) -> QueueCreate {
        QueueCreate {
            vm_id: self.vm,
            priority: 1,
            ring: self.va(1),
            control: self.va(0),
            packets: 64,
            ..Default::default()
        }
    }

    pub fn push(&self, queue: u32, index: u64, packet: impl Into<Packet>) {
        // SAFETY: the slot is in the ring, which is mapped, and free.
        unsafe { ((self.va(1) + index % 64 * 64) as *mut Packet).write(packet.into()) };
        // SAFETY: the control page holds a QueueControl, all of it atomic.
        let control = unsafe { &*(self.va(0) as *const QueueControl) };
        if control.publish(index + 1) {
            self.backend.queue_kick(&QueueKick { queue_id: queue, pad: 0 }).unwrap();
        }
    }

    pub fn wait(
        &self,
        entries: &[SemWaitEntry],
        flags: u32,
        timeout_ns: i64,
    ) -> Result<u32, Errno> {
        self.wait_with(entries, flags, timeout_ns, self.vm)
    }

    pub fn wait_with(
        &self,
        entries: &[SemWaitEntry],
        flags: u32,
        timeout_ns: i64,
        vm_id: u32,
    ) -> Result<u32, Errno> {
        let mut wait = SemWait {
            entries: entries.as_ptr().addr() as u64,
            count: entries.len() as u32,
            flags,
            timeout_ns,
            vm_id,
            index: 0,
        };
        // SAFETY: the entries exist until the call returns.
        unsafe { self.backend.sem_wait(&mut wait) }.map(|()| wait.index)
    }

    pub fn lose(&self, queue: u32, index: u64) {
        let mut packet = Packet::default();
        packet.header.opcode = 0xff;
        self.push(queue, index, packet);
        let lost =
            || self.backend.queue_kick(&QueueKick { queue_id: queue, pad: 0 }) == Err(Errno::Io);
        eventually(lost);
    }
}

pub fn eventually(mut done: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < until, "it never came");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub fn signal(address: u64, value: u64) -> Nop {
    let flags = flag::ORDERED | flag::POST_SYNC;
    let header = Header { opcode: opcode::NOP, flags, ..Header::default() };
    Nop { header, zero: [0; 5], post: PostSync { address, value } }
}

pub fn entry(handle: u32, offset: u64, value: u64) -> SemWaitEntry {
    SemWaitEntry { handle, compare: Compare::GreaterEqual as u32, offset, value }
}

pub fn now_ns() -> i64 {
    // SAFETY: the call only fills the struct.
    let time = unsafe {
        let mut time = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time);
        time
    };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

pub const FOREVER: i64 = i64::MAX;

pub fn ask<T: FromZeros + FromBytes + IntoBytes>(backend: &dyn Backend, what: u32) -> T {
    let mut answer = T::new_zeroed();
    let mut query = Query {
        what,
        size: size_of::<T>() as u32,
        data: (&raw mut answer).addr() as u64,
        reserved: 0,
    };
    // SAFETY: `data` points to `size` bytes.
    unsafe { backend.query(&mut query) }.unwrap();
    assert_eq!(query.size as usize, size_of::<T>());
    answer
}

/// A WAIT until a counter reaches a value.
pub fn wait_for(address: u64, value: u64) -> Wait {
    let header = Header { opcode: opcode::WAIT, param: 1, ..Header::default() };
    let mut entries = [WaitEntry::default(); 3];
    entries[0] = WaitEntry { address, value };
    let kinds = [CellKind::Counter as u8, 0, 0];
    Wait { header, entries, kinds, compares: [0; 3], operands: 0, reserved: 0 }
}
