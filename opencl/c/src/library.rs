// SPDX-License-Identifier: MIT OR Apache-2.0
//! Intel's front end as a library: `libcommon_clang.so`, which Intel's OpenCL for CPUs uses, or
//! `libopencl-clang.so`, the same in distributions. Its interface is that of `common_clang.h` in
//! intel/opencl-clang.

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::request::{Compiled, Failure, Request};

/// The names of the library.
const NAMES: [&str; 4] = [
    "libcommon_clang.so",
    "libopencl-clang.so.22",
    "libopencl-clang.so.21",
    "libopencl-clang.so.20",
];
/// The versions of OpenCL that the device has.
const VERSION: &CStr = c"300";
/// What a run time adds: the output, the optional features that the device has, and the extensions of SPIR-V that
/// those of OpenCL C need. All that the library knows would be more than Tally's compiler does
/// (SPV_KHR_poison_freeze).
const ITS_OWN: &CStr =
    c"-emit-spirv -Dcl_khr_fp64 -Dcl_khr_fp16 -spirv-ext=-all,+SPV_INTEL_subgroups,\
    +SPV_INTEL_split_barrier,+SPV_INTEL_bfloat16_conversion,+SPV_KHR_integer_dot_product,\
    +SPV_KHR_uniform_group_instructions,+SPV_KHR_subgroup_rotate,+SPV_EXT_shader_atomic_float_add,\
    +SPV_EXT_shader_atomic_float16_add,+SPV_EXT_shader_atomic_float_min_max";
/// `CL_INVALID_BUILD_OPTIONS`.
const INVALID_OPTIONS: c_int = -43;

/// The functions of a result, which is an object of C++.
#[repr(C)]
struct Table {
    size: unsafe extern "C" fn(*const Answer) -> usize,
    code: unsafe extern "C" fn(*const Answer) -> *const u8,
    name: unsafe extern "C" fn(*const Answer) -> *const c_char,
    kind: unsafe extern "C" fn(*const Answer) -> c_int,
    log: unsafe extern "C" fn(*const Answer) -> *const c_char,
    release: unsafe extern "C" fn(*mut Answer),
}

#[repr(C)]
struct Answer {
    table: *const Table,
}

type Compile = unsafe extern "C" fn(
    source: *const c_char,
    headers: *const *const c_char,
    header_count: c_uint,
    header_names: *const *const c_char,
    precompiled: *const c_char,
    precompiled_size: usize,
    options: *const c_char,
    its_own_options: *const c_char,
    version: *const c_char,
    answer: *mut *mut Answer,
) -> c_int;

/// Compiles with the library; nothing if there is none.
pub(crate) fn compile(request: &Request) -> Option<Result<Compiled, Failure>> {
    let function = find(request)?;
    let text = |text: &str| {
        CString::new(text).map_err(|_| Failure::Refused("there is a zero in the text".to_owned()))
    };
    let (source, options) = match (text(&request.source), text(&request.options)) {
        (Ok(source), Ok(options)) => (source, options),
        (Err(failure), _) | (_, Err(failure)) => return Some(Err(failure)),
    };
    let none = std::ptr::null::<u8>();
    let mut answer = std::ptr::null_mut();
    // SAFETY: the strings are terminated, and there are no headers.
    let code = unsafe {
        function(
            source.as_ptr(),
            none.cast(),
            0,
            none.cast(),
            none.cast(),
            0,
            options.as_ptr(),
            ITS_OWN.as_ptr(),
            VERSION.as_ptr(),
            &raw mut answer,
        )
    };
    // SAFETY: the library's own object, or null.
    let (spirv, log) = unsafe { read(answer) };
    Some(match code {
        0 => Ok(Compiled { spirv, log }),
        INVALID_OPTIONS if log.is_empty() => {
            Err(Failure::Options(format!("the build options are not known: {}", request.options)))
        }
        INVALID_OPTIONS => Err(Failure::Options(log)),
        _ => Err(Failure::Refused(log)),
    })
}

/// The library's function.
fn find(request: &Request) -> Option<Compile> {
    let in_folders = request.folders.iter().flat_map(|folder| {
        NAMES.iter().map(move |name| Path::new(folder).join(name)).filter(|file| file.is_file())
    });
    // Without a folder the dynamic linker searches.
    let anywhere = NAMES.iter().map(|name| Path::new(name).to_owned());
    in_folders.chain(anywhere).find_map(|file| open(file.as_os_str()))
}

fn open(file: &OsStr) -> Option<Compile> {
    let file = CString::new(file.as_bytes()).ok()?;
    // SAFETY: the library's initialisers are made for processes like this one. It stays open.
    let found = unsafe {
        let library = libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        if library.is_null() {
            return None;
        }
        libc::dlsym(library, c"Compile".as_ptr())
    };
    // SAFETY: the function of this name has this type.
    (!found.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, Compile>(found) })
}

/// The code and the messages of an answer, which is released.
///
/// # Safety
/// The answer is the library's, or null.
unsafe fn read(answer: *mut Answer) -> (Vec<u8>, String) {
    if answer.is_null() {
        return Default::default();
    }
    // SAFETY: the object begins with its table, and its functions answer memory that stays until its release.
    unsafe {
        let table = &*(*answer).table;
        let (code, size, log) = ((table.code)(answer), (table.size)(answer), (table.log)(answer));
        let spirv = match code.is_null() {
            true => Vec::new(),
            false => std::slice::from_raw_parts(code, size).to_vec(),
        };
        let text = match log.is_null() {
            true => String::new(),
            false => CStr::from_ptr(log).to_string_lossy().into_owned(),
        };
        (table.release)(answer);
        (spirv, text)
    }
}
