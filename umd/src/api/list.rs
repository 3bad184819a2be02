// SPDX-License-Identifier: MIT OR Apache-2.0
//! Command lists: their creation, use and properties. The appends are in the folder `list`.

use std::ffi::c_void;

use tally_ze::*;

use super::queue::{ended, lists, traits};
use super::{Call, api};
use crate::core::list::List;
use crate::error::{Error, Result};
use crate::handle;
use crate::list::command::Command;
use crate::list::fast_path::{self, Single};
use crate::list::target::Signal;
use crate::sync::event::Event;

pub mod copy;
pub mod event;
pub mod host;
pub mod image;
pub mod launch;
pub mod mutable;
pub mod semaphore;

api! {
    /// Spec: `zeCommandListCreate`.
    fn zeCommandListCreate(
        call,
        hContext: ze_context_handle_t,
        hDevice: ze_device_handle_t,
        desc: *const ze_command_list_desc_t,
        phCommandList: *mut ze_command_list_handle_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hContext`
        let context = call.handle(hContext, "hContext")?;
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hDevice`
        let device = call.handle(hDevice, "hDevice")?;
        context.must_hold(device, "hDevice")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == desc`
        let desc = call.desc(desc, "desc")?;
        // ZE_RESULT_ERROR_INVALID_ENUMERATION: `0x3f < desc->flags`
        call.flags(desc.flags.has_unknown(), "desc->flags")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == phCommandList`
        let out = call.out(phCommandList, "phCommandList")?;
        let is_mutable = mutable::is_asked(call, desc.pNext)?;
        let ordinal = desc.commandQueueGroupOrdinal;
        let list = List::regular(context, device, ordinal, desc.flags, is_mutable)?;
        out.set(named(call, list)?);
        Ok(())
    }

    /// Spec: `zeCommandListCreateImmediate`.
    fn zeCommandListCreateImmediate(
        call,
        hContext: ze_context_handle_t,
        hDevice: ze_device_handle_t,
        altdesc: *const ze_command_queue_desc_t,
        phCommandList: *mut ze_command_list_handle_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hContext`
        let context = call.handle(hContext, "hContext")?;
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hDevice`
        let device = call.handle(hDevice, "hDevice")?;
        context.must_hold(device, "hDevice")?;
        let traits = traits(call, device, altdesc, "altdesc")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == phCommandList`
        let out = call.out(phCommandList, "phCommandList")?;
        out.set(named(call, List::immediate(context, traits)?)?);
        Ok(())
    }

    /// Spec: `zeCommandListCreateCloneExp`.
    fn zeCommandListCreateCloneExp(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        list @ hCommandList: ze_command_list_handle_t,
        phClonedCommandList: *mut ze_command_list_handle_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == phClonedCommandList`
        let out = call.out(phClonedCommandList, "phClonedCommandList")?;
        out.set(named(call, list.duplicate()?)?);
        Ok(())
    }

    /// Spec: `zeCommandListDestroy`. Submitted commands still complete.
    fn zeCommandListDestroy(call, hCommandList: ze_command_list_handle_t) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        call.take(hCommandList, "hCommandList")?.destroy();
        Ok(())
    }

    /// Spec: `zeCommandListClose`.
    fn zeCommandListClose(call, list @ hCommandList: ze_command_list_handle_t) {
        list.close()
    }

    /// Spec: `zeCommandListReset`.
    fn zeCommandListReset(call, list @ hCommandList: ze_command_list_handle_t) {
        list.reset()
    }

    /// Spec: `zeCommandListHostSynchronize`.
    fn zeCommandListHostSynchronize(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        list @ hCommandList: ze_command_list_handle_t,
        timeout: u64,
    ) {
        list.must_not_be_captured()?;
        // ZE_RESULT_ERROR_INVALID_ARGUMENT: handle does not correspond to an immediate command list
        let (_, list) = list.as_immediate()?;
        // ZE_RESULT_NOT_READY: timeout expired
        ended(list.synchronize(timeout))
    }

    /// Spec: `zeCommandListImmediateAppendCommandListsExp`.
    fn zeCommandListImmediateAppendCommandListsExp(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandListImmediate`
        list @ hCommandListImmediate: ze_command_list_handle_t,
        numCommandLists: u32,
        phCommandLists: *mut ze_command_list_handle_t,
        events: Events,
    ) {
        let (queue, _) = list.as_immediate()?;
        let lists = lists(call, numCommandLists, phCommandLists, queue)?;
        append(call, list, &Command::Lists(&lists), events)
    }

    /// Spec: `zeCommandListImmediateAppendCommandListsWithParameters`.
    fn zeCommandListImmediateAppendCommandListsWithParameters(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandListImmediate`
        list @ hCommandListImmediate: ze_command_list_handle_t,
        numCommandLists: u32,
        phCommandLists: *mut ze_command_list_handle_t,
        pNext: *const c_void,
        events: Events,
    ) {
        // ZE_RESULT_ERROR_UNSUPPORTED_FEATURE: an extension passed via pNext is not supported
        no_extensions(call, pNext)?;
        let (queue, _) = list.as_immediate()?;
        let lists = lists(call, numCommandLists, phCommandLists, queue)?;
        append(call, list, &Command::Lists(&lists), events)
    }

    /// Spec: `zeCommandListGetDeviceHandle`.
    fn zeCommandListGetDeviceHandle(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        list @ hCommandList: ze_command_list_handle_t,
        phDevice: *mut ze_device_handle_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == phDevice`
        call.out(phDevice, "phDevice")?.set(list.device().raw());
        Ok(())
    }

    /// Spec: `zeCommandListGetContextHandle`.
    fn zeCommandListGetContextHandle(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        list @ hCommandList: ze_command_list_handle_t,
        phContext: *mut ze_context_handle_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == phContext`
        call.out(phContext, "phContext")?.set(list.context().raw());
        Ok(())
    }

    /// Spec: `zeCommandListGetOrdinal`.
    fn zeCommandListGetOrdinal(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        list @ hCommandList: ze_command_list_handle_t,
        pOrdinal: *mut u32,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pOrdinal`
        call.out(pOrdinal, "pOrdinal")?.set(list.ordinal());
        Ok(())
    }

    /// Spec: `zeCommandListIsImmediate`.
    fn zeCommandListIsImmediate(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        list @ hCommandList: ze_command_list_handle_t,
        pIsImmediate: *mut ze_bool_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pIsImmediate`
        call.out(pIsImmediate, "pIsImmediate")?.set(list.is_immediate().into());
        Ok(())
    }

    /// Spec: `zeCommandListGetFlags`.
    fn zeCommandListGetFlags(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        list @ hCommandList: ze_command_list_handle_t,
        pFlags: *mut ze_command_list_flags_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pFlags`
        call.out(pFlags, "pFlags")?.set(list.flags());
        Ok(())
    }

    /// Spec: `zeCommandListImmediateGetIndex`.
    fn zeCommandListImmediateGetIndex(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandListImmediate`
        list @ hCommandListImmediate: ze_command_list_handle_t,
        pIndex: *mut u32,
    ) {
        // ZE_RESULT_ERROR_INVALID_ARGUMENT: handle does not correspond to an immediate command list
        let (traits, _) = list.as_immediate()?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pIndex`
        call.out(pIndex, "pIndex")?.set(traits.index);
        Ok(())
    }

    /// Spec: `zeCommandListImmediateGetFlags`.
    fn zeCommandListImmediateGetFlags(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        list @ hCommandList: ze_command_list_handle_t,
        pFlags: *mut ze_command_queue_flags_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_ARGUMENT: handle does not correspond to an immediate command list
        let (traits, _) = list.as_immediate()?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pFlags`
        call.out(pFlags, "pFlags")?.set(traits.flags);
        Ok(())
    }

    /// Spec: `zeCommandListImmediateGetMode`.
    fn zeCommandListImmediateGetMode(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        list @ hCommandList: ze_command_list_handle_t,
        pMode: *mut ze_command_queue_mode_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pMode`
        call.out(pMode, "pMode")?.set(list.mode()?);
        Ok(())
    }

    /// Spec: `zeCommandListImmediateGetPriority`.
    fn zeCommandListImmediateGetPriority(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        list @ hCommandList: ze_command_list_handle_t,
        pPriority: *mut ze_command_queue_priority_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pPriority`
        call.out(pPriority, "pPriority")?.set(list.priority()?);
        Ok(())
    }
}

