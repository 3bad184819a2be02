// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory and counter-based events that processes share. Pools do it themselves.

use std::fs::File;
use std::sync::{Arc, Weak};

use tally_ze::{ze_memory_type_t, ze_result_t};

use crate::backend::Hold;
use crate::core::context::Context;
use crate::core::device::Device;
use crate::error::{Error, Result};
use crate::ipc::{self, Endpoint, Facts, Handle, Kind, Line, Note, Offer, Opened};
use crate::sync::cb_event::{CbEvent, Resolved};
use crate::sync::counter::Cell;
use crate::sync::event::{self, Event, EventKind, Traits};
use crate::sync::ipc::counter;
use crate::sync::shared::Shared;
use crate::vm::reserved::Physical;
use crate::vm::{Exported, Found, Vm};

/// Bit of `ze_event_counter_based_flags_t`.
const IPC: u32 = tally_ze::ze_event_counter_based_flags_t::ZE_EVENT_COUNTER_BASED_FLAG_IPC.bits();

/// A handle for the allocation that holds an address, or for the physical memory that is mapped there.
///
/// # Errors
/// INVALID_ARGUMENT: it is in no allocation of the context, and nothing is mapped there.
/// UNSUPPORTED_FEATURE, OUT_OF_HOST_MEMORY.
pub fn share_memory(context: &Context, address: u64) -> Result<Handle> {
    let Some(found) = context.find(address) else {
        let mapped = context.vm().reserved().memory_at(address, context.id());
        let (memory, offset) = mapped.ok_or_else(|| {
            Error::invalid(format!("ptr: {address:#x} is in no memory of hContext"))
        })?;
        return share_physical(context, &memory, offset);
    };
    if found.imported {
        return Err(Error::invalid(
            "ptr: another process has shared the memory; only that one can do so again",
        ));
    }
    let vm = context.vm();
    // Says at once if it cannot be.
    vm.export_bo(found.bo)?;
    vm.make_coherent(found.base)?;
    ipc::export((Kind::Memory, found.id), || {
        Arc::new(MemoryOffer { vm: Arc::downgrade(vm), found })
    })
}

struct MemoryOffer {
    vm: Weak<Vm>,
    found: Found,
}

impl Offer for MemoryOffer {
    fn is_alive(&self) -> bool {
        let now = self.vm.upgrade().and_then(|vm| vm.find(self.found.base));
        now.is_some_and(|now| now.id == self.found.id)
    }

    fn open(&self, _: u64) -> Result<Opened> {
        let Found { base, size, kind, id, device, .. } = self.found;
        let shared = self.vm.upgrade().map(|vm| vm.export(base, id)).transpose()?.flatten();
        let (bo, hold) = shared.ok_or_else(|| Error::invalid("the memory has been freed"))?;
        let facts = [size, u64::from(kind.0), u64::from(device.is_some()), 0];
        Ok(Opened { bo, facts, start: Box::new(|_: Line| Ok(Arc::new(Held(hold)))) })
    }
}

/// A handle for a physical memory object from `offset` on, mapped or not.
///
/// # Errors
/// UNSUPPORTED_FEATURE, OUT_OF_HOST_MEMORY.
pub fn share_physical(context: &Context, memory: &Arc<Physical>, offset: u64) -> Result<Handle> {
    let vm = context.vm();
    // Says at once if it cannot be.
    vm.export_bo(memory.bo())?;
    ipc::export((Kind::Memory, memory.part(offset)), || {
        Arc::new(PhysicalOffer { vm: Arc::downgrade(vm), memory: Arc::downgrade(memory), offset })
    })
}

/// Ends when the object is destroyed and nothing of it is mapped.
struct PhysicalOffer {
    vm: Weak<Vm>,
    memory: Weak<Physical>,
    /// The importer's address is that of this byte.
    offset: u64,
}

impl Offer for PhysicalOffer {
    fn is_alive(&self) -> bool {
        self.memory.strong_count() != 0
    }

