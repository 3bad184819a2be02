// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory for the addresses in packets, surrounded by inaccessible addresses.
//!
//! The device runs in this process, so an access to other mapped memory would damage the fuzzer
//! unnoticed. Every range that a generated packet can reach from these addresses therefore ends in
//! pages without access.

use std::ptr;

/// Bytes without access before and after the memory: more than any size in a packet.
pub const GUARD: u64 = 1 << 34;
/// The size of each part, in bytes.
pub const PART: u64 = 64 << 10;

/// Three parts, each of [`PART`] bytes with a guard behind it.
pub struct Arena {
    start: u64,
}

impl Arena {
    /// Maps new memory, all accessible and zero. It is never unmapped: a device may stop late.
    ///
    /// # Panics
    /// If the process has no addresses left.
    pub fn new() -> Self {
        let bytes = 4 * GUARD as usize;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping does not affect others.
        let base = unsafe { libc::mmap(ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED, "no addresses for the arena");
        let arena = Self { start: base.expose_provenance() as u64 + GUARD };
        for part in [arena.writable(), arena.readable(), arena.packets()] {
            arena.protect(part, libc::PROT_READ | libc::PROT_WRITE);
        }
        arena
    }

    /// Memory that the device may write.
    pub fn writable(&self) -> u64 {
        self.start
    }

    /// Memory that the device may read once it is sealed: shapes, counts, operands.
    pub fn readable(&self) -> u64 {
        self.start + PART
    }

    /// Packets for LINK and CALL, readable once they are sealed. Behind them is the guard.
    pub fn packets(&self) -> u64 {
        self.start + 2 * PART
    }

    /// Makes the parts that the device may not write read-only, or all parts writable.
    pub fn seal(&self, sealed: bool) {
        let access = if sealed { libc::PROT_READ } else { libc::PROT_READ | libc::PROT_WRITE };
        self.protect(self.readable(), access);
        self.protect(self.packets(), access);
    }

    /// Writes a value to a part that is not sealed.
    ///
    /// # Panics
    /// If it does not lie within the three parts.
    pub fn write<T: Copy>(&self, address: u64, value: T) {
        let end = address + size_of::<T>() as u64;
        assert!(address >= self.start && end <= self.start + 3 * PART);
        // SAFETY: the range is the arena's own and accessible; no reference to it exists.
        unsafe {
            ptr::with_exposed_provenance_mut::<T>(address as usize).write_unaligned(value);
        }
    }

    fn protect(&self, part: u64, access: i32) {
        let at = ptr::with_exposed_provenance_mut(part as usize);
        // SAFETY: the part is a range of the arena's own mapping.
        assert_eq!(unsafe { libc::mprotect(at, PART as usize, access) }, 0);
    }
}
