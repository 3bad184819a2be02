// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counter-based events: the ways to create one, and the refused ones, through the stock loader.

use std::ffi::{CStr, c_void};
use std::ptr;

use tally_tests::gate::Gate;
use tally_tests::lists::{Event, NONE, Pool};
use tally_tests::ze::{self, Gpu};
use tally_tests::{call, check, refused};
use tally_ze::zex::*;
use tally_ze::*;

use ze_event_counter_based_flags_t as cb;
use zex_counter_based_event_exp_flags_t as zex;

/// The tests read memory after they have waited for an event.
const HOST: ze_event_scope_flags_t = ze_event_scope_flags_t::ZE_EVENT_SCOPE_FLAG_HOST;

fn create(gpu: &Gpu, flags: cb, next: *const c_void) -> Result<Event, ze_result_t> {
    let desc =
        ze_event_counter_based_desc_t { flags, signal: HOST, pNext: next, ..Default::default() };
    made(|event| call!(zeEventCounterBasedCreate(gpu.context, gpu.device, &raw const desc, event)))
}

fn create2(gpu: &Gpu, flags: zex, next: *const c_void) -> Result<Event, ze_result_t> {
    let desc = zex_counter_based_event_desc_t {
        flags,
        signalScope: HOST,
        pNext: next,
        ..Default::default()
    };
    made(|event| {
        call!(zexCounterBasedEventCreate2(gpu.context, gpu.device, &raw const desc, event))
    })
}

/// The first way: the call has the user's words.
fn create1(gpu: &Gpu, device: *mut u64, host: *mut u64, value: u64) -> Result<Event, ze_result_t> {
    let desc = ze_event_desc_t { signal: HOST, ..Default::default() };
    made(|event| {
        call!(zexCounterBasedEventCreate(
            gpu.context,
            gpu.device,
            device,
            host,
            value,
            &raw const desc,
            event
        ))
    })
}

fn made(call: impl FnOnce(*mut ze_event_handle_t) -> ze_result_t) -> Result<Event, ze_result_t> {
    let mut event = NONE;
    match call(&raw mut event) {
        ze_result_t::ZE_RESULT_SUCCESS => Ok(Event(event)),
        result => Err(result),
    }
}

fn pool(gpu: &Gpu, flags: ze_event_pool_counter_based_exp_flags_t) -> Pool {
    pool_with(gpu, flags, ze_event_pool_flags_t::empty())
}

fn pool_with(
    gpu: &Gpu,
    kinds: ze_event_pool_counter_based_exp_flags_t,
    flags: ze_event_pool_flags_t,
) -> Pool {
    let extension = ze_event_pool_counter_based_exp_desc_t { flags: kinds, ..Default::default() };
    gpu.pool_of(&ze_event_pool_desc_t {
        pNext: (&raw const extension).cast(),
        flags,
        count: 2,
        ..Default::default()
    })
}

/// "The implementation must support the ZEX_counter_based_event extension.": the driver names it and
/// the one of pools, and knows all their functions.
#[test]
fn the_extensions_are_there() {
    let gpu = Gpu::new();
    let mut count = 0;
    let driver = ze::driver();
    check!(zeDriverGetExtensionProperties(driver, &raw mut count, ptr::null_mut()));
    let mut all = vec![ze_driver_extension_properties_t::default(); count as usize];
    check!(zeDriverGetExtensionProperties(driver, &raw mut count, all.as_mut_ptr()));
    let names: Vec<String> = all
        .iter()
        // SAFETY: the driver ends each name with a NUL within its array.
        .map(|it| unsafe { CStr::from_ptr(it.name.as_ptr()) }.to_string_lossy().into_owned())
        .collect();
    for name in ["ZEX_counter_based_event", "ZE_experimental_event_pool_counter_based"] {
        assert!(names.iter().any(|it| it == name), "{name} in {names:?}");
    }
    for name in [
        c"zexCounterBasedEventCreate",
        c"zexCounterBasedEventCreate2",
        c"zexEventGetDeviceAddress",
        c"zexDeviceGetAggregatedCopyOffloadIncrementValue",
        c"zeEventCounterBasedCreate",
        c"zeEventCounterBasedGetDeviceAddress",
        c"zeEventGetCounterBasedFlags",
        c"zeDeviceGetAggregatedCopyOffloadIncrementValue",
        c"zeDeviceGetCounterBasedEventMaxValue",
    ] {
        let mut address = ptr::null_mut();
        check!(zeDriverGetExtensionFunctionAddress(driver, name.as_ptr(), &raw mut address));
        assert!(!address.is_null(), "{name:?}");
    }
    drop(gpu);
}

