// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lets a program that opens the system's loader by its full name have the loader that `tally-run`
//! chose for it.
//!
//! Such a loader lies in no system folder and comes with a dynamic linker of its own. `tally-run` names
//! this library to that linker as an auditor (rtld-audit(7)), and the linker asks it where each
//! library is to be looked for. The linker gives auditors a namespace of their own, so the copy that
//! answers is not the driver that the program gets.

use std::ffi::{CStr, c_char, c_uint};

/// The names under which programs open the system's loader.
const SYSTEM: [&CStr; 2] =
    [c"/usr/lib/x86_64-linux-gnu/libze_loader.so.1", c"/lib/x86_64-linux-gnu/libze_loader.so.1"];
/// A name without a folder, which the linker looks for in its library path.
const ANYWHERE: &CStr = c"libze_loader.so.1";
/// The version of the interface that this follows; linkers know all older ones.
const VERSION: c_uint = 1;

/// The interface's first function: the version to use.
#[unsafe(no_mangle)]
pub extern "C" fn la_version(newest: c_uint) -> c_uint {
    newest.min(VERSION)
}

/// What to look for instead of `name`.
///
/// # Safety
/// `name` is a terminated string. Only the dynamic linker calls this.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn la_objsearch(
    name: *const c_char,
    _cookie: *mut usize,
    _stage: c_uint,
) -> *const c_char {
    // SAFETY: the linker passes the name that it looks for.
    let asked = unsafe { CStr::from_ptr(name) };
    if SYSTEM.contains(&asked) { ANYWHERE.as_ptr() } else { name }
}
