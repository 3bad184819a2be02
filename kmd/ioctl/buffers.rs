// SPDX-License-Identifier: GPL-2.0
//! BO_CREATE and BO_INFO, and the look-up of buffers by handle.

use kernel::drm;
use kernel::drm::gem::{shmem, BaseObject};
use kernel::prelude::*;
use tally_uapi::ioctl::{BoCreate, BoInfo};

use crate::buffer::{Bo, BoArgs, BoRef};
use crate::device::TallyDevice;
use crate::file::TallyFile;
use crate::raw::drm::patch_buffer;
use crate::request::{Handle, NewBuffer};

/// The buffer of a handle.
///
/// # Errors
/// ENOENT.
pub(super) fn lookup(file: &drm::File<TallyFile>, handle: u32) -> Result<BoRef> {
    Bo::lookup_handle(file, handle)
}

/// IOCTL: BO_CREATE: a buffer.
pub(super) fn create(dev: &TallyDevice, file: &drm::File<TallyFile>, arg: &mut BoCreate) -> Result {
    let NewBuffer { size, flags } = NewBuffer::try_from(&*arg)?;
    let inner = file.inner();
    let account = inner.account().clone();
    let args = BoArgs::Own {
        account,
        flags,
        creator: inner.id(),
    };
    let bo = Bo::new(dev, size, shmem::ObjectConfig::default(), args)?;
    patch_buffer(&bo);
    arg.handle = bo.create_handle(file)?;
    Ok(())
}

/// IOCTL: BO_INFO: a buffer's size and mmap offset.
pub(super) fn info(file: &drm::File<TallyFile>, arg: &mut BoInfo) -> Result {
    let Handle(handle) = Handle::try_from(&*arg)?;
    let bo = lookup(file, handle)?;
    let offset = bo.create_mmap_offset()?;
    arg.size = bo.bytes();
    arg.mmap_offset = offset;
    Ok(())
}
