// SPDX-License-Identifier: MIT OR Apache-2.0
//! Timestamps of events on the device's clock and on the host's, through the stock loader.

use std::ffi::c_void;
use std::ptr;
use std::time::Duration;

use tally_tests::lists::{Event, List, NONE, Pool};
use tally_tests::ze::{Gpu, Usm};
use tally_tests::{call, check, refused};
use tally_ze::*;

use ze_event_counter_based_flags_t as cb;
use ze_event_pool_flags_t as pool;

type Times = ze_kernel_timestamp_result_t;
type Synchronized = ze_synchronized_timestamp_result_ext_t;

/// Events with timestamps, each with its owner: of a pool, and counter-based; for the device's clock,
/// and for the host's too.
fn events(gpu: &Gpu) -> Vec<(&'static str, bool, Event, Option<Pool>)> {
    let of_pool = |flags| {
        let pool = gpu.pool(1, flags);
        (pool.event(0), Some(pool))
    };
    let (device, device_pool) = of_pool(pool::ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP);
    let (host, host_pool) = of_pool(pool::ZE_EVENT_POOL_FLAG_KERNEL_MAPPED_TIMESTAMP);
    let cb_device = gpu.cb_event_with(cb::ZE_EVENT_COUNTER_BASED_FLAG_DEVICE_TIMESTAMP);
    let cb_host = gpu.cb_event_with(cb::ZE_EVENT_COUNTER_BASED_FLAG_HOST_TIMESTAMP);
    vec![
        ("pool", false, device, device_pool),
        ("mapped pool", true, host, host_pool),
        ("counter-based", false, cb_device, None),
        ("counter-based, host", true, cb_host, None),
    ]
}

fn kernel_times(event: &Event) -> Times {
    let mut times = Times::default();
    check!(zeEventQueryKernelTimestamp(event.0, &raw mut times));
    times
}

fn global_timestamps(gpu: &Gpu) -> (u64, u64) {
    let (mut host, mut device) = (0, 0);
    check!(zeDeviceGetGlobalTimestamps(gpu.device, &raw mut host, &raw mut device));
    (host, device)
}

fn in_order(times: &Times) -> bool {
    let Times { global, context } = times;
    0 < global.kernelStart
        && global.kernelStart <= global.kernelEnd
        && context.kernelStart <= context.kernelEnd
}

/// "A kernel timestamp event is a special type of event that records device timestamps at the start
/// and end of the execution of kernels." "For consistency and orthogonality, kernel timestamps are
/// also supported for non-kernel operations." The device's times lie between its global timestamps
/// before and after, and all three ways to ask answer the same.
#[test]
fn all_queries_tell_the_same_times() {
    let gpu = Gpu::new();
    let (memory, list) = (gpu.host::<u32>(1), gpu.immediate(0, true));
    for (name, _, event, _pool) in events(&gpu) {
        let (_, before) = global_timestamps(&gpu);
        list.set((&memory, 0), 1, Some(&event), &[]);
        event.synchronize();
        let (_, after) = global_timestamps(&gpu);
        let times = kernel_times(&event);
        assert!(in_order(&times), "{name}: {times:?}");
        assert!(before <= times.global.kernelStart && times.global.kernelEnd <= after, "{name}");

        let (mut count, mut exp) = (0, Times::default());
        let none = ptr::null_mut();
        check!(zeEventQueryTimestampsExp(event.0, gpu.device, &raw mut count, none));
        assert_eq!(count, 1, "one command, one result");
        check!(zeEventQueryTimestampsExp(event.0, gpu.device, &raw mut count, &raw mut exp));
        let mut ext = Times::default();
        let mut results = ze_event_query_kernel_timestamps_results_ext_properties_t {
            pKernelTimestampsBuffer: &raw mut ext,
            ..Default::default()
        };
        let mut count = 0;
        check!(zeEventQueryKernelTimestampsExt(event.0, gpu.device, &raw mut count, none_of()));
        assert_eq!(count, 1);
        check!(zeEventQueryKernelTimestampsExt(
            event.0,
            gpu.device,
            &raw mut count,
            &raw mut results
        ));
        for other in [exp, ext] {
            assert_eq!(format!("{other:?}"), format!("{times:?}"), "{name}");
        }
    }
}

fn none_of() -> *mut ze_event_query_kernel_timestamps_results_ext_properties_t {
    ptr::null_mut()
}

/// The host's global timestamp is CLOCK_MONOTONIC_RAW. The specification leaves that open; Intel's driver takes
/// this clock, and Unified Runtime reads it itself where it needs the host's time alone.
#[test]
fn the_hosts_timestamp_is_of_the_clock_that_programs_expect() {
    let gpu = Gpu::new();
    for _ in 0..100 {
        let before = host_ns();
        let (host, _) = global_timestamps(&gpu);
        let after = host_ns();
        assert!((before..=after).contains(&host), "{before}, {host}, {after}");
    }
}

