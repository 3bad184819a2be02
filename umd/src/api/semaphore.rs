// SPDX-License-Identifier: MIT OR Apache-2.0
//! External semaphores: their import. The appends are in `list/semaphore.rs`.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use tally_ze::*;

use super::api;
use crate::error::{Error, Result};
use crate::handle;
use crate::sync::semaphore::{self, Semaphore};

api! {
    /// Spec: `zeDeviceImportExternalSemaphoreExt`. Semaphores are files of the kernel's sync objects: Vulkan's
    /// opaque descriptors, and those of timeline semaphores. The caller keeps its descriptor.
    fn zeDeviceImportExternalSemaphoreExt(
        call,
        hDevice: ze_device_handle_t,
        desc: *const ze_external_semaphore_ext_desc_t,
        phSemaphore: *mut ze_external_semaphore_ext_handle_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hDevice`
        let device = call.handle(hDevice, "hDevice")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == desc`
        let desc = call.desc(desc, "desc")?;
        // ZE_RESULT_ERROR_INVALID_ENUMERATION: `0x1ff < desc->flags`
        call.flags(desc.flags.has_unknown(), "desc->flags")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == phSemaphore`
        let out = call.out(phSemaphore, "phSemaphore")?;
        semaphore::are_offered(&**device.backend())?;
        let is_timeline = is_timeline(desc.flags)?;
        let mut file = None;
        for link in call.chain(desc.pNext) {
            match link.get::<ze_external_semaphore_fd_ext_desc_t>() {
                Some(desc) => file = Some(desc.fd),
                None => {
                    let text = format!("desc->pNext: {:?} is not supported", link.stype());
                    return Err(Error::unsupported(text));
                }
            }
        }
        let missing = || Error::invalid("desc->pNext: there is no ze_external_semaphore_fd_ext_desc_t");
        let file = file.ok_or_else(missing)?;
        if file < 0 {
            return Err(Error::invalid(format!("pNext->fd: {file} is no open file")));
        }
        // SAFETY: not negative, and only passed to the kernel, which refuses a number that is not an open file.
        let file = unsafe { BorrowedFd::borrow_raw(file) };
        let semaphore = Semaphore::import(device.backend(), file, is_timeline)?;
        out.set(handle::create(Arc::new(semaphore))?);
        Ok(())
    }

    /// Spec: `zeDeviceReleaseExternalSemaphoreExt`. Appended commands still complete.
    fn zeDeviceReleaseExternalSemaphoreExt(call, hSemaphore: ze_external_semaphore_ext_handle_t) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hSemaphore`
        call.destroy(hSemaphore, "hSemaphore")
    }
}

/// Whether a semaphore of this type is a timeline.
fn is_timeline(flags: ze_external_semaphore_ext_flags_t) -> Result<bool> {
    use ze_external_semaphore_ext_flags_t as flag;
    if flags == flag::ZE_EXTERNAL_SEMAPHORE_EXT_FLAG_VK_TIMELINE_SEMAPHORE_FD {
        return Ok(true);
    }
    if flags == flag::ZE_EXTERNAL_SEMAPHORE_EXT_FLAG_OPAQUE_FD {
        return Ok(false);
    }
    Err(Error::unsupported(format!(
        "desc->flags: {flags:?}; there are OPAQUE_FD and VK_TIMELINE_SEMAPHORE_FD"
    )))
}
