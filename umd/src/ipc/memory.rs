// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that processes share: allocations and physical memory objects.

use std::fs::File;
use std::sync::{Arc, Weak};

use tally_ze::ze_memory_type_t;

use super::transport::{self, Endpoint, Facts, Handle, Kind, Line, Note, Offer, Opened};
use crate::backend::Hold;
use crate::error::{Error, Result};
use crate::vm::budget::Budget;
use crate::vm::reserved::Physical;
use crate::vm::{Exported, Found, Vm};

/// A handle for the allocation of a context that contains an address, or for the physical memory that is mapped
/// there.
///
/// # Errors
/// INVALID_ARGUMENT: it is in no allocation of the context, and nothing is mapped there.
/// UNSUPPORTED_FEATURE, OUT_OF_HOST_MEMORY.
pub fn share(vm: &Arc<Vm>, context: u64, address: u64) -> Result<Handle> {
    let Some(found) = vm.find(address).filter(|found| found.context == context) else {
        let mapped = vm.reserved().memory_at(address, context);
        let (memory, offset) = mapped.ok_or_else(|| {
            Error::invalid(format!("ptr: {address:#x} is in no memory of hContext"))
        })?;
        return share_physical(vm, &memory, offset);
    };
    if found.imported {
        return Err(Error::invalid(
            "ptr: another process has shared the memory; only that one can do so again",
        ));
    }
    // Fails at once if it cannot be exported.
    vm.export_bo(found.bo)?;
    vm.make_coherent(found.base)?;
    transport::export((Kind::Memory, found.id), || {
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
pub fn share_physical(vm: &Arc<Vm>, memory: &Arc<Physical>, offset: u64) -> Result<Handle> {
    // Fails at once if it cannot be exported.
    vm.export_bo(memory.bo())?;
    transport::export((Kind::Memory, memory.part(offset)), || {
        Arc::new(PhysicalOffer { vm: Arc::downgrade(vm), memory: Arc::downgrade(memory), offset })
    })
}

/// An offer of physical memory, which ends when the object is destroyed and has no mappings.
struct PhysicalOffer {
    vm: Weak<Vm>,
    memory: Weak<Physical>,
    /// Offset of the byte that the importer's address refers to.
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

/// A handle for the memory of this process that a file was exported from (`ze_external_memory_export_fd_t`).
///
/// # Errors
/// Those of [`share`]; None: the file is not an export of this process.
pub fn share_file(vm: &Arc<Vm>, context: u64, file: &File) -> Option<Result<Handle>> {
    Some(match vm.exported_as(file, context)? {
        Exported::Allocation(base) => share(vm, context, base),
        Exported::Physical(memory) => share_physical(vm, &memory, 0),
    })
}

/// Memory that an importer has open, which is not reused meanwhile.
struct Held(#[allow(dead_code, reason = "owned for its drop")] Hold);

impl Endpoint for Held {
    fn told(&self, _: Note, _: u32) {}
}

/// The importer's end: there are no notes about memory, and the end of its exporter changes nothing.
struct Nothing;

impl Endpoint for Nothing {
    fn told(&self, _: Note, _: u32) {}
}

/// Opens a handle. Returns the address of the memory here, which belongs to `budget`'s device if it belonged to a
/// device in the exporter.
///
/// # Errors
/// INVALID_ARGUMENT: the exporter does not know it. DEVICE_LOST: the exporter is gone. Out of memory
/// or addresses.
pub fn open(
    vm: &Vm,
    context: u64,
    budget: &'static Budget,
    handle: &Handle,
    name: &str,
) -> Result<u64> {
    let (bo, facts, pending) = transport::open(handle, name)?.into_parts();
    let (size, kind, on_device) = memory_facts(facts, bo.size)?;
    let mapping = vm.import_memory(bo)?;
    // This end reads no notes; it only keeps the link.
    let endpoint: Weak<dyn Endpoint> = Weak::<Nothing>::new();
    let link = pending.link(endpoint)?;
    // The memory is charged to the exporter's share.
    let charge = on_device.then(|| budget.charge(0)).transpose()?;
    Ok(vm.enter_import(mapping, size, kind, context, charge, Box::new(link)))
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
pub fn close(vm: &Vm, context: u64, address: u64) -> Result {
    let is_it = |it: &Found| it.context == context && it.imported && it.base == address;
    let found = vm.find(address).filter(is_it);
    found.and_then(|_| vm.release(address, context)).map(drop).ok_or_else(|| {
        Error::invalid(format!(
            "ptr: {address:#x} is not what zeMemOpenIpcHandle answered, or was closed before"
        ))
    })
}
