// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waits of the host for lists, queues, fences and devices, and barriers, through the stock loader.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tally_tests::gate::Gate;
use tally_tests::lists::{Event, Fence, List, NONE, PATIENCE, queue_flags};
use tally_tests::ze::Gpu;
use tally_tests::{call, check, refused};
use tally_ze::*;

const NOT_READY: ze_result_t = ze_result_t::ZE_RESULT_NOT_READY;
const SUCCESS: ze_result_t = ze_result_t::ZE_RESULT_SUCCESS;
const MILLISECOND: u64 = 1_000_000;

/// "Timeouts are in nanoseconds. 0 means query, UINT64_MAX means for ever; UINT32_MAX is 4.3 s":
/// a wait for work that is held up ends when its time has passed, not before, and soon after; one for
/// ever ends when the work does; one for work that is done ends at once.
#[test]
fn host_waits_keep_their_time() {
    let gpu = Gpu::new();
    let (ordered, unordered) = (gpu.immediate(0, true), gpu.immediate(0, false));
    let (queue, list) = (gpu.queue(0), gpu.regular(0, true));
    let gate = Gate::new(&gpu);
    for immediate in [&ordered, &unordered] {
        immediate.barrier(None, &[&gate.event]);
    }
    list.barrier(None, &[&gate.event]);
    list.close();
    let fence = queue.fence(ze_fence_flags_t::empty());
    queue.execute(&[&list], Some(&fence));
    let cb = gpu.cb_event();
    ordered.barrier(Some(&cb), &[]);
    let waits: [(&str, &(dyn Fn(u64) -> ze_result_t + Sync)); 6] = [
        ("in-order list", &|time| call!(zeCommandListHostSynchronize(ordered.0, time))),
        ("out-of-order list", &|time| call!(zeCommandListHostSynchronize(unordered.0, time))),
        ("queue", &|time| call!(zeCommandQueueSynchronize(queue.0, time))),
        ("fence", &|time| call!(zeFenceHostSynchronize(fence.0, time))),
        ("CB event", &|time| call!(zeEventHostSynchronize(cb.0, time))),
        ("event", &|time| call!(zeEventHostSynchronize(gate.event.0, time))),
    ];
    for (name, wait) in waits {
        for timeout in [0, 1, 1000, 100_000, 30 * MILLISECOND] {
            let start = Instant::now();
            assert_eq!(wait(timeout), NOT_READY, "{name}, {timeout} ns");
            let passed = start.elapsed();
            assert!(passed >= Duration::from_nanos(timeout), "{name}, {timeout} ns: {passed:?}");
        }
    }
    thread::scope(|scope| {
        let threads: Vec<_> = waits
            .iter()
            .flat_map(|(name, wait)| [u64::MAX, PATIENCE].map(|time| (name, wait, time)))
            .map(|(name, wait, time)| (name, scope.spawn(move || wait(time))))
            .collect();
        thread::sleep(Duration::from_millis(20));
        gate.open();
        for (name, thread) in threads {
            assert_eq!(thread.join().expect("it does not panic"), SUCCESS, "{name}");
        }
    });
    for (name, wait) in waits {
        for timeout in [0, 1, u64::from(u32::MAX), u64::MAX] {
            assert_eq!(wait(timeout), SUCCESS, "{name}, {timeout} ns, done");
        }
    }
}

/// "This function blocks until all preceding submissions to all queues on the device are completed."
/// Queues, immediate lists of both kinds and both engines, of two contexts, and a list that was
/// destroyed while its work was held up.
#[test]
fn a_device_is_synchronised_as_a_whole() {
    let (gpu, other) = (Gpu::new(), Gpu::new());
    check!(zeDeviceSynchronize(gpu.device));
    let memory = gpu.host::<u32>(8);
    memory.fill_with(|_| 0);
    let gate = Gate::new(&gpu);
    let lists = [
        gpu.immediate(0, true),
        gpu.immediate(0, false),
        gpu.immediate(1, true),
        gpu.immediate(1, false),
        other.immediate(0, true),
    ];
    for (i, list) in lists.iter().enumerate() {
        list.set((&memory, i), 1, None, &[&gate.event]);
    }
    let (queue, regular) = (gpu.queue(0), gpu.regular(0, true));
    regular.set((&memory, 5), 1, None, &[&gate.event]);
    regular.close();
    queue.execute(&[&regular], None);
    let destroyed = gpu.immediate(0, true);
    destroyed.set((&memory, 6), 1, None, &[&gate.event]);
    drop(destroyed);
    let returned = AtomicBool::new(false);
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            check!(zeDeviceSynchronize(gpu.device));
            returned.store(true, Ordering::SeqCst);
        });
        thread::sleep(Duration::from_millis(20));
        assert!(!returned.load(Ordering::SeqCst), "work is held up still");
        gate.open();
        waits.join().expect("it does not panic");
    });
    assert_eq!(memory.to_vec(), [1, 1, 1, 1, 1, 1, 1, 0]);
    refused!(ZE_RESULT_ERROR_INVALID_NULL_HANDLE, zeDeviceSynchronize(ze_device_handle_t::NULL));
}

