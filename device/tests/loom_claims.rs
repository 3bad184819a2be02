// SPDX-License-Identifier: MIT OR Apache-2.0
//! A model of how threads claim the units of a work, using the real code: their parts, and that the work is
//! withdrawn or given up meanwhile. loom runs every reordering that the memory model allows, and the interleavings
//! that interrupt threads at most twice: all of them took more than minutes.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p tally-device --test loom_claims --release`
#![cfg(loom)]
#![allow(
    dead_code,
    unused_imports,
    reason = "the modules are the device's; a model needs a part of each"
)]

#[path = "../src/work/claims.rs"]
mod claims;
#[path = "../src/sync.rs"]
mod sync;
#[path = "../src/tuning.rs"]
mod tuning;

use claims::Claims;
use loom::sync::Arc;
use loom::thread;

const UNITS: u64 = 3;

/// What a thread runs: the ranges of its claims, and whether one was the work's first.
type Run = (Vec<(u64, u64)>, bool);

/// Claims units for a thread on a processor until none is left.
fn run(work: &Claims, place: usize, wanted: u64) -> Run {
    let (mut part, mut made, mut starts) = (work.part_of(|| place), Vec::new(), false);
    while let Some(claim) = work.claim(wanted) {
        starts |= claim.starts();
        let before = made.len();
        made.extend(work.ranges(claim, &mut part));
        let units: u64 = made[before..].iter().map(|range| range.1).sum();
        assert_eq!(units, claim.count, "units of a claim that were not found: {made:?}");
    }
    (made, starts)
}

/// Two threads claim, on processors `places`, while `meanwhile` takes back a number of units.
fn model(parts: u64, places: [usize; 2], wanted: u64, meanwhile: fn(&Claims) -> u64) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(move || {
        let work = Arc::new(Claims::new(UNITS, parts));
        let threads = places.map(|place| {
            let work = work.clone();
            thread::spawn(move || run(&work, place, wanted))
        });
        let gone = meanwhile(&work);
        let runs: Vec<Run> = threads.into_iter().map(|it| it.join().unwrap()).collect();
        let mut times = [0; UNITS as usize];
        for &(first, count) in runs.iter().flat_map(|it| &it.0) {
            (first..first + count).for_each(|unit| times[unit as usize] += 1);
        }
        assert!(times.iter().all(|&times| times <= 1), "a unit that runs twice: {runs:?}");
        let ran: u64 = times.iter().sum();
        assert_eq!(ran + gone, UNITS, "the work never ends, or too soon: {runs:?}");
        let starts = runs.iter().filter(|it| it.1).count();
        assert_eq!(starts, usize::from(ran != 0), "the command starts {starts} times: {runs:?}");
        assert!(work.exhausted());
    });
}

#[test]
fn each_unit_is_claimed_once() {
    model(2, [0, 1], 1, |_| 0);
    model(2, [1, 1], 3, |_| 0);
    model(1, [0, 1], 1, |_| 0);
}

#[test]
fn what_is_claimed_while_a_work_is_given_up_is_not_given_up() {
    model(2, [0, 1], 1, Claims::give_up);
    model(2, [1, 1], 3, Claims::give_up);
}

#[test]
fn a_work_is_withdrawn_or_runs() {
    let withdraw = |work: &Claims| if work.withdraw() { UNITS } else { 0 };
    model(2, [0, 1], 1, withdraw);
    model(2, [1, 1], 3, withdraw);
}
