// SPDX-License-Identifier: MIT OR Apache-2.0
use super::*;
use crate::checks::in_use::InUse;

mod graphs;

const A: u64 = 0x1000;
const B: u64 = 0x2000;
const QUEUE: u64 = 0x3000;
const EVENT: u64 = 0x9000;

fn plain() -> Appended {
    Appended::default()
}

fn waiting(awaited: Awaited) -> Appended {
    Appended { has_waits: true, waits: vec![awaited], ..plain() }
}

fn with(effect: Effect) -> Appended {
    Appended { effects: vec![effect], ..plain() }
}

fn is(role: Role) -> Appended {
    Appended { role, ..plain() }
}

const SIGNAL: Effect = Effect::Signal { address: EVENT, amount: 1, needed: 1 };
const WORD: Awaited = Awaited::Word { address: EVENT, needed: 1 };

/// Lists A and B, in order or not.
fn two_lists(in_order: bool) -> Order {
    let order = Order::default();
    order.stream_begins(A, in_order);
    order.stream_begins(B, in_order);
    order
}

fn start(order: &Order, number: u32) -> Execution {
    order.started(number, 0).expect("it was appended").execution
}

#[test]
fn an_in_order_list_orders_its_commands_and_no_others() {
    let order = two_lists(true);
    let numbers = [order.append(A, 1, &plain()), order.append(A, 2, &plain())];
    let other = order.append(B, 1, &plain());
    let [first, second] = numbers.map(|it| start(&order, it));
    let other = start(&order, other);
    assert!(order.ordered(first, second) && !order.ordered(second, first));
    assert!(!order.ordered(first, other) && !order.ordered(other, second));
}

#[test]
fn an_out_of_order_list_has_barriers() {
    let order = two_lists(false);
    let early = [order.append(A, 1, &plain()), order.append(A, 1, &plain())];
    let other = order.append(B, 1, &plain());
    order.append(A, 1, &is(Role::Barrier));
    let late = order.append(A, 1, &plain());
    let [first, second] = early.map(|it| start(&order, it));
    let (other, late) = (start(&order, other), start(&order, late));
    assert!(!order.ordered(first, second) && !order.ordered(second, first));
    assert!(order.ordered(first, late) && order.ordered(second, late));
    assert!(!order.ordered(other, late));
}

#[test]
fn a_barrier_with_waits_orders_what_follows_and_not_what_was_before() {
    let order = two_lists(false);
    let early = order.append(A, 1, &plain());
    let signal = order.append(B, 1, &with(SIGNAL));
    order.append(A, 1, &Appended { role: Role::Barrier, ..waiting(WORD) });
    let late = order.append(A, 1, &plain());
    let [early, signal, late] = [early, signal, late].map(|it| start(&order, it));
    assert!(order.ordered(signal, late) && !order.ordered(early, late));
}

#[test]
fn a_wait_may_come_before_its_signal() {
    let order = two_lists(true);
    let waiter = order.append(A, 1, &waiting(WORD));
    let early = order.append(B, 1, &plain());
    let signal = order.append(B, 2, &with(SIGNAL));
    let late = order.append(B, 3, &plain());
    let [early, signal, late, waiter] = [early, signal, late, waiter].map(|it| start(&order, it));
    assert!(order.ordered(early, waiter) && order.ordered(signal, waiter));
    assert!(!order.ordered(late, waiter));
}

#[test]
fn a_counter_based_event_names_a_value() {
    let order = two_lists(true);
    let numbers = [1, 2, 3].map(|value| order.append(A, value, &plain()));
    let waiter = order.append(B, 1, &waiting(Awaited::Counter { cell: A, value: 2 }));
    let [first, second, third] = numbers.map(|it| start(&order, it));
    let waiter = start(&order, waiter);
    assert!(order.ordered(first, waiter) && order.ordered(second, waiter));
    assert!(!order.ordered(third, waiter));
}

