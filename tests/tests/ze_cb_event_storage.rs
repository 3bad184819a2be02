// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counter-based events over memory of the user's: external storage and aggregated events, through the
//! stock loader.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tally_tests::gate::Gate;
use tally_tests::lists::{Event, List, NONE, PATIENCE};
use tally_tests::page::Page;
use tally_tests::ze::{self, Gpu};
use tally_tests::{call, check};
use tally_ze::zex::*;
use tally_ze::*;

/// A 64-bit word of any origin.
#[derive(Clone, Copy)]
struct Word(*const AtomicU64);

// SAFETY: only its address is sent, and the word is atomic.
unsafe impl Send for Word {}
// SAFETY: see Send.
unsafe impl Sync for Word {}

impl Word {
    fn at(address: u64) -> Self {
        Self(ptr::with_exposed_provenance(address as usize))
    }

    fn get(&self) -> &AtomicU64 {
        // SAFETY: the tests keep the memory.
        unsafe { &*self.0 }
    }

    fn set(&self, value: u64) {
        self.get().store(value, Ordering::Release);
    }

    fn pointer(&self) -> *mut u64 {
        self.0.cast_mut().cast()
    }
}

/// An event that follows the words, in all forms of creation.
fn external(gpu: &Gpu, device: Word, host: Word, value: u64) -> Vec<(&'static str, Event)> {
    let core = ze_event_counter_based_external_sync_allocation_desc_t {
        deviceAddress: device.pointer(),
        hostAddress: host.pointer(),
        completionValue: value,
        ..Default::default()
    };
    let zex = zex_counter_based_event_external_sync_alloc_properties_t {
        deviceAddress: device.pointer(),
        hostAddress: host.pointer(),
        completionValue: value,
        ..Default::default()
    };
    let mut raw = NONE;
    let desc = ze_event_desc_t::default();
    check!(zexCounterBasedEventCreate(
        gpu.context,
        gpu.device,
        device.pointer(),
        host.pointer(),
        value,
        &raw const desc,
        &raw mut raw
    ));
    vec![
        ("zeEventCounterBasedCreate", with_extension(gpu, (&raw const core).cast())),
        ("zexCounterBasedEventCreate2", with_extension2(gpu, (&raw const zex).cast())),
        ("zexCounterBasedEventCreate", Event(raw)),
    ]
}

