// SPDX-License-Identifier: MIT OR Apache-2.0
//! The driver in processes that do other things too: signal handlers, floating-point modes, forks,
//! threads that are created and end, libraries that are unloaded, an end in the middle of work.
//!
//! Each case needs a process of its own; the tests named `child_*` run there.

use std::arch::asm;
use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;
use std::{env, fs, ptr, thread};

use tally_tests::device_threads;
use tally_tests::lists::{List, NONE};
use tally_tests::routine::Routine;
use tally_tests::ze::{self, Gpu, Usm};
use tally_tests::{call, check};
use tally_ze::*;

/// Launches a kernel that takes a pointer.
fn launch<T: Copy>(list: &List, kernel: ze_kernel_handle_t, memory: &Usm<T>, groups: [u32; 2]) {
    let (address, [size, count]) = (memory.address(), groups);
    check!(zeKernelSetGroupSize(kernel, size, 1, 1));
    check!(zeKernelSetArgumentValue(kernel, 0, 8, ptr::from_ref(&address).cast()));
    let groups = ze_group_count_t { groupCountX: count, groupCountY: 1, groupCountZ: 1 };
    let waits = ptr::null_mut();
    check!(zeCommandListAppendLaunchKernel(list.0, kernel, &raw const groups, NONE, 0, waits));
}

// ---- Python ----

fn python(mode: &str) {
    let script = ze::file("clients/multiprocessing_client.py");
    let output = Command::new("timeout")
        .args(["--signal=KILL", ze::CHILD_SECONDS, "python3"])
        .arg(script)
        .arg(mode)
        .env("ZE_ENABLE_ALT_DRIVERS", ze::library())
        .output()
        .expect("python3 is there: scripts/setup installs it");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && said.ends_with("ok\n"), "{mode}: {said}");
}

#[test]
fn children_that_multiprocessing_forks_before_the_first_use_can_use_the_driver() {
    python("before");
}

/// "After fork, calls in the child answer errors."
#[test]
fn children_that_multiprocessing_forks_after_the_first_use_get_errors() {
    python("after");
}

#[test]
fn children_that_multiprocessing_spawns_can_use_the_driver() {
    python("spawn");
}

// ---- signal handlers ----

/// The number of faults that the host's handler has repaired.
static REPAIRED: AtomicU32 = AtomicU32::new(0);
/// The page that the host's handler makes accessible.
static GUARDED: AtomicUsize = AtomicUsize::new(0);

/// Imitates garbage collectors: a write to one of their pages traps, and is repeated.
extern "C" fn repair(signal: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel passes the signal's information.
    let address = unsafe { (*info).si_addr() } as usize;
    let page = GUARDED.load(Ordering::Relaxed);
    if signal != libc::SIGSEGV || address & !4095 != page {
        // SAFETY: ends the process at once, which fails the test.
        unsafe { libc::_exit(99) };
    }
    REPAIRED.fetch_add(1, Ordering::Relaxed);
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the page is the test's own mapping.
    unsafe { libc::mprotect(ptr::with_exposed_provenance_mut(page), 4096, protection) };
}

fn install_handler() {
    // SAFETY: all-zero is a valid sigaction; the handler has the type that SA_SIGINFO requires.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = repair as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        assert_eq!(libc::sigaction(libc::SIGSEGV, &raw const action, ptr::null_mut()), 0);
    }
}

/// Writes to a read-only page.
fn trap() {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping does not affect others.
    let page = unsafe { libc::mmap(ptr::null_mut(), 4096, libc::PROT_READ, flags, -1, 0) };
    assert_ne!(page, libc::MAP_FAILED);
    GUARDED.store(page.expose_provenance(), Ordering::Relaxed);
    let before = REPAIRED.load(Ordering::Relaxed);
    // SAFETY: the handler makes the page writable, and the store is repeated.
    unsafe { page.cast::<u32>().write_volatile(5) };
    assert_eq!(REPAIRED.load(Ordering::Relaxed), before + 1);
}