/// "There were multiple attempts to define creation API." "Third option is the most recent one. It
/// combines both previous attempts." Events of all ways do the same: "zex_counter_based_event_desc_t
/// structure defines all needed parameters." "This type of event, referred to as a Counter Based (CB)
/// Event, does not require an event pool, as the related allocations are managed internally by the
/// driver." And: "Counter-based events can be created by passing ze_event_pool_counter_based_exp_desc_t to zeEventPoolCreate as pNext member of
/// ze_event_pool_desc_t."
#[test]
fn events_of_all_ways_do_the_same() {
    let gpu = Gpu::new();
    let both = zex::ZEX_COUNTER_BASED_EVENT_FLAG_IMMEDIATE
        | zex::ZEX_COUNTER_BASED_EVENT_FLAG_NON_IMMEDIATE;
    let none = ptr::null_mut();
    let pool = pool(&gpu, ze_event_pool_counter_based_exp_flags_t::all());
    let events = [
        ("zexCounterBasedEventCreate", create1(&gpu, none, none, 0).expect("created")),
        ("pool", pool.event(1)),
        ("zexCounterBasedEventCreate2", create2(&gpu, both, ptr::null()).expect("created")),
        ("zeEventCounterBasedCreate", gpu.cb_event()),
    ];
    let memory = gpu.host::<u32>(1);
    let (immediate, regular, queue) = (gpu.immediate(0, true), gpu.regular(0, true), gpu.queue(0));
    for (name, event) in &events {
        assert!(event.is_ready(), "{name}: born complete");
        let gate = Gate::new(&gpu);
        immediate.set((&memory, 0), 1, Some(event), &[&gate.event]);
        assert!(!event.is_ready(), "{name}");
        gate.open();
        event.synchronize();
        assert_eq!(memory.get(0), 1, "{name}");
        memory.set(0, 0);
        regular.set((&memory, 0), 2, Some(event), &[]);
        regular.close();
        assert!(!event.is_ready(), "{name}: recorded");
        queue.execute(&[&regular], None);
        event.synchronize();
        assert_eq!(memory.get(0), 2, "{name}");
        let (core, (mut value, mut address)) = (event.address(), (0, 0));
        check!(zexEventGetDeviceAddress(event.0, &raw mut value, &raw mut address));
        assert_eq!((address, value), core, "{name}: both functions answer the same pair");
        queue.synchronize();
        regular.reset();
    }
}

