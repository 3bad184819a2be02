// SPDX-License-Identifier: MIT OR Apache-2.0
//! Submission: a ring of packets that a queue of the device reads, memory for what packets point
//! to, and how busy the engines are.

pub mod activity;
pub mod arena;
pub mod ring;
