// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gives a program that opens the system's loader by its full name the loader that `tally-run`
//! has chosen for it.
//!
//! Such a loader is not in a system folder and has a dynamic linker of its own. `tally-run` passes this library
//! to that linker as an auditor (rtld-audit(7)), and the linker asks it where to look for each library. The
//! linker gives auditors a namespace of their own, so this copy is not the driver that the program gets.

use std::ffi::{CStr, c_char, c_uint};

/// The names under which programs open the system's loader.
const SYSTEM: [&CStr; 2] =
    [c"/usr/lib/x86_64-linux-gnu/libze_loader.so.1", c"/lib/x86_64-linux-gnu/libze_loader.so.1"];
/// A name without a folder, which the linker searches in its library path.
const ANYWHERE: &CStr = c"libze_loader.so.1";
/// The version of the interface that this follows; linkers know all older ones.
const VERSION: c_uint = 1;

/// The interface's first function: the version to use.
#[unsafe(no_mangle)]
pub extern "C" fn la_version(newest: c_uint) -> c_uint {
    newest.min(VERSION)
}

/// The name to look for instead of `name`.
///
/// # Safety
/// `name` is a terminated string. Only the dynamic linker calls this.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn la_objsearch(
    name: *const c_char,
    _cookie: *mut usize,
    _stage: c_uint,
) -> *const c_char {
    // SAFETY: the linker passes a terminated string.
    let asked = unsafe { CStr::from_ptr(name) };
    if SYSTEM.contains(&asked) { ANYWHERE.as_ptr() } else { name }
}
