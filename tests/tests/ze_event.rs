// SPDX-License-Identifier: MIT OR Apache-2.0
//! Regular events and fences, through the stock loader.

use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use tally_tests::lists::{NONE, PATIENCE};
use tally_tests::ze::Gpu;
use tally_tests::{call, check, refused};
use tally_ze::*;

const NO_FLAGS: ze_event_pool_flags_t = ze_event_pool_flags_t::empty();
const MILLISECOND: u64 = 1_000_000;

/// "By default, events in Level Zero contains one of two states: signaled or not signaled. Signaling of an
/// event, as well as resetting its state, can be done from either host or device." "Regular Event rely on
/// memory state controlled by the User (explicit Reset calls).": here by the host.
#[test]
fn the_host_signals_and_resets() {
    let gpu = Gpu::new();
    let pool = gpu.pool(2, NO_FLAGS);
    let event = pool.event(1);
    assert!(!event.is_ready());
    event.signal();
    assert!(event.is_ready());
    event.signal();
    event.synchronize();
    event.reset();
    assert!(!event.is_ready());
}

/// A wait with a time limit ends with NOT_READY when the time has passed, and not before.
#[test]
fn a_wait_ends_when_its_time_has_passed() {
    let gpu = Gpu::new();
    let pool = gpu.pool(1, NO_FLAGS);
    let event = pool.event(0);
    let start = Instant::now();
    let result = call!(zeEventHostSynchronize(event.0, 30 * MILLISECOND));
    assert_eq!(result, ze_result_t::ZE_RESULT_NOT_READY);
    assert!(start.elapsed() >= Duration::from_millis(30));
    assert_eq!(call!(zeEventHostSynchronize(event.0, 0)), ze_result_t::ZE_RESULT_NOT_READY);
}

/// "Signaling of an event, as well as resetting its state, can be done from either host or device.": the
/// device signals and resets in the order of the list, and the host sees both.
#[test]
fn the_device_signals_and_resets() {
    let gpu = Gpu::new();
    let pool = gpu.pool(3, NO_FLAGS);
    let (event, gate, other) = (pool.event(0), pool.event(1), pool.event(2));
    for in_order in [true, false] {
        let list = gpu.immediate(0, in_order);
        list.signal(&event);
        event.synchronize();
        list.barrier(None, &[&gate]);
        list.reset_event(&event);
        list.signal(&other);
        assert!(event.is_ready());
        gate.signal();
        list.synchronize();
        assert!(!event.is_ready());
        assert!(other.is_ready(), "who has waited for the list finds the event set");
        gate.reset();
        other.reset();
    }
}

/// Many threads may wait for one event; one signal, of the host or the device, wakes all of them.
#[test]
fn one_signal_wakes_all_waiting_threads() {
    let gpu = Gpu::new();
    let pool = gpu.pool(1, NO_FLAGS);
    let event = pool.event(0);
    let list = gpu.immediate(0, true);
    for round in 0..10 {
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| event.synchronize());
            }
            thread::sleep(Duration::from_millis(2));
            if round % 2 == 0 { event.signal() } else { list.signal(&event) }
        });
        list.synchronize();
        event.reset();
    }
}

/// Wait lists of any length: the command waits for all events, and runs only after the last of them.
#[test]
fn a_command_waits_for_all_its_events() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(1);
    for count in [1, 2, 3, 4, 7, 100] {
        memory.set(0, 0);
        let pool = gpu.pool(count, NO_FLAGS);
        let events: Vec<_> = (0..count).map(|i| pool.event(i)).collect();
        let list = gpu.immediate(0, count % 2 == 0);
        let waits: Vec<_> = events.iter().collect();
        list.set((&memory, 0), count, None, &waits);
        for event in &events {
            assert_eq!(memory.get(0), 0);
            event.signal();
        }
        list.synchronize();
        assert_eq!(memory.get(0), count);
    }
}

