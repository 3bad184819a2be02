// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one list of functions that the driver implements.
//!
//! A line here puts a function into its table and makes it known to
//! `zeDriverGetExtensionFunctionAddress`. The function must have the type that
//! `tally_ze::functions` has under its name, or the list does not compile.

use core::ffi::c_void;

use super::sysman;

/// `name => path` lines to [`IMPLEMENTED`] and [`lookup`]. A name given twice does not compile.
macro_rules! implemented {
    ($($name:ident => $function:path,)*) => {
        /// The names of all implemented functions.
        pub const IMPLEMENTED: &[&str] = &[$(stringify!($name)),*];

        /// The driver's function of this name, core or `zex`; `None` if there is none.
        pub fn lookup(name: &str) -> Option<*const c_void> {
            match name {
                $(stringify!($name) => {
                    let function: tally_ze::functions::$name = $function;
                    Some(function as *const c_void)
                })*
                _ => None,
            }
        }
    };
}

implemented! {
    // sysman
    zesInit => sysman::zesInit,
    zesDriverGet => sysman::zesDriverGet,
}
