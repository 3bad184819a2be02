// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rules of the specification, one by one: the model's answers, and its refusals.
//!
//! Each valid program is also run on the toy driver, so that the two never drift apart.

use tally_tests::model::Answer::{self, Either, NotReady, Ready};
use tally_tests::model::{Model, Refusal};
use tally_tests::program::examples::{Script, copy, mix};
use tally_tests::program::run::run_serially;
use tally_tests::program::{
    Action, Cell, Command, Engine, EventId, EventKind, ListId, ListKind, ListOrder, Object, Op,
    Step,
};
use tally_tests::toy::Toy;

/// The answers of the queries of a valid program, in their order.
fn answers(script: Script) -> Vec<Answer> {
    let program = script.program();
    let model = Model::of(&program);
    let model = model.unwrap_or_else(|(step, why)| panic!("step {step}: {why}\n{program}"));
    let expected = model.expected().unwrap_or_else(|why| panic!("{why}\n{program}"));
    for schedule in 0..50 {
        let result = run_serially(&program, &expected, &Toy::new(schedule, None));
        assert_eq!(result, Ok(()), "schedule {schedule}\n{program}");
    }
    expected.answers.into_iter().flatten().collect()
}

/// The reason why the model refuses a program, at its last step.
fn refusal(script: Script) -> Refusal {
    let program = script.program();
    match Model::of(&program) {
        Ok(_) => panic!("not refused\n{program}"),
        Err((step, refusal)) => {
            assert_eq!(step + 1, program.steps.len(), "{refusal}\n{program}");
            refusal
        }
    }
}

fn out_of_order(script: &mut Script) -> ListId {
    script.list(ListKind::Immediate, ListOrder::OutOfOrder, Engine::Compute)
}

/// "After creation, a CB Event is initially marked as completed."
#[test]
fn cb_event_is_born_complete() {
    let mut script = Script::new();
    let event = script.counter_based();
    script.query(Object::Event(event));
    script.synchronize(Object::Event(event));
    assert_eq!(answers(script), [Ready]);
}

/// "From its append to a regular list until the execution that signals it completes, a CB event
/// is not ready."
#[test]
fn recorded_event_is_not_ready() {
    let mut script = Script::new();
    let (list, queue, event) = (script.regular(), script.queue(), script.counter_based());
    script.append(list, mix(0, 1, 1), &[], Some(event));
    script.query(Object::Event(event));
    script.close(list);
    script.query(Object::Event(event));
    script.execute(queue, list);
    script.query(Object::Event(event));
    script.synchronize(Object::Queue(queue));
    script.query(Object::Event(event));
    assert_eq!(answers(script), [NotReady, NotReady, Either, Ready]);
}

/// "Every execution of a regular list gives the events that it signals the state of that
/// execution, also when another list has signalled them since."
#[test]
fn execution_takes_its_events_back() {
    let mut script = Script::new();
    let (list, queue, event) = (script.regular(), script.queue(), script.counter_based());
    let immediate = script.immediate(Engine::Compute);
    let gate = script.hold(list);
    script.append(list, mix(0, 1, 1), &[], Some(event));
    script.close(list);
    script.append(immediate, mix(2, 1, 1), &[], Some(event));
    script.synchronize(Object::Event(event));
    script.query(Object::Event(event));
    script.execute(queue, list);
    script.query(Object::Event(event));
    script.release(gate);
    script.synchronize(Object::Event(event));
    assert_eq!(answers(script), [Ready, NotReady]);
}

/// "An event may be destroyed after it was recorded and before the list is executed: the recorded
/// dependency holds."
#[test]
fn recorded_dependency_outlives_its_event() {
    let mut script = Script::new();
    let (producer, queue) = (script.immediate(Engine::Compute), script.queue());
    let (consumer, event) = (script.regular(), script.counter_based());
    let gate = script.hold(producer);
    script.append(producer, mix(0, 1, 1), &[], Some(event));
    script.append(consumer, copy(2, 0), &[event], None);
    script.step(Action::DestroyEvent(event));
    script.close(consumer);
    script.execute(queue, consumer);
    script.query(Object::Queue(queue));
    script.release(gate);
    script.synchronize(Object::Queue(queue));
    assert_eq!(answers(script), [NotReady]);
}

