// SPDX-License-Identifier: MIT OR Apache-2.0
//! Layers between the program and the driver: other drivers, layers, and the ways to find the library.
//!
//! Each case needs a process of its own; the tests named `child_*` run there. `scripts/test loaders`
//! runs them all under newer loaders too.

use std::ffi::{CStr, c_char, c_void};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs, ptr};

use tally_tests::routine::Routine;
use tally_tests::ze::{self, Gpu};
use tally_tests::{call, check};
use tally_ze::*;

/// A folder with files for one test; removed with its contents.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = env::temp_dir().join(format!("tally-{name}-{}", std::process::id()));
        // A process of the same number may have been killed.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).expect("a temporary folder can be made");
        Self(folder)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // If something stays, that is no failure.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Minor version of the loader: 8, 20, 32.
fn loader_minor() -> u32 {
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Component {
        name: [c_char; 64],
        spec: u32,
        library: [i32; 3],
    }
    type Versions = unsafe extern "C" fn(*mut usize, *mut Component) -> ze_result_t;
    let versions = ze::function("zelLoaderGetVersions\0");
    // SAFETY: the loader's function of this name has this type (ze_loader.h).
    let versions = unsafe { std::mem::transmute::<*mut c_void, Versions>(versions) };
    ze::driver();
    let mut components = [Component { name: [0; 64], spec: 0, library: [0; 3] }; 8];
    let mut count = components.len();
    // SAFETY: the array has as many elements as the count says.
    let result = unsafe { versions(&raw mut count, components.as_mut_ptr()) };
    assert_eq!(result, ze_result_t::ZE_RESULT_SUCCESS);
    let loader = components[..count].iter().find(|it| {
        // SAFETY: the loader writes terminated names.
        let name = unsafe { CStr::from_ptr(it.name.as_ptr()) };
        name == c"loader"
    });
    loader.expect("the loader tells its own version").library[1] as u32
}

/// Whether the program has the driver's own handles, and not objects of the loader.
fn handles_are_the_drivers_own() -> bool {
    let mut address = ptr::null_mut();
    let name = c"zeDriverGetApiVersion".as_ptr();
    check!(zeDriverGetExtensionFunctionAddress(ze::driver(), name, &raw mut address));
    type Function = functions::zeDriverGetApiVersion;
    // SAFETY: the driver returns the function of this name.
    let function = unsafe { std::mem::transmute::<*mut c_void, Function>(address) };
    let mut version = ze_api_version_t::default();
    // SAFETY: the place is writable; the driver checks its handle.
    let result = unsafe { function(ze::driver(), &raw mut version) };
    result == ze_result_t::ZE_RESULT_SUCCESS
}

fn maps() -> String {
    fs::read_to_string("/proc/self/maps").expect("Linux has it")
}

/// Two drivers in one process, the second a copy of the first under another name: they share nothing
/// but the process.
fn beside_another(test: &str, variables: &[(&str, &str)]) -> String {
    let folder = Folder::new(test);
    let other = folder.file("libze_other.so");
    fs::copy(ze::library(), &other).expect("the driver can be copied");
    let both = format!("{},{}", text(&other), text(&ze::library()));
    let variables = [&[("TALLY_LIBRARY", both.as_str())], variables].concat();
    ze::in_child(test, &variables)
}

#[test]
fn two_drivers_work_beside_each_other() {
    for driver in ["0", "1"] {
        beside_another("child_beside_another_driver", &[("TALLY_TEST_DRIVER", driver)]);
    }
}

