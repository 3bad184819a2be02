// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that the host may not touch, which is closed to it where possible, so that an access raises a signal.
//!
//! Kernels and the program share their addresses, so memory is closed to both. An access of the device opens
//! the memory, which then stays open until the host has waited for something: programs read results right
//! after a wait, and write a kernel's input before they launch it. Since there are many waits, an allocation
//! is closed at its first ones, and then at every wait whose number is a power of two.
//!
//! System calls return EFAULT for closed memory, as they do where device memory is on a card.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tally_uapi::PAGE_SIZE;

use super::calls::{self, Host};

/// Number of first waits after each of which an allocation is closed.
const FIRST_WAITS: u64 = 32;

/// The reason why the host may not touch an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It is device memory.
    Device,
    /// A command has written to it, and nothing has made that visible to the host.
    Unseen,
}

/// An access by the host.
pub struct Touch {
    pub reason: Reason,
    pub address: u64,
    pub writes: bool,
    pub host: Host,
    pub epoch: u64,
}

struct Piece {
    size: u64,
    reason: Reason,
    /// The number of its address space.
    owner: usize,
    closed: bool,
    /// Whether an access of the host was reported, which happens once.
    told: bool,
    /// Number of the host's waits since it was allocated.
    waits: u64,
    /// The thread and the address for which it was last opened.
    opened_for: (i32, u64),
}

/// See the module's description.
#[derive(Default)]
pub struct Guarded {
    pieces: Mutex<BTreeMap<u64, Piece>>,
    touches: Mutex<Vec<Touch>>,
    any_touches: AtomicBool,
}

impl Guarded {
    // The handler of SIGSEGV takes it too. A thread that holds it makes no access to guarded memory, so it is
    // never interrupted by that signal.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Piece>> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes an allocation.
    pub fn close(&self, base: u64, size: u64, reason: Reason, owner: usize) {
        let mut pieces = self.lock();
        let closed = protect(base, size, libc::PROT_NONE);
        let piece =
            Piece { size, reason, owner, closed, told: false, waits: 0, opened_for: (0, 0) };
        pieces.insert(base, piece);
    }

    /// Forgets the allocations of an address space that has ended.
    pub fn end(&self, owner: usize) {
        self.lock().retain(|_, piece| piece.owner != owner);
    }

    /// Opens an allocation permanently, because it is freed or the host may access it.
    pub fn forget(&self, base: u64) {
        if let Some(piece) = self.lock().remove(&base).filter(|it| it.closed) {
            open(base, piece.size);
        }
    }

    /// Opens the allocations that were closed for this reason.
    pub fn forget_all(&self, reason: Reason) {
        self.lock().retain(|&base, piece| {
            if piece.reason == reason && piece.closed {
                open(base, piece.size);
            }
            piece.reason != reason
        });
    }

    /// Notes that the host has waited for something.
    pub fn waited(&self) {
        for (&base, piece) in self.lock().iter_mut() {
            piece.waits += 1;
            let now = piece.waits <= FIRST_WAITS || piece.waits.is_power_of_two();
            if now && !piece.closed && !piece.told && piece.reason == Reason::Device {
                piece.closed = protect(base, piece.size, libc::PROT_NONE);
                piece.opened_for = (0, 0);
            }
        }
    }

    /// Handles a refused access; `by_host`: the program made it. Returns whether it is to be tried again.
    pub fn refused(&self, address: u64, writes: bool, by_host: bool, epoch: u64) -> bool {
        let mut pieces = self.lock();
        let Some((&base, piece)) = pieces.range_mut(..=address).next_back() else { return false };
        if address - base >= pages(piece.size) {
            return false;
        }
        // SAFETY: takes no arguments and cannot fail.
        let this = (unsafe { libc::gettid() }, address);
        if !piece.closed {
            // Another thread has just opened it, unless this thread has been here before.
            return std::mem::replace(&mut piece.opened_for, this) != this;
        }
        if !open(base, piece.size) {
            return false;
        }
        piece.closed = false;
        piece.opened_for = this;
        let reason = piece.reason;
        // The host may overwrite results that it has not read.
        if by_host && !piece.told && (reason == Reason::Device || !writes) {
            piece.told = true;
            drop(pieces);
            let touch = Touch { reason, address, writes, host: calls::host(), epoch };
            self.touches.lock().unwrap_or_else(PoisonError::into_inner).push(touch);
            self.any_touches.store(true, Ordering::Release);
        }
        true
    }

    /// Takes the host's accesses since the last call.
    pub fn take(&self) -> Vec<Touch> {
        if !self.any_touches.swap(false, Ordering::Acquire) {
            return Vec::new();
        }
        std::mem::take(&mut *self.touches.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn pages(size: u64) -> u64 {
    size.next_multiple_of(PAGE_SIZE)
}

/// Opens memory. That of another process may be read-only.
fn open(base: u64, size: u64) -> bool {
    protect(base, size, libc::PROT_READ | libc::PROT_WRITE) || protect(base, size, libc::PROT_READ)
}

fn protect(base: u64, size: u64, protection: i32) -> bool {
    let at = std::ptr::with_exposed_provenance_mut(base as usize);
    // SAFETY: the pages belong to a live allocation of the driver. Nothing in Rust refers to the application's
    // memory, and an access while it is closed is handled by `refused`.
    unsafe { libc::mprotect(at, pages(size) as usize, protection) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_page() -> u64 {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let size = PAGE_SIZE as usize;
        // SAFETY: without an address no existing mapping is replaced.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), size, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        at as u64
    }

    #[test]
    fn the_host_is_told_once_and_the_device_is_not() {
        let (guarded, base) = (Guarded::default(), new_page());
        guarded.close(base, 100, Reason::Device, 1);
        assert!(!guarded.refused(base - 1, false, true, 0), "it is not in the allocation");
        assert!(guarded.refused(base + 4, false, false, 0));
        assert!(guarded.take().is_empty(), "it was the device");
        guarded.waited();
        assert!(guarded.refused(base + 8, true, true, 0));
        let touches = guarded.take();
        assert_eq!((touches.len(), touches[0].address, touches[0].writes), (1, base + 8, true));
        guarded.waited();
        assert!(guarded.refused(base, false, true, 0), "another thread may have opened it");
        assert!(!guarded.refused(base, false, true, 0), "it is open, and yet refused");
        assert!(guarded.take().is_empty());
        guarded.end(2);
        assert!(guarded.refused(base + 1, false, true, 0), "it is another address space's");
        guarded.end(1);
        assert!(!guarded.refused(base + 2, false, true, 0));
    }

    #[test]
    fn results_that_are_not_visible_may_be_overwritten() {
        let (guarded, base) = (Guarded::default(), new_page());
        guarded.close(base, 100, Reason::Unseen, 1);
        assert!(guarded.refused(base, true, true, 0));
        assert!(guarded.take().is_empty());
        guarded.close(base, 100, Reason::Unseen, 1);
        assert!(guarded.refused(base, false, true, 0));
        assert_eq!(guarded.take().len(), 1);
        guarded.forget_all(Reason::Device);
        assert!(guarded.refused(base + 1, false, true, 0));
        guarded.forget_all(Reason::Unseen);
        assert!(!guarded.refused(base + 2, false, true, 0));
    }
}
