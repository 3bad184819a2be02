// SPDX-License-Identifier: MIT OR Apache-2.0
//! A small driver: memory, queues, packets, and kernels written in Rust.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tally_device::{
    Config, Device, EngineClass, Host, Priority, QueueConfig, QueueHandle, QueueId, Vm, VmId,
};
use tally_uapi::cell::{CellKind, Compare};
use tally_uapi::eu::{ARGS_OFFSET, GroupContext, KernargHeader, KernelEntry};
use tally_uapi::fault::Fault;
use tally_uapi::packet::{self, Header, Packet, PostSync, WaitEntry, flag, opcode};
use tally_uapi::queue::QueueControl;
use tally_uapi::trace::{TraceBuffer, TraceRecord};

/// Time for which a test waits for an event that must happen.
pub const SOON: Duration = Duration::from_secs(60);

/// Waits until `done` holds; panics with `what` if it does not.
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + SOON;
    while !done() {
        assert!(Instant::now() < until, "did not happen: {what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Zeroed page-aligned memory that packets may name. It is never unmapped, since
/// the device may outlive the values that a failing test drops.
pub struct Memory {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: shared by design; tests use atomics where threads meet.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    pub fn new(bytes: usize) -> Self {
        let bytes = bytes.next_multiple_of(4096);
        // SAFETY: a fresh anonymous mapping.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(start, libc::MAP_FAILED);
        Self { start: start.cast(), bytes }
    }

    /// Like [`Self::new`], with inaccessible pages around it, so that an access beyond it never reaches another
    /// test's memory.
    pub fn apart(bytes: usize) -> Self {
        let around = Self::new(bytes.next_multiple_of(4096) + 2 * 4096);
        around.protect(libc::PROT_NONE);
        let inside =
            Self { start: around.start.wrapping_add(4096), bytes: around.bytes - 2 * 4096 };
        inside.protect(libc::PROT_READ | libc::PROT_WRITE);
        inside
    }

    pub fn va(&self) -> u64 {
        self.start.addr() as u64
    }

    pub fn cell(&self, index: usize) -> &AtomicU64 {
        assert!(index * 8 < self.bytes);
        // SAFETY: aligned, inside the mapping, and only used as an atomic.
        unsafe { AtomicU64::from_ptr(self.start.cast::<u64>().add(index)) }
    }

    pub fn cell_va(&self, index: usize) -> u64 {
        self.va() + index as u64 * 8
    }

    pub fn load(&self, index: usize) -> u64 {
        self.cell(index).load(Ordering::Acquire)
    }

    pub fn write<T: Copy>(&self, offset: usize, value: T) -> u64 {
        assert!(offset + size_of::<T>() <= self.bytes);
        // SAFETY: inside the mapping.
        unsafe { self.start.add(offset).cast::<T>().write_unaligned(value) };
        self.va() + offset as u64
    }

    pub fn bytes(&self, offset: usize, count: usize) -> Vec<u8> {
        assert!(offset + count <= self.bytes);
        // SAFETY: inside the mapping; the device has finished with it when this is called.
        unsafe { std::slice::from_raw_parts(self.start.add(offset), count).to_vec() }
    }

    /// Releases its pages: they read as zero, and are allocated one by one as they are touched.
    pub fn discard(&self) {
        for advice in [libc::MADV_NOHUGEPAGE, libc::MADV_DONTNEED] {
            // SAFETY: our own anonymous mapping.
            unsafe { libc::madvise(self.start.cast(), self.bytes, advice) };
        }
    }

    /// Restricts the access to it.
    pub fn protect(&self, access: i32) {
        self.protect_from(0, access);
    }

    /// Restricts the access to all of it from `offset`, a page's start, on.
    pub fn protect_from(&self, offset: usize, access: i32) {
        assert!(offset <= self.bytes);
        let start = self.start.wrapping_add(offset);
        // SAFETY: our own mapping.
        unsafe { libc::mprotect(start.cast(), self.bytes - offset, access) };
    }
}

/// The device's notifications to its owner.
#[derive(Default)]
pub struct Owner {
    pub interrupts: AtomicU32,
    pub lost: Mutex<Vec<(VmId, QueueId, Fault)>>,
}

impl Host for Owner {
    fn semaphore_interrupt(&self, _bucket: usize) {
        self.interrupts.fetch_add(1, Ordering::Relaxed);
    }

    fn vm_lost(&self, vm: VmId, queue: QueueId, fault: Fault) {
        self.lost.lock().unwrap().push((vm, queue, fault));
    }
}

pub struct Gpu {
    pub device: Device,
    pub owner: Arc<Owner>,
    pub vm: Vm,
    /// Number of queues that were made. It is per device, so that numbers do not depend on other tests.
    queues: AtomicU32,
}

impl Gpu {
    pub fn new() -> Self {
        Self::with(Config { workers: Some(2), ..Config::default() })
    }

    pub fn with(config: Config) -> Self {
        let owner = Arc::new(Owner::default());
        let device = Device::new(config, Arc::<Owner>::clone(&owner)).unwrap();
        let vm = device.create_vm(VmId(1));
        Self { device, owner, vm, queues: AtomicU32::new(0) }
    }

    pub fn queue(&self) -> TestQueue<'_> {
        self.queue_on(&self.vm, EngineClass::Compute, 0, Priority::Normal)
    }

    pub fn queue_on(
        &self,
        vm: &Vm,
        class: EngineClass,
        index: u32,
        priority: Priority,
    ) -> TestQueue<'_> {
        let packets = 64;
        let memory = Memory::new(4096 + packets as usize * 64);
        memory.write(0, ());
        // SAFETY: a page of its own, not yet shared.
        unsafe { (memory.va() as *mut QueueControl).write(QueueControl::new()) };
        let id = QueueId(self.queues.fetch_add(1, Ordering::Relaxed) + 1);
        let config = QueueConfig {
            id,
            class,
            index,
            priority,
            ring: memory.va() + 4096,
            packets,
            control: memory.va(),
        };
        let handle = self.device.create_queue(vm, &config).unwrap();
        let ring = memory.va() + 4096;
        TestQueue { gpu: self, id, handle, memory, ring, packets: packets.into(), tail: 0 }
    }

    pub fn fault(&self) -> Fault {
        eventually("a fault", || !self.owner.lost.lock().unwrap().is_empty());
        self.owner.lost.lock().unwrap()[0].2
    }
}