fn create_fence(queue: ze_command_queue_handle_t, desc: *const ze_fence_desc_t) -> ze_result_t {
    let mut fence = ze_fence_handle_t::NULL;
    let result = call!(zeFenceCreate(queue, desc, &raw mut fence));
    if result == SUCCESS {
        drop(Fence(fence));
    }
    result
}

/// "A fence is associated with a single command queue." "A fence can only be reset from the Host." "A
/// fence only has two states: not signaled and signaled." "A fence can only be signaled from a device's
/// command queue (e.g. between execution of command lists) and can only be waited upon from the host."
#[test]
fn a_fence_is_its_queues_and_the_hosts() {
    let gpu = Gpu::new();
    let (queue, other) = (gpu.queue(0), gpu.queue(0));
    let list = gpu.regular(0, true);
    list.barrier(None, &[]);
    list.close();
    let fence = queue.fence(ze_fence_flags_t::empty());
    let mut lists = [list.0];
    refused!(
        ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT,
        zeCommandQueueExecuteCommandLists(other.0, 1, lists.as_mut_ptr(), fence.0)
    );
    assert!(!fence.is_ready());
    fence.reset();
    assert!(!fence.is_ready(), "resetting an unsignaled fence has no effect");
    for _ in 0..3 {
        queue.execute(&[&list], Some(&fence));
        fence.synchronize();
        assert!(fence.is_ready(), "it doesn't implicitly reset");
        fence.reset();
        assert!(!fence.is_ready());
    }
    let unknown = ze_fence_flags_t::from_bits_retain(1 << 9);
    let wrong = [
        (ze_fence_desc_t { flags: unknown, ..Default::default() }, "INVALID_ENUMERATION"),
        (
            ze_fence_desc_t {
                stype: ze_structure_type_t::ZE_STRUCTURE_TYPE_EVENT_DESC,
                ..Default::default()
            },
            "INVALID_ARGUMENT",
        ),
    ];
    for (desc, code) in wrong {
        let result = create_fence(queue.0, &raw const desc);
        assert_eq!(format!("{result:?}"), format!("ZE_RESULT_ERROR_{code}"));
    }
    let result = create_fence(queue.0, ptr::null());
    assert_eq!(result, ze_result_t::ZE_RESULT_ERROR_INVALID_NULL_POINTER);
    refused!(ZE_RESULT_ERROR_INVALID_NULL_HANDLE, zeFenceReset(ze_fence_handle_t(list.0.0.cast())));
}

/// "A fence guarantees both execution completion and memory coherency, across the device and host,
/// prior to being signaled." "Fences provide implicit, coarse-grain control to indicate that all
/// previous commands must complete prior to the fence being signaled": also those of earlier calls,
/// and of lists without order of their own.
/// "Fences are implicit, coarse-grain execution and memory barriers." "Fences provide implicit,
/// coarse-grain control to indicate that all caches and memory are coherent across the device and Host
/// prior to the fence being signaled."
#[test]
fn a_fence_covers_all_that_came_before() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(64);
    let (queue, unordered) = (gpu.queue(0), gpu.regular(0, false));
    for i in 0..64 {
        unordered.set((&memory, i), 7, None, &[]);
    }
    unordered.close();
    let last = gpu.regular(0, true);
    last.barrier(None, &[]);
    last.close();
    for _ in 0..50 {
        memory.fill_with(|_| 0);
        let fence = queue.fence(ze_fence_flags_t::empty());
        queue.execute(&[&unordered], None);
        queue.execute(&[&last], Some(&fence));
        fence.synchronize();
        assert_eq!(memory.to_vec(), [7; 64]);
    }
}