/// "Indicates that event will contain timestamps converted to the host time domain": they lie
/// between two looks at the host's clock, CLOCK_MONOTONIC_RAW as with Intel's driver, and are as long as
/// the device's own. The device says that it can do so.
#[test]
fn mapped_times_are_on_the_hosts_clock() {
    let gpu = Gpu::new();
    let mut can = ze_event_query_kernel_timestamps_ext_properties_t::default();
    let mut properties =
        ze_device_properties_t { pNext: (&raw mut can).cast(), ..Default::default() };
    check!(zeDeviceGetProperties(gpu.device, &raw mut properties));
    assert_eq!(can.flags, ze_event_query_kernel_timestamps_ext_flags_t::all());

    let (memory, list) = (gpu.host::<u32>(1), gpu.immediate(0, true));
    for (name, mapped, event, _pool) in events(&gpu) {
        if !mapped {
            continue;
        }
        let (mut last, mut last_error) = (0, 0);
        for _ in 0..20 {
            let before = host_ns();
            list.set((&memory, 0), 1, Some(&event), &[]);
            event.synchronize();
            let ((host, error), after) = (synchronized(&gpu, &event), host_ns());
            let device = kernel_times(&event).global;
            let is_between = before <= host.kernelStart + error && host.kernelEnd <= after + error;
            assert!(is_between, "{name}: {before}, {host:?}, {after}; {error}");
            let length = device.kernelEnd - device.kernelStart;
            assert_eq!(host.kernelEnd - host.kernelStart, length, "{name}");
            let room = error + last_error;
            assert!(last <= host.kernelStart + room, "{name}: one timeline; {room}");
            (last, last_error) = (host.kernelEnd, error);
            let (again, error) = synchronized(&gpu, &event);
            let differs = again.kernelStart.abs_diff(host.kernelStart);
            assert!(differs <= error + last_error, "{name}: {host:?}, {again:?}");
            // A regular event is reused after a reset, a counter-based one without one.
            if _pool.is_some() {
                event.reset();
            }
        }
    }
}

/// Times on the host's clock, and their possible error. The driver compares that clock with its own during
/// the call, and the kernel module reads the device's. Both keep their earlier estimate unless that
/// contradicts what they read, so the error is at most the duration of the call.
fn synchronized(gpu: &Gpu, event: &Event) -> (ze_synchronized_timestamp_data_ext_t, u64) {
    let mut times = Synchronized::default();
    let mut results = ze_event_query_kernel_timestamps_results_ext_properties_t {
        pSynchronizedTimestampsBuffer: &raw mut times,
        ..Default::default()
    };
    let mut count = 1;
    let results = &raw mut results;
    let before = host_ns();
    check!(zeEventQueryKernelTimestampsExt(event.0, gpu.device, &raw mut count, results));
    (times.global, host_ns() - before)
}

fn host_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the place is ours to write.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_RAW, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// "Cannot be combined with ::ZE_EVENT_COUNTER_BASED_FLAG_HOST_TIMESTAMP", and the same of pools;
/// "Timestamps are not allowed for IPC sharing."
#[test]
fn wrong_combinations_of_times_are_refused() {
    let gpu = Gpu::new();
    let both = pool::ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP
        | pool::ZE_EVENT_POOL_FLAG_KERNEL_MAPPED_TIMESTAMP;
    let desc = ze_event_pool_desc_t { flags: both, count: 1, ..Default::default() };
    let (mut pool, none) = (ze_event_pool_handle_t::NULL, ptr::null_mut());
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeEventPoolCreate(gpu.context, &raw const desc, 0, none, &raw mut pool)
    );
    let (device, host) = (
        cb::ZE_EVENT_COUNTER_BASED_FLAG_DEVICE_TIMESTAMP,
        cb::ZE_EVENT_COUNTER_BASED_FLAG_HOST_TIMESTAMP,
    );
    let ipc = cb::ZE_EVENT_COUNTER_BASED_FLAG_IPC;
    let mut event = NONE;
    for flags in [device | host, device | ipc, host | ipc] {
        let desc = ze_event_counter_based_desc_t { flags, ..Default::default() };
        refused!(
            ZE_RESULT_ERROR_INVALID_ARGUMENT,
            zeEventCounterBasedCreate(gpu.context, gpu.device, &raw const desc, &raw mut event)
        );
    }
}

