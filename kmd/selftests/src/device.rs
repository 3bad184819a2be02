// SPDX-License-Identifier: GPL-2.0
//! The render node, and a VM with memory and queues to test with.

use std::fs::{File, OpenOptions, read_dir};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use tally_uapi::cell::{CellKind, Compare};
use tally_uapi::ioctl::{
    BoCreate, BoInfo, Ioctl, QueueCreate, QueueKick, QueueQuery, SemWait, SemWaitEntry, VmBind,
    VmCreate, bind_flag, bind_op,
};
use tally_uapi::packet::{Dispatch, Header, Nop, Packet, PostSync, Wait, WaitEntry, flag, opcode};
use tally_uapi::queue::QueueControl;

use crate::coverage;

/// Bytes of a page.
pub const PAGE: u64 = tally_uapi::PAGE_SIZE;
/// Read and write access.
pub const RW: u32 = bind_flag::READ | bind_flag::WRITE;
/// Pages of a fixture's window.
pub const WINDOW_PAGES: u64 = 1 << 16;
/// The timeout of a wait without a deadline.
pub const FOREVER: i64 = i64::MAX;

/// `_IOWR('d', number, struct)` of the DRM core.
pub const fn core_request(number: u32, bytes: usize) -> u64 {
    (3 << 30 | (bytes as u64) << 16) | (b'd' as u64) << 8 | number as u64
}

#[repr(C)]
struct Version {
    version: [i32; 3],
    name_len: usize,
    name: *mut u8,
    others: [usize; 4],
}

#[repr(C)]
struct GemClose {
    handle: u32,
    pad: u32,
}

#[repr(C)]
struct PrimeHandle {
    handle: u32,
    flags: u32,
    fd: i32,
}

/// An open render node.
#[derive(Debug)]
pub struct Node(File);

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

impl Node {
    /// Opens the first Tally.
    pub fn open() -> Self {
        Self::try_open().expect("a Tally render node")
    }

    /// Opens the first Tally, as soon as there is one.
    pub fn await_one() -> Self {
        let mut found = None;
        eventually(|| {
            found = Self::try_open();
            found.is_some()
        });
        found.expect("a Tally render node")
    }

    /// Opens the first Tally, if there is one.
    pub fn try_open() -> Option<Self> {
        let mut paths: Vec<PathBuf> =
            read_dir("/dev/dri").ok()?.flatten().map(|e| e.path()).collect();
        paths.sort();
        let nodes = paths.iter().filter(|path| path.to_string_lossy().contains("renderD"));
        nodes
            .filter_map(|path| {
                let file = OpenOptions::new()
                    .read(true)
                    .write(true)
                    .custom_flags(libc::O_CLOEXEC)
                    .open(path);
                Some(Self(file.ok()?))
            })
            .find(Self::is_tally)
    }

