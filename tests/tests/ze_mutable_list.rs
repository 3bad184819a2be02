// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mutable command lists (`ZE_experimental_mutable_command_list`) through the stock loader. Quotes are
//! from the extension's page and the interface's reference.

use std::ffi::c_void;
use std::ptr;

use tally_tests::gate::Gate;
use tally_tests::lists::{Event, List, NONE, Queue, raws};
use tally_tests::page::Page;
use tally_tests::ze::{self, Gpu, Usm};
use tally_tests::{call, check, refused};
use tally_ze::ze_mutable_command_exp_flags_t as Flag;
use tally_ze::*;

const KERNELS: &str = "
    kernel void add(global uint *data, uint value)
    {
        data[get_global_id(0)] += value;
    }

    kernel void mul(global uint *data, uint value)
    {
        data[get_global_id(0)] *= value;
    }

    kernel void through(global uint *data, local uint *a, local uint *b, uint value)
    {
        uint i = get_local_id(0);
        a[i] = value;
        b[i] = get_global_id(0);
        barrier(CLK_LOCAL_MEM_FENCE);
        uint other = get_local_size(0) - 1 - i;
        data[get_global_id(0)] = a[other] + b[other];
    }";

/// A module and kernels of it, destroyed on drop.
struct Kernels(ze_module_handle_t, Vec<ze_kernel_handle_t>);

impl Kernels {
    fn new(gpu: &Gpu, names: &[&str]) -> Self {
        let module = gpu.module(&ze::spirv_from(KERNELS), "").expect("it is valid");
        Self(module, names.iter().map(|name| gpu.kernel(module, name)).collect())
    }
}

impl Drop for Kernels {
    fn drop(&mut self) {
        for &kernel in &self.1 {
            let _ = call!(zeKernelDestroy(kernel));
        }
        let _ = call!(zeModuleDestroy(self.0));
    }
}

fn mutable_with(gpu: &Gpu, flags: ze_command_list_flags_t) -> List {
    let mutable = ze_mutable_command_list_exp_desc_t::default();
    let desc =
        ze_command_list_desc_t { pNext: (&raw const mutable).cast(), flags, ..Default::default() };
    let mut list = ze_command_list_handle_t::NULL;
    check!(zeCommandListCreate(gpu.context, gpu.device, &raw const desc, &raw mut list));
    List(list)
}

fn mutable(gpu: &Gpu, in_order: bool) -> List {
    let mut flags = ze_command_list_flags_t::empty();
    flags.set(ze_command_list_flags_t::ZE_COMMAND_LIST_FLAG_IN_ORDER, in_order);
    mutable_with(gpu, flags)
}

fn number(list: &List, flags: Flag) -> u64 {
    let desc = ze_mutable_command_id_exp_desc_t { flags, ..Default::default() };
    let mut number = u64::MAX;
    check!(zeCommandListGetNextCommandIdExp(list.0, &raw const desc, &raw mut number));
    number
}

fn number_with(list: &List, flags: Flag, kernels: &mut [ze_kernel_handle_t]) -> u64 {
    let desc = ze_mutable_command_id_exp_desc_t { flags, ..Default::default() };
    let mut number = u64::MAX;
    check!(zeCommandListGetNextCommandIdWithKernelsExp(
        list.0,
        &raw const desc,
        kernels.len() as u32,
        kernels.as_mut_ptr(),
        &raw mut number
    ));
    number
}

fn launch(
    list: &List,
    kernel: ze_kernel_handle_t,
    groups: u32,
    signal: Option<&Event>,
    waits: &[&Event],
) {
    let groups = ze_group_count_t { groupCountX: groups, groupCountY: 1, groupCountZ: 1 };
    let mut waits = raws(waits);
    check!(zeCommandListAppendLaunchKernel(
        list.0,
        kernel,
        &raw const groups,
        signal.map_or(NONE, |event| event.0),
        waits.len() as u32,
        waits.as_mut_ptr()
    ));
}

fn set<T>(kernel: ze_kernel_handle_t, index: u32, value: &T) {
    check!(zeKernelSetArgumentValue(kernel, index, size_of::<T>(), ptr::from_ref(value).cast()));
}

fn argument<T>(number: u64, index: u32, value: &T) -> ze_mutable_kernel_argument_exp_desc_t {
    ze_mutable_kernel_argument_exp_desc_t {
        commandId: number,
        argIndex: index,
        argSize: size_of::<T>(),
        pArgValue: ptr::from_ref(value).cast(),
        ..Default::default()
    }
}

