// SPDX-License-Identifier: MIT OR Apache-2.0
//! Images. [`super::list::image`] copies them.

use std::ffi::c_void;

use tally_ze::*;

use super::memory::{Extensions, external};
use super::{Call, api};
use crate::core::image::{self, Image, Shape, Traits};
use crate::core::sampler::Sampler;
use crate::error::{Error, Result};
use crate::handle;

api! {
    /// Spec: `zeImageGetProperties`. With ze_image_format_support_ext_properties_t an unsupported
    /// format is a result, not an error.
    fn zeImageGetProperties(
        call,
        hDevice: ze_device_handle_t,
        desc: *const ze_image_desc_t,
        pImageProperties: *mut ze_image_properties_t,
    ) {
        use ze_result_t as code;
        call.handle(hDevice, "hDevice")?;
        let desc = call.desc(desc, "desc")?;
        call.flags(desc.flags.has_unknown(), "desc->flags")?;
        let out = call.properties(pImageProperties, "pImageProperties")?;
        let shape = shape_of(call, desc);
        let chain = call.chain(out.pNext);
        let mut asked = false;
        for support in chain.filter_map(|it| it.get_mut::<ze_image_format_support_ext_properties_t>()) {
            support.supported = shape.is_ok().into();
            asked = true;
        }
        out.samplerFilterFlags = match shape {
            Ok(shape) => shape.format.filters(),
            Err(error) if asked && error.code() == code::ZE_RESULT_ERROR_UNSUPPORTED_IMAGE_FORMAT => {
                ze_image_sampler_filter_flags_t::empty()
            }
            Err(error) => return Err(error),
        };
        Ok(())
    }

    /// Spec: `zeImageCreate`.
    fn zeImageCreate(
        call,
        hContext: ze_context_handle_t,
        hDevice: ze_device_handle_t,
        desc: *const ze_image_desc_t,
        phImage: *mut ze_image_handle_t,
    ) {
        let context = call.handle(hContext, "hContext")?;
        let device = call.handle(hDevice, "hDevice")?;
        context.must_hold(device, "hDevice")?;
        let (shape, traits, extensions) = described(call, desc)?;
        let out = call.out(phImage, "phImage")?;
        let source = external::source(&extensions, context)?;
        out.set(handle::create(Image::create(context, device, shape, &traits, source)?)?);
        Ok(())
    }

    /// Spec: `zeImageDestroy`. The memory is freed once no submitted work uses it any more.
    fn zeImageDestroy(call, hImage: ze_image_handle_t) {
        let until = call.handle(hImage, "hImage")?.unfinished()?;
        call.take(hImage, "hImage")?.destroy(until);
        Ok(())
    }

    /// Spec: `zeImageViewCreateExt`.
    fn zeImageViewCreateExt(
        call,
        hContext: ze_context_handle_t,
        hDevice: ze_device_handle_t,
        desc: *const ze_image_desc_t,
        hImage: ze_image_handle_t,
        phImageView: *mut ze_image_handle_t,
    ) {
        view(call, (hContext, hDevice), desc, hImage, phImageView)
    }

    /// Spec: `zeImageViewCreateExp`.
    fn zeImageViewCreateExp(
        call,
        hContext: ze_context_handle_t,
        hDevice: ze_device_handle_t,
        desc: *const ze_image_desc_t,
        hImage: ze_image_handle_t,
        phImageView: *mut ze_image_handle_t,
    ) {
        view(call, (hContext, hDevice), desc, hImage, phImageView)
    }

    /// Spec: `zeImageGetMemoryPropertiesExp`.
    fn zeImageGetMemoryPropertiesExp(
        call,
        hImage: ze_image_handle_t,
        pMemoryProperties: *mut ze_image_memory_properties_exp_t,
    ) {
        let image = call.handle(hImage, "hImage")?;
        let out = call.properties(pMemoryProperties, "pMemoryProperties")?;
        [out.size, out.rowPitch, out.slicePitch] = image.memory();
        Ok(())
    }

    /// Spec: `zeImageGetAllocPropertiesExt`.
    fn zeImageGetAllocPropertiesExt(
        call,
        hContext: ze_context_handle_t,
        hImage: ze_image_handle_t,
        pImageAllocProperties: *mut ze_image_allocation_ext_properties_t,
    ) {
        let context = call.handle(hContext, "hContext")?;
        let image = call.handle(hImage, "hImage")?;
        let out = call.properties(pImageAllocProperties, "pImageAllocProperties")?;
        out.id = image.id();
        let mut links = call.chain(out.pNext);
        links.try_for_each(|link| external::answer(call, context, image.exportable(), link))
    }

    /// Spec: `zeImageGetDeviceOffsetExp`. The number by which kernels name the image.
    fn zeImageGetDeviceOffsetExp(
        call,
        hImage: ze_image_handle_t,
        pDeviceOffset: *mut u64,
    ) {
        let image = call.handle(hImage, "hImage")?;
        let out = call.out(pDeviceOffset, "pDeviceOffset")?;
        if !image.is_bindless() {
            return Err(Error::invalid(
                "hImage: it was created without ZE_IMAGE_BINDLESS_EXP_FLAG_BINDLESS",
            ));
        }
        out.set(image.descriptor());
        Ok(())
    }

    /// Spec: `zeMemGetPitchFor2dImage`.
    fn zeMemGetPitchFor2dImage(
        call,
        hContext: ze_context_handle_t,
        hDevice: ze_device_handle_t,
        imageWidth: usize,
        imageHeight: usize,
        elementSizeInBytes: u32,
        rowPitch: *mut usize,
    ) {
        let context = call.handle(hContext, "hContext")?;
        context.must_hold(call.handle(hDevice, "hDevice")?, "hDevice")?;
        let out = call.out(rowPitch, "rowPitch")?;
        let max = tally_uapi::image::MAX_EXTENT_2D as usize;
        for (name, value, max) in [
            ("imageWidth", imageWidth, max),
            ("imageHeight", imageHeight, max),
            ("elementSizeInBytes", elementSizeInBytes as usize, 16),
        ] {
            if value == 0 || value > max {
                return Err(Error::new(
                    ze_result_t::ZE_RESULT_ERROR_UNSUPPORTED_SIZE,
                    format!("{name}: {value} is not from 1 to {max}"),
                ));
            }
        }
        let bytes = imageWidth as u64 * u64::from(elementSizeInBytes);
        out.set(image::row_pitch(bytes) as usize);
        Ok(())
    }
}

