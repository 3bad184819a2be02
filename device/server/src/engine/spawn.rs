// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts engine processes.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use tally_engine::{VA_END, VA_END_RANDOM};
use vmm_sys_util::sock_ctrl_msg::ScmSocket;

use crate::patience::Patience;

/// The program of the engine process.
static PROGRAM: &[u8] = include_bytes!(env!("TALLY_ENGINE"));

/// The program as a file that cannot be changed.
fn program() -> io::Result<RawFd> {
    static FILE: OnceLock<OwnedFd> = OnceLock::new();
    if let Some(file) = FILE.get() {
        return Ok(file.as_raw_fd());
    }
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: a valid name; the result is checked and has no other owner.
    let mut file = unsafe {
        // Newer kernels want a flag for files that may be executed; older ones do
        // not know it.
        let mut fd = libc::memfd_create(c"tally-engine".as_ptr(), flags | libc::MFD_EXEC);
        if fd < 0 {
            fd = libc::memfd_create(c"tally-engine".as_ptr(), flags);
        }
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        File::from_raw_fd(fd)
    };
    file.write_all(PROGRAM)?;
    let seals = libc::F_SEAL_WRITE | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: takes numbers.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(FILE.get_or_init(|| file.into()).as_raw_fd())
}

/// The standard output of engine processes.
fn nowhere() -> io::Result<&'static File> {
    static FILE: OnceLock<File> = OnceLock::new();
    if let Some(file) = FILE.get() {
        return Ok(file);
    }
    let file = File::options().write(true).open("/dev/null")?;
    Ok(FILE.get_or_init(|| file))
}

/// Opens all files that starting an engine process needs, since the right to open files is given up later.
///
/// # Errors
/// They cannot be opened.
pub fn open_files() -> io::Result<()> {
    program()?;
    nowhere()?;
    Ok(())
}

/// Makes the calling thread, and the threads that it starts, start programs at
/// addresses that are not random. Returns the end of VMs' windows, which is lower
/// if this is forbidden, as in some containers.
pub fn fix_addresses() -> u64 {
    // SAFETY: takes a number.
    let fixed = unsafe { libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) } >= 0;
    if fixed { VA_END } else { VA_END_RANDOM }
}

/// Starts an engine process and passes it `fds`. Returns a descriptor of the process, the process as a child,
/// and the descriptor by which its mappings are reported. The process ends with the calling thread, and before it has
/// started when `over` becomes true.
pub(super) fn start(
    fds: &[RawFd],
    time: Duration,
    over: impl Fn() -> bool,
) -> io::Result<(OwnedFd, Child, OwnedFd)> {
    let program = program()?;
    let (ours, theirs) = UnixStream::pair()?;
    let mut command = Command::new(format!("/proc/self/fd/{program}"));
    command
        .arg0("tally-engine")
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::from(nowhere()?.try_clone()?));
    let parent = std::process::id();
    // SAFETY: `prepare` makes system calls only.
    unsafe { command.pre_exec(move || prepare(parent)) };
    let mut child = command.spawn()?;
    // The command owns the other end of the socket, which must close with the child's copy.
    drop(command);
    match meet(&ours, &child, fds, time, over) {
        Ok((process, reports)) => Ok((process, child, reports)),
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(error)
        }
    }
}

/// Prepares the child, before its program: a stack of a fixed size (otherwise
/// mappings would begin in the middle of the VM's window), and an end with the
/// parent.
fn prepare(parent: u32) -> io::Result<()> {
    const STACK: libc::rlim_t = 8 << 20;
    let mut stack = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: system calls with numbers and a valid struct.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_STACK, &mut stack) != 0 {
            return Err(io::Error::last_os_error());
        }
        stack.rlim_cur = STACK.min(stack.rlim_max);
        stack.rlim_max = stack.rlim_cur;
        if libc::setrlimit(libc::RLIMIT_STACK, &stack) != 0
            || libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong) != 0
        {
            return Err(io::Error::last_os_error());
        }
        if libc::getppid() as u32 != parent {
            return Err(ErrorKind::BrokenPipe.into());
        }
    }
    Ok(())
}

/// Passes the descriptors to the process, and receives the descriptor of the
/// filter's reports once the process has everything that it needs.
fn meet(
    socket: &UnixStream,
    child: &Child,
    fds: &[RawFd],
    time: Duration,
    over: impl Fn() -> bool,
) -> io::Result<(OwnedFd, OwnedFd)> {
    let process = super::link::open_process(child.id())?;
    socket.send_with_fds(&[&b"m"[..]], fds).map_err(io::Error::from)?;
    let (mut byte, mut patience) = ([0u8; 1], Patience::new(time));
    let (bytes, reports) = loop {
        let step = patience.step();
        if step.is_zero() || over() {
            return Err(ErrorKind::TimedOut.into());
        }
        socket.set_read_timeout(Some(step))?;
        match socket.recv_with_fd(&mut byte).map_err(io::Error::from) {
            // signal(7): a call with a time limit is also interrupted when the process is stopped and goes on, or
            // when the machine wakes.
            Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            other => break other?,
        }
    };
    match reports {
        Some(reports) if bytes == 1 => Ok((process, reports.into())),
        _ => Err(io::Error::other("the engine process has not started")),
    }
}
