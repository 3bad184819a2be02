// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recordings and CALL (SPEC.md, chapter 8).

use std::sync::Mutex;
use std::sync::atomic::Ordering;

use tally_device::{Config, EngineClass, Priority, QueueState};
use tally_uapi::cell::{CellKind, Compare};
use tally_uapi::packet::{self, Operand, Packet, PostSync, TimestampSlot, WaitEntry, flag, opcode};

use crate::support::*;

/// Packets in memory of their own.
struct Recording(Memory, u32);

impl Recording {
    fn new(packets: &[Packet]) -> Self {
        let memory = Memory::new(packets.len().max(1) * 64);
        for (i, packet) in packets.iter().enumerate() {
            memory.write(i * 64, *packet);
        }
        Self(memory, packets.len() as u32)
    }

    fn call(
        &self,
        flags: u8,
        counter: u64,
        base: u64,
        signals: u32,
        signal: Signal,
    ) -> packet::Call {
        let (more, post) = match signal {
            Some((address, value)) => (flag::POST_SYNC, PostSync { address, value }),
            None => (0, PostSync::default()),
        };
        packet::Call {
            header: header(opcode::CALL, flags | more, signals),
            recording: self.0.va(),
            packets: self.1,
            operand_count: 0,
            operands: 0,
            counter,
            base,
            post,
        }
    }
}

/// A signal of a recording: counter = base + k.
fn from_base(counter: u64, k: u64) -> packet::Nop {
    let mut nop = nop(ORDERED, Some((counter, k)));
    nop.header.flags |= flag::FROM_BASE;
    nop
}

/// SPEC.md, Packets: "a program that has the device in its process can be told of it when the NOP starts".
#[test]
fn the_owner_is_told_of_numbered_nops() {
    static TOLD: Mutex<Vec<(u32, u64)>> = Mutex::new(Vec::new());
    let numbers: fn(u32, u64) = |number, base| TOLD.lock().unwrap().push((number, base));
    let gpu = Gpu::with(Config { numbers: Some(numbers), ..Config::default() });
    let (mut queue, cells) = (gpu.queue(), Memory::new(4096));
    let numbered = |number| {
        let mut nop = nop(ORDERED, None);
        nop.header.param = number;
        nop
    };
    let counter = cells.cell_va(0);
    let recording = Recording::new(&[numbered(2).into(), from_base(counter, 1).into()]);
    queue.push(numbered(1));
    queue.push(nop(ORDERED, None));
    queue.push(recording.call(ORDERED, counter, 0, 1, None));
    queue.push(recording.call(ORDERED, counter, 1, 1, None));
    eventually("both executions", || cells.load(0) == 2);
    assert_eq!(*TOLD.lock().unwrap(), [(1, 0), (2, 0), (2, 1)]);
}

fn add_one(cell: u64) -> packet::Nop {
    let mut nop = nop(ORDERED, Some((cell, 1)));
    nop.header.post_op = packet::PostOp::Add as u8;
    nop
}

#[test]
fn executions_in_order_count_up_the_recordings_counter() {
    let gpu = Gpu::new();
    let (mut queue, cells) = (gpu.queue(), Memory::new(4096));
    let counter = cells.cell_va(0);
    cells.cell(0).store(100, Ordering::Relaxed);
    // The CALL would raise the counter anyway; the other cell shows the base.
    let packets = [
        from_base(counter, 1).into(),
        from_base(cells.cell_va(3), 1).into(),
        from_base(counter, 2).into(),
    ];
    let recording = Recording::new(&packets);
    for n in 0..50 {
        let signal = Some((cells.cell_va(1), n + 1));
        queue.push(recording.call(ORDERED, counter, 100 + 2 * n, 2, signal));
    }
    eventually("the last execution", || cells.load(1) == 50);
    assert_eq!((cells.load(0), cells.load(3)), (200, 199));
    assert_eq!(gpu.device.query(&queue.handle).head, 50);
}

