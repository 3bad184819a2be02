// SPDX-License-Identifier: MIT OR Apache-2.0
//! Graphs: the numbers 1 to 9 are lists that were captured, 10 and more their copies.

use super::*;

/// Captures a command of list A into a branch.
fn captured(order: &Order, branch: usize, it: Appended, signal: u32) -> u32 {
    let number = order.capture(A, &it);
    order.recorded(branch, number, it, Some(signal));
    number
}

fn after(branch: usize, signal: u32) -> Appended {
    waiting(Awaited::Recorded { recording: branch, signal })
}

fn branches(count: usize) -> Order {
    let order = two_lists(true);
    (1..=count).for_each(|it| order.recording_begins(it, true, None));
    order
}

/// An executable graph of some branches: the numbers of the copies, by those of the sources.
fn instance(order: &Order, branches: &[usize], from: usize) -> impl Fn(u32) -> u32 + use<> {
    let copies: Vec<_> = branches.iter().zip(from..).map(|(&it, to)| (it, to)).collect();
    let numbers = order.recordings_are_copied(&copies, |launch| launch);
    move |number| numbers[&number].0
}

/// Executes copies from this number on.
fn run(order: &Order, at: (u64, u64), copies: std::ops::Range<usize>, base: u64) {
    run_with(order, at, copies, base, (Vec::new(), Vec::new()));
}

fn run_with(
    order: &Order,
    at: (u64, u64),
    copies: std::ops::Range<usize>,
    base: u64,
    events: (Vec<Awaited>, Vec<Effect>),
) {
    let lists: Vec<_> = copies.map(|recording| Executed { recording, base }).collect();
    order.execute_graph(at, &lists, events, |_| None);
}

#[test]
fn branches_are_ordered_by_their_events() {
    let order = branches(2);
    let first = captured(&order, 1, plain(), 2);
    let fork = captured(&order, 2, after(1, 2), 1);
    let beside = captured(&order, 1, plain(), 3);
    let join = captured(&order, 1, after(2, 1), 4);
    let copy = instance(&order, &[1, 2], 10);
    let before = order.append(A, 1, &plain());
    run(&order, (A, 2), 10..12, 0);
    let behind = order.append(A, 3, &plain());
    let [before, behind] = [before, behind].map(|it| start(&order, it));
    let all = [first, fork, beside, join].map(|it| execution(&order, copy(it), 0));
    let [first, fork, beside, join] = all;
    assert!(order.ordered(first, fork) && order.ordered(first, beside));
    assert!(!order.ordered(fork, beside) && !order.ordered(beside, fork));
    assert!(order.ordered(fork, join) && order.ordered(beside, join));
    for it in all {
        assert!(order.ordered(before, it) && order.ordered(it, behind));
    }
}

#[test]
fn a_graph_begins_after_its_waits_and_signals_at_its_end() {
    let order = branches(2);
    const OTHER: u64 = EVENT + 64;
    let first = captured(&order, 1, plain(), 2);
    let fork = captured(&order, 2, after(1, 2), 1);
    let copy = instance(&order, &[1, 2], 10);
    let gate = order.append(B, 1, &with(SIGNAL));
    let end = Effect::Signal { address: OTHER, amount: 1, needed: 1 };
    run_with(&order, (A, 1), 10..12, 0, (vec![WORD], vec![end]));
    let beside = order.append(B, 2, &plain());
    let last = order.append(B, 3, &waiting(Awaited::Word { address: OTHER, needed: 1 }));
    let [gate, beside, last] = [gate, beside, last].map(|it| start(&order, it));
    for it in [first, fork].map(|it| execution(&order, copy(it), 0)) {
        assert!(order.ordered(gate, it) && order.ordered(it, last));
        assert!(!order.ordered(it, beside) && !order.ordered(beside, it));
    }
}

#[test]
fn executions_of_an_executable_graph_follow_each_other_and_those_of_two_do_not() {
    let order = branches(2);
    let first = captured(&order, 1, plain(), 2);
    let fork = captured(&order, 2, after(1, 2), 1);
    let [one, two] = [10, 20].map(|from| instance(&order, &[1, 2], from));
    run(&order, (A, 1), 10..12, 0);
    run(&order, (B, 1), 10..12, 5);
    let once = execution(&order, one(fork), 0);
    let [begun, again] = [first, fork].map(|it| execution(&order, one(it), 5));
    assert!(order.ordered(once, begun), "all lists of one come before all of the next one");
    run(&order, (A, 2), 20..22, 0);
    let other = execution(&order, two(fork), 0);
    assert!(order.ordered(once, other), "the list orders them");
    assert!(!order.ordered(again, other) && !order.ordered(other, again));
}

