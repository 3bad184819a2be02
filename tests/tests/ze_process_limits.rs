// SPDX-License-Identifier: MIT OR Apache-2.0
//! The driver with few resources: files, addresses, file systems.
//!
//! A call that lacks a resource returns an error; nothing crashes or hangs, and refused calls leave
//! nothing behind. Each case needs a process of its own; the tests named `child_*` run there.

use std::ffi::c_void;
use std::path::PathBuf;
use std::{env, fs, ptr};

use tally_tests::call;
use tally_tests::routine::Routine;
use tally_tests::ze;
use tally_ze::*;

/// The routine's module in a file, for children that cannot run clang. Removed on drop.
struct Module(PathBuf);

impl Module {
    fn new(test: &str) -> Self {
        let file = env::temp_dir().join(format!("tally-{test}-{}.spv", std::process::id()));
        fs::write(&file, Routine::spirv()).expect("a temporary file can be written");
        Self(file)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // If the file stays, that is no failure.
        let _ = fs::remove_file(&self.0);
    }
}

const MODULE: &str = "TALLY_TEST_MODULE";
const LIMIT: &str = "TALLY_TEST_LIMIT";

fn module() -> Vec<u8> {
    fs::read(env::var(MODULE).expect("the parent sets it")).expect("the parent wrote it")
}

fn limit(what: libc::__rlimit_resource_t) -> u64 {
    let limit = env::var(LIMIT).expect("the parent sets it").parse().expect("a number");
    let limits = libc::rlimit { rlim_cur: limit, rlim_max: limit };
    // SAFETY: lowers a limit of this process, which is the test's own.
    assert_eq!(unsafe { libc::setrlimit(what, &raw const limits) }, 0);
    limit
}

/// Makes calls as far as the limit allows, and returns how far that was. Every refusal is one of the
/// results that name the missing resource.
fn as_far_as_possible(spirv: &[u8]) -> Result<(), (&'static str, ze_result_t)> {
    macro_rules! step {
        ($name:ident($($arg:expr),* $(,)?)) => {
            match call!($name($($arg),*)) {
                ze_result_t::ZE_RESULT_SUCCESS => {}
                result => return Err((stringify!($name), result)),
            }
        };
    }
    step!(zeInit(ze_init_flags_t::empty()));
    let (mut driver, mut device) = (ze_driver_handle_t::NULL, ze_device_handle_t::NULL);
    step!(zeDriverGet(&mut 1, &raw mut driver));
    step!(zeDeviceGet(driver, &mut 1, &raw mut device));
    let desc = ze_context_desc_t::default();
    let mut context = ze_context_handle_t::NULL;
    step!(zeContextCreate(driver, &raw const desc, &raw mut context));
    let host = ze_host_mem_alloc_desc_t::default();
    let mut memory: *mut c_void = ptr::null_mut();
    step!(zeMemAllocHost(context, &raw const host, 1 << 20, 0, &raw mut memory));
    // SAFETY: the allocation has that size.
    unsafe { memory.cast::<u8>().write_bytes(1, 1 << 20) };
    let desc = ze_module_desc_t {
        format: ze_module_format_t::ZE_MODULE_FORMAT_IL_SPIRV,
        inputSize: spirv.len(),
        pInputModule: spirv.as_ptr(),
        ..Default::default()
    };
    let mut module = ze_module_handle_t::NULL;
    step!(zeModuleCreate(context, device, &raw const desc, &raw mut module, ptr::null_mut()));
    let desc = ze_kernel_desc_t { pKernelName: c"step".as_ptr(), ..Default::default() };
    let mut kernel = ze_kernel_handle_t::NULL;
    step!(zeKernelCreate(module, &raw const desc, &raw mut kernel));
    let desc = ze_command_queue_desc_t {
        mode: ze_command_queue_mode_t::ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS,
        ..Default::default()
    };
    let mut list = ze_command_list_handle_t::NULL;
    step!(zeCommandListCreateImmediate(context, device, &raw const desc, &raw mut list));
    step!(zeCommandListDestroy(list));
    step!(zeKernelDestroy(kernel));
    step!(zeModuleDestroy(module));
    step!(zeMemFree(context, memory));
    step!(zeContextDestroy(context));
    Ok(())
}

