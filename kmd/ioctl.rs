// SPDX-License-Identifier: GPL-2.0
//! The table of ioctls.
//!
//! `declare_drm_ioctls!` accepts only structs of the kernel's own uapi, and keeps
//! the driver from unbinding for the whole handler, which SEM_WAIT must not do.

use core::ffi::{c_int, c_void};

use kernel::drm::ioctl::{DrmIoctlDescriptor, RENDER_ALLOW};
use tally_uapi::ioctl::{
    BoCreate, BoInfo, Ioctl, Query, QueueCreate, QueueDestroy, QueueKick, QueueQuery, SemFollow,
    SemNotify, SemWait, SemWake, VmBind, VmCreate, VmDestroy, VmOrphan,
};

use self::caller::Caller;
use crate::raw::drm::{drm_device, drm_file, ioctl_arguments};

mod bind;
mod buffers;
mod caller;
mod follow;
mod later;
mod query;
mod queues;
mod vms;
mod waits;

/// One entry of the table for each `argument => handler`.
macro_rules! table {
    ($($arg:ident => |$caller:ident, $name:ident| $handler:expr),* $(,)?) => {
        &[$({
            /// One ioctl, as the DRM core calls it.
            ///
            /// # Safety
            /// Only the DRM core may call this: device, argument and file are those of the call.
            unsafe extern "C" fn handler(
                dev: *mut drm_device,
                data: *mut c_void,
                file: *mut drm_file,
            ) -> c_int {
                // SAFETY: the core has called this with its device and file.
                let (dev, drm_file) = unsafe { ioctl_arguments(dev, file) };
                let $caller = Caller { dev, drm_file };
                // SAFETY: the core passes a buffer of its own, as large as the number of
                // the ioctl says and aligned for any struct; all bits are values of it.
                let $name: &mut $arg = unsafe { &mut *data.cast() };
                match $handler {
                    Ok(()) => 0,
                    Err(error) => error.to_errno(),
                }
            }
            DrmIoctlDescriptor {
                cmd: $arg::REQUEST,
                func: Some(handler),
                flags: RENDER_ALLOW,
                name: kernel::str::as_char_ptr_in_const_context(kernel::c_str!(stringify!($arg))),
            }
        }),*]
    };
}

/// The ioctls by number.
pub(crate) const TABLE: &[DrmIoctlDescriptor] = table! {
    Query => |caller, arg| caller.gpu(|gpu| query::query(gpu, &caller.file(), arg)),
    BoCreate => |caller, arg| caller.with_room(|| {
        caller.gpu(|_| buffers::create(caller.dev, caller.drm_file, arg))
    }),
    BoInfo => |caller, arg| buffers::info(caller.drm_file, arg),
    VmCreate => |caller, arg| vms::create(&caller, arg),
    VmDestroy => |caller, arg| vms::destroy(&caller, arg),
    VmBind => |caller, arg| caller.with_room(|| bind::bind(&caller, arg)),
    QueueCreate => |caller, arg| queues::create(&caller, arg),
    QueueDestroy => |caller, arg| queues::destroy(&caller, arg),
    QueueQuery => |caller, arg| queues::query(&caller, arg),
    QueueKick => |caller, arg| caller.gpu(|gpu| queues::kick(gpu, &caller.file(), arg)),
    SemWait => |caller, arg| {
        let file = caller.file();
        waits::wait(file.state(), &file, caller.lookup(), arg)
    },
    SemWake => |caller, arg| caller.gpu(|gpu| waits::wake(gpu, caller.lookup(), arg)),
    VmOrphan => |caller, arg| vms::orphan(&caller, arg),
    SemNotify => |caller, arg| waits::notify(caller.drm_file, caller.lookup(), arg),
    SemFollow => |caller, arg| follow::follow(&caller, arg),
};

/// The core uses an ioctl's number within the driver as the index in the table.
const _: () = {
    let mut index = 0;
    while index < TABLE.len() {
        assert!(TABLE[index].cmd & 0xff == 0x40 + index as u32);
        index += 1;
    }
    assert!(TABLE.len() == tally_uapi::ioctl::IOCTLS.len());
};
