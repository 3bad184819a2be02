// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counter-based events: who signals them and who waits for them, through the stock loader.

use std::ffi::c_void;
use std::ptr;
use std::thread;
use std::time::Duration;

use tally_tests::gate::Gate;
use tally_tests::lists::{Event, List, NONE};
use tally_tests::ze::{self, Gpu, Usm};
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

/// "This counter manages internal in-order dependencies. The next append call waits for that counter, for
/// example, using the MI_SEMAPHORE_WAIT GPU command.": commands of an in-order list come one after the other, without events.
#[test]
fn appends_of_an_in_order_list_wait_for_each_other() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(3);
    for ordinal in [0, 1] {
        let list = gpu.immediate(ordinal, true);
        for round in 1..500 {
            list.set((&memory, 0), round, None, &[]);
            list.copy((&memory, 1), (&memory, 0), 1, None, &[]);
            list.copy((&memory, 2), (&memory, 1), 1, None, &[]);
        }
        list.synchronize();
        assert_eq!(memory.to_vec(), [499; 3]);
    }
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

const KERNEL: &str = "
    kernel void put(global uint *to, uint value)
    {
        *to = value;
    }";

/// What the append functions need.
struct Bench {
    gpu: Gpu,
    kernel: ze_kernel_handle_t,
    module: ze_module_handle_t,
    memory: Usm<u32>,
    times: Usm<ze_kernel_timestamp_result_t>,
    groups: Usm<ze_group_count_t>,
    count: Usm<u32>,
    timed: Event,
    inner: List,
}

impl Bench {
    fn new() -> Self {
        let gpu = Gpu::new();
        let module = gpu.module(&ze::spirv_from(KERNEL), "").expect("it is valid");
        let kernel = gpu.kernel(module, "put");
        let (memory, groups, count) = (gpu.host::<u32>(64), gpu.host(1), gpu.host(1));
        let (to, value) = (memory.ptr(), 9_u32);
        check!(zeKernelSetGroupSize(kernel, 1, 1, 1));
        check!(zeKernelSetArgumentValue(kernel, 0, 8, ptr::from_ref(&to).cast()));
        check!(zeKernelSetArgumentValue(kernel, 1, 4, ptr::from_ref(&value).cast()));
        groups.set(0, ONE);
        count.set(0, 1);
        let flag = ze_event_counter_based_flags_t::ZE_EVENT_COUNTER_BASED_FLAG_DEVICE_TIMESTAMP;
        let timed = gpu.cb_event_with(flag);
        let list = gpu.immediate(0, true);
        list.signal(&timed);
        list.synchronize();
        let inner = gpu.regular(0, true);
        inner.set((&memory, 1), 5, None, &[]);
        inner.close();
        let times = gpu.host(1);
        Self { gpu, kernel, module, memory, times, groups, count, timed, inner }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // A failure is the test's to report.
        let _ = call!(zeKernelDestroy(self.kernel));
        let _ = call!(zeModuleDestroy(self.module));
    }
}

static ONE: ze_group_count_t = ze_group_count_t { groupCountX: 1, groupCountY: 1, groupCountZ: 1 };

/// An append with one wait and one signal event.
type Append = fn(&Bench, ze_command_list_handle_t, ze_event_handle_t, *mut ze_event_handle_t);

