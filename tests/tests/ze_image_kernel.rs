// SPDX-License-Identifier: MIT OR Apache-2.0
//! Images and samplers as arguments of kernels, through the stock loader.

use std::ffi::c_void;
use std::ptr;

use tally_tests::images::{Image, Sampler, format, image_desc};
use tally_tests::lists::{List, NONE};
use tally_tests::ze::{Gpu, Usm, spirv};
use tally_tests::{call, check, refused};
use tally_ze::*;

use ze_image_format_layout_t as Layout;
use ze_image_format_swizzle_t as Swizzle;
use ze_image_format_type_t as Type;
use ze_image_type_t as Kind;
use ze_sampler_address_mode_t as Address;
use ze_sampler_filter_mode_t as Filter;

const RGBA8: Layout = Layout::ZE_IMAGE_FORMAT_LAYOUT_8_8_8_8;
const UNORM: Type = Type::ZE_IMAGE_FORMAT_TYPE_UNORM;
const UINT: Type = Type::ZE_IMAGE_FORMAT_TYPE_UINT;
const FLOAT: Type = Type::ZE_IMAGE_FORMAT_TYPE_FLOAT;
const R32: Layout = Layout::ZE_IMAGE_FORMAT_LAYOUT_32;
const D2: Kind = Kind::ZE_IMAGE_TYPE_2D;

/// A device with the module of `images.cl`.
struct Kernels {
    gpu: Gpu,
    module: ze_module_handle_t,
    list: List,
}

struct Kernel(ze_kernel_handle_t);

impl Drop for Kernel {
    fn drop(&mut self) {
        // A failure here, after a failed test, must not hide that test's failure.
        let _ = call!(zeKernelDestroy(self.0));
    }
}

impl Kernel {
    fn set<T>(&self, index: u32, value: &T) {
        let value: *const c_void = ptr::from_ref(value).cast();
        check!(zeKernelSetArgumentValue(self.0, index, size_of::<T>(), value));
    }
}

impl Kernels {
    fn new() -> Self {
        let gpu = Gpu::new();
        let module = gpu.module(&spirv("images"), "").unwrap_or_else(|log| panic!("{log}"));
        let list = gpu.immediate(0, true);
        Self { gpu, module, list }
    }

    fn kernel(&self, name: &str) -> Kernel {
        Kernel(self.gpu.kernel(self.module, name))
    }

    /// Runs a kernel over this many items, in groups of one row.
    fn run(&self, kernel: &Kernel, [x, y, z]: [u32; 3]) {
        check!(zeKernelSetGroupSize(kernel.0, x, 1, 1));
        let groups = ze_group_count_t { groupCountX: 1, groupCountY: y, groupCountZ: z };
        let waits = ptr::null_mut();
        check!(zeCommandListAppendLaunchKernel(
            self.list.0,
            kernel.0,
            &raw const groups,
            NONE,
            0,
            waits
        ));
        self.list.synchronize();
    }

    /// Sets the texels of an image.
    fn fill<T>(&self, image: &Image, texels: &[T]) {
        self.list.image_from(image, texels);
        self.list.synchronize();
    }

    /// The results of the kernel `sample` at some coordinates.
    fn sample(&self, image: &Image, sampler: &Sampler, at: &[[f32; 2]]) -> Vec<[f32; 4]> {
        let (places, out) = (self.gpu.host::<[f32; 2]>(at.len()), self.gpu.host(at.len()));
        places.fill_with(|i| at[i]);
        let kernel = self.kernel("sample");
        kernel.set(0, &image.0);
        kernel.set(1, &sampler.0);
        kernel.set(2, &places.ptr());
        kernel.set(3, &out.ptr());
        self.run(&kernel, [at.len() as u32, 1, 1]);
        out.to_vec()
    }
}

impl Drop for Kernels {
    fn drop(&mut self) {
        let _ = call!(zeModuleDestroy(self.module));
    }
}

