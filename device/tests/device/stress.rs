// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many queues at once, from a seed: nothing is lost, nothing hangs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tally_device::{Config, EngineClass, Priority, VmId};
use tally_uapi::cell::{CellKind, Compare};
use tally_uapi::packet::{Packet, flag};

use crate::support::*;

/// xorshift64: random enough here, and reproducible.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

const PRIORITIES: [Priority; 3] = [Priority::High, Priority::Normal, Priority::Low];

/// Queues whose waits refer to signals that were planned earlier, on any queue, so
/// that all of them complete in whatever order the queues run.
fn mesh(seed: u64, workers: usize) {
    const QUEUES: usize = 12;
    const COMMANDS: u64 = 3000;
    let mut random = Random(seed);
    let gpu = Gpu::with(Config { workers: Some(workers), ..Config::default() });
    let (cells, counts) = (Memory::new(4096), Memory::new(4096));
    let kernarg = Kernarg::new(&[counts.va()]);
    let mut plans: Vec<Vec<Packet>> = vec![Vec::new(); QUEUES];
    let mut reached = [0u64; QUEUES];
    let mut groups = 0;
    for _ in 0..COMMANDS {
        let (q, r) = (random.below(QUEUES as u64) as usize, random.below(QUEUES as u64) as usize);
        if random.below(3) == 0 {
            let kind = if random.below(8) == 0 { CellKind::Foreign } else { CellKind::Counter };
            let wait = (cells.cell_va(r), reached[r], kind, Compare::GreaterEqual);
            plans[q].push(wait_packet(wait));
        }
        if random.below(4) == 0 {
            let count = 1 + random.below(40) as u32;
            groups += u64::from(count);
            let flags = if random.below(2) == 0 { flag::INDEPENDENT } else { 0 };
            plans[q].push(dispatch(flags, count_groups, &kernarg, count, None).into());
        }
        reached[q] += 1;
        plans[q].push(nop(ORDERED, Some((cells.cell_va(q), reached[q]))).into());
    }
    std::thread::scope(|scope| {
        for (q, plan) in plans.into_iter().enumerate() {
            let (gpu, priority) = (&gpu, PRIORITIES[random.below(3) as usize]);
            let index = random.below(4) as u32;
            scope.spawn(move || {
                let mut queue = gpu.queue_on(&gpu.vm, EngineClass::Compute, index, priority);
                for (i, packet) in plan.into_iter().enumerate() {
                    queue.write(packet);
                    if i % (q + 1) == 0 {
                        queue.publish();
                    }
                }
                queue.publish();
            });
        }
    });
    for (q, &value) in reached.iter().enumerate() {
        eventually("every queue's last command", || cells.load(q) == value);
    }
    assert_eq!(counts.load(0), groups);
    assert!(!gpu.vm.is_lost());
}

fn wait_packet(entry: (u64, u64, CellKind, Compare)) -> Packet {
    wait(&[entry]).into()
}

#[test]
fn a_mesh_of_waiting_queues_runs_to_its_end() {
    for seed in 1..=6 {
        mesh(0x9e37_79b9_7f4a_7c15 ^ seed, 2);
    }
}

#[test]
fn a_mesh_runs_also_on_one_worker() {
    for seed in 1..=3 {
        mesh(0xd134_2543_de82_ef95 ^ seed, 1);
    }
}

/// The device falls asleep about 10 µs after its last packet. The next one arrives
/// around that time, at every possible moment of the handshake.
#[test]
fn a_packet_that_comes_as_the_device_falls_asleep_is_not_lost() {
    let gpu = Gpu::with(Config { workers: Some(1), ..Config::default() });
    let (mut queue, cells) = (gpu.queue(), Memory::new(4096));
    let mut random = Random(99);
    let enough = Instant::now() + Duration::from_secs(20);
    for value in 1..=30_000 {
        // A round takes 20 µs, or a time slice of another thread that has the processor.
        if Instant::now() >= enough {
            break;
        }
        let late = Instant::now() + Duration::from_nanos(9_500 + random.below(2_500));
        while Instant::now() < late {
            std::hint::spin_loop();
        }
        queue.push(nop(ORDERED, Some((cells.cell_va(0), value))));
        let until = Instant::now() + SOON;
        while cells.load(0) != value {
            assert!(Instant::now() < until, "packet {value} is lost");
            std::hint::spin_loop();
        }
    }
}

#[test]
fn queues_come_and_go_while_others_work() {
    let gpu = Gpu::new();
    let cells = Memory::new(4096);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3u32 {
            let (gpu, cells, stop) = (&gpu, &cells, &stop);
            scope.spawn(move || {
                let kernarg = Kernarg::new(&[cells.cell_va(10 + thread as usize)]);
                let mut random = Random(u64::from(thread) + 7);
                while !stop.load(Ordering::Relaxed) {
                    let vm = gpu.device.create_vm(VmId(10 + thread));
                    let class = EngineClass::Compute;
                    let mut queue = gpu.queue_on(&vm, class, thread, Priority::High);
                    for _ in 0..random.below(20) {
                        let packet = match random.below(5) {
                            0 => wait_for(cells.cell_va(100), 1).into(),
                            1 => nop(ORDERED, Some((8, 1))).into(),
                            2 => nop(ORDERED, None).into(),
                            _ => Packet::from(dispatch(
                                flag::INDEPENDENT,
                                count_groups,
                                &kernarg,
                                9,
                                None,
                            )),
                        };
                        queue.push(packet);
                    }
                    gpu.device.destroy_vm(&vm);
                    queue.memory.protect(libc::PROT_NONE);
                }
            });
        }
        let mut queue = gpu.queue();
        for value in 1..=20_000 {
            queue.push(nop(ORDERED, Some((cells.cell_va(0), value))));
        }
        eventually("the steady queue's work", || cells.load(0) == 20_000);
        stop.store(true, Ordering::Relaxed);
    });
    assert!(!gpu.vm.is_lost());
    let word = gpu.device.waiters(tally_uapi::cell::waiters_index(cells.cell_va(100)));
    eventually("no waiter is counted", || word.load(Ordering::SeqCst) == 0);
}
