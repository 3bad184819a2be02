// SPDX-License-Identifier: MIT OR Apache-2.0
//! What all functions share: codes, handles, lists, and the answers of queries.

use std::ffi::{c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use opencl_sys::*;

use crate::core::object::{self, Kind, Object};
use crate::core::{Code, Result};

/// Runs the body of a function; its panic would be an error of this library.
pub(super) fn call(body: impl FnOnce() -> Result) -> cl_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => CL_SUCCESS,
        Ok(Err(Code(code))) => code,
        Err(_) => CL_OUT_OF_RESOURCES,
    }
}

/// Runs the body of a function that creates something.
///
/// # Safety
/// `code` is null or writable.
pub(super) unsafe fn create(
    code: *mut cl_int,
    body: impl FnOnce() -> Result<*mut c_void>,
) -> *mut c_void {
    let mut made = std::ptr::null_mut();
    let result = call(|| {
        made = body()?;
        Ok(())
    });
    // SAFETY: as the caller promises.
    unsafe { write(code, result) };
    made
}

/// Writes a value that may not be wanted.
///
/// # Safety
/// `place` is null or writable.
pub(super) unsafe fn write<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: as the caller promises.
        unsafe { place.write(value) };
    }
}

pub(super) fn error<T>(code: cl_int) -> Result<T> {
    Err(Code(code))
}

/// Hands out a list: the count, and as many entries as there is room for.
///
/// # Errors
/// "CL_INVALID_VALUE if num_entries is equal to zero and platforms is not NULL or if both num_platforms and
/// platforms are NULL", and the same words for devices. `missing` if there is nothing.
///
/// # Safety
/// `place` is null or good for `room` entries, and `count` is null or writable.
pub(super) unsafe fn list(
    handles: &[*mut c_void],
    room: cl_uint,
    place: *mut *mut c_void,
    count: *mut cl_uint,
    missing: cl_int,
) -> Result {
    let wants = !place.is_null();
    if wants && room == 0 || !wants && count.is_null() {
        return error(CL_INVALID_VALUE);
    }
    // SAFETY: as the caller promises.
    unsafe { write(count, handles.len() as cl_uint) };
    if handles.is_empty() {
        return error(missing);
    }
    if wants {
        let len = handles.len().min(room as usize);
        // SAFETY: as the caller promises.
        unsafe { place.copy_from_nonoverlapping(handles.as_ptr(), len) };
    }
    Ok(())
}

/// Where a query writes its answer.
pub(super) struct Answer {
    pub(super) room: usize,
    pub(super) place: *mut c_void,
    pub(super) size: *mut usize,
}

impl Answer {
    /// Writes these bytes.
    ///
    /// # Errors
    /// "CL_INVALID_VALUE if [...] size in bytes specified by param_value_size is < size of return type [...] and
    /// param_value is not a NULL value."
    pub(super) fn bytes(&self, bytes: &[u8]) -> Result {
        if !self.place.is_null() {
            if self.room < bytes.len() {
                return error(CL_INVALID_VALUE);
            }
            // SAFETY: a query's caller gives a place with that much room.
            unsafe { self.place.cast::<u8>().copy_from(bytes.as_ptr(), bytes.len()) };
        }
        // SAFETY: a query's caller gives null or a place.
        unsafe { write(self.size, bytes.len()) };
        Ok(())
    }

    pub(super) fn value<T: Plain>(&self, value: T) -> Result {
        self.values(&[value])
    }

    pub(super) fn values<T: Plain>(&self, values: &[T]) -> Result {
        // SAFETY: plain values have no padding.
        let bytes = unsafe {
            std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values))
        };
        self.bytes(bytes)
    }

    /// Spec: "A null terminated string is returned by OpenCL query function calls if the return type of the
    /// information being queried is a char[]."
    pub(super) fn text(&self, text: &str) -> Result {
        self.bytes(&[text.as_bytes(), &[0]].concat())
    }
}

/// # Safety
/// The type has no padding.
pub(super) unsafe trait Plain: Copy {}
// SAFETY: a number or a pointer.
unsafe impl Plain for u32 {}
// SAFETY: as above.
unsafe impl Plain for i32 {}
// SAFETY: as above.
unsafe impl Plain for u64 {}
// SAFETY: as above.
unsafe impl Plain for usize {}
// SAFETY: as above.
unsafe impl Plain for isize {}
// SAFETY: as above.
unsafe impl<T> Plain for *mut T {}

/// The object behind a handle.
///
/// # Safety
/// As for [`object::get`].
pub(super) unsafe fn get<'a, T: Kind>(handle: *mut c_void) -> Result<&'a Object<T>> {
    // SAFETY: as the caller promises.
    unsafe { object::get(handle) }
}

/// A string that may be missing.
///
/// # Safety
/// It is null or terminated.
pub(super) unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: as the caller promises.
    unsafe { std::ffi::CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
