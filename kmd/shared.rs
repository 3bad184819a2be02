// SPDX-License-Identifier: GPL-2.0
//! Memory that driver and device share, accessed as plain words that either side may change.

use core::marker::PhantomData;
use core::ptr::NonNull;

use kernel::alloc::Flags;
use kernel::prelude::*;
use tally_uapi::firmware::{Answer, Command, Extent, Identity, StatusPage, WaitersPage};

use crate::transport::{Memory, Purpose, Transport};

/// `count` objects `T` in memory that the device reads and writes.
///
/// `T` consists of plain numbers or atomics; all bits zero is a valid value.
pub(crate) struct Shared<T> {
    memory: KBox<dyn Memory>,
    _type: PhantomData<T>,
}

// SAFETY: plain memory of no particular thread; all accesses are volatile or atomic.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Shared<T> {}

/// Types that may lie in memory that the device changes at any time.
///
/// # Safety
/// All bit patterns are valid values, there are no references or pointers, and the
/// alignment is at most a page.
pub(crate) unsafe trait Wire {}

// SAFETY: words only (see their definitions).
unsafe impl Wire for Command {}
// SAFETY: as above.
unsafe impl Wire for Answer {}
// SAFETY: as above.
unsafe impl Wire for Extent {}
// SAFETY: as above.
unsafe impl Wire for Identity {}
// SAFETY: as above.
unsafe impl Wire for WaitersPage {}
// SAFETY: as above.
unsafe impl Wire for StatusPage {}

/// [`Wire`] types that consist of atomics, which may change under a reference.
///
/// # Safety
/// The type consists of atomics only.
pub(crate) unsafe trait Atomics: Wire {}

// SAFETY: see its definition.
unsafe impl Atomics for WaitersPage {}
// SAFETY: see its definition.
unsafe impl Atomics for StatusPage {}

impl<T: Wire> Shared<T> {
    /// Memory for `count` objects, all zero.
    ///
    /// # Errors
    /// ENOMEM.
    pub(crate) fn new(transport: &dyn Transport, purpose: Purpose, count: usize) -> Result<Self> {
        Self::with_flags(transport, purpose, count, GFP_KERNEL)
    }

    /// Like [`Self::new`], for an argument, charged to the caller's cgroup.
    ///
    /// # Errors
    /// ENOMEM.
    pub(crate) fn charged(transport: &dyn Transport, count: usize) -> Result<Self> {
        Self::with_flags(transport, Purpose::Argument, count, GFP_KERNEL_ACCOUNT)
    }

    fn with_flags(
        transport: &dyn Transport,
        purpose: Purpose,
        count: usize,
        flags: Flags,
    ) -> Result<Self> {
        // Whole pages are page-aligned.
        let bytes = (count * size_of::<T>()).next_multiple_of(tally_uapi::PAGE_SIZE as usize);
        Ok(Self {
            memory: transport.memory(purpose, bytes, flags)?,
            _type: PhantomData,
        })
    }

    /// Its address as the device knows it.
    pub(crate) fn address(&self) -> u64 {
        self.memory.address()
    }

    /// The address of object `index`. `None` beyond the last.
    pub(crate) fn at(&self, index: usize) -> Option<NonNull<T>> {
        if index >= self.memory.bytes() / size_of::<T>() {
            return None;
        }
        // SAFETY: within the memory, as just checked.
        Some(unsafe { self.memory.base().cast::<T>().add(index) })
    }

    /// Writes object `index`, if there is one.
    pub(crate) fn write(&self, index: usize, value: T) {
        if let Some(place) = self.at(index) {
            // SAFETY: the pointer is valid for writes, and any value may be there.
            unsafe { place.as_ptr().write_volatile(value) };
        }
    }

    /// A copy of object `index`, if there is one.
    pub(crate) fn read(&self, index: usize) -> Option<T> {
        let place = self.at(index)?;
        // SAFETY: the pointer is valid, and all bit patterns are values of a `Wire` type.
        Some(unsafe { place.as_ptr().read_volatile() })
    }

    /// A copy of object 0, made on the heap, since it may be too large for the stack.
    ///
    /// # Errors
    /// ENOMEM.
    pub(crate) fn read_boxed(&self) -> Result<KBox<T>> {
        let place = self.at(0).ok_or(EINVAL)?;
        let mut copy = KBox::<T>::new_uninit(GFP_KERNEL)?;
        // SAFETY: both are valid for a `T`, and do not overlap.
        unsafe {
            copy.as_mut_ptr()
                .copy_from_nonoverlapping(place.as_ptr(), 1)
        };
        // SAFETY: just written, and all bit patterns are values of a `Wire` type.
        Ok(unsafe { copy.assume_init() })
    }
}

impl<T: Atomics> Shared<T> {
    /// Object 0, for concurrent use with the device.
    pub(crate) fn atomics(&self) -> Option<&T> {
        // SAFETY: valid for the life of `self`, and atomics may change under a reference.
        self.at(0).map(|place| unsafe { place.as_ref() })
    }
}
