// SPDX-License-Identifier: MIT OR Apache-2.0
//! Invalid commands: "The device trusts no command".

use std::collections::HashMap;

use tally_uapi::firmware::{Command, MAX_QUEUES, MAX_VMS, answer_status, map_flag, op};
use tally_uapi::ioctl::priority;

use crate::support::{ENTRIES, Gpu, MEMORY, Sent, eventually};
use crate::vm::*;

const PAGE: u64 = 4096;

/// "ids in their range, windows within [va_start, va_end) and page-aligned"
#[test]
fn windows_and_ids_are_checked() {
    let gpu = Gpu::new();
    let create = |vm: u32, start: u64, bytes: u64| {
        let args = [start, bytes, 0, 0, 0, 0];
        gpu.admin(&Command { opcode: op::VM_CREATE, vm, args, ..Command::default() }).status
    };
    let device = gpu.identity().device;
    let (first, end) = (device.va_start, device.va_end);
    for (vm, start, bytes) in [
        (0, WINDOW, PAGE),
        (MAX_VMS + 1, WINDOW, PAGE),
        (u32::MAX, WINDOW, PAGE),
        (1, WINDOW, 0),
        (1, WINDOW + 1, PAGE),
        (1, WINDOW, PAGE + 1),
        (1, first - PAGE, 2 * PAGE),
        (1, 0, PAGE),
        (1, end - PAGE, 2 * PAGE),
        (1, !0xfff, PAGE),
        (1, WINDOW, !0xfff),
    ] {
        assert_eq!(create(vm, start, bytes), answer_status::INVALID, "{vm} {start:#x} {bytes:#x}");
    }
    assert!(gpu.engines().is_empty());
    assert_eq!(create(1, first, end - first), answer_status::OK, "all there is");
    assert_eq!(create(1, WINDOW, PAGE), answer_status::EXISTS);
    let of =
        |opcode, vm, queue| gpu.admin(&Command { opcode, vm, queue, ..Command::default() }).status;
    for opcode in [op::VM_DESTROY, op::VM_MAP, op::VM_UNMAP, op::QUEUE_DESTROY, op::QUEUE_QUERY] {
        assert_eq!(of(opcode, 2, 0), answer_status::NO_ENTRY, "{opcode}");
    }
    for opcode in [op::QUEUE_DESTROY, op::QUEUE_QUERY] {
        for queue in [0, 1, MAX_QUEUES, MAX_QUEUES + 1, u32::MAX] {
            assert_eq!(of(opcode, 1, queue), answer_status::NO_ENTRY, "{opcode} {queue}");
        }
    }
    assert_eq!(of(op::VM_ORPHAN + 1, 1, 0), answer_status::INVALID);
    assert_eq!(of(u32::MAX, 1, 0), answer_status::INVALID);
}

/// "maps within the window and their extents together as long as the range", "bus
/// addresses must lie in the guest's memory"
#[test]
fn maps_are_checked() {
    let gpu = Gpu::new();
    let vm = Vm::new(&gpu, 1);
    let (bus, list) = (gpu.pages(4), gpu.pages(1));
    let fill = |extents: &[(u64, u64)]| {
        for (i, &(bus, bytes)) in extents.iter().enumerate() {
            let at = list + i as u64 * 16;
            gpu.memory.write(at, &bus.to_le_bytes());
            gpu.memory.write(at + 8, &bytes.to_le_bytes());
        }
    };
    let map = |flags, args| vm.command(op::VM_MAP, flags, 0, args).status;
    let good = [WINDOW, 2 * PAGE, list, 2, 0, 0];
    fill(&[(bus, PAGE), (bus + 2 * PAGE, PAGE)]);
    assert_eq!(map(RW, good), answer_status::OK);
    for flags in [0, 16, u32::MAX, map_flag::WRITE | map_flag::EXECUTE, RW | map_flag::NULL] {
        assert_eq!(map(flags, good), answer_status::INVALID, "flags {flags:#x}");
    }
    for (index, value) in [
        (0, WINDOW - PAGE),
        (0, WINDOW + 8),
        (0, WINDOW + WINDOW_BYTES - PAGE),
        (0, !0xfff),
        (1, 0),
        (1, PAGE),
        (1, 3 * PAGE),
        (1, 2 * PAGE - 1),
        (1, u64::MAX),
        (2, MEMORY),
        (2, list + 8),
        (2, !0xfff),
        (3, 0),
        (3, 1),
        (3, 257),
        (3, u64::MAX),
        (4, 1),
        (5, 1),
    ] {
        let mut args = good;
        args[index] = value;
        assert_eq!(map(RW, args), answer_status::INVALID, "args[{index}] = {value:#x}");
    }
    let outside = !0xfffu64;
    for extents in [
        [(bus, PAGE), (MEMORY, PAGE)],
        [(bus, PAGE), (MEMORY - PAGE, 2 * PAGE)],
        [(bus + 1, PAGE), (bus, PAGE)],
        [(bus, 0), (bus, 2 * PAGE)],
        [(bus, 2 * PAGE), (bus, PAGE)],
        [(bus, outside), (bus, 2 * PAGE)],
        [(outside, PAGE), (bus, PAGE)],
    ] {
        fill(&extents);
        assert_eq!(map(RW, good), answer_status::INVALID, "{extents:x?}");
    }
    for args in [[WINDOW - PAGE, PAGE], [WINDOW, 0], [WINDOW + 1, PAGE], [WINDOW, u64::MAX]] {
        let args = [args[0], args[1], 0, 0, 0, 0];
        assert_eq!(vm.command(op::VM_UNMAP, 0, 0, args).status, answer_status::INVALID);
    }
    // None of these commands has harmed the VM.
    let (mut queue, cell) = (vm.queue(), vm.buffer(1, RW));
    queue.push(nop(Some((cell.va, 1))));
    eventually("a signal", || {
        gpu.memory.word(cell.bus).load(std::sync::atomic::Ordering::Acquire) == 1
    });
}

