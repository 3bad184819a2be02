// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many threads at once: each creates, appends, synchronises and destroys, and none is affected by the
//! others.

use std::ptr;
use std::sync::Barrier;
use std::thread;

use tally_tests::ze::{self, Gpu};
use tally_tests::{call, check};
use tally_ze::*;

const THREADS: usize = 64;
/// The number of times that each thread does all of it.
const ROUNDS: u32 = 4;

/// "Simultaneous calls to zeInit are thread-safe and only one instance of each driver will be loaded."
#[test]
fn all_threads_may_initialise_and_get_one_driver() {
    let driver = ze::driver();
    let start = Barrier::new(THREADS);
    thread::scope(|scope| {
        for i in 0..THREADS {
            let start = &start;
            scope.spawn(move || {
                start.wait();
                let (mut count, mut found) = (1, ze_driver_handle_t::NULL);
                if i % 2 == 0 {
                    check!(zeInit(ze_init_flags_t::empty()));
                    check!(zeDriverGet(&raw mut count, &raw mut found));
                } else {
                    let mut desc = ze_init_driver_type_desc_t {
                        flags: ze_init_driver_type_flags_t::ZE_INIT_DRIVER_TYPE_FLAG_GPU,
                        ..Default::default()
                    };
                    check!(zeInitDrivers(&raw mut count, &raw mut found, &raw mut desc));
                }
                assert_eq!((count, found), (1, driver));
            });
        }
    });
}

/// "The same context may be used simultaneously on multiple Host threads."
#[test]
fn threads_create_append_synchronise_and_destroy_at_once() {
    let gpu = Gpu::new();
    let start = Barrier::new(THREADS);
    thread::scope(|scope| {
        for i in 0..THREADS as u32 {
            let (gpu, start) = (&gpu, &start);
            scope.spawn(move || {
                start.wait();
                for round in 0..ROUNDS {
                    one_thread(gpu, i * ROUNDS + round);
                }
            });
        }
    });
}

fn one_thread(gpu: &Gpu, value: u32) {
    let own = value.is_multiple_of(4).then(Gpu::new);
    let gpu = own.as_ref().unwrap_or(gpu);
    let memory = gpu.host::<u32>(3);
    let event = gpu.cb_event();
    let immediate = gpu.immediate(value % 2, true);
    immediate.set((&memory, 0), value, Some(&event), &[]);
    let (regular, queue) = (gpu.regular(0, true), gpu.queue(0));
    regular.copy((&memory, 1), (&memory, 0), 1, None, &[&event]);
    regular.close();
    queue.execute(&[&regular], None);
    queue.synchronize();
    let pool = gpu.pool(1, ze_event_pool_flags_t::empty());
    let last = pool.event(0);
    immediate.copy((&memory, 2), (&memory, 1), 1, Some(&last), &[]);
    last.synchronize();
    assert_eq!(memory.to_vec(), [value; 3]);
    // An error belongs to the thread that caused it.
    let result = call!(zeCommandListHostSynchronize(ze_command_list_handle_t::NULL, 0));
    assert_eq!(result, ze_result_t::ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
    assert!(ze::description().contains("hCommandList"), "{}", ze::description());
    let mut base = ptr::null_mut();
    let at = memory.ptr().cast();
    check!(zeMemGetAddressRange(gpu.context, at, &raw mut base, ptr::null_mut()));
    assert_eq!(base, at);
}