/// The first list is not in order, and neither is the one that executes the graph.
#[test]
fn branches_may_be_out_of_order() {
    let order = two_lists(false);
    order.recording_begins(1, false, None);
    let one = captured(&order, 1, plain(), 2);
    let two = captured(&order, 1, plain(), 2);
    let copy = instance(&order, &[1], 10);
    run(&order, (A, 1), 10..11, 0);
    let beside = order.append(A, 1, &plain());
    order.append(A, 1, &is(Role::Barrier));
    let last = order.append(A, 1, &plain());
    run(&order, (A, 1), 10..11, 2);
    let all = [one, two].map(|it| execution(&order, copy(it), 0));
    let [beside, last] = [beside, last].map(|it| start(&order, it));
    assert!(!order.ordered(all[0], all[1]) && !order.ordered(all[1], all[0]));
    for it in all {
        assert!(
            !order.ordered(it, beside) && !order.ordered(beside, it) && order.ordered(it, last)
        );
    }
    let again = execution(&order, copy(one), 2);
    assert!(all.into_iter().all(|it| order.ordered(it, again)));
}

/// Each execution signals the event and resets it again, in lists of which the second one is executed last.
#[test]
fn events_have_the_epochs_that_they_had_when_they_were_captured() {
    for waits in [false, true] {
        let order = branches(2);
        let signal = captured(&order, 1, with(SIGNAL), 2);
        let waiter = captured(&order, 2, waiting(WORD), 1);
        let reset = Appended { effects: vec![Effect::Reset { address: EVENT }], ..plain() };
        let reset = match waits {
            true => Appended { effects: reset.effects, ..after(2, 1) },
            false => reset,
        };
        let reset = captured(&order, 1, reset, 3);
        let copy = instance(&order, &[1, 2], 10);
        for round in 0..3 {
            run(&order, (A, round + 1), 10..12, 3 * round);
            let wanted: &[Broken] = if waits { &[] } else { &[Broken::Wait] };
            assert_eq!(broken(&order, &[signal, waiter, reset].map(&copy)), wanted, "{round}");
        }
    }
}

/// A graph that a command of another one executes: lists 2 and 3, and once more with copies of them.
#[test]
fn a_graph_in_a_graph_has_its_place_there() {
    let order = branches(4);
    let inner = captured(&order, 2, plain(), 2);
    let fork = captured(&order, 3, after(2, 2), 1);
    let nested = instance(&order, &[2, 3], 5);
    let before = captured(&order, 1, plain(), 2);
    let beside = captured(&order, 4, after(1, 2), 1);
    let number = order.capture(A, &with(SIGNAL));
    let parts = Parts { graph: vec![5, 6], ..Parts::default() };
    order.parts_recorded(1, number, with(SIGNAL), Some(3), parts);
    let behind = captured(&order, 1, plain(), 4);
    let copy = instance(&order, &[1, 4, 5, 6], 10);
    run(&order, (A, 1), 10..14, 0);
    let last = order.append(B, 1, &waiting(WORD));
    let last = start(&order, last);
    let [before, beside, behind] =
        [before, beside, behind].map(|it| execution(&order, copy(it), 0));
    let all = [inner, fork].map(|it| execution(&order, copy(nested(it)), 0));
    assert!(order.ordered(all[0], all[1]));
    for it in all {
        assert!(order.ordered(before, it) && order.ordered(it, behind));
        assert!(!order.ordered(beside, it) && !order.ordered(it, beside));
        assert!(order.ordered(it, last));
    }
}

/// It names what it named before the execution, which may be the execution before.
#[test]
fn an_event_from_outside_is_bound_when_the_graph_is_executed() {
    let order = branches(1);
    let event = Awaited::Event(Counted::none());
    let first = captured(&order, 1, waiting(event), 2);
    captured(&order, 1, plain(), 3);
    let copy = instance(&order, &[1], 10);
    let list = [Executed { recording: 10, base: 0 }];
    let early = order.append(B, 1, &plain());
    let late = order.append(B, 2, &plain());
    let bound = |_| Some(Awaited::Counter { cell: B, value: 1 });
    order.execute_graph((A, 1), &list, (Vec::new(), Vec::new()), bound);
    let again = [Executed { recording: 10, base: 3 }];
    let bound = |_| Some(Awaited::Recorded { recording: 10, signal: 3 });
    order.execute_graph((A, 2), &again, (Vec::new(), Vec::new()), bound);
    let [early, late] = [early, late].map(|it| start(&order, it));
    let once = execution(&order, copy(first), 0);
    assert!(order.ordered(early, once) && !order.ordered(late, once));
    let again = execution(&order, copy(first), 3);
    assert!(order.ordered(once, again) && !order.ordered(late, again));
}
