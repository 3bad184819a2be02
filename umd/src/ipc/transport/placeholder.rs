// SPDX-License-Identifier: MIT OR Apache-2.0
//! A descriptor for the first bytes of handles.
//!
//! Handles of other drivers begin with a descriptor, and programs have learnt to send it: by SCM_RIGHTS,
//! or by pidfd_getfd. Tally needs none. So that such programs work, all handles of a process begin with
//! one that can be sent: an empty file without a name, which lives as long as the process.

use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};

/// A file as the system tells it from others.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: libc::dev_t,
    inode: libc::ino_t,
}

fn identity(fd: RawFd) -> Option<Identity> {
    // SAFETY: a structure of integers, for which zeroes are good.
    let mut stat = unsafe { std::mem::zeroed::<libc::stat>() };
    // SAFETY: it writes no more than the structure; a descriptor that is not open is an error.
    let answer = unsafe { libc::fstat(fd, &raw mut stat) };
    (answer == 0).then_some(Identity { device: stat.st_dev, inode: stat.st_ino })
}

/// The descriptor; -1 if the system has none. The application may have closed it as one that it was
/// given, and its number may be another file's by now: then there is a new one.
pub fn descriptor() -> RawFd {
    static FILE: Mutex<Option<(RawFd, Identity)>> = Mutex::new(None);
    let mut file = FILE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((fd, known)) = *file
        && identity(fd) == Some(known)
    {
        return fd;
    }
    // SAFETY: the name is a terminated string.
    let fd = unsafe { libc::memfd_create(c"tally-ipc".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return -1;
    }
    // SAFETY: a new descriptor that nothing else owns.
    let owned = unsafe { OwnedFd::from_raw_fd(fd) };
    match identity(fd) {
        Some(it) => {
            // The application may close it at any time, so the driver never does.
            *file = Some((owned.into_raw_fd(), it));
            fd
        }
        None => -1,
    }
}
