// SPDX-License-Identifier: MIT OR Apache-2.0
//! Order, overlap, priorities, substitutes, and the end of queues (SPEC.md,
//! chapters 4 and 10).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tally_device::{Config, Device, EngineClass, Error, MAX_ENGINES, Priority, QueueState, VmId};
use tally_uapi::eu::GroupContext;
use tally_uapi::fault::FaultKind;
use tally_uapi::packet::{self, opcode};

use crate::support::*;

#[test]
fn two_unordered_kernels_of_a_queue_may_wait_for_each_other() {
    for engines in [1, 4] {
        let config = Config { workers: Some(2), compute_engines: engines, ..Config::default() };
        let gpu = Gpu::with(config);
        let (mut queue, cells) = (gpu.queue(), Memory::new(4096));
        for round in 0..20 {
            let (a, b) = (cells.cell_va(10 + 2 * round), cells.cell_va(11 + 2 * round));
            let (first, second) = (Kernarg::new(&[a, b]), Kernarg::new(&[b, a]));
            let done = |i| Some((cells.cell_va(i), round as u64 + 1));
            queue.write(dispatch(0, meet, &first, 1, done(0)));
            queue.write(dispatch(0, meet, &second, 1, done(1)));
            queue.publish();
            eventually("both kernels", || {
                cells.load(0) == round as u64 + 1 && cells.load(1) == round as u64 + 1
            });
        }
    }
}

#[test]
fn a_kernel_that_arrives_while_another_runs_overlaps_it() {
    let gpu = Gpu::with(Config { workers: Some(1), ..Config::default() });
    let (mut queue, cells) = (gpu.queue(), Memory::new(4096));
    // At once, and after a rest that is long enough for all of the device's threads to sleep.
    for (round, rest) in [(0, 0), (1, 200), (2, 0), (3, 200)] {
        std::thread::sleep(Duration::from_millis(rest));
        let (a, b) = (cells.cell_va(10 + 2 * round), cells.cell_va(11 + 2 * round));
        let (first, second) = (Kernarg::new(&[a, b]), Kernarg::new(&[b, a]));
        let done = |i| Some((cells.cell_va(i), round as u64 + 1));
        queue.push(dispatch(0, meet, &first, 1, done(0)));
        eventually("the first kernel", || cells.load(10 + 2 * round) == 1);
        // The queue is not asleep, so the packet needs no KICK.
        queue.push(dispatch(0, meet, &second, 1, done(1)));
        eventually("both kernels", || {
            cells.load(0) == round as u64 + 1 && cells.load(1) == round as u64 + 1
        });
    }
}

/// The end of a device interrupts the kernels of its own threads, and not those of another device on threads
/// that have taken the places of threads that ended first.
#[test]
fn a_device_that_ends_interrupts_no_other() {
    let first = Gpu::with(Config { workers: Some(4), ..Config::default() });
    let cells = Memory::new(4096);
    let mut queue = first.queue();
    // All of its threads exist, and then all but one rest.
    let counted = Kernarg::new(&[cells.cell_va(1)]);
    queue.push(dispatch(0, count_groups, &counted, 10_000, Some((cells.cell_va(0), 1))));
    eventually("many groups", || cells.load(0) == 1);
    let stuck = Kernarg::new(&[cells.cell_va(2)]);
    queue.push(dispatch(0, endless, &stuck, 1, None));
    eventually("the endless kernel", || cells.load(2) != 0);
    drop(queue);
    std::thread::scope(|scope| {
        let end = scope.spawn(|| drop(first));
        std::thread::sleep(Duration::from_millis(20));
        let second = Gpu::with(Config { workers: Some(4), ..Config::default() });
        let mut queues = Vec::new();
        for i in 0..4 {
            let mut queue = second.queue();
            let kernarg = Kernarg::new(&[cells.cell_va(10 + i), cells.cell_va(3)]);
            queue.push(dispatch(0, meet, &kernarg, 1, Some((cells.cell_va(20 + i), 1))));
            queues.push((queue, kernarg));
        }
        eventually("the first device's end", || end.is_finished());
        cells.cell(3).store(1, Ordering::Release);
        eventually("all kernels", || (0..4).all(|i| cells.load(20 + i) == 1));
        assert!(!second.vm.is_lost());
    });
}

