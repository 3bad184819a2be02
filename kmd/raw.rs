// SPDX-License-Identifier: GPL-2.0
//! Everything that goes round the kernel crate's abstractions: raw bindings, the
//! shim, and pointers that the abstractions keep to themselves. No other file of
//! the driver uses `kernel::bindings`.
//!
//! These modules import nothing of the driver: what they have to know of it they
//! ask for by traits. Why each thing is here stands at it; most are things that the
//! abstractions of DRM and PCI cannot express yet.

pub(crate) mod drm;
pub(crate) mod machine;
pub(crate) mod pages;
pub(crate) mod pci;
pub(crate) mod poll;
pub(crate) mod space;
pub(crate) mod time;
pub(crate) mod wait;
pub(crate) mod work;
