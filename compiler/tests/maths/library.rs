// SPDX-License-Identifier: MIT OR Apache-2.0
//! The maths library as a shared object.

use std::ffi::{CString, c_void};
use std::mem::transmute;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::{env, fs};

use super::sample::Float;

/// The library, compiled for some processor and a vector width, and loaded. It is never unloaded.
pub struct Library {
    /// The processor and the width that it was compiled for.
    pub name: String,
    /// The number of elements that its functions take. If it is more than one, only functions on
    /// vectors exist.
    pub lanes: u32,
    handle: *mut c_void,
}

// SAFETY: the handle is only given to dlsym, which any thread may call.
unsafe impl Send for Library {}
// SAFETY: as above; the library's functions have no state.
unsafe impl Sync for Library {}

/// The scalar forms of the library that this processor can run: for any x86-64, with fused
/// multiply-add, with registers of 512 bits.
pub fn libraries() -> &'static [Library] {
    static LIBRARIES: OnceLock<Vec<Library>> = OnceLock::new();
    LIBRARIES.get_or_init(|| forms_for(1))
}

/// The same forms, scalar and for vectors of 8 and of 16.
pub fn all_libraries() -> impl Iterator<Item = &'static Library> {
    static LONG: OnceLock<Vec<Library>> = OnceLock::new();
    let long = LONG.get_or_init(|| forms_for(8).into_iter().chain(forms_for(16)).collect());
    libraries().iter().chain(long)
}

fn forms_for(lanes: u32) -> Vec<Library> {
    let mut all = vec![Library::build("x86-64", lanes, &[])];
    if is_x86_feature_detected!("fma") && is_x86_feature_detected!("avx2") {
        all.push(Library::build("x86-64-v3", lanes, &["-DTALLY_FMA"]));
    }
    if is_x86_feature_detected!("avx512vl") && is_x86_feature_detected!("avx512dq") {
        all.push(Library::build("x86-64-v4", lanes, &["-DTALLY_FMA", "-DTALLY_AVX512"]));
    }
    all
}

/// The C files of a folder.
fn sources(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(folder).expect("the run-time library's folder exists");
    let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "c"))
}

/// The compiler that the build uses.
fn find_clang() -> String {
    let candidates = ["clang-22", "/usr/lib/llvm-22/bin/clang"].map(String::from);
    let works = |clang: &String| Command::new(clang).arg("--version").output().is_ok();
    let found = env::var("TALLY_CLANG").ok().into_iter().chain(candidates).find(works);
    found.expect("clang of LLVM 22 is installed or TALLY_CLANG says where")
}

impl Library {
    fn build(processor: &str, lanes: u32, more: &[&str]) -> Library {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let rt = root.join("rt");
        let name =
            if lanes == 1 { processor.to_owned() } else { format!("{processor}, {lanes} numbers") };
        // Another process may run the same tests.
        let file = format!("libtally_maths_{processor}_{lanes}_{}.so", std::process::id());
        let object = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(file);
        let files = sources(&rt.join("maths")).chain(sources(&rt.join("maths/far")));
        let rest = if lanes == 1 { rt.join("round.c") } else { root.join("tests/maths/lanes.c") };
        let clang = find_clang();
        let result = Command::new(&clang)
            .args(["--target=x86_64-unknown-linux-gnu", "-std=c17", "-O2"])
            .args(["-ffreestanding", "-fno-builtin", "-fno-math-errno", "-ffp-contract=off"])
            .args(["-fPIC", "-shared", "-nostdlib", "-Wl,-z,defs", "-Wno-psabi"])
            .arg(format!("-march={processor}"))
            .arg(format!("-DLANES={lanes}"))
            .args(more)
            .args(files.chain([rest]))
            .arg("-o")
            .arg(&object)
            .status();
        assert!(result.is_ok_and(|status| status.success()), "{clang} failed");
        let path = CString::new(object.as_os_str().as_bytes()).expect("a path without NUL");
        // SAFETY: the path is a C string; the object has no constructors.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "the maths library can't be loaded");
        // The mapping remains.
        let _ = fs::remove_file(object);
        Library { name, lanes, handle }
    }

    /// Whether it has functions of a format: the longest vectors have floats.
    pub fn has<F: Float>(&self) -> bool {
        self.lanes <= 8 || F::WIDTH == 32
    }

    fn symbol<F: Float>(&self, name: &str) -> *mut c_void {
        let symbol = CString::new(format!("__tally_{name}_f{}", F::WIDTH)).expect("no NUL in it");
        // SAFETY: the handle is of a loaded object; the name is a C string.
        let address = unsafe { libc::dlsym(self.handle, symbol.as_ptr()) };
        assert!(!address.is_null(), "{symbol:?} is missing");
        address
    }

    /// A function of one number.
    pub fn unary<F: Float>(&self, name: &str) -> extern "C" fn(F) -> F {
        // SAFETY: the library's functions of this shape have this C prototype, touch no memory but
        // constants, and stay loaded. So below.
        unsafe { transmute::<*mut c_void, extern "C" fn(F) -> F>(self.symbol::<F>(name)) }
    }

    /// A function of two numbers.
    pub fn binary<F: Float>(&self, name: &str) -> extern "C" fn(F, F) -> F {
        // SAFETY: see `unary`.
        unsafe { transmute::<*mut c_void, extern "C" fn(F, F) -> F>(self.symbol::<F>(name)) }
    }

    /// A function of a number and an integer.
    pub fn with_int<F: Float>(&self, name: &str) -> extern "C" fn(F, i32) -> F {
        // SAFETY: see `unary`.
        unsafe { transmute::<*mut c_void, extern "C" fn(F, i32) -> F>(self.symbol::<F>(name)) }
    }

    /// A function from a number to an integer.
    pub fn to_int<F: Float>(&self, name: &str) -> extern "C" fn(F) -> i32 {
        // SAFETY: see `unary`.
        unsafe { transmute::<*mut c_void, extern "C" fn(F) -> i32>(self.symbol::<F>(name)) }
    }

    /// A function with a second result `S` behind a pointer.
    pub fn two_results<F: Float, S: Default>(&self, name: &str) -> impl Fn(F) -> (F, S) {
        type Function<F, S> = unsafe extern "C" fn(F, *mut S) -> F;
        // SAFETY: see `unary`; the pointer must be good for a write.
        let function = unsafe { transmute::<*mut c_void, Function<F, S>>(self.symbol::<F>(name)) };
        move |x| {
            let mut second = S::default();
            // SAFETY: `second` is a place of the second result's type.
            let first = unsafe { function(x, &mut second) };
            (first, second)
        }
    }

    /// `remquo`: two numbers, and a second result behind a pointer.
    pub fn remquo<F: Float>(&self) -> impl Fn(F, F) -> (F, i32) {
        type Function<F> = unsafe extern "C" fn(F, F, *mut i32) -> F;
        // SAFETY: see `unary`; the pointer must be good for a write.
        let function = unsafe { transmute::<*mut c_void, Function<F>>(self.symbol::<F>("remquo")) };
        move |x, y| {
            let mut quotient = 0;
            // SAFETY: `quotient` is a place of the second result's type.
            let rest = unsafe { function(x, y, &mut quotient) };
            (rest, quotient)
        }
    }
}