pub struct TestQueue<'a> {
    pub gpu: &'a Gpu,
    pub id: QueueId,
    pub handle: QueueHandle,
    pub memory: Memory,
    ring: u64,
    packets: u64,
    tail: u64,
}

impl TestQueue<'_> {
    pub fn control(&self) -> &QueueControl {
        // SAFETY: written at creation; the page consists of atomics.
        unsafe { &*(self.memory.va() as *const QueueControl) }
    }

    /// Writes a packet without publishing it.
    pub fn write(&mut self, packet: impl Into<Packet>) {
        let full = || self.tail - self.control().head.load(Ordering::Acquire) >= self.packets;
        if full() {
            // Other queues may wait for packets that are written and not yet published.
            self.publish();
            eventually("room in the ring", || !full());
        }
        let slot = self.ring + self.tail % self.packets * 64;
        // SAFETY: the slot is free, in memory of the test.
        unsafe { (slot as *mut Packet).write(packet.into()) };
        self.tail += 1;
    }

    /// Publishes all written packets.
    pub fn publish(&self) {
        if self.control().publish(self.tail) {
            self.gpu.device.kick(&self.handle);
        }
    }

    pub fn push(&mut self, packet: impl Into<Packet>) {
        self.write(packet);
        self.publish();
    }

    /// Writes later packets to another ring, whose LINK has been written.
    pub fn moved(&mut self, ring: u64, packets: u64) {
        (self.ring, self.packets) = (ring, packets);
    }

    pub fn tail(&self) -> u64 {
        self.tail
    }
}

/// A trace buffer and its reader.
pub struct TraceMemory {
    pub memory: Memory,
    records: u64,
}

impl TraceMemory {
    pub fn new(records: u64) -> Self {
        let bytes = (size_of::<TraceBuffer>() + records as usize * size_of::<TraceRecord>())
            .next_multiple_of(4096);
        let trace = Self { memory: Memory::new(bytes), records };
        trace.header().records.store(records, Ordering::Relaxed);
        trace
    }

    /// Records the commands of a queue from its next wake on.
    pub fn record(&self, queue: &TestQueue<'_>, tag: u64) {
        queue.control().trace_tag.store(tag, Ordering::Relaxed);
        queue.control().trace.store(self.memory.va(), Ordering::Relaxed);
    }

    pub fn header(&self) -> &TraceBuffer {
        // SAFETY: all zeros are a valid value, and all fields that are read are atomics.
        unsafe { &*(self.memory.va() as *const TraceBuffer) }
    }

    /// Takes the records that were written.
    pub fn take(&self) -> Vec<TraceRecord> {
        let mut records = Vec::new();
        let mut taken = self.header().taken.load(Ordering::Relaxed);
        loop {
            let place = size_of::<TraceBuffer>() / 8 + (taken % self.records) as usize * 8;
            if self.memory.load(place) != taken + 1 {
                break;
            }
            let words: [u64; 8] = std::array::from_fn(|i| self.memory.load(place + i));
            records.push(zerocopy::transmute!(words));
            taken += 1;
        }
        self.header().taken.store(taken, Ordering::Release);
        records
    }
}

pub fn header(opcode: u8, flags: u8, param: u32) -> Header {
    Header { opcode, flags, param, ..Header::default() }
}

fn post(flags: u8, signal: Option<(u64, u64)>) -> (u8, PostSync) {
    match signal {
        Some((address, value)) => (flags | flag::POST_SYNC, PostSync { address, value }),
        None => (flags, PostSync::default()),
    }
}

pub type Signal = Option<(u64, u64)>;

pub fn nop(flags: u8, signal: Signal) -> packet::Nop {
    let (flags, post) = post(flags, signal);
    packet::Nop { header: header(opcode::NOP, flags, 0), zero: [0; 5], post }
}

