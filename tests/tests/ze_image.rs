// SPDX-License-Identifier: MIT OR Apache-2.0
//! Images as objects, through the stock loader: formats, limits, views, properties. The sentences in
//! quotes are the Core Programming Guide's (chapters "Images" and "Sampler") or the API's.

use std::ptr;

use tally_tests::images::{Image, format, image_desc};
use tally_tests::ze::{self, Gpu};
use tally_tests::{call, check, refused};
use tally_ze::*;

use ze_image_format_layout_t as Layout;
use ze_image_format_swizzle_t as Swizzle;
use ze_image_format_type_t as Type;
use ze_image_type_t as Kind;

const UNORM: Type = Type::ZE_IMAGE_FORMAT_TYPE_UNORM;
const RGBA8: Layout = Layout::ZE_IMAGE_FORMAT_LAYOUT_8_8_8_8;
const D2: Kind = Kind::ZE_IMAGE_TYPE_2D;

/// The result of zeImageCreate; a created image is destroyed.
fn create(gpu: &Gpu, desc: &ze_image_desc_t) -> ze_result_t {
    let mut image = ze_image_handle_t::NULL;
    let result = call!(zeImageCreate(gpu.context, gpu.device, desc, &raw mut image));
    if result == ze_result_t::ZE_RESULT_SUCCESS {
        drop(Image(image));
    }
    result
}

fn properties() -> ze_device_image_properties_t {
    let mut image = ze_device_image_properties_t::default();
    check!(zeDeviceGetImageProperties(ze::device(), &raw mut image));
    image
}

/// "The following table describes which types are required for each layout."
#[test]
fn the_table_of_formats_holds() {
    const UINT: Type = Type::ZE_IMAGE_FORMAT_TYPE_UINT;
    const SINT: Type = Type::ZE_IMAGE_FORMAT_TYPE_SINT;
    const SNORM: Type = Type::ZE_IMAGE_FORMAT_TYPE_SNORM;
    const FLOAT: Type = Type::ZE_IMAGE_FORMAT_TYPE_FLOAT;
    let types = [UINT, SINT, UNORM, SNORM, FLOAT];
    let all = [true; 5];
    let no_float = [true, true, true, true, false];
    let unorm = [false, false, true, false, false];
    let float = [false, false, false, false, true];
    let table = [
        (Layout::ZE_IMAGE_FORMAT_LAYOUT_8, no_float),
        (Layout::ZE_IMAGE_FORMAT_LAYOUT_8_8, no_float),
        (Layout::ZE_IMAGE_FORMAT_LAYOUT_8_8_8_8, no_float),
        (Layout::ZE_IMAGE_FORMAT_LAYOUT_16, all),
        (Layout::ZE_IMAGE_FORMAT_LAYOUT_16_16, all),
        (Layout::ZE_IMAGE_FORMAT_LAYOUT_16_16_16_16, all),
        (Layout::ZE_IMAGE_FORMAT_LAYOUT_32, all),
        (Layout::ZE_IMAGE_FORMAT_LAYOUT_32_32, all),
        (Layout::ZE_IMAGE_FORMAT_LAYOUT_32_32_32_32, all),
        (Layout::ZE_IMAGE_FORMAT_LAYOUT_10_10_10_2, all),
        (Layout::ZE_IMAGE_FORMAT_LAYOUT_11_11_10, float),
        (Layout::ZE_IMAGE_FORMAT_LAYOUT_5_6_5, unorm),
        (Layout::ZE_IMAGE_FORMAT_LAYOUT_5_5_5_1, unorm),
        (Layout::ZE_IMAGE_FORMAT_LAYOUT_4_4_4_4, unorm),
    ];
    let gpu = Gpu::new();
    for (layout, required) in table {
        for (ty, required) in types.into_iter().zip(required) {
            let desc = image_desc(D2, format(layout, ty), [4, 4, 1]);
            let want = match required {
                true => ze_result_t::ZE_RESULT_SUCCESS,
                false => ze_result_t::ZE_RESULT_ERROR_UNSUPPORTED_IMAGE_FORMAT,
            };
            assert_eq!(create(&gpu, &desc), want, "{layout:?} {ty:?}");
            let mut support = ze_image_format_support_ext_properties_t::default();
            let mut out =
                ze_image_properties_t { pNext: (&raw mut support).cast(), ..Default::default() };
            check!(zeImageGetProperties(gpu.device, &raw const desc, &raw mut out));
            assert_eq!(support.supported != 0, required, "{layout:?} {ty:?}");
        }
    }
}