/// Copies the times of events by the device, to `dst`; at `offsets` or one after the other.
fn append_query(list: &List, events: &[&Event], dst: *mut c_void, offsets: Option<&[usize]>) {
    let mut raws: Vec<_> = events.iter().map(|event| event.0).collect();
    check!(zeCommandListAppendQueryKernelTimestamps(
        list.0,
        raws.len() as u32,
        raws.as_mut_ptr(),
        dst,
        offsets.map_or(ptr::null(), <[usize]>::as_ptr),
        NONE,
        0,
        ptr::null_mut()
    ));
}

/// "If pOffsets is nullptr, then multiple results will be appended sequentially into memory in the
/// same order as phEvents." With offsets, each is written where its offset says.
/// "Append a query of a timestamp event into the command list".
#[test]
fn the_device_copies_times_to_where_it_is_told() {
    let gpu = Gpu::new();
    let (memory, copies) = (gpu.host::<u32>(1), gpu.host::<Times>(8));
    let list = gpu.immediate(0, true);
    let events: Vec<_> = events(&gpu);
    let all: Vec<&Event> = events.iter().map(|(_, _, event, _)| event).collect();
    for event in &all {
        list.set((&memory, 0), 1, Some(event), &[]);
    }
    append_query(&list, &all, copies.ptr().cast(), None);
    let size = size_of::<Times>();
    let offsets = [3, 1, 2, 0].map(|place| (4 + place) * size);
    append_query(&list, &all, copies.ptr().cast(), Some(&offsets));
    list.synchronize();
    for (i, (name, _, event, _)) in events.iter().enumerate() {
        let expected = format!("{:?}", kernel_times(event));
        assert_eq!(format!("{:?}", copies.get(i)), expected, "{name}");
        assert_eq!(format!("{:?}", copies.get(offsets[i] / size)), expected, "{name}");
    }
}

/// The append of a query determines the signal that it refers to, in an immediate and in a regular
/// list: a later signal of the same event does not change that. A regular list queries again each time
/// it is executed.
#[test]
fn a_query_means_the_signal_before_it() {
    let gpu = Gpu::new();
    let flags = cb::ZE_EVENT_COUNTER_BASED_FLAG_DEVICE_TIMESTAMP;
    let (memory, copies) = (gpu.host::<u32>(1), gpu.host::<Times>(4));
    let (immediate, event) = (gpu.immediate(0, true), gpu.cb_event_with(flags));
    let at = |place: usize| copies.ptr().wrapping_add(place).cast();
    immediate.set((&memory, 0), 1, Some(&event), &[]);
    append_query(&immediate, &[&event], at(0), None);
    immediate.set((&memory, 0), 2, Some(&event), &[]);
    append_query(&immediate, &[&event], at(1), None);
    immediate.synchronize();
    assert!(copies.get(0).global.kernelEnd <= copies.get(1).global.kernelStart);

    let (regular, queue) = (gpu.regular(0, true), gpu.queue(0));
    regular.set((&memory, 0), 1, Some(&event), &[]);
    append_query(&regular, &[&event], at(2), None);
    regular.set((&memory, 0), 2, Some(&event), &[]);
    append_query(&regular, &[&event], at(3), None);
    regular.close();
    let mut last = copies.get(1).global.kernelEnd;
    for _ in 0..3 {
        queue.execute(&[&regular], None);
        queue.synchronize();
        let [first, second] = [copies.get(2), copies.get(3)];
        assert!(in_order(&first) && in_order(&second));
        assert!(last <= first.global.kernelStart);
        assert!(first.global.kernelEnd <= second.global.kernelStart);
        last = second.global.kernelEnd;
        assert_eq!(format!("{:?}", kernel_times(&event)), format!("{second:?}"));
    }
}

/// "Timestamp allocation is also handled internally by the Driver": an append has a place of its own
/// for its times. A query after another append has signalled the event returns that one's times, and
/// never reads memory of a destroyed list.
#[test]
fn times_outlive_their_list() {
    let gpu = Gpu::new();
    let flags = cb::ZE_EVENT_COUNTER_BASED_FLAG_DEVICE_TIMESTAMP;
    let memory = gpu.host::<u32>(1);
    let (first, second) = (gpu.cb_event_with(flags), gpu.cb_event_with(flags));
    let list = gpu.immediate(0, true);
    list.set((&memory, 0), 1, Some(&first), &[]);
    first.synchronize();
    let times = format!("{:?}", kernel_times(&first));
    drop(list);
    for _ in 0..20 {
        let other = gpu.immediate(0, true);
        for _ in 0..200 {
            other.set((&memory, 0), 2, Some(&second), &[]);
        }
        other.synchronize();
    }
    assert_eq!(format!("{:?}", kernel_times(&first)), times);
}

