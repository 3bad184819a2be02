// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that die while others share something with them: "exporter's and importer's death at
//! every step gives completion or DEVICE_LOST within a second, never a hang or false completion."

use std::time::{Duration, Instant};

use tally_tests::lists::{NONE, PATIENCE};
use tally_tests::peer::{self, Peer};
use tally_tests::ze::{self, Gpu};
use tally_tests::{call, check, refused};
use tally_ze::*;

const CB_IPC: ze_event_counter_based_flags_t =
    ze_event_counter_based_flags_t::ZE_EVENT_COUNTER_BASED_FLAG_IPC;
const POOL_IPC: ze_event_pool_flags_t = ze_event_pool_flags_t::ZE_EVENT_POOL_FLAG_IPC;
/// "Within a second" holds on an idle machine; this limit is for a busy one.
const PROMPT: Duration = Duration::from_secs(60);

/// A child that shares a counter-based event and a pool whose event 0 and counter are not signalled
/// before the test says so; event 1 of the pool and the second counter are complete.
#[test]
#[ignore = "runs in a child process"]
fn child_that_exports() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(1);
    let gates = gpu.pool(1, ze_event_pool_flags_t::empty());
    let gate = gates.event(0);
    let (list, done) = (gpu.immediate(0, true), gpu.immediate(0, true));
    let (event, complete) = (gpu.cb_event_with(CB_IPC), gpu.cb_event_with(CB_IPC));
    list.set((&memory, 0), 1, Some(&event), &[&gate]);
    done.set((&memory, 0), 1, Some(&complete), &[]);
    done.synchronize();
    let pool = gpu.pool(2, POOL_IPC);
    pool.event(1).signal();
    for event in [&event, &complete] {
        let mut handle = ze_ipc_event_counter_based_handle_t::default();
        check!(zeEventCounterBasedGetIpcHandle(event.0, &raw mut handle));
        peer::say_handle(&handle.data);
    }
    let mut handle = ze_ipc_event_pool_handle_t::default();
    check!(zeEventPoolGetIpcHandle(pool.0, &raw mut handle));
    peer::say_handle(&handle.data);
    loop {
        match &*peer::hear() {
            "signal" => {
                gate.signal();
                list.synchronize();
                peer::say("signalled");
            }
            // A child of the exporter's own keeps copies of all its descriptors, until the importer has
            // nothing more to send to either.
            "fork" => {
                // SAFETY: the child makes system calls only, and ends.
                if unsafe { libc::fork() } == 0 {
                    let mut byte = 0_u8;
                    // SAFETY: it reads into its own byte; no destructors of the parent's are run.
                    unsafe {
                        while libc::read(0, (&raw mut byte).cast(), 1) == 1 {}
                        libc::_exit(0);
                    }
                }
                peer::say("forked");
            }
            other => panic!("{other}"),
        }
    }
}

/// The objects of such a child that an importer has open.
struct Imported {
    event: ze_event_handle_t,
    complete: ze_event_handle_t,
    pool: ze_event_pool_handle_t,
    unsignalled: ze_event_handle_t,
    signalled: ze_event_handle_t,
}

impl Imported {
    fn new(gpu: &Gpu, exporter: &mut Peer) -> Self {
        let open = |data| {
            let mut event = NONE;
            let handle = ze_ipc_event_counter_based_handle_t { data };
            check!(zeEventCounterBasedOpenIpcHandle(gpu.context, handle, &raw mut event));
            event
        };
        let (event, complete) = (open(exporter.hear_handle()), open(exporter.hear_handle()));
        let mut pool = ze_event_pool_handle_t::NULL;
        let handle = ze_ipc_event_pool_handle_t { data: exporter.hear_handle() };
        check!(zeEventPoolOpenIpcHandle(gpu.context, handle, &raw mut pool));
        let of_pool = |index| {
            let desc = ze_event_desc_t { index, ..Default::default() };
            let mut event = NONE;
            check!(zeEventCreate(pool, &raw const desc, &raw mut event));
            event
        };
        let (unsignalled, signalled) = (of_pool(0), of_pool(1));
        Self { event, complete, pool, unsignalled, signalled }
    }

    fn close(self) {
        for event in [self.unsignalled, self.signalled] {
            check!(zeEventDestroy(event));
        }
        check!(zeEventPoolCloseIpcHandle(self.pool));
        for event in [self.event, self.complete] {
            check!(zeEventCounterBasedCloseIpcHandle(event));
        }
    }
}

