// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cells that several VMs and the guest share: waiters are woken, and others are
//! not disturbed.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tally_uapi::cell::{waiter_enters, waiter_leaves, waiters_index};
use tally_uapi::fault::FaultKind;
use tally_uapi::firmware::{MAX_ORPHANS, answer_status, map_flag, op, query_value};
use tally_uapi::ioctl::queue_state;
use tally_uapi::regs;

use crate::support::{Gpu, eventually};
use crate::vm::*;

fn parked(queue: &Queue<'_>) -> bool {
    queue.state().0 == queue_state::PARKED
}

/// "The device also counts there, for the queues that wait in the bucket": a signal of one VM wakes
/// a queue of another, in both directions.
#[test]
fn vms_wake_each_other() {
    let gpu = Gpu::new();
    let (a, b) = (Vm::new(&gpu, 1), Vm::new(&gpu, 2));
    let (mut of_a, mut of_b) = (a.queue(), b.queue());
    // Each VM has its own counter and only reads the other's.
    let (first, second) = (a.buffer(1, RW), b.buffer(1, RW));
    let first_of_b = b.share(first.bus, map_flag::READ);
    let second_of_a = a.share(second.bus, map_flag::READ);
    for round in 1..=200 {
        // A signals the round, B answers it, A waits for the answer.
        of_a.push(nop(Some((first.va, round))));
        of_b.push(wait_for(first_of_b.va, round));
        of_b.push(nop(Some((second.va, round))));
        of_a.push(wait_for(second_of_a.va, round));
    }
    of_a.push(nop(Some((first.va + 8, 1))));
    eventually("the last answer", || gpu.memory.word(first.bus + 8).load(Ordering::Acquire) == 1);
    assert_eq!(gpu.memory.word(second.bus).load(Ordering::Relaxed), 200);
    assert!(!a.is_lost() && !b.is_lost());
    // Nothing waits any more, so all counts are 0.
    let waiters = &gpu.waiters_page().waiters;
    eventually("an empty waiters page", || {
        waiters.iter().all(|word| word.load(Ordering::SeqCst) == 0)
    });
}

/// "While the word is zero no signal causes an interrupt."
#[test]
fn a_signal_without_a_sleeper_interrupts_nobody() {
    let gpu = Gpu::new();
    let vm = Vm::new(&gpu, 1);
    let (mut queue, cell) = (vm.queue(), vm.buffer(1, RW));
    let before = gpu.answers_interrupts();
    for value in 1..=1000 {
        queue.push(nop(Some((cell.va, value))));
    }
    eventually("the signals", || gpu.memory.word(cell.bus).load(Ordering::Acquire) == 1000);
    // Queues of the same VM that wait for each other do not concern the guest.
    let mut other = vm.queue();
    for value in 1..=100 {
        other.push(wait_for(cell.va + 8, value));
        queue.push(nop(Some((cell.va + 8, value))));
    }
    other.push(nop(Some((cell.va + 16, 1))));
    eventually("the waits", || gpu.memory.word(cell.bus + 16).load(Ordering::Acquire) == 1);
    let answers = 2 + 1;
    let after = gpu.answers_interrupts();
    // The second queue's creation: two buffers and itself.
    assert_eq!(after - before, answers, "interrupts");
}