/// A recorded wait refers to the state that the event had when the wait was appended.
#[test]
fn recorded_wait_ignores_later_signals() {
    let mut script = Script::new();
    let (held, queue) = (script.immediate(Engine::Compute), script.queue());
    let (list, event) = (script.regular(), script.counter_based());
    script.append(list, mix(0, 1, 1), &[event], None);
    script.close(list);
    let gate = script.hold(held);
    script.append(held, mix(2, 3, 1), &[], Some(event));
    script.execute(queue, list);
    script.synchronize(Object::Queue(queue));
    script.query(Object::Event(event));
    script.release(gate);
    script.synchronize(Object::Event(event));
    assert_eq!(answers(script), [NotReady]);
}

/// "A wait bound to execution n stays met when execution n+1 has begun."
#[test]
fn wait_for_an_execution_stays_met() {
    let mut script = Script::new();
    let (list, queue, event) = (script.regular(), script.queue(), script.counter_based());
    let waiter = script.immediate(Engine::Compute);
    let gate = script.hold(list);
    script.append(list, mix(0, 1, 1), &[], Some(event));
    script.close(list);
    script.release(gate);
    script.execute(queue, list);
    script.synchronize(Object::Queue(queue));
    let later = script.hold(waiter);
    script.append(waiter, mix(2, 1, 1), &[event], None);
    script.step(Action::HostReset(gate));
    script.execute(queue, list);
    script.release(later);
    script.synchronize(Object::List(waiter));
    script.query(Object::Event(event));
    script.release(gate);
    script.synchronize(Object::Queue(queue));
    assert_eq!(answers(script), [NotReady]);
}

/// "Counters never go back, also across reuse": complete work stays complete without its list.
#[test]
fn event_outlives_its_list() {
    let mut script = Script::new();
    let (list, queue, event) = (script.regular(), script.queue(), script.counter_based());
    script.append(list, mix(0, 1, 1), &[], Some(event));
    script.close(list);
    script.execute(queue, list);
    script.synchronize(Object::Queue(queue));
    script.step(Action::ResetList(list));
    script.append(list, mix(0, 1, 2), &[], None);
    script.query(Object::Event(event));
    script.step(Action::DestroyList(list));
    let other = script.immediate(Engine::Compute);
    script.append(other, mix(0, 1, 3), &[event], None);
    script.synchronize(Object::List(other));
    script.query(Object::Event(event));
    assert_eq!(answers(script), [Ready, Ready]);
}

/// An event of a recording that is destroyed and was never executed is never ready.
#[test]
fn event_of_a_lost_recording_is_never_ready() {
    let lost = || {
        let mut script = Script::new();
        let (list, event) = (script.regular(), script.counter_based());
        let waiter = script.immediate(Engine::Compute);
        script.append(list, mix(0, 1, 1), &[], Some(event));
        script.step(Action::DestroyList(list));
        (script, event, waiter)
    };
    let (mut script, event, _) = lost();
    script.query(Object::Event(event));
    assert_eq!(answers(script), [NotReady]);
    let (mut script, event, _) = lost();
    script.synchronize(Object::Event(event));
    assert_eq!(refusal(script), Refusal::WouldHang);
    let (mut script, event, waiter) = lost();
    script.append(waiter, mix(0, 1, 1), &[event], None);
    assert_eq!(refusal(script), Refusal::WouldHang);
}

/// CB events: no signal and no reset by the host or by an append, no signal by an out-of-order
/// list; but "CB Event can be waited for from any command list type".
#[test]
fn cb_event_has_its_own_rules() {
    let with = |step: &dyn Fn(&mut Script)| {
        let mut script = Script::new();
        script.counter_based();
        script.immediate(Engine::Compute);
        out_of_order(&mut script);
        step(&mut script);
        script
    };
    let (event, in_order, unordered) = (EventId(0), ListId(0), ListId(1));
    let misuse = |step: &dyn Fn(&mut Script)| {
        assert!(matches!(refusal(with(step)), Refusal::Misuse(_)));
    };
    misuse(&|script| script.release(event));
    misuse(&|script| {
        script.step(Action::HostReset(event));
    });
    misuse(&|script| script.append(in_order, Op::ResetEvent(event), &[], None));
    misuse(&|script| script.append(unordered, Op::Barrier, &[], Some(event)));
    let valid = with(&|script| {
        script.append(in_order, mix(0, 1, 1), &[], Some(event));
        script.append(unordered, copy(2, 0), &[event], None);
        script.synchronize(Object::List(unordered));
    });
    assert_eq!(answers(valid), []);
}

