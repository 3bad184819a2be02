// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the order of lists' commands, through the stock loader.

use tally_tests::lists::{Event, List, PATIENCE};
use tally_tests::ze::{Gpu, Usm};
use tally_tests::{call, check};
use tally_ze::*;

const LEN: usize = 64;
/// Nanoseconds in which a list that does not wait as it should would be complete.
const EARLY: u64 = 20_000_000;
const NO_FLAGS: ze_event_pool_flags_t = ze_event_pool_flags_t::empty();

/// Copies element 0 along the memory, with one command per element.
fn chain(list: &List, memory: &Usm<u32>) {
    for i in 0..LEN - 1 {
        list.copy((memory, i + 1), (memory, i), 1, None, &[]);
    }
}

fn chained(gpu: &Gpu, first: u32) -> Usm<u32> {
    let memory = gpu.host::<u32>(LEN);
    memory.fill_with(|i| if i == 0 { first } else { 0 });
    memory
}

/// "Commands of an in-order list execute in the order in which they were appended": immediate.
#[test]
fn an_in_order_immediate_list_keeps_its_order() {
    let gpu = Gpu::new();
    for ordinal in [0, 1] {
        let memory = chained(&gpu, 7);
        let list = gpu.immediate(ordinal, true);
        chain(&list, &memory);
        list.synchronize();
        assert_eq!(memory.to_vec(), [7; LEN]);
    }
}

/// The same for a regular list, in each execution.
#[test]
fn an_in_order_regular_list_keeps_its_order_in_every_execution() {
    let gpu = Gpu::new();
    let memory = chained(&gpu, 0);
    let (list, queue) = (gpu.regular(0, true), gpu.queue(0));
    chain(&list, &memory);
    list.close();
    for round in 1..20 {
        memory.set(0, round);
        queue.execute(&[&list], None);
        queue.synchronize();
        assert_eq!(memory.to_vec(), [round; LEN]);
    }
}

/// Barriers order the commands of an out-of-order list.
#[test]
fn barriers_order_an_out_of_order_list() {
    let gpu = Gpu::new();
    let memory = chained(&gpu, 5);
    let list = gpu.immediate(0, false);
    for i in 0..LEN - 1 {
        list.copy((&memory, i + 1), (&memory, i), 1, None, &[]);
        list.barrier(None, &[]);
    }
    list.synchronize();
    assert_eq!(memory.to_vec(), [5; LEN]);
}

/// "A queue whose next command waits must not keep another queue from its work, whichever engine,
/// ordinal or index they share."
#[test]
fn a_list_that_waits_keeps_nobody_from_work() {
    let gpu = Gpu::new();
    let pool = gpu.pool(1, NO_FLAGS);
    let event = pool.event(0);
    let memory = chained(&gpu, 9);
    let waiting: Vec<_> = (0..20).map(|_| gpu.immediate(0, true)).collect();
    for list in &waiting {
        list.set((&memory, LEN - 1), 1, None, &[&event]);
    }
    let list = gpu.immediate(0, true);
    list.copy((&memory, 1), (&memory, 0), 1, None, &[]);
    list.synchronize();
    assert_eq!((memory.get(1), memory.get(LEN - 1)), (9, 0));
    for list in &waiting {
        let result = call!(zeCommandListHostSynchronize(list.0, 0));
        assert_eq!(result, ze_result_t::ZE_RESULT_NOT_READY);
    }
    event.signal();
    waiting.iter().for_each(|list| list.synchronize());
    assert_eq!(memory.get(LEN - 1), 1);
}

/// A parked list accepts appends without blocking, beyond the size of any one ring.
#[test]
fn appends_to_a_parked_list_do_not_block() {
    let gpu = Gpu::new();
    let pool = gpu.pool(1, NO_FLAGS);
    let event = pool.event(0);
    let memory = gpu.host::<u32>(2);
    let list = gpu.immediate(0, true);
    list.wait(&[&event]);
    for i in 0..20_000 {
        list.set((&memory, 0), i, None, &[]);
    }
    list.copy((&memory, 1), (&memory, 0), 1, None, &[]);
    assert_eq!(memory.to_vec(), [0, 0]);
    event.signal();
    list.synchronize();
    assert_eq!(memory.to_vec(), [19_999, 19_999]);
}

