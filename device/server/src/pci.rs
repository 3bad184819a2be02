// SPDX-License-Identifier: MIT OR Apache-2.0
//! The front end for a virtual machine: the device as a PCI function, over vfio-user.

pub mod config;
pub mod function;
pub mod interrupt;
mod map;
pub mod mappings;
pub mod memory;
