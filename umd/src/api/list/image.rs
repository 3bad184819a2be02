// SPDX-License-Identifier: MIT OR Apache-2.0
//! Appends that copy images: between images, and between images and any memory of the process.

use std::ffi::c_void;

use tally_ze::*;

use super::copy::range;
use super::{Events, append};
use crate::api::{Call, api};
use crate::core::image::{Image, Part};
use crate::core::list::List;
use crate::error::{Error, Result};
use crate::list::command::Command;

api! {
    /// Spec: `zeCommandListAppendImageCopy`.
    fn zeCommandListAppendImageCopy(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        list @ hCommandList: ze_command_list_handle_t,
        hDstImage: ze_image_handle_t,
        hSrcImage: ze_image_handle_t,
        events: Events,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hDstImage`
        let dst = Place { image: call.handle(hDstImage, "hDstImage")?, region: None };
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hSrcImage`
        let src = Place { image: call.handle(hSrcImage, "hSrcImage")?, region: None };
        copy(call, list, dst, src, events)
    }

    /// Spec: `zeCommandListAppendImageCopyRegion`. Without a region it copies the whole image.
    fn zeCommandListAppendImageCopyRegion(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        list @ hCommandList: ze_command_list_handle_t,
        hDstImage: ze_image_handle_t,
        hSrcImage: ze_image_handle_t,
        pDstRegion: *const ze_image_region_t,
        pSrcRegion: *const ze_image_region_t,
        events: Events,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hDstImage`
        let dst = call.handle(hDstImage, "hDstImage")?;
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hSrcImage`
        let src = call.handle(hSrcImage, "hSrcImage")?;
        let dst = Place { image: dst, region: region(call, pDstRegion) };
        let src = Place { image: src, region: region(call, pSrcRegion) };
        copy(call, list, dst, src, events)
    }

    /// Spec: `zeCommandListAppendImageCopyToMemory`.
    fn zeCommandListAppendImageCopyToMemory(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        list @ hCommandList: ze_command_list_handle_t,
        dstptr: *mut c_void,
        hSrcImage: ze_image_handle_t,
        pSrcRegion: *const ze_image_region_t,
        events: Events,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hSrcImage`
        let src = call.handle(hSrcImage, "hSrcImage")?;
        let src = Place { image: src, region: region(call, pSrcRegion) };
        to_memory(call, list, (dstptr, [0; 2]), src, events)
    }

    /// Spec: `zeCommandListAppendImageCopyToMemoryExt`.
    fn zeCommandListAppendImageCopyToMemoryExt(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        list @ hCommandList: ze_command_list_handle_t,
        dstptr: *mut c_void,
        hSrcImage: ze_image_handle_t,
        pSrcRegion: *const ze_image_region_t,
        destRowPitch: u32,
        destSlicePitch: u32,
        events: Events,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hSrcImage`
        let src = call.handle(hSrcImage, "hSrcImage")?;
        let src = Place { image: src, region: region(call, pSrcRegion) };
        to_memory(call, list, (dstptr, [destRowPitch, destSlicePitch]), src, events)
    }

    /// Spec: `zeCommandListAppendImageCopyFromMemory`.
    fn zeCommandListAppendImageCopyFromMemory(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        list @ hCommandList: ze_command_list_handle_t,
        hDstImage: ze_image_handle_t,
        srcptr: *const c_void,
        pDstRegion: *const ze_image_region_t,
        events: Events,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hDstImage`
        let dst = call.handle(hDstImage, "hDstImage")?;
        let dst = Place { image: dst, region: region(call, pDstRegion) };
        from_memory(call, list, dst, (srcptr, [0; 2]), events)
    }

    /// Spec: `zeCommandListAppendImageCopyFromMemoryExt`.
    fn zeCommandListAppendImageCopyFromMemoryExt(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        list @ hCommandList: ze_command_list_handle_t,
        hDstImage: ze_image_handle_t,
        srcptr: *const c_void,
        pDstRegion: *const ze_image_region_t,
        srcRowPitch: u32,
        srcSlicePitch: u32,
        events: Events,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hDstImage`
        let dst = call.handle(hDstImage, "hDstImage")?;
        let dst = Place { image: dst, region: region(call, pDstRegion) };
        from_memory(call, list, dst, (srcptr, [srcRowPitch, srcSlicePitch]), events)
    }
}

/// An image and a region of it.
#[derive(Clone, Copy)]
struct Place<'c> {
    image: &'c Image,
    region: Option<&'c ze_image_region_t>,
}

fn region<'c>(call: Call<'c>, region: *const ze_image_region_t) -> Option<&'c ze_image_region_t> {
    // Null means the whole image.
    call.read(region, "region").ok()
}

fn copy(call: Call<'_>, list: &List, dst: Place<'_>, src: Place<'_>, events: Events) -> Result {
    let (to, from) = (&dst.image.shape().format, &src.image.shape().format);
    if (to.layout, to.components, to.channel) != (from.layout, from.components, from.channel) {
        return Err(Error::invalid("hDstImage: its format is not that of hSrcImage"));
    }
    let to = dst.image.part(dst.region, "pDstRegion")?;
    let from = src.image.part(src.region, "pSrcRegion")?;
    if to.size != from.size {
        return Err(Error::new(
            ze_result_t::ZE_RESULT_ERROR_INVALID_SIZE,
            "pDstRegion: its width, height and depth are not those of pSrcRegion",
        ));
    }
    must_not_overlap(&to, &from, "pDstRegion: it overlaps pSrcRegion")?;
    move_texels(call, list, &to, &from, events)
}

fn to_memory(
    call: Call<'_>,
    list: &List,
    (dst, pitches): (*mut c_void, [u32; 2]),
    src: Place<'_>,
    events: Events,
) -> Result {
    call.out(dst, "dstptr")?;
    let from = src.image.part(src.region, "pSrcRegion")?;
    let to = from.memory(dst as u64, pitches)?;
    range(list, to.address, to.span(), "dstptr")?;
    must_not_overlap(&to, &from, "dstptr: the memory overlaps pSrcRegion")?;
    move_texels(call, list, &to, &from, events)
}

fn from_memory(
    call: Call<'_>,
    list: &List,
    dst: Place<'_>,
    (src, pitches): (*const c_void, [u32; 2]),
    events: Events,
) -> Result {
    call.out(src.cast_mut(), "srcptr")?;
    let to = dst.image.part(dst.region, "pDstRegion")?;
    let from = to.memory(src as u64, pitches)?;
    range(list, from.address, from.span(), "srcptr")?;
    must_not_overlap(&to, &from, "srcptr: the memory overlaps pDstRegion")?;
    move_texels(call, list, &to, &from, events)
}

/// Refuses a copy of bytes onto themselves: images may overlap each other, and memory that is copied.
fn must_not_overlap(dst: &Part, src: &Part, text: &'static str) -> Result {
    match dst.overlaps(src) {
        true => Err(Error::new(ze_result_t::ZE_RESULT_ERROR_OVERLAPPING_REGIONS, text)),
        false => Ok(()),
    }
}

fn move_texels(call: Call<'_>, list: &List, dst: &Part, src: &Part, events: Events) -> Result {
    let shape = Part::copy(dst, src);
    append(call, list, &Command::CopyRegion { dst: dst.address, src: src.address, shape }, events)
}
