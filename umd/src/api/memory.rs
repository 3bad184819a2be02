// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unified shared memory.
//!
//! All kinds are the same memory here, which host and device access at the same address. They differ only in
//! the properties that they report.

use std::ffi::{c_int, c_void};

use tally_ze::*;

use super::{Call, api};
use crate::core::context::Context;
use crate::core::device::Device;
use crate::error::{Error, Result};
use crate::log::warn_once;
use crate::vm::Found;

pub mod external;

/// Largest alignment that an allocation may ask for.
const MAX_ALIGNMENT: usize = 1 << 30;

api! {
    /// Spec: `zeMemAllocShared`.
    fn zeMemAllocShared(
        call,
        hContext: ze_context_handle_t,
        device_desc: *const ze_device_mem_alloc_desc_t,
        host_desc: *const ze_host_mem_alloc_desc_t,
        size: usize,
        alignment: usize,
        hDevice: ze_device_handle_t,
        pptr: *mut *mut c_void,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hContext`
        let context = call.handle(hContext, "hContext")?;
        let device = call.optional(hDevice, "hDevice")?.copied();
        if let Some(device) = device {
            context.must_hold(device, "hDevice")?;
        }
        let (extensions, host) = (check_device(call, device_desc)?, check_host(call, host_desc)?);
        let extensions = extensions.and(host)?;
        let kind = ze_memory_type_t::ZE_MEMORY_TYPE_SHARED;
        allocate(call, context, Request { size, alignment, extensions, kind, device }, pptr)
    }

    /// Spec: `zeMemAllocDevice`.
    fn zeMemAllocDevice(
        call,
        hContext: ze_context_handle_t,
        device_desc: *const ze_device_mem_alloc_desc_t,
        size: usize,
        alignment: usize,
        hDevice: ze_device_handle_t,
        pptr: *mut *mut c_void,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hContext`
        let context = call.handle(hContext, "hContext")?;
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hDevice`
        let device = *call.handle(hDevice, "hDevice")?;
        context.must_hold(device, "hDevice")?;
        let extensions = check_device(call, device_desc)?;
        let kind = ze_memory_type_t::ZE_MEMORY_TYPE_DEVICE;
        allocate(call, context, Request { size, alignment, extensions, kind, device: Some(device) }, pptr)
    }

    /// Spec: `zeMemAllocHost`.
    fn zeMemAllocHost(
        call,
        hContext: ze_context_handle_t,
        host_desc: *const ze_host_mem_alloc_desc_t,
        size: usize,
        alignment: usize,
        pptr: *mut *mut c_void,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hContext`
        let context = call.handle(hContext, "hContext")?;
        let extensions = check_host(call, host_desc)?;
        let kind = ze_memory_type_t::ZE_MEMORY_TYPE_HOST;
        allocate(call, context, Request { size, alignment, extensions, kind, device: None }, pptr)
    }

    /// Spec: `zeMemFree`. The device must not use the memory any more.
    fn zeMemFree(call, hContext: ze_context_handle_t, ptr: *mut c_void) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hContext`
        let context = call.handle(hContext, "hContext")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == ptr`
        call.out(ptr, "ptr")?;
        context.free(ptr as u64)
    }

    /// Spec: `zeMemFreeExt`. The "commands that use the memory" are not known here, so the policies apply to
    /// all submitted commands. With both policies it blocks, which leaves nothing to defer.
    fn zeMemFreeExt(
        call,
        hContext: ze_context_handle_t,
        pMemFreeDesc: *const ze_memory_free_ext_desc_t,
        ptr: *mut c_void,
    ) {
        use ze_driver_memory_free_policy_ext_flags_t as policy;
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hContext`
        let context = call.handle(hContext, "hContext")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pMemFreeDesc`
        let desc = call.desc(pMemFreeDesc, "pMemFreeDesc")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == ptr`
        call.out(ptr, "ptr")?;
        // ZE_RESULT_ERROR_INVALID_ENUMERATION: `0x3 < pMemFreeDesc->freePolicy`
        call.flags(desc.freePolicy.has_unknown(), "pMemFreeDesc->freePolicy")?;
        if desc.freePolicy.contains(policy::ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE) {
            context.free_when_idle(ptr as u64)
        } else if desc.freePolicy.is_empty() {
            context.free(ptr as u64)
        } else {
            context.free_later(ptr as u64)
        }
    }

    /// Spec: `zeMemGetAllocProperties`. Memory of other contexts is known, too, since all contexts can use it.
    fn zeMemGetAllocProperties(
        call,
        hContext: ze_context_handle_t,
        ptr: *const c_void,
        pMemAllocProperties: *mut ze_memory_allocation_properties_t,
        phDevice: *mut ze_device_handle_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hContext`
        let context = call.handle(hContext, "hContext")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == ptr`
        call.out(ptr.cast_mut(), "ptr")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pMemAllocProperties`
        let (out, chain) = call.raw_properties(pMemAllocProperties, "pMemAllocProperties", &[])?;
        let found = context.vm().find(ptr as u64);
        out.r#type = found.map_or(ze_memory_type_t::ZE_MEMORY_TYPE_UNKNOWN, |it| it.kind);
        out.id = found.map_or(0, |it| it.id);
        out.pageSize = found.map_or(0, |_| tally_uapi::PAGE_SIZE);
        for link in chain {
            external::answer(call, context, found.filter(|it| it.exportable).map(|it| it.bo), link)?;
        }
        if let Some(out) = call.optional_out(phDevice) {
            let device = found.and_then(|it| context.device_of(&it));
            out.set(device.map_or(ze_device_handle_t::NULL, Device::raw));
        }
        Ok(())
    }

    /// Spec: `zeMemGetAddressRange`.
    fn zeMemGetAddressRange(
        call,
        hContext: ze_context_handle_t,
        ptr: *const c_void,
        pBase: *mut *mut c_void,
        pSize: *mut usize,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hContext`
        let context = call.handle(hContext, "hContext")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == ptr`
        call.out(ptr.cast_mut(), "ptr")?;
        let found = context.vm().find(ptr as u64).ok_or_else(|| {
            Error::new(
                ze_result_t::ZE_RESULT_ERROR_ADDRESS_NOT_FOUND,
                format!("ptr: {ptr:p} lies in no allocation"),
            )
        })?;
        if let Some(base) = call.optional_out(pBase) {
            base.set(crate::space::pointer(found.base).cast());
        }
        if let Some(size) = call.optional_out(pSize) {
            size.set(found.size as usize);
        }
        Ok(())
    }

    /// Spec: `zeMemSetAtomicAccessAttributeExp`. All memory supports all atomics here; the attributes are
    /// remembered and have no other effect.
    fn zeMemSetAtomicAccessAttributeExp(
        call,
        hContext: ze_context_handle_t,
        hDevice: ze_device_handle_t,
        ptr: *const c_void,
        size: usize,
        attr: ze_memory_atomic_attr_exp_flags_t,
    ) {
        let (context, device, found) = atomics_of(call, hContext, hDevice, ptr, size)?;
        let (vm, number) = (context.vm(), device.number());
        // ZE_RESULT_ERROR_INVALID_ENUMERATION: `0x7f < attr`
        call.flags(attr.has_unknown(), "attr")?;
        use ze_memory_atomic_attr_exp_flags_t as it;
        for both in [
            it::ZE_MEMORY_ATOMIC_ATTR_EXP_FLAG_HOST_ATOMICS
                | it::ZE_MEMORY_ATOMIC_ATTR_EXP_FLAG_NO_HOST_ATOMICS,
            it::ZE_MEMORY_ATOMIC_ATTR_EXP_FLAG_DEVICE_ATOMICS
                | it::ZE_MEMORY_ATOMIC_ATTR_EXP_FLAG_NO_DEVICE_ATOMICS,
            it::ZE_MEMORY_ATOMIC_ATTR_EXP_FLAG_SYSTEM_ATOMICS
                | it::ZE_MEMORY_ATOMIC_ATTR_EXP_FLAG_NO_SYSTEM_ATOMICS,
        ] {
            if attr.contains(both) {
                return Err(Error::invalid(format!("attr: {both:?} exclude each other")));
            }
        }
        match &found {
            Some(found) => vm.set_atomics(found, number, attr.bits()),
            None => vm.system_atomics().set(number, ptr as u64, size as u64, attr.bits()),
        }
        Ok(())
    }

    /// Spec: `zeMemGetAtomicAccessAttributeExp`.
    fn zeMemGetAtomicAccessAttributeExp(
        call,
        hContext: ze_context_handle_t,
        hDevice: ze_device_handle_t,
        ptr: *const c_void,
        size: usize,
        pAttr: *mut ze_memory_atomic_attr_exp_flags_t,
    ) {
        use ze_memory_atomic_attr_exp_flags_t as it;
        let (context, device, found) = atomics_of(call, hContext, hDevice, ptr, size)?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pAttr`
        let out = call.out(pAttr, "pAttr")?;
        let (vm, number) = (context.vm(), device.number());
        let asked = match &found {
            Some(found) => vm.atomics(found, number),
            None => vm.system_atomics().get(number, ptr as u64),
        };
        let all = it::ZE_MEMORY_ATOMIC_ATTR_EXP_FLAG_HOST_ATOMICS
            | it::ZE_MEMORY_ATOMIC_ATTR_EXP_FLAG_DEVICE_ATOMICS
            | it::ZE_MEMORY_ATOMIC_ATTR_EXP_FLAG_SYSTEM_ATOMICS;
        out.set(asked.map_or(all, it::from_bits_retain));
        Ok(())
    }
}

/// The allocation that attributes apply to; none: they apply to memory of the system.
fn atomics_of<'c>(
    call: Call<'c>,
    context: ze_context_handle_t,
    device: ze_device_handle_t,
    ptr: *const c_void,
    size: usize,
) -> Result<(&'c Context, &'c Device, Option<Found>)> {
    // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hContext`
    let context = call.handle(context, "hContext")?;
    // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hDevice`
    let device = call.handle(device, "hDevice")?;
    context.must_hold(device, "hDevice")?;
    check_range(context, ptr, size)?;
    let found = context.find(ptr as u64);
    if found.is_none() && context.vm().in_reservation(ptr as u64) {
        return Err(Error::invalid("ptr: it is in no memory of hContext"));
    }
    Ok((context, device, found))
}

