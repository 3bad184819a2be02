// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of the process: whether it is still the one that called zeInit, and whether it is still
//! alive.
//!
//! - In a forked child the device's threads do not exist and their locks may never be released: every
//!   call returns ZE_RESULT_ERROR_UNINITIALIZED. A child that wants a GPU has to call exec.
//! - Once exit handlers run, the process's other libraries may be gone: every call of their thread returns
//!   ZE_RESULT_ERROR_DEVICE_LOST, so that destructors of late objects neither crash nor hang. Other threads go on
//!   as before: a handler may wait for what they do (PoCL's device threads), and nothing is cleaned up.
//! - The library stays mapped after dlclose, since its threads run its code.

use std::ffi::{CStr, OsStr, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Once, OnceLock};

/// Bits that determine which calls are let through.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Gate(u32);

const READY: u32 = 1 << 0;
const TRACED: u32 = 1 << 1;
const FORKED: u32 = 1 << 2;
const EXITED: u32 = 1 << 3;
const WATCHED: u32 = 1 << 4;
const CHECKED: u32 = 1 << 5;

static GATE: AtomicU32 = AtomicU32::new(0);

impl Gate {
    /// Initialised and neither traced, watched nor checked: entry points test for this state with one compare.
    pub const OPEN: Self = Self(READY);

    /// The reason why a call may not run, if there is one; `early`: the call may run before zeInit.
    pub fn refuses(self, early: bool) -> Option<Refusal> {
        if self.0 & FORKED != 0 {
            Some(Refusal::Forked)
        } else if self.0 & EXITED != 0 && EXITING.get().is_none_or(|it| *it == own_number()) {
            Some(Refusal::Exiting)
        } else {
            (self.0 & READY == 0 && !early).then_some(Refusal::NotReady)
        }
    }
}

/// The reason why a call may not run; see the module's description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The process is a forked child.
    Forked,
    /// Its exit handlers run.
    Exiting,
    /// The driver was not initialised.
    NotReady,
}

/// The thread that runs the exit handlers, by the kernel's number.
static EXITING: OnceLock<libc::pid_t> = OnceLock::new();

/// Ends the trace at exit; set if there is a trace.
static FINISH_TRACE: OnceLock<fn()> = OnceLock::new();

/// Ends the recording at exit; set if there is one.
static FINISH_RECORDING: OnceLock<fn()> = OnceLock::new();

/// Ends the checks; set if there are any. It returns the status with which the process is to exit.
static FINISH_CHECKS: OnceLock<fn() -> Option<i32>> = OnceLock::new();

/// The current state of the gate.
#[inline]
pub fn gate() -> Gate {
    Gate(GATE.load(Ordering::Relaxed))
}

/// From now on calls are let through.
pub fn set_ready() {
    GATE.fetch_or(READY, Ordering::Release);
}

/// From now on calls are recorded; `finish` ends the record at exit.
pub fn set_traced(finish: fn()) {
    // There is one trace in a process.
    let _ = FINISH_TRACE.set(finish);
    GATE.fetch_or(TRACED, Ordering::Release);
}

/// Sets what ends the recording at exit.
pub fn set_recorded(finish: fn()) {
    // There is one recording in a process.
    let _ = FINISH_RECORDING.set(finish);
}

/// From now on calls report their names to `host_waits`.
pub fn set_watched() {
    GATE.fetch_or(WATCHED, Ordering::Release);
}

/// From now on calls are numbered; `finish` is called after all other work of the process and returns the
/// status with which the process is to exit, if that differs.
pub fn set_checked(finish: fn() -> Option<i32>) {
    // There is one set of checks in a process.
    let _ = FINISH_CHECKS.set(finish);
    GATE.fetch_or(CHECKED, Ordering::Release);
}

/// Whether calls are numbered.
pub fn is_checked() -> bool {
    GATE.load(Ordering::Relaxed) & CHECKED != 0
}

