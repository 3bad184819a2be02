// SPDX-License-Identifier: MIT OR Apache-2.0
//! Images and samplers for tests through the loader.

use std::ffi::c_void;
use std::ptr;

use crate::lists::{List, NONE};
use crate::ze::Gpu;
use crate::{call, check};
use tally_ze::*;

/// An image; destroyed on drop.
#[derive(Debug)]
pub struct Image(pub ze_image_handle_t);

impl Drop for Image {
    fn drop(&mut self) {
        // A failure here, after a failed test, must not hide that test's failure.
        let _ = call!(zeImageDestroy(self.0));
    }
}

/// A sampler; destroyed on drop.
#[derive(Debug)]
pub struct Sampler(pub ze_sampler_handle_t);

impl Drop for Sampler {
    fn drop(&mut self) {
        // See `Image`.
        let _ = call!(zeSamplerDestroy(self.0));
    }
}

/// A format with the channels as they are stored.
pub fn format(layout: ze_image_format_layout_t, ty: ze_image_format_type_t) -> ze_image_format_t {
    use ze_image_format_swizzle_t as swizzle;
    ze_image_format_t {
        layout,
        r#type: ty,
        x: swizzle::ZE_IMAGE_FORMAT_SWIZZLE_R,
        y: swizzle::ZE_IMAGE_FORMAT_SWIZZLE_G,
        z: swizzle::ZE_IMAGE_FORMAT_SWIZZLE_B,
        w: swizzle::ZE_IMAGE_FORMAT_SWIZZLE_A,
    }
}

/// A description of an image that kernels may write. Sizes that the type does not have are ignored; the
/// last one is slices or layers.
pub fn image_desc(
    ty: ze_image_type_t,
    format: ze_image_format_t,
    [width, height, depth]: [u32; 3],
) -> ze_image_desc_t {
    ze_image_desc_t {
        flags: ze_image_flags_t::ZE_IMAGE_FLAG_KERNEL_WRITE,
        r#type: ty,
        format,
        width: width.into(),
        height,
        depth,
        arraylevels: depth,
        ..Default::default()
    }
}

impl Gpu {
    /// An image.
    pub fn image(&self, desc: &ze_image_desc_t) -> Image {
        let mut image = ze_image_handle_t::NULL;
        check!(zeImageCreate(self.context, self.device, desc, &raw mut image));
        Image(image)
    }

    /// A sampler.
    pub fn sampler(
        &self,
        address: ze_sampler_address_mode_t,
        filter: ze_sampler_filter_mode_t,
        normalized: bool,
    ) -> Sampler {
        let desc = ze_sampler_desc_t {
            addressMode: address,
            filterMode: filter,
            isNormalized: normalized.into(),
            ..Default::default()
        };
        let mut sampler = ze_sampler_handle_t::NULL;
        check!(zeSamplerCreate(self.context, self.device, &raw const desc, &raw mut sampler));
        Sampler(sampler)
    }
}

impl List {
    /// Appends a copy of all of an image from memory.
    pub fn image_from<T>(&self, image: &Image, from: &[T]) {
        let from: *const c_void = from.as_ptr().cast();
        let (none, waits) = (ptr::null(), ptr::null_mut());
        check!(zeCommandListAppendImageCopyFromMemory(self.0, image.0, from, none, NONE, 0, waits));
    }

    /// Appends a copy of all of an image to memory.
    pub fn image_to<T>(&self, image: &Image, to: &mut [T]) {
        let to: *mut c_void = to.as_mut_ptr().cast();
        let (none, waits) = (ptr::null(), ptr::null_mut());
        check!(zeCommandListAppendImageCopyToMemory(self.0, to, image.0, none, NONE, 0, waits));
    }
}
