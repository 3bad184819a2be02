// SPDX-License-Identifier: MIT OR Apache-2.0
//! `TALLY_RECORD`: keeps the device's work in a file, for `tally-replay` (`docs/replay.md`).
//!
//! ```text
//!  loader ─► ddi ─► hook (one for each call of recording::calls) ─► api ─► …
//!                    │ arguments                    ▲ the call itself
//!                    ▼                              │
//!               Recorder ── before: what has the host changed? ── after: wait, what has the device changed?
//!                    ▼
//!               recording::Writer ─► file
//! ```
//!
//! **Where.** In the function tables: with `TALLY_RECORD` they hold hooks in place of the driver's functions, so
//! without it nothing of this runs, and no other code has an instruction more. A call is kept as what the program
//! asked for, with handles as numbers; a replay makes the same calls, so that all settings apply to it, and lists,
//! events and waits are what they were.
//!
//! **Memory.** A copy of all memory of the application's is kept ([`memory`]). In front of each call that hands
//! over work, and of each wait, what differs from the copy was written by the host, and is recorded byte by byte.
//! Behind it the recorder waits until the device has nothing left that it could run: what differs then was written by
//! the device, and only its hash is recorded. While the program is in no call, the device does not go on ([`turn`]).
//! So a program runs its work one submission after the other while it is recorded. A replay writes the host's bytes
//! only, and does not wait, so work that was unordered in the program is unordered again. What another thread may have
//! written meanwhile is recorded as it was and as it became ([`threads`]).
//!
//! **Addresses.** Allocations lie in the upper half of the VA reservation ([`crate::space::Space::alloc_apart`]),
//! where a replay can have them again, so pointers in memory stay right.
//!
//! **What is not kept** is said in the recording: see `Recorder::not_kept`.

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, Ordering};

use tally_ze::call::{Hook, Words};
use tally_ze::ze_result_t;

use crate::recording::calls::{ROWS, hooked};
use crate::{process, settings};

mod arguments;
mod done;
mod file;
mod functions;
mod hook;
mod host;
mod memory;
mod recorder;
pub mod settle;
mod threads;
mod touches;
mod turn;

/// The driver's functions behind the hooks.
static REAL: [AtomicPtr<c_void>; ROWS.len()] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; ROWS.len()];

struct Recording;

impl Hook for Recording {
    unsafe fn called(
        call: usize,
        words: &Words,
        real: &dyn Fn(&Words) -> ze_result_t,
    ) -> ze_result_t {
        if process::is_gone() {
            return real(words);
        }
        // SAFETY: the words are those of a call that keeps the specification's rules, as the caller promises.
        unsafe { hook::called(call, words, real) }
    }

    fn real(call: usize) -> *const c_void {
        REAL.get(call).map_or(std::ptr::null(), |it| it.load(Ordering::Relaxed).cast_const())
    }
}

/// What goes into tables in place of a function: one that records its calls, if a recording is asked for.
pub fn instead(name: &str, function: *const c_void) -> *const c_void {
    if settings::get().record.is_none() {
        return function;
    }
    let Some((call, hook)) = hooked::<Recording>(name) else { return function };
    REAL[call].store(function.cast_mut(), Ordering::Relaxed);
    hook
}
