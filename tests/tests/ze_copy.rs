// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies and fills, through the stock loader.

use std::ptr;

use tally_tests::lists::{Event, List, NONE};
use tally_tests::ze::Gpu;
use tally_tests::{call, check, refused};
use tally_ze::*;

/// A copy may use any memory of the process as source and destination, and reads the bytes when the
/// copy runs.
#[test]
fn host_memory_is_read_when_the_copy_runs() {
    let gpu = Gpu::new();
    let pool = gpu.pool(1, ze_event_pool_flags_t::empty());
    let gate = pool.event(0);
    let (mut source, target) = (vec![1_u8; 100_000], vec![0_u8; 100_000]);
    let list = gpu.immediate(1, true);
    list.wait(&[&gate]);
    let (dst, src) = (target.as_ptr().cast_mut().cast(), source.as_ptr().cast());
    check!(zeCommandListAppendMemoryCopy(list.0, dst, src, 100_000, NONE, 0, ptr::null_mut()));
    source.fill(2);
    gate.signal();
    list.synchronize();
    assert_eq!(target, source);
}

/// A copy between the driver's memory and other memory of the process is complete when the append to an immediate
/// list returns, if the list has nothing left to do. Intel's driver copies such memory on the host, and VkFFT frees it
/// right after the append. Behind commands that wait, the append returns first.
#[test]
fn transfers_of_ordinary_memory_are_complete_at_once() {
    const BYTES: usize = 16 << 20;
    let gpu = Gpu::new();
    let memory = gpu.device_memory::<u8>(BYTES);
    let pool = gpu.pool(1, ze_event_pool_flags_t::empty());
    let gate = pool.event(0);
    let none = ptr::null_mut();
    for (ordinal, in_order) in [(0, true), (0, false), (1, true), (1, false)] {
        let list = gpu.immediate(ordinal, in_order);
        let mut here = vec![7_u8; BYTES];
        let there = memory.ptr().cast();
        for round in 0..3 {
            here.fill(round);
            let from = here.as_ptr().cast();
            check!(zeCommandListAppendMemoryCopy(list.0, there, from, BYTES, NONE, 0, none));
            check!(zeCommandListHostSynchronize(list.0, 0));
            here.fill(99);
            let to = here.as_mut_ptr().cast();
            check!(zeCommandListAppendMemoryCopy(list.0, to, there, BYTES, NONE, 0, none));
            assert!(here == vec![round; BYTES]);
        }
        gate.reset();
        list.wait(&[&gate]);
        list.barrier(None, &[]);
        let to = here.as_mut_ptr().cast();
        check!(zeCommandListAppendMemoryFill(
            list.0,
            there,
            [5_u8].as_ptr().cast(),
            1,
            BYTES,
            NONE,
            0,
            none
        ));
        list.barrier(None, &[]);
        check!(zeCommandListAppendMemoryCopy(list.0, to, there, BYTES, NONE, 0, none));
        gate.signal();
        list.synchronize();
        assert!(here == vec![5; BYTES]);
    }
}

/// Patterns of every allowed size, in and out of the packet.
#[test]
fn patterns_of_every_size_are_filled() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u8>(1024);
    let list = gpu.immediate(0, true);
    for size in (0..8).map(|it| 1_usize << it) {
        let pattern: Vec<u8> = (0..size as u8).map(|it| it + 1).collect();
        memory.fill_with(|_| 0);
        let (to, from) = (memory.ptr().cast(), pattern.as_ptr().cast());
        check!(zeCommandListAppendMemoryFill(
            list.0,
            to,
            from,
            size,
            512,
            NONE,
            0,
            ptr::null_mut()
        ));
        list.synchronize();
        let expected: Vec<u8> =
            (0..1024).map(|i| if i < 512 { pattern[i % size] } else { 0 }).collect();
        assert_eq!(memory.to_vec(), expected);
    }
    for (pattern, size) in [(0, 512), (3, 512)] {
        let (to, from) = (memory.ptr().cast(), memory.ptr().cast_const().cast());
        refused!(
            ZE_RESULT_ERROR_INVALID_SIZE,
            zeCommandListAppendMemoryFill(
                list.0,
                to,
                from,
                pattern,
                size,
                NONE,
                0,
                ptr::null_mut()
            )
        );
    }
}

/// A fill whose size is no multiple of its pattern's ends with the pattern's first bytes, as on Intel's
/// driver, whose own programs use such fills. The specification refuses it
/// (ZE_RESULT_ERROR_INVALID_SIZE).
#[test]
fn a_fill_of_odd_size_ends_within_the_pattern() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u8>(4096);
    let fill = |list: &List, pattern: &[u8], size: usize, event: &Event| {
        let (to, from) = (memory.ptr().wrapping_add(1).cast(), pattern.as_ptr().cast());
        let none = ptr::null_mut();
        check!(zeCommandListAppendMemoryFill(
            list.0,
            to,
            from,
            pattern.len(),
            size,
            event.0,
            0,
            none
        ));
    };
    for (ordinal, in_order) in [(0, true), (0, false), (1, true), (1, false)] {
        let (list, regular) = (gpu.immediate(ordinal, in_order), gpu.regular(ordinal, in_order));
        let pool = gpu.pool(1, ze_event_pool_flags_t::empty());
        let event = pool.event(0);
        for width in (1..12).map(|it| 1_usize << it) {
            let pattern: Vec<u8> = (0..width).map(|it| (it * 7 + it / 256 + 1) as u8).collect();
            for size in [1, width - 1, width + 1, 2 * width - 1, 3 * width / 2] {
                let expected: Vec<u8> = (0..4096)
                    .map(|i| if (1..=size).contains(&i) { pattern[(i - 1) % width] } else { 0 })
                    .collect();
                for is_regular in [false, true] {
                    memory.fill_with(|_| 0);
                    event.reset();
                    if is_regular {
                        fill(&regular, &pattern, size, &event);
                        regular.close();
                        list.execute(&[&regular], None, &[]);
                    } else {
                        fill(&list, &pattern, size, &event);
                    }
                    event.synchronize();
                    assert_eq!(memory.to_vec(), expected, "{width}, {size}");
                    list.synchronize();
                    if is_regular {
                        regular.reset();
                    }
                }
            }
        }
    }
}

