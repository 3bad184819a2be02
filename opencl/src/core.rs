// SPDX-License-Identifier: MIT OR Apache-2.0
//! The objects: devices, contexts, programs, and the binaries of programs; and the process that they are in.

pub mod binary;
pub mod device;
pub mod object;
pub mod process;
pub mod program;

use opencl_sys::cl_int;

/// An error code of OpenCL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub cl_int);

/// What a function answers.
pub type Result<T = ()> = std::result::Result<T, Code>;
