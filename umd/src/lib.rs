// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tally's Level Zero driver: `libze_tally.so`.
//!
//! ```text
//!  loader ─► ddi ─► api ─► core ─► lists, events ─► submission ─► backend (trait) ─► uapi
//!            │      │      │                                      └ drm, embedded
//!            │      │      └ the objects behind Level Zero's handles
//! ```
//!
//! Imports point to the right. Outside this flow: [`audit`], which answers the dynamic linker; [`hang`],
//! which looks at lists and events; [`checks`], which finds mistakes of the program's; [`record`], which keeps the device's work in a file, a [`recording`]; [`debugger`], [`host_waits`], [`handle`], [`error`], [`process`], [`settings`], [`log`], [`trace`] for all modules; [`space`],
//! [`vm`] for everything that owns memory; [`ipc`] for what is shared with other processes.
//!
//! Words: USM, unified shared memory, what zeMemAlloc* gives. VA reservation, the addresses
//! that the driver reserves for buffers. BO, buffer object. VM, the GPU's address space. VA, an address in it.
//! CB, counter-based.

pub mod api;
pub mod audit;
pub mod backend;
pub mod checks;
pub mod core;
pub mod ddi;
pub mod debugger;
pub mod error;
pub mod handle;
pub mod hang;
pub mod host_waits;
pub mod identity;
pub mod ipc;
pub mod list;
pub mod log;
pub mod process;
pub mod quota;
pub mod record;
pub mod recording;
pub mod settings;
pub mod shards;
pub mod space;
pub mod submit;
pub mod sync;
pub mod trace;
pub mod vm;
