// SPDX-License-Identifier: MIT OR Apache-2.0
//! Each packet behaves as SPEC.md, chapters 3 to 5, 7 and 11, specifies.

use std::sync::atomic::Ordering;

use tally_device::{EngineClass, Priority, QueueState};
use tally_uapi::cell::waiters_index;
use tally_uapi::eu::{GroupContext, KernargHeader};
use tally_uapi::fault::FaultKind;
use tally_uapi::packet::{self, PostOp, Region, TimestampSlot, flag, opcode};

use crate::support::*;

#[test]
fn a_nop_signals_in_order() {
    let gpu = Gpu::new();
    let (mut queue, cells) = (gpu.queue(), Memory::new(4096));
    for value in 1..=1000 {
        queue.push(nop(ORDERED, Some((cells.cell_va(0), value))));
    }
    eventually("the last signal", || cells.load(0) == 1000);
    eventually("idle", || gpu.device.query(&queue.handle).state == QueueState::Idle);
    let status = gpu.device.query(&queue.handle);
    assert_eq!((status.head, status.fault), (1000, None));
    assert_eq!(queue.control().head.load(Ordering::Acquire), 1000);
    assert_eq!(queue.control().asleep.load(Ordering::Acquire), 1);
}

#[test]
fn post_sync_adds_and_writes_the_clock() {
    let gpu = Gpu::new();
    let (mut queue, cells) = (gpu.queue(), Memory::new(4096));
    cells.cell(0).store(40, Ordering::Relaxed);
    let mut add = nop(ORDERED, Some((cells.cell_va(0), 2)));
    add.header.post_op = PostOp::Add as u8;
    let mut clock = nop(ORDERED, Some((cells.cell_va(1), 0)));
    clock.header.post_op = PostOp::Clock as u8;
    let before = gpu.device.clock_pair().1;
    queue.push(add);
    queue.push(clock);
    eventually("the clock", || cells.load(1) != 0);
    assert_eq!(cells.load(0), 42);
    assert!((before..=gpu.device.clock_pair().1).contains(&cells.load(1)));
    // After another signal of the same cell, published with it.
    clock.post.address = cells.cell_va(0);
    queue.write(add);
    queue.write(clock);
    queue.push(nop(ORDERED, Some((cells.cell_va(2), 1))));
    eventually("all", || cells.load(2) == 1);
    assert!((before..=gpu.device.clock_pair().1).contains(&cells.load(0)));
}

#[test]
fn copies_of_every_size_copy_and_may_overlap() {
    let gpu = Gpu::new();
    let size = 3 << 20;
    let (mut queue, from, to) = (gpu.queue(), Memory::new(size), Memory::new(size));
    let cells = Memory::new(4096);
    for i in 0..size / 8 {
        from.cell(i).store((i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15), Ordering::Relaxed);
    }
    let mut value = 0;
    for bytes in [0, 1, 63, 4097, 256 << 10, (2 << 20) + 5] {
        value += 1;
        queue.push(fill(ORDERED, to.va(), size as u64, &[0], None));
        queue.push(copy(ORDERED, to.va(), from.va(), bytes, Some((cells.cell_va(0), value))));
        eventually("the copy", || cells.load(0) == value);
        let bytes = bytes as usize;
        assert!(to.bytes(0, bytes) == from.bytes(0, bytes), "{bytes} bytes");
        assert!(to.bytes(bytes, 64).iter().all(|&byte| byte == 0), "{bytes} bytes and no more");
    }
    let expected = from.bytes(0, 2 << 20);
    let shifted = from.va() + 12;
    queue.push(copy(ORDERED, shifted, from.va(), 2 << 20, Some((cells.cell_va(0), 99))));
    eventually("the overlapping copy", || cells.load(0) == 99);
    assert!(from.bytes(12, 2 << 20) == expected);
}

