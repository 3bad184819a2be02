// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fuzz targets. Each function takes an input and panics when its guarantee is violated; a crash or
//! a hang is a violation as well.
//!
//! | target | input | guarantee |
//! |---|---|---|
//! | [`spirv`] | a SPIR-V module | it is refused with an error, or every stage up to code generation accepts it |
//! | [`packets`] | rings and recordings of one VM | the device runs them, parks or faults; nothing else of the process is touched |
//! | [`calls`] | a sequence of Level Zero calls, valid and invalid | every call returns a result of its own, nothing is lost |
//!
//! `scripts/fuzz` runs them with libFuzzer; see `fuzz/README.md`.

mod api;
mod arena;
mod device;
mod module;

pub use api::calls;
pub use device::packets;
pub use module::spirv;

/// A target's name and function.
pub type Target = (&'static str, fn(&[u8]));

/// All targets, by the names of their corpora.
pub const TARGETS: [Target; 3] = [("spirv", spirv), ("packets", packets), ("api", calls)];
