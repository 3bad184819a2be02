// SPDX-License-Identifier: MIT OR Apache-2.0
//! The system call filter of an engine process, as two seccomp programs.
//!
//! The first reports mmap and munmap to the hub, which allows a call or ends the
//! process. The second allows the calls that the threads need for waiting and for
//! being interrupted, and kills the process for any other. The kernel takes the
//! stricter of the two verdicts. There are two so that between their installation
//! the process can still send the hub the descriptor by which the first reports.
//!
//! The crate seccompiler is not used, since it has no verdict for reports.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use libc::sock_filter;

/// The offsets of the fields of `seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const fn argument(index: u32) -> u32 {
    // The lower half: all arguments that the programs check are 32-bit in the kernel.
    16 + index * 8
}

const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
/// Numbers from here on belong to the x32 ABI.
const X32: u32 = 0x4000_0000;

/// The calls that a thread may make without approval: waiting, reading the clock,
/// returning from a signal, continuing after a stop, ending the process.
const ALLOWED: &[libc::c_long] = &[
    libc::SYS_sched_yield,
    libc::SYS_clock_gettime,
    libc::SYS_rt_sigreturn,
    libc::SYS_restart_syscall,
    libc::SYS_getpid,
    libc::SYS_exit_group,
];

/// The signal by which the device library aborts a kernel in its own threads.
const ABORT_SIGNAL: u32 = libc::SIGSTKFLT as u32;

/// A seccomp program under construction.
struct Program(Vec<sock_filter>);

impl Program {
    /// A program that begins with the check that all have: only calls of this architecture.
    fn new() -> Self {
        let mut program = Self(Vec::new());
        program.load(ARCHITECTURE);
        program.unless_equal(AUDIT_ARCH_X86_64, 1);
        program.verdict(libc::SECCOMP_RET_KILL_PROCESS);
        program.load(NUMBER);
        program.put(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, X32, 0, 1);
        program.verdict(libc::SECCOMP_RET_KILL_PROCESS);
        program
    }

    fn put(&mut self, code: u32, k: u32, jt: u8, jf: u8) {
        self.0.push(sock_filter { code: code as u16, jt, jf, k });
    }

    fn load(&mut self, offset: u32) {
        self.put(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset, 0, 0);
    }

    fn verdict(&mut self, verdict: u32) {
        self.put(libc::BPF_RET | libc::BPF_K, verdict, 0, 0);
    }

    /// Skips `count` instructions if the value is `k`.
    fn unless_equal(&mut self, k: u32, count: u8) {
        self.put(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, k, count, 0);
    }

    /// Skips `count` instructions unless the value is `k`.
    fn if_equal(&mut self, k: u32, count: u8) {
        self.put(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, k, 0, count);
    }

    fn verdict_for(&mut self, number: libc::c_long, verdict: u32) {
        self.if_equal(number as u32, 1);
        self.verdict(verdict);
    }

    /// Installs it for the calling thread.
    fn install(&self, flags: libc::c_ulong) -> io::Result<libc::c_long> {
        let program =
            libc::sock_fprog { len: self.0.len() as u16, filter: self.0.as_ptr().cast_mut() };
        let mode = libc::SECCOMP_SET_MODE_FILTER;
        // SAFETY: the kernel copies the program, which is valid for the call.
        let result = unsafe { libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
    }
}

/// Reports mmap and munmap of the calling thread to the holder of the returned
/// descriptor. no_new_privs must be set.
///
/// A signal cannot undo a report that was received. Otherwise a thread could have
/// a call approved, interrupt it, and never make it.
///
/// # Errors
/// The kernel has no such filters (Linux has them since 5.19), or does not allow
/// them here.
pub fn report_mappings() -> io::Result<OwnedFd> {
    let mut program = Program::new();
    program.verdict_for(libc::SYS_mmap, libc::SECCOMP_RET_USER_NOTIF);
    program.verdict_for(libc::SYS_munmap, libc::SECCOMP_RET_USER_NOTIF);
    program.verdict(libc::SECCOMP_RET_ALLOW);
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    let fd = program.install(flags | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV)?;
    // SAFETY: the kernel has just made the descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Makes the kernel refuse system calls of the calling thread, and of all threads and processes that it starts,
/// with EPERM. no_new_privs must be set. Calls of other ABIs end the process.
///
/// # Errors
/// The kernel does not allow filters here.
pub fn refuse(numbers: &[libc::c_long]) -> io::Result<()> {
    let mut program = Program::new();
    for &number in numbers {
        program.verdict_for(number, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32);
    }
    program.verdict(libc::SECCOMP_RET_ALLOW);
    program.install(0).map(|_| ())
}

/// Installs both filters on all threads of the process.
///
/// # Errors
/// Those of [`report_mappings`], or a thread has a filter of its own.
pub fn confine_all_threads() -> io::Result<()> {
    let mut program = Program::new();
    for &number in ALLOWED.iter().chain(&[libc::SYS_mmap, libc::SYS_munmap]) {
        program.verdict_for(number, libc::SECCOMP_RET_ALLOW);
    }
    // futex: only waiting and waking. Each check is skipped for other calls.
    const MODIFIERS: u32 = (libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME) as u32;
    program.if_equal(libc::SYS_futex as u32, 7);
    program.load(argument(1));
    program.put(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, !MODIFIERS, 0, 0);
    program.unless_equal(libc::FUTEX_WAIT as u32, 3);
    program.unless_equal(libc::FUTEX_WAKE as u32, 2);
    program.unless_equal(libc::FUTEX_WAIT_BITSET as u32, 1);
    program.verdict(libc::SECCOMP_RET_KILL_PROCESS);
    program.verdict(libc::SECCOMP_RET_ALLOW);
    // tgkill: the abort signal to a thread of this process, but not to the main
    // thread, whose number is the process's.
    let process = std::process::id();
    program.if_equal(libc::SYS_tgkill as u32, 7);
    program.load(argument(0));
    program.if_equal(process, 5);
    program.load(argument(1));
    program.unless_equal(process, 3);
    program.load(argument(2));
    program.if_equal(ABORT_SIGNAL, 1);
    program.verdict(libc::SECCOMP_RET_ALLOW);
    program.verdict(libc::SECCOMP_RET_KILL_PROCESS);
    match program.install(libc::SECCOMP_FILTER_FLAG_TSYNC)? {
        0 => Ok(()),
        thread => Err(io::Error::other(format!("thread {thread} has a filter of its own"))),
    }
}
