// SPDX-License-Identifier: MIT OR Apache-2.0
//! The default context, and numbers of devices, through the stock loader. Quotes are from the
//! interface's reference.

use std::ffi::{CStr, c_char};
use std::mem::ManuallyDrop;
use std::ptr;

use tally_tests::lists::{NONE, PATIENCE};
use tally_tests::ze::{self, Gpu};
use tally_tests::{call, check, refused};
use tally_ze::*;

fn default_context() -> ze_context_handle_t {
    let context = call!(zeDriverGetDefaultContext(ze::driver()));
    assert!(!context.is_null(), "{}", ze::description());
    context
}

/// Everything that works with a context of one's own works with this one. It is not destroyed when the
/// value is dropped.
fn gpu() -> ManuallyDrop<Gpu> {
    ManuallyDrop::new(Gpu { device: ze::device(), context: default_context() })
}

fn last_description() -> String {
    let mut text: *const c_char = ptr::null();
    check!(zerGetLastErrorDescription(&raw mut text));
    // SAFETY: the driver returns a string that is valid until this thread's next error.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// "Retrieves handle to default context from the driver.": the same for all who ask, threads too, and
/// good for memory, lists and kernels.
#[test]
fn everyone_gets_the_same_context_and_it_works() {
    let gpu = gpu();
    assert_eq!(call!(zerGetDefaultContext()), gpu.context);
    let asked = std::thread::spawn(|| call!(zerGetDefaultContext()).0 as usize);
    assert_eq!(asked.join().expect("no panic"), gpu.context.0 as usize);
    check!(zeContextGetStatus(gpu.context));
    let memory = gpu.host::<u32>(2);
    let list = gpu.immediate(0, true);
    list.set((&memory, 0), 7, None, &[]);
    list.synchronize();
    assert_eq!(memory.get(0), 7);
    let source = "kernel void add(global uint *p) { p[1] = p[0] + 1; }";
    let module = gpu.module(&ze::spirv_from(source), "").expect("it is valid");
    let kernel = gpu.kernel(module, "add");
    let address = memory.ptr();
    check!(zeKernelSetArgumentValue(kernel, 0, 8, ptr::from_ref(&address).cast()));
    let groups = ze_group_count_t { groupCountX: 1, groupCountY: 1, groupCountZ: 1 };
    let groups = &raw const groups;
    check!(zeCommandListAppendLaunchKernel(list.0, kernel, groups, NONE, 0, ptr::null_mut()));
    list.synchronize();
    assert_eq!(memory.get(1), 8);
    check!(zeKernelDestroy(kernel));
    check!(zeModuleDestroy(module));
    // It differs from contexts that are created.
    let own = Gpu::new();
    assert_ne!(own.context, gpu.context);
}

/// "In case of failure, this function returns null." "Details on the error can be retrieved using
/// zeDriverGetLastErrorDescription function."
#[test]
fn what_is_no_driver_has_no_context() {
    let device = ze_driver_handle_t(ze::device().0);
    for wrong in [ze_driver_handle_t::NULL, device] {
        assert!(call!(zeDriverGetDefaultContext(wrong)).is_null());
        assert!(ze::description().contains("hDriver"), "{}", ze::description());
    }
    refused!(ZE_RESULT_ERROR_INVALID_NULL_POINTER, zerGetLastErrorDescription(ptr::null_mut()));
}

/// "Translates device handle to integer identifier." and back; "In case of failure, this function returns
/// UINT32_MAX.", and null in the other direction.
#[test]
fn devices_have_numbers() {
    let device = ze::device();
    assert_eq!(call!(zerTranslateDeviceHandleToIdentifier(device)), 0);
    assert_eq!(call!(zerTranslateIdentifierToDeviceHandle(0)), device);
    for wrong in [ze_device_handle_t::NULL, ze_device_handle_t(ze::driver().0)] {
        assert_eq!(call!(zerTranslateDeviceHandleToIdentifier(wrong)), u32::MAX);
        let text = last_description();
        assert!(text.starts_with("zerTranslateDeviceHandleToIdentifier: hDevice"), "{text}");
    }
    for wrong in [1, u32::MAX] {
        assert!(call!(zerTranslateIdentifierToDeviceHandle(wrong)).is_null());
        let text = last_description();
        assert!(text.contains(&format!("{wrong}, but there are 1 devices")), "{text}");
        assert_eq!(text, ze::description());
    }
}

/// Programs destroy the default context like one of their own, and may request it again.
#[test]
fn a_destroyed_context_is_made_anew() {
    ze::in_child("child_that_destroys_it", &[]);
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_destroys_it() {
    for _ in 0..3 {
        let gpu = gpu();
        let memory = gpu.host::<u32>(1);
        memory.set(0, 5);
        drop(memory);
        check!(zeContextDestroy(gpu.context));
        refused!(ZE_RESULT_ERROR_INVALID_NULL_HANDLE, zeContextGetStatus(gpu.context));
    }
    // Destroying another context does not affect this one.
    let gpu = gpu();
    drop(Gpu::new());
    assert_eq!(default_context(), gpu.context);
    check!(zeContextGetStatus(gpu.context));
}

/// After a loss the default context is one of those that must be destroyed before the device works
/// again.
#[test]
fn a_lost_context_is_destroyed_and_made_anew() {
    ze::in_child("child_that_loses_it", &[]);
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_loses_it() {
    let gpu = gpu();
    let memory = gpu.host::<u32>(1);
    let list = gpu.immediate(0, true);
    // Freed memory is unmapped, so a read of it is a fault.
    let nowhere = gpu.device_memory::<u32>(1 << 20).ptr().cast_const().cast();
    let (dst, waits) = (memory.ptr().cast(), ptr::null_mut());
    check!(zeCommandListAppendMemoryCopy(list.0, dst, nowhere, 4, NONE, 0, waits));
    refused!(ZE_RESULT_ERROR_DEVICE_LOST, zeCommandListHostSynchronize(list.0, PATIENCE));
    assert_eq!(default_context(), gpu.context, "it is what it is until it is destroyed");
    refused!(ZE_RESULT_ERROR_DEVICE_LOST, zeDeviceGetStatus(gpu.device));
    drop((list, memory));
    check!(zeContextDestroy(gpu.context));
    assert!(call!(zerGetDefaultContext()).is_null(), "the loss was not asked about");
    assert!(last_description().contains("zeDeviceGetStatus"), "{}", last_description());
    check!(zeDeviceGetStatus(gpu.device));
    let gpu = self::gpu();
    let memory = gpu.host::<u32>(1);
    let list = gpu.immediate(0, true);
    list.set((&memory, 0), 9, None, &[]);
    list.synchronize();
    assert_eq!(memory.get(0), 9);
}

/// "This returned context contains all the devices available in the driver.", and sub-devices have
/// numbers behind those of the devices.
#[test]
fn it_holds_all_devices() {
    let variables = [("TALLY_DEVICES", "2"), ("TALLY_SUBDEVICES", "2")];
    ze::in_child("child_with_four_parts", &variables);
}

#[test]
#[ignore = "runs in a child process"]
fn child_with_four_parts() {
    let context = default_context();
    let mut devices = [ze_device_handle_t::NULL; 2];
    let mut count = 2;
    check!(zeDeviceGet(ze::driver(), &raw mut count, devices.as_mut_ptr()));
    let mut all = devices.to_vec();
    for device in devices {
        let (mut parts, mut count) = ([ze_device_handle_t::NULL; 2], 2);
        check!(zeDeviceGetSubDevices(device, &raw mut count, parts.as_mut_ptr()));
        all.extend(parts);
    }
    for (number, &device) in all.iter().enumerate().take(2) {
        assert_eq!(call!(zerTranslateDeviceHandleToIdentifier(device)), number as u32);
    }
    let mut numbers: Vec<u32> =
        all.iter().map(|&it| call!(zerTranslateDeviceHandleToIdentifier(it))).collect();
    for (&device, &number) in all.iter().zip(&numbers) {
        assert_eq!(call!(zerTranslateIdentifierToDeviceHandle(number)), device);
        let desc = ze_device_mem_alloc_desc_t::default();
        let mut at = ptr::null_mut();
        check!(zeMemAllocDevice(context, &raw const desc, 4096, 0, device, &raw mut at));
        check!(zeMemFree(context, at));
    }
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5]);
}