    /// Opens a Tally node by its path.
    pub fn open_path(path: &std::path::Path) -> Self {
        let options =
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_CLOEXEC).clone();
        Self(options.open(path).expect("the render node"))
    }

    /// Opens the primary node of another driver, if there is one.
    pub fn of_driver(driver: &str) -> Option<Self> {
        let paths = read_dir("/dev/dri").ok()?.flatten().map(|entry| entry.path());
        let cards = paths.filter(|path| path.to_string_lossy().contains("card"));
        cards.map(|path| Self::open_path(&path)).find(|node| node.is_of(driver))
    }

    fn is_tally(&self) -> bool {
        self.is_of("tally")
    }

    fn is_of(&self, driver: &str) -> bool {
        let mut name = [0u8; 16];
        let mut version = Version {
            version: [0; 3],
            name_len: name.len(),
            name: name.as_mut_ptr(),
            others: [0; 4],
        };
        // SAFETY: the struct is the core's, and names a buffer with its size.
        let answer = unsafe { self.raw(core_request(0, size_of::<Version>()), &mut version) };
        answer == Ok(()) && name.split(|&byte| byte == 0).next() == Some(driver.as_bytes())
    }

    /// An ioctl by number.
    ///
    /// # Safety
    /// `arg` is the struct of that number, with valid addresses in it.
    pub unsafe fn raw<T>(&self, request: u64, arg: &mut T) -> Result<(), i32> {
        coverage::trace();
        // SAFETY: the caller guarantees that the struct fits the number.
        let answer = match unsafe { libc::ioctl(self.0.as_raw_fd(), request as libc::Ioctl, arg) } {
            0 => Ok(()),
            _ => Err(errno()),
        };
        coverage::collect();
        answer
    }

    /// An ioctl of Tally. Addresses in `arg` may be wrong on purpose: the kernel checks them.
    pub fn call<T: Ioctl>(&self, arg: &mut T) -> Result<(), i32> {
        // SAFETY: the number fits the struct; the addresses that tests pass name their own memory, or none.
        unsafe { self.raw(u64::from(T::REQUEST), arg) }
    }

    /// GEM_CLOSE.
    pub fn close(&self, handle: u32) -> Result<(), i32> {
        // SAFETY: the core's struct.
        unsafe { self.raw(core_request(0x09, 8) & !(2 << 30), &mut GemClose { handle, pad: 0 }) }
    }

    /// A dma-buf of a buffer.
    pub fn export(&self, handle: u32) -> Result<OwnedFd, i32> {
        let flags = (libc::O_CLOEXEC | libc::O_RDWR) as u32;
        let mut arg = PrimeHandle { handle, flags, fd: -1 };
        // SAFETY: the core's struct.
        unsafe { self.raw(core_request(0x2d, size_of::<PrimeHandle>()), &mut arg)? };
        // SAFETY: the core has just made it.
        Ok(unsafe { OwnedFd::from_raw_fd(arg.fd) })
    }

    /// The handle of a dma-buf.
    pub fn import(&self, fd: RawFd) -> Result<u32, i32> {
        let mut arg = PrimeHandle { handle: 0, flags: 0, fd };
        // SAFETY: the core's struct.
        unsafe { self.raw(core_request(0x2e, size_of::<PrimeHandle>()), &mut arg)? };
        Ok(arg.handle)
    }

    /// The number of the file.
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// A buffer of whole pages.
    pub fn bo(&self, pages: u64, flags: u32) -> Result<u32, i32> {
        let mut arg = BoCreate { size: pages * PAGE, flags, handle: 0 };
        self.call(&mut arg)?;
        Ok(arg.handle)
    }

    /// Maps all of a buffer for the host.
    pub fn map(&self, handle: u32, protection: i32) -> Result<Mapped, i32> {
        let mut info = BoInfo { handle, ..Default::default() };
        self.call(&mut info)?;
        Mapped::new(self.0.as_raw_fd(), info.mmap_offset, info.size, protection)
    }
}

/// Memory that is mapped for the host.
pub struct Mapped {
    address: *mut libc::c_void,
    bytes: usize,
}

