// SPDX-License-Identifier: MIT OR Apache-2.0
//! Repeated sharing with other processes: no resources are leaked, and a process may be killed at any
//! moment. TALLY_ROUNDS sets the number of processes that are killed, TALLY_SEED the moments.

use std::path::Path;
use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use tally_tests::device_threads;
use tally_tests::lists::{Event, List, NONE, Pool};
use tally_tests::peer::{self, HandleBytes, Peer};
use tally_tests::ze::{self, Gpu, Usm};
use tally_tests::{call, check};
use tally_ze::*;

const CB_IPC: ze_event_counter_based_flags_t =
    ze_event_counter_based_flags_t::ZE_EVENT_COUNTER_BASED_FLAG_IPC;
const POOL_IPC: ze_event_pool_flags_t = ze_event_pool_flags_t::ZE_EVENT_POOL_FLAG_IPC;
const READY: ze_result_t = ze_result_t::ZE_RESULT_SUCCESS;
const LOST: ze_result_t = ze_result_t::ZE_RESULT_ERROR_DEVICE_LOST;
/// The number of opens and closes of everything.
const OPENS: usize = 1000;
/// The number of events that a process shares before it starts again.
const EVENTS: usize = 64;
/// "Within a second", for a busy machine.
const PROMPT: Duration = Duration::from_secs(60);

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|it| it.parse().ok()).unwrap_or(default)
}

/// One object of each kind that can be shared, and their handles.
struct Export {
    memory: Usm<u32>,
    pool: Pool,
    event: Event,
    list: List,
}

impl Export {
    /// The event is complete when the pool's event 0 is signalled.
    fn new(gpu: &Gpu) -> Self {
        let (memory, pool) = (gpu.host::<u32>(1 << 14), gpu.pool(2, POOL_IPC));
        let (event, list) = (gpu.cb_event_with(CB_IPC), gpu.immediate(0, true));
        list.set((&memory, 0), 1, Some(&event), &[&pool.event(0)]);
        Self { memory, pool, event, list }
    }

    fn handles(&self, gpu: &Gpu) -> [HandleBytes; 3] {
        let mut event = ze_ipc_event_counter_based_handle_t::default();
        let mut pool = ze_ipc_event_pool_handle_t::default();
        let mut memory = ze_ipc_mem_handle_t::default();
        check!(zeEventCounterBasedGetIpcHandle(self.event.0, &raw mut event));
        check!(zeEventPoolGetIpcHandle(self.pool.0, &raw mut pool));
        check!(zeMemGetIpcHandle(gpu.context, self.memory.ptr().cast(), &raw mut memory));
        [event.data, pool.data, memory.data]
    }

    fn open_the_gate(&self) {
        self.pool.event(0).signal();
        self.list.synchronize();
    }
}

/// Opens all three, uses them briefly, and closes them.
fn open_and_close(gpu: &Gpu, handles: &[HandleBytes; 3]) {
    let (mut event, mut pool, mut at) = (NONE, ze_event_pool_handle_t::NULL, ptr::null_mut());
    let handle = ze_ipc_event_counter_based_handle_t { data: handles[0] };
    check!(zeEventCounterBasedOpenIpcHandle(gpu.context, handle, &raw mut event));
    let handle = ze_ipc_event_pool_handle_t { data: handles[1] };
    check!(zeEventPoolOpenIpcHandle(gpu.context, handle, &raw mut pool));
    let (handle, flags) =
        (ze_ipc_mem_handle_t { data: handles[2] }, ze_ipc_memory_flags_t::empty());
    check!(zeMemOpenIpcHandle(gpu.context, gpu.device, handle, flags, &raw mut at));
    let (desc, mut first) = (ze_event_desc_t::default(), NONE);
    check!(zeEventCreate(pool, &raw const desc, &raw mut first));
    for event in [event, first] {
        assert_eq!(call!(zeEventQueryStatus(event)), ze_result_t::ZE_RESULT_NOT_READY);
    }
    check!(zeEventDestroy(first));
    check!(zeMemCloseIpcHandle(gpu.context, at));
    check!(zeEventPoolCloseIpcHandle(pool));
    check!(zeEventCounterBasedCloseIpcHandle(event));
}

/// The resources of a process: descriptors, threads, mappings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Holdings {
    files: usize,
    threads: usize,
    maps: usize,
}

