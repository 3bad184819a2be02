// SPDX-License-Identifier: MIT OR Apache-2.0
//! Appends that only synchronise: barriers, signals, waits, resets, timestamps.

use std::ffi::c_void;

use tally_ze::*;

use super::{Events, append};
use crate::api::api;
use crate::error::{Error, Result};
use crate::list::command::{Command, Times};

api! {
    /// Spec: `zeCommandListAppendBarrier`.
    fn zeCommandListAppendBarrier(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        list @ hCommandList: ze_command_list_handle_t,
        events: Events,
    ) {
        append(call, list, &Command::Barrier, events)
    }

    /// Spec: `zeCommandListAppendMemoryRangesBarrier`. All memory is coherent, so it is a plain barrier.
    fn zeCommandListAppendMemoryRangesBarrier(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        list @ hCommandList: ze_command_list_handle_t,
        numRanges: u32,
        pRangeSizes: *const usize,
        pRanges: *mut *const c_void,
        events: Events,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pRangeSizes`
        call.read(pRangeSizes, "pRangeSizes")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pRanges`
        call.read(pRanges.cast_const(), "pRanges")?;
        call.slice(pRanges.cast_const(), numRanges as usize, "pRanges")?;
        append(call, list, &Command::Barrier, events)
    }

    /// Spec: `zeCommandListAppendSignalEvent`.
    fn zeCommandListAppendSignalEvent(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        list @ hCommandList: ze_command_list_handle_t,
        hEvent: ze_event_handle_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hEvent`
        call.handle(hEvent, "hEvent")?;
        append(call, list, &Command::Signal, Events::of_signal(hEvent))
    }

    /// Spec: `zeCommandListAppendWaitOnEvents`.
    fn zeCommandListAppendWaitOnEvents(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        list @ hCommandList: ze_command_list_handle_t,
        numEvents: u32,
        phEvents: *mut ze_event_handle_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == phEvents`
        call.read(phEvents.cast_const(), "phEvents")?;
        let signal = ze_event_handle_t::NULL;
        append(call, list, &Command::Wait, Events { signal, count: numEvents, waits: phEvents })
    }

    /// Spec: `zeCommandListAppendEventReset`.
    fn zeCommandListAppendEventReset(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        list @ hCommandList: ze_command_list_handle_t,
        hEvent: ze_event_handle_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hEvent`
        let event = call.handle(hEvent, "hEvent")?;
        append(call, list, &Command::Reset(event), Events::none())
    }

    /// Spec: `zeCommandListAppendWriteGlobalTimestamp`.
    fn zeCommandListAppendWriteGlobalTimestamp(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        list @ hCommandList: ze_command_list_handle_t,
        dstptr: *mut u64,
        events: Events,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == dstptr`
        call.out(dstptr, "dstptr")?;
        let dst = dstptr as u64;
        if !dst.is_multiple_of(8) {
            return Err(Error::new(
                ze_result_t::ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT,
                format!("dstptr: {dst:#x} is not aligned to 8 bytes"),
            ));
        }
        append(call, list, &Command::Clock(dst), events)
    }

    /// Spec: `zeCommandListAppendQueryKernelTimestamps`. This call decides which append's times an event
    /// refers to; they are copied when the command runs.
    fn zeCommandListAppendQueryKernelTimestamps(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        list @ hCommandList: ze_command_list_handle_t,
        numEvents: u32,
        phEvents: *mut ze_event_handle_t,
        dstptr: *mut c_void,
        pOffsets: *const usize,
        events: Events,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == phEvents`
        call.read(phEvents.cast_const(), "phEvents")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == dstptr`
        call.out(dstptr, "dstptr")?;
        let count = numEvents as usize;
        let raws = call.slice(phEvents.cast_const(), count, "phEvents")?;
        let offsets = if pOffsets.is_null() {
            None
        } else {
            Some(call.slice(pOffsets, count, "pOffsets")?)
        };
        let place = |i: usize| offsets.map_or(i * size_of::<ze_kernel_timestamp_result_t>(), |it| it[i]);
        let times = raws.iter().enumerate().map(|(i, &raw)| {
            let (slot, timestamp) = call.handle(raw, "phEvents")?.slot()?;
            Ok(Times { slot, timestamp, dst: (dstptr as u64).wrapping_add(place(i) as u64) })
        });
        let times: Vec<Times> = times.collect::<Result<_>>()?;
        append(call, list, &Command::Times(&times), events)
    }
}
