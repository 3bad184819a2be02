// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tally's compiler: SPIR-V for OpenCL → typed IR → checks → native code.
//!
//! The stages, in order:
//! - [`parse`]: SPIR-V → [`ir`], the typed representation that all stages share.
//! - [`link`]: modules that import from each other become one.
//! - [`check`]: refuses modules that cannot be compiled, with the place of each error.
//! - [`optimise`]: passes over the IR of one kernel.
//! - [`instrument`]: adds checks of memory accesses, if they are requested.
//! - [`widen`]: one function that runs a vector of work-items.
//! - [`regions`]: kernels cut at their barriers.
//! - [`lower`]: IR → LLVM's assembly language.
//! - `llvm`: that → an object file.
//! - `blob`: the object file → code that runs wherever it is mapped.
//!
//! [`pointers`] has the form of calls through pointers for parsing and linking.
//!
//! [`interp`] runs the IR directly: the reference that compiled code is compared with.
//!
//! `codegen` combines the last three; `serve` is the compiler process around them all; `beside` shows
//! the forms of a kernel to readers, and `times` the cost of each step of its build.

#[cfg(feature = "llvm")]
pub mod beside;
#[cfg(feature = "llvm")]
pub mod blob;
pub mod check;
#[cfg(feature = "llvm")]
pub mod codegen;
pub mod instrument;
pub mod interp;
pub mod ir;
pub mod link;
#[cfg(feature = "llvm")]
pub mod llvm;
pub mod lower;
pub mod optimise;
pub mod parse;
pub mod pointers;
pub mod regions;
#[cfg(feature = "llvm")]
pub mod serve;
#[cfg(feature = "llvm")]
pub mod times;
pub mod widen;