/// Requests in the chains of the descriptions.
#[derive(Default)]
pub(super) struct Extensions {
    /// Whether the limit on the size of one allocation does not apply.
    relaxed: bool,
    /// The kinds of files that the memory is exported as.
    export: Option<ze_external_memory_type_flags_t>,
    /// The file that the memory is imported from, and its kind.
    import: Option<(c_int, ze_external_memory_type_flags_t)>,
}

impl Extensions {
    /// Combines the requests of two descriptions.
    fn and(self, other: Self) -> Result<Self> {
        let all = Self {
            relaxed: self.relaxed | other.relaxed,
            export: self.export.or(other.export),
            import: self.import.or(other.import),
        };
        external::check(&all).map(|()| all)
    }
}

/// An allocation's parameters.
struct Request {
    size: usize,
    alignment: usize,
    extensions: Extensions,
    kind: ze_memory_type_t,
    device: Option<&'static Device>,
}

fn allocate(call: Call<'_>, context: &Context, request: Request, out: *mut *mut c_void) -> Result {
    // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pptr`
    let out = call.out(out, "pptr")?;
    let Request { size, alignment, extensions, kind, device } = request;
    // ZE_RESULT_ERROR_UNSUPPORTED_SIZE: `0 == size`
    if size == 0 {
        return Err(Error::new(ze_result_t::ZE_RESULT_ERROR_UNSUPPORTED_SIZE, "size: it is 0"));
    }
    // ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT: Must be zero or a power-of-two
    // Intel's driver accepts any alignment.
    let power = alignment.max(1).checked_next_power_of_two();
    let Some(power) = power.filter(|&power| power <= MAX_ALIGNMENT) else {
        return Err(Error::new(
            ze_result_t::ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT,
            format!("alignment: {alignment} is more than 1 GiB"),
        ));
    };
    if power != alignment.max(1) {
        warn_once!("alignment: {alignment} is not a power of two; {power} is taken");
    }
    let limit = match device {
        Some(device) => device.budget().limit(),
        None => context.device().info().memory_bytes,
    };
    if size as u64 > limit && !extensions.relaxed {
        return Err(Error::new(
            ze_result_t::ZE_RESULT_ERROR_UNSUPPORTED_SIZE,
            format!("size: {size} is more than maxMemAllocSize, {limit}"),
        ));
    }
    let source = external::source(&extensions, context)?;
    let address = context.allocate(source, size as u64, power as u64, kind, device)?;
    out.set(crate::space::pointer(address).cast());
    Ok(())
}

