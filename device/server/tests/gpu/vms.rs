// SPDX-License-Identifier: MIT OR Apache-2.0
//! VMs, mappings, queues, work and faults.

use std::sync::atomic::Ordering;

use tally_uapi::fault::FaultKind;
use tally_uapi::firmware::{answer_status, map_flag, op, query_value};
use tally_uapi::ioctl::queue_state;

use crate::support::{Gpu, eventually};
use crate::vm::*;

/// "Each VM has an engine process of its own, which holds the pages that VM_MAP
/// named, at their VAs": scattered pages look like one range.
#[test]
fn scattered_pages_are_one_range() {
    let gpu = Gpu::new();
    let vm = Vm::new(&gpu, 1);
    let mut queue = vm.queue_on(1);
    let first = gpu.pages(64);
    // Every second page, backwards.
    let extents: Vec<(u64, u64)> = (0..32).rev().map(|i| (first + i * 8192, 1)).collect();
    for (i, &(bus, _)) in extents.iter().enumerate() {
        gpu.memory.word(bus).store(1000 + i as u64, Ordering::Relaxed);
    }
    let source = vm.reserve(32);
    assert_eq!(vm.map_at(source, &extents, map_flag::READ), answer_status::OK);
    let (target, cell) = (vm.buffer(32, RW), vm.buffer(1, RW));
    queue.push(copy(target.va, source, 32 * 4096, Some((cell.va, 1))));
    eventually("the copy", || gpu.memory.word(cell.bus).load(Ordering::Acquire) == 1);
    for i in 0..32 {
        let got = gpu.memory.word(target.bus + i * 4096).load(Ordering::Relaxed);
        assert_eq!(got, 1000 + i);
    }
    assert!(!vm.is_lost());
}

/// "The EU calls entry(&GroupContext) once for each work-group"
#[test]
fn a_kernel_runs_all_its_groups() {
    let gpu = Gpu::new();
    let vm = Vm::new(&gpu, 7);
    let mut queue = vm.queue();
    let (out, cell) = (vm.buffer(4, RW), vm.buffer(1, RW));
    let (entry, args) = (vm.code(add_group()), vm.kernarg(&[out.va, 500]));
    for round in 1..=20 {
        queue.push(dispatch(entry, args, 2000, Some((cell.va, round))));
    }
    eventually("the kernel", || gpu.memory.word(cell.bus).load(Ordering::Acquire) == 20);
    for group in 0..2000 {
        assert_eq!(gpu.memory.word(out.bus + group * 8).load(Ordering::Relaxed), 500 + group);
    }
    let answer = queue.query();
    assert_eq!(answer.values[query_value::HEAD], 20);
    eventually("rest", || queue.state() == (queue_state::IDLE, None));
    assert_eq!(queue.destroy(), answer_status::OK);
    assert_eq!(queue.query().status, answer_status::NO_ENTRY);
    assert_eq!(vm.destroy(), answer_status::OK);
    assert_eq!(vm.destroy(), answer_status::NO_ENTRY);
}

/// "VM_MAP replaces what is mapped" and "Unmaps … When answered, the device
/// touches none of these pages."
#[test]
fn what_is_unmapped_is_not_touched() {
    let gpu = Gpu::new();
    let vm = Vm::new(&gpu, 1);
    let (mut queue, cell) = (vm.queue(), vm.buffer(1, RW));
    let (old, new) = (gpu.pages(1), gpu.pages(1));
    let va = vm.reserve(1);
    assert_eq!(vm.map_at(va, &[(old, 1)], RW), answer_status::OK);
    assert_eq!(vm.map_at(va, &[(new, 1)], RW), answer_status::OK);
    let (entry, args) = (vm.code(poke()), vm.kernarg(&[va, 5]));
    queue.push(dispatch(entry, args, 1, Some((cell.va, 1))));
    eventually("the store", || gpu.memory.word(cell.bus).load(Ordering::Acquire) == 1);
    assert_eq!(gpu.memory.word(new).load(Ordering::Relaxed), 5);
    assert_eq!(gpu.memory.word(old).load(Ordering::Relaxed), 0);
    assert_eq!(vm.unmap(va, 1), answer_status::OK);
    queue.push(dispatch(entry, args, 1, Some((cell.va, 2))));
    vm.await_loss();
    assert_eq!(queue.state(), (queue_state::STOPPED, Some(FaultKind::PageFault)));
    assert_eq!(queue.query().values[query_value::FAULT_ADDRESS], va);
    assert_eq!(gpu.memory.word(cell.bus).load(Ordering::Relaxed), 1);
}

/// "No extents: the device's own memory, which begins as zero and is discarded."
#[test]
fn null_memory_begins_as_zero() {
    let gpu = Gpu::new();
    let vm = Vm::new(&gpu, 1);
    let (mut queue, out) = (vm.queue(), vm.buffer(1, RW));
    gpu.memory.word(out.bus).store(77, Ordering::Relaxed);
    let va = vm.reserve(16);
    let map = || {
        let args = [va, 16 * 4096, 0, 0, 0, 0];
        vm.command(op::VM_MAP, RW | map_flag::NULL, 0, args).status
    };
    assert_eq!(map(), answer_status::OK);
    let (entry, args) = (vm.code(poke()), vm.kernarg(&[va + 4096, 5]));
    queue.push(dispatch(entry, args, 1, None));
    queue.push(copy(out.va, va + 8192, 8, Some((out.va + 8, 1))));
    eventually("the copy", || gpu.memory.word(out.bus + 8).load(Ordering::Acquire) == 1);
    assert_eq!(gpu.memory.word(out.bus).load(Ordering::Relaxed), 0);
    gpu.memory.word(out.bus).store(77, Ordering::Relaxed);
    assert_eq!(map(), answer_status::OK);
    queue.push(copy(out.va, va + 4096, 8, Some((out.va + 8, 2))));
    eventually("the copy", || gpu.memory.word(out.bus + 8).load(Ordering::Acquire) == 2);
    assert_eq!(gpu.memory.word(out.bus).load(Ordering::Relaxed), 0, "forgotten");
}

