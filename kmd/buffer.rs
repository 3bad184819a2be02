// SPDX-License-Identifier: GPL-2.0
//! Buffers: shmem objects with an account and a creator.
//!
//! `kernel::drm::gem::shmem` does the work. raw/drm.rs handles the rest: it refuses
//! foreign and dumb buffers, and checks which client may map a buffer how.

use kernel::drm::gem::{self, shmem};
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::sync::{new_mutex, Arc, Mutex};
use tally_uapi::ioctl::bo_flag;

use crate::account::{Amount, Charge, Client};
use crate::device::{Tally, TallyDevice};

/// A buffer.
pub(crate) type Bo = shmem::Object<BoData>;
/// A counted reference to one.
pub(crate) type BoRef = ARef<Bo>;

/// The driver's data of a buffer.
#[pin_data]
pub(crate) struct BoData {
    /// Its charge to the account of the client that made it.
    charge: Charge,
    flags: u32,
    creator: u64,
    /// Held by [`crate::raw::pages::sg_table`] while it makes the table of the buffer's pages.
    #[pin]
    pub(crate) table_lock: Mutex<()>,
}

/// Arguments for a new [`BoData`].
pub(crate) struct BoArgs {
    /// The account of the file that makes the buffer.
    pub(crate) account: Arc<Client>,
    /// Bits of `bo_flag`.
    pub(crate) flags: u32,
    /// The number of the file.
    pub(crate) creator: u64,
}

impl BoData {
    /// Its size.
    pub(crate) fn bytes(&self) -> u64 {
        self.charge.bytes()
    }

    /// Whether `client` (a file, or `None` if it is unknown) may do more than read.
    pub(crate) fn may_write(&self, client: Option<u64>) -> bool {
        self.flags & bo_flag::IMPORT_READ_ONLY == 0 || client == Some(self.creator)
    }
}

impl gem::DriverObject for BoData {
    type Driver = Tally;
    type Args = BoArgs;

    fn new(_dev: &TallyDevice, size: usize, args: BoArgs) -> impl PinInit<Self, Error> {
        pin_init::pin_init_scope(move || {
            let BoArgs {
                account,
                flags,
                creator,
            } = args;
            let charge = Charge::take(
                &account,
                Amount {
                    bytes: size as u64,
                    buffers: 1,
                    ..Amount::default()
                },
            )?;
            Ok(try_pin_init!(Self { charge, flags, creator, table_lock <- new_mutex!(()) }? Error))
        })
    }
}
