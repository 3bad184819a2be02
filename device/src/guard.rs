// SPDX-License-Identifier: MIT OR Apache-2.0
//! Guarded execution: code that may touch memory which is not there, or never
//! end, runs so that a fault becomes an error of the call.
//!
//! Kernels are native code with raw addresses, and every address in a packet
//! comes from a client. The host's MMU checks them; what it refuses arrives as
//! SIGSEGV, SIGBUS, SIGILL or SIGFPE in the thread that ran the code. The
//! handler then makes that thread return from its guarded call with a [`Trap`].
//!
//! The device lives in an application's process, so the handler claims a signal
//! only in threads of ours, and only inside a guarded call. It tells them by
//! the signal stack that it runs on: all of ours lie in one reservation. That
//! needs no thread-local storage, which a handler in a library opened at run
//! time must not touch. All else goes to the handler that was
//! there before (see `chain`).
//!
//! No frame of the guarded code is unwound: it must not own anything that
//! needs to be dropped, and it holds no locks.

mod abi;
mod memory;
#[cfg(shuttle)]
mod model;
#[cfg(not(shuttle))]
mod thread;
mod trap;
mod wide;

pub(crate) use abi::{STACK_BYTES, set_float_control};
pub(crate) use memory::{move_bytes, set_bytes, set_lines, word};
#[cfg(shuttle)]
pub(crate) use model::{Guard, Loan, Record, Seat, prepare_aborts};
#[cfg(not(shuttle))]
pub(crate) use thread::{Guard, Loan, Record, Seat, prepare_aborts};
#[cfg(not(shuttle))]
pub use thread::{Refused, watch_refused, watch_threads};
pub(crate) use trap::Trap;
pub(crate) use wide::LINE;

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("guarded calls are written for x86-64 Linux");
