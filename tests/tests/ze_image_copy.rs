// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies of images, through the stock loader: whole and by regions, on both kinds of lists, on
//! compute and copy engines, with events.

use std::ptr;

use tally_tests::images::{Image, format, image_desc};
use tally_tests::lists::{List, NONE};
use tally_tests::ze::Gpu;
use tally_tests::{check, refused};
use tally_ze::*;

use ze_image_format_layout_t as Layout;
use ze_image_type_t as Kind;

const UINT: ze_image_format_type_t = ze_image_format_type_t::ZE_IMAGE_FORMAT_TYPE_UINT;
const U8: Layout = Layout::ZE_IMAGE_FORMAT_LAYOUT_8;
const U32: Layout = Layout::ZE_IMAGE_FORMAT_LAYOUT_32;
const D2: Kind = Kind::ZE_IMAGE_TYPE_2D;
const D3: Kind = Kind::ZE_IMAGE_TYPE_3D;

fn region(origin: [u32; 3], size: [u32; 3]) -> ze_image_region_t {
    let ([x, y, z], [width, height, depth]) = (origin, size);
    ze_image_region_t { originX: x, originY: y, originZ: z, width, height, depth }
}

fn copy_region(
    list: &List,
    dst: &Image,
    to: &ze_image_region_t,
    src: &Image,
    from: &ze_image_region_t,
) {
    let waits = ptr::null_mut();
    check!(zeCommandListAppendImageCopyRegion(list.0, dst.0, src.0, to, from, NONE, 0, waits));
}

/// "when an image is copied to a Host-accessible memory allocation, its contents will be implicitly
/// decoded to be implementation-independent": rows, slices and layers without gaps, for every type
/// of image, size of texel, kind of list and engine.
#[test]
fn whole_images_come_back_as_they_went() {
    let gpu = Gpu::new();
    let kinds = [
        (Kind::ZE_IMAGE_TYPE_1D, [7, 1, 1], 7),
        (Kind::ZE_IMAGE_TYPE_1DARRAY, [7, 1, 3], 21),
        (D2, [7, 5, 1], 35),
        (Kind::ZE_IMAGE_TYPE_2DARRAY, [7, 5, 3], 105),
        (D3, [7, 5, 3], 105),
    ];
    let layouts = [
        (U8, 1),
        (Layout::ZE_IMAGE_FORMAT_LAYOUT_8_8_8, 3),
        (Layout::ZE_IMAGE_FORMAT_LAYOUT_16_16_16, 6),
        (Layout::ZE_IMAGE_FORMAT_LAYOUT_32_32_32_32, 16),
        (Layout::ZE_IMAGE_FORMAT_LAYOUT_10_10_10_2, 4),
    ];
    for ordinal in [0, 1] {
        let lists = [gpu.immediate(ordinal, true), gpu.immediate(ordinal, false)];
        for (kind, size, texels) in kinds {
            for (layout, bytes) in layouts {
                let image = gpu.image(&image_desc(kind, format(layout, UINT), size));
                let sent: Vec<u8> = (0..texels * bytes).map(|i| (i * 7 + 1) as u8).collect();
                for list in &lists {
                    let mut back = vec![0; sent.len()];
                    list.image_from(&image, &sent);
                    list.barrier(None, &[]);
                    list.image_to(&image, &mut back);
                    list.synchronize();
                    assert_eq!(back, sent, "{kind:?} {layout:?}");
                }
            }
        }
    }
    let buffer = gpu.image(&image_desc(Kind::ZE_IMAGE_TYPE_BUFFER, format(U32, UINT), [64, 1, 1]));
    let (sent, mut back) = ((0..16).collect::<Vec<u32>>(), vec![0_u32; 16]);
    let list = gpu.immediate(0, true);
    list.image_from(&buffer, &sent);
    list.image_to(&buffer, &mut back);
    list.synchronize();
    assert_eq!(back, sent);
}

