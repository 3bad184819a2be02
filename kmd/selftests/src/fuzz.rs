// SPDX-License-Identifier: GPL-2.0
//! Random ioctls: structs that are mostly right, in any order, by several threads on the same file
//! and by several processes, with failing allocations where the kernel can inject them.
//!
//! Failures of the module show in the kernel's log, not here. This counts the outcomes
//! that were reached: every ioctl's success, every error, and the module's coverage on
//! kernels that can measure it.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tally_uapi::ioctl::{
    BindPoint, BoCreate, BoInfo, Ioctl, Query, QueueCreate, QueueDestroy, QueueKick, QueueQuery,
    SemFollow, SemNotify, SemWait, SemWaitEntry, SemWake, VmBind, VmCreate, VmDestroy, VmOrphan,
    follow_flag, follow_kind, sem_wait_flag,
};
use tally_uapi::packet::Packet;
use tally_uapi::queue::QueueControl;

use crate::coverage;
use crate::device::{Mapped, Node, PAGE, in_ms};
use crate::foreign::{Timeline, heap_buffer, udmabuf};
use crate::syncobjs::Syncobj;

/// A reproducible sequence of pseudo-random numbers.
pub struct Dice(pub u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// Mostly `good`, sometimes any number.
    fn mostly(&mut self, good: u64) -> u64 {
        match self.below(24) {
            0 => self.next(),
            1 => good.wrapping_add(self.below(3)).wrapping_sub(1),
            2 => 1 << self.below(64),
            _ => good,
        }
    }

    fn mostly32(&mut self, good: u32) -> u32 {
        self.mostly(u64::from(good)) as u32
    }

    /// One of the objects that were made, or a wrong number.
    fn pick(&mut self, made: &[u32]) -> u32 {
        match made.len() as u64 {
            0 => self.below(3) as u32,
            len => {
                let good = made[self.below(len) as usize];
                self.mostly32(good)
            }
        }
    }
}

/// Number of calls by ioctl and error.
type Counts = BTreeMap<(&'static str, i32), u64>;

/// The objects that were made through a file, by any thread.
#[derive(Default)]
struct Made {
    buffers: Vec<u32>,
    vms: Vec<u32>,
    queues: Vec<u32>,
    mapped: Vec<Arc<Mapped>>,
}

/// An open file that threads share.
struct Shared {
    node: Node,
    other: Node,
    made: Mutex<Made>,
    /// Ordinary memory, which can be pinned.
    memory: u64,
    /// dma-bufs of other drivers, of 8 pages.
    foreign: Vec<OwnedFd>,
}

impl Shared {
    fn new() -> Self {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping where nothing is.
        let memory =
            unsafe { libc::mmap(std::ptr::null_mut(), ROOM as usize, access, flags, -1, 0) };
        assert_ne!(memory, libc::MAP_FAILED);
        let memory = memory.addr() as u64;
        // Otherwise a range that begins in it and continues after it could include memory that the program needs.
        let guard = (memory + MAPPED * PAGE) as *mut libc::c_void;
        // SAFETY: a part of our own mapping.
        assert_eq!(unsafe { libc::mprotect(guard, PAGE as usize, libc::PROT_NONE) }, 0);
        let foreign = [udmabuf(8).map(|it| it.0), heap_buffer(8, true), heap_buffer(8, false)];
        let foreign = foreign.into_iter().flatten().collect();
        let (node, other) = (Node::await_one(), Node::await_one());
        Self { node, other, made: Mutex::default(), memory, foreign }
    }

    fn made(&self) -> MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: our own mapping; only the device refers to it, and its pages stay pinned.
        unsafe { libc::munmap(self.memory as *mut libc::c_void, ROOM as usize) };
    }
}

/// One thread.
struct Client {
    dice: Dice,
    shared: Arc<Shared>,
    fail: Option<File>,
    counts: Counts,
}

const START: u64 = 0x30_0000_0000;
const PAGES: u64 = 64;
/// Pages that are mapped at the start.
const MAPPED: u64 = 16;
/// Bytes of ordinary memory and of the inaccessible page after it.
const ROOM: u64 = (MAPPED + 1) * PAGE;

impl Client {
    /// A client for the calling thread.
    fn new(seed: u64, shared: &Arc<Shared>) -> Self {
        let fail = OpenOptions::new().write(true).open("/proc/thread-self/fail-nth");
        let mut client = Self {
            dice: Dice(seed | 1),
            shared: Arc::clone(shared),
            fail: fail.ok(),
            counts: Counts::new(),
        };
        client.set_up();
        client
    }