impl Holdings {
    fn of(process: u32) -> Self {
        let process = Path::new("/proc").join(process.to_string());
        let count = |what: &str| std::fs::read_dir(process.join(what)).expect("ours").count();
        let maps = std::fs::read_to_string(process.join("maps")).expect("ours").lines().count();
        Self { files: count("fd"), threads: count("task"), maps }
    }

    /// The allocator and a growing heap of the driver may keep some mappings.
    fn is_back_at(self, before: Self) -> bool {
        self.files <= before.files
            && self.threads <= before.threads
            && self.maps <= before.maps + OPENS / 20
    }
}

/// Waits until a process holds no more than before: it closes its ends when it notices that ours are
/// closed.
fn settles(process: u32, before: Holdings) {
    let until = Instant::now() + Duration::from_secs(60);
    while !Holdings::of(process).is_back_at(before) {
        assert!(Instant::now() < until, "{:?}, but before {before:?}", Holdings::of(process));
        thread::sleep(Duration::from_millis(5));
    }
}

/// A thousand opens and closes of an event, a pool and memory leak no descriptor, thread or mapping in
/// either process; and the last one works like the first.
#[test]
fn a_thousand_opens_leave_nothing_behind() {
    ze::in_child("child_that_opens_a_thousand_times", &[device_threads::VARIABLE]);
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_opens_a_thousand_times() {
    let mut exporter = Peer::start("child_that_exports_all");
    let handles = [0; 3].map(|_| exporter.hear_handle());
    let gpu = Gpu::new();
    device_threads::start_all(&gpu, &device_threads::spirv());
    for _ in 0..10 {
        open_and_close(&gpu, &handles);
    }
    let processes = [std::process::id(), exporter.id()];
    thread::sleep(Duration::from_millis(300));
    let before = processes.map(Holdings::of);
    for _ in 0..OPENS {
        open_and_close(&gpu, &handles);
    }
    for (process, before) in processes.into_iter().zip(before) {
        settles(process, before);
    }
    exporter.say("end");
    exporter.finish();
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_exports_all() {
    let gpu = Gpu::new();
    device_threads::start_all(&gpu, &device_threads::spirv());
    let export = Export::new(&gpu);
    export.handles(&gpu).iter().for_each(peer::say_handle);
    peer::expect("end");
    export.open_the_gate();
}

/// The same for the handles themselves: created and put back, including the event.
#[test]
fn a_thousand_handles_leave_nothing_behind() {
    ze::in_child("child_that_makes_a_thousand_handles", &[device_threads::VARIABLE]);
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_makes_a_thousand_handles() {
    let gpu = Gpu::new();
    device_threads::start_all(&gpu, &device_threads::spirv());
    let round = || {
        let export = Export::new(&gpu);
        let [_, pool, memory] = export.handles(&gpu);
        check!(zeMemPutIpcHandle(gpu.context, ze_ipc_mem_handle_t { data: memory }));
        check!(zeEventPoolPutIpcHandle(gpu.context, ze_ipc_event_pool_handle_t { data: pool }));
        export.open_the_gate();
    };
    (0..10).for_each(|_| round());
    let process = std::process::id();
    let before = Holdings::of(process);
    (0..OPENS).for_each(|_| round());
    settles(process, before);
}

/// Numbers below a limit, the same for the same seed (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % limit
    }
}

/// "Exporter's death at every step gives completion or DEVICE_LOST within a second, never a hang or
/// false completion." The exporter is killed at random moments, while it creates handles, answers
/// requests for them, signals, and while the importer waits: if an event is reported complete, its work
/// is done.
#[test]
fn an_exporter_may_die_at_any_moment() {
    let mut random = Random(number("TALLY_SEED", 1));
    let gpu = Gpu::new();
    for round in 0..number("TALLY_ROUNDS", 12) {
        let mut exporter = Peer::start("child_that_shares_and_signals");
        let memory = exporter.hear_handle();
        let (handle, mut at) = (ze_ipc_mem_handle_t { data: memory }, ptr::null_mut());
        let flags = ze_ipc_memory_flags_t::empty();
        check!(zeMemOpenIpcHandle(gpu.context, gpu.device, handle, flags, &raw mut at));
        let killed_after = Duration::from_micros(random.below(30_000));
        let pid = exporter.id();
        thread::scope(|scope| {
            let killer = scope.spawn(move || {
                thread::sleep(killed_after);
                // SAFETY: the process is our child, which is not waited for before this is done.
                unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
                Instant::now()
            });
            let mut last = Instant::now();
            for number in 0..EVENTS {
                let Some(line) = exporter.hear_or_end() else { break };
                look_at_one(&gpu, peer::from_hex(&line), at.cast(), number);
                last = Instant::now();
            }
            let death = killer.join().expect("it does not panic");
            assert!(last < death + PROMPT, "round {round}: {:?} after the death", last - death);
        });
        exporter.kill();
        check!(zeMemCloseIpcHandle(gpu.context, at));
    }
}

/// Waits for one event of an exporter that may die; the work of the event is to write a 1.
fn look_at_one(gpu: &Gpu, data: HandleBytes, memory: *const u32, number: usize) {
    let mut event = NONE;
    let handle = ze_ipc_event_counter_based_handle_t { data };
    match call!(zeEventCounterBasedOpenIpcHandle(gpu.context, handle, &raw mut event)) {
        READY => {}
        LOST => return,
        other => panic!("opening: {other:?}: {}", tally_tests::ze::description()),
    }
    let result = call!(zeEventHostSynchronize(event, u64::MAX));
    assert!([READY, LOST].contains(&result), "{result:?}");
    // SAFETY: the exporter's memory has this many elements and is open.
    let done = unsafe { memory.add(number).read_volatile() };
    assert!(result == LOST || done == 1, "event {number} is complete, but its work is not done");
    check!(zeEventCounterBasedCloseIpcHandle(event));
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_shares_and_signals() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(EVENTS);
    let mut handle = ze_ipc_mem_handle_t::default();
    check!(zeMemGetIpcHandle(gpu.context, memory.ptr().cast(), &raw mut handle));
    peer::say_handle(&handle.data);
    let (list, gates) = (gpu.immediate(0, true), gpu.pool(1, ze_event_pool_flags_t::empty()));
    let gate = gates.event(0);
    for number in 0..EVENTS {
        let event = gpu.cb_event_with(CB_IPC);
        gate.reset();
        list.set((&memory, number), 1, Some(&event), &[&gate]);
        let mut handle = ze_ipc_event_counter_based_handle_t::default();
        check!(zeEventCounterBasedGetIpcHandle(event.0, &raw mut handle));
        peer::say_handle(&handle.data);
        thread::sleep(Duration::from_micros(200));
        gate.signal();
        list.synchronize();
    }
    // It lives until it is killed.
    while peer::hear_or_end().is_some() {}
}

/// The importer's death at every step: it is killed at random moments while it opens, waits and closes.
/// The exporter's work continues, and no resources of the importer remain.
#[test]
fn an_importer_may_die_at_any_moment() {
    ze::in_child("child_whose_importers_die", &[device_threads::VARIABLE]);
}

#[test]
#[ignore = "runs in a child process"]
fn child_whose_importers_die() {
    let mut random = Random(number("TALLY_SEED", 2));
    let gpu = Gpu::new();
    device_threads::start_all(&gpu, &device_threads::spirv());
    let mut before = None;
    for round in 0..number("TALLY_ROUNDS", 12) {
        let export = Export::new(&gpu);
        let handles = export.handles(&gpu);
        let mut importer = Peer::start("child_that_opens_and_closes");
        handles.iter().for_each(|handle| importer.say_handle(handle));
        importer.expect("begins");
        if before.is_none() {
            // The exporter keeps a thread from the first opening on.
            importer.expect("closed");
        }
        thread::sleep(Duration::from_micros(random.below(20_000)));
        importer.kill();
        drop(importer);
        assert!(!export.event.is_ready(), "round {round}");
        export.open_the_gate();
        export.event.synchronize();
        assert_eq!(export.memory.get(0), 1);
        drop(export);
        let process = std::process::id();
        match before {
            Some(before) => settles(process, before),
            None => {
                thread::sleep(Duration::from_millis(300));
                before = Some(Holdings::of(process));
            }
        }
    }
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_opens_and_closes() {
    let handles = [0; 3].map(|_| peer::hear_handle());
    let gpu = Gpu::new();
    peer::say("begins");
    loop {
        open_and_close(&gpu, &handles);
        peer::say("closed");
    }
}