pub fn copy(flags: u8, dst: u64, src: u64, size: u64, signal: Signal) -> packet::Copy {
    let (flags, post) = post(flags, signal);
    packet::Copy { header: header(opcode::COPY, flags, 0), dst, src, size, zero: [0; 2], post }
}

pub fn fill(flags: u8, dst: u64, size: u64, pattern: &[u8], signal: Signal) -> packet::Fill {
    let (flags, post) = post(flags, signal);
    let mut inline = [0; 16];
    if pattern.len() <= 16 {
        inline[..pattern.len()].copy_from_slice(pattern);
    } else {
        inline[..8].copy_from_slice(&(pattern.as_ptr().addr() as u64).to_le_bytes());
    }
    let header = header(opcode::FILL, flags, pattern.len() as u32);
    packet::Fill { header, dst, size, pattern: inline, zero: 0, post }
}

pub fn wait(entries: &[(u64, u64, CellKind, Compare)]) -> packet::Wait {
    let mut wait = packet::Wait {
        header: header(opcode::WAIT, 0, entries.len() as u32),
        entries: [WaitEntry::default(); 3],
        kinds: [0; 3],
        compares: [0; 3],
        operands: 0,
        reserved: 0,
    };
    for (i, &(address, value, kind, compare)) in entries.iter().enumerate() {
        wait.entries[i] = WaitEntry { address, value };
        wait.kinds[i] = kind as u8;
        wait.compares[i] = compare as u8;
    }
    wait
}

/// WAIT for a counter.
pub fn wait_for(address: u64, value: u64) -> packet::Wait {
    wait(&[(address, value, CellKind::Counter, Compare::GreaterEqual)])
}

pub fn stamp(slot: u64) -> packet::Stamp {
    packet::Stamp { header: header(opcode::STAMP, 0, 0), slot, zero: [0; 6] }
}

pub fn predicate(index: u32, count: u64) -> packet::Predicate {
    packet::Predicate { header: header(opcode::PREDICATE, 0, index), count, zero: [0; 6] }
}

pub fn link(ring: u64, packets: u32) -> packet::Link {
    packet::Link { header: header(opcode::LINK, 0, packets), ring, zero: [0; 6] }
}

/// A DISPATCH of `groups` one-item groups.
pub fn dispatch(
    flags: u8,
    kernel: KernelEntry,
    kernarg: &Kernarg,
    groups: u32,
    signal: Signal,
) -> packet::Dispatch {
    let (flags, post) = post(flags, signal);
    packet::Dispatch {
        header: header(opcode::DISPATCH, flags, 0),
        entry: kernel as usize as u64,
        kernarg: kernarg.0.va(),
        groups: [groups, 1, 1],
        scratch_bytes: 0,
        group_size: [1, 1, 1],
        work_dim: 1,
        post,
    }
}

/// An argument block of 64-bit words.
pub struct Kernarg(pub Memory);

impl Kernarg {
    pub fn new(args: &[u64]) -> Self {
        Self::with(KernargHeader::default(), args)
    }

    pub fn with(header: KernargHeader, args: &[u64]) -> Self {
        let memory = Memory::new(4096);
        memory.write(0, header);
        for (i, &arg) in args.iter().enumerate() {
            memory.write(ARGS_OFFSET as usize + i * 8, arg);
        }
        Self(memory)
    }
}

/// Argument `index` of a kernel.
///
/// # Safety
/// `context` is what the device handed to the kernel.
pub unsafe fn arg(context: *const GroupContext, index: usize) -> u64 {
    // SAFETY: the test's argument block has that many words.
    unsafe { (*context).args.cast::<u64>().add(index).read() }
}

/// The cell that argument `index` names.
///
/// # Safety
/// The rules of [`arg`] hold; the argument is the address of a cell.
pub unsafe fn cell_arg<'a>(context: *const GroupContext, index: usize) -> &'a AtomicU64 {
    // SAFETY: the caller guarantees that the argument is the address of a cell.
    unsafe { AtomicU64::from_ptr(arg(context, index) as *mut u64) }
}

/// Kernel: counts its groups in the cell of argument 0.
pub unsafe extern "C" fn count_groups(context: *const GroupContext) {
    // SAFETY: argument 0 is a cell.
    unsafe { cell_arg(context, 0) }.fetch_add(1, Ordering::Relaxed);
}

/// Kernel: sets the cell of argument 0, then waits for that of argument 1.
pub unsafe extern "C" fn meet(context: *const GroupContext) {
    // SAFETY: both arguments are cells.
    let (mine, other) = unsafe { (cell_arg(context, 0), cell_arg(context, 1)) };
    mine.store(1, Ordering::Release);
    while other.load(Ordering::Acquire) == 0 {
        std::hint::spin_loop();
    }
}

/// Kernel: never ends.
pub unsafe extern "C" fn endless(context: *const GroupContext) {
    // SAFETY: argument 0 is a cell.
    let cell = unsafe { cell_arg(context, 0) };
    loop {
        cell.fetch_add(1, Ordering::Relaxed);
    }
}

pub const ORDERED: u8 = flag::ORDERED;