/// Commands of an in-order list follow each other; those of an out-of-order list overlap, until a
/// barrier. A barrier with a wait list waits for its events only.
#[test]
fn order_inside_lists() {
    let twice = |order, between: &dyn Fn(&mut Script, ListId)| {
        let mut script = Script::new();
        let list = script.list(ListKind::Immediate, order, Engine::Compute);
        script.append(list, mix(0, 1, 1), &[], None);
        between(&mut script, list);
        script.append(list, mix(0, 1, 2), &[], None);
        script
    };
    let race = Refusal::Race(Cell(0));
    let mut in_order = twice(ListOrder::InOrder, &|_, _| ());
    in_order.synchronize(Object::List(ListId(0)));
    assert_eq!(answers(in_order), []);
    assert_eq!(refusal(twice(ListOrder::OutOfOrder, &|_, _| ())), race);
    let mut with_barrier =
        twice(ListOrder::OutOfOrder, &|script, list| script.append(list, Op::Barrier, &[], None));
    with_barrier.synchronize(Object::List(ListId(0)));
    assert_eq!(answers(with_barrier), []);
    let with_events = twice(ListOrder::OutOfOrder, &|script, list| {
        let complete = script.counter_based();
        script.append(list, Op::Barrier, &[complete], None);
    });
    assert_eq!(refusal(with_events), race);
}

/// "Ensure hKernel1 completes before signaling hEvent1; ensure hEvent1 is signaled before starting
/// hKernel2": a regular event inside one out-of-order list.
#[test]
fn regular_event_inside_a_list() {
    let mut script = Script::new();
    let list = out_of_order(&mut script);
    let event = script.event(EventKind::Regular);
    script.append(list, mix(0, 1, 1), &[], Some(event));
    script.append(list, mix(0, 1, 2), &[event], None);
    script.synchronize(Object::List(list));
    script.query(Object::Event(event));
    script.step(Action::HostReset(event));
    script.query(Object::Event(event));
    script.step(Action::HostReset(event));
    script.release(event);
    script.release(event);
    script.query(Object::Event(event));
    assert_eq!(answers(script), [Ready, NotReady, Ready]);
}

/// A reset needs an order with the waits and signals around it.
#[test]
fn resets_need_an_order() {
    let mut script = Script::new();
    let (list, other) = (script.immediate(Engine::Compute), script.immediate(Engine::Compute));
    let event = script.event(EventKind::Regular);
    script.append(list, mix(0, 1, 1), &[], Some(event));
    script.append(other, Op::ResetEvent(event), &[], None);
    assert_eq!(refusal(script), Refusal::Unordered);
}

/// A wait needs an order with the reset before it, else it may see the signal before the reset.
#[test]
fn waits_need_an_order_with_resets() {
    let signalled_again = || {
        let mut script = Script::new();
        let (list, event) = (script.immediate(Engine::Compute), script.event(EventKind::Regular));
        let other = script.immediate(Engine::Compute);
        script.release(event);
        script.append(list, Op::ResetEvent(event), &[], None);
        script.append(list, mix(0, 1, 1), &[], Some(event));
        (script, list, other, event)
    };
    let (mut script, _, _, event) = signalled_again();
    script.synchronize(Object::Event(event));
    assert_eq!(refusal(script), Refusal::Unordered);
    let (mut script, _, other, event) = signalled_again();
    script.append(other, copy(2, 0), &[event], None);
    assert_eq!(refusal(script), Refusal::Unordered);
    let (mut script, list, other, event) = signalled_again();
    script.query(Object::Event(event));
    script.synchronize(Object::List(list));
    script.append(other, copy(2, 0), &[event], None);
    script.synchronize(Object::List(other));
    assert_eq!(answers(script), [Either]);
}

