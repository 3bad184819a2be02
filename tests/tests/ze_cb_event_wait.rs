// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counter-based events: their signals and waits, through the stock loader.

use std::ptr;
use std::thread;
use std::time::Duration;

use tally_tests::gate::Gate;
use tally_tests::lists::{Event, List, NONE};
use tally_tests::ze::{self, Gpu};
use tally_tests::{call, check, refused};
use tally_ze::*;

/// The document's first example, line by line. "When a CB Event is passed as a signal event, it points
/// to a specific counter value and memory location." "CB Event represents host programming sequence,
/// without managing the state."
#[test]
fn the_first_example_of_the_document() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(3);
    let (gate1, gate3) = (Gate::new(&gpu), Gate::new(&gpu));
    let lists: Vec<_> = (0..3).map(|_| gpu.immediate(0, true)).collect();
    let event = gpu.cb_event(); // counter not yet assigned
    lists[0].set((&memory, 0), 1, Some(&event), &[&gate1.event]); // assigned counter=X
    let x = event.address();
    lists[1].copy((&memory, 1), (&memory, 0), 1, None, &[&event]); // "cmdList2 waits for counter=X on memory CL1_alloc"
    // "reuse without waiting/reset"
    lists[2].set((&memory, 2), 3, Some(&event), &[&gate3.event]); // Replace state. Assigned counter=Y
    let y = event.address();
    assert_ne!(x.0, y.0, "another list, another memory location");
    gate3.open();
    event.synchronize(); // "wait for counter=Y on memory CL3_alloc"
    // "cmdList2 can be still running on GPU. It waits for counter=X on memory CL1_alloc."
    assert_eq!(memory.to_vec(), [0, 0, 3], "list 2 is still running and waits for counter=X");
    drop(event); // "Its also safe to delete Event object."
    gate1.open();
    lists[1].synchronize();
    assert_eq!(memory.to_vec(), [1, 1, 3]);
}

/// "Every in-order command list has an internal submission counter that is updated with each append
/// call." "Note that some operations may be optimized, and the counter value may not directly correspond
/// to the number of append calls.": values grow with each signal, and reach what was promised.
#[test]
fn a_lists_counter_grows_with_its_appends() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(1);
    for ordinal in [0, 1] {
        let list = gpu.immediate(ordinal, true);
        let events: Vec<_> = (0..20).map(|_| gpu.cb_event()).collect();
        for (i, event) in events.iter().enumerate() {
            (0..i % 3).for_each(|_| list.set((&memory, 0), 0, None, &[]));
            list.set((&memory, 0), i as u32, Some(event), &[]);
        }
        let pairs: Vec<_> = events.iter().map(Event::address).collect();
        assert!(pairs.windows(2).all(|it| it[0].0 == it[1].0 && it[0].1 < it[1].1), "{pairs:?}");
        list.synchronize();
        assert!(events.iter().all(Event::is_ready));
    }
}

/// One of two groups polls for a while whether a word has changed, and records it if so.
const WATCH: &str = "
    kernel void watch(global volatile uint *words, uint before)
    {
        if (get_group_id(0) != before % 2)
            return;
        for (int look = 0; look < 500000; look++)
            if (words[0] != before)
                words[1] = 1;
    }";

/// "This counter manages internal in-order dependencies. The next append call waits for that counter, for
/// example, using the MI_SEMAPHORE_WAIT GPU command.": commands of an in-order list come one after the
/// other, without events. The groups run on two threads, of which one has nothing to do but to go on with
/// the list; the other sees a write that did not wait for it.
#[test]
fn appends_of_an_in_order_list_wait_for_each_other() {
    let gpu = Gpu::new();
    let words = gpu.host::<u32>(2);
    words.fill_with(|_| 0);
    let module = gpu.module(&ze::spirv_from(WATCH), "").expect("it is valid");
    let kernel = gpu.kernel(module, "watch");
    let address = words.ptr();
    check!(zeKernelSetGroupSize(kernel, 1, 1, 1));
    check!(zeKernelSetArgumentValue(kernel, 0, 8, ptr::from_ref(&address).cast()));
    let list = gpu.immediate(0, true);
    let two = ze_group_count_t { groupCountX: 2, groupCountY: 1, groupCountZ: 1 };
    for round in 0..40_u32 {
        check!(zeKernelSetArgumentValue(kernel, 1, 4, ptr::from_ref(&round).cast()));
        let none = ptr::null_mut();
        check!(zeCommandListAppendLaunchCooperativeKernel(
            list.0,
            kernel,
            &raw const two,
            NONE,
            0,
            none
        ));
        list.set((&words, 0), round + 1, None, &[]);
    }
    list.synchronize();
    assert_eq!(words.to_vec(), [40, 0]);
    check!(zeKernelDestroy(kernel));
    check!(zeModuleDestroy(module));
}