/// A fence that is passed to two executions is signalled by the first, even if the second was submitted
/// before that; it stays signalled, and may then be destroyed while the second waits.
#[test]
fn a_fence_is_signalled_by_the_first_of_two_executions() {
    let gpu = Gpu::new();
    let (first, second) = (Gate::new(&gpu), Gate::new(&gpu));
    let (queue, soon, later) = (gpu.queue(0), gpu.regular(0, true), gpu.regular(0, true));
    for (list, gate) in [(&soon, &first), (&later, &second)] {
        list.barrier(None, &[&gate.event]);
        list.close();
    }
    let fence = queue.fence(ze_fence_flags_t::empty());
    queue.execute(&[&soon], Some(&fence));
    queue.execute(&[&later], Some(&fence));
    assert!(!fence.is_ready());
    first.open();
    fence.synchronize();
    drop(fence);
    second.open();
    queue.synchronize();
}

/// "The following pseudo-code demonstrates a sequence for submission of a brute-force execution and
/// global memory barrier": range barriers order as barriers do, with events and without.
/// "Range-based memory barriers provide explicit control of which cachelines require coherency."
/// "Ensure memory range is fully coherent across the device after hKernel1 and before hKernel2";
/// "Memory Barriers - used to communicate memory coherency dependencies between commands within a
/// command list or across command queues, devices and/or Host."
#[test]
fn range_barriers_order_what_is_around_them() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(2);
    let gate = Gate::new(&gpu);
    let (size, range): (usize, *const c_void) = (memory.bytes(), memory.ptr().cast_const().cast());
    let (sizes, mut ranges) = ([size], [range]);
    for in_order in [true, false] {
        memory.fill_with(|_| 0);
        let list = gpu.immediate(0, in_order);
        let pool = gpu.pool(1, ze_event_pool_flags_t::empty());
        let (done, mut waits) = (pool.event(0), [gate.event.0]);
        let mut barrier = |signal: Option<&Event>, count: u32| {
            check!(zeCommandListAppendMemoryRangesBarrier(
                list.0,
                1,
                sizes.as_ptr(),
                ranges.as_mut_ptr(),
                signal.map_or(NONE, |event| event.0),
                count,
                waits.as_mut_ptr()
            ));
        };
        barrier(Some(&done), 1);
        list.set((&memory, 0), 5, None, &[]);
        barrier(None, 0);
        list.copy((&memory, 1), (&memory, 0), 1, None, &[]);
        assert!(!done.is_ready());
        assert_eq!(memory.get(0), 0);
        gate.open();
        list.synchronize();
        assert!(done.is_ready());
        assert_eq!(memory.to_vec(), [5, 5]);
        gate.event.reset();
    }
    let list = gpu.immediate(0, true);
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_POINTER,
        zeCommandListAppendMemoryRangesBarrier(
            list.0,
            1,
            ptr::null(),
            ranges.as_mut_ptr(),
            NONE,
            0,
            ptr::null_mut()
        )
    );
}

/// "Ensures in-bound writes to the device are globally observable": what the host wrote before the
/// call is what the device reads after it. A context and a device that do not fit are refused.
#[test]
fn a_system_barrier_publishes_what_the_host_wrote() {
    let gpu = Gpu::new();
    let (source, target) = (gpu.device_memory::<u32>(1), gpu.host::<u32>(1));
    let list = gpu.immediate(1, true);
    for round in 1..100 {
        source.set(0, round);
        check!(zeContextSystemBarrier(gpu.context, gpu.device));
        list.copy((&target, 0), (&source, 0), 1, None, &[]);
        list.synchronize();
        assert_eq!(target.get(0), round);
    }
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_HANDLE,
        zeContextSystemBarrier(gpu.context, ze_device_handle_t::NULL)
    );
}

