// SPDX-License-Identifier: MIT OR Apache-2.0
//! zeCommandListAppendHostFunction: "The host function will be executed on the host when the command
//! list reaches this point during execution."

use std::ffi::c_void;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, ThreadId};

use tally_tests::lists::{Event, List, raw, raws};
use tally_tests::ze::{Gpu, Usm};
use tally_tests::{call, check, refused};
use tally_ze::*;

/// The data of a host function, and its results.
struct Visit<'a> {
    memory: &'a Usm<u32>,
    /// The first element at each call.
    seen: Mutex<Vec<u32>>,
    thread: Mutex<Option<ThreadId>>,
}

impl<'a> Visit<'a> {
    fn new(memory: &'a Usm<u32>) -> Self {
        Self { memory, seen: Mutex::default(), thread: Mutex::default() }
    }

    fn seen(&self) -> Vec<u32> {
        self.seen.lock().expect("no panic").clone()
    }
}

/// Records the memory's contents and adds 100.
unsafe extern "C" fn visit(data: *mut c_void) {
    // SAFETY: the tests pass a Visit that lives until they have waited.
    let visit = unsafe { &*data.cast::<Visit<'_>>() };
    let value = visit.memory.get(0);
    visit.seen.lock().expect("no panic").push(value);
    *visit.thread.lock().expect("no panic") = Some(thread::current().id());
    visit.memory.set(0, value + 100);
}

fn append(list: &List, visit_: &Visit<'_>, signal: Option<&Event>, waits: &[&Event]) {
    let mut waits = raws(waits);
    let (data, count) = (ptr::from_ref(visit_).cast_mut().cast(), waits.len() as u32);
    let (next, signal, waits) = (ptr::null(), raw(signal), waits.as_mut_ptr());
    check!(zeCommandListAppendHostFunction(list.0, Some(visit), data, next, signal, count, waits));
}

#[test]
fn it_runs_between_the_commands_around_it() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(1);
    let found = Visit::new(&memory);
    let list = gpu.immediate(0, true);
    for i in 0..50 {
        list.set((&memory, 0), i, None, &[]);
        append(&list, &found, None, &[]);
    }
    list.synchronize();
    assert_eq!(found.seen(), (0..50).collect::<Vec<_>>());
    assert_eq!(memory.get(0), 149, "what it writes stays");
    let thread = *found.thread.lock().expect("no panic");
    assert_ne!(thread, Some(thread::current().id()), "asynchronously to API calls");
}

#[test]
fn it_runs_in_every_execution_of_a_recording() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(1);
    let (first, second) = (Visit::new(&memory), Visit::new(&memory));
    let (list, queue) = (gpu.regular(0, true), gpu.queue(0));
    append(&list, &first, None, &[]);
    append(&list, &second, None, &[]);
    list.close();
    memory.set(0, 0);
    for _ in 0..20 {
        queue.execute(&[&list], None);
    }
    queue.synchronize();
    assert_eq!(first.seen(), (0..20).map(|i| 200 * i).collect::<Vec<_>>());
    assert_eq!(second.seen(), (0..20).map(|i| 200 * i + 100).collect::<Vec<_>>());
}

/// "Device will wait for all phWaitEvents to be signaled before executing the host function"; and
/// the signal event comes after it.
#[test]
fn it_waits_for_its_events_and_signals() {
    let gpu = Gpu::new();
    for (in_order, ordinal) in [(true, 0), (false, 0), (true, 1)] {
        let memory = gpu.host::<u32>(1);
        memory.set(0, 5);
        let found = Visit::new(&memory);
        let pool = gpu.pool(2, ze_event_pool_flags_t::empty());
        let (gate, done) = (pool.event(0), pool.event(1));
        let list = gpu.immediate(ordinal, in_order);
        append(&list, &found, Some(&done), &[&gate]);
        assert!(!done.is_ready() && found.seen().is_empty());
        memory.set(0, 6);
        gate.signal();
        done.synchronize();
        assert_eq!((found.seen(), memory.get(0)), (vec![6], 106));
        list.synchronize();
    }
}

#[test]
fn a_counter_based_event_follows_it() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(2);
    memory.set(0, 1);
    let found = Visit::new(&memory);
    let (list, other) = (gpu.immediate(0, true), gpu.immediate(0, true));
    let event = gpu.cb_event();
    append(&list, &found, Some(&event), &[]);
    other.copy((&memory, 1), (&memory, 0), 1, None, &[&event]);
    other.synchronize();
    assert_eq!(memory.get(1), 101);
}

/// Lists of many threads: each function runs once, in any order among the lists.
#[test]
fn many_lists_call_at_once() {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    unsafe extern "C" fn count(_: *mut c_void) {
        CALLS.fetch_add(1, Ordering::Relaxed);
    }
    let gpu = Gpu::new();
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let list = gpu.immediate(0, true);
                for _ in 0..200 {
                    let (none, waits) = (ze_event_handle_t::NULL, ptr::null_mut());
                    let (data, next) = (ptr::null_mut(), ptr::null());
                    check!(zeCommandListAppendHostFunction(
                        list.0,
                        Some(count),
                        data,
                        next,
                        none,
                        0,
                        waits
                    ));
                }
                list.synchronize();
            });
        }
    });
    assert_eq!(CALLS.load(Ordering::Relaxed), 6 * 200);
}

#[test]
fn wrong_arguments_are_refused() {
    let gpu = Gpu::new();
    let list = gpu.immediate(0, true);
    let (none, data, waits) = (ze_event_handle_t::NULL, ptr::null_mut(), ptr::null_mut());
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_POINTER,
        zeCommandListAppendHostFunction(list.0, None, data, ptr::null(), none, 0, waits)
    );
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_HANDLE,
        zeCommandListAppendHostFunction(
            ze_command_list_handle_t::NULL,
            Some(visit),
            data,
            ptr::null(),
            none,
            0,
            waits
        )
    );
    refused!(
        ZE_RESULT_ERROR_INVALID_SIZE,
        zeCommandListAppendHostFunction(list.0, Some(visit), data, ptr::null(), none, 1, waits)
    );
    let desc = ze_context_desc_t::default();
    refused!(
        ZE_RESULT_ERROR_UNSUPPORTED_FEATURE,
        zeCommandListAppendHostFunction(
            list.0,
            Some(visit),
            data,
            (&raw const desc).cast(),
            none,
            0,
            waits
        )
    );
    // Nothing was appended.
    assert_eq!(call!(zeCommandListHostSynchronize(list.0, 0)), ze_result_t::ZE_RESULT_SUCCESS);
}
