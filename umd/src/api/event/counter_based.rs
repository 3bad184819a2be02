// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counter-based events without a pool: the core functions, and the experimental ones before them.

use std::ffi::c_void;
use std::sync::Arc;

use tally_ze::zex::{
    zex_counter_based_event_desc_t, zex_counter_based_event_exp_flags_t,
    zex_counter_based_event_external_storage_properties_t,
    zex_counter_based_event_external_sync_alloc_properties_t,
};
use tally_ze::*;

use super::low_power;
use crate::api::{Call, Out, api};
use crate::checks::{self, Checks};
use crate::core::context::Context;
use crate::error::{Error, Result};
use crate::handle;
use crate::sync::cb_event::{CbEvent, External, HostWord};
use crate::sync::event::{Event, EventKind, Traits};
use crate::sync::shared::Shared;

/// Counters and the user's words have 64 bits.
const MAX_VALUE: u64 = u64::MAX;

/// An append to a list is one operation of the device, even a large copy, since no engine splits it.
const APPEND_INCREMENT: u32 = 1;

api! {
    /// Spec: `zeEventCounterBasedCreate`.
    fn zeEventCounterBasedCreate(
        call,
        hContext: ze_context_handle_t,
        hDevice: ze_device_handle_t,
        desc: *const ze_event_counter_based_desc_t,
        phEvent: *mut ze_event_handle_t,
    ) {
        let context = context(call, hContext, hDevice)?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == phEvent`
        let out = call.out(phEvent, "phEvent")?;
        let default = ze_event_counter_based_desc_t::default();
        let desc = call.optional_desc(desc, "desc")?.unwrap_or(&default);
        // ZE_RESULT_ERROR_INVALID_ENUMERATION: `0x7f < desc->flags`
        call.flags(desc.flags.has_unknown(), "desc->flags")?;
        let (words, low_power) = extensions(call, desc.pNext)?;
        let request = Request {
            flags: with_default(desc.flags),
            signal: desc.signal,
            wait: desc.wait,
            words,
            low_power,
        };
        create(call, context, request, out)
    }

    /// Spec: `zeEventCounterBasedGetDeviceAddress`.
    fn zeEventCounterBasedGetDeviceAddress(
        call,
        hEvent: ze_event_handle_t,
        completionValue: *mut u64,
        deviceAddress: *mut u64,
    ) {
        address(call, hEvent, (completionValue, "completionValue"), (deviceAddress, "deviceAddress"))
    }

    /// Spec: `zeEventGetCounterBasedFlags`. Empty for an event that is not counter-based.
    fn zeEventGetCounterBasedFlags(
        call,
        hEvent: ze_event_handle_t,
        pFlags: *mut ze_event_counter_based_flags_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hEvent`
        let event = call.handle(hEvent, "hEvent")?;
        let flags = ze_event_counter_based_flags_t::from_bits_retain(event.traits.cb_flags);
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pFlags`
        call.out(pFlags, "pFlags")?.set(flags);
        Ok(())
    }

    /// Spec: `zeDeviceGetCounterBasedEventMaxValue`.
    fn zeDeviceGetCounterBasedEventMaxValue(
        call,
        hDevice: ze_device_handle_t,
        maxValue: *mut u64,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hDevice`
        call.handle(hDevice, "hDevice")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == maxValue`
        call.out(maxValue, "maxValue")?.set(MAX_VALUE);
        Ok(())
    }

    /// Spec: `zeDeviceGetAggregatedCopyOffloadIncrementValue`.
    fn zeDeviceGetAggregatedCopyOffloadIncrementValue(
        call,
        hDevice: ze_device_handle_t,
        incrementValue: *mut u32,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hDevice`
        call.handle(hDevice, "hDevice")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == incrementValue`
        call.out(incrementValue, "incrementValue")?.set(APPEND_INCREMENT);
        Ok(())
    }

    /// Spec: `zexDeviceGetAggregatedCopyOffloadIncrementValue`.
    fn zexDeviceGetAggregatedCopyOffloadIncrementValue(
        call,
        hDevice: ze_device_handle_t,
        incrementValue: *mut u32,
    ) {
        call.handle(hDevice, "hDevice")?;
        call.out(incrementValue, "incrementValue")?.set(APPEND_INCREMENT);
        Ok(())
    }

    /// Spec: `zexCounterBasedEventCreate2`.
    fn zexCounterBasedEventCreate2(
        call,
        hContext: ze_context_handle_t,
        hDevice: ze_device_handle_t,
        desc: *const zex_counter_based_event_desc_t,
        phEvent: *mut ze_event_handle_t,
    ) {
        use zex_counter_based_event_exp_flags_t as zex;
        let context = context(call, hContext, hDevice)?;
        let desc = call.desc(desc, "desc")?;
        let out = call.out(phEvent, "phEvent")?;
        call.flags(desc.flags.has_unknown(), "desc->flags")?;
        let kinds = zex::ZEX_COUNTER_BASED_EVENT_FLAG_IMMEDIATE
            | zex::ZEX_COUNTER_BASED_EVENT_FLAG_NON_IMMEDIATE;
        if !desc.flags.intersects(kinds) {
            return Err(Error::invalid(
                "desc->flags: one of the flags IMMEDIATE and NON_IMMEDIATE must be set",
            ));
        }
        let (words, low_power) = extensions(call, desc.pNext)?;
        let request = Request {
            // The bits have the same places; only the names of bits 4 to 6 differ.
            flags: ze_event_counter_based_flags_t::from_bits_retain(desc.flags.bits()),
            signal: desc.signalScope,
            wait: desc.waitScope,
            words,
            low_power,
        };
        create(call, context, request, out)
    }

    /// Spec: `zexCounterBasedEventCreate`.
    fn zexCounterBasedEventCreate(
        call,
        hContext: ze_context_handle_t,
        hDevice: ze_device_handle_t,
        deviceAddress: *mut u64,
        hostAddress: *mut u64,
        completionValue: u64,
        desc: *const ze_event_desc_t,
        phEvent: *mut ze_event_handle_t,
    ) {
        use ze_event_counter_based_flags_t as ze;
        let context = context(call, hContext, hDevice)?;
        let desc = call.desc(desc, "desc")?;
        let out = call.out(phEvent, "phEvent")?;
        let external = if deviceAddress.is_null() && hostAddress.is_null() {
            None
        } else {
            Some(external(deviceAddress, hostAddress, completionValue)?)
        };
        let request = Request {
            flags: ze::ZE_EVENT_COUNTER_BASED_FLAG_IMMEDIATE
                | ze::ZE_EVENT_COUNTER_BASED_FLAG_NON_IMMEDIATE
                | ze::ZE_EVENT_COUNTER_BASED_FLAG_HOST_VISIBLE,
            signal: desc.signal,
            wait: desc.wait,
            words: external.map(|word| Box::new(Words { external: Some(word), aggregate: None })),
            low_power: low_power(call, desc.pNext, true)?,
        };
        create(call, context, request, out)
    }

    /// Spec: `zexEventGetDeviceAddress`.
    fn zexEventGetDeviceAddress(
        call,
        event: ze_event_handle_t,
        completionValue: *mut u64,
        address: *mut u64,
    ) {
        self::address(call, event, (completionValue, "completionValue"), (address, "address"))
    }
}

/// The common part of all forms of creation.
struct Request {
    flags: ze_event_counter_based_flags_t,
    signal: ze_event_scope_flags_t,
    wait: ze_event_scope_flags_t,
    /// Boxed, since hardly any event has them and they would be copied at each call.
    words: Option<Box<Words>>,
    low_power: bool,
}

/// Memory of the user that an event follows.
#[derive(Default)]
struct Words {
    external: Option<External>,
    aggregate: Option<(External, u64)>,
}

/// The flags with their default: neither kind of list means immediate lists.
pub fn with_default(flags: ze_event_counter_based_flags_t) -> ze_event_counter_based_flags_t {
    use ze_event_counter_based_flags_t as ze;
    let kinds =
        ze::ZE_EVENT_COUNTER_BASED_FLAG_IMMEDIATE | ze::ZE_EVENT_COUNTER_BASED_FLAG_NON_IMMEDIATE;
    if flags.intersects(kinds) { flags } else { flags | ze::ZE_EVENT_COUNTER_BASED_FLAG_IMMEDIATE }
}

#[inline(always)]
fn context<'c>(
    call: Call<'c>,
    context: ze_context_handle_t,
    device: ze_device_handle_t,
) -> Result<&'c Context> {
    // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hContext`
    let context = call.handle(context, "hContext")?;
    // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hDevice`
    context.must_hold(call.handle(device, "hDevice")?, "hDevice")?;
    Ok(context)
}

#[inline(always)]
fn create(
    call: Call<'_>,
    context: &Context,
    request: Request,
    out: Out<'_, ze_event_handle_t>,
) -> Result {
    use ze_event_counter_based_flags_t as ze;
    // ZE_RESULT_ERROR_INVALID_ENUMERATION: `0x7 < desc->signal`
    call.flags(request.signal.has_unknown(), "desc->signal")?;
    // ZE_RESULT_ERROR_INVALID_ENUMERATION: `0x7 < desc->wait`
    call.flags(request.wait.has_unknown(), "desc->wait")?;
    let times = ze::ZE_EVENT_COUNTER_BASED_FLAG_DEVICE_TIMESTAMP
        | ze::ZE_EVENT_COUNTER_BASED_FLAG_HOST_TIMESTAMP;
    if request.flags.contains(times) {
        return Err(Error::invalid(
            "desc->flags: times of the device cannot be combined with times of the host",
        ));
    }
    let timestamps = request.flags.intersects(times);
    if timestamps && request.flags.contains(ze::ZE_EVENT_COUNTER_BASED_FLAG_IPC) {
        return Err(Error::invalid("desc->flags: an event with times cannot be shared"));
    }
    let traits = Traits {
        signal_scope: request.signal.bits(),
        wait_scope: request.wait.bits(),
        cb_flags: request.flags.bits(),
        timestamps,
        low_power: request.low_power,
        ..Traits::default()
    };
    let shared = context.shared();
    let event = match request.words {
        None => Event::create_of_counters(shared, traits)?,
        Some(words) => following(shared, *words, traits)?,
    };
    out.set(event);
    Ok(())
}

/// An event that follows the user's memory.
#[cold]
fn following(shared: &Arc<Shared>, words: Words, traits: Traits) -> Result<ze_event_handle_t> {
    let vm = shared.vm();
    if words.external.is_some() || words.aggregate.is_some() {
        // The driver does not see the writes to the words, nor the writes that they signal.
        vm.make_all_coherent()?;
    }
    if let Some(order) = checks::get().and_then(Checks::order) {
        let all = words.external.iter().chain(words.aggregate.iter().map(|it| &it.0));
        all.for_each(|word| order.word_begins(word.device, word.value, true));
    }
    let event = match words {
        Words { external: None, aggregate: None } => CbEvent::completed(),
        Words { external: Some(word), aggregate: None } => CbEvent::external(word),
        Words { external: None, aggregate: Some((storage, increment)) } => {
            CbEvent::aggregate(storage, increment)
        }
        Words { .. } => {
            return Err(Error::invalid(
                "desc->pNext: an event has either an external allocation or an external storage",
            ));
        }
    };
    handle::create(Event::new(shared, EventKind::CounterBased(event), traits, None))
}

fn address(
    call: Call<'_>,
    event: ze_event_handle_t,
    value: (*mut u64, &'static str),
    address: (*mut u64, &'static str),
) -> Result {
    // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hEvent`
    let event = call.handle(event, "hEvent")?;
    // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == completionValue`
    // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == deviceAddress`
    let (value, address) = (call.out(value.0, value.1)?, call.out(address.0, address.1)?);
    let (at, until) = event.address()?;
    if let Some(order) = checks::get().and_then(Checks::order) {
        order.host_reads_words();
    }
    if event.traits.is_seen_by_host() {
        // A thread that waits there must see the writes before the signal.
        event.shared().vm().make_all_coherent()?;
    }
    value.set(until);
    address.set(at);
    Ok(())
}

/// Reads the extensions of a description: the user's memory, and whether waits sleep at once.
#[inline(always)]
fn extensions(call: Call<'_>, next: *const c_void) -> Result<(Option<Box<Words>>, bool)> {
    if next.is_null() {
        return Ok((None, false));
    }
    Ok((Some(words(call, next)?), low_power(call, next, true)?))
}

fn words(call: Call<'_>, next: *const c_void) -> Result<Box<Words>> {
    let mut words = Box::<Words>::default();
    for link in call.chain(next) {
        if let Some(it) = link.get::<ze_event_counter_based_external_sync_allocation_desc_t>() {
            words.external = Some(external(it.deviceAddress, it.hostAddress, it.completionValue)?);
        } else if let Some(it) =
            link.get::<zex_counter_based_event_external_sync_alloc_properties_t>()
        {
            words.external = Some(external(it.deviceAddress, it.hostAddress, it.completionValue)?);
        } else if let Some(it) =
            link.get::<ze_event_counter_based_external_aggregate_storage_desc_t>()
        {
            words.aggregate =
                Some(aggregate(it.deviceAddress, it.incrementValue, it.completionValue)?);
        } else if let Some(it) = link.get::<zex_counter_based_event_external_storage_properties_t>()
        {
            words.aggregate =
                Some(aggregate(it.deviceAddress, it.incrementValue, it.completionValue)?);
        }
    }
    Ok(words)
}

fn aggregate(storage: *mut u64, increment: u64, value: u64) -> Result<(External, u64)> {
    if increment == 0 {
        return Err(Error::invalid("incrementValue: it is 0, so no signal would ever count"));
    }
    Ok((external(storage, storage, value)?, increment))
}

fn external(device: *mut u64, host: *mut u64, value: u64) -> Result<External> {
    for (address, name) in [(device, "deviceAddress"), (host, "hostAddress")] {
        if address.is_null() {
            return Err(Error::new(
                ze_result_t::ZE_RESULT_ERROR_INVALID_NULL_POINTER,
                format!("{name}: the pointer is null"),
            ));
        }
        if !(address as u64).is_multiple_of(8) {
            return Err(Error::new(
                ze_result_t::ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT,
                format!("{name}: {address:p} is not aligned to 8 bytes"),
            ));
        }
        if let Some(checks) = checks::get() {
            checks.is_for_both(address as u64);
        }
        if !HostWord::is_there(address as u64) {
            return Err(Error::invalid(format!("{name}: there is no memory at {address:p}")));
        }
    }
    // SAFETY: aligned, and the specification has the caller keep the word as long as the event.
    let host = unsafe { HostWord::new(host as u64) };
    Ok(External { device: device as u64, host, value })
}