/// "Including mapping of existing Event Pool flags (Timestamp, IPC, etc.) and external storage.": what
/// was asked for can be asked back, and an event for one kind of lists is refused by the other.
#[test]
fn flags_mean_the_same_in_all_ways() {
    let gpu = Gpu::new();
    let flags_of = |event: &Event| {
        let mut flags = cb::empty();
        check!(zeEventGetCounterBasedFlags(event.0, &raw mut flags));
        flags
    };
    let (immediate, regular) = (gpu.immediate(0, true), gpu.regular(0, true));
    let for_immediate = [
        create2(&gpu, zex::ZEX_COUNTER_BASED_EVENT_FLAG_IMMEDIATE, ptr::null()).expect("created"),
        create(&gpu, cb::ZE_EVENT_COUNTER_BASED_FLAG_IMMEDIATE, ptr::null()).expect("created"),
        create(&gpu, cb::empty(), ptr::null()).expect("0 means the default, IMMEDIATE"),
    ];
    for event in &for_immediate {
        assert_eq!(flags_of(event), cb::ZE_EVENT_COUNTER_BASED_FLAG_IMMEDIATE);
        refused!(
            ZE_RESULT_ERROR_INVALID_ARGUMENT,
            zeCommandListAppendSignalEvent(regular.0, event.0)
        );
        immediate.signal(event);
    }
    let for_regular = [
        create2(&gpu, zex::ZEX_COUNTER_BASED_EVENT_FLAG_NON_IMMEDIATE, ptr::null())
            .expect("created"),
        create(&gpu, cb::ZE_EVENT_COUNTER_BASED_FLAG_NON_IMMEDIATE, ptr::null()).expect("created"),
    ];
    for event in &for_regular {
        assert_eq!(flags_of(event), cb::ZE_EVENT_COUNTER_BASED_FLAG_NON_IMMEDIATE);
        refused!(
            ZE_RESULT_ERROR_INVALID_ARGUMENT,
            zeCommandListAppendSignalEvent(immediate.0, event.0)
        );
        regular.signal(event);
    }
    immediate.synchronize();
    let regular_event = gpu.pool(1, ze_event_pool_flags_t::empty());
    assert!(flags_of(&regular_event.event(0)).is_empty(), "returns 0 for regular events");

    // "Timestamp"
    let kinds = ze_event_pool_counter_based_exp_flags_t::all();
    let both = zex::ZEX_COUNTER_BASED_EVENT_FLAG_IMMEDIATE
        | zex::ZEX_COUNTER_BASED_EVENT_FLAG_NON_IMMEDIATE;
    let timed = pool_with(&gpu, kinds, ze_event_pool_flags_t::ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP);
    let flags2 = both | zex::ZEX_COUNTER_BASED_EVENT_FLAG_KERNEL_TIMESTAMP;
    for event in [
        timed.event(0),
        create2(&gpu, flags2, ptr::null()).expect("created"),
        gpu.cb_event_with(cb::ZE_EVENT_COUNTER_BASED_FLAG_DEVICE_TIMESTAMP),
    ] {
        immediate.signal(&event);
        event.synchronize();
        let mut times = ze_kernel_timestamp_result_t::default();
        check!(zeEventQueryKernelTimestamp(event.0, &raw mut times));
        assert_ne!(times.global.kernelEnd, 0);
    }
    let mut times = ze_kernel_timestamp_result_t::default();
    let untimed = call!(zeEventQueryKernelTimestamp(for_immediate[0].0, &raw mut times));
    assert_eq!(untimed, ze_result_t::ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT);

    // "IPC"
    let shared = pool_with(&gpu, kinds, ze_event_pool_flags_t::ZE_EVENT_POOL_FLAG_IPC);
    let flags2 = both | zex::ZEX_COUNTER_BASED_EVENT_FLAG_IPC;
    let mut handle = zex_ipc_counter_based_event_handle_t { data: [0; 64] };
    for event in [
        shared.event(0),
        create2(&gpu, flags2, ptr::null()).expect("created"),
        gpu.cb_event_with(cb::ZE_EVENT_COUNTER_BASED_FLAG_IPC),
    ] {
        immediate.signal(&event);
        assert!(flags_of(&event).contains(cb::ZE_EVENT_COUNTER_BASED_FLAG_IPC));
        check!(zexCounterBasedEventGetIpcHandle(event.0, &raw mut handle));
    }
    let unshared = call!(zexCounterBasedEventGetIpcHandle(for_immediate[0].0, &raw mut handle));
    assert_eq!(unshared, ze_result_t::ZE_RESULT_ERROR_INVALID_ARGUMENT);

    // "and external storage"
    let words = gpu.host::<u64>(1);
    words.set(0, 0);
    let word: *mut u64 = words.ptr();
    let core = ze_event_counter_based_external_sync_allocation_desc_t {
        deviceAddress: word,
        hostAddress: word,
        completionValue: 3,
        ..Default::default()
    };
    let zex = zex_counter_based_event_external_sync_alloc_properties_t {
        deviceAddress: word,
        hostAddress: word,
        completionValue: 3,
        ..Default::default()
    };
    for event in [
        create1(&gpu, word, word, 3).expect("created"),
        create2(&gpu, both, (&raw const zex).cast()).expect("created"),
        create(&gpu, cb::empty(), (&raw const core).cast()).expect("created"),
    ] {
        assert_eq!(event.address(), (word as u64, 3));
        assert!(!event.is_ready());
    }
    immediate.synchronize();
}