fn size(number: u64, x: u32) -> ze_mutable_group_size_exp_desc_t {
    ze_mutable_group_size_exp_desc_t {
        commandId: number,
        groupSizeX: x,
        groupSizeY: 1,
        groupSizeZ: 1,
        ..Default::default()
    }
}

fn count(number: u64, groups: &ze_group_count_t) -> ze_mutable_group_count_exp_desc_t {
    ze_mutable_group_count_exp_desc_t {
        commandId: number,
        pGroupCount: groups,
        ..Default::default()
    }
}

fn head(next: *const c_void) -> ze_mutable_commands_exp_desc_t {
    ze_mutable_commands_exp_desc_t { pNext: next, ..Default::default() }
}

/// zeCommandListUpdateMutableCommandsExp with these structures, as a chain.
macro_rules! update {
    ($list:expr, $($link:ident),+) => {{
        let mut next: *const c_void = ptr::null();
        $($link.pNext = next; next = (&raw const $link).cast();)+
        let desc = head(next);
        check!(zeCommandListUpdateMutableCommandsExp($list.0, &raw const desc));
    }};
}

fn run(queue: &Queue, list: &List) {
    list.close();
    queue.execute(&[list], None);
    queue.synchronize();
}

fn of(memory: &Usm<u32>, range: std::ops::Range<usize>) -> Vec<u32> {
    memory.to_vec()[range].to_vec()
}

/// "Implementation support for mutable commands may be discovered": everything but the arguments of
/// graphs; and lists say whether they are mutable: "Query whether a command list was created with the
/// mutable command list extension."
#[test]
fn the_device_says_what_can_be_changed() {
    let gpu = Gpu::new();
    let mut mutable_properties = ze_mutable_command_list_exp_properties_t::default();
    let mut properties = ze_device_properties_t {
        pNext: (&raw mut mutable_properties).cast(),
        ..Default::default()
    };
    check!(zeDeviceGetProperties(gpu.device, &raw mut properties));
    assert_eq!(
        mutable_properties.mutableCommandFlags,
        Flag::all() & !Flag::ZE_MUTABLE_COMMAND_EXP_FLAG_GRAPH_ARGUMENTS
    );
    for (list, expected) in
        [(mutable(&gpu, true), 1), (gpu.regular(0, true), 0), (gpu.immediate(0, true), 0)]
    {
        let mut is_mutable = 7;
        check!(zeCommandListIsMutableExp(list.0, &raw mut is_mutable));
        assert_eq!(is_mutable, expected);
    }
}

/// "Mutable command lists support mutation to **identified** commands *after* being closed": arguments
/// (memory, values, local memory), group count, group size and global offset, one and several at a
/// time, over many executions; a command that was not identified stays as it is.
#[test]
fn launches_are_changed_between_executions() {
    let gpu = Gpu::new();
    let kernels = Kernels::new(&gpu, &["add", "through"]);
    let (add, through) = (kernels.1[0], kernels.1[1]);
    let (one, two) = (gpu.host::<u32>(64), gpu.host::<u32>(64));
    for in_order in [true, false] {
        for memory in [&one, &two] {
            memory.fill_with(|_| 0);
        }
        let (list, queue) = (mutable(&gpu, in_order), gpu.queue(0));
        check!(zeKernelSetGroupSize(add, 4, 1, 1));
        set(add, 0, &one.ptr());
        set(add, 1, &1_u32);
        let id = number(&list, Flag::empty());
        launch(&list, add, 2, None, &[]);
        list.barrier(None, &[]);
        launch(&list, add, 16, None, &[]);
        run(&queue, &list);
        assert_eq!(of(&one, 6..10), [2, 2, 1, 1]);

        let mut value = argument(id, 1, &10_u32);
        update!(list, value);
        run(&queue, &list);
        assert_eq!(of(&one, 6..10), [13, 13, 2, 2], "the second launch stays");

        let groups = ze_group_count_t { groupCountX: 1, groupCountY: 1, groupCountZ: 1 };
        let (memory, value) = (two.ptr(), 100_u32);
        let mut to = argument(id, 0, &memory);
        let mut value = argument(id, 1, &value);
        let mut size_of_group = size(id, 3);
        let mut groups = count(id, &groups);
        let mut offset = ze_mutable_global_offset_exp_desc_t {
            commandId: id,
            offsetX: 20,
            ..Default::default()
        };
        update!(list, to, value, size_of_group, groups, offset);
        run(&queue, &list);
        assert_eq!(of(&two, 19..24), [0, 100, 100, 100, 0]);
        for round in 1..200_u32 {
            let mut value = argument(id, 1, &round);
            update!(list, value);
            run(&queue, &list);
        }
        assert_eq!(two.get(21), 100 + (1..200).sum::<u32>());
    }
    let (list, queue) = (mutable(&gpu, true), gpu.queue(0));
    check!(zeKernelSetGroupSize(through, 8, 1, 1));
    set(through, 0, &one.ptr());
    for local in [1, 2] {
        check!(zeKernelSetArgumentValue(through, local, 8 * 4, ptr::null()));
    }
    set(through, 3, &1000_u32);
    let id = number(&list, Flag::empty());
    launch(&list, through, 2, None, &[]);
    run(&queue, &list);
    assert_eq!(of(&one, 0..9), [1007, 1006, 1005, 1004, 1003, 1002, 1001, 1000, 1015]);
    let local = |index| ze_mutable_kernel_argument_exp_desc_t {
        commandId: id,
        argIndex: index,
        argSize: 32 * 4,
        ..Default::default()
    };
    let (mut a, mut b, mut group) = (local(1), local(2), size(id, 32));
    update!(list, a, b, group);
    run(&queue, &list);
    assert_eq!((one.get(0), one.get(31), one.get(32)), (1031, 1000, 1063));
    // A row that is no whole number of vectors has code of its own.
    let mut group = size(id, 20);
    update!(list, group);
    run(&queue, &list);
    assert_eq!((one.get(0), one.get(19), one.get(20)), (1019, 1000, 1039));
}