/// "CB Event can be waited for from any command list type": immediate and regular, in order or not, of
/// both engines, and by the host.
#[test]
fn any_list_waits_for_an_event() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(9);
    for recorded in [false, true] {
        memory.fill_with(|_| 0);
        let gate = Gate::new(&gpu);
        let event = gpu.cb_event();
        let (producer, record, queue) =
            (gpu.immediate(0, true), gpu.regular(0, true), gpu.queue(0));
        if recorded {
            record.set((&memory, 8), 1, Some(&event), &[&gate.event]);
            record.close();
            queue.execute(&[&record], None);
        } else {
            producer.set((&memory, 8), 1, Some(&event), &[&gate.event]);
        }
        let immediate: Vec<_> = (0..4).map(|i| gpu.immediate(i / 2, i % 2 == 0)).collect();
        let regular: Vec<_> = (0..4).map(|i| gpu.regular(i / 2, i % 2 == 0)).collect();
        let queues = [gpu.queue(0), gpu.queue(1)];
        for (i, list) in immediate.iter().chain(&regular).enumerate() {
            list.copy((&memory, i), (&memory, 8), 1, None, &[&event]);
        }
        for (i, list) in regular.iter().enumerate() {
            list.close();
            queues[i / 2].execute(&[list], None);
        }
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| event.synchronize());
            }
            thread::sleep(Duration::from_millis(10));
            assert_eq!(memory.to_vec(), [0; 9]);
            gate.open();
        });
        immediate.iter().for_each(List::synchronize);
        queues.iter().for_each(|queue| queue.synchronize());
        queue.synchronize();
        assert_eq!(memory.to_vec(), [1; 9]);
    }
}

/// "The CB Event can only be signaled on the GPU using an in-order command list." "Can be signaled only
/// from in-order command list"; "zeEventHostSignal is not allowed"; "zeEventHostReset is not allowed".
/// "Counter-based events must not be reset, i.e., a call to zeEventHostReset or
/// zeCommandListAppendEventReset is not allowed." "Counter-based events must not be signaled from host,
/// i.e., a call to zeEventHostSignal is not allowed." "Counter-based events can be used only with
/// in-orders lists, whether those are regular or immediate."
#[test]
fn an_event_is_signalled_by_in_order_lists_only() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(1);
    let event = gpu.cb_event();
    let pattern = 7_u32;
    for list in [gpu.immediate(0, false), gpu.regular(0, false), gpu.immediate(1, false)] {
        let text = refused!(
            ZE_RESULT_ERROR_INVALID_ARGUMENT,
            zeCommandListAppendMemoryFill(
                list.0,
                memory.ptr().cast(),
                (&raw const pattern).cast(),
                4,
                4,
                event.0,
                0,
                ptr::null_mut()
            )
        );
        assert!(text.contains("in-order"), "{text}");
    }
    refused!(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeEventHostSignal(event.0));
    refused!(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeEventHostReset(event.0));
    for list in [gpu.immediate(0, true), gpu.regular(0, true), gpu.immediate(0, false)] {
        refused!(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeCommandListAppendEventReset(list.0, event.0));
    }
    assert!(event.is_ready());
}

