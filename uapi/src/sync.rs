// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Atomics under common names: the machine's own, or those of the model checkers `loom` and `shuttle`.

#[cfg(not(any(loom, shuttle)))]
pub use core::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering};
#[cfg(loom)]
pub use loom::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering};
#[cfg(shuttle)]
pub use shuttle::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering};

/// A cell.
#[cfg(not(loom))]
pub use core::sync::atomic::AtomicU64 as CellWord;
/// A cell. In a model for `shuttle` it is a word of ordinary memory, like any other to which a packet refers.
#[cfg(loom)]
pub use loom::sync::atomic::AtomicU64 as CellWord;
