// SPDX-License-Identifier: MIT OR Apache-2.0
//! Event pools and events. Counter-based events have their creation in `event/counter_based.rs`.

use std::ffi::c_void;

use tally_ze::*;

use super::queue::{ended, ready};
use super::{Call, api};
use crate::checks;
use crate::core::device::Device;
use crate::core::event::Pool;
use crate::core::graph::capture;
use crate::core::host_clock;
use crate::error::{Error, Result};
use crate::handle;

pub mod counter_based;

api! {
    /// Spec: `zeEventPoolCreate`.
    fn zeEventPoolCreate(
        call,
        hContext: ze_context_handle_t,
        desc: *const ze_event_pool_desc_t,
        numDevices: u32,
        phDevices: *mut ze_device_handle_t,
        phEventPool: *mut ze_event_pool_handle_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hContext`
        let context = call.handle(hContext, "hContext")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == desc`
        let desc = call.desc(desc, "desc")?;
        // ZE_RESULT_ERROR_INVALID_ENUMERATION: `0xf < desc->flags`
        call.flags(desc.flags.has_unknown(), "desc->flags")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == phEventPool`
        let out = call.out(phEventPool, "phEventPool")?;
        use ze_event_pool_flags_t as pool;
        let times = pool::ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP
            | pool::ZE_EVENT_POOL_FLAG_KERNEL_MAPPED_TIMESTAMP;
        if desc.flags.contains(times) {
            return Err(Error::invalid(
                "desc->flags: KERNEL_TIMESTAMP cannot be combined with KERNEL_MAPPED_TIMESTAMP",
            ));
        }
        // ZE_RESULT_ERROR_INVALID_SIZE: `0 == desc->count`
        if desc.count == 0 {
            return Err(Error::new(ze_result_t::ZE_RESULT_ERROR_INVALID_SIZE, "desc->count: it is 0"));
        }
        if !phDevices.is_null() {
            for &device in call.slice(phDevices.cast_const(), numDevices as usize, "phDevices")? {
                context.must_hold(call.handle(device, "phDevices")?, "phDevices")?;
            }
        }
        let counter_based = pool_flags(call, desc)?;
        let pool = Pool::create(context, desc.flags, desc.count, counter_based)?;
        let raw: ze_event_pool_handle_t = handle::create(pool)?;
        call.handle(raw, "phEventPool")?.name(raw);
        if let Some(checks) = checks::get() {
            let visible = pool::ZE_EVENT_POOL_FLAG_HOST_VISIBLE;
            checks.event_pool(raw.0 as usize, desc.flags.contains(visible));
        }
        out.set(raw);
        Ok(())
    }

    /// Spec: `zeEventPoolDestroy`.
    fn zeEventPoolDestroy(call, hEventPool: ze_event_pool_handle_t) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hEventPool`
        call.take(hEventPool, "hEventPool")?.destroy();
        Ok(())
    }

    /// Spec: `zeEventPoolGetContextHandle`.
    fn zeEventPoolGetContextHandle(
        call,
        hEventPool: ze_event_pool_handle_t,
        phContext: *mut ze_context_handle_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hEventPool`
        let pool = call.handle(hEventPool, "hEventPool")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == phContext`
        call.out(phContext, "phContext")?.set(pool.context().raw());
        Ok(())
    }

    /// Spec: `zeEventPoolGetFlags`.
    fn zeEventPoolGetFlags(
        call,
        hEventPool: ze_event_pool_handle_t,
        pFlags: *mut ze_event_pool_flags_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hEventPool`
        let pool = call.handle(hEventPool, "hEventPool")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pFlags`
        call.out(pFlags, "pFlags")?.set(pool.flags());
        Ok(())
    }

    /// Spec: `zeEventCreate`.
    fn zeEventCreate(
        call,
        hEventPool: ze_event_pool_handle_t,
        desc: *const ze_event_desc_t,
        phEvent: *mut ze_event_handle_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hEventPool`
        let pool = call.handle(hEventPool, "hEventPool")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == desc`
        let desc = call.desc(desc, "desc")?;
        // ZE_RESULT_ERROR_INVALID_ENUMERATION: `0x7 < desc->signal`
        call.flags(desc.signal.has_unknown(), "desc->signal")?;
        // ZE_RESULT_ERROR_INVALID_ENUMERATION: `0x7 < desc->wait`
        call.flags(desc.wait.has_unknown(), "desc->wait")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == phEvent`
        let out = call.out(phEvent, "phEvent")?;
        let low_power = low_power(call, desc.pNext, pool.is_counter_based())?;
        out.set(handle::create(pool.event(desc, hEventPool, low_power)?)?);
        Ok(())
    }

    /// Spec: `zeEventDestroy`.
    fn zeEventDestroy(call, hEvent: ze_event_handle_t) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hEvent`
        call.destroy_event(hEvent, "hEvent")
    }

    /// Spec: `zeEventHostSignal`.
    fn zeEventHostSignal(call, hEvent: ze_event_handle_t) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hEvent`
        call.handle(hEvent, "hEvent")?.host_signal()
    }

    /// Spec: `zeEventHostReset`.
    fn zeEventHostReset(call, hEvent: ze_event_handle_t) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hEvent`
        call.handle(hEvent, "hEvent")?.host_reset()
    }

    /// Spec: `zeEventHostSynchronize`.
    fn zeEventHostSynchronize(call, hEvent: ze_event_handle_t, timeout: u64) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hEvent`
        let event = call.handle(hEvent, "hEvent")?;
        capture::must_not_be_captured(event)?;
        // ZE_RESULT_NOT_READY: timeout expired
        ended(event.wait(timeout))
    }

    /// Spec: `zeEventQueryStatus`.
    fn zeEventQueryStatus(call, hEvent: ze_event_handle_t) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hEvent`
        // ZE_RESULT_NOT_READY: not signaled
        ended(call.handle(hEvent, "hEvent")?.is_ready())
    }

    /// Spec: `zeEventQueryKernelTimestamp`.
    fn zeEventQueryKernelTimestamp(
        call,
        hEvent: ze_event_handle_t,
        dstptr: *mut ze_kernel_timestamp_result_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hEvent`
        let event = call.handle(hEvent, "hEvent")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == dstptr`
        let out = call.out(dstptr, "dstptr")?;
        match event.times()? {
            Some(times) => out.set(result(&times)),
            // ZE_RESULT_NOT_READY: not signaled
            None => ready(false)?,
        }
        Ok(())
    }

    /// Spec: `zeEventQueryTimestampsExp`. One command, one result.
    fn zeEventQueryTimestampsExp(
        call,
        hEvent: ze_event_handle_t,
        hDevice: ze_device_handle_t,
        pCount: *mut u32,
        pTimestamps: *mut ze_kernel_timestamp_result_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hEvent`
        let event = call.handle(hEvent, "hEvent")?;
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hDevice`
        call.handle(hDevice, "hDevice")?;
        match event.times()? {
            // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pCount`
            Some(times) => call.list(pCount, pTimestamps, "pCount", [result(&times)]),
            None => ready(false),
        }
    }

    /// Spec: `zeEventQueryKernelTimestampsExt`. One command, one result, also on the host's clock.
    fn zeEventQueryKernelTimestampsExt(
        call,
        hEvent: ze_event_handle_t,
        hDevice: ze_device_handle_t,
        pCount: *mut u32,
        pResults: *mut ze_event_query_kernel_timestamps_results_ext_properties_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hEvent`
        let event = call.handle(hEvent, "hEvent")?;
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hDevice`
        let device = call.handle(hDevice, "hDevice")?;
        let Some(times) = event.times()? else { return ready(false) };
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pCount`
        let count = call.in_out(pCount, "pCount")?;
        if *count == 0 || pResults.is_null() {
            *count = 1;
            return Ok(());
        }
        *count = 1;
        let results = call.properties(pResults, "pResults")?;
        let plain = result(&times);
        if let Some(out) = call.optional_out(results.pKernelTimestampsBuffer) {
            out.set(plain);
        }
        if let Some(out) = call.optional_out(results.pSynchronizedTimestampsBuffer) {
            out.set(synchronized(device, &plain)?);
        }
        Ok(())
    }

    /// Spec: `zeEventGetEventPool`.
    fn zeEventGetEventPool(
        call,
        hEvent: ze_event_handle_t,
        phEventPool: *mut ze_event_pool_handle_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hEvent`
        let event = call.handle(hEvent, "hEvent")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == phEventPool`
        let out = call.out(phEventPool, "phEventPool")?;
        event.check()?;
        match event.traits.pool {
            0 => Err(Error::invalid("hEvent: it was created without a pool")),
            pool => {
                out.set(ze_event_pool_handle_t(pool as *mut _));
                Ok(())
            }
        }
    }

    /// Spec: `zeEventGetSignalScope`.
    fn zeEventGetSignalScope(
        call,
        hEvent: ze_event_handle_t,
        pSignalScope: *mut ze_event_scope_flags_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hEvent`
        let event = call.handle(hEvent, "hEvent")?;
        let scope = ze_event_scope_flags_t::from_bits_retain(event.traits.signal_scope);
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pSignalScope`
        call.out(pSignalScope, "pSignalScope")?.set(scope);
        Ok(())
    }

    /// Spec: `zeEventGetWaitScope`.
    fn zeEventGetWaitScope(
        call,
        hEvent: ze_event_handle_t,
        pWaitScope: *mut ze_event_scope_flags_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hEvent`
        let event = call.handle(hEvent, "hEvent")?;
        let scope = ze_event_scope_flags_t::from_bits_retain(event.traits.wait_scope);
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pWaitScope`
        call.out(pWaitScope, "pWaitScope")?.set(scope);
        Ok(())
    }
}

/// The flags of a pool of counter-based events, if it is one.
fn pool_flags(
    call: Call<'_>,
    desc: &ze_event_pool_desc_t,
) -> Result<Option<ze_event_counter_based_flags_t>> {
    let extension = call
        .chain(desc.pNext)
        .find_map(|link| link.get::<ze_event_pool_counter_based_exp_desc_t>());
    let Some(extension) = extension else { return Ok(None) };
    call.flags(extension.flags.has_unknown(), "ze_event_pool_counter_based_exp_desc_t.flags")?;
    // The bits of the pool's flags are the first ones of the core flags.
    let flags = ze_event_counter_based_flags_t::from_bits_retain(extension.flags.bits());
    Ok(Some(counter_based::with_default(flags)))
}

/// Whether the host sleeps at once when it waits for an event with these extensions. An interrupt
/// at the signal needs no asking for: the device wakes every sleeper.
fn low_power(call: Call<'_>, next: *const c_void, counter_based: bool) -> Result<bool> {
    use ze_event_sync_mode_flags_t as mode;
    let mode = call.chain(next).find_map(|link| link.get::<ze_event_sync_mode_desc_t>());
    let Some(desc) = mode else { return Ok(false) };
    call.flags(desc.syncModeFlags.has_unknown(), "ze_event_sync_mode_desc_t.syncModeFlags")?;
    if desc.syncModeFlags.contains(mode::ZE_EVENT_SYNC_MODE_FLAG_EXTERNAL_INTERRUPT_WAIT) {
        let what = "ze_event_sync_mode_desc_t.syncModeFlags: EXTERNAL_INTERRUPT_WAIT";
        return Err(match counter_based {
            true => Error::unsupported(format!("{what}: the device has no external interrupts")),
            false => Error::invalid(format!("{what} is for counter-based events only")),
        });
    }
    Ok(desc.syncModeFlags.contains(mode::ZE_EVENT_SYNC_MODE_FLAG_LOW_POWER_WAIT))
}

fn result(times: &tally_uapi::packet::TimestampSlot) -> ze_kernel_timestamp_result_t {
    ze_kernel_timestamp_result_t {
        global: ze_kernel_timestamp_data_t {
            kernelStart: times.global_start,
            kernelEnd: times.global_end,
        },
        context: ze_kernel_timestamp_data_t {
            kernelStart: times.context_start,
            kernelEnd: times.context_end,
        },
    }
}

/// The same on the host's clock, that of [`host_clock`], in ns.
fn synchronized(
    device: &Device,
    times: &ze_kernel_timestamp_result_t,
) -> Result<ze_synchronized_timestamp_result_ext_t> {
    let pair = host_clock::pair(device)?;
    let hertz = u128::from(device.info().clock_hz.max(1));
    let host = |ticks: u64| {
        let since = u128::from(pair.device_ticks.abs_diff(ticks)) * 1_000_000_000 / hertz;
        let since = u64::try_from(since).unwrap_or(u64::MAX);
        if ticks >= pair.device_ticks {
            pair.host_ns.saturating_add(since)
        } else {
            pair.host_ns.saturating_sub(since)
        }
    };
    let data = |it: &ze_kernel_timestamp_data_t| ze_synchronized_timestamp_data_ext_t {
        kernelStart: host(it.kernelStart),
        kernelEnd: host(it.kernelEnd),
    };
    Ok(ze_synchronized_timestamp_result_ext_t {
        global: data(&times.global),
        context: data(&times.context),
    })
}
