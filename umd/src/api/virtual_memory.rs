// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reserved virtual memory and physical memory objects.
//!
//! Spec: core programming guide, "Reserved Device Allocations". Pages of 4 KiB can always be mapped; for ranges
//! from 2 MiB on the reported page size is 2 MiB, so that the machine can use such pages, too.

use std::ffi::c_void;

use tally_uapi::PAGE_SIZE;
use tally_ze::*;

use super::memory::{Extensions, external};
use super::{Call, api};
use crate::core::virtual_memory::PhysicalMemory;
use crate::error::{Error, Result};
use crate::handle;
use crate::vm::reserved::{self, Access};

api! {
    /// Spec: `zeVirtualMemReserve`. `pStart` is a hint: if those addresses are in use, others are reserved.
    fn zeVirtualMemReserve(
        call,
        hContext: ze_context_handle_t,
        pStart: *const c_void,
        size: usize,
        pptr: *mut *mut c_void,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hContext`
        let context = call.handle(hContext, "hContext")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pptr`
        let out = call.out(pptr, "pptr")?;
        let size = pages(size, "size")?;
        let hint = aligned(pStart as u64, "pStart")?;
        let align = reserved::page_size(size);
        let start = context.vm().reserved().reserve(hint, size, align, context.id())?;
        out.set(crate::space::pointer(start).cast());
        Ok(())
    }

    /// Spec: `zeVirtualMemFree`. Remaining mappings in the range are removed.
    fn zeVirtualMemFree(call, hContext: ze_context_handle_t, ptr: *const c_void, size: usize) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hContext`
        let context = call.handle(hContext, "hContext")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == ptr`
        call.out(ptr.cast_mut(), "ptr")?;
        let (start, size) = (aligned(ptr as u64, "ptr")?, pages(size, "size")?);
        context.vm().reserved().free(start, size, context.id())
    }

    /// Spec: `zeVirtualMemQueryPageSize`.
    fn zeVirtualMemQueryPageSize(
        call,
        hContext: ze_context_handle_t,
        hDevice: ze_device_handle_t,
        size: usize,
        pagesize: *mut usize,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hContext`
        let context = call.handle(hContext, "hContext")?;
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hDevice`
        context.must_hold(call.handle(hDevice, "hDevice")?, "hDevice")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pagesize`
        let out = call.out(pagesize, "pagesize")?;
        // ZE_RESULT_ERROR_UNSUPPORTED_SIZE: `0 == size`
        if size == 0 {
            return Err(unsupported_size("size: it is 0".to_owned()));
        }
        out.set(reserved::page_size(size as u64) as usize);
        Ok(())
    }

    /// Spec: `zePhysicalMemCreate`. Device memory and host memory are the same. The device "can be
    /// `nullptr` if creating physical host memory".
    fn zePhysicalMemCreate(
        call,
        hContext: ze_context_handle_t,
        hDevice: ze_device_handle_t,
        desc: *mut ze_physical_mem_desc_t,
        phPhysicalMemory: *mut ze_physical_mem_handle_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hContext`
        let context = call.handle(hContext, "hContext")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == desc`
        let desc = call.desc(desc, "desc")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == phPhysicalMemory`
        let out = call.out(phPhysicalMemory, "phPhysicalMemory")?;
        // ZE_RESULT_ERROR_INVALID_ENUMERATION: `0x3 < desc->flags`
        call.flags(desc.flags.has_unknown(), "desc->flags")?;
        let on_host = desc.flags.contains(ze_physical_mem_flags_t::ZE_PHYSICAL_MEM_FLAG_ALLOCATE_ON_HOST);
        let device = if on_host {
            // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hDevice`
            call.optional(hDevice, "hDevice")?
        } else {
            Some(call.handle(hDevice, "hDevice")?)
        };
        if let Some(device) = device {
            context.must_hold(device, "hDevice")?;
        }
        let source = external::source(&extensions(call, desc.pNext)?, context)?;
        let size = pages(desc.size, "desc->size")?;
        let device = device.copied().filter(|_| !on_host);
        out.set(handle::create(PhysicalMemory::create(context, source, size, device)?)?);
        Ok(())
    }

    /// Spec: `zePhysicalMemGetProperties`. With `ze_external_memory_export_fd_t` "to export physical
    /// memory as a file descriptor".
    fn zePhysicalMemGetProperties(
        call,
        hContext: ze_context_handle_t,
        hPhysicalMem: ze_physical_mem_handle_t,
        pMemProperties: *mut ze_physical_mem_properties_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hContext`
        let context = call.handle(hContext, "hContext")?;
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hPhysicalMem`
        let memory = &call.handle(hPhysicalMem, "hPhysicalMem")?.memory;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pMemProperties`
        let out = call.properties(pMemProperties, "pMemProperties")?;
        out.id = memory.id();
        out.size = memory.size();
        let file = memory.is_exportable().then(|| memory.bo());
        call.chain(out.pNext).try_for_each(|link| external::answer(call, context, file, link))
    }

    /// Spec: `zePhysicalMemDestroy`. Its mappings stay until they are unmapped.
    fn zePhysicalMemDestroy(
        call,
        hContext: ze_context_handle_t,
        hPhysicalMemory: ze_physical_mem_handle_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hContext`
        call.handle(hContext, "hContext")?;
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hPhysicalMemory`
        call.destroy(hPhysicalMemory, "hPhysicalMemory")
    }

    /// Spec: `zeVirtualMemMap`.
    fn zeVirtualMemMap(
        call,
        hContext: ze_context_handle_t,
        ptr: *const c_void,
        size: usize,
        hPhysicalMemory: ze_physical_mem_handle_t,
        offset: usize,
        access: ze_memory_access_attribute_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hContext`
        let context = call.handle(hContext, "hContext")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == ptr`
        call.out(ptr.cast_mut(), "ptr")?;
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hPhysicalMemory`
        let memory = call.handle(hPhysicalMemory, "hPhysicalMemory")?;
        let access = understood(access)?;
        let (start, size) = (aligned(ptr as u64, "ptr")?, pages(size, "size")?);
        let offset = aligned(offset as u64, "offset")?;
        context.vm().reserved().map(start, size, &memory.memory, offset, access)
    }

    /// Spec: `zeVirtualMemUnmap`.
    fn zeVirtualMemUnmap(call, hContext: ze_context_handle_t, ptr: *const c_void, size: usize) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hContext`
        let context = call.handle(hContext, "hContext")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == ptr`
        call.out(ptr.cast_mut(), "ptr")?;
        let (start, size) = (aligned(ptr as u64, "ptr")?, pages(size, "size")?);
        context.vm().reserved().unmap(start, size)
    }

    /// Spec: `zeVirtualMemSetAccessAttribute`.
    fn zeVirtualMemSetAccessAttribute(
        call,
        hContext: ze_context_handle_t,
        ptr: *const c_void,
        size: usize,
        access: ze_memory_access_attribute_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hContext`
        let context = call.handle(hContext, "hContext")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == ptr`
        call.out(ptr.cast_mut(), "ptr")?;
        let access = understood(access)?;
        let (start, size) = (aligned(ptr as u64, "ptr")?, pages(size, "size")?);
        context.vm().reserved().set_access(start, size, access)
    }

    /// Spec: `zeVirtualMemGetAccessAttribute`. Where nothing is mapped it is what was set since the
    /// addresses were reserved or unmapped, else none.
    fn zeVirtualMemGetAccessAttribute(
        call,
        hContext: ze_context_handle_t,
        ptr: *const c_void,
        size: usize,
        access: *mut ze_memory_access_attribute_t,
        outSize: *mut usize,
    ) {
        use ze_memory_access_attribute_t as attribute;
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hContext`
        let context = call.handle(hContext, "hContext")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == ptr`
        call.out(ptr.cast_mut(), "ptr")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == access`
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == outSize`
        let (out, out_size) = (call.out(access, "access")?, call.out(outSize, "outSize")?);
        let (start, size) = (aligned(ptr as u64, "ptr")?, pages(size, "size")?);
        let (access, same) = context.vm().reserved().access(start, size)?;
        out.set(match access {
            Access::None => attribute::ZE_MEMORY_ACCESS_ATTRIBUTE_NONE,
            Access::ReadWrite => attribute::ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE,
            Access::ReadOnly => attribute::ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY,
        });
        out_size.set(same as usize);
        Ok(())
    }
}