/// Whether the process is exiting or is a forked child.
pub fn is_gone() -> bool {
    GATE.load(Ordering::Relaxed) & (FORKED | EXITED) != 0
}

/// The kernel's number of this thread, whose own data may be gone.
fn own_number() -> libc::pid_t {
    // SAFETY: it has no conditions.
    unsafe { libc::gettid() }
}

/// Installs the handlers that the module's description promises; once.
pub fn watch() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        // SAFETY: the handlers are functions of this library, which is kept mapped below. Both perform
        // only atomic operations and the actions that `exiting` documents.
        unsafe {
            libc::pthread_atfork(None, None, Some(forked));
            libc::atexit(exiting);
        }
        stay_loaded();
    });
}

/// Runs `spawn` with all signals blocked: the new thread inherits that, so the application's
/// handlers never run on it.
pub fn without_signals<T>(spawn: impl FnOnce() -> T) -> T {
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both sets are filled before they are read: `all` by sigfillset, `before` by the first
    // pthread_sigmask, which cannot fail with a valid `how`.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let result = spawn();
    // SAFETY: `before` was filled above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    result
}

extern "C" fn forked() {
    GATE.fetch_or(FORKED, Ordering::Relaxed);
}

extern "C" fn exiting() {
    EXITING.get_or_init(own_number);
    if GATE.fetch_or(EXITED, Ordering::Relaxed) & FORKED == 0 {
        for finish in [&FINISH_TRACE, &FINISH_RECORDING].into_iter().filter_map(OnceLock::get) {
            finish();
        }
    }
}

/// Called when libraries end, after all exit handlers: the program has finished all that it does at exit.
extern "C" fn ended() {
    if GATE.load(Ordering::Relaxed) & FORKED != 0 {
        return;
    }
    if let Some(status) = FINISH_CHECKS.get().and_then(|finish| finish()) {
        // SAFETY: flushes the program's output; nothing of the program runs after this.
        unsafe {
            libc::fflush(std::ptr::null_mut());
            libc::_exit(status);
        }
    }
}

#[used]
#[unsafe(link_section = ".fini_array")]
static ENDED: extern "C" fn() = ended;

/// File of the shared object that holds this code: libze_tally.so, or a test program.
fn own_file() -> Option<PathBuf> {
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: dladdr accepts any address; the strings that it returns live as long as the object.
    let found = unsafe { libc::dladdr(forked as *const c_void, &mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr returned a null-terminated string.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

/// The folder of the driver's library, in which the compiler is looked for.
pub fn own_folder() -> Option<PathBuf> {
    let file = own_file()?;
    let file = file.canonicalize().unwrap_or(file);
    file.parent().map(ToOwned::to_owned)
}

fn stay_loaded() {
    let Some(file) = own_file() else { return };
    let Ok(name) = std::ffi::CString::new(file.as_os_str().as_bytes()) else { return };
    let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
    // SAFETY: the object is loaded already, so no initialiser runs. The handle is kept on purpose.
    // A program that is no shared object cannot be unloaded, and the failure changes nothing.
    unsafe { libc::dlopen(name.as_ptr(), flags) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_initialised_process_that_lives_is_admitted() {
        let refused = |gate: u32, early| Gate(gate).refuses(early);
        assert_eq!(refused(READY, false), None);
        assert_eq!(refused(READY | TRACED, false), None);
        assert_eq!(refused(0, false), Some(Refusal::NotReady));
        assert_eq!(refused(0, true), None, "zeInit itself");
        assert_eq!(refused(READY | FORKED, true), Some(Refusal::Forked));
        assert_eq!(refused(READY | EXITED, true), Some(Refusal::Exiting));
        assert_eq!(refused(READY | FORKED | EXITED, true), Some(Refusal::Forked));
    }

    #[test]
    fn the_own_folder_holds_this_program() {
        let folder = own_folder().expect("a test is a file");
        let program = std::env::current_exe().expect("Linux knows it");
        assert_eq!(program.canonicalize().expect("exists").parent(), Some(folder.as_path()));
    }
}
