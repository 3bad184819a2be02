// SPDX-License-Identifier: MIT OR Apache-2.0
//! The objects behind Level Zero's handles. The files have the same names as in `api`. `api` contains the C
//! functions and their checks; this module does the work.

pub mod context;
pub mod device;
pub mod driver;
pub mod event;
pub mod fence;
pub mod gpu;
pub mod graph;
pub mod host_clock;
pub mod image;
pub mod kernel;
pub mod list;
pub mod module;
pub mod queue;
pub mod sampler;
pub mod semaphore;
pub mod sysman;
pub mod topology;
pub mod virtual_memory;
