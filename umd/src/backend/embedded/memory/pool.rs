// SPDX-License-Identifier: MIT OR Apache-2.0
//! A backing of which many of the driver's own buffers are parts. It is never passed to another process.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tally_uapi::PAGE_SIZE;

use super::backing::{Backing, HUGE_PAGE};
use crate::backend::Result;

/// See the module's description.
pub(super) struct Pool {
    pub(super) backing: Backing,
    size: u64,
    /// Free extents: offset to size.
    free: Mutex<BTreeMap<u64, u64>>,
}

impl Pool {
    /// A pool of `size` bytes, all of them free.
    ///
    /// # Errors
    /// ENOMEM.
    pub(super) fn new(size: u64) -> Result<Self> {
        let size = size.next_multiple_of(PAGE_SIZE);
        Ok(Self::over(Backing::new(size)?, size))
    }

    pub(super) fn over(backing: Backing, size: u64) -> Self {
        Self { backing, size, free: Mutex::new(BTreeMap::from([(0, size)])) }
    }

    fn free(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it contains no buffer.
    pub(super) fn is_empty(&self) -> bool {
        self.free().get(&0) == Some(&self.size)
    }

    /// Takes the first free extent that is large enough.
    pub(super) fn take(&self, size: u64) -> Option<u64> {
        let align = if size >= HUGE_PAGE { HUGE_PAGE } else { PAGE_SIZE };
        let mut free = self.free();
        let (start, length, offset) = free.iter().find_map(|(&start, &length)| {
            let offset = start.next_multiple_of(align);
            let end = offset.checked_add(size)?;
            (end <= start + length).then_some((start, length, offset))
        })?;
        free.remove(&start);
        if offset != start {
            free.insert(start, offset - start);
        }
        let (end, rest) = (offset + size, start + length - (offset + size));
        if rest != 0 {
            free.insert(end, rest);
        }
        Some(offset)
    }

    /// Gives an extent back, joining it with its neighbours.
    pub(super) fn give(&self, mut offset: u64, mut size: u64) {
        let mut free = self.free();
        if let Some(next) = free.remove(&(offset + size)) {
            size += next;
        }
        if let Some((&start, &length)) = free.range(..offset).next_back()
            && start + length == offset
        {
            free.remove(&start);
            (offset, size) = (start, length + size);
        }
        free.insert(offset, size);
    }
}