fn aggregate(gpu: &Gpu, storage: Word, increment: u64, value: u64) -> [(&'static str, Event); 2] {
    let core = ze_event_counter_based_external_aggregate_storage_desc_t {
        deviceAddress: storage.pointer(),
        incrementValue: increment,
        completionValue: value,
        ..Default::default()
    };
    let zex = zex_counter_based_event_external_storage_properties_t {
        deviceAddress: storage.pointer(),
        incrementValue: increment,
        completionValue: value,
        ..Default::default()
    };
    [
        ("zeEventCounterBasedCreate", with_extension(gpu, (&raw const core).cast())),
        ("zexCounterBasedEventCreate2", with_extension2(gpu, (&raw const zex).cast())),
    ]
}

fn with_extension(gpu: &Gpu, next: *const c_void) -> Event {
    use ze_event_counter_based_flags_t as flag;
    let flags = flag::ZE_EVENT_COUNTER_BASED_FLAG_IMMEDIATE
        | flag::ZE_EVENT_COUNTER_BASED_FLAG_NON_IMMEDIATE
        | flag::ZE_EVENT_COUNTER_BASED_FLAG_DEVICE_TIMESTAMP;
    let desc = ze_event_counter_based_desc_t { pNext: next, flags, ..Default::default() };
    let mut event = NONE;
    check!(zeEventCounterBasedCreate(gpu.context, gpu.device, &raw const desc, &raw mut event));
    Event(event)
}

fn with_extension2(gpu: &Gpu, next: *const c_void) -> Event {
    use zex_counter_based_event_exp_flags_t as flag;
    let flags = flag::ZEX_COUNTER_BASED_EVENT_FLAG_IMMEDIATE
        | flag::ZEX_COUNTER_BASED_EVENT_FLAG_NON_IMMEDIATE
        | flag::ZEX_COUNTER_BASED_EVENT_FLAG_KERNEL_TIMESTAMP;
    let desc = zex_counter_based_event_desc_t { pNext: next, flags, ..Default::default() };
    let mut event = NONE;
    check!(zexCounterBasedEventCreate2(gpu.context, gpu.device, &raw const desc, &raw mut event));
    Event(event)
}

/// "Timeouts are in nanoseconds. 0 means query, UINT64_MAX means for ever": a wait for a word ends when its
/// time has passed, not before; for one that is there, at once.
#[test]
fn waits_for_words_keep_their_time() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u64>(2);
    memory.fill_with(|_| 0);
    let [one, other] = [0, 8].map(|offset| Word::at(memory.address() + offset));
    let mut events = external(&gpu, one, one, 3);
    events.extend(aggregate(&gpu, other, 1, 3));
    for (name, event) in &events {
        for timeout in [0, 1, 1000, 100_000, 30_000_000] {
            let start = Instant::now();
            let result = call!(zeEventHostSynchronize(event.0, timeout));
            let passed = start.elapsed();
            assert_eq!(result, ze_result_t::ZE_RESULT_NOT_READY, "{name}, {timeout} ns");
            assert!(passed >= Duration::from_nanos(timeout), "{name}, {timeout} ns: {passed:?}");
        }
    }
    one.set(3);
    other.set(3);
    for (_, event) in &events {
        for timeout in [0, 1, u64::from(u32::MAX), u64::MAX] {
            check!(zeEventHostSynchronize(event.0, timeout));
        }
    }
}

/// "User may optionally specify externally managed counter allocation and value. This can be done by passing
/// zex_counter_based_event_external_sync_alloc_properties_t as extension of zex_counter_based_event_desc_t."
/// "Counter allocation is
/// managed by the User. May be allocated outside L0 Driver.": host,
/// device and ordinary memory of the process all do. "User must ensure device allocation (deviceAddress)
/// residency. It must be accessible by GPU". "Host allocation (hostAddress) must be accessible by CPU (eg.
/// waiting for completion)". "User is responsible for updating both memory locations to >=
/// completionValue to signal Event completion": not before, and what is more than the value counts too.
/// "The completion state changes if the event is assigned as a signalEvent to an append call or if
/// external storage is specified during creation."
#[test]
fn an_external_event_follows_the_users_words() {
    let gpu = Gpu::new();
    let (host, device, own) = (gpu.host::<u64>(8), gpu.device_memory::<u64>(8), AtomicU64::new(0));
    let memory = gpu.host::<u32>(1);
    for (origin, word) in [
        ("host", Word::at(host.address())),
        ("device", Word::at(device.address())),
        ("outside the driver", Word(&raw const own)),
    ] {
        if origin == "device" && !ze::host_sees_device_memory() {
            continue;
        }
        word.set(0);
        for (way, event) in external(&gpu, word, word, 10) {
            word.set(0);
            memory.set(0, 0);
            assert!(!event.is_ready(), "{origin}, {way}");
            assert_eq!(event.address(), (word.pointer() as u64, 10), "the user's own pair");
            let list = gpu.immediate(0, true);
            list.set((&memory, 0), 1, None, &[&event]);
            word.set(9);
            let result = call!(zeEventHostSynchronize(event.0, 2_000_000));
            assert_eq!(result, ze_result_t::ZE_RESULT_NOT_READY, "{origin}, {way}");
            assert_eq!(memory.get(0), 0);
            thread::scope(|scope| {
                scope.spawn(|| event.synchronize());
                thread::sleep(Duration::from_millis(2));
                word.set(12);
            });
            list.synchronize();
            assert_eq!(memory.get(0), 1, "{origin}, {way}");
            // "Signaling such event, replaces the state (as described previously)"
            word.set(0);
            assert!(!event.is_ready());
            list.set((&memory, 0), 2, Some(&event), &[]);
            event.synchronize();
            assert_eq!(memory.get(0), 2, "{origin}, {way}");
        }
    }
}

