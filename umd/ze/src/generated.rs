// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `scripts/gen-ze` writes: the types of ze_api.h and the function tables of z*_ddi.h.

// C names are kept as they are, and the specification is the documentation of fields.
#[allow(non_camel_case_types, non_snake_case, missing_docs)]
pub mod types;

pub mod tables;