/// Layouts of video are not in the guide's table, and are refused with that reason.
#[test]
fn media_layouts_are_unsupported_formats() {
    let gpu = Gpu::new();
    for layout in [
        Layout::ZE_IMAGE_FORMAT_LAYOUT_NV12,
        Layout::ZE_IMAGE_FORMAT_LAYOUT_YUYV,
        Layout::ZE_IMAGE_FORMAT_LAYOUT_P010,
        Layout::ZE_IMAGE_FORMAT_LAYOUT_BRGP,
    ] {
        let mut image = ze_image_handle_t::NULL;
        let desc = image_desc(D2, format(layout, UNORM), [4, 4, 1]);
        let out = &raw mut image;
        let text = refused!(
            ZE_RESULT_ERROR_UNSUPPORTED_IMAGE_FORMAT,
            zeImageCreate(gpu.context, gpu.device, &raw const desc, out)
        );
        assert!(text.contains("LAYOUT"), "{text}");
    }
}

/// Integer texels cannot be interpolated, so integers are not filtered.
#[test]
fn only_numbers_that_can_be_weighted_are_filtered_linearly() {
    use ze_image_sampler_filter_flags_t as filter;
    for (ty, want) in [
        (Type::ZE_IMAGE_FORMAT_TYPE_UINT, filter::ZE_IMAGE_SAMPLER_FILTER_FLAG_POINT),
        (Type::ZE_IMAGE_FORMAT_TYPE_SINT, filter::ZE_IMAGE_SAMPLER_FILTER_FLAG_POINT),
        (UNORM, filter::all()),
        (Type::ZE_IMAGE_FORMAT_TYPE_SNORM, filter::all()),
    ] {
        let desc = image_desc(D2, format(RGBA8, ty), [4, 4, 1]);
        let mut out = ze_image_properties_t::default();
        check!(zeImageGetProperties(ze::device(), &raw const desc, &raw mut out));
        assert_eq!(out.samplerFilterFlags, want, "{ty:?}");
    }
}

