// SPDX-License-Identifier: MIT OR Apache-2.0
//! The descriptor in the first bytes of handles.
//!
//! Handles of other drivers begin with a descriptor, and programs rely on that and send it, by SCM_RIGHTS
//! or by pidfd_getfd. Tally needs none. For such programs, all handles of a process begin with a
//! descriptor that can be sent: an empty anonymous file, which lives as long as the process.

use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};

/// The identity of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: libc::dev_t,
    inode: libc::ino_t,
}

fn identity(fd: RawFd) -> Option<Identity> {
    // SAFETY: a structure of integers, for which all zero is a valid value.
    let mut stat = unsafe { std::mem::zeroed::<libc::stat>() };
    // SAFETY: fstat writes no more than the structure; a descriptor that is not open is an error.
    let answer = unsafe { libc::fstat(fd, &raw mut stat) };
    (answer == 0).then_some(Identity { device: stat.st_dev, inode: stat.st_ino })
}

/// The descriptor, or -1 if the system has none. The application may have closed it like one that it
/// owns, and its number may belong to another file by now: then a new descriptor is made.
pub fn descriptor() -> RawFd {
    static FILE: Mutex<Option<(RawFd, Identity)>> = Mutex::new(None);
    let mut file = FILE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((fd, known)) = *file
        && identity(fd) == Some(known)
    {
        return fd;
    }
    // SAFETY: the name is a null-terminated string.
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
