// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests across Tally's layers.
//!
//! [`model`] says what the specification requires of lists, queues, events and executions.
//! [`program`] generates random valid programs, runs them on a backend and compares with the
//! model. [`faults`] names faults that a driver can be told to inject; the programs must find
//! them. [`toy`] is the smallest driver that can make them all, and shows that the model, the
//! generator and the runner work before any real driver is there. [`ze`] calls the real one
//! through the stock loader ([`images`]: also its images, [`graph`]: graphs), and [`routine`] is what nearly every
//! program does with it. [`peer`] is a second process to talk to, [`refusals`] a system that is out of memory
//! once, [`page`] memory that comes and goes, [`system`] kernels that use such memory, [`top`] a look at a process's queues from outside, [`device_threads`] the
//! device's threads.

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
