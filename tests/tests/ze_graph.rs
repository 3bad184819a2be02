// SPDX-License-Identifier: MIT OR Apache-2.0
//! Record-and-replay graphs (`ZE_extension_record_replay_graph`) through the stock loader. Quotes
//! are from the interface's reference.

use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use tally_tests::gate::Gate;
use tally_tests::graph::*;
use tally_tests::lists::{Event, NONE, PATIENCE, queue_flags};
use tally_tests::ze::{self, Gpu};
use tally_tests::{call, check, refused};
use tally_ze::ze_event_counter_based_flags_t as Flag;
use tally_ze::*;

/// "After this call succeeds, append operations issued to the command list are recorded into a graph and
/// are not submitted to the device.", "After this call succeeds, subsequent append operations submit work
/// to the device normally.", and "Multiple executable graph objects may be created from a single recorded
/// graph.": kernels with the arguments that they had, copies, fills, host functions.
#[test]
fn what_is_captured_is_replayed() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(8);
    memory.fill_with(|_| 0);
    let module = gpu.module(&ze::spirv_from(KERNEL), "").expect("it is valid");
    let kernel = gpu.kernel(module, "add");
    check!(zeKernelSetGroupSize(kernel, 2, 1, 1));
    let set = |value: u32| {
        let to = memory.ptr();
        check!(zeKernelSetArgumentValue(kernel, 0, 8, ptr::from_ref(&to).cast()));
        check!(zeKernelSetArgumentValue(kernel, 1, 4, ptr::from_ref(&value).cast()));
    };
    extern "C" fn count(data: *mut c_void) {
        // SAFETY: the test passes a counter that outlives the graphs.
        unsafe { &*data.cast::<AtomicU32>() }.fetch_add(1, Ordering::Relaxed);
    }
    let called = AtomicU32::new(0);
    for in_order in [true, false] {
        memory.fill_with(|_| 0);
        called.store(0, Ordering::Relaxed);
        let list = gpu.immediate(0, in_order);
        assert!(!is_capturing(&list));
        begin(&list);
        assert!(is_capturing(&list));
        set(5);
        let groups = ze_group_count_t { groupCountX: 1, groupCountY: 1, groupCountZ: 1 };
        let groups = &raw const groups;
        check!(zeCommandListAppendLaunchKernel(list.0, kernel, groups, NONE, 0, ptr::null_mut()));
        set(1000);
        list.barrier(None, &[]);
        list.copy((&memory, 2), (&memory, 0), 2, None, &[]);
        list.set((&memory, 4), 9, None, &[]);
        check!(zeCommandListAppendHostFunction(
            list.0,
            Some(count),
            (&raw const called).cast_mut().cast(),
            ptr::null(),
            NONE,
            0,
            ptr::null_mut()
        ));
        list.barrier(None, &[]);
        let graph = end(&list);
        assert!(!is_capturing(&list));
        list.synchronize();
        assert_eq!(memory.to_vec(), [0; 8], "nothing was submitted");
        let (one, two) = (instantiate(&graph), instantiate(&graph));
        let mut source = ze_graph_handle_t::NULL;
        check!(zeExecutableGraphGetSourceGraphExt(one.0, &raw mut source));
        assert_eq!(source, graph.0);
        let mut primary = ze_command_list_handle_t::NULL;
        check!(zeGraphGetPrimaryCommandListExt(graph.0, &raw mut primary));
        assert_eq!(primary, list.0);
        for round in 1..=20 {
            run(&list, if round % 3 == 0 { &two } else { &one }, None, &[]);
            list.barrier(None, &[]);
            list.synchronize();
            assert_eq!(memory.to_vec()[..5], [5 * round, 5 * round, 5 * round, 5 * round, 9]);
            assert_eq!(called.load(Ordering::Relaxed), round);
        }
        list.set((&memory, 7), 3, None, &[]);
        list.synchronize();
        assert_eq!(memory.get(7), 3, "appends go to the device again");
    }
    check!(zeKernelDestroy(kernel));
    check!(zeModuleDestroy(module));
}

