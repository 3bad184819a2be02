// SPDX-License-Identifier: MIT OR Apache-2.0
//! Submission: a ring of packets that a queue of the device reads, and memory for what packets
//! point to.

pub mod arena;
pub mod ring;
