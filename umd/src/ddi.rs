// SPDX-License-Identifier: MIT OR Apache-2.0
//! The entry for the Level Zero loader: the exported `z*Get*ProcAddrTable` functions.
//!
//! The loader looks up nothing else in this library. It passes a table that it has allocated for the API
//! version of its own headers, and the driver fills in function pointers. An older loader's table is shorter;
//! writing beyond its end would overwrite the loader's stack. `tally_ze::tables` has the layout of each
//! version's table.
//!
//! Every table is exported and every entry is filled: loader 1.20 refuses a driver that lacks one of 46 tables,
//! and an application may call through an entry without a check. Entries without an implementation point to a
//! function that reports that.

use core::ffi::c_void;

use tally_ze::tables::{Entry, Table};
use tally_ze::{ze_api_version_t, ze_result_t};

use crate::error::{self, Error};

pub mod dispatch;
mod exports;
mod implemented;
mod old_loader;

pub use exports::EXPORTED;
pub use implemented::{IMPLEMENTED, lookup};

/// The major version of this driver; tables of another one have an unknown layout.
const MAJOR: u32 = 1;

/// Writes the entries that API version `version` has into `table`.
///
/// A version newer than this driver's headers gets the entries known here, since minor versions only
/// append.
///
/// # Safety
/// `table` is null or points to as many pointers as the table has at `version`, writable.
unsafe fn fill(
    description: &Table,
    version: ze_api_version_t,
    table: *mut *const c_void,
) -> ze_result_t {
    if table.is_null() {
        return ze_result_t::ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    }
    if version.0 >> 16 != MAJOR || old_loader::would_crash(version) {
        return ze_result_t::ZE_RESULT_ERROR_UNSUPPORTED_VERSION;
    }
    for (i, entry) in description.entries_at(version.0).enumerate() {
        // SAFETY: i counts the entries that the table has at this version, for which the caller
        // vouches. The table is a C structure of pointers and as such aligned for one.
        unsafe { table.add(i).write(address(entry)) };
    }
    ze_result_t::ZE_RESULT_SUCCESS
}

/// The driver's function, or [`unsupported`]. The latter returns a result, so functions that return something
/// else must be implemented, which `tests/ddi.rs` checks.
fn address(entry: &Entry) -> *const c_void {
    lookup(entry.name).unwrap_or(unsupported as *const c_void)
}

/// The function in place of every one that is not implemented.
///
/// Callers pass arguments that it does not declare. The C calling convention allows that: the
/// caller places and removes them.
extern "C" fn unsupported() -> ze_result_t {
    // All of them share this function, so the description cannot name the one that was called.
    let error = Error::unsupported("the driver does not implement the function that was called");
    error::set_last("Level Zero", &error);
    error.code()
}