/// "If an event signaled by a captured command list is used in the wait list of another immediate command
/// list, that command list also enters graph capture mode. This creates a fork.", "A child command list may
/// itself be used to create additional forks", "Each fork must be joined by signaling on the child command
/// list and by waiting on the parent command list.": with counter-based and with regular events; and each
/// branch runs on its own: the host holds one up while it sees another go on.
#[test]
fn lists_fork_and_join() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(8);
    for (in_order, counting) in [(true, true), (true, false), (false, false)] {
        let pool = gpu.pool(8, ze_event_pool_flags_t::empty());
        let events: Vec<Event> =
            (0..4).map(|i| if counting { gpu.cb_event() } else { pool.event(i) }).collect();
        let [start, middle, joined, last] = &events[..] else { unreachable!() };
        let (gate, seen) = (pool.event(6), pool.event(7));
        let [parent, child, grandchild] = [0; 3].map(|_| gpu.immediate(0, in_order));
        begin(&parent);
        parent.set((&memory, 0), 1, Some(start), &[]);
        // Out of order, the rest of the parent's commands does not depend on the forks.
        child.copy((&memory, 1), (&memory, 0), 1, Some(middle), &[start]);
        assert!(is_capturing(&child) && !is_capturing(&grandchild));
        grandchild.wait(&[middle]);
        assert!(is_capturing(&grandchild));
        grandchild.wait(&[&gate]);
        grandchild.copy((&memory, 2), (&memory, 1), 1, Some(joined), &[]);
        child.set((&memory, 3), 4, Some(last), &[]);
        parent.signal(&seen);
        parent.wait(&[joined, last]);
        parent.copy((&memory, 4), (&memory, 2), 1, None, &[]);
        let graph = end(&parent);
        assert!(![&parent, &child, &grandchild].into_iter().any(is_capturing));
        let executable = instantiate(&graph);
        for _ in 0..10 {
            memory.fill_with(|_| 0);
            events.iter().filter(|_| !counting).for_each(Event::reset);
            gate.reset();
            seen.reset();
            run(&parent, &executable, None, &[]);
            seen.synchronize();
            assert_eq!(memory.get(2), 0, "the gate is closed");
            assert_eq!(
                call!(zeCommandListHostSynchronize(parent.0, 0)),
                ze_result_t::ZE_RESULT_NOT_READY
            );
            gate.signal();
            parent.synchronize();
            assert_eq!(memory.to_vec()[..5], [1, 1, 1, 4, 1]);
        }
    }
}

/// "Recorded internal counter-based events (...) may be used only for synchronization within the graph.",
/// "While capture is active, internal counter-based events (...) captured in the graph cannot be used
/// outside the graph", and after it they "can be reused by the application and don't interfere with
/// recorded state."
#[test]
fn internal_events_are_the_graphs_own() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(2);
    let (list, other, regular) =
        (gpu.immediate(0, true), gpu.immediate(0, true), gpu.regular(0, true));
    let event = gpu.cb_event();
    begin(&list);
    list.set((&memory, 0), 1, Some(&event), &[]);
    let mut waits = [event.0];
    refused!(
        ZE_RESULT_ERROR_GRAPH_INTERNAL_EVENT,
        zeCommandListAppendBarrier(regular.0, NONE, 1, waits.as_mut_ptr())
    );
    refused!(
        ZE_RESULT_ERROR_GRAPH_INTERNAL_EVENT,
        zeCommandListAppendSignalEvent(other.0, event.0)
    );
    refused!(ZE_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED, zeEventHostSynchronize(event.0, 0));
    let (mut value, mut address) = (0, 0);
    refused!(
        ZE_RESULT_ERROR_GRAPH_INTERNAL_EVENT,
        zeEventCounterBasedGetDeviceAddress(event.0, &raw mut value, &raw mut address)
    );
    let graph = end(&list);
    assert!(event.is_ready());
    let gate = Gate::new(&gpu);
    other.barrier(Some(&event), &[&gate.event]);
    let executable = instantiate(&graph);
    run(&list, &executable, None, &[]);
    list.synchronize();
    assert_eq!(memory.get(0), 1);
    assert!(!event.is_ready(), "the graph does not signal it");
    gate.open();
    event.synchronize();
    other.synchronize();
}