#[test]
#[ignore = "runs in a child process"]
fn child_beside_another_driver() {
    let routine = Routine::new(&Routine::spirv());
    routine.run();
    let mut drivers = [ze_driver_handle_t::NULL; 3];
    let mut count = 3;
    check!(zeDriverGet(&raw mut count, drivers.as_mut_ptr()));
    assert_eq!(count, 2);
    let other = drivers[..2].iter().find(|it| it.0 != ze::driver().0).expect("there are two");
    let (mut count, mut device) = (1, ze_device_handle_t::NULL);
    check!(zeDeviceGet(*other, &raw mut count, &raw mut device));
    // A context of one driver, a device of the other.
    let desc = ze_device_mem_alloc_desc_t::default();
    let mut memory = ptr::null_mut();
    let context = routine.gpu().context;
    let answer = call!(zeMemAllocDevice(context, &raw const desc, 64, 0, device, &raw mut memory));
    assert_eq!(answer, ze_result_t::ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
    routine.run();
}

#[test]
fn a_loader_that_can_dispatch_through_handles_does_not_wrap_them() {
    let new = loader_minor() >= 23;
    let said = beside_another("child_that_looks_at_handles", &[("TALLY_TEST_DRIVER", "1")]);
    let way = if new { "handles: the driver's own" } else { "handles: wrapped" };
    assert!(said.contains(way), "{said}");
    let off = [("TALLY_TEST_DRIVER", "1"), ("ZE_ENABLE_LOADER_DRIVER_DDI_PATH", "0")];
    let said = beside_another("child_that_looks_at_handles", &off);
    assert!(said.contains("handles: wrapped"), "{said}");
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_looks_at_handles() {
    let own = handles_are_the_drivers_own();
    println!("handles: {}", if own { "the driver's own" } else { "wrapped" });
    let routine = Routine::new(&Routine::spirv());
    routine.run();
    if own {
        // Functions that the loader does not know take these handles.
        let gpu = routine.gpu();
        let (list, event) = (gpu.immediate(0, true), gpu.cb_event());
        list.signal(&event);
        event.synchronize();
    }
    // A function of the tools, reached through the second pointer in a handle.
    let mut size = 0;
    let format = 0;
    type GetDebugInfo =
        unsafe extern "C" fn(ze_device_handle_t, u32, *mut usize, *mut c_void) -> ze_result_t;
    let address = ze::function("zetDeviceGetDebugProperties\0");
    // SAFETY: the arguments that the function has are passed, and it reads no more of them.
    let function = unsafe { std::mem::transmute::<*mut c_void, GetDebugInfo>(address) };
    // SAFETY: as above; the place is larger than the structure's head.
    let result = unsafe { function(ze::device(), format, &raw mut size, ptr::null_mut()) };
    assert_ne!(result, ze_result_t::ZE_RESULT_SUCCESS, "there are no debug properties");
}

#[test]
fn wrapped_handles_of_one_driver_work() {
    ze::in_child("child_whose_handles_are_wrapped", &[("ZE_ENABLE_LOADER_INTERCEPT", "1")]);
}

#[test]
#[ignore = "runs in a child process"]
fn child_whose_handles_are_wrapped() {
    let routine = Routine::new(&Routine::spirv());
    (0..3).for_each(|_| routine.run());
}

/// Every check of the layer except that of handles' lifetimes.
const CHECKS: [(&str, &str); 5] = [
    ("ZE_ENABLE_VALIDATION_LAYER", "1"),
    ("ZE_ENABLE_PARAMETER_VALIDATION", "1"),
    ("ZE_ENABLE_THREADING_VALIDATION", "1"),
    ("ZEL_ENABLE_EVENTS_CHECKER", "1"),
    ("ZEL_ENABLE_BASIC_LEAK_CHECKER", "1"),
];

#[test]
fn the_validation_layer_finds_nothing_in_a_valid_program() {
    let said = ze::in_child("child_under_the_validation_layer", &CHECKS);
    assert!(!said.contains("LEAK"), "{said}");
}

#[test]
#[ignore = "runs in a child process"]
fn child_under_the_validation_layer() {
    let routine = Routine::new(&Routine::spirv());
    assert!(maps().contains("libze_validation_layer"), "the layer is not there");
    routine.run();
    // The layer itself returns the error; the driver accepts the call.
    let answer = call!(zeMemFree(routine.gpu().context, ptr::null_mut()));
    assert_eq!(answer, ze_result_t::ZE_RESULT_ERROR_INVALID_NULL_POINTER);
    routine.run();
}

/// The layer considers immediate lists closed, with any driver, and refuses all appends.
#[test]
fn the_validation_layer_follows_the_lives_of_handles() {
    let variables = [CHECKS.as_slice(), &[("ZE_ENABLE_HANDLE_LIFETIME", "1")]].concat();
    ze::in_child("child_whose_handles_are_followed", &variables);
}

#[test]
#[ignore = "runs in a child process"]
fn child_whose_handles_are_followed() {
    let routine = Routine::new(&Routine::spirv());
    (0..3).for_each(|_| routine.run_regular());
}

/// The number of launches that the tracer saw.
static LAUNCHES: AtomicU32 = AtomicU32::new(0);

extern "C" fn launched(_: *mut c_void, _: ze_result_t, _: *mut c_void, _: *mut *mut c_void) {
    LAUNCHES.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn the_tracing_layer_sees_every_launch() {
    ze::in_child("child_under_the_tracing_layer", &[("ZE_ENABLE_TRACING_LAYER", "1")]);
}

#[test]
#[ignore = "runs in a child process"]
fn child_under_the_tracing_layer() {
    #[repr(C)]
    struct TracerDesc {
        stype: u32,
        next: *const c_void,
        user: *const c_void,
    }
    type Create = unsafe extern "C" fn(*const TracerDesc, *mut *mut c_void) -> ze_result_t;
    type Callback = extern "C" fn(*mut c_void, ze_result_t, *mut c_void, *mut *mut c_void);
    type Register = unsafe extern "C" fn(*mut c_void, u32, Callback) -> ze_result_t;
    type Enable = unsafe extern "C" fn(*mut c_void, ze_bool_t) -> ze_result_t;
    const TRACER_DESC: u32 = 1;
    const EPILOGUE: u32 = 1;

    let gpu = Gpu::new();
    let desc =
        TracerDesc { stype: TRACER_DESC, next: ptr::null(), user: ptr::from_ref(&gpu).cast() };
    let mut tracer = ptr::null_mut();
    // SAFETY: the functions have these types (zel_tracing_api.h and zel_tracing_register_cb.h); the
    // descriptor and the callback live longer than the tracer.
    unsafe {
        let create: Create = std::mem::transmute(ze::function("zelTracerCreate\0"));
        assert_eq!(create(&raw const desc, &raw mut tracer), ze_result_t::ZE_RESULT_SUCCESS);
        let name = "zelTracerCommandListAppendLaunchKernelRegisterCallback\0";
        let register: Register = std::mem::transmute(ze::function(name));
        assert_eq!(register(tracer, EPILOGUE, launched), ze_result_t::ZE_RESULT_SUCCESS);
        let enable: Enable = std::mem::transmute(ze::function("zelTracerSetEnabled\0"));
        assert_eq!(enable(tracer, 1), ze_result_t::ZE_RESULT_SUCCESS);
    }
    let routine = Routine::new(&Routine::spirv());
    routine.run();
    routine.run();
    assert_eq!(LAUNCHES.load(Ordering::Relaxed), 4);
    drop(gpu);
}

#[test]
fn the_driver_is_found_by_name_in_the_library_path() {
    let folder = Folder::new("by-name");
    symlink(ze::library(), folder.file("libze_tally.so")).expect("a link can be made");
    let variables = [("TALLY_LIBRARY", "libze_tally.so"), ("LD_LIBRARY_PATH", text(&folder.0))];
    ze::in_child("child_whose_driver_is_found", &variables);
}

/// The loader has a list of names, and no other way to find a driver that is not configured.
#[test]
fn the_driver_is_found_under_a_name_that_the_loader_knows() {
    let folder = Folder::new("known-name");
    symlink(ze::library(), folder.file("libze_intel_gpu.so.1")).expect("a link can be made");
    let variables = [("TALLY_LIBRARY", ""), ("LD_LIBRARY_PATH", text(&folder.0))];
    ze::in_child("child_whose_driver_is_found", &variables);
}

#[test]
#[ignore = "runs in a child process"]
fn child_whose_driver_is_found() {
    let routine = Routine::new(&Routine::spirv());
    assert!(maps().contains("libze_tally"), "{}", maps());
    routine.run();
}
