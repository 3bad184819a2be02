// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the device's interface for drivers: rings, cells, kernels.
#![cfg(not(loom))]

mod calls;
mod chaos;
mod cooperative;
mod faults;
mod helping;
mod packets;
mod sched;
mod signals;
mod stress;
mod support;
mod trace;
mod waits;