/// A wait comes behind the resets that its engine was given before, so the order of the two calls matters: here
/// the wait is to see the event as it was, and the reset comes after the command that waits.
#[test]
fn a_reset_is_submitted_after_the_waits_before_it() {
    let mut script = Script::new();
    let (waiter, resetter) = (script.immediate(Engine::Compute), script.immediate(Engine::Compute));
    let (event, done) = (script.event(EventKind::Regular), script.event(EventKind::Regular));
    script.release(event);
    let mut program = script.program();
    let waits = program.steps.len();
    let wait = Command { op: copy(2, 0), waits: vec![event], signal: Some(done) };
    let behind = Command { op: Op::Barrier, waits: vec![done], signal: None };
    let reset = Command { op: Op::ResetEvent(event), waits: Vec::new(), signal: None };
    for (thread, list, command) in [(1, waiter, wait), (0, resetter, behind), (0, resetter, reset)]
    {
        program.steps.push(Step { thread, action: Action::Append(list, command) });
    }
    for list in [waiter, resetter] {
        let action = Action::Synchronize(Object::List(list));
        program.steps.push(Step { thread: 0, action });
    }
    let model = Model::of(&program).expect("the program is valid");
    let expected = model.expected().expect("the program ends");
    assert!(expected.after[waits + 2].contains(&waits));
}

/// Two accesses may be ordered by a later signal; if they are not, it is a race.
#[test]
fn order_may_come_later() {
    let held = || {
        let mut script = Script::new();
        let (list, other) = (script.immediate(Engine::Compute), script.immediate(Engine::Compute));
        let gate = script.hold(list);
        script.append(list, mix(0, 1, 1), &[], None);
        script.append(other, mix(0, 1, 2), &[], None);
        (script, list, other, gate)
    };
    let (mut script, list, other, gate) = held();
    script.synchronize(Object::List(other));
    script.release(gate);
    script.synchronize(Object::List(list));
    assert_eq!(answers(script), []);
    let (mut script, _, _, gate) = held();
    script.release(gate);
    assert_eq!(refusal(script), Refusal::Race(Cell(0)));
}

/// A recording that another command waits for cannot be discarded.
#[test]
fn promised_recording_stays() {
    let mut script = Script::new();
    let (list, event) = (script.regular(), script.counter_based());
    let waiter = script.immediate(Engine::Compute);
    script.append(list, mix(0, 1, 1), &[], Some(event));
    script.append(waiter, copy(2, 0), &[event], None);
    script.step(Action::DestroyList(list));
    assert_eq!(refusal(script), Refusal::WouldHang);
}

/// The order of the two calls determines the execution to which a recorded wait is bound, so threads
/// must not make them at once.
#[test]
fn executions_that_bind_each_other_take_turns() {
    let mut script = Script::new();
    let (producer, consumer) = (script.regular(), script.regular());
    let (queue, other, event) = (script.queue(), script.queue(), script.counter_based());
    script.append(producer, mix(0, 1, 1), &[], Some(event));
    script.append(consumer, copy(2, 0), &[event], None);
    script.close(producer);
    script.close(consumer);
    script.step(Action::DestroyEvent(event));
    script.execute(other, consumer);
    let bound = script.query(Object::Queue(other)) - 1;
    let mut program = script.program();
    let lists = vec![producer];
    let execute = Action::Execute { queue, lists, fence: None };
    program.steps.push(Step { thread: 1, action: execute });
    program.steps.push(Step { thread: 0, action: Action::Synchronize(Object::Queue(other)) });
    let model = Model::of(&program).expect("the program is valid");
    let expected = model.expected().expect("the program ends");
    assert!(expected.after[bound + 2].contains(&bound));
}