/// "Counter-based events may be reused multiple times without a need for reset." "Counter-based events
/// may be used on multiple command lists." "A counter-based event may be passed as signaling event for a
/// new append call without needing to wait for the signaling of the last call where it was used." "As a
/// result, users do not need to explicitly control event completion before reusing it." "No need to wait
/// for completion before reusing/destroying". "Can be reused on any in-order command list without
/// explicit reset. A new API call just replaces its previous state (counter/allocation)".
/// "Synchronizing on a counter-based event waits only for the last saved counter value from the last
/// command list that incremented it."
#[test]
fn an_event_is_reused_a_thousand_times_on_many_lists() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(8);
    let lists: Vec<_> = (0..8).map(|i| gpu.immediate(i % 2, true)).collect();
    let event = gpu.cb_event();
    for round in 0..1000_u32 {
        let i = round as usize % lists.len();
        lists[i].set((&memory, i), round, Some(&event), &[]);
        if round % 50 == 49 {
            event.synchronize();
            assert_eq!(memory.get(i), round);
        }
    }
    // Each list waits for the one before through the same event.
    for round in 0..1000_u32 {
        let (to, from) = (round as usize % 8, (round as usize + 7) % 8);
        if round == 0 {
            lists[to].set((&memory, to), 77, Some(&event), &[]);
        } else {
            lists[to].copy((&memory, to), (&memory, from), 1, Some(&event), &[&event]);
        }
    }
    event.synchronize();
    assert_eq!(memory.to_vec(), [77; 8]);
    // Destroyed while the list that it was passed to waits; the commands that wait for it keep waiting.
    let gate = Gate::new(&gpu);
    for list in &lists {
        let event = gpu.cb_event();
        list.set((&memory, 0), 5, Some(&event), &[&gate.event]);
        lists[0].wait(&[&event]);
        assert!(!event.is_ready());
        drop(event);
    }
    lists[0].set((&memory, 1), 6, None, &[]);
    assert_eq!(memory.to_vec(), [77; 8]);
    gate.open();
    lists[0].synchronize();
    assert_eq!((memory.get(0), memory.get(1)), (5, 6));
    lists.iter().for_each(|list| list.synchronize());
}

/// "Querying a counter-based event queries only the last saved counter value from the last command list
/// that incremented it, i.e., a signaled counter-based event always represents the completion of the last
/// call to which it was passed as signal event.": work of earlier lists that hangs back does not count.
/// "Another way of tracking the state of an event is by using a counter, which is incremented every time a
/// task has completed in the device."
#[test]
fn a_query_asks_for_the_last_signal_only() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(2);
    let gate = Gate::new(&gpu);
    let (held, free) = (gpu.immediate(0, true), gpu.immediate(0, true));
    let event = gpu.cb_event();
    held.set((&memory, 0), 1, Some(&event), &[&gate.event]);
    assert!(!event.is_ready());
    free.set((&memory, 1), 1, Some(&event), &[]);
    event.synchronize();
    assert!(event.is_ready());
    assert_eq!(memory.to_vec(), [0, 1]);
    held.set((&memory, 0), 2, Some(&event), &[]);
    assert!(!event.is_ready(), "and now the held list's again");
    gate.open();
    event.synchronize();
    assert_eq!(memory.get(0), 2);
}

/// A wait list of any length may contain events in all states: complete, of other lists, of its own
/// list, regular; NONE is no event.
#[test]
fn a_wait_list_mixes_events_of_all_kinds() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(1);
    let gates: Vec<_> = (0..5).map(|_| Gate::new(&gpu)).collect();
    let producers: Vec<_> = gates.iter().map(|gate| gate.cb_event(&gpu)).collect();
    let list = gpu.immediate(0, true);
    let (born, own) = (gpu.cb_event(), gpu.cb_event());
    list.barrier(Some(&own), &[]);
    let mut waits: Vec<&Event> = vec![&born, &own];
    waits.extend(producers.iter().map(|(event, _)| event));
    waits.extend(gates.iter().map(|gate| &gate.event));
    list.set((&memory, 0), 1, None, &waits);
    for gate in &gates {
        let result = call!(zeCommandListHostSynchronize(list.0, 100_000));
        assert_eq!(result, ze_result_t::ZE_RESULT_NOT_READY);
        assert_eq!(memory.get(0), 0);
        gate.open();
    }
    list.synchronize();
    assert_eq!(memory.get(0), 1);
    let mut none = [NONE];
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_HANDLE,
        zeCommandListAppendBarrier(list.0, NONE, 1, none.as_mut_ptr())
    );
}
