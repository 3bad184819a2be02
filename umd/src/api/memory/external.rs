// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that is shared with other interfaces and processes as a file (opaque descriptors), and
//! memory that the application imports into the driver.
//!
//! A file of the embedded lane is a memfd whose size is sealed; one of the kernel lane is a DMA-BUF.
//! Both lanes import DMA-BUFs of other drivers of the kernel.
//! An import keeps a copy of the descriptor: the application still owns its own.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tally_ze::*;

use super::Extensions;
use crate::api::{Call, Link, api};
use crate::backend::is_dma_buf;
use crate::core::context::Context;
use crate::core::device::Device;
use crate::core::driver::Driver;
use crate::error::{Error, Result};
use crate::vm::Source;

/// The kinds of files that a device's memory can be imported from.
pub fn imported_types(device: &Device) -> ze_external_memory_type_flags_t {
    let mut types = exported_types(device);
    types.set(DMA_BUF, device.can_share());
    types
}

/// The kinds of files that a device's memory can be exported as.
pub fn exported_types(device: &Device) -> ze_external_memory_type_flags_t {
    use ze_external_memory_type_flags_t as flag;
    let mut types = flag::empty();
    types.set(flag::ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD, device.can_share());
    types.set(DMA_BUF, device.can_share() && device.backend().has_dma_bufs());
    types
}

const DMA_BUF: ze_external_memory_type_flags_t =
    ze_external_memory_type_flags_t::ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF;

api! {
    /// The function of Intel's driver for memory of the application that the device will use often.
    /// Here the device can access all memory of the process, so the range is only remembered.
    fn zexDriverImportExternalPointer(
        call,
        hDriver: ze_driver_handle_t,
        ptr: *mut c_void,
        size: usize,
    ) {
        reaches_process(call.handle(hDriver, "hDriver")?)?;
        call.out(ptr, "ptr")?;
        let start = ptr as u64;
        let Some(end) = start.checked_add(size as u64).filter(|_| size != 0) else {
            return Err(Error::new(
                ze_result_t::ZE_RESULT_ERROR_INVALID_SIZE,
                format!("size: no memory has {size} bytes at {ptr:p}"),
            ));
        };
        let mut imported = imported();
        let before = imported.range(..end).next_back();
        if before.is_some_and(|(&at, &bytes)| at + bytes > start && (at, bytes) != (start, size as u64)) {
            return Err(Error::new(
                ze_result_t::ZE_RESULT_ERROR_OVERLAPPING_REGIONS,
                format!("ptr: a part of the {size} bytes at {ptr:p} was imported already"),
            ));
        }
        imported.insert(start, size as u64);
        Ok(())
    }

    /// The same as in Intel's driver.
    fn zexDriverReleaseImportedPointer(call, hDriver: ze_driver_handle_t, ptr: *mut c_void) {
        call.handle(hDriver, "hDriver")?;
        call.out(ptr, "ptr")?;
        match imported().remove(&(ptr as u64)) {
            Some(_) => Ok(()),
            None => Err(not_imported(ptr)),
        }
    }

    /// The same as in Intel's driver.
    fn zexDriverGetHostPointerBaseAddress(
        call,
        hDriver: ze_driver_handle_t,
        ptr: *mut c_void,
        baseAddress: *mut *mut c_void,
    ) {
        call.handle(hDriver, "hDriver")?;
        call.out(ptr, "ptr")?;
        let at = ptr as u64;
        let found = imported().range(..=at).next_back().map(|(&base, &size)| (base, size));
        let found = found.filter(|&(base, size)| at - base < size);
        let (base, _) = found.ok_or_else(|| not_imported(ptr))?;
        if let Some(out) = call.optional_out(baseAddress) {
            out.set(crate::space::pointer(base).cast());
        }
        Ok(())
    }
}

/// Imported ranges: maps each first address to the size in bytes.
fn imported() -> MutexGuard<'static, BTreeMap<u64, u64>> {
    static IMPORTED: Mutex<BTreeMap<u64, u64>> = Mutex::new(BTreeMap::new());
    IMPORTED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn not_imported(ptr: *mut c_void) -> Error {
    Error::invalid(format!("ptr: {ptr:p} was not imported"))
}

