// SPDX-License-Identifier: MIT OR Apache-2.0
//! The driver inside of an application's process: limits, the environment, the end.
//!
//! Each case needs a process of its own; the tests named `child_*` run there.

use std::ffi::c_void;
use std::ptr;
use std::sync::OnceLock;

use tally_tests::ze::{self, Gpu};
use tally_tests::{call, check};
use tally_ze::*;

#[test]
fn little_address_space_makes_a_small_window_not_a_failure() {
    ze::in_child("child_with_little_address_space", &[]);
}

#[test]
#[ignore = "runs in a child process"]
fn child_with_little_address_space() {
    let limit = libc::rlimit { rlim_cur: 3 << 30, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: lowers a limit of this process, which is the test's own.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
    let gpu = Gpu::new();
    let memory = gpu.host::<u64>(1000);
    memory.fill_with(|i| i as u64);
    assert_eq!(memory.get(999), 999);
}

#[test]
fn a_mask_without_device_0_hides_it() {
    ze::in_child("child_without_devices", &[("ZE_AFFINITY_MASK", "1")]);
}

#[test]
#[ignore = "runs in a child process"]
fn child_without_devices() {
    if call!(zeInit(ze_init_flags_t::empty())) == ze_result_t::ZE_RESULT_ERROR_UNINITIALIZED {
        // Loader 1.20 drops a driver that has no device.
        return;
    }
    let mut count = 7;
    check!(zeDeviceGet(ze::driver(), &raw mut count, ptr::null_mut()));
    assert_eq!(count, 0);
    let desc = ze_context_desc_t::default();
    let mut context = ze_context_handle_t::NULL;
    let answer = call!(zeContextCreate(ze::driver(), &raw const desc, &raw mut context));
    assert_eq!(answer, ze_result_t::ZE_RESULT_ERROR_INVALID_ARGUMENT);
}

#[test]
fn settings_shape_the_device_and_bad_ones_are_reported() {
    let said = ze::in_child(
        "child_with_settings",
        &[
            ("TALLY_COMPUTE_ENGINES", "3"),
            ("TALLY_WORKERS", "2"),
            ("TALLY_MEMORY", "many"),
            ("TALLY_LOG", "warn"),
        ],
    );
    assert!(said.contains("TALLY_MEMORY: \"many\" is no number"), "{said}");
}

#[test]
#[ignore = "runs in a child process"]
fn child_with_settings() {
    let mut groups = [ze_command_queue_group_properties_t::default(); 2];
    let mut count = 2;
    let device = ze::device();
    check!(zeDeviceGetCommandQueueGroupProperties(device, &raw mut count, groups.as_mut_ptr()));
    if ze::on_kernel_lane() {
        // This process does not configure the device.
        return;
    }
    assert_eq!(groups[0].numQueues, 3);
    let mut properties = ze_device_properties_t::default();
    check!(zeDeviceGetProperties(device, &raw mut properties));
    assert_eq!(properties.numEUsPerSubslice, 2);
}

#[test]
fn a_timeline_is_whole_after_an_ordinary_exit() {
    let file = std::env::temp_dir().join(format!("tally-trace-{}.json", std::process::id()));
    let name = file.to_str().expect("UTF-8");
    ze::in_child("child_with_a_timeline", &[("TALLY_TRACE", name)]);
    let text = std::fs::read_to_string(&file).expect("the file is there");
    std::fs::remove_file(&file).expect("it is ours");
    assert!(text.starts_with('[') && text.ends_with("]\n"), "{text}");
    assert!(text.contains("\"name\":\"zeMemAllocHost\""), "{text}");
}

#[test]
#[ignore = "runs in a child process"]
fn child_with_a_timeline() {
    drop(Gpu::new().host::<u8>(8));
}

#[test]
fn the_log_shows_packets_as_they_are_submitted() {
    let said = ze::in_child("child_that_logs_packets", &[("TALLY_LOG", "packets=trace")]);
    let submitted = |text: &str| said.lines().any(|line| line.contains(text));
    assert!(submitted("packets: list [") && submitted(" 0: ordered fill ["), "{said}");
    assert!(submitted("packets: queue ") && submitted(": ordered call ["), "{said}");
    let quiet = ze::in_child("child_that_logs_packets", &[("TALLY_LOG", "debug")]);
    assert!(!quiet.contains("packets:"), "{quiet}");
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_logs_packets() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(4);
    let (list, queue) = (gpu.regular(0, true), gpu.queue(0));
    list.set((&memory, 0), 7, None, &[]);
    list.close();
    queue.execute(&[&list], None);
    queue.synchronize();
    assert_eq!(memory.get(0), 7);
}

/// The driver's own function, which still works when the loader is unloaded.
static STATUS: OnceLock<(functions::zeContextGetStatus, usize)> = OnceLock::new();

#[test]
fn calls_after_main_answer_device_lost() {
    let said = ze::in_child("child_that_exits", &[]);
    assert!(said.contains("status at exit: ZE_RESULT_ERROR_DEVICE_LOST"), "{said}");
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_exits() {
    // Registered before the driver's own handler, so it runs after it.
    // SAFETY: the handler lives in the program and calls only code that is never unloaded.
    assert_eq!(unsafe { libc::atexit(at_exit) }, 0);
    let gpu = Gpu::new();
    let mut address: *mut c_void = ptr::null_mut();
    let name = c"zeContextGetStatus".as_ptr();
    check!(zeDriverGetExtensionFunctionAddress(ze::driver(), name, &raw mut address));
    // SAFETY: the driver returns the function of this name.
    let function =
        unsafe { std::mem::transmute::<*mut c_void, functions::zeContextGetStatus>(address) };
    let context = gpu.context.0 as usize;
    STATUS.get_or_init(|| (function, context));
    std::mem::forget(gpu);
}

extern "C" fn at_exit() {
    if let Some(&(function, context)) = STATUS.get() {
        let context = ze_context_handle_t(ptr::without_provenance_mut(context));
        // SAFETY: the function checks its handle itself.
        println!("status at exit: {:?}", unsafe { function(context) });
    }
}

#[test]
fn the_compiler_missing_is_an_error_that_names_it() {
    let variables = [("TALLY_COMPILER", "/nonexistent/tally-compiler")];
    ze::in_child("child_without_a_compiler", &variables);
}

#[test]
#[ignore = "runs in a child process"]
fn child_without_a_compiler() {
    let gpu = Gpu::new();
    let log =
        gpu.module(&ze::spirv_from("kernel void none(void) {}"), "").expect_err("no compiler");
    assert!(log.contains("tally-compiler"), "{log}");
}

#[test]
fn contexts_come_and_go_without_leaving_address_spaces_or_files() {
    ze::in_child("child_whose_contexts_come_and_go", &[]);
}

#[test]
#[ignore = "runs in a child process"]
fn child_whose_contexts_come_and_go() {
    let files = || std::fs::read_dir("/proc/self/fd").expect("Linux has it").count();
    let maps = || std::fs::read_to_string("/proc/self/maps").expect("Linux has it").lines().count();
    let round = || {
        let gpu = Gpu::new();
        let memory = gpu.host::<u64>(1000);
        memory.set(999, 1);
        let module = gpu.module(&[1, 2, 3, 4], "").expect_err("it is no SPIR-V");
        assert!(!module.is_empty());
    };
    round();
    let before = (files(), maps());
    // More rounds than the device has address spaces.
    (0..300).for_each(|_| round());
    assert_eq!(files(), before.0);
    // Files for a few buffers are created, and mapped, in advance.
    assert!(maps() <= before.1 + 40, "{} mappings, {} before", maps(), before.1);
}

#[test]
fn the_device_may_be_lost_any_number_of_times() {
    ze::in_child("child_that_loses_the_device_often", &[]);
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_loses_the_device_often() {
    // More rounds than the device has address spaces.
    for _ in 0..300 {
        let gpu = Gpu::new();
        let pool = gpu.pool(1, ze_event_pool_flags_t::empty());
        let never = pool.event(0);
        // Objects that are destroyed while they wait are freed with the address space.
        let parked = gpu.immediate(0, true);
        parked.wait(&[&never]);
        drop(parked);
        // Freed memory is unmapped, so a write to it is a fault.
        let nowhere = gpu.device_memory::<u32>(1 << 20).ptr().cast();
        let list = gpu.immediate(0, true);
        let (byte, none, waits) = (1_u8, ze_event_handle_t::NULL, ptr::null_mut());
        let pattern = (&raw const byte).cast();
        check!(zeCommandListAppendMemoryFill(list.0, nowhere, pattern, 1, 4, none, 0, waits));
        let answer = call!(zeCommandListHostSynchronize(list.0, u64::MAX));
        assert_eq!(answer, ze_result_t::ZE_RESULT_ERROR_DEVICE_LOST);
        drop((list, never, pool));
        let device = gpu.device;
        drop(gpu);
        // The application has to notice the loss; the error is not checked here.
        let _ = call!(zeDeviceGetStatus(device));
    }
    drop(Gpu::new().host::<u8>(8));
}
