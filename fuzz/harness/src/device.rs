// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets that the device library takes from rings and recordings.
//!
//! Packets are generated, not decoded from the input: their addresses lead into the [`Arena`], to guard
//! pages, or to where no page can be, and their sizes stay below the guard. All else is arbitrary.

use std::arch::asm;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use arbitrary::{Result, Unstructured};
use tally_device::{
    Config, Device, EngineClass, Host, Priority, QueueConfig, QueueHandle, QueueId, QueueState, Vm,
    VmId,
};
use tally_uapi::PAGE_SIZE;
use tally_uapi::disasm::Line;
use tally_uapi::eu::GroupContext;
use tally_uapi::fault::Fault;
use tally_uapi::packet::{Command, Operand, PACKET_SIZE, Packet, Place, Region, flag, opcode};
use tally_uapi::queue::QueueControl;
use zerocopy::{FromBytes, IntoBytes};

use crate::arena::{Arena, GUARD, PART};

/// The number of packets of each ring.
const RING: u32 = 32;
/// The number of queues of an input.
const QUEUES: usize = 3;
/// The number of packets, shapes and counts that LINK, CALL, COPY_REGION and INDIRECT may use.
const PREPARED: u64 = 64;
/// The maximum time that the device needs for any input, with a wide margin.
const SOON: Duration = Duration::from_secs(20);

/// Ignores the device's notifications.
struct Deaf;

impl Host for Deaf {
    fn semaphore_interrupt(&self, _bucket: usize) {}
    fn vm_lost(&self, _vm: VmId, _queue: QueueId, _fault: Fault) {}
}

/// The device and the memory, made once; one input at a time uses them.
struct Bench {
    device: Device,
    arena: Arena,
    /// The address of each queue's control page and ring.
    rings: [u64; QUEUES],
}

fn bench() -> &'static Mutex<Bench> {
    static BENCH: OnceLock<Mutex<Bench>> = OnceLock::new();
    BENCH.get_or_init(|| {
        let config =
            Config { compute_engines: 2, copy_engines: 1, workers: Some(2), ..Config::default() };
        let device = Device::new(config, Arc::new(Deaf)).expect("threads for a device");
        let bytes = PAGE_SIZE + u64::from(RING) * PACKET_SIZE;
        let rings = [(); QUEUES].map(|()| {
            let layout = std::alloc::Layout::from_size_align(
                bytes.next_multiple_of(PAGE_SIZE) as usize,
                PAGE_SIZE as usize,
            );
            // SAFETY: the size is not 0.
            let at = unsafe { std::alloc::alloc_zeroed(layout.expect("a few pages")) };
            assert!(!at.is_null());
            at.expose_provenance() as u64
        });
        Mutex::new(Bench { device, arena: Arena::new(), rings })
    })
}

/// Runs the packets that the input describes on three queues of one VM.
///
/// # Panics
/// If a queue does not come to rest, if one that rests without a fault has not consumed
/// everything, or if the device or the disassembler panics.
pub fn packets(data: &[u8]) {
    for raw in
        data.chunks_exact(PACKET_SIZE as usize).filter_map(|it| Packet::read_from_bytes(it).ok())
    {
        for place in [Place::Ring, Place::Recording] {
            let simple = matches!(
                raw.decode(place),
                Ok(Command::Nop(_) | Command::Copy(_) | Command::Fill(_))
            );
            assert_eq!(raw.in_place(place).is_some(), simple, "{raw:?}");
            let _ = Line { packet: &raw, place }.to_string();
        }
    }
    let bench = bench().lock().unwrap_or_else(PoisonError::into_inner);
    // An input that ends early describes fewer packets.
    let _ = bench.run(&mut Unstructured::new(data));
}

impl Bench {
    fn run(&self, u: &mut Unstructured<'_>) -> Result<()> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let vm = self.device.create_vm(VmId(NEXT.fetch_add(1, Ordering::Relaxed)));
        self.prepare(u)?;
        let queues: Vec<QueueHandle> = (0..QUEUES).map(|index| self.queue(&vm, index)).collect();
        let mut tails = [0; QUEUES];
        for (index, queue) in queues.iter().enumerate() {
            let count = u.int_in_range(0..=RING - 1)?;
            for number in 0..count {
                let packet = Generator { u, arena: &self.arena }.packet();
                let Ok(packet) = packet else { break };
                let slot = self.rings[index] + PAGE_SIZE + u64::from(number) * PACKET_SIZE;
                // SAFETY: the slot is in the ring, which is large enough and aligned, and the device
                // has not been notified of it.
                unsafe { ptr::with_exposed_provenance_mut::<Packet>(slot as usize).write(packet) };
                tails[index] += 1;
            }
            if self.control(index).publish(tails[index]) {
                self.device.kick(queue);
            }
        }
        let states = self.rest(&queues);
        for (index, state) in states.iter().enumerate() {
            let status = self.device.query(&queues[index]);
            let done = status.head == tails[index];
            assert!(
                *state != QueueState::Idle || done,
                "idle at packet {} of {}",
                status.head,
                tails[index]
            );
            assert!(status.fault.is_none() || vm.is_lost(), "a fault loses the VM");
        }
        self.device.destroy_vm(&vm);
        Ok(())
    }