/// "It is invalid to merge two separate graph capture sessions", "synchronous operations are not supported
/// while capture is active", "The application must call this function only with an immediate command
/// list.", without the flags lists and graphs are not appended, and a capture is ended where it began.
#[test]
fn misuse_is_refused() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(2);
    let (list, other) = (gpu.immediate(0, true), gpu.immediate(0, true));
    let regular = gpu.regular(0, true);
    regular.close();
    let mut none = ze_graph_handle_t::NULL;
    refused!(
        ZE_RESULT_ERROR_COMMAND_LIST_NOT_CAPTURING,
        zeCommandListEndGraphCaptureExt(list.0, ptr::null(), &raw mut none)
    );
    none = ze_graph_handle_t(ptr::dangling_mut());
    refused!(
        ZE_RESULT_ERROR_COMMAND_LIST_NOT_CAPTURING,
        zeCommandListGetGraphExt(list.0, &raw mut none)
    );
    assert_eq!(none, ze_graph_handle_t::NULL);
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeCommandListBeginGraphCaptureExt(regular.0, ptr::null())
    );
    let synchronous = gpu.immediate_of(&ze_command_queue_desc_t {
        mode: ze_command_queue_mode_t::ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS,
        flags: queue_flags(true),
        ..Default::default()
    });
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeCommandListBeginGraphCaptureExt(synchronous.0, ptr::null())
    );
    let (one, two) = (gpu.cb_event(), gpu.cb_event());
    begin(&list);
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeCommandListBeginGraphCaptureExt(list.0, ptr::null())
    );
    list.set((&memory, 0), 1, Some(&one), &[]);
    begin(&other);
    other.set((&memory, 1), 1, Some(&two), &[]);
    let mut waits = [one.0];
    refused!(
        ZE_RESULT_ERROR_GRAPH_CAPTURE_MERGE_ATTEMPT,
        zeCommandListAppendBarrier(other.0, NONE, 1, waits.as_mut_ptr())
    );
    refused!(
        ZE_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED,
        zeCommandListAppendBarrier(synchronous.0, NONE, 1, waits.as_mut_ptr())
    );
    refused!(
        ZE_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED,
        zeCommandListHostSynchronize(list.0, PATIENCE)
    );
    let mut lists = [regular.0];
    refused!(
        ZE_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED,
        zeCommandListImmediateAppendCommandListsExp(
            list.0,
            1,
            lists.as_mut_ptr(),
            NONE,
            0,
            ptr::null_mut()
        )
    );
    let shared = gpu.cb_event_with(
        Flag::ZE_EVENT_COUNTER_BASED_FLAG_GRAPH_EXTERNAL | Flag::ZE_EVENT_COUNTER_BASED_FLAG_IPC,
    );
    refused!(
        ZE_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED,
        zeCommandListAppendSignalEvent(list.0, shared.0)
    );
    let mut waits = [shared.0];
    refused!(
        ZE_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED,
        zeCommandListAppendWaitOnEvents(list.0, 1, waits.as_mut_ptr())
    );
    let (graph, of_other) = (end(&list), end(&other));
    let executable = instantiate(&graph);
    begin(&list);
    let mut handle = ze_graph_handle_t::NULL;
    check!(zeCommandListGetGraphExt(list.0, &raw mut handle));
    let mut early = ze_executable_graph_handle_t::NULL;
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeGraphInstantiateExt(handle, ptr::null(), &raw mut early)
    );
    refused!(ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE, zeGraphDestroyExt(handle));
    let empty = end(&list);
    assert_eq!(empty.0, handle);
    let copies = gpu.immediate(1, true);
    let unordered = gpu.immediate(0, false);
    for wrong in [&copies, &unordered, &regular] {
        refused!(
            ZE_RESULT_ERROR_INVALID_ARGUMENT,
            zeCommandListAppendGraphExt(
                wrong.0,
                executable.0,
                ptr::null(),
                NONE,
                0,
                ptr::null_mut()
            )
        );
    }
    drop(of_other);
}

/// "The destination command list must match the type and execution characteristics of the command list
/// used to initiate recording, including the queue group ordinal and immediate mode configuration.": the
/// default mode is the asynchronous one, and hints do not change how a command is executed.
#[test]
fn a_graph_runs_on_every_list_that_executes_alike() {
    use ze_command_queue_flags_t as flag;
    use ze_command_queue_mode_t as Mode;
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(1);
    let in_order = flag::ZE_COMMAND_QUEUE_FLAG_IN_ORDER;
    let list = |mode, flags| {
        gpu.immediate_of(&ze_command_queue_desc_t { mode, flags, ..Default::default() })
    };
    let lists = [
        list(Mode::ZE_COMMAND_QUEUE_MODE_DEFAULT, in_order),
        list(Mode::ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS, in_order),
        list(
            Mode::ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS,
            in_order | flag::ZE_COMMAND_QUEUE_FLAG_EXPLICIT_ONLY,
        ),
        list(
            Mode::ZE_COMMAND_QUEUE_MODE_DEFAULT,
            in_order | flag::ZE_COMMAND_QUEUE_FLAG_COPY_OFFLOAD_HINT,
        ),
    ];
    for captured in &lists {
        begin(captured);
        captured.set((&memory, 0), 7, None, &[]);
        let graph = end(captured);
        let executable = instantiate(&graph);
        for target in &lists {
            memory.set(0, 0);
            run(target, &executable, None, &[]);
            target.synchronize();
            assert_eq!(memory.get(0), 7);
        }
        let synchronous = list(Mode::ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS, in_order);
        refused!(
            ZE_RESULT_ERROR_INVALID_ARGUMENT,
            zeCommandListAppendGraphExt(
                synchronous.0,
                executable.0,
                ptr::null(),
                NONE,
                0,
                ptr::null_mut()
            )
        );
    }
}