/// The three ways to order two commands of an out-of-order list, each under load: "Ensure hKernel1
/// completes before signaling hEvent1"; "Ensure hEvent1 is signaled before starting hKernel2".
/// "Events provide explicit, fine-grain control over execution dependencies between commands; allowing
/// more opportunities for concurrent execution and higher device utilization." "Execution Barriers -
/// used to communicate execution dependencies between commands within a command list or across command
/// queues, devices and/or Host." "Append a barrier into a command list to ensure hKernel1 completes
/// before hKernel2 begins".
#[test]
fn events_and_barriers_order_an_out_of_order_list() {
    // The first copy is long and ends with the word that the second one reads, which would be there first.
    const SIZE: usize = 1 << 18;
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(2 * SIZE + 1);
    let list = gpu.immediate(0, false);
    let pool = gpu.pool(1, ze_event_pool_flags_t::empty());
    let event = pool.event(0);
    for round in 1..300 {
        list.set((&memory, SIZE - 1), round, Some(&event), &[]);
        list.copy((&memory, SIZE), (&memory, 0), SIZE, None, &[&event]);
        list.barrier(None, &[]);
        list.copy((&memory, 2 * SIZE), (&memory, 2 * SIZE - 1), 1, None, &[]);
        list.barrier(None, &[]);
        list.reset_event(&event);
        list.barrier(None, &[]);
        if round % 10 == 0 {
            list.synchronize();
            assert_eq!([SIZE, 2 * SIZE, 2 * SIZE + 1].map(|end| memory.get(end - 1)), [round; 3]);
        }
    }
    list.synchronize();
}

/// "Execution Barriers - used to communicate execution dependencies between commands within a command list or
/// across command queues, devices and/or Host." "Memory Barriers - used to communicate memory coherency
/// dependencies between commands within a command list or across command queues, devices and/or Host.": a
/// barrier of each kind after work of one engine, its twin before work of the other, and the host behind both.
#[test]
fn barriers_order_queues_and_the_host() {
    const SIZE: usize = 1 << 14;
    let gpu = Gpu::new();
    let (memory, seen) = (gpu.device_memory::<u32>(SIZE), gpu.host::<u32>(SIZE));
    let source = gpu.host::<u32>(SIZE);
    let (size, range): (usize, *const c_void) = (memory.bytes(), memory.ptr().cast_const().cast());
    let barrier = |ranges: bool, list: &List, signal: &Event, wait: &Event| {
        let (sizes, mut starts, mut waits) = ([size], [range], [wait.0]);
        if ranges {
            check!(zeCommandListAppendMemoryRangesBarrier(
                list.0,
                1,
                sizes.as_ptr(),
                starts.as_mut_ptr(),
                signal.0,
                1,
                waits.as_mut_ptr()
            ));
        } else {
            check!(zeCommandListAppendBarrier(list.0, signal.0, 1, waits.as_mut_ptr()));
        }
    };
    for (value, ranges) in [(7, false), (8, true)] {
        let gate = Gate::new(&gpu);
        let pool = gpu.pool(3, ze_event_pool_flags_t::empty());
        let [filled, passed, copied] = [0, 1, 2].map(|index| pool.event(index));
        let (queue, one, other) = (gpu.queue(0), gpu.regular(0, false), gpu.immediate(1, false));
        seen.fill_with(|_| 0);
        source.fill_with(|_| value);
        one.copy((&memory, 0), (&source, 0), SIZE, Some(&filled), &[&gate.event]);
        barrier(ranges, &one, &passed, &filled);
        one.close();
        // Behind the other engine's barrier, which was submitted first.
        barrier(ranges, &other, &copied, &passed);
        other.copy((&seen, 0), (&memory, 0), SIZE, None, &[]);
        queue.execute(&[&one], None);
        assert!([&filled, &passed, &copied].iter().all(|event| !event.is_ready()));
        assert_eq!(seen.get(SIZE - 1), 0);
        gate.open();
        copied.synchronize();
        assert!(filled.is_ready() && passed.is_ready());
        other.synchronize();
        assert!(seen.to_vec().iter().all(|it| *it == value));
        queue.synchronize();
    }
}

/// "An event can be appended into multiple command lists simultaneously": many lists of both engines
/// wait for one event, and one that several lists signal is signalled by the first.
#[test]
fn an_event_is_used_by_many_lists_at_once() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(16);
    memory.fill_with(|_| 0);
    let gate = Gate::new(&gpu);
    let pool = gpu.pool(1, ze_event_pool_flags_t::empty());
    let done = pool.event(0);
    let lists: Vec<_> = (0..16).map(|i| gpu.immediate(i % 2, i % 4 < 2)).collect();
    for (i, list) in lists.iter().enumerate() {
        list.set((&memory, i), 1, Some(&done), &[&gate.event]);
    }
    assert!(!done.is_ready());
    gate.open();
    done.synchronize();
    lists.iter().for_each(|list| list.synchronize());
    assert!(done.is_ready());
    assert_eq!(memory.to_vec(), [1; 16]);
}

