// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ways to create an event, and to destroy it.

use std::ffi::c_void;
use std::ptr;

use super::{Word, answer, world};
use crate::call;
use crate::lists::NONE;
use crate::peer::HandleBytes;
use crate::program::backend::Answered;
use crate::ze::Gpu;
use tally_ze::zex::*;
use tally_ze::*;

/// An event, and the objects that are destroyed with it.
#[derive(Clone, Copy)]
pub(super) struct Made {
    pub(super) event: ze_event_handle_t,
    pub(super) end: End,
}

/// The call that destroys an event that is no longer needed.
#[derive(Clone, Copy)]
pub(super) enum End {
    /// zeEventDestroy.
    Event,
    /// The same, and the pool that was created for it.
    Pool(ze_event_pool_handle_t),
    /// The same, after zeEventPoolPutIpcHandle.
    SharedPool(ze_event_pool_handle_t, HandleBytes),
    /// zexCounterBasedEventCloseIpcHandle.
    CloseZex,
    /// zeEventCounterBasedCloseIpcHandle.
    CloseCore,
}

impl Made {
    pub(super) fn end(self) -> Answered<()> {
        let Self { event, end } = self;
        match end {
            End::CloseZex => {
                let result = call!(zexCounterBasedEventCloseIpcHandle(event));
                return answer("zexCounterBasedEventCloseIpcHandle", result);
            }
            End::CloseCore => {
                let result = call!(zeEventCounterBasedCloseIpcHandle(event));
                return answer("zeEventCounterBasedCloseIpcHandle", result);
            }
            End::Event | End::Pool(_) | End::SharedPool(..) => {}
        }
        answer("zeEventDestroy", call!(zeEventDestroy(event)))?;
        if let End::SharedPool(_, data) = end {
            let (context, handle) = (world().gpu.context, ze_ipc_event_pool_handle_t { data });
            let result = call!(zeEventPoolPutIpcHandle(context, handle));
            answer("zeEventPoolPutIpcHandle", result)?;
        }
        match end {
            End::Pool(pool) | End::SharedPool(pool, _) => {
                answer("zeEventPoolDestroy", call!(zeEventPoolDestroy(pool)))
            }
            End::Event | End::CloseZex | End::CloseCore => Ok(()),
        }
    }
}

/// A regular event of a pool that other processes may open.
pub(super) fn shared_event() -> Answered<Made> {
    let made = pool_event(None, ze_event_pool_flags_t::ZE_EVENT_POOL_FLAG_IPC)?;
    let End::Pool(pool) = made.end else { return Ok(made) };
    let mut handle = ze_ipc_event_pool_handle_t::default();
    let result = call!(zeEventPoolGetIpcHandle(pool, &raw mut handle));
    answer("zeEventPoolGetIpcHandle", result)?;
    Ok(Made { end: End::SharedPool(pool, handle.data), ..made })
}

/// A regular event with times on the device's clock, or on the host's too.
pub(super) fn regular_timed(mapped: bool) -> Answered<Made> {
    use ze_event_pool_flags_t as flag;
    let times = match mapped {
        true => flag::ZE_EVENT_POOL_FLAG_KERNEL_MAPPED_TIMESTAMP,
        false => flag::ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP,
    };
    pool_event(None, times)
}

/// A counter-based event, created in one of three ways, that other processes may open.
pub(super) fn counter_based(way: usize) -> Answered<Made> {
    let sharing = super::can_share();
    match way {
        0 => {
            let flags = ze_event_pool_counter_based_exp_flags_t::all();
            let mut more = ze_event_pool_flags_t::empty();
            more.set(ze_event_pool_flags_t::ZE_EVENT_POOL_FLAG_IPC, sharing);
            pool_event(Some(flags), more)
        }
        1 => {
            let mut more = ze_event_counter_based_flags_t::empty();
            more.set(ze_event_counter_based_flags_t::ZE_EVENT_COUNTER_BASED_FLAG_IPC, sharing);
            core_event(ptr::null(), more)
        }
        _ => {
            use zex_counter_based_event_exp_flags_t as flag;
            let mut more = flag::empty();
            more.set(flag::ZEX_COUNTER_BASED_EVENT_FLAG_IPC, sharing);
            zex_event(ptr::null(), more)
        }
    }
}

