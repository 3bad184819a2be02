// SPDX-License-Identifier: MIT OR Apache-2.0
//! The gate: lets through the mappings that the VM's current order asks for,
//! one after the other, and nothing else.
//!
//! The kernel stops a thread of the engine process at mmap and munmap and
//! reports number, thread and arguments, all of them numbers in registers that
//! nobody can change meanwhile. Only the main thread has any business there.
//! Since a thread's calls are reported in their order, its fence at the end of
//! an order proves that the calls before it are over, whatever the memory of the
//! process says.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Child;

use super::{Link, Loss, kill, open_process};
use crate::links::Links;

/// `struct seccomp_notif`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Report {
    id: u64,
    /// The thread.
    pid: u32,
    flags: u32,
    number: i32,
    architecture: u32,
    instruction: u64,
    arguments: [u64; 6],
}

/// `struct seccomp_notif_resp`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Verdict {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

const fn request(number: u64, bytes: usize) -> u64 {
    3 << 30 | (bytes as u64) << 16 | (b'!' as u64) << 8 | number
}
const RECEIVE: u64 = request(0, size_of::<Report>());
const SEND: u64 = request(1, size_of::<Verdict>());
/// The call is carried out as if there were no filter.
const CONTINUE: u32 = 1;

/// Watches an engine process until it has ended, and reaps it.
pub(super) fn watch(link: &Link, mut child: Child, reports: &OwnedFd, links: &Links) {
    // It has not been reaped, so the id is its own.
    let process = open_process(child.id());
    match &process {
        Ok(process) => {
            while let Ok(true) = next(reports, process) {
                if !handle(link, child.id(), reports) {
                    break;
                }
            }
            kill(process);
        }
        Err(_) => drop(child.kill()),
    }
    // Its memory is gone when this returns.
    let _ = child.wait();
    let lost = link.lose(Loss::engine());
    link.progress().ended = true;
    link.changed.notify_all();
    link.deaf.store(true, std::sync::atomic::Ordering::SeqCst);
    link.mailbox.to_hub.bell.insist();
    if lost {
        links.status.lost(link.vm);
    }
}

/// Waits for a report. False if the process has ended.
fn next(reports: &OwnedFd, process: &OwnedFd) -> io::Result<bool> {
    let entry =
        |fd: &OwnedFd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut fds = [entry(reports), entry(process)];
    loop {
        // SAFETY: two valid entries.
        if unsafe { libc::poll(fds.as_mut_ptr(), 2, -1) } >= 0 {
            return Ok(fds[1].revents == 0 && fds[0].revents & libc::POLLIN != 0);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Takes a report. False if the process is to be ended for it.
fn handle(link: &Link, main_thread: u32, reports: &OwnedFd) -> bool {
    let mut report = Report::default();
    // SAFETY: the struct is the one that the request asks for, and zero.
    if unsafe { libc::ioctl(reports.as_raw_fd(), RECEIVE, &raw mut report) } != 0 {
        // The thread was killed, or interrupted, in between.
        let error = io::Error::last_os_error().raw_os_error();
        return matches!(error, Some(libc::ENOENT | libc::EINTR));
    }
    let call = (i64::from(report.number), report.arguments);
    let mut progress = link.progress();
    let expected = progress.allowed.get(progress.made).copied();
    if report.pid != main_thread || expected.is_none_or(|expected| !matches(call, expected)) {
        return false;
    }
    progress.made += 1;
    let fence = progress.made == progress.allowed.len();
    let flags = if fence { 0 } else { CONTINUE };
    let mut verdict = Verdict { id: report.id, flags, ..Verdict::default() };
    // SAFETY: the struct is the one that the request asks for. If the thread is
    // gone there is nobody to answer.
    unsafe { libc::ioctl(reports.as_raw_fd(), SEND, &raw mut verdict) };
    if fence {
        link.changed.notify_all();
    }
    true
}

/// Whether a call is the one that is allowed: of munmap the kernel reads two
/// arguments only, the others are whatever the registers hold.
fn matches(call: (i64, [u64; 6]), allowed: (i64, [u64; 6])) -> bool {
    let arguments = if allowed.0 == libc::SYS_munmap { 2 } else { 6 };
    call.0 == allowed.0 && call.1[..arguments] == allowed.1[..arguments]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layouts_are_the_kernels() {
        assert_eq!((RECEIVE, SEND), (0xc050_2100, 0xc018_2101));
    }

    #[test]
    fn only_the_very_call_matches() {
        let map = (libc::SYS_mmap, [1 << 32, 4096, 3, 0x11, 4, 0]);
        assert!(matches(map, map));
        for i in 0..6 {
            let mut other = map;
            other.1[i] ^= 4096;
            assert!(!matches(other, map), "argument {i}");
        }
        assert!(!matches((libc::SYS_munmap, map.1), map));
        assert!(matches(
            (libc::SYS_munmap, [1, 2, 9, 9, 9, 9]),
            (libc::SYS_munmap, [1, 2, 0, 0, 0, 0])
        ));
    }
}