#[test]
fn the_host_orders_what_it_has_seen_before_what_it_submits_then() {
    let order = two_lists(true);
    let seen = order.append(A, 1, &plain());
    let unseen = order.append(A, 2, &plain());
    let before = order.append(B, 1, &plain());
    order.host_saw(Awaited::Counter { cell: A, value: 1 });
    let after = order.append(B, 2, &plain());
    let [seen, unseen, before, after] = [seen, unseen, before, after].map(|it| start(&order, it));
    assert!(order.ordered(seen, after) && !order.ordered(seen, before));
    assert!(!order.ordered(unseen, after));
}

#[test]
fn a_list_that_the_host_has_seen_has_passed_its_waits_for_what_was_complete() {
    let order = two_lists(true);
    let copy = order.append(A, 1, &plain());
    let first = order.append(B, 1, &plain());
    let event = waiting(Awaited::Counter { cell: A, value: 1 });
    // The event is complete, so the wait is no command.
    let waiter = order.append(B, 2, &event);
    order.raises_nothing(B, 2, waiter);
    order.host_saw_up_to(B, 1);
    let after = order.append(B, 2, &plain());
    let other = order.append(A, 2, &plain());
    order.host_saw_up_to(B, 1);
    let [copy, first, after, other] = [copy, first, after, other].map(|it| start(&order, it));
    assert!(order.ordered(copy, after) && order.ordered(first, other));
    assert!(!order.ordered(after, other));
}

#[test]
fn an_out_of_order_list_that_the_host_has_seen_orders_what_follows() {
    let order = two_lists(false);
    let seen = [order.append(A, 1, &plain()), order.append(A, 1, &plain())];
    order.host_saw_list(A);
    let after = order.append(B, 1, &plain());
    let after = start(&order, after);
    for number in seen {
        assert!(order.ordered(start(&order, number), after));
    }
}

fn record(order: &Order, recording: usize, it: Appended, signal: Option<u32>) -> u32 {
    let number = order.number(recording, &it);
    order.recorded(recording, number, it, signal);
    number
}

fn execution(order: &Order, number: u32, base: u64) -> Execution {
    order.started(number, base).expect("it was submitted").execution
}

#[test]
fn executions_of_an_in_order_list_follow_each_other_and_lists_on_a_queue_do_not() {
    let order = Order::default();
    order.stream_begins(QUEUE, true);
    order.recording_begins(1, true, None);
    order.recording_begins(2, true, None);
    let one = record(&order, 1, plain(), Some(1));
    let two = record(&order, 2, plain(), Some(1));
    let run = |recording, base, value| {
        order.execute(QUEUE, value, &[Executed { recording, base }], None, Vec::new());
    };
    run(1, 0, 1);
    run(2, 0, 2);
    run(1, 1, 3);
    let [first, second] = [0, 1].map(|base| execution(&order, one, base));
    let other = execution(&order, two, 0);
    assert!(order.ordered(first, second));
    assert!(!order.ordered(first, other) && !order.ordered(other, second));
    order.host_saw(Awaited::Counter { cell: QUEUE, value: 2 });
    run(2, 1, 4);
    let third = execution(&order, two, 1);
    assert!(order.ordered(first, third), "the queue was waited for");
    assert!(!order.ordered(second, third));
}

#[test]
fn executions_of_an_out_of_order_list_have_no_order_of_their_own() {
    let order = Order::default();
    order.stream_begins(QUEUE, true);
    order.recording_begins(1, false, None);
    let one = record(&order, 1, plain(), None);
    for base in 0..2 {
        let list = [Executed { recording: 1, base }];
        order.execute(QUEUE, base + 1, &list, None, Vec::new());
    }
    let [first, second] = [0, 1].map(|base| execution(&order, one, base));
    assert!(!order.ordered(first, second) && !order.ordered(second, first));
}

