// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine process, which runs the queues and the kernels of one VM,
//! confined, and its protocol with the hub (`tally-gpu`). See `device/SPEC.md`,
//! chapter 15, and `device/server/DESIGN.md`.
#![cfg(not(loom))]

pub mod arena;
mod commands;
mod confine;
mod doorbell;
pub mod filter;
mod futex;
pub mod mailbox;
pub mod process;
mod sync;

/// The lowest address of VMs' windows. The engine process itself is below.
pub const VA_START: u64 = 4 << 30;
/// The end of VMs' windows. Above are the stacks and the memory of the engine
/// process's threads.
pub const VA_END: u64 = 0x7ff0_0000_0000;
/// The same if addresses are random: depending on Linux's configuration,
/// mappings begin up to 16 TiB below the top of the address space.
pub const VA_END_RANDOM: u64 = 0x6000_0000_0000;

/// The most files that the guest's memory may consist of.
pub const MAX_FILES: usize = 8;
/// Descriptor of the first of these files in an engine process. It has no other
/// descriptors once it is confined.
pub const FIRST_FILE: u64 = 4;