/// All append functions that take events. Those from [`IMMEDIATE_ONLY`] on are for immediate lists.
const APPENDS: [(&str, Append); 16] = [
    ("Barrier", |_, list, signal, waits| {
        check!(zeCommandListAppendBarrier(list, signal, 1, waits));
    }),
    ("MemoryRangesBarrier", |it, list, signal, waits| {
        let (size, range): (usize, *const c_void) = (4, it.memory.ptr().cast_const().cast());
        let mut ranges = [range];
        check!(zeCommandListAppendMemoryRangesBarrier(
            list,
            1,
            &raw const size,
            ranges.as_mut_ptr(),
            signal,
            1,
            waits
        ));
    }),
    ("WaitOnEvents, SignalEvent", |_, list, signal, waits| {
        check!(zeCommandListAppendWaitOnEvents(list, 1, waits));
        check!(zeCommandListAppendSignalEvent(list, signal));
    }),
    ("WriteGlobalTimestamp", |it, list, signal, waits| {
        let to = it.times.ptr().cast();
        check!(zeCommandListAppendWriteGlobalTimestamp(list, to, signal, 1, waits));
    }),
    ("QueryKernelTimestamps", |it, list, signal, waits| {
        let (mut of, to) = ([it.timed.0], it.times.ptr().cast());
        let of = of.as_mut_ptr();
        let none = ptr::null();
        check!(zeCommandListAppendQueryKernelTimestamps(list, 1, of, to, none, signal, 1, waits));
    }),
    ("MemoryCopy", |it, list, signal, waits| {
        let (dst, src) = (it.memory.ptr().cast(), it.memory.ptr().wrapping_add(8).cast());
        check!(zeCommandListAppendMemoryCopy(list, dst, src, 4, signal, 1, waits));
    }),
    ("MemoryCopyFromContext", |it, list, signal, waits| {
        let (dst, src) = (it.memory.ptr().cast(), it.memory.ptr().wrapping_add(8).cast());
        let from = it.gpu.context;
        check!(zeCommandListAppendMemoryCopyFromContext(list, dst, from, src, 4, signal, 1, waits));
    }),
    ("MemoryFill", |it, list, signal, waits| {
        let (dst, value) = (it.memory.ptr().cast(), 3_u32);
        let value = (&raw const value).cast();
        check!(zeCommandListAppendMemoryFill(list, dst, value, 4, 4, signal, 1, waits));
    }),
    ("MemoryCopyRegion", |it, list, signal, waits| {
        let region = ze_copy_region_t { width: 4, height: 1, depth: 1, ..Default::default() };
        let (dst, src) = (it.memory.ptr().cast(), it.memory.ptr().wrapping_add(8).cast());
        let region = &raw const region;
        check!(zeCommandListAppendMemoryCopyRegion(
            list, dst, region, 4, 4, src, region, 4, 4, signal, 1, waits
        ));
    }),
    ("LaunchKernel", |it, list, signal, waits| {
        let groups = &raw const ONE;
        check!(zeCommandListAppendLaunchKernel(list, it.kernel, groups, signal, 1, waits));
    }),
    ("LaunchCooperativeKernel", |it, list, signal, waits| {
        let groups = &raw const ONE;
        check!(zeCommandListAppendLaunchCooperativeKernel(
            list, it.kernel, groups, signal, 1, waits
        ));
    }),
    ("LaunchKernelIndirect", |it, list, signal, waits| {
        let groups = it.groups.ptr();
        check!(zeCommandListAppendLaunchKernelIndirect(list, it.kernel, groups, signal, 1, waits));
    }),
    ("LaunchMultipleKernelsIndirect", |it, list, signal, waits| {
        let (mut kernels, groups) = ([it.kernel], it.groups.ptr());
        let kernels = kernels.as_mut_ptr();
        let count = it.count.ptr();
        check!(zeCommandListAppendLaunchMultipleKernelsIndirect(
            list, 1, kernels, count, groups, signal, 1, waits
        ));
    }),
    ("LaunchKernelWithParameters", |it, list, signal, waits| {
        let (groups, none) = (&raw const ONE, ptr::null());
        check!(zeCommandListAppendLaunchKernelWithParameters(
            list, it.kernel, groups, none, signal, 1, waits
        ));
    }),
    ("LaunchKernelWithArguments", |it, list, signal, waits| {
        let (to, value) = (it.memory.ptr(), 4_u32);
        let mut arguments: [*mut c_void; 2] =
            [ptr::from_ref(&to).cast_mut().cast(), ptr::from_ref(&value).cast_mut().cast()];
        let size = ze_group_size_t { groupSizeX: 1, groupSizeY: 1, groupSizeZ: 1 };
        check!(zeCommandListAppendLaunchKernelWithArguments(
            list,
            it.kernel,
            ONE,
            size,
            arguments.as_mut_ptr(),
            ptr::null(),
            signal,
            1,
            waits
        ));
    }),
    ("ImmediateAppendCommandListsExp", |it, list, signal, waits| {
        let mut lists = [it.inner.0];
        check!(zeCommandListImmediateAppendCommandListsExp(
            list,
            1,
            lists.as_mut_ptr(),
            signal,
            1,
            waits
        ));
    }),
];
const IMMEDIATE_ONLY: usize = 15;

/// Every function that takes events takes CB events: the command waits for one and signals another, in
/// immediate and in regular lists.
#[test]
fn every_append_waits_for_and_signals_events() {
    let it = Bench::new();
    for (i, (name, append)) in APPENDS.iter().enumerate() {
        for recorded in [false, true] {
            if recorded && i >= IMMEDIATE_ONLY {
                continue;
            }
            let gate = Gate::new(&it.gpu);
            let (wait, _producer) = gate.cb_event(&it.gpu);
            let done = it.gpu.cb_event();
            let mut waits = [wait.0];
            let (immediate, regular, queue) =
                (it.gpu.immediate(0, true), it.gpu.regular(0, true), it.gpu.queue(0));
            if recorded {
                append(&it, regular.0, done.0, waits.as_mut_ptr());
                regular.close();
                queue.execute(&[&regular], None);
            } else {
                append(&it, immediate.0, done.0, waits.as_mut_ptr());
            }
            let result = call!(zeEventHostSynchronize(done.0, 200_000));
            assert_eq!(result, ze_result_t::ZE_RESULT_NOT_READY, "{name}: it waits");
            gate.open();
            done.synchronize();
            immediate.synchronize();
            queue.synchronize();
        }
    }
    assert_eq!(it.memory.get(1), 5, "the inner list ran");
}

/// The same functions in lists without order of their own wait for CB events too, and signal none.
#[test]
fn every_append_of_an_out_of_order_list_waits_for_events() {
    let it = Bench::new();
    for (name, append) in &APPENDS {
        let gate = Gate::new(&it.gpu);
        let (wait, _producer) = gate.cb_event(&it.gpu);
        let pool = it.gpu.pool(1, ze_event_pool_flags_t::empty());
        let (done, mut waits) = (pool.event(0), [wait.0]);
        let list = it.gpu.immediate(0, false);
        append(&it, list.0, done.0, waits.as_mut_ptr());
        let result = call!(zeEventHostSynchronize(done.0, 200_000));
        assert_eq!(result, ze_result_t::ZE_RESULT_NOT_READY, "{name}: it waits");
        gate.open();
        done.synchronize();
        list.synchronize();
    }
}

/// A wait list of any length holds events of all states: complete, of other lists, of its own list,
/// regular; NONE is no event.
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