/// "kernel mutation invalidates all kernel arguments and dispatch parameters, these must be provided for
/// the new kernel", and "The kernel handle must be from the provided list for given command id."
#[test]
fn a_command_may_launch_another_kernel() {
    let gpu = Gpu::new();
    let mut kernels = Kernels::new(&gpu, &["add", "mul", "through"]);
    let [add, mul, through] = [kernels.1[0], kernels.1[1], kernels.1[2]];
    let memory = gpu.host::<u32>(8);
    memory.fill_with(|i| i as u32);
    let (list, queue) = (mutable(&gpu, true), gpu.queue(0));
    check!(zeKernelSetGroupSize(add, 8, 1, 1));
    let to = memory.ptr();
    set(add, 0, &to);
    set(add, 1, &1_u32);
    let flags = Flag::all() & !Flag::ZE_MUTABLE_COMMAND_EXP_FLAG_GRAPH_ARGUMENTS;
    let mut id = number_with(&list, flags, &mut kernels.1[..2]);
    launch(&list, add, 1, None, &[]);
    run(&queue, &list);
    assert_eq!(memory.to_vec(), [1, 2, 3, 4, 5, 6, 7, 8]);
    let becomes = |id: &mut u64, mut kernel| {
        call!(zeCommandListUpdateMutableCommandKernelsExp(list.0, 1, id, &raw mut kernel))
    };
    assert_eq!(becomes(&mut id, through), ze_result_t::ZE_RESULT_ERROR_INVALID_KERNEL_HANDLE);
    for (kernel, value, expected) in [(mul, 3_u32, 3), (add, 5, 8), (mul, 2, 16)] {
        assert_eq!(becomes(&mut id, kernel), ze_result_t::ZE_RESULT_SUCCESS);
        let text = refused!(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeCommandListClose(list.0));
        assert!(text.contains("argument 0"), "{text}");
        let groups = ze_group_count_t { groupCountX: 1, groupCountY: 1, groupCountZ: 1 };
        let (mut to, mut value) = (argument(id, 0, &to), argument(id, 1, &value));
        let (mut group, mut groups) = (size(id, 8), count(id, &groups));
        update!(list, to, value, group, groups);
        run(&queue, &list);
        assert_eq!(memory.get(0), expected);
    }
}

