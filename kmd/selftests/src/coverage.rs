// SPDX-License-Identifier: GPL-2.0
//! Coverage of the module's basic blocks (KCOV), on kernels that have it.
//!
//! A thread's calls leave the addresses of the blocks that they ran in a buffer, which is read after each ioctl;
//! those of the module are marked in memory that all processes of a run share. Blocks that the interrupt's thread
//! and workqueues run are not seen.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Addresses that a thread's buffer holds.
const ROOM: usize = 1 << 16;
/// The most threads of a process that are traced: each buffer takes half a MiB of kernel memory.
const MOST: u32 = 64;
/// `_IOR('c', 1, unsigned long)`: sets the buffer's length in words.
const KCOV_INIT_TRACE: u64 = 0x8008_6301;
/// `_IO('c', 100)`: begins to trace the calling thread.
const KCOV_ENABLE: u64 = 0x6364;

static MAP: OnceLock<Map> = OnceLock::new();
static TRACES: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The thread's buffer, if it has one, and the process that asked for it: a child does not inherit the trace.
    static TRACE: RefCell<Option<(u32, Option<Trace>)>> = const { RefCell::new(None) };
}

/// The module's text, a mark for each address.
struct Map {
    start: u64,
    marks: &'static [AtomicU8],
}

/// A thread's buffer.
struct Trace {
    /// The number of addresses, followed by the addresses.
    buffer: NonNull<AtomicU64>,
    /// Ends the trace when closed.
    _file: File,
}

/// Begins to mark the blocks of the loaded module; before processes are made.
pub fn begin() {
    if let Some(map) = Map::new() {
        let _ = MAP.set(map);
    }
}

/// Traces the calling thread from now on, if that has begun.
pub fn trace() {
    if MAP.get().is_none() {
        return;
    }
    TRACE.with_borrow_mut(|trace| {
        let process = std::process::id();
        if trace.as_ref().is_none_or(|(owner, _)| *owner != process) {
            *trace = Some((process, Trace::start()));
        }
    });
}

/// Marks what the calling thread has run since the last call.
pub fn collect() {
    if let Some(map) = MAP.get() {
        TRACE.with_borrow(|trace| {
            let trace = trace.as_ref().and_then(|(_, trace)| trace.as_ref());
            trace.inspect(|trace| trace.collect(map));
        });
    }
}

/// Prints the number of blocks that were run. `TALLY_COVERAGE` names a file to which they are appended, a line
/// each: function and offset from its start.
pub fn report() {
    let blocks = MAP.get().map(Map::blocks).unwrap_or_default();
    if blocks.is_empty() {
        println!("# the kernel does not tell which blocks were run");
        return;
    }
    println!("# {} blocks of the module were run", blocks.len());
    let Some(path) = std::env::var_os("TALLY_COVERAGE") else { return };
    let text = fs::read_to_string("/proc/kallsyms").expect("the kernel's functions");
    let symbol = |line: &str| {
        let mut words = line.split_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        let name = words.nth(1)?.to_owned();
        (words.next() == Some("[tally]")).then_some((address, name))
    };
    let mut symbols: Vec<_> = text.lines().filter_map(symbol).collect();
    symbols.sort();
    let mut lines = String::new();
    for block in blocks {
        let next = symbols.partition_point(|(address, _)| *address <= block);
        if let Some((address, name)) = next.checked_sub(1).map(|index| &symbols[index]) {
            let _ = writeln!(lines, "{name} {:x}", block - address);
        }
    }
    let file = OpenOptions::new().create(true).append(true).open(path);
    std::io::Write::write_all(&mut file.expect("a file"), lines.as_bytes()).expect("a report");
}

/// Shared memory of `bytes` bytes, which is never unmapped.
fn shared(bytes: usize, fd: i32) -> Option<NonNull<u8>> {
    let anonymous = if fd < 0 { libc::MAP_ANONYMOUS } else { 0 };
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | anonymous;
    // SAFETY: a new mapping where nothing is.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, fd, 0) };
    if start == libc::MAP_FAILED { None } else { NonNull::new(start.cast()) }
}

impl Map {
    /// Room for the marks of the loaded module.
    fn new() -> Option<Self> {
        let modules = fs::read_to_string("/proc/modules").ok()?;
        let line = modules.lines().find(|line| line.starts_with("tally "))?;
        let mut fields = line.split(' ');
        let bytes = fields.nth(1)?.parse().ok()?;
        let start = u64::from_str_radix(fields.nth(3)?.trim_start_matches("0x"), 16).ok()?;
        let memory = shared(bytes, -1)?;
        // SAFETY: mapped for the program's life, zero, and used by atomics only.
        let marks = unsafe { std::slice::from_raw_parts(memory.as_ptr().cast(), bytes) };
        (start != 0).then_some(Self { start, marks })
    }

    /// Addresses of the blocks that were run so far.
    fn blocks(&self) -> Vec<u64> {
        let marked =
            self.marks.iter().zip(self.start..).filter(|(mark, _)| mark.load(Relaxed) != 0);
        marked.map(|(_, address)| address).collect()
    }
}

impl Trace {
    /// Traces the calling thread. None where the kernel has no KCOV, and for too many threads.
    fn start() -> Option<Self> {
        if TRACES.fetch_add(1, Relaxed) >= MOST {
            TRACES.fetch_sub(1, Relaxed);
            return None;
        }
        let path = "/sys/kernel/debug/kcov";
        let file = OpenOptions::new().read(true).write(true).open(path).ok()?;
        let fd = file.as_raw_fd();
        // SAFETY: takes a number.
        if unsafe { libc::ioctl(fd, KCOV_INIT_TRACE as libc::Ioctl, ROOM) } != 0 {
            return None;
        }
        let buffer = shared(ROOM * 8, fd)?.cast();
        // SAFETY: as above; 0 asks for addresses.
        if unsafe { libc::ioctl(fd, KCOV_ENABLE as libc::Ioctl, 0) } != 0 {
            return None;
        }
        Some(Self { buffer, _file: file })
    }

    fn collect(&self, map: &Map) {
        // SAFETY: the buffer is mapped, and the kernel writes whole words of it for this thread only.
        let words = unsafe { std::slice::from_raw_parts(self.buffer.as_ptr(), ROOM) };
        let count = (words[0].load(Relaxed) as usize).min(ROOM - 1);
        for word in &words[1..=count] {
            let place = word.load(Relaxed).wrapping_sub(map.start);
            if let Some(mark) = map.marks.get(place as usize) {
                mark.store(1, Relaxed);
            }
        }
        words[0].store(0, Relaxed);
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        TRACES.fetch_sub(1, Relaxed);
        // SAFETY: our own mapping, without any references left.
        unsafe { libc::munmap(self.buffer.as_ptr().cast(), ROOM * 8) };
    }
}