    /// Makes a VM with memory at its start, so that random calls find something that works.
    fn set_up(&mut self) {
        let mut vm = VmCreate { start: START, size: PAGES * PAGE, ..Default::default() };
        let mut buffer = BoCreate { size: MAPPED * PAGE, ..Default::default() };
        if self.call(&mut vm).is_err() || self.call(&mut buffer).is_err() {
            return;
        }
        let (vm_id, handle) = (vm.vm_id, buffer.handle);
        let (address, size) = (START, MAPPED * PAGE);
        let mut bind = VmBind { vm_id, handle, address, size, flags: 3, ..Default::default() };
        let _ = self.call(&mut bind);
        let mapped = self.shared.node.map(handle, libc::PROT_READ | libc::PROT_WRITE).ok();
        let mut made = self.shared.made();
        made.vms.push(vm_id);
        made.buffers.push(handle);
        made.mapped.extend(mapped.map(Arc::new));
    }

    fn call<T: Ioctl>(&mut self, arg: &mut T) -> Result<(), i32> {
        let shared = Arc::clone(&self.shared);
        self.counted(T::NAME, || shared.node.call(arg))
    }

    /// Calls `f`, in which an allocation may be made to fail, and counts its answer.
    fn counted<T>(
        &mut self,
        name: &'static str,
        f: impl FnOnce() -> Result<T, i32>,
    ) -> Result<T, i32> {
        if self.dice.below(8) == 0 {
            let nth = 1 + self.dice.below(30);
            if let Some(fail) = &mut self.fail {
                // Without the right to inject failures, nothing fails.
                let _ = fail.write_all(nth.to_string().as_bytes());
            }
        }
        let answer = f();
        if let Some(fail) = &mut self.fail {
            let _ = fail.write_all(b"0");
        }
        let errno = answer.as_ref().err().copied().unwrap_or(0);
        *self.counts.entry((name, errno)).or_default() += 1;
        answer
    }

    fn range(&mut self) -> (u64, u64) {
        let page = self.dice.below(PAGES);
        let size = (1 + self.dice.below(8)) * PAGE;
        (self.dice.mostly(START + page * PAGE), self.dice.mostly(size))
    }

    /// One random call.
    fn step(&mut self) {
        match self.dice.below(42) {
            0..=4 => self.make_buffer(),
            5..=6 => {
                let (handle, pad) =
                    (self.dice.pick(&self.shared.made().buffers), self.dice.mostly32(0));
                let _ = self.call(&mut BoInfo { handle, pad, ..Default::default() });
            }
            7 => {
                let handle = self.dice.pick(&self.shared.made().buffers);
                let _ = self.shared.node.close(handle);
                self.shared.made().buffers.retain(|&other| other != handle);
            }
            8..=9 => {
                let size = self.dice.mostly(PAGES * PAGE);
                let flags = self.dice.mostly32(0);
                let mut arg = VmCreate { start: self.dice.mostly(START), size, flags, vm_id: 0 };
                if self.call(&mut arg).is_ok() {
                    self.shared.made().vms.push(arg.vm_id);
                }
            }
            10 => {
                let (vm_id, pad) = (self.dice.pick(&self.shared.made().vms), self.dice.mostly32(0));
                if self.call(&mut VmDestroy { vm_id, pad }).is_ok() {
                    self.shared.made().vms.retain(|&other| other != vm_id);
                }
            }
            11..=22 => self.bind(),
            23..=25 => self.make_queue(),
            26 => {
                let (queue_id, pad) =
                    (self.dice.pick(&self.shared.made().queues), self.dice.mostly32(0));
                if self.call(&mut QueueDestroy { queue_id, pad }).is_ok() {
                    self.shared.made().queues.retain(|&other| other != queue_id);
                }
            }
            27..=28 => {
                let (queue_id, pad) =
                    (self.dice.pick(&self.shared.made().queues), self.dice.mostly32(0));
                let _ = self.call(&mut QueueQuery { queue_id, pad, ..Default::default() });
            }
            29..=30 => {
                let (queue_id, pad) =
                    (self.dice.pick(&self.shared.made().queues), self.dice.mostly32(0));
                let _ = self.call(&mut QueueKick { queue_id, pad });
            }
            31..=33 => self.wait(),
            34 => {
                let (handle, pad) =
                    (self.dice.pick(&self.shared.made().buffers), self.dice.mostly32(0));
                let offset = self.dice.mostly(8);
                let _ = self.call(&mut SemWake { handle, pad, offset });
            }
            35 => {
                let mut room = [0u8; 8192];
                let good = room.as_mut_ptr().addr() as u64;
                let what = self.dice.below(5) as u32;
                let size = self.dice.mostly32(8192).min(8192);
                // Never a random address: the kernel would write there.
                let data = [good, 0, 8][self.dice.below(3) as usize];
                let reserved = self.dice.mostly(0);
                let _ = self.call(&mut Query { what, size, data, reserved });
            }
            36 => self.share(),
            37 => {
                let (vm_id, pad) = (self.dice.pick(&self.shared.made().vms), self.dice.mostly32(0));
                let (address, size) = self.range();
                let _ = self.call(&mut VmOrphan { vm_id, pad, address, size });
            }
            _ => self.scribble(),
        }
    }

