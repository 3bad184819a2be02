// SPDX-License-Identifier: MIT OR Apache-2.0
//! Accesses to addresses that a client gave: each is a guarded call.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use zerocopy::{FromBytes, IntoBytes};

use super::{Guard, Trap};

/// A client's aligned 64-bit word. Only for use inside a guarded call.
///
/// # Safety
/// `address` is 8-byte aligned, and the caller is in a guarded call, where an
/// address without memory ends the call.
pub(crate) unsafe fn word<'a>(address: u64) -> &'a AtomicU64 {
    // SAFETY: aligned; the memory is shared with other writers, hence atomic;
    // if there is none, the access traps and the guarded call ends.
    unsafe { AtomicU64::from_ptr(address as *mut u64) }
}

impl Guard {
    /// Reads a value word by word; each word is read once.
    ///
    /// `T` has whole 32-bit words, and `address` is aligned for `T`.
    #[inline]
    pub(crate) fn read<T: FromBytes + IntoBytes>(&mut self, address: u64) -> Result<T, Trap> {
        let mut value = T::new_zeroed();
        let to = (&raw mut value).cast::<u8>();
        self.run(|| {
            // SAFETY: `to` is a whole T. A T whose size is no multiple of 8 is
            // only 4-aligned. The source traps if it is not there.
            unsafe {
                if size_of::<T>().is_multiple_of(8) {
                    for i in 0..size_of::<T>() / 8 {
                        let from = word(address.wrapping_add(i as u64 * 8));
                        to.cast::<u64>().add(i).write_unaligned(from.load(Ordering::Relaxed));
                    }
                } else {
                    for i in 0..size_of::<T>() / 4 {
                        let from = (address as *mut u32).wrapping_add(i);
                        let from = AtomicU32::from_ptr(from);
                        to.cast::<u32>().add(i).write_unaligned(from.load(Ordering::Relaxed));
                    }
                }
            }
        })?;
        Ok(value)
    }

    /// Reads a cell, with acquire.
    #[inline]
    pub(crate) fn load(&mut self, address: u64) -> Result<u64, Trap> {
        let mut value = 0;
        // SAFETY: in a guarded call; the caller has checked the alignment.
        self.run(|| value = unsafe { word(address) }.load(Ordering::Acquire))?;
        Ok(value)
    }

    /// Writes consecutive words.
    #[inline]
    pub(crate) fn write_words(&mut self, address: u64, words: &[u64]) -> Result<(), Trap> {
        self.run(|| {
            for (i, &value) in words.iter().enumerate() {
                // SAFETY: in a guarded call; the caller has checked the alignment.
                unsafe { word(address.wrapping_add(i as u64 * 8)) }.store(value, Ordering::Relaxed);
            }
        })
    }

    /// Copies bytes out of client memory.
    pub(crate) fn copy_in(&mut self, to: &mut [u8], address: u64) -> Result<(), Trap> {
        self.copy(to.as_mut_ptr().addr() as u64, address, to.len())
    }

    /// memmove between any addresses.
    ///
    /// The C function, because Rust's asserts in debug builds that pointers are
    /// not null, where we want the fault.
    #[inline]
    pub(crate) fn copy(&mut self, to: u64, from: u64, bytes: usize) -> Result<(), Trap> {
        self.run(|| {
            // SAFETY: client memory is shared and only ever reached by raw
            // address; where there is none, the access traps.
            unsafe { libc::memmove(to as *mut _, from as *const _, bytes) };
        })
    }
}
