// SPDX-License-Identifier: MIT OR Apache-2.0
//! Traces: records of what queues run (SPEC.md, chapter 11).

use std::sync::atomic::Ordering;

use tally_device::{Config, EngineClass, Priority, QueueState, VmId};
use tally_uapi::cell::waiters_index;
use tally_uapi::fault::FaultKind;
use tally_uapi::packet::{self, opcode};

use crate::support::*;

/// "A queue whose control page names a buffer ... writes a record of each command that has done its work".
#[test]
fn commands_are_recorded_with_their_times() {
    let gpu = Gpu::new();
    let (mut queue, cells, trace) = (gpu.queue(), Memory::new(4096), TraceMemory::new(16));
    trace.record(&queue, 7);
    let kernarg = Kernarg::new(&[cells.cell_va(1)]);
    let launch: packet::Dispatch = dispatch(ORDERED, count_groups, &kernarg, 4, None);
    queue.write(launch);
    queue.write(copy(ORDERED, cells.cell_va(6), cells.cell_va(5), 8, None));
    queue.write(nop(ORDERED, Some((cells.cell_va(0), 1))));
    queue.publish();
    eventually("the signal", || cells.load(0) == 1);
    // "before its post-sync operation", which it names
    let records = trace.take();
    let kinds: Vec<_> = records.iter().map(|it| (it.opcode, it.entry, it.packet)).collect();
    let expected = [(opcode::DISPATCH, launch.entry, 0), (opcode::COPY, 0, 1), (opcode::NOP, 0, 2)];
    assert_eq!(kinds, expected);
    assert!(records.iter().all(|it| it.tag == 7 && it.start != 0 && it.start <= it.end));
    assert!(records.windows(2).all(|two| two[0].end <= two[1].start));
    let (_, now) = gpu.device.clock_pair();
    assert!(records[2].end <= now);
    let signals: Vec<_> = records.iter().map(|it| (it.cell, it.value)).collect();
    assert_eq!(signals, [(0, 0), (0, 0), (cells.cell_va(0), 1)]);
}

/// "A WAIT that has parked its queue has a record, too": from when it was parked until its cell was met.
#[test]
fn waits_that_parked_the_queue_are_recorded() {
    let gpu = Gpu::new();
    let (mut queue, cells, trace) = (gpu.queue(), Memory::new(4096), TraceMemory::new(16));
    trace.record(&queue, 3);
    queue.write(nop(ORDERED, Some((cells.cell_va(0), 1))));
    queue.write(wait_for(cells.cell_va(1), 5));
    queue.write(nop(ORDERED, Some((cells.cell_va(0), 2))));
    queue.publish();
    eventually("parking", || gpu.device.query(&queue.handle).state == QueueState::Parked);
    let (_, before) = gpu.device.clock_pair();
    cells.cell(1).store(5, Ordering::Release);
    gpu.device.wake(waiters_index(cells.cell_va(1)));
    eventually("the signal", || cells.load(0) == 2);
    let records = trace.take();
    let kinds: Vec<_> =
        records.iter().map(|it| (it.opcode, it.cell, it.value, it.packet)).collect();
    let (signalled, awaited) = (cells.cell_va(0), cells.cell_va(1));
    let expected = [
        (opcode::NOP, signalled, 1, 0),
        (opcode::WAIT, awaited, 5, 1),
        (opcode::NOP, signalled, 2, 2),
    ];
    assert_eq!(kinds, expected);
    let wait = &records[1];
    assert!(wait.tag == 3 && wait.start <= before && before <= wait.end);
    assert!(wait.end <= records[2].start);
}

/// "(in a recording, of its CALL)", which has a record of its own after those of its commands.
#[test]
fn a_recording_has_the_number_of_its_call() {
    let gpu = Gpu::new();
    let (mut queue, cells, trace) = (gpu.queue(), Memory::new(4096), TraceMemory::new(16));
    trace.record(&queue, 1);
    // All zero: two NOPs.
    let recording = Memory::new(4096);
    for base in 0..2 {
        queue.write(packet::Call {
            header: header(opcode::CALL, ORDERED, 1),
            recording: recording.va(),
            packets: 2,
            operand_count: 0,
            operands: 0,
            counter: cells.cell_va(1),
            base,
            post: packet::PostSync::default(),
        });
    }
    queue.write(nop(ORDERED, Some((cells.cell_va(0), 1))));
    queue.publish();
    eventually("the signal", || cells.load(0) == 1);
    let ran: Vec<_> = trace.take().iter().map(|it| (it.opcode, it.packet)).collect();
    let (nop, call) = (opcode::NOP, opcode::CALL);
    let expected = [(nop, 0), (nop, 0), (call, 0), (nop, 1), (nop, 1), (call, 1), (nop, 2)];
    assert_eq!(ran, expected);
}