/// The exporter dies while the importer's host waits.
#[test]
fn a_host_wait_ends_when_the_exporter_dies() {
    let gpu = Gpu::new();
    for forks in [false, true] {
        for of_pool in [false, true] {
            let mut exporter = Peer::start("child_that_exports");
            let imported = Imported::new(&gpu, &mut exporter);
            if forks {
                exporter.say("fork");
                exporter.expect("forked");
            }
            let event = if of_pool { imported.unsignalled } else { imported.event };
            let handle = event.0 as usize;
            let waiter = std::thread::spawn(move || {
                let event = ze_event_handle_t(handle as *mut _);
                (call!(zeEventHostSynchronize(event, PATIENCE)), Instant::now())
            });
            std::thread::sleep(Duration::from_millis(100));
            let killed = Instant::now();
            exporter.kill();
            let (answer, ended) = waiter.join().expect("the wait returns");
            assert_eq!(answer, ze_result_t::ZE_RESULT_ERROR_DEVICE_LOST);
            assert!(ended - killed < PROMPT, "{:?}", ended - killed);
            // Every later wait and query fails too, and complete events stay complete.
            for event in [imported.event, imported.unsignalled] {
                refused!(ZE_RESULT_ERROR_DEVICE_LOST, zeEventHostSynchronize(event, PATIENCE));
                refused!(ZE_RESULT_ERROR_DEVICE_LOST, zeEventQueryStatus(event));
            }
            check!(zeEventHostSynchronize(imported.complete, PATIENCE));
            check!(zeEventHostSynchronize(imported.signalled, PATIENCE));
            imported.close();
            // The importer's own device still works.
            check!(zeContextGetStatus(gpu.context));
        }
    }
    let memory = gpu.host::<u32>(1);
    let list = gpu.immediate(0, true);
    list.set((&memory, 0), 5, None, &[]);
    list.synchronize();
    assert_eq!(memory.get(0), 5);
}

/// A signal that the exporter made before it died is complete, even if the device detects it later.
#[test]
fn what_was_signalled_before_the_death_is_complete() {
    let gpu = Gpu::new();
    let mut exporter = Peer::start("child_that_exports");
    let imported = Imported::new(&gpu, &mut exporter);
    let memory = gpu.host::<u32>(2);
    let list = gpu.immediate(0, true);
    let early = std::mem::ManuallyDrop::new(tally_tests::lists::Event(imported.event));
    list.set((&memory, 0), 1, None, &[&early]);
    exporter.say("signal");
    exporter.expect("signalled");
    exporter.kill();
    check!(zeEventHostSynchronize(imported.event, PATIENCE));
    list.synchronize();
    let signalled = std::mem::ManuallyDrop::new(tally_tests::lists::Event(imported.signalled));
    list.set((&memory, 1), 1, None, &[&early, &signalled]);
    list.synchronize();
    assert_eq!((memory.get(0), memory.get(1)), (1, 1));
    imported.close();
    check!(zeContextGetStatus(gpu.context));
}

/// The exporter dies before its handles are opened.
#[test]
fn a_handle_of_a_dead_process_is_device_lost() {
    let gpu = Gpu::new();
    let mut exporter = Peer::start("child_that_exports");
    let (event, _, pool) = (exporter.hear_handle(), exporter.hear_handle(), exporter.hear_handle());
    exporter.kill();
    let (mut opened, mut opened_pool) = (NONE, ze_event_pool_handle_t::NULL);
    let handle = ze_ipc_event_counter_based_handle_t { data: event };
    let said = refused!(
        ZE_RESULT_ERROR_DEVICE_LOST,
        zeEventCounterBasedOpenIpcHandle(gpu.context, handle, &raw mut opened)
    );
    assert!(said.contains("has ended"), "{said}");
    let handle = ze_ipc_event_pool_handle_t { data: pool };
    refused!(
        ZE_RESULT_ERROR_DEVICE_LOST,
        zeEventPoolOpenIpcHandle(gpu.context, handle, &raw mut opened_pool)
    );
}

/// The exporter dies while the importer's device waits: its queue can neither continue nor wait
/// forever, so the importer's device is lost, and works again after the recovery that the specification
/// requires.
#[test]
fn a_device_wait_ends_when_the_exporter_dies() {
    for wait in ["counter, parked", "counter, later", "pool, parked", "recorded"] {
        ze::in_child("child_whose_device_waits", &[("TALLY_TEST_WAIT", wait)]);
    }
}

