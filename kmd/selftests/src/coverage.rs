// SPDX-License-Identifier: GPL-2.0
//! Which blocks of the module were run (KCOV), where the kernel can tell.
//!
//! A thread's calls leave the addresses of the blocks that they ran in a buffer; those of the module are
//! marked in memory that all processes of a run share.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// Addresses that a thread's buffer holds.
const ROOM: usize = 1 << 16;
/// `_IOR('c', 1, unsigned long)`: how long the buffer is.
const KCOV_INIT_TRACE: u64 = 0x8008_6301;
/// `_IO('c', 100)`: from now on, this thread.
const KCOV_ENABLE: u64 = 0x6364;

/// The module's text, a mark for each address.
#[derive(Clone, Copy)]
pub struct Map {
    start: u64,
    marks: &'static [AtomicU8],
}

/// A thread's buffer.
pub struct Trace {
    /// The number of addresses, then they.
    buffer: NonNull<AtomicU64>,
    /// Ends the trace when closed.
    _file: File,
    map: Map,
}

/// Shared memory for `bytes`, which stays.
fn shared(bytes: usize, fd: i32) -> Option<NonNull<u8>> {
    let anonymous = if fd < 0 { libc::MAP_ANONYMOUS } else { 0 };
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | anonymous;
    // SAFETY: a new mapping where nothing is.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, fd, 0) };
    if start == libc::MAP_FAILED { None } else { NonNull::new(start.cast()) }
}

impl Map {
    /// Room for the marks of the loaded module; to be made before processes are.
    pub fn new() -> Option<Self> {
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

    /// Blocks that were run so far.
    pub fn count(&self) -> usize {
        self.marks.iter().filter(|mark| mark.load(Relaxed) != 0).count()
    }
}

impl Trace {
    /// Traces the calling thread. None where the kernel has no KCOV.
    pub fn start(map: Map) -> Option<Self> {
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
        Some(Self { buffer, _file: file, map })
    }

    /// Marks what was run since the last call.
    pub fn collect(&self) {
        // SAFETY: the buffer is mapped, and the kernel writes whole words of it for this thread only.
        let words = unsafe { std::slice::from_raw_parts(self.buffer.as_ptr(), ROOM) };
        let count = (words[0].load(Relaxed) as usize).min(ROOM - 1);
        for word in &words[1..=count] {
            let place = word.load(Relaxed).wrapping_sub(self.map.start);
            if let Some(mark) = self.map.marks.get(place as usize) {
                mark.store(1, Relaxed);
            }
        }
        words[0].store(0, Relaxed);
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        // SAFETY: the own mapping, which nobody refers to any more.
        unsafe { libc::munmap(self.buffer.as_ptr().cast(), ROOM * 8) };
    }
}
