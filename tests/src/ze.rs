// SPDX-License-Identifier: MIT OR Apache-2.0
//! Level Zero as an application sees it: the stock loader, with Tally's driver behind it.
//!
//! ```text
//! let ze = Gpu::new();                               // loader, driver, device, context: once
//! let out = ze.host::<u32>(256);                     // USM that is freed on drop
//! check!(zeCommandListClose(list));                  // panics with the driver's description
//! let answer = call!(zeCommandListClose(list));      // the ze_result_t, for tests of refusals
//! ```
//!
//! Functions are looked up in the loader or, if it is too old to know them, with
//! zeDriverGetExtensionFunctionAddress. The driver is `$TALLY_LIBRARY`, or the one that was built
//! beside the test; the compiler is `$TALLY_COMPILER`, likewise.
//!
//! Tests of loaders have further settings: `$TALLY_LIBRARY` may name several drivers, in the loader's
//! format (`a.so,b.so`), and `$TALLY_TEST_DRIVER` is the index of the one to use, from 0; if it is
//! empty, the loader looks for drivers by itself. `$TALLY_TEST_LAUNCHER` is the command, split at
//! spaces, that started this program under another loader; children are started with it too.
//! `$TALLY_TEST_FILES` is this crate's folder if the programs do not run beside the sources.

use std::env;
use std::ffi::{CStr, CString, c_char, c_void};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::ptr;
use std::sync::OnceLock;

use tally_ze::*;

/// Calls a Level Zero function by its name: `call!(zeFenceDestroy(fence))` is a `ze_result_t`.
#[macro_export]
macro_rules! call {
    ($name:ident($($arg:expr),* $(,)?)) => {{
        static FUNCTION: std::sync::OnceLock<tally_ze::functions::$name> =
            std::sync::OnceLock::new();
        let function = FUNCTION.get_or_init(|| {
            let address = $crate::ze::function(concat!(stringify!($name), "\0"));
            // SAFETY: the address is that of the function of this name, which has this type.
            unsafe { std::mem::transmute::<*mut std::ffi::c_void, tally_ze::functions::$name>(address) }
        });
        // SAFETY: the tests pass pointers that are valid for the call, or wrong in ways that a driver
        // has to notice.
        // Arguments are values and raw pointers; unsafe code in them would be as visible here.
        #[allow(unused_unsafe, clippy::macro_metavars_in_unsafe)]
        unsafe { function($($arg),*) }
    }};
}

/// Does the same as [`call!`], and panics unless the result is ZE_RESULT_SUCCESS.
#[macro_export]
macro_rules! check {
    ($name:ident($($arg:expr),* $(,)?)) => {{
        let result = $crate::call!($name($($arg),*));
        if result != tally_ze::ze_result_t::ZE_RESULT_SUCCESS {
            panic!("{}: {result:?}: {}", stringify!($name), $crate::ze::description());
        }
    }};
}

/// Does the same as [`call!`], and panics unless the result is the named code and the description gives
/// a reason.
#[macro_export]
macro_rules! refused {
    ($code:ident, $name:ident($($arg:expr),* $(,)?)) => {{
        let result = $crate::call!($name($($arg),*));
        let text = $crate::ze::description();
        assert_eq!(result, tally_ze::ze_result_t::$code, "{}: {text}", stringify!($name));
        assert!(text.starts_with(stringify!($name)), "{result:?} without a description: {text:?}");
        text
    }};
}

/// The time in seconds, as an argument of `timeout`, after which a child counts as hung. It is no other
/// limit: endless kernels end after two minutes on an emulated machine whose kernel checks itself.
pub const CHILD_SECONDS: &str = "600";

/// The loader, opened with the driver under test as its only one.
struct Loader(*mut c_void);

// SAFETY: the handle of a shared object may be used by any thread; it is never closed.
unsafe impl Send for Loader {}
// SAFETY: as for Send; dlsym is thread-safe.
unsafe impl Sync for Loader {}

