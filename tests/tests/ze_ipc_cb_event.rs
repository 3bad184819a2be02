// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counter-based events that are shared with other processes (`counter-based-events.md`, "IPC
//! sharing"; the core functions say the same).

use std::ptr;
use std::time::{Duration, Instant};

use tally_tests::lists::{Event, NONE, PATIENCE};
use tally_tests::peer::{self, HandleBytes, Peer};
use tally_tests::top;
use tally_tests::ze::{self, Gpu};
use tally_tests::{call, check, refused};
use tally_ze::zex::*;
use tally_ze::*;

const IPC: ze_event_counter_based_flags_t =
    ze_event_counter_based_flags_t::ZE_EVENT_COUNTER_BASED_FLAG_IPC;

/// An event that may be shared, created by the experimental function.
fn zex_event(gpu: &Gpu) -> Event {
    use zex_counter_based_event_exp_flags_t as flag;
    let desc = zex_counter_based_event_desc_t {
        flags: flag::ZEX_COUNTER_BASED_EVENT_FLAG_IMMEDIATE
            | flag::ZEX_COUNTER_BASED_EVENT_FLAG_NON_IMMEDIATE
            | flag::ZEX_COUNTER_BASED_EVENT_FLAG_IPC,
        ..Default::default()
    };
    let mut event = NONE;
    let (context, device) = (gpu.context, gpu.device);
    check!(zexCounterBasedEventCreate2(context, device, &raw const desc, &raw mut event));
    Event(event)
}

fn zex_handle(event: &Event) -> HandleBytes {
    let mut handle = zex_ipc_counter_based_event_handle_t { data: [0; 64] };
    check!(zexCounterBasedEventGetIpcHandle(event.0, &raw mut handle));
    handle.data
}

fn zex_open(gpu: &Gpu, data: HandleBytes) -> ze_event_handle_t {
    let mut event = NONE;
    let handle = zex_ipc_counter_based_event_handle_t { data };
    check!(zexCounterBasedEventOpenIpcHandle(gpu.context, handle, &raw mut event));
    event
}

fn core_handle(event: &Event) -> HandleBytes {
    let mut handle = ze_ipc_event_counter_based_handle_t::default();
    check!(zeEventCounterBasedGetIpcHandle(event.0, &raw mut handle));
    handle.data
}

fn core_open(gpu: &Gpu, data: HandleBytes) -> ze_event_handle_t {
    let mut event = NONE;
    let handle = ze_ipc_event_counter_based_handle_t { data };
    check!(zeEventCounterBasedOpenIpcHandle(gpu.context, handle, &raw mut event));
    event
}

fn status(event: ze_event_handle_t) -> ze_result_t {
    call!(zeEventQueryStatus(event))
}

const READY: ze_result_t = ze_result_t::ZE_RESULT_SUCCESS;
const NOT_READY: ze_result_t = ze_result_t::ZE_RESULT_NOT_READY;
/// "Within a second" holds on an idle machine; this limit is for a busy one.
const PROMPT: Duration = Duration::from_secs(60);