#[test]
fn a_large_copy_copies_whatever_its_alignment_and_no_more() {
    let gpu = Gpu::new();
    let room = (33 << 20) + 4096;
    let (mut queue, from, to) = (gpu.queue(), Memory::new(room), Memory::new(room));
    let cells = Memory::new(4096);
    for i in 0..room / 8 {
        from.cell(i).store((i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15), Ordering::Relaxed);
    }
    for (value, (dst, src)) in [(0, 0), (1, 0), (63, 5), (17, 40)].into_iter().enumerate() {
        let (bytes, value) = ((33 << 20) + 13, value as u64 + 1);
        queue.push(fill(ORDERED, to.va(), room as u64, &[0], None));
        let signal = Some((cells.cell_va(0), value));
        let (dst_va, src_va) = (to.va() + dst as u64, from.va() + src as u64);
        queue.push(copy(ORDERED, dst_va, src_va, bytes as u64, signal));
        eventually("the copy", || cells.load(0) == value);
        assert!(to.bytes(dst, bytes) == from.bytes(src, bytes), "{src} to {dst}");
        assert!(to.bytes(0, dst).iter().all(|&byte| byte == 0), "nothing before {dst}");
        assert!(to.bytes(dst + bytes, 64).iter().all(|&byte| byte == 0), "nothing behind it");
    }
}

