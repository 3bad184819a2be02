// SPDX-License-Identifier: MIT OR Apache-2.0
//! Confines the process before it reads a client's module.
//!
//! LLVM is large, and modules come from untrusted clients. A build needs only memory, threads and the
//! two descriptors that are open. So every other system call fails with EPERM: the process cannot open,
//! create or remove files, create sockets, start programs or reach other processes. A refused call does
//! not end the process: the caller has to handle the error, as on a machine that lacks the feature.
//! Landlock would add nothing to that.

use std::io;

use libc::sock_filter;

/// The system calls that threads of the process may make.
const ALLOWED: &[libc::c_long] = &[
    // The stream, and standard error.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_shutdown,
    libc::SYS_poll,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_dup,
    libc::SYS_close,
    // Memory.
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    // Threads.
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_prctl,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // Signals.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    // Time and random numbers.
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_getrusage,
    libc::SYS_getrandom,
];

/// The offsets of the fields of `seccomp_data` that the filter reads.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;

const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;

/// Confines this thread and those that it starts.
///
/// # Errors
/// The kernel refuses seccomp filters.
pub(super) fn confine() -> io::Result<()> {
    let program = program();
    let filter =
        libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    // SAFETY: the arguments are numbers, and a program that the kernel copies during the call.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const filter)
                == 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn program() -> Vec<sock_filter> {
    let put = |code: u32, k: u32, jt: u8, jf: u8| sock_filter { code: code as u16, jt, jf, k };
    let load = |offset| put(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset, 0, 0);
    let verdict = |verdict| put(libc::BPF_RET | libc::BPF_K, verdict, 0, 0);
    // Skips one instruction unless the value is `k`.
    let if_equal = |k| put(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, k, 0, 1);
    let errno = |errno: i32| verdict(libc::SECCOMP_RET_ERRNO | errno as u32);
    let mut program = vec![
        load(ARCHITECTURE),
        put(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, AUDIT_ARCH_X86_64, 1, 0),
        verdict(libc::SECCOMP_RET_KILL_PROCESS),
        load(NUMBER),
    ];
    for &number in ALLOWED {
        program.extend([if_equal(number as u32), verdict(libc::SECCOMP_RET_ALLOW)]);
    }
    // A filter cannot see what clone3's first argument points to. The C library falls back to clone.
    program.extend([if_equal(libc::SYS_clone3 as u32), errno(libc::ENOSYS)]);
    // Limits and signals, but only the process's own.
    for (number, whose) in [(libc::SYS_prlimit64, 0), (libc::SYS_tgkill, std::process::id())] {
        program.extend([
            put(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, number as u32, 0, 4),
            load(FIRST_ARGUMENT),
            if_equal(whose),
            verdict(libc::SECCOMP_RET_ALLOW),
            errno(libc::EPERM),
        ]);
    }
    // clone may make threads, but no processes.
    program.extend([
        put(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::SYS_clone as u32, 0, 3),
        load(FIRST_ARGUMENT),
        put(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, libc::CLONE_THREAD as u32, 0, 1),
        verdict(libc::SECCOMP_RET_ALLOW),
        errno(libc::EPERM),
    ]);
    program
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::net::UnixStream;
    use std::process::Command;
    use std::thread;

    use super::*;

    /// A confined thread cannot open, create or remove files, create sockets or start programs;
    /// threads, memory and open descriptors still work.
    #[test]
    fn what_is_open_is_all_there_is() {
        let folder = std::env::temp_dir();
        let kept = folder.join(format!("tally-confine-compiler-{}", std::process::id()));
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        File::create(&kept).unwrap();
        let path = kept.clone();
        // Only this thread and those that it starts are confined.
        let errors = thread::spawn(move || {
            confine().unwrap();
            let inner = thread::spawn(move || {
                let room = vec![1_u8; 8 << 20];
                io::Write::write_all(&mut ours, &room[..1]).unwrap();
                [
                    File::open(&path).err(),
                    File::create(path.with_extension("new")).err(),
                    std::fs::remove_file(&path).err(),
                    UnixStream::pair().err(),
                    Command::new("/bin/true").spawn().err(),
                ]
            });
            inner.join().unwrap()
        });
        let errors = errors.join().unwrap();
        io::Read::read_exact(&mut theirs, &mut [0]).unwrap();
        for error in errors {
            assert_eq!(error.unwrap().kind(), io::ErrorKind::PermissionDenied);
        }
        std::fs::remove_file(&kept).unwrap();
    }
}