/// "As mentioned previously, signaling CB Event replaces its state. This is why IPC sharing is
/// one-directional. Opened event can be used only for waiting/querying (on host and GPU)." "Both Event
/// object (original and shared) are independent." "Second process points to the original state until
/// zeCounterBasedEventCloseIpcHandle is called. Original Event state may be changed without waiting for
/// completion. Second process is not affected." The sample of the chapter: "handle obtained after append
/// call"; "event2 points to the same counter=X on memory CL1_alloc"; "event2 still points to counter=X on
/// memory CL1_alloc. Can be used for waiting." The state of the handle stays, whatever becomes of the
/// original. "To share a CB Event across processes, an IPC handle can be obtained as follows"; "In a
/// different process, the IPC handle can be opened to create a new event object that points to the same
/// counter memory location/value"; "Once the IPC handle is no longer needed, new Event can be closed".
#[test]
fn the_documents_sample_between_two_processes() {
    for form in ["zex", "core"] {
        let mut exporter = Peer::start("child_that_exports_two_states");
        exporter.say(form);
        let handle = exporter.hear_handle();
        let gpu = Gpu::new();
        let event = if form == "zex" { zex_open(&gpu, handle) } else { core_open(&gpu, handle) };
        assert_eq!(status(event), NOT_READY);
        assert_eq!(call!(zeEventHostSynchronize(event, 1_000_000)), NOT_READY);

        // "Original Event state may be changed without waiting for completion. Second process is
        // not affected."
        exporter.say("replace");
        exporter.expect("replaced");
        assert_eq!(status(event), NOT_READY);

        // "Opened event can be used only for waiting/querying": nothing here signals or resets it.
        let memory = gpu.host::<u32>(2);
        let (list, regular, queue) = (gpu.immediate(0, true), gpu.regular(0, true), gpu.queue(0));
        for list in [&list, &regular] {
            let signal = call!(zeCommandListAppendSignalEvent(list.0, event));
            assert_eq!(signal, ze_result_t::ZE_RESULT_ERROR_INVALID_ARGUMENT);
            let reset = call!(zeCommandListAppendEventReset(list.0, event));
            assert_eq!(reset, ze_result_t::ZE_RESULT_ERROR_INVALID_ARGUMENT);
        }
        refused!(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeEventHostSignal(event));
        refused!(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeEventHostReset(event));
        assert_eq!(status(event), NOT_READY);

        // The device waits for it too, and so does a recorded list.
        let borrowed = std::mem::ManuallyDrop::new(Event(event));
        list.set((&memory, 0), 1, None, &[&borrowed]);
        regular.set((&memory, 1), 1, None, &[&borrowed]);
        regular.close();
        queue.execute(&[&regular], None);
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!((memory.get(0), memory.get(1)), (0, 0), "nobody has signalled it");

        exporter.say("complete the first");
        check!(zeEventHostSynchronize(event, PATIENCE));
        assert_eq!(status(event), READY);
        list.synchronize();
        queue.synchronize();
        assert_eq!((memory.get(0), memory.get(1)), (1, 1));
        // The second state is not complete, but this process holds the first one.
        exporter.expect("first done, second not");

        if form == "zex" {
            check!(zexCounterBasedEventCloseIpcHandle(event));
        } else {
            check!(zeEventCounterBasedCloseIpcHandle(event));
        }
        exporter.say("end");
        exporter.finish();
    }
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_exports_two_states() {
    let gpu = Gpu::new();
    let zex = peer::hear() == "zex";
    let memory = gpu.host::<u32>(1);
    let pool = gpu.pool(2, ze_event_pool_flags_t::empty());
    let (first, second) = (pool.event(0), pool.event(1));
    let (one, two) = (gpu.immediate(0, true), gpu.immediate(0, true));
    let event = if zex { zex_event(&gpu) } else { gpu.cb_event_with(IPC) };
    one.set((&memory, 0), 1, Some(&event), &[&first]);
    peer::say_handle(&if zex { zex_handle(&event) } else { core_handle(&event) });
    peer::expect("replace");
    two.set((&memory, 0), 2, Some(&event), &[&second]);
    peer::say("replaced");
    peer::expect("complete the first");
    first.signal();
    one.synchronize();
    assert!(!event.is_ready());
    peer::say("first done, second not");
    peer::expect("end");
    second.signal();
    two.synchronize();
}

/// "There is no need to wait for completion before reusing." Event and list are destroyed before the
/// other process opens the handle, which still refers to the signal of the work.
#[test]
fn a_handle_outlives_event_and_list() {
    let mut exporter = Peer::start("child_that_destroys_event_and_list");
    let handle = exporter.hear_handle();
    let gpu = Gpu::new();
    let event = zex_open(&gpu, handle);
    assert_eq!(status(event), NOT_READY);
    exporter.say("go");
    check!(zeEventHostSynchronize(event, PATIENCE));
    check!(zexCounterBasedEventCloseIpcHandle(event));
    // Opened a second time, long after: "A pair that was reached stays so."
    let event = zex_open(&gpu, handle);
    assert_eq!(status(event), READY);
    check!(zexCounterBasedEventCloseIpcHandle(event));
    exporter.say("end");
    exporter.finish();
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_destroys_event_and_list() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(1);
    let pool = gpu.pool(1, ze_event_pool_flags_t::empty());
    let gate = pool.event(0);
    let list = gpu.immediate(0, true);
    let event = zex_event(&gpu);
    list.set((&memory, 0), 1, Some(&event), &[&gate]);
    let handle = zex_handle(&event);
    drop((event, list));
    peer::say_handle(&handle);
    peer::expect("go");
    gate.signal();
    peer::expect("end");
}

/// "This includes IPC." "If original Event state is changed (for example by next append call) and second
/// process needs to see that update, IPC handle must be opened again.": a regular list's next execution is another state, for which a new handle is
/// needed; the earlier one stays met.
#[test]
fn each_execution_of_a_regular_list_needs_a_handle_of_its_own() {
    let mut exporter = Peer::start("child_that_executes_twice");
    let gpu = Gpu::new();
    let first = zex_open(&gpu, exporter.hear_handle());
    check!(zeEventHostSynchronize(first, PATIENCE));
    exporter.say("again");
    let second = zex_open(&gpu, exporter.hear_handle());
    assert_eq!((status(first), status(second)), (READY, NOT_READY));
    exporter.say("signal");
    check!(zeEventHostSynchronize(second, PATIENCE));
    for event in [first, second] {
        check!(zexCounterBasedEventCloseIpcHandle(event));
    }
    exporter.finish();
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_executes_twice() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(1);
    let pool = gpu.pool(1, ze_event_pool_flags_t::empty());
    let gate = pool.event(0);
    let (list, queue) = (gpu.regular(0, true), gpu.queue(0));
    let event = zex_event(&gpu);
    list.set((&memory, 0), 1, Some(&event), &[&gate]);
    list.close();
    gate.signal();
    queue.execute(&[&list], None);
    queue.synchronize();
    peer::say_handle(&zex_handle(&event));
    peer::expect("again");
    gate.reset();
    queue.execute(&[&list], None);
    peer::say_handle(&zex_handle(&event));
    peer::expect("signal");
    gate.signal();
    queue.synchronize();
}

/// "A wait on a counter whose producer has died ends in DEVICE_LOST within a second": a list that is
/// destroyed before it was executed will never signal. Other events of the process are not touched.
#[test]
fn a_list_that_dies_unexecuted_ends_the_waits_of_others() {
    let mut exporter = Peer::start("child_that_destroys_a_recording");
    let (recorded, other) = (exporter.hear_handle(), exporter.hear_handle());
    let gpu = Gpu::new();
    let (event, gated) = (zex_open(&gpu, recorded), zex_open(&gpu, other));
    assert_eq!((status(event), status(gated)), (NOT_READY, NOT_READY));
    let handle = event.0 as usize;
    let waiter = std::thread::spawn(move || {
        let event = ze_event_handle_t(handle as *mut _);
        (call!(zeEventHostSynchronize(event, PATIENCE)), Instant::now())
    });
    std::thread::sleep(Duration::from_millis(50));
    let start = Instant::now();
    exporter.say("destroy");
    let (answer, end) = waiter.join().expect("the wait returns");
    assert_eq!(answer, ze_result_t::ZE_RESULT_ERROR_DEVICE_LOST);
    assert!(end - start < PROMPT);
    let said = refused!(ZE_RESULT_ERROR_DEVICE_LOST, zeEventQueryStatus(event));
    assert!(said.contains("before it was executed"), "{said}");
    // An event that is opened only now reports it too.
    let late = zex_open(&gpu, recorded);
    refused!(ZE_RESULT_ERROR_DEVICE_LOST, zeEventHostSynchronize(late, PATIENCE));
    assert_eq!(status(gated), NOT_READY);
    exporter.say("signal");
    check!(zeEventHostSynchronize(gated, PATIENCE));
    for event in [event, gated, late] {
        check!(zexCounterBasedEventCloseIpcHandle(event));
    }
    exporter.finish();
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_destroys_a_recording() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(1);
    let pool = gpu.pool(1, ze_event_pool_flags_t::empty());
    let gate = pool.event(0);
    let (regular, list) = (gpu.regular(0, true), gpu.immediate(0, true));
    let (recorded, gated) = (zex_event(&gpu), zex_event(&gpu));
    regular.set((&memory, 0), 1, Some(&recorded), &[]);
    list.set((&memory, 0), 1, Some(&gated), &[&gate]);
    peer::say_handle(&zex_handle(&recorded));
    peer::say_handle(&zex_handle(&gated));
    peer::expect("destroy");
    drop(regular);
    peer::expect("signal");
    gate.signal();
    list.synchronize();
}

/// The hang report names the process that has to signal an event that a queue waits for.
#[test]
fn a_hang_report_names_the_other_process() {
    let variables = [("TALLY_HANG_MS", "100"), top::VARIABLE];
    let said = ze::in_child("child_that_hangs_on_another", &variables);
    let named = said.lines().find_map(|line| line.strip_prefix("exporter is "));
    let named = format!("process {}", named.expect("the child says so"));
    assert!(said.lines().any(|line| line.contains("waits for") && line.contains(&named)), "{said}");
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_hangs_on_another() {
    let mut exporter = Peer::start("child_that_destroys_event_and_list");
    println!("\nexporter is {}", exporter.id());
    let gpu = Gpu::new();
    let event = Event(zex_open(&gpu, exporter.hear_handle()));
    let memory = gpu.host::<u32>(1);
    let list = gpu.immediate(0, true);
    list.set((&memory, 0), 1, None, &[&event]);
    top::until_parked(1);
    assert_eq!(call!(zeCommandListHostSynchronize(list.0, 300_000_000)), NOT_READY);
    exporter.say("go");
    list.synchronize();
    exporter.say("end");
    exporter.finish();
}

/// Handles may be opened and closed any number of times, by any number of threads, before and after the
/// signal; all their resources are freed.
#[test]
fn opening_and_closing_leaves_nothing_behind() {
    ze::in_child("child_that_opens_and_closes", &[]);
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_opens_and_closes() {
    let mut exporter = Peer::start("child_that_destroys_event_and_list");
    let handle = exporter.hear_handle();
    let gpu = Gpu::new();
    let files = || std::fs::read_dir("/proc/self/fd").expect("Linux has it").count();
    let maps = || std::fs::read_to_string("/proc/self/maps").expect("Linux has it").lines().count();
    let first = zex_open(&gpu, handle);
    let before = files();
    let open_all = |ready: bool| {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let event = zex_open(&gpu, handle);
                        assert_eq!(status(event) == READY, ready);
                        check!(zexCounterBasedEventCloseIpcHandle(event));
                    }
                });
            }
        });
    };
    // The C library keeps stacks and heaps of threads that have ended.
    open_all(false);
    let after_one = maps();
    open_all(false);
    exporter.say("go");
    check!(zeEventHostSynchronize(first, PATIENCE));
    open_all(true);
    check!(zexCounterBasedEventCloseIpcHandle(first));
    // Sockets of values that were waited for are closed when their notifications have arrived.
    let until = Instant::now() + PROMPT;
    while files() > before {
        assert!(Instant::now() < until, "{} descriptors, {before} before", files());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(maps() <= after_one + 16, "{} mappings, {after_one} before", maps());
    exporter.say("end");
    exporter.finish();
}

