// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffers: an extent of memory, and the kernel's own view of the cells in it.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};

use tally_uapi::ioctl::bind_flag;

use super::memory::{Extent, Part};
use crate::backend::Result;

/// Bytes of a view. It is large enough that a driver's cells need few of them.
const VIEW: u64 = 2 << 20;

/// A buffer. Its memory is freed with the last handle and binding.
pub(super) struct Buffer {
    extent: Extent,
    /// Parts that this kernel has mapped to read cells, by their number.
    views: Mutex<HashMap<u64, View>>,
}

/// A mapping of the kernel's own.
struct View {
    start: *mut u8,
    bytes: u64,
}

// SAFETY: the mapping is shared memory that is only read as atomics.
unsafe impl Send for View {}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: our own mapping; cells in it are borrowed from the buffer,
        // which is being dropped with it.
        unsafe { libc::munmap(self.start.cast(), self.bytes as usize) };
    }
}

impl Buffer {
    pub(super) fn new(extent: Extent) -> Self {
        Self { extent, views: Mutex::default() }
    }

    pub(super) fn size(&self) -> u64 {
        self.extent.size()
    }

    pub(super) fn extent(&self) -> &Extent {
        &self.extent
    }

    /// The cell at an offset that the caller has checked.
    ///
    /// # Errors
    /// ENOMEM: no room for a mapping.
    pub(super) fn cell(&self, offset: u64) -> Result<&AtomicU64> {
        let (number, within) = (offset / VIEW, offset % VIEW);
        let mut views = self.views.lock().unwrap_or_else(PoisonError::into_inner);
        let start = match views.get(&number) {
            Some(view) => view.start,
            None => {
                let bytes = VIEW.min(self.size() - number * VIEW);
                let map = self.extent.map(Part {
                    offset: number * VIEW,
                    size: bytes,
                    access: bind_flag::READ,
                    at: None,
                })?;
                views.insert(number, View { start: map.as_ptr(), bytes });
                map.as_ptr()
            }
        };
        // SAFETY: the offset is 8-aligned and inside the view, which is mapped
        // readable until the buffer is dropped; views are never removed before.
        // Only loads are made through it.
        Ok(unsafe { AtomicU64::from_ptr(start.add(within as usize).cast()) })
    }
}
