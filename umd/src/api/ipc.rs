// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handles of memory, event pools and counter-based events for other processes.
//!
//! A handle is 64 bytes that may be sent by any means. It can be opened while the process that made it is
//! alive, if that process belongs to the same user.

use std::ffi::{c_char, c_void};
use std::fs::File;
use std::io::Write;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use tally_ze::zex::zex_ipc_counter_based_event_handle_t;
use tally_ze::*;

use super::{Call, api};
use crate::core::event::Pool;
use crate::error::{Error, Result};
use crate::handle;
use crate::ipc::transport::{Handle, Kind, withdraw};
use crate::ipc::{event, memory};

type Bytes = [c_char; ZE_MAX_IPC_HANDLE_SIZE];

api! {
    /// Spec: `zeMemGetIpcHandle`. The handle refers to the whole allocation. For a reserved address it
    /// refers to the physical memory object, from the page at which the mapping there begins.
    fn zeMemGetIpcHandle(
        call,
        hContext: ze_context_handle_t,
        ptr: *const c_void,
        pIpcHandle: *mut ze_ipc_mem_handle_t,
    ) {
        get_memory(call, hContext, ptr, pIpcHandle)
    }

    /// Spec: `zeMemGetIpcHandleWithProperties`.
    fn zeMemGetIpcHandleWithProperties(
        call,
        hContext: ze_context_handle_t,
        ptr: *const c_void,
        pNext: *mut c_void,
        pIpcHandle: *mut ze_ipc_mem_handle_t,
    ) {
        use ze_ipc_mem_handle_type_flags_t as flags;
        for link in call.chain(pNext) {
            if let Some(desc) = link.get::<ze_ipc_mem_handle_type_ext_desc_t>() {
                call.flags(desc.typeFlags.has_unknown(), "pNext->typeFlags")?;
                if desc.typeFlags.contains(flags::ZE_IPC_MEM_HANDLE_TYPE_FLAG_FABRIC_ACCESSIBLE) {
                    return Err(Error::unsupported("pNext->typeFlags: the device has no fabric"));
                }
            }
        }
        get_memory(call, hContext, ptr, pIpcHandle)
    }

    /// Spec: `zeMemPutIpcHandle`.
    fn zeMemPutIpcHandle(call, hContext: ze_context_handle_t, handle: ze_ipc_mem_handle_t) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hContext`
        call.handle(hContext, "hContext")?;
        withdraw(&Handle::from_bytes(handle.data, Kind::Memory, "handle")?, "handle")
    }

    /// Spec: `zeMemOpenIpcHandle`. The flags have no effect: there is one kind of caching.
    fn zeMemOpenIpcHandle(
        call,
        hContext: ze_context_handle_t,
        hDevice: ze_device_handle_t,
        handle: ze_ipc_mem_handle_t,
        flags: ze_ipc_memory_flags_t,
        pptr: *mut *mut c_void,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hContext`
        let context = call.handle(hContext, "hContext")?;
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hDevice`
        let device = call.handle(hDevice, "hDevice")?;
        context.must_hold(device, "hDevice")?;
        // ZE_RESULT_ERROR_INVALID_ENUMERATION: `0x3 < flags`
        call.flags(flags.has_unknown(), "flags")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pptr`
        let out = call.out(pptr, "pptr")?;
        let handle = Handle::from_bytes(handle.data, Kind::Memory, "handle")?;
        let address = memory::open(
            context.vm(),
            context.id(),
            device.budget(),
            &handle,
            "handle",
        )?;
        out.set(crate::space::pointer(address).cast());
        Ok(())
    }

    /// Spec: `zeMemCloseIpcHandle`. The device must not use the memory any more.
    fn zeMemCloseIpcHandle(call, hContext: ze_context_handle_t, ptr: *const c_void) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hContext`
        let context = call.handle(hContext, "hContext")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == ptr`
        call.out(ptr.cast_mut(), "ptr")?;
        memory::close(context.vm(), context.id(), ptr as u64)
    }

    /// Spec: `zeMemGetFileDescriptorFromIpcHandleExp`. The file contains the handle; the application
    /// closes it.
    fn zeMemGetFileDescriptorFromIpcHandleExp(
        call,
        hContext: ze_context_handle_t,
        ipcHandle: ze_ipc_mem_handle_t,
        pHandle: *mut u64,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hContext`
        call.handle(hContext, "hContext")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pHandle`
        let out = call.out(pHandle, "pHandle")?;
        Handle::from_bytes(ipcHandle.data, Kind::Memory, "ipcHandle")?;
        let file = file_of(ipcHandle.data)?;
        out.set(file.into_raw_fd() as u64);
        Ok(())
    }

    /// Spec: `zeMemGetIpcHandleFromFileDescriptorExp`, for files that memory of this process was
    /// exported to, and for files of zeMemGetFileDescriptorFromIpcHandleExp.
    fn zeMemGetIpcHandleFromFileDescriptorExp(
        call,
        hContext: ze_context_handle_t,
        handle: u64,
        pIpcHandle: *mut ze_ipc_mem_handle_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hContext`
        let context = call.handle(hContext, "hContext")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pIpcHandle`
        let out = call.out(pIpcHandle, "pIpcHandle")?;
        let file = borrowed(handle)?;
        let data = match memory::share_file(context.vm(), context.id(), &file) {
            Some(handle) => handle?.to_bytes(),
            None => handle_in(&file)?,
        };
        Handle::from_bytes(data, Kind::Memory, "handle")?;
        out.set(ze_ipc_mem_handle_t { data });
        Ok(())
    }

    /// Spec: `zeEventPoolGetIpcHandle`.
    fn zeEventPoolGetIpcHandle(
        call,
        hEventPool: ze_event_pool_handle_t,
        phIpc: *mut ze_ipc_event_pool_handle_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hEventPool`
        let pool = call.handle(hEventPool, "hEventPool")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == phIpc`
        let out = call.out(phIpc, "phIpc")?;
        out.set(ze_ipc_event_pool_handle_t { data: pool.share()?.to_bytes() });
        Ok(())
    }

    /// Spec: `zeEventPoolPutIpcHandle`.
    fn zeEventPoolPutIpcHandle(
        call,
        hContext: ze_context_handle_t,
        hIpc: ze_ipc_event_pool_handle_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hContext`
        call.handle(hContext, "hContext")?;
        withdraw(&Handle::from_bytes(hIpc.data, Kind::EventPool, "hIpc")?, "hIpc")
    }

    /// Spec: `zeEventPoolOpenIpcHandle`.
    fn zeEventPoolOpenIpcHandle(
        call,
        hContext: ze_context_handle_t,
        hIpc: ze_ipc_event_pool_handle_t,
        phEventPool: *mut ze_event_pool_handle_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hContext`
        let context = call.handle(hContext, "hContext")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == phEventPool`
        let out = call.out(phEventPool, "phEventPool")?;
        let ipc = Handle::from_bytes(hIpc.data, Kind::EventPool, "hIpc")?;
        let raw: ze_event_pool_handle_t = handle::create(Pool::open(context, &ipc, "hIpc")?)?;
        call.handle(raw, "phEventPool")?.name(raw);
        out.set(raw);
        Ok(())
    }

    /// Spec: `zeEventPoolCloseIpcHandle`.
    fn zeEventPoolCloseIpcHandle(call, hEventPool: ze_event_pool_handle_t) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hEventPool`
        if !call.handle(hEventPool, "hEventPool")?.is_opened() {
            return Err(Error::invalid(
                "hEventPool: it was created here, not opened: zeEventPoolDestroy destroys it",
            ));
        }
        call.take(hEventPool, "hEventPool")?.destroy();
        Ok(())
    }

    /// Spec: `zeEventCounterBasedGetIpcHandle`.
    fn zeEventCounterBasedGetIpcHandle(
        call,
        hEvent: ze_event_handle_t,
        phIpc: *mut ze_ipc_event_counter_based_handle_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hEvent`
        let event = call.handle(hEvent, "hEvent")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == phIpc`
        let out = call.out(phIpc, "phIpc")?;
        out.set(ze_ipc_event_counter_based_handle_t { data: event::share(event)?.to_bytes() });
        Ok(())
    }

    /// Spec: `zeEventCounterBasedOpenIpcHandle`.
    fn zeEventCounterBasedOpenIpcHandle(
        call,
        hContext: ze_context_handle_t,
        hIpc: ze_ipc_event_counter_based_handle_t,
        phEvent: *mut ze_event_handle_t,
    ) {
        open_event(call, hContext, hIpc.data, phEvent)
    }

    /// Spec: `zeEventCounterBasedCloseIpcHandle`.
    fn zeEventCounterBasedCloseIpcHandle(call, hEvent: ze_event_handle_t) {
        close_event(call, hEvent)
    }

    /// Spec: `zexCounterBasedEventGetIpcHandle`.
    fn zexCounterBasedEventGetIpcHandle(
        call,
        hEvent: ze_event_handle_t,
        phIpc: *mut zex_ipc_counter_based_event_handle_t,
    ) {
        let event = call.handle(hEvent, "hEvent")?;
        let out = call.out(phIpc, "phIpc")?;
        out.set(zex_ipc_counter_based_event_handle_t { data: event::share(event)?.to_bytes() });
        Ok(())
    }

    /// Spec: `zexCounterBasedEventOpenIpcHandle`.
    fn zexCounterBasedEventOpenIpcHandle(
        call,
        hContext: ze_context_handle_t,
        hIpc: zex_ipc_counter_based_event_handle_t,
        phEvent: *mut ze_event_handle_t,
    ) {
        open_event(call, hContext, hIpc.data, phEvent)
    }

    /// Spec: `zexCounterBasedEventCloseIpcHandle`.
    fn zexCounterBasedEventCloseIpcHandle(call, hEvent: ze_event_handle_t) {
        close_event(call, hEvent)
    }
}

