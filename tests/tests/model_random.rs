// SPDX-License-Identifier: MIT OR Apache-2.0
//! Model, generator and toy driver against each other, on random programs.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use tally_tests::faults::Fault;
use tally_tests::model::{Answer, Expected, Model};
use tally_tests::program::generate::{Shape, from_seed, search};
use tally_tests::program::run::{run, run_serially};
use tally_tests::program::{Action, ListOrder, Program};
use tally_tests::toy::Toy;

fn expected(program: &Program) -> Result<Expected, String> {
    let model = Model::of(program).map_err(|(step, refusal)| format!("step {step}: {refusal}"))?;
    model.expected().map_err(|refusal| refusal.to_string())
}

fn agrees_with_toy(program: &Program, runs: u32, fault: Option<Fault>) -> Result<(), String> {
    let expected = expected(program)?;
    for schedule in 0..u64::from(runs) {
        run_serially(program, &expected, &Toy::new(schedule, fault))
            .map_err(|mismatch| format!("{mismatch} (schedule {schedule})"))?;
    }
    Ok(())
}

/// Every generated program is valid, and a correct driver behaves as the model expects.
#[test]
fn toy_agrees_with_model() {
    let shape = Shape::default();
    if let Err(found) = search(shape, 1, 3000, |program, runs| agrees_with_toy(program, runs, None))
    {
        panic!("{found}");
    }
}

/// The same with real host threads, which call in any order that the model allows.
#[test]
fn toy_agrees_with_model_on_threads() {
    let shape = Shape::default();
    let agrees = |program: &Program, _| {
        let expected = expected(program)?;
        run(program, &expected, &Toy::threaded(7, None)).map_err(|mismatch| mismatch.to_string())
    };
    if let Err(found) = search(shape, 2, 1000, agrees) {
        panic!("{found}");
    }
}

/// A program without races has one outcome, in every sequence that its guaranteed order allows.
#[test]
fn outcome_does_not_depend_on_the_order() {
    let random = Cell::new(1_u64);
    let pick = |choices: usize| {
        random.set(random.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        (random.get() >> 33) as usize % choices
    };
    let one_outcome = |program: &Program, _| {
        let model = Model::of(program).map_err(|(step, refusal)| format!("{step}: {refusal}"))?;
        let first = model.outcome(|_| 0);
        for _ in 0..4 {
            if model.outcome(pick) != first {
                return Err("two outcomes".into());
            }
        }
        Ok(())
    };
    if let Err(found) = search(Shape::default(), 3, 300, one_outcome) {
        panic!("{found}");
    }
}

/// Each fault of the list is found within a bounded number of programs.
#[test]
fn every_fault_is_found() {
    let mut missed = Vec::new();
    // The toy is one process.
    let faults = Fault::ALL.iter().filter(|&&fault| fault != Fault::SharedSignalUnheard);
    for &fault in faults {
        match search(Shape::default(), 4, 3000, |program, runs| {
            agrees_with_toy(program, runs, Some(fault))
        }) {
            Err(found) => println!("{fault}: {}\n{found}\n", fault.meaning()),
            Ok(()) => missed.push(fault),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

/// A seed gives the same program each time, and seeds differ.
#[test]
fn seed_gives_the_same_program() {
    let shape = Shape::default();
    assert_eq!(from_seed(shape, 42), from_seed(shape, 42));
    assert_ne!(from_seed(shape, 42), from_seed(shape, 43));
}

/// The generator covers everything that the model knows: no action or answer is left out.
#[test]
fn generator_reaches_everything() {
    let seen = RefCell::new(BTreeMap::<String, usize>::new());
    let count = |what: &str| *seen.borrow_mut().entry(what.into()).or_default() += 1;
    let look = |program: &Program, _| {
        let mut unordered = Vec::new();
        for step in &program.steps {
            match &step.action {
                Action::CreateList(list, desc) if desc.order == ListOrder::OutOfOrder => {
                    unordered.push(*list);
                }
                Action::AppendLists { list, .. } if unordered.contains(list) => {
                    count("AppendLists, out of order");
                }
                _ => {}
            }
            let text = format!("{:?}", step.action);
            count(text.split(['(', ' ', '{']).next().unwrap_or_default());
            if let Action::Append(_, command) = &step.action {
                let op = format!("{:?}", command.op);
                count(&format!("op {}", op.split(['(', ' ']).next().unwrap_or_default()));
            }
            if let Action::CreateEvent(_, kind) = step.action {
                let kind = format!("{kind:?}");
                count(&format!("event {}", kind.split(' ').next().unwrap_or_default()));
            }
        }
        for answer in expected(program)?.answers.into_iter().flatten() {
            count(match answer {
                Answer::Ready => "answer ready",
                Answer::NotReady => "answer not ready",
                Answer::Either => "answer either",
            });
        }
        count(&format!("threads {}", program.threads()));
        count("programs");
        for _ in 0..program.steps.len() {
            count("steps");
        }
        Ok(())
    };
    if let Err(found) = search(Shape::default(), 5, 400, look) {
        panic!("{found}");
    }
    let seen = seen.into_inner();
    println!("{seen:#?}");
    for wanted in [
        "Address",
        "Append",
        "AppendLists",
        "AppendLists, out of order",
        "CloneList",
        "Share",
        "Times",
        "Close",
        "CreateEvent",
        "CreateFence",
        "CreateList",
        "CreateQueue",
        "DestroyEvent",
        "DestroyList",
        "Execute",
        "HostReset",
        "HostSignal",
        "Join",
        "Query",
        "Read",
        "ResetFence",
        "ResetList",
        "Synchronize",
        "Write",
        "op Add",
        "op Barrier",
        "op Copy",
        "op Fill",
        "op HostCall",
        "op QueryTimes",
        "op Mix",
        "op ResetEvent",
        "op SignalEvent",
        "op SetWord",
        "op WaitOnEvents",
        "event Aggregated",
        "event CounterBased",
        "event External",
        "event Regular",
        "event RegularTimed",
        "event Timed",
        "answer ready",
        "answer not ready",
        "answer either",
        "threads 3",
    ] {
        assert!(seen.get(wanted).is_some_and(|&times| times >= 10), "hardly ever: {wanted}");
    }
}