fn understood(access: ze_memory_access_attribute_t) -> Result<Access> {
    use ze_memory_access_attribute_t as attribute;
    match access {
        attribute::ZE_MEMORY_ACCESS_ATTRIBUTE_NONE => Ok(Access::None),
        attribute::ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE => Ok(Access::ReadWrite),
        attribute::ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY => Ok(Access::ReadOnly),
        // ZE_RESULT_ERROR_INVALID_ENUMERATION: `::ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY < access`
        other => Err(Error::new(
            ze_result_t::ZE_RESULT_ERROR_INVALID_ENUMERATION,
            format!("access: {other:?} is no access attribute"),
        )),
    }
}

/// Requests in the chain of a description.
fn extensions(call: Call<'_>, next: *const c_void) -> Result<Extensions> {
    let mut extensions = Extensions::default();
    for link in call.chain(next) {
        if link.stype() == ze_structure_type_t::ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_WIN32 {
            return Err(Error::unsupported(format!(
                "desc->pNext: {:?}: such memory cannot be imported",
                link.stype()
            )));
        }
        external::read(call, &link, &mut extensions)?;
    }
    Ok(extensions)
}

/// A size in whole pages, not 0.
fn pages(size: usize, name: &'static str) -> Result<u64> {
    let size = size as u64;
    // ZE_RESULT_ERROR_UNSUPPORTED_SIZE: `0 == size`
    // ZE_RESULT_ERROR_UNSUPPORTED_SIZE: Size must be page aligned
    if size == 0 || !size.is_multiple_of(PAGE_SIZE) {
        return Err(unsupported_size(format!(
            "{name}: {size} is not a multiple of the page size, {PAGE_SIZE}, or is 0"
        )));
    }
    Ok(size)
}

fn unsupported_size(text: String) -> Error {
    Error::new(ze_result_t::ZE_RESULT_ERROR_UNSUPPORTED_SIZE, text)
}

/// An address or offset on a page.
fn aligned(address: u64, name: &'static str) -> Result<u64> {
    // ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT: Address must be page aligned
    if address.is_multiple_of(PAGE_SIZE) {
        return Ok(address);
    }
    Err(Error::new(
        ze_result_t::ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT,
        format!("{name}: {address:#x} is not on a page of {PAGE_SIZE} bytes"),
    ))
}