/// A new handle for a list, by which the hang report names the list.
fn named(call: Call<'_>, list: List) -> Result<ze_command_list_handle_t> {
    let raw: ze_command_list_handle_t = handle::create(list)?;
    call.handle(raw, "phCommandList")?.name(raw);
    Ok(raw)
}

/// The events of an append, as the caller passed them.
#[derive(Clone, Copy)]
pub(super) struct Events {
    pub signal: ze_event_handle_t,
    pub count: u32,
    pub waits: *const ze_event_handle_t,
}

impl Events {
    /// Only a signal event.
    pub fn of_signal(signal: ze_event_handle_t) -> Self {
        Self { signal, count: 0, waits: std::ptr::null() }
    }

    /// No events.
    pub fn none() -> Self {
        Self::of_signal(ze_event_handle_t::NULL)
    }

    #[inline]
    fn signal<'c>(&self, call: Call<'c>) -> Result<Option<Signal<'c>>> {
        let found = call.optional(self.signal, "hSignalEvent")?;
        Ok(found.map(|event| Signal { event, raw: self.signal }))
    }

    #[inline]
    fn waits<'c>(
        &self,
        call: Call<'c>,
    ) -> Result<impl ExactSizeIterator<Item = Result<&'c Event>> + use<'c>> {
        // ZE_RESULT_ERROR_INVALID_SIZE: `(nullptr == phWaitEvents) && (0 < numWaitEvents)`
        if self.waits.is_null() && self.count != 0 {
            return Err(Error::new(
                ze_result_t::ZE_RESULT_ERROR_INVALID_SIZE,
                "numWaitEvents: it is not 0, but phWaitEvents is null",
            ));
        }
        let raws = call.slice(self.waits, self.count as usize, "phWaitEvents")?;
        Ok(raws.iter().map(move |&raw| call.handle(raw, "phWaitEvents")))
    }
}