/// A regular list copies at each execution, with the memory's contents at that time.
#[test]
fn recorded_copies_run_at_each_execution() {
    let gpu = Gpu::new();
    let a = gpu.image(&image_desc(D2, format(U32, UINT), [6, 4, 1]));
    let b = gpu.image(&image_desc(D2, format(U32, UINT), [6, 4, 1]));
    let (source, target) = (gpu.host::<u32>(24), gpu.host::<u32>(24));
    let list = gpu.regular(0, true);
    let (none, waits) = (ptr::null(), ptr::null_mut());
    let from = source.ptr().cast_const().cast();
    check!(zeCommandListAppendImageCopyFromMemory(list.0, a.0, from, none, NONE, 0, waits));
    check!(zeCommandListAppendImageCopy(list.0, b.0, a.0, NONE, 0, waits));
    let to = target.ptr().cast();
    check!(zeCommandListAppendImageCopyToMemory(list.0, to, b.0, none, NONE, 0, waits));
    list.close();
    let queue = gpu.queue(0);
    for round in 1..4_u32 {
        source.fill_with(|i| i as u32 * round);
        queue.execute(&[&list], None);
        queue.synchronize();
        assert_eq!(target.to_vec(), source.to_vec(), "execution {round}");
    }
}

/// "The region width and height for both src and dst must be same. The origins can be different."
#[test]
fn regions_move_between_images() {
    let gpu = Gpu::new();
    let (src, dst) = (
        gpu.image(&image_desc(D3, format(U32, UINT), [8, 6, 4])),
        gpu.image(&image_desc(D3, format(U32, UINT), [5, 7, 3])),
    );
    let texels: Vec<u32> = (0..8 * 6 * 4).collect();
    let blank = vec![9999_u32; 5 * 7 * 3];
    let mut back = blank.clone();
    let list = gpu.immediate(1, true);
    list.image_from(&src, &texels);
    list.image_from(&dst, &blank);
    copy_region(&list, &dst, &region([1, 3, 1], [3, 2, 2]), &src, &region([4, 1, 2], [3, 2, 2]));
    list.image_to(&dst, &mut back);
    list.synchronize();
    for (i, &found) in back.iter().enumerate() {
        let (x, y, z) = (i % 5, i / 5 % 7, i / 35);
        let inside = (1..4).contains(&x) && (3..5).contains(&y) && (1..3).contains(&z);
        let want = match inside {
            true => ((z + 1) * 48 + (y - 2) * 8 + x + 3) as u32,
            false => 9999,
        };
        assert_eq!(found, want, "{x} {y} {z}");
    }
}

/// Layers of 1D arrays are a region's y, those of 2D arrays its z; dimensions that an image lacks are
/// ignored.
#[test]
fn regions_name_layers() {
    let gpu = Gpu::new();
    let list = gpu.immediate(0, true);
    let fetch = |image: &Image, from: &ze_image_region_t, count: usize| {
        let mut back = vec![0_u32; count];
        let to = back.as_mut_ptr().cast();
        let waits = ptr::null_mut();
        check!(zeCommandListAppendImageCopyToMemory(list.0, to, image.0, from, NONE, 0, waits));
        list.synchronize();
        back
    };
    let d1 = gpu.image(&image_desc(Kind::ZE_IMAGE_TYPE_1DARRAY, format(U32, UINT), [4, 1, 3]));
    let texels: Vec<u32> = (0..12).collect();
    list.image_from(&d1, &texels);
    assert_eq!(fetch(&d1, &region([1, 1, 7], [2, 2, 9]), 4), [5, 6, 9, 10]);
    let d2 = gpu.image(&image_desc(Kind::ZE_IMAGE_TYPE_2DARRAY, format(U32, UINT), [2, 2, 3]));
    list.image_from(&d2, &texels);
    assert_eq!(fetch(&d2, &region([0, 1, 1], [2, 1, 2]), 4), [6, 7, 10, 11]);
    let flat = gpu.image(&image_desc(D2, format(U32, UINT), [2, 2, 1]));
    list.image_from(&flat, &texels[..4]);
    assert_eq!(fetch(&flat, &region([0, 1, 1], [2, 1, 1]), 2), [2, 3]);
}