/// "the writable NULL memory of all VMs becomes more than the device has for it": a VM that has all of it
/// leaves none for others, which can have it after it was unmapped, or after that VM has ended.
#[test]
fn vms_share_the_null_memory() {
    let gpu = Gpu::off(&["--null-mib", "1"]);
    gpu.enable();
    let (first, second) = (Vm::new(&gpu, 1), Vm::new(&gpu, 2));
    let map = |vm: &Vm<'_>, at: u64, pages: u64| {
        let args = [WINDOW + (1 << 30) + at * 4096, pages * 4096, 0, 0, 0, 0];
        vm.command(op::VM_MAP, RW | map_flag::NULL, 0, args).status
    };
    assert_eq!(map(&first, 0, 256), answer_status::OK);
    assert_eq!(map(&first, 300, 1), answer_status::NO_SPACE);
    assert_eq!(map(&second, 0, 1), answer_status::NO_SPACE);
    assert_eq!(first.unmap(WINDOW + (1 << 30), 100), answer_status::OK);
    assert_eq!(map(&second, 0, 101), answer_status::NO_SPACE);
    assert_eq!(map(&second, 0, 100), answer_status::OK);
    // Replacing a part of it takes no more than before.
    assert_eq!(map(&second, 50, 50), answer_status::OK);
    assert_eq!(first.destroy(), answer_status::OK);
    assert_eq!(map(&second, 100, 156), answer_status::OK);
}

/// "When a VM is lost, the device sets its bit in `lost`. QUEUE_QUERY of its queues says which one
/// faulted, and where." and "Other VMs are not touched."
#[test]
fn each_fault_loses_its_vm_only() {
    let gpu = Gpu::new();
    let other = Vm::new(&gpu, 200);
    let (mut good, cell) = (other.queue(), other.buffer(1, RW));
    for (id, kernel, kind) in [
        (1, illegal(), FaultKind::IllegalInstruction),
        (2, divide(), FaultKind::ArithmeticTrap),
        (3, poke(), FaultKind::PageFault),
    ] {
        let vm = Vm::new(&gpu, id);
        let (mut bad, idle) = (vm.queue(), vm.queue());
        // Read-only memory, for the kernel that stores.
        let target = vm.buffer(1, map_flag::READ);
        let (entry, args) = (vm.code(kernel), vm.kernarg(&[target.va, 1]));
        bad.push(nop(None));
        bad.push(dispatch(entry, args, 1, None));
        vm.await_loss();
        assert_eq!(bad.state(), (queue_state::STOPPED, Some(kind)));
        assert_eq!(bad.query().values[query_value::FAULT_PACKET], 1);
        assert_eq!(idle.state(), (queue_state::STOPPED, None));
        // "Only VM_DESTROY, VM_UNMAP, QUEUE_DESTROY and QUEUE_QUERY of a lost VM
        // succeed; the others answer LOST."
        assert_eq!(vm.map_at(vm.reserve(1), &[(target.bus, 1)], RW), answer_status::LOST);
        assert_eq!(vm.unmap(target.va, 1), answer_status::OK);
        assert_eq!(idle.destroy(), answer_status::OK);
        good.push(nop(Some((cell.va, u64::from(id)))));
        eventually("the other VM", || {
            gpu.memory.word(cell.bus).load(Ordering::Acquire) == u64::from(id)
        });
        assert_eq!(vm.destroy(), answer_status::OK);
        // The id is free again.
        assert_eq!(Vm::new(&gpu, id).destroy(), answer_status::OK);
    }
    assert!(!other.is_lost());
}

/// "if its kernel does not end within the reset time …, aborted."
#[test]
fn an_endless_kernel_ends_with_its_queue() {
    let gpu = Gpu::new();
    let (vm, other) = (Vm::new(&gpu, 1), Vm::new(&gpu, 2));
    let (mut queue, cell) = (vm.queue(), vm.buffer(1, RW));
    let (entry, args) = (vm.code(endless()), vm.kernarg(&[cell.va]));
    queue.push(dispatch(entry, args, 1, Some((cell.va + 8, 1))));
    eventually("the kernel", || gpu.memory.word(cell.bus).load(Ordering::Acquire) == 1);
    assert_eq!(queue.destroy(), answer_status::OK);
    vm.await_loss();
    assert_eq!(gpu.memory.word(cell.bus + 8).load(Ordering::Relaxed), 0);
    // The same, ending the whole VM.
    let (mut queue, cell) = (other.queue(), other.buffer(1, RW));
    let (entry, args) = (other.code(endless()), other.kernarg(&[cell.va]));
    queue.push(dispatch(entry, args, 1, Some((cell.va + 8, 1))));
    eventually("the kernel", || gpu.memory.word(cell.bus).load(Ordering::Acquire) == 1);
    assert_eq!(other.destroy(), answer_status::OK);
    gpu.memory.word(cell.bus).store(0, Ordering::SeqCst);
    assert!(!other.is_lost(), "it was ended, not lost");
    assert_eq!(gpu.memory.word(cell.bus + 8).load(Ordering::Relaxed), 0);
}