/// "A command that finds no room has no record and is counted in `dropped`; the device waits for no reader."
#[test]
fn a_buffer_that_is_full_keeps_what_it_has() {
    let gpu = Gpu::new();
    let (mut queue, cells, trace) = (gpu.queue(), Memory::new(4096), TraceMemory::new(5));
    trace.record(&queue, 1);
    let mut run = |commands: u64, mut done: u64| {
        for _ in 0..commands {
            done += 1;
            queue.write(nop(ORDERED, Some((cells.cell_va(0), done))));
        }
        queue.publish();
        eventually("all", || cells.load(0) == done);
        let records = trace.take();
        let packets: Vec<_> = records.iter().map(|it| it.packet).collect();
        (packets, trace.header().dropped.load(Ordering::Relaxed))
    };
    assert_eq!(run(8, 0), (vec![0, 1, 2, 3, 4], 3));
    assert_eq!(run(4, 8), (vec![8, 9, 10, 11], 3), "taken places are used again");
    assert_eq!(run(9, 12), (vec![12, 13, 14, 15, 16], 7));
}

/// Records come from all workers at once, whole and each once.
#[test]
fn records_of_many_queues_share_a_buffer() {
    const EACH: u64 = 200;
    let gpu = Gpu::with(Config { workers: Some(4), ..Config::default() });
    let (cells, trace) = (Memory::new(4096), TraceMemory::new(4 * EACH));
    let kernarg = Kernarg::new(&[cells.cell_va(9)]);
    let mut queues: Vec<_> =
        (0..4).map(|i| gpu.queue_on(&gpu.vm, EngineClass::Compute, i, Priority::Normal)).collect();
    for (i, queue) in queues.iter().enumerate() {
        trace.record(queue, i as u64);
    }
    for _ in 1..EACH {
        for queue in &mut queues {
            queue.push(dispatch(0, count_groups, &kernarg, 1, None));
        }
    }
    for (i, queue) in queues.iter_mut().enumerate() {
        queue.push(nop(ORDERED, Some((cells.cell_va(i), 1))));
    }
    eventually("all", || (0..4).all(|i| cells.load(i) == 1));
    let records = trace.take();
    assert_eq!(trace.header().dropped.load(Ordering::Relaxed), 0);
    for queue in 0..4 {
        let own = records.iter().filter(|it| it.tag == queue);
        let mut packets: Vec<_> = own.map(|it| it.packet).collect();
        packets.sort_unstable();
        assert_eq!(packets, (0..EACH as u32).collect::<Vec<_>>(), "queue {queue}");
    }
}

/// "It is memory like any other that a packet names": an error in it is a fault of the queue.
#[test]
fn a_bad_buffer_loses_the_vm_that_named_it() {
    let gpu = Gpu::new();
    let gone = TraceMemory::new(16);
    gone.memory.protect(libc::PROT_READ);
    let cases =
        [(gone.memory.va() + 8, FaultKind::BadAlignment), (gone.memory.va(), FaultKind::PageFault)];
    for (i, (buffer, kind)) in cases.into_iter().enumerate() {
        let vm = gpu.device.create_vm(VmId(10 + i as u32));
        let mut queue = gpu.queue_on(&vm, EngineClass::Compute, 0, Priority::Normal);
        queue.control().trace.store(buffer, Ordering::Relaxed);
        queue.push(nop(ORDERED, None));
        eventually("the fault", || vm.is_lost());
        eventually("its report", || gpu.device.query(&queue.handle).fault.is_some());
        let fault = gpu.device.query(&queue.handle).fault.unwrap();
        assert_eq!((fault.kind, fault.packet), (kind, 0));
    }
    assert!(!gpu.vm.is_lost());
}

/// "The device reads both when it wakes": a queue that names no buffer writes no records.
#[test]
fn a_queue_without_a_buffer_writes_nothing() {
    let gpu = Gpu::new();
    let (cells, trace) = (Memory::new(4096), TraceMemory::new(16));
    let (traced, mut other) = (gpu.queue(), gpu.queue());
    trace.record(&traced, 1);
    other.push(nop(ORDERED, Some((cells.cell_va(0), 1))));
    eventually("the signal", || cells.load(0) == 1);
    assert!(trace.take().is_empty());
}