/// "If rowPitch is set to 0, the appropriate row pitch is calculated based on the size of each
/// element in bytes multiplied by width"; others "must be greater than or equal to" that.
#[test]
fn pitches_of_memory_are_kept() {
    let gpu = Gpu::new();
    let image = gpu.image(&image_desc(D3, format(U8, UINT), [3, 2, 2]));
    let memory: Vec<u8> = (0..64).collect();
    let mut back = vec![0xff_u8; 64];
    let list = gpu.immediate(0, true);
    let (none, waits) = (ptr::null(), ptr::null_mut());
    let (from, to) = (memory.as_ptr().cast(), back.as_mut_ptr().cast());
    check!(zeCommandListAppendImageCopyFromMemoryExt(
        list.0, image.0, from, none, 5, 20, NONE, 0, waits
    ));
    check!(zeCommandListAppendImageCopyToMemoryExt(
        list.0, to, image.0, none, 4, 0, NONE, 0, waits
    ));
    list.synchronize();
    let gap = 0xff;
    assert_eq!(
        back[..16],
        [0, 1, 2, gap, 5, 6, 7, gap, 20, 21, 22, gap, 25, 26, 27, gap],
        "rows of 4 bytes, slices of 8"
    );
    for (row, slice) in [(2, 0), (3, 4)] {
        refused!(
            ZE_RESULT_ERROR_INVALID_SIZE,
            zeCommandListAppendImageCopyFromMemoryExt(
                list.0, image.0, from, none, row, slice, NONE, 0, waits
            )
        );
        refused!(
            ZE_RESULT_ERROR_INVALID_SIZE,
            zeCommandListAppendImageCopyToMemoryExt(
                list.0, to, image.0, none, row, slice, NONE, 0, waits
            )
        );
    }
}

/// "The implementation must not access the memory pointed to by srcptr as it is free to be modified
/// by either the Host or device up until execution", and events order copies as any command.
#[test]
fn copies_wait_for_events_and_signal_them() {
    let gpu = Gpu::new();
    let pool = gpu.pool(2, ze_event_pool_flags_t::empty());
    let (gate, done) = (pool.event(0), pool.event(1));
    let image = gpu.image(&image_desc(D2, format(U32, UINT), [4, 4, 1]));
    let (mut source, mut back) = (vec![1_u32; 16], vec![0_u32; 16]);
    let (first, second) = (gpu.immediate(0, false), gpu.immediate(1, false));
    let none = ptr::null();
    let mut gates = [gate.0];
    check!(zeCommandListAppendImageCopyFromMemory(
        first.0,
        image.0,
        source.as_ptr().cast(),
        none,
        done.0,
        1,
        gates.as_mut_ptr()
    ));
    let mut dones = [done.0];
    check!(zeCommandListAppendImageCopyToMemory(
        second.0,
        back.as_mut_ptr().cast(),
        image.0,
        none,
        NONE,
        1,
        dones.as_mut_ptr()
    ));
    source.fill(2);
    gate.signal();
    second.synchronize();
    first.synchronize();
    assert_eq!(back, [2; 16]);
}

/// The specification does not refuse an empty region, of memory or of an image: such a copy moves
/// nothing, waits and signals.
#[test]
fn copies_of_nothing_only_wait_and_signal() {
    let gpu = Gpu::new();
    let pool = gpu.pool(3, ze_event_pool_flags_t::empty());
    let image = gpu.image(&image_desc(D2, format(U32, UINT), [4, 4, 1]));
    let twin = gpu.image(&image_desc(D2, format(U32, UINT), [4, 4, 1]));
    let list = gpu.immediate(0, false);
    let (mut back, waits) = (vec![7_u32; 16], ptr::null_mut());
    for (i, size) in [[0, 0, 0], [4, 0, 1], [0, 4, 1]].into_iter().enumerate() {
        let (empty, done) = (region([0; 3], size), pool.event(i as u32));
        copy_region(&list, &image, &empty, &twin, &empty);
        let (empty, memory) = (&raw const empty, back.as_mut_ptr().cast());
        let (list, image) = (list.0, image.0);
        check!(zeCommandListAppendImageCopyFromMemory(list, image, memory, empty, NONE, 0, waits));
        check!(zeCommandListAppendImageCopyToMemory(list, memory, image, empty, done.0, 0, waits));
        check!(zeEventHostSynchronize(done.0, u64::MAX));
    }
    assert_eq!(back, [7; 16]);
}