/// "User may obtain counter memory location and value. For example, waiting for completion outside the L0
/// Driver.": the pair of an event is memory like any other. Host threads look at it, and other events follow
/// it, for the host and for the device.
#[test]
fn the_pair_of_an_event_is_waited_for_as_memory() {
    let gpu = Gpu::new();
    let gate = Gate::new(&gpu);
    let (list, waiting, event) = (gpu.immediate(0, true), gpu.immediate(1, true), gpu.cb_event());
    list.barrier(Some(&event), &[&gate.event]);
    let (address, value) = event.address();
    let counter = Word::at(address);
    let others = external(&gpu, counter, counter, value);
    let memory = gpu.host::<u32>(others.len());
    memory.fill_with(|_| 0);
    for (i, (way, other)) in others.iter().enumerate() {
        assert!(!other.is_ready(), "{way}");
        waiting.set((&memory, i), 1, None, &[other]);
    }
    assert!(
        counter.get().load(Ordering::Acquire) < value && memory.to_vec().iter().all(|&it| it == 0)
    );
    thread::scope(|scope| {
        scope.spawn(|| {
            while counter.get().load(Ordering::Acquire) < value {
                thread::yield_now();
            }
        });
        gate.open();
    });
    waiting.synchronize();
    assert!(others.iter().all(|(_, other)| other.is_ready()));
    assert!(memory.to_vec().iter().all(|&it| it == 1));
}

/// Two words, one for each side: the host reads its own, the device its own.
#[test]
fn host_and_device_have_a_word_each() {
    let gpu = Gpu::new();
    let (words, memory) = (gpu.host::<u64>(16), gpu.host::<u32>(1));
    let (device, host) = (Word::at(words.address()), Word::at(words.address() + 64));
    for (way, event) in external(&gpu, device, host, 1) {
        device.set(0);
        host.set(0);
        memory.set(0, 0);
        let list = gpu.immediate(0, true);
        list.set((&memory, 0), 1, None, &[&event]);
        host.set(1);
        assert!(event.is_ready(), "{way}");
        let result = call!(zeCommandListHostSynchronize(list.0, 2_000_000));
        assert_eq!(result, ze_result_t::ZE_RESULT_NOT_READY, "{way}");
        device.set(1);
        list.synchronize();
        assert_eq!(memory.get(0), 1);
    }
}

/// A word that another list writes completes the event, and a wait that a regular list has recorded
/// reads the word at each execution: it is "never elided", even if it was met when it was recorded.
#[test]
fn waits_for_the_users_word_are_never_elided() {
    let gpu = Gpu::new();
    let (words, memory) = (gpu.host::<u64>(8), gpu.host::<u32>(2));
    let word = Word::at(words.address());
    let mut events = external(&gpu, word, word, 5);
    events.extend(aggregate(&gpu, word, 1, 5));
    for (way, event) in &events {
        memory.fill_with(|_| 0);
        word.set(5);
        assert!(event.is_ready(), "{way}");
        let (list, queue, writer) = (gpu.regular(0, true), gpu.queue(0), gpu.immediate(1, true));
        list.set((&memory, 0), 1, None, &[event]);
        list.close();
        for _ in 0..3 {
            memory.set(0, 0);
            word.set(0); // "Device storage is under Users control. It may be reset manually if needed"
            queue.execute(&[&list], None);
            let result = call!(zeCommandQueueSynchronize(queue.0, 1_000_000));
            assert_eq!(result, ze_result_t::ZE_RESULT_NOT_READY, "{way}");
            assert_eq!(memory.get(0), 0, "{way}");
            writer.set((&words, 0), 6, None, &[]);
            queue.synchronize();
            assert_eq!(memory.get(0), 1, "{way}");
        }
        word.set(5);
        let immediate = gpu.immediate(0, true);
        immediate.set((&memory, 1), 1, None, &[event]);
        immediate.synchronize();
        word.set(0);
        immediate.set((&memory, 1), 2, None, &[event]);
        let result = call!(zeCommandListHostSynchronize(immediate.0, 1_000_000));
        assert_eq!(result, ze_result_t::ZE_RESULT_NOT_READY, "{way}: met before, not now");
        word.set(5);
        immediate.synchronize();
    }
}

