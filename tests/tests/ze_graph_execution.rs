// SPDX-License-Identifier: MIT OR Apache-2.0
//! Executions of record-and-replay graphs: their waits, and the waits for them. Quotes are from the
//! interface's reference.

use std::ptr;

use tally_tests::check;
use tally_tests::gate::Gate;
use tally_tests::graph::*;
use tally_tests::lists::{Event, NONE};
use tally_tests::page::Page;
use tally_tests::ze::{self, Gpu};
use tally_ze::*;

/// "If `hSignalEvent` is provided, it is signaled after all recorded append operations on all recorded
/// queues complete.", "If wait events are provided, graph execution does not begin until all wait events
/// are satisfied.", and "If this function is called while the executable graph is already running, the new
/// execution is scheduled after the current execution completes.", also from another list.
#[test]
fn executions_wait_and_follow_each_other() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(4);
    memory.fill_with(|_| 0);
    let [parent, child, other] = [0; 3].map(|_| gpu.immediate(0, true));
    let (fork, join) = (gpu.cb_event(), gpu.cb_event());
    begin(&parent);
    // A counter that is not atomic: copy, add one, copy back, in two lists.
    parent.copy((&memory, 1), (&memory, 0), 1, Some(&fork), &[]);
    let module = gpu.module(&ze::spirv_from(KERNEL), "").expect("it is valid");
    let kernel = gpu.kernel(module, "add");
    check!(zeKernelSetGroupSize(kernel, 1, 1, 1));
    let (to, value) = (memory.ptr().wrapping_add(1), 1_u32);
    check!(zeKernelSetArgumentValue(kernel, 0, 8, ptr::from_ref(&to).cast()));
    check!(zeKernelSetArgumentValue(kernel, 1, 4, ptr::from_ref(&value).cast()));
    let groups = ze_group_count_t { groupCountX: 1, groupCountY: 1, groupCountZ: 1 };
    let groups = &raw const groups;
    let mut waits = [fork.0];
    check!(zeCommandListAppendLaunchKernel(child.0, kernel, groups, join.0, 1, waits.as_mut_ptr()));
    parent.copy((&memory, 0), (&memory, 1), 1, None, &[&join]);
    let graph = end(&parent);
    let executable = instantiate(&graph);
    let (gate, done) = (Gate::new(&gpu), gpu.cb_event());
    run(&parent, &executable, Some(&done), &[&gate.event]);
    run(&other, &executable, None, &[]);
    for _ in 0..100 {
        run(&parent, &executable, None, &[]);
        run(&other, &executable, None, &[]);
    }
    assert!(!done.is_ready());
    assert_eq!(memory.get(0), 0);
    gate.open();
    done.synchronize();
    assert!(memory.get(0) >= 1);
    parent.synchronize();
    other.synchronize();
    assert_eq!(memory.get(0), 202);
    check!(zeKernelDestroy(kernel));
    check!(zeModuleDestroy(module));
}

/// Copies from ordinary memory read the process's memory at the time when the graph is appended, in
/// pages that have replaced those of the capture and of earlier executions.
#[test]
fn ordinary_memory_is_what_it_is_at_each_execution() {
    let (gpu, page) = (Gpu::new(), Page::default());
    let memory = gpu.host::<u64>(1);
    let list = gpu.immediate(0, true);
    let source = page.fresh();
    begin(&list);
    check!(zeCommandListAppendMemoryCopy(
        list.0,
        memory.ptr().cast(),
        source.cast(),
        8,
        NONE,
        0,
        ptr::null_mut()
    ));
    let graph = end(&list);
    let (one, two) = (instantiate(&graph), instantiate(&graph));
    for round in 1..4 {
        // SAFETY: the page is ours and writable, and no submitted command still reads it.
        unsafe { page.fresh().write(round) };
        for graph in [&one, &two, &one] {
            memory.set(0, 0);
            run(&list, graph, None, &[]);
            list.synchronize();
            assert_eq!(memory.get(0), round);
        }
    }
}

/// "If wait events are provided, graph execution does not begin until all wait events are satisfied.":
/// neither do its forks, though the regular events that they wait for are set since the last execution.
#[test]
fn forks_wait_for_what_the_graph_waits_for() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(4);
    for in_order in [true, false] {
        let pool = gpu.pool(2, ze_event_pool_flags_t::empty());
        let (fork, join) = (pool.event(0), pool.event(1));
        let [parent, child] = [0; 2].map(|_| gpu.immediate(0, in_order));
        begin(&parent);
        parent.set((&memory, 0), 1, Some(&fork), &[]);
        child.copy((&memory, 1), (&memory, 0), 1, Some(&join), &[&fork]);
        parent.wait(&[&join]);
        let graph = end(&parent);
        let executable = instantiate(&graph);
        memory.fill_with(|_| 0);
        run(&parent, &executable, None, &[]);
        parent.synchronize();
        assert_eq!(memory.to_vec(), [1, 1, 0, 0]);
        memory.set(0, 7);
        let gate = Gate::new(&gpu);
        run(&parent, &executable, None, &[&gate.event]);
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(memory.to_vec(), [7, 1, 0, 0], "the gate is closed");
        gate.open();
        parent.synchronize();
        assert_eq!(memory.get(0), 1);
    }
}

