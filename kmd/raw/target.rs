// SPDX-License-Identifier: GPL-2.0
//! Kernel objects that are told when a wait is over. The kernel crate has no eventfds.

use core::ffi::c_int;
use core::ptr::NonNull;

use kernel::bindings;
use kernel::error::from_err_ptr;
use kernel::prelude::*;

/// An `eventfd_ctx`.
#[repr(C)]
struct RawEventfd([u8; 0]);

// bindgen's empty structs inside of the kernel's are an artefact of configuration.
#[allow(improper_ctypes)]
extern "C" {
    // The kernel's own functions; bindgen does not see their header.
    fn eventfd_ctx_fdget(fd: c_int) -> *mut RawEventfd;
    fn eventfd_ctx_put(eventfd: *mut RawEventfd);
    fn eventfd_signal_mask(eventfd: *mut RawEventfd, mask: bindings::__poll_t);
}

/// An object that is told once. Dropping it does not tell it.
pub(crate) enum Target {
    /// An eventfd, to which 1 is added.
    Eventfd(Eventfd),
}

impl Target {
    /// Tells the target. Allocates nothing, so it cannot fail.
    pub(crate) fn tell(self) {
        match self {
            Self::Eventfd(eventfd) => eventfd.add_one(),
        }
    }
}

/// A reference to an eventfd, which may outlive its descriptors.
pub(crate) struct Eventfd(NonNull<RawEventfd>);

// SAFETY: it is counted, and has its own lock.
unsafe impl Send for Eventfd {}
// SAFETY: as above.
unsafe impl Sync for Eventfd {}

impl Eventfd {
    /// The eventfd that the calling process has as descriptor `number`.
    ///
    /// # Errors
    /// EBADF: there is no such descriptor. EINVAL: the descriptor is of another kind of file.
    pub(crate) fn get(number: u32) -> Result<Self> {
        let number = c_int::try_from(number).map_err(|_| EBADF)?;
        // SAFETY: takes a number.
        let eventfd = from_err_ptr(unsafe { eventfd_ctx_fdget(number) })?;
        NonNull::new(eventfd).map(Self).ok_or(EBADF)
    }

    /// Adds 1 to the eventfd, and wakes its readers and pollers.
    fn add_one(&self) {
        // SAFETY: a live eventfd.
        unsafe { eventfd_signal_mask(self.0.as_ptr(), 0) };
    }
}

impl Drop for Eventfd {
    fn drop(&mut self) {
        // SAFETY: the reference is ours.
        unsafe { eventfd_ctx_put(self.0.as_ptr()) };
    }
}
