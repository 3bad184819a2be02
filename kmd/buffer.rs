// SPDX-License-Identifier: GPL-2.0
//! Buffers: shmem objects with an account and a creator.
//!
//! `kernel::drm::gem::shmem` does the work. raw/drm.rs handles the rest: it refuses
//! dumb buffers, and checks which client may map a buffer how.
//!
//! A buffer can also stand for the memory of another driver ([`BoData::foreign`]). It has no pages then: nothing
//! here looks at the pages of an exporter.

use kernel::drm::gem::{self, shmem};
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::{new_mutex, Arc, Mutex, SetOnce};
use tally_uapi::ioctl::bo_flag;
use tally_uapi::PAGE_SIZE;

use crate::account::{Amount, Charge, Client};
use crate::device::{Tally, TallyDevice};
use crate::raw::foreign::{Foreign, MappedForeign};

/// A buffer.
pub(crate) type Bo = shmem::Object<BoData>;
/// A counted reference to one.
pub(crate) type BoRef = ARef<Bo>;

/// The driver's data of a buffer.
#[pin_data]
pub(crate) struct BoData {
    /// Its size.
    bytes: u64,
    /// Its charge to the account of the client that made it. None: imported, and without a handle yet.
    charge: SetOnce<Charge>,
    flags: u32,
    creator: u64,
    /// The memory of another driver that it stands for.
    foreign: Option<Arc<Foreign>>,
    /// Held by [`crate::raw::pages::sg_table`] while it makes the table of the buffer's pages.
    #[pin]
    pub(crate) table_lock: Mutex<()>,
}

/// Arguments for a new [`BoData`].
pub(crate) enum BoArgs {
    /// A buffer with pages of its own.
    Own {
        /// The account of the file that makes the buffer.
        account: Arc<Client>,
        /// Bits of `bo_flag`.
        flags: u32,
        /// The number of the file.
        creator: u64,
    },
    /// A buffer for memory of another driver.
    Foreign(Arc<Foreign>),
}

/// The owner of an import: no file has this number.
const NO_FILE: u64 = 0;

impl BoData {
    /// Its size.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether `client` (a file, or `None` if it is unknown) may do more than read.
    pub(crate) fn may_write(&self, client: Option<u64>) -> bool {
        self.flags & bo_flag::IMPORT_READ_ONLY == 0 || client == Some(self.creator)
    }

    /// The memory of another driver that it stands for. None: it has pages of its own.
    pub(crate) fn foreign(&self) -> Option<&Arc<Foreign>> {
        self.foreign.as_ref()
    }

    /// Charges an imported buffer to the client that gets the first handle of it: for the buffer, and for what the
    /// exporter allocates to list its memory for the device. The memory itself is not the client's.
    ///
    /// # Errors
    /// ENOSPC.
    fn charge(&self, client: &Arc<Client>) -> Result {
        if self.charge.as_ref().is_none() {
            let amount = Amount {
                buffers: 1,
                kernel: self.bytes / PAGE_SIZE * 32 + 512,
                ..Amount::default()
            };
            // If another file was faster, it pays.
            let _ = self.charge.populate(Charge::take(client, amount)?);
        }
        Ok(())
    }
}

impl gem::DriverObject for BoData {
    type Driver = Tally;
    type Args = BoArgs;

    fn new(_dev: &TallyDevice, size: usize, args: BoArgs) -> impl PinInit<Self, Error> {
        pin_init::pin_init_scope(move || {
            let bytes = size as u64;
            let charge = SetOnce::new();
            let (flags, creator, foreign) = match args {
                BoArgs::Own {
                    account,
                    flags,
                    creator,
                } => {
                    let amount = Amount {
                        bytes,
                        buffers: 1,
                        ..Amount::default()
                    };
                    let _ = charge.populate(Charge::take(&account, amount)?);
                    (flags, creator, None)
                }
                BoArgs::Foreign(foreign) => {
                    let flags = match foreign.writable() {
                        true => 0,
                        false => bo_flag::IMPORT_READ_ONLY,
                    };
                    (flags, NO_FILE, Some(foreign))
                }
            };
            Ok(try_pin_init!(Self {
                bytes,
                charge,
                flags,
                creator,
                foreign,
                table_lock <- new_mutex!(())
            }? Error))
        })
    }

    fn open(bo: &Bo, file: &gem::DriverFile<Self>) -> Result {
        bo.charge(file.inner().account())
    }
}

/// A buffer of another driver that is bound.
pub(crate) struct ForeignBo {
    _bo: BoRef,
    foreign: Arc<Foreign>,
    /// Its addresses, for a device that is given them.
    mapped: Option<MappedForeign>,
}

impl ForeignBo {
    /// `foreign` is what `bo` stands for.
    ///
    /// # Errors
    /// ENOMEM.
    pub(crate) fn new(
        bo: BoRef,
        foreign: Arc<Foreign>,
        mapped: Option<MappedForeign>,
    ) -> Result<Arc<Self>> {
        Ok(Arc::new(
            Self {
                _bo: bo,
                foreign,
                mapped,
            },
            GFP_KERNEL_ACCOUNT,
        )?)
    }

    /// Its memory.
    pub(crate) fn foreign(&self) -> &Arc<Foreign> {
        &self.foreign
    }

    /// Its addresses.
    pub(crate) fn mapped(&self) -> Option<&MappedForeign> {
        self.mapped.as_ref()
    }
}
