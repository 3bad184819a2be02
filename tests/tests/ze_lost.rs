// SPDX-License-Identifier: MIT OR Apache-2.0
//! A fault loses the device for the whole process, so this file holds one test.

use std::ptr;
use std::time::{Duration, Instant};

use tally_tests::lists::{NONE, PATIENCE};
use tally_tests::ze::Gpu;
use tally_tests::{call, check, refused};
use tally_ze::*;

/// "Within a second" holds on an idle machine; this limit is for a busy one.
const PROMPT: Duration = Duration::from_secs(60);

/// "A wait on a counter whose producer has died ends in DEVICE_LOST within a second, never in a
/// hang, never in a false completion." Afterwards a new context works.
#[test]
fn a_fault_ends_all_waits_with_device_lost() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(2);
    let pool = gpu.pool(2, ze_event_pool_flags_t::empty());
    let (regular, never) = (pool.event(0), pool.event(1));
    let event = gpu.cb_event();
    let (list, other) = (gpu.immediate(0, true), gpu.immediate(0, true));
    other.set((&memory, 1), 1, Some(&regular), &[&never]);
    let start = Instant::now();
    // Freed memory is unmapped, so a read of it is a fault.
    let nowhere = gpu.device_memory::<u32>(1 << 20).ptr().cast_const().cast();
    let (dst, waits) = (memory.ptr().cast(), ptr::null_mut());
    check!(zeCommandListAppendMemoryCopy(list.0, dst, nowhere, 4, event.0, 0, waits));
    refused!(ZE_RESULT_ERROR_DEVICE_LOST, zeEventHostSynchronize(event.0, PATIENCE));
    refused!(ZE_RESULT_ERROR_DEVICE_LOST, zeCommandListHostSynchronize(list.0, PATIENCE));
    refused!(ZE_RESULT_ERROR_DEVICE_LOST, zeCommandListHostSynchronize(other.0, PATIENCE));
    refused!(ZE_RESULT_ERROR_DEVICE_LOST, zeEventHostSynchronize(regular.0, PATIENCE));
    refused!(
        ZE_RESULT_ERROR_DEVICE_LOST,
        zeCommandListAppendMemoryCopy(list.0, dst, dst, 4, NONE, 0, waits)
    );
    assert!(start.elapsed() < PROMPT);
    assert_eq!(memory.get(1), 0);
    drop((list, other, event, regular, never, pool, memory));
    let device = gpu.device;
    drop(gpu);
    // The application has to notice the loss; the error is not checked here.
    let _ = call!(zeDeviceGetStatus(device));
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(1);
    let list = gpu.immediate(0, true);
    list.set((&memory, 0), 3, None, &[]);
    list.synchronize();
    assert_eq!(memory.get(0), 3);
}
