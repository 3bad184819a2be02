// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls that create, destroy and query objects.

use std::ffi::c_void;
use std::ptr;

use arbitrary::{Result, Unstructured};
use tally_ze::*;

use super::{MANY, MEMORY, MOMENT, World, call};

impl World {
    /// The minimum that appends need: a pool with its events, and two allocations.
    pub(super) fn new(device: ze_device_handle_t, context: ze_context_handle_t) -> Self {
        let ok = ze_result_t::ZE_RESULT_SUCCESS;
        let desc = ze_event_pool_desc_t {
            flags: ze_event_pool_flags_t::ZE_EVENT_POOL_FLAG_HOST_VISIBLE
                | ze_event_pool_flags_t::ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP,
            count: MANY as u32,
            ..Default::default()
        };
        let mut pool = ze_event_pool_handle_t::NULL;
        let none = ptr::null_mut();
        assert_eq!(call!(zeEventPoolCreate(context, &raw const desc, 0, none, &raw mut pool)), ok);
        let events = (0..MANY as u32).map(|index| {
            let desc = ze_event_desc_t { index, ..Default::default() };
            let mut event = ze_event_handle_t::NULL;
            assert_eq!(call!(zeEventCreate(pool, &raw const desc, &raw mut event)), ok);
            event
        });
        let memory = [(); 2].map(|()| {
            let desc = ze_host_mem_alloc_desc_t::default();
            let mut memory = ptr::null_mut();
            assert_eq!(
                call!(zeMemAllocHost(context, &raw const desc, MEMORY, 0, &raw mut memory)),
                ok
            );
            memory
        });
        Self {
            device,
            context,
            lists: Vec::new(),
            queues: Vec::new(),
            fences: Vec::new(),
            events: events.collect(),
            counters: Vec::new(),
            pool,
            memory: memory.to_vec(),
            destroyed: false,
        }
    }