/// The guide's sample: "zeKernelSetArgumentValue(hKernel, 0, sizeof(ze_image_handle_t), &src_image);".
#[test]
fn the_guides_kernel_scales_an_image() {
    let it = Kernels::new();
    let src = it.gpu.image(&image_desc(D2, format(RGBA8, UNORM), [4, 4, 1]));
    let dst = it.gpu.image(&image_desc(D2, format(RGBA8, UNORM), [8, 8, 1]));
    let texels: Vec<[u8; 4]> = (0..16).map(|i| [16 * (i % 4), 16 * (i / 4), 7, 255]).collect();
    it.fill(&src, &texels);
    let kernel = it.kernel("image_scaling");
    kernel.set(0, &src.0);
    kernel.set(1, &dst.0);
    kernel.set(2, &8_u32);
    kernel.set(3, &8_u32);
    it.run(&kernel, [8, 8, 1]);
    let mut back = vec![[0_u8; 4]; 64];
    it.list.image_to(&dst, &mut back);
    it.list.synchronize();
    // Place x / 8 of four texels is x / 2: half way between two texels, or in the middle of one
    // shifted by half a texel; texel i has 16 i.
    let at = |x: usize| (8.0 * x as f64 - 8.0).clamp(0.0, 48.0).round() as u8;
    for (i, found) in back.into_iter().enumerate() {
        assert_eq!(found, [at(i % 8), at(i / 8), 7, 255], "texel {} {}", i % 8, i / 8);
    }
}

/// Every kind of image can be read and written by kernels.
#[test]
fn kernels_copy_every_kind_of_image() {
    let it = Kernels::new();
    let uint = format(Layout::ZE_IMAGE_FORMAT_LAYOUT_16_16, UINT);
    for (name, kind, size, items) in [
        ("copy_1d", Kind::ZE_IMAGE_TYPE_1D, [9, 1, 1], [9, 1, 1]),
        ("copy_1d_array", Kind::ZE_IMAGE_TYPE_1DARRAY, [9, 1, 3], [9, 3, 1]),
        ("copy_2d", D2, [9, 5, 1], [9, 5, 1]),
        ("copy_2d_array", Kind::ZE_IMAGE_TYPE_2DARRAY, [9, 5, 3], [9, 5, 3]),
        ("copy_3d", Kind::ZE_IMAGE_TYPE_3D, [9, 5, 3], [9, 5, 3]),
        ("copy_buffer", Kind::ZE_IMAGE_TYPE_BUFFER, [36, 1, 1], [9, 1, 1]),
    ] {
        let desc = image_desc(kind, uint, size);
        let (from, to) = (it.gpu.image(&desc), it.gpu.image(&desc));
        let count = items.iter().product::<u32>();
        let (sent, mut back): (Vec<u32>, _) =
            ((0..count).map(|i| i * 65537 + 3).collect(), vec![0_u32; count as usize]);
        it.fill(&from, &sent);
        let kernel = it.kernel(name);
        kernel.set(0, &from.0);
        kernel.set(1, &to.0);
        it.run(&kernel, items);
        it.list.image_to(&to, &mut back);
        it.list.synchronize();
        assert_eq!(back, sent, "{name}");
    }
}

/// A kernel reads its own earlier writes to an image that it may read and write.
#[test]
fn images_are_read_and_written_by_one_kernel() {
    let it = Kernels::new();
    let image = it.gpu.image(&image_desc(D2, format(R32, UINT), [16, 4, 1]));
    let (texels, mut back): (Vec<u32>, _) = ((0..64).collect(), vec![0_u32; 64]);
    it.fill(&image, &texels);
    let kernel = it.kernel("increment");
    kernel.set(0, &image.0);
    it.run(&kernel, [16, 4, 1]);
    it.run(&kernel, [16, 4, 1]);
    it.list.image_to(&image, &mut back);
    it.list.synchronize();
    assert_eq!(back, (2..66).collect::<Vec<u32>>());
}