/// Executions of a list in one call run in its order, also the same list twice.
#[test]
fn lists_of_one_call_run_in_its_order() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(4);
    let queue = gpu.queue(0);
    let lists: Vec<_> = (0..3)
        .map(|i| {
            let list = gpu.regular(0, true);
            list.copy((&memory, i + 1), (&memory, i), 1, None, &[]);
            list.close();
            list
        })
        .collect();
    memory.fill_with(|i| [3, 0, 0, 0][i]);
    queue.execute(&[&lists[0], &lists[1], &lists[2]], None);
    queue.synchronize();
    assert_eq!(memory.to_vec(), [3; 4]);
    memory.fill_with(|i| [4, 0, 0, 0][i]);
    queue.execute(&[&lists[2], &lists[1], &lists[0], &lists[1], &lists[0], &lists[2]], None);
    queue.synchronize();
    assert_eq!(memory.to_vec(), [4, 4, 4, 4]);
}

/// Regular lists appended to an immediate one run at their place in it.
#[test]
fn an_immediate_list_executes_regular_lists_at_their_place() {
    let gpu = Gpu::new();
    let memory = chained(&gpu, 6);
    let immediate = gpu.immediate(0, true);
    let regular = gpu.regular(0, true);
    regular.copy((&memory, 2), (&memory, 1), 1, None, &[]);
    regular.close();
    let done = gpu.cb_event();
    immediate.copy((&memory, 1), (&memory, 0), 1, None, &[]);
    immediate.execute(&[&regular], Some(&done), &[]);
    immediate.copy((&memory, 3), (&memory, 2), 1, None, &[]);
    done.synchronize();
    assert_eq!(memory.get(2), 6);
    immediate.synchronize();
    assert_eq!(memory.get(3), 6);
}

/// A synchronous list returns from an append when the command is complete.
#[test]
fn a_synchronous_list_waits_in_its_appends() {
    let gpu = Gpu::new();
    let memory = chained(&gpu, 8);
    for in_order in [true, false] {
        let list = gpu.immediate_of(&ze_command_queue_desc_t {
            mode: ze_command_queue_mode_t::ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS,
            flags: tally_tests::lists::queue_flags(in_order),
            ..Default::default()
        });
        for i in 0..LEN - 1 {
            memory.set(i + 1, 0);
            list.copy((&memory, i + 1), (&memory, i), 1, None, &[]);
            assert_eq!(memory.get(i + 1), 8);
        }
    }
}

/// zeDeviceSynchronize waits for all work: of queues, of lists, and of destroyed ones.
#[test]
fn a_device_is_synchronized_as_a_whole() {
    let gpu = Gpu::new();
    let memory = chained(&gpu, 2);
    let pool = gpu.pool(1, NO_FLAGS);
    let event = pool.event(0);
    let unordered = gpu.immediate(0, false);
    unordered.copy((&memory, 1), (&memory, 0), 1, None, &[&event]);
    let (regular, queue) = (gpu.regular(1, false), gpu.queue(1));
    regular.copy((&memory, 2), (&memory, 0), 1, None, &[]);
    regular.close();
    queue.execute(&[&regular], None);
    let destroyed = gpu.immediate(0, true);
    destroyed.copy((&memory, 3), (&memory, 0), 1, None, &[&event]);
    drop(destroyed);
    event.signal();
    check!(zeDeviceSynchronize(gpu.device));
    assert_eq!(&memory.to_vec()[..4], [2; 4]);
}

fn cloneable(gpu: &Gpu, ordinal: u32, in_order: bool) -> List {
    use ze_command_list_flags_t as flag;
    let order = if in_order { flag::ZE_COMMAND_LIST_FLAG_IN_ORDER } else { flag::empty() };
    let desc = ze_command_list_desc_t {
        commandQueueGroupOrdinal: ordinal,
        flags: flag::ZE_COMMAND_LIST_FLAG_EXP_CLONEABLE | order,
        ..Default::default()
    };
    let mut list = ze_command_list_handle_t::NULL;
    check!(zeCommandListCreate(gpu.context, gpu.device, &raw const desc, &raw mut list));
    List(list)
}