/// "Creating a queue checks that engine, ring, control page and priority are valid."
#[test]
fn queues_are_checked() {
    let gpu = Gpu::new();
    let (vm, other) = (Vm::new(&gpu, 1), Vm::new(&gpu, 2));
    let (ring, control) = (vm.buffer(1, map_flag::READ), vm.buffer(1, RW));
    let create = |queue, args| vm.command(op::QUEUE_CREATE, 0, queue, args).status;
    let good = [ring.va, control.va, 64, 0, 0, u64::from(priority::LOW)];
    for (index, value) in [
        (0, 0),
        (0, ring.va + 8),
        (0, ring.va + 64),
        (0, !63),
        (1, 0),
        (1, ring.va),
        (1, control.va + 64),
        (1, control.va + PAGE),
        (2, 0),
        (2, 8),
        (2, 63),
        (2, 128),
        (2, 1 << 21),
        (2, u64::MAX),
        (3, 2),
        (3, u64::MAX),
        (4, 4),
        (4, u64::MAX),
        (5, 3),
        (5, u64::MAX),
    ] {
        let mut args = good;
        args[index] = value;
        assert_eq!(create(3000, args), answer_status::INVALID, "args[{index}] = {value:#x}");
    }
    assert_eq!(create(0, good), answer_status::INVALID);
    assert_eq!(create(MAX_QUEUES + 1, good), answer_status::INVALID);
    assert_eq!(create(3000, good), answer_status::OK);
    assert_eq!(create(3000, good), answer_status::EXISTS);
    // A queue of another VM does not exist for this one.
    for opcode in [op::QUEUE_DESTROY, op::QUEUE_QUERY] {
        assert_eq!(other.command(opcode, 0, 3000, [0; 6]).status, answer_status::NO_ENTRY);
    }
    gpu.write32(tally_uapi::regs::KICK, 3000);
    gpu.write32(tally_uapi::regs::KICK, 2999);
    gpu.write32(tally_uapi::regs::KICK, u32::MAX);
    gpu.write32(tally_uapi::regs::WAKE, 512);
    gpu.write32(tally_uapi::regs::WAKE, u32::MAX);
    assert_eq!(vm.command(op::QUEUE_DESTROY, 0, 3000, [0; 6]).status, answer_status::OK);
}

/// "VM_MAP answers NO_SPACE, and the range is then unmapped, if: the VM's mappings come in too many
/// pieces"
#[test]
fn too_many_pieces_are_refused() {
    let gpu = Gpu::new();
    let vm = Vm::new(&gpu, 1);
    let (mut queue, cell) = (vm.queue(), vm.buffer(1, RW));
    let bus = gpu.pages(512);
    // Every second page, so that no piece continues another.
    let extents: Vec<(u64, u64)> = (0..256).map(|i| (bus + i * 2 * PAGE, 1)).collect();
    let mut maps = 0;
    let va = vm.reserve(400 * 256);
    let refused = loop {
        let status = vm.map_at(va + maps * 256 * PAGE, &extents, RW);
        if status != answer_status::OK {
            break status;
        }
        maps += 1;
        assert!(maps < 400, "there is no limit");
    };
    assert_eq!(refused, answer_status::NO_SPACE);
    assert!(maps > 200, "only {maps} maps");
    // Earlier mappings work; the refused range faults.
    let (entry, args) = (vm.code(poke()), vm.kernarg(&[va + 255 * PAGE, 9]));
    queue.push(dispatch(entry, args, 1, Some((cell.va, 1))));
    eventually("the kernel", || {
        gpu.memory.word(cell.bus).load(std::sync::atomic::Ordering::Acquire) == 1
    });
    let args = vm.kernarg(&[va + maps * 256 * PAGE, 9]);
    queue.push(dispatch(entry, args, 1, Some((cell.va, 2))));
    vm.await_loss();
    assert_eq!(vm.destroy(), answer_status::OK);
}