#[test]
fn a_wait_for_a_regular_list_means_its_latest_execution_or_the_first_to_come() {
    let order = two_lists(true);
    order.stream_begins(QUEUE, true);
    order.recording_begins(1, true, None);
    let one = record(&order, 1, plain(), Some(1));
    let two = record(&order, 1, plain(), Some(2));
    let signal = Awaited::Recorded { recording: 1, signal: 1 };
    let early = order.append(A, 1, &waiting(signal));
    for base in [0, 2] {
        let list = [Executed { recording: 1, base }];
        order.execute(QUEUE, base + 1, &list, None, Vec::new());
    }
    let late = order.append(B, 1, &waiting(signal));
    let [first, end] = [one, two].map(|it| execution(&order, it, 0));
    let [early, late] = [early, late].map(|it| start(&order, it));
    assert!(order.ordered(first, early) && !order.ordered(end, early));
    assert!(order.ordered(end, late));
    let again = execution(&order, one, 2);
    assert!(order.ordered(again, late) && !order.ordered(again, early));
}

#[test]
fn a_wait_for_what_is_not_known_orders_after_all_that_has_started() {
    let order = two_lists(true);
    let started = order.append(A, 1, &plain());
    let coming = order.append(A, 2, &plain());
    let waiter = order.append(B, 1, &waiting(Awaited::Unknown));
    let started = start(&order, started);
    let waiter = start(&order, waiter);
    assert!(order.ordered(started, waiter));
    assert!(!order.ordered(start(&order, coming), waiter));
}

#[test]
fn an_aggregated_event_is_complete_with_its_last_signal() {
    let order = Order::default();
    [A, B, QUEUE].into_iter().for_each(|cell| order.stream_begins(cell, true));
    let add = Effect::Signal { address: EVENT, amount: 2, needed: 4 };
    let waiter = order.append(QUEUE, 1, &waiting(Awaited::Word { address: EVENT, needed: 4 }));
    let signals = [order.append(A, 1, &with(add)), order.append(B, 1, &with(add))];
    let signals = signals.map(|it| start(&order, it));
    let waiter = start(&order, waiter);
    assert!(signals.iter().all(|&it| order.ordered(it, waiter)));
    assert!(!order.ordered(signals[0], signals[1]));
}

#[test]
fn a_failed_append_signals_nothing() {
    let order = two_lists(true);
    let failed = order.append(A, 1, &with(SIGNAL));
    order.withdraw(A, 1, failed);
    assert!(order.started(failed, 0).is_none());
    let waiter = order.append(B, 1, &waiting(WORD));
    let signal = order.append(A, 1, &with(SIGNAL));
    let [signal, waiter] = [signal, waiter].map(|it| start(&order, it));
    assert!(order.ordered(signal, waiter));
}

#[test]
fn many_commands_of_an_out_of_order_list_take_few_chains() {
    let order = two_lists(false);
    for _ in 0..100 {
        for _ in 0..5 {
            order.append(A, 1, &plain());
        }
        order.append(A, 1, &is(Role::Barrier));
        order.append(B, 1, &plain());
        order.host_saw_list(B);
    }
    assert!(order.state().chains.len() < 20, "{}", order.state().chains.len());
}

#[test]
fn a_long_list_takes_no_deep_stack() {
    let order = two_lists(true);
    let mut last = 0;
    for value in 1..200_000 {
        last = order.append(A, value, &plain());
    }
    let last = start(&order, last);
    assert!(order.ordered(Execution(1), last));
}

/// Starts commands; the claims of `sync` that did not hold.
fn broken(order: &Order, numbers: &[u32]) -> Vec<Broken> {
    let mut all = Vec::new();
    for &number in numbers {
        let mut state = order.state();
        let command = state.command_mut(number).expect("it was appended");
        let (_, execution) = command.coming.pop_front().expect("it comes");
        all.extend(state.broken(execution).into_iter().map(|it| it.0));
    }
    all
}

