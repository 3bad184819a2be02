// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting: parking, waking, foreign cells (SPEC.md, chapters 4 and 6).

use std::sync::atomic::Ordering;
use std::time::Duration;

use tally_device::{Config, EngineClass, Priority, QueueState};
use tally_uapi::cell::{CellKind, Compare, waiters_index};
use tally_uapi::fault::FaultKind;
use tally_uapi::firmware::MAX_ORPHANS;

use crate::support::*;

#[test]
fn a_queue_parks_until_another_signals() {
    let gpu = Gpu::new();
    let (mut waiter, mut signaller, cells) = (gpu.queue(), gpu.queue(), Memory::new(4096));
    waiter.write(wait_for(cells.cell_va(0), 3));
    waiter.write(nop(ORDERED, Some((cells.cell_va(1), 1))));
    waiter.publish();
    let parked = || gpu.device.query(&waiter.handle);
    eventually("parking", || parked().state == QueueState::Parked);
    assert_eq!(parked().parked, Some((cells.cell_va(0), 3)));
    for value in 1..=3 {
        assert_eq!(cells.load(1), 0);
        signaller.push(nop(ORDERED, Some((cells.cell_va(0), value))));
        eventually("the signal", || cells.load(0) == value);
    }
    eventually("resuming", || cells.load(1) == 1);
}

#[test]
fn every_comparison_compares() {
    let gpu = Gpu::new();
    let cases = [
        (Compare::GreaterEqual, 4, 5),
        (Compare::Greater, 5, 6),
        (Compare::LessEqual, 6, 5),
        (Compare::Less, 5, 4),
        (Compare::Equal, 4, 5),
        (Compare::NotEqual, 5, 4),
    ];
    for (compare, unmet, met) in cases {
        let (mut queue, cells) = (gpu.queue(), Memory::new(4096));
        cells.cell(0).store(unmet, Ordering::Relaxed);
        queue.write(wait(&[(cells.cell_va(0), 5, CellKind::Event, compare)]));
        queue.write(nop(0, Some((cells.cell_va(1), 1))));
        queue.publish();
        eventually("parking", || gpu.device.query(&queue.handle).state == QueueState::Parked);
        cells.cell(0).store(met, Ordering::Release);
        gpu.device.wake(waiters_index(cells.cell_va(0)));
        eventually("resuming", || cells.load(1) == 1);
    }
}

#[test]
fn a_wait_needs_all_its_entries() {
    let gpu = Gpu::new();
    let (mut queue, cells) = (gpu.queue(), Memory::new(4096));
    let entry = |i| (cells.cell_va(i), 1, CellKind::Event, Compare::GreaterEqual);
    queue.write(wait(&[entry(10), entry(11), entry(12)]));
    queue.write(nop(0, Some((cells.cell_va(0), 1))));
    queue.publish();
    for i in [12, 10, 11] {
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(cells.load(0), 0);
        cells.cell(i).store(1, Ordering::Release);
        gpu.device.wake(waiters_index(cells.cell_va(i)));
    }
    eventually("resuming", || cells.load(0) == 1);
}

#[test]
fn a_foreign_cell_is_noticed_without_a_wake() {
    let gpu = Gpu::new();
    let (mut queue, cells) = (gpu.queue(), Memory::new(4096));
    queue.write(wait(&[(cells.cell_va(0), 7, CellKind::Foreign, Compare::Equal)]));
    queue.write(nop(0, Some((cells.cell_va(1), 1))));
    queue.publish();
    eventually("parking", || gpu.device.query(&queue.handle).state == QueueState::Parked);
    std::thread::sleep(Duration::from_millis(30));
    cells.cell(0).store(7, Ordering::Release);
    eventually("resuming", || cells.load(1) == 1);
}