/// "Updates the signal event for a mutable command in a mutable command list.": of regular events, with
/// and without timestamps, the new one is signalled and the old one not; without an event nothing is.
#[test]
fn a_command_signals_another_event() {
    let gpu = Gpu::new();
    let kernels = Kernels::new(&gpu, &["add"]);
    let memory = gpu.host::<u32>(1);
    set(kernels.1[0], 0, &memory.ptr());
    set(kernels.1[0], 1, &1_u32);
    check!(zeKernelSetGroupSize(kernels.1[0], 1, 1, 1));
    let times = ze_event_pool_flags_t::ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP;
    for (in_order, flags) in [(true, times), (false, times), (true, ze_event_pool_flags_t::empty())]
    {
        let pool = gpu.pool(2, flags);
        let (old, new) = (pool.event(0), pool.event(1));
        let (list, queue) = (mutable(&gpu, in_order), gpu.queue(0));
        let id = number(&list, Flag::ZE_MUTABLE_COMMAND_EXP_FLAG_SIGNAL_EVENT);
        launch(&list, kernels.1[0], 1, Some(&old), &[]);
        run(&queue, &list);
        assert!(old.is_ready() && !new.is_ready());
        old.reset();
        let update =
            |event| check!(zeCommandListUpdateMutableCommandSignalEventExp(list.0, id, event));
        update(new.0);
        run(&queue, &list);
        assert!(!old.is_ready() && new.is_ready());
        if flags == times {
            let mut result = ze_kernel_timestamp_result_t::default();
            check!(zeEventQueryKernelTimestamp(new.0, &raw mut result));
            assert!(result.global.kernelEnd >= result.global.kernelStart);
            assert_ne!(result.global.kernelStart, 0);
        }
        new.reset();
        update(NONE);
        run(&queue, &list);
        assert!(!old.is_ready() && !new.is_ready());
        update(old.0);
        run(&queue, &list);
        assert!(old.is_ready() && !new.is_ready());
    }
    assert_eq!(memory.get(0), 12);
}

/// Counter-based events keep their binding: an event that is no longer signalled keeps its value, so it
/// stays complete while the list runs again; the new one refers to the list's executions from then on,
/// as after an append. An event that an earlier command signals, too, refers to that one again.
#[test]
fn counter_based_events_move_between_commands() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(4);
    let (old, new, both) = (gpu.cb_event(), gpu.cb_event(), gpu.cb_event());
    let (list, queue, gate) = (mutable(&gpu, true), gpu.queue(0), Gate::new(&gpu));
    let pool = gpu.pool(1, ze_event_pool_flags_t::empty());
    let open = pool.event(0);
    open.signal();
    let wait = number(&list, Flag::ZE_MUTABLE_COMMAND_EXP_FLAG_WAIT_EVENTS);
    list.set((&memory, 0), 1, Some(&both), &[&open]);
    let first = number(&list, Flag::ZE_MUTABLE_COMMAND_EXP_FLAG_SIGNAL_EVENT);
    list.set((&memory, 1), 1, Some(&old), &[]);
    let second = number(&list, Flag::ZE_MUTABLE_COMMAND_EXP_FLAG_SIGNAL_EVENT);
    list.set((&memory, 2), 1, Some(&both), &[]);
    run(&queue, &list);
    let (address, value) = old.address();
    let last = both.address();
    assert_eq!(last, (address, value + 1));
    check!(zeCommandListUpdateMutableCommandSignalEventExp(list.0, first, new.0));
    check!(zeCommandListUpdateMutableCommandSignalEventExp(list.0, second, NONE));
    assert_eq!(old.address(), (address, value), "it keeps what it named");
    assert_eq!(new.address(), (address, value), "as after an append");
    assert_eq!(both.address(), (address, value - 1), "the signal that is left");
    // Held at its first command, the list runs again.
    let mut gates = [gate.event.0];
    check!(zeCommandListUpdateMutableCommandWaitEventsExp(list.0, wait, 1, gates.as_mut_ptr()));
    list.close();
    queue.execute(&[&list], None);
    assert_eq!(old.address(), (address, value));
    assert_eq!(new.address(), (address, value + 3), "a signal of the second execution");
    assert_eq!(both.address(), (address, value + 2));
    assert!(old.is_ready() && !new.is_ready() && !both.is_ready());
    gate.open();
    queue.synchronize();
    assert!(new.is_ready() && both.is_ready());
    // A signal that was removed before any execution was never made: the event is complete.
    list.reset();
    let first = number(&list, Flag::empty());
    list.set((&memory, 3), 5, Some(&old), &[]);
    assert!(!old.is_ready());
    check!(zeCommandListUpdateMutableCommandSignalEventExp(list.0, first, new.0));
    assert!(old.is_ready() && !new.is_ready());
    run(&queue, &list);
    assert!(new.is_ready());
}

