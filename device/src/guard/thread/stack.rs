// SPDX-License-Identifier: MIT OR Apache-2.0
//! The signal stacks of the device's threads, all in one reservation.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::Record;

/// Threads that a process may have in guarded code, over all its devices.
const SEATS: usize = 512;
/// Bytes of a seat: a page for the record, then the stack. A signal frame with
/// AVX-512 and AMX state needs about 12 KiB.
const SEAT_BYTES: usize = 32 << 10;
const RECORD_BYTES: usize = 4096;

/// Start of the reservation, or 0. Read by the signal handler.
static BASE: AtomicUsize = AtomicUsize::new(0);
/// The seats that are taken. The lock is also held while the reservation is made.
static TAKEN: Mutex<[bool; SEATS]> = Mutex::new([false; SEATS]);

/// A seat of the reservation, given back on drop.
#[derive(Debug)]
pub(super) struct SignalStack {
    seat: usize,
    /// The thread that attached it, and the signal stack that it had before.
    attached: std::cell::Cell<bool>,
}

impl SignalStack {
    /// Takes a free seat.
    pub(super) fn take() -> io::Result<Self> {
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        if BASE.load(Ordering::Relaxed) == 0 {
            BASE.store(reserve()?, Ordering::Release);
        }
        let seat = taken.iter().position(|&taken| !taken);
        let seat = seat.ok_or_else(|| io::Error::other("all signal stacks are in use"))?;
        taken[seat] = true;
        Ok(Self { seat, attached: std::cell::Cell::new(false) })
    }

    fn start(&self) -> usize {
        BASE.load(Ordering::Acquire) + self.seat * SEAT_BYTES
    }

    pub(super) fn record(&self) -> &'static Record {
        // SAFETY: see `record_in`; the seat lies in the reservation.
        unsafe { record_in(self.start()) }
    }

    /// Makes it the calling thread's signal stack.
    pub(super) fn attach(&self) -> io::Result<()> {
        let stack = libc::stack_t {
            ss_sp: (self.start() + RECORD_BYTES) as *mut libc::c_void,
            ss_flags: 0,
            ss_size: SEAT_BYTES - RECORD_BYTES,
        };
        // SAFETY: the memory is mapped for the process's life, and no other
        // thread has this seat.
        if unsafe { libc::sigaltstack(&stack, std::ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        self.attached.set(true);
        Ok(())
    }
}

impl Drop for SignalStack {
    fn drop(&mut self) {
        if self.attached.get() {
            let off = libc::stack_t {
                ss_sp: std::ptr::null_mut(),
                ss_flags: libc::SS_DISABLE,
                ss_size: 0,
            };
            // SAFETY: takes the signal stack from the calling thread, which is
            // the one that attached it: `Guard` is not Send.
            unsafe { libc::sigaltstack(&off, std::ptr::null_mut()) };
        }
        TAKEN.lock().unwrap_or_else(PoisonError::into_inner)[self.seat] = false;
    }
}

fn reserve() -> io::Result<usize> {
    // SAFETY: a fresh anonymous mapping touches nothing that exists.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            SEATS * SEAT_BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    match NonNull::new(base) {
        Some(base) if base.as_ptr() != libc::MAP_FAILED => Ok(base.as_ptr().addr()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The record of the thread whose signal stack holds `address`, if it is ours.
/// Safe to call in a signal handler.
pub(super) fn record_at(address: usize) -> Option<&'static Record> {
    let base = BASE.load(Ordering::Acquire);
    let offset = address.checked_sub(base)?;
    if base == 0 || offset >= SEATS * SEAT_BYTES {
        return None;
    }
    // SAFETY: the rounded address is the start of a seat in the reservation.
    Some(unsafe { record_in(base + offset / SEAT_BYTES * SEAT_BYTES) })
}

/// # Safety
/// `seat` is the start of a seat in the reservation.
unsafe fn record_in(seat: usize) -> &'static Record {
    // SAFETY: the reservation is never unmapped; it is page-aligned; all-zero
    // bytes are a Record, all of whose fields are atomics.
    unsafe { &*(seat as *const Record) }
}
