// SPDX-License-Identifier: GPL-2.0
//! Fences of the kernel, of any driver. The kernel crate has no `dma_fence`.

use core::ffi::{c_int, c_void};
use core::ptr::NonNull;

use kernel::bindings;
use kernel::drm;
use kernel::error::{from_err_ptr, to_result};
use kernel::prelude::*;
use kernel::sync::Arc;

/// A `dma_fence`.
#[repr(C)]
struct RawFence([u8; 0]);

/// A `tally_watch` of the shim.
#[repr(C)]
struct RawWatch([u8; 0]);

// bindgen's empty structs inside of the kernel's are an artefact of configuration.
#[allow(improper_ctypes)]
extern "C" {
    // The kernel's own function; bindgen does not see its header.
    fn sync_file_get_fence(fd: c_int) -> *mut RawFence;
    fn tally_fence_of_point(
        file: *mut bindings::drm_file,
        handle: u32,
        point: u64,
        out: *mut *mut RawFence,
    ) -> c_int;
    fn tally_fence_status(fence: *mut RawFence) -> c_int;
    fn tally_fence_put(fence: *mut RawFence);
    fn tally_watch_new(
        fence: *mut RawFence,
        call: unsafe extern "C" fn(*mut c_void),
        data: *mut c_void,
    ) -> *mut RawWatch;
    fn tally_watch_end(watch: *mut RawWatch);
}

/// A counted reference to a fence.
pub(crate) struct Fence(NonNull<RawFence>);

// SAFETY: it is counted, and has its own lock.
unsafe impl Send for Fence {}
// SAFETY: as above.
unsafe impl Sync for Fence {}

impl Fence {
    /// The fence of the sync file that the calling process has as descriptor `number`.
    ///
    /// # Errors
    /// EINVAL: the descriptor is of no sync file, or there is no such descriptor.
    pub(crate) fn of_sync_file(number: u32) -> Result<Self> {
        let number = c_int::try_from(number).map_err(|_| EINVAL)?;
        // SAFETY: takes a number.
        NonNull::new(unsafe { sync_file_get_fence(number) })
            .map(Self)
            .ok_or(EINVAL)
    }

    /// The fence at `point` of the sync object that `file` has under `handle`. Point 0 stands for the one fence of
    /// a binary sync object.
    ///
    /// # Errors
    /// ENOENT: there is no such sync object. EINVAL: it has no fence there yet.
    pub(crate) fn of_point<F: drm::file::DriverFile>(
        file: &drm::File<F>,
        handle: u32,
        point: u64,
    ) -> Result<Self> {
        let file = core::ptr::from_ref(file)
            .cast::<bindings::drm_file>()
            .cast_mut();
        let mut out = core::ptr::null_mut();
        // SAFETY: `drm::File` is a transparent wrapper of a live `drm_file`; `out` is a place for the result.
        to_result(unsafe { tally_fence_of_point(file, handle, point, &mut out) })?;
        NonNull::new(out).map(Self).ok_or(EINVAL)
    }

    /// How it has ended, once it has: 0, or a negative errno.
    pub(crate) fn ended(&self) -> Option<c_int> {
        // SAFETY: a live fence.
        match unsafe { tally_fence_status(self.0.as_ptr()) } {
            0 => None,
            status => Some(status.min(0)),
        }
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        // SAFETY: the reference is ours.
        unsafe { tally_fence_put(self.0.as_ptr()) };
    }
}

/// An object that is told when a fence signals.
pub(crate) trait Signalled: Send + Sync {
    /// Called at most once, with the fence's lock held, perhaps in an interrupt.
    fn signalled(&self);
}

/// A fence, and the object that it tells when it signals. Once this is dropped, it tells nothing any more.
pub(crate) struct Watch<S> {
    raw: NonNull<RawWatch>,
    fence: Fence,
    /// Called back as long as `raw` lives.
    _to: Arc<S>,
}

// SAFETY: the shim's object may be ended by any thread.
unsafe impl<S: Signalled> Send for Watch<S> {}
// SAFETY: nothing is done with a shared reference but to ask the fence.
unsafe impl<S: Signalled> Sync for Watch<S> {}

impl<S: Signalled> Watch<S> {
    /// Has `fence` tell `to`. A fence that has signalled already tells nothing.
    ///
    /// # Errors
    /// ENOMEM.
    pub(crate) fn new(fence: Fence, to: Arc<S>) -> Result<Self> {
        let data = Arc::as_ptr(&to).cast_mut().cast();
        // SAFETY: a live fence; `to` lives longer than the callback, which `drop` ends.
        let raw = from_err_ptr(unsafe { tally_watch_new(fence.0.as_ptr(), call::<S>, data) })?;
        Ok(Self {
            raw: NonNull::new(raw).ok_or(ENOMEM)?,
            fence,
            _to: to,
        })
    }
}

impl<S> Watch<S> {
    /// The fence.
    pub(crate) fn fence(&self) -> &Fence {
        &self.fence
    }
}

impl<S> Drop for Watch<S> {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and used no more. The fence is live, and no callback runs afterwards.
        unsafe { tally_watch_end(self.raw.as_ptr()) };
    }
}

/// # Safety
/// Only the shim may call this, with the data of a live [`Watch`].
unsafe extern "C" fn call<S: Signalled>(data: *mut c_void) {
    // SAFETY: the watch keeps its object.
    unsafe { &*data.cast::<S>() }.signalled();
}