/// SPEC.md, chapter 5: "**COPY** copies like memmove and reads the source when it runs." The device has several
/// ways of running copies and fills, chosen by size; each is exact and touches no other bytes.
#[test]
fn copies_and_fills_of_sizes_about_each_way_to_run_them_are_exact() {
    let gpu = Gpu::new();
    let room = (1 << 20) + 8192;
    let (mut queue, from, to) = (gpu.queue(), Memory::new(room), Memory::new(room));
    let cells = Memory::new(4096);
    for i in 0..room / 8 {
        from.cell(i).store((i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15), Ordering::Relaxed);
    }
    let mut value = 0;
    let ways = [64, 256, 4096, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
    for bytes in ways.into_iter().flat_map(|bytes| [bytes - 1, bytes, bytes + 1]) {
        for (dst, src) in [(0, 0), (3, 64), (129, 7)] {
            value += 2;
            queue.push(fill(ORDERED, to.va(), room as u64, &[0], None));
            let (to_va, from_va) = (to.va() + dst as u64, from.va() + src as u64);
            let signal = Some((cells.cell_va(0), value - 1));
            queue.push(copy(ORDERED, to_va, from_va, bytes as u64, signal));
            eventually("the copy", || cells.load(0) == value - 1);
            assert!(to.bytes(dst, bytes) == from.bytes(src, bytes), "{bytes}: {src} to {dst}");
            let others = [to.bytes(0, dst), to.bytes(dst + bytes, 64)].concat();
            assert!(others.iter().all(|&byte| byte == 0), "{bytes} and no more");
            // A copy onto itself, a few bytes further on.
            let signal = Some((cells.cell_va(0), value));
            let expected = to.bytes(dst, bytes);
            queue.push(copy(ORDERED, to_va + 5, to_va, bytes as u64, signal));
            queue.push(fill(ORDERED, to_va, 5, &[9], None));
            queue.push(nop(ORDERED, Some((cells.cell_va(1), value))));
            eventually("the overlapping copy", || cells.load(1) == value);
            assert!(to.bytes(dst + 5, bytes) == expected, "{bytes}: {dst} to {}", dst + 5);
            assert_eq!(to.bytes(dst, 5), [9; 5]);
        }
    }
}

/// SPEC.md, chapter 3: `head` "may be behind by 15 packets, and by no more than a quarter of the ring,
/// while the device is awake; it is exact when the queue parks or sleeps".
#[test]
fn the_producer_learns_which_slots_it_may_use() {
    let gpu = Gpu::new();
    let (mut queue, cells) = (gpu.queue(), Memory::new(4096));
    let head = || queue.control().head.load(Ordering::Acquire);
    assert_eq!(head(), 0);
    for value in 1..=20 {
        queue.write(nop(ORDERED, Some((cells.cell_va(0), value))));
    }
    queue.write(wait_for(cells.cell_va(1), 1));
    // The kernel reports that it runs, and ends when it is told to.
    let kernarg = Kernarg::new(&[cells.cell_va(2), cells.cell_va(3)]);
    for _ in 0..10 {
        queue.write(nop(ORDERED, None));
    }
    queue.push(dispatch(ORDERED, meet, &kernarg, 1, Some((cells.cell_va(0), 99))));
    let state = |is: QueueState| gpu.device.query(&queue.handle).state == is;
    let head = || queue.control().head.load(Ordering::Acquire);
    eventually("the queue parks", || state(QueueState::Parked));
    assert_eq!(head(), 20, "exact when it parks");
    cells.cell(1).store(1, Ordering::Release);
    gpu.device.wake(waiters_index(cells.cell_va(1)));
    eventually("the kernel", || cells.load(2) != 0);
    assert!((31 - 15..=32).contains(&head()), "{} while the kernel runs", head());
    cells.cell(3).store(1, Ordering::Release);
    eventually("rest", || queue.control().asleep.load(Ordering::Acquire) == 1);
    assert_eq!(head(), 32, "exact when it sleeps");
    // A queue may sleep while its last command is in flight, if another worker took the stream from a stuck one.
    eventually("the kernel's signal", || cells.load(0) == 99);
}

#[test]
fn a_region_copy_keeps_to_its_pitches() {
    let gpu = Gpu::new();
    let (mut queue, from, to) = (gpu.queue(), Memory::new(1 << 16), Memory::new(1 << 16));
    let cells = Memory::new(4096);
    for i in 0..1 << 13 {
        from.cell(i).store(0x0101_0101_0101_0101 * (i as u64 % 255 + 1), Ordering::Relaxed);
    }
    let shape = Region {
        width: 10,
        height: 3,
        depth: 2,
        dst_row_pitch: 16,
        dst_slice_pitch: 100,
        src_row_pitch: 40,
        src_slice_pitch: 1000,
        reserved: 0,
    };
    let region = cells.write(512, shape);
    queue.push(packet::CopyRegion {
        header: header(opcode::COPY_REGION, ORDERED | flag::POST_SYNC, 0),
        dst: to.va(),
        src: from.va(),
        region,
        zero: [0; 2],
        post: packet::PostSync { address: cells.cell_va(0), value: 1 },
    });
    eventually("the copy", || cells.load(0) == 1);
    let mut expected = vec![0; 4096];
    for (y, z) in (0..3).flat_map(|y| (0..2).map(move |z| (y, z))) {
        let (dst, src) = (z * 100 + y * 16, z * 1000 + y * 40);
        expected[dst..dst + 10].copy_from_slice(&from.bytes(src, 10));
    }
    assert_eq!(to.bytes(0, 4096), expected);
}

#[test]
fn a_fill_repeats_its_pattern_and_cuts_the_last() {
    let gpu = Gpu::new();
    let size = 1 << 20;
    let (mut queue, to, cells) = (gpu.queue(), Memory::new(size), Memory::new(4096));
    let long: Vec<u8> = (1..=127).collect();
    let mut value = 0;
    for pattern in [&long[..1], &long[..3], &long[..16], &long[..17], &long[..]] {
        for bytes in [1, 7, 5000, 999_999] {
            value += 1;
            queue.push(fill(ORDERED, to.va(), size as u64, &[0xff], None));
            let signal = Some((cells.cell_va(0), value));
            queue.push(fill(ORDERED, to.va(), bytes as u64, pattern, signal));
            eventually("the fill", || cells.load(0) == value);
            let expected: Vec<u8> = pattern.iter().copied().cycle().take(bytes).collect();
            assert!(to.bytes(0, bytes) == expected, "{} x {bytes}", pattern.len());
            assert_eq!(to.bytes(bytes, 1), [0xff]);
        }
    }
}

/// SPEC.md, chapter 5: a FILL repeats the pattern from the first byte on, at any address. Large fills bypass the
/// caches, line by line.
#[test]
fn a_fill_keeps_its_pattern_at_any_address_and_size() {
    let gpu = Gpu::new();
    let size = (128 << 20) + 4096;
    let (mut queue, to, cells) = (gpu.queue(), Memory::new(size), Memory::new(4096));
    let pattern: Vec<u8> = (1..=64).collect();
    let mut value = 0;
    for (length, at, bytes) in [
        (1, 3, 100),
        (4, 5, 1000),
        (8, 0, 63),
        (16, 1, (256 << 10) - 1),
        (32, 7, 5000),
        (2, 9, (1 << 20) + 3),
        (12, 17, (1 << 20) + 1),
        (1, 1, (128 << 20) + 5),
        (4, 3, (128 << 20) + 7),
        (64, 63, (128 << 20) + 1),
    ] {
        value += 1;
        let pattern = &pattern[..length];
        let room = (at + bytes + 64) as u64;
        queue.push(fill(ORDERED, to.va(), room, &[0xff], None));
        let signal = Some((cells.cell_va(0), value));
        queue.push(fill(ORDERED, to.va() + at as u64, bytes as u64, pattern, signal));
        eventually("the fill", || cells.load(0) == value);
        let filled = to.bytes(at, bytes);
        let whole = filled.chunks(length).all(|it| *it == pattern[..it.len()]);
        assert!(whole, "{length} x {bytes} at {at}");
        assert!(to.bytes(0, at).iter().all(|byte| *byte == 0xff));
        assert_eq!(to.bytes(at + bytes, 1), [0xff]);
    }
}

/// SPEC.md, chapter 3: short commands keep their order and their signals, even in a recording and at a
/// fault.
#[test]
fn short_commands_run_one_after_the_other_up_to_a_fault() {
    let gpu = Gpu::new();
    let (mut queue, memory, cells) = (gpu.queue(), Memory::new(4096), Memory::new(4096));
    for i in 1..=1000 {
        let step = memory.va() + i % 500 * 8;
        queue.push(fill(ORDERED, step, 8, &(i as u32).to_le_bytes(), None));
        queue.push(copy(ORDERED, step + 8, step, 8, Some((cells.cell_va(0), i))));
    }
    eventually("the last copy", || cells.load(0) == 1000);
    let word = 1000 | 1000 << 32;
    assert_eq!((memory.load(0), memory.load(1)), (word, word));
    queue.push(copy(ORDERED, 8, memory.va(), 8, Some((cells.cell_va(0), 1001))));
    queue.push(nop(ORDERED, Some((cells.cell_va(0), 1002))));
    eventually("the fault", || gpu.device.query(&queue.handle).fault.is_some());
    let fault = gpu.device.query(&queue.handle).fault.expect("asked above");
    assert_eq!((fault.kind, fault.address, fault.packet), (FaultKind::PageFault, 8, 2000));
    assert_eq!(cells.load(0), 1000, "what faulted signals nothing");
}

/// The same for packets that are all published at once, in a ring that wraps around, with the fault at each of
/// the first packets.
#[test]
fn a_fault_among_published_short_commands_names_its_packet() {
    for bad in 0..40 {
        let gpu = Gpu::new();
        let (mut queue, memory, cells) = (gpu.queue(), Memory::new(4096), Memory::new(4096));
        for i in 0..50 {
            let to = if i == bad { 8 } else { memory.va() + i * 8 };
            // Some packets end the series of inline commands: large ones, or those with a signal elsewhere.
            match i % 13 {
                11 => queue.write(nop(ORDERED, Some((cells.cell_va(1), i)))),
                7 => queue.write(wait_for(cells.cell_va(0), i)),
                _ => queue.write(copy(
                    ORDERED,
                    to,
                    cells.cell_va(9),
                    8,
                    Some((cells.cell_va(0), i + 1)),
                )),
            }
        }
        cells.cell(9).store(1, Ordering::Relaxed);
        queue.publish();
        if matches!(bad % 13, 7 | 11) {
            eventually("the last copy", || cells.load(0) == 50);
            continue;
        }
        let fault = gpu.fault();
        assert_eq!((fault.kind, fault.address, fault.packet), (FaultKind::PageFault, 8, bad));
        let before = (0..bad).rev().find(|i| !matches!(i % 13, 7 | 11)).map_or(0, |i| i + 1);
        assert_eq!(cells.load(0), before, "{bad}: all before have signalled, and none behind");
        let done = |i: u64| memory.load(i as usize) == 1;
        let copies = (0..50).filter(|i| !matches!(i % 13, 7 | 11));
        assert!(copies.clone().all(|i| done(i) == (i < bad)), "{bad}");
    }
}

#[test]
fn a_dispatch_runs_every_group_once() {
    let gpu = Gpu::new();
    let (mut queue, cells) = (gpu.queue(), Memory::new(4096));
    let kernarg = Kernarg::new(&[cells.cell_va(1)]);
    let mut total = 0;
    for (value, groups) in [0, 1, 7, 8, 9, 1000, 100_000].into_iter().enumerate() {
        let signal = Some((cells.cell_va(0), value as u64 + 1));
        queue.push(dispatch(ORDERED, count_groups, &kernarg, groups, signal));
        total += u64::from(groups);
        eventually("the dispatch", || cells.load(0) == value as u64 + 1);
        assert_eq!(cells.load(1), total);
    }
}

/// Kernel: writes the description of its launch and group that it was given.
unsafe extern "C" fn describe(context: *const GroupContext) {
    // SAFETY: the device passes a valid context; argument 0 has room for a
    // record of 16 words per group.
    unsafe {
        let (context, launch) = (&*context, &*(*context).launch);
        let [x, y, z] = context.group.map(u64::from);
        let [width, height, _] = launch.num_groups.map(u64::from);
        let record = context.args.cast::<u64>().read() + ((z * height + y) * width + x) * 128;
        let to = record as *mut u64;
        to.write(1);
        to.add(1).write(launch.global_offset[0]);
        to.add(2).write(launch.global_size[0]);
        to.add(3).write(launch.global_size[1]);
        to.add(4).write(u64::from(launch.num_groups[0]));
        to.add(5).write(u64::from(launch.group_size[0]));
        to.add(6).write(u64::from(launch.work_dim));
        to.add(7).write(x | y << 16 | z << 32);
        context.local.write_bytes(0x5a, 1000);
        context.scratch.write_bytes(0xa5, 5000);
        let aligned = (context.local as u64 | context.scratch as u64 | context.args as u64) % 64;
        to.add(8).write(aligned);
        let mut control = 0u32;
        std::arch::asm!("stmxcsr [{}]", in(reg) &mut control);
        to.add(9).write(u64::from(control & !0x3f));
    }
}

/// Kernel: returns with a changed floating-point control.
unsafe extern "C" fn spoil_float_control(_context: *const GroupContext) {
    // SAFETY: none, since the kernel has to break the calling convention.
    unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &0x9fc0_u32) };
}

