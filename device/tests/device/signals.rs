// SPDX-License-Identifier: MIT OR Apache-2.0
//! The device in an application's process: its signal handlers claim only signals of
//! its own threads. Each case runs in a child, because it changes or ends the process.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::*;

const CASE: &str = "TALLY_TEST_SIGNAL_CASE";

fn run(case: &str) -> ExitStatus {
    let program = std::env::current_exe().unwrap();
    Command::new(program)
        .args(["--exact", "signals::child", "--nocapture", "--test-threads=1"])
        .env(CASE, case)
        .output()
        .unwrap()
        .status
}

/// The code that the children of the other tests run; not a test of its own.
#[test]
fn child() {
    match std::env::var(CASE).as_deref() {
        Ok("handler") => with_handler(),
        Ok("default fault") => default_fault(),
        Ok("default sent") => default_sent(),
        Ok("ignored") => ignored(),
        Ok("abort elsewhere") => abort_elsewhere(),
        Ok("fork") => forked(),
        _ => {}
    }
}

/// A device whose kernel has made a page fault, which the device has claimed.
fn gpu_after_a_fault() -> Gpu {
    let gpu = Gpu::new();
    let nowhere = Memory::new(4096);
    nowhere.protect(libc::PROT_NONE);
    gpu.queue().push(nop(0, Some((nowhere.va(), 1))));
    assert_eq!(gpu.fault().address, nowhere.va());
    gpu
}

static EXPECTED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn handler(signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: a valid siginfo comes with the signal; _exit is safe in handlers.
    unsafe {
        let address = (*info).si_addr().addr();
        let mut mask: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut mask);
        let masked = libc::sigismember(&mask, libc::SIGUSR1) == 1;
        let right = signal == libc::SIGSEGV && address == EXPECTED.load(Ordering::Relaxed);
        libc::_exit(if right && masked { 42 } else { 43 });
    }
}

fn with_handler() {
    // SAFETY: the structure is valid; the handler is of the three-argument kind.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaddset(&mut action.sa_mask, libc::SIGUSR1);
        libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut());
    }
    let _gpu = gpu_after_a_fault();
    stray_write();
}

fn stray_write() {
    let nowhere = Memory::new(4096);
    nowhere.protect(libc::PROT_NONE);
    EXPECTED.store(nowhere.va() as usize, Ordering::Relaxed);
    nowhere.cell(0).store(1, Ordering::Relaxed);
}

fn default_fault() {
    let _gpu = gpu_after_a_fault();
    stray_write();
}

fn default_sent() {
    let _gpu = gpu_after_a_fault();
    // SAFETY: sends a signal to this thread.
    unsafe { libc::raise(libc::SIGFPE) };
}

fn ignored() {
    // SAFETY: ignoring is a valid action; then a signal to this thread.
    unsafe {
        libc::signal(libc::SIGFPE, libc::SIG_IGN);
        let _gpu = gpu_after_a_fault();
        libc::raise(libc::SIGFPE);
        libc::_exit(42);
    }
}

fn abort_elsewhere() {
    let gpu = Gpu::new();
    let cells = Memory::new(4096);
    let kernarg = Kernarg::new(&[cells.cell_va(1)]);
    let mut queue = gpu.queue();
    queue.push(dispatch(0, endless, &kernarg, 1, None));
    eventually("the kernel", || cells.load(1) != 0);
    gpu.device.destroy_queue(&queue.handle);
    // SAFETY: a late abort that reaches a thread which is not the device's.
    unsafe {
        libc::raise(libc::SIGSTKFLT);
        libc::_exit(42);
    }
}

fn forked() {
    let gpu = gpu_after_a_fault();
    // SAFETY: the child only drops the device and ends.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            drop(gpu);
            libc::_exit(42);
        }
        let mut status = 0;
        libc::waitpid(child, &mut status, 0);
        libc::_exit(libc::WEXITSTATUS(status));
    }
}

#[test]
fn a_handler_that_was_there_gets_the_programs_own_faults() {
    assert_eq!(run("handler").code(), Some(42));
}

#[test]
fn a_fault_without_a_handler_ends_the_program_by_its_signal() {
    assert_eq!(run("default fault").signal(), Some(libc::SIGSEGV));
}

#[test]
fn a_signal_that_was_sent_ends_the_program_as_before() {
    assert_eq!(run("default sent").signal(), Some(libc::SIGFPE));
}

#[test]
fn an_ignored_signal_is_still_ignored() {
    assert_eq!(run("ignored").code(), Some(42));
}

#[test]
fn an_abort_that_comes_too_late_harms_nobody() {
    assert_eq!(run("abort elsewhere").code(), Some(42));
}

#[test]
fn a_forked_child_can_drop_the_device() {
    assert_eq!(run("fork").code(), Some(42));
}