#[test]
fn the_counter_is_raised_by_the_call_where_the_recording_does_not() {
    let gpu = Gpu::new();
    let (mut queue, cells) = (gpu.queue(), Memory::new(4096));
    let recording = Recording::new(&[]);
    let mut call = recording.call(0, cells.cell_va(0), 0, 7, Some((cells.cell_va(1), 1)));
    call.recording = 0;
    queue.push(call);
    eventually("the call", || cells.load(1) == 1);
    assert_eq!(cells.load(0), 7);
}

#[test]
fn an_execution_submitted_too_early_parks_until_the_one_before_has_run() {
    let gpu = Gpu::new();
    let (mut first, mut second, cells) = (gpu.queue(), gpu.queue(), Memory::new(4096));
    let counter = cells.cell_va(0);
    let recording = Recording::new(&[add_one(cells.cell_va(5)).into()]);
    second.push(recording.call(0, counter, 1, 1, Some((cells.cell_va(2), 1))));
    let status = || gpu.device.query(&second.handle);
    eventually("parking", || status().state == QueueState::Parked);
    assert_eq!(status().parked, Some((counter, 1)));
    assert_eq!(cells.load(5), 0);
    first.push(recording.call(0, counter, 0, 1, Some((cells.cell_va(1), 1))));
    eventually("both", || cells.load(1) == 1 && cells.load(2) == 1);
    assert_eq!((cells.load(0), cells.load(5)), (2, 2));
}

#[test]
fn overlapping_executions_on_many_queues_serialise() {
    let gpu = Gpu::new();
    let cells = Memory::new(4096);
    let counter = cells.cell_va(0);
    // Not atomic: copies a word out, increments it in a kernel, copies it back.
    let kernarg = Kernarg::new(&[cells.cell_va(6)]);
    let recording = Recording::new(&[
        copy(ORDERED, cells.cell_va(6), cells.cell_va(5), 8, None).into(),
        dispatch(ORDERED, count_groups, &kernarg, 1, None).into(),
        copy(ORDERED, cells.cell_va(5), cells.cell_va(6), 8, None).into(),
        from_base(counter, 1).into(),
    ]);
    let on = |i| gpu.queue_on(&gpu.vm, EngineClass::Compute, i, Priority::Normal);
    let mut queues: Vec<_> = (0..4).map(on).collect();
    let rounds = 400;
    for n in 0..rounds {
        queues[n as usize % 4].push(recording.call(0, counter, n, 1, None));
    }
    eventually("all executions", || cells.load(0) == rounds);
    assert_eq!(cells.load(5), rounds);
}

#[test]
fn operands_bind_the_waits_of_one_execution() {
    let gpu = Gpu::new();
    let (mut queue, cells, block) = (gpu.queue(), Memory::new(4096), Memory::new(4096));
    let mut waits = wait(&[(cells.cell_va(9), 1, CellKind::Event, Compare::Equal)]);
    waits.header.param = 2;
    waits.entries[1] = WaitEntry { address: 0, value: 1 };
    waits.operands = 2;
    cells.cell(9).store(1, Ordering::Relaxed);
    let recording = Recording::new(&[waits.into(), add_one(cells.cell_va(1)).into()]);
    let operand =
        |address, value, kind| Operand { address, value, kind, compare: 0, reserved: [0; 6] };
    block.write(24, operand(cells.cell_va(3), 5, CellKind::Counter as u8));
    block.write(72, operand(0, 0, 0));
    let mut call = recording.call(ORDERED, cells.cell_va(0), 0, 1, Some((cells.cell_va(2), 1)));
    (call.operand_count, call.operands) = (2, block.va());
    queue.push(call);
    let status = || gpu.device.query(&queue.handle);
    eventually("parking", || status().state == QueueState::Parked);
    assert_eq!(status().parked, Some((cells.cell_va(3), 5)));
    // The block has been read, so changing it now has no effect.
    block.write(24, operand(cells.cell_va(4), 1, CellKind::Counter as u8));
    let mut other = gpu.queue();
    other.push(nop(0, Some((cells.cell_va(3), 5))));
    eventually("the first execution", || cells.load(2) == 1);
    // This time the operand is already met.
    let mut call = recording.call(ORDERED, cells.cell_va(0), 1, 1, Some((cells.cell_va(2), 2)));
    (call.operand_count, call.operands) = (2, block.va() + 48);
    queue.push(call);
    eventually("the second execution", || cells.load(2) == 2);
    assert_eq!(cells.load(1), 2);
}