/// Kernel: writes whether the pages in front of its local memory of 5,000 bytes and behind it are there.
unsafe extern "C" fn look_around(context: *const GroupContext) {
    // SAFETY: the device passes a valid context; argument 0 has room for a word. `mincore` reads nothing there.
    unsafe {
        let (context, mut present) = (&*context, [0u8; 2]);
        let places = [context.local.wrapping_sub(4096), context.local.wrapping_add(8192)];
        for (place, present) in places.into_iter().zip(&mut present) {
            libc::mincore(place.cast(), 4096, present);
        }
        let [before, behind] = present.map(|it| u64::from(it & 1));
        (context.args.cast::<u64>().read() as *mut u64).write(before | behind << 1);
    }
}

/// A vector under a mask may reach beyond local memory with items that do nothing, which takes long where there is
/// no page.
#[test]
fn there_are_pages_around_local_memory() {
    let gpu = Gpu::new();
    let (mut queue, cells) = (gpu.queue(), Memory::new(4096));
    let kernarg = Kernarg::new(&[cells.cell_va(1)]);
    let mut packet = dispatch(ORDERED, look_around, &kernarg, 1, Some((cells.cell_va(0), 1)));
    packet.header.param = 5000;
    queue.push(packet);
    eventually("the dispatch", || cells.load(0) == 1);
    assert_eq!(cells.load(1), 0b11);
}

