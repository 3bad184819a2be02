// SPDX-License-Identifier: MIT OR Apache-2.0
//! Images as files, through the stock loader. Quotes are from the core programming guide, "External
//! Memory Import and Export", and the interface's reference.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use tally_tests::lists::{List, NONE};
use tally_tests::ze::{self, Gpu, Usm};
use tally_tests::{call, check, refused};
use tally_ze::*;

const FILE: ze_external_memory_type_flags_t =
    ze_external_memory_type_flags_t::ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD;
const DMA_BUF: ze_external_memory_type_flags_t =
    ze_external_memory_type_flags_t::ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF;
const WIDTH: u64 = 37;
const HEIGHT: u32 = 11;

/// An image, destroyed on drop.
struct Image(ze_image_handle_t);

impl Drop for Image {
    fn drop(&mut self) {
        let _ = call!(zeImageDestroy(self.0));
    }
}

fn desc(next: *const c_void) -> ze_image_desc_t {
    use ze_image_format_swizzle_t as swizzle;
    ze_image_desc_t {
        pNext: next,
        r#type: ze_image_type_t::ZE_IMAGE_TYPE_2D,
        format: ze_image_format_t {
            layout: ze_image_format_layout_t::ZE_IMAGE_FORMAT_LAYOUT_32,
            r#type: ze_image_format_type_t::ZE_IMAGE_FORMAT_TYPE_UINT,
            x: swizzle::ZE_IMAGE_FORMAT_SWIZZLE_R,
            y: swizzle::ZE_IMAGE_FORMAT_SWIZZLE_0,
            z: swizzle::ZE_IMAGE_FORMAT_SWIZZLE_0,
            w: swizzle::ZE_IMAGE_FORMAT_SWIZZLE_1,
        },
        width: WIDTH,
        height: HEIGHT,
        depth: 1,
        ..Default::default()
    }
}

fn image(gpu: &Gpu, next: *const c_void) -> Image {
    let desc = desc(next);
    let mut image = ze_image_handle_t::NULL;
    check!(zeImageCreate(gpu.context, gpu.device, &raw const desc, &raw mut image));
    Image(image)
}

/// The supported kinds of files.
fn kinds() -> impl Iterator<Item = ze_external_memory_type_flags_t> {
    [FILE, DMA_BUF].into_iter().take(if ze::on_kernel_lane() { 2 } else { 1 })
}

fn exported(gpu: &Gpu, flags: ze_external_memory_type_flags_t) -> Image {
    let request = ze_external_memory_export_desc_t { flags, ..Default::default() };
    image(gpu, (&raw const request).cast())
}

fn imported(gpu: &Gpu, flags: ze_external_memory_type_flags_t, fd: c_int) -> Image {
    let request = ze_external_memory_import_fd_t { flags, fd, ..Default::default() };
    image(gpu, (&raw const request).cast())
}

fn file_of(gpu: &Gpu, flags: ze_external_memory_type_flags_t, image: &Image) -> OwnedFd {
    let mut out = ze_external_memory_export_fd_t { flags, fd: -1, ..Default::default() };
    let mut properties =
        ze_image_allocation_ext_properties_t { pNext: (&raw mut out).cast(), ..Default::default() };
    check!(zeImageGetAllocPropertiesExt(gpu.context, image.0, &raw mut properties));
    assert!(out.fd >= 0);
    // SAFETY: the driver has opened it for the application.
    unsafe { OwnedFd::from_raw_fd(out.fd) }
}

fn write(list: &List, image: &Image, from: &Usm<u32>) {
    check!(zeCommandListAppendImageCopyFromMemory(
        list.0,
        image.0,
        from.ptr().cast(),
        ptr::null(),
        NONE,
        0,
        ptr::null_mut()
    ));
}

fn read(list: &List, image: &Image, to: &Usm<u32>) {
    check!(zeCommandListAppendImageCopyToMemory(
        list.0,
        to.ptr().cast(),
        image.0,
        ptr::null(),
        NONE,
        0,
        ptr::null_mut()
    ));
    list.synchronize();
}

/// "The extension property query returns (...) the supported external memory import and export types":
/// opaque files for memory and for images, and DMA-BUFs where the kernel has them.
#[test]
fn the_device_says_what_files_it_takes() {
    let gpu = Gpu::new();
    let mut properties = ze_device_external_memory_properties_t::default();
    check!(zeDeviceGetExternalMemoryProperties(gpu.device, &raw mut properties));
    assert_eq!(
        (properties.imageExportTypes, properties.imageImportTypes),
        (properties.memoryAllocationExportTypes, properties.memoryAllocationImportTypes)
    );
    let mut types = FILE;
    types.set(DMA_BUF, ze::on_kernel_lane());
    assert_eq!(properties.imageExportTypes, types);
}

/// An exported image and what imports its file are the same texels, in both directions, also in another
/// context, also when the exporter is gone, and "Importing file descriptors" leaves the application's own
/// open: as memory the file holds the rows of the image.
#[test]
fn an_exported_image_is_imported() {
    kinds().for_each(goes_out_and_comes_in);
}

