// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory between inaccessible pages.

use std::ptr;

/// Pages with an inaccessible one on either side.
pub struct Guarded {
    at: *mut u8,
    len: usize,
}

const PAGE: usize = 4096;

impl Guarded {
    /// At least `len` bytes, and at least one page.
    pub fn new(len: usize) -> Self {
        let len = len.next_multiple_of(PAGE).max(PAGE);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping of its own pages.
        let at =
            unsafe { libc::mmap(ptr::null_mut(), len + 2 * PAGE, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: all pages of the mapping but the first and the last one, which nothing uses yet.
        assert_eq!(unsafe { libc::mprotect(at.byte_add(PAGE), len, access) }, 0);
        Self { at: at.cast(), len }
    }

    /// The first bytes, behind an inaccessible page.
    pub fn first(&mut self, len: usize) -> &mut [u8] {
        assert!(len <= self.len);
        // SAFETY: within the pages between the first and the last one, which are ours, readable and writable.
        unsafe { std::slice::from_raw_parts_mut(self.at.add(PAGE), len) }
    }

    /// The last bytes, in front of an inaccessible page.
    pub fn last(&mut self, len: usize) -> &mut [u8] {
        assert!(len <= self.len);
        // SAFETY: within the pages between the first and the last one, which are ours, readable and writable.
        unsafe { std::slice::from_raw_parts_mut(self.at.add(PAGE + self.len - len), len) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: unmaps what `new` has mapped.
        unsafe { libc::munmap(self.at.cast(), self.len + 2 * PAGE) };
    }
}
