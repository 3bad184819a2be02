// SPDX-License-Identifier: MIT OR Apache-2.0
//! The examples of the specification have exactly the outcome that it describes.

use tally_tests::faults::Fault;
use tally_tests::model::{Answer, Expected, Model};
use tally_tests::program::examples::{self, Example};
use tally_tests::program::run::{run, run_serially};
use tally_tests::toy::Toy;

fn expected(example: &Example) -> Expected {
    let model = Model::of(&example.program);
    let model = model.unwrap_or_else(|(step, refusal)| panic!("step {step}: {refusal}"));
    model.expected().unwrap_or_else(|refusal| panic!("{refusal}"))
}

fn answers(example: &Example) -> Vec<(&'static str, Answer)> {
    let expected = expected(example);
    let answer = |step: usize| expected.answers[step].expect("the step is a query");
    example.queries.iter().map(|&(what, step)| (what, answer(step))).collect()
}

/// `dst * 3 + src + add`, as the kernel computes it.
fn mixed(dst: u32, src: u32, add: u32) -> u32 {
    dst * 3 + src + add
}

/// The host waits for list 3 while list 2 waits for list 1, through one event.
#[test]
fn event_reused_without_reset() {
    let example = examples::event_reused_without_reset();
    let wanted = [
        ("created", Answer::Ready),
        ("signalled by list 1", Answer::NotReady),
        ("signalled by list 3", Answer::Ready),
        ("list 2", Answer::NotReady),
    ];
    assert_eq!(answers(&example), wanted);
    let memory = expected(&example).memory;
    let m0 = mixed(100, 200, 1);
    assert_eq!(memory[..4], [m0, 200, m0, mixed(400, 200, 3)]);
}

/// Each execution of list 2 sees the value of the execution of list 1 before it.
#[test]
fn regular_list_executed_three_times() {
    let example = examples::regular_list_executed_three_times();
    let wanted = [
        ("recorded", Answer::NotReady),
        ("first execution", Answer::Ready),
        ("second execution", Answer::Ready),
        ("third execution", Answer::Ready),
    ];
    assert_eq!(answers(&example), wanted);
    let m0: Vec<u32> =
        std::iter::successors(Some(100), |&m0| Some(mixed(m0, m0, 1))).take(4).collect();
    let m3 = mixed(mixed(400, m0[2], 0), m0[3], 0);
    let memory = expected(&example).memory;
    assert_eq!((memory[0], memory[1], memory[3]), (m0[3], m0[3], m3));
}

/// In the second round list 1 needs only the first round of list 2, and C uses B's old result.
#[test]
fn multi_directional() {
    let example = examples::multi_directional();
    let wanted = [
        ("all events are not ready", Answer::NotReady),
        ("first round, list 2 not executed", Answer::NotReady),
        ("all events are ready", Answer::Ready),
        ("b, second round, list 2 not executed", Answer::Ready),
        ("second round, list 1 alone", Answer::Ready),
    ];
    assert_eq!(answers(&example), wanted);
    let (a1, a2) = (mixed(100, 500, 1), mixed(mixed(100, 500, 1), 500, 1));
    let (b1, b2) = (mixed(200, a1, 0), mixed(mixed(200, a1, 0), a2, 0));
    let c2 = mixed(mixed(300, b1, 0), b1, 0);
    let d2 = mixed(mixed(400, b1, 0), b2, 0);
    assert_eq!(expected(&example).memory[..4], [a2, b2, c2, d2]);
}

/// The event that was used twice refers to its second use.
#[test]
fn copy_compute_copy() {
    let example = examples::copy_compute_copy();
    assert_eq!(answers(&example), [("held", Answer::NotReady)]);
    let first = mixed(300, 100, 5);
    assert_eq!(expected(&example).memory[..4], [100, 100, mixed(first, first, 7), first]);
}

/// The toy driver has the expected results for all of them, in any schedule and with host threads.
#[test]
fn toy_agrees() {
    for (name, example) in examples::all() {
        let expected = expected(&example);
        for schedule in 0..200 {
            let result = run_serially(&example.program, &expected, &Toy::new(schedule, None));
            assert_eq!(result, Ok(()), "{name}, schedule {schedule}\n{}", example.program);
        }
        assert_eq!(run(&example.program, &expected, &Toy::threaded(1, None)), Ok(()), "{name}");
    }
}

/// The fixed programs alone find faults in their own subjects.
#[test]
fn examples_find_faults() {
    let finds = |example: &Example, fault: Fault| {
        let expected = expected(example);
        let fails = |schedule| {
            run_serially(&example.program, &expected, &Toy::new(schedule, Some(fault))).is_err()
        };
        (0..200).any(fails)
    };
    let reused = examples::event_reused_without_reset();
    assert!(finds(&reused, Fault::WaitDropped));
    assert!(finds(&reused, Fault::EventReplacedLate));
    let three = examples::regular_list_executed_three_times();
    assert!(finds(&three, Fault::BaseOffByOne));
    assert!(finds(&three, Fault::RecordedKeepsState));
    assert!(finds(&three, Fault::WaitBoundToEarlierExecution));
    let both = examples::multi_directional();
    assert!(finds(&both, Fault::UnsubmittedIsMet));
}
