// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Atomics by one name: the machine's own, or loom's when a model is built.

#[cfg(not(loom))]
pub use core::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering};
#[cfg(loom)]
pub use loom::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering};
