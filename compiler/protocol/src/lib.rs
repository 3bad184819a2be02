// SPDX-License-Identifier: MIT OR Apache-2.0
//! The messages between the driver and its compiler process.
//!
//! LLVM never loads into an application: the driver starts `tally-compiler` with one end of a
//! socket pair as its standard input and talks to it in [frames](frame). A frame holds one
//! [`Request`] or one [`Reply`].
//!
//! ```text
//! driver                                  tally-compiler
//!    │            Hello { version }             │
//!    │ ◀─────────────────────────────────────── │  once, at start
//!    │  Build { module, source }                │
//!    │ ───────────────────────────────────────▶ │  parse, validate, check: the whole front end
//!    │            Built { module, result }      │
//!    │ ◀─────────────────────────────────────── │
//!    │  Need { module, kernel }                 │  a launch waits for this one: do it first
//!    │ ───────────────────────────────────────▶ │
//!    │            Code { module, kernel, … }    │  each kernel once, as it becomes ready
//!    │ ◀─────────────────────────────────────── │
//!    │  Release { module }                      │  forget it, stop working on it
//!    │ ───────────────────────────────────────▶ │
//! ```
//!
//! [`Compiler`] is the driver's side: it starts and restarts the process and turns the messages
//! into blocking calls.

pub mod checks;
pub mod debug;
pub mod flags;
pub mod frame;
pub mod native;
pub mod printf;

mod activity;
mod client;
mod fingerprint;
mod half;
mod message;
mod spawn;
mod stored;

pub use client::{Compiler, CompilerError, PendingModule};
pub use fingerprint::fingerprint;
pub use half::half_value;
pub use message::*;
pub use spawn::{Log, Process, find as program, has_more_rights, spawn};
pub use stored::Key;