/// Another thread submits a wait before the reset that it comes after.
#[test]
fn a_reset_may_come_before_a_wait_that_was_submitted_before_it() {
    for waits in [false, true] {
        let order = two_lists(true);
        let signal = order.append(A, 1, &with(SIGNAL));
        const OTHER: u64 = EVENT + 64;
        if waits {
            order.append(B, 1, &waiting(Awaited::Word { address: OTHER, needed: 1 }));
        }
        let waiter = order.append(B, 2, &waiting(WORD));
        let reset = Appended { effects: vec![Effect::Reset { address: EVENT }], ..plain() };
        let reset = order.append(A, 2, &reset);
        let gate = Effect::Signal { address: OTHER, amount: 1, needed: 1 };
        let gate = order.append(A, 3, &with(gate));
        assert_eq!(broken(&order, &[signal, reset, gate]), []);
        assert_eq!(broken(&order, &[waiter]).is_empty(), waits);
    }
}

/// The device tells of a command that only waits for an event with a word, which may not be reset until then.
#[test]
fn waits_for_words_tell_when_they_have_ended() {
    assert!(waiting(WORD).tells());
    assert!(!waiting(Awaited::Counter { cell: A, value: 1 }).tells() && !plain().tells());
}

/// A copy has numbers of its own: what the device tells of it is not taken for the source's.
#[test]
fn a_copy_of_a_list_is_another_list() {
    let order = Order::default();
    order.stream_begins(QUEUE, true);
    order.recording_begins(1, true, None);
    let one = record(&order, 1, Appended { launch: 7, ..plain() }, Some(1));
    let two = record(&order, 1, plain(), Some(2));
    let copied = order.recordings_are_copied(&[(1, 2)], |launch| launch + 100);
    let ((copy, launch), (end, _)) = (copied[&one], copied[&two]);
    assert!(launch == 107 && ![0, one, two].contains(&copy) && ![0, copy].contains(&end));
    // The counters of both may have the same values.
    for (recording, value) in [(1, 1), (2, 2)] {
        order.execute(QUEUE, value, &[Executed { recording, base: 0 }], None, Vec::new());
    }
    let [source, copy, end] = [one, copy, end].map(|it| execution(&order, it, 0));
    assert!(source != copy && order.ordered(copy, end));
    assert!(!order.ordered(source, copy) && !order.ordered(copy, source));
    assert_eq!((order.of_launch(7), order.of_launch(107)), (source, copy));
    let [source, copy] = [source, copy].map(|it| order.named(it).expect("it is remembered"));
    assert_eq!((source.call.number, source.list), (copy.call.number, copy.list));
}

/// A mutable list: what is changed is what the next execution does.
#[test]
fn changes_of_commands_are_those_of_later_executions() {
    let order = two_lists(true);
    order.stream_begins(QUEUE, true);
    order.recording_begins(1, true, None);
    let record = |it: Appended, signal| {
        let number = order.number(1, &it);
        (number, order.recorded(1, number, it, Some(signal)).expect("it is recorded"))
    };
    let (waiter, first) = record(Appended { launch: 3, ..waiting(WORD) }, 1);
    let (signal, second) = record(Appended { signals: true, ..with(SIGNAL) }, 2);
    const OTHER: Effect = Effect::Signal { address: EVENT + 64, amount: 1, needed: 1 };
    order.waits_change(1, first, vec![Awaited::Counter { cell: A, value: 1 }]);
    order.launch_changes(1, first, 4);
    order.signal_changes(1, second, (Some(SIGNAL), Some(OTHER)), true);
    let early = order.append(A, 1, &plain());
    order.execute(QUEUE, 1, &[Executed { recording: 1, base: 0 }], None, Vec::new());
    let late = order.append(A, 2, &waiting(Awaited::Word { address: EVENT + 64, needed: 1 }));
    let never = order.append(B, 1, &waiting(WORD));
    let [early, late, never] = [early, late, never].map(|it| start(&order, it));
    let [waiter, signal] = [waiter, signal].map(|it| execution(&order, it, 0));
    assert!(order.ordered(early, waiter) && order.ordered(signal, late));
    assert!(!order.ordered(signal, never));
    assert!(!order.ordered(never, waiter), "it waits for nothing that is not known");
    assert_eq!([3, 4].map(|it| order.of_launch(it)), [Execution::NONE, waiter]);
    order.signal_changes(1, second, (Some(OTHER), None), false);
    assert!(!order.named(signal).expect("it is remembered").signals);
}

