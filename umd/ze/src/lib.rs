// SPDX-License-Identifier: MIT OR Apache-2.0
//! The binary interface of Level Zero: types, constants and function tables, with no code but that of [`call`].
//!
//! - Types keep their C names, so that a name found in the specification is found here. They are
//!   generated from ze_api.h and zes_api.h by `scripts/gen-ze`, one module per region of the
//!   headers, and all re-exported at the root.
//! - [`functions`] holds the function types; [`call`] makes calls of any of them from words.
//! - C enumerations are transparent integers with associated constants, flags are `bitflags`,
//!   handles are transparent pointers: every bit pattern that a caller passes is a valid value.
//! - Structures that extend others through `pNext` implement [`Chained`].
//! - [`tables`] holds the layout of every `z*Get*ProcAddrTable` table at every API version.
//! - [`zet`] holds the few types of the tools interface that are needed.
//! - [`zex`] holds the experimental types of functions that clients find by name.

pub mod call;
pub mod functions;
mod generated;
mod macros;
pub mod tables;
pub mod zet;
pub mod zex;

pub use generated::types::*;

/// A version as the interface encodes it: major in the upper half, minor in the lower.
///
/// Spec: `ZE_MAKE_VERSION`.
pub const fn make_version(major: u16, minor: u16) -> u32 {
    ((major as u32) << 16) | minor as u32
}

/// A structure that begins with `stype` and `pNext`.
///
/// # Safety
/// The type is `repr(C)`, its first field is `stype: ze_structure_type_t` and its second `pNext`, a
/// pointer.
pub unsafe trait Chained {
    /// The value of `stype` that marks this structure; system management has values of its own.
    const STYPE: ze_structure_type_t;
}