fn loader() -> &'static Loader {
    static LOADER: OnceLock<Loader> = OnceLock::new();
    LOADER.get_or_init(|| {
        // SAFETY: the tests of a program call this before anything else, so no other thread reads the
        // environment.
        unsafe {
            match library() {
                library if library.as_os_str().is_empty() => {
                    env::remove_var("ZE_ENABLE_ALT_DRIVERS");
                }
                library => env::set_var("ZE_ENABLE_ALT_DRIVERS", library),
            }
            if let (None, Some(file)) = (env::var_os("TALLY_COMPILER"), beside("tally-compiler")) {
                env::set_var("TALLY_COMPILER", file);
            }
            // Tests use what the driver builds now, not the user's cache; tests of the cache name one
            // of their own.
            if env::var_os("TALLY_CACHE").is_none() {
                env::set_var("TALLY_CACHE", "0");
            }
        }
        // SAFETY: the loader's initialisers may run here.
        let handle = unsafe { libc::dlopen(c"libze_loader.so.1".as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null(), "libze_loader.so.1 is missing: install libze1");
        Loader(handle)
    })
}

/// The driver under test.
///
/// # Panics
/// If it has not been built.
pub fn library() -> PathBuf {
    let given = env::var_os("TALLY_LIBRARY").map(PathBuf::from);
    let found = given.or_else(|| beside("libze_tally.so"));
    found.expect("libze_tally.so is not beside the tests: run cargo build first")
}

/// This test program. Under another loader the kernel has started its dynamic linker, so the name with
/// which the program was started takes precedence.
fn program() -> PathBuf {
    let name = env::args_os().next().map(PathBuf::from).and_then(|it| it.canonicalize().ok());
    name.unwrap_or_else(|| env::current_exe().expect("Linux knows the program's file"))
}

/// A file or folder of this crate that a test reads when it runs, such as `kernels`.
pub fn file(name: &str) -> PathBuf {
    let folder =
        env::var_os("TALLY_TEST_FILES").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&folder).join(name)
}

/// A product of the build that made this test: in its folder or the one above, the newer one.
pub fn beside(name: &str) -> Option<PathBuf> {
    let program = program();
    let files = program.ancestors().skip(1).take(2).map(|folder| folder.join(name));
    let found: Vec<PathBuf> = files.filter(|file| file.is_file()).collect();
    found.into_iter().max_by_key(|file| file.metadata().and_then(|it| it.modified()).ok())
}

/// A function's address. `name` ends with a NUL.
#[doc(hidden)]
pub fn function(name: &'static str) -> *mut c_void {
    let name = CStr::from_bytes_with_nul(name.as_bytes()).expect("the macro adds the NUL");
    // SAFETY: the handle is open and the name terminated.
    let address = unsafe { libc::dlsym(loader().0, name.as_ptr()) };
    if !address.is_null() {
        return address;
    }
    let mut address = ptr::null_mut();
    let driver = driver();
    check!(zeDriverGetExtensionFunctionAddress(driver, name.as_ptr(), &raw mut address));
    address
}

