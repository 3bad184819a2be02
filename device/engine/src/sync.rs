// SPDX-License-Identifier: MIT OR Apache-2.0
//! The atomics of the doorbell, which a model replaces by its own (`device/tests/loom_doorbell.rs`).

pub(crate) use std::sync::atomic::{AtomicU32, Ordering, fence};
