// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every fault stops its VM and no other (SPEC.md, chapters 2 and 9).

use std::sync::atomic::Ordering;

use tally_device::{EngineClass, Priority, QueueState, VmId};
use tally_uapi::eu::{GroupContext, KernargHeader};
use tally_uapi::fault::{Fault, FaultKind};
use tally_uapi::packet::{Packet, Region, flag, opcode};

use crate::support::*;

/// Runs a valid NOP, then the packet. Checks the properties that all faults
/// have in common, and returns the fault.
fn fault_of(packet: impl Into<Packet>) -> Fault {
    let gpu = Gpu::new();
    let other_vm = gpu.device.create_vm(VmId(2));
    let (mut queue, cells) = (gpu.queue(), Memory::new(4096));
    let mut parked = gpu.queue();
    parked.write(wait_for(cells.cell_va(3), 1));
    parked.write(nop(ORDERED, Some((cells.cell_va(4), 1))));
    parked.publish();
    eventually("parking", || gpu.device.query(&parked.handle).state == QueueState::Parked);
    queue.write(nop(ORDERED, Some((cells.cell_va(0), 1))));
    queue.write(packet);
    queue.write(nop(ORDERED, Some((cells.cell_va(1), 1))));
    queue.publish();
    let fault = gpu.fault();
    eventually("stopping", || gpu.device.query(&queue.handle).state == QueueState::Stopped);
    let status = gpu.device.query(&queue.handle);
    assert_eq!(status.fault, Some(fault));
    // A command whose work has started has released its slot.
    assert!((1..=2).contains(&status.head), "{status:?}");
    assert_eq!(fault.packet, 1);
    assert!(gpu.vm.is_lost() && !other_vm.is_lost());
    assert_eq!((cells.load(0), cells.load(1)), (1, 0));
    let lost = gpu.owner.lost.lock().unwrap().clone();
    assert_eq!(lost, [(VmId(1), queue.id, fault)]);
    // The parked queue of the VM is stopped, without a fault of its own.
    let status = gpu.device.query(&parked.handle);
    assert_eq!((status.state, status.fault), (QueueState::Stopped, None));
    // Another VM continues, and its signal wakes no queue of the lost one.
    let mut good = gpu.queue_on(&other_vm, EngineClass::Compute, 0, Priority::Normal);
    good.push(nop(ORDERED, Some((cells.cell_va(3), 1))));
    eventually("the other VM", || cells.load(3) == 1);
    eventually("idle", || gpu.device.query(&good.handle).state == QueueState::Idle);
    assert_eq!(cells.load(4), 0);
    fault
}

fn kind_of(packet: impl Into<Packet>) -> FaultKind {
    fault_of(packet).kind
}

/// Memory without access. It is not unmapped, since another test's memory could be mapped there.
fn unmapped() -> u64 {
    let memory = Memory::new(4096);
    memory.protect(libc::PROT_NONE);
    memory.va()
}

fn stray(fault: Fault) -> u64 {
    assert_eq!(fault.kind, FaultKind::PageFault);
    fault.address
}

#[test]
fn an_unknown_opcode_is_a_bad_opcode() {
    let mut packet = Packet::from(nop(0, None));
    packet.header.opcode = 0x77;
    assert_eq!(kind_of(packet), FaultKind::BadOpcode);
}

#[test]
fn a_dispatch_on_a_copy_engine_is_a_bad_opcode() {
    let gpu = Gpu::new();
    let kernarg = Kernarg::new(&[]);
    let mut queue = gpu.queue_on(&gpu.vm, EngineClass::Copy, 0, Priority::Normal);
    queue.push(dispatch(0, count_groups, &kernarg, 1, None));
    assert_eq!(gpu.fault().kind, FaultKind::BadOpcode);
}

#[test]
fn a_reserved_bit_is_a_bad_field() {
    let mut packet = nop(0, None);
    packet.zero[4] = 1;
    assert_eq!(kind_of(packet), FaultKind::BadField);
}

#[test]
fn reserved_words_in_memory_are_bad_fields() {
    let reserved = KernargHeader { reserved: [0, 1], ..KernargHeader::default() };
    let kernarg = Kernarg::with(reserved, &[]);
    let packet = dispatch(0, count_groups, &kernarg, 1, None);
    assert_eq!(kind_of(packet), FaultKind::BadField);
    let memory = Memory::new(4096);
    let region = memory.write(0, Region { reserved: 1, ..Region::default() });
    let mut packet = Packet::from(nop(0, None));
    packet.header.opcode = opcode::COPY_REGION;
    packet.body[..3].copy_from_slice(&[region, region, region]);
    assert_eq!(kind_of(packet), FaultKind::BadField);
}

