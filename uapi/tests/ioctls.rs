// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The ioctls' numbers and errors are ABI: this states them once more, by hand.

#![cfg(not(loom))]

use tally_uapi::ioctl::*;

/// UAPI.md: "Numbers are DRM_COMMAND_BASE (0x40) + n, type `d`, read and write."
#[test]
fn request_numbers_follow_the_drm_rule() {
    assert_eq!(Query::REQUEST, 0xc018_6440);
    assert_eq!(BoCreate::REQUEST, 0xc010_6441);
    assert_eq!(VmBind::REQUEST, 0xc050_6445);
    assert_eq!(SemWake::REQUEST, 0xc010_644b);
}

#[test]
fn numbers_are_dense_and_named_once() {
    for (index, (number, name, _)) in IOCTLS.iter().enumerate() {
        assert_eq!(index as u32, *number, "{name}");
        assert_eq!(IOCTLS.iter().filter(|other| other.1 == *name).count(), 1);
    }
}

#[test]
fn errnos_are_those_of_linux() {
    for (errno, raw, name) in [
        (Errno::NoEntry, 2, "ENOENT"),
        (Errno::Interrupted, 4, "EINTR"),
        (Errno::Io, 5, "EIO"),
        (Errno::Invalid, 22, "EINVAL"),
        (Errno::NoSpace, 28, "ENOSPC"),
        (Errno::TimedOut, 62, "ETIME"),
    ] {
        assert_eq!((errno as i32, errno.name()), (raw, name));
        assert_eq!(Errno::from_raw(raw), Some(errno));
    }
    assert_eq!(Errno::from_raw(1), None);
}