/// ze_event_sync_mode_desc_t: "Low power host synchronization mode, for better CPU utilization"
/// changes no answer; "Can be used only for Counter Based Events", and this device has no interrupts
/// of that kind, which its properties say.
#[test]
fn sync_modes_are_taken_or_refused() {
    use ze_event_sync_mode_flags_t as mode;
    let gpu = Gpu::new();
    let mode = |flags| ze_event_sync_mode_desc_t { syncModeFlags: flags, ..Default::default() };
    let low = mode(
        mode::ZE_EVENT_SYNC_MODE_FLAG_LOW_POWER_WAIT
            | mode::ZE_EVENT_SYNC_MODE_FLAG_SIGNAL_INTERRUPT,
    );
    let external = mode(mode::ZE_EVENT_SYNC_MODE_FLAG_EXTERNAL_INTERRUPT_WAIT);
    let unknown = mode(mode::from_bits_retain(1 << 12));
    let pool = gpu.pool(2, ze_event_pool_flags_t::empty());
    let regular = |mode: &ze_event_sync_mode_desc_t, event: &mut ze_event_handle_t| {
        let desc = ze_event_desc_t { pNext: ptr::from_ref(mode).cast(), ..Default::default() };
        call!(zeEventCreate(pool.0, &raw const desc, event))
    };
    let counter_based = |mode: &ze_event_sync_mode_desc_t, event: &mut ze_event_handle_t| {
        let next = ptr::from_ref(mode).cast();
        let desc = ze_event_counter_based_desc_t { pNext: next, ..Default::default() };
        call!(zeEventCounterBasedCreate(gpu.context, gpu.device, &raw const desc, event))
    };
    let mut raw = NONE;
    assert_eq!(regular(&low, &mut raw), SUCCESS);
    let sleepy = Event(raw);
    assert_eq!(counter_based(&low, &mut raw), SUCCESS);
    let sleepy_cb = Event(raw);
    let list = gpu.immediate(0, true);
    let gate = Gate::new(&gpu);
    list.barrier(Some(&sleepy), &[&gate.event]);
    list.barrier(Some(&sleepy_cb), &[]);
    for event in [&sleepy, &sleepy_cb] {
        assert!(!event.is_ready());
        assert_eq!(call!(zeEventHostSynchronize(event.0, MILLISECOND)), NOT_READY);
    }
    thread::scope(|scope| {
        scope.spawn(|| sleepy.synchronize());
        scope.spawn(|| sleepy_cb.synchronize());
        thread::sleep(Duration::from_millis(5));
        gate.open();
    });
    assert_eq!(regular(&external, &mut raw), ze_result_t::ZE_RESULT_ERROR_INVALID_ARGUMENT);
    let result = counter_based(&external, &mut raw);
    assert_eq!(result, ze_result_t::ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
    for result in [regular(&unknown, &mut raw), counter_based(&unknown, &mut raw)] {
        assert_eq!(result, ze_result_t::ZE_RESULT_ERROR_INVALID_ENUMERATION);
    }
    let mut can = ze_device_event_properties_t::default();
    let mut properties =
        ze_device_properties_t { pNext: (&raw mut can).cast(), ..Default::default() };
    check!(zeDeviceGetProperties(gpu.device, &raw mut properties));
    use ze_device_event_properties_flags_t as can_flag;
    let interrupts =
        can_flag::ZE_DEVICE_EVENT_PROPERTIES_FLAG_COUNTER_BASED_EXTERNAL_INTERRUPT_WAIT;
    assert!(!can.flags.contains(interrupts));
}

/// "Commands appended into an immediate command list may execute synchronously, by blocking until the
/// command is complete": when the append returns, its events are signalled and its data is there.
#[test]
fn a_synchronous_append_returns_when_all_is_done() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(1);
    let pool = gpu.pool(1, ze_event_pool_flags_t::empty());
    let (event, cb) = (pool.event(0), gpu.cb_event());
    let list = gpu.immediate_of(&ze_command_queue_desc_t {
        mode: ze_command_queue_mode_t::ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS,
        flags: queue_flags(true),
        ..Default::default()
    });
    for round in 1..200 {
        list.set((&memory, 0), round, Some(&event), &[]);
        assert!(event.is_ready());
        assert_eq!(memory.get(0), round);
        list.set((&memory, 0), 0, Some(&cb), &[]);
        assert!(cb.is_ready());
        event.reset();
    }
}
