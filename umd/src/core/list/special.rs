// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether appends have to look closer than usual: while a graph is being captured, or where calls are
//! checked. Every append asks one number.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Twice the number of captures, and one if calls are checked.
static REASONS: AtomicUsize = AtomicUsize::new(0);
const CHECKED: usize = 1;

/// Whether there is any reason.
#[inline]
pub fn is_any() -> bool {
    REASONS.load(Ordering::Relaxed) != 0
}

/// Whether any graph is being captured, which a thread that takes part in it finds for certain.
#[inline]
pub fn is_any_captured() -> bool {
    REASONS.load(Ordering::Relaxed) > CHECKED
}

/// So many graphs are being captured from now on. The caller holds the lock of their list.
pub fn set_captures(count: usize) {
    let checked = REASONS.load(Ordering::Relaxed) & CHECKED;
    REASONS.store(2 * count + checked, Ordering::Relaxed);
}

/// Calls are checked from now on. Nothing has been captured yet.
pub fn set_checked() {
    REASONS.fetch_or(CHECKED, Ordering::Relaxed);
}