/// "At least one of the ZEX_COUNTER_BASED_EVENT_FLAG_IMMEDIATE /
/// ZEX_COUNTER_BASED_EVENT_FLAG_NON_IMMEDIATE flags must be set."
#[test]
fn create2_asks_for_a_kind_of_list() {
    let gpu = Gpu::new();
    for flags in [zex::empty(), zex::ZEX_COUNTER_BASED_EVENT_FLAG_HOST_VISIBLE] {
        let result = create2(&gpu, flags, ptr::null()).err();
        assert_eq!(result, Some(ze_result_t::ZE_RESULT_ERROR_INVALID_ARGUMENT));
        assert!(ze::description().contains("IMMEDIATE"), "{}", ze::description());
    }
}

/// "This extension cannot be used with \"external storage\" extension"; an increment of 0 would never
/// count; an address must be one: not null, aligned, and of memory that is there.
#[test]
fn wrong_storage_is_refused() {
    let gpu = Gpu::new();
    let word = gpu.host::<u64>(2);
    let at = word.ptr();
    let external = ze_event_counter_based_external_sync_allocation_desc_t {
        deviceAddress: at,
        hostAddress: at,
        completionValue: 1,
        ..Default::default()
    };
    let aggregate = ze_event_counter_based_external_aggregate_storage_desc_t {
        pNext: (&raw const external).cast(),
        deviceAddress: at,
        incrementValue: 1,
        completionValue: 1,
        ..Default::default()
    };
    let refuse = |what: &str, next: *const c_void, code: ze_result_t| {
        let flags = cb::ZE_EVENT_COUNTER_BASED_FLAG_IMMEDIATE;
        assert_eq!(create(&gpu, flags, next).err(), Some(code), "{what}");
        assert!(!ze::description().is_empty());
    };
    use ze_result_t as answer;
    let invalid = answer::ZE_RESULT_ERROR_INVALID_ARGUMENT;
    refuse("both", (&raw const aggregate).cast(), invalid);
    let nothing_there = 0x10_0000 as *mut u64;
    for (address, code) in [
        (ptr::null_mut(), answer::ZE_RESULT_ERROR_INVALID_NULL_POINTER),
        (at.wrapping_byte_add(4), answer::ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT),
        (nothing_there, invalid),
    ] {
        let aggregate = ze_event_counter_based_external_aggregate_storage_desc_t {
            pNext: ptr::null(),
            deviceAddress: address,
            ..aggregate
        };
        refuse("aggregate", (&raw const aggregate).cast(), code);
        for (device, host) in [(address, at), (at, address)] {
            let external = ze_event_counter_based_external_sync_allocation_desc_t {
                deviceAddress: device,
                hostAddress: host,
                ..external
            };
            refuse("external", (&raw const external).cast(), code);
            assert_eq!(create1(&gpu, device, host, 1).err(), Some(code), "the first way");
        }
    }
    let zero = ze_event_counter_based_external_aggregate_storage_desc_t {
        pNext: ptr::null(),
        incrementValue: 0,
        ..aggregate
    };
    refuse("increment 0", (&raw const zero).cast(), invalid);
    let zero = zex_counter_based_event_external_storage_properties_t {
        deviceAddress: at,
        incrementValue: 0,
        completionValue: 1,
        ..Default::default()
    };
    let immediate = zex::ZEX_COUNTER_BASED_EVENT_FLAG_IMMEDIATE;
    assert_eq!(create2(&gpu, immediate, (&raw const zero).cast()).err(), Some(invalid));
}