/// Discarding a recording before its first execution leaves an opened event without a meaning, so it
/// comes after all queries of that event by other threads.
#[test]
fn a_recording_goes_after_what_is_asked_of_its_opened_events() {
    let mut script = Script::new();
    let (list, event) = (script.regular(), script.counter_based());
    script.append(list, mix(0, 1, 1), &[], Some(event));
    let opened = EventId(event.0 + 1);
    script.step(Action::Share(event, opened));
    let mut program = script.program();
    let asked = program.steps.len();
    for action in [Action::Query(Object::Event(opened)), Action::DestroyEvent(opened)] {
        program.steps.push(Step { thread: 1, action });
    }
    let dropped = program.steps.len();
    program.steps.push(Step { thread: 0, action: Action::DestroyList(list) });
    let model = Model::of(&program).expect("the program is valid");
    let expected = model.expected().expect("the program ends");
    // The destruction of the event comes after the query, as its thread's next call.
    assert!(expected.after[dropped].iter().any(|&step| step >= asked && step < dropped));
}

/// Nothing orders the completion of two lists on one queue; a host wait between them does.
#[test]
fn lists_on_one_queue_may_overlap() {
    let two = |between: bool| {
        let mut script = Script::new();
        let queue = script.queue();
        for _ in 0..2 {
            let list = script.regular();
            script.append(list, mix(0, 1, 1), &[], None);
            script.close(list);
            script.execute(queue, list);
            if between {
                script.synchronize(Object::Queue(queue));
            }
        }
        script
    };
    assert_eq!(refusal(two(false)), Refusal::Race(Cell(0)));
    assert_eq!(answers(two(true)), []);
}

/// "A queue whose next command waits must not keep another queue from its work": a wait behind a
/// blocked command of the same queue would hang, on another queue it ends.
#[test]
fn blocked_queue_blocks_no_other() {
    let with = |queues: usize| {
        let mut script = Script::new();
        let all: Vec<_> = (0..queues).map(|_| script.queue()).collect();
        let (blocked, free) = (script.regular(), script.regular());
        let gate = script.hold(blocked);
        let event = script.counter_based();
        script.append(free, mix(0, 1, 1), &[], Some(event));
        script.close(blocked);
        script.close(free);
        script.execute(all[0], blocked);
        script.execute(all[queues - 1], free);
        script.synchronize(Object::Event(event));
        (script, gate, all[0])
    };
    assert_eq!(refusal(with(1).0), Refusal::WouldHang);
    let (mut script, gate, first) = with(2);
    script.query(Object::Queue(first));
    script.release(gate);
    script.synchronize(Object::Queue(first));
    assert_eq!(answers(script), [NotReady]);
}

/// "There are no protections against events causing deadlocks": the model refuses a cycle.
#[test]
fn circle_of_waits_is_refused() {
    let mut script = Script::new();
    let (list, other) = (script.immediate(Engine::Compute), script.immediate(Engine::Copy));
    let (first, second) = (script.event(EventKind::Regular), script.event(EventKind::Regular));
    script.append(list, Op::Barrier, &[first], Some(second));
    script.append(other, Op::Barrier, &[second], Some(first));
    assert_eq!(refusal(script), Refusal::Deadlock);
}

/// Overlapping executions of an in-order list follow each other (decision 7); an out-of-order
/// list must be complete first.
#[test]
fn executions_of_one_list() {
    let twice = |order| {
        let mut script = Script::new();
        let queue = script.queue();
        let list = script.list(ListKind::Regular, order, Engine::Compute);
        script.append(list, mix(0, 1, 1), &[], None);
        script.close(list);
        script.execute(queue, list);
        script.execute(queue, list);
        (script, queue)
    };
    let (mut script, queue) = twice(ListOrder::InOrder);
    script.synchronize(Object::Queue(queue));
    assert_eq!(answers(script), []);
    assert_eq!(refusal(twice(ListOrder::OutOfOrder).0), Refusal::InUse);
}