/// Checks the device's description.
fn check_device(call: Call<'_>, desc: *const ze_device_mem_alloc_desc_t) -> Result<Extensions> {
    // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == device_desc`
    let desc = call.desc(desc, "device_desc")?;
    // ZE_RESULT_ERROR_INVALID_ENUMERATION: `0x7 < device_desc->flags`
    call.flags(desc.flags.has_unknown(), "device_desc->flags")?;
    if desc.ordinal != 0 {
        return Err(Error::invalid(format!(
            "device_desc->ordinal: {} is beyond the one memory that the device has",
            desc.ordinal
        )));
    }
    check_chain(call, desc.pNext, "device_desc->pNext")
}

/// Checks the host's description.
fn check_host(call: Call<'_>, desc: *const ze_host_mem_alloc_desc_t) -> Result<Extensions> {
    // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == host_desc`
    let desc = call.desc(desc, "host_desc")?;
    // ZE_RESULT_ERROR_INVALID_ENUMERATION: `0x1f < host_desc->flags`
    call.flags(desc.flags.has_unknown(), "host_desc->flags")?;
    check_chain(call, desc.pNext, "host_desc->pNext")
}

fn check_chain(call: Call<'_>, next: *const c_void, name: &'static str) -> Result<Extensions> {
    use ze_structure_type_t as stype;
    let mut extensions = Extensions::default();
    for link in call.chain(next) {
        match link.stype() {
            stype::ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_WIN32
            | stype::ZE_STRUCTURE_TYPE_EXTERNAL_MEMMAP_SYSMEM_EXT_DESC => {
                return Err(Error::unsupported(format!(
                    "{name}: {:?}: such memory cannot be imported",
                    link.stype()
                )));
            }
            ze_relaxed_allocation_limits_exp_desc_t::STYPE => {
                if let Some(desc) = link.get::<ze_relaxed_allocation_limits_exp_desc_t>() {
                    call.flags(
                        desc.flags.has_unknown(),
                        "ze_relaxed_allocation_limits_exp_desc_t::flags",
                    )?;
                    extensions.relaxed |= !desc.flags.is_empty();
                }
            }
            _ => external::read(call, &link, &mut extensions)?,
        }
    }
    Ok(extensions)
}

