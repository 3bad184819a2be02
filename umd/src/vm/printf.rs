// SPDX-License-Identifier: MIT OR Apache-2.0
//! The output of `printf` in kernels.
//!
//! Kernels write records to a ring in memory ([`tally_compiler_protocol::printf`]); each VM has one,
//! created with the first kernel that prints. The host formats the records and writes them to the
//! process's standard output when it synchronises: [`flush`]. The output passes through C's `stdout`, so
//! that it stays in order with the output of a C program, and is flushed there. The output of one call of
//! `printf` is never split.
//!
//! A kernel finishes its records before it is complete. A thread that has waited for a launch and then
//! flushes therefore gets its whole output, even if another kernel is in the middle of a record: the
//! reader waits for that.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use tally_compiler_protocol::printf::{CAPACITY, DATA, HEAD, REFUSED, SKIP, TAIL, text};
use tally_uapi::ioctl::bind_flag;

use super::bindings::{Bindings, Mapping};
use crate::checks;
use crate::error::Result;
use crate::process;

/// Bytes of a ring, as ze_device_module_properties_t.printfBufferSize reports them.
pub const BUFFER_BYTES: u32 = 4 << 20;
const BYTES: u64 = BUFFER_BYTES as u64;

/// The time for which the reader waits for a record that a kernel has begun.
const PATIENCE: Duration = Duration::from_secs(1);
/// Bytes of text that are collected before they are written; the rest is written at the end.
const CHUNK: usize = 1 << 20;

/// Whether any kernel of the process prints, or is checked.
static ANY: AtomicBool = AtomicBool::new(false);
/// The rings of the process.
static RINGS: Mutex<Vec<Weak<Ring>>> = Mutex::new(Vec::new());

/// From now on [`flush`] also reports the findings of checks.
pub fn include_checks() {
    ANY.store(true, Ordering::Relaxed);
}

/// Writes the output of kernels to standard output; with `complete`, including records that they are still
/// writing.
#[inline]
pub fn flush(complete: bool) {
    if ANY.load(Ordering::Relaxed) {
        flush_all(complete);
    }
}

#[cold]
fn flush_all(complete: bool) {
    if process::is_gone() {
        return;
    }
    let rings: Vec<Arc<Ring>> = rings().iter().filter_map(Weak::upgrade).collect();
    rings.iter().for_each(|ring| ring.drain(complete));
    checks::drain();
}

fn rings() -> MutexGuard<'static, Vec<Weak<Ring>>> {
    RINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The ring of a VM. Its remaining records are printed on drop.
pub struct Ring {
    mapping: Mapping,
    reader: Mutex<Reader>,
}

/// The host's own state of a ring, whatever kernels do to the memory.
#[derive(Default)]
struct Reader {
    tail: u64,
    /// The position of a record that did not arrive while the reader waited for it.
    stuck: Option<u64>,
}

impl Ring {
    /// A ring in a VM.
    ///
    /// # Errors
    /// Those of [`Bindings::map`].
    pub fn create(bindings: &Arc<Bindings>) -> Result<Arc<Self>> {
        let flags = bind_flag::READ | bind_flag::WRITE;
        // Memory of a new buffer is all zeros.
        let mapping = bindings.map(DATA as u64 + BYTES, DATA as u64, flags)?;
        let ring = Arc::new(Self { mapping, reader: Mutex::default() });
        ring.word(CAPACITY).store(BYTES, Ordering::Release);
        let mut rings = rings();
        rings.retain(|ring| ring.strong_count() > 0);
        rings.push(Arc::downgrade(&ring));
        ANY.store(true, Ordering::Relaxed);
        Ok(ring)
    }

    /// Its address for kernels.
    pub fn va(&self) -> u64 {
        self.mapping.va()
    }

    /// A word at an offset, a multiple of 8 within the buffer.
    fn word(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(offset.is_multiple_of(8) && offset < DATA + BUFFER_BYTES as usize);
        // SAFETY: the buffer is mapped for the host as long as `self.mapping` lives, and the offset is within
        // it and aligned. These words are accessed atomically, except for a record's content, which is
        // accessed before its first word is stored and after that word is zeroed.
        unsafe { self.mapping.ptr().byte_add(offset).cast::<AtomicU64>().as_ref() }
    }