/// A sleeping waiter is woken, in both processes in turn, many times: a lost wake-up would fail this
/// test by its time limit.
#[test]
fn two_processes_play_ping_pong() {
    const ROUNDS: u32 = 200;
    let mut other = Peer::start("child_that_plays");
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(1);
    let list = gpu.immediate(0, true);
    for round in 0..ROUNDS {
        let mine = zex_event(&gpu);
        // Every other time the other process has fallen asleep before this is signalled.
        let pool = gpu.pool(1, ze_event_pool_flags_t::empty());
        let gate = pool.event(0);
        list.set((&memory, 0), round, Some(&mine), &[&gate]);
        other.say_handle(&zex_handle(&mine));
        if round % 2 == 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
        gate.signal();
        let theirs = zex_open(&gpu, other.hear_handle());
        check!(zeEventHostSynchronize(theirs, PATIENCE));
        check!(zexCounterBasedEventCloseIpcHandle(theirs));
        list.synchronize();
    }
    other.say("end");
    other.finish();
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_plays() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(1);
    let list = gpu.immediate(0, true);
    loop {
        let line = peer::hear();
        if line == "end" {
            return;
        }
        let theirs = Event(zex_open(&gpu, peer::from_hex(&line)));
        let mine = zex_event(&gpu);
        // The device waits: the other process's device signals.
        list.set((&memory, 0), 1, Some(&mine), &[&theirs]);
        peer::say_handle(&zex_handle(&mine));
        list.synchronize();
    }
}

