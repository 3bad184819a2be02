// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests across Tally's layers.
//!
//! [`model`] has the specification's rules for lists, queues, events and executions. [`program`]
//! generates random valid programs, runs them on a backend and compares the results with the model.
//! [`faults`] names the faults that a driver can inject; the programs must find them. [`toy`] is the
//! smallest driver that can have all of them, and shows that the model, the generator and the runner
//! work, independently of a real driver. [`ze`] calls the real one through the stock loader
//! ([`images`]: also its images, [`graph`]: graphs), and [`routine`] has the calls of nearly every
//! program. [`peer`] is a second process to communicate with, [`refusals`] a system that refuses memory
//! once, [`page`] memory that is mapped and unmapped, [`system`] kernels that use such memory, [`top`]
//! the queues of a process from outside, [`device_threads`] the device's threads.

pub mod checks_log;
pub mod device_threads;
pub mod faults;
pub mod gate;
pub mod graph;
pub mod images;
pub mod lists;
pub mod model;
pub mod page;
pub mod peer;
pub mod program;
pub mod refusals;
pub mod routine;
pub mod system;
pub mod top;
pub mod toy;
pub mod ze;
pub mod ze_backend;
