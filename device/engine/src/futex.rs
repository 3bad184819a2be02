// SPDX-License-Identifier: MIT OR Apache-2.0
//! Futexes in memory that two processes share.

use std::sync::atomic::AtomicU32;

/// Sleeps while `word` holds `seen`. May return early.
pub(crate) fn wait(word: &AtomicU32, seen: u32) {
    let none = std::ptr::null::<libc::timespec>();
    // SAFETY: the word is valid for the call; no timeout.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, seen, none) };
}

/// Wakes all threads that sleep on `word`.
pub(crate) fn wake(word: &AtomicU32) {
    // SAFETY: the word is valid for the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}