    /// Waits until every queue is idle, parked or stopped.
    fn rest(&self, queues: &[QueueHandle]) -> Vec<QueueState> {
        let until = Instant::now() + SOON;
        loop {
            let states: Vec<QueueState> =
                queues.iter().map(|queue| self.device.query(queue).state).collect();
            if !states.contains(&QueueState::Running) {
                return states;
            }
            assert!(Instant::now() < until, "the queues do not come to rest: {states:?}");
            std::thread::yield_now();
        }
    }

    fn control(&self, index: usize) -> &QueueControl {
        // SAFETY: the page is never freed and holds a control page since `queue`; all of it is atomics.
        unsafe { &*ptr::with_exposed_provenance(self.rings[index] as usize) }
    }

    fn queue(&self, vm: &Vm, index: usize) -> QueueHandle {
        let at = self.rings[index];
        // SAFETY: the page is ours, and the device has forgotten the queue that had it before.
        unsafe {
            ptr::with_exposed_provenance_mut::<QueueControl>(at as usize)
                .write(QueueControl::new());
        }
        let class = if index == 2 { EngineClass::Copy } else { EngineClass::Compute };
        let config = QueueConfig {
            id: QueueId(index as u32),
            class,
            index: (index % 2) as u32 * u32::from(class == EngineClass::Compute),
            priority: Priority::Normal,
            ring: at + PAGE_SIZE,
            packets: RING,
            control: at,
        };
        self.device.create_queue(vm, &config).expect("the VM is new and the memory is there")
    }

    /// Fills the memory that is read-only for the device.
    fn prepare(&self, u: &mut Unstructured<'_>) -> Result<()> {
        self.arena.seal(false);
        let seed = u.arbitrary::<u8>()?;
        for i in 0..PREPARED {
            let (a, b) = (u64::from(seed) % 5, i % 7);
            let shape = Region {
                width: 16 * a + b,
                height: b,
                depth: 1 + a,
                dst_row_pitch: 64 + i,
                dst_slice_pitch: 1024 * b,
                src_row_pitch: 8 * i,
                src_slice_pitch: 100 * a,
                reserved: u64::from(i == 63),
            };
            self.arena.write(self.readable(SHAPES, i), shape);
            // Zero, valid counts, or more than allowed.
            let groups = [[0, 1, 1], [3, 2, 1], [1, 1, 1], [u32::MAX; 3]][(i % 4) as usize];
            self.arena.write(self.readable(GROUPS, i), groups);
            let operand = Operand {
                address: self.arena.writable() + 8 * i,
                value: b,
                kind: (i % 5) as u8,
                compare: (i % 7) as u8,
                reserved: [0; 6],
            };
            self.arena.write(self.readable(OPERANDS, 0) + i * size_of::<Operand>() as u64, operand);
        }
        let mut end = false;
        for i in 0..PART / PACKET_SIZE {
            let packet = match end {
                true => Packet::default(),
                false => Generator { u, arena: &self.arena }.packet().unwrap_or_else(|_| {
                    end = true;
                    Packet::default()
                }),
            };
            end |= i >= PREPARED;
            self.arena.write(self.arena.packets() + i * PACKET_SIZE, packet);
        }
        self.arena.seal(true);
        Ok(())
    }

    fn readable(&self, table: u64, i: u64) -> u64 {
        self.arena.readable() + table + i * PACKET_SIZE
    }
}

/// Offsets of tables in the readable part.
const SHAPES: u64 = 0;
const GROUPS: u64 = PREPARED * PACKET_SIZE;
const OPERANDS: u64 = 2 * PREPARED * PACKET_SIZE;

/// Generates packets from bytes.
struct Generator<'a, 'b> {
    u: &'a mut Unstructured<'b>,
    arena: &'a Arena,
}