/// An image that is destroyed after its last append stays until the device is done with it.
#[test]
fn an_image_may_go_when_its_copies_are_submitted() {
    let gpu = Gpu::new();
    let pool = gpu.pool(1, ze_event_pool_flags_t::empty());
    let gate = pool.event(0);
    let list = gpu.immediate(0, true);
    let image = gpu.image(&image_desc(D2, format(U32, UINT), [64, 64, 1]));
    let (sent, mut back) = ((0..4096).collect::<Vec<u32>>(), vec![0_u32; 4096]);
    list.image_from(&image, &sent);
    list.wait(&[&gate]);
    list.image_to(&image, &mut back);
    drop(image);
    let others: Vec<Image> =
        (0..8).map(|_| gpu.image(&image_desc(D2, format(U32, UINT), [64, 64, 1]))).collect();
    let (other, sevens) = (gpu.immediate(1, true), vec![7_u32; 4096]);
    for image in &others {
        other.image_from(image, &sevens);
    }
    other.synchronize();
    gate.signal();
    list.synchronize();
    assert_eq!(back, sent);
}

/// "The src and dst regions cannot be overlapping": also if they are of two images in the same memory, or
/// if an image is copied onto memory that it lies in.
#[test]
fn copies_of_images_onto_themselves_are_refused() {
    let gpu = Gpu::new();
    let memory = gpu.device_memory::<u32>(1024);
    let lie = |at: usize, width: u32| {
        let place = ze_image_pitched_exp_desc_t {
            ptr: memory.ptr().wrapping_add(at).cast(),
            ..Default::default()
        };
        let mut desc = image_desc(D2, format(U32, UINT), [width, 4, 1]);
        desc.pNext = (&raw const place).cast();
        gpu.image(&desc)
    };
    let list = gpu.immediate(0, true);
    let waits = ptr::null_mut();
    // Rows of both are 64 bytes apart; the second image begins in the fourth row of the first.
    let (first, second) = (lie(0, 8), lie(3 * 16, 8));
    refused!(
        ZE_RESULT_ERROR_OVERLAPPING_REGIONS,
        zeCommandListAppendImageCopy(list.0, first.0, second.0, NONE, 0, waits)
    );
    let (high, low) = (region([0, 0, 0], [8, 3, 1]), region([0, 1, 0], [8, 3, 1]));
    copy_region(&list, &first, &high, &second, &low);
    // In the gaps between its rows.
    let beside = lie(8, 8);
    copy_region(&list, &first, &high, &beside, &high);
    let at = |index: usize| memory.ptr().wrapping_add(index).cast::<std::ffi::c_void>();
    let (part, pitch) = (&raw const high, 64);
    for index in [0, 7, 2 * 16 + 7] {
        refused!(
            ZE_RESULT_ERROR_OVERLAPPING_REGIONS,
            zeCommandListAppendImageCopyToMemory(list.0, at(index), first.0, part, NONE, 0, waits)
        );
        refused!(
            ZE_RESULT_ERROR_OVERLAPPING_REGIONS,
            zeCommandListAppendImageCopyFromMemory(
                list.0,
                first.0,
                at(index),
                part,
                NONE,
                0,
                waits
            )
        );
    }
    check!(zeCommandListAppendImageCopyToMemory(list.0, at(40), first.0, part, NONE, 0, waits));
    let gaps = at(8);
    check!(zeCommandListAppendImageCopyToMemoryExt(
        list.0, gaps, first.0, part, pitch, 0, NONE, 0, waits
    ));
    list.synchronize();
}

