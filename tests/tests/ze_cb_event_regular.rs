// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counter-based events of regular lists: the execution that a wait refers to, through the standard
//! loader.

use tally_tests::gate::Gate;
use tally_tests::lists::{Event, List, NONE, Queue};
use tally_tests::ze::{Gpu, Usm};
use tally_tests::{call, check, refused};
use tally_ze::*;

/// How a list is executed: "This rule applies to zeCommandQueueExecuteCommandLists and
/// zeCommandListImmediateAppendCommandListsExp API calls."
enum Executor {
    Queue(Queue),
    Immediate(List),
}

impl Executor {
    fn both(gpu: &Gpu) -> [Self; 2] {
        [Self::Queue(gpu.queue(0)), Self::Immediate(gpu.immediate(0, true))]
    }

    fn execute(&self, list: &List) {
        match self {
            Self::Queue(queue) => queue.execute(&[list], None),
            Self::Immediate(immediate) => immediate.execute(&[list], None, &[]),
        }
    }

    fn synchronize(&self) {
        match self {
            Self::Queue(queue) => queue.synchronize(),
            Self::Immediate(immediate) => immediate.synchronize(),
        }
    }
}

/// The document's example of a regular list, line by line, by both ways of execution: three
/// operations, the event signalled by the second ("signalEvent on 2nd operation"); list 2 is to "wait for
/// counter=2, second execution of regularCmdList1", then to "wait for counter=2, 3rd execution of
/// regularCmdList1". "Regular command list (known as
/// recorded or non-immediate) is a special use case for CB Events."
#[test]
fn the_documents_example_of_a_regular_list() {
    let gpu = Gpu::new();
    for (one, two) in Executor::both(&gpu).into_iter().zip(Executor::both(&gpu)) {
        let memory = gpu.host::<u32>(4);
        memory.fill_with(|_| 0);
        let (list1, list2, event) = (gpu.regular(0, true), gpu.regular(0, true), gpu.cb_event());
        list1.copy((&memory, 1), (&memory, 0), 1, None, &[]);
        list1.copy((&memory, 2), (&memory, 1), 1, Some(&event), &[]); // "signalEvent on 2nd operation"
        list1.set((&memory, 1), 0, None, &[]);
        list1.close();
        memory.set(0, 1);
        one.execute(&list1);
        one.synchronize();
        memory.set(0, 2);
        one.execute(&list1); // Execute again
        list2.copy((&memory, 3), (&memory, 2), 1, None, &[&event]);
        list2.close();
        two.execute(&list2); // wait for counter=2, second execution of regularCmdList1
        two.synchronize();
        assert_eq!(memory.get(3), 2);
        one.synchronize();
        memory.set(0, 3);
        one.execute(&list1); // 3rd time
        two.execute(&list2); // wait for counter=2, 3rd execution of regularCmdList1
        two.synchronize();
        assert_eq!(memory.get(3), 3);
        one.synchronize();
    }
}

/// "Each regular command list execution updates state of the events that will be signaled in that
/// command list to \"not ready\". This rule applies to zeCommandQueueExecuteCommandLists and
/// zeCommandListImmediateAppendCommandListsExp API calls.": at each execution anew, while the gate holds it; for an event at
/// the start, in the middle and at the end of the list.
#[test]
fn each_execution_makes_its_events_unready() {
    let gpu = Gpu::new();
    for executor in Executor::both(&gpu) {
        let memory = gpu.host::<u32>(1);
        let (gate, list) = (Gate::new(&gpu), gpu.regular(0, true));
        let events = [gpu.cb_event(), gpu.cb_event(), gpu.cb_event()];
        list.wait(&[&gate.event]);
        for event in &events {
            list.set((&memory, 0), 1, Some(event), &[]);
        }
        list.close();
        for _ in 0..4 {
            executor.execute(&list);
            assert!(events.iter().all(|event| !event.is_ready()));
            gate.open();
            events.iter().for_each(Event::synchronize);
            executor.synchronize();
            assert!(events.iter().all(Event::is_ready));
            gate.event.reset();
        }
    }
}

