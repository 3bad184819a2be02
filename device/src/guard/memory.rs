// SPDX-License-Identifier: MIT OR Apache-2.0
//! Accesses to addresses that a client gave: each is a guarded call.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use zerocopy::{FromBytes, IntoBytes};

use super::{Guard, Trap, wide};

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

/// memmove. An aligned word is moved as one: SPEC.md, chapter 5.
///
/// It calls the C function, because Rust's asserts in debug builds that pointers are not null, where we want
/// the fault.
///
/// # Safety
/// In a guarded call; each of the two is an address of a client, or `bytes` bytes of ours.
#[inline]
pub(crate) unsafe fn move_bytes(dst: u64, src: u64, bytes: usize) {
    match bytes {
        // SAFETY: aligned; else as the caller promises. Traps if there is no memory.
        8 if (dst | src).is_multiple_of(8) => unsafe {
            word(dst).store(word(src).load(Ordering::Acquire), Ordering::Release);
        },
        // SAFETY: as above.
        4 if (dst | src).is_multiple_of(4) => unsafe {
            half_word(dst).store(half_word(src).load(Ordering::Acquire), Ordering::Release);
        },
        // SAFETY: as the caller promises, apart, and large enough. Traps if there is no memory.
        _ if dst.abs_diff(src) >= bytes as u64 && wide::is_for(bytes) => unsafe {
            wide::copy(dst, src, bytes);
        },
        // SAFETY: as the caller promises; traps if there is no memory.
        _ => unsafe {
            libc::memmove(dst as *mut _, src as *const _, bytes);
        },
    }
}

/// memset. An aligned word is written as one.
///
/// # Safety
/// In a guarded call; `dst` is an address of a client.
#[inline]
pub(crate) unsafe fn set_bytes(dst: u64, byte: u8, bytes: usize) {
    match bytes {
        // SAFETY: aligned; else as the caller promises. Traps if there is no memory.
        8 if dst.is_multiple_of(8) => unsafe {
            word(dst).store(u64::from_ne_bytes([byte; 8]), Ordering::Release);
        },
        // SAFETY: as above.
        4 if dst.is_multiple_of(4) => unsafe {
            half_word(dst).store(u32::from_ne_bytes([byte; 4]), Ordering::Release);
        },
        // SAFETY: as the caller promises, and large enough. Traps if there is no memory.
        _ if wide::is_for(bytes) => unsafe { wide::fill(dst, [byte; wide::LINE], bytes) },
        // SAFETY: as the caller promises; traps if there is no memory.
        _ => unsafe {
            libc::memset(dst as *mut _, i32::from(byte), bytes);
        },
    }
}

/// Writes a line repeatedly, where that is faster than copying a block; otherwise it returns false.
///
/// # Safety
/// The same as for [`set_bytes`].
#[inline]
pub(crate) unsafe fn set_lines(dst: u64, line: [u8; wide::LINE], bytes: usize) -> bool {
    let wide = wide::is_for(bytes);
    if wide {
        // SAFETY: as the caller promises, and large enough. Traps if there is no memory.
        unsafe { wide::fill(dst, line, bytes) };
    }
    wide
}

/// # Safety
/// `address` is 4-byte aligned, and the caller is in a guarded call.
unsafe fn half_word<'a>(address: u64) -> &'a AtomicU32 {
    // SAFETY: aligned; shared with other writers, hence atomic; traps if there is no memory.
    unsafe { AtomicU32::from_ptr(address as *mut u32) }
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
            // SAFETY: `to` is a whole T. A T whose size is not a multiple of 8 is
            // only 4-aligned. A read of the source traps if there is no memory.
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
        let (to, bytes) = (to.as_mut_ptr().expose_provenance() as u64, to.len());
        // SAFETY: in a guarded call; the target is ours and has that many bytes.
        self.run(|| unsafe { move_bytes(to, address, bytes) })
    }
}
