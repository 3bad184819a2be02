// SPDX-License-Identifier: MIT OR Apache-2.0
//! Command queues.

use tally_ze::*;

use super::{Call, api};
use crate::core::device::Device;
use crate::core::queue::{self, Queue, QueueTraits};
use crate::error::{Error, Result};
use crate::handle;
use crate::vm::printf;

api! {
    /// Spec: `zeCommandQueueCreate`.
    fn zeCommandQueueCreate(
        call,
        hContext: ze_context_handle_t,
        hDevice: ze_device_handle_t,
        desc: *const ze_command_queue_desc_t,
        phCommandQueue: *mut ze_command_queue_handle_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hContext`
        let context = call.handle(hContext, "hContext")?;
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hDevice`
        let device = call.handle(hDevice, "hDevice")?;
        context.must_hold(device, "hDevice")?;
        let traits = traits(call, device, desc, "desc")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == phCommandQueue`
        let out = call.out(phCommandQueue, "phCommandQueue")?;
        let raw: ze_command_queue_handle_t = handle::create(Queue::create(context, traits)?)?;
        call.handle(raw, "phCommandQueue")?.name(raw);
        out.set(raw);
        Ok(())
    }

    /// Spec: `zeCommandQueueDestroy`. Submitted lists still complete.
    fn zeCommandQueueDestroy(call, hCommandQueue: ze_command_queue_handle_t) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandQueue`
        call.take(hCommandQueue, "hCommandQueue")?.destroy();
        Ok(())
    }

    /// Spec: `zeCommandQueueExecuteCommandLists`.
    fn zeCommandQueueExecuteCommandLists(
        call,
        hCommandQueue: ze_command_queue_handle_t,
        numCommandLists: u32,
        phCommandLists: *mut ze_command_list_handle_t,
        hFence: ze_fence_handle_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandQueue`
        let queue = call.handle(hCommandQueue, "hCommandQueue")?;
        let lists = lists(call, numCommandLists, phCommandLists, queue.traits())?;
        let fence = call.optional(hFence, "hFence")?;
        queue.execute(&lists, fence)
    }

    /// Spec: `zeCommandQueueSynchronize`.
    fn zeCommandQueueSynchronize(
        call,
        hCommandQueue: ze_command_queue_handle_t,
        timeout: u64,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandQueue`
        // ZE_RESULT_NOT_READY: timeout expired
        ended(call.handle(hCommandQueue, "hCommandQueue")?.synchronize(timeout))
    }

    /// Spec: `zeCommandQueueGetOrdinal`.
    fn zeCommandQueueGetOrdinal(
        call,
        hCommandQueue: ze_command_queue_handle_t,
        pOrdinal: *mut u32,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandQueue`
        let queue = call.handle(hCommandQueue, "hCommandQueue")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pOrdinal`
        call.out(pOrdinal, "pOrdinal")?.set(queue.traits().ordinal);
        Ok(())
    }

    /// Spec: `zeCommandQueueGetIndex`.
    fn zeCommandQueueGetIndex(
        call,
        hCommandQueue: ze_command_queue_handle_t,
        pIndex: *mut u32,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandQueue`
        let queue = call.handle(hCommandQueue, "hCommandQueue")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pIndex`
        call.out(pIndex, "pIndex")?.set(queue.traits().index);
        Ok(())
    }

    /// Spec: `zeCommandQueueGetFlags`.
    fn zeCommandQueueGetFlags(
        call,
        hCmdQueue: ze_command_queue_handle_t,
        pFlags: *mut ze_command_queue_flags_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCmdQueue`
        let queue = call.handle(hCmdQueue, "hCmdQueue")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pFlags`
        call.out(pFlags, "pFlags")?.set(queue.traits().flags);
        Ok(())
    }

    /// Spec: `zeCommandQueueGetMode`.
    fn zeCommandQueueGetMode(
        call,
        hCmdQueue: ze_command_queue_handle_t,
        pMode: *mut ze_command_queue_mode_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCmdQueue`
        let queue = call.handle(hCmdQueue, "hCmdQueue")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pMode`
        call.out(pMode, "pMode")?.set(queue.traits().mode);
        Ok(())
    }

    /// Spec: `zeCommandQueueGetPriority`.
    fn zeCommandQueueGetPriority(
        call,
        hCmdQueue: ze_command_queue_handle_t,
        pPriority: *mut ze_command_queue_priority_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCmdQueue`
        let queue = call.handle(hCmdQueue, "hCmdQueue")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pPriority`
        call.out(pPriority, "pPriority")?.set(queue.traits().priority);
        Ok(())
    }

    /// Spec: `zeDeviceSynchronize`.
    fn zeDeviceSynchronize(call, hDevice: ze_device_handle_t) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hDevice`
        let device = call.handle(hDevice, "hDevice")?;
        ended(queue::synchronize_device(device, u64::MAX))
    }
}

/// The result of a wait or a query with this answer. Flushes the output of kernels: "To
/// ensure all output has been flushed to the output stream, wait on the event associated with the
/// kernel launch, or wait for the kernel launch to complete using a coarser-grained synchronization
/// method" (core programming guide, Formatted Output).
pub(super) fn ended(answer: Result<bool>) -> Result {
    printf::flush(matches!(answer, Ok(true)));
    ready(answer?)
}

/// Success, or ZE_RESULT_NOT_READY.
pub(super) fn ready(ready: bool) -> Result {
    if ready { Ok(()) } else { Err(Error::status(ze_result_t::ZE_RESULT_NOT_READY)) }
}

/// Checks the description of a queue or an immediate list.
pub(super) fn traits(
    call: Call<'_>,
    device: &'static Device,
    desc: *const ze_command_queue_desc_t,
    name: &'static str,
) -> Result<QueueTraits> {
    // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == desc`
    let desc = call.desc(desc, name)?;
    // ZE_RESULT_ERROR_INVALID_ENUMERATION: `0x7 < desc->flags`
    call.flags(desc.flags.has_unknown(), "desc->flags")?;
    let unknown =
        |what: String| Err(Error::new(ze_result_t::ZE_RESULT_ERROR_INVALID_ENUMERATION, what));
    // ZE_RESULT_ERROR_INVALID_ENUMERATION: `::ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS < desc->mode`
    if !desc.mode.is_known() {
        return unknown(format!("{name}->mode: {:?} is no mode", desc.mode));
    }
    // ZE_RESULT_ERROR_INVALID_ENUMERATION: `::ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_HIGH < desc->priority`
    if !desc.priority.is_known() {
        return unknown(format!("{name}->priority: {:?} is no priority", desc.priority));
    }
    Ok(QueueTraits::of(device, desc))
}

/// Looks up lists to execute on a queue.
pub(super) fn lists<'c>(
    call: Call<'c>,
    count: u32,
    raws: *const ze_command_list_handle_t,
    queue: &QueueTraits,
) -> Result<Vec<&'c crate::list::regular::Regular>> {
    // ZE_RESULT_ERROR_INVALID_SIZE: `0 == numCommandLists`
    if count == 0 {
        return Err(Error::new(
            ze_result_t::ZE_RESULT_ERROR_INVALID_SIZE,
            "numCommandLists: it is 0",
        ));
    }
    // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == phCommandLists`
    let raws = call.slice(raws, count as usize, "phCommandLists")?;
    let lists = raws.iter().map(|&raw| call.handle(raw, "phCommandLists")?.as_executable(queue));
    lists.collect()
}
