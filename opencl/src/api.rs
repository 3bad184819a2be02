// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions of OpenCL, a file for each kind of object. OpenCL's loader finds them in a table, to which each
//! handle points ([`exports`]).

mod call;
mod context;
mod device;
mod exports;
mod platform;
mod program;
mod refused;
