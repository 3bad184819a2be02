// SPDX-License-Identifier: GPL-2.0
//! The caller of an ioctl, and its access to the hardware.

use kernel::drm;
use kernel::prelude::*;

use super::buffers;
use crate::buffer::BoRef;
use crate::device::TallyDevice;
use crate::file::TallyFile;
use crate::gpu::Gpu;
use crate::state::State;

/// A device whose hardware may be used while the driver is bound.
#[derive(Clone, Copy)]
pub(super) struct Hardware<'a>(pub(super) &'a TallyDevice<drm::Ioctl>);

impl<'a> Hardware<'a> {
    /// The state that outlives it.
    pub(super) fn state(self) -> &'a State {
        &self.0.state
    }

    /// Calls `f` with the hardware, which stays bound meanwhile. `f` must not wait for the device: unbinding waits
    /// for `f`, and a thread that waits in `f` could not be frozen.
    ///
    /// # Errors
    /// ENODEV: the device is gone. Those of `f`.
    pub(super) fn gpu<T>(self, f: impl for<'g> FnOnce(&Gpu<'g>) -> Result<T>) -> Result<T> {
        self.gpu_or_gone(|gpu| {
            if gpu.state().gone() {
                Err(ENODEV)
            } else {
                f(gpu)
            }
        })
    }

    /// Like [`Self::gpu`], for calls that free resources, which also work after the device has been given up.
    ///
    /// # Errors
    /// ENODEV: the driver was unbound. Those of `f`.
    pub(super) fn gpu_or_gone<T>(self, f: impl for<'g> FnOnce(&Gpu<'g>) -> Result<T>) -> Result<T> {
        let guard = self.0.registration_guard().ok_or(ENODEV)?;
        guard.registration_data_with(|registered| f(registered.gpu))
    }
}

/// The device and the open file of an ioctl.
pub(super) struct Caller<'a> {
    pub(super) dev: &'a TallyDevice<drm::Ioctl>,
    pub(super) drm_file: &'a drm::File<TallyFile>,
}

impl<'a> Caller<'a> {
    pub(super) fn file(&self) -> Pin<&'a TallyFile> {
        self.drm_file.inner()
    }

    /// The device.
    pub(super) fn hardware(&self) -> Hardware<'a> {
        Hardware(self.dev)
    }

    /// See [`Hardware::gpu`].
    ///
    /// # Errors
    /// ENODEV: the device is gone. Those of `f`.
    pub(super) fn gpu<T>(&self, f: impl for<'g> FnOnce(&Gpu<'g>) -> Result<T>) -> Result<T> {
        self.hardware().gpu(f)
    }

    /// See [`Hardware::gpu_or_gone`].
    ///
    /// # Errors
    /// ENODEV: the driver was unbound. Those of `f`.
    pub(super) fn gpu_or_gone<T>(
        &self,
        f: impl for<'g> FnOnce(&Gpu<'g>) -> Result<T>,
    ) -> Result<T> {
        self.hardware().gpu_or_gone(f)
    }

    /// Calls `f` again when it answers ENOSPC while an object that the user has closed is not released yet.
    ///
    /// # Errors
    /// Those of [`State::with_room`](crate::state::State::with_room).
    pub(super) fn with_room<T>(&self, f: impl FnMut() -> Result<T>) -> Result<T> {
        let file = self.file();
        file.state().with_room(file.owner().user, f)
    }

    pub(super) fn lookup(&self) -> impl Fn(u32) -> Result<BoRef> + use<'a> {
        let file = self.drm_file;
        move |handle| buffers::lookup(file, handle)
    }
}