/// Waits of lists that were copied together are for the copies.
#[test]
fn copies_of_lists_wait_for_each_other() {
    let order = two_lists(true);
    [1, 2].into_iter().for_each(|it| order.recording_begins(it, true, None));
    let signal = record(&order, 1, plain(), Some(1));
    let waiter = waiting(Awaited::Recorded { recording: 1, signal: 1 });
    let waiter = record(&order, 2, waiter, Some(1));
    let copied = order.recordings_are_copied(&[(1, 3), (2, 4)], |launch| launch);
    for (cell, recordings) in [(A, [1, 3]), (B, [2, 4])] {
        for (value, recording) in (1..).zip(recordings) {
            order.execute(cell, value, &[Executed { recording, base: 0 }], None, Vec::new());
        }
    }
    let [signals, waiters] =
        [signal, waiter].map(|it| [it, copied[&it].0].map(|it| execution(&order, it, 0)));
    for (i, signal) in signals.into_iter().enumerate() {
        assert_eq!(waiters.map(|it| order.ordered(signal, it)), [i == 0, i == 1]);
    }
}

#[test]
fn a_wait_that_does_not_end_after_a_reset_is_known() {
    let order = two_lists(true);
    let signal = order.append(A, 1, &with(SIGNAL));
    order.append(B, 1, &waiting(WORD));
    let reset = Appended { effects: vec![Effect::Reset { address: EVENT }], ..plain() };
    let reset = order.append(A, 2, &reset);
    assert_eq!(broken(&order, &[signal, reset]), []);
    assert_eq!(order.state().still_waiting().len(), 1);
    assert_eq!(order.state().still_waiting().len(), 0);
}

#[test]
fn a_reset_comes_after_the_signal_and_the_waits() {
    for waits in [false, true] {
        let order = two_lists(true);
        let signal = order.append(A, 1, &with(SIGNAL));
        let waiter = order.append(B, 1, &waiting(WORD));
        let reset = Appended { effects: vec![Effect::Reset { address: EVENT }], ..plain() };
        let reset = match waits {
            true => Appended { waits: vec![Awaited::Counter { cell: B, value: 1 }], ..reset },
            false => reset,
        };
        let reset = order.append(A, 2, &reset);
        let wanted: &[Broken] = if waits { &[] } else { &[Broken::Wait] };
        assert_eq!(broken(&order, &[signal, waiter, reset]), wanted);
    }
}

#[test]
fn two_signals_of_one_event_are_ordered() {
    let order = two_lists(true);
    let first = order.append(A, 1, &with(SIGNAL));
    let same = order.append(A, 2, &with(SIGNAL));
    let other = order.append(B, 1, &with(SIGNAL));
    assert!(broken(&order, &[first, same]).is_empty());
    assert_eq!(broken(&order, &[other]), [Broken::Signals(EVENT)]);
}

#[test]
fn other_processes_may_signal_the_events_of_a_shared_pool() {
    let order = two_lists(true);
    order.word_begins(EVENT, 1, false);
    order.words_are_shared([EVENT].into_iter());
    // Another process has signalled it before.
    let one = order.append(A, 1, &with(SIGNAL));
    let two = order.append(B, 1, &with(SIGNAL));
    assert!(broken(&order, &[one, two]).is_empty());
    let started = order.append(A, 2, &plain());
    let waiter = order.append(B, 2, &waiting(WORD));
    let [started, waiter] = [started, waiter].map(|it| start(&order, it));
    assert!(order.ordered(started, waiter), "it may be what the other process had waited for");
}

