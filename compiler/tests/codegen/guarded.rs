// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that ends at an inaccessible page.

use std::ptr;

/// An address, mapped up to an inaccessible page.
pub struct Guarded {
    at: *mut u8,
    page: usize,
}

impl Guarded {
    pub fn new() -> Self {
        let page = 4096;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping of its own pages.
        let at = unsafe {
            libc::mmap(ptr::null_mut(), 2 * page, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        assert_ne!(at, libc::MAP_FAILED);
        // SAFETY: the second page of the mapping, which nothing uses yet.
        assert_eq!(unsafe { libc::mprotect(at.byte_add(page), page, libc::PROT_NONE) }, 0);
        Self { at: at.cast(), page }
    }

    /// The last bytes before the page.
    pub fn last(&mut self, len: usize) -> &mut [u8] {
        assert!(len <= self.page);
        // SAFETY: within the first page, which is ours, readable and writable.
        unsafe { std::slice::from_raw_parts_mut(self.at.add(self.page - len), len) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: unmaps what `new` has mapped.
        unsafe { libc::munmap(self.at.cast(), 2 * self.page) };
    }
}