/// Indices of a pool can be reused after their event is destroyed. Before that, an event created at the
/// same index is the same event with another handle, as in Intel's driver, whose benchmarks rely on it.
/// "An event pool is used for creation of individual events".
#[test]
fn a_place_of_a_pool_holds_one_event() {
    let gpu = Gpu::new();
    let pool = gpu.pool(1, NO_FLAGS);
    let mut raw = NONE;
    let beyond = ze_event_desc_t { index: 1, ..Default::default() };
    let first = ze_event_desc_t::default();
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeEventCreate(pool.0, &raw const beyond, &raw mut raw)
    );
    let event = pool.event(0);
    event.signal();
    check!(zeEventCreate(pool.0, &raw const first, &raw mut raw));
    assert!(!event.is_ready(), "it begins anew");
    let list = gpu.immediate(0, true);
    check!(zeCommandListAppendSignalEvent(list.0, raw));
    list.wait(&[&event]);
    list.synchronize();
    assert!(event.is_ready());
    check!(zeEventDestroy(raw));
    assert!(event.is_ready(), "the other one is still there");
    event.reset();
    event.signal();
    drop(event);
    assert!(!pool.event(0).is_ready(), "a new event is not signalled");
}

/// Events of a pool that was destroyed are refused, not used.
#[test]
fn an_event_of_a_destroyed_pool_is_refused() {
    let gpu = Gpu::new();
    let pool = gpu.pool(1, NO_FLAGS);
    let event = pool.event(0);
    let list = gpu.immediate(0, true);
    drop(pool);
    let code = "ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT";
    refused!(ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT, zeEventQueryStatus(event.0));
    refused!(ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT, zeEventHostSignal(event.0));
    let result = call!(zeCommandListAppendSignalEvent(list.0, event.0));
    assert_eq!(format!("{result:?}"), code);
}

/// Descriptions with unknown bits, a count of 0 or a wrong stype are refused by the driver itself.
#[test]
fn wrong_descriptions_are_refused() {
    let gpu = Gpu::new();
    let mut pool = ze_event_pool_handle_t::NULL;
    let none = ptr::null_mut();
    let create = |desc: &ze_event_pool_desc_t, pool: *mut ze_event_pool_handle_t| {
        call!(zeEventPoolCreate(gpu.context, desc, 0, none, pool))
    };
    let desc = ze_event_pool_desc_t::default();
    assert_eq!(create(&desc, &raw mut pool), ze_result_t::ZE_RESULT_ERROR_INVALID_SIZE);
    let flags = ze_event_pool_flags_t::from_bits_retain(1 << 20);
    let desc = ze_event_pool_desc_t { flags, count: 1, ..Default::default() };
    assert_eq!(create(&desc, &raw mut pool), ze_result_t::ZE_RESULT_ERROR_INVALID_ENUMERATION);
    let stype = ze_structure_type_t::ZE_STRUCTURE_TYPE_EVENT_DESC;
    let desc = ze_event_pool_desc_t { stype, count: 1, ..Default::default() };
    assert_eq!(create(&desc, &raw mut pool), ze_result_t::ZE_RESULT_ERROR_INVALID_ARGUMENT);
    let desc = ze_event_pool_desc_t { count: 1, ..Default::default() };
    let result = create(&desc, ptr::null_mut());
    assert_eq!(result, ze_result_t::ZE_RESULT_ERROR_INVALID_NULL_POINTER);
}

/// The properties with which an event was created can be queried.
#[test]
fn an_event_tells_where_it_comes_from() {
    let gpu = Gpu::new();
    let pool = gpu.pool(1, NO_FLAGS);
    let event = pool.event(0);
    let (mut of, mut scope) = (ze_event_pool_handle_t::NULL, ze_event_scope_flags_t::empty());
    check!(zeEventGetEventPool(event.0, &raw mut of));
    check!(zeEventGetSignalScope(event.0, &raw mut scope));
    assert_eq!((of, scope), (pool.0, ze_event_scope_flags_t::ZE_EVENT_SCOPE_FLAG_HOST));
    let (mut context, mut flags) = (ze_context_handle_t::NULL, NO_FLAGS);
    check!(zeEventPoolGetContextHandle(pool.0, &raw mut context));
    check!(zeEventPoolGetFlags(pool.0, &raw mut flags));
    assert_eq!(context, gpu.context);
    assert_eq!(flags, ze_event_pool_flags_t::ZE_EVENT_POOL_FLAG_HOST_VISIBLE);
}