/// "Passing `nullptr` as the wait events will update the command to not wait on any events prior to
/// dispatch." and "Passing `nullptr` as an event on event wait list will remove event dependency from this
/// wait list slot."; new events are waited for, a list's signal as of its latest execution.
#[test]
fn a_command_waits_for_other_events() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(2);
    let pool = gpu.pool(8, ze_event_pool_flags_t::empty());
    let events: Vec<Event> = (0..8).map(|i| pool.event(i)).collect();
    for in_order in [true, false] {
        events.iter().for_each(Event::reset);
        memory.fill_with(|_| 0);
        let (list, queue) = (mutable(&gpu, in_order), gpu.queue(0));
        let id = number(&list, Flag::ZE_MUTABLE_COMMAND_EXP_FLAG_WAIT_EVENTS);
        let firsts: Vec<&Event> = events[..4].iter().collect();
        list.set((&memory, 0), 1, None, &firsts);
        firsts.iter().for_each(|event| event.signal());
        run(&queue, &list);
        assert_eq!(memory.get(0), 1);
        events.iter().for_each(Event::reset);
        memory.set(0, 0);
        check!(zeCommandListUpdateMutableCommandWaitEventsExp(list.0, id, 0, ptr::null_mut()));
        run(&queue, &list);
        assert_eq!(memory.get(0), 1, "it waits for nothing");
        memory.set(0, 0);
        let mut waits = [events[4].0, NONE, NONE, events[7].0];
        check!(zeCommandListUpdateMutableCommandWaitEventsExp(list.0, id, 4, waits.as_mut_ptr()));
        list.close();
        queue.execute(&[&list], None);
        events[4].signal();
        assert_eq!(
            call!(zeCommandQueueSynchronize(queue.0, 5_000_000)),
            ze_result_t::ZE_RESULT_NOT_READY
        );
        assert_eq!(memory.get(0), 0, "one event is missing");
        events[7].signal();
        queue.synchronize();
        assert_eq!(memory.get(0), 1);
    }
    // The signal of another regular list: of its latest execution whenever this one is executed.
    let (producer, consumer) = (gpu.regular(0, true), mutable(&gpu, true));
    let (made, other) = (gpu.cb_event(), gpu.cb_event());
    let (one, two, gate) = (gpu.queue(0), gpu.queue(0), Gate::new(&gpu));
    memory.fill_with(|_| 0);
    producer.wait(&[&gate.event]);
    producer.set((&memory, 0), 7, Some(&made), &[]);
    producer.close();
    let id = number(&consumer, Flag::empty());
    consumer.copy((&memory, 1), (&memory, 0), 1, None, &[&other]);
    for _ in 0..3 {
        let mut waits = [made.0];
        check!(zeCommandListUpdateMutableCommandWaitEventsExp(
            consumer.0,
            id,
            1,
            waits.as_mut_ptr()
        ));
    }
    consumer.close();
    one.execute(&[&producer], None);
    two.execute(&[&consumer], None);
    assert_eq!(
        call!(zeCommandQueueSynchronize(two.0, 5_000_000)),
        ze_result_t::ZE_RESULT_NOT_READY
    );
    gate.open();
    two.synchronize();
    assert_eq!(memory.get(1), 7);
    one.synchronize();
}

/// "The application must synchronize mutable command list execution before calling this function." and
/// "the command list must be explicitly closed after updating mutable commands and events": a list that
/// runs is not changed, one that was changed is not executed.
#[test]
fn a_list_is_waited_for_before_and_closed_after() {
    let gpu = Gpu::new();
    let kernels = Kernels::new(&gpu, &["add"]);
    let memory = gpu.host::<u32>(1);
    let (list, queue, gate) = (mutable(&gpu, true), gpu.queue(0), Gate::new(&gpu));
    check!(zeKernelSetGroupSize(kernels.1[0], 1, 1, 1));
    set(kernels.1[0], 0, &memory.ptr());
    set(kernels.1[0], 1, &1_u32);
    let id = number(&list, Flag::empty());
    launch(&list, kernels.1[0], 1, None, &[&gate.event]);
    list.close();
    queue.execute(&[&list], None);
    let mut value = argument(id, 1, &10_u32);
    value.pNext = ptr::null();
    let desc = head((&raw const value).cast());
    refused!(
        ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE,
        zeCommandListUpdateMutableCommandsExp(list.0, &raw const desc)
    );
    gate.open();
    queue.synchronize();
    assert_eq!(memory.get(0), 1);
    check!(zeCommandListUpdateMutableCommandsExp(list.0, &raw const desc));
    let mut lists = [list.0];
    let fence = ze_fence_handle_t::NULL;
    let text = refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeCommandQueueExecuteCommandLists(queue.0, 1, lists.as_mut_ptr(), fence)
    );
    assert!(text.contains("not closed"), "{text}");
    // An update opens the list for updates alone: a command that is appended is lost.
    list.set((&memory, 0), 5, None, &[]);
    run(&queue, &list);
    assert_eq!(memory.get(0), 11);
}