/// The driver's description of this thread's last error.
pub fn description() -> String {
    // Loader 1.8.12 has a slot for the function but does not always know it, so this asks the driver.
    static DRIVERS: OnceLock<functions::zeDriverGetLastErrorDescription> = OnceLock::new();
    let function = DRIVERS.get_or_init(|| {
        let mut address = ptr::null_mut();
        let name = c"zeDriverGetLastErrorDescription".as_ptr();
        let result = call!(zeDriverGetExtensionFunctionAddress(driver(), name, &raw mut address));
        assert_eq!(result, ze_result_t::ZE_RESULT_SUCCESS);
        // SAFETY: the driver returns the function of this name.
        unsafe {
            std::mem::transmute::<*mut c_void, functions::zeDriverGetLastErrorDescription>(address)
        }
    });
    let mut text: *const c_char = ptr::null();
    // SAFETY: the place is writable.
    let result = unsafe { function(driver(), &raw mut text) };
    if result != ze_result_t::ZE_RESULT_SUCCESS {
        // The driver does not know handles that the loader has wrapped.
        return String::new();
    }
    // SAFETY: the driver returns a string that is valid until this thread's next error.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// The driver, initialised.
pub fn driver() -> ze_driver_handle_t {
    static DRIVER: OnceLock<ze_driver_handle_t> = OnceLock::new();
    *DRIVER.get_or_init(|| {
        let result = call!(zeInit(ze_init_flags_t::empty()));
        assert_eq!(result, ze_result_t::ZE_RESULT_SUCCESS, "zeInit; TALLY_LOG=debug tells more");
        let drivers = drivers();
        let chosen = env::var("TALLY_TEST_DRIVER").ok().and_then(|it| it.parse().ok());
        assert!(chosen.is_some() || drivers.len() == 1, "{} drivers", drivers.len());
        drivers[chosen.unwrap_or(0)]
    })
}

/// All drivers, initialised.
fn drivers() -> Vec<ze_driver_handle_t> {
    let mut drivers = [ze_driver_handle_t::NULL; 8];
    let mut count = drivers.len() as u32;
    let result = call!(zeDriverGet(&raw mut count, drivers.as_mut_ptr()));
    assert_eq!(result, ze_result_t::ZE_RESULT_SUCCESS);
    drivers[..count as usize].to_vec()
}

/// Whether the device is the kernel module's, according to `TALLY_LANE=drm`: it then can access only
/// the memory of the process that is bound for it.
pub fn on_kernel_lane() -> bool {
    env::var_os("TALLY_LANE").is_some_and(|lane| lane == "drm")
}

/// Whether the host can access memory of `zeMemAllocDevice`, which the specification does not
/// guarantee: it cannot on the adversarial device behind the kernel module.
pub fn host_sees_device_memory() -> bool {
    !(on_kernel_lane() && env::var_os("TALLY_CHAOS").is_some())
}

/// The driver's device.
pub fn device() -> ze_device_handle_t {
    let (mut count, mut device) = (1, ze_device_handle_t::NULL);
    check!(zeDeviceGet(driver(), &raw mut count, &raw mut device));
    assert_eq!(count, 1);
    device
}

/// A device with a context of its own, destroyed on drop.
pub struct Gpu {
    /// The device.
    pub device: ze_device_handle_t,
    /// The context.
    pub context: ze_context_handle_t,
}

impl Default for Gpu {
    fn default() -> Self {
        Self::new()
    }
}

impl Gpu {
    /// Initialises the driver and makes a context.
    pub fn new() -> Self {
        let (driver, device) = (driver(), device());
        let desc = ze_context_desc_t::default();
        let mut context = ze_context_handle_t::NULL;
        check!(zeContextCreate(driver, &raw const desc, &raw mut context));
        Self { device, context }
    }

    /// Host memory for `len` zeroed elements.
    pub fn host<T: Copy>(&self, len: usize) -> Usm<T> {
        let desc = ze_host_mem_alloc_desc_t::default();
        let (mut ptr, size) = (ptr::null_mut(), len * size_of::<T>());
        check!(zeMemAllocHost(self.context, &raw const desc, size, 0, &raw mut ptr));
        // SAFETY: the allocation has this size, and nothing else refers to it yet.
        unsafe { ptr.cast::<u8>().write_bytes(0, size) };
        Usm { context: self.context, ptr: ptr.cast(), len }
    }

    /// Device memory for `len` elements. The host can read it if [`host_sees_device_memory`].
    pub fn device_memory<T: Copy>(&self, len: usize) -> Usm<T> {
        let desc = ze_device_mem_alloc_desc_t::default();
        let (mut ptr, size) = (ptr::null_mut(), len * size_of::<T>());
        let device = self.device;
        check!(zeMemAllocDevice(self.context, &raw const desc, size, 0, device, &raw mut ptr));
        Usm { context: self.context, ptr: ptr.cast(), len }
    }

    /// Builds a module from SPIR-V; the build log if it fails.
    pub fn module(&self, spirv: &[u8], flags: &str) -> Result<ze_module_handle_t, String> {
        let spirv_format = ze_module_format_t::ZE_MODULE_FORMAT_IL_SPIRV;
        match self.create_module(spirv_format, spirv, flags) {
            (ze_result_t::ZE_RESULT_SUCCESS, module, _) => Ok(module),
            (_, _, log) => Err(log),
        }
    }

    /// Calls zeModuleCreate; its result, the module and the build log.
    pub fn create_module(
        &self,
        format: ze_module_format_t,
        input: &[u8],
        flags: &str,
    ) -> (ze_result_t, ze_module_handle_t, String) {
        let flags = CString::new(flags).expect("no NUL");
        let desc = ze_module_desc_t {
            format,
            inputSize: input.len(),
            pInputModule: input.as_ptr(),
            pBuildFlags: flags.as_ptr(),
            ..Default::default()
        };
        let mut module = ze_module_handle_t::NULL;
        let mut log = ze_module_build_log_handle_t::NULL;
        let result = call!(zeModuleCreate(
            self.context,
            self.device,
            &raw const desc,
            &raw mut module,
            &raw mut log
        ));
        (result, module, build_log(log))
    }

    /// A kernel of a module.
    pub fn kernel(&self, module: ze_module_handle_t, name: &str) -> ze_kernel_handle_t {
        let name = CString::new(name).expect("no NUL");
        let desc = ze_kernel_desc_t { pKernelName: name.as_ptr(), ..Default::default() };
        let mut kernel = ze_kernel_handle_t::NULL;
        check!(zeKernelCreate(module, &raw const desc, &raw mut kernel));
        kernel
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // A failure here, after a failed test, must not hide that test's failure.
        let _ = call!(zeContextDestroy(self.context));
    }
}

/// Reads a build log and destroys it.
pub fn build_log(log: ze_module_build_log_handle_t) -> String {
    if log.is_null() {
        return String::new();
    }
    let mut size = 0;
    check!(zeModuleBuildLogGetString(log, &raw mut size, ptr::null_mut()));
    let mut bytes = vec![0_u8; size];
    check!(zeModuleBuildLogGetString(log, &raw mut size, bytes.as_mut_ptr().cast()));
    check!(zeModuleBuildLogDestroy(log));
    assert_eq!(bytes.pop(), Some(0), "a log ends with a NUL");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The SPIR-V of `tests/kernels/<name>.cl`.
///
/// # Panics
/// If clang 22 is missing or refuses the kernel.
pub fn spirv(name: &str) -> Vec<u8> {
    spirv_of(&file("kernels").join(name).with_extension("cl"), &[])
}

/// The SPIR-V of an OpenCL C text, for kernels that belong to one test.
///
/// # Panics
/// In the cases of [`spirv`].
pub fn spirv_from(source: &str) -> Vec<u8> {
    spirv_from_with(source, &[])
}

/// The same with more arguments for clang.
///
/// # Panics
/// In the cases of [`spirv`].
pub fn spirv_from_with(source: &str, arguments: &[&str]) -> Vec<u8> {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let file = env::temp_dir().join(format!("tally-test-{}-{number}.cl", std::process::id()));
    std::fs::write(&file, source).expect("a temporary file can be written");
    let spirv = spirv_of(&file, arguments);
    // If the file stays, that is no failure.
    let _ = std::fs::remove_file(&file);
    spirv
}

fn spirv_of(source: &Path, arguments: &[&str]) -> Vec<u8> {
    let clang = env::var_os("TALLY_CLANG").unwrap_or_else(|| "clang-22".into());
    let output = Command::new(&clang)
        .args(["--target=spirv64", "-cl-std=CL3.0", "-O2", "-Xclang", "-finclude-default-header"])
        .args(arguments)
        .args(["-c", "-o", "-"])
        .arg(source)
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}", clang.to_string_lossy()));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// The SPIR-V that LLVM's own code generator makes of a text in LLVM's assembly language, with an extension.
///
/// # Panics
/// If there is no clang, or it refuses the text.
pub fn spirv_from_llvm(source: &str, extension: &str) -> Vec<u8> {
    let clang = env::var_os("TALLY_CLANG").unwrap_or_else(|| "clang-22".into());
    let mut child = Command::new(&clang)
        .args(["--target=spirv64", "-O1", "-Wno-override-module", "-c", "-o", "-", "-x", "ir", "-"])
        .args(["-mllvm", &format!("-spirv-ext=+{extension}")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}", clang.to_string_lossy()));
    child.stdin.take().expect("piped").write_all(source.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "clang");
    output.stdout
}

/// SPIR-V of an assembly text.
///
/// # Panics
/// If there is no spirv-as, or it refuses the text.
pub fn assemble(text: &str) -> Vec<u8> {
    let mut child = Command::new("spirv-as")
        .args(["--target-env", "spv1.2", "-o", "-", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("spirv-as is installed: spirv-tools");
    child.stdin.take().expect("piped").write_all(text.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "spirv-as");
    output.stdout
}

/// Unified shared memory; freed on drop.
pub struct Usm<T> {
    context: ze_context_handle_t,
    ptr: *mut T,
    len: usize,
}

impl<T: Copy> Usm<T> {
    /// The address.
    pub fn ptr(&self) -> *mut T {
        self.ptr
    }

    /// The address as a number.
    pub fn address(&self) -> u64 {
        self.ptr as u64
    }

    /// Bytes.
    pub fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// An element, as it is now.
    pub fn get(&self, i: usize) -> T {
        assert!(i < self.len);
        // SAFETY: the element is in the allocation; a volatile read sees the device's writes.
        unsafe { self.ptr.add(i).read_volatile() }
    }

    /// Sets an element.
    pub fn set(&self, i: usize, value: T) {
        assert!(i < self.len);
        // SAFETY: the element is in the allocation.
        unsafe { self.ptr.add(i).write_volatile(value) }
    }

    /// Sets all elements by their index.
    pub fn fill_with(&self, value: impl Fn(usize) -> T) {
        (0..self.len).for_each(|i| self.set(i, value(i)));
    }

    /// All elements, as they are now.
    pub fn to_vec(&self) -> Vec<T> {
        (0..self.len).map(|i| self.get(i)).collect()
    }
}

impl<T> Drop for Usm<T> {
    fn drop(&mut self) {
        // See `Gpu`.
        let _ = call!(zeMemFree(self.context, self.ptr.cast()));
    }
}

// SAFETY: the memory is shared with a GPU anyway; the tests synchronise as Level Zero requires.
unsafe impl<T: Send> Send for Usm<T> {}
// SAFETY: as for Send.
unsafe impl<T: Send> Sync for Usm<T> {}

/// Runs one ignored test of this test program in a process of its own, with more variables in its
/// environment, and returns its output.
///
/// # Panics
/// If the test fails there; the message has its output.
pub fn in_child(test: &str, variables: &[(&str, &str)]) -> String {
    in_child_under(&[], test, variables)
}

/// Does the same as [`in_child`], started by a command that takes program and arguments.
///
/// # Panics
/// In the cases of [`in_child`].
pub fn in_child_under(command: &[&str], test: &str, variables: &[(&str, &str)]) -> String {
    let output = child(command, test, variables);
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success() && said.contains("1 passed"), "{test} in a child: {said}");
    said
}

/// Does the same as [`in_child_under`], and returns how it ended.
///
/// # Panics
/// If it can't be started.
pub fn child(command: &[&str], test: &str, variables: &[(&str, &str)]) -> Output {
    let launcher = env::var("TALLY_TEST_LAUNCHER").unwrap_or_default();
    // A driver that hangs there must fail this test, not block all of them.
    Command::new("timeout")
        .args(["--foreground", "--signal=KILL", CHILD_SECONDS])
        .args(command)
        .args(launcher.split_whitespace())
        .arg(program())
        .args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"])
        .envs(variables.iter().copied())
        .output()
        .expect("a test program can be started")
}