/// A small random number generator: xorshift64*.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.next() as usize % choices.len()]
    }

    /// A command that is mostly valid, or has one invalid field.
    fn command(&mut self, gpu: &Gpu, pages: &[u64]) -> Command {
        let opcode = self.of(&[0, 1, 2, 2, 3, 4, 4, 4, 4, 5, 6, 6, 6, 7, 8]);
        let address = WINDOW + self.next() % 8 * PAGE;
        let count = 1 + self.next() % 4;
        let list = self.of(pages);
        let (mut flags, mut queue) = (0, 0);
        let mut args = match opcode {
            op::IDENTIFY => [self.of(pages), 0, 0, 0, 0, 0],
            op::VM_CREATE => [WINDOW, WINDOW_BYTES, 0, 0, 0, 0],
            op::VM_MAP => {
                for i in 0..count {
                    gpu.memory.write(list + i * 16, &self.of(pages).to_le_bytes());
                    gpu.memory.write(list + i * 16 + 8, &PAGE.to_le_bytes());
                }
                flags = self.of(&[RW, RW, RX, map_flag::READ]);
                [address, count * PAGE, list, count, 0, 0]
            }
            op::VM_UNMAP => [address, count * PAGE, 0, 0, 0, 0],
            op::QUEUE_CREATE => {
                let (class, priority) = (self.next() % 2, self.next() % 3);
                [address, WINDOW + self.next() % 8 * PAGE, 16 * count, class, 0, priority]
            }
            _ => [0; 6],
        };
        if opcode >= op::QUEUE_CREATE {
            queue = 1 + self.next() as u32 % 4;
        }
        let vm = if opcode >= op::VM_CREATE { 1 + self.next() as u32 % 3 } else { 0 };
        let mut command = Command { opcode, flags, vm, queue, args };
        if self.next().is_multiple_of(3) {
            let random = self.next();
            let value = self.of(&[random, 0, 1, PAGE, WINDOW, MEMORY, u64::MAX, random & !0xfff]);
            match self.next() % 10 {
                0 => command.opcode = value as u32,
                1 => command.flags = value as u32,
                2 => command.vm = value as u32,
                3 => command.queue = value as u32,
                i => {
                    args[i as usize - 4] = value;
                    command.args = args;
                }
            }
        }
        command
    }
}

fn await_answer(gpu: &Gpu, sent: Sent, seed: u64) -> u32 {
    eventually(&format!("the answer to {sent:?}, seed {seed}"), || gpu.answer(sent).is_some());
    gpu.answer(sent).unwrap().status
}

/// "Every command is answered": random commands, too. The device keeps working, and
/// leaks nothing.
#[test]
fn random_commands_are_answered() {
    let gpu = Gpu::new();
    // Objects that the first VM makes permanently exist now, and the thread that does a reset ends after it.
    Vm::new(&gpu, 1);
    gpu.reset();
    eventually("the reset's end", || gpu.count("task") == 1);
    let before = (gpu.count("fd"), gpu.count("task"));
    assert!(gpu.enable());
    let seed = std::env::var("TALLY_FUZZ_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(0x7a11_5eed);
    let rounds = std::env::var("TALLY_FUZZ_COMMANDS").ok().and_then(|count| count.parse().ok());
    let rounds: u32 = rounds.unwrap_or(4000);
    let mut random = Random(seed);
    let pages: Vec<u64> = (0..8).map(|_| gpu.pages(1)).collect();
    let mut answers = [0u32; 6];
    let mut left = rounds;
    while left > 0 {
        let batch = left.min(ENTRIES / 2);
        left -= batch;
        let mut out = HashMap::new();
        for _ in 0..batch {
            let command = random.command(&gpu, &pages);
            // One command of a VM at a time, and commands of several VMs at once.
            let slot = if command.vm <= MAX_VMS { command.vm } else { 0 };
            if let Some(sent) = out.remove(&slot) {
                answers[await_answer(&gpu, sent, seed) as usize] += 1;
            }
            out.insert(slot, gpu.submit(&command));
        }
        for sent in out.into_values() {
            answers[await_answer(&gpu, sent, seed) as usize] += 1;
        }
        // If this page is a queue's control page, the queue now has something to fetch.
        let tail = gpu.memory.word(random.of(&pages));
        tail.store(random.next() % 4, std::sync::atomic::Ordering::SeqCst);
        for queue in 0..5 {
            gpu.write32(tally_uapi::regs::KICK, queue);
        }
        gpu.write32(tally_uapi::regs::WAKE, random.next() as u32 % 600);
    }
    println!("seed {seed}: answers by status {answers:?}");
    let kinds = answers.iter().filter(|&&count| count != 0).count();
    assert!(rounds < 4000 || kinds >= 5, "{answers:?}");
    gpu.reset();
    assert!(gpu.engines().is_empty());
    // The thread that has done the reset ends after it.
    eventually("the same descriptors and threads as before", || {
        (gpu.count("fd"), gpu.count("task")) == before
    });
    assert!(gpu.enable());
    assert_eq!(Vm::new(&gpu, 1).destroy(), answer_status::OK);
}