/// "IPC CB Event opened in different process can be used only for waiting."
#[test]
fn an_opened_event_cannot_be_signalled_reset_or_shared_again() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(1);
    let (list, regular) = (gpu.immediate(0, true), gpu.regular(0, true));
    let event = zex_event(&gpu);
    list.set((&memory, 0), 1, Some(&event), &[]);
    let opened = zex_open(&gpu, zex_handle(&event));
    let none = ptr::null_mut();
    for list in [list.0, regular.0] {
        let said = refused!(
            ZE_RESULT_ERROR_INVALID_ARGUMENT,
            zeCommandListAppendBarrier(list, opened, 0, none)
        );
        assert!(said.contains("another process has shared the event"), "{said}");
        refused!(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeCommandListAppendSignalEvent(list, opened));
        refused!(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeCommandListAppendEventReset(list, opened));
    }
    refused!(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeEventHostSignal(opened));
    refused!(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeEventHostReset(opened));
    let mut handle = zex_ipc_counter_based_event_handle_t { data: [0; 64] };
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zexCounterBasedEventGetIpcHandle(opened, &raw mut handle)
    );
    check!(zeEventHostSynchronize(opened, PATIENCE));
    check!(zexCounterBasedEventCloseIpcHandle(opened));
    let said =
        refused!(ZE_RESULT_ERROR_INVALID_ARGUMENT, zexCounterBasedEventCloseIpcHandle(event.0));
    assert!(said.contains("zeEventDestroy"), "{said}");
}