/// "ZE_RESULT_ERROR_GRAPH_UNJOINED_FORKS if graph contains unjoined forks", "Commands that append work (...)
/// to a recording child command list after the intended join operation are treated as unjoined work, and
/// the graph is considered invalid. Commands that do not append work (...) are allowed after the join".
#[test]
fn forks_that_are_not_joined_make_no_graph() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(2);
    let (list, child) = (gpu.immediate(0, true), gpu.immediate(0, true));
    let (fork, join, late) = (gpu.cb_event(), gpu.cb_event(), gpu.cb_event());
    let pool = gpu.pool(1, ze_event_pool_flags_t::empty());
    let reset = pool.event(0);
    for (joins, works, good) in [(false, false, false), (true, true, false), (true, false, true)] {
        begin(&list);
        list.set((&memory, 0), 1, Some(&fork), &[]);
        child.set((&memory, 1), 1, Some(&join), &[&fork]);
        if joins {
            list.wait(&[&join]);
        }
        if works {
            child.set((&memory, 1), 2, None, &[]);
        }
        child.signal(&late);
        child.reset_event(&reset);
        let mut none = ze_graph_handle_t::NULL;
        refused!(
            ZE_RESULT_ERROR_INVALID_ARGUMENT,
            zeCommandListEndGraphCaptureExt(child.0, ptr::null(), &raw mut none)
        );
        let (code, graph) = ended(&list);
        assert!(!is_capturing(&list) && !is_capturing(&child));
        let mut executable = ze_executable_graph_handle_t::NULL;
        if good {
            assert_eq!(code, ze_result_t::ZE_RESULT_SUCCESS);
            run(&list, &instantiate(&graph), None, &[]);
            list.synchronize();
            continue;
        }
        assert_eq!(code, ze_result_t::ZE_RESULT_ERROR_GRAPH_UNJOINED_FORKS);
        assert_eq!(call!(zeGraphIsEmptyExt(graph.0)), ze_result_t::ZE_RESULT_ERROR_INVALID_GRAPH);
        refused!(
            ZE_RESULT_ERROR_INVALID_GRAPH,
            zeGraphInstantiateExt(graph.0, ptr::null(), &raw mut executable)
        );
    }
    assert_eq!(memory.to_vec(), [1, 1]);
}

/// A call that fails changes nothing: a list does not fork because of a refused command.
#[test]
fn a_refused_command_forks_no_list() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(2);
    memory.fill_with(|_| 0);
    let (list, child, other) =
        (gpu.immediate(0, true), gpu.immediate(0, true), gpu.regular(0, true));
    let event = gpu.cb_event();
    other.close();
    begin(&list);
    list.set((&memory, 0), 1, Some(&event), &[]);
    let (mut lists, mut waits) = ([other.0], [event.0]);
    refused!(
        ZE_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED,
        zeCommandListImmediateAppendCommandListsExp(
            child.0,
            1,
            lists.as_mut_ptr(),
            NONE,
            1,
            waits.as_mut_ptr()
        )
    );
    assert!(!is_capturing(&child));
    child.set((&memory, 1), 2, None, &[]);
    child.synchronize();
    assert_eq!(memory.to_vec(), [0, 2], "it went to the device");
    let graph = end(&list);
    run(&list, &instantiate(&graph), None, &[]);
    list.synchronize();
    assert_eq!(memory.to_vec(), [1, 2]);
}

