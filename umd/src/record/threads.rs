// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the program's threads are: in a call, in a function that the device has called, or in code of their own, and
//! whether they have run there.

use std::cell::Cell;
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A thread that has made calls.
struct Thread {
    id: libc::pid_t,
    /// How often it has begun or ended a call: odd in a call.
    turns: AtomicU64,
}

static THREADS: Mutex<Vec<Arc<Thread>>> = Mutex::new(Vec::new());

fn lock() -> MutexGuard<'static, Vec<Arc<Thread>>> {
    THREADS.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    static IN_FUNCTION: Cell<bool> = const { Cell::new(false) };
    /// How many calls of this thread are in progress, one in the other.
    static CALLS: Cell<u32> = const { Cell::new(0) };
    static CALLER: Caller = Caller::new();
}

/// This thread, as long as it lives.
struct Caller(Arc<Thread>);

impl Caller {
    fn new() -> Self {
        // SAFETY: only asks.
        let id = unsafe { libc::gettid() };
        let thread = Arc::new(Thread { id, turns: AtomicU64::new(0) });
        lock().push(Arc::clone(&thread));
        Self(thread)
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        lock().retain(|it| !Arc::ptr_eq(it, &self.0));
    }
}

/// A call of this thread, as long as it is in progress.
pub struct Inside(());

impl Inside {
    /// A call begins.
    pub fn begins() -> Self {
        if CALLS.replace(CALLS.get() + 1) == 0 {
            turn();
        }
        Self(())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        CALLS.set(CALLS.get() - 1);
        if CALLS.get() == 0 {
            turn();
        }
    }
}

fn turn() {
    // The thread that calls functions of the host is the driver's.
    if is_in_function() {
        return;
    }
    // A thread that is ending is not counted.
    let _ = CALLER.try_with(|it| it.0.turns.fetch_add(1, Ordering::SeqCst));
}

/// The processor time of a thread of this process, in ns; none if it is unknown.
fn time(id: libc::pid_t) -> Option<u64> {
    /// The clock of one thread that counts the time for which it was scheduled (`MAKE_THREAD_CPUCLOCK` of the
    /// kernel's `include/linux/posix-timers_types.h`).
    const OF_THREAD: libc::clockid_t = 6;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the place is good for the call.
    let result = unsafe { libc::clock_gettime(!id << 3 | OF_THREAD, &mut time) };
    (result == 0).then_some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// The threads of the process that are not the driver's, which have names of their own. None if that is unknown.
fn of_program() -> Option<Vec<libc::pid_t>> {
    let id = |name: &str| name.parse().ok();
    let tasks = fs::read_dir("/proc/self/task").ok()?;
    let ids = tasks.filter_map(|task| id(task.ok()?.file_name().to_str()?));
    let is_programs = |&id: &libc::pid_t| {
        // One that has just ended has no name left, and counts as the program's.
        let name = fs::read(format!("/proc/self/task/{id}/comm")).unwrap_or_default();
        !name.starts_with(b"tally-")
    };
    Some(ids.filter(is_programs).collect())
}

/// Where the other threads were at some time: those that have made calls, with their turns, and all others.
#[derive(Default)]
pub struct Places {
    own: libc::pid_t,
    callers: Vec<(Arc<Thread>, u64, Option<u64>)>,
    silent: Option<Vec<(libc::pid_t, Option<u64>)>>,
}

impl Places {
    /// Where they are now.
    pub fn now() -> Self {
        // SAFETY: only asks.
        let own = unsafe { libc::gettid() };
        let all = lock().clone();
        let others = all.into_iter().filter(|it| it.id != own);
        let place = |thread: Arc<Thread>| {
            let turns = thread.turns.load(Ordering::SeqCst);
            let time = if turns % 2 == 1 { None } else { time(thread.id) };
            (thread, turns, time)
        };
        let callers: Vec<_> = others.map(place).collect();
        let is_silent =
            |&id: &libc::pid_t| id != own && callers.iter().all(|(thread, ..)| thread.id != id);
        let silent = of_program()
            .map(|ids| ids.into_iter().filter(is_silent).map(|id| (id, time(id))).collect());
        Self { own, callers, silent }
    }

    /// Whether one of them, or one that is new, may have run since then in code of its own, and so may have written
    /// memory.
    pub fn have_run(&self) -> bool {
        let ran = |(thread, turns, before): &(Arc<Thread>, u64, Option<u64>)| {
            match thread.turns.load(Ordering::SeqCst) == *turns {
                true if turns % 2 == 1 => false,
                // A thread that has ended since has run.
                true => before.is_none() || time(thread.id) != *before,
                false => true,
            }
        };
        self.callers.iter().any(ran) || self.silent_have_run()
    }

    /// The same of threads that had made no calls.
    fn silent_have_run(&self) -> bool {
        let (Some(silent), Some(now)) = (&self.silent, of_program()) else { return true };
        let is_new = |id: &libc::pid_t| {
            *id != self.own
                && silent.iter().all(|(known, _)| known != id)
                && self.callers.iter().all(|(thread, ..)| thread.id != *id)
        };
        silent.iter().any(|&(id, before)| before.is_none() || time(id) != before)
            || now.iter().any(is_new)
    }
}

/// Whether this thread is in a function that the device has called.
pub fn is_in_function() -> bool {
    IN_FUNCTION.get()
}

/// A function that the device calls begins or ends on this thread.
pub fn set_in_function(runs: bool) {
    IN_FUNCTION.set(runs);
}
