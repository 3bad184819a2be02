// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts the compiler process from within the application's process.
//!
//! The host may call `waitpid(-1)` or handle SIGCHLD, and must not see a child that it did not start. A
//! child cloned without an exit signal is invisible to both, but `execve` resets the exit signal to
//! SIGCHLD. So there are two steps: a *middle* child without exit signal clones the *compiler* and
//! exits at once; the compiler is then reparented to init (or to the nearest subreaper). The middle
//! child never calls `execve` and is reaped here with `__WCLONE`.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, ptr};

/// A running compiler process. Closing the socket ends it.
pub struct Process {
    /// Our end of its standard input.
    pub socket: UnixStream,
    /// Its standard error.
    pub log: Log,
    /// Its process ID; 0 if that is not known.
    pub id: libc::pid_t,
}

/// The process's standard error: a file in memory, so no thread has to drain it.
pub struct Log(File);

impl Log {
    /// The last few kilobytes, for a message about the process's death.
    pub fn tail(&mut self) -> String {
        const LEN: u64 = 4096;
        let mut bytes = Vec::new();
        let end = self.0.seek(SeekFrom::End(0)).unwrap_or(0);
        if self.0.seek(SeekFrom::Start(end.saturating_sub(LEN))).is_ok() {
            // Shows as much as can be read: a log that cannot be read must not hide the process's
            // death.
            let _ = (&mut self.0).take(LEN).read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).trim().to_owned()
    }
}

/// Time limit for `execve` to report.
const START_TIMEOUT: Duration = Duration::from_secs(5);

/// Name of the program.
const PROGRAM: &str = "tally-compiler";

/// Finds the compiler's program: `$TALLY_COMPILER`, else in `dir`, else in `$PATH`. A process that has
/// more rights than its caller (AT_SECURE) starts no program that its caller's environment names.
pub fn find(dir: Option<&Path>) -> Option<PathBuf> {
    let trusted = !has_more_rights();
    find_in(dir, |name| env::var_os(name).filter(|_| trusted))
}