#[test]
fn an_ordered_command_waits_for_all_before_it() {
    let gpu = Gpu::new();
    let (mut queue, cells) = (gpu.queue(), Memory::new(4096));
    let kernarg = Kernarg::new(&[cells.cell_va(1), cells.cell_va(2)]);
    queue.write(dispatch(0, meet, &kernarg, 1, None));
    queue.write(nop(0, Some((cells.cell_va(3), 1))));
    queue.write(nop(ORDERED, Some((cells.cell_va(4), 1))));
    queue.publish();
    eventually("the unordered command", || cells.load(3) == 1);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(cells.load(4), 0);
    assert_eq!(gpu.device.query(&queue.handle).state, QueueState::Running);
    cells.cell(2).store(1, Ordering::Release);
    eventually("the ordered command", || cells.load(4) == 1);
}

#[test]
fn endless_kernels_do_not_stop_other_queues() {
    let gpu = Gpu::with(Config { workers: Some(2), compute_engines: 1, ..Config::default() });
    let cells = Memory::new(4096);
    let other = gpu.device.create_vm(VmId(2));
    let mut stuck = Vec::new();
    for i in 0..4 {
        let mut queue = gpu.queue_on(&other, EngineClass::Compute, 0, Priority::High);
        let kernarg = Kernarg::new(&[cells.cell_va(10 + i)]);
        queue.push(dispatch(0, endless, &kernarg, 1, None));
        stuck.push((queue, kernarg));
    }
    let mut queue = gpu.queue_on(&gpu.vm, EngineClass::Compute, 0, Priority::Low);
    let kernarg = Kernarg::new(&[cells.cell_va(1)]);
    for value in 1..=10 {
        queue.push(dispatch(ORDERED, count_groups, &kernarg, 100, Some((cells.cell_va(0), value))));
        eventually("the neighbour's work", || cells.load(0) == value);
    }
    eventually("all endless kernels run", || (0..4).all(|i| cells.load(10 + i) != 0));
    for (queue, _) in &stuck {
        gpu.device.destroy_queue(&queue.handle);
    }
    let stopped: Vec<u64> = (0..4).map(|i| cells.load(10 + i)).collect();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(stopped, (0..4).map(|i| cells.load(10 + i)).collect::<Vec<u64>>());
    queue.push(nop(ORDERED, Some((cells.cell_va(0), 99))));
    eventually("the neighbour goes on", || cells.load(0) == 99);
    assert!(!gpu.vm.is_lost() && other.is_lost());
}

#[test]
fn an_endless_kernel_is_aborted_and_its_vm_lost() {
    let gpu = Gpu::new();
    let (mut queue, cells) = (gpu.queue(), Memory::new(4096));
    let kernarg = Kernarg::new(&[cells.cell_va(1)]);
    queue.write(nop(0, None));
    queue.write(dispatch(0, endless, &kernarg, 100, Some((cells.cell_va(0), 1))));
    queue.publish();
    eventually("the kernel", || cells.load(1) != 0);
    let since = Instant::now();
    gpu.device.destroy_queue(&queue.handle);
    assert!(since.elapsed() >= Duration::from_millis(100), "the reset time is the kernel's");
    let fault = gpu.fault();
    assert_eq!((fault.kind, fault.packet), (FaultKind::Aborted, 1));
    assert_eq!(cells.load(0), 0, "what was aborted is not signalled");
    assert_eq!(gpu.device.query(&queue.handle).state, QueueState::Stopped);
}

#[test]
fn destroying_a_queue_completes_what_runs_and_drops_the_rest() {
    // The reset time is longer than any machine keeps a thread from its processor.
    let gpu = Gpu::with(Config { reset_time: Duration::from_secs(60), ..Config::default() });
    let (mut queue, cells) = (gpu.queue(), Memory::new(4096));
    let kernarg = Kernarg::new(&[cells.cell_va(1), cells.cell_va(2)]);
    queue.write(dispatch(0, meet, &kernarg, 1, Some((cells.cell_va(0), 1))));
    queue.write(nop(ORDERED, Some((cells.cell_va(3), 1))));
    queue.publish();
    eventually("the kernel", || cells.load(1) == 1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // No packet is taken any more, but the kernel still runs.
            let state = || gpu.device.query(&queue.handle).state;
            eventually("the end has begun", || state() == QueueState::Stopped);
            cells.cell(2).store(1, Ordering::Release);
        });
        gpu.device.destroy_queue(&queue.handle);
    });
    assert_eq!((cells.load(0), cells.load(3)), (1, 0));
    assert!(!gpu.vm.is_lost());
    // Nothing touches the queue's memory now.
    queue.memory.protect(libc::PROT_NONE);
}