/// A wait that had no events when it was appended is a part of the execution like any other command, once
/// it has events.
#[test]
fn a_wait_at_the_end_is_part_of_the_execution() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(1);
    let (list, outside, queue) = (mutable(&gpu, true), gpu.immediate(0, true), gpu.queue(0));
    let [done, never, pending] = [0; 3].map(|_| gpu.cb_event());
    list.set((&memory, 0), 1, Some(&done), &[]);
    let id = number(&list, Flag::ZE_MUTABLE_COMMAND_EXP_FLAG_WAIT_EVENTS);
    list.wait(&[&never]);
    run(&queue, &list);
    let gate = Gate::new(&gpu);
    outside.wait(&[&gate.event]);
    outside.signal(&pending);
    let mut waits = [pending.0];
    check!(zeCommandListUpdateMutableCommandWaitEventsExp(list.0, id, 1, waits.as_mut_ptr()));
    list.close();
    queue.execute(&[&list], None);
    done.synchronize();
    refused!(
        ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE,
        zeCommandListUpdateMutableCommandWaitEventsExp(list.0, id, 1, waits.as_mut_ptr())
    );
    gate.open();
    queue.synchronize();
    check!(zeCommandListUpdateMutableCommandWaitEventsExp(list.0, id, 0, ptr::null_mut()));
    run(&queue, &list);
    outside.synchronize();
}

/// An event over a word of ordinary memory.
fn over_word(gpu: &Gpu, word: *mut u64) -> Event {
    use ze_event_counter_based_flags_t as flag;
    let storage = ze_event_counter_based_external_aggregate_storage_desc_t {
        deviceAddress: word,
        incrementValue: 1,
        completionValue: 1,
        ..Default::default()
    };
    let flags = flag::ZE_EVENT_COUNTER_BASED_FLAG_NON_IMMEDIATE;
    let desc = ze_event_counter_based_desc_t {
        pNext: (&raw const storage).cast(),
        flags,
        ..Default::default()
    };
    let mut event = NONE;
    check!(zeEventCounterBasedCreate(gpu.context, gpu.device, &raw const desc, &raw mut event));
    Event(event)
}

/// The events that a command waited for or signalled before a change are no longer needed: neither the
/// event nor the ordinary memory of its counter.
#[test]
fn memory_of_events_that_were_replaced_may_go() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(1);
    let (list, queue) = (mutable(&gpu, true), gpu.queue(0));
    let pages = [(); 4].map(|()| Page::default());
    let words = pages.each_ref().map(Page::fresh);
    let events = words.map(|word| over_word(&gpu, word));
    let flags = Flag::ZE_MUTABLE_COMMAND_EXP_FLAG_WAIT_EVENTS
        | Flag::ZE_MUTABLE_COMMAND_EXP_FLAG_SIGNAL_EVENT;
    let id = number(&list, flags);
    list.set((&memory, 0), 1, Some(&events[0]), &[&events[1]]);
    list.close();
    let mut waits = [events[3].0];
    check!(zeCommandListUpdateMutableCommandWaitEventsExp(list.0, id, 1, waits.as_mut_ptr()));
    check!(zeCommandListUpdateMutableCommandSignalEventExp(list.0, id, events[2].0));
    let [one, two, signalled, waited] = events;
    drop((one, two));
    let [one, two, _signalled, _waited] = pages;
    drop((one, two));
    // SAFETY: the page exists until the end, and the device reads it later.
    unsafe { words[3].write(1) };
    run(&queue, &list);
    assert_eq!(memory.get(0), 1);
    assert!(signalled.is_ready());
    drop(waited);
}