#[test]
fn a_counter_is_never_polled() {
    let gpu = Gpu::with(Config { workers: Some(1), substitutes: Some(0), ..Config::default() });
    let (mut queue, mut other, cells) = (gpu.queue(), gpu.queue(), Memory::new(4096));
    queue.write(wait_for(cells.cell_va(0), 1));
    queue.write(nop(0, Some((cells.cell_va(1), 1))));
    queue.publish();
    eventually("parking", || gpu.device.query(&queue.handle).state == QueueState::Parked);
    // The thread that parks a queue reads the cell once more afterwards. Now the only worker has finished that.
    other.push(nop(0, Some((cells.cell_va(2), 1))));
    eventually("the worker's next queue", || cells.load(2) == 1);
    cells.cell(0).store(1, Ordering::Release);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(cells.load(1), 0, "a host store without a wake is not looked for");
    gpu.device.wake(waiters_index(cells.cell_va(0)));
    eventually("resuming", || cells.load(1) == 1);
}

#[test]
fn a_thousand_parked_queues_block_nobody() {
    let gpu = Gpu::new();
    let cells = Memory::new(4096);
    let mut parked: Vec<_> = (0..1000)
        .map(|i| gpu.queue_on(&gpu.vm, EngineClass::Compute, i % 4, Priority::High))
        .collect();
    for (i, queue) in parked.iter_mut().enumerate() {
        let cell = cells.cell_va(if i % 2 == 0 { 100 } else { 101 });
        queue.write(wait_for(cell, 1));
        queue.write(nop(ORDERED, Some((cells.cell_va(200 + i % 300), 1))));
        queue.publish();
    }
    let is_parked =
        |queue: &TestQueue<'_>| gpu.device.query(&queue.handle).state == QueueState::Parked;
    eventually("all parked", || parked.iter().all(is_parked));

    let mut queue = gpu.queue_on(&gpu.vm, EngineClass::Compute, 0, Priority::Low);
    for value in 1..=1000 {
        queue.push(nop(ORDERED, Some((cells.cell_va(0), value))));
    }
    eventually("the free queue's work", || cells.load(0) == 1000);

    queue.push(nop(ORDERED, Some((cells.cell_va(100), 1))));
    queue.push(nop(ORDERED, Some((cells.cell_va(101), 1))));
    eventually("all resumed", || {
        parked.iter().all(|queue| gpu.device.query(&queue.handle).state == QueueState::Idle)
    });
}

#[test]
fn two_queues_play_ping_pong() {
    let gpu = Gpu::new();
    let (mut a, mut b, cells) = (gpu.queue(), gpu.queue(), Memory::new(4096));
    let rounds = 2000;
    for round in 1..=rounds {
        a.write(wait_for(cells.cell_va(1), round - 1));
        a.write(nop(ORDERED, Some((cells.cell_va(0), round))));
        a.publish();
        b.write(wait_for(cells.cell_va(0), round));
        b.write(nop(ORDERED, Some((cells.cell_va(1), round))));
        b.publish();
    }
    eventually("the last round", || cells.load(1) == rounds);
}

#[test]
fn hosts_are_told_only_where_somebody_waits() {
    let gpu = Gpu::new();
    let (mut queue, cells) = (gpu.queue(), Memory::new(4096));
    for value in 1..=100 {
        queue.push(nop(ORDERED, Some((cells.cell_va(0), value))));
    }
    eventually("the signals", || cells.load(0) == 100);
    assert_eq!(gpu.owner.interrupts.load(Ordering::Relaxed), 0);
    let word = gpu.device.waiters(waiters_index(cells.cell_va(0)));
    word.fetch_add(1, Ordering::SeqCst);
    queue.push(nop(ORDERED, Some((cells.cell_va(0), 101))));
    eventually("an interrupt", || gpu.owner.interrupts.load(Ordering::Relaxed) == 1);
    word.fetch_sub(1, Ordering::SeqCst);
}

