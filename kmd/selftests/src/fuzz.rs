// SPDX-License-Identifier: GPL-2.0
//! Random ioctls: structs that are mostly right, in any order, by several
//! processes at once, with failing allocations where the kernel can inject them.
//!
//! What must not happen shows in the kernel's log, not here. Here is counted what
//! was reached: every ioctl's success, every error, and how much of the module where
//! the kernel can tell.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use tally_uapi::ioctl::{
    BoCreate, BoInfo, Ioctl, Query, QueueCreate, QueueDestroy, QueueKick, QueueQuery, SemWait,
    SemWaitEntry, SemWake, VmBind, VmCreate, VmDestroy, VmOrphan,
};
use tally_uapi::packet::Packet;
use tally_uapi::queue::QueueControl;

use crate::coverage::{Map, Trace};
use crate::device::{Mapped, Node, PAGE, in_ms};

/// Numbers that look random and can be had again.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Less than `n`.
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// Mostly `good`, sometimes anything.
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

    /// One of those that were made, or a wrong one.
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

/// How often an ioctl answered what.
type Counts = BTreeMap<(&'static str, i32), u64>;

/// One process.
struct Client {
    dice: Dice,
    node: Node,
    other: Node,
    buffers: Vec<u32>,
    vms: Vec<u32>,
    queues: Vec<u32>,
    mapped: Vec<Mapped>,
    fail: Option<File>,
    trace: Option<Trace>,
    counts: Counts,
}

const START: u64 = 0x30_0000_0000;
const PAGES: u64 = 64;
/// Pages that are mapped from the beginning.
const MAPPED: u64 = 16;

impl Client {
    fn new(seed: u64, trace: Option<Trace>) -> Self {
        let fail = OpenOptions::new().write(true).open("/proc/thread-self/fail-nth");
        let mut client = Self {
            dice: Dice(seed | 1),
            node: Node::open(),
            other: Node::open(),
            buffers: Vec::new(),
            vms: Vec::new(),
            queues: Vec::new(),
            mapped: Vec::new(),
            fail: fail.ok(),
            trace,
            counts: Counts::new(),
        };
        client.set_up();
        client
    }

    /// A VM with memory at its start, so that chance finds something that works.
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
        self.vms.push(vm_id);
        self.buffers.push(handle);
        self.mapped.extend(self.node.map(handle, libc::PROT_READ | libc::PROT_WRITE).ok());
    }

    fn call<T: Ioctl>(&mut self, arg: &mut T) -> Result<(), i32> {
        if self.dice.below(8) == 0 {
            let nth = 1 + self.dice.below(30);
            if let Some(fail) = &mut self.fail {
                // Without the right to inject nothing fails.
                let _ = fail.write_all(nth.to_string().as_bytes());
            }
        }
        let answer = self.node.call(arg);
        if let Some(fail) = &mut self.fail {
            let _ = fail.write_all(b"0");
        }
        self.trace.iter().for_each(Trace::collect);
        *self.counts.entry((T::NAME, answer.err().unwrap_or(0))).or_default() += 1;
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
                let (handle, pad) = (self.dice.pick(&self.buffers), self.dice.mostly32(0));
                let _ = self.call(&mut BoInfo { handle, pad, ..Default::default() });
            }
            7 => {
                let handle = self.dice.pick(&self.buffers);
                let _ = self.node.close(handle);
                self.buffers.retain(|&other| other != handle);
            }
            8..=9 => {
                let size = self.dice.mostly(PAGES * PAGE);
                let flags = self.dice.mostly32(0);
                let mut arg = VmCreate { start: self.dice.mostly(START), size, flags, vm_id: 0 };
                if self.call(&mut arg).is_ok() {
                    self.vms.push(arg.vm_id);
                }
            }
            10 => {
                let (vm_id, pad) = (self.dice.pick(&self.vms), self.dice.mostly32(0));
                if self.call(&mut VmDestroy { vm_id, pad }).is_ok() {
                    self.vms.retain(|&other| other != vm_id);
                }
            }
            11..=22 => self.bind(),
            23..=25 => self.make_queue(),
            26 => {
                let (queue_id, pad) = (self.dice.pick(&self.queues), self.dice.mostly32(0));
                if self.call(&mut QueueDestroy { queue_id, pad }).is_ok() {
                    self.queues.retain(|&other| other != queue_id);
                }
            }
            27..=28 => {
                let (queue_id, pad) = (self.dice.pick(&self.queues), self.dice.mostly32(0));
                let _ = self.call(&mut QueueQuery { queue_id, pad, ..Default::default() });
            }
            29..=30 => {
                let (queue_id, pad) = (self.dice.pick(&self.queues), self.dice.mostly32(0));
                let _ = self.call(&mut QueueKick { queue_id, pad });
            }
            31..=33 => self.wait(),
            34 => {
                let (handle, pad) = (self.dice.pick(&self.buffers), self.dice.mostly32(0));
                let offset = self.dice.mostly(8);
                let _ = self.call(&mut SemWake { handle, pad, offset });
            }
            35 => {
                let mut room = [0u8; 8192];
                let good = room.as_mut_ptr().addr() as u64;
                let what = self.dice.below(5) as u32;
                let size = self.dice.mostly32(8192).min(8192);
                // Not anywhere: the kernel would write there.
                let data = [good, 0, 8][self.dice.below(3) as usize];
                let reserved = self.dice.mostly(0);
                let _ = self.call(&mut Query { what, size, data, reserved });
            }
            36 => self.share(),
            37 => {
                let (vm_id, pad) = (self.dice.pick(&self.vms), self.dice.mostly32(0));
                let (address, size) = self.range();
                let _ = self.call(&mut VmOrphan { vm_id, pad, address, size });
            }
            _ => self.scribble(),
        }
    }

    fn make_buffer(&mut self) {
        let size = (1 + self.dice.below(16)) * PAGE;
        let flags = self.dice.below(2) as u32;
        let mut arg =
            BoCreate { size: self.dice.mostly(size), flags: self.dice.mostly32(flags), handle: 0 };
        if self.call(&mut arg).is_ok() {
            self.buffers.push(arg.handle);
            let both = libc::PROT_READ | libc::PROT_WRITE;
            if arg.size <= 16 * PAGE && self.mapped.len() < 64 {
                self.mapped.extend(self.node.map(arg.handle, both).ok());
            }
        }
    }

    fn bind(&mut self) {
        let (address, size) = self.range();
        let op = self.dice.below(4) as u32;
        let flags = [3, 0, 3, 3][op as usize];
        let offset = match op {
            0 => self.dice.below(4) * PAGE,
            2 => self.mapped.first().map_or(8 * PAGE, Mapped::address),
            _ => 0,
        };
        let handle = if op == 0 { self.dice.pick(&self.buffers) } else { 0 };
        let mut arg = VmBind {
            vm_id: self.dice.pick(&self.vms),
            op: self.dice.mostly32(op),
            flags: self.dice.mostly32(flags),
            handle,
            offset: self.dice.mostly(offset),
            address,
            size,
        };
        let _ = self.call(&mut arg);
    }

    fn make_queue(&mut self) {
        let (ring, control) = (self.dice.below(MAPPED), self.dice.below(MAPPED));
        let ring = self.dice.mostly(START + ring * PAGE);
        let control = self.dice.mostly(START + control * PAGE);
        let mut arg = QueueCreate {
            vm_id: self.dice.pick(&self.vms),
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
            self.queues.push(arg.queue_id);
        }
    }

    fn wait(&mut self) {
        let count = self.dice.below(5) as usize;
        let entries: Vec<SemWaitEntry> = (0..count)
            .map(|_| {
                let cell = self.dice.below(64) * 8;
                SemWaitEntry {
                    handle: self.dice.pick(&self.buffers),
                    compare: self.dice.mostly32(0),
                    offset: self.dice.mostly(cell),
                    value: self.dice.below(4),
                }
            })
            .collect();
        let mut arg = SemWait {
            entries: entries.as_ptr().addr() as u64,
            count: count as u32,
            flags: self.dice.mostly32(self.dice.0 as u32 & 1),
            timeout_ns: if self.dice.below(2) == 0 { 0 } else { in_ms(2) },
            vm_id: if self.dice.below(2) == 0 { 0 } else { self.dice.pick(&self.vms) },
            index: 0,
        };
        let _ = self.call(&mut arg);
    }

    /// Sends a buffer to the other file and back.
    fn share(&mut self) {
        let handle = self.dice.pick(&self.buffers);
        let Ok(fd) = self.node.export(handle) else { return };
        if let Ok(theirs) = self.other.import(fd.as_raw_fd()) {
            let both = libc::PROT_READ | libc::PROT_WRITE;
            drop(self.other.map(theirs, both));
            let _ = self.other.close(theirs);
        }
        let _ = self.node.import(fd.as_raw_fd());
    }

    /// Writes what the device may take for packets, or for a control page.
    fn scribble(&mut self) {
        if self.mapped.is_empty() {
            return;
        }
        let index = self.dice.below(self.mapped.len() as u64) as usize;
        let opcode = [0, 1, 3, 5, 6, 0x10, 0x20, 0x22, 0xff][self.dice.below(9) as usize];
        let address = self.mapped[index].address();
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

/// Lets allocations that may sleep fail where a client asks for it. By default only others do.
pub fn may_fail() {
    for (kind, setting, value) in [
        ("failslab", "ignore-gfp-wait", "N"),
        ("fail_page_alloc", "ignore-gfp-wait", "N"),
        ("fail_page_alloc", "ignore-gfp-highmem", "N"),
        ("fail_page_alloc", "min-order", "0"),
        // Each failure would be a page of the log.
        ("failslab", "verbose", "0"),
        ("fail_page_alloc", "verbose", "0"),
    ] {
        // A kernel without them fails nothing.
        let _ = std::fs::write(format!("/sys/kernel/debug/{kind}/{setting}"), value);
    }
}

/// Runs `processes` clients for `time`, and prints what they reached.
pub fn run(seed: u64, processes: u64, time: Duration) {
    println!("# fuzz: seed {seed}, {processes} processes, {} s", time.as_secs());
    may_fail();
    let map = Map::new();
    let pids: Vec<libc::pid_t> =
        (0..processes).map(|index| start(seed, index, time, map)).collect();
    for pid in pids {
        let mut status = 0;
        // SAFETY: an own child.
        unsafe { libc::waitpid(pid, &mut status, 0) };
        assert_eq!(status, 0, "a client ended with {status:#x}");
    }
    match map.map(|map| map.count()) {
        None | Some(0) => println!("# fuzz: the kernel does not tell which blocks were run"),
        Some(count) => println!("# fuzz: {count} blocks of the module were run"),
    }
}

fn start(seed: u64, index: u64, time: Duration, map: Option<Map>) -> libc::pid_t {
    // SAFETY: the program has one thread here.
    let pid = unsafe { libc::fork() };
    if pid != 0 {
        return pid;
    }
    let end = Instant::now() + time;
    let mut counts = Counts::new();
    let mut round = 0;
    let mut trace = map.and_then(Trace::start);
    while Instant::now() < end {
        // A new file now and then: closing one is part of the test.
        let seed = seed.wrapping_mul(0x9e37_79b9) + index * 1_000_003 + round;
        let mut client = Client::new(seed, trace.take());
        for _ in 0..2000 {
            client.step();
        }
        for (key, count) in std::mem::take(&mut client.counts) {
            *counts.entry(key).or_default() += count;
        }
        trace = client.trace.take();
        drop(client);
        trace.iter().for_each(Trace::collect);
        round += 1;
    }
    for ((name, error), count) in &counts {
        println!("# fuzz {index}: {name} {error}: {count}");
    }
    std::process::exit(0);
}