/// A counter-based event with times on the device's clock, or on the host's too.
pub(super) fn timed(way: usize, mapped: bool) -> Answered<Made> {
    match way {
        0 => {
            use ze_event_pool_flags_t as flag;
            let flags = ze_event_pool_counter_based_exp_flags_t::all();
            pool_event(
                Some(flags),
                match mapped {
                    true => flag::ZE_EVENT_POOL_FLAG_KERNEL_MAPPED_TIMESTAMP,
                    false => flag::ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP,
                },
            )
        }
        1 => {
            use ze_event_counter_based_flags_t as flag;
            let flag = match mapped {
                true => flag::ZE_EVENT_COUNTER_BASED_FLAG_HOST_TIMESTAMP,
                false => flag::ZE_EVENT_COUNTER_BASED_FLAG_DEVICE_TIMESTAMP,
            };
            core_event(ptr::null(), flag)
        }
        _ => {
            use zex_counter_based_event_exp_flags_t as flag;
            let flag = match mapped {
                true => flag::ZEX_COUNTER_BASED_EVENT_FLAG_KERNEL_MAPPED_TIMESTAMP,
                false => flag::ZEX_COUNTER_BASED_EVENT_FLAG_KERNEL_TIMESTAMP,
            };
            zex_event(ptr::null(), flag)
        }
    }
}

/// The handle of an event for other processes, and whether it is that of the core function.
pub(super) fn handle_of(event: ze_event_handle_t, core: bool) -> Answered<HandleBytes> {
    if core {
        let mut handle = ze_ipc_event_counter_based_handle_t::default();
        let result = call!(zeEventCounterBasedGetIpcHandle(event, &raw mut handle));
        answer("zeEventCounterBasedGetIpcHandle", result)?;
        return Ok(handle.data);
    }
    let mut handle = zex_ipc_counter_based_event_handle_t { data: [0; 64] };
    let result = call!(zexCounterBasedEventGetIpcHandle(event, &raw mut handle));
    answer("zexCounterBasedEventGetIpcHandle", result)?;
    Ok(handle.data)
}

/// An event opened from such a handle.
pub(super) fn open(context: ze_context_handle_t, data: HandleBytes, core: bool) -> Answered<Made> {
    let mut event = NONE;
    if core {
        let handle = ze_ipc_event_counter_based_handle_t { data };
        let result = call!(zeEventCounterBasedOpenIpcHandle(context, handle, &raw mut event));
        answer("zeEventCounterBasedOpenIpcHandle", result)?;
        return Ok(Made { event, end: End::CloseCore });
    }
    let handle = zex_ipc_counter_based_event_handle_t { data };
    let result = call!(zexCounterBasedEventOpenIpcHandle(context, handle, &raw mut event));
    answer("zexCounterBasedEventOpenIpcHandle", result)?;
    Ok(Made { event, end: End::CloseZex })
}

/// An event from a pool of its own.
pub(super) fn pool_event(
    counter_based: Option<ze_event_pool_counter_based_exp_flags_t>,
    more: ze_event_pool_flags_t,
) -> Answered<Made> {
    let extension = ze_event_pool_counter_based_exp_desc_t {
        flags: counter_based.unwrap_or_default(),
        ..Default::default()
    };
    let next = if counter_based.is_some() { (&raw const extension).cast() } else { ptr::null() };
    let desc = ze_event_pool_desc_t {
        pNext: next,
        flags: ze_event_pool_flags_t::ZE_EVENT_POOL_FLAG_HOST_VISIBLE | more,
        count: 1,
        ..Default::default()
    };
    let mut pool = ze_event_pool_handle_t::NULL;
    let devices = ptr::null_mut();
    let context = world().gpu.context;
    let result = call!(zeEventPoolCreate(context, &raw const desc, 0, devices, &raw mut pool));
    answer("zeEventPoolCreate", result)?;
    let desc = ze_event_desc_t {
        signal: ze_event_scope_flags_t::ZE_EVENT_SCOPE_FLAG_HOST,
        wait: ze_event_scope_flags_t::ZE_EVENT_SCOPE_FLAG_HOST,
        ..Default::default()
    };
    let mut event = NONE;
    answer("zeEventCreate", call!(zeEventCreate(pool, &raw const desc, &raw mut event)))?;
    Ok(Made { event, end: End::Pool(pool) })
}

