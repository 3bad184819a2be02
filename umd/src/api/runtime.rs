// SPDX-License-Identifier: MIT OR Apache-2.0
//! Objects that an application gets without creating or choosing them: the default context, and numbers that
//! identify devices. The `zer` functions use the default driver; Tally has only one.

use std::ffi::c_char;

use tally_ze::{ze_context_handle_t, ze_device_handle_t, ze_driver_handle_t};

use super::{Call, api, entered};
use crate::core::driver::Driver;
use crate::error::{self, Error, Result};

/// The value of zerTranslateDeviceHandleToIdentifier on failure.
const NO_IDENTIFIER: u32 = u32::MAX;

/// Runs the body of an entry point that returns a value instead of a code. It returns `failure` if the body
/// fails; the description of the last error says why.
fn valued<T>(function: &'static str, failure: T, body: impl FnOnce() -> Result<T>) -> T {
    let mut value = failure;
    // The function cannot return the code.
    let _ = entered(function, || {
        value = body()?;
        Ok(())
    });
    value
}

/// The driver of this process.
///
/// # Errors
/// INVALID_NULL_HANDLE if there is none yet, which entry points refuse earlier.
pub(super) fn driver(call: Call<'_>) -> Result<&Driver> {
    call.handle(Driver::get().unwrap_or_default(), "the default driver")
}

/// Spec: `zeDriverGetDefaultContext`. Null on failure.
///
/// # Safety
/// `hDriver` is not destroyed during the call.
pub unsafe extern "C" fn zeDriverGetDefaultContext(
    hDriver: ze_driver_handle_t,
) -> ze_context_handle_t {
    // SAFETY: exactly the promise that the caller makes to this function.
    let call = unsafe { Call::new() };
    valued("zeDriverGetDefaultContext", ze_context_handle_t::NULL, || {
        call.handle(hDriver, "hDriver")?.default_context()
    })
}

/// Spec: `zerGetDefaultContext`. Null on failure.
///
/// # Safety
/// Always safe to call; unsafe as the type of all functions of the interface.
pub unsafe extern "C" fn zerGetDefaultContext() -> ze_context_handle_t {
    // SAFETY: the caller passes no pointer and no handle.
    let call = unsafe { Call::new() };
    valued("zerGetDefaultContext", ze_context_handle_t::NULL, || driver(call)?.default_context())
}

/// Spec: `zerTranslateDeviceHandleToIdentifier`. The index among all devices and sub-devices; the devices of
/// zeDeviceGet come first and in its order. UINT32_MAX on failure.
///
/// # Safety
/// `hDevice` is a device's handle or none; it is checked.
pub unsafe extern "C" fn zerTranslateDeviceHandleToIdentifier(hDevice: ze_device_handle_t) -> u32 {
    // SAFETY: devices live as long as the process.
    let call = unsafe { Call::new() };
    valued("zerTranslateDeviceHandleToIdentifier", NO_IDENTIFIER, || {
        let number = call.handle(hDevice, "hDevice")?.number();
        let place = driver(call)?.all_devices().position(|it| it.number() == number);
        Ok(place.map_or(NO_IDENTIFIER, |place| place as u32))
    })
}

/// Spec: `zerTranslateIdentifierToDeviceHandle`. Null on failure.
///
/// # Safety
/// Always safe to call; unsafe as the type of all functions of the interface.
pub unsafe extern "C" fn zerTranslateIdentifierToDeviceHandle(
    identifier: u32,
) -> ze_device_handle_t {
    // SAFETY: the caller passes no pointer and no handle.
    let call = unsafe { Call::new() };
    valued("zerTranslateIdentifierToDeviceHandle", ze_device_handle_t::NULL, || {
        let driver = driver(call)?;
        let device = driver.all_devices().nth(identifier as usize).ok_or_else(|| {
            let count = driver.all_devices().count();
            Error::invalid(format!("identifier: {identifier}, but there are {count} devices"))
        })?;
        Ok(device.raw())
    })
}

api! { always
    /// Spec: `zerGetLastErrorDescription`. Of the calling thread; valid until its next error.
    fn zerGetLastErrorDescription(call, ppString: *mut *const c_char) {
        call.out(ppString, "ppString")?.set(error::last());
        Ok(())
    }
}