    /// Prints the records up to now.
    fn drain(&self, complete: bool) {
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        // Kernels may write anything there, so the positions of words must not depend on its low bits.
        let head = self.word(HEAD).load(Ordering::Acquire) & !7;
        let mut out = Vec::new();
        if head.wrapping_sub(reader.tail) > BYTES {
            self.give_up(&mut reader, head);
        }
        while reader.tail != head {
            let at = DATA + (reader.tail % BYTES) as usize;
            let Some(first) = self.first_word(at, complete, &mut reader) else { break };
            let size = first & !SKIP;
            let left = (BYTES - reader.tail % BYTES).min(head.wrapping_sub(reader.tail));
            if size == 0 || size > left || !size.is_multiple_of(8) {
                self.give_up(&mut reader, head);
                break;
            }
            let record = self.take(at, size);
            reader.tail = reader.tail.wrapping_add(size);
            self.word(TAIL).store(reader.tail, Ordering::Release);
            if first & SKIP == 0 {
                match text(&record) {
                    Some(text) => out.extend_from_slice(&text),
                    None => log::warn!("printf: a kernel has damaged a record"),
                }
            }
            if out.len() >= CHUNK {
                write(&out);
                out.clear();
            }
        }
        write(&out);
        match self.word(REFUSED).swap(0, Ordering::Relaxed) {
            0 => {}
            calls => log::warn!("printf: the buffer was full for {calls} calls, which returned -1"),
        }
    }

    /// The first word of a record; `None` if it is not complete.
    fn first_word(&self, at: usize, complete: bool, reader: &mut Reader) -> Option<u64> {
        let word = self.word(at);
        let wait = complete && reader.stuck != Some(reader.tail);
        let start = Instant::now();
        loop {
            match word.load(Ordering::Acquire) {
                0 if wait && start.elapsed() < PATIENCE => thread::yield_now(),
                0 => {
                    // Its kernel has been stopped or makes no progress.
                    reader.stuck = wait.then_some(reader.tail).or(reader.stuck);
                    return None;
                }
                first => return Some(first),
            }
        }
    }

    /// Copies a record and zeroes its memory.
    fn take(&self, at: usize, size: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(size as usize);
        for offset in (at..at + size as usize).step_by(8) {
            let word = self.word(offset);
            bytes.extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
            word.store(0, Ordering::Relaxed);
        }
        bytes
    }

    /// Skips all records, because a kernel has overwritten the ring.
    #[cold]
    fn give_up(&self, reader: &mut Reader, head: u64) {
        log::warn!("printf: a kernel has damaged the buffer; its content is lost");
        self.take(DATA, BYTES);
        reader.tail = head;
        self.word(CAPACITY).store(BYTES, Ordering::Relaxed);
        self.word(TAIL).store(head, Ordering::Release);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if !process::is_gone() {
            self.drain(false);
        }
    }
}

unsafe extern "C" {
    /// C's standard output.
    static stdout: *mut libc::FILE;
}

/// Writes to standard output, in one piece.
fn write(text: &[u8]) {
    if text.is_empty() {
        return;
    }
    // SAFETY: C's standard output exists as long as the process; the functions lock it themselves.
    // Output that cannot be written is lost, as with C's printf, whose result few programs check.
    unsafe {
        libc::fwrite(text.as_ptr().cast(), 1, text.len(), stdout);
        libc::fflush(stdout);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::tests::fake;

    /// "whatever kernels do to the memory": the reader stops, and continues behind it.
    #[test]
    fn a_damaged_ring_is_given_up_and_then_used_again() {
        let (_, vm) = fake();
        let va = vm.printf_ring().expect("room");
        let ring = rings().iter().filter_map(Weak::upgrade).find(|it| it.va() == va);
        let ring = ring.expect("it was just made");
        let tail = || ring.word(TAIL).load(Ordering::Relaxed);
        let put = |at: u64, first| {
            ring.word(DATA + (at % BYTES) as usize).store(first, Ordering::Relaxed);
        };
        let drain_to = |head| {
            ring.word(HEAD).store(head, Ordering::Relaxed);
            ring.drain(false);
            tail()
        };
        for first in [SKIP, SKIP | 24, SKIP | 4, 3, u64::MAX] {
            let start = tail();
            put(start, first);
            assert_eq!(drain_to(start + 16), start + 16, "a record that begins with {first:#x}");
            assert_eq!(ring.word(DATA + start as usize).load(Ordering::Relaxed), 0, "{first:#x}");
        }
        let end = u64::MAX - 7;
        assert_eq!(drain_to(u64::MAX), end, "more than the ring holds, to a place of no word");
        put(end, SKIP | 8);
        put(0, SKIP | 8);
        assert_eq!(drain_to(8), 8, "what is sound is read again, also where the count begins anew");
        put(8, SKIP | 8);
        assert_eq!(drain_to(21), 16);
    }
}
