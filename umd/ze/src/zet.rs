// SPDX-License-Identifier: MIT OR Apache-2.0
//! The types of the tools interface, zet_api.h, that the driver's functions need. Its handles are those
//! of the core interface.

// C names are kept as they are; fields mean what the specification says.
#![allow(non_camel_case_types, missing_docs)]

use crate::macros::enumeration;

enumeration! {
    /// Spec: `zet_module_debug_info_format_t`.
    zet_module_debug_info_format_t {
        ZET_MODULE_DEBUG_INFO_FORMAT_ELF_DWARF = 0,
    }
}
