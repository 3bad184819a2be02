// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the device behind PCI without a kernel: a vfio-user client acts as VMM
//! and driver. Each test quotes the sentence of `device/SPEC.md` that it proves.

mod bad;
mod ends;
mod escape;
mod function;
mod sleepers;
mod support;
mod vm;
mod vms;