impl Generator<'_, '_> {
    /// An address that is valid, read-only, not mapped, or impossible.
    fn address(&mut self) -> Result<u64> {
        let (kind, offset) = self.u.arbitrary::<(u8, u16)>()?;
        let aligned = u64::from(offset) & !7;
        Ok(match kind % 16 {
            0 => 0,
            1 => [0x10, 1 << 47, 1 << 63, u64::MAX, u64::MAX - 7][usize::from(offset) % 5],
            2 => self.arena.writable() - GUARD / 2,
            3 => self.arena.readable() + aligned,
            4 => self.arena.writable() + u64::from(offset),
            // There are few of these, so that packets access the same ones.
            5..12 => self.arena.writable() + aligned % 128,
            _ => self.arena.writable() + aligned,
        })
    }

    /// An entry of a prepared table, or an invalid address.
    fn entry(&mut self, table: u64, stride: u64) -> Result<u64> {
        let entry = u64::from(self.u.arbitrary::<u8>()?);
        Ok(match entry {
            250.. => [0, 0x10, 1 << 63, self.arena.writable() - GUARD / 2][entry as usize % 4],
            _ => table + entry % PREPARED * stride,
        })
    }

    fn small(&mut self) -> Result<u64> {
        Ok(match self.u.arbitrary::<u8>()? {
            255 => u64::MAX,
            254 => self.u.arbitrary::<u64>()?,
            value => u64::from(value % 16),
        })
    }

    fn size(&mut self) -> Result<u64> {
        Ok(match self.u.arbitrary::<u8>()? {
            255 => self.u.arbitrary::<u64>()? % (GUARD / 4),
            value => u64::from(value) * 8 + u64::from(value % 3),
        })
    }

    fn packet(&mut self) -> Result<Packet> {
        const OPCODES: [u8; 10] = [
            opcode::NOP,
            opcode::WAIT,
            opcode::STAMP,
            opcode::PREDICATE,
            opcode::LINK,
            opcode::CALL,
            opcode::DISPATCH,
            opcode::COPY,
            opcode::COPY_REGION,
            opcode::FILL,
        ];
        let (choice, flags) = self.u.arbitrary::<(u8, u8)>()?;
        let mut packet = Packet::default();
        packet.header.opcode = match choice {
            255 => self.u.arbitrary::<u8>()?,
            _ => OPCODES[usize::from(choice) % OPCODES.len()],
        };
        // A reserved bit may be set, rarely.
        packet.header.flags = if flags >= 240 { flags } else { flags & flag::ALL };
        packet.header.post_op = self.u.arbitrary::<u8>()? % 8 / 2;
        let plain = !matches!(
            packet.header.opcode,
            opcode::WAIT | opcode::STAMP | opcode::PREDICATE | opcode::LINK
        );
        if !plain {
            packet.header.flags &= flags >> 4;
            packet.header.post_op = 0;
        } else if packet.header.flags & flag::POST_SYNC != 0 {
            packet.post.address = self.address()?;
            packet.post.value = self.small()?;
        } else {
            packet.header.post_op = 0;
        }
        self.body(&mut packet)?;
        Ok(packet)
    }

    fn body(&mut self, packet: &mut Packet) -> Result<()> {
        match packet.header.opcode {
            opcode::WAIT => self.wait(packet)?,
            opcode::STAMP => packet.body[0] = self.address()?,
            opcode::PREDICATE => {
                packet.header.param = self.small()? as u32;
                packet.body[0] = self.address()?;
            }
            opcode::LINK => {
                packet.header.param = 16 << (self.u.arbitrary::<u8>()? % 8);
                packet.body[0] = self.entry(self.arena.packets(), PACKET_SIZE)?;
            }
            opcode::CALL => {
                packet.header.param = self.small()? as u32;
                packet.body[0] = self.entry(self.arena.packets(), PACKET_SIZE)?;
                let operands = self.small()? as u32;
                let count = self.u.arbitrary::<u8>()? % 32;
                packet.body[1] = u64::from(operands) << 32 | u64::from(count);
                let stride = size_of::<Operand>() as u64;
                packet.body[2] = self.entry(self.arena.readable() + OPERANDS, stride)?;
                if operands == 0 {
                    packet.body[2] = 0;
                }
                packet.body[3] = self.address()?;
                packet.body[4] = self.small()?;
            }
            opcode::DISPATCH => self.dispatch(packet)?,
            opcode::COPY => {
                (packet.body[0], packet.body[1]) = (self.address()?, self.address()?);
                packet.body[2] = self.size()?;
            }
            opcode::COPY_REGION => {
                (packet.body[0], packet.body[1]) = (self.address()?, self.address()?);
                packet.body[2] = self.entry(self.arena.readable() + SHAPES, PACKET_SIZE)?;
            }
            opcode::FILL => {
                packet.header.param = 1 + self.u.arbitrary::<u8>()? as u32 % 130;
                (packet.body[0], packet.body[1]) = (self.address()?, self.size()?);
                packet.body[2] = self.address()?;
                packet.body[3] = if packet.header.param > 16 { 0 } else { self.u.arbitrary()? };
            }
            _ => packet.body[0] = self.u.arbitrary::<u8>()? as u64 / 128,
        }
        Ok(())
    }