fn reaches_process(driver: &Driver) -> Result {
    if driver.devices().iter().all(|it| it.backend().sees_process()) {
        return Ok(());
    }
    Err(Error::unsupported(
        "the device reaches memory of the application's only where a copy names it",
    ))
}

/// Reads the request of one structure in the chain of an allocation or an image.
pub(in crate::api) fn read(call: Call<'_>, link: &Link<'_>, extensions: &mut Extensions) -> Result {
    if let Some(desc) = link.get::<ze_external_memory_export_desc_t>() {
        call.flags(desc.flags.has_unknown(), "pNext->flags")?;
        extensions.export = Some(desc.flags);
    }
    if let Some(desc) = link.get::<ze_external_memory_import_fd_t>() {
        call.flags(desc.flags.has_unknown(), "pNext->flags")?;
        extensions.import = Some((desc.fd, desc.flags));
    }
    check(extensions)
}

/// Refuses contradictory requests.
pub(super) fn check(extensions: &Extensions) -> Result {
    if extensions.export.is_some() && extensions.import.is_some() {
        return Err(Error::invalid("pNext: memory is either imported or made to be exported"));
    }
    Ok(())
}

/// Checks that `flags` is one of `types`.
fn check_type(
    types: ze_external_memory_type_flags_t,
    flags: ze_external_memory_type_flags_t,
) -> Result {
    if types.is_empty() {
        return Err(Error::unsupported("pNext: the system has no files for memory"));
    }
    if flags.is_empty() || !types.contains(flags) {
        return Err(Error::unsupported(format!("pNext->flags: {flags:?}; there is {types:?}")));
    }
    Ok(())
}

/// The source of the memory.
pub(in crate::api) fn source(extensions: &Extensions, context: &Context) -> Result<Source> {
    if let Some((file, flags)) = extensions.import {
        check_type(imported_types(context.device()), flags)?;
        let copy = duplicate(file)?;
        if flags == DMA_BUF && !is_dma_buf(&copy) {
            return Err(Error::invalid(format!("pNext->fd: {file} is no DMA-BUF")));
        }
        return Ok(Source::File(copy));
    }
    let Some(flags) = extensions.export else { return Ok(Source::New) };
    check_type(exported_types(context.device()), flags)?;
    Ok(Source::ForExport)
}

fn duplicate(file: c_int) -> Result<OwnedFd> {
    let bad = || Error::invalid(format!("pNext->fd: {file} is no open file"));
    if file < 0 {
        return Err(bad());
    }
    // SAFETY: not negative, and only duplicated, which fails for a number that is not an open file.
    let borrowed = unsafe { BorrowedFd::borrow_raw(file) };
    let copy = borrowed.try_clone_to_owned().map_err(|_| bad())?;
    // SAFETY: asks about our own descriptor.
    let flags = unsafe { libc::fcntl(copy.as_raw_fd(), libc::F_GETFL) };
    // The memory of an allocation can be written.
    if flags < 0 || flags & libc::O_ACCMODE != libc::O_RDWR {
        return Err(Error::invalid(format!(
            "pNext->fd: {file} is not open for reading and writing"
        )));
    }
    Ok(copy)
}

/// Fills a structure that asks for the file of an allocation or an image, whose buffer is `bo` if it can be
/// exported. The application closes the file.
pub(in crate::api) fn answer(
    call: Call<'_>,
    context: &Context,
    bo: Option<u32>,
    link: Link<'_>,
) -> Result {
    let Some(out) = link.get_mut::<ze_external_memory_export_fd_t>() else { return Ok(()) };
    call.flags(out.flags.has_unknown(), "pNext->flags")?;
    check_type(exported_types(context.device()), out.flags)?;
    let Some(bo) = bo else {
        return Err(Error::invalid(
            "pNext: the memory was not made with ze_external_memory_export_desc_t",
        ));
    };
    let (shared, _) = context.vm().export_bo(bo)?;
    out.fd = shared.file.into_raw_fd();
    Ok(())
}