fn lose_the_device(gpu: &Gpu) {
    let module = gpu
        .module(
            &ze::spirv_from("kernel void stray(global ulong *x) { *(global int *)x[0] = 1; }"),
            "",
        )
        .expect("it is valid");
    let (kernel, list, memory) =
        (gpu.kernel(module, "stray"), gpu.immediate(0, true), gpu.host::<u64>(1));
    memory.set(0, 0x1000);
    launch(&list, kernel, &memory, [1, 1]);
    let answer = call!(zeCommandListHostSynchronize(list.0, u64::MAX));
    assert_eq!(answer, ze_result_t::ZE_RESULT_ERROR_DEVICE_LOST);
}

/// "The SIGSEGV handler claims only Tally's own worker threads and chains otherwise."
#[test]
fn the_hosts_own_faults_go_to_the_hosts_own_handler() {
    ze::in_child("child_with_a_handler", &[]);
}

#[test]
#[ignore = "runs in a child process"]
fn child_with_a_handler() {
    install_handler();
    trap();
    let routine = Routine::new(&Routine::spirv());
    routine.run();
    trap();
    thread::spawn(trap).join().expect("a thread's fault is repaired too");
    lose_the_device(routine.gpu());
    assert_eq!(REPAIRED.load(Ordering::Relaxed), 3, "a kernel's fault is not the host's");
    trap();
}

// ---- floating-point modes ----

/// Flush to zero, denormals are zero, and round towards zero; no traps. A program that is linked with
/// -ffast-math starts with the first two.
const FAST: u32 = 0x1f80 | 1 << 15 | 1 << 6 | 3 << 13;

fn mxcsr() -> u32 {
    let mut value = 0_u32;
    // SAFETY: stores the register to a place on the stack.
    unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut value, options(nostack)) };
    value
}

fn set_mxcsr(value: u32) {
    // SAFETY: the value has no reserved bit; the test's own arithmetic does not depend on the mode.
    unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const value, options(nostack)) };
}

/// "MXCSR is set per dispatch."
#[test]
fn kernels_keep_denormals_in_a_host_that_flushes_them() {
    ze::in_child("child_with_fast_mathematics", &[]);
}

#[test]
#[ignore = "runs in a child process"]
fn child_with_fast_mathematics() {
    const LEN: usize = 1 << 16;
    let spirv = ze::spirv_from(
        "kernel void halve(global float *x) { x[get_global_id(0)] *= 0.5f; }
         kernel void thirds(global float *x) { x[get_global_id(0)] = 1.0f / (3.0f + x[0] * 0); }",
    );
    // Before the driver creates its threads, which inherit the mode.
    set_mxcsr(FAST);
    let gpu = Gpu::new();
    let module = gpu.module(&spirv, "").expect("it is valid");
    let (list, memory) = (gpu.immediate(0, true), gpu.host::<f32>(LEN));
    let smallest = f32::from_bits(0x0080_0000);
    let run = |name: &str, groups: u32| {
        let kernel = gpu.kernel(module, name);
        launch(&list, kernel, &memory, [64, groups]);
        list.synchronize();
    };
    // On the engine's thread, and on all of them.
    for groups in [1, (LEN / 64) as u32] {
        memory.fill_with(|_| smallest);
        run("halve", groups);
        assert_eq!(memory.get(63).to_bits(), 0x0040_0000, "half of the smallest normal number");
        run("thirds", groups);
        // To nearest; towards zero it is 0x3eaa_aaaa.
        assert_eq!(memory.get(63).to_bits(), 0x3eaa_aaab, "a third");
    }
    assert_eq!(mxcsr() & FAST, FAST, "the host's mode is the host's");
}

// ---- threads ----

#[test]
fn threads_that_exit_leave_nothing_behind() {
    ze::in_child("child_with_many_threads", &[device_threads::VARIABLE]);
}