fn get_memory(
    call: Call<'_>,
    context: ze_context_handle_t,
    ptr: *const c_void,
    out: *mut ze_ipc_mem_handle_t,
) -> Result {
    let context = call.handle(context, "hContext")?;
    // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == ptr`
    call.out(ptr.cast_mut(), "ptr")?;
    // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pIpcHandle`
    let out = call.out(out, "pIpcHandle")?;
    // "The pointer may also be a physical memory handle cast to void*".
    let handle = match call.handle(ze_physical_mem_handle_t(ptr.cast_mut()), "ptr") {
        Ok(object) => {
            object.must_be_of(context, "ptr")?;
            memory::share_physical(context.vm(), &object.memory, 0)?
        }
        Err(_) => memory::share(context.vm(), context.id(), ptr as u64)?,
    };
    out.set(ze_ipc_mem_handle_t { data: handle.to_bytes() });
    Ok(())
}

fn open_event(
    call: Call<'_>,
    context: ze_context_handle_t,
    data: Bytes,
    out: *mut ze_event_handle_t,
) -> Result {
    let context = call.handle(context, "hContext")?;
    // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == phEvent`
    let out = call.out(out, "phEvent")?;
    let ipc = Handle::from_bytes(data, Kind::Counter, "hIpc")?;
    out.set(handle::create(event::open(context.shared(), &ipc, "hIpc")?)?);
    Ok(())
}