/// Level Zero orders no two queues, but SYCL's adapter relies on the order of Intel's engines: a wait does not
/// find an event as it was before a reset that was submitted to its engine earlier.
#[test]
fn a_wait_comes_behind_the_resets_that_its_engine_was_given_before() {
    let gpu = Gpu::new();
    for (ordinal, in_order) in [(0, true), (0, false), (1, true)] {
        let memory = gpu.host::<u32>(2);
        let pool = gpu.pool(3, NO_FLAGS);
        let [begin, middle, done] = [0, 1, 2].map(|i| pool.event(i));
        let (resets, work) = (cloneable(&gpu, ordinal, in_order), gpu.regular(ordinal, in_order));
        resets.wait(&[&begin]);
        resets.reset_event(&done);
        resets.close();
        work.copy((&memory, 0), (&memory, 1), 1, Some(&done), &[&middle]);
        work.close();
        let mut copied = ze_command_list_handle_t::NULL;
        check!(zeCommandListCreateCloneExp(resets.0, &raw mut copied));
        let lists = [resets, List(copied)];
        let (queue, immediate) = (gpu.queue(ordinal), gpu.immediate(ordinal, in_order));
        done.signal();
        for round in 1..5 {
            memory.set(1, round);
            queue.execute(&[&lists[round as usize % 2]], None);
            queue.execute(&[&work], None);
            immediate.barrier(None, &[&done]);
            immediate.barrier(None, &[]);
            let early = call!(zeCommandListHostSynchronize(immediate.0, EARLY));
            assert_eq!(early, ze_result_t::ZE_RESULT_NOT_READY, "the event is that of before");
            begin.signal();
            let early = call!(zeCommandListHostSynchronize(immediate.0, EARLY));
            assert_eq!(early, ze_result_t::ZE_RESULT_NOT_READY, "it is reset and not signalled");
            middle.signal();
            immediate.synchronize();
            assert_eq!(memory.to_vec()[0], round);
            queue.synchronize();
            [&begin, &middle].into_iter().for_each(Event::reset);
        }
    }
}

/// The same order does not bind a wait of another engine, and a reset that is not made yet keeps no wait for
/// another event.
#[test]
fn a_wait_of_another_engine_or_event_is_not_behind_a_reset() {
    let gpu = Gpu::new();
    let pool = gpu.pool(3, NO_FLAGS);
    let [begin, event, other] = [0, 1, 2].map(|i| pool.event(i));
    [&event, &other].into_iter().for_each(Event::signal);
    let (resets, queue) = (gpu.regular(0, true), gpu.queue(0));
    resets.wait(&[&begin]);
    resets.reset_event(&event);
    resets.close();
    queue.execute(&[&resets], None);
    let [same, another] = [gpu.immediate(0, true), gpu.immediate(1, true)];
    same.barrier(None, &[&other]);
    another.barrier(None, &[&event, &other]);
    same.synchronize();
    another.synchronize();
    begin.signal();
    queue.synchronize();
    assert!(!event.is_ready());
}

/// Resets by immediate lists, lists that immediate lists execute, and lists that were recorded anew count once each.
#[test]
fn no_wait_is_left_behind_resets() {
    let gpu = Gpu::new();
    let pool = gpu.pool(1, NO_FLAGS);
    let event = pool.event(0);
    let [first, second] = [gpu.immediate(0, true), gpu.immediate(0, false)];
    let list = gpu.regular(0, true);
    for _ in 0..3 {
        list.reset();
        list.reset_event(&event);
        list.signal(&event);
        list.close();
        for _ in 0..3 {
            first.execute(&[&list, &list], None, &[]);
            second.wait(&[&event]);
            second.synchronize();
        }
        second.reset_event(&event);
        second.signal(&event);
        first.wait(&[&event]);
        first.synchronize();
    }
}

/// Many threads, each with a list of its own, that wait for each other in a ring of events.
#[test]
fn threads_hand_a_token_around() {
    const THREADS: usize = 4;
    const ROUNDS: u32 = 50;
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(THREADS);
    let pool = gpu.pool(THREADS as u32 * ROUNDS, NO_FLAGS);
    let events: Vec<_> = (0..THREADS as u32 * ROUNDS).map(|i| pool.event(i)).collect();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (gpu, events, memory) = (&gpu, &events, &memory);
            scope.spawn(move || {
                let list = gpu.immediate(0, true);
                for round in 0..ROUNDS as usize {
                    let number = round * THREADS + thread;
                    let before = (thread + THREADS - 1) % THREADS;
                    let waits = number.checked_sub(1).map(|it| &events[it]);
                    let waits: Vec<_> = waits.into_iter().collect();
                    list.copy((memory, thread), (memory, before), 1, Some(&events[number]), &waits);
                    if round % 7 == 0 {
                        check!(zeEventHostSynchronize(events[number].0, PATIENCE));
                    }
                }
                list.synchronize();
            });
        }
    });
    assert!(events.iter().all(|it| it.is_ready()));
}