/// The same with one event that the graph waits for and then signals: each execution waits for the one
/// before it, or for the command outside that has signalled the event.
#[test]
fn an_external_event_may_be_waited_for_and_signalled() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(4);
    memory.fill_with(|i| 10 + i as u32);
    let (list, outside, event) = (gpu.immediate(0, true), gpu.immediate(0, true), external(&gpu));
    begin(&list);
    list.copy((&memory, 1), (&memory, 0), 1, None, &[&event]);
    list.copy((&memory, 2), (&memory, 1), 1, Some(&event), &[]);
    let graph = end(&list);
    let executable = instantiate(&graph);
    for _ in 0..3 {
        run(&list, &executable, None, &[]);
    }
    event.synchronize();
    assert_eq!(memory.to_vec(), [10, 10, 10, 13]);
    let gate = Gate::new(&gpu);
    outside.wait(&[&gate.event]);
    outside.set((&memory, 0), 20, Some(&event), &[]);
    run(&list, &executable, None, &[]);
    assert_eq!(memory.to_vec(), [10, 10, 10, 13], "the gate is closed");
    gate.open();
    event.synchronize();
    assert_eq!(memory.to_vec(), [20, 20, 20, 13]);
    list.synchronize();
}

/// "Recorded external counter-based events (i.e. with ZEX_COUNTER_BASED_EVENT_FLAG_GRAPH_EXTERNAL) may be
/// used to synchronize the graph with device commands submitted outside the graph (for example, before or
/// after ::zeCommandListAppendGraphExt) and with the host."
#[test]
fn external_events_meet_commands_outside() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(4);
    let (list, outside) = (gpu.immediate(0, true), gpu.immediate(0, true));
    let (before, after) = (external(&gpu), external(&gpu));
    begin(&list);
    list.copy((&memory, 1), (&memory, 0), 1, Some(&after), &[&before]);
    let graph = end(&list);
    assert!(after.is_ready(), "nothing has signalled it yet");
    let executable = instantiate(&graph);
    for round in 1..20 {
        let gate = Gate::new(&gpu);
        memory.set(1, 0);
        outside.wait(&[&gate.event]);
        outside.set((&memory, 0), round, Some(&before), &[]);
        run(&list, &executable, None, &[]);
        outside.copy((&memory, 2), (&memory, 1), 1, None, &[&after]);
        assert!(!after.is_ready());
        assert_eq!(memory.get(1), 0);
        gate.open();
        after.synchronize();
        assert_eq!(memory.get(1), round);
        outside.synchronize();
        assert_eq!(memory.get(2), round);
    }
    list.synchronize();
}

/// "A child command list may itself be used to create additional forks, resulting in a tree of command lists
/// participating in the same graph capture.", "Subsequent signals from the parent command list to a child
/// command list are allowed and do not create additional forks": random commands of four lists, each of
/// which waits for what it depends on, leave what they leave one after the other.
#[test]
fn random_graphs_keep_their_dependencies() {
    const CELLS: usize = 6;
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(CELLS);
    for seed in 1..=30_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut below = |n: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % n as u64) as usize
        };
        let lists = [0; 4].map(|_| gpu.immediate(0, true));
        let mut events: Vec<(usize, Event)> = Vec::new();
        // Commands that have read or written a cell since its last write, that one first.
        let mut users: [Vec<usize>; CELLS] = Default::default();
        let mut model: Vec<u32> = (0..CELLS as u32).collect();
        begin(&lists[0]);
        for number in 0..40 {
            let list = if number == 0 { 0 } else { below(lists.len()) };
            let (from, to) = (below(CELLS), below(CELLS));
            let mut waits = users[to].clone();
            waits.extend(users[from].first());
            if list != 0 && !is_capturing(&lists[list]) {
                waits.push(number - 1);
            }
            waits.retain(|&it| events[it].0 != list);
            let waits: Vec<&Event> = waits.iter().map(|&it| &events[it].1).collect();
            let event = gpu.cb_event();
            if from == to {
                lists[list].set((&memory, to), 1000 + number as u32, Some(&event), &waits);
                model[to] = 1000 + number as u32;
            } else {
                lists[list].copy((&memory, to), (&memory, from), 1, Some(&event), &waits);
                model[to] = model[from];
                users[from].push(number);
            }
            users[to] = vec![number];
            events.push((list, event));
        }
        let last = (1..lists.len()).filter_map(|list| events.iter().rfind(|it| it.0 == list));
        let last: Vec<&Event> = last.map(|it| &it.1).collect();
        lists[0].wait(&last);
        let graph = end(&lists[0]);
        let executables = [instantiate(&graph), instantiate(&graph)];
        // The events only have to outlive the capture.
        drop(events);
        for executable in executables.iter().cycle().take(6) {
            memory.fill_with(|i| i as u32);
            run(&lists[0], executable, None, &[]);
            lists[0].synchronize();
            assert_eq!(memory.to_vec(), model, "seed {seed}");
        }
    }
}
