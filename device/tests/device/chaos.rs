// SPDX-License-Identifier: MIT OR Apache-2.0
//! The adversarial device uses the freedom that SPEC.md leaves, and keeps SPEC.md's
//! promises.

use tally_device::Config;

use crate::support::{Gpu, Memory, ORDERED, eventually, fill, nop};

fn gpu(seed: u64) -> Gpu {
    Gpu::with(Config { workers: Some(2), chaos: Some(seed), ..Config::default() })
}

/// Runs commands of a queue that write 1 to 8 to one word, and returns the value
/// that the last one to run has left.
fn last_of_eight(seed: u64, flags: u8) -> u64 {
    let gpu = gpu(seed);
    let memory = Memory::new(4096);
    let mut queue = gpu.queue();
    for value in 1..=8_u64 {
        queue.write(fill(flags, memory.cell_va(0), 8, &value.to_le_bytes(), None));
    }
    queue.push(nop(ORDERED, Some((memory.cell_va(1), 1))));
    eventually("all commands complete", || memory.load(1) == 1);
    memory.load(0)
}

/// "Without the ORDERED flag a command may run while earlier commands of its queue
/// still run": later ones really overtake earlier ones.
#[test]
fn unordered_commands_overtake_each_other() {
    let overtaken = (0..20).filter(|&seed| last_of_eight(seed, 0) != 8).count();
    assert!(overtaken >= 5, "in {overtaken} of 20 seeds");
}

/// "With ORDERED it starts only after all earlier commands of the queue ... have
/// completed."
#[test]
fn ordered_commands_keep_their_order() {
    for seed in 0..10 {
        assert_eq!(last_of_eight(seed, ORDERED), 8, "seed {seed}");
    }
}

/// Nothing is lost, whatever the seed: every command has run when the barrier
/// after it signals.
#[test]
fn a_barrier_comes_after_all_that_was_held_back() {
    for seed in 0..10 {
        let gpu = gpu(seed);
        let memory = Memory::new(8192);
        let mut queues = [gpu.queue(), gpu.queue()];
        for round in 1..=10_u64 {
            for (i, queue) in queues.iter_mut().enumerate() {
                for place in 0..5 {
                    let cell = memory.cell_va(512 + i * 8 + place);
                    queue.push(fill(0, cell, 8, &round.to_le_bytes(), None));
                }
                queue.push(nop(ORDERED, Some((memory.cell_va(i), round))));
            }
            eventually("both barriers", || memory.load(0) == round && memory.load(1) == round);
            for place in (0..5).chain(8..13) {
                assert_eq!(memory.load(512 + place), round, "seed {seed}, place {place}");
            }
        }
    }
}

/// A queue can be destroyed while its commands are held back.
#[test]
fn a_queue_is_destroyed_in_the_middle() {
    for seed in 0..20 {
        let gpu = gpu(seed);
        let memory = Memory::new(4096);
        let mut queue = gpu.queue();
        for value in 1..=20_u64 {
            queue.write(fill(0, memory.cell_va(0), 8, &value.to_le_bytes(), None));
        }
        queue.publish();
        gpu.device.destroy_queue(&queue.handle);
    }
}