/// "Null pointers, unknown enumerators and structures with a wrong stype are refused by the driver
/// itself, not only by the loader's validation layer."
#[test]
fn wrong_descriptions_are_refused() {
    let gpu = Gpu::new();
    let mut event = NONE;
    let stype = ze_structure_type_t::ZE_STRUCTURE_TYPE_EVENT_DESC;
    let desc = ze_event_counter_based_desc_t { stype, ..Default::default() };
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeEventCounterBasedCreate(gpu.context, gpu.device, &raw const desc, &raw mut event)
    );
    let unknown = [
        ze_event_counter_based_desc_t {
            flags: cb::from_bits_retain(1 << 20),
            ..Default::default()
        },
        ze_event_counter_based_desc_t {
            signal: ze_event_scope_flags_t::from_bits_retain(8),
            ..Default::default()
        },
        ze_event_counter_based_desc_t {
            wait: ze_event_scope_flags_t::from_bits_retain(8),
            ..Default::default()
        },
    ];
    for desc in unknown {
        refused!(
            ZE_RESULT_ERROR_INVALID_ENUMERATION,
            zeEventCounterBasedCreate(gpu.context, gpu.device, &raw const desc, &raw mut event)
        );
    }
    let desc = ze_event_counter_based_desc_t::default();
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_POINTER,
        zeEventCounterBasedCreate(gpu.context, gpu.device, &raw const desc, ptr::null_mut())
    );
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_HANDLE,
        zeEventCounterBasedCreate(
            ze_context_handle_t::NULL,
            gpu.device,
            &raw const desc,
            &raw mut event
        )
    );
    let none: *const zex_counter_based_event_desc_t = ptr::null();
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_POINTER,
        zexCounterBasedEventCreate2(gpu.context, gpu.device, none, &raw mut event)
    );
    let regular = gpu.pool(1, ze_event_pool_flags_t::empty());
    let (regular, mut value, mut address) = (regular.event(0), 0, 0);
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeEventCounterBasedGetDeviceAddress(regular.0, &raw mut value, &raw mut address)
    );
}

/// "Returns maximum value supported by the driver for Counter Based Events created with externally
/// managed counter storage", and the increment of an append, which is one operation of the device.
#[test]
fn the_device_tells_its_values() {
    let gpu = Gpu::new();
    let (mut max, mut core, mut zex) = (0, 0, 0);
    check!(zeDeviceGetCounterBasedEventMaxValue(gpu.device, &raw mut max));
    assert_eq!(max, u64::MAX);
    check!(zeDeviceGetAggregatedCopyOffloadIncrementValue(gpu.device, &raw mut core));
    check!(zexDeviceGetAggregatedCopyOffloadIncrementValue(gpu.device, &raw mut zex));
    assert_eq!((core, zex), (1, 1));
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_POINTER,
        zeDeviceGetCounterBasedEventMaxValue(gpu.device, ptr::null_mut())
    );
    let mut can = ze_device_event_properties_t::default();
    let mut properties =
        ze_device_properties_t { pNext: (&raw mut can).cast(), ..Default::default() };
    check!(zeDeviceGetProperties(gpu.device, &raw mut properties));
    use ze_device_event_properties_flags_t as can_flag;
    assert!(can.flags.contains(
        can_flag::ZE_DEVICE_EVENT_PROPERTIES_FLAG_COUNTER_BASED_EXTERNAL_AGGREGATE_STORAGE
            | can_flag::ZE_DEVICE_EVENT_PROPERTIES_FLAG_COUNTER_BASED_EXTERNAL_SYNC_ALLOCATION
    ));
}

/// "CB Event doesn't own any memory allocations. Can be reused/destroyed with low cost.": events of one
/// list share its counter, wherever they came from; a hundred thousand come and go unsignalled and
/// signalled, and what their pairs said stays true.
#[test]
fn an_event_owns_no_memory() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(1);
    let list = gpu.immediate(0, true);
    let events: Vec<_> = (0..100).map(|_| gpu.cb_event()).collect();
    for event in &events {
        list.set((&memory, 0), 1, Some(event), &[]);
    }
    let pairs: Vec<_> = events.iter().map(Event::address).collect();
    assert!(pairs.iter().all(|(address, _)| *address == pairs[0].0), "one counter");
    assert!(pairs.is_sorted_by_key(|(_, value)| *value));
    drop(events);
    list.synchronize();
    for _ in 0..100_000 {
        drop(gpu.cb_event());
    }
    let event = gpu.cb_event();
    list.set((&memory, 0), 1, Some(&event), &[]);
    assert_eq!(event.address().0, pairs[0].0);
    list.synchronize();
}