fn goes_out_and_comes_in(kind: ze_external_memory_type_flags_t) {
    let (gpu, other) = (Gpu::new(), Gpu::new());
    let (list, other_list) = (gpu.immediate(0, true), other.immediate(0, true));
    let texels = WIDTH as usize * HEIGHT as usize;
    let (from, to) = (gpu.host::<u32>(texels), gpu.host::<u32>(texels));
    let first = exported(&gpu, kind);
    let file = file_of(&gpu, kind, &first);
    let (second, third) =
        (imported(&gpu, kind, file.as_raw_fd()), imported(&other, kind, file.as_raw_fd()));
    for (round, (writer, reader)) in
        [(&first, &second), (&second, &third), (&third, &first)].into_iter().enumerate()
    {
        from.fill_with(|i| (i + 1000 * round) as u32);
        let list = if round == 2 { &other_list } else { &list };
        write(list, writer, &from);
        list.synchronize();
        read(&other_list, reader, &to);
        assert_eq!(to.to_vec(), from.to_vec());
    }
    drop((first, second));
    read(&other_list, &third, &to);
    assert_eq!(to.to_vec(), from.to_vec(), "the file keeps the memory");
    let mut memory = ze_image_memory_properties_exp_t::default();
    check!(zeImageGetMemoryPropertiesExp(third.0, &raw mut memory));
    let request =
        ze_external_memory_import_fd_t { flags: kind, fd: file.as_raw_fd(), ..Default::default() };
    let desc =
        ze_device_mem_alloc_desc_t { pNext: (&raw const request).cast(), ..Default::default() };
    let mut bytes = ptr::null_mut();
    check!(zeMemAllocDevice(
        gpu.context,
        &raw const desc,
        memory.size as usize,
        0,
        gpu.device,
        &raw mut bytes
    ));
    for (x, y) in [(0, 0), (36, 0), (5, 10)] {
        let at = y * memory.rowPitch as usize + x * 4;
        // SAFETY: the allocation has the bytes of the image, and no command writes it now.
        let texel = unsafe { bytes.cast::<u8>().add(at).cast::<u32>().read() };
        assert_eq!(texel, from.get(y * WIDTH as usize + x));
    }
    check!(zeMemFree(gpu.context, bytes));
    // An import is exported again.
    let again = imported(&gpu, kind, file_of(&other, kind, &third).as_raw_fd());
    read(&list, &again, &to);
    assert_eq!(to.to_vec(), from.to_vec());
}

/// An image that was not created for export has no file; views, other kinds of files, numbers that are
/// no file, files of something else and requests that contradict each other are refused.
#[test]
fn wrong_requests_are_refused() {
    let gpu = Gpu::new();
    let plain = image(&gpu, ptr::null());
    let mut out = ze_external_memory_export_fd_t { flags: FILE, fd: -1, ..Default::default() };
    let mut properties =
        ze_image_allocation_ext_properties_t { pNext: (&raw mut out).cast(), ..Default::default() };
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeImageGetAllocPropertiesExt(gpu.context, plain.0, &raw mut properties)
    );
    assert_eq!(out.fd, -1);
    let mut none = ze_image_handle_t::NULL;
    let mut create = |next: *const c_void| {
        let desc = desc(next);
        call!(zeImageCreate(gpu.context, gpu.device, &raw const desc, &raw mut none))
    };
    let export = |flags| ze_external_memory_export_desc_t { flags, ..Default::default() };
    let import = |fd| ze_external_memory_import_fd_t { flags: FILE, fd, ..Default::default() };
    let text = std::fs::File::open("/proc/self/status").expect("Linux has it");
    use ze_result_t as code;
    let other_kind =
        export(ze_external_memory_type_flags_t::ZE_EXTERNAL_MEMORY_TYPE_FLAG_D3D11_TEXTURE);
    let no_kind = export(ze_external_memory_type_flags_t::empty());
    let (closed, negative, foreign) = (import(1 << 20), import(-1), import(text.as_raw_fd()));
    for request in [&other_kind, &no_kind] {
        let next = ptr::from_ref(request).cast();
        assert_eq!(create(next), code::ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, "{:?}", request.flags);
    }
    for request in [&closed, &negative, &foreign] {
        let next = ptr::from_ref(request).cast();
        assert_eq!(create(next), code::ZE_RESULT_ERROR_INVALID_ARGUMENT, "{}", request.fd);
    }
    let source = exported(&gpu, FILE);
    let file = file_of(&gpu, FILE, &source);
    let mut both = import(file.as_raw_fd());
    let also = export(FILE);
    both.pNext = (&raw const also).cast();
    assert_eq!(create((&raw const both).cast()), code::ZE_RESULT_ERROR_INVALID_ARGUMENT);
    let memory = gpu.host::<u32>(1 << 16);
    let mut user = ze_image_pitched_exp_desc_t { ptr: memory.ptr().cast(), ..Default::default() };
    user.pNext = (&raw const also).cast();
    assert_eq!(create((&raw const user).cast()), code::ZE_RESULT_ERROR_INVALID_ARGUMENT);
    let whole = import(file.as_raw_fd());
    let mut large = desc((&raw const whole).cast());
    large.height = 4000;
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeImageCreate(gpu.context, gpu.device, &raw const large, &raw mut none)
    );
    let of_view = desc((&raw const also).cast());
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeImageViewCreateExt(gpu.context, gpu.device, &raw const of_view, plain.0, &raw mut none)
    );
}