    pub(super) fn create(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let kind = u.arbitrary::<u8>()? % 5;
        let (ordinal, index) =
            (u32::from(u.arbitrary::<u8>()? % 3), u32::from(u.arbitrary::<u8>()? % 5));
        let bits = u.arbitrary::<u8>()?;
        let flags = ze_command_queue_flags_t::from_bits_retain(u32::from(bits & 0x3));
        let priority = ze_command_queue_priority_t(u32::from(u.arbitrary::<u8>()? % 4));
        let queue = ze_command_queue_desc_t {
            ordinal,
            index,
            flags,
            mode: ze_command_queue_mode_t::ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS,
            priority,
            ..Default::default()
        };
        let (context, device) = (self.context, self.device);
        let ok = ze_result_t::ZE_RESULT_SUCCESS;
        match kind {
            0 if self.lists.len() < MANY => {
                let mut list = ze_command_list_handle_t::NULL;
                if call!(zeCommandListCreateImmediate(
                    context,
                    device,
                    &raw const queue,
                    &raw mut list
                )) == ok
                {
                    self.lists.push(list);
                }
            }
            1 if self.lists.len() < MANY => {
                let desc = ze_command_list_desc_t {
                    commandQueueGroupOrdinal: ordinal,
                    flags: ze_command_list_flags_t::from_bits_retain(u32::from(bits & 0x1f)),
                    ..Default::default()
                };
                let mut list = ze_command_list_handle_t::NULL;
                if call!(zeCommandListCreate(context, device, &raw const desc, &raw mut list)) == ok
                {
                    self.lists.push(list);
                }
            }
            2 if self.queues.len() < MANY => {
                let mut out = ze_command_queue_handle_t::NULL;
                if call!(zeCommandQueueCreate(context, device, &raw const queue, &raw mut out))
                    == ok
                {
                    self.queues.push(out);
                }
            }
            3 if self.fences.len() < MANY => {
                let desc = ze_fence_desc_t {
                    flags: ze_fence_flags_t::from_bits_retain(u32::from(bits & 1)),
                    ..Default::default()
                };
                let mut fence = ze_fence_handle_t::NULL;
                let queue = self.queue(u)?;
                if call!(zeFenceCreate(queue, &raw const desc, &raw mut fence)) == ok {
                    self.fences.push(fence);
                }
            }
            _ if self.counters.len() < MANY => {
                let desc = ze_event_counter_based_desc_t {
                    flags: ze_event_counter_based_flags_t::from_bits_retain(u32::from(bits & 0xf)),
                    ..Default::default()
                };
                let mut event = ze_event_handle_t::NULL;
                if call!(zeEventCounterBasedCreate(
                    context,
                    device,
                    &raw const desc,
                    &raw mut event
                )) == ok
                {
                    self.counters.push(event);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Destroys an object, possibly for the second time.
    pub(super) fn end_one(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let ok = ze_result_t::ZE_RESULT_SUCCESS;
        match u.arbitrary::<u8>()? % 5 {
            0 => {
                let list = self.list(u)?;
                if call!(zeCommandListDestroy(list)) == ok {
                    self.destroyed = true;
                    // The dead handle is used once more.
                    call!(zeCommandListClose(list));
                    self.lists.retain(|it| it.0 != list.0);
                }
            }
            1 => {
                let list = self.list(u)?;
                call!(zeCommandListReset(list));
            }
            2 => {
                let queue = self.queue(u)?;
                // Fences are destroyed before their queue.
                if self.fences.is_empty() && call!(zeCommandQueueDestroy(queue)) == ok {
                    self.destroyed = true;
                    self.queues.retain(|it| it.0 != queue.0);
                }
            }
            3 => {
                let fence = self.fence(u)?;
                if call!(zeFenceDestroy(fence)) == ok {
                    self.fences.retain(|it| it.0 != fence.0);
                }
            }
            _ => {
                let event = Self::pick(u, &self.counters, ze_event_handle_t)?;
                if call!(zeEventDestroy(event)) == ok {
                    self.counters.retain(|it| it.0 != event.0);
                }
            }
        }
        Ok(())
    }

    /// Waits briefly, or polls.
    pub(super) fn look(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let timeout = if u.arbitrary::<u8>()? < 128 { 0 } else { MOMENT };
        match u.arbitrary::<u8>()? % 8 {
            0 => call!(zeEventHostSynchronize(self.event(u)?, timeout)),
            1 => call!(zeEventQueryStatus(self.event(u)?)),
            2 => call!(zeFenceHostSynchronize(self.fence(u)?, timeout)),
            3 => call!(zeCommandQueueSynchronize(self.queue(u)?, timeout)),
            4 => call!(zeCommandListHostSynchronize(self.list(u)?, timeout)),
            5 => call!(zeEventHostSignal(self.event(u)?)),
            6 => call!(zeEventHostReset(self.event(u)?)),
            _ => call!(zeFenceReset(self.fence(u)?)),
        };
        Ok(())
    }

    /// Queries properties.
    pub(super) fn ask(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        match u.arbitrary::<u8>()? % 6 {
            0 => {
                let mut out = ze_kernel_timestamp_result_t::default();
                call!(zeEventQueryKernelTimestamp(self.event(u)?, &raw mut out));
            }
            1 => {
                let (mut value, mut address) = (0, 0);
                let event = self.event(u)?;
                call!(zeEventCounterBasedGetDeviceAddress(event, &raw mut value, &raw mut address));
            }
            2 => {
                let mut out = 0;
                call!(zeCommandListGetOrdinal(self.list(u)?, &raw mut out));
            }
            3 => {
                let mut out = 0;
                call!(zeCommandListIsImmediate(self.list(u)?, &raw mut out));
            }
            4 => {
                let mut properties = ze_memory_allocation_properties_t::default();
                let mut device = ze_device_handle_t::NULL;
                // Any address may be queried.
                let at: *const c_void =
                    ptr::with_exposed_provenance(u.arbitrary::<u64>()? as usize);
                let (context, out) = (self.context, &raw mut properties);
                call!(zeMemGetAllocProperties(context, at, out, &raw mut device));
            }
            _ => {
                let mut out = 0;
                call!(zeCommandQueueGetIndex(self.queue(u)?, &raw mut out));
            }
        }
        Ok(())
    }
}