/// What is known of a command that has not started is not kept.
#[test]
fn a_signal_orders_all_that_follows_a_wait_that_was_asked_about_before() {
    let order = two_lists(true);
    let other = order.append(B, 1, &plain());
    order.append(A, 1, &waiting(WORD));
    let between = order.append(A, 2, &plain());
    let last = order.append(A, 3, &plain());
    let other = start(&order, other);
    let between = order.state().command(between).expect("it was appended").coming[0].1;
    assert!(order.ordered(other, between), "it has started");
    let signal = order.append(B, 2, &with(SIGNAL));
    let [signal, last] = [signal, last].map(|it| start(&order, it));
    assert!(order.ordered(signal, last));
}

/// Of two signals the one that starts later decides.
#[test]
fn a_signal_of_the_host_may_come_first() {
    let order = two_lists(true);
    let first = order.append(A, 1, &with(SIGNAL));
    order.host_affects(SIGNAL);
    assert_eq!(broken(&order, &[first]), [Broken::Signals(EVENT)]);
}

/// The signals are submitted in another order than that which a wait gives them.
#[test]
fn a_signal_may_be_submitted_before_the_one_that_it_waits_for() {
    let order = two_lists(true);
    let later = order.append(A, 1, &Appended { effects: vec![SIGNAL], ..waiting(WORD) });
    let first = order.append(B, 1, &with(SIGNAL));
    let waiter = order.append(B, 2, &waiting(WORD));
    assert!(broken(&order, &[first, later, waiter]).is_empty());
    assert!(order.ordered(Execution(2), Execution(1)));
}

/// The same where the wait is another command of the list.
#[test]
fn a_signal_that_comes_after_a_wait_for_it_does_not_end_the_wait() {
    let order = two_lists(true);
    let waiter = order.append(A, 1, &waiting(WORD));
    let later = order.append(A, 2, &with(SIGNAL));
    // The device does not tell when this signal starts.
    order.execute(B, 1, &[], Some(Vec::new()), vec![SIGNAL]);
    let last = order.append(B, 2, &with(SIGNAL));
    assert!(broken(&order, &[waiter, later, last]).is_empty());
}

/// Two threads submit signals of one event in another order than that of the signals.
#[test]
fn signals_that_are_submitted_in_the_wrong_order_make_no_circle() {
    const OTHER: u64 = 0xa000;
    let order = two_lists(true);
    order.stream_begins(QUEUE, true);
    let other = Awaited::Word { address: OTHER, needed: 1 };
    let second = order.append(A, 1, &Appended { effects: vec![SIGNAL], ..waiting(other) });
    let between = Effect::Signal { address: OTHER, amount: 1, needed: 1 };
    let between = order.append(B, 1, &Appended { effects: vec![between], ..waiting(WORD) });
    let first = order.append(QUEUE, 1, &with(SIGNAL));
    assert!(broken(&order, &[first]).is_empty());
    let first = Execution(3);
    order.state().started.add(2, 1);
    let [between, second] = [between, second].map(|it| start(&order, it));
    assert!(order.ordered(first, between) && order.ordered(between, second));
}

#[test]
fn executions_of_an_empty_list_follow_each_other() {
    let order = two_lists(true);
    order.recording_begins(1, true, None);
    let first = order.append(A, 1, &plain());
    let run = |cell, value, base| {
        let list = [Executed { recording: 1, base }];
        order.execute(cell, value, &list, Some(Vec::new()), Vec::new());
    };
    run(A, 2, 0);
    run(B, 1, 1);
    let last = order.append(B, 2, &plain());
    let [first, last] = [first, last].map(|it| start(&order, it));
    assert!(order.ordered(first, last));
}

#[test]
fn a_wait_for_others_comes_after_what_starts_before_it_ends() {
    let order = two_lists(true);
    order.stream_begins(QUEUE, true);
    order.append(QUEUE, 1, &waiting(Awaited::Unknown));
    let after = order.append(QUEUE, 2, &with(SIGNAL));
    let signals = [1, 2].map(|value| order.append(A, value, &with(SIGNAL)));
    let early = order.append(B, 1, &plain());
    // Looks at what was before the first signal, which has not started.
    start(&order, signals[0]);
    let early = start(&order, early);
    let after = start(&order, after);
    assert!(order.ordered(early, after));
}

