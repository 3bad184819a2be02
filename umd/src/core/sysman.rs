// SPDX-License-Identifier: MIT OR Apache-2.0
//! System management: the state of a device outside of its contexts.
//!
//! A device has an engine group for each of its engine classes and one for all, and one memory. Those of its
//! sub-devices are listed with it. Components that it does not have (fans, power, temperature, adjustable
//! frequencies) have no objects.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use tally_uapi::ioctl::engine_capability;
use tally_ze::{zes_engine_handle_t, zes_event_type_flags_t, zes_mem_handle_t};

use crate::core::device::Device;
use crate::handle::{self, Kind, object};
use crate::submit::activity;
use crate::vm::Vm;

/// The period of polling for events.
const EVERY: Duration = Duration::from_millis(5);

/// Engines whose activity is reported together.
pub struct Engines {
    /// The device that they belong to.
    pub device: &'static Device,
    /// The class to count; none means all.
    pub class: Option<u32>,
}

object!(zes_engine_handle_t => Engines, Kind::Engines);

/// The memory of a device.
pub struct Memory {
    /// The device that it belongs to.
    pub device: &'static Device,
}

object!(zes_mem_handle_t => Memory, Kind::Memory);

/// System management's state of a device.
pub struct Sysman {
    /// Engine groups: its own, then those of its sub-devices.
    pub engines: Vec<zes_engine_handle_t>,
    /// Memories: those of its sub-devices, or its own if it has none.
    pub memories: Vec<zes_mem_handle_t>,
    /// Events that the application has registered for.
    registered: AtomicU32,
    /// The VM whose loss was reported. As long as this is kept, no later VM has its address.
    told: Mutex<Weak<Vm>>,
}

impl Sysman {
    /// Makes the objects of a device. Objects for which memory is lacking are omitted.
    pub(super) fn of(device: &'static Device) -> Self {
        let classes = || {
            let some = (0..device.engines().len() as u32).map(Some);
            [None].into_iter().chain(some).map(|class| Engines { device, class })
        };
        let mut engines: Vec<_> = classes().filter_map(|it| handle::create(it).ok()).collect();
        let mut memories = Vec::new();
        for part in device.parts() {
            engines.extend(&part.sysman().engines);
            memories.extend(&part.sysman().memories);
        }
        if memories.is_empty() {
            memories.extend(handle::create::<zes_mem_handle_t>(Memory { device }));
        }
        Self { engines, memories, registered: AtomicU32::new(0), told: Mutex::default() }
    }

    /// Registers events, instead of those that were registered before.
    pub fn register(&self, events: zes_event_type_flags_t) {
        self.registered.store(events.bits(), Ordering::Relaxed);
    }
}

impl Engines {
    /// Whether they run kernels; `None` for engines of all classes.
    pub fn compute(&self) -> Option<bool> {
        let engine = self.device.engines().get(self.class? as usize)?;
        Some(engine.capabilities & engine_capability::COMPUTE != 0)
    }

    /// Time in ns that they were busy for this process, on average.
    pub fn busy_ns(&self) -> u64 {
        let all = activity::all();
        let classes = match self.class {
            Some(class) => class..class + 1,
            None => 0..self.device.engines().len() as u32,
        };
        let numbers = |class| self.device.engine_numbers(class).iter().map(move |&it| (class, it));
        let mine = classes.flat_map(numbers);
        let (count, sum) = mine.fold((0, 0), |(count, sum), engine| {
            (count + 1, sum + all.get(&engine).copied().unwrap_or(0))
        });
        sum / u64::max(count, 1)
    }
}

/// Whether this process has used engines that run kernels, and whether it has used others.
pub fn used(device: &'static Device) -> [bool; 2] {
    let classes = (0..device.engines().len() as u32).map(|it| Engines { device, class: Some(it) });
    let busy: Vec<_> = classes.filter(|it| it.busy_ns() != 0).map(|it| it.compute()).collect();
    [Some(true), Some(false)].map(|compute| busy.contains(&compute))
}

impl Memory {
    /// Bytes that could still be allocated.
    pub fn free(&self) -> u64 {
        let budget = self.device.budget();
        let used = self.device.backend().memory_used();
        let whole = self.device.info().memory_bytes.saturating_sub(used);
        budget.limit().saturating_sub(budget.used()).min(whole)
    }
}

/// The registered events ([`Sysman::register`]) of each device that have happened since they were last
/// reported, one word per device. Waits until there is one, until `timeout` is over, or until none is registered.
pub fn listen(devices: &[&'static Device], timeout: Duration) -> Vec<zes_event_type_flags_t> {
    let start = Instant::now();
    loop {
        let events: Vec<_> = devices.iter().map(|it| event(it)).collect();
        let left = timeout.saturating_sub(start.elapsed());
        let heard = events.iter().any(|it| !it.is_empty());
        let wanted =
            || devices.iter().any(|it| it.sysman().registered.load(Ordering::Relaxed) != 0);
        if left.is_zero() || heard || !wanted() {
            return events;
        }
        std::thread::sleep(EVERY.min(left));
    }
}

fn event(device: &'static Device) -> zes_event_type_flags_t {
    let (sysman, none) = (device.sysman(), zes_event_type_flags_t::empty());
    let wanted = sysman.registered.load(Ordering::Relaxed);
    let wanted = zes_event_type_flags_t::from_bits_retain(wanted);
    let reset = zes_event_type_flags_t::ZES_EVENT_TYPE_FLAG_DEVICE_RESET_REQUIRED;
    let Some(vm) = device.vm().filter(|_| wanted.contains(reset)) else { return none };
    if vm.check().is_ok() || !vm.is_lost() {
        return none;
    }
    let lost = Arc::downgrade(&vm);
    let mut told = sysman.told.lock().unwrap_or_else(PoisonError::into_inner);
    if Weak::ptr_eq(&std::mem::replace(&mut *told, lost.clone()), &lost) { none } else { reset }
}

/// Whether the device has to be reset: its contexts are lost.
pub fn needs_reset(device: &Device) -> bool {
    device.vm().is_some_and(|vm| vm.check().is_err() && vm.is_lost())
}
