// SPDX-License-Identifier: MIT OR Apache-2.0
//! Drivers through the stock loader: initialisation, versions, extensions, descriptions of errors.

use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::thread;

use tally_tests::{call, check, refused, ze};
use tally_ze::*;

#[test]
fn init_is_repeatable_and_answers_one_driver() {
    let driver = ze::driver();
    check!(zeInit(ze_init_flags_t::ZE_INIT_FLAG_GPU_ONLY));
    let (mut count, mut again) = (0, ze_driver_handle_t::NULL);
    check!(zeDriverGet(&raw mut count, ptr::null_mut()));
    assert_eq!(count, 1);
    count = 5;
    check!(zeDriverGet(&raw mut count, &raw mut again));
    assert_eq!((count, again), (1, driver), "the count comes down to what there is");
}

#[test]
fn versions_and_the_uuid_stay_the_same() {
    let driver = ze::driver();
    let mut version = ze_api_version_t::default();
    check!(zeDriverGetApiVersion(driver, &raw mut version));
    assert_eq!(version.0 >> 16, 1);
    let mut first = ze_driver_properties_t::default();
    let mut second = ze_driver_properties_t::default();
    check!(zeDriverGetProperties(driver, &raw mut first));
    check!(zeDriverGetProperties(driver, &raw mut second));
    assert_eq!(first.uuid.id, second.uuid.id);
    assert_ne!(first.driverVersion, 0);
}

#[test]
fn every_extension_has_a_name_and_its_functions_are_found() {
    let driver = ze::driver();
    let mut count = 0;
    check!(zeDriverGetExtensionProperties(driver, &raw mut count, ptr::null_mut()));
    let mut all = vec![ze_driver_extension_properties_t::default(); count as usize];
    check!(zeDriverGetExtensionProperties(driver, &raw mut count, all.as_mut_ptr()));
    let names: Vec<String> = all
        .iter()
        // SAFETY: the driver ends each name with a NUL.
        .map(|it| unsafe { CStr::from_ptr(it.name.as_ptr()) }.to_string_lossy().into_owned())
        .collect();
    assert!(names.iter().all(|name| name.starts_with("ZE")), "{names:?}");
    for (extension, function) in [
        ("ZE_experimental_global_offset", c"zeKernelSetGlobalOffsetExp"),
        ("ZEX_counter_based_event", c"zexCounterBasedEventCreate2"),
    ] {
        let mut address: *mut c_void = ptr::null_mut();
        let answer =
            call!(zeDriverGetExtensionFunctionAddress(driver, function.as_ptr(), &raw mut address));
        let found = answer == ze_result_t::ZE_RESULT_SUCCESS;
        assert_eq!(found, names.iter().any(|name| name == extension), "{extension}");
    }
}

#[test]
fn an_unknown_function_is_refused_by_name() {
    let mut address: *mut c_void = ptr::null_mut();
    let text = refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeDriverGetExtensionFunctionAddress(ze::driver(), c"zeTea".as_ptr(), &raw mut address)
    );
    assert!(text.contains("zeTea"), "{text}");
    assert!(address.is_null());
}

#[test]
fn the_last_description_belongs_to_its_thread_and_survives_successes() {
    let driver = ze::driver();
    refused!(ZE_RESULT_ERROR_INVALID_NULL_POINTER, zeDriverGetApiVersion(driver, ptr::null_mut()));
    let mut version = ze_api_version_t::default();
    check!(zeDriverGetApiVersion(driver, &raw mut version));
    assert!(ze::description().contains("version: the pointer is null"), "{}", ze::description());
    thread::spawn(|| assert_eq!(ze::description(), "")).join().expect("another thread has none");
}

#[test]
fn garbage_in_place_of_a_driver_is_refused() {
    let mut version = ze_api_version_t::default();
    let mut local = [0_u64; 8];
    let device = ze::device();
    for (handle, why) in [
        (ptr::null_mut(), "is null"),
        (ptr::without_provenance_mut(0x1000), "no handle of this driver"),
        (ptr::without_provenance_mut(usize::MAX - 7), "no handle of this driver"),
        (local.as_mut_ptr().cast(), "no handle of this driver"),
        (device.0, "names a device"),
    ] {
        let handle = ze_driver_handle_t(handle);
        let text = refused!(
            ZE_RESULT_ERROR_INVALID_NULL_HANDLE,
            zeDriverGetApiVersion(handle, &raw mut version)
        );
        assert!(text.contains("hDriver") && text.contains(why), "{text}");
    }
}