/// Several launches of one command: in a list that is not in order nothing orders them.
#[test]
fn launches_of_one_command_are_commands_in_order_or_not() {
    for in_order in [true, false] {
        let order = two_lists(in_order);
        order.stream_begins(QUEUE, true);
        let launch = |launch| Appended { launch, ..plain() };
        let begins = with(SIGNAL);
        let before = order.append(A, 1, &plain());
        let (whole, launches) = order.append_launches(A, 2, &begins, &[launch(5), launch(6)]);
        let behind = order.append(A, 3, &is(Role::Barrier));
        let waiter = order.append(B, 1, &waiting(WORD));
        order.recording_begins(1, in_order, None);
        let number = order.number(1, &begins);
        let inner: Vec<u32> = [7, 8].map(|it| order.number(1, &launch(it))).into();
        let parts = Parts { launches: inner.clone(), ..Parts::default() };
        order.parts_recorded(1, number, plain(), None, parts);
        let copied = order.recordings_are_copied(&[(1, 2)], |it| it + 10);
        order.execute(QUEUE, 1, &[Executed { recording: 2, base: 0 }], None, Vec::new());
        let last = order.append(QUEUE, 2, &plain());
        let [before, whole] = [before, whole].map(|it| start(&order, it));
        let of_list: Vec<Execution> = launches.iter().map(|&it| start(&order, it)).collect();
        let of_copy: Vec<Execution> =
            inner.iter().map(|it| execution(&order, copied[it].0, 0)).collect();
        let [behind, waiter, last] = [behind, waiter, last].map(|it| start(&order, it));
        for all in [&of_list, &of_copy] {
            assert_eq!(order.ordered(all[0], all[1]), in_order);
            assert!(!order.ordered(all[1], all[0]));
        }
        for &it in &of_list {
            assert!(order.ordered(whole, it) && order.ordered(it, behind));
            assert!(order.ordered(it, waiter) && order.ordered(before, it) == in_order);
        }
        assert!(of_copy.iter().all(|&it| order.ordered(it, last)));
        assert_eq!([5, 6].map(|it| order.of_launch(it))[..], of_list[..]);
        assert_eq!([17, 18].map(|it| order.of_launch(it))[..], of_copy[..]);
    }
}

/// What is forgotten of a recording are its chains, which others take.
#[test]
fn recordings_that_end_give_back_their_chains() {
    let order = two_lists(true);
    for round in 0..100 {
        order.recording_begins(round, true, None);
        record(&order, round, plain(), Some(1));
        let list = [Executed { recording: round, base: 0 }];
        order.execute(A, round as u64 + 1, &list, Some(Vec::new()), Vec::new());
        order.host_saw(Awaited::Counter { cell: A, value: round as u64 + 1 });
        order.recording_ends(round);
    }
    assert!(order.state().chains.len() < 5, "{}", order.state().chains.len());
    assert!(order.state().recordings.is_empty());
}

#[test]
fn a_launch_that_was_changed_uses_other_memory() {
    const BEFORE: u64 = 0x10000;
    const NOW: u64 = 0x20000;
    let in_use = Arc::new(InUse::new(|_, _, _| true));
    [BEFORE, NOW].into_iter().for_each(|it| in_use.add(it, 4096));
    let order = Order::with(Some(in_use.clone()));
    order.stream_begins(QUEUE, true);
    order.recording_begins(1, true, None);
    let uses = |launch, address| order.launch_uses(launch, vec![Use { address, writes: true }]);
    uses(3, BEFORE);
    let launch = Appended { launch: 3, ..plain() };
    let number = order.number(1, &launch);
    let item = order.recorded(1, number, launch, Some(1)).expect("it is recorded");
    uses(4, NOW);
    order.launch_changes(1, item, 4);
    order.execute(QUEUE, 1, &[Executed { recording: 1, base: 0 }], None, Vec::new());
    assert!(in_use.is_used(NOW) && !in_use.is_used(BEFORE));
}