/// The names of the functions before the extension, with the arguments in another order: Intel's driver
/// keeps them, and its benchmarks use only these.
#[test]
fn graphs_have_their_older_names() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(1);
    let list = gpu.immediate(0, true);
    let (yes, no) = (ze_result_t(0x7fff_0000), ze_result_t(0x7fff_0001));
    let mut graph = ze_graph_handle_t::NULL;
    check!(zeGraphCreateExp(gpu.context, &raw mut graph, ptr::null()));
    assert_eq!(call!(zeGraphIsEmptyExp(graph)), yes);
    let is_captured = || call!(zeCommandListIsGraphCaptureEnabledExp(list.0));
    assert_eq!(is_captured(), no);
    check!(zeCommandListBeginCaptureIntoGraphExp(list.0, graph, ptr::null()));
    assert_eq!(is_captured(), yes);
    list.set((&memory, 0), 7, None, &[]);
    check!(zeCommandListEndGraphCaptureExp(list.0, ptr::null_mut(), ptr::null()));
    assert_eq!(call!(zeGraphIsEmptyExp(graph)), no);
    let mut executable = ze_executable_graph_handle_t::NULL;
    check!(zeCommandListInstantiateGraphExp(graph, &raw mut executable, ptr::null()));
    let none = ptr::null_mut();
    check!(zeCommandListAppendGraphExp(list.0, executable, ptr::null(), NONE, 0, none));
    list.synchronize();
    assert_eq!(memory.get(0), 7);
    let file = std::env::temp_dir().join(format!("tally-graph-exp-{}.dot", std::process::id()));
    let path = CString::new(file.to_str().expect("it is text")).expect("no NUL");
    check!(zeGraphDumpContentsExp(graph, path.as_ptr(), ptr::null()));
    assert!(std::fs::read_to_string(&file).expect("it was written").contains("digraph"));
    std::fs::remove_file(&file).expect("it is there");
    check!(zeExecutableGraphDestroyExp(executable));
    check!(zeGraphDestroyExp(graph));
    check!(zeCommandListBeginGraphCaptureExp(list.0, ptr::null()));
    let mut other = ze_graph_handle_t::NULL;
    check!(zeCommandListEndGraphCaptureExp(list.0, &raw mut other, ptr::null()));
    check!(zeGraphDestroyExp(other));
}

/// Two functions of Intel's driver that the specification does not have: while a capture is paused,
/// commands appended to its lists are submitted, and its events fork no list; after it is resumed, the
/// capture continues with its forks.
#[test]
fn a_capture_pauses_and_goes_on() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(8);
    for counting in [true, false] {
        memory.fill_with(|_| 0);
        let pool = gpu.pool(4, ze_event_pool_flags_t::empty());
        let new = |index| if counting { gpu.cb_event() } else { pool.event(index) };
        let (forked, joined) = (new(0), new(1));
        let (list, child, outside) =
            (gpu.immediate(0, true), gpu.immediate(0, true), gpu.immediate(0, true));
        begin(&list);
        list.set((&memory, 0), 1, Some(&forked), &[]);
        child.set((&memory, 1), 2, None, &[&forked]);
        let mut graph = ze_graph_handle_t::NULL;
        check!(zeCommandListGetGraphExt(list.0, &raw mut graph));
        refused!(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeGraphResumeCaptureExt(graph));
        for round in 1..=2 {
            check!(zeGraphPauseCaptureExt(graph));
            assert!(!is_capturing(&list) && !is_capturing(&child));
            list.set((&memory, 4), 10 * round, None, &[]);
            child.set((&memory, 5), 20 * round, None, &[]);
            list.synchronize();
            child.synchronize();
            assert_eq!(memory.to_vec()[..6], [0, 0, 0, 0, 10 * round, 20 * round]);
            // The event forks no list now. A counter-based one still refers to the graph's command.
            if counting {
                let mut waits = [forked.0];
                refused!(
                    ZE_RESULT_ERROR_GRAPH_INTERNAL_EVENT,
                    zeCommandListAppendBarrier(outside.0, NONE, 1, waits.as_mut_ptr())
                );
            } else {
                let code = ze_result_t::ZE_RESULT_NOT_READY;
                assert_eq!(call!(zeEventQueryStatus(forked.0)), code, "nothing has run");
                outside.set((&memory, 6), 30, None, &[&forked]);
                check!(zeEventHostSignal(forked.0));
                outside.synchronize();
                check!(zeEventHostReset(forked.0));
                assert_eq!(memory.get(6), 30);
            }
            assert!(!is_capturing(&outside));
            refused!(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeGraphPauseCaptureExt(graph));
            refused!(ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE, zeGraphDestroyExt(graph));
            let mut none = ze_graph_handle_t::NULL;
            let code = ze_result_t::ZE_RESULT_ERROR_COMMAND_LIST_NOT_CAPTURING;
            let ended = call!(zeCommandListEndGraphCaptureExt(list.0, ptr::null(), &raw mut none));
            assert_eq!(ended, code);
            refused!(
                ZE_RESULT_ERROR_INVALID_ARGUMENT,
                zeCommandListBeginGraphCaptureExt(list.0, ptr::null())
            );
            check!(zeGraphResumeCaptureExt(graph));
            assert!(is_capturing(&list) && is_capturing(&child));
        }
        child.set((&memory, 2), 3, Some(&joined), &[]);
        list.set((&memory, 3), 4, None, &[&joined]);
        let graph = end(&list);
        refused!(ZE_RESULT_ERROR_COMMAND_LIST_NOT_CAPTURING, zeGraphPauseCaptureExt(graph.0));
        memory.fill_with(|_| 0);
        run(&list, &instantiate(&graph), None, &[]);
        list.synchronize();
        assert_eq!(memory.to_vec(), [1, 2, 3, 4, 0, 0, 0, 0], "what ran meanwhile is not in it");
    }
}

