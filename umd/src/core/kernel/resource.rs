// SPDX-License-Identifier: MIT OR Apache-2.0
//! Images and samplers as arguments: from the handle to the value that the kernel gets.

use tally_compiler_protocol::{Access, ArgInfo, ArgKind, ImageKind};
use tally_uapi::image::kind;
use tally_ze::{ze_image_handle_t, ze_sampler_handle_t};

use crate::error::{Error, Result};
use crate::handle;
use crate::log::warn_once;

/// The argument that a kernel gets for an image or a sampler, by the bytes of its handle.
///
/// # Errors
/// INVALID_NULL_HANDLE; INVALID_ARGUMENT: the kernel needs an image of another type.
///
/// # Safety
/// The handle is not destroyed during the call.
pub(super) unsafe fn word(arg: &ArgInfo, index: u32, bytes: &[u8]) -> Result<u64> {
    let number = bytes.first_chunk().map_or(0, |&bytes| usize::from_ne_bytes(bytes));
    let raw = std::ptr::with_exposed_provenance_mut(number);
    if arg.kind == ArgKind::Sampler {
        // SAFETY: as the caller promises.
        let sampler = unsafe { handle::get(ze_sampler_handle_t(raw), "pArgValue") }?;
        return Ok(sampler.word().into());
    }
    // SAFETY: as the caller promises.
    let image = unsafe { handle::get(ze_image_handle_t(raw), "pArgValue") }?;
    let given = image.shape().kind;
    if arg.image.is_some_and(|wanted| kind_of(wanted) != given) {
        return Err(Error::invalid(format!(
            "pArgValue: argument {index} is a {:?} image, the image given is not",
            arg.image.unwrap_or(ImageKind::D2)
        )));
    }
    if matches!(arg.access, Access::Write | Access::ReadWrite) && !image.is_writable() {
        // Intel's driver does not look at the flag, and PoCL's read-only images are arguments of this kind.
        warn_once!(
            "pArgValue: argument {index} is written, the image was created without ZE_IMAGE_FLAG_KERNEL_WRITE"
        );
    }
    Ok(image.descriptor())
}

fn kind_of(image: ImageKind) -> u8 {
    match image {
        ImageKind::D1 => kind::D1,
        ImageKind::D1Array => kind::D1_ARRAY,
        ImageKind::D2 => kind::D2,
        ImageKind::D2Array => kind::D2_ARRAY,
        ImageKind::D3 => kind::D3,
        ImageKind::Buffer => kind::BUFFER,
    }
}