#[test]
#[ignore = "runs in a child process"]
fn child_whose_device_waits() {
    let wait = std::env::var("TALLY_TEST_WAIT").expect("the test says what");
    let gpu = Gpu::new();
    let mut exporter = Peer::start("child_that_exports");
    let imported = Imported::new(&gpu, &mut exporter);
    let event = if wait.starts_with("pool") { imported.unsignalled } else { imported.event };
    let event = std::mem::ManuallyDrop::new(tally_tests::lists::Event(event));
    let memory = gpu.host::<u32>(1);
    let list = gpu.immediate(0, true);
    let (regular, queue) = (gpu.regular(0, true), gpu.queue(0));
    let append = || match &*wait {
        "recorded" => {
            regular.set((&memory, 0), 1, None, &[&event]);
            regular.close();
            queue.execute(&[&regular], None);
        }
        _ => list.set((&memory, 0), 1, None, &[&event]),
    };
    if !wait.ends_with("later") {
        append();
        std::thread::sleep(Duration::from_millis(50));
    }
    exporter.kill();
    let killed = Instant::now();
    if wait.ends_with("later") {
        refused!(ZE_RESULT_ERROR_DEVICE_LOST, zeEventHostSynchronize(event.0, PATIENCE));
        append();
    }
    let lost = match &*wait {
        "recorded" => call!(zeCommandQueueSynchronize(queue.0, PATIENCE)),
        _ => call!(zeCommandListHostSynchronize(list.0, PATIENCE)),
    };
    assert_eq!(lost, ze_result_t::ZE_RESULT_ERROR_DEVICE_LOST);
    assert!(killed.elapsed() < PROMPT, "{:?}", killed.elapsed());
    assert_eq!(memory.get(0), 0, "nothing behind the wait was run");
    imported.close();
    let device = gpu.device;
    drop((list, regular, queue, memory, gpu));
    // The application has to notice the loss; the error is not checked here.
    let _ = call!(zeDeviceGetStatus(device));
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(1);
    let list = gpu.immediate(0, true);
    list.set((&memory, 0), 3, None, &[]);
    list.synchronize();
    assert_eq!(memory.get(0), 3);
}

/// The importer dies while it waits: the exporter loses nothing, neither its event nor descriptors.
#[test]
fn the_importers_death_loses_nothing_for_the_exporter() {
    // Alone in a process, since other tests have descriptors of their own.
    ze::in_child("child_whose_importers_die", &[]);
}

#[test]
#[ignore = "runs in a child process"]
fn child_whose_importers_die() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(1);
    let gates = gpu.pool(1, ze_event_pool_flags_t::empty());
    let gate = gates.event(0);
    let list = gpu.immediate(0, true);
    let event = gpu.cb_event_with(CB_IPC);
    list.set((&memory, 0), 1, Some(&event), &[&gate]);
    let pool = gpu.pool(2, POOL_IPC);
    let first = pool.event(0);
    let shared = gpu.device_memory::<u32>(1024);
    shared.fill_with(|i| i as u32);
    let mut handles = (
        ze_ipc_event_counter_based_handle_t::default(),
        ze_ipc_event_pool_handle_t::default(),
        ze_ipc_mem_handle_t::default(),
    );
    check!(zeEventCounterBasedGetIpcHandle(event.0, &raw mut handles.0));
    check!(zeEventPoolGetIpcHandle(pool.0, &raw mut handles.1));
    check!(zeMemGetIpcHandle(gpu.context, shared.ptr().cast(), &raw mut handles.2));
    let files = || std::fs::read_dir("/proc/self/fd").expect("Linux has it").count();
    let mut before = None;
    for _ in 0..4 {
        let mut importer = Peer::start("child_that_imports_and_waits");
        importer.say_handle(&handles.0.data);
        importer.say_handle(&handles.1.data);
        importer.say_handle(&handles.2.data);
        importer.expect("waits");
        importer.kill();
        drop(importer);
        // Its sockets are closed when the thread that serves them is notified.
        let until = Instant::now() + PROMPT;
        while before.is_some_and(|before| files() > before) {
            assert!(Instant::now() < until, "{} descriptors, {before:?} before", files());
            std::thread::sleep(Duration::from_millis(1));
        }
        before = before.or_else(|| {
            std::thread::sleep(Duration::from_millis(500));
            Some(files())
        });
    }
    assert!(!event.is_ready() && !first.is_ready());
    assert!((0..1024).all(|i| shared.get(i) == i as u32));
    gate.signal();
    list.synchronize();
    event.synchronize();
    first.signal();
    first.synchronize();
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_imports_and_waits() {
    let gpu = Gpu::new();
    let (mut event, mut pool) = (NONE, ze_event_pool_handle_t::NULL);
    let mut memory = std::ptr::null_mut();
    let handle = ze_ipc_event_counter_based_handle_t { data: peer::hear_handle() };
    check!(zeEventCounterBasedOpenIpcHandle(gpu.context, handle, &raw mut event));
    let handle = ze_ipc_event_pool_handle_t { data: peer::hear_handle() };
    check!(zeEventPoolOpenIpcHandle(gpu.context, handle, &raw mut pool));
    let handle = ze_ipc_mem_handle_t { data: peer::hear_handle() };
    let flags = ze_ipc_memory_flags_t::empty();
    check!(zeMemOpenIpcHandle(gpu.context, gpu.device, handle, flags, &raw mut memory));
    let list = gpu.immediate(0, true);
    let event = tally_tests::lists::Event(event);
    list.wait(&[&event]);
    peer::say("waits");
    event.synchronize();
}
