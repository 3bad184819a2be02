// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine whose driver the device serves, in the form that the code behind the front ends uses: shared
//! memory, the interrupt, and a VM's memory for its engine process.

use std::any::Any;
use std::io;
use std::ops::{Deref, Range};
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tally_engine::mailbox::Piece;
use tally_uapi::firmware::{Command, StatusPage, WaitersPage};

/// See the module.
pub trait Machine: Send + Sync + std::fmt::Debug {
    /// `count` shared words at an address that the driver named. None if it is not page-aligned, or is not
    /// contiguous writable memory.
    fn words(&self, address: u64, count: usize) -> Option<View<[AtomicU64]>>;

    /// Interrupts the driver.
    fn interrupt(&self);

    /// The memory of a new VM. `waiters` is the address of the waiters page.
    ///
    /// # Errors
    /// The memory is not available.
    fn memory(&self, vm: u32, waiters: u64) -> io::Result<Box<dyn VmMemory>>;
}

/// The memory of a VM, for its engine process to map. It checks the driver's commands and turns them into
/// mappings; it does not check whether the engine process has made them.
pub trait VmMemory: Send {
    /// The files that the engine process is given.
    fn files(&self) -> Vec<RawFd>;

    /// Index and offset of the waiters page among them.
    fn waiters(&self) -> (usize, u64);

    /// The mappings at the start.
    fn begin(&mut self, window: &Range<u64>) -> Vec<Piece>;

    /// VM_MAP of a range of the window.
    ///
    /// # Errors
    /// INVALID, with nothing changed. NO_SPACE: the range has to be unmapped.
    fn map(&mut self, range: &Range<u64>, command: &Command) -> Result<Vec<Piece>, u32>;

    /// The pieces that leave nothing mapped in the range. The engine process has lost all other pages of the
    /// range already.
    fn unmap(&mut self, range: &Range<u64>) -> Vec<Piece>;

    /// Called once the engine process has carried out the result of [`Self::unmap`], or has ended.
    fn unmapped(&mut self) {}

    /// Whether all of a range is mapped with at least this access.
    fn covers(&self, address: u64, bytes: u64, access: u32) -> bool;
}

/// A page that is shared with the driver.
///
/// # Safety
/// The type is a page of atomics, for which any bytes are valid.
pub unsafe trait SharedPage {}
// SAFETY: atomics only; its size is asserted beside its definition.
unsafe impl SharedPage for StatusPage {}
// SAFETY: as above.
unsafe impl SharedPage for WaitersPage {}

/// Memory that is shared with the driver, as atomics. Keeps it mapped.
#[derive(Debug)]
pub struct View<T: ?Sized> {
    at: NonNull<T>,
    keep: Arc<dyn Any + Send + Sync>,
}

// SAFETY: a view is a shared reference to atomics.
unsafe impl<T: ?Sized + Sync> Send for View<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Sync> Sync for View<T> {}

impl View<[AtomicU64]> {
    /// `count` words.
    ///
    /// # Safety
    /// They are aligned and shared, and stay mapped as long as `keep` lives.
    pub unsafe fn new(start: NonNull<u8>, count: usize, keep: Arc<dyn Any + Send + Sync>) -> Self {
        Self { at: NonNull::slice_from_raw_parts(start.cast(), count), keep }
    }

    /// The same memory as a page. None if it is not one.
    pub fn page<T: SharedPage>(self) -> Option<View<T>> {
        let fits = size_of_val(&*self) == size_of::<T>();
        let at = self.at.cast::<T>();
        (fits && at.is_aligned()).then_some(View { at, keep: self.keep })
    }
}

impl<T: ?Sized> Deref for View<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: views are made only of aligned atomics, in memory that `keep` keeps.
        unsafe { self.at.as_ref() }
    }
}
