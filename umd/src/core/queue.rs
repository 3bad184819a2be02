// SPDX-License-Identifier: MIT OR Apache-2.0
//! Command queues, and the descriptions that they and immediate lists are created from.

use std::sync::Arc;

use tally_uapi::ioctl::priority;
use tally_ze::{
    ze_command_queue_desc_t, ze_command_queue_flags_t, ze_command_queue_handle_t,
    ze_command_queue_mode_t, ze_command_queue_priority_t,
};

use crate::checks::{self, Checks};
use crate::core::context::Context;
use crate::core::device::Device;
use crate::core::fence::Fence;
use crate::core::list::{ordered, special};
use crate::error::{Error, Result};
use crate::handle::{Kind, object};
use crate::hang::names;
use crate::list::command::Command;
use crate::list::immediate::Immediate;
use crate::list::regular::Regular;
use crate::submit::ring::Place;
use crate::sync::cell::Cell;
use crate::sync::shared::Shared;

/// A command queue: an in-order immediate list that only executes regular lists.
pub struct Queue {
    context: Arc<Context>,
    traits: QueueTraits,
    stream: Arc<Immediate>,
}

object!(ze_command_queue_handle_t => Queue, Kind::Queue);

/// The properties that a queue or an immediate list was created with.
#[derive(Clone, Copy)]
pub struct QueueTraits {
    /// The device that it was created for.
    pub device: &'static Device,
    /// Command queue group.
    pub ordinal: u32,
    /// The index of the queue in its group.
    pub index: u32,
    /// Flags.
    pub flags: ze_command_queue_flags_t,
    /// Synchronous or not.
    pub mode: ze_command_queue_mode_t,
    /// Priority.
    pub priority: ze_command_queue_priority_t,
}

impl QueueTraits {
    /// The traits of a checked description.
    pub fn of(device: &'static Device, desc: &ze_command_queue_desc_t) -> Self {
        Self {
            device,
            ordinal: desc.ordinal,
            index: desc.index,
            flags: desc.flags,
            mode: desc.mode,
            priority: desc.priority,
        }
    }

    /// Whether the commands of an immediate list run in order.
    pub fn is_in_order(&self) -> bool {
        self.flags.contains(ze_command_queue_flags_t::ZE_COMMAND_QUEUE_FLAG_IN_ORDER)
    }

    /// Whether calls wait for the commands that they submit. DEFAULT leaves that to the driver, and this one
    /// does not wait.
    pub fn is_synchronous(&self) -> bool {
        self.mode == ze_command_queue_mode_t::ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS
    }

    /// Whether commands captured from a list with these traits run the same on a list with the other traits.
    /// Hints and the choice of a queue make no difference.
    pub fn executes_like(&self, other: &Self) -> bool {
        std::ptr::eq(self.device, other.device)
            && self.ordinal == other.ordinal
            && self.is_in_order() == other.is_in_order()
            && self.is_synchronous() == other.is_synchronous()
    }

    /// The engine, for messages.
    pub fn engine(&self) -> String {
        format!("engine {} of group {}{}", self.index, self.ordinal, self.device.suffix())
    }

    /// Refuses a group that the device does not have; returns the number of its queues.
    ///
    /// # Errors
    /// INVALID_ARGUMENT.
    pub fn check_ordinal(device: &Device, ordinal: u32) -> Result<u32> {
        let engines = device.engines();
        let engine = engines.get(ordinal as usize).ok_or_else(|| {
            let groups = engines.len();
            Error::invalid(format!("desc->ordinal: {ordinal}, but the device has {groups} groups"))
        })?;
        Ok(engine.count)
    }

    /// Makes the queue of the device.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: no such queue; out of memory; DEVICE_LOST.
    pub fn open(&self, context: &Context, in_order: bool) -> Result<Arc<Immediate>> {
        let count = Self::check_ordinal(self.device, self.ordinal)?;
        let engine = self.device.engine(self.ordinal, self.index).ok_or_else(|| {
            Error::invalid(format!(
                "desc->index: {}, but group {} has {count} queues",
                self.index, self.ordinal
            ))
        })?;
        use ze_command_queue_priority_t as from;
        let priority = match self.priority {
            from::ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_HIGH => priority::HIGH,
            from::ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_LOW => priority::LOW,
            _ => priority::NORMAL,
        };
        let device = self.device.number();
        let place = Place { class: self.ordinal, index: engine, priority, device };
        Immediate::create(context.shared().clone(), place, in_order, self.is_synchronous())
    }
}

impl Queue {
    /// A queue.
    ///
    /// # Errors
    /// Those of [`QueueTraits::open`].
    pub fn create(context: &Arc<Context>, traits: QueueTraits) -> Result<Self> {
        let stream = traits.open(context, true)?;
        if let Some(order) = checks::get().and_then(Checks::order) {
            order.stream_begins(stream.cell().va(), true);
        }
        Ok(Self { context: context.clone(), traits, stream })
    }

    /// Sets the queue's name in the hang report, which is its handle.
    pub fn name(&self, raw: ze_command_queue_handle_t) {
        let (raw, traits) = (raw.0, &self.traits);
        names::name_immediate(&self.stream, || {
            format!("command queue {raw:p} ({})", traits.engine())
        });
    }

    /// The context.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// The properties that it was created with.
    pub fn traits(&self) -> &QueueTraits {
        &self.traits
    }

    /// Its counter, which also identifies the queue.
    pub fn cell(&self) -> Cell {
        self.stream.cell()
    }

    /// The state that objects of the VM share.
    pub fn shared(&self) -> &Arc<Shared> {
        self.stream.shared()
    }

    /// Executes lists, which are closed and belong to this queue's group; then signals the fence.
    ///
    /// # Errors
    /// INVALID_ARGUMENT, INVALID_SYNCHRONIZATION_OBJECT, out of memory, DEVICE_LOST.
    pub fn execute(&self, lists: &[&Regular], fence: Option<&Fence>) -> Result {
        if let Some(fence) = fence {
            fence.check(self)?;
        }
        if special::is_any()
            && let Some(order) = checks::get().and_then(Checks::order)
        {
            let (cell, value) = self.stream.next();
            order.execute(cell, value, &ordered::executed(lists), None, Vec::new());
        }
        let value = self.stream.submit(&Command::Lists(lists))?;
        if let Some(fence) = fence {
            fence.take(value);
        }
        self.stream.finish(value)
    }

    /// Waits until all executed lists are complete; false when the time passes first.
    ///
    /// # Errors
    /// DEVICE_LOST.
    pub fn synchronize(&self, timeout_ns: u64) -> Result<bool> {
        self.stream.synchronize(timeout_ns)
    }

    /// Ends the queue; submitted lists still complete.
    pub fn destroy(self) {
        self.stream.destroy();
    }
}

/// Waits until everything that was submitted to a device or a sub-device is complete.
///
/// # Errors
/// DEVICE_LOST.
pub fn synchronize_device(device: &Device, timeout_ns: u64) -> Result<bool> {
    // Without contexts nothing was ever submitted.
    let Some(vm) = device.vm() else { return Ok(true) };
    let devices = device.gpu().devices();
    Shared::of(&vm).wait_idle(timeout_ns, |number| {
        devices.get(number as usize).is_none_or(|it| it.is_within(device))
    })
}
