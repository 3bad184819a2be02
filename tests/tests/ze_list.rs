// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lifetime of lists and queues, and the calls that they refuse, through the stock loader.

use std::ptr;

use tally_tests::lists::{NONE, PATIENCE};
use tally_tests::ze::Gpu;
use tally_tests::{call, check, refused};
use tally_ze::*;

const NO_FLAGS: ze_event_pool_flags_t = ze_event_pool_flags_t::empty();

/// A list is executed after it was closed, and takes commands before.
/// "The application is responsible for calling close before submission to a command queue." "Reset
/// (recycle) command list for new commands": "A command list may be recycled to avoid the overhead of
/// frequent creation and destruction."
#[test]
fn a_regular_list_is_recorded_then_closed_then_executed() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(1);
    let (list, queue) = (gpu.regular(0, true), gpu.queue(0));
    let mut lists = [list.0];
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeCommandQueueExecuteCommandLists(queue.0, 1, lists.as_mut_ptr(), ze_fence_handle_t::NULL)
    );
    list.set((&memory, 0), 1, None, &[]);
    list.close();
    list.close();
    queue.execute(&[&list], None);
    queue.synchronize();
    assert_eq!(memory.get(0), 1);
    list.reset();
    list.set((&memory, 0), 2, None, &[]);
    list.close();
    queue.execute(&[&list], None);
    queue.synchronize();
    assert_eq!(memory.get(0), 2);
}

/// An empty list can be executed, and an execution of it completes.
#[test]
fn an_empty_list_is_executed() {
    let gpu = Gpu::new();
    for in_order in [true, false] {
        let (list, queue) = (gpu.regular(0, in_order), gpu.queue(0));
        list.close();
        for _ in 0..10 {
            queue.execute(&[&list, &list], None);
        }
        queue.synchronize();
    }
}

/// A list that is reset, or destroyed, while it runs does not disturb the execution.
/// "The application is responsible for making sure the device is not currently executing from a command
/// list before it is reset." "The application is responsible for making sure the device is not currently
/// executing from a command list before it is deleted."; here neither does harm.
#[test]
fn a_running_execution_is_not_disturbed() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(3);
    let pool = gpu.pool(1, NO_FLAGS);
    let gate = pool.event(0);
    let queue = gpu.queue(0);
    let (first, second) = (gpu.regular(0, true), gpu.regular(0, true));
    first.set((&memory, 0), 1, None, &[&gate]);
    first.close();
    second.set((&memory, 1), 1, None, &[&gate]);
    second.close();
    queue.execute(&[&first, &second], None);
    first.reset();
    first.set((&memory, 2), 1, None, &[]);
    drop(second);
    for _ in 0..20 {
        // Other lists that would get the memory, if it were free.
        let list = gpu.regular(0, true);
        list.set((&memory, 2), 2, None, &[]);
        list.close();
    }
    gate.signal();
    queue.synchronize();
    assert_eq!(memory.to_vec(), [1, 1, 0]);
}

/// A list may be reset when its completion event is signalled. "This should be handled by tracking a
/// completion event associated with the command list."
#[test]
fn a_completion_event_tells_when_a_list_may_be_reset() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(1);
    memory.set(0, 0);
    let (list, queue, done) = (gpu.regular(0, true), gpu.queue(0), gpu.cb_event());
    for round in 1..=100 {
        list.set((&memory, 0), round, Some(&done), &[]);
        list.close();
        queue.execute(&[&list], None);
        done.synchronize();
        assert_eq!(memory.get(0), round);
        list.reset();
    }
    queue.synchronize();
    assert_eq!(memory.get(0), 100);
}

/// A queue or list that is destroyed while it waits ends its work all the same.
/// "The application is responsible for making sure the device is not currently executing from a command
/// queue before it is deleted."; one that is not loses nothing.
#[test]
fn what_was_submitted_is_completed_after_destruction() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(3);
    let pool = gpu.pool(1, NO_FLAGS);
    let gate = pool.event(0);
    let done = gpu.cb_event();
    let list = gpu.immediate(0, true);
    list.set((&memory, 0), 1, None, &[&gate]);
    list.set((&memory, 1), 1, Some(&done), &[]);
    drop(list);
    let (regular, queue) = (gpu.regular(0, true), gpu.queue(0));
    regular.set((&memory, 2), 1, None, &[&gate]);
    regular.close();
    queue.execute(&[&regular], None);
    drop(queue);
    gate.signal();
    done.synchronize();
    check!(zeDeviceSynchronize(gpu.device));
    assert_eq!(memory.to_vec(), [1, 1, 1]);
}