    /// Imports memory of another driver, which may be imported already.
    fn import(&mut self) {
        let count = self.shared.foreign.len() as u64;
        if count == 0 {
            return;
        }
        let fd = self.shared.foreign[self.dice.below(count) as usize].as_raw_fd();
        let shared = Arc::clone(&self.shared);
        if let Ok(handle) = self.counted("PRIME_FD_TO_HANDLE", || shared.node.import(fd)) {
            self.shared.made().buffers.push(handle);
            drop(self.shared.node.map(handle, libc::PROT_READ | libc::PROT_WRITE));
        }
    }

    fn make_buffer(&mut self) {
        if self.dice.below(4) == 0 {
            return self.import();
        }
        let size = (1 + self.dice.below(16)) * PAGE;
        let flags = self.dice.below(2) as u32;
        let mut arg =
            BoCreate { size: self.dice.mostly(size), flags: self.dice.mostly32(flags), handle: 0 };
        if self.call(&mut arg).is_ok() {
            self.shared.made().buffers.push(arg.handle);
            let both = libc::PROT_READ | libc::PROT_WRITE;
            if arg.size <= 16 * PAGE && self.shared.made().mapped.len() < 64 {
                let mapped = self.shared.node.map(arg.handle, both).ok();
                self.shared.made().mapped.extend(mapped.map(Arc::new));
            }
        }
    }

    fn bind(&mut self) {
        let (address, size) = self.range();
        let op = self.dice.below(4) as u32;
        let flags = [3, 0, 3, 3][op as usize];
        let offset = match op {
            0 => self.dice.below(4) * PAGE,
            2 => self.shared.memory + self.dice.below(MAPPED) * PAGE,
            _ => 0,
        };
        let handle = if op == 0 { self.dice.pick(&self.shared.made().buffers) } else { 0 };
        let mut arg = VmBind {
            vm_id: self.dice.pick(&self.shared.made().vms),
            op: self.dice.mostly32(op),
            flags: self.dice.mostly32(flags),
            handle,
            offset: self.dice.mostly(offset),
            address,
            size,
            ..Default::default()
        };
        if self.dice.below(3) == 0 {
            let shared = Arc::clone(&self.shared);
            return self.bind_in_order(&shared.node, arg);
        }
        let _ = self.call(&mut arg);
    }

    /// Has a change of mappings wait for a fence of sw_sync, which is signalled, ends with its timeline or does not
    /// exist, and tells points of it.
    fn bind_in_order(&mut self, node: &Node, bind: VmBind) {
        let Ok(syncobj) = Syncobj::try_new(node) else { return };
        let timeline = Timeline::new();
        if let Some(timeline) = &timeline {
            let _ = syncobj.try_take(timeline.fence(1).as_raw_fd());
        }
        let [waits, signals] = [(); 2].map(|()| self.points(syncobj.handle));
        let status = self.dice.below(64) * 8;
        let mut arg = VmBind {
            waits: waits.as_ptr().addr() as u64,
            wait_count: self.dice.mostly32(waits.len() as u32),
            signals: signals.as_ptr().addr() as u64,
            signal_count: self.dice.mostly32(signals.len() as u32),
            status_handle: self.dice.pick(&self.shared.made().buffers),
            status_offset: self.dice.mostly(status),
            ..bind
        };
        let _ = self.call(&mut arg);
        if let Some(timeline) = timeline.filter(|_| self.dice.below(2) == 0) {
            timeline.advance(1);
        }
        let _ = syncobj.try_destroy();
    }

    /// Up to two points of a sync object, or of what may be none.
    fn points(&mut self, handle: u32) -> Vec<BindPoint> {
        let count = self.dice.below(3);
        let point = |dice: &mut Dice| BindPoint {
            handle: dice.mostly32(handle),
            pad: dice.mostly32(0),
            point: dice.below(2),
        };
        (0..count).map(|_| point(&mut self.dice)).collect()
    }

