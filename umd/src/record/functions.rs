// SPDX-License-Identifier: MIT OR Apache-2.0
//! Host functions: what they write is recorded, since a replay cannot call them.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use tally_ze::call::{Word, Words};
use tally_ze::ze_host_function_callback_t;

use crate::space;

/// One that was appended, and may be called any number of times.
struct Function {
    number: u32,
    calls: AtomicU32,
    callback: ze_host_function_callback_t,
    data: u64,
    around: Around,
}

/// Called in front of a function, with nothing, and behind it, with its number and its calls before.
pub type Around = fn(Option<(u32, u32)>);

/// Puts a function that records in the place of the program's, in the arguments of an append.
pub fn replace(words: &mut Words, number: u32, around: Around) {
    let words = words.as_mut_slice();
    let callback = <ze_host_function_callback_t as Word>::take(&mut words[1..].iter().copied());
    if callback.is_none() {
        // The call is refused.
        return;
    }
    let function = Function { number, calls: AtomicU32::new(0), callback, data: words[2], around };
    // Nothing tells when the last call was.
    let function: &'static Function = Box::leak(Box::new(function));
    let hook: unsafe extern "C" fn(*mut c_void) = called;
    words[1] = (hook as *const c_void).expose_provenance() as u64;
    words[2] = std::ptr::from_ref(function).expose_provenance() as u64;
}

unsafe extern "C" fn called(data: *mut c_void) {
    // SAFETY: the driver passes what was appended, which is never freed.
    let function = unsafe { &*data.cast_const().cast::<Function>() };
    let before = function.calls.fetch_add(1, Ordering::Relaxed);
    (function.around)(None);
    if let Some(callback) = function.callback {
        // SAFETY: the program has appended this function with this argument.
        unsafe { callback(space::pointer(function.data).cast()) };
    }
    (function.around)(Some((function.number, before)));
}
