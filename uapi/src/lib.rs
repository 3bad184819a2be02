// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The interfaces that Tally's parts share: command packets and queue pages
//! (user-mode driver to device), the entry of compiled kernels (device to
//! execution unit), the ioctls (user-mode driver to kernel module), the
//! registers and the admin ring (kernel module to device), and the host device
//! (a device that is a process of the same machine, to the kernel module).
//!
//! Layouts only, one meaning per field. `device/SPEC.md` explains what the
//! device does with them, `UAPI.md` what the kernel module does.
//!
//! Enumerations have their names and `from_raw` written by hand: the kernel, which builds this source
//! too, has no crate that derives them.
//!
//! Abbreviations: BO, buffer object. VM, GPU virtual address space. VA, an
//! address in it. EU, execution unit. CB, counter-based.

#![cfg_attr(not(any(loom, tally_kernel)), no_std)]

// The kernel has zerocopy's derive macros in a separate crate, and sets
// no_std itself.
#[cfg(tally_kernel)]
#[macro_use]
extern crate zerocopy_derive;

pub mod cell;
pub mod disasm;
pub mod eu;
pub mod fault;
pub mod firmware;
pub mod host;
pub mod image;
pub mod ioctl;
pub mod packet;
pub mod queue;
pub mod regs;
pub mod sync;
pub mod trace;

/// Bytes in a page: the granularity of buffers, bindings and control pages.
pub const PAGE_SIZE: u64 = 4096;