/// "Aggregated event is a special use case for CB Events. It can be signaled from multiple append calls,
/// but waiting requires only one memory compare operation. It can be created by passing
/// zex_counter_based_event_external_storage_properties_t as extension of zex_counter_based_event_desc_t."
/// "Signaling such event, will not replace its
/// state (as described previously). It can be passed to multiple append calls and each append will
/// increment the storage by incrementValue (atomically) on GPU": from lists of both engines, immediate
/// and regular, all at once, and not one increment is lost. "Using aggregated event as dependency, requires
/// only one memory compare operation against final value": a host thread and a command wait for all of them.
/// "User must ensure device allocation (deviceAddress) residency. It must be accessible by GPU". "Driver will
/// use deviceAddress for host synchronization as USM allocation. It must be accessible by CPU".
#[test]
fn increments_of_many_producers_add_up() {
    const LISTS: usize = 16;
    const APPENDS: usize = 200;
    let gpu = Gpu::new();
    // "It must be accessible by CPU".
    let on_device = ze::host_sees_device_memory();
    let storage = if on_device { gpu.device_memory::<u64>(8) } else { gpu.host(8) };
    let memory = gpu.host::<u32>(LISTS + 1);
    let word = Word::at(storage.address());
    let increment = 3;
    let total = increment * (LISTS * APPENDS) as u64;
    for (way, event) in aggregate(&gpu, word, increment, total) {
        word.set(0);
        memory.fill_with(|_| 0);
        let (gate, last) = (Gate::new(&gpu), Gate::new(&gpu));
        let waits = gpu.immediate(0, false);
        waits.set((&memory, LISTS), 1, None, &[&event]);
        let lists: Vec<List> = (0..LISTS)
            .map(|i| match i % 4 {
                0 | 1 => gpu.immediate(i as u32 % 2, true),
                _ => gpu.regular(i as u32 % 2, true),
            })
            .collect();
        let queues = [gpu.queue(0), gpu.queue(1)];
        for (i, list) in lists.iter().enumerate() {
            list.wait(&[&gate.event]);
            for k in 0..APPENDS {
                if i == 0 && k + 1 == APPENDS {
                    list.wait(&[&last.event]);
                }
                list.set((&memory, i), k as u32, Some(&event), &[]);
            }
            if i % 4 > 1 {
                list.close();
                queues[i % 2].execute(&[list], None);
            }
        }
        assert_eq!(event.address(), (word.pointer() as u64, total), "its state is not replaced");
        gate.open();
        let start = Instant::now();
        while word.get().load(Ordering::Acquire) < total - increment {
            assert!(start.elapsed() < Duration::from_nanos(PATIENCE), "{way}: increments are lost");
            thread::sleep(Duration::from_micros(100));
        }
        assert!(!event.is_ready(), "{way}: one increment is missing");
        assert_eq!(memory.get(LISTS), 0);
        last.open();
        event.synchronize();
        assert_eq!(word.get().load(Ordering::Acquire), total, "{way}");
        waits.synchronize();
        assert_eq!(memory.get(LISTS), 1);
        for (i, list) in lists.iter().enumerate() {
            if i % 4 < 2 { list.synchronize() } else { queues[i % 2].synchronize() }
        }
        // Increments beyond the final value leave it complete.
        lists[0].set((&memory, 0), 0, Some(&event), &[]);
        lists[0].synchronize();
        assert!(event.is_ready());
        assert_eq!(word.get().load(Ordering::Acquire), total + increment, "{way}");
    }
}