/// A list of a paused capture joins no other, and the end of the list ends the capture.
#[test]
fn a_list_of_a_paused_capture_stays_in_it() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(2);
    let (list, other, event) = (gpu.immediate(0, true), gpu.immediate(0, true), gpu.cb_event());
    begin(&list);
    let mut graph = ze_graph_handle_t::NULL;
    check!(zeCommandListGetGraphExt(list.0, &raw mut graph));
    check!(zeGraphPauseCaptureExt(graph));
    begin(&other);
    other.set((&memory, 0), 1, Some(&event), &[]);
    let mut waits = [event.0];
    refused!(
        ZE_RESULT_ERROR_GRAPH_CAPTURE_MERGE_ATTEMPT,
        zeCommandListAppendBarrier(list.0, NONE, 1, waits.as_mut_ptr())
    );
    drop(end(&other));
    check!(zeCommandListDestroy(list.0));
    std::mem::forget(list);
    refused!(ZE_RESULT_ERROR_COMMAND_LIST_NOT_CAPTURING, zeGraphResumeCaptureExt(graph));
    check!(zeGraphDestroyExt(graph));
}

/// "All executable graph instances created from the recorded graph must be destroyed before this function is
/// called.": Intel's driver does not check this, and its own programs destroy the graph first. So the callbacks run,
/// the handle becomes invalid, and the executable graph still works.
#[test]
fn a_graph_may_end_before_what_was_made_of_it() {
    extern "C" fn count(data: *mut c_void) {
        // SAFETY: the test passes a counter that outlives the graph.
        unsafe { &*data.cast::<AtomicU32>() }.fetch_add(1, Ordering::Relaxed);
    }
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(2);
    let (list, child) = (gpu.immediate(0, true), gpu.immediate(0, true));
    let (fork, join) = (gpu.cb_event(), gpu.cb_event());
    begin(&list);
    list.set((&memory, 0), 1, Some(&fork), &[]);
    child.set((&memory, 1), 2, Some(&join), &[&fork]);
    list.wait(&[&join]);
    let graph = end(&list);
    let calls = AtomicU32::new(0);
    let data = (&raw const calls).cast_mut().cast();
    check!(zeGraphSetDestructionCallbackExt(graph.0, Some(count), data, ptr::null()));
    let executable = instantiate(&graph);
    let gate = Gate::new(&gpu);
    run(&list, &executable, None, &[&gate.event]);
    drop(graph);
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    gate.open();
    list.synchronize();
    assert_eq!(memory.to_vec(), [1, 2]);
    memory.fill_with(|_| 0);
    run(&list, &executable, None, &[]);
    list.synchronize();
    assert_eq!(memory.to_vec(), [1, 2]);
}

