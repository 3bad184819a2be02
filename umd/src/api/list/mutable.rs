// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mutable command lists: `ZE_experimental_mutable_command_list`, version 1.1.

use std::ffi::c_void;
use std::sync::Arc;

use tally_ze::*;

use crate::api::{Call, Link, api};
use crate::core::kernel::Kernel;
use crate::core::list::mutable::Change;
use crate::error::{Error, Result};
use crate::list::target::Signal;
use crate::sync::event::Event;

api! {
    /// Spec: `zeCommandListGetNextCommandIdExp`.
    fn zeCommandListGetNextCommandIdExp(
        call,
        hCommandList: ze_command_list_handle_t,
        desc: *const ze_mutable_command_id_exp_desc_t,
        pCommandId: *mut u64,
    ) {
        next_command(call, hCommandList, desc, &[], pCommandId)
    }

    /// Spec: `zeCommandListGetNextCommandIdWithKernelsExp`.
    fn zeCommandListGetNextCommandIdWithKernelsExp(
        call,
        hCommandList: ze_command_list_handle_t,
        desc: *const ze_mutable_command_id_exp_desc_t,
        numKernels: u32,
        phKernels: *mut ze_kernel_handle_t,
        pCommandId: *mut u64,
    ) {
        let kernels = call.slice(phKernels.cast_const(), numKernels as usize, "phKernels")?;
        next_command(call, hCommandList, desc, kernels, pCommandId)
    }

    /// Spec: `zeCommandListUpdateMutableCommandsExp`.
    fn zeCommandListUpdateMutableCommandsExp(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        list @ hCommandList: ze_command_list_handle_t,
        desc: *const ze_mutable_commands_exp_desc_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == desc`
        let desc = call.desc(desc, "desc")?;
        if desc.flags != 0 {
            return Err(Error::invalid("desc->flags: it is reserved and must be 0"));
        }
        let changes: Vec<_> =
            call.chain(desc.pNext).map(|link| change(call, &link)).collect::<Result<_>>()?;
        // SAFETY: the caller promises that the values of arguments are null or have their sizes.
        unsafe { list.update(&changes) }
    }

    /// Spec: `zeCommandListUpdateMutableCommandSignalEventExp`.
    fn zeCommandListUpdateMutableCommandSignalEventExp(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        list @ hCommandList: ze_command_list_handle_t,
        commandId: u64,
        hSignalEvent: ze_event_handle_t,
    ) {
        let event = call.optional(hSignalEvent, "hSignalEvent")?;
        list.update_signal(commandId, event.map(|event| Signal { event, raw: hSignalEvent }))
    }

    /// Spec: `zeCommandListUpdateMutableCommandWaitEventsExp`.
    fn zeCommandListUpdateMutableCommandWaitEventsExp(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        list @ hCommandList: ze_command_list_handle_t,
        commandId: u64,
        numWaitEvents: u32,
        phWaitEvents: *mut ze_event_handle_t,
    ) {
        if phWaitEvents.is_null() {
            return list.update_waits(commandId, None);
        }
        let raws = call.slice(phWaitEvents.cast_const(), numWaitEvents as usize, "phWaitEvents")?;
        let events = raws.iter().map(|&raw| call.optional(raw, "phWaitEvents"));
        let events: Vec<Option<&Event>> = events.collect::<Result<_>>()?;
        list.update_waits(commandId, Some(&events))
    }

    /// Spec: `zeCommandListUpdateMutableCommandKernelsExp`.
    fn zeCommandListUpdateMutableCommandKernelsExp(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        list @ hCommandList: ze_command_list_handle_t,
        numKernels: u32,
        pCommandId: *mut u64,
        phKernels: *mut ze_kernel_handle_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pCommandId`
        call.read(pCommandId.cast_const(), "pCommandId")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == phKernels`
        call.read(phKernels.cast_const(), "phKernels")?;
        let count = numKernels as usize;
        let numbers = call.slice(pCommandId.cast_const(), count, "pCommandId")?;
        let kernels = call.slice(phKernels.cast_const(), count, "phKernels")?;
        let changes: Vec<_> = numbers
            .iter()
            .zip(kernels)
            .map(|(&number, &raw)| Ok((number, call.handle(raw, "phKernels")?)))
            .collect::<Result<_>>()?;
        list.update_kernels(&changes)
    }

    /// Spec: `zeCommandListIsMutableExp`.
    fn zeCommandListIsMutableExp(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        list @ hCommandList: ze_command_list_handle_t,
        pIsMutable: *mut ze_bool_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pIsMutable`
        call.out(pIsMutable, "pIsMutable")?.set(list.is_mutable().into());
        Ok(())
    }
}

/// Whether the extensions of a list's description ask for a mutable list.
pub(super) fn is_asked(call: Call<'_>, next: *const c_void) -> Result<bool> {
    let mut descs =
        call.chain(next).filter_map(|link| link.get::<ze_mutable_command_list_exp_desc_t>());
    let Some(desc) = descs.next() else { return Ok(false) };
    call.flags(desc.flags.has_unknown(), "desc->pNext->flags")?;
    if desc.flags.is_empty() {
        return Ok(true);
    }
    Err(Error::new(
        ze_result_t::ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION,
        "desc->pNext->flags: the flag is reserved",
    ))
}

fn next_command(
    call: Call<'_>,
    list: ze_command_list_handle_t,
    desc: *const ze_mutable_command_id_exp_desc_t,
    kernels: &[ze_kernel_handle_t],
    number: *mut u64,
) -> Result {
    let list = call.handle(list, "hCommandList")?;
    let desc = call.desc(desc, "desc")?;
    call.flags(desc.flags.has_unknown(), "desc->flags")?;
    let out = call.out(number, "pCommandId")?;
    let kernels = kernels.iter().map(|&raw| call.handle(raw, "phKernels").map(Arc::clone));
    let kernels: Vec<Arc<Kernel>> = kernels.collect::<Result<_>>()?;
    out.set(list.next_command(desc.flags, kernels)?);
    Ok(())
}

/// One structure of the chain of zeCommandListUpdateMutableCommandsExp.
fn change(call: Call<'_>, link: &Link<'_>) -> Result<(u64, Change)> {
    if let Some(it) = link.get::<ze_mutable_kernel_argument_exp_desc_t>() {
        return Ok((it.commandId, Change::Argument(it.argIndex, it.argSize, it.pArgValue)));
    }
    if let Some(it) = link.get::<ze_mutable_group_count_exp_desc_t>() {
        let count = call.read(it.pGroupCount, "pGroupCount")?;
        let count = [count.groupCountX, count.groupCountY, count.groupCountZ];
        return Ok((it.commandId, Change::GroupCount(count)));
    }
    if let Some(it) = link.get::<ze_mutable_group_size_exp_desc_t>() {
        let size = [it.groupSizeX, it.groupSizeY, it.groupSizeZ];
        return Ok((it.commandId, Change::GroupSize(size)));
    }
    if let Some(it) = link.get::<ze_mutable_global_offset_exp_desc_t>() {
        let offset = [it.offsetX, it.offsetY, it.offsetZ];
        return Ok((it.commandId, Change::GlobalOffset(offset)));
    }
    Err(Error::unsupported(format!("pNext: {:?} is not supported", link.stype())))
}