/// Patterns that the engines do not repeat themselves are filled, on both kinds of engine and in lists that are
/// executed again after the pattern's memory has changed.
#[test]
fn patterns_beyond_what_the_engines_repeat_are_filled() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u8>(9 << 20);
    for (ordinal, size) in [(0, 256_usize), (1, 4096), (0, 1 << 17), (1, 1 << 22)] {
        let mut pattern: Vec<u8> = (0..size).map(|i| (i * 7 + i / 256) as u8).collect();
        let expected = pattern.clone();
        let (list, queue) = (gpu.regular(ordinal, true), gpu.queue(ordinal));
        let (to, from) = (memory.ptr().cast(), pattern.as_ptr().cast());
        let (bytes, none) = (2 * size, ptr::null_mut());
        check!(zeCommandListAppendMemoryFill(list.0, to, from, size, bytes, NONE, 0, none));
        list.close();
        pattern.fill(0);
        for _ in 0..2 {
            memory.fill_with(|_| 0);
            queue.execute(&[&list], None);
            queue.synchronize();
            let filled = memory.to_vec();
            assert!(filled[..size] == expected && filled[size..bytes] == expected, "{size}");
            assert!(filled[bytes..].iter().all(|&byte| byte == 0), "{size}: beyond the end");
        }
    }
}

/// A region is copied by rows and slices with the pitches of both sides.
#[test]
fn regions_move_by_rows_and_slices() {
    let gpu = Gpu::new();
    let (src, dst) = (gpu.host::<u8>(4096), gpu.host::<u8>(4096));
    src.fill_with(|i| (i % 251) as u8);
    dst.fill_with(|_| 0);
    let region = |x, y, z| ze_copy_region_t {
        originX: x,
        originY: y,
        originZ: z,
        width: 5,
        height: 3,
        depth: 2,
    };
    let (to, from) = (region(2, 1, 1), region(7, 2, 0));
    let list = gpu.immediate(0, true);
    let (d, s) = (dst.ptr().cast(), src.ptr().cast_const().cast());
    let (to_ptr, from_ptr) = (&raw const to, &raw const from);
    let none = ptr::null_mut();
    check!(zeCommandListAppendMemoryCopyRegion(
        list.0, d, to_ptr, 16, 128, s, from_ptr, 32, 256, NONE, 0, none
    ));
    list.synchronize();
    let mut expected = vec![0_u8; 4096];
    for (z, y, x) in (0..2).flat_map(|z| (0..3).flat_map(move |y| (0..5).map(move |x| (z, y, x)))) {
        expected[2 + x + 16 * (1 + y) + 128 * (1 + z)] = src.get(7 + x + 32 * (2 + y) + 256 * z);
    }
    assert_eq!(dst.to_vec(), expected);
    let wider = ze_copy_region_t { width: 6, ..to };
    refused!(
        ZE_RESULT_ERROR_INVALID_SIZE,
        zeCommandListAppendMemoryCopyRegion(
            list.0,
            d,
            &raw const wider,
            16,
            128,
            s,
            from_ptr,
            32,
            256,
            NONE,
            0,
            none
        )
    );
    refused!(
        ZE_RESULT_ERROR_OVERLAPPING_REGIONS,
        zeCommandListAppendMemoryCopyRegion(
            list.0, d, to_ptr, 16, 128, d, to_ptr, 16, 128, NONE, 0, none
        )
    );
}

/// A range that exceeds its allocation is refused; nothing is copied.
#[test]
fn ranges_beyond_an_allocation_are_refused() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u8>(4096);
    let list = gpu.immediate(0, true);
    let (to, from) = (memory.ptr().cast(), memory.ptr().wrapping_add(1).cast_const().cast());
    let none = ptr::null_mut();
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeCommandListAppendMemoryCopy(list.0, to, from, 4096, NONE, 0, none)
    );
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_POINTER,
        zeCommandListAppendMemoryCopy(list.0, ptr::null_mut(), from, 4, NONE, 0, none)
    );
    check!(zeCommandListAppendMemoryCopy(list.0, to, from, 4095, NONE, 0, none));
    list.synchronize();
    let result = call!(zeCommandListAppendMemoryPrefetch(list.0, from, 4096));
    assert_eq!(result, ze_result_t::ZE_RESULT_ERROR_INVALID_ARGUMENT);
    check!(zeCommandListAppendMemoryPrefetch(list.0, from, 4095));
}

/// The global timestamp is the device's clock: it grows along a list.
#[test]
fn global_timestamps_grow() {
    let gpu = Gpu::new();
    let times = gpu.host::<u64>(8);
    times.fill_with(|_| 0);
    let list = gpu.immediate(0, true);
    for i in 0..8 {
        let dst = times.ptr().wrapping_add(i);
        check!(zeCommandListAppendWriteGlobalTimestamp(list.0, dst, NONE, 0, ptr::null_mut()));
    }
    list.synchronize();
    let times = times.to_vec();
    assert!(times[0] > 0 && times.is_sorted(), "{times:?}");
}