fn close_event(call: Call<'_>, event: ze_event_handle_t) -> Result {
    if !call.handle(event, "hEvent")?.traits.imported {
        return Err(Error::invalid(
            "hEvent: it was created here, not opened: zeEventDestroy destroys it",
        ));
    }
    call.take(event, "hEvent").map(drop)
}

/// A file without a name that contains a handle.
fn file_of(data: Bytes) -> Result<File> {
    let failed = || {
        let code = ze_result_t::ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        Error::new(code, "pHandle: the system has no file for the handle")
    };
    // SAFETY: the name is a terminated string.
    let fd = unsafe { libc::memfd_create(c"tally-handle".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(failed());
    }
    // SAFETY: a new descriptor that nothing else owns.
    let mut file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    file.write_all(&data.map(|it| it as u8)).map_err(|_| failed())?;
    Ok(file)
}

/// The application's file, borrowed for a call.
fn borrowed(fd: u64) -> Result<ManuallyDrop<File>> {
    match i32::try_from(fd).ok().filter(|fd| *fd >= 0) {
        // SAFETY: borrowed for this call, during which the application keeps it; on a descriptor that is
        // not open all operations fail.
        Some(fd) => Ok(ManuallyDrop::new(unsafe { File::from_raw_fd(fd) })),
        None => Err(Error::invalid(format!("handle: {fd} is no file descriptor"))),
    }
}

/// The handle that a file contains.
fn handle_in(file: &File) -> Result<Bytes> {
    let mut bytes = [0; ZE_MAX_IPC_HANDLE_SIZE];
    file.read_exact_at(&mut bytes, 0).map_err(|_| {
        let fd = file.as_raw_fd();
        Error::invalid(format!("handle: {fd} is neither exported memory nor a handle's file"))
    })?;
    Ok(bytes.map(|it| it as c_char))
}