/// Times of regular events: start before end, later commands later, on both clocks.
#[test]
fn timestamps_are_in_order() {
    let gpu = Gpu::new();
    let pool = gpu.pool(2, ze_event_pool_flags_t::ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP);
    let (first, second) = (pool.event(0), pool.event(1));
    let memory = gpu.host::<u32>(1);
    let list = gpu.immediate(0, true);
    let mut times = [ze_kernel_timestamp_result_t::default(); 2];
    let result = call!(zeEventQueryKernelTimestamp(first.0, &raw mut times[0]));
    assert_eq!(result, ze_result_t::ZE_RESULT_NOT_READY);
    list.set((&memory, 0), 1, Some(&first), &[]);
    list.set((&memory, 0), 2, Some(&second), &[]);
    list.synchronize();
    check!(zeEventQueryKernelTimestamp(first.0, &raw mut times[0]));
    check!(zeEventQueryKernelTimestamp(second.0, &raw mut times[1]));
    let order = [
        times[0].global.kernelStart,
        times[0].global.kernelEnd,
        times[1].global.kernelStart,
        times[1].global.kernelEnd,
    ];
    assert!(0 < order[0] && order.is_sorted(), "{order:?}");
    let without = gpu.pool(1, NO_FLAGS);
    let without = without.event(0);
    refused!(
        ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT,
        zeEventQueryKernelTimestamp(without.0, &raw mut times[0])
    );
}

/// A fence is signalled when the lists that it was executed with are complete; "A fence doesn't
/// implicitly reset. Signaling a signaled fence is valid and has no effect."
/// "Fences - used to communicate to the host that command queue execution has completed." "A fence is a
/// heavyweight synchronization primitive used to communicate to the host that command list execution
/// has completed." "Signaling a signaled fence (or resetting an unsignaled fence) is valid and has no
/// effect on the state of the fence."
#[test]
fn a_fence_follows_its_execution() {
    let gpu = Gpu::new();
    let pool = gpu.pool(1, NO_FLAGS);
    let gate = pool.event(0);
    let memory = gpu.host::<u32>(1);
    let (list, queue) = (gpu.regular(0, false), gpu.queue(0));
    list.set((&memory, 0), 1, None, &[&gate]);
    list.close();
    let fence = queue.fence(ze_fence_flags_t::empty());
    let signalled = queue.fence(ze_fence_flags_t::ZE_FENCE_FLAG_SIGNALED);
    assert!(!fence.is_ready() && signalled.is_ready());
    queue.execute(&[&list], Some(&fence));
    assert!(!fence.is_ready());
    let result = call!(zeFenceHostSynchronize(fence.0, MILLISECOND));
    assert_eq!(result, ze_result_t::ZE_RESULT_NOT_READY);
    gate.signal();
    fence.synchronize();
    assert_eq!(memory.get(0), 1);
    gate.reset();
    queue.execute(&[&list], Some(&fence));
    assert!(fence.is_ready(), "it was signalled and not reset");
    gate.signal();
    queue.synchronize();
    fence.reset();
    assert!(!fence.is_ready());
    signalled.reset();
    assert!(!signalled.is_ready());
}

/// A thread may wait for a fence before another one executes lists with it.
#[test]
fn a_fence_may_be_waited_for_first() {
    let gpu = Gpu::new();
    let (list, queue) = (gpu.regular(0, false), gpu.queue(0));
    list.barrier(None, &[]);
    list.close();
    let fence = queue.fence(ze_fence_flags_t::empty());
    thread::scope(|scope| {
        scope.spawn(|| check!(zeFenceHostSynchronize(fence.0, PATIENCE)));
        thread::sleep(Duration::from_millis(5));
        queue.execute(&[&list], Some(&fence));
    });
    let other = gpu.queue(0);
    let mut lists = [list.0];
    refused!(
        ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT,
        zeCommandQueueExecuteCommandLists(other.0, 1, lists.as_mut_ptr(), fence.0)
    );
}

/// A list that waits for an event and signals another, both destroyed too early with their pool,
/// damages no other object: their memory is not reused as long as the list may still access it.
#[test]
fn events_that_are_destroyed_too_early_harm_nobody() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(1);
    for _ in 0..50 {
        let list = gpu.immediate(0, true);
        let pool = gpu.pool(2, NO_FLAGS);
        let (signalled, waited) = (pool.event(0), pool.event(1));
        list.barrier(Some(&signalled), &[&waited]);
        drop((list, signalled, waited, pool));
    }
    let queue = gpu.queue(0);
    for round in 1..200 {
        // These have the size of pools, so they would reuse memory that was freed too early.
        let (list, pool) = (gpu.regular(0, true), gpu.pool(2, NO_FLAGS));
        let (other, event) = (pool.event(0), pool.event(1));
        list.set((&memory, 0), round, Some(&event), &[]);
        list.close();
        queue.execute(&[&list], None);
        event.synchronize();
        queue.synchronize();
        assert_eq!(memory.get(0), round);
        thread::sleep(Duration::from_micros(200));
        assert!(!other.is_ready(), "nobody has signalled it");
    }
}
