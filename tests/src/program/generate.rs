// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random programs, as proptest strategies that shrink well.
//!
//! The random part is a list of [`Intent`]s, with small numbers as selectors. The
//! [builder](super::build) turns any such list into a valid program. So a shrunk case, with fewer
//! intents and smaller numbers, is valid too, and unused objects disappear.

use super::build::{Builder, Intent, Verb};
use super::shrink::minimise;
use super::{Action, Program};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};
use std::cell::Cell;
use std::fmt;
use std::time::Duration;

/// The kind of programs to generate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// The maximum number of intents of a program.
    pub intents: usize,
    /// The maximum number of host threads, at least 1.
    pub threads: usize,
    /// Whether events may be shared with other processes.
    pub sharing: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Shape { intents: 40, threads: 3, sharing: true }
    }
}

/// Programs of this shape.
pub fn programs(shape: Shape) -> impl Strategy<Value = Program> {
    let intents = vec(intent(), 1..=shape.intents.max(1));
    (1..=shape.threads.max(1), intents).prop_map(move |(threads, mut intents)| {
        intents.retain(|intent| shape.sharing || intent.verb != Verb::Share);
        build(threads, &intents)
    })
}

/// The program that some intents lead to.
#[must_use]
pub fn build(threads: usize, intents: &[Intent]) -> Program {
    let mut builder = Builder::new(threads);
    for intent in intents {
        builder.add(intent);
    }
    builder.finish()
}

/// The program of a seed in which commands may race ([`Builder::with_races`]): a quarter have no race.
#[must_use]
pub fn with_races(seed: u64) -> Program {
    let shape = Shape { threads: 1, ..Shape::default() };
    let intents = vec(intent(), 1..=shape.intents);
    let tree = intents.new_tree(&mut runner(seed, 1));
    let intents = tree.expect("the strategy rejects nothing").current();
    let mut builder = Builder::with_races(usize::try_from(seed % 4 * 3).unwrap_or(0));
    for intent in &intents {
        builder.add(intent);
    }
    let mut program = builder.finish();
    // What the host reads depends on the race.
    program.steps.retain(|step| !matches!(step.action, Action::Read(_)));
    program
}

/// The program of a seed: always the same one, for this version of the generator.
#[must_use]
pub fn from_seed(shape: Shape, seed: u64) -> Program {
    let tree = programs(shape).new_tree(&mut runner(seed, 1));
    tree.expect("the strategy rejects nothing").current()
}

/// The smallest program found that fails a test.
#[derive(Clone, Debug)]
pub struct Counterexample {
    /// The number of programs that passed before the first one that failed.
    pub passed: u32,
    /// The smallest one, after shrinking.
    pub program: Program,
    /// The reason that the test gave.
    pub reason: String,
}

impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counterexample { passed, program, reason } = self;
        write!(
            f,
            "{reason}\nafter {passed} programs that passed; the smallest that fails:\n{program}"
        )
    }
}

/// The number of times to run a program before it passes, since schedules differ from run to run.
const RUNS: u32 = 4;
/// The same while a failing program is shrunk: then a run that passes by luck costs more.
const RUNS_TO_SHRINK: u32 = 24;

/// The time limit of each of the two ways of shrinking: a program that hangs takes seconds a run.
const SHRINK_TIME: Duration = Duration::from_secs(60);

/// Tests random programs, as many as `cases`, the same ones for the same seed. The test's second
/// argument is the number of times to run the program.
///
/// # Errors
/// The smallest program for which the test returns a reason to fail.
pub fn search(
    shape: Shape,
    seed: u64,
    cases: u32,
    test: impl Fn(&Program, u32) -> Result<(), String>,
) -> Result<(), Box<Counterexample>> {
    let passed = Cell::new(0);
    let failed = Cell::new(false);
    let outcome = runner(seed, cases).run(&programs(shape), |program| {
        let result = test(&program, RUNS);
        failed.set(failed.get() || result.is_err());
        if !failed.get() {
            passed.set(passed.get() + 1);
        }
        result.map_err(TestCaseError::fail)
    });
    match outcome {
        Ok(()) => Ok(()),
        Err(TestError::Fail(reason, program)) => {
            let passed = passed.get();
            let fails = |program: &Program| test(program, RUNS_TO_SHRINK).err();
            let (program, reason) = minimise(program, reason.to_string(), SHRINK_TIME, fails);
            Err(Box::new(Counterexample { passed, program, reason }))
        }
        Err(TestError::Abort(reason)) => unreachable!("no case is ever rejected: {reason}"),
    }
}

fn runner(seed: u64, cases: u32) -> TestRunner {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let max_shrink_time = u32::try_from(SHRINK_TIME.as_millis()).unwrap_or(u32::MAX);
    let config = Config { cases, failure_persistence: None, max_shrink_time, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

/// The simplest verbs come first: shrinking prefers them.
fn verb() -> impl Strategy<Value = Verb> {
    prop_oneof![
        28 => Just(Verb::Work),
        20 => Just(Verb::Execute),
        6 => Just(Verb::Follow),
        6 => Just(Verb::AppendLists),
        4 => Just(Verb::CloneList),
        4 => Just(Verb::Share),
        4 => Just(Verb::HostCall),
        10 => Just(Verb::Query),
        3 => Just(Verb::Times),
        3 => Just(Verb::QueryTimes),
        3 => Just(Verb::Address),
        5 => Just(Verb::Synchronize),
        5 => Just(Verb::Barrier),
        5 => Just(Verb::Between),
        3 => Just(Verb::SignalEvent),
        2 => Just(Verb::WaitOnEvents),
        3 => Just(Verb::Hold),
        4 => Just(Verb::ResetEvent),
        3 => Just(Verb::Increment),
        1 => Just(Verb::SetWord),
        1 => Just(Verb::Rearm),
        5 => Just(Verb::HostSignal),
        3 => Just(Verb::HostReset),
        2 => Just(Verb::ResetFence),
        2 => Just(Verb::Read),
        2 => Just(Verb::Write),
        2 => Just(Verb::DestroyEvent),
        3 => Just(Verb::DestroyList),
        3 => Just(Verb::ResetList),
        1 => Just(Verb::Join),
    ]
}

fn intent() -> impl Strategy<Value = Intent> {
    (verb(), any::<[u8; 4]>(), [event_choice(), event_choice(), event_choice()]).prop_map(
        |(verb, [thread, place, object, detail], [first, second, signal])| Intent {
            verb,
            thread,
            place,
            object,
            detail,
            waits: [first, second],
            signal,
        },
    )
}

fn event_choice() -> impl Strategy<Value = Option<u8>> {
    prop_oneof![3 => Just(None), 2 => any::<u8>().prop_map(Some)]
}
