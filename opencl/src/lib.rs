// SPDX-License-Identifier: MIT OR Apache-2.0
//! OpenCL for programs that compile with it and run with Level Zero.
//!
//! Some libraries bring kernels in OpenCL C and look for an OpenCL device that is the Level Zero device they
//! compute on, to compile them there: oneMKL's Fourier transforms do. This library is that OpenCL platform. It
//! is a driver for OpenCL's loader (`cl_khr_icd`) that has devices, contexts and programs, and no queues,
//! buffers or kernels. The binary of a program is one that `zeModuleCreate` takes as native.
//!
//! `api` has the functions, `core` the objects behind them; `tally-opencl-c` compiles.

mod api;
mod core;
