// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pipes through the stock loader: in memory of the application, whose layout is in
//! `compiler/docs/pipes.md`, and of a module's own.

use std::thread;
use std::time::{Duration, Instant};

use tally_tests::check;
use tally_tests::ze::{self, Gpu, Usm};
use tally_ze::*;

/// A test that takes longer hangs.
const HUNG: Duration = Duration::from_secs(300);

/// Each item tries `tries` times to write, or to read, a packet, and counts what it has read in `seen`.
const KERNELS: &str = "
    kernel void writes(write_only pipe int p, global int *next, int last, int tries)
    {
        for (int t = 0; t < tries; t++) {
            reserve_id_t r = reserve_write_pipe(p, 1);
            if (!is_valid_reserve_id(r))
                continue;
            int packet = atomic_inc(next);
            if (packet >= last)
                packet = last;
            write_pipe(p, r, 0, &packet);
            commit_write_pipe(p, r);
        }
    }
    kernel void reads(read_only pipe int p, global int *seen, int last, int tries)
    {
        for (int t = 0; t < tries; t++) {
            int packet;
            if (read_pipe(p, &packet) == 0)
                atomic_inc(&seen[packet]);
        }
    }";

/// The number of packets that go through the pipe.
const PACKETS: i32 = 20_000;
const SLOTS: u32 = 100;

/// The memory of an empty pipe of `SLOTS` ints.
fn empty_pipe(gpu: &Gpu) -> Usm<u32> {
    let packets = (64 + 4 * SLOTS).next_multiple_of(128);
    let memory = gpu.host::<u32>((packets + 4 * SLOTS) as usize / 4);
    memory.set(0, SLOTS);
    memory.set(1, 4);
    memory
}

/// Launches 8 groups of a kernel with a pipe, a buffer, and how far to count, until `done`.
fn repeat(
    gpu: &Gpu,
    module: ze_module_handle_t,
    name: &str,
    pipe: &Usm<u32>,
    numbers: &Usm<i32>,
    done: impl Fn() -> bool,
) {
    let began = Instant::now();
    let [pipe, numbers] = [pipe.address(), numbers.address()].map(u64::to_le_bytes);
    let [last, tries] = [PACKETS, 20].map(i32::to_le_bytes);
    while !done() {
        gpu.run(module, name, [8, 64], &[&pipe, &numbers, &last, &tries]);
        assert!(began.elapsed() < HUNG, "{name} hangs");
    }
}

/// Two kernels that run at once pass packets through a pipe of a hundred slots: each packet arrives once.
#[test]
fn kernels_that_run_at_once_lose_no_packet() {
    let gpu = Gpu::new();
    let module = gpu.module(&ze::spirv_from(KERNELS), "").expect("it is valid");
    let (pipe, next, seen) =
        (empty_pipe(&gpu), gpu.host::<i32>(1), gpu.host::<i32>(PACKETS as usize + 1));
    let arrived = |packet: usize| seen.get(packet);
    let all = || (0..PACKETS as usize).all(|packet| arrived(packet) > 0);
    thread::scope(|scope| {
        scope.spawn(|| repeat(&gpu, module, "writes", &pipe, &next, || next.get(0) >= PACKETS));
        repeat(&gpu, module, "reads", &pipe, &seen, all);
    });
    assert!((0..PACKETS as usize).all(|packet| arrived(packet) == 1));
    check!(zeModuleDestroy(module));
}

/// A module's own pipe, into which `send` writes its argument; `receive` stores what it reads, or -1.
const OWN: &str = "OpCapability Kernel
    OpCapability Addresses
    OpCapability Int64
    OpCapability Pipes
    OpCapability PipeStorage
    OpMemoryModel Physical64 OpenCL
    OpEntryPoint Kernel %send \"send\"
    OpEntryPoint Kernel %receive \"receive\"
    %void = OpTypeVoid
    %i32 = OpTypeInt 32 0
    %n4 = OpConstant %i32 4
    %none = OpConstant %i32 4294967295
    %p = OpTypePointer CrossWorkgroup %i32
    %fk = OpTypeFunction %void %p
    %storage = OpTypePipeStorage
    %ps = OpTypePointer CrossWorkgroup %storage
    %writes = OpTypePipe WriteOnly
    %reads = OpTypePipe ReadOnly
    %init = OpConstantPipeStorage %storage 4 4 2
    %own = OpVariable %ps CrossWorkgroup %init
    %send = OpFunction %void None %fk
    %in = OpFunctionParameter %p
    %start = OpLabel
    %s = OpLoad %storage %own Aligned 8
    %w = OpCreatePipeFromPipeStorage %writes %s
    %written = OpWritePipe %i32 %w %in %n4 %n4
    OpStore %in %written Aligned 4
    OpReturn
    OpFunctionEnd
    %receive = OpFunction %void None %fk
    %out = OpFunctionParameter %p
    %begin = OpLabel
    %t = OpLoad %storage %own Aligned 8
    %r = OpCreatePipeFromPipeStorage %reads %t
    OpStore %out %none Aligned 4
    %read = OpReadPipe %i32 %r %out %n4 %n4
    OpReturn
    OpFunctionEnd";

/// "OpConstantPipeStorage: Creates a pipe-storage object"; each module that is loaded has its own, which keeps its
/// packets from launch to launch.
#[test]
fn a_modules_own_pipe_keeps_packets_between_launches() {
    let gpu = Gpu::new();
    let [one, other] = [0, 1].map(|_| gpu.module(&ze::assemble(OWN), "").expect("it is valid"));
    let cell = gpu.host::<i32>(1);
    let call = |module, name: &str, value: i32| {
        cell.set(0, value);
        gpu.run(module, name, [1, 1], &[&cell.address().to_le_bytes()]);
        cell.get(0)
    };
    for round in 0..3 {
        assert_eq!(call(one, "receive", 0), -1);
        assert_eq!(call(one, "send", 70 + round), 0);
        assert_eq!(call(one, "send", 80 + round), 0);
        // It has two slots.
        assert_eq!(call(one, "send", 90 + round), -1);
        assert_eq!(call(other, "receive", 0), -1);
        assert_eq!(call(one, "receive", 0), 70 + round);
        assert_eq!(call(one, "receive", 0), 80 + round);
    }
    for module in [one, other] {
        check!(zeModuleDestroy(module));
    }
}