/// Lists go to queues of their own group, and immediate ones to none.
/// "Command lists can only be executed on a command queue with an identical command queue group
/// ordinal." "A command list is created for execution on a specific type of command queue, specified
/// using the command queue group ordinal."
#[test]
fn lists_and_queues_of_different_groups_are_refused() {
    let gpu = Gpu::new();
    let (list, immediate, queue) = (gpu.regular(1, true), gpu.immediate(0, true), gpu.queue(0));
    list.close();
    for raw in [list.0, immediate.0] {
        let mut lists = [raw];
        let fence = ze_fence_handle_t::NULL;
        refused!(
            ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE,
            zeCommandQueueExecuteCommandLists(queue.0, 1, lists.as_mut_ptr(), fence)
        );
    }
    let mut lists = [ze_command_list_handle_t::NULL];
    let fence = ze_fence_handle_t::NULL;
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_HANDLE,
        zeCommandQueueExecuteCommandLists(queue.0, 1, lists.as_mut_ptr(), fence)
    );
    refused!(
        ZE_RESULT_ERROR_INVALID_SIZE,
        zeCommandQueueExecuteCommandLists(queue.0, 0, lists.as_mut_ptr(), fence)
    );
    refused!(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeCommandListHostSynchronize(list.0, 0));
}

/// Refuses groups and queues that the device does not have, unknown flags and modes.
#[test]
fn descriptions_are_checked() {
    let gpu = Gpu::new();
    let mut queue = ze_command_queue_handle_t::NULL;
    let mut list = ze_command_list_handle_t::NULL;
    let wrong = |change: fn(&mut ze_command_queue_desc_t)| {
        let mut desc = ze_command_queue_desc_t::default();
        change(&mut desc);
        desc
    };
    use ze_result_t as code;
    let cases = [
        (wrong(|it| it.ordinal = 9), code::ZE_RESULT_ERROR_INVALID_ARGUMENT),
        (wrong(|it| it.index = 99), code::ZE_RESULT_ERROR_INVALID_ARGUMENT),
        (
            wrong(|it| it.flags = ze_command_queue_flags_t::from_bits_retain(1 << 9)),
            code::ZE_RESULT_ERROR_INVALID_ENUMERATION,
        ),
        (
            wrong(|it| it.mode = ze_command_queue_mode_t(7)),
            code::ZE_RESULT_ERROR_INVALID_ENUMERATION,
        ),
        (
            wrong(|it| it.priority = ze_command_queue_priority_t(7)),
            code::ZE_RESULT_ERROR_INVALID_ENUMERATION,
        ),
    ];
    for (desc, expected) in &cases {
        let result = call!(zeCommandQueueCreate(gpu.context, gpu.device, desc, &raw mut queue));
        assert_eq!(result, *expected, "{desc:?}");
        let result =
            call!(zeCommandListCreateImmediate(gpu.context, gpu.device, desc, &raw mut list));
        assert_eq!(result, *expected, "{desc:?}");
    }
    let desc = ze_command_list_desc_t { commandQueueGroupOrdinal: 9, ..Default::default() };
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeCommandListCreate(gpu.context, gpu.device, &raw const desc, &raw mut list)
    );
}

/// A wait list with a wrong handle changes nothing: neither the list nor the signal event.
#[test]
fn a_refused_append_changes_nothing() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(2);
    for list in [gpu.immediate(0, true), gpu.regular(0, true)] {
        let (good, signal) = (gpu.cb_event(), gpu.cb_event());
        let mut waits = [good.0, good.0, good.0, good.0, NONE];
        let dst = memory.ptr().cast();
        refused!(
            ZE_RESULT_ERROR_INVALID_NULL_HANDLE,
            zeCommandListAppendMemoryCopy(list.0, dst, dst, 4, signal.0, 5, waits.as_mut_ptr())
        );
        refused!(
            ZE_RESULT_ERROR_INVALID_SIZE,
            zeCommandListAppendMemoryCopy(list.0, dst, dst, 4, signal.0, 1, ptr::null_mut())
        );
        assert!(signal.is_ready());
    }
}

