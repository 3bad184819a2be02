// SPDX-License-Identifier: MIT OR Apache-2.0
//! The system management interface, of which there is only the beginning: it has no drivers.
//!
//! Both functions have to succeed, because loader 1.20 keeps one initialisation status for core and
//! system management. Where it wraps handles (several drivers, or ZE_ENABLE_LOADER_INTERCEPT), a
//! failed `zesInit` makes a later `zeInit` fail with UNINITIALIZED, and hwloc calls the two in this
//! order. A `zesDriverGet` that answers UNINITIALIZED has the loader drop the driver altogether.

#![allow(non_snake_case)] // C names are kept as they are

use core::ffi::c_void;

use tally_ze::ze_result_t;

/// Spec: `zesInit`. Succeeds; there is nothing to set up.
pub extern "C" fn zesInit(_flags: u32) -> ze_result_t {
    ze_result_t::ZE_RESULT_SUCCESS
}

/// Spec: `zesDriverGet`. There are none.
///
/// # Safety
/// `count` is null or writable.
pub unsafe extern "C" fn zesDriverGet(count: *mut u32, _drivers: *mut *mut c_void) -> ze_result_t {
    if count.is_null() {
        return ze_result_t::ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    }
    // SAFETY: not null, and the caller vouches for the rest.
    unsafe { count.write(0) };
    ze_result_t::ZE_RESULT_SUCCESS
}