/// Checks the range of a hint: it must be within one allocation, or outside of the driver's memory if the
/// device can access that.
pub(super) fn check_range(context: &Context, ptr: *const c_void, size: usize) -> Result {
    use ze_result_t as code;
    // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == ptr`
    if ptr.is_null() {
        let text = "ptr: the pointer is null";
        return Err(Error::new(code::ZE_RESULT_ERROR_INVALID_NULL_POINTER, text));
    }
    if size == 0 {
        return Err(Error::new(code::ZE_RESULT_ERROR_INVALID_SIZE, "size: it is 0"));
    }
    match context.vm().find(ptr as u64) {
        Some(it) if (ptr as u64 - it.base).saturating_add(size as u64) > it.size => {
            Err(Error::new(
                code::ZE_RESULT_ERROR_INVALID_SIZE,
                format!("size: {size} reaches beyond the {} bytes of the allocation", it.size),
            ))
        }
        None if (ptr as u64).checked_add(size as u64).is_none() => Err(Error::new(
            code::ZE_RESULT_ERROR_INVALID_SIZE,
            format!("size: {size} bytes from {ptr:p} do not exist"),
        )),
        None if !context.vm().reaches(ptr as u64, size as u64) => Err(Error::invalid(format!(
            "ptr: {ptr:p} was not allocated by the driver, and kernels of this device do not reach the system's memory"
        ))),
        _ => Ok(()),
    }
}
