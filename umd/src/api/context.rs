// SPDX-License-Identifier: MIT OR Apache-2.0
//! Contexts and residency.

use std::ffi::c_void;

use tally_ze::{
    ze_context_desc_t, ze_context_handle_t, ze_device_handle_t, ze_driver_handle_t,
    ze_image_handle_t,
};

use super::{Call, api, runtime};
use crate::checks;
use crate::core::context::Context;
use crate::core::driver::Driver;
use crate::error::Result;

api! {
    /// Spec: `zeContextCreate`.
    fn zeContextCreate(
        call,
        hDriver: ze_driver_handle_t,
        desc: *const ze_context_desc_t,
        phContext: *mut ze_context_handle_t,
    ) {
        let driver = call.handle(hDriver, "hDriver")?;
        create(call, driver, desc, &[], phContext)
    }

    /// Spec: `zeContextCreateEx`.
    fn zeContextCreateEx(
        call,
        hDriver: ze_driver_handle_t,
        desc: *const ze_context_desc_t,
        numDevices: u32,
        phDevices: *mut ze_device_handle_t,
        phContext: *mut ze_context_handle_t,
    ) {
        let driver = call.handle(hDriver, "hDriver")?;
        let devices = call.slice(phDevices, numDevices as usize, "phDevices")?;
        create(call, driver, desc, devices, phContext)
    }

    /// Spec: `zeContextDestroy`. The default context, too: programs end it like one of their own.
    fn zeContextDestroy(call, hContext: ze_context_handle_t) {
        let context = call.take(hContext, "hContext")?;
        runtime::driver(call)?.context_destroyed(hContext);
        context.destroy();
        Ok(())
    }

    /// Spec: `zeContextGetStatus`.
    fn zeContextGetStatus(call, hContext: ze_context_handle_t) {
        call.handle(hContext, "hContext")?.status()
    }

    /// Spec: `zeContextSystemBarrier`. Nothing is cached that the system could not see, but on the
    /// adversarial device.
    fn zeContextSystemBarrier(
        call,
        hContext: ze_context_handle_t,
        hDevice: ze_device_handle_t,
    ) {
        let context = call.handle(hContext, "hContext")?;
        context.must_hold(call.handle(hDevice, "hDevice")?, "hDevice")?;
        context.vm().flush_host();
        Ok(())
    }

    /// Spec: `zeContextMakeMemoryResident`. All memory is resident from its allocation on.
    fn zeContextMakeMemoryResident(
        call,
        hContext: ze_context_handle_t,
        hDevice: ze_device_handle_t,
        ptr: *mut c_void,
        size: usize,
    ) {
        residency(call, hContext, hDevice, ptr, size, true)
    }

    /// Spec: `zeContextEvictMemory`. A hint that is not taken.
    fn zeContextEvictMemory(
        call,
        hContext: ze_context_handle_t,
        hDevice: ze_device_handle_t,
        ptr: *mut c_void,
        size: usize,
    ) {
        residency(call, hContext, hDevice, ptr, size, false)
    }

    /// Spec: `zeContextMakeImageResident`. All memory is resident from its allocation on.
    fn zeContextMakeImageResident(
        call,
        hContext: ze_context_handle_t,
        hDevice: ze_device_handle_t,
        hImage: ze_image_handle_t,
    ) {
        image_residency(call, hContext, hDevice, hImage)
    }

    /// Spec: `zeContextEvictImage`. A hint that is not taken.
    fn zeContextEvictImage(
        call,
        hContext: ze_context_handle_t,
        hDevice: ze_device_handle_t,
        hImage: ze_image_handle_t,
    ) {
        image_residency(call, hContext, hDevice, hImage)
    }
}

fn image_residency(
    call: Call<'_>,
    context: ze_context_handle_t,
    device: ze_device_handle_t,
    image: ze_image_handle_t,
) -> Result {
    let context = call.handle(context, "hContext")?;
    context.must_hold(call.handle(device, "hDevice")?, "hDevice")?;
    call.handle(image, "hImage").map(drop)
}

fn create(
    call: Call<'_>,
    driver: &Driver,
    desc: *const ze_context_desc_t,
    devices: &[ze_device_handle_t],
    out: *mut ze_context_handle_t,
) -> Result {
    let desc = call.desc(desc, "desc")?;
    call.flags(desc.flags.has_unknown(), "desc->flags")?;
    let out = call.out(out, "phContext")?;
    if devices.is_empty() {
        out.set(driver.create_context()?);
        return Ok(());
    }
    let devices = devices.iter().map(|&device| call.handle(device, "phDevices").copied());
    out.set(Context::create(&devices.collect::<Result<Vec<_>>>()?)?);
    Ok(())
}

fn residency(
    call: Call<'_>,
    context: ze_context_handle_t,
    device: ze_device_handle_t,
    ptr: *mut c_void,
    size: usize,
    is_resident: bool,
) -> Result {
    let context = call.handle(context, "hContext")?;
    context.must_hold(call.handle(device, "hDevice")?, "hDevice")?;
    super::memory::check_range(context, ptr, size)?;
    if let Some(checks) = checks::get() {
        checks.resident(ptr.addr() as u64, is_resident);
    }
    Ok(())
}