// SAFETY: plain memory, accessed by atomics only.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps a part of a file.
    pub fn new(fd: RawFd, offset: u64, bytes: u64, protection: i32) -> Result<Self, i32> {
        let bytes = bytes as usize;
        // SAFETY: a new mapping where nothing is.
        let address = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, fd, offset as i64)
        };
        if address == libc::MAP_FAILED { Err(errno()) } else { Ok(Self { address, bytes }) }
    }

    /// Word `index`.
    pub fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.bytes / 8);
        // SAFETY: within the mapping; all other users access it atomically.
        unsafe { AtomicU64::from_ptr(self.address.cast::<u64>().add(index)) }
    }

    /// Its address.
    pub fn address(&self) -> u64 {
        self.address.addr() as u64
    }

    /// munmap of its first bytes, whole pages.
    pub fn cut_front(&mut self, bytes: u64) {
        // SAFETY: a part of our own mapping, without references into it.
        assert_eq!(unsafe { libc::munmap(self.address, bytes as usize) }, 0);
        self.address = self.address.wrapping_byte_add(bytes as usize);
        self.bytes -= bytes as usize;
    }

    /// mremap of all of it.
    pub fn move_elsewhere(&mut self) {
        // SAFETY: a new mapping as the target, which our own mapping then replaces.
        let moved = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let place = libc::mmap(std::ptr::null_mut(), self.bytes, libc::PROT_NONE, flags, -1, 0);
            assert_ne!(place, libc::MAP_FAILED);
            let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            libc::mremap(self.address, self.bytes, self.bytes, flags, place)
        };
        assert_ne!(moved, libc::MAP_FAILED);
        self.address = moved;
    }

    /// mprotect of all of it.
    pub fn protect(&self, protection: i32) -> Result<(), i32> {
        // SAFETY: our own mapping.
        if unsafe { libc::mprotect(self.address, self.bytes, protection) } == 0 {
            Ok(())
        } else {
            Err(errno())
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: our own mapping; references into it have ended.
        unsafe { libc::munmap(self.address, self.bytes) };
    }
}

/// A node with a VM. VAs are page numbers in its window.
pub struct Fixture {
    pub node: Node,
    pub vm: u32,
    pub start: u64,
}

impl Fixture {
    pub fn new() -> Self {
        Self::on(Node::open())
    }

    /// A VM on an open node.
    pub fn on(node: Node) -> Self {
        let start = 0x10_0000_0000;
        let vm = Self::create_vm(&node, start).expect("a VM");
        Self { node, vm, start }
    }

    /// VM_CREATE of the usual window.
    pub fn create_vm(node: &Node, start: u64) -> Result<u32, i32> {
        let mut create = VmCreate { start, size: WINDOW_PAGES * PAGE, ..Default::default() };
        node.call(&mut create)?;
        assert_ne!(create.vm_id, 0);
        Ok(create.vm_id)
    }

    /// The VA of a page.
    pub fn va(&self, page: u64) -> u64 {
        self.start + page * PAGE
    }

    /// A MAP.
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

    /// An UNMAP.
    pub fn unmap(&self, page: u64, pages: u64) -> VmBind {
        VmBind { op: bind_op::UNMAP, flags: 0, handle: 0, ..self.map(0, 0, page, pages, 0) }
    }

    /// VM_BIND.
    pub fn bind(&self, mut bind: VmBind) -> Result<(), i32> {
        self.node.call(&mut bind)
    }

    /// A buffer, bound at a page and mapped for the host.
    pub fn memory(&self, page: u64, pages: u64) -> (u32, Mapped) {
        let handle = self.node.bo(pages, 0).expect("a buffer");
        self.bind(self.map(handle, 0, page, pages, RW)).expect("a binding");
        let mapped = self.node.map(handle, libc::PROT_READ | libc::PROT_WRITE);
        (handle, mapped.expect("a mapping"))
    }

    /// A queue with its memory at `page`: control page, ring, and a page of cells.
    pub fn queue(&self, page: u64) -> Queue<'_> {
        self.queue_on(page, 0)
    }

    /// Like [`Self::queue`], on an engine of `class`.
    pub fn queue_on(&self, page: u64, class: u32) -> Queue<'_> {
        let (handle, memory) = self.memory(page, 3);
        // SAFETY: the page is mapped and not used otherwise.
        unsafe { (memory.address() as *mut QueueControl).write(QueueControl::new()) };
        let mut create = QueueCreate { engine_class: class, ..self.queue_create(page) };
        self.node.call(&mut create).expect("a queue");
        assert_ne!(create.queue_id, 0);
        Queue { fixture: self, id: create.queue_id, handle, page, memory, tail: 0 }
    }

    /// The QUEUE_CREATE of [`Self::queue`].
    pub fn queue_create(&self, page: u64) -> QueueCreate {
        QueueCreate {
            vm_id: self.vm,
            priority: 1,
            ring: self.va(page + 1),
            control: self.va(page),
            packets: 64,
            ..Default::default()
        }
    }

    /// SEM_WAIT.
    pub fn wait(&self, entries: &[SemWaitEntry], flags: u32, timeout_ns: i64) -> Result<u32, i32> {
        wait(&self.node, self.vm, entries, flags, timeout_ns)
    }
}

