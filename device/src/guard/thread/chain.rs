// SPDX-License-Identifier: MIT OR Apache-2.0
//! Our signal handler, and the handlers that were installed before it.
//!
//! A signal that is not ours is passed on as if our handler did not exist: the
//! previous handler is called with its own mask and flags, and a default action
//! happens at the same instruction.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

use super::{ABORT_SIGNAL, claim};

const SIGNALS: usize = 32;

/// The action that each signal had before ours; null where we have none. Each is
/// leaked once: a handler may run in another thread while we read it.
static PREVIOUS: [AtomicPtr<libc::sigaction>; SIGNALS] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; SIGNALS];
static INSTALLING: Mutex<()> = Mutex::new(());

/// Installs our handler for `signals`, once per process.
pub(super) fn install(signals: &[i32]) {
    let _installing = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    for &signal in signals {
        let previous = &PREVIOUS[signal as usize];
        if !previous.load(Ordering::Acquire).is_null() {
            continue;
        }
        let mut before = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: reads the current action into memory that is ours; the saved
        // action is stored before the new one can run; the new one names a
        // handler of the three-argument kind, as SA_SIGINFO says.
        unsafe {
            libc::sigaction(signal, std::ptr::null(), before.as_mut_ptr());
            previous.store(Box::into_raw(Box::new(before.assume_init())), Ordering::Release);
            let mut ours: libc::sigaction = std::mem::zeroed();
            ours.sa_sigaction = on_signal as *const () as usize;
            ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
            libc::sigemptyset(&mut ours.sa_mask);
            libc::sigaction(signal, &ours, std::ptr::null_mut());
        }
    }
}

extern "C" fn on_signal(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: these are the arguments that the kernel gave to this handler.
    unsafe {
        if !claim(signal, info, context) {
            pass_on(signal, info, context);
        }
    }
}

/// # Safety
/// Called by our handler with its own arguments.
unsafe fn pass_on(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let previous = PREVIOUS[signal as usize].load(Ordering::Acquire);
    // SAFETY: install() stored a leaked action before this handler could run.
    let previous = unsafe { &*previous };
    // SAFETY: the kernel hands a valid siginfo to the handler.
    let sent = unsafe { (*info).si_code } <= 0;
    match previous.sa_sigaction {
        libc::SIG_IGN if sent => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: getpid takes nothing; a signal that was sent has a sender.
            let own = sent && unsafe { (*info).si_pid() == libc::getpid() };
            if signal == ABORT_SIGNAL && own {
                return;
            }
            // SAFETY: restores the default action that the signal had.
            unsafe { default_action(signal, sent) };
        }
        // SAFETY: the action was installed as a handler for this signal before ours.
        _ => unsafe { call(previous, signal, info, context) },
    }
}

/// Restores the default action and triggers it: a fault happens again at the
/// same instruction, and a signal that was sent is sent again.
///
/// # Safety
/// Called in the handler of `signal`.
unsafe fn default_action(signal: i32, sent: bool) {
    // SAFETY: the structure is valid for SIG_DFL; raise() only queues the
    // signal, which is blocked until this handler returns.
    unsafe {
        let mut default: libc::sigaction = std::mem::zeroed();
        default.sa_sigaction = libc::SIG_DFL;
        libc::sigaction(signal, &default, std::ptr::null_mut());
        if sent {
            libc::raise(signal);
        }
    }
}

/// Calls an earlier handler under the mask that it asked for.
///
/// # Safety
/// `previous` is the action of a handler for `signal`; the rest are the
/// arguments that the kernel gave to ours.
unsafe fn call(
    previous: &libc::sigaction,
    signal: i32,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the masks are filled before they are read. SA_SIGINFO says which of
    // the two types the handler has.
    unsafe {
        if previous.sa_flags & libc::SA_RESETHAND != 0 {
            let mut default: libc::sigaction = std::mem::zeroed();
            default.sa_sigaction = libc::SIG_DFL;
            libc::sigaction(signal, &default, std::ptr::null_mut());
        }
        let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, &previous.sa_mask, before.as_mut_ptr());
        if previous.sa_flags & libc::SA_NODEFER != 0 {
            let mut this = MaybeUninit::<libc::sigset_t>::zeroed();
            libc::sigemptyset(this.as_mut_ptr());
            libc::sigaddset(this.as_mut_ptr(), signal);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, this.as_ptr(), std::ptr::null_mut());
        }
        if previous.sa_flags & libc::SA_SIGINFO != 0 {
            type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);
            std::mem::transmute::<usize, Handler>(previous.sa_sigaction)(signal, info, context);
        } else {
            type Handler = extern "C" fn(i32);
            std::mem::transmute::<usize, Handler>(previous.sa_sigaction)(signal);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
    }
}