/// An event of the core function.
pub(super) fn core_event(
    next: *const c_void,
    more: ze_event_counter_based_flags_t,
) -> Answered<Made> {
    use ze_event_counter_based_flags_t as flag;
    let Gpu { context, device } = world().gpu;
    let desc = ze_event_counter_based_desc_t {
        pNext: next,
        flags: flag::ZE_EVENT_COUNTER_BASED_FLAG_IMMEDIATE
            | flag::ZE_EVENT_COUNTER_BASED_FLAG_NON_IMMEDIATE
            | flag::ZE_EVENT_COUNTER_BASED_FLAG_HOST_VISIBLE
            | more,
        signal: ze_event_scope_flags_t::ZE_EVENT_SCOPE_FLAG_HOST,
        ..Default::default()
    };
    let mut event = NONE;
    let result = call!(zeEventCounterBasedCreate(context, device, &raw const desc, &raw mut event));
    answer("zeEventCounterBasedCreate", result)?;
    Ok(Made { event, end: End::Event })
}

/// An event of the experimental function.
pub(super) fn zex_event(
    next: *const c_void,
    more: zex_counter_based_event_exp_flags_t,
) -> Answered<Made> {
    use zex_counter_based_event_exp_flags_t as flag;
    let Gpu { context, device } = world().gpu;
    let desc = zex_counter_based_event_desc_t {
        pNext: next,
        flags: flag::ZEX_COUNTER_BASED_EVENT_FLAG_IMMEDIATE
            | flag::ZEX_COUNTER_BASED_EVENT_FLAG_NON_IMMEDIATE
            | flag::ZEX_COUNTER_BASED_EVENT_FLAG_HOST_VISIBLE
            | more,
        signalScope: ze_event_scope_flags_t::ZE_EVENT_SCOPE_FLAG_HOST,
        ..Default::default()
    };
    let mut event = NONE;
    let result =
        call!(zexCounterBasedEventCreate2(context, device, &raw const desc, &raw mut event));
    answer("zexCounterBasedEventCreate2", result)?;
    Ok(Made { event, end: End::Event })
}

/// An event that follows a word, created in one of several ways.
pub(super) fn word_event(word: Word, way: usize) -> Answered<Made> {
    let (core, zex) = (Default::default(), Default::default());
    let Word { place, value, increment } = word;
    match (increment, way) {
        (Some(increment), 0) => {
            let storage = ze_event_counter_based_external_aggregate_storage_desc_t {
                deviceAddress: place,
                incrementValue: increment,
                completionValue: value,
                ..Default::default()
            };
            core_event((&raw const storage).cast(), core)
        }
        (Some(increment), _) => {
            let storage = zex_counter_based_event_external_storage_properties_t {
                deviceAddress: place,
                incrementValue: increment,
                completionValue: value,
                ..Default::default()
            };
            zex_event((&raw const storage).cast(), zex)
        }
        (None, 0) => {
            let storage = ze_event_counter_based_external_sync_allocation_desc_t {
                deviceAddress: place,
                hostAddress: place,
                completionValue: value,
                ..Default::default()
            };
            core_event((&raw const storage).cast(), core)
        }
        (None, _) => {
            let storage = zex_counter_based_event_external_sync_alloc_properties_t {
                deviceAddress: place,
                hostAddress: place,
                completionValue: value,
                ..Default::default()
            };
            zex_event((&raw const storage).cast(), zex)
        }
    }
}