#[test]
fn a_call_is_complete_when_all_its_commands_are() {
    let gpu = Gpu::new();
    let (mut queue, cells) = (gpu.queue(), Memory::new(4096));
    let (gate, started) = (cells.cell_va(8), cells.cell_va(7));
    // The recording itself waits for the gate, unordered.
    let kernarg = Kernarg::new(&[started, gate]);
    let recording = Recording::new(&[
        dispatch(0, meet, &kernarg, 1, Some((cells.cell_va(1), 1))).into(),
        nop(0, Some((cells.cell_va(2), 1))).into(),
    ]);
    queue.write(recording.call(0, cells.cell_va(0), 0, 3, Some((cells.cell_va(3), 1))));
    queue.write(nop(0, Some((cells.cell_va(4), 1))));
    queue.write(nop(ORDERED, Some((cells.cell_va(5), 1))));
    queue.publish();
    eventually("the kernel", || cells.load(7) == 1);
    eventually("the unordered command after the call", || cells.load(4) == 1);
    assert_eq!(cells.load(2), 1, "the recording's second command overlaps the first");
    for i in [0, 1, 3, 5] {
        assert_eq!(cells.load(i), 0, "cell {i} before the kernel's end");
    }
    cells.cell(8).store(1, Ordering::Release);
    eventually("the ordered command", || cells.load(5) == 1);
    assert_eq!((cells.load(0), cells.load(1), cells.load(3)), (3, 1, 1));
}

#[test]
fn a_call_with_an_unmet_predicate_keeps_its_promises_without_its_work() {
    let gpu = Gpu::new();
    let (mut queue, cells) = (gpu.queue(), Memory::new(4096));
    let count = cells.write(512, 0u32);
    let recording = Recording::new(&[add_one(cells.cell_va(1)).into()]);
    queue.write(predicate(0, count));
    queue.write(recording.call(ORDERED, cells.cell_va(0), 0, 4, Some((cells.cell_va(2), 1))));
    queue.publish();
    eventually("the call", || cells.load(2) == 1);
    assert_eq!((cells.load(0), cells.load(1)), (4, 0));
}

#[test]
fn a_stamped_call_spans_its_commands_and_a_prefix_at_its_end_is_dropped() {
    let gpu = Gpu::new();
    let (mut queue, cells, slots) = (gpu.queue(), Memory::new(4096), Memory::new(4096));
    let recording = Recording::new(&[
        stamp(slots.va() + 32).into(),
        nop(ORDERED, None).into(),
        stamp(slots.va() + 64).into(),
    ]);
    queue.write(stamp(slots.va()));
    queue.write(recording.call(ORDERED, cells.cell_va(0), 0, 0, None));
    queue.write(nop(ORDERED, Some((cells.cell_va(1), 1))));
    queue.publish();
    eventually("the work", || cells.load(1) == 1);
    let slot = |i: usize| TimestampSlot {
        global_start: slots.load(i * 4),
        global_end: slots.load(i * 4 + 1),
        context_start: slots.load(i * 4 + 2),
        context_end: slots.load(i * 4 + 3),
    };
    let (call, inner, dropped) = (slot(0), slot(1), slot(2));
    assert!(call.global_start <= inner.global_start && inner.global_end <= call.global_end);
    assert!(inner.global_start != 0);
    assert_eq!(dropped, TimestampSlot::default());
}
