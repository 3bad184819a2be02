// SPDX-License-Identifier: MIT OR Apache-2.0
//! The driver's side of VMs and queues, packets, and kernels in machine code.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tally_uapi::cell::{CellKind, Compare};
use tally_uapi::fault::FaultKind;
use tally_uapi::firmware::{Answer, Command, answer_status, map_flag, op, query_value};
use tally_uapi::packet::{self, Header, Packet, PostSync, WaitEntry, flag, opcode};
use tally_uapi::queue::QueueControl;
use zerocopy::IntoBytes;

use crate::support::{Gpu, eventually};

pub const RW: u32 = map_flag::READ | map_flag::WRITE;
pub const RX: u32 = map_flag::READ | map_flag::EXECUTE;
/// The address at which the tests' VMs begin. They all have the same addresses.
pub const WINDOW: u64 = 0x2000_0000_0000;
pub const WINDOW_BYTES: u64 = 1 << 38;
/// Packets of the tests' rings.
const PACKETS: u64 = 64;

/// Memory of a VM.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    pub va: u64,
    pub bus: u64,
}

/// A VM.
pub struct Vm<'a> {
    pub gpu: &'a Gpu,
    pub id: u32,
    next: AtomicU64,
}

impl<'a> Vm<'a> {
    pub fn new(gpu: &'a Gpu, id: u32) -> Self {
        let vm = Self { gpu, id, next: AtomicU64::new(WINDOW) };
        let answer = vm.command(op::VM_CREATE, 0, 0, [WINDOW, WINDOW_BYTES, 0, 0, 0, 0]);
        assert_eq!(answer.status, answer_status::OK, "no VM");
        vm
    }

    pub fn command(&self, opcode: u32, flags: u32, queue: u32, args: [u64; 6]) -> Answer {
        self.gpu.admin(&Command { opcode, flags, vm: self.id, queue, args })
    }

    pub fn destroy(&self) -> u32 {
        self.command(op::VM_DESTROY, 0, 0, [0; 6]).status
    }

    /// Reserves free VAs.
    pub fn reserve(&self, pages: u64) -> u64 {
        // A page in between, so that an access beyond the end faults.
        self.next.fetch_add((pages + 1) * 4096, Ordering::Relaxed)
    }

    /// Maps extents of {bus address, pages} at `va`. Returns the status.
    pub fn map_at(&self, va: u64, extents: &[(u64, u64)], access: u32) -> u32 {
        let list = self.gpu.pages(1);
        let words: Vec<u64> =
            extents.iter().flat_map(|&(bus, pages)| [bus, pages * 4096]).collect();
        self.gpu.memory.write(list, words.as_bytes());
        let bytes = extents.iter().map(|extent| extent.1 * 4096).sum();
        let args = [va, bytes, list, extents.len() as u64, 0, 0];
        self.command(op::VM_MAP, access, 0, args).status
    }

    pub fn unmap(&self, va: u64, pages: u64) -> u32 {
        self.command(op::VM_UNMAP, 0, 0, [va, pages * 4096, 0, 0, 0, 0]).status
    }

    /// Fresh memory of the VM.
    pub fn buffer(&self, pages: u64, access: u32) -> Buffer {
        let (va, bus) = (self.reserve(pages), self.gpu.pages(pages));
        assert_eq!(self.map_at(va, &[(bus, pages)], access), answer_status::OK);
        Buffer { va, bus }
    }

    /// The guest's page at `bus` in this VM, too.
    pub fn share(&self, bus: u64, access: u32) -> Buffer {
        let va = self.reserve(1);
        assert_eq!(self.map_at(va, &[(bus, 1)], access), answer_status::OK);
        Buffer { va, bus }
    }

    /// Puts a kernel's code into the VM. Returns its entry.
    pub fn code(&self, code: &[u8]) -> u64 {
        let buffer = self.buffer(1, RX);
        self.gpu.memory.write(buffer.bus, code);
        buffer.va
    }

    /// An argument block of 64-bit words.
    pub fn kernarg(&self, args: &[u64]) -> u64 {
        let buffer = self.buffer(1, RW);
        self.gpu.memory.write(buffer.bus + 64, args.as_bytes());
        buffer.va
    }

    pub fn queue(&self) -> Queue<'a> {
        self.queue_on(0)
    }

    /// A queue on the first engine of a class.
    pub fn queue_on(&self, class: u64) -> Queue<'a> {
        static IDS: AtomicU32 = AtomicU32::new(1);
        let (control, ring) = (self.buffer(1, RW), self.buffer(1, RW));
        self.gpu.memory.at::<QueueControl>(control.bus).asleep.store(1, Ordering::Relaxed);
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        let args = [ring.va, control.va, PACKETS, class, 0, 1];
        let answer = self.command(op::QUEUE_CREATE, 0, id, args);
        assert_eq!(answer.status, answer_status::OK, "no queue");
        Queue { gpu: self.gpu, vm: self.id, id, control, ring, tail: 0 }
    }

    /// Waits until the VM's bit is set among the lost ones, and clears it.
    pub fn await_loss(&self) {
        let lost = &self.gpu.status_page().lost[self.id as usize / 64];
        let bit = 1 << (self.id % 64);
        eventually("the loss of the VM", || lost.load(Ordering::SeqCst) & bit != 0);
        lost.fetch_and(!bit, Ordering::SeqCst);
    }

    pub fn is_lost(&self) -> bool {
        let lost = &self.gpu.status_page().lost[self.id as usize / 64];
        lost.load(Ordering::SeqCst) & 1 << (self.id % 64) != 0
    }
}

