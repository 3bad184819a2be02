// SPDX-License-Identifier: MIT OR Apache-2.0
//! Host functions: in their place one that writes what they wrote.

use std::collections::{BTreeSet, HashMap};
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
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

/// A function, and the number of its calls before.
type CallOf = (u32, u32);

/// The place of the replay, and of functions.
struct Place {
    /// Calls that the replay has reached.
    reached: BTreeSet<CallOf>,
    /// The one for which it waits.
    awaited: Option<CallOf>,
    ended: BTreeSet<CallOf>,
    /// The replay waits for no more of them.
    free: bool,
    /// Those that wait for the replay.
    waiting: u32,
}

static PLACE: Mutex<Place> = Mutex::new(Place {
    reached: BTreeSet::new(),
    awaited: None,
    ended: BTreeSet::new(),
    free: false,
    waiting: 0,
});
static CHANGED: Condvar = Condvar::new();
/// How long a function waits for the replay, which may itself wait for the function in the driver.
const MEETING: Duration = Duration::from_secs(2);

fn lock() -> MutexGuard<'static, Place> {
    PLACE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets a function end, which waits for this, and waits until it has; false if it takes longer than `limit`.
pub fn meet(call: CallOf, limit: Duration) -> bool {
    let mut place = lock();
    place.reached.insert(call);
    place.awaited = Some(call);
    CHANGED.notify_all();
    let waited = CHANGED.wait_timeout_while(place, limit, |place| !place.ended.contains(&call));
    let (mut place, waited) = waited.unwrap_or_else(PoisonError::into_inner);
    place.awaited = None;
    !waited.timed_out()
}

/// Whether a function waits for the replay.
pub fn waits() -> bool {
    lock().waiting != 0
}

/// Whether functions end by themselves, since the replay waits for all work.
pub fn set_free(free: bool) {
    lock().free = free;
    CHANGED.notify_all();
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
    let call = (function.number, before);
    // They end where they had ended in the recorded run. But functions are called one at a time: another one than
    // the awaited one must not keep that from being called.
    let waits = |place: &mut Place| {
        !place.free && !place.reached.contains(&call) && place.awaited.is_none()
    };
    let mut place = lock();
    place.waiting += 1;
    let waited = CHANGED.wait_timeout_while(place, MEETING, waits);
    waited.unwrap_or_else(PoisonError::into_inner).0.waiting -= 1;
    let memory = functions.memory.lock().unwrap_or_else(PoisonError::into_inner);
    for (address, mask, bytes) in functions.writes.get(&call).into_iter().flatten() {
        if let Err(error) = memory.write(*address, mask, bytes) {
            eprintln!("tally-replay: host function {}: {error}", function.number);
        }
    }
    drop(memory);
    let mut place = lock();
    place.ended.insert(call);
    // The next one may be called before the replay has seen it.
    place.awaited.take_if(|awaited| *awaited == call);
    drop(place);
    CHANGED.notify_all();
}