    fn make_queue(&mut self) {
        let (ring, control) = (self.dice.below(MAPPED), self.dice.below(MAPPED));
        let ring = self.dice.mostly(START + ring * PAGE);
        let control = self.dice.mostly(START + control * PAGE);
        let mut arg = QueueCreate {
            vm_id: self.dice.pick(&self.shared.made().vms),
            engine_class: self.dice.below(2) as u32,
            engine_index: self.dice.below(2) as u32,
            priority: self.dice.below(3) as u32,
            ring,
            control,
            packets: self.dice.mostly32(16),
            flags: self.dice.mostly32(0),
            ..Default::default()
        };
        if self.call(&mut arg).is_ok() {
            self.shared.made().queues.push(arg.queue_id);
        }
    }

    fn wait(&mut self) {
        let count = self.dice.below(5) as usize;
        let entries: Vec<SemWaitEntry> = (0..count)
            .map(|_| {
                let cell = self.dice.below(64) * 8;
                SemWaitEntry {
                    handle: self.dice.pick(&self.shared.made().buffers),
                    compare: self.dice.mostly32(0),
                    offset: self.dice.mostly(cell),
                    value: self.dice.below(4),
                }
            })
            .collect();
        match self.dice.below(8) {
            0 | 1 => return self.notify(&entries),
            2 => return self.follow(),
            _ => {}
        }
        let mut arg = SemWait {
            entries: entries.as_ptr().addr() as u64,
            count: count as u32,
            flags: self.dice.mostly32(self.dice.0 as u32 & sem_wait_flag::ALL),
            timeout_ns: if self.dice.below(2) == 0 { 0 } else { in_ms(2) },
            vm_id: if self.dice.below(2) == 0 {
                0
            } else {
                self.dice.pick(&self.shared.made().vms)
            },
            index: 0,
        };
        if self.call(&mut arg).is_ok() && arg.flags & sem_wait_flag::FILE != 0 {
            // SAFETY: the ioctl has made it for us.
            let file = unsafe { OwnedFd::from_raw_fd(arg.index as i32) };
            let mut poll = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one entry.
            unsafe { libc::poll(&mut poll, 1, 2) };
        }
    }

    /// Has an eventfd told, which is closed before, or a sync object, of which there are none.
    fn notify(&mut self, entries: &[SemWaitEntry]) {
        // SAFETY: takes numbers; the descriptor is ours.
        let eventfd = unsafe { OwnedFd::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC)) };
        let mut arg = SemNotify {
            entries: entries.as_ptr().addr() as u64,
            count: entries.len() as u32,
            flags: self.dice.mostly32(self.dice.0 as u32 & sem_wait_flag::ANY),
            vm_id: self.dice.pick(&self.shared.made().vms),
            kind: self.dice.mostly32(self.dice.0 as u32 >> 8 & 1),
            point: self.dice.below(3),
            target: self.dice.mostly32(eventfd.as_raw_fd() as u32),
            ..Default::default()
        };
        let _ = self.call(&mut arg);
    }

    /// Has a cell follow a fence of sw_sync, which is signalled, ends with its timeline or does not exist.
    fn follow(&mut self) {
        let timeline = Timeline::new();
        let fence = timeline.as_ref().map(|timeline| timeline.fence(1));
        let (offset, status) = (self.dice.below(64) * 8, self.dice.below(64) * 8);
        let flags = self.dice.mostly32(self.dice.0 as u32 & follow_flag::ALL);
        let mut arg = SemFollow {
            handle: self.dice.pick(&self.shared.made().buffers),
            flags,
            offset: self.dice.mostly(offset),
            value: self.dice.below(4),
            status_offset: self.dice.mostly(if flags == 0 { 0 } else { status }),
            kind: self.dice.mostly32(follow_kind::SYNC_FILE),
            source: self.dice.mostly32(fence.as_ref().map_or(9999, AsRawFd::as_raw_fd) as u32),
            point: self.dice.mostly(0),
        };
        let _ = self.call(&mut arg);
        if let Some(timeline) = timeline.filter(|_| self.dice.below(2) == 0) {
            timeline.advance(1);
        }
    }

    /// Sends a buffer to the other file and back.
    fn share(&mut self) {
        let handle = self.dice.pick(&self.shared.made().buffers);
        let Shared { node, other, .. } = &*self.shared;
        let Ok(fd) = node.export(handle) else { return };
        if let Ok(theirs) = other.import(fd.as_raw_fd()) {
            let both = libc::PROT_READ | libc::PROT_WRITE;
            drop(other.map(theirs, both));
            let _ = other.close(theirs);
        }
        let _ = node.import(fd.as_raw_fd());
    }

    /// Writes data that the device may read as packets, or as a control page.
    fn scribble(&mut self) {
        let mapped = {
            let made = self.shared.made();
            let Some(last) = made.mapped.len().checked_sub(1) else { return };
            Arc::clone(&made.mapped[self.dice.below(last as u64 + 1) as usize])
        };
        let opcode = [0, 1, 3, 5, 6, 0x10, 0x20, 0x22, 0xff][self.dice.below(9) as usize];
        let address = mapped.address();
        let tail = self.dice.below(64);
        if self.dice.below(2) == 0 {
            let mut packet = Packet::default();
            packet.header.opcode = opcode;
            packet.header.flags = self.dice.below(4) as u8;
            packet.body[0] = START + self.dice.below(PAGES) * PAGE;
            packet.post.address = START + self.dice.below(PAGES) * PAGE;
            let slot = self.dice.below(16) * 64;
            // SAFETY: a buffer has a page at least; the device is supposed to be confused.
            unsafe { ((address + slot) as *mut Packet).write_volatile(packet) };
        } else {
            // SAFETY: as above, and all atomics.
            unsafe { &*(address as *const QueueControl) }.publish(tail);
        }
    }
}