#[test]
#[ignore = "runs in a child process"]
fn child_with_many_threads() {
    let routine = Routine::new(&Routine::spirv());
    device_threads::start_all(routine.gpu(), &device_threads::spirv());
    let counts = || {
        ["/proc/self/fd", "/proc/self/task"]
            .map(|folder| fs::read_dir(folder).expect("Linux has it").count())
    };
    let mapped = || fs::read_to_string("/proc/self/maps").expect("Linux has it").lines().count();
    let together = Barrier::new(8);
    let round = || {
        thread::scope(|scope| {
            let threads = [(); 8].map(|()| {
                scope.spawn(|| {
                    // Every round has the same number of stacks and heaps at once.
                    together.wait();
                    let list = routine.gpu().immediate(0, true);
                    let memory = routine.gpu().host::<u32>(4);
                    list.set((&memory, 0), 7, None, &[]);
                    list.synchronize();
                    // Every thread has its own error description.
                    let answer = call!(zeCommandListClose(ze_command_list_handle_t::NULL));
                    assert_eq!(answer, ze_result_t::ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
                    assert!(ze::description().contains("zeCommandListClose"));
                    // The list outlives the thread that made it.
                    list
                })
            });
            // Joined: the scope's own wait does not guarantee that a thread has ended.
            drop(threads.map(|thread| thread.join().expect("no panic")));
        });
    };
    // The device's resources for eight lists at once differ from round to round, and stay.
    (0..8).for_each(|_| round());
    let (before, maps) = (counts(), mapped());
    (0..30).for_each(|_| round());
    let ([files, tasks], after) = (before, counts());
    assert_eq!(after[0], files);
    // A joined thread may not have ended completely, neither before nor now.
    assert!(after[1] <= tasks + 8, "{} threads, {tasks} before", after[1]);
    // 240 threads were created and ended: one mapping of every tenth would be noticed.
    assert!(mapped() < maps + 24, "{} mappings, {maps} before", mapped());
    routine.run();
}

// ---- dlclose ----

/// The loader as a plug-in opens it, with the functions that the test calls.
struct Plugin(*mut c_void);

impl Plugin {
    fn open() -> Self {
        // SAFETY: the loader's initialisers read the environment, which nothing changes meanwhile.
        let handle = unsafe { libc::dlopen(c"libze_loader.so.1".as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null());
        Self(handle)
    }

    fn function<F: Copy>(&self, name: &CStr) -> F {
        // SAFETY: the handle is open.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!address.is_null() && size_of::<F>() == size_of_val(&address), "{name:?}");
        // SAFETY: the caller passes the function's own type, a pointer.
        unsafe { std::mem::transmute_copy(&address) }
    }

    /// Initialises, fills memory, and destroys everything.
    fn work(&self) {
        let ok = ze_result_t::ZE_RESULT_SUCCESS;
        let init: functions::zeInit = self.function(c"zeInit");
        let get: functions::zeDriverGet = self.function(c"zeDriverGet");
        let device_get: functions::zeDeviceGet = self.function(c"zeDeviceGet");
        let create: functions::zeContextCreate = self.function(c"zeContextCreate");
        let destroy: functions::zeContextDestroy = self.function(c"zeContextDestroy");
        let alloc: functions::zeMemAllocHost = self.function(c"zeMemAllocHost");
        let free: functions::zeMemFree = self.function(c"zeMemFree");
        let immediate: functions::zeCommandListCreateImmediate =
            self.function(c"zeCommandListCreateImmediate");
        let list_destroy: functions::zeCommandListDestroy = self.function(c"zeCommandListDestroy");
        let fill: functions::zeCommandListAppendMemoryFill =
            self.function(c"zeCommandListAppendMemoryFill");
        let (mut driver, mut device) = (ze_driver_handle_t::NULL, ze_device_handle_t::NULL);
        let mut context = ze_context_handle_t::NULL;
        let mut list = ze_command_list_handle_t::NULL;
        let mut memory = ptr::null_mut();
        let queue = ze_command_queue_desc_t {
            mode: ze_command_queue_mode_t::ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS,
            ..Default::default()
        };
        let (context_desc, host) =
            (ze_context_desc_t::default(), ze_host_mem_alloc_desc_t::default());
        let none = ze_event_handle_t::NULL;
        let byte = 7_u8;
        // SAFETY: valid calls in a valid order.
        unsafe {
            assert_eq!(init(ze_init_flags_t::empty()), ok);
            assert_eq!(get(&mut 1, &raw mut driver), ok);
            assert_eq!(device_get(driver, &mut 1, &raw mut device), ok);
            assert_eq!(create(driver, &raw const context_desc, &raw mut context), ok);
            assert_eq!(alloc(context, &raw const host, 4096, 0, &raw mut memory), ok);
            assert_eq!(immediate(context, device, &raw const queue, &raw mut list), ok);
            let pattern = (&raw const byte).cast();
            assert_eq!(fill(list, memory, pattern, 1, 4096, none, 0, ptr::null_mut()), ok);
            assert_eq!(memory.cast::<u8>().add(4095).read_volatile(), 7);
            assert_eq!(list_destroy(list), ok);
            assert_eq!(free(context, memory), ok);
            assert_eq!(destroy(context), ok);
        }
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        // SAFETY: nothing of the loader is used after this.
        assert_eq!(unsafe { libc::dlclose(self.0) }, 0);
    }
}

/// "The library stays mapped after dlclose, since its threads run its code."
#[test]
fn the_loader_and_the_driver_can_be_closed_and_opened_again() {
    let library = ze::library();
    let library = library.to_str().expect("UTF-8");
    ze::in_child("child_that_closes_libraries", &[("ZE_ENABLE_ALT_DRIVERS", library)]);
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_closes_libraries() {
    for _ in 0..3 {
        let plugin = Plugin::open();
        plugin.work();
        drop(plugin);
        // Long enough for the device's threads to fall asleep, and to look around once more.
        thread::sleep(Duration::from_millis(50));
    }
    let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
    let library = env::var("ZE_ENABLE_ALT_DRIVERS").expect("the parent sets it");
    let library = std::ffi::CString::new(library).expect("no NUL");
    // SAFETY: this loads nothing new.
    let driver = unsafe { libc::dlopen(library.as_ptr(), flags) };
    assert!(!driver.is_null(), "the driver stays");
    // Closing it more often than it was opened is the application's mistake, and harmless.
    for _ in 0..2 {
        // SAFETY: the driver is marked as never to be unloaded.
        unsafe { libc::dlclose(driver) };
    }
    Plugin::open().work();
}

// ---- the end of the process ----

/// Runs a test of this program that ends its process itself; returns its exit status.
fn end_of(test: &str) -> Option<i32> {
    let launcher = env::var("TALLY_TEST_LAUNCHER").unwrap_or_default();
    let program = env::args_os().next().expect("Linux passes it");
    let output = Command::new("timeout")
        .args(["--foreground", "--signal=KILL", ze::CHILD_SECONDS])
        .args(launcher.split_whitespace())
        .arg(program)
        .args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"])
        .output()
        .expect("a test program can be started");
    let said = [output.stdout, output.stderr].concat();
    println!("{}", String::from_utf8_lossy(&said));
    output.status.code()
}

/// Work of every kind that never ends: a kernel, a parked list, a host thread that waits.
fn begin_endless_work(gpu: &Gpu) {
    let source = "kernel void spin(global volatile uint *x) { while (x[0] == 0) ; }";
    let module = gpu.module(&ze::spirv_from(source), "").expect("it is valid");
    let (kernel, memory) = (gpu.kernel(module, "spin"), gpu.host::<u32>(1));
    memory.set(0, 0);
    let (list, parked) = (gpu.immediate(0, true), gpu.immediate(1, true));
    let pool = gpu.pool(1, ze_event_pool_flags_t::empty());
    let never = pool.event(0);
    launch(&list, kernel, &memory, [1, 1]);
    parked.wait(&[&never]);
    let waiting = list.0.0 as usize;
    thread::spawn(move || {
        let list = ze_command_list_handle_t(ptr::with_exposed_provenance_mut(waiting));
        call!(zeCommandListHostSynchronize(list, u64::MAX))
    });
    thread::sleep(Duration::from_millis(50));
    std::mem::forget((list, parked, never, pool, memory));
}

#[test]
fn exit_during_work_ends_the_process_with_its_own_status() {
    assert_eq!(end_of("child_that_exits_during_work"), Some(43));
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_exits_during_work() {
    let gpu = Gpu::new();
    begin_endless_work(&gpu);
    std::process::exit(43);
}

/// Calls of that thread.
static CALLS: AtomicU32 = AtomicU32::new(0);

/// Whether the program's exit handler waited for those calls.
static DONE: AtomicBool = AtomicBool::new(false);

/// Some programs abort when a call fails, as PoCL's device threads do, and their exit handlers wait for the thread. It
/// goes on with calls, and none fails.
#[test]
fn exit_during_calls_of_other_threads_lets_none_fail() {
    assert_eq!(end_of("child_that_exits_during_calls"), Some(45));
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_exits_during_calls() {
    extern "C" fn last() {
        let before = CALLS.load(Ordering::Relaxed);
        while CALLS.load(Ordering::Relaxed) < before + 100 {
            thread::yield_now();
        }
        // The newer loaders refuse calls once their own destructors ran, which is after this.
        DONE.store(true, Ordering::Release);
    }
    // Registered before the driver's own handler, so it runs after it.
    // SAFETY: the handler lives in the program.
    assert_eq!(unsafe { libc::atexit(last) }, 0);
    let gpu = Gpu::new();
    let context = gpu.context.0 as usize;
    thread::spawn(move || {
        loop {
            let context = ze_context_handle_t(ptr::with_exposed_provenance_mut(context));
            let result = call!(zeContextGetStatus(context));
            if result != ze_result_t::ZE_RESULT_SUCCESS && !DONE.load(Ordering::Acquire) {
                std::process::abort();
            }
            CALLS.fetch_add(1, Ordering::Relaxed);
        }
    });
    thread::sleep(Duration::from_millis(50));
    std::mem::forget(gpu);
    std::process::exit(45);
}

#[test]
fn quick_exit_during_work_ends_the_process_with_its_own_status() {
    assert_eq!(end_of("child_that_exits_quickly_during_work"), Some(44));
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_exits_quickly_during_work() {
    let gpu = Gpu::new();
    begin_endless_work(&gpu);
    // SAFETY: no handlers run, which is the point.
    unsafe { libc::_exit(44) };
}

/// "Helpers are spawned without disturbing waitpid(-1), with closed fds."
#[test]
fn the_compiler_is_no_child_that_the_host_sees() {
    ze::in_child("child_that_waits_for_any_child", &[]);
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_waits_for_any_child() {
    let spirv = Routine::spirv();
    Routine::new(&spirv).run();
    let mut status = 0;
    // SAFETY: the place is writable.
    let child = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
    assert_eq!((child, std::io::Error::last_os_error().raw_os_error()), (-1, Some(libc::ECHILD)));
}

/// A signal mask that blocks everything, as daemons set it, is inherited by the driver's threads.
#[test]
fn a_host_that_blocks_all_signals_is_served() {
    ze::in_child("child_that_blocks_signals", &[]);
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_blocks_signals() {
    let mut all = MaybeUninit::uninit();
    // SAFETY: sigfillset initialises the set.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        assert_eq!(libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), ptr::null_mut()), 0);
    }
    let routine = Routine::new(&Routine::spirv());
    routine.run();
    lose_the_device(routine.gpu());
}
