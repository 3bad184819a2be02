// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors: a Level Zero code and the sentence that zeDriverGetLastErrorDescription returns.
//!
//! The sentence names the argument and the rule ("alignment: 24 is not a power of two"); the entry point
//! puts its own name before it. Codes that are not errors, such as ZE_RESULT_NOT_READY, are returned in the
//! same way without a sentence, and cost nothing.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::{CStr, CString};

use tally_uapi::ioctl::Errno;
use tally_ze::ze_result_t;

use crate::process::{self, Refusal};

/// The reason why a call does not return ZE_RESULT_SUCCESS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    code: ze_result_t,
    text: Cow<'static, str>,
}

/// The result of everything below the C interface.
pub type Result<T = ()> = std::result::Result<T, Error>;

impl Error {
    /// An error with its sentence: the argument, a colon, the rule.
    // Neither this nor the next ones are inlined, so that entry points contain only the code without errors.
    #[cold]
    #[inline(never)]
    pub fn new(code: ze_result_t, text: impl Into<Cow<'static, str>>) -> Self {
        Self { code, text: text.into() }
    }

    /// A code that is a result, not an error; the last description does not change.
    pub const fn status(code: ze_result_t) -> Self {
        Self { code, text: Cow::Borrowed("") }
    }

    /// ZE_RESULT_ERROR_INVALID_ARGUMENT.
    #[cold]
    #[inline(never)]
    pub fn invalid(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ze_result_t::ZE_RESULT_ERROR_INVALID_ARGUMENT, text)
    }

    /// ZE_RESULT_ERROR_UNSUPPORTED_FEATURE.
    #[cold]
    #[inline(never)]
    pub fn unsupported(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ze_result_t::ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, text)
    }

    /// The error that the kernel returned for `ioctl`.
    #[cold]
    pub fn kernel(ioctl: &str, errno: Errno) -> Self {
        let (code, why) = match errno {
            Errno::Io => {
                (ze_result_t::ZE_RESULT_ERROR_DEVICE_LOST, "the GPU's address space is lost")
            }
            Errno::NoDevice => (ze_result_t::ZE_RESULT_ERROR_DEVICE_LOST, "the device is gone"),
            Errno::NoMemory => {
                (ze_result_t::ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, "the system is out of memory")
            }
            Errno::NoSpace => (
                ze_result_t::ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
                "a limit of the device is reached",
            ),
            _ => (ze_result_t::ZE_RESULT_ERROR_UNKNOWN, "the kernel refused it"),
        };
        Self::new(code, format!("{ioctl}: {} ({why})", errno.name()))
    }

    /// The code that the call returns.
    pub const fn code(&self) -> ze_result_t {
        self.code
    }

    /// The sentence, without the function's name; empty for a status.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        let (code, text) = match refusal {
            Refusal::Forked => (
                ze_result_t::ZE_RESULT_ERROR_UNINITIALIZED,
                "this process was forked from one that used the driver; call exec first",
            ),
            Refusal::Exiting => {
                (ze_result_t::ZE_RESULT_ERROR_DEVICE_LOST, "the process is exiting")
            }
            Refusal::NotReady => (
                ze_result_t::ZE_RESULT_ERROR_UNINITIALIZED,
                "neither zeInit nor zeInitDrivers has succeeded in this process",
            ),
        };
        Self::new(code, text)
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}: {}", self.code, self.text)
    }
}

impl std::error::Error for Error {}

thread_local! {
    /// The description that zeDriverGetLastErrorDescription returns on this thread.
    static LAST: RefCell<CString> = RefCell::default();
}

/// Keeps the sentence of `error` as this thread's last description.
#[cold]
pub fn set_last(function: &str, error: &Error) {
    if error.text.is_empty() {
        return;
    }
    if !process::is_gone() {
        // In a forked child the logger's lock may never be released.
        log::debug!("{function}: {error}");
    }
    let mut text = format!("{function}: {}", error.text);
    text.retain(|c| c != '\0');
    // After thread-local destructors have run the thread cannot ask for it any more.
    let _ = LAST.try_with(|last| *last.borrow_mut() = CString::new(text).unwrap_or_default());
}

/// The last description of this thread. It stays valid until the thread's next error.
pub fn last() -> *const std::ffi::c_char {
    const EMPTY: &CStr = c"";
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(EMPTY.as_ptr())
}