/// The properties with which a list or queue was created can be queried.
/// "An immediate command list is both a command list and an implicit command queue." "An immediate
/// command list is created using a command queue descriptor."
#[test]
fn lists_and_queues_tell_what_they_are() {
    let gpu = Gpu::new();
    let desc = ze_command_queue_desc_t {
        ordinal: 1,
        index: 1,
        flags: ze_command_queue_flags_t::ZE_COMMAND_QUEUE_FLAG_IN_ORDER,
        mode: ze_command_queue_mode_t::ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS,
        priority: ze_command_queue_priority_t::ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_HIGH,
        ..Default::default()
    };
    let (list, regular) = (gpu.immediate_of(&desc), gpu.regular(1, true));
    let (mut ordinal, mut index, mut immediate) = (0, 0, 0);
    let (mut device, mut context) = (ze_device_handle_t::NULL, ze_context_handle_t::NULL);
    check!(zeCommandListGetOrdinal(list.0, &raw mut ordinal));
    check!(zeCommandListImmediateGetIndex(list.0, &raw mut index));
    check!(zeCommandListIsImmediate(list.0, &raw mut immediate));
    check!(zeCommandListGetDeviceHandle(list.0, &raw mut device));
    check!(zeCommandListGetContextHandle(list.0, &raw mut context));
    assert_eq!((ordinal, index, immediate), (1, 1, 1));
    assert_eq!((device, context), (gpu.device, gpu.context));
    check!(zeCommandListIsImmediate(regular.0, &raw mut immediate));
    assert_eq!(immediate, 0);
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeCommandListImmediateGetIndex(regular.0, &raw mut index)
    );
    let mut queue = ze_command_queue_handle_t::NULL;
    check!(zeCommandQueueCreate(gpu.context, gpu.device, &raw const desc, &raw mut queue));
    check!(zeCommandQueueGetOrdinal(queue, &raw mut ordinal));
    check!(zeCommandQueueGetIndex(queue, &raw mut index));
    assert_eq!((ordinal, index), (1, 1));
    check!(zeCommandQueueSynchronize(queue, PATIENCE));
    check!(zeCommandQueueDestroy(queue));
}

/// An immediate list has the flags of queues; IN_ORDER is the only one that other lists have, too.
#[test]
fn the_flags_of_an_immediate_list_say_whether_it_is_in_order() {
    use ze_command_queue_flags_t as flag;
    let gpu = Gpu::new();
    let hints =
        flag::ZE_COMMAND_QUEUE_FLAG_EXPLICIT_ONLY | flag::ZE_COMMAND_QUEUE_FLAG_COPY_OFFLOAD_HINT;
    let in_order = ze_command_list_flags_t::ZE_COMMAND_LIST_FLAG_IN_ORDER;
    for (flags, wanted) in [
        (hints, ze_command_list_flags_t::empty()),
        (hints | flag::ZE_COMMAND_QUEUE_FLAG_IN_ORDER, in_order),
    ] {
        let list = gpu.immediate_of(&ze_command_queue_desc_t { flags, ..Default::default() });
        let mut got = ze_command_list_flags_t::all();
        check!(zeCommandListGetFlags(list.0, &raw mut got));
        assert_eq!(got, wanted);
        let mut queue = flag::empty();
        check!(zeCommandListImmediateGetFlags(list.0, &raw mut queue));
        assert_eq!(queue, flags, "these are what it was created with");
    }
}

/// Thousands of lists are created and destroyed without leaks.
#[test]
fn lists_and_queues_come_and_go() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(1);
    for i in 0..2000 {
        let list = gpu.immediate(i % 2, i % 3 == 0);
        list.set((&memory, 0), i, None, &[]);
        list.synchronize();
        assert_eq!(memory.get(0), i);
    }
}
