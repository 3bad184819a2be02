// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counter-based events, through the stock loader: the documents' examples and their rules.

use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use tally_tests::lists::{Event, List, NONE, PATIENCE, Queue};
use tally_tests::ze::{Gpu, Usm};
use tally_tests::{call, check, refused};
use tally_ze::zex::*;
use tally_ze::*;

const NO_FLAGS: ze_event_pool_flags_t = ze_event_pool_flags_t::empty();

/// A list that waits for an event until the test signals it.
struct Gate {
    event: Event,
    _pool: tally_tests::lists::Pool,
}

impl Gate {
    fn new(gpu: &Gpu) -> Self {
        let pool = gpu.pool(1, NO_FLAGS);
        Self { event: pool.event(0), _pool: pool }
    }
}

fn value_at(address: u64) -> u64 {
    // SAFETY: counters stay readable as long as the context lives.
    let counter = unsafe { &*ptr::with_exposed_provenance::<AtomicU64>(address as usize) };
    counter.load(Ordering::Acquire)
}

/// "After creation, a CB Event is initially marked as completed." All forms of creation.
#[test]
fn an_event_is_born_completed() {
    let gpu = Gpu::new();
    let core = gpu.cb_event();
    assert!(core.is_ready());
    core.synchronize();
    let desc = zex_counter_based_event_desc_t {
        flags: zex_counter_based_event_exp_flags_t::ZEX_COUNTER_BASED_EVENT_FLAG_IMMEDIATE,
        ..Default::default()
    };
    let mut raw = NONE;
    check!(zexCounterBasedEventCreate2(gpu.context, gpu.device, &raw const desc, &raw mut raw));
    assert!(Event(raw).is_ready());
    let extension = ze_event_pool_counter_based_exp_desc_t::default();
    let pool = gpu.pool_of(&ze_event_pool_desc_t {
        pNext: (&raw const extension).cast(),
        count: 2,
        ..Default::default()
    });
    assert!(pool.event(1).is_ready());
    // "In the pool form and the core form 0 means the default, IMMEDIATE."
    let mut flags = ze_event_counter_based_flags_t::empty();
    check!(zeEventGetCounterBasedFlags(pool.event(0).0, &raw mut flags));
    assert_eq!(flags, ze_event_counter_based_flags_t::ZE_EVENT_COUNTER_BASED_FLAG_IMMEDIATE);
}

/// "reuse without waiting/reset": "A new API call just replaces its previous state"; an earlier wait
/// still refers to the previous state, and the event may be deleted.
#[test]
fn an_event_is_reused_without_reset() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(4);
    let gate = Gate::new(&gpu);
    let (list1, list2, list3) =
        (gpu.immediate(0, true), gpu.immediate(0, true), gpu.immediate(0, true));
    let event = gpu.cb_event();
    list1.set((&memory, 0), 1, Some(&event), &[&gate.event]);
    list2.copy((&memory, 1), (&memory, 0), 1, None, &[&event]);
    assert!(!event.is_ready());
    list3.set((&memory, 2), 3, Some(&event), &[]);
    event.synchronize();
    assert_eq!(memory.to_vec(), [0, 0, 3, 0], "list 2 waits for list 1 still");
    drop(event);
    gate.event.signal();
    list2.synchronize();
    assert_eq!(memory.to_vec(), [1, 1, 3, 0]);
}

/// "a signaled counter-based event always represents the completion of the last call to which it was
/// passed as signal event": its address and value agree with that, and stay valid.
#[test]
fn the_address_tells_what_the_event_tells() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(1);
    let gate = Gate::new(&gpu);
    let list = gpu.immediate(0, true);
    let event = gpu.cb_event();
    let (mut value, mut address) = (0, 0);
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeEventCounterBasedGetDeviceAddress(event.0, &raw mut value, &raw mut address)
    );
    list.set((&memory, 0), 1, Some(&event), &[]);
    event.synchronize();
    let (first, one) = event.address();
    list.set((&memory, 0), 2, Some(&event), &[&gate.event]);
    let (second, two) = event.address();
    assert_eq!(first, second, "one counter a list");
    assert!(value_at(first) >= one && value_at(second) < two);
    gate.event.signal();
    event.synchronize();
    assert!(value_at(second) >= two);
    drop(list);
    for _ in 0..10 {
        let next = gpu.immediate(0, true);
        let other = gpu.cb_event();
        next.set((&memory, 0), 3, Some(&other), &[]);
        next.synchronize();
        assert!(value_at(second) >= two, "a pair that was reached stays so");
    }
}