/// SEM_WAIT with a VM.
pub fn wait(
    node: &Node,
    vm_id: u32,
    entries: &[SemWaitEntry],
    flags: u32,
    timeout_ns: i64,
) -> Result<u32, i32> {
    let mut arg = SemWait {
        entries: entries.as_ptr().addr() as u64,
        count: entries.len() as u32,
        flags,
        timeout_ns,
        vm_id,
        index: 0,
    };
    node.call(&mut arg).map(|()| arg.index)
}

/// A queue whose cells are in its third page.
pub struct Queue<'a> {
    fixture: &'a Fixture,
    pub id: u32,
    pub handle: u32,
    page: u64,
    pub memory: Mapped,
    tail: u64,
}

impl Queue<'_> {
    /// Publishes a packet. Returns whether the device slept and had to be kicked.
    pub fn push(&mut self, packet: impl Into<Packet>) -> bool {
        let slot = self.memory.address() + PAGE + self.tail % 64 * 64;
        // SAFETY: a slot of the ring; the tests never have 64 packets under way.
        unsafe { (slot as *mut Packet).write(packet.into()) };
        self.tail += 1;
        // SAFETY: the control page, which is all atomics.
        let control = unsafe { &*(self.memory.address() as *const QueueControl) };
        let asleep = control.publish(self.tail);
        if asleep {
            // EIO: the VM is lost, which some tests want.
            let _ = self.fixture.node.call(&mut QueueKick { queue_id: self.id, pad: 0 });
        }
        asleep
    }

    /// The VA of a cell.
    pub fn cell(&self, index: usize) -> u64 {
        self.fixture.va(self.page + 2) + index as u64 * 8
    }

    /// The host's view of a cell.
    pub fn word(&self, index: usize) -> &AtomicU64 {
        self.memory.word(2 * PAGE as usize / 8 + index)
    }

    /// A wait for a cell to reach a value.
    pub fn entry(&self, index: usize, value: u64) -> SemWaitEntry {
        entry(self.handle, 2 * PAGE + index as u64 * 8, value)
    }

    /// A packet that signals a cell once all earlier packets are done.
    pub fn signal(&self, index: usize, value: u64) -> Nop {
        signal_at(self.cell(index), value)
    }

    /// QUEUE_QUERY.
    pub fn query(&self) -> QueueQuery {
        let mut query = QueueQuery { queue_id: self.id, ..Default::default() };
        self.fixture.node.call(&mut query).expect("QUEUE_QUERY");
        query
    }
}

/// A DISPATCH of one group of one item.
pub fn dispatch(entry: u64, kernarg: u64) -> Dispatch {
    let header = Header { opcode: opcode::DISPATCH, ..Header::default() };
    let post = PostSync::default();
    let groups = [1; 3];
    let group_size = [1; 3];
    Dispatch { header, entry, kernarg, groups, scratch_bytes: 0, group_size, work_dim: 3, post }
}

/// A signal of a cell by its VA.
pub fn signal_at(address: u64, value: u64) -> Nop {
    let flags = flag::ORDERED | flag::POST_SYNC;
    let header = Header { opcode: opcode::NOP, flags, ..Header::default() };
    Nop { header, zero: [0; 5], post: PostSync { address, value } }
}

/// A WAIT until a cell reaches a value.
pub fn wait_for(address: u64, value: u64, kind: CellKind) -> Wait {
    let header = Header { opcode: opcode::WAIT, param: 1, ..Header::default() };
    let mut entries = [WaitEntry::default(); 3];
    entries[0] = WaitEntry { address, value };
    let (kinds, compares) = ([kind as u8, 0, 0], [Compare::GreaterEqual as u8, 0, 0]);
    Wait { header, entries, kinds, compares, operands: 0, reserved: 0 }
}