/// "All registered callbacks are invoked when the graph is destroyed.", "The graph must be empty when
/// capture begins.", "the returned graph handle is the same graph handle that was provided when
/// capture began", and submitted work continues when its executable graph is destroyed.
#[test]
fn graphs_end_in_their_order() {
    extern "C" fn count(data: *mut c_void) {
        // SAFETY: the test passes a counter that outlives the graph.
        unsafe { &*data.cast::<AtomicU32>() }.fetch_add(1, Ordering::Relaxed);
    }
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(2);
    let (list, child) = (gpu.immediate(0, true), gpu.immediate(0, true));
    let mut handle = ze_graph_handle_t::NULL;
    check!(zeGraphCreateExt(gpu.context, ptr::null(), &raw mut handle));
    let empty = |graph| call!(zeGraphIsEmptyExt(graph));
    assert_eq!(empty(handle), ze_result_t::ZE_RESULT_QUERY_TRUE);
    let mut executable = ze_executable_graph_handle_t::NULL;
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeGraphInstantiateExt(handle, ptr::null(), &raw mut executable)
    );
    check!(zeCommandListBeginCaptureIntoGraphExt(list.0, handle, ptr::null()));
    let (fork, join) = (gpu.cb_event(), gpu.cb_event());
    list.set((&memory, 0), 1, Some(&fork), &[]);
    child.set((&memory, 1), 2, Some(&join), &[&fork]);
    list.wait(&[&join]);
    let graph = end(&list);
    assert_eq!(graph.0, handle);
    assert_eq!(empty(handle), ze_result_t::ZE_RESULT_QUERY_FALSE);
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeCommandListBeginCaptureIntoGraphExt(list.0, handle, ptr::null())
    );
    let calls = AtomicU32::new(0);
    let data = (&raw const calls).cast_mut().cast();
    for _ in 0..2 {
        check!(zeGraphSetDestructionCallbackExt(handle, Some(count), data, ptr::null()));
    }
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_POINTER,
        zeGraphSetDestructionCallbackExt(handle, None, data, ptr::null())
    );
    // The branch of a destroyed list stays in the graph.
    drop(child);
    let executable = instantiate(&graph);
    let gate = Gate::new(&gpu);
    run(&list, &executable, None, &[&gate.event]);
    drop(executable);
    assert_eq!(calls.load(Ordering::Relaxed), 0);
    drop(graph);
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    assert_eq!(memory.to_vec(), [0, 0]);
    gate.open();
    list.synchronize();
    assert_eq!(memory.to_vec(), [1, 2]);
    // A capture whose first list is destroyed ends without a graph.
    let (list, child) = (gpu.immediate(0, true), gpu.immediate(0, true));
    begin(&list);
    let mut left = ze_graph_handle_t::NULL;
    check!(zeCommandListGetGraphExt(list.0, &raw mut left));
    list.set((&memory, 0), 7, Some(&fork), &[]);
    child.wait(&[&fork]);
    drop(list);
    assert!(!is_capturing(&child) && fork.is_ready());
    assert_eq!(empty(left), ze_result_t::ZE_RESULT_ERROR_INVALID_GRAPH);
    check!(zeGraphDestroyExt(left));
    child.set((&memory, 0), 8, None, &[]);
    child.synchronize();
    assert_eq!(memory.get(0), 8);
}

/// "Writes a DOT description of a recorded graph to disk.": "The generated DOT output captures the graph
/// structure and recorded append operations." and "Kernel node output includes kernel names, argument lists,
/// and argument types and values."; and the device's properties say what graphs can do.
#[test]
fn a_graph_is_written_as_dot() {
    let gpu = Gpu::new();
    let mut of_graphs = ze_record_replay_graph_ext_properties_t::default();
    let mut properties =
        ze_device_properties_t { pNext: (&raw mut of_graphs).cast(), ..Default::default() };
    check!(zeDeviceGetProperties(gpu.device, &raw mut properties));
    use ze_record_replay_graph_ext_flags_t as flag;
    let flags = flag::ZE_RECORD_REPLAY_GRAPH_EXT_FLAG_IMMUTABLE_GRAPH
        | flag::ZE_RECORD_REPLAY_GRAPH_EXT_FLAG_SUBGRAPHS;
    assert_eq!(of_graphs.graphFlags, flags);
    let module = gpu.module(&ze::spirv_from(KERNEL), "").expect("it is valid");
    let kernel = gpu.kernel(module, "add");
    let memory = gpu.host::<u32>(4);
    check!(zeKernelSetGroupSize(kernel, 2, 1, 1));
    let (to, value) = (memory.ptr(), 0xabcd_u32);
    check!(zeKernelSetArgumentValue(kernel, 0, 8, ptr::from_ref(&to).cast()));
    check!(zeKernelSetArgumentValue(kernel, 1, 4, ptr::from_ref(&value).cast()));
    let (list, child) = (gpu.immediate(0, true), gpu.immediate(0, true));
    let (fork, join) = (gpu.cb_event(), gpu.cb_event());
    begin(&list);
    let groups = ze_group_count_t { groupCountX: 2, groupCountY: 1, groupCountZ: 1 };
    let groups = &raw const groups;
    check!(zeCommandListAppendLaunchKernel(list.0, kernel, groups, fork.0, 0, ptr::null_mut()));
    child.set((&memory, 3), 1, Some(&join), &[&fork]);
    list.barrier(None, &[&join]);
    let graph = end(&list);
    let file = std::env::temp_dir().join(format!("tally-graph-{}.dot", std::process::id()));
    let path = CString::new(file.to_str().expect("it is text")).expect("no NUL");
    check!(zeGraphDumpContentsExt(graph.0, path.as_ptr(), ptr::null()));
    let full = std::fs::read_to_string(&file).expect("it was written");
    for part in ["digraph", "add", "groups 2 x 1 x 1", "= 0x0000abcd", "fill", "barrier"] {
        assert!(full.contains(part), "{part} in {full}");
    }
    assert!(full.contains("c0_0 -> c1_0") && full.contains("c1_0 -> c0_1"), "{full}");
    let simple = ze_record_replay_graph_ext_dump_desc_t {
        mode: ze_record_replay_graph_ext_dump_mode_t::ZE_RECORD_REPLAY_GRAPH_EXT_DUMP_MODE_SIMPLE,
        ..Default::default()
    };
    check!(zeGraphDumpContentsExt(graph.0, path.as_ptr(), (&raw const simple).cast()));
    let short = std::fs::read_to_string(&file).expect("it was written");
    assert!(short.contains("add") && !short.contains("0xabcd"), "{short}");
    std::fs::remove_file(&file).expect("it is there");
    refused!(
        ZE_RESULT_ERROR_UNKNOWN,
        zeGraphDumpContentsExt(graph.0, c"/nowhere/at/all".as_ptr(), ptr::null())
    );
    check!(zeKernelDestroy(kernel));
    check!(zeModuleDestroy(module));
}