fn view(
    call: Call<'_>,
    (context, device): (ze_context_handle_t, ze_device_handle_t),
    desc: *const ze_image_desc_t,
    image: ze_image_handle_t,
    out: *mut ze_image_handle_t,
) -> Result {
    let context = call.handle(context, "hContext")?;
    context.must_hold(call.handle(device, "hDevice")?, "hDevice")?;
    let (shape, traits, extensions) = described(call, desc)?;
    if external::source(&extensions, context)?.is_file() {
        return Err(Error::invalid("desc->pNext: a view has the memory of its image"));
    }
    let image = call.handle(image, "hImage")?;
    let out = call.out(out, "phImageView")?;
    out.set(handle::create(image.view(context, shape, &traits)?)?);
    Ok(())
}

/// An image's description and the structures chained to it.
fn described(call: Call<'_>, desc: *const ze_image_desc_t) -> Result<(Shape, Traits, Extensions)> {
    let desc = call.desc(desc, "desc")?;
    call.flags(desc.flags.has_unknown(), "desc->flags")?;
    let shape = shape_of(call, desc)?;
    let (traits, extensions) = extended(call, desc.pNext)?;
    Ok((shape, Traits { writable: image::is_writable(desc.flags), ..traits }, extensions))
}

/// The shape that a description asks for, perhaps in sRGB.
fn shape_of(call: Call<'_>, desc: &ze_image_desc_t) -> Result<Shape> {
    let mut shape = Shape::new(desc)?;
    let mut chain = call.chain(desc.pNext);
    if chain.any(|link| link.get::<ze_srgb_ext_desc_t>().is_some_and(|it| it.sRGB != 0)) {
        shape.format = shape.format.srgb()?;
    }
    Ok(shape)
}

fn extended(call: Call<'_>, next: *const c_void) -> Result<(Traits, Extensions)> {
    use ze_image_bindless_exp_flags_t as bindless;
    use ze_structure_type_t as stype;
    let (mut traits, mut extensions) = (Traits::default(), Extensions::default());
    let (mut sampled, mut sampler) = (false, None);
    for link in call.chain(next) {
        if link.stype() == stype::ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_WIN32 {
            return Err(Error::unsupported(format!(
                "desc->pNext: {:?}: such memory cannot be imported",
                link.stype()
            )));
        }
        external::read(call, &link, &mut extensions)?;
        if let Some(it) = link.get::<ze_image_bindless_exp_desc_t>() {
            call.flags(it.flags.has_unknown(), "ze_image_bindless_exp_desc_t::flags")?;
            traits.bindless |= it.flags.contains(bindless::ZE_IMAGE_BINDLESS_EXP_FLAG_BINDLESS);
            sampled |= it.flags.contains(bindless::ZE_IMAGE_BINDLESS_EXP_FLAG_SAMPLED_IMAGE);
        } else if let Some(it) = link.get::<ze_sampler_desc_t>() {
            sampler = Some(Sampler::new(it)?);
        } else if let Some(it) = link.get::<ze_image_pitched_exp_desc_t>() {
            call.out(it.ptr, "ze_image_pitched_exp_desc_t::ptr")?;
            traits.user = Some(it.ptr as u64);
        } else if let Some(it) = link.get::<ze_custom_pitch_exp_desc_t>() {
            traits.pitches = [it.rowPitch as u64, it.slicePitch as u64];
        } else if let Some(it) = link.get::<ze_image_view_planar_ext_desc_t>()
            && it.planeIndex != 0
        {
            return Err(Error::invalid(format!(
                "ze_image_view_planar_ext_desc_t::planeIndex: {}, but all images have one plane",
                it.planeIndex
            )));
        }
    }
    match sampler {
        Some(sampler) => traits.sampler = sampler.word(),
        None if sampled => {
            return Err(Error::invalid(
                "ze_image_bindless_exp_desc_t: a sampled image needs a ze_sampler_desc_t behind it",
            ));
        }
        None => {}
    }
    if traits.user.is_none() && traits.pitches != [0; 2] {
        return Err(Error::invalid(
            "ze_custom_pitch_exp_desc_t: pitches are chosen together with ze_image_pitched_exp_desc_t",
        ));
    }
    Ok((traits, extensions))
}