/// "All previous commands must complete prior to the fence being signaled"; "A fence can only be
/// reset from the Host".
#[test]
fn fence_follows_its_queue() {
    let mut script = Script::new();
    let (queue, held, free) = (script.queue(), script.regular(), script.regular());
    let fence = script.fence(queue);
    script.query(Object::Fence(fence));
    let gate = script.hold(held);
    script.append(held, mix(0, 1, 1), &[], None);
    script.append(free, mix(2, 1, 1), &[], None);
    script.close(held);
    script.close(free);
    script.execute(queue, held);
    script.step(Action::Execute { queue, lists: vec![free], fence: Some(fence) });
    script.query(Object::Fence(fence));
    script.release(gate);
    script.synchronize(Object::Fence(fence));
    script.step(Action::Read(Cell(0)));
    script.query(Object::Fence(fence));
    script.step(Action::ResetFence(fence));
    script.query(Object::Fence(fence));
    assert_eq!(answers(script), [NotReady, NotReady, Ready, NotReady]);
}

/// A queue may become idle a little later than its last event and its fence.
#[test]
fn queue_is_idle_after_its_events() {
    let mut script = Script::new();
    let (list, queue, event) = (script.regular(), script.queue(), script.counter_based());
    let fence = script.fence(queue);
    script.append(list, mix(0, 1, 1), &[], Some(event));
    script.close(list);
    script.step(Action::Execute { queue, lists: vec![list], fence: Some(fence) });
    script.synchronize(Object::Event(event));
    script.query(Object::Queue(queue));
    script.synchronize(Object::Fence(fence));
    script.query(Object::Queue(queue));
    script.synchronize(Object::Queue(queue));
    script.query(Object::Queue(queue));
    assert_eq!(answers(script), [Either, Either, Ready]);
}

/// A synchronous list returns when the command is complete.
#[test]
fn synchronous_append_is_complete() {
    let mut script = Script::new();
    let list = script.list(ListKind::ImmediateSynchronous, ListOrder::InOrder, Engine::Compute);
    let event = script.counter_based();
    script.append(list, mix(0, 1, 1), &[], Some(event));
    script.query(Object::Event(event));
    script.step(Action::Read(Cell(0)));
    let never = script.event(EventKind::Regular);
    assert_eq!(answers(script.clone()), [Ready]);
    script.append(list, mix(0, 1, 1), &[never], None);
    assert_eq!(refusal(script), Refusal::WouldHang);
}

/// "The application is responsible for making sure the device is not currently executing from a
/// command list before it is deleted", and for closing it before it is executed.
#[test]
fn lists_in_use_are_left_alone() {
    let executed = || {
        let mut script = Script::new();
        let (list, queue) = (script.regular(), script.queue());
        script.append(list, mix(0, 1, 1), &[], None);
        script.close(list);
        script.execute(queue, list);
        (script, list)
    };
    let (mut script, list) = executed();
    script.step(Action::DestroyList(list));
    assert_eq!(refusal(script), Refusal::InUse);
    let (mut script, list) = executed();
    script.step(Action::ResetList(list));
    assert_eq!(refusal(script), Refusal::InUse);
    let mut script = Script::new();
    let (list, queue) = (script.regular(), script.queue());
    script.execute(queue, list);
    assert!(matches!(refusal(script), Refusal::Misuse(_)));
}

/// Calls of other threads may come before or after a query, unless they change its subject.
#[test]
fn other_threads_leave_the_answer_open() {
    let mut script = Script::new();
    let list = script.immediate(Engine::Compute);
    let event = script.counter_based();
    let gate = script.hold(list);
    script.append(list, mix(0, 1, 1), &[], Some(event));
    script.query(Object::Event(event));
    let mut program = script.program();
    program.steps.push(Step { thread: 1, action: Action::HostSignal(gate) });
    program.steps.push(Step { thread: 0, action: Action::Synchronize(Object::Event(event)) });
    let model = Model::of(&program).expect("the program is valid");
    let answers = model.expected().expect("the program ends").answers;
    assert_eq!(answers.into_iter().flatten().collect::<Vec<_>>(), [Either]);
}

/// A regular event has a cell of its own: a thread that sees it signalled may still see its list's
/// counter below the value. The command before is complete for both.
#[test]
fn list_may_report_idle_a_little_after_its_event() {
    let mut script = Script::new();
    let list = script.immediate(Engine::Compute);
    let (first, event) = (script.counter_based(), script.event(EventKind::Regular));
    script.append(list, mix(0, 1, 1), &[], Some(first));
    script.append(list, mix(2, 1, 1), &[], Some(event));
    script.synchronize(Object::Event(event));
    script.query(Object::List(list));
    script.query(Object::Event(first));
    script.synchronize(Object::List(list));
    script.query(Object::Event(event));
    script.query(Object::List(list));
    assert_eq!(answers(script), [Either, Ready, Ready, Ready]);
}

