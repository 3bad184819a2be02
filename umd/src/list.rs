// SPDX-License-Identifier: MIT OR Apache-2.0
//! Command lists: the way from a call to packets.
//!
//! ```text
//!  Command ─► command::append ─► Target ─┬─ Immediate: a queue's ring, published at once
//!    waits, signal                       └─ Regular: a recording, run by CALL packets
//! ```
//!
//! One builder serves both kinds of lists, and a command queue is an immediate list that only
//! receives lists to execute. The differences are behind [`target::Target`]: where packets are written,
//! what a wait is bound to, and which value completes a command.

pub mod command;
pub mod fast_path;
pub mod graph;
pub mod immediate;
pub mod launch;
mod packets;
pub mod prebuilt;
pub mod regular;
pub mod target;
pub mod waits;

#[cfg(test)]
mod golden;
