// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The host device, with which a process provides a GPU to the machine on which it runs.
//!
//! `device/SPEC.md`, chapter "The host device". A process that opens [`PATH`] and calls [`Start`] is one
//! GPU until the file is closed.

use crate::firmware::{Answer, Command, StatusPage, WaitersPage, ANSWERS};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The path of the device.
pub const PATH: &str = "/dev/tally-host";
/// The name of the device in the kernel.
pub const NAME: &str = "tally-host";

/// Number of commands in the admin ring: at least the number that can be pending.
pub const ADMIN_ENTRIES: u32 = ANSWERS;

/// The memory that the process and the driver share: a mapping of the file from offset 0, readable and
/// writable.
///
/// No value of it is ever constructed: both sides access parts of it as atomics.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Area {
    /// The admin ring.
    pub commands: [Command; ADMIN_ENTRIES as usize],
    /// Its answers.
    pub answers: [Answer; ANSWERS as usize],
    /// The causes of the device's interrupts.
    pub status: StatusPage,
    /// The numbers of sleepers on cells.
    pub waiters: WaitersPage,
}

/// An ioctl of the host device.
pub trait Ioctl: FromBytes + IntoBytes + KnownLayout + Immutable + Copy {
    /// Its number.
    const NUMBER: u32;
    /// The request number on Linux: read and write, type 0xb9.
    const REQUEST: u32 = request(3, Self::NUMBER, core::mem::size_of::<Self>());
}

const fn request(direction: u32, number: u32, bytes: usize) -> u32 {
    direction << 30 | (bytes as u32) << 16 | 0xb9 << 8 | number
}

/// Creates a GPU: when this returns, the device is enabled and its render node exists. Once per file.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct Start {
    /// The version, encoded like the register VERSION: major in the upper half, minor in the lower.
    pub version: u32,
    /// Answer: the number of the GPU among those of this kind, by which the kernel names it.
    pub number: u32,
    /// Address of a [`crate::firmware::Identity`].
    pub identity: u64,
    /// CLOCK_MONOTONIC in ns at which the device's clock was 0.
    pub clock_start: u64,
}

impl Ioctl for Start {
    const NUMBER: u32 = 0;
}

/// The file of a VM: a mapping of it at offset VA shows the memory that is bound there.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct VmFile {
    /// The VM's id.
    pub vm: u32,
    /// Answer: a descriptor.
    pub fd: i32,
}

impl Ioctl for VmFile {
    const NUMBER: u32 = 1;
}

/// The request number of the interrupt, an ioctl without an argument: the driver checks the status page
/// and the answers.
pub const INTERRUPT: u32 = request(0, 2, 0);

/// Offset in the file of a VM of the waiters page, to be mapped for reading: one page, below all windows.
pub const WAITERS_OFFSET: u64 = 0;

/// A write of a register, as `read` on the file returns it: ADMIN_TAIL, KICK or WAKE of [`crate::regs`].
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct Write {
    /// The offset of the register.
    pub register: u32,
    /// The value that was written.
    pub value: u32,
}

#[cfg(not(any(loom, shuttle)))]
const _: () = {
    assert!(core::mem::size_of::<Area>() == 10 * 4096);
    assert!(core::mem::offset_of!(Area, answers) == 4 * 4096);
    assert!(core::mem::offset_of!(Area, status) == 8 * 4096);
    assert!(core::mem::offset_of!(Area, waiters) == 9 * 4096);
    assert!(Start::REQUEST == 0xc018_b900);
    assert!(VmFile::REQUEST == 0xc008_b901);
    assert!(INTERRUPT == 0xb902);
    assert!(core::mem::size_of::<Write>() == 8);
};
