// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `scripts/gen-ze` writes: the types and functions of ze_api.h and zes_api.h and the tables of z*_ddi.h.

// C names are kept as they are, and the specification is the documentation of fields.
#[allow(non_camel_case_types, non_snake_case, missing_docs)]
pub mod types;

#[allow(non_camel_case_types, non_snake_case)]
pub mod functions {
    //! One type for each function.
    pub mod commands;
    pub mod extensions;
    pub mod objects;
    pub mod sysman;
}

pub mod tables;