/// "Counter state is additionally reset on every zeCommandQueueExecuteCommandLists call. Any API call
/// that relies on explicit counter memory/value (eg. zexEventGetDeviceAddress) needs to be called again
/// to obtain new data." "If Event state is replaced by new append call or
/// zeCommandQueueExecuteCommandLists that signals such Event, below API must be called again to obtain
/// new data." "User may obtain counter memory location and value. For example, waiting for completion outside
/// the L0 Driver." "Internal command list counter is implicitly reset to 0 on every execution.": this "is
/// observable only as \"ask again for address and value\"": the pair of an
/// execution is not met before that execution, and stays met afterwards.
#[test]
fn address_and_value_are_asked_for_again_after_an_execution() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(1);
    let (gate, list, queue) = (Gate::new(&gpu), gpu.regular(0, true), gpu.queue(0));
    let event = gpu.cb_event();
    list.set((&memory, 0), 1, Some(&event), &[&gate.event]);
    list.close();
    let first = event.address();
    let mut pairs = Vec::new();
    for round in 0..5 {
        queue.execute(&[&list], None);
        let pair = event.address();
        assert!(round != 0 || pair == first, "known before the first execution");
        assert!(!reached(pair), "it is this execution's");
        gate.open();
        event.synchronize();
        assert!(reached(pair));
        pairs.push(pair);
        queue.synchronize();
        gate.event.reset();
    }
    pairs.dedup();
    assert_eq!(pairs.len(), 5, "a pair for each execution");
    drop((list, event));
    assert!(pairs.into_iter().all(reached), "once satisfied, stays so");
}

fn reached((address, value): (u64, u64)) -> bool {
    use std::sync::atomic::{AtomicU64, Ordering};
    let counter = std::ptr::with_exposed_provenance::<AtomicU64>(address as usize);
    // SAFETY: counters stay readable as long as the context lives.
    unsafe { &*counter }.load(Ordering::Acquire) >= value
}

/// "Other API calls that don't specify counter explicitly, are managed by the Driver.": waits of the
/// host, of immediate lists and of regular lists follow the executions by themselves.
/// "Any waiting operation on such Event, must ensure that it is waiting for the correct
/// zeCommandQueueExecuteCommandLists call."
#[test]
fn all_waits_follow_the_executions() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(3);
    let (list, queue, event) = (gpu.regular(0, true), gpu.queue(0), gpu.cb_event());
    list.copy((&memory, 1), (&memory, 0), 1, Some(&event), &[]);
    list.close();
    let (immediate, unordered) = (gpu.immediate(0, true), gpu.immediate(1, false));
    for round in 1..200 {
        memory.set(0, round);
        queue.execute(&[&list], None);
        let waits = if round % 2 == 0 { &immediate } else { &unordered };
        waits.copy((&memory, 2), (&memory, 1), 1, None, &[&event]);
        event.synchronize();
        assert_eq!(memory.get(1), round);
        waits.synchronize();
        assert_eq!(memory.get(2), round);
    }
    queue.synchronize();
}

/// "L0 doesn't allow to execute the same regular command list multiple times in parallel. It must be
/// synchronized before next execution.": if an application forgets this, Tally does it: the second
/// execution begins when the first is complete, on any queue.
#[test]
fn overlapping_executions_serialise_on_any_queues() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(2);
    memory.fill_with(|_| 0);
    let (gate, list) = (Gate::new(&gpu), gpu.regular(0, true));
    list.wait(&[&gate.event]);
    list.reset_event(&gate.event);
    list.set((&memory, 0), 1, None, &[]);
    list.close();
    let (one, two) = (gpu.queue(0), gpu.queue(0));
    one.execute(&[&list], None);
    two.execute(&[&list], None);
    gate.open();
    one.synchronize();
    assert_eq!(memory.get(0), 1);
    let result = call!(zeCommandQueueSynchronize(two.0, 5_000_000));
    assert_eq!(result, ze_result_t::ZE_RESULT_NOT_READY, "the second waits for its own signal");
    gate.open();
    two.synchronize();
}

struct Pair {
    memory: Usm<u32>,
    gate: Gate,
    list1: List,
    list2: List,
    queue1: Queue,
    queue2: Queue,
    a: Event,
    b: Event,
}