#[test]
fn a_wrong_stype_is_refused() {
    let mut properties = ze_driver_ipc_properties_t {
        stype: ze_structure_type_t::ZE_STRUCTURE_TYPE_CONTEXT_DESC,
        ..Default::default()
    };
    let text = refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeDriverGetIpcProperties(ze::driver(), &raw mut properties)
    );
    assert!(text.contains("ZE_STRUCTURE_TYPE_DRIVER_IPC_PROPERTIES"), "{text}");
}

#[test]
fn a_forked_child_gets_errors_and_no_hang() {
    let gpu = ze::Gpu::new();
    // The function is looked up before the fork: the child may only make safe calls after it.
    let status = || call!(zeContextGetStatus(gpu.context));
    assert_eq!(status(), ze_result_t::ZE_RESULT_SUCCESS);
    // SAFETY: the child calls one function and ends without unwinding or running exit handlers.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let as_promised = status() == ze_result_t::ZE_RESULT_ERROR_UNINITIALIZED;
        // SAFETY: as above.
        unsafe { libc::_exit(if as_promised { 0 } else { 1 }) };
    }
    let mut ended = 0;
    // SAFETY: the child is ours.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut ended, 0) }, child);
    assert_eq!(ended, 0, "the child's call answers UNINITIALIZED");
    assert_eq!(status(), ze_result_t::ZE_RESULT_SUCCESS);
}

#[test]
fn strings_are_for_c() {
    let mut text: *const c_char = ptr::null();
    let answer = call!(zeDriverGetLastErrorDescription(ze::driver(), &raw mut text));
    assert_eq!(answer, ze_result_t::ZE_RESULT_SUCCESS);
    assert!(!text.is_null(), "without an error the description is empty, not null");
}

#[test]
fn init_drivers_answers_by_type() {
    let driver = ze::driver();
    let ask = |flags: u32| {
        let mut desc = ze_init_driver_type_desc_t {
            flags: ze_init_driver_type_flags_t::from_bits_retain(flags),
            ..Default::default()
        };
        let (mut count, mut found) = (4, [ze_driver_handle_t::NULL; 4]);
        let answer = call!(zeInitDrivers(&raw mut count, found.as_mut_ptr(), &raw mut desc));
        (answer, count, found[0])
    };
    let gpu = ze_init_driver_type_flags_t::ZE_INIT_DRIVER_TYPE_FLAG_GPU.bits();
    let npu = ze_init_driver_type_flags_t::ZE_INIT_DRIVER_TYPE_FLAG_NPU.bits();
    let success = ze_result_t::ZE_RESULT_SUCCESS;
    assert_eq!(ask(gpu), (success, 1, driver));
    assert_eq!(ask(u32::MAX), (success, 1, driver), "all types");
    assert_eq!(ask(npu), (success, 0, ze_driver_handle_t::NULL));
    for bad in [0, 1 << 12] {
        assert_eq!(ask(bad).0, ze_result_t::ZE_RESULT_ERROR_INVALID_ENUMERATION);
    }
    // PoCL leaves the stype out; that of another structure is refused.
    let context = ze_structure_type_t::ZE_STRUCTURE_TYPE_CONTEXT_DESC;
    let invalid = ze_result_t::ZE_RESULT_ERROR_INVALID_ARGUMENT;
    for (stype, wanted) in [(ze_structure_type_t(0), success), (context, invalid)] {
        let flags = ze_init_driver_type_flags_t::ZE_INIT_DRIVER_TYPE_FLAG_GPU;
        let mut desc = ze_init_driver_type_desc_t { stype, flags, ..Default::default() };
        let mut count = 0;
        assert_eq!(call!(zeInitDrivers(&raw mut count, ptr::null_mut(), &raw mut desc)), wanted);
    }
}
