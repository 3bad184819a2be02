// SPDX-License-Identifier: GPL-2.0
//! Kernel objects that are told when a wait is over. The kernel crate has neither eventfds nor sync objects.

use core::ffi::c_int;
use core::ptr::NonNull;

use kernel::bindings;
use kernel::drm;
use kernel::error::from_err_ptr;
use kernel::prelude::*;

/// An `eventfd_ctx`.
#[repr(C)]
struct RawEventfd([u8; 0]);

/// A `tally_point` of the shim.
#[repr(C)]
struct RawPoint([u8; 0]);

// bindgen's empty structs inside of the kernel's are an artefact of configuration.
#[allow(improper_ctypes)]
extern "C" {
    // The kernel's own functions; bindgen does not see their header.
    fn eventfd_ctx_fdget(fd: c_int) -> *mut RawEventfd;
    fn eventfd_ctx_put(eventfd: *mut RawEventfd);
    fn eventfd_signal_mask(eventfd: *mut RawEventfd, mask: bindings::__poll_t);
    fn tally_point_new(file: *mut bindings::drm_file, handle: u32, point: u64) -> *mut RawPoint;
    fn tally_point_signal(point: *mut RawPoint);
    fn tally_point_free(point: *mut RawPoint);
}

/// An object that is told once. Dropping it does not tell it.
pub(crate) enum Target {
    /// An eventfd, to which 1 is added.
    Eventfd(Eventfd),
    /// A point of a DRM sync object, to which a signalled fence is added.
    Point(Point),
}

impl Target {
    /// Tells the target. Allocates nothing, so it cannot fail.
    pub(crate) fn tell(self) {
        match self {
            Self::Eventfd(eventfd) => eventfd.add_one(),
            Self::Point(point) => point.signal(),
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

/// A point of a DRM sync object, and the memory that its fence needs. The sync object has nothing of it before it
/// is signalled: a fence that others could wait for must not depend on what a client's kernel does.
pub(crate) struct Point(NonNull<RawPoint>);

// SAFETY: only its owner uses it; the sync object is counted, and has its own lock.
unsafe impl Send for Point {}
// SAFETY: nothing can be done with a shared reference.
unsafe impl Sync for Point {}

impl Point {
    /// Point `point` of the sync object that `file` has under `handle`. Point 0 stands for the one fence of a binary
    /// sync object.
    ///
    /// # Errors
    /// ENOENT: there is no such sync object. ENOMEM.
    pub(crate) fn new<F: drm::file::DriverFile>(
        file: &drm::File<F>,
        handle: u32,
        point: u64,
    ) -> Result<Self> {
        let file = core::ptr::from_ref(file)
            .cast::<bindings::drm_file>()
            .cast_mut();
        // SAFETY: `drm::File` is a transparent wrapper of a live `drm_file`.
        let point = from_err_ptr(unsafe { tally_point_new(file, handle, point) })?;
        NonNull::new(point).map(Self).ok_or(ENOMEM)
    }

    /// Adds a signalled fence to the point, and wakes those who wait for it.
    fn signal(self) {
        // SAFETY: ours, and signalled only once: it is dropped.
        unsafe { tally_point_signal(self.0.as_ptr()) };
    }
}

impl Drop for Point {
    fn drop(&mut self) {
        // SAFETY: ours, and used no more.
        unsafe { tally_point_free(self.0.as_ptr()) };
    }
}
