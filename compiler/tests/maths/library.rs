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

/// The library, compiled for some processor and loaded. It is never unloaded.
pub struct Library {
    /// What it was compiled for.
    pub name: &'static str,
    handle: *mut c_void,
}

// SAFETY: the handle is only given to dlsym, which any thread may call.
unsafe impl Send for Library {}
// SAFETY: as above; the library's functions have no state.
unsafe impl Sync for Library {}

/// The library for any x86-64, and for this processor if it multiplies and adds in one step.
pub fn libraries() -> &'static [Library] {
    static LIBRARIES: OnceLock<Vec<Library>> = OnceLock::new();
    LIBRARIES.get_or_init(|| {
        let mut all = vec![Library::build("x86-64", "x86-64", &[])];
        if is_x86_feature_detected!("fma") && is_x86_feature_detected!("avx2") {
            all.push(Library::build("fma", "x86-64-v3", &["-DTALLY_FMA"]));
        }
        all
    })
}

/// The files of the run-time library that have no functions of the maths library.
const OTHERS: &[&str] = &["support", "image", "phases", "printf"];

/// The compiler that the build uses.
fn find_clang() -> String {
    let candidates = ["clang-22", "/usr/lib/llvm-22/bin/clang"].map(String::from);
    let works = |clang: &String| Command::new(clang).arg("--version").output().is_ok();
    let found = env::var("TALLY_CLANG").ok().into_iter().chain(candidates).find(works);
    found.expect("clang of LLVM 22 is installed or TALLY_CLANG says where")
}

impl Library {
    fn build(name: &'static str, processor: &str, more: &[&str]) -> Library {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("rt");
        // Another process may run the same tests.
        let file = format!("libtally_maths_{name}_{}.so", std::process::id());
        let object = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(file);
        let families: Vec<PathBuf> = fs::read_dir(&sources)
            .expect("compiler/rt exists")
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .filter(|path| path.extension().is_some_and(|extension| extension == "c"))
            .filter(|path| !path.file_stem().is_some_and(|stem| OTHERS.iter().any(|o| stem == *o)))
            .collect();
        let clang = find_clang();
        let result = Command::new(&clang)
            .args(["--target=x86_64-unknown-linux-gnu", "-std=c17", "-O2"])
            .args(["-ffreestanding", "-fno-builtin", "-fno-math-errno", "-ffp-contract=off"])
            .args(["-fPIC", "-shared", "-nostdlib", "-Wl,-z,defs"])
            .arg(format!("-march={processor}"))
            .args(more)
            .args(families)
            .arg("-o")
            .arg(&object)
            .status();
        assert!(result.is_ok_and(|status| status.success()), "{clang} failed");
        let path = CString::new(object.as_os_str().as_bytes()).expect("a path without NUL");
        // SAFETY: the path is a C string; the object has no constructors.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "the maths library can't be loaded");
        // The mapping stays.
        let _ = fs::remove_file(object);
        Library { name, handle }
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