/// "The swizzles associate how the image components are mapped into XYZW/RGBA channels of the
/// kernel. It is allowed to replicate components into the channels."
#[test]
fn swizzles_choose_the_channels() {
    use Swizzle as S;
    let it = Kernels::new();
    let out: Usm<[f32; 4]> = it.gpu.host(1);
    let kernel = it.kernel("look");
    kernel.set(1, &out.ptr());
    let (r, g, b, a) = (
        S::ZE_IMAGE_FORMAT_SWIZZLE_R,
        S::ZE_IMAGE_FORMAT_SWIZZLE_G,
        S::ZE_IMAGE_FORMAT_SWIZZLE_B,
        S::ZE_IMAGE_FORMAT_SWIZZLE_A,
    );
    let (zero, one) = (S::ZE_IMAGE_FORMAT_SWIZZLE_0, S::ZE_IMAGE_FORMAT_SWIZZLE_1);
    let x = S::ZE_IMAGE_FORMAT_SWIZZLE_X;
    let rgba = Layout::ZE_IMAGE_FORMAT_LAYOUT_32_32_32_32;
    for (layout, [x, y, z, w], want) in [
        (rgba, [r, g, b, a], [1.0, 2.0, 3.0, 4.0]),
        (rgba, [b, g, r, a], [3.0, 2.0, 1.0, 4.0]),
        (rgba, [a, a, r, one], [4.0, 4.0, 1.0, 1.0]),
        (rgba, [zero, r, zero, zero], [0.0, 1.0, 0.0, 0.0]),
        (R32, [r, zero, zero, one], [1.0, 0.0, 0.0, 1.0]),
        (R32, [r, r, r, r], [1.0, 1.0, 1.0, 1.0]),
        (R32, [r, x, x, x], [1.0, 0.0, 0.0, 1.0]),
        // Components that the layout lacks: zero, and a full alpha.
        (R32, [r, g, b, a], [1.0, 0.0, 0.0, 1.0]),
    ] {
        let format = ze_image_format_t { layout, r#type: FLOAT, x, y, z, w };
        let image = it.gpu.image(&image_desc(D2, format, [1, 1, 1]));
        it.fill(&image, &[1.0_f32, 2.0, 3.0, 4.0]);
        kernel.set(0, &image.0);
        it.run(&kernel, [1, 1, 1]);
        assert_eq!(out.get(0), want, "{format:?}");
    }
}

/// The bits of each layout, as the device's manual names them.
#[test]
fn texels_mean_what_the_manual_says() {
    let it = Kernels::new();
    let out: Usm<[f32; 4]> = it.gpu.host(1);
    let ints: Usm<[i32; 4]> = it.gpu.host(1);
    let (look, look_int) = (it.kernel("look"), it.kernel("look_int"));
    look.set(1, &out.ptr());
    look_int.set(1, &ints.ptr());
    let snorm = Type::ZE_IMAGE_FORMAT_TYPE_SNORM;
    let third = Layout::ZE_IMAGE_FORMAT_LAYOUT_10_10_10_2;
    for (layout, ty, texel, want) in [
        (Layout::ZE_IMAGE_FORMAT_LAYOUT_5_6_5, UNORM, 0xf800_u32, [1.0, 0.0, 0.0, 1.0]),
        (Layout::ZE_IMAGE_FORMAT_LAYOUT_5_6_5, UNORM, 0x001f, [0.0, 0.0, 1.0, 1.0]),
        (Layout::ZE_IMAGE_FORMAT_LAYOUT_5_5_5_1, UNORM, 0x83e0, [0.0, 1.0, 0.0, 1.0]),
        (Layout::ZE_IMAGE_FORMAT_LAYOUT_4_4_4_4, UNORM, 0x0f00, [1.0, 0.0, 0.0, 0.0]),
        (third, UNORM, 0x4000_03ff, [1.0, 0.0, 0.0, 1.0 / 3.0]),
        (third, snorm, 0x0000_0201, [-1.0, 0.0, 0.0, 0.0]),
        (third, FLOAT, 0xc000_01e0, [1.0, 0.0, 0.0, 1.0]),
        (Layout::ZE_IMAGE_FORMAT_LAYOUT_11_11_10, FLOAT, 0x3c0, [1.0, 0.0, 0.0, 1.0]),
        (RGBA8, snorm, 0x7f_81_80_00, [0.0, -1.0, -1.0, 1.0]),
        (Layout::ZE_IMAGE_FORMAT_LAYOUT_16, FLOAT, 0xc000, [-2.0, 0.0, 0.0, 1.0]),
        (R32, UNORM, u32::MAX, [1.0, 0.0, 0.0, 1.0]),
    ] {
        let image = it.gpu.image(&image_desc(D2, format(layout, ty), [1, 1, 1]));
        it.fill(&image, &[texel]);
        look.set(0, &image.0);
        it.run(&look, [1, 1, 1]);
        assert_eq!(out.get(0), want, "{layout:?} {ty:?} {texel:#x}");
    }
    let sint = Type::ZE_IMAGE_FORMAT_TYPE_SINT;
    for (layout, ty, texel, want) in [
        (RGBA8, sint, 0x7f_80_ff_01_u32, [1, -1, -128, 127]),
        (RGBA8, UINT, 0x7f_80_ff_01, [1, 255, 128, 127]),
        (third, sint, 0xc000_03ff, [-1, 0, 0, -1]),
        (third, UINT, 0xc000_03ff, [1023, 0, 0, 3]),
        (Layout::ZE_IMAGE_FORMAT_LAYOUT_16_16, sint, 0xffff_8000, [-32768, -1, 0, 1]),
    ] {
        let image = it.gpu.image(&image_desc(D2, format(layout, ty), [1, 1, 1]));
        it.fill(&image, &[texel]);
        look_int.set(0, &image.0);
        it.run(&look_int, [1, 1, 1]);
        assert_eq!(ints.get(0), want, "{layout:?} {ty:?} {texel:#x}");
    }
}

/// "A NaN keeps as much of its fraction as fits": a kernel that copies packed floats changes no bit of
/// them, nor does one on the way through larger ones.
#[test]
fn packed_floats_survive_a_copy_by_a_kernel() {
    let it = Kernels::new();
    let kernel = it.kernel("copy_float");
    // All numbers of 10 bits, and half of those of 11, in every component.
    let texels: Vec<u32> = (0..1024_u32).map(|i| i << 22 | (2047 - i) << 11 | (2 * i)).collect();
    let tens: Vec<u32> = (0..1024_u32).map(|i| i << 30 | i << 20 | (1023 - i) << 10 | i).collect();
    let image = |layout| it.gpu.image(&image_desc(D2, format(layout, FLOAT), [1024, 1, 1]));
    for (layout, texels) in [
        (Layout::ZE_IMAGE_FORMAT_LAYOUT_11_11_10, &texels),
        (Layout::ZE_IMAGE_FORMAT_LAYOUT_10_10_10_2, &tens),
    ] {
        let larger = Layout::ZE_IMAGE_FORMAT_LAYOUT_32_32_32_32;
        let (from, between, to) = (image(layout), image(larger), image(layout));
        it.fill(&from, texels);
        for (from, to) in [(&from, &between), (&between, &to)] {
            kernel.set(0, &from.0);
            kernel.set(1, &to.0);
            it.run(&kernel, [1024, 1, 1]);
        }
        let mut back = vec![0_u32; 1024];
        it.list.image_to(&to, &mut back);
        it.list.synchronize();
        for (found, sent) in back.iter().zip(texels) {
            assert_eq!(found, sent, "{layout:?}: {found:#x}, not {sent:#x}");
        }
    }
}

/// ze_srgb_ext_desc_t: "Used for specifying that the image is in sRGB format." Kernels see the light
/// that the curve of sRGB gives a value; alpha has no curve; what they write goes back to the value.
#[test]
fn srgb_images_hold_values_and_show_light() {
    let it = Kernels::new();
    let srgb = ze_srgb_ext_desc_t { sRGB: 1, ..Default::default() };
    let desc = |layout, ty, next: *const c_void| ze_image_desc_t {
        pNext: next,
        ..image_desc(D2, format(layout, ty), [256, 1, 1])
    };
    let curved = desc(RGBA8, UNORM, (&raw const srgb).cast());
    let wide = desc(Layout::ZE_IMAGE_FORMAT_LAYOUT_32_32_32_32, FLOAT, ptr::null());
    let (from, light, to) = (it.gpu.image(&curved), it.gpu.image(&wide), it.gpu.image(&curved));
    let texels: Vec<[u8; 4]> = (0..=255).map(|i| [i, 255 - i, i / 2, i]).collect();
    it.fill(&from, &texels);
    let kernel = it.kernel("copy_float");
    for (from, to) in [(&from, &light), (&light, &to)] {
        kernel.set(0, &from.0);
        kernel.set(1, &to.0);
        it.run(&kernel, [256, 1, 1]);
    }
    let (mut seen, mut back) = (vec![[0.0_f32; 4]; 256], vec![[0_u8; 4]; 256]);
    it.list.image_to(&light, &mut seen);
    it.list.image_to(&to, &mut back);
    it.list.synchronize();
    assert_eq!(back, texels, "each value is the nearest to its own light");
    let curve = |value: u8| match f64::from(value) / 255.0 {
        low if low <= 0.04045 => low / 12.92,
        high => ((high + 0.055) / 1.055).powf(2.4),
    };
    for (seen, [r, g, b, a]) in seen.iter().zip(texels) {
        let want = [curve(r), curve(g), curve(b), f64::from(a) / 255.0];
        let near = |(seen, want): (&f32, f64)| (f64::from(*seen) - want).abs() < 1e-7;
        assert!(seen.iter().zip(want).all(near), "{seen:?}, not {want:?}");
    }
    let refuse = |layout, ty| {
        let (desc, mut none) =
            (desc(layout, ty, (&raw const srgb).cast()), ze_image_handle_t::NULL);
        let mut support = ze_image_format_support_ext_properties_t::default();
        let next = (&raw mut support).cast();
        let mut facts = ze_image_properties_t { pNext: next, ..Default::default() };
        refused!(
            ZE_RESULT_ERROR_UNSUPPORTED_IMAGE_FORMAT,
            zeImageCreate(it.gpu.context, it.gpu.device, &raw const desc, &raw mut none)
        );
        check!(zeImageGetProperties(it.gpu.device, &raw const desc, &raw mut facts));
        assert_eq!(support.supported, 0);
    };
    refuse(RGBA8, UINT);
    refuse(Layout::ZE_IMAGE_FORMAT_LAYOUT_16_16_16_16, UNORM);
    refuse(Layout::ZE_IMAGE_FORMAT_LAYOUT_16_16_16_16, FLOAT);
}

/// "Address Mode: Determines how out-of-bounds accesses are handled." "Filter Mode: Specifies which
/// filtering mode to use." "Normalized: Specifies whether coordinates for addressing image are
/// normalized [0,1] or not."
#[test]
fn samplers_do_what_their_fields_say() {
    let it = Kernels::new();
    let image = it.gpu.image(&image_desc(D2, format(R32, FLOAT), [4, 1, 1]));
    it.fill(&image, &[10.0_f32, 20.0, 30.0, 40.0]);
    let (near, linear) =
        (Filter::ZE_SAMPLER_FILTER_MODE_NEAREST, Filter::ZE_SAMPLER_FILTER_MODE_LINEAR);
    let (edge, border) =
        (Address::ZE_SAMPLER_ADDRESS_MODE_CLAMP, Address::ZE_SAMPLER_ADDRESS_MODE_CLAMP_TO_BORDER);
    let (repeat, mirror) =
        (Address::ZE_SAMPLER_ADDRESS_MODE_REPEAT, Address::ZE_SAMPLER_ADDRESS_MODE_MIRROR);
    let none = Address::ZE_SAMPLER_ADDRESS_MODE_NONE;
    for (address, filter, normalized, places, want) in [
        (none, near, false, [0.5, 1.5, 2.9, 3.0], [10.0, 20.0, 30.0, 40.0]),
        (edge, near, false, [-3.0, 0.0, 4.0, 99.0], [10.0, 10.0, 40.0, 40.0]),
        (edge, near, true, [-0.1, 0.25, 0.5, 1.5], [10.0, 20.0, 30.0, 40.0]),
        (border, near, false, [-0.5, 0.5, 3.5, 4.5], [0.0, 10.0, 40.0, 0.0]),
        (repeat, near, true, [1.0, 1.25, -0.25, 2.5], [10.0, 20.0, 40.0, 30.0]),
        (mirror, near, true, [-0.125, 1.125, 1.375, 2.125], [10.0, 40.0, 30.0, 10.0]),
        (edge, linear, false, [0.0, 1.0, 1.5, 4.0], [10.0, 15.0, 20.0, 40.0]),
        (edge, linear, true, [0.25, 0.5, 0.625, 1.0], [15.0, 25.0, 30.0, 40.0]),
        (border, linear, false, [0.0, 4.0, -0.5, 2.0], [5.0, 20.0, 0.0, 25.0]),
        (repeat, linear, true, [0.0, 1.0, 0.5, 1.25], [25.0, 25.0, 25.0, 15.0]),
        (mirror, linear, true, [0.0, 1.0, 1.5, -0.25], [10.0, 40.0, 25.0, 15.0]),
    ] {
        let sampler = it.gpu.sampler(address, filter, normalized);
        let at = places.map(|x: f32| [x, 0.5]);
        let found: Vec<f32> = it.sample(&image, &sampler, &at).iter().map(|it| it[0]).collect();
        assert_eq!(found, want, "{address:?} {filter:?} {normalized} at {places:?}");
    }
}

/// Outside of the image everything is 0, also the alpha of a format with one; a missing alpha is 1.
#[test]
fn the_border_is_a_texel_of_zeros() {
    let it = Kernels::new();
    let border = Address::ZE_SAMPLER_ADDRESS_MODE_CLAMP_TO_BORDER;
    let sampler = it.gpu.sampler(border, Filter::ZE_SAMPLER_FILTER_MODE_NEAREST, false);
    for (layout, want) in
        [(RGBA8, [0.0; 4]), (Layout::ZE_IMAGE_FORMAT_LAYOUT_8, [0.0, 0.0, 0.0, 1.0])]
    {
        let image = it.gpu.image(&image_desc(D2, format(layout, UNORM), [1, 1, 1]));
        it.fill(&image, &[u32::MAX]);
        assert_eq!(it.sample(&image, &sampler, &[[5.5, 0.5]]), [want], "{layout:?}");
    }
}

/// A kernel can query extents and channels.
#[test]
fn kernels_ask_images_for_their_sizes() {
    let it = Kernels::new();
    let rgba8 = format(RGBA8, UNORM);
    let array = it.gpu.image(&image_desc(Kind::ZE_IMAGE_TYPE_2DARRAY, rgba8, [7, 5, 3]));
    let volume = it.gpu.image(&image_desc(Kind::ZE_IMAGE_TYPE_3D, rgba8, [4, 6, 2]));
    let line = it.gpu.image(&image_desc(Kind::ZE_IMAGE_TYPE_BUFFER, rgba8, [44, 1, 1]));
    let out: Usm<i32> = it.gpu.host(8);
    let kernel = it.kernel("ask");
    kernel.set(0, &array.0);
    kernel.set(1, &volume.0);
    kernel.set(2, &line.0);
    kernel.set(3, &out.ptr());
    it.run(&kernel, [1, 1, 1]);
    // The last is OpenCL's CLK_RGBA.
    assert_eq!(out.to_vec(), [7, 5, 3, 4, 6, 2, 11, 0x10b5]);
}

/// "The sampler can be passed as a kernel argument", and what was passed outlives its handle.
#[test]
fn samplers_are_made_checked_and_destroyed() {
    let gpu = Gpu::new();
    let (context, device) = (gpu.context, gpu.device);
    let mut sampler = ze_sampler_handle_t::NULL;
    let out = &raw mut sampler;
    let refuse = |change: &dyn Fn(&mut ze_sampler_desc_t), code: ze_result_t| {
        let mut desc = ze_sampler_desc_t::default();
        change(&mut desc);
        let mut sampler = ze_sampler_handle_t::NULL;
        let result = call!(zeSamplerCreate(context, device, &raw const desc, &raw mut sampler));
        assert_eq!(result, code, "{}", tally_tests::ze::description());
    };
    let unknown = ze_result_t::ZE_RESULT_ERROR_INVALID_ENUMERATION;
    refuse(&|it| it.addressMode = ze_sampler_address_mode_t(5), unknown);
    refuse(&|it| it.filterMode = ze_sampler_filter_mode_t(2), unknown);
    let invalid = ze_result_t::ZE_RESULT_ERROR_INVALID_ARGUMENT;
    refuse(&|it| it.stype = ze_structure_type_t::ZE_STRUCTURE_TYPE_IMAGE_DESC, invalid);
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_POINTER,
        zeSamplerCreate(context, device, ptr::null(), out)
    );
    let desc = ze_sampler_desc_t::default();
    check!(zeSamplerCreate(context, device, &raw const desc, out));
    check!(zeSamplerDestroy(sampler));
    refused!(ZE_RESULT_ERROR_INVALID_NULL_HANDLE, zeSamplerDestroy(sampler));
}

