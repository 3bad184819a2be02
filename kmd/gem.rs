// SPDX-License-Identifier: GPL-2.0
//! Buffers: shmem objects with an account and a creator.
//!
//! `kernel::drm::gem::shmem` does the work. What it leaves open (foreign and dumb
//! buffers, who may map what) is closed in raw.rs.

use kernel::drm;
use kernel::drm::gem::{self, shmem, BaseObject};
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::{new_mutex, Arc, Mutex};
use tally_uapi::ioctl::{bo_flag, BoCreate, BoInfo};
use tally_uapi::PAGE_SIZE;

use crate::account::{Amount, Charge, Client};
use crate::driver::{Tally, TallyDevice};
use crate::file::TallyFile;
use crate::raw;

/// A buffer.
pub(crate) type Bo = shmem::Object<BoData>;
/// A counted reference to one.
pub(crate) type BoRef = ARef<Bo>;

/// What the driver knows of a buffer.
#[pin_data]
pub(crate) struct BoData {
    /// To the account of the client that made it.
    charge: Charge,
    flags: u32,
    creator: u64,
    /// Held while the table of its pages is made, by [`raw::sg_table`].
    #[pin]
    pub(crate) table_lock: Mutex<()>,
}

/// What [`BoData`] is made of.
pub(crate) struct BoArgs {
    account: Arc<Client>,
    flags: u32,
    creator: u64,
}

impl BoData {
    /// The size.
    pub(crate) fn bytes(&self) -> u64 {
        self.charge.bytes()
    }

    /// Whether `client` (a file, or somebody unknown) may do more than read.
    pub(crate) fn may_write(&self, client: Option<u64>) -> bool {
        self.flags & bo_flag::IMPORT_READ_ONLY == 0 || client == Some(self.creator)
    }
}

impl gem::DriverObject for BoData {
    type Driver = Tally;
    type Args = BoArgs;

    fn new(_dev: &TallyDevice, size: usize, args: BoArgs) -> impl PinInit<Self, Error> {
        pin_init::pin_init_scope(move || {
            let BoArgs { account, flags, creator } = args;
            let charge =
                Charge::take(&account, Amount { bytes: size as u64, buffers: 1, kernel: 0 })?;
            Ok(try_pin_init!(Self { charge, flags, creator, table_lock <- new_mutex!(()) }? Error))
        })
    }
}

/// The buffer of a handle.
///
/// # Errors
/// ENOENT.
pub(crate) fn lookup(file: &drm::File<TallyFile>, handle: u32) -> Result<BoRef> {
    Bo::lookup_handle(file, handle)
}

/// IOCTL: BO_CREATE: a buffer.
pub(crate) fn create(dev: &TallyDevice, file: &drm::File<TallyFile>, arg: &mut BoCreate) -> Result {
    if arg.flags & !bo_flag::ALL != 0 || arg.size == 0 || arg.size % PAGE_SIZE != 0 {
        return Err(EINVAL);
    }
    let inner = file.inner();
    let account = inner.account().clone();
    let args = BoArgs { account, flags: arg.flags, creator: inner.id() };
    let size = usize::try_from(arg.size).map_err(|_| ENOSPC)?;
    let bo = Bo::new(dev, size, shmem::ObjectConfig::default(), args)?;
    raw::patch_bo(&bo);
    arg.handle = bo.create_handle(file)?;
    Ok(())
}

/// IOCTL: BO_INFO: a buffer's size and mmap offset.
pub(crate) fn info(file: &drm::File<TallyFile>, arg: &mut BoInfo) -> Result {
    if arg.pad != 0 {
        return Err(EINVAL);
    }
    let bo = lookup(file, arg.handle)?;
    let offset = bo.create_mmap_offset()?;
    arg.size = bo.bytes();
    arg.mmap_offset = offset;
    Ok(())
}
