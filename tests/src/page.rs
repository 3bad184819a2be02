// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ordinary memory of the process, which is mapped and unmapped at one address.

use std::ffi::{c_int, c_void};
use std::ptr;

/// A page of the process's own, unmapped on drop.
pub struct Page(*mut c_void);

impl Default for Page {
    fn default() -> Self {
        Self(Self::map(ptr::null_mut(), 0))
    }
}

impl Page {
    const BYTES: usize = 4096;

    /// Replaces the page by a new one; its bytes are 0, and it was not accessed yet. Returns its
    /// address.
    pub fn fresh(&self) -> *mut u64 {
        Self::map(self.0, libc::MAP_FIXED).cast()
    }

    fn map(at: *mut c_void, more: c_int) -> *mut c_void {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | more;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: without MAP_FIXED nothing is replaced, with it a page of ours.
        let page = unsafe { libc::mmap(at, Self::BYTES, access, flags, -1, 0) };
        assert_ne!(page, libc::MAP_FAILED);
        page
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: it is ours, and the commands that used it are complete.
        unsafe { libc::munmap(self.0, Self::BYTES) };
    }
}
