// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sync objects of the kernel: semaphores that other drivers signal and wait for.

use std::os::fd::BorrowedFd;

use super::Result;

/// A lane's sync objects, by their handles.
pub trait Syncobjs {
    /// A new handle for the sync object of a file (SYNCOBJ_FD_TO_HANDLE).
    ///
    /// # Errors
    /// EINVAL: the file is none of a sync object. ENOMEM.
    fn syncobj_import(&self, file: BorrowedFd<'_>) -> Result<u32>;

    /// Gives a handle back (SYNCOBJ_DESTROY).
    fn syncobj_destroy(&self, handle: u32);

    /// Adds 1 to an eventfd once the sync object has a fence at `point`, whether or not it has signalled
    /// (SYNCOBJ_EVENTFD). Point 0: the sync object is binary.
    ///
    /// # Errors
    /// ENOENT, EINVAL, ENOMEM.
    fn syncobj_await(&self, handle: u32, point: u64, eventfd: BorrowedFd<'_>) -> Result;
}