#[test]
fn parked_idle_and_runnable_queues_are_destroyed_at_once() {
    let gpu = Gpu::new();
    let cells = Memory::new(4096);
    for round in 0..200 {
        let mut queue = gpu.queue();
        match round % 3 {
            0 => queue.push(wait_for(cells.cell_va(1), 1)),
            1 => queue.push(nop(0, None)),
            _ => {}
        }
        gpu.device.destroy_queue(&queue.handle);
        queue.memory.protect(libc::PROT_NONE);
    }
    assert!(!gpu.vm.is_lost());
    let word = gpu.device.waiters(tally_uapi::cell::waiters_index(cells.cell_va(1)));
    eventually("no waiter is counted", || word.load(Ordering::SeqCst) == 0);
}

#[test]
fn a_device_with_an_endless_kernel_can_be_dropped() {
    let cells = Memory::new(4096);
    let kernarg = Kernarg::new(&[cells.cell_va(1)]);
    let gpu = Gpu::new();
    let mut queue = gpu.queue();
    queue.push(dispatch(0, endless, &kernarg, 1, None));
    eventually("the kernel", || cells.load(1) != 0);
    drop(queue);
    drop(gpu);
    let stopped = cells.load(1);
    std::thread::sleep(Duration::from_millis(10));
    assert_eq!(cells.load(1), stopped);
}

#[test]
fn a_higher_priority_runs_first_and_equals_take_turns() {
    let gpu = Gpu::with(Config {
        workers: Some(1),
        // With substitutes, a thread that loses its processor would seem stuck, and another would take the next
        // queue.
        substitutes: Some(0),
        compute_engines: 1,
        ..Config::default()
    });
    let (cells, trace) = (Memory::new(4096), TraceMemory::new(16));
    let kernarg = Kernarg::new(&[cells.cell_va(1), cells.cell_va(2)]);
    let order = [Priority::Low, Priority::Normal, Priority::High, Priority::High];
    let mut queues: Vec<_> = order
        .into_iter()
        .map(|priority| gpu.queue_on(&gpu.vm, EngineClass::Compute, 0, priority))
        .collect();
    // All wait for one cell; the first look finds all waits met.
    for (i, queue) in queues.iter_mut().enumerate() {
        trace.record(queue, i as u64);
        queue.write(wait_for(cells.cell_va(0), 1));
        queue.write(dispatch(ORDERED, count_groups, &kernarg, 1, Some((cells.cell_va(20 + i), 1))));
        queue.publish();
        eventually("parking", || gpu.device.query(&queue.handle).state == QueueState::Parked);
    }
    let mut starter = gpu.queue_on(&gpu.vm, EngineClass::Compute, 0, Priority::Low);
    trace.record(&starter, 9);
    starter.push(nop(0, Some((cells.cell_va(0), 1))));
    eventually("all", || (0..4).all(|i| cells.load(20 + i) == 1));
    let records = trace.take();
    let ran = records.iter().filter(|record| record.opcode != opcode::WAIT);
    let ran: Vec<_> = ran.map(|record| record.tag).collect();
    assert_eq!(ran, [9, 2, 3, 1, 0]);
}

#[test]
fn a_busy_queue_leaves_its_engine_to_an_equal() {
    const PACKETS: u32 = 1_000_000;
    const CALLS: u64 = 40;
    let gpu = Gpu::with(Config { workers: Some(1), compute_engines: 1, ..Config::default() });
    let (mut busy, mut other, cells) = (gpu.queue(), gpu.queue(), Memory::new(4096));
    // All zero, which are NOPs, so that the next packet is always published.
    let recording = Memory::new(PACKETS as usize * 64);
    for n in 0..CALLS {
        busy.write(packet::Call {
            header: header(opcode::CALL, ORDERED, 1),
            recording: recording.va(),
            packets: PACKETS,
            operand_count: 0,
            operands: 0,
            counter: cells.cell_va(1),
            base: n,
            post: packet::PostSync::default(),
        });
    }
    // It becomes runnable when the stream has run for a while, and records itself how far the stream is, since
    // this thread may do so much later.
    other.write(wait_for(cells.cell_va(1), 1));
    other.write(copy(ORDERED, cells.cell_va(2), cells.cell_va(1), 8, None));
    other.write(nop(ORDERED, Some((cells.cell_va(0), 1))));
    other.publish();
    eventually("parking", || gpu.device.query(&other.handle).state == QueueState::Parked);
    busy.publish();
    eventually("the neighbour's turn", || cells.load(0) == 1);
    let then = cells.load(2);
    assert_ne!(then, CALLS, "only when the busy queue had nothing left");
    eventually("the stream goes on", || cells.load(1) > then);
    gpu.device.destroy_queue(&busy.handle);
}

