// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unified shared memory through the stock loader.

use std::ffi::c_void;
use std::ptr;

use tally_tests::ze::{self, Gpu};
use tally_tests::{check, refused};
use tally_ze::*;

fn allocate_host(gpu: &Gpu, size: usize, alignment: usize) -> *mut c_void {
    let desc = ze_host_mem_alloc_desc_t::default();
    let mut ptr = ptr::null_mut();
    check!(zeMemAllocHost(gpu.context, &raw const desc, size, alignment, &raw mut ptr));
    ptr
}

fn about(gpu: &Gpu, ptr: *const c_void) -> (ze_memory_allocation_properties_t, ze_device_handle_t) {
    let mut properties = ze_memory_allocation_properties_t::default();
    let mut device = ze_device_handle_t::NULL;
    check!(zeMemGetAllocProperties(gpu.context, ptr, &raw mut properties, &raw mut device));
    (properties, device)
}

#[test]
fn all_kinds_are_zero_writable_and_say_what_they_are() {
    let gpu = Gpu::new();
    let (host, device) = (gpu.host::<u64>(100), gpu.device_memory::<u64>(100));
    let (host_desc, device_desc) =
        (ze_host_mem_alloc_desc_t::default(), ze_device_mem_alloc_desc_t::default());
    let mut shared = ptr::null_mut();
    check!(zeMemAllocShared(
        gpu.context,
        &raw const device_desc,
        &raw const host_desc,
        800,
        64,
        ze_device_handle_t::NULL,
        &raw mut shared
    ));
    let seen = 1 + usize::from(ze::host_sees_device_memory());
    for memory in [&host, &device].into_iter().take(seen) {
        assert_eq!(memory.to_vec(), vec![0; 100]);
        memory.fill_with(|i| i as u64);
        assert_eq!(memory.get(99), 99);
    }
    let kinds = [
        (host.ptr().cast(), ze_memory_type_t::ZE_MEMORY_TYPE_HOST, ze_device_handle_t::NULL),
        (device.ptr().cast(), ze_memory_type_t::ZE_MEMORY_TYPE_DEVICE, gpu.device),
        (shared, ze_memory_type_t::ZE_MEMORY_TYPE_SHARED, ze_device_handle_t::NULL),
    ];
    let mut ids = Vec::new();
    for (ptr, kind, owner) in kinds {
        let (properties, device) = about(&gpu, ptr);
        assert_eq!((properties.r#type, device), (kind, owner));
        ids.push(properties.id);
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 3, "each allocation has an id of its own");
    check!(zeMemFree(gpu.context, shared));
}

#[test]
fn alignments_are_kept_from_one_byte_to_a_gibibyte() {
    let gpu = Gpu::new();
    for alignment in [0, 1, 64, 4096, 65536, 2 << 20, 1 << 30] {
        let ptr = allocate_host(&gpu, 10, alignment);
        assert_eq!(ptr as usize % alignment.max(1), 0, "{alignment}");
        check!(zeMemFree(gpu.context, ptr));
    }
}

#[test]
fn a_range_is_known_from_every_address_inside_and_none_outside() {
    let gpu = Gpu::new();
    let ptr = allocate_host(&gpu, 5000, 0).cast::<u8>();
    for offset in [0, 1, 4999] {
        let (mut base, mut size) = (ptr::null_mut(), 0);
        let inside = ptr.wrapping_add(offset).cast();
        check!(zeMemGetAddressRange(gpu.context, inside, &raw mut base, &raw mut size));
        assert_eq!((base, size), (ptr.cast(), 5000));
    }
    check!(zeMemGetAddressRange(gpu.context, ptr.cast(), ptr::null_mut(), ptr::null_mut()));
    let beyond = ptr.wrapping_add(5000).cast();
    refused!(
        ZE_RESULT_ERROR_ADDRESS_NOT_FOUND,
        zeMemGetAddressRange(gpu.context, beyond, ptr::null_mut(), ptr::null_mut())
    );
    let local = 0_u64;
    let kind = about(&gpu, (&raw const local).cast()).0.r#type;
    assert_eq!(kind, ze_memory_type_t::ZE_MEMORY_TYPE_UNKNOWN);
    check!(zeMemFree(gpu.context, ptr.cast()));
    let kind = about(&gpu, ptr.cast()).0.r#type;
    assert_eq!(kind, ze_memory_type_t::ZE_MEMORY_TYPE_UNKNOWN, "freed memory is forgotten");
}

#[test]
fn freeing_takes_only_what_was_allocated_here() {
    let gpu = Gpu::new();
    let ptr = allocate_host(&gpu, 100, 0);
    let inside = ptr.wrapping_byte_add(8);
    let mut local = 0_u64;
    for (ptr, why) in
        [(inside, "points into the allocation"), ((&raw mut local).cast(), "was not allocated")]
    {
        let text = refused!(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemFree(gpu.context, ptr));
        assert!(text.contains(why), "{text}");
    }
    refused!(ZE_RESULT_ERROR_INVALID_NULL_POINTER, zeMemFree(gpu.context, ptr::null_mut()));
    check!(zeMemFree(gpu.context, ptr));
    refused!(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemFree(gpu.context, ptr));
}

#[test]
fn bad_sizes_and_alignments_are_refused_and_write_nothing() {
    let gpu = Gpu::new();
    let (context, device) = (gpu.context, gpu.device);
    let desc = ze_device_mem_alloc_desc_t::default();
    let mut ptr = ptr::null_mut();
    let (desc, out) = (&raw const desc, &raw mut ptr);
    refused!(ZE_RESULT_ERROR_UNSUPPORTED_SIZE, zeMemAllocDevice(context, desc, 0, 0, device, out));
    refused!(
        ZE_RESULT_ERROR_UNSUPPORTED_SIZE,
        zeMemAllocDevice(context, desc, usize::MAX, 0, device, out)
    );
    for alignment in [(1 << 30) + 1, usize::MAX, 1 << 40] {
        let text = refused!(
            ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT,
            zeMemAllocDevice(context, desc, 64, alignment, device, out)
        );
        assert!(text.contains(&alignment.to_string()), "{text}");
    }
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_POINTER,
        zeMemAllocDevice(context, ptr::null(), 64, 0, device, out)
    );
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_POINTER,
        zeMemAllocDevice(context, desc, 64, 0, device, ptr::null_mut())
    );
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_HANDLE,
        zeMemAllocDevice(context, desc, 64, 0, ze_device_handle_t::NULL, out)
    );
    assert!(ptr.is_null());
}

