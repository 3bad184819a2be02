// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine process: runs the queues and the kernels of one VM, confined.
//! What it and the hub (`tally-gpu`) say to each other, and what the process
//! does. `device/SPEC.md`, chapter 15; `device/server/DESIGN.md`.
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

/// Windows of VMs begin here: the engine process itself lies below.
pub const VA_START: u64 = 4 << 30;
/// Windows of VMs end here: above are the stacks and the memory of the engine
/// process's threads.
pub const VA_END: u64 = 0x7ff0_0000_0000;
/// The same where addresses are random: mappings begin up to 16 TiB below the
/// top of the address space, as Linux may be set up.
pub const VA_END_RANDOM: u64 = 0x6000_0000_0000;

/// Most files that the guest's memory may consist of.
pub const MAX_FILES: usize = 8;
/// Descriptor of the first of these files in an engine process. It has no other
/// descriptors once it is confined.
pub const FIRST_FILE: u64 = 4;
