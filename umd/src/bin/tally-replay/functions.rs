// SPDX-License-Identifier: MIT OR Apache-2.0
//! Host functions: in their place one that writes what they wrote.

use std::collections::{BTreeSet, HashMap};
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::memory::Memory;
use crate::scan::Write;

/// What the functions write, and where.
pub struct Functions {
    /// By function and call.
    pub writes: HashMap<(u32, u32), Vec<Write>>,
    /// The replay's memory.
    pub memory: Arc<Mutex<Memory>>,
}

static FUNCTIONS: OnceLock<Functions> = OnceLock::new();

/// The calls that have ended, by function and call.
static ENDED: Mutex<BTreeSet<(u32, u32)>> = Mutex::new(BTreeSet::new());
static CHANGED: Condvar = Condvar::new();

/// Waits until a call has ended; false if it takes longer than `limit`.
pub fn wait(call: (u32, u32), limit: Duration) -> bool {
    let ended = ENDED.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = CHANGED.wait_timeout_while(ended, limit, |ended| !ended.contains(&call));
    !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
}

/// Sets them, once.
pub fn set(functions: Functions) {
    let _ = FUNCTIONS.set(functions);
}

/// One that was appended.
struct Function {
    number: u32,
    calls: AtomicU32,
}

/// The address of the function that is called in place of all.
pub fn callback() -> u64 {
    let function: unsafe extern "C" fn(*mut c_void) = called;
    (function as *const c_void).expose_provenance() as u64
}

/// The argument with which it does what the function of this number did. It is never freed, since nothing tells
/// when the last call was.
pub fn data(number: u32) -> u64 {
    let function = Box::new(Function { number, calls: AtomicU32::new(0) });
    std::ptr::from_ref::<Function>(Box::leak(function)).expose_provenance() as u64
}

unsafe extern "C" fn called(data: *mut c_void) {
    // SAFETY: what `data` has made.
    let function = unsafe { &*data.cast_const().cast::<Function>() };
    let before = function.calls.fetch_add(1, Ordering::Relaxed);
    let Some(functions) = FUNCTIONS.get() else { return };
    let memory = functions.memory.lock().unwrap_or_else(PoisonError::into_inner);
    for (address, mask, bytes) in
        functions.writes.get(&(function.number, before)).into_iter().flatten()
    {
        if let Err(error) = memory.write(*address, mask, bytes) {
            eprintln!("tally-replay: host function {}: {error}", function.number);
        }
    }
    drop(memory);
    ENDED.lock().unwrap_or_else(PoisonError::into_inner).insert((function.number, before));
    CHANGED.notify_all();
}