/// "ZE_RESULT_ERROR_INVALID_NULL_HANDLE" and "ZE_RESULT_ERROR_INVALID_NULL_POINTER", as each function has
/// has them; unknown extensions are refused.
#[test]
fn null_is_refused() {
    let gpu = Gpu::new();
    let list = gpu.immediate(0, true);
    begin(&list);
    let graph = end(&list);
    let executable = instantiate(&graph);
    let no_list = ze_command_list_handle_t::NULL;
    let (no_graph, none) = (ze_graph_handle_t::NULL, ptr::null());
    let no_executable = ze_executable_graph_handle_t::NULL;
    let (mut any, mut any_list) = (no_graph, no_list);
    macro_rules! null_handle {
        ($($name:ident($($arg:expr),*);)*) => {
            $(refused!(ZE_RESULT_ERROR_INVALID_NULL_HANDLE, $name($($arg),*));)*
        };
    }
    macro_rules! null_pointer {
        ($($name:ident($($arg:expr),*);)*) => {
            $(refused!(ZE_RESULT_ERROR_INVALID_NULL_POINTER, $name($($arg),*));)*
        };
    }
    null_handle! {
        zeGraphCreateExt(ze_context_handle_t::NULL, none, &raw mut any);
        zeCommandListBeginGraphCaptureExt(no_list, none);
        zeCommandListBeginCaptureIntoGraphExt(no_list, graph.0, none);
        zeCommandListBeginCaptureIntoGraphExt(list.0, no_graph, none);
        zeCommandListIsGraphCaptureEnabledExt(no_list);
        zeCommandListEndGraphCaptureExt(no_list, none, &raw mut any);
        zeCommandListGetGraphExt(no_list, &raw mut any);
        zeGraphGetPrimaryCommandListExt(no_graph, &raw mut any_list);
        zeGraphSetDestructionCallbackExt(no_graph, None, ptr::null_mut(), none);
        zeGraphInstantiateExt(no_graph, none, ptr::null_mut());
        zeCommandListAppendGraphExt(no_list, executable.0, none, NONE, 0, ptr::null_mut());
        zeCommandListAppendGraphExt(list.0, no_executable, none, NONE, 0, ptr::null_mut());
        zeExecutableGraphGetSourceGraphExt(no_executable, &raw mut any);
        zeGraphIsEmptyExt(no_graph);
        zeGraphDumpContentsExt(no_graph, c"x".as_ptr(), none);
        zeExecutableGraphDestroyExt(no_executable);
        zeGraphDestroyExt(no_graph);
    }
    null_pointer! {
        zeGraphCreateExt(gpu.context, none, ptr::null_mut());
        zeCommandListEndGraphCaptureExt(list.0, none, ptr::null_mut());
        zeCommandListGetGraphExt(list.0, ptr::null_mut());
        zeGraphGetPrimaryCommandListExt(graph.0, ptr::null_mut());
        zeGraphInstantiateExt(graph.0, none, ptr::null_mut());
        zeExecutableGraphGetSourceGraphExt(executable.0, ptr::null_mut());
        zeGraphDumpContentsExt(graph.0, ptr::null(), none);
    }
    let stray = ze_fence_desc_t::default();
    let stray = (&raw const stray).cast();
    refused!(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, zeCommandListBeginGraphCaptureExt(list.0, stray));
    refused!(
        ZE_RESULT_ERROR_UNSUPPORTED_FEATURE,
        zeGraphDumpContentsExt(graph.0, c"/dev/null".as_ptr(), stray)
    );
}