struct Lists {
    list1: List,
    list2: List,
    queue1: Queue,
    queue2: Queue,
}

impl Lists {
    fn new(gpu: &Gpu) -> Self {
        let (list1, list2) = (gpu.regular(0, true), gpu.regular(0, true));
        Self { list1, list2, queue1: gpu.queue(0), queue2: gpu.queue(0) }
    }
}

/// "Any waiting operation on such Event, must ensure that it is waiting for the correct
/// zeCommandQueueExecuteCommandLists call": list 2 waits for the execution of list 1 before it.
#[test]
fn a_recorded_wait_means_the_latest_execution() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(4);
    let Lists { list1, list2, queue1, queue2 } = &Lists::new(&gpu);
    let event = gpu.cb_event();
    list1.copy((&memory, 1), (&memory, 0), 1, None, &[]);
    list1.copy((&memory, 2), (&memory, 1), 1, Some(&event), &[]);
    list1.copy((&memory, 1), (&memory, 0), 1, None, &[]);
    list1.close();
    list2.copy((&memory, 3), (&memory, 2), 1, None, &[&event]);
    list2.close();
    assert!(!event.is_ready(), "from its append to a regular list on it is not ready");
    for round in 1..50 {
        memory.set(0, round);
        queue1.execute(&[list1], None);
        queue2.execute(&[list2], None);
        queue2.synchronize();
        assert_eq!(memory.get(3), round);
        queue1.synchronize();
        assert!(event.is_ready());
    }
}

/// "Multi directional dependencies on Regular command lists", as the document tells it: in the
/// second round list 1 waits for the first round of list 2. Each signal is recorded before the wait
/// for it.
#[test]
fn two_lists_wait_for_each_other() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(8);
    let Lists { list1, list2, queue1, queue2 } = &Lists::new(&gpu);
    let (a, b) = (gpu.cb_event(), gpu.cb_event());
    list1.copy((&memory, 1), (&memory, 0), 1, Some(&a), &[]);
    list2.wait(&[&a]);
    list2.copy((&memory, 2), (&memory, 1), 1, Some(&b), &[]);
    list2.close();
    list1.wait(&[&b]);
    list1.copy((&memory, 3), (&memory, 2), 1, None, &[]);
    list1.close();
    assert!(!a.is_ready() && !b.is_ready(), "all events are in \"not ready\" state");

    memory.set(0, 7);
    queue1.execute(&[list1], None);
    let first = call!(zeCommandQueueSynchronize(queue1.0, 20_000_000));
    assert_eq!(first, ze_result_t::ZE_RESULT_NOT_READY, "list 1 waits for list 2");
    queue2.execute(&[list2], None);
    queue1.synchronize();
    queue2.synchronize();
    assert_eq!(&memory.to_vec()[..4], [7; 4]);

    memory.set(0, 8);
    queue1.execute(&[list1], None);
    queue1.synchronize();
    assert_eq!(&memory.to_vec()[..4], [8, 8, 7, 7], "list 1 found the B of the first round");
    queue2.execute(&[list2], None);
    queue2.synchronize();
    assert_eq!(&memory.to_vec()[..4], [8, 8, 8, 7]);
}

/// "After creation, a CB Event is initially marked as completed": a wait that is recorded then
/// waits for nothing, also when another list has recorded a signal by the time of the execution.
#[test]
fn a_wait_recorded_before_the_first_signal_is_met() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(3);
    let Lists { list1, list2, queue1, queue2 } = &Lists::new(&gpu);
    let (a, b) = (gpu.cb_event(), gpu.cb_event());
    memory.set(0, 7);
    list1.copy((&memory, 1), (&memory, 0), 1, Some(&a), &[&b]);
    list1.close();
    list2.copy((&memory, 2), (&memory, 1), 1, Some(&b), &[&a]);
    list2.close();
    queue1.execute(&[list1], None);
    queue1.synchronize();
    queue2.execute(&[list2], None);
    queue2.synchronize();
    assert_eq!(memory.to_vec(), [7, 7, 7]);
}