/// Lists 1 (A, wait for B, C) and 2 (wait for A, B, D) of the document's picture. A copies word 0 to 1,
/// B word 1 to 2, C word 2 to 3, D word 2 to 4. A gate holds list 1 before A, so that what an execution does
/// to the events can be seen.
fn picture(gpu: &Gpu) -> Pair {
    let memory = gpu.host::<u32>(5);
    memory.fill_with(|_| 0);
    let (list1, list2) = (gpu.regular(0, true), gpu.regular(0, true));
    let (a, b, gate) = (gpu.cb_event(), gpu.cb_event(), Gate::new(gpu));
    list1.copy((&memory, 1), (&memory, 0), 1, Some(&a), &[&gate.event]);
    list2.copy((&memory, 2), (&memory, 1), 1, Some(&b), &[&a]);
    list2.copy((&memory, 4), (&memory, 2), 1, None, &[]);
    list2.close();
    list1.copy((&memory, 3), (&memory, 2), 1, None, &[&b]);
    list1.close();
    Pair { memory, gate, list1, list2, queue1: gpu.queue(0), queue2: gpu.queue(0), a, b }
}

/// "Regular command list with overlapping dependencies may be executed multiple times. For example, two
/// command lists are executed in parallel with bi-directional dependencies." "In this example, all
/// Events are synchronized to \"ready\" state after the first execution. It means that second execution
/// of regularCmdList1 waits again for \"ready\" {1->2->3} state of regularCmdList2 (first execution)
/// instead of {4->5->6}. This is because regularCmdList2 was not yet executed for the second time. And
/// their counters were not updated." In the samples: "All Events are in \"not ready\" state"; "All Events are
/// \"ready\" now"; "regularCmdList1 waits for \"ready\" {1->2->3} Events from first execution of
/// regularCmdList2"; "regularCmdList1 changes Events state to \"not ready\""; "regularCmdList2 waits for \"not
/// ready\" {4->5->6} Events from second execution of regularCmdList1". "Its important to understand counter (Event) state transition, to
/// correctly reflect Users intention."
#[test]
fn bi_directional_lists_do_what_the_document_says() {
    let gpu = Gpu::new();
    let it = picture(&gpu);
    assert!(!it.a.is_ready() && !it.b.is_ready(), "all events are in \"not ready\" state");
    it.memory.set(0, 7);
    it.queue1.execute(&[&it.list1], None);
    it.queue2.execute(&[&it.list2], None);
    it.gate.open();
    it.queue1.synchronize();
    it.queue2.synchronize();
    assert!(it.a.is_ready() && it.b.is_ready(), "all Events are \"ready\" now");
    assert_eq!(it.memory.to_vec(), [7; 5]);
    for round in 8..20 {
        it.memory.set(0, round);
        it.gate.event.reset();
        it.queue1.execute(&[&it.list1], None);
        assert!(!it.a.is_ready(), "list 1 has changed its event's state");
        assert!(it.b.is_ready(), "list 2 was not executed again");
        it.gate.open();
        it.queue1.synchronize();
        let last = round - 1;
        assert_eq!(
            it.memory.to_vec(),
            [round, round, last, last, last],
            "list 1 went by the last B"
        );
        it.queue2.execute(&[&it.list2], None);
        it.queue2.synchronize();
        assert_eq!(it.memory.to_vec(), [round, round, round, last, round], "list 2 by this A");
    }
}