/// "A host thread that sleeps on a cell counts itself in the waiters page" and
/// "The device sets the bit, then interrupts. … A bit that is set already needs
/// no second interrupt."
#[test]
fn a_sleeper_is_interrupted_once() {
    let gpu = Gpu::new();
    let vm = Vm::new(&gpu, 1);
    let (mut queue, cell) = (vm.queue(), vm.buffer(1, RW));
    // Two sleepers: the device looks at the buckets of one word upwards, so after the second cell's interrupt
    // all earlier signals of the first have been seen.
    let (first, second) = (waiters_index(cell.va), waiters_index(cell.va + 8));
    let word = |at| gpu.memory.word(cell.bus + at);
    let waiters = [first, second].map(|bucket| &gpu.waiters_page().waiters[bucket]);
    let signalled = &gpu.status_page().signalled[first / 64];
    let [bit, last] = [first, second].map(|bucket| 1u64 << (bucket % 64));
    assert!(first / 64 == second / 64 && bit < last);
    let compare = tally_uapi::cell::Compare::GreaterEqual;
    let interrupts = || gpu.status_page().interrupts.load(Ordering::SeqCst);
    let (before, rounds) = (gpu.answers_interrupts(), 50);
    for round in 1..=rounds {
        assert!(waiter_enters(waiters[0], word(0), compare, round));
        assert!(waiter_enters(waiters[1], word(8), compare, round));
        queue.push(nop(Some((cell.va, round))));
        eventually("the bit", || signalled.load(Ordering::SeqCst) & bit != 0);
        assert!(word(0).load(Ordering::Acquire) >= round, "the cell is written first");
        queue.push(nop(Some((cell.va, round))));
        queue.push(nop(Some((cell.va + 8, round))));
        eventually("the other bit", || signalled.load(Ordering::SeqCst) & last != 0);
        // The interrupt follows the bit.
        eventually("both interrupts", || interrupts() >= before + 2 * round);
        assert_eq!(interrupts() - before, 2 * round, "one for each sleeper");
        signalled.fetch_and(!(bit | last), Ordering::SeqCst);
        waiters.into_iter().for_each(waiter_leaves);
    }
    eventually("interrupts", || gpu.interrupts() != 0);
}

/// "After a host write to a cell the driver executes a full fence, wakes its own sleepers, and writes the
/// bucket to WAKE."
#[test]
fn a_host_write_wakes_queues() {
    let gpu = Gpu::new();
    let (a, b) = (Vm::new(&gpu, 1), Vm::new(&gpu, 2));
    let cell = a.buffer(1, RW);
    let of_b = b.share(cell.bus, map_flag::READ);
    let (mut first, mut second) = (a.queue(), b.queue());
    let done = [a.buffer(1, RW), b.buffer(1, RW)];
    for round in 1..=50 {
        first.push(wait_for(cell.va, round));
        first.push(nop(Some((done[0].va, round))));
        second.push(wait_for(of_b.va, round));
        second.push(nop(Some((done[1].va, round))));
        if round % 10 == 1 {
            eventually("parking", || parked(&first) && parked(&second));
        }
        gpu.memory.word(cell.bus).store(round, Ordering::SeqCst);
        // The same as the driver does, since the device never polls a counter.
        let bucket = waiters_index(cell.va) as u32;
        if gpu.waiters_page().waiters[bucket as usize].load(Ordering::SeqCst) != 0 {
            gpu.write32(regs::WAKE, bucket);
        }
        for done in done {
            eventually("the wake", || gpu.memory.word(done.bus).load(Ordering::Acquire) == round);
        }
    }
}

/// "The waiter increments the word, executes a full fence, reads the cell again": a
/// write after a queue has parked and before the device has counted it sees a word
/// of zero, and the queue is still woken.
#[test]
fn a_write_before_the_count_is_not_lost() {
    let gpu = Gpu::new();
    let vm = Vm::new(&gpu, 1);
    let (mut queue, cells) = (vm.queue(), vm.buffer(1, RW));
    let word = |index: u64| gpu.memory.word(cells.bus + index * 8);
    let (entry, args) = (vm.code(until_told()), vm.kernarg(&[cells.va]));
    queue.push(dispatch(entry, args, 1, None));
    queue.push(wait_for(cells.va + 8, 1));
    queue.push(nop(Some((cells.va + 16, 1))));
    eventually("the kernel", || word(0).load(Ordering::Acquire) == 1);
    // The hub is stopped while the queue parks, and so cannot count it.
    gpu.signal(libc::SIGSTOP);
    eventually("the hub stands still", || gpu.is_stopped());
    word(0).store(2, Ordering::SeqCst);
    std::thread::sleep(Duration::from_millis(50));
    word(1).store(1, Ordering::SeqCst);
    let waiters = &gpu.waiters_page().waiters[waiters_index(cells.va + 8)];
    assert_eq!(waiters.load(Ordering::SeqCst), 0, "it was counted already");
    gpu.signal(libc::SIGCONT);
    eventually("the wake", || word(2).load(Ordering::Acquire) == 1);
}