/// A copy "inherits all properties of the source command list": it is mutable, too, and a change of one
/// of them is none of the other's.
#[test]
fn a_copy_is_changed_on_its_own() {
    let gpu = Gpu::new();
    let kernels = Kernels::new(&gpu, &["add"]);
    let memory = gpu.host::<u32>(1);
    use ze_command_list_flags_t as flag;
    let list = mutable_with(
        &gpu,
        flag::ZE_COMMAND_LIST_FLAG_IN_ORDER | flag::ZE_COMMAND_LIST_FLAG_EXP_CLONEABLE,
    );
    let queue = gpu.queue(0);
    check!(zeKernelSetGroupSize(kernels.1[0], 1, 1, 1));
    set(kernels.1[0], 0, &memory.ptr());
    set(kernels.1[0], 1, &1_u32);
    let id = number(&list, Flag::empty());
    launch(&list, kernels.1[0], 1, None, &[]);
    list.close();
    let mut value = argument(id, 1, &10_u32);
    update!(list, value);
    list.close();
    let mut copy = ze_command_list_handle_t::NULL;
    check!(zeCommandListCreateCloneExp(list.0, &raw mut copy));
    let copy = List(copy);
    let mut value = argument(id, 1, &100_u32);
    update!(list, value);
    list.close();
    run(&queue, &copy);
    assert_eq!(memory.get(0), 10);
    let mut value = argument(id, 1, &1000_u32);
    update!(copy, value);
    copy.close();
    run(&queue, &list);
    assert_eq!(memory.get(0), 110);
    run(&queue, &copy);
    assert_eq!(memory.get(0), 1110);
}

/// "This function may only be called for a mutable command list.", "This function may not be called on a
/// closed command list.", "The number of wait events must match that of the source command.", "The type,
/// scope and flags of the signal event must match those of the source command.", and what was not asked
/// for is not changed. Nothing is changed by a call that fails.
#[test]
fn wrong_changes_are_refused() {
    let gpu = Gpu::new();
    let kernels = Kernels::new(&gpu, &["add"]);
    let add = kernels.1[0];
    let memory = gpu.host::<u32>(1);
    let (list, queue) = (mutable(&gpu, true), gpu.queue(0));
    check!(zeKernelSetGroupSize(add, 1, 1, 1));
    set(add, 0, &memory.ptr());
    set(add, 1, &1_u32);
    let pool = gpu.pool(2, ze_event_pool_flags_t::empty());
    let timed = gpu.pool(1, ze_event_pool_flags_t::ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP);
    let (event, other, timed, view) =
        (pool.event(0), pool.event(1), timed.event(0), gpu.cb_event());
    other.signal();
    let id = number(&list, Flag::empty());
    launch(&list, add, 1, Some(&event), &[&other]);
    let values_only = number(&list, Flag::ZE_MUTABLE_COMMAND_EXP_FLAG_KERNEL_ARGUMENTS);
    launch(&list, add, 1, None, &[]);
    let unused = number(&list, Flag::empty());

    let desc = ze_mutable_command_id_exp_desc_t::default();
    let bits = |bits: u32| ze_mutable_command_id_exp_desc_t {
        flags: Flag::from_bits_retain(bits),
        ..Default::default()
    };
    let (unknown, graphs) = (bits(0x100), bits(0x80));
    let mut out = 0;
    let other_list = gpu.regular(0, true);
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeCommandListGetNextCommandIdExp(other_list.0, &raw const desc, &raw mut out)
    );
    refused!(
        ZE_RESULT_ERROR_INVALID_ENUMERATION,
        zeCommandListGetNextCommandIdExp(list.0, &raw const unknown, &raw mut out)
    );
    refused!(
        ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION,
        zeCommandListGetNextCommandIdExp(list.0, &raw const graphs, &raw mut out)
    );
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_POINTER,
        zeCommandListGetNextCommandIdExp(list.0, &raw const desc, ptr::null_mut())
    );
    list.close();
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeCommandListGetNextCommandIdExp(list.0, &raw const desc, &raw mut out)
    );

    let refuse = |next: *const c_void| {
        let desc = head(next);
        refused!(
            ZE_RESULT_ERROR_INVALID_ARGUMENT,
            zeCommandListUpdateMutableCommandsExp(list.0, &raw const desc)
        )
    };
    let good = argument(id, 1, &50_u32);
    let mut bad = argument(id, 2, &1_u32);
    bad.pNext = (&raw const good).cast();
    refuse((&raw const bad).cast());
    bad = argument(id, 1, &1_u32);
    bad.argSize = 0;
    bad.pNext = (&raw const good).cast();
    refuse((&raw const bad).cast());
    for number in [unused, unused + 1, u64::MAX] {
        refuse(ptr::from_ref(&argument(number, 1, &1_u32)).cast());
        refused!(
            ZE_RESULT_ERROR_INVALID_ARGUMENT,
            zeCommandListUpdateMutableCommandSignalEventExp(list.0, number, event.0)
        );
    }
    refuse(ptr::from_ref(&size(values_only, 2)).cast());
    refuse(ptr::from_ref(&size(id, 0)).cast());
    refuse(ptr::from_ref(&size(id, 1 << 20)).cast());
    let stray = ze_fence_desc_t::default();
    let desc = head((&raw const stray).cast());
    refused!(
        ZE_RESULT_ERROR_UNSUPPORTED_FEATURE,
        zeCommandListUpdateMutableCommandsExp(list.0, &raw const desc)
    );

    for wrong in [&timed, &view] {
        refused!(
            ZE_RESULT_ERROR_INVALID_ARGUMENT,
            zeCommandListUpdateMutableCommandSignalEventExp(list.0, id, wrong.0)
        );
        let mut waits = [wrong.0];
        refused!(
            ZE_RESULT_ERROR_INVALID_ARGUMENT,
            zeCommandListUpdateMutableCommandWaitEventsExp(list.0, id, 1, waits.as_mut_ptr())
        );
    }
    let mut waits = [event.0, other.0];
    refused!(
        ZE_RESULT_ERROR_INVALID_SIZE,
        zeCommandListUpdateMutableCommandWaitEventsExp(list.0, id, 2, waits.as_mut_ptr())
    );
    let (mut numbers, mut handles) = ([id], [add]);
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeCommandListUpdateMutableCommandKernelsExp(
            list.0,
            1,
            numbers.as_mut_ptr(),
            handles.as_mut_ptr()
        )
    );
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_POINTER,
        zeCommandListUpdateMutableCommandKernelsExp(
            list.0,
            1,
            ptr::null_mut(),
            handles.as_mut_ptr()
        )
    );
    queue.execute(&[&list], None);
    queue.synchronize();
    assert_eq!((memory.get(0), event.is_ready()), (2, true), "nothing was changed");

    list.reset();
    refuse((&raw const good).cast());
    let reserved = ze_mutable_command_list_exp_desc_t {
        flags: ze_mutable_command_list_exp_flags_t::all(),
        ..Default::default()
    };
    let desc = ze_command_list_desc_t { pNext: (&raw const reserved).cast(), ..Default::default() };
    let mut none = ze_command_list_handle_t::NULL;
    refused!(
        ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION,
        zeCommandListCreate(gpu.context, gpu.device, &raw const desc, &raw mut none)
    );
}