/// Arguments that are no image, or an image of another kind.
#[test]
fn arguments_that_do_not_fit_are_refused() {
    let it = Kernels::new();
    let rgba8 = format(RGBA8, UNORM);
    let flat = it.gpu.image(&image_desc(D2, rgba8, [4, 4, 1]));
    let volume = it.gpu.image(&image_desc(Kind::ZE_IMAGE_TYPE_3D, rgba8, [4, 4, 4]));
    let only_read = it.gpu.image(&ze_image_desc_t {
        flags: ze_image_flags_t::empty(),
        ..image_desc(D2, rgba8, [4, 4, 1])
    });
    let sampler = it.gpu.sampler(
        Address::ZE_SAMPLER_ADDRESS_MODE_NONE,
        Filter::ZE_SAMPLER_FILTER_MODE_NEAREST,
        false,
    );
    let scaling = it.kernel("image_scaling");
    let value = |handle: &ze_image_handle_t| ptr::from_ref(handle).cast::<c_void>();
    let (k, size) = (scaling.0, size_of::<ze_image_handle_t>());
    scaling.set(0, &only_read.0);
    let text = refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeKernelSetArgumentValue(k, 0, size, value(&volume.0))
    );
    assert!(text.contains("D2"), "{text}");
    // As with Intel's driver, the flags of an image do not matter here.
    check!(zeKernelSetArgumentValue(k, 1, size, value(&only_read.0)));
    scaling.set(1, &flat.0);
    for wrong in [ze_image_handle_t::NULL, ze_image_handle_t(sampler.0.0), ze_image_handle_t(k.0)] {
        refused!(
            ZE_RESULT_ERROR_INVALID_NULL_HANDLE,
            zeKernelSetArgumentValue(k, 0, size, value(&wrong))
        );
    }
    refused!(
        ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE,
        zeKernelSetArgumentValue(k, 0, 4, value(&flat.0))
    );
    let sample = it.kernel("sample");
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_HANDLE,
        zeKernelSetArgumentValue(sample.0, 1, size, value(&flat.0))
    );
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_POINTER,
        zeKernelSetArgumentValue(sample.0, 1, size, ptr::null())
    );
}