/// Regions beyond an image, different shapes, "The src and dst regions cannot be overlapping",
/// other formats: refused, and nothing is appended.
#[test]
fn wrong_copies_are_refused() {
    let gpu = Gpu::new();
    let image = gpu.image(&image_desc(D2, format(U32, UINT), [8, 8, 1]));
    let other = gpu.image(&image_desc(D2, format(U32, UINT), [4, 4, 1]));
    let bytes = gpu.image(&image_desc(D2, format(U8, UINT), [8, 8, 1]));
    let list = gpu.immediate(0, true);
    let waits = ptr::null_mut();
    let texels: Vec<u32> = (0..64).collect();
    list.image_from(&image, &texels);
    let good = region([0, 0, 0], [4, 4, 1]);
    for bad in [
        region([5, 0, 0], [4, 4, 1]),
        region([0, 5, 0], [4, 4, 1]),
        region([9, 0, 0], [0, 0, 0]),
        region([u32::MAX, 0, 0], [4, 4, 1]),
    ] {
        let (to, from) = (&raw const bad, &raw const good);
        refused!(
            ZE_RESULT_ERROR_INVALID_SIZE,
            zeCommandListAppendImageCopyRegion(list.0, image.0, other.0, to, from, NONE, 0, waits)
        );
        let memory = [0_u32; 64].as_ptr().cast();
        refused!(
            ZE_RESULT_ERROR_INVALID_SIZE,
            zeCommandListAppendImageCopyFromMemory(list.0, image.0, memory, to, NONE, 0, waits)
        );
    }
    refused!(
        ZE_RESULT_ERROR_INVALID_SIZE,
        zeCommandListAppendImageCopy(list.0, image.0, other.0, NONE, 0, waits)
    );
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeCommandListAppendImageCopy(list.0, image.0, bytes.0, NONE, 0, waits)
    );
    let shifted = region([3, 3, 0], [4, 4, 1]);
    let (to, from) = (&raw const shifted, &raw const good);
    refused!(
        ZE_RESULT_ERROR_OVERLAPPING_REGIONS,
        zeCommandListAppendImageCopyRegion(list.0, image.0, image.0, to, from, NONE, 0, waits)
    );
    copy_region(&list, &image, &region([4, 4, 0], [4, 4, 1]), &image, &good);
    let null = ze_image_handle_t::NULL;
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_HANDLE,
        zeCommandListAppendImageCopy(list.0, null, image.0, NONE, 0, waits)
    );
    let none = ptr::null();
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_POINTER,
        zeCommandListAppendImageCopyFromMemory(list.0, image.0, ptr::null(), none, NONE, 0, waits)
    );
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_POINTER,
        zeCommandListAppendImageCopyToMemory(
            list.0,
            ptr::null_mut(),
            image.0,
            none,
            NONE,
            0,
            waits
        )
    );
    let twin = gpu.image(&image_desc(D2, format(U32, UINT), [8, 8, 1]));
    let small = gpu.device_memory::<u8>(4096);
    let end = small.ptr().wrapping_add(4090).cast();
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeCommandListAppendImageCopyToMemory(list.0, end, image.0, none, NONE, 0, waits)
    );
    refused!(
        ZE_RESULT_ERROR_INVALID_SIZE,
        zeCommandListAppendImageCopy(list.0, image.0, twin.0, NONE, 1, waits)
    );
    let mut back = vec![0_u32; 64];
    list.image_to(&image, &mut back);
    list.synchronize();
    // Only the one good copy has moved anything, by 4 columns and 4 rows.
    for (i, found) in back.into_iter().enumerate() {
        let moved = i % 8 >= 4 && i >= 32;
        assert_eq!(found, if moved { texels[i - 36] } else { texels[i] }, "texel {i}");
    }
}