/// "A wait that is not met is a fault, whether a queue is already parked on it or reaches it later."
#[test]
fn an_unmet_wait_on_an_orphaned_cell_is_a_fault() {
    for parked_before in [true, false] {
        let gpu = Gpu::new();
        let (mut queue, cells) = (gpu.queue(), Memory::new(4096));
        cells.cell(9).store(4, Ordering::Relaxed);
        let page = cells.va()..cells.va() + 4096;
        if !parked_before {
            gpu.device.orphan(page.clone());
        }
        // "The cells keep their values, and waits that are met are taken as usual."
        queue.write(wait_for(cells.cell_va(9), 4));
        queue.write(wait_for(cells.cell_va(9), 5));
        queue.write(nop(0, Some((cells.cell_va(0), 1))));
        queue.publish();
        if parked_before {
            eventually("parking", || gpu.device.query(&queue.handle).state == QueueState::Parked);
            gpu.device.orphan(page.clone());
        }
        eventually("the loss", || gpu.vm.is_lost());
        let status = || gpu.device.query(&queue.handle);
        eventually("stopping", || status().state == QueueState::Stopped);
        let fault = status().fault.expect("this queue has faulted");
        assert_eq!(fault.kind, FaultKind::Orphaned);
        assert_eq!((fault.address, fault.packet), (cells.cell_va(9), 1));
        assert_eq!(cells.load(0), 0, "nothing behind the wait was run");
    }
}

// A range that is cut keeps its rest; ranges that touch are joined.
#[test]
fn orphans_are_kept_apart_and_joined() {
    let gpu = Gpu::new();
    let (mut queue, cells) = (gpu.queue(), Memory::new(4096));
    let at = |cell: u64| cells.va() + cell * 8;
    assert!(gpu.device.orphan(at(0)..at(8)));
    gpu.device.adopt(at(2)..at(6));
    queue.write(wait_for(cells.cell_va(4), 1));
    queue.publish();
    eventually("parking", || gpu.device.query(&queue.handle).state == QueueState::Parked);
    assert!(!gpu.vm.is_lost());
    for cell in (10..).step_by(2).take(MAX_ORPHANS - 2) {
        assert!(gpu.device.orphan(at(cell)..at(cell + 1)));
    }
    assert!(!gpu.device.orphan(at(1 << 20)..at((1 << 20) + 1)), "too many");
    // The range between 6 to 8 and 10 to 11 joins both to one.
    assert!(gpu.device.orphan(at(8)..at(10)));
    assert!(gpu.device.orphan(at(1 << 20)..at((1 << 20) + 1)));
    assert!(!gpu.vm.is_lost());
    assert!(gpu.device.orphan(at(2)..at(5)));
    eventually("the loss", || gpu.vm.is_lost());
}

#[test]
fn an_adopted_range_is_waited_for_again() {
    let gpu = Gpu::new();
    let (mut queue, mut signaller, cells) = (gpu.queue(), gpu.queue(), Memory::new(4096));
    gpu.device.orphan(cells.va()..cells.va() + 4096);
    gpu.device.adopt(cells.va()..cells.va() + 4096);
    queue.write(wait_for(cells.cell_va(9), 1));
    queue.write(nop(0, Some((cells.cell_va(0), 1))));
    queue.publish();
    eventually("parking", || gpu.device.query(&queue.handle).state == QueueState::Parked);
    signaller.push(nop(ORDERED, Some((cells.cell_va(9), 1))));
    eventually("resuming", || cells.load(0) == 1);
}

/// SPEC.md, chapter 6, for short commands that are published at once: a thread that waits for any one of their
/// signals continues.
#[test]
fn each_of_several_short_signals_wakes_who_waits_for_it() {
    const CELLS: usize = 8;
    let gpu = Gpu::new();
    let (cells, woken) = (Memory::new(4096), Memory::new(4096));
    let mut waiters: Vec<_> = (0..CELLS).map(|_| gpu.queue()).collect();
    let mut queue = gpu.queue();
    for value in 1..=200 {
        for (i, waiter) in waiters.iter_mut().enumerate() {
            waiter.write(wait_for(cells.cell_va(i), value));
            waiter.push(nop(ORDERED, Some((woken.cell_va(i), value))));
        }
        if value % 2 == 0 {
            let parked =
                |q: &TestQueue<'_>| gpu.device.query(&q.handle).state == QueueState::Parked;
            eventually("all wait", || waiters.iter().all(parked));
        }
        for i in 0..CELLS {
            queue.write(nop(ORDERED, None));
            queue.write(nop(ORDERED, Some((cells.cell_va(i), value))));
        }
        queue.publish();
        eventually("all go on", || (0..CELLS).all(|i| woken.load(i) == value));
    }
}