/// Whether this process has more rights than its caller (AT_SECURE). Then the environment is not to be trusted.
pub fn has_more_rights() -> bool {
    // SAFETY: takes a number.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

fn find_in(dir: Option<&Path>, variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    if let Some(path) = variable("TALLY_COMPILER").filter(|path| !path.is_empty()) {
        return Some(path.into());
    }
    let path = variable("PATH").unwrap_or_default();
    let dirs = dir.map(Path::to_owned).into_iter().chain(env::split_paths(&path));
    dirs.map(|dir| dir.join(PROGRAM)).find(|program| program.is_file())
}

/// Everything the children need, made before the clone: between clone and `execve` nothing may
/// allocate or lock, because other threads of the host may hold any lock.
struct Plan {
    program: CString,
    argv: [*const libc::c_char; 2],
    envp: Vec<*const libc::c_char>,
    socket: RawFd,
    null: RawFd,
    log: RawFd,
    error: RawFd,
}

/// Starts `program`.
///
/// # Errors
/// The system call's error; that of `execve` included.
pub fn spawn(program: &Path) -> io::Result<Process> {
    let nul = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let program = CString::new(program.as_os_str().as_bytes()).map_err(nul)?;
    let environ: Vec<CString> = env::vars_os()
        .filter_map(|(name, value)| {
            CString::new([name.as_os_str(), OsStr::new("="), &value].map(OsStr::as_bytes).concat())
                .ok()
        })
        .collect();
    let (socket, theirs) = UnixStream::pair()?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    let log = memfd()?;
    let (mut error, error_writer) = UnixStream::pair()?;
    error.set_read_timeout(Some(START_TIMEOUT))?;
    let envp = environ.iter().map(|var| var.as_ptr()).chain([ptr::null()]).collect();
    let plan = Plan {
        argv: [program.as_ptr(), ptr::null()],
        program,
        envp,
        socket: theirs.as_raw_fd(),
        null: null.as_raw_fd(),
        log: log.as_raw_fd(),
        error: error_writer.as_raw_fd(),
    };
    // SAFETY: as fork(2), with no exit signal. The child runs `middle`, which keeps to
    // async-signal-safe system calls on memory that `plan` holds, and never returns.
    let pid = unsafe { clone(0) };
    if pid == 0 {
        // SAFETY: this is the cloned child; `plan` holds valid pointers and descriptors.
        unsafe { middle(&plan) }
    }
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    drop((theirs, error_writer));
    reap(pid as libc::pid_t);
    let (mut id, mut word) = (0, [0; 4]);
    // The normal end of this loop is that `execve` has closed the last copy of the pipe. A timeout
    // means that another thread of the host has forked meanwhile and its child holds a copy; the socket
    // then shows whether the compiler runs.
    while error.read_exact(&mut word).is_ok() {
        match i32::from_ne_bytes(word) {
            told if told < 0 => id = -told,
            errno => return Err(io::Error::from_raw_os_error(errno)),
        }
    }
    Ok(Process { socket, log: Log(log), id })
}

/// A file in memory, appended to, closed on exec.
fn memfd() -> io::Result<File> {
    // SAFETY: the name is a NUL-terminated literal.
    let fd = unsafe { libc::memfd_create(c"tally-compiler-log".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` is new and has no other owner.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    // SAFETY: plain fcntl on a descriptor that we own.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, libc::O_APPEND) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(file)
}

/// `clone` without sharing anything: fork with a chosen exit signal.
///
/// # Safety
/// The rules of fork in a program with threads hold: the child may only make async-signal-safe calls.
unsafe fn clone(exit_signal: libc::c_int) -> libc::c_long {
    let none = ptr::null::<u8>();
    // SAFETY: with a null stack and no CLONE_VM the child continues on a copy of this stack; the order
    // of the later arguments differs between architectures, but all are null.
    unsafe {
        libc::syscall(libc::SYS_clone, libc::c_long::from(exit_signal), none, none, none, none)
    }
}

/// Ends a child.
fn exit(status: libc::c_int) -> ! {
    loop {
        // SAFETY: ends this process, which is a child of ours.
        unsafe { libc::syscall(libc::SYS_exit_group, libc::c_long::from(status)) };
    }
}

/// The middle child: clones the compiler and exits.
///
/// It and the compiler's child make raw system calls: a sanitizer in the host may have hooked the C
/// library's functions, and its locks may never be released in the child.
///
/// # Safety
/// To be called in a freshly cloned child only; async-signal-safe calls only.
unsafe fn middle(plan: &Plan) -> ! {
    // SAFETY: still a single thread that makes only async-signal-safe calls.
    unsafe {
        let pid = clone(libc::SIGCHLD);
        if pid == 0 {
            execute(plan);
        }
        if pid < 0 {
            report(plan, *libc::__errno_location());
        } else {
            report(plan, -(pid as libc::c_int));
        }
    }
    exit(0)
}

/// The compiler's side of the clone: descriptors, signals, `execve`.
///
/// # Safety
/// The rules of [`middle`] hold.
unsafe fn execute(plan: &Plan) -> ! {
    let [socket, null, log] = [plan.socket, plan.null, plan.log].map(libc::c_long::from);
    let duplicate = libc::c_long::from(libc::F_DUPFD);
    let (no_signals, none) = (0_u64, ptr::null::<u64>());
    // SAFETY: all pointers come from `plan` or this frame, which outlive the calls; the kernel's signal set
    // has the size of a u64.
    unsafe {
        // The process leaves the terminal's foreground process group: Ctrl-C is for the host to handle.
        libc::syscall(libc::SYS_setpgid, 0_i64, 0_i64);
        let set = libc::c_long::from(libc::SIG_SETMASK);
        libc::syscall(libc::SYS_rt_sigprocmask, set, &raw const no_signals, none, size_of::<u64>());
        // The host may have closed its descriptors 0 to 2, and ours may have these numbers: move them
        // up first.
        let fds =
            [socket, null, log].map(|fd| libc::syscall(libc::SYS_fcntl, fd, duplicate, 3_i64));
        let placed = fds
            .into_iter()
            .zip(0_i64..)
            .all(|(fd, to)| fd >= 0 && libc::syscall(libc::SYS_dup3, fd, to, 0_i64) == to);
        let last = libc::c_uint::MAX;
        // `execve` closes them, and nothing before it does, because the error pipe is one of them.
        let flag = libc::CLOSE_RANGE_CLOEXEC;
        if placed && libc::syscall(libc::SYS_close_range, 3, last, flag) == 0 {
            let (argv, envp) = (plan.argv.as_ptr(), plan.envp.as_ptr());
            libc::syscall(libc::SYS_execve, plan.program.as_ptr(), argv, envp);
        }
        report(plan, *libc::__errno_location());
    }
    exit(127)
}

/// Reports an errno to the host, or the compiler's process ID as a negative number.
///
/// # Safety
/// The rules of [`middle`] hold.
unsafe fn report(plan: &Plan, word: libc::c_int) {
    let fd = libc::c_long::from(plan.error);
    // SAFETY: four bytes are written from the stack.
    unsafe { libc::syscall(libc::SYS_write, fd, ptr::from_ref(&word), size_of_val(&word)) };
}

/// Waits for the middle child, which is about to exit.
fn reap(pid: libc::pid_t) {
    let mut status = 0;
    // SAFETY: `status` is a valid place; `pid` is our child and invisible to waits without
    // __WCLONE, so no other code has reaped it and its number is not reused.
    while unsafe { libc::waitpid(pid, &mut status, libc::__WCLONE) } < 0
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If the environment does not count, as in a process with more rights than its caller, only the
    /// driver's folder is searched.
    #[test]
    fn the_environment_comes_first_if_it_counts() {
        let named = |name: &str| (name == "TALLY_COMPILER").then(|| OsString::from("/a/b"));
        assert_eq!(find_in(None, named), Some(PathBuf::from("/a/b")));
        assert_eq!(find_in(Some(Path::new("/nonexistent")), |_| None), None);
        let folder = std::env::temp_dir().join(format!("tally-find-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(PROGRAM), "").unwrap();
        let path = |name: &str| (name == "PATH").then(|| folder.clone().into_os_string());
        assert_eq!(find_in(None, path), Some(folder.join(PROGRAM)));
        assert_eq!(find_in(None, |_| None), None);
        assert_eq!(find_in(Some(&folder), |_| None), Some(folder.join(PROGRAM)));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