/// "An event may be destroyed after it was recorded and before the list is executed: the recorded
/// dependency holds."
#[test]
fn a_recorded_dependency_outlives_its_event() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(3);
    let gate = Gate::new(&gpu);
    let Lists { list1, list2, queue1, queue2 } = &Lists::new(&gpu);
    let event = gpu.cb_event();
    list1.set((&memory, 0), 5, Some(&event), &[&gate.event]);
    list1.close();
    list2.copy((&memory, 1), (&memory, 0), 1, None, &[&event]);
    list2.close();
    drop(event);
    queue1.execute(&[list1], None);
    queue2.execute(&[list2], None);
    assert_eq!(memory.get(1), 0);
    gate.event.signal();
    queue2.synchronize();
    assert_eq!(memory.get(1), 5);
    queue1.synchronize();
}

/// "Every execution of a regular list gives the events that it signals the state of that
/// execution, also when another list has signalled them since."
#[test]
fn an_execution_takes_its_events_back() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(2);
    let gate = Gate::new(&gpu);
    let Lists { list1, queue1, .. } = &Lists::new(&gpu);
    let (immediate, event) = (gpu.immediate(0, true), gpu.cb_event());
    list1.set((&memory, 0), 1, Some(&event), &[&gate.event]);
    list1.close();
    immediate.set((&memory, 1), 1, Some(&event), &[]);
    event.synchronize();
    queue1.execute(&[list1], None);
    assert!(!event.is_ready());
    gate.event.signal();
    event.synchronize();
    assert_eq!(memory.get(0), 1);
    queue1.synchronize();
}

/// Executions of one list that overlap run one after the other.
#[test]
fn executions_of_one_list_serialise() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(8);
    memory.fill_with(|i| i as u32);
    let Lists { list1, queue1, queue2, .. } = &Lists::new(&gpu);
    // Rotates: after n executions element i holds (i + n) mod 7.
    for i in 0..8 {
        list1.copy((&memory, (i + 7) % 8), (&memory, i), 1, None, &[]);
    }
    list1.close();
    for _ in 0..20 {
        queue1.execute(&[list1], None);
        queue2.execute(&[list1], None);
    }
    queue1.synchronize();
    queue2.synchronize();
    let mut model: Vec<u32> = (0..8).collect();
    for _ in 0..40 {
        (0..8).for_each(|i| model[(i + 7) % 8] = model[i]);
    }
    assert_eq!(memory.to_vec(), model);
}

/// Operations that are only for regular events are refused, each with a reason.
#[test]
fn what_only_regular_events_may_do_is_refused() {
    let gpu = Gpu::new();
    let event = gpu.cb_event();
    let (ordered, unordered) = (gpu.immediate(0, true), gpu.immediate(0, false));
    refused!(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeEventHostSignal(event.0));
    refused!(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeEventHostReset(event.0));
    refused!(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeCommandListAppendEventReset(ordered.0, event.0));
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeCommandListAppendSignalEvent(unordered.0, event.0)
    );
    assert!(event.is_ready(), "what was refused has changed nothing");
    let mut raw = NONE;
    let desc = zex_counter_based_event_desc_t::default();
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zexCounterBasedEventCreate2(gpu.context, gpu.device, &raw const desc, &raw mut raw)
    );
    let desc = ze_event_counter_based_desc_t::default();
    check!(zeEventCounterBasedCreate(gpu.context, gpu.device, &raw const desc, &raw mut raw));
    let immediate_only = Event(raw);
    let regular = gpu.regular(0, true);
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeCommandListAppendSignalEvent(regular.0, immediate_only.0)
    );
}

/// A list that is reset before it was ever executed leaves its event not ready, without a hang.
#[test]
fn a_list_that_never_ran_leaves_its_event_unready() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(2);
    let (list, event) = (gpu.regular(0, true), gpu.cb_event());
    list.set((&memory, 0), 1, Some(&event), &[]);
    list.close();
    list.reset();
    assert!(!event.is_ready());
    refused!(ZE_RESULT_ERROR_DEVICE_LOST, zeEventHostSynchronize(event.0, PATIENCE));
    let immediate = gpu.immediate(0, true);
    let (dst, mut waits) = (memory.ptr().cast(), [event.0]);
    refused!(
        ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT,
        zeCommandListAppendMemoryCopy(immediate.0, dst, dst, 4, NONE, 1, waits.as_mut_ptr())
    );
    immediate.set((&memory, 1), 1, Some(&event), &[]);
    event.synchronize();
}