    fn wait(&mut self, packet: &mut Packet) -> Result<()> {
        let entries = 1 + u32::from(self.u.arbitrary::<u8>()? % 4);
        packet.header.param = entries;
        let mut words = [0_u64; 7];
        for i in 0..entries.min(3) as usize {
            words[2 * i] = self.address()?;
            words[2 * i + 1] = self.small()?;
        }
        let mut tail = [0_u8; 8];
        for (i, byte) in tail.iter_mut().enumerate() {
            let used = i % 3 < entries as usize && i < 6;
            if used {
                *byte = self.u.arbitrary::<u8>()? % if i < 3 { 5 } else { 7 };
            }
        }
        if tail[0] == 4 {
            // An operand of the CALL.
            (tail[0], tail[3], tail[6]) = (0, 0, 1);
            words[0] = 0;
        }
        words[6] = u64::from_le_bytes(tail);
        packet.as_mut_bytes()[8..].copy_from_slice(words.as_bytes());
        Ok(())
    }

    fn dispatch(&mut self, packet: &mut Packet) -> Result<()> {
        type Entry = unsafe extern "C" fn(*const GroupContext);
        const KERNELS: [Entry; 4] = [nothing, scribble, stray, illegal];
        let choice = self.u.arbitrary::<u8>()?;
        packet.header.param = match choice % 8 {
            7 => self.u.arbitrary::<u32>()?,
            n => u32::from(n) * 64,
        };
        packet.body[0] = match choice {
            // Most kernels are harmless, since a fault ends the queue.
            0..200 => KERNELS[usize::from(choice) % 2] as usize as u64,
            200..240 => KERNELS[usize::from(choice) % 4] as usize as u64,
            _ => self.address()?,
        };
        packet.body[1] = self.entry(self.arena.readable() + SHAPES, PACKET_SIZE)?;
        if packet.header.flags & flag::INDIRECT != 0 {
            packet.body[2] = self.entry(self.arena.readable() + GROUPS, PACKET_SIZE)?;
        }
        let mut launch = [0_u32; 6];
        if packet.header.flags & flag::INDIRECT == 0 {
            let groups = self.u.arbitrary::<[u8; 3]>()?.map(|n| u32::from(n % 6));
            launch[..3].copy_from_slice(&groups);
        } else {
            launch[0] = packet.body[2] as u32;
            launch[1] = (packet.body[2] >> 32) as u32;
        }
        launch[3] = self.u.arbitrary::<u16>()?.into();
        let size = self.u.arbitrary::<[u8; 3]>()?.map(|n| if n > 250 { n } else { n % 12 });
        launch[4] = u32::from(size[0]) | u32::from(size[1]) << 16;
        launch[5] = u32::from(size[2]) | u32::from(self.u.arbitrary::<u8>()? % 5) << 16;
        packet.as_mut_bytes()[24..48].copy_from_slice(launch.as_bytes());
        Ok(())
    }
}

/// Kernel: does nothing.
unsafe extern "C" fn nothing(_: *const GroupContext) {}

/// Kernel: reads all its inputs, and writes the memory that it may write.
unsafe extern "C" fn scribble(context: *const GroupContext) {
    // SAFETY: the device passes a context with a launch; its arguments begin behind a header that
    // the device has read.
    unsafe {
        let launch = (*context).launch.read_volatile();
        let sum = launch.num_groups[0] ^ launch.work_dim ^ (*context).group[0];
        std::hint::black_box(sum);
    }
}

/// Kernel: writes to an unmapped address.
unsafe extern "C" fn stray(_: *const GroupContext) {
    // SAFETY: none; the device stops it there, which is what is tested.
    unsafe { ptr::without_provenance_mut::<u8>(0x10).write_volatile(1) };
}

/// Kernel: executes an instruction that does not exist.
unsafe extern "C" fn illegal(_: *const GroupContext) {
    // SAFETY: as for `stray`.
    unsafe { asm!("ud2") };
}