#[test]
fn an_engine_survives_the_destruction_of_stuck_queues() {
    // No substitutes: no thread takes the stolen queue before it is destroyed.
    let gpu = Gpu::with(Config {
        workers: Some(1),
        substitutes: Some(0),
        compute_engines: 1,
        ..Config::default()
    });
    let cells = Memory::new(4096);
    let kernarg = Kernarg::new(&[cells.cell_va(1)]);
    for round in 1..=5 {
        let vm = gpu.device.create_vm(VmId(10));
        let mut stuck = gpu.queue_on(&vm, EngineClass::Compute, 0, Priority::Normal);
        let before = cells.load(1);
        stuck.push(dispatch(0, endless, &kernarg, 1, None));
        eventually("the kernel", || cells.load(1) != before);
        std::thread::sleep(Duration::from_millis(30));
        gpu.device.destroy_queue(&stuck.handle);
        stuck.memory.protect(libc::PROT_NONE);
        let mut queue = gpu.queue();
        queue.push(nop(0, Some((cells.cell_va(0), round))));
        eventually("the engine's next queue", || cells.load(0) == round);
    }
    assert!(!gpu.vm.is_lost());
}

/// Kernel: counts the group in the cell of argument 0 and keeps its thread for a millisecond.
unsafe extern "C" fn slow(context: *const GroupContext) {
    // SAFETY: argument 0 is a cell.
    unsafe { cell_arg(context, 0) }.fetch_add(1, Ordering::AcqRel);
    std::thread::sleep(Duration::from_millis(1));
}

/// Chapter 10: a command "that is half done at that time, and that no execution unit will resume, is
/// aborted, too": the queue's end does not wait for the commands of other queues.
#[test]
fn half_done_work_that_nobody_comes_back_to_is_aborted() {
    const GROUPS: u32 = 1 << 20;
    let gpu = Gpu::with(Config {
        workers: Some(2),
        substitutes: Some(0),
        compute_engines: 3,
        ..Config::default()
    });
    let cells = Memory::new(4096);
    let (vm, others) = (gpu.device.create_vm(VmId(10)), gpu.device.create_vm(VmId(11)));
    let mut left = gpu.queue_on(&vm, EngineClass::Compute, 0, Priority::Normal);
    let counted = Kernarg::new(&[cells.cell_va(1)]);
    left.push(dispatch(ORDERED, slow, &counted, GROUPS, Some((cells.cell_va(0), 1))));
    eventually("the launch", || cells.load(1) != 0);
    // These kernels keep both threads, which leave the launch for them.
    let mut stuck = Vec::new();
    for i in 0..2 {
        let mut queue = gpu.queue_on(&others, EngineClass::Compute, 1 + i, Priority::Normal);
        let i = i as usize;
        let kernarg = Kernarg::new(&[cells.cell_va(2 + i), cells.cell_va(4)]);
        queue.push(dispatch(ORDERED, meet, &kernarg, 1, Some((cells.cell_va(6 + i), 1))));
        eventually("its kernel", || cells.load(2 + i) == 1);
        stuck.push((queue, kernarg));
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            gpu.device.destroy_queue(&left.handle);
            done.store(true, Ordering::SeqCst);
        });
        let until = Instant::now() + SOON;
        while !done.load(Ordering::SeqCst) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        let (ended, ran) = (done.load(Ordering::SeqCst), cells.load(1));
        cells.cell(4).store(1, Ordering::Release);
        assert!(ended, "it waits for the other queues' kernels");
        assert!(ran < GROUPS.into(), "the launch was left");
    });
    assert_eq!(gpu.fault().kind, FaultKind::Aborted);
    left.memory.protect(libc::PROT_NONE);
    eventually("the others", || cells.load(6) == 1 && cells.load(7) == 1);
    assert!(vm.is_lost() && !others.is_lost() && !gpu.vm.is_lost());
    assert_eq!(cells.load(0), 0, "what was aborted is not signalled");
}

#[test]
fn a_device_has_as_many_engines_as_are_promised_and_no_more() {
    let config = |copy_engines| Config {
        compute_engines: 64,
        copy_engines,
        workers: Some(1),
        ..Config::default()
    };
    let gpu = Gpu::with(config(64));
    assert_eq!(MAX_ENGINES, 128);
    let cells = Memory::new(4096);
    for (class, index) in
        [(EngineClass::Compute, 63), (EngineClass::Copy, 0), (EngineClass::Copy, 63)]
    {
        let mut queue = gpu.queue_on(&gpu.vm, class, index, Priority::Normal);
        let cell = 2 * index as usize + class as usize;
        queue.push(nop(ORDERED, Some((cells.cell_va(cell), 1))));
        eventually("the queue's engine runs it", || cells.load(cell) == 1);
    }
    let refused = Device::new(config(65), Arc::new(Owner::default())).unwrap_err();
    assert!(matches!(refused, Error::TooManyEngines), "{refused}");
}