/// "VM_ORPHAN declares the cells in a range of VAs orphaned": "A wait that is not met is a
/// fault, whether a queue is already parked on it or reaches it later", "until they are unmapped".
#[test]
fn an_unmet_wait_on_an_orphaned_cell_loses_its_vm() {
    let gpu = Gpu::new();
    for (id, parked_before) in [(1, true), (2, false)] {
        let vm = Vm::new(&gpu, id);
        let (mut queue, cells) = (vm.queue(), vm.buffer(1, RW));
        let orphan =
            |address, bytes| vm.command(op::VM_ORPHAN, 0, 0, [address, bytes, 0, 0, 0, 0]).status;
        // After an unmapping the address is like any other.
        let old = vm.buffer(1, RW);
        assert_eq!(orphan(old.va, 4096), answer_status::OK);
        assert_eq!(vm.unmap(old.va, 1), answer_status::OK);
        assert_eq!(vm.map_at(old.va, &[(old.bus, 1)], RW), answer_status::OK);
        queue.push(wait_for(old.va, 1));
        eventually("parking", || parked(&queue));
        gpu.memory.word(old.bus).store(1, Ordering::SeqCst);
        gpu.write32(regs::WAKE, waiters_index(old.va) as u32);

        gpu.memory.word(cells.bus + 8).store(4, Ordering::SeqCst);
        if !parked_before {
            assert_eq!(orphan(cells.va + 8, 8), answer_status::OK);
        }
        queue.push(wait_for(cells.va + 8, 4));
        queue.push(nop(Some((cells.va, 1))));
        queue.push(wait_for(cells.va + 8, 5));
        queue.push(nop(Some((cells.va, 2))));
        eventually("the met wait", || gpu.memory.word(cells.bus).load(Ordering::Acquire) == 1);
        if parked_before {
            eventually("parking", || parked(&queue));
            assert_eq!(orphan(cells.va, 4096), answer_status::OK);
        }
        vm.await_loss();
        assert_eq!(queue.state(), (queue_state::STOPPED, Some(FaultKind::Orphaned)));
        assert_eq!(queue.query().values[query_value::FAULT_ADDRESS], cells.va + 8);
        assert_eq!(gpu.memory.word(cells.bus).load(Ordering::Acquire), 1);
        assert_eq!(orphan(cells.va, 4096), answer_status::LOST);
    }
}

/// "A VM can have 1,024 such ranges that do not touch; beyond that the answer is NO_SPACE".
#[test]
fn orphaned_ranges_are_checked_and_counted() {
    let gpu = Gpu::new();
    let vm = Vm::new(&gpu, 1);
    let orphan =
        |address, bytes| vm.command(op::VM_ORPHAN, 0, 0, [address, bytes, 0, 0, 0, 0]).status;
    for (address, bytes) in [
        (WINDOW + 4, 8),
        (WINDOW, 4),
        (WINDOW, 0),
        (WINDOW - 8, 16),
        (WINDOW + WINDOW_BYTES - 8, 16),
        (!7, 16),
        (WINDOW, !7),
    ] {
        assert_eq!(orphan(address, bytes), answer_status::INVALID, "{address:#x} {bytes:#x}");
    }
    for index in 0..MAX_ORPHANS as u64 {
        assert_eq!(orphan(WINDOW + index * 64, 8), answer_status::OK);
    }
    assert_eq!(orphan(WINDOW + (1 << 30), 8), answer_status::NO_SPACE);
    // A range that joins others makes room.
    assert_eq!(orphan(WINDOW, 256), answer_status::OK);
    assert_eq!(orphan(WINDOW + (1 << 30), 8), answer_status::OK);
    assert!(!vm.is_lost());
}

/// "the driver … in the waiters page, in the word of the cell's bucket": a VM that
/// ends is no longer counted.
#[test]
fn a_vm_that_goes_is_not_counted() {
    let gpu = Gpu::new();
    let vm = Vm::new(&gpu, 1);
    let (mut queue, cell) = (vm.queue(), vm.buffer(1, RW));
    queue.push(wait_for(cell.va, 1));
    let waiters = &gpu.waiters_page().waiters[waiters_index(cell.va)];
    eventually("the count", || waiters.load(Ordering::SeqCst) == 1);
    assert!(parked(&queue));
    assert_eq!(vm.destroy(), answer_status::OK);
    assert_eq!(waiters.load(Ordering::SeqCst), 0);
}