/// External storage: "User is responsible for updating both memory locations to >= completionValue
/// to signal Event completion. Signaling such event, replaces the state."
#[test]
fn an_external_event_follows_the_users_word() {
    let gpu = Gpu::new();
    let (memory, word) = (gpu.host::<u32>(2), gpu.host::<u64>(1));
    word.set(0, 0);
    let extension = ze_event_counter_based_external_sync_allocation_desc_t {
        deviceAddress: word.ptr(),
        hostAddress: word.ptr(),
        completionValue: 5,
        ..Default::default()
    };
    let event = with_extension(&gpu, (&raw const extension).cast());
    assert!(!event.is_ready());
    assert_eq!(event.address(), (word.address(), 5));
    let list = gpu.immediate(0, true);
    list.set((&memory, 0), 1, None, &[&event]);
    word.set(0, 4);
    assert!(!event.is_ready());
    word.set(0, 6);
    assert!(event.is_ready());
    list.synchronize();
    assert_eq!(memory.get(0), 1);
    list.set((&memory, 1), 1, Some(&event), &[]);
    assert_ne!(event.address().0, word.address());
    event.synchronize();
}

/// Aggregated events: "can be passed to multiple append calls and each append will increment the
/// storage by incrementValue (atomically) on GPU".
#[test]
fn an_aggregated_event_counts_its_appends() {
    let gpu = Gpu::new();
    let (memory, word) = (gpu.host::<u32>(4), gpu.host::<u64>(1));
    word.set(0, 0);
    let extension = ze_event_counter_based_external_aggregate_storage_desc_t {
        deviceAddress: word.ptr(),
        incrementValue: 2,
        completionValue: 6,
        ..Default::default()
    };
    let event = with_extension(&gpu, (&raw const extension).cast());
    let lists: Vec<_> = (0..3).map(|_| gpu.immediate(0, true)).collect();
    let last = gpu.immediate(1, true);
    last.set((&memory, 3), 1, None, &[&event]);
    for (i, list) in lists.iter().enumerate() {
        assert!(!event.is_ready());
        list.set((&memory, i), 1, Some(&event), &[]);
        list.synchronize();
    }
    event.synchronize();
    last.synchronize();
    assert_eq!((word.get(0), memory.to_vec()), (6, vec![1; 4]));
}

fn with_extension(gpu: &Gpu, next: *const std::ffi::c_void) -> Event {
    use ze_event_counter_based_flags_t as flag;
    let desc = ze_event_counter_based_desc_t {
        pNext: next,
        flags: flag::ZE_EVENT_COUNTER_BASED_FLAG_IMMEDIATE
            | flag::ZE_EVENT_COUNTER_BASED_FLAG_NON_IMMEDIATE
            | flag::ZE_EVENT_COUNTER_BASED_FLAG_HOST_VISIBLE,
        ..Default::default()
    };
    let mut event = NONE;
    check!(zeEventCounterBasedCreate(gpu.context, gpu.device, &raw const desc, &raw mut event));
    Event(event)
}

/// Times belong to the append that signalled the event, even after another append has replaced its
/// state.
#[test]
fn times_belong_to_the_append() {
    use ze_event_counter_based_flags_t as flag;
    let gpu = Gpu::new();
    let (memory, copies) = (gpu.host::<u32>(4), gpu.host::<[u64; 4]>(2));
    let event = gpu.cb_event_with(flag::ZE_EVENT_COUNTER_BASED_FLAG_DEVICE_TIMESTAMP);
    let list = gpu.immediate(0, true);
    list.set((&memory, 0), 1, Some(&event), &[]);
    let query = |at: usize, events: &Usm<[u64; 4]>| {
        let (dst, mut of) = (events.ptr().wrapping_add(at).cast(), [event.0]);
        let none = ptr::null();
        check!(zeCommandListAppendQueryKernelTimestamps(
            list.0,
            1,
            of.as_mut_ptr(),
            dst,
            none,
            NONE,
            0,
            ptr::null_mut()
        ));
    };
    query(0, &copies);
    list.set((&memory, 0), 2, Some(&event), &[]);
    query(1, &copies);
    list.synchronize();
    let mut times = ze_kernel_timestamp_result_t::default();
    check!(zeEventQueryKernelTimestamp(event.0, &raw mut times));
    let [first, second] = [copies.get(0), copies.get(1)];
    assert!(0 < first[0] && first[0] <= first[1] && first[1] <= second[0], "{first:?} {second:?}");
    assert_eq!((times.global.kernelStart, times.global.kernelEnd), (second[0], second[1]));
    assert!(times.context.kernelStart <= times.context.kernelEnd);
}