#[test]
fn a_region_beyond_the_address_space_is_a_bad_field() {
    let memory = Memory::new(4096);
    let huge =
        Region { width: 1, height: 1 << 40, dst_row_pitch: 1 << 40, depth: 1, ..Region::default() };
    let region = memory.write(0, huge);
    let mut packet = Packet::from(nop(0, None));
    packet.header.opcode = opcode::COPY_REGION;
    packet.body[..3].copy_from_slice(&[region, region, region]);
    assert_eq!(kind_of(packet), FaultKind::BadField);
}

#[test]
fn a_misaligned_cell_is_a_bad_alignment() {
    assert_eq!(kind_of(nop(0, Some((4097, 1)))), FaultKind::BadAlignment);
}

#[test]
fn from_base_in_a_ring_is_bad_nesting() {
    let mut packet = nop(0, Some((4096, 1)));
    packet.header.flags |= flag::FROM_BASE;
    assert_eq!(kind_of(packet), FaultKind::BadNesting);
}

#[test]
fn a_post_sync_to_nowhere_is_a_page_fault_at_its_address() {
    let nowhere = unmapped();
    assert_eq!(stray(fault_of(nop(0, Some((nowhere + 8, 1))))), nowhere + 8);
}

#[test]
fn a_wait_on_nowhere_is_a_page_fault_at_its_address() {
    let nowhere = unmapped();
    assert_eq!(stray(fault_of(wait_for(nowhere, 1))), nowhere);
}

#[test]
fn copies_and_fills_of_nowhere_are_page_faults() {
    let (nowhere, memory) = (unmapped(), Memory::new(4096));
    assert_eq!(stray(fault_of(copy(0, memory.va(), nowhere, 8, None))), nowhere);
    assert_eq!(stray(fault_of(copy(0, nowhere, memory.va(), 8, None))), nowhere);
    assert_eq!(stray(fault_of(fill(0, nowhere, 64, &[1], None))), nowhere);
    assert_eq!(stray(fault_of(copy(0, memory.va(), 0, 8, None))), 0);
}

/// SPEC.md, chapter 9: "The work of that packet may be partly done; its post-sync operation is not done."
/// Tested with short commands and with long ones.
#[test]
fn a_copy_or_fill_that_runs_into_nowhere_is_a_page_fault_there() {
    let room = 4 << 20;
    let from = Memory::new(room);
    for bytes in [100, 5000, 20_000, 100_000, 300_000, 3 << 20] {
        let (to, cells) = (Memory::new(2 * room), Memory::new(4096));
        to.protect_from(room, libc::PROT_NONE);
        let end = to.va() + room as u64;
        let start = end - bytes / 3 * 2;
        let signal = Some((cells.cell_va(0), 1));
        for packet in [
            Packet::from(copy(ORDERED, start, from.va(), bytes, signal)),
            copy(ORDERED, from.va(), start, bytes, signal).into(),
            fill(ORDERED, start, bytes, &[7], signal).into(),
            fill(ORDERED, start, bytes, &[7, 8], signal).into(),
        ] {
            // The fault names the byte beyond the end that was touched first.
            let touched = stray(fault_of(packet));
            assert!((end..start + bytes).contains(&touched), "{bytes}: {touched:#x}, end {end:#x}");
            assert_eq!(cells.load(0), 0, "{bytes}: what faulted signals nothing");
        }
    }
}

#[test]
fn a_write_to_memory_that_is_only_readable_is_a_page_fault() {
    let memory = Memory::new(4096);
    memory.protect(libc::PROT_READ);
    assert_eq!(stray(fault_of(nop(0, Some((memory.va(), 1))))), memory.va());
}

#[test]
fn arguments_and_code_that_are_not_there_are_page_faults() {
    let (nowhere, kernarg) = (unmapped(), Kernarg::new(&[]));
    let mut packet = dispatch(0, count_groups, &kernarg, 1, None);
    packet.kernarg = nowhere;
    assert_eq!(stray(fault_of(packet)), nowhere);
    let mut packet = dispatch(0, count_groups, &kernarg, 1, None);
    packet.entry = nowhere;
    assert_eq!(stray(fault_of(packet)), nowhere);
    // Data is not executable.
    packet.entry = kernarg.0.va();
    assert_eq!(stray(fault_of(packet)), kernarg.0.va());
}

#[test]
fn a_link_to_nowhere_faults_at_the_next_packet() {
    let gpu = Gpu::new();
    let mut queue = gpu.queue();
    let nowhere = unmapped();
    queue.write(link(nowhere, 16));
    queue.moved(nowhere, 16);
    // The new ring cannot be written, so this publishes a packet without writing it.
    let tail = queue.tail() + 1;
    if queue.control().publish(tail) {
        gpu.device.kick(&queue.handle);
    }
    let fault = gpu.fault();
    assert_eq!((stray(fault), fault.packet), (nowhere + 64, 1));
}

#[test]
fn a_ring_that_goes_away_is_a_page_fault_not_a_crash() {
    let gpu = Gpu::new();
    let queue = gpu.queue();
    let va = queue.memory.va();
    queue.memory.protect(libc::PROT_NONE);
    gpu.device.kick(&queue.handle);
    assert_eq!(stray(gpu.fault()) & !4095, va);
}