/// "To avoid above situation, User must remove all bi-directional dependencies. By using single command
/// list (if possible) or split the workload into different command lists with single-directional
/// dependencies.": list 1 is split before C, and every round is whole.
#[test]
fn split_lists_follow_each_round() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(5);
    let lists: Vec<_> = (0..3).map(|_| gpu.regular(0, true)).collect();
    let queues: Vec<_> = (0..3).map(|_| gpu.queue(0)).collect();
    let (a, b) = (gpu.cb_event(), gpu.cb_event());
    lists[0].copy((&memory, 1), (&memory, 0), 1, Some(&a), &[]);
    lists[1].copy((&memory, 2), (&memory, 1), 1, Some(&b), &[&a]);
    lists[1].copy((&memory, 4), (&memory, 2), 1, None, &[]);
    lists[2].copy((&memory, 3), (&memory, 2), 1, None, &[&b]);
    let single = gpu.regular(0, true);
    for (to, from) in [(1, 0), (2, 1), (4, 2), (3, 2)] {
        single.copy((&memory, to), (&memory, from), 1, None, &[]);
    }
    lists.iter().for_each(List::close);
    single.close();
    for round in 1..100 {
        memory.set(0, round);
        if round % 2 == 0 {
            queues[0].execute(&[&single], None);
            queues[0].synchronize();
        } else {
            for (queue, list) in queues.iter().zip(&lists) {
                queue.execute(&[list], None);
            }
            queues.iter().for_each(|queue| queue.synchronize());
        }
        assert_eq!(memory.to_vec(), [round; 5]);
    }
}

/// A wait bound to an execution stays met when the next one has begun: "A wait bound to execution n
/// stays met when execution n+1 has begun."
#[test]
fn a_bound_wait_stays_met() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(2);
    memory.fill_with(|_| 0);
    let (gate, late) = (Gate::new(&gpu), Gate::new(&gpu));
    let (list, queue, event) = (gpu.regular(0, true), gpu.queue(0), gpu.cb_event());
    list.set((&memory, 0), 1, Some(&event), &[&gate.event]);
    list.close();
    let waits = gpu.immediate(0, true);
    gate.open();
    queue.execute(&[&list], None);
    // Bound to execution 1, but executed when execution 2 is held up.
    waits.set((&memory, 1), 1, None, &[&event, &late.event]);
    queue.synchronize();
    gate.event.reset();
    queue.execute(&[&list], None);
    assert!(!event.is_ready());
    late.open();
    waits.synchronize();
    assert_eq!(memory.get(1), 1);
    gate.open();
    queue.synchronize();
}

/// A list that is destroyed without ever having been executed: its event stays not ready, a host wait
/// for it returns an error because nothing can signal it, and a later signal makes the event usable
/// again.
#[test]
fn the_event_of_a_list_destroyed_unexecuted_stays_unready() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(1);
    let (list, event) = (gpu.regular(0, true), gpu.cb_event());
    list.set((&memory, 0), 1, Some(&event), &[]);
    list.close();
    let pair = event.address();
    drop(list);
    assert!(!event.is_ready());
    refused!(ZE_RESULT_ERROR_DEVICE_LOST, zeEventHostSynchronize(event.0, u64::MAX));
    let mut waits = [event.0];
    let immediate = gpu.immediate(0, true);
    refused!(
        ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT,
        zeCommandListAppendBarrier(immediate.0, NONE, 1, waits.as_mut_ptr())
    );
    for _ in 0..50 {
        let other = gpu.immediate(0, true);
        other.set((&memory, 0), 1, None, &[]);
        other.synchronize();
        assert!(!reached(pair), "the counter of a promise that is not kept is nobody else's");
    }
    immediate.set((&memory, 0), 2, Some(&event), &[]);
    event.synchronize();
}

/// A list that is reset and recorded again: its events follow the new recording.
#[test]
fn a_list_recorded_again_signals_anew() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(2);
    let (list, queue) = (gpu.regular(0, true), gpu.queue(0));
    let (old, new) = (gpu.cb_event(), gpu.cb_event());
    for round in 1..50 {
        list.set((&memory, 0), round, Some(&old), &[]);
        list.close();
        queue.execute(&[&list], None);
        old.synchronize();
        queue.synchronize();
        list.reset();
        assert!(old.is_ready(), "what was executed stays so");
        list.set((&memory, 1), round, None, &[]);
        list.set((&memory, 1), round + 1, Some(&new), &[]);
        list.close();
        assert!(!new.is_ready());
        queue.execute(&[&list], None);
        new.synchronize();
        assert_eq!(memory.to_vec(), [round, round + 1]);
        queue.synchronize();
        list.reset();
    }
    check!(zeCommandListClose(list.0));
}
