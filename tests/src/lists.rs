// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lists, queues, events and fences for tests through the loader: every method is one call that
//! must succeed, and everything is destroyed on drop.

use crate::ze::{Gpu, Usm};
use crate::{call, check};
use std::ptr;

use tally_ze::*;

/// No event.
pub const NONE: ze_event_handle_t = ze_event_handle_t::NULL;
/// The maximum duration of a wait in ns: a minute.
pub const PATIENCE: u64 = 60_000_000_000;

macro_rules! owner {
    ($(#[$doc:meta])* $name:ident($raw:ident), $destroy:ident) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name(pub $raw);

        impl Drop for $name {
            fn drop(&mut self) {
                // A failure here, after a failed test, must not hide that test's failure.
                let _ = call!($destroy(self.0));
            }
        }
    };
}
owner!(
    /// A command list.
    List(ze_command_list_handle_t),
    zeCommandListDestroy
);
owner!(
    /// A command queue.
    Queue(ze_command_queue_handle_t),
    zeCommandQueueDestroy
);
owner!(
    /// An event; with its pool, if it has one.
    Event(ze_event_handle_t),
    zeEventDestroy
);
owner!(
    /// An event pool.
    Pool(ze_event_pool_handle_t),
    zeEventPoolDestroy
);
owner!(
    /// A fence.
    Fence(ze_fence_handle_t),
    zeFenceDestroy
);

impl Gpu {
    /// An immediate list of engine 0 of a group: asynchronous, in order or not.
    pub fn immediate(&self, ordinal: u32, in_order: bool) -> List {
        let mode = ze_command_queue_mode_t::ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS;
        self.immediate_of(&ze_command_queue_desc_t {
            ordinal,
            mode,
            flags: queue_flags(in_order),
            ..Default::default()
        })
    }

    /// An immediate list.
    pub fn immediate_of(&self, desc: &ze_command_queue_desc_t) -> List {
        let mut list = ze_command_list_handle_t::NULL;
        check!(zeCommandListCreateImmediate(self.context, self.device, desc, &raw mut list));
        List(list)
    }

    /// Runs a kernel of a module once and waits for it: groups, work-items of each, and the bytes of
    /// its arguments.
    pub fn run(
        &self,
        module: ze_module_handle_t,
        name: &str,
        [groups, items]: [u32; 2],
        arguments: &[&[u8]],
    ) {
        let kernel = self.kernel(module, name);
        check!(zeKernelSetGroupSize(kernel, items, 1, 1));
        for (i, bytes) in arguments.iter().enumerate() {
            check!(zeKernelSetArgumentValue(kernel, i as u32, bytes.len(), bytes.as_ptr().cast()));
        }
        let list = self.immediate(0, true);
        let groups = ze_group_count_t { groupCountX: groups, groupCountY: 1, groupCountZ: 1 };
        let groups = &raw const groups;
        check!(zeCommandListAppendLaunchKernel(list.0, kernel, groups, NONE, 0, ptr::null_mut()));
        list.synchronize();
        check!(zeKernelDestroy(kernel));
    }

    /// A regular list.
    pub fn regular(&self, ordinal: u32, in_order: bool) -> List {
        let flags = if in_order {
            ze_command_list_flags_t::ZE_COMMAND_LIST_FLAG_IN_ORDER
        } else {
            ze_command_list_flags_t::empty()
        };
        let desc = ze_command_list_desc_t {
            commandQueueGroupOrdinal: ordinal,
            flags,
            ..Default::default()
        };
        let mut list = ze_command_list_handle_t::NULL;
        check!(zeCommandListCreate(self.context, self.device, &raw const desc, &raw mut list));
        List(list)
    }

    /// An asynchronous queue on engine 0 of a group.
    pub fn queue(&self, ordinal: u32) -> Queue {
        let mode = ze_command_queue_mode_t::ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS;
        let desc = ze_command_queue_desc_t { ordinal, mode, ..Default::default() };
        let mut queue = ze_command_queue_handle_t::NULL;
        check!(zeCommandQueueCreate(self.context, self.device, &raw const desc, &raw mut queue));
        Queue(queue)
    }

    /// A pool of regular events that the host sees.
    pub fn pool(&self, count: u32, more: ze_event_pool_flags_t) -> Pool {
        let flags = ze_event_pool_flags_t::ZE_EVENT_POOL_FLAG_HOST_VISIBLE | more;
        let desc = ze_event_pool_desc_t { flags, count, ..Default::default() };
        self.pool_of(&desc)
    }

    /// A pool.
    pub fn pool_of(&self, desc: &ze_event_pool_desc_t) -> Pool {
        let mut pool = ze_event_pool_handle_t::NULL;
        let none = std::ptr::null_mut();
        check!(zeEventPoolCreate(self.context, desc, 0, none, &raw mut pool));
        Pool(pool)
    }

    /// A counter-based event for all kinds of lists, created by the core function. A waiter sees the
    /// memory written before.
    pub fn cb_event(&self) -> Event {
        self.cb_event_with(ze_event_counter_based_flags_t::empty())
    }

    /// The same with more flags.
    pub fn cb_event_with(&self, more: ze_event_counter_based_flags_t) -> Event {
        use ze_event_counter_based_flags_t as flag;
        let flags = flag::ZE_EVENT_COUNTER_BASED_FLAG_IMMEDIATE
            | flag::ZE_EVENT_COUNTER_BASED_FLAG_NON_IMMEDIATE
            | flag::ZE_EVENT_COUNTER_BASED_FLAG_HOST_VISIBLE
            | more;
        let host = ze_event_scope_flags_t::ZE_EVENT_SCOPE_FLAG_HOST;
        let desc =
            ze_event_counter_based_desc_t { flags, signal: host, wait: host, ..Default::default() };
        let mut event = NONE;
        check!(zeEventCounterBasedCreate(
            self.context,
            self.device,
            &raw const desc,
            &raw mut event
        ));
        Event(event)
    }
}

/// Flags of a queue or an immediate list.
pub fn queue_flags(in_order: bool) -> ze_command_queue_flags_t {
    if in_order {
        ze_command_queue_flags_t::ZE_COMMAND_QUEUE_FLAG_IN_ORDER
    } else {
        ze_command_queue_flags_t::empty()
    }
}

/// The handles of events, as a wait list.
pub fn raws(events: &[&Event]) -> Vec<ze_event_handle_t> {
    events.iter().map(|event| event.0).collect()
}

/// The handle of an event, or of none.
pub fn raw(event: Option<&Event>) -> ze_event_handle_t {
    event.map_or(NONE, |event| event.0)
}

impl List {
    /// zeCommandListAppendMemoryCopy of elements.
    pub fn copy<T: Copy>(
        &self,
        (dst, to): (&Usm<T>, usize),
        (src, from): (&Usm<T>, usize),
        len: usize,
        signal: Option<&Event>,
        waits: &[&Event],
    ) {
        let mut waits = raws(waits);
        let (dst, src) = (dst.ptr().wrapping_add(to), src.ptr().wrapping_add(from));
        check!(zeCommandListAppendMemoryCopy(
            self.0,
            dst.cast(),
            src.cast(),
            len * size_of::<T>(),
            raw(signal),
            waits.len() as u32,
            waits.as_mut_ptr()
        ));
    }

    /// zeCommandListAppendMemoryFill of one element.
    pub fn set<T: Copy>(
        &self,
        (dst, to): (&Usm<T>, usize),
        value: T,
        signal: Option<&Event>,
        waits: &[&Event],
    ) {
        let mut waits = raws(waits);
        check!(zeCommandListAppendMemoryFill(
            self.0,
            dst.ptr().wrapping_add(to).cast(),
            (&raw const value).cast(),
            size_of::<T>(),
            size_of::<T>(),
            raw(signal),
            waits.len() as u32,
            waits.as_mut_ptr()
        ));
    }

    /// zeCommandListAppendBarrier.
    pub fn barrier(&self, signal: Option<&Event>, waits: &[&Event]) {
        let mut waits = raws(waits);
        let count = waits.len() as u32;
        check!(zeCommandListAppendBarrier(self.0, raw(signal), count, waits.as_mut_ptr()));
    }

    /// zeCommandListAppendSignalEvent.
    pub fn signal(&self, event: &Event) {
        check!(zeCommandListAppendSignalEvent(self.0, event.0));
    }

    /// zeCommandListAppendEventReset.
    pub fn reset_event(&self, event: &Event) {
        check!(zeCommandListAppendEventReset(self.0, event.0));
    }

    /// zeCommandListAppendWaitOnEvents.
    pub fn wait(&self, events: &[&Event]) {
        let mut waits = raws(events);
        check!(zeCommandListAppendWaitOnEvents(self.0, waits.len() as u32, waits.as_mut_ptr()));
    }

    /// zeCommandListClose.
    pub fn close(&self) {
        check!(zeCommandListClose(self.0));
    }

    /// zeCommandListReset.
    pub fn reset(&self) {
        check!(zeCommandListReset(self.0));
    }

    /// zeCommandListHostSynchronize, with patience.
    pub fn synchronize(&self) {
        check!(zeCommandListHostSynchronize(self.0, PATIENCE));
    }

    /// zeCommandListImmediateAppendCommandListsExp.
    pub fn execute(&self, lists: &[&List], signal: Option<&Event>, waits: &[&Event]) {
        let mut lists: Vec<_> = lists.iter().map(|list| list.0).collect();
        let mut waits = raws(waits);
        check!(zeCommandListImmediateAppendCommandListsExp(
            self.0,
            lists.len() as u32,
            lists.as_mut_ptr(),
            raw(signal),
            waits.len() as u32,
            waits.as_mut_ptr()
        ));
    }
}

impl Queue {
    /// zeCommandQueueExecuteCommandLists.
    pub fn execute(&self, lists: &[&List], fence: Option<&Fence>) {
        let mut lists: Vec<_> = lists.iter().map(|list| list.0).collect();
        let fence = fence.map_or(ze_fence_handle_t::NULL, |fence| fence.0);
        let count = lists.len() as u32;
        check!(zeCommandQueueExecuteCommandLists(self.0, count, lists.as_mut_ptr(), fence));
    }

    /// zeCommandQueueSynchronize, with patience.
    pub fn synchronize(&self) {
        check!(zeCommandQueueSynchronize(self.0, PATIENCE));
    }

    /// A fence, not signalled unless asked for.
    pub fn fence(&self, flags: ze_fence_flags_t) -> Fence {
        let desc = ze_fence_desc_t { flags, ..Default::default() };
        let mut fence = ze_fence_handle_t::NULL;
        check!(zeFenceCreate(self.0, &raw const desc, &raw mut fence));
        Fence(fence)
    }
}

impl Pool {
    /// An event of the pool.
    pub fn event(&self, index: u32) -> Event {
        let desc = ze_event_desc_t {
            index,
            signal: ze_event_scope_flags_t::ZE_EVENT_SCOPE_FLAG_HOST,
            wait: ze_event_scope_flags_t::ZE_EVENT_SCOPE_FLAG_HOST,
            ..Default::default()
        };
        let mut event = NONE;
        check!(zeEventCreate(self.0, &raw const desc, &raw mut event));
        Event(event)
    }
}

impl Event {
    /// zeEventHostSynchronize, with patience.
    pub fn synchronize(&self) {
        check!(zeEventHostSynchronize(self.0, PATIENCE));
    }

    /// zeEventQueryStatus.
    pub fn is_ready(&self) -> bool {
        answer(call!(zeEventQueryStatus(self.0)))
    }

    /// zeEventHostSignal.
    pub fn signal(&self) {
        check!(zeEventHostSignal(self.0));
    }

    /// zeEventHostReset.
    pub fn reset(&self) {
        check!(zeEventHostReset(self.0));
    }

    /// The pair of zeEventCounterBasedGetDeviceAddress: address and value.
    pub fn address(&self) -> (u64, u64) {
        let (mut value, mut address) = (0, 0);
        check!(zeEventCounterBasedGetDeviceAddress(self.0, &raw mut value, &raw mut address));
        (address, value)
    }
}

impl Fence {
    /// zeFenceHostSynchronize, with patience.
    pub fn synchronize(&self) {
        check!(zeFenceHostSynchronize(self.0, PATIENCE));
    }

    /// zeFenceQueryStatus.
    pub fn is_ready(&self) -> bool {
        answer(call!(zeFenceQueryStatus(self.0)))
    }

    /// zeFenceReset.
    pub fn reset(&self) {
        check!(zeFenceReset(self.0));
    }
}

/// Ready or not; anything else fails the test.
pub fn answer(result: ze_result_t) -> bool {
    match result {
        ze_result_t::ZE_RESULT_SUCCESS => true,
        ze_result_t::ZE_RESULT_NOT_READY => false,
        other => panic!("{other:?}: {}", crate::ze::description()),
    }
}