/// Looks up the events and appends a command, by the fast path if there is one; in synchronous mode waits for
/// it. `command` is known at each call, so only the arm that it needs remains there.
#[inline(always)]
pub(super) fn append(call: Call<'_>, list: &List, command: &Command<'_>, events: Events) -> Result {
    let is_appended = match *command {
        Command::Copy { dst, src, size } => {
            append_fast(call, list, &fast_path::Copy { dst, src, size }, events)?
        }
        Command::Fill { dst, size, pattern } => {
            append_fast(call, list, &fast_path::Fill { dst, size, pattern }, events)?
        }
        _ => false,
    };
    if !is_appended {
        append_general(call, list, command, events)?;
    }
    list.settle()
}

/// Looks up the events and appends a command by the fast path, without the wait of synchronous mode. False: the
/// command has to take the general path.
#[inline(always)]
pub(super) fn append_fast(
    call: Call<'_>,
    list: &List,
    command: &impl Single,
    events: Events,
) -> Result<bool> {
    list.append_fast(command, events.signal(call)?, events.waits(call)?)
}

/// Looks up the events and appends a command by the general path, without the wait of synchronous mode.
#[inline]
fn append_general(call: Call<'_>, list: &List, command: &Command<'_>, events: Events) -> Result {
    let mut waits = events.waits(call)?;
    list.append(command, events.signal(call)?, &mut waits)
}

/// Refuses extensions of an append, since none is known.
pub(super) fn no_extensions(call: Call<'_>, next: *const c_void) -> Result {
    match call.chain(next).next() {
        None => Ok(()),
        Some(link) => {
            Err(Error::unsupported(format!("pNext: {:?} is not supported", link.stype())))
        }
    }
}