/// A queue, which lives until it is destroyed.
pub struct Queue<'a> {
    pub gpu: &'a Gpu,
    vm: u32,
    pub id: u32,
    control: Buffer,
    ring: Buffer,
    tail: u64,
}

impl Queue<'_> {
    pub fn push(&mut self, packet: impl Into<Packet>) {
        let control = self.gpu.memory.at::<QueueControl>(self.control.bus);
        let full = || self.tail - control.head.load(Ordering::Acquire) >= PACKETS;
        if full() {
            eventually("room in the ring", || !full());
        }
        let slot = self.ring.bus + self.tail % PACKETS * 64;
        self.gpu.memory.write(slot, packet.into().as_bytes());
        self.tail += 1;
        if control.publish(self.tail) {
            self.gpu.write32(tally_uapi::regs::KICK, self.id);
        }
    }

    fn command(&self, opcode: u32) -> Answer {
        self.gpu.admin(&Command { opcode, vm: self.vm, queue: self.id, ..Command::default() })
    }

    pub fn destroy(&self) -> u32 {
        self.command(op::QUEUE_DESTROY).status
    }

    pub fn query(&self) -> Answer {
        self.command(op::QUEUE_QUERY)
    }

    /// State and fault of the queue.
    pub fn state(&self) -> (u32, Option<FaultKind>) {
        let answer = self.query();
        assert_eq!(answer.status, answer_status::OK);
        let value = answer.values[query_value::STATE];
        (value as u32, FaultKind::from_raw((value >> 32) as u32))
    }
}

pub type Signal = Option<(u64, u64)>;

fn header(opcode: u8, flags: u8, param: u32) -> Header {
    Header { opcode, flags, param, ..Header::default() }
}

fn post(signal: Signal) -> (u8, PostSync) {
    match signal {
        Some((address, value)) => (flag::ORDERED | flag::POST_SYNC, PostSync { address, value }),
        None => (flag::ORDERED, PostSync::default()),
    }
}

pub fn nop(signal: Signal) -> packet::Nop {
    let (flags, post) = post(signal);
    packet::Nop { header: header(opcode::NOP, flags, 0), zero: [0; 5], post }
}

pub fn copy(dst: u64, src: u64, size: u64, signal: Signal) -> packet::Copy {
    let (flags, post) = post(signal);
    packet::Copy { header: header(opcode::COPY, flags, 0), dst, src, size, zero: [0; 2], post }
}

pub fn wait_for(address: u64, value: u64) -> packet::Wait {
    let mut wait = packet::Wait {
        header: header(opcode::WAIT, 0, 1),
        entries: [WaitEntry::default(); 3],
        kinds: [0; 3],
        compares: [0; 3],
        operands: 0,
        reserved: 0,
    };
    wait.entries[0] = WaitEntry { address, value };
    wait.kinds[0] = CellKind::Counter as u8;
    wait.compares[0] = Compare::GreaterEqual as u8;
    wait
}

/// A DISPATCH of `groups` groups of one item.
pub fn dispatch(entry: u64, kernarg: u64, groups: u32, signal: Signal) -> packet::Dispatch {
    let (flags, post) = post(signal);
    packet::Dispatch {
        header: header(opcode::DISPATCH, flags, 0),
        entry,
        kernarg,
        groups: [groups, 1, 1],
        scratch_bytes: 0,
        group_size: [1, 1, 1],
        work_dim: 1,
        post,
    }
}

/// Declares functions that give the machine code of kernels. A kernel gets a
/// `GroupContext` in rdi: the arguments are at [rdi + 8], the group at [rdi + 32].
macro_rules! kernels {
    ($($(#[$doc:meta])* $name:ident: $($line:literal),+ $(,)?;)+) => {$(
        std::arch::global_asm!(
            ".pushsection .rodata",
            concat!("tally_test_", stringify!($name), ":"),
            $($line,)+
            concat!("tally_test_", stringify!($name), "_end:"),
            ".popsection",
        );
        $(#[$doc])*
        pub fn $name() -> &'static [u8] {
            let (start, end): (usize, usize);
            // SAFETY: takes two addresses; the code between them is never run here.
            unsafe {
                std::arch::asm!(
                    concat!("lea {}, [rip + tally_test_", stringify!($name), "]"),
                    concat!("lea {}, [rip + tally_test_", stringify!($name), "_end]"),
                    out(reg) start, out(reg) end,
                );
                std::slice::from_raw_parts(start as *const u8, end - start)
            }
        }
    )+};
}
pub(crate) use kernels;

kernels! {
    /// args[0][group] = args[1] + group
    add_group:
        "mov rsi, [rdi + 8]",
        "mov eax, [rdi + 32]",
        "mov rdx, [rsi]",
        "mov rcx, [rsi + 8]",
        "add rcx, rax",
        "mov [rdx + rax * 8], rcx",
        "ret";
    /// Stores 1 to args[0] and never ends.
    endless:
        "mov rsi, [rdi + 8]",
        "mov rdx, [rsi]",
        "mov qword ptr [rdx], 1",
        "2: pause",
        "jmp 2b";
    /// Stores 1 to args[0] and runs until args[0] is 2.
    until_told:
        "mov rsi, [rdi + 8]",
        "mov rdx, [rsi]",
        "mov qword ptr [rdx], 1",
        "2: pause",
        "cmp qword ptr [rdx], 2",
        "jne 2b",
        "ret";
    /// *args[0] = args[1], without any check.
    poke:
        "mov rsi, [rdi + 8]",
        "mov rdx, [rsi]",
        "mov rcx, [rsi + 8]",
        "mov [rdx], rcx",
        "ret";
    illegal: "ud2";
    divide: "xor ecx, ecx", "mov eax, 1", "cdq", "idiv ecx", "ret";
}
