// SPDX-License-Identifier: MIT OR Apache-2.0
//! `TALLY_CHAOS`: the adversarial but legal device, through the stock loader. Programs that keep the
//! rules see no difference; programs that forget a barrier or a wait are caught.

use tally_tests::model::Model;
use tally_tests::program::generate::{Shape, from_seed};
use tally_tests::program::run::run;
use tally_tests::ze::{Gpu, in_child};
use tally_tests::ze_backend::{Driver, partner};

/// Seeds that are tried.
const SEEDS: std::ops::Range<u64> = 1..7;
/// Rounds of a small program in one process.
const ROUNDS: u32 = 40;

/// In how many rounds, over all seeds, the program of a child was wrong.
fn wrong_rounds(child: &str) -> u32 {
    SEEDS
        .map(|seed| {
            let said = in_child(child, &[("TALLY_CHAOS", &seed.to_string())]);
            let count = said.lines().find_map(|line| line.strip_prefix("wrong: "));
            count.expect("the child says it").parse::<u32>().expect("a number")
        })
        .sum()
}

/// Runs a small program again and again; it answers whether its result was right.
fn rounds(program: impl Fn(u32) -> bool) {
    let wrong = (1..=ROUNDS).filter(|&round| !program(round)).count();
    println!("\nwrong: {wrong}");
}

/// "A program with a missing barrier [...] is caught by it": two commands of an out-of-order list, of
/// which the second reads what the first wrote.
#[test]
fn a_missing_barrier_is_caught() {
    assert_ne!(wrong_rounds("child_without_a_barrier"), 0);
    assert_eq!(wrong_rounds("child_with_a_barrier"), 0);
}

fn write_and_read(barrier: bool) {
    let gpu = Gpu::new();
    let (memory, list) = (gpu.host::<u32>(2), gpu.immediate(0, false));
    rounds(|round| {
        list.set((&memory, 0), round, None, &[]);
        if barrier {
            list.barrier(None, &[]);
        }
        list.copy((&memory, 1), (&memory, 0), 1, None, &[]);
        list.synchronize();
        memory.get(1) == round
    });
}

#[test]
#[ignore = "runs in a child process"]
fn child_without_a_barrier() {
    write_and_read(false);
}

#[test]
#[ignore = "runs in a child process"]
fn child_with_a_barrier() {
    write_and_read(true);
}

/// "... or a missing wait is caught": two in-order lists, of which the second reads what the first wrote,
/// with and without the event between them.
#[test]
fn a_missing_wait_is_caught() {
    assert_ne!(wrong_rounds("child_without_a_wait"), 0);
    assert_eq!(wrong_rounds("child_with_a_wait"), 0);
}

fn write_then_read(waits: bool) {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(2);
    let (writer, reader, event) = (gpu.immediate(0, true), gpu.immediate(1, true), gpu.cb_event());
    rounds(|round| {
        writer.set((&memory, 0), round, Some(&event), &[]);
        let wait = [&event];
        reader.copy((&memory, 1), (&memory, 0), 1, None, if waits { &wait } else { &[] });
        reader.synchronize();
        writer.synchronize();
        memory.get(1) == round
    });
}

#[test]
#[ignore = "runs in a child process"]
fn child_without_a_wait() {
    write_then_read(false);
}

#[test]
#[ignore = "runs in a child process"]
fn child_with_a_wait() {
    write_then_read(true);
}

/// New memory is poisoned: a program that takes it for zeroed is caught.
#[test]
fn uninitialised_memory_is_caught() {
    assert_ne!(wrong_rounds("child_that_takes_memory_for_zeroed"), 0);
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_takes_memory_for_zeroed() {
    let gpu = Gpu::new();
    rounds(|_| gpu.device_memory::<u32>(64).to_vec() == [0; 64]);
}

/// "The tests run under many seeds": random programs agree with the model on the adversarial device too.
#[test]
fn random_programs_agree_with_the_model_under_chaos() {
    for seed in SEEDS {
        in_child("child_with_random_programs", &[("TALLY_CHAOS", &seed.to_string())]);
    }
}

#[test]
#[ignore = "runs in a child process"]
fn child_with_random_programs() {
    let seed: u64 = std::env::var("TALLY_CHAOS").ok().and_then(|it| it.parse().ok()).unwrap_or(0);
    let programs: u64 = match std::env::var("TALLY_PROGRAMS") {
        Ok(count) => count.parse().expect("TALLY_PROGRAMS is a number"),
        Err(_) => 60,
    };
    for number in 0..programs {
        let program = from_seed(Shape::default(), seed * 1_000_000 + number);
        let model = Model::of(&program).expect("generated programs are valid");
        let expected = model.expected().expect("generated programs end");
        if let Err(mismatch) = run(&program, &expected, &Driver::new()) {
            panic!("program {number} under TALLY_CHAOS={seed}: {mismatch}\n{program}");
        }
    }
}

/// The other process of programs that share events.
#[test]
#[ignore = "runs in a child process"]
fn partner() {
    partner::serve();
}