/// "Timestamps are not allowed for IPC sharing", and the flag has to be asked for.
#[test]
fn events_that_cannot_be_shared_are_refused() {
    use ze_event_counter_based_flags_t as flag;
    let gpu = Gpu::new();
    let mut handle = zex_ipc_counter_based_event_handle_t { data: [0; 64] };
    let plain = gpu.cb_event();
    let said = refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zexCounterBasedEventGetIpcHandle(plain.0, &raw mut handle)
    );
    assert!(said.contains("FLAG_IPC"), "{said}");
    let pool = gpu.pool(1, ze_event_pool_flags_t::ZE_EVENT_POOL_FLAG_IPC);
    let regular = pool.event(0);
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zexCounterBasedEventGetIpcHandle(regular.0, &raw mut handle)
    );
    for times in [
        flag::ZE_EVENT_COUNTER_BASED_FLAG_DEVICE_TIMESTAMP,
        flag::ZE_EVENT_COUNTER_BASED_FLAG_HOST_TIMESTAMP,
    ] {
        let desc = ze_event_counter_based_desc_t { flags: IPC | times, ..Default::default() };
        let mut event = NONE;
        let (context, device) = (gpu.context, gpu.device);
        refused!(
            ZE_RESULT_ERROR_INVALID_ARGUMENT,
            zeEventCounterBasedCreate(context, device, &raw const desc, &raw mut event)
        );
    }
    // An event in the application's memory is shared together with that memory.
    let memory = gpu.host::<u64>(1);
    memory.set(0, 0);
    let words = ze_event_counter_based_external_sync_allocation_desc_t {
        deviceAddress: memory.ptr(),
        hostAddress: memory.ptr(),
        completionValue: 1,
        ..Default::default()
    };
    let desc = ze_event_counter_based_desc_t {
        pNext: (&raw const words).cast(),
        flags: IPC,
        ..Default::default()
    };
    let mut event = NONE;
    let (context, device) = (gpu.context, gpu.device);
    check!(zeEventCounterBasedCreate(context, device, &raw const desc, &raw mut event));
    let event = Event(event);
    refused!(
        ZE_RESULT_ERROR_UNSUPPORTED_FEATURE,
        zexCounterBasedEventGetIpcHandle(event.0, &raw mut handle)
    );
}

/// "After creation, a CB Event is initially marked as completed": so is what is opened of it.
#[test]
fn an_event_that_was_never_signalled_is_shared_as_complete() {
    let gpu = Gpu::new();
    let event = zex_event(&gpu);
    let opened = zex_open(&gpu, zex_handle(&event));
    assert_eq!(status(opened), READY);
    check!(zexCounterBasedEventCloseIpcHandle(opened));
}

/// The pair of an opened event works "for waiting outside the L0 Driver", and its counter cannot be
/// written: no mapping in this process is writable, and the system refuses to make one so.
#[test]
fn an_opened_events_counter_can_be_read_and_not_written() {
    let mut exporter = Peer::start("child_that_destroys_event_and_list");
    let handle = exporter.hear_handle();
    let gpu = Gpu::new();
    let event = Event(zex_open(&gpu, handle));
    let (address, value) = event.address();
    // SAFETY: the driver returns a counter, which stays mapped as long as the event exists.
    let word = unsafe { std::sync::atomic::AtomicU64::from_ptr(address as *mut u64) };
    let load = || word.load(std::sync::atomic::Ordering::Acquire);
    assert!(load() < value);
    let page = (address & !4095) as *mut std::ffi::c_void;
    let both = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: only requests more access to a page that is mapped.
    assert_eq!(unsafe { libc::mprotect(page, 4096, both) }, -1, "the page cannot be made writable");
    exporter.say("go");
    let start = Instant::now();
    while load() < value {
        assert!(start.elapsed() < PROMPT);
        std::thread::yield_now();
    }
    assert_eq!(status(event.0), READY);
    exporter.say("end");
    exporter.finish();
}

/// "report the device's COUNTER_BASED_IPC flag only for what works"
#[test]
fn properties_say_that_it_works() {
    let mut events = ze_device_event_properties_t::default();
    let mut properties =
        ze_device_properties_t { pNext: (&raw mut events).cast(), ..Default::default() };
    check!(zeDeviceGetProperties(ze::device(), &raw mut properties));
    let ipc = ze_device_event_properties_flags_t::ZE_DEVICE_EVENT_PROPERTIES_FLAG_COUNTER_BASED_IPC;
    assert!(events.flags.contains(ipc));
}