/// Each type of image can be created up to the limits that the device reports, and not beyond.
#[test]
fn limits_of_sizes_are_those_of_the_properties() {
    let gpu = Gpu::new();
    let limits = properties();
    let rgba8 = format(RGBA8, UNORM);
    let (d1, d2, d3) = (limits.maxImageDims1D, limits.maxImageDims2D, limits.maxImageDims3D);
    let layers = limits.maxImageArraySlices;
    let good = [
        (Kind::ZE_IMAGE_TYPE_1D, [d1, 1, 1]),
        (Kind::ZE_IMAGE_TYPE_1DARRAY, [8, 1, layers]),
        (D2, [d2, 1, 1]),
        (D2, [1, d2, 1]),
        (Kind::ZE_IMAGE_TYPE_2DARRAY, [8, 8, layers]),
        (Kind::ZE_IMAGE_TYPE_3D, [d3, 1, 1]),
        (Kind::ZE_IMAGE_TYPE_3D, [1, d3, 1]),
        (Kind::ZE_IMAGE_TYPE_3D, [1, 1, d3]),
        (Kind::ZE_IMAGE_TYPE_BUFFER, [4096, 1, 1]),
    ];
    for (kind, size) in good {
        let desc = image_desc(kind, rgba8, size);
        assert_eq!(create(&gpu, &desc), ze_result_t::ZE_RESULT_SUCCESS, "{kind:?} {size:?}");
    }
    let bad = [
        (Kind::ZE_IMAGE_TYPE_1D, [d1 + 1, 1, 1]),
        (Kind::ZE_IMAGE_TYPE_1D, [0, 1, 1]),
        (Kind::ZE_IMAGE_TYPE_1DARRAY, [8, 1, layers + 1]),
        (Kind::ZE_IMAGE_TYPE_1DARRAY, [8, 1, 0]),
        (D2, [d2 + 1, 1, 1]),
        (D2, [1, d2 + 1, 1]),
        (D2, [4, 0, 1]),
        (Kind::ZE_IMAGE_TYPE_2DARRAY, [8, 8, 0]),
        (Kind::ZE_IMAGE_TYPE_3D, [d3 + 1, 1, 1]),
        (Kind::ZE_IMAGE_TYPE_3D, [1, 1, 0]),
        (Kind::ZE_IMAGE_TYPE_BUFFER, [3, 1, 1]),
    ];
    for (kind, size) in bad {
        let desc = image_desc(kind, rgba8, size);
        let want = ze_result_t::ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
        assert_eq!(create(&gpu, &desc), want, "{kind:?} {size:?}");
    }
    let mut buffer = image_desc(Kind::ZE_IMAGE_TYPE_BUFFER, rgba8, [4, 1, 1]);
    buffer.width = limits.maxImageBufferSize + 4;
    assert_eq!(create(&gpu, &buffer), ze_result_t::ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
    // Within the limits of each dimension, but larger than the memory.
    let rgba32 = format(Layout::ZE_IMAGE_FORMAT_LAYOUT_32_32_32_32, UNORM);
    let desc = image_desc(Kind::ZE_IMAGE_TYPE_2DARRAY, rgba32, [d2, d2, layers]);
    assert_eq!(create(&gpu, &desc), ze_result_t::ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
}

/// Each wrong argument has a description, and no image is created.
#[test]
fn wrong_arguments_are_refused() {
    let gpu = Gpu::new();
    let (context, device) = (gpu.context, gpu.device);
    let good = image_desc(D2, format(RGBA8, UNORM), [4, 4, 1]);
    let mut image = ze_image_handle_t::NULL;
    let out = &raw mut image;
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_POINTER,
        zeImageCreate(context, device, ptr::null(), out)
    );
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_POINTER,
        zeImageCreate(context, device, &raw const good, ptr::null_mut())
    );
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_HANDLE,
        zeImageCreate(context, ze_device_handle_t::NULL, &raw const good, out)
    );
    let refuse = |code: ze_result_t, change: &dyn Fn(&mut ze_image_desc_t)| {
        let mut desc = good;
        change(&mut desc);
        let mut image = ze_image_handle_t::NULL;
        let result = call!(zeImageCreate(context, device, &raw const desc, &raw mut image));
        let text = ze::description();
        assert_eq!(result, code, "{text}");
        assert!(text.starts_with("zeImageCreate"), "{text}");
        assert!(image.is_null());
    };
    let unknown = ze_result_t::ZE_RESULT_ERROR_INVALID_ENUMERATION;
    let invalid = ze_result_t::ZE_RESULT_ERROR_INVALID_ARGUMENT;
    refuse(unknown, &|it| it.flags = ze_image_flags_t::from_bits_retain(4));
    refuse(unknown, &|it| it.r#type = ze_image_type_t(6));
    refuse(unknown, &|it| it.format.layout = ze_image_format_layout_t(99));
    refuse(unknown, &|it| it.format.r#type = ze_image_format_type_t(5));
    refuse(unknown, &|it| it.format.z = ze_image_format_swizzle_t(8));
    refuse(invalid, &|it| it.miplevels = 2);
    refuse(invalid, &|it| it.stype = ze_structure_type_t::ZE_STRUCTURE_TYPE_SAMPLER_DESC);
    refused!(ZE_RESULT_ERROR_INVALID_NULL_HANDLE, zeImageDestroy(ze_image_handle_t::NULL));
    refused!(ZE_RESULT_ERROR_INVALID_NULL_HANDLE, zeImageDestroy(ze_image_handle_t(context.0)));
    check!(zeImageCreate(context, device, &raw const good, out));
    check!(zeImageDestroy(image));
    refused!(ZE_RESULT_ERROR_INVALID_NULL_HANDLE, zeImageDestroy(image));
}

/// "Specify single component FLOAT32 format": the guide's sample.
#[test]
fn the_guides_image_is_made() {
    let gpu = Gpu::new();
    let format = ze_image_format_t {
        layout: Layout::ZE_IMAGE_FORMAT_LAYOUT_32,
        r#type: Type::ZE_IMAGE_FORMAT_TYPE_FLOAT,
        x: Swizzle::ZE_IMAGE_FORMAT_SWIZZLE_R,
        y: Swizzle::ZE_IMAGE_FORMAT_SWIZZLE_0,
        z: Swizzle::ZE_IMAGE_FORMAT_SWIZZLE_0,
        w: Swizzle::ZE_IMAGE_FORMAT_SWIZZLE_1,
    };
    let desc =
        ze_image_desc_t { r#type: D2, format, width: 128, height: 128, ..Default::default() };
    let image = gpu.image(&desc);
    let pixels: Vec<f32> = (0..128 * 128).map(|i| i as f32).collect();
    let mut back = vec![0.0_f32; pixels.len()];
    let list = gpu.immediate(0, true);
    list.image_from(&image, &pixels);
    list.image_to(&image, &mut back);
    list.synchronize();
    assert_eq!(back, pixels);
}

/// Size and pitches are reported, and the identity is the memory's: views have the same one.
#[test]
fn memory_properties_describe_the_rows() {
    let gpu = Gpu::new();
    let image = gpu.image(&image_desc(Kind::ZE_IMAGE_TYPE_3D, format(RGBA8, UNORM), [5, 3, 2]));
    let mut memory = ze_image_memory_properties_exp_t::default();
    check!(zeImageGetMemoryPropertiesExp(image.0, &raw mut memory));
    assert!(memory.rowPitch >= 5 * 4 && memory.slicePitch >= 3 * memory.rowPitch);
    assert!(memory.size >= memory.slicePitch + 2 * memory.rowPitch + 5 * 4);
    let desc = image_desc(
        Kind::ZE_IMAGE_TYPE_3D,
        format(Layout::ZE_IMAGE_FORMAT_LAYOUT_32, Type::ZE_IMAGE_FORMAT_TYPE_UINT),
        [5, 3, 2],
    );
    let mut view = ze_image_handle_t::NULL;
    let (context, device) = (gpu.context, gpu.device);
    check!(zeImageViewCreateExt(context, device, &raw const desc, image.0, &raw mut view));
    let view = Image(view);
    let id = |image: &Image| {
        let mut out = ze_image_allocation_ext_properties_t::default();
        check!(zeImageGetAllocPropertiesExt(context, image.0, &raw mut out));
        out.id
    };
    assert_eq!(id(&image), id(&view));
    let other = gpu.image(&image_desc(D2, format(RGBA8, UNORM), [1, 1, 1]));
    assert!(id(&other) != id(&image) && id(&image) != 0);
}

/// A view shows its image's texels, even after the image's handle is destroyed.
#[test]
fn a_view_shares_the_texels_of_its_image() {
    let gpu = Gpu::new();
    let (context, device) = (gpu.context, gpu.device);
    let image = gpu.image(&image_desc(D2, format(RGBA8, UNORM), [4, 2, 1]));
    let uint = format(Layout::ZE_IMAGE_FORMAT_LAYOUT_32, Type::ZE_IMAGE_FORMAT_TYPE_UINT);
    let mut view = ze_image_handle_t::NULL;
    let desc = image_desc(D2, uint, [4, 2, 1]);
    check!(zeImageViewCreateExp(context, device, &raw const desc, image.0, &raw mut view));
    let view = Image(view);
    let texels: Vec<u32> = (100..108).collect();
    let mut back = vec![0_u32; 8];
    let list = gpu.immediate(0, true);
    list.image_from(&image, &texels);
    list.synchronize();
    drop(image);
    list.image_to(&view, &mut back);
    list.synchronize();
    assert_eq!(back, texels);
    for desc in [
        image_desc(D2, uint, [4, 3, 1]),
        image_desc(D2, format(Layout::ZE_IMAGE_FORMAT_LAYOUT_16, UNORM), [4, 2, 1]),
    ] {
        let mut other = ze_image_handle_t::NULL;
        refused!(
            ZE_RESULT_ERROR_INVALID_ARGUMENT,
            zeImageViewCreateExt(context, device, &raw const desc, view.0, &raw mut other)
        );
    }
}

/// "pointer to pitched device allocation": the rows of an image lie in it with the pitch that
/// zeMemGetPitchFor2dImage returns, or with the program's own.
#[test]
fn an_image_can_lie_in_an_allocation() {
    let gpu = Gpu::new();
    let (context, device) = (gpu.context, gpu.device);
    let mut pitch = 0;
    check!(zeMemGetPitchFor2dImage(context, device, 5, 3, 4, &raw mut pitch));
    assert!(pitch >= 20);
    let memory = gpu.device_memory::<u8>(3 * 256);
    for (pitch, custom) in [(pitch, false), (100, true)] {
        memory.fill_with(|_| 0xee);
        let rows = ze_custom_pitch_exp_desc_t {
            rowPitch: pitch,
            slicePitch: 3 * pitch,
            ..Default::default()
        };
        let next = if custom { (&raw const rows).cast() } else { ptr::null() };
        let place = ze_image_pitched_exp_desc_t {
            pNext: next,
            ptr: memory.ptr().cast(),
            ..Default::default()
        };
        let mut desc = image_desc(D2, format(RGBA8, UNORM), [5, 3, 1]);
        desc.pNext = (&raw const place).cast();
        let image = gpu.image(&desc);
        let list = gpu.immediate(0, true);
        let texels: Vec<u8> = (0..60).collect();
        list.image_from(&image, &texels);
        list.synchronize();
        for (y, row) in texels.chunks(20).enumerate() {
            let bytes = memory.to_vec()[y * pitch..][..21].to_vec();
            assert_eq!(bytes[..20], *row, "row {y} with pitch {pitch}");
            assert_eq!(bytes[20], 0xee, "what is behind the row stays");
        }
    }
    let refuse = |code: ze_result_t, place: &ze_image_pitched_exp_desc_t| {
        let mut desc = image_desc(D2, format(RGBA8, UNORM), [64, 12, 1]);
        desc.pNext = std::ptr::from_ref(place).cast();
        assert_eq!(create(&gpu, &desc), code, "{}", ze::description());
    };
    let place = ze_image_pitched_exp_desc_t { ptr: memory.ptr().cast(), ..Default::default() };
    refuse(ze_result_t::ZE_RESULT_ERROR_INVALID_SIZE, &place);
    let stray = ze_image_pitched_exp_desc_t { ptr: (&raw const gpu).cast_mut().cast(), ..place };
    refuse(ze_result_t::ZE_RESULT_ERROR_INVALID_ARGUMENT, &stray);
    let null = ze_image_pitched_exp_desc_t { ptr: ptr::null_mut(), ..place };
    refuse(ze_result_t::ZE_RESULT_ERROR_INVALID_NULL_POINTER, &null);
    let narrow = ze_custom_pitch_exp_desc_t { rowPitch: 60, ..Default::default() };
    let place = ze_image_pitched_exp_desc_t { pNext: (&raw const narrow).cast(), ..place };
    refuse(ze_result_t::ZE_RESULT_ERROR_INVALID_ARGUMENT, &place);
}

/// "The image handle created with this flag is valid on both host and device", others have no
/// number there.
#[test]
fn only_bindless_images_have_a_number() {
    let gpu = Gpu::new();
    let flags = ze_image_bindless_exp_flags_t::ZE_IMAGE_BINDLESS_EXP_FLAG_BINDLESS;
    let bindless = ze_image_bindless_exp_desc_t { flags, ..Default::default() };
    let plain = image_desc(D2, format(RGBA8, UNORM), [4, 4, 1]);
    let mut number = 0;
    let image = gpu.image(&plain);
    refused!(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeImageGetDeviceOffsetExp(image.0, &raw mut number));
    let desc = ze_image_desc_t { pNext: (&raw const bindless).cast(), ..plain };
    let image = gpu.image(&desc);
    check!(zeImageGetDeviceOffsetExp(image.0, &raw mut number));
    assert_ne!(number, 0);
    let sampled = ze_image_bindless_exp_desc_t {
        flags: flags | ze_image_bindless_exp_flags_t::ZE_IMAGE_BINDLESS_EXP_FLAG_SAMPLED_IMAGE,
        ..Default::default()
    };
    let desc = ze_image_desc_t { pNext: (&raw const sampled).cast(), ..plain };
    assert_eq!(create(&gpu, &desc), ze_result_t::ZE_RESULT_ERROR_INVALID_ARGUMENT);
}

/// Residency is a hint for images, too; handles are checked nevertheless.
#[test]
fn images_can_be_made_resident() {
    let gpu = Gpu::new();
    let image = gpu.image(&image_desc(D2, format(RGBA8, UNORM), [4, 4, 1]));
    check!(zeContextMakeImageResident(gpu.context, gpu.device, image.0));
    check!(zeContextEvictImage(gpu.context, gpu.device, image.0));
    let null = ze_image_handle_t::NULL;
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_HANDLE,
        zeContextMakeImageResident(gpu.context, gpu.device, null)
    );
}