/// "Kernel timestamps execute along a device timeline but because of limited range may wrap
/// unexpectedly." The guide's formula, with its mask in 64 bits, gives the time that passed, whether
/// timerResolution was asked for in ns or in Hz.
/// "The primary motivation for kernel timestamps is to provide a duration of execution."; "Calculation
/// execution time(s)".
#[test]
fn the_guides_formula_gives_the_duration() {
    let gpu = Gpu::new();
    let mut in_ns = ze_device_properties_t::default();
    check!(zeDeviceGetProperties(gpu.device, &raw mut in_ns));
    let mut in_hz = ze_device_properties_t {
        stype: ze_structure_type_t::ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2,
        ..Default::default()
    };
    check!(zeDeviceGetProperties(gpu.device, &raw mut in_hz));
    let bits = in_ns.kernelTimestampValidBits;
    assert!((32..=64).contains(&bits) && bits == in_hz.kernelTimestampValidBits);
    let max = u64::MAX >> (64 - bits);
    let ns_per_tick = 1e9 / in_hz.timerResolution as f64;
    assert_eq!(ns_per_tick, in_ns.timerResolution as f64);
    let duration = |start: u64, end: u64| {
        let ticks = if end >= start { end - start } else { (max - start) + end + 1 };
        ticks as f64 * ns_per_tick
    };
    assert_eq!(duration(max - 9, 10), 20.0 * ns_per_tick, "over the end of the range");

    let pool = gpu.pool(2, pool::ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP);
    let (first, second) = (pool.event(0), pool.event(1));
    let (memory, list) = (gpu.host::<u32>(1), gpu.immediate(0, true));
    list.set((&memory, 0), 1, Some(&first), &[]);
    first.synchronize();
    let pause = Duration::from_millis(20);
    std::thread::sleep(pause);
    list.set((&memory, 0), 1, Some(&second), &[]);
    second.synchronize();
    let (one, two) = (kernel_times(&first).global, kernel_times(&second).global);
    assert!(
        [one.kernelStart, one.kernelEnd, two.kernelStart, two.kernelEnd]
            .iter()
            .all(|it| *it <= max)
    );
    let passed = duration(one.kernelStart, two.kernelEnd);
    assert!(passed >= pause.as_nanos() as f64, "{passed} ns");
}

/// Host and device timestamps of one call are the same moment: the difference of two calls is the
/// same on both clocks, and a time that a list writes lies between them.
/// "zeCommandListAppendWriteGlobalTimestamp provides a similar mechanism but with maximum range."
#[test]
fn global_timestamps_are_consistent() {
    let gpu = Gpu::new();
    let (written, list) = (gpu.host::<u64>(1), gpu.immediate(0, true));
    let read = || {
        let before = host_ns();
        (global_timestamps(&gpu), host_ns() - before)
    };
    let ((host, device), error) = read();
    check!(zeCommandListAppendWriteGlobalTimestamp(
        list.0,
        written.ptr(),
        NONE,
        0,
        ptr::null_mut()
    ));
    list.synchronize();
    let ((later_host, later_device), later_error) = read();
    // The error of each pair is at most the duration of its own read; see `synchronized`. While the system's time
    // is corrected, the rates differ by up to 0.05 %.
    let error = error + later_error + (later_host - host) / 1000;
    let [on_host, on_device] = [later_host - host, later_device - device];
    assert!(on_host.abs_diff(on_device) <= error, "{on_host}, {on_device}; {error}");
    assert!(device <= written.get(0) && written.get(0) <= later_device);
    assert!(host <= later_host && later_host <= host_ns());
}

/// "The value(s) written to the destination buffer are undefined if any timestamp event has not been
/// signaled", but a query of an event that has no times, or never had a signal, is refused; and
/// "The destination memory will be unmodified if the event has not been signaled."
#[test]
fn times_that_do_not_exist_are_not_given() {
    let gpu = Gpu::new();
    let (list, copies): (List, Usm<Times>) = (gpu.immediate(0, true), gpu.host(1));
    let never = gpu.cb_event_with(cb::ZE_EVENT_COUNTER_BASED_FLAG_DEVICE_TIMESTAMP);
    let without = gpu.cb_event();
    for event in [&never, &without] {
        let mut raws = [event.0];
        refused!(
            ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT,
            zeCommandListAppendQueryKernelTimestamps(
                list.0,
                1,
                raws.as_mut_ptr(),
                copies.ptr().cast(),
                ptr::null(),
                NONE,
                0,
                ptr::null_mut()
            )
        );
    }
    let pool = gpu.pool(1, pool::ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP);
    let event = pool.event(0);
    let mut times = Times::default();
    times.global.kernelStart = 77;
    let result = call!(zeEventQueryKernelTimestamp(event.0, &raw mut times));
    assert_eq!(result, ze_result_t::ZE_RESULT_NOT_READY);
    assert_eq!(times.global.kernelStart, 77);
}
