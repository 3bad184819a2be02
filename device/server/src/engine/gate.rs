// SPDX-License-Identifier: MIT OR Apache-2.0
//! The gate allows the mappings that the VM's current order asks for, one after
//! the other, and nothing else.
//!
//! The kernel stops a thread of the engine process at mmap and munmap and
//! reports number, thread and arguments, all of them numbers in registers that
//! no other thread can change meanwhile. Only the main thread may make these
//! calls. Since a thread's calls are reported in order, its fence at the end of
//! an order proves that the calls before it are over, whatever the memory of the
//! process contains.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Child;

use super::link::{Link, Loss, Progress, kill, open_process};
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
    // The child has not been reaped, so the id is still its own.
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
    // Its memory is freed when this returns.
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

/// Handles a report. False if the process has to be ended for it.
fn handle(link: &Link, main_thread: u32, reports: &OwnedFd) -> bool {
    let mut report = Report::default();
    // SAFETY: the struct is the one of the request, and zero.
    if unsafe { libc::ioctl(reports.as_raw_fd(), RECEIVE, &raw mut report) } != 0 {
        // The thread was killed, or interrupted, in between.
        let error = io::Error::last_os_error().raw_os_error();
        return matches!(error, Some(libc::ENOENT | libc::EINTR));
    }
    let mut progress = link.progress();
    let Some(fence) = decide(&progress, &report, main_thread) else { return false };
    let flags = if fence { 0 } else { CONTINUE };
    let mut verdict = Verdict { id: report.id, flags, ..Verdict::default() };
    // SAFETY: the struct is the one of the request.
    if unsafe { libc::ioctl(reports.as_raw_fd(), SEND, &raw mut verdict) } == 0 {
        // From here the call is made, or the process is being killed.
        progress.made += 1;
        if fence {
            link.changed.notify_all();
        }
    }
    true
}

/// Whether a call may be made, and if it may, whether it is the order's fence.
fn decide(progress: &Progress, report: &Report, main_thread: u32) -> Option<bool> {
    let call = (i64::from(report.number), report.arguments);
    let expected = progress.allowed.get(progress.made)?;
    let allowed = report.pid == main_thread && matches(call, *expected);
    allowed.then(|| progress.made + 1 == progress.allowed.len())
}

/// Whether a call is the allowed one. For munmap the kernel reads only two
/// arguments; the other registers may contain anything.
fn matches(call: (i64, [u64; 6]), allowed: (i64, [u64; 6])) -> bool {
    let arguments = if allowed.0 == libc::SYS_munmap { 2 } else { 6 };
    call.0 == allowed.0 && call.1[..arguments] == allowed.1[..arguments]
}

#[cfg(test)]
mod tests {
    use tally_engine::mailbox::fence_arguments;

    use super::*;

    #[test]
    fn the_layouts_are_the_kernels() {
        assert_eq!((RECEIVE, SEND), (0xc050_2100, 0xc018_2101));
    }

    #[test]
    fn calls_are_let_through_in_their_order_and_from_the_main_thread() {
        const MAIN: u32 = 77;
        let map = |address| (libc::SYS_mmap, [address, 4096, 3, 0x11, 4, 0]);
        let fence = fence_arguments(5);
        let mut progress = Progress::default();
        let report = |pid, (number, arguments): (i64, [u64; 6])| Report {
            pid,
            number: number as i32,
            arguments,
            ..Report::default()
        };
        assert_eq!(decide(&progress, &report(MAIN, fence), MAIN), None, "there is no order");
        progress.allowed = vec![map(1 << 32), map(2 << 32), fence];
        for (pid, call) in
            [(MAIN + 1, map(1 << 32)), (MAIN, map(2 << 32)), (MAIN, fence), (MAIN, map(3 << 32))]
        {
            assert_eq!(decide(&progress, &report(pid, call), MAIN), None, "{pid} {call:x?}");
        }
        assert_eq!(decide(&progress, &report(MAIN, map(1 << 32)), MAIN), Some(false));
        progress.made = 1;
        assert_eq!(decide(&progress, &report(MAIN, map(1 << 32)), MAIN), None, "once only");
        progress.made = 2;
        assert_eq!(decide(&progress, &report(MAIN, fence_arguments(4)), MAIN), None);
        assert_eq!(decide(&progress, &report(MAIN, fence), MAIN), Some(true));
        progress.made = 3;
        assert_eq!(decide(&progress, &report(MAIN, fence), MAIN), None);
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