/// Kernel: writes to the address in argument 0.
unsafe extern "C" fn write_to(context: *const GroupContext) {
    // SAFETY: none, since the kernel has to fault.
    unsafe { std::arch::asm!("mov qword ptr [{}], 1", in(reg) arg(context, 0)) };
}

/// Kernel: executes an undefined instruction.
unsafe extern "C" fn undefined(_context: *const GroupContext) {
    // SAFETY: none, since the kernel has to fault.
    unsafe { std::arch::asm!("ud2") };
}

/// Kernel: divides by zero.
unsafe extern "C" fn divide(_context: *const GroupContext) {
    // SAFETY: none, since the kernel has to fault.
    unsafe {
        std::arch::asm!("xor edx, edx", "xor ecx, ecx", "div ecx",
            out("eax") _, out("ecx") _, out("edx") _);
    }
}

/// Kernel: uses up its stack.
unsafe extern "C" fn recurse(context: *const GroupContext) {
    #[inline(never)]
    fn deeper(depth: u64) -> u64 {
        let frame = std::hint::black_box([depth; 64]);
        if depth == u64::MAX { 0 } else { deeper(std::hint::black_box(frame[0] + 1)) + frame[1] }
    }
    // SAFETY: the context is the device's.
    std::hint::black_box(deeper(unsafe { (*context).group[0] }.into()));
}

#[test]
fn a_kernels_stray_write_is_a_page_fault_at_its_address() {
    let nowhere = unmapped();
    for groups in [1, 1000] {
        let kernarg = Kernarg::new(&[nowhere + 24]);
        let packet = dispatch(0, write_to, &kernarg, groups, None);
        assert_eq!(stray(fault_of(packet)), nowhere + 24);
    }
}

#[test]
fn a_kernels_traps_have_their_kinds() {
    let kernarg = Kernarg::new(&[]);
    let run = |kernel| fault_of(dispatch(0, kernel, &kernarg, 1, None));
    let fault = run(undefined);
    assert_eq!(fault.kind, FaultKind::IllegalInstruction);
    assert_ne!(fault.address, 0);
    assert_eq!(run(divide).kind, FaultKind::ArithmeticTrap);
    assert_eq!(run(recurse).kind, FaultKind::PageFault);
}

#[test]
fn a_lost_vms_unfinished_work_never_signals() {
    let gpu = Gpu::new();
    let (mut queue, mut bad, cells) = (gpu.queue(), gpu.queue(), Memory::new(4096));
    let kernarg = Kernarg::new(&[cells.cell_va(1), cells.cell_va(2)]);
    queue.push(dispatch(0, meet, &kernarg, 1, Some((cells.cell_va(0), 1))));
    eventually("the kernel", || cells.load(1) == 1);
    bad.push(nop(0, Some((unmapped(), 1))));
    gpu.fault();
    cells.cell(2).store(1, Ordering::Release);
    gpu.device.destroy_queue(&queue.handle);
    assert_eq!(cells.load(0), 0);
}

#[test]
fn every_opcode_with_random_bodies_faults_or_runs_but_never_crashes() {
    let mut random = 0x1234_5678_9abc_def1u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    // Commands that begin in their memory may end beyond it.
    let (memory, args, zeroes) = (Memory::apart(1 << 17), Memory::apart(4096), Memory::apart(4096));
    zeroes.protect(libc::PROT_READ);
    for _ in 0..150 {
        let gpu = Gpu::new();
        let mut queue = gpu.queue();
        for _ in 0..20 {
            let opcodes = [0, 1, 3, 4, 5, 6, 0x20, 0x21, 0x22];
            let mut packet = Packet::default();
            packet.header.opcode = opcodes[next() as usize % opcodes.len()];
            packet.header.flags = (next() % 4) as u8;
            packet.header.param = (next() % 40) as u32;
            for word in &mut packet.body {
                *word = match next() % 4 {
                    0 => 0,
                    1 => next() % 4096,
                    2 => memory.va() + next() % 1024 * 64,
                    _ => args.va() + next() % 4096,
                };
            }
            // Sizes stay small, since a long copy would overwrite the test's own memory.
            match packet.header.opcode {
                opcode::COPY => packet.body[2] = next() % 4096,
                opcode::FILL => packet.body[1] = next() % 4096,
                opcode::COPY_REGION => packet.body[2] = zeroes.va(),
                _ => {}
            }
            if packet.header.flags & flag::POST_SYNC != 0 {
                packet.post.address = memory.va() + next() % 100 * 8;
            }
            queue.write(packet);
        }
        queue.publish();
        eventually("an end", || {
            let state = gpu.device.query(&queue.handle).state;
            matches!(state, QueueState::Stopped | QueueState::Idle | QueueState::Parked)
        });
        gpu.device.destroy_queue(&queue.handle);
    }
}
