// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tally's compiler: SPIR-V for OpenCL → typed IR → checks → native code.
//!
//! The stages, in order:
//! - [`ir`]: the typed representation that all stages share.

pub mod ir;