#[test]
fn a_group_learns_its_launch_and_what_lies_beyond_is_not_run() {
    let gpu = Gpu::new();
    let (mut queue, cells, records) = (gpu.queue(), Memory::new(4096), Memory::new(1 << 16));
    let args = KernargHeader {
        global_offset: [5, 0, 0],
        // The third group in x is entirely beyond the global size.
        global_size: [13, 0, 0],
        reserved: [0; 2],
    };
    let kernarg = Kernarg::with(args, &[records.va()]);
    queue.push(dispatch(ORDERED, spoil_float_control, &kernarg, 1, None));
    let mut packet = dispatch(ORDERED, describe, &kernarg, 0, Some((cells.cell_va(0), 1)));
    packet.groups = [3, 2, 2];
    packet.group_size = [8, 4, 1];
    packet.work_dim = 3;
    packet.header.param = 1000;
    packet.scratch_bytes = 5000;
    queue.push(packet);
    eventually("the dispatch", || cells.load(0) == 1);
    for (x, y, z) in (0..3).flat_map(|x| (0..4).map(move |i| (x, i % 2, i / 2))) {
        let at = ((z * 2 + y) * 3 + x) * 16;
        if x == 2 {
            assert_eq!(records.load(at), 0, "group {x} {y} {z} must not run");
            continue;
        }
        let record: Vec<u64> = (0..10).map(|i| records.load(at + i)).collect();
        let group = (x | y << 16 | z << 32) as u64;
        assert_eq!(record, [1, 5, 13, 8, 3, 8, 3, group, 0, 0x1f80]);
    }
}

