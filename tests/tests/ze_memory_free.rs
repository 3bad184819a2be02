// SPDX-License-Identifier: MIT OR Apache-2.0
//! zeMemFreeExt through the stock loader: memory is freed while the device still uses it.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tally_tests::lists::{Event, List, PATIENCE};
use tally_tests::ze::{self, Gpu, Usm};
use tally_tests::{check, refused};
use tally_ze::*;

use ze_driver_memory_free_policy_ext_flags_t as Policy;

const BLOCK: Policy = Policy::ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE;
const DEFER: Policy = Policy::ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE;
const NO_FLAGS: ze_event_pool_flags_t = ze_event_pool_flags_t::empty();

/// The policies consider everything that the process has submitted, so the tests run one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn described(policy: Policy) -> ze_memory_free_ext_desc_t {
    ze_memory_free_ext_desc_t { freePolicy: policy, ..Default::default() }
}

fn free<T: Copy>(gpu: &Gpu, memory: Usm<T>, policy: Policy) {
    let desc = described(policy);
    check!(zeMemFreeExt(gpu.context, &raw const desc, memory.ptr().cast()));
    std::mem::forget(memory);
}

fn is_known(gpu: &Gpu, ptr: *const c_void) -> bool {
    let mut properties = ze_memory_allocation_properties_t::default();
    check!(zeMemGetAllocProperties(gpu.context, ptr, &raw mut properties, ptr::null_mut()));
    properties.r#type != ze_memory_type_t::ZE_MEMORY_TYPE_UNKNOWN
}

/// Whether the process can read the address.
fn is_mapped(address: u64) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux shows it");
    maps.lines().any(|line| {
        let (range, rest) = line.split_once(' ').expect("a range and more");
        let (start, end) = range.split_once('-').expect("two addresses");
        let number = |text| u64::from_str_radix(text, 16).expect("a number");
        (number(start)..number(end)).contains(&address) && rest.starts_with('r')
    })
}

/// A list whose last command, parked behind `event`, writes to `memory`.
fn parked(gpu: &Gpu, in_order: bool, event: &Event, memory: &Usm<u32>) -> List {
    let list = gpu.immediate(0, in_order);
    list.set((memory, 0), 1, None, &[event]);
    list
}

#[test]
fn deferred_memory_is_the_devices_until_it_is_done_and_nobodys_then() {
    let _alone = alone();
    let gpu = Gpu::new();
    for (in_order, destroyed) in [(true, false), (false, false), (true, true), (false, true)] {
        let pool = gpu.pool(1, NO_FLAGS);
        let event = pool.event(0);
        let memory = gpu.host::<u32>(1);
        let (ptr, address) = (memory.ptr(), memory.address());
        let mut list = Some(parked(&gpu, in_order, &event, &memory));
        if destroyed {
            list = None;
        }
        free(&gpu, memory, DEFER);
        assert!(!is_known(&gpu, ptr.cast()) && is_mapped(address));
        let other = gpu.host::<u32>(1);
        assert_ne!(other.address(), address, "the address is given out again too early");
        event.signal();
        match &list {
            Some(list) => list.synchronize(),
            None => check!(zeDeviceSynchronize(gpu.device)),
        }
        // The next allocation notices that it is free.
        let another = gpu.host::<u32>(1);
        assert!(another.address() == address || !is_mapped(address), "it is never freed");
        check!(zeContextGetStatus(gpu.context));
    }
}

/// A deferred free waits for the submitted work, not for earlier frees.
#[test]
fn any_number_of_deferred_frees_may_wait_for_one_list() {
    let _alone = alone();
    let gpu = Gpu::new();
    let pool = gpu.pool(1, NO_FLAGS);
    let event = pool.event(0);
    let memory = gpu.host::<u32>(1);
    let list = parked(&gpu, true, &event, &memory);
    // If each waited for all before it too, the hundredth would have 2 to the power of 99 waits.
    for _ in 0..100 {
        free(&gpu, gpu.host::<u32>(1), DEFER);
    }
    event.signal();
    list.synchronize();
}

#[test]
fn deferred_memory_that_nobody_uses_is_freed_at_once() {
    let _alone = alone();
    let gpu = Gpu::new();
    let list = gpu.immediate(0, true);
    let memory = gpu.host::<u32>(1);
    list.set((&memory, 0), 1, None, &[]);
    list.synchronize();
    let address = memory.address();
    free(&gpu, memory, DEFER);
    // It is unmapped, or the next allocation of its size reuses it.
    assert!(!is_mapped(address) || gpu.host::<u32>(1).address() == address);
}

#[test]
fn a_blocking_free_returns_when_the_device_is_done() {
    let _alone = alone();
    let gpu = Gpu::new();
    for (in_order, policy) in [(true, BLOCK), (false, BLOCK), (true, BLOCK | DEFER)] {
        let pool = gpu.pool(1, NO_FLAGS);
        let event = pool.event(0);
        let memory = gpu.host::<u32>(1);
        let address = memory.address();
        let list = parked(&gpu, in_order, &event, &memory);
        let back = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                free(&gpu, memory, policy);
                back.store(true, Ordering::Release);
            });
            std::thread::sleep(Duration::from_millis(50));
            assert!(!back.load(Ordering::Acquire), "it came back while a command was parked");
            event.signal();
        });
        assert!(!is_known(&gpu, address as *const c_void));
        check!(zeCommandListHostSynchronize(list.0, PATIENCE));
    }
}

#[test]
fn wrong_frees_are_refused_and_free_nothing() {
    let _alone = alone();
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(4);
    let inside = memory.ptr().wrapping_add(1).cast();
    for policy in [Policy::empty(), BLOCK, DEFER] {
        let desc = described(policy);
        let desc = &raw const desc;
        refused!(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemFreeExt(gpu.context, desc, inside));
        refused!(
            ZE_RESULT_ERROR_INVALID_NULL_POINTER,
            zeMemFreeExt(gpu.context, desc, ptr::null_mut())
        );
    }
    let unknown = described(Policy::from_bits_retain(1 << 5));
    refused!(
        ZE_RESULT_ERROR_INVALID_ENUMERATION,
        zeMemFreeExt(gpu.context, &raw const unknown, memory.ptr().cast())
    );
    assert!(is_known(&gpu, memory.ptr().cast()));
    free(&gpu, memory, Policy::empty());
}

#[test]
fn the_driver_offers_both_policies() {
    let mut policies = ze_driver_memory_free_ext_properties_t::default();
    let mut properties =
        ze_driver_properties_t { pNext: (&raw mut policies).cast(), ..Default::default() };
    check!(zeDriverGetProperties(ze::driver(), &raw mut properties));
    assert_eq!(policies.freePolicies, BLOCK | DEFER);
}