/// One call changes as many commands as its chain has structures; Unified Runtime passes thousands.
#[test]
fn a_long_chain_changes_every_command() {
    let gpu = Gpu::new();
    let kernels = Kernels::new(&gpu, &["add"]);
    let (memory, list) = (gpu.host::<u32>(1000), mutable(&gpu, true));
    check!(zeKernelSetGroupSize(kernels.1[0], 1, 1, 1));
    let values: Vec<u32> = (1000..2000).collect();
    let mut chain = Vec::new();
    for (i, value) in values.iter().enumerate() {
        set(kernels.1[0], 0, &(memory.address() + 4 * i as u64));
        set(kernels.1[0], 1, &1_u32);
        let number = number(&list, Flag::ZE_MUTABLE_COMMAND_EXP_FLAG_KERNEL_ARGUMENTS);
        chain.push(argument(number, 1, value));
        launch(&list, kernels.1[0], 1, None, &[]);
    }
    list.close();
    for i in 1..1000 {
        chain[i - 1].pNext = (&raw const chain[i]).cast();
    }
    let first = (&raw const chain[0]).cast();
    let desc = ze_mutable_commands_exp_desc_t { pNext: first, ..Default::default() };
    check!(zeCommandListUpdateMutableCommandsExp(list.0, &raw const desc));
    list.close();
    let queue = gpu.queue(0);
    queue.execute(&[&list], None);
    queue.synchronize();
    assert_eq!(memory.to_vec(), values);
    // A chain without an end is no valid one, but the call returns.
    chain[999].pNext = (&raw const chain[7]).cast();
    check!(zeCommandListUpdateMutableCommandsExp(list.0, &raw const desc));
}