    fn open(&self, _: u64) -> Result<Opened> {
        let (Some(vm), Some(memory)) = (self.vm.upgrade(), self.memory.upgrade()) else {
            return Err(Error::invalid("the memory has been destroyed"));
        };
        let (mut bo, hold) = vm.export_bo(memory.bo())?;
        bo.offset += self.offset;
        bo.size -= self.offset;
        let kind = memory.kind();
        let on_device = kind == ze_memory_type_t::ZE_MEMORY_TYPE_DEVICE;
        let facts = [bo.size, u64::from(kind.0), u64::from(on_device), 0];
        Ok(Opened { bo, facts, start: Box::new(|_: Line| Ok(Arc::new(Held(hold)))) })
    }
}

/// A handle for the memory of this process that a file was made of (`ze_external_memory_export_fd_t`).
///
/// # Errors
/// As [`share_memory`]; None: the file is of none.
pub fn share_file(context: &Context, file: &File) -> Option<Result<Handle>> {
    Some(match context.vm().exported_as(file, context.id())? {
        Exported::Allocation(base) => share_memory(context, base),
        Exported::Physical(memory) => share_physical(context, &memory, 0),
    })
}

/// Memory that an importer has open: it is not used for anything else meanwhile.
struct Held(#[allow(dead_code, reason = "owned for its drop")] Hold);

impl Endpoint for Held {
    fn told(&self, _: Note, _: u32) {}
}

/// The importer's end: nothing is said about memory, and nothing changes when its exporter is gone.
struct Nothing;

impl Endpoint for Nothing {
    fn told(&self, _: Note, _: u32) {}
}

/// Opens a handle: the address of the memory here, which is `device`'s if it was a device's there.
///
/// # Errors
/// INVALID_ARGUMENT: the exporter does not know it. DEVICE_LOST: the exporter is gone. Out of memory
/// or addresses.
pub fn open_memory(context: &Context, device: &Device, handle: &Handle, name: &str) -> Result<u64> {
    let (bo, facts, pending) = ipc::open(handle, name)?.into_parts();
    let (size, kind, on_device) = memory_facts(facts, bo.size)?;
    let mapping = context.vm().import_memory(bo)?;
    // This end reads no notes; it only keeps the link.
    let endpoint: Weak<dyn Endpoint> = Weak::<Nothing>::new();
    let link = pending.link(endpoint)?;
    // It is the exporter's share of memory that it is taken of.
    let charge = on_device.then(|| device.budget().charge(0)).transpose()?;
    Ok(context.vm().enter_import(mapping, size, kind, context.id(), charge, link))
}

fn memory_facts(facts: Facts, room: u64) -> Result<(u64, ze_memory_type_t, bool)> {
    let [size, kind, on_device, _] = facts;
    let kinds = [
        ze_memory_type_t::ZE_MEMORY_TYPE_HOST,
        ze_memory_type_t::ZE_MEMORY_TYPE_DEVICE,
        ze_memory_type_t::ZE_MEMORY_TYPE_SHARED,
    ];
    match kinds.into_iter().find(|it| u64::from(it.0) == kind) {
        Some(kind) if size != 0 && size <= room => Ok((size, kind, on_device != 0)),
        _ => Err(Error::invalid("the exporter has sent facts that do not fit the memory")),
    }
}

/// Closes memory that was opened here, by its address.
///
/// # Errors
/// INVALID_ARGUMENT: it is not such memory.
pub fn close_memory(context: &Context, address: u64) -> Result {
    match context.find(address) {
        Some(found) if found.imported && found.base == address => context.take(address).map(drop),
        _ => Err(Error::invalid(format!(
            "ptr: {address:#x} is not what zeMemOpenIpcHandle answered, or was closed before"
        ))),
    }
}

/// A handle for the state that a counter-based event has now.
///
/// # Errors
/// INVALID_ARGUMENT: not counter-based, without the IPC flag, with times, or opened itself.
/// UNSUPPORTED_FEATURE: it follows memory of the user's. OUT_OF_HOST_MEMORY.
pub fn share_event(event: &Event) -> Result<Handle> {
    event.check()?;
    let EventKind::CounterBased(state) = &event.kind else {
        return Err(Error::invalid("hEvent: the event is not counter-based"));
    };
    if event.traits.imported {
        return Err(Error::invalid(
            "hEvent: another process has shared it; only that one can do so again",
        ));
    }
    if event.traits.cb_flags & IPC == 0 {
        return Err(Error::invalid(
            "hEvent: it was created without ZE_EVENT_COUNTER_BASED_FLAG_IPC",
        ));
    }
    if event.traits.timestamps {
        return Err(Error::invalid("hEvent: an event with times cannot be shared"));
    }
    let Traits { cb_flags, signal_scope, wait_scope, .. } = event.traits;
    let details = cb_flags | signal_scope << 8 | wait_scope << 16;
    share_pair(event.shared(), details, || named_by(state))
}

/// What the importers of an event wait for: a value of a counter, or nothing, for ever.
type Pair = Option<(Cell, u64)>;

/// The pair that an event names now.
fn named_by(state: &CbEvent) -> Result<Pair> {
    match state.resolve() {
        Resolved::Met => Ok(None),
        Resolved::Counter(cell, value) => Ok(Some((cell, value))),
        Resolved::Foreign(_) => Err(Error::unsupported(
            "hEvent: it follows memory of the application's; share that memory instead",
        )),
        Resolved::Captured => Err(event::internal("hCounterBasedEvent")),
        Resolved::Dead(..) => Err(Error::new(
            ze_result_t::ZE_RESULT_ERROR_DEVICE_LOST,
            "hEvent: the list that would signal it was reset or destroyed before it was executed",
        )),
    }
}

/// A handle for the pair that is `named`.
///
/// A list that ends unexecuted tells the importers of its counter only if the counter was shared before.
/// So once it is, the event is read again: the end of a counter that it then names is always heard.
fn share_pair(
    shared: &Arc<Shared>,
    details: u32,
    mut named: impl FnMut() -> Result<Pair>,
) -> Result<Handle> {
    let mut pair = named()?;
    loop {
        let (cell, value) = match pair {
            Some(pair) => pair,
            // Any counter has reached 0.
            None => (shared.counter()?.cell(), 0),
        };
        let handle = counter::share(shared, cell, value, details)?;
        let now = named();
        if now.as_ref().is_ok_and(|now| *now == pair) {
            return Ok(handle);
        }
        ipc::withdraw(&handle, "zeEventCounterBasedGetIpcHandle")?;
        pair = now?;
    }
}

/// Opens a handle: an event with the state of when it was made.
///
/// # Errors
/// As [`counter::Imports::open`].
pub fn open_event(context: &Context, handle: &Handle, name: &str) -> Result<Event> {
    let shared = context.shared();
    let (cell, counters) = shared.imports().open(shared, handle, name)?;
    let traits = Traits {
        cb_flags: handle.details & 0xff,
        signal_scope: handle.details >> 8 & 0xff,
        wait_scope: handle.details >> 16 & 0xff,
        imported: true,
        ..Traits::default()
    };
    let state = CbEvent::imported(cell, handle.value, counters);
    Ok(Event::new(shared, EventKind::CounterBased(state), traits, None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::embedded;
    use crate::space::Space;
    use crate::sync::recording::Recording;

    /// "A wait on a counter whose producer has died ends in DEVICE_LOST": the list is destroyed between
    /// the look at the event and the handle.
    #[test]
    fn a_handle_made_while_its_list_dies_is_refused() {
        let kernel = embedded::open(crate::settings::get()).expect("threads");
        let space = Space::reserve(Some(1 << 30), 4096, 1 << 47).expect("1 GiB of addresses");
        let vm = Vm::create(&kernel, &Arc::new(space)).expect("a VM");
        let shared = Shared::of(&vm);
        let recording = Recording::new(Arc::new(shared.counter().expect("room")));
        let event = CbEvent::completed();
        event.record(&recording, recording.add_signal(), 0, None);
        recording.expose();
        let mut looks = 0;
        let handle = share_pair(&shared, IPC, || {
            let named = named_by(&event);
            looks += 1;
            if looks == 1 {
                assert!(named.is_ok() && !recording.end(), "it lives until it is looked at");
            }
            named
        });
        let code = handle.err().map(|error| error.code());
        assert_eq!(code, Some(ze_result_t::ZE_RESULT_ERROR_DEVICE_LOST));
    }
}