/// Signals of an out-of-order list are refused, as for all CB events; several appends of one list, and
/// executions of a regular list, each count.
#[test]
fn every_append_and_every_execution_counts() {
    let gpu = Gpu::new();
    let (storage, memory) = (gpu.host::<u64>(8), gpu.host::<u32>(1));
    let own = AtomicU64::new(0);
    let words = [Word::at(storage.address()), Word(&raw const own)];
    for (word, (way, event)) in words
        .iter()
        .flat_map(|word| aggregate(&gpu, *word, 2, 20).into_iter().map(move |event| (word, event)))
    {
        word.set(0);
        let (list, queue) = (gpu.regular(0, true), gpu.queue(0));
        list.set((&memory, 0), 1, Some(&event), &[]);
        list.signal(&event);
        list.close();
        for n in 1..=5 {
            assert!(!event.is_ready(), "{way}");
            queue.execute(&[&list], None);
            queue.synchronize();
            assert_eq!(word.get().load(Ordering::Acquire), 4 * n, "{way}");
        }
        assert!(event.is_ready(), "{way}");
        let unordered = gpu.immediate(0, false);
        let result = call!(zeCommandListAppendSignalEvent(unordered.0, event.0));
        assert_eq!(result, ze_result_t::ZE_RESULT_ERROR_INVALID_ARGUMENT);
        assert_eq!(word.get().load(Ordering::Acquire), 20);
    }
}

/// "Profiling is not possible if producers originate on different GPUs (different timestamp domains)": on
/// one GPU it is, and tells the times of the last append.
#[test]
fn an_aggregated_event_tells_times() {
    let gpu = Gpu::new();
    let (storage, memory) = (gpu.host::<u64>(8), gpu.host::<u32>(1));
    let word = Word::at(storage.address());
    for (way, event) in aggregate(&gpu, word, 1, 2) {
        word.set(0);
        let list = gpu.immediate(0, true);
        list.set((&memory, 0), 1, Some(&event), &[]);
        let mut times = ze_kernel_timestamp_result_t::default();
        let result = call!(zeEventQueryKernelTimestamp(event.0, &raw mut times));
        assert_eq!(result, ze_result_t::ZE_RESULT_NOT_READY, "{way}");
        list.set((&memory, 0), 1, Some(&event), &[]);
        list.synchronize();
        check!(zeEventQueryKernelTimestamp(event.0, &raw mut times));
        let global = times.global;
        assert!(0 < global.kernelStart && global.kernelStart <= global.kernelEnd, "{way}");
    }
}

/// "May be allocated outside L0 Driver.": in pages that were not accessed yet, which the process replaces by
/// others at the same address as soon as the commands that use the word are complete. The event may be destroyed
/// before that.
#[test]
fn a_word_of_ordinary_memory_is_found_by_each_command() {
    let (gpu, page) = (Gpu::new(), Page::default());
    let memory = gpu.host::<u32>(2);
    for round in 0..2 {
        for way in 0..3 {
            let word = Word::at(page.fresh().expose_provenance() as u64);
            let (way, event) = external(&gpu, word, word, 3).swap_remove(way);
            memory.fill_with(|_| 0);
            let (list, recorded) = (gpu.immediate(0, true), gpu.regular(0, true));
            let queue = gpu.queue(0);
            list.set((&memory, 0), 1, None, &[&event]);
            recorded.set((&memory, 1), 1, None, &[&event]);
            recorded.close();
            queue.execute(&[&recorded], None);
            drop(event);
            word.set(2);
            let result = call!(zeCommandListHostSynchronize(list.0, 2_000_000));
            assert_eq!(result, ze_result_t::ZE_RESULT_NOT_READY, "{way}, round {round}");
            assert_eq!(memory.to_vec(), [0, 0], "{way}, round {round}");
            word.set(3);
            list.synchronize();
            queue.synchronize();
            assert_eq!(memory.to_vec(), [1, 1], "{way}, round {round}");
        }
    }
}
