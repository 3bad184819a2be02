// SPDX-License-Identifier: MIT OR Apache-2.0
//! Submission: a ring of packets that a queue of the device reads, memory for the data that packets point
//! to, and the busy times of the engines.

pub mod activity;
pub mod arena;
pub mod ring;