/// A wait for a cell of a buffer to reach a value.
pub fn entry(handle: u32, offset: u64, value: u64) -> SemWaitEntry {
    SemWaitEntry { handle, compare: Compare::GreaterEqual as u32, offset, value }
}

/// CLOCK_MONOTONIC in ns.
pub fn now_ns() -> i64 {
    // SAFETY: fills the struct.
    let time = unsafe {
        let mut time = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time);
        time
    };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// A deadline `ms` ms from now.
pub fn in_ms(ms: i64) -> i64 {
    now_ns() + ms * 1_000_000
}

/// Waits for a condition without a notification. A wait beyond the limit is a hang: on the debug kernel the
/// device takes minutes to remove all mappings that a user may have.
pub fn eventually(mut done: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(900);
    while !done() {
        assert!(Instant::now() < until, "it never came");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A number in the module's file in debugfs.
pub fn counter(name: &str) -> u64 {
    debug_number(name, 1)
}

/// KiB of buffers and other shared memory, by the kernel's own count, which may lag behind by some pages for
/// each processor.
pub fn shared_kib() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").expect("meminfo");
    let line = text.lines().find(|line| line.starts_with("Shmem:")).expect("Shmem");
    line.split_whitespace().nth(1).and_then(|word| word.parse().ok()).expect("a number")
}

/// Bytes that the buffers of all clients may have.
pub fn memory_limit() -> u64 {
    // "memory", used, "of", limit.
    debug_number("memory", 3)
}

/// Bytes that are kept because the device might still use them.
pub fn quarantined() -> u64 {
    debug_number("quarantined", 1)
}

fn debug_number(name: &str, word: usize) -> u64 {
    let text = debug_text();
    let line = text.lines().find(|line| line.split('\t').next() == Some(name));
    let value = line.and_then(|line| line.split(['\t', ' ']).nth(word)?.parse().ok());
    value.unwrap_or_else(|| panic!("no number {word} of {name} in debugfs:\n{text}"))
}

/// Waits until there are only `vms` VMs, and returns the number of interrupts.
///
/// The device answers the end of a file after it was closed, and an answer that is taken with an earlier one's
/// interrupt still has its own interrupt. So this waits until none has arrived for a while.
pub fn interrupts_with(vms: usize) -> u64 {
    eventually(|| debug_lines("vm ") == vms);
    let mut last = counter("interrupts");
    eventually(|| {
        std::thread::sleep(Duration::from_millis(100));
        let now = counter("interrupts");
        std::mem::replace(&mut last, now) == now
    });
    last
}

/// Asserts that `f` causes no interrupts, with `vms` VMs. The driver pings the device now and then, and may
/// have done so just before; the answers to pings do not count.
pub fn without_interrupts(vms: usize, f: impl FnOnce()) {
    let pings = counter("pings");
    let interrupts = interrupts_with(vms);
    f();
    let interrupts = counter("interrupts") - interrupts;
    let pings = counter("pings") - pings;
    assert!(interrupts <= pings + 1, "{interrupts} interrupts, {pings} of them answers to pings");
}

/// Waits until the device has answered the end of all closed files, so that their resources are free.
pub fn nobody_is_left() {
    eventually(|| debug_lines("vm ") == 0 && debug_lines("queue ") == 0);
}

/// Number of lines in the module's file in debugfs that begin with `start`.
pub fn debug_lines(start: &str) -> usize {
    debug_text().lines().filter(|line| line.starts_with(start)).count()
}

fn debug_text() -> String {
    debug_file("state")
}

/// A file of the module in debugfs.
pub fn debug_file(name: &str) -> String {
    let entries = read_dir("/sys/kernel/debug").expect("debugfs").flatten();
    let of_tally = entries.map(|e| e.path()).find(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("tally-"))
    });
    std::fs::read_to_string(of_tally.expect("tally in debugfs").join(name)).expect("its file")
}
