// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cells: the words on which host and device wait.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::thread::futex;
use tally_uapi::cell::CELL_SIZE;

use crate::vm::heap::Block;

/// Value of a regular event's cell when it is signalled; 0 when it is not.
pub const SIGNALLED: u64 = 1;

/// An aligned 64-bit word on which host and device wait, and its place for the kernel.
///
/// A plain value. Its creator guarantees that the word stays mapped: counters belong to
/// [`Shared`](super::shared::Shared), which every list, queue and event keeps, and regular events belong
/// to a pool that each of them keeps.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    word: NonNull<AtomicU64>,
    bo: u32,
    offset: u64,
}

// SAFETY: the word is atomic and stays mapped, as the contract of `Cell::new` requires.
unsafe impl Send for Cell {}
// SAFETY: as above.
unsafe impl Sync for Cell {}

impl Cell {
    /// The word at `offset` bytes of `block`.
    ///
    /// # Safety
    /// The block outlives every use of the cell and its copies, and this place holds nothing but cells.
    /// `offset` is a multiple of 8 within the block.
    pub unsafe fn new(block: &Block, offset: u64) -> Self {
        debug_assert!(offset.is_multiple_of(CELL_SIZE) && offset + CELL_SIZE <= block.size());
        // SAFETY: the offset lies within the block.
        let word = unsafe { block.ptr().add(offset as usize) }.cast();
        Self { word, bo: block.bo(), offset: block.offset() + offset }
    }

    /// The half of the word that changes with every signal, with a futex's size.
    fn low_half(&self) -> &AtomicU32 {
        // SAFETY: as for `word`, of which it is the first half on this machine; only the kernel accesses it
        // with this type.
        unsafe { self.word.cast().as_ref() }
    }

    /// Sleeps until another process calls [`Cell::wake_processes`], the low half of the word is no longer
    /// that of `value`, or the time has passed. It may also wake spuriously.
    pub fn sleep_while(self, value: u64, time: Duration) {
        let time = Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        };
        // Whatever the result, the caller checks the word.
        let _ = futex::wait(self.low_half(), futex::Flags::empty(), value as u32, Some(&time));
    }

    /// Wakes all sleepers in [`Cell::sleep_while`], in all processes.
    pub fn wake_processes(self) {
        // This cannot fail for a word that is mapped.
        let _ = futex::wake(self.low_half(), futex::Flags::empty(), i32::MAX as u32);
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: the caller of `new` guarantees that the word stays mapped and is only used as a cell.
        unsafe { self.word.as_ref() }
    }

    /// The address, for the device and the host.
    #[inline]
    pub fn va(self) -> u64 {
        self.word.as_ptr() as u64
    }

    /// The value (acquire): all writes before its signal are visible.
    #[inline]
    pub fn load(self) -> u64 {
        self.word().load(Ordering::Acquire)
    }

    /// Writes the value (release): all earlier writes are visible to its readers. It wakes no waiter.
    pub fn store(self, value: u64) {
        self.word().store(value, Ordering::Release);
    }

    /// Whether it holds at least `value`.
    #[inline]
    pub fn reached(self, value: u64) -> bool {
        self.load() >= value
    }

    /// The handle of the buffer that it lies in.
    pub fn bo(self) -> u32 {
        self.bo
    }

    /// Its offset in that buffer, in bytes.
    pub fn offset(self) -> u64 {
        self.offset
    }
}

impl PartialEq for Cell {
    fn eq(&self, other: &Self) -> bool {
        self.word == other.word
    }
}
