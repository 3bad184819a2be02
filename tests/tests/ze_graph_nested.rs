// SPDX-License-Identifier: MIT OR Apache-2.0
//! Graphs that are parts of graphs (`ZE_extension_record_replay_graph`) through the stock loader.

use std::ptr;

use tally_tests::graph::{begin, end, ended, instantiate, run};
use tally_tests::lists::NONE;
use tally_tests::ze::Gpu;
use tally_tests::{call, refused};
use tally_ze::*;

/// ZE_RECORD_REPLAY_GRAPH_EXT_FLAG_SUBGRAPHS: "Supports appending a subgraph into a graph". Its place in
/// the list is kept, with its forks, whichever host or event holds it up; "If `hSignalEvent` is provided,
/// it is signaled after all recorded append operations on all recorded queues complete."
#[test]
fn graphs_are_parts_of_graphs() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(8);
    let pool = gpu.pool(2, ze_event_pool_flags_t::empty());
    let (gate, seen) = (pool.event(0), pool.event(1));
    let [parent, child] = [0; 2].map(|_| gpu.immediate(0, true));
    // The inner one: 0 to 1 in its own list, and in a fork, which the host holds up, 1 to 2.
    let (fork, join) = (gpu.cb_event(), gpu.cb_event());
    begin(&parent);
    parent.copy((&memory, 1), (&memory, 0), 1, Some(&fork), &[]);
    child.wait(&[&fork]);
    child.signal(&seen);
    child.wait(&[&gate]);
    child.copy((&memory, 2), (&memory, 1), 1, Some(&join), &[]);
    parent.wait(&[&join]);
    let inner = end(&parent);
    let part = instantiate(&inner);
    // The middle one: a graph and 2 to 3 behind it; a fork waits for its signal.
    let (done, back) = (gpu.cb_event(), gpu.cb_event());
    begin(&parent);
    parent.set((&memory, 0), 7, None, &[]);
    run(&parent, &part, Some(&done), &[]);
    parent.copy((&memory, 3), (&memory, 2), 1, None, &[]);
    child.copy((&memory, 4), (&memory, 2), 1, Some(&back), &[&done]);
    parent.wait(&[&back]);
    let middle = end(&parent);
    let whole = instantiate(&middle);
    // They are copied into the graph, and no longer needed.
    drop((part, inner));
    // The outer one has the middle one in a fork.
    let (fork, join) = (gpu.cb_event(), gpu.cb_event());
    begin(&parent);
    parent.set((&memory, 6), 1, Some(&fork), &[]);
    run(&child, &whole, Some(&join), &[&fork]);
    parent.copy((&memory, 5), (&memory, 4), 1, None, &[&join]);
    let outer = end(&parent);
    let outermost = instantiate(&outer);
    for (round, graph) in [&whole, &outermost, &outermost, &whole, &outermost].iter().enumerate() {
        memory.fill_with(|_| 0);
        gate.reset();
        seen.reset();
        run(&parent, graph, None, &[]);
        seen.synchronize();
        assert_eq!(memory.to_vec()[..6], [7, 7, 0, 0, 0, 0], "round {round}: the gate is closed");
        let not_ready = ze_result_t::ZE_RESULT_NOT_READY;
        assert_eq!(call!(zeCommandListHostSynchronize(parent.0, 0)), not_ready);
        gate.signal();
        parent.synchronize();
        let last = if ptr::eq(*graph, &whole) { 0 } else { 7 };
        assert_eq!(memory.to_vec()[..6], [7, 7, 7, 7, 7, last], "round {round}");
    }
    // Many at once, one behind the other.
    gate.signal();
    for _ in 0..50 {
        run(&parent, &outermost, None, &[]);
        run(&child, &whole, None, &[]);
    }
    parent.synchronize();
    child.synchronize();
    assert_eq!(memory.to_vec()[..7], [7, 7, 7, 7, 7, 7, 1]);
    // Work that is not waited for, in a fork with a graph in it.
    let fork = gpu.cb_event();
    begin(&parent);
    parent.set((&memory, 0), 1, Some(&fork), &[]);
    run(&child, &whole, None, &[&fork]);
    assert_eq!(ended(&parent).0, ze_result_t::ZE_RESULT_ERROR_GRAPH_UNJOINED_FORKS);
    // Out of order, a place in the list is no point in time.
    let unordered = gpu.immediate(0, false);
    begin(&unordered);
    unordered.set((&memory, 0), 1, None, &[]);
    let graph = end(&unordered);
    let executable = instantiate(&graph);
    begin(&unordered);
    refused!(
        ZE_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED,
        zeCommandListAppendGraphExt(
            unordered.0,
            executable.0,
            ptr::null(),
            NONE,
            0,
            ptr::null_mut()
        )
    );
    drop(end(&unordered));
}

/// "All executable graph instances created from the recorded graph must be destroyed before this function is called.":
/// what the other graph would get is gone.
#[test]
fn a_graph_that_was_destroyed_is_no_part_of_another_one() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(1);
    let list = gpu.immediate(0, true);
    begin(&list);
    list.set((&memory, 0), 1, None, &[]);
    let executable = instantiate(&end(&list));
    begin(&list);
    refused!(
        ZE_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED,
        zeCommandListAppendGraphExt(list.0, executable.0, ptr::null(), NONE, 0, ptr::null_mut())
    );
    drop(end(&list));
    // By itself it still works.
    run(&list, &executable, None, &[]);
    list.synchronize();
    assert_eq!(memory.get(0), 1);
}
