// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether appends have to look closer than usual: while a graph is being captured, or if calls are checked.
//! Every append reads one number.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Twice the number of captures, and one if calls are checked.
static REASONS: AtomicUsize = AtomicUsize::new(0);
const CHECKED: usize = 1;

/// Whether there is any reason.
#[inline]
pub fn is_any() -> bool {
    REASONS.load(Ordering::Relaxed) != 0
}

/// Whether any graph is being captured. A thread that takes part in a capture always sees it.
#[inline]
pub fn is_any_captured() -> bool {
    REASONS.load(Ordering::Relaxed) > CHECKED
}

/// Sets the number of graphs that are being captured. The caller holds the lock of their list.
pub fn set_captures(count: usize) {
    let checked = REASONS.load(Ordering::Relaxed) & CHECKED;
    REASONS.store(2 * count + checked, Ordering::Relaxed);
}

/// Begins to check calls. Nothing has been captured yet.
pub fn set_checked() {
    REASONS.fetch_or(CHECKED, Ordering::Relaxed);
}
