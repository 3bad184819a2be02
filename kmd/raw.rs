// SPDX-License-Identifier: GPL-2.0
//! All code that bypasses the kernel crate's abstractions: raw bindings, the shim,
//! and pointers that the abstractions keep private. No other file of the driver uses
//! `kernel::bindings`.
//!
//! These modules import nothing of the driver: they reach it by traits. Each item
//! says why it is here; most are things that the abstractions of DRM and PCI cannot
//! express yet.

pub(crate) mod drm;
pub(crate) mod fence;
pub(crate) mod foreign;
pub(crate) mod machine;
pub(crate) mod pages;
pub(crate) mod pci;
pub(crate) mod poll;
pub(crate) mod space;
pub(crate) mod target;
pub(crate) mod time;
pub(crate) mod wait;
pub(crate) mod work;