/// Runs the child under each limit; it must report how far it came. At least the last limit is enough.
fn under_limits(test: &str, limits: &[u64]) {
    let module = Module::new(test);
    let mut said = String::new();
    for limit in limits {
        let variables = [(MODULE, module.path()), (LIMIT, &limit.to_string())];
        said = ze::in_child(test, &variables);
        let outcome = said.lines().find_map(|line| line.split("outcome: ").nth(1));
        println!("{limit}: {}", outcome.unwrap_or("none"));
        assert!(outcome.is_some(), "{limit}: {said}");
    }
    assert!(said.contains("outcome: all done"), "the last limit: {said}");
}

fn tell(outcome: Result<(), (&'static str, ze_result_t)>) {
    let Err((function, result)) = outcome else {
        println!("outcome: all done");
        return;
    };
    println!("outcome: {function} {result:?}");
    use ze_result_t as r;
    let fitting = [
        r::ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY,
        r::ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
        r::ZE_RESULT_ERROR_MODULE_BUILD_FAILURE,
        r::ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE,
        // The loader's result for a driver that it cannot load or initialise.
        r::ZE_RESULT_ERROR_UNINITIALIZED,
    ];
    assert!(fitting.contains(&result), "{function}: {result:?}: {}", ze::description());
}

#[test]
fn few_files_are_an_error_or_enough() {
    let few: Vec<u64> = (4..24).chain([32, 64]).collect();
    under_limits("child_with_few_files", &few);
}

#[test]
#[ignore = "runs in a child process"]
fn child_with_few_files() {
    let module = module();
    // The loader is initialised without the limit, because only the driver is tested.
    ze::function("zeInit\0");
    limit(libc::RLIMIT_NOFILE);
    tell(as_far_as_possible(&module));
}

#[test]
fn little_address_space_is_an_error_or_enough() {
    let sizes: Vec<u64> = (1..=8).map(|i| i * 16).chain([192, 256, 512, 1024]).collect();
    let bytes: Vec<u64> = sizes.iter().map(|mib| mib << 20).collect();
    under_limits("child_with_little_address_space", &bytes);
}

#[test]
#[ignore = "runs in a child process"]
fn child_with_little_address_space() {
    let module = module();
    ze::function("zeInit\0");
    limit(libc::RLIMIT_AS);
    tell(as_far_as_possible(&module));
}

/// Runs the routine in a mount namespace of its own, which a shell script has changed.
fn with_mounts(test: &str, script: &str) {
    let module = Module::new(test);
    let script = format!("set -e; {script}; exec \"$@\"");
    let command = ["unshare", "-rm", "sh", "-c", &script, "sh"];
    ze::in_child_under(&command, "child_with_other_mounts", &[(MODULE, module.path())]);
}

#[test]
#[ignore = "runs in a child process"]
fn child_with_other_mounts() {
    let routine = Routine::new(&module());
    routine.run();
}

#[test]
#[ignore = "needs user namespaces"]
fn a_read_only_file_system_is_enough() {
    with_mounts(
        "read-only",
        "for at in / /tmp /run /dev/shm; do
             mount -o remount,bind,ro \"$at\" 2>/dev/null || [ \"$at\" != / ]
         done
         ! touch \"$HOME/tally-test\" 2>/dev/null",
    );
}

#[test]
#[ignore = "needs user namespaces"]
fn no_shared_memory_file_system_is_needed() {
    with_mounts(
        "no-shm",
        "mount -t tmpfs -o ro,mode=000 none /dev/shm; ! touch /dev/shm/a 2>/dev/null",
    );
}

#[test]
#[ignore = "needs user namespaces"]
fn no_temporary_folder_is_needed() {
    with_mounts("no-tmp", "export TMPDIR=/nonexistent HOME=/nonexistent; unset XDG_RUNTIME_DIR");
}