#[test]
fn bad_descriptions_are_refused() {
    let gpu = Gpu::new();
    let mut ptr = ptr::null_mut();
    let good = ze_device_mem_alloc_desc_t::default();
    let mut flags = good;
    flags.flags = ze_device_mem_alloc_flags_t::from_bits_retain(1 << 30);
    let mut ordinal = good;
    ordinal.ordinal = 1;
    let mut stype = good;
    stype.stype = ze_structure_type_t::ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC;
    let import = ze_external_memory_import_fd_t::default();
    let mut external = good;
    external.pNext = (&raw const import).cast();
    let (context, device, out) = (gpu.context, gpu.device, &raw mut ptr);
    refused!(
        ZE_RESULT_ERROR_INVALID_ENUMERATION,
        zeMemAllocDevice(context, &raw const flags, 64, 0, device, out)
    );
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeMemAllocDevice(context, &raw const ordinal, 64, 0, device, out)
    );
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeMemAllocDevice(context, &raw const stype, 64, 0, device, out)
    );
    refused!(
        ZE_RESULT_ERROR_UNSUPPORTED_FEATURE,
        zeMemAllocDevice(context, &raw const external, 64, 0, device, out)
    );
}

#[test]
fn relaxed_limits_turn_an_unsupported_size_into_too_little_memory() {
    let gpu = Gpu::new();
    let relaxed = ze_relaxed_allocation_limits_exp_desc_t {
        flags:
            ze_relaxed_allocation_limits_exp_flags_t::ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE,
        ..Default::default()
    };
    let desc =
        ze_host_mem_alloc_desc_t { pNext: (&raw const relaxed).cast(), ..Default::default() };
    let mut ptr = ptr::null_mut();
    refused!(
        ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
        zeMemAllocHost(gpu.context, &raw const desc, 1 << 60, 0, &raw mut ptr)
    );
}

#[test]
fn running_out_of_memory_is_an_error_that_goes_away() {
    let gpu = Gpu::new();
    let mut properties = ze_device_properties_t::default();
    check!(zeDeviceGetProperties(gpu.device, &raw mut properties));
    let desc = ze_host_mem_alloc_desc_t::default();
    let half = properties.maxMemAllocSize as usize / 5 * 3;
    let first = allocate_host(&gpu, half, 0);
    let mut ptr = ptr::null_mut();
    refused!(
        ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
        zeMemAllocHost(gpu.context, &raw const desc, half, 0, &raw mut ptr)
    );
    check!(zeMemFree(gpu.context, first));
    let again = allocate_host(&gpu, half, 0);
    check!(zeMemFree(gpu.context, again));
}

#[test]
fn residency_is_checked_and_otherwise_a_hint() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u8>(1000);
    let ptr = memory.ptr().cast();
    check!(zeContextMakeMemoryResident(gpu.context, gpu.device, ptr, 1000));
    check!(zeContextEvictMemory(gpu.context, gpu.device, ptr, 1000));
    refused!(
        ZE_RESULT_ERROR_INVALID_SIZE,
        zeContextMakeMemoryResident(gpu.context, gpu.device, ptr, 1001)
    );
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_POINTER,
        zeContextEvictMemory(gpu.context, gpu.device, ptr::null_mut(), 8)
    );
}

#[test]
fn a_context_takes_its_memory_along() {
    let gpu = Gpu::new();
    let ptr = allocate_host(&gpu, 100, 0);
    drop(gpu);
    let kind = about(&Gpu::new(), ptr).0.r#type;
    assert_eq!(kind, ze_memory_type_t::ZE_MEMORY_TYPE_UNKNOWN);
}

#[test]
fn many_threads_allocate_and_free() {
    let gpu = Gpu::new();
    ze::driver();
    std::thread::scope(|scope| {
        for thread in 1..=4_u64 {
            let gpu = &gpu;
            scope.spawn(move || {
                for round in 0..50 {
                    let memory = gpu.host::<u64>(1 + round * 37);
                    memory.fill_with(|i| i as u64 * thread);
                    assert!(
                        memory.to_vec().iter().enumerate().all(|(i, &it)| it == i as u64 * thread)
                    );
                }
            });
        }
    });
}