/// Lets allocations that may sleep fail where a client asks for it. By default only those that may not sleep do.
pub fn may_fail() {
    for (kind, setting, value) in [
        ("failslab", "ignore-gfp-wait", "N"),
        ("fail_page_alloc", "ignore-gfp-wait", "N"),
        ("fail_page_alloc", "ignore-gfp-highmem", "N"),
        ("fail_page_alloc", "min-order", "0"),
        // Each failure would print a page to the log.
        ("failslab", "verbose", "0"),
        ("fail_page_alloc", "verbose", "0"),
        ("fail_usercopy", "verbose", "0"),
    ] {
        // A kernel without fault injection has no such files, and nothing fails.
        let _ = std::fs::write(format!("/sys/kernel/debug/{kind}/{setting}"), value);
    }
}

/// Makes some random calls, on a file of its own.
pub fn some_calls(seed: u64) {
    let mut client = Client::new(seed, &Arc::new(Shared::new()));
    (0..300).for_each(|_| client.step());
}

/// Runs `processes` clients of `threads` threads for `time`, and prints the outcomes that they reached. With
/// `trouble`, the events of `trouble.rs` happen meanwhile.
pub fn run(seed: u64, processes: u64, threads: u64, time: Duration, trouble: bool) {
    println!(
        "# fuzz: seed {seed}, {processes} processes of {threads} threads, {} s",
        time.as_secs()
    );
    may_fail();
    coverage::begin();
    let end = Instant::now() + time;
    let start = |index| start(seed, index, threads, end);
    let mut pids: Vec<libc::pid_t> = (0..processes).map(start).collect();
    if trouble {
        crate::trouble::make(Dice(seed | 1), &mut pids, end, start);
    }
    for pid in pids {
        let mut status = 0;
        // SAFETY: an own child.
        unsafe { libc::waitpid(pid, &mut status, 0) };
        assert_eq!(status, 0, "a client ended with {status:#x}");
    }
    coverage::report();
}

fn start(seed: u64, index: u64, threads: u64, end: Instant) -> libc::pid_t {
    // SAFETY: the program has one thread here.
    let pid = unsafe { libc::fork() };
    if pid != 0 {
        return pid;
    }
    let mut counts = Counts::new();
    let mut round = 0;
    while Instant::now() < end {
        // A new file now and then: closing one, with all that its threads have left, is part of the test.
        let seed = seed.wrapping_mul(0x9e37_79b9) + index * 1_000_003 + round;
        for (key, count) in race(seed, threads, end) {
            *counts.entry(key).or_default() += count;
        }
        round += 1;
    }
    for ((name, error), count) in &counts {
        println!("# fuzz {index}: {name} {error}: {count}");
    }
    std::process::exit(0);
}

/// Threads that use the same file, until `end` at the latest: some thousand calls may take minutes.
fn race(seed: u64, threads: u64, end: Instant) -> Counts {
    let shared = Arc::new(Shared::new());
    let mut counts = Counts::new();
    std::thread::scope(|scope| {
        let racers: Vec<_> = (0..threads)
            .map(|thread| {
                let shared = &shared;
                scope.spawn(move || {
                    let seed = seed ^ thread.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    let mut client = Client::new(seed, shared);
                    (0..2000).take_while(|_| Instant::now() < end).for_each(|_| client.step());
                    client.counts
                })
            })
            .collect();
        for racer in racers {
            for (key, count) in racer.join().expect("a thread") {
                *counts.entry(key).or_default() += count;
            }
        }
    });
    // The last reference: the file is closed here.
    drop(shared);
    counts
}