/// "L0 doesn't allow to execute the same regular command list multiple times in parallel": executions
/// of an empty list take their turns too, so one may be stuck behind the other's queue.
#[test]
fn executions_of_nothing_have_turns() {
    let mut script = Script::new();
    let (stuck, empty) = (script.regular(), script.regular());
    let (queue, other) = (script.queue(), script.queue());
    let _gate = script.hold(stuck);
    script.close(stuck);
    script.close(empty);
    script.execute(queue, stuck);
    script.execute(queue, empty);
    script.execute(other, empty);
    script.synchronize(Object::Queue(other));
    assert_eq!(refusal(script), Refusal::WouldHang);
}

/// "The completion state changes if […] external storage is specified during creation." "User is
/// responsible for updating both memory locations to >= completionValue to signal Event completion."
/// "Signaling such event, replaces the state (as described previously)": the word counts no more.
#[test]
fn external_event_follows_its_word_until_it_is_signalled() {
    let mut script = Script::new();
    let (list, event) = (script.immediate(Engine::Compute), script.event(EventKind::External));
    script.query(Object::Event(event));
    script.step(Action::HostSignal(event));
    script.query(Object::Event(event));
    script.step(Action::HostReset(event));
    script.query(Object::Event(event));
    let gate = script.hold(list);
    script.append(list, mix(0, 1, 1), &[], Some(event));
    script.step(Action::HostSignal(event));
    script.query(Object::Event(event));
    script.release(gate);
    script.synchronize(Object::List(list));
    script.step(Action::HostReset(event));
    script.query(Object::Event(event));
    assert_eq!(answers(script), [NotReady, Ready, NotReady, NotReady, Ready]);
}

/// "Signaling such event, will not replace its state […]. It can be passed to multiple append calls
/// and each append will increment the storage": also each execution of a regular list.
#[test]
fn aggregated_event_needs_all_increments() {
    let mut script = Script::new();
    let (list, queue) = (script.regular(), script.queue());
    let event = script.event(EventKind::Aggregated { increments: 3 });
    let immediate = script.immediate(Engine::Copy);
    script.append(list, mix(0, 1, 1), &[], Some(event));
    script.close(list);
    for _ in 0..2 {
        script.execute(queue, list);
    }
    script.synchronize(Object::Queue(queue));
    script.query(Object::Event(event));
    for _ in 0..2 {
        // The second increment exceeds the final value, and leaves the event complete.
        script.append(immediate, Op::SignalEvent, &[], Some(event));
        script.synchronize(Object::List(immediate));
        script.query(Object::Event(event));
    }
    assert_eq!(answers(script), [NotReady, Ready, Ready]);
}

/// "Device storage is under Users control. It may be reset manually if needed": a wait that was
/// recorded when the word was complete reads it again in each execution.
#[test]
fn recorded_wait_for_a_word_is_never_elided() {
    for kind in [EventKind::External, EventKind::Aggregated { increments: 1 }] {
        let mut script = Script::new();
        let (list, queue, event) = (script.regular(), script.queue(), script.event(kind));
        script.step(Action::HostSignal(event));
        script.append(list, mix(0, 1, 1), &[event], None);
        script.close(list);
        script.step(Action::HostReset(event));
        script.execute(queue, list);
        script.query(Object::Queue(queue));
        script.step(Action::HostSignal(event));
        script.synchronize(Object::Queue(queue));
        script.query(Object::Queue(queue));
        assert_eq!(answers(script), [NotReady, Ready], "{kind}");
    }
}