#[test]
fn an_indirect_dispatch_reads_its_groups_when_it_starts() {
    let gpu = Gpu::new();
    let (mut queue, cells) = (gpu.queue(), Memory::new(4096));
    let kernarg = Kernarg::new(&[cells.cell_va(1)]);
    let at = cells.write(256, [0u32; 3]);
    let counts = Memory::new(4096);
    counts.write(0, [3u32, 5, 7]);
    queue.write(copy(ORDERED, at, counts.va(), 12, None));
    let mut packet =
        dispatch(ORDERED | flag::INDIRECT, count_groups, &kernarg, 0, Some((cells.cell_va(0), 1)));
    packet.groups = [at as u32, (at >> 32) as u32, 0];
    queue.push(packet);
    eventually("the dispatch", || cells.load(0) == 1);
    assert_eq!(cells.load(1), 105);
}

#[test]
fn a_predicate_stops_the_work_and_nothing_else() {
    let gpu = Gpu::new();
    let (mut queue, cells) = (gpu.queue(), Memory::new(4096));
    let kernarg = Kernarg::new(&[cells.cell_va(1)]);
    let count = cells.write(256, 2u32);
    for index in 0..4 {
        queue.write(predicate(index, count));
        // A WAIT between prefix and command keeps the prefix.
        queue.write(wait_for(cells.cell_va(0), u64::from(index)));
        let signal = Some((cells.cell_va(0), u64::from(index) + 1));
        queue.write(dispatch(ORDERED, count_groups, &kernarg, 1, signal));
    }
    queue.publish();
    eventually("all four signals", || cells.load(0) == 4);
    assert_eq!(cells.load(1), 2);
}

#[test]
fn timestamps_grow_and_enclose_the_work() {
    let gpu = Gpu::new();
    let (mut queue, cells, slots) = (gpu.queue(), Memory::new(4096), Memory::new(4096));
    let kernarg = Kernarg::new(&[cells.cell_va(1)]);
    let before = gpu.device.clock_pair().1;
    for i in 0..10u64 {
        queue.write(stamp(slots.va() + i * 32));
        let signal = Some((cells.cell_va(0), i + 1));
        queue.write(dispatch(ORDERED, count_groups, &kernarg, 100, signal));
    }
    queue.publish();
    eventually("the work", || cells.load(0) == 10);
    let after = gpu.device.clock_pair().1;
    let (mut last, mut own) = (before, 0);
    for i in 0..10 {
        let [a, b, c, d] = [0, 1, 2, 3].map(|word| slots.load(i * 4 + word));
        let slot =
            TimestampSlot { global_start: a, global_end: b, context_start: c, context_end: d };
        assert!(last <= slot.global_start && slot.global_start < slot.global_end, "{slot:?}");
        assert!(own <= slot.context_start && slot.context_start < slot.context_end, "{slot:?}");
        (last, own) = (slot.global_end, slot.context_end);
    }
    assert!(last <= after);
}

#[test]
fn a_ring_grows_by_link_and_wraps() {
    let gpu = Gpu::new();
    let (mut queue, cells) = (gpu.queue(), Memory::new(4096));
    let mut value = 0;
    for packets in [16, 256, 32] {
        for _ in 0..100 {
            value += 1;
            queue.push(nop(ORDERED, Some((cells.cell_va(0), value))));
        }
        let ring = Memory::new(packets as usize * 64);
        let at = queue.tail();
        queue.push(link(ring.va(), packets));
        queue.moved(ring.va(), u64::from(packets));
        for _ in 0..10 {
            value += 1;
            queue.push(nop(ORDERED, Some((cells.cell_va(0), value))));
        }
        eventually("the link", || queue.control().head.load(Ordering::Acquire) > at);
    }
    eventually("all packets", || cells.load(0) == value);
}

#[test]
fn a_copy_engine_copies() {
    let gpu = Gpu::new();
    let mut queue = gpu.queue_on(&gpu.vm, EngineClass::Copy, 1, Priority::Low);
    let cells = Memory::new(4096);
    cells.cell(5).store(77, Ordering::Relaxed);
    let signal = Some((cells.cell_va(0), 1));
    queue.push(copy(0, cells.cell_va(6), cells.cell_va(5), 8, signal));
    eventually("the copy", || cells.load(0) == 1);
    assert_eq!(cells.load(6), 77);
}
