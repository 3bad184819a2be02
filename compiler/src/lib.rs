// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tally's compiler: SPIR-V for OpenCL → typed IR → checks → native code.
//!
//! The stages, in order:
//! - [`parse`]: SPIR-V → [`ir`], the typed representation that all stages share.
//! - [`link`]: modules that import from each other become one.
//! - [`check`]: what cannot be compiled is refused here, with its place.
//! - [`optimise`]: passes over the IR of one kernel.
//! - [`instrument`]: checks of memory accesses, if they are asked for.
//! - [`widen`]: one function that runs a vector of work-items.
//! - [`regions`]: kernels cut at their barriers.
//! - [`lower`]: IR → LLVM's assembly language.
//! - `llvm`: that → an object file.
//! - `blob`: the object file → code that runs wherever it is mapped.
//!
//! [`pointers`] is what parsing and linking make of calls through pointers.
//!
//! [`interp`] runs the IR as it is: the reference that compiled code is compared with.
//!
//! `codegen` puts the last three together; `serve` is the compiler process around them all; `beside`
//! shows people what has become of a kernel, and `times` what each step of its build costs.

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