/// "The CB Event can only be signaled on the GPU using an in-order command list": also these.
#[test]
fn events_with_words_are_signalled_in_order_only() {
    for kind in [EventKind::External, EventKind::Aggregated { increments: 2 }] {
        let mut script = Script::new();
        let (list, event) = (out_of_order(&mut script), script.event(kind));
        script.append(list, mix(0, 1, 1), &[], Some(event));
        assert!(matches!(refusal(script), Refusal::Misuse(_)), "{kind}");
    }
}

/// A program must determine which increments complete an event: one too many, without an order, is
/// refused.
#[test]
fn more_increments_than_needed_come_after_the_needed_ones() {
    let mut script = Script::new();
    let event = script.event(EventKind::Aggregated { increments: 1 });
    for _ in 0..2 {
        let list = script.immediate(Engine::Compute);
        script.append(list, mix(list.0, 8, 1), &[], Some(event));
    }
    assert_eq!(refusal(script), Refusal::Unordered);
}

/// An execution by an out-of-order list waits for its wait list alone; its event comes after all of the
/// lists, and a barrier after it; nothing else does.
#[test]
fn out_of_order_execution_is_one_command() {
    let mut script = Script::new();
    let list = out_of_order(&mut script);
    let (event, gate) = (script.event(EventKind::Regular), script.event(EventKind::Regular));
    let executed = [0, 1].map(|cell| {
        let regular = script.regular();
        script.append(regular, mix(cell, cell + 2, 1), &[], None);
        script.close(regular);
        regular
    });
    let (lists, waits) = (executed.to_vec(), vec![gate]);
    script.step(Action::AppendLists { list, lists, waits, signal: Some(event) });
    script.query(Object::Event(event));
    script.release(gate);
    let other = script.immediate(Engine::Compute);
    script.append(other, copy(4, 0), &[event], None);
    script.append(list, Op::Barrier, &[], None);
    script.append(list, copy(5, 1), &[], None);
    script.synchronize(Object::List(list));
    script.query(Object::Event(event));
    script.synchronize(Object::List(other));
    assert_eq!(answers(script), [NotReady, Ready]);
}

/// The same: later commands of the list, without a barrier, may run earlier.
#[test]
fn out_of_order_execution_orders_nothing_behind_it() {
    let mut script = Script::new();
    let (list, regular) = (out_of_order(&mut script), script.regular());
    script.append(regular, mix(0, 1, 1), &[], None);
    script.close(regular);
    let (lists, waits) = (vec![regular], Vec::new());
    script.step(Action::AppendLists { list, lists, waits, signal: None });
    script.append(list, copy(2, 0), &[], None);
    assert_eq!(refusal(script), Refusal::Race(Cell(0)));
}

/// A regular event's times are those of the command that has signalled it since the last reset; so
/// exactly one command must have done so, and not the host.
#[test]
fn regular_event_has_the_times_of_its_signal() {
    let begin = || {
        let mut script = Script::new();
        let list = script.immediate(Engine::Compute);
        let event = script.event(EventKind::RegularTimed);
        script.append(list, mix(0, 1, 1), &[], Some(event));
        (script, list, event)
    };
    let (mut script, list, event) = begin();
    script.step(Action::Times(event));
    script.append(list, Op::QueryTimes { event, place: 0 }, &[event], None);
    script.append(list, Op::ResetEvent(event), &[], None);
    script.append(list, mix(0, 1, 1), &[], Some(event));
    script.synchronize(Object::List(list));
    script.step(Action::Times(event));
    assert_eq!(answers(script), [Either, Ready]);

    let (mut script, list, event) = begin();
    script.append(list, mix(0, 1, 1), &[], Some(event));
    assert!(matches!(refusal(script), Refusal::Misuse(_)));

    let (mut script, list, event) = begin();
    script.synchronize(Object::List(list));
    script.step(Action::HostReset(event));
    script.step(Action::HostSignal(event));
    script.step(Action::Times(event));
    assert!(matches!(refusal(script), Refusal::Misuse(_)));

    // A reader that is not ordered before the next reset.
    let (mut script, list, event) = begin();
    let other = script.immediate(Engine::Compute);
    script.append(other, Op::QueryTimes { event, place: 0 }, &[event], None);
    script.append(list, Op::ResetEvent(event), &[], None);
    assert_eq!(refusal(script), Refusal::Unordered);
}
