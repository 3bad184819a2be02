// SPDX-License-Identifier: MIT OR Apache-2.0
//! The interpreter's memory: separate allocations at chosen addresses, with a check of every access.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use super::trace::Event;
use crate::ir::{AddressSpace, GlobalId, Module};

/// Start of the running group's local memory. These addresses are not canonical on x86-64, so no buffer
/// of a test can overlap them.
pub const LOCAL_BASE: u64 = 0xe000_0000_0000_0000;
/// Start of private memory; each work-item has [`PRIVATE_STRIDE`] bytes of address space.
const PRIVATE_BASE: u64 = 0xf000_0000_0000_0000;
const PRIVATE_STRIDE: u64 = 1 << 32;
/// Start of the variables of module scope.
const GLOBALS_BASE: u64 = 0xd000_0000_0000_0000;
/// The maximum local memory of a group, in bytes.
pub const MAX_LOCAL: u64 = 1 << 28;
/// The maximum private memory of one work-item, in bytes.
const MAX_PRIVATE: u64 = 1 << 24;
/// The maximum size of a variable of module scope, in bytes.
const MAX_GLOBAL: u64 = 1 << 30;

/// A wrong use of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryError {
    /// No allocation holds all bytes of an access.
    OutOfBounds {
        /// Its start.
        address: u64,
        /// Its size in bytes.
        size: u64,
    },
    /// An allocation would overlap another, or is too large.
    NoRoom {
        /// The start that it would have.
        address: u64,
        /// Its size in bytes.
        size: u64,
    },
}

impl fmt::Display for MemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemoryError::OutOfBounds { address, size } => {
                write!(f, "{size} bytes at {address:#x} are outside of every allocation")
            }
            MemoryError::NoRoom { address, size } => {
                write!(f, "there is no room for {size} bytes at {address:#x}")
            }
        }
    }
}

impl std::error::Error for MemoryError {}

/// Memory that a kernel can reach.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Buffers and variables of module scope by address.
    buffers: BTreeMap<u64, Vec<u8>>,
    globals: HashMap<GlobalId, u64>,
    /// Offsets of the private variables of module scope in each work-item's copy of them, and the
    /// initial contents of that copy.
    item_globals: HashMap<GlobalId, u64>,
    item_image: Vec<u8>,
    /// The running work-item.
    item: usize,
    local: Vec<u8>,
    /// Private memory, by the number of the work-item.
    private: Vec<Vec<u8>>,
    /// The text that kernels have printed.
    pub(super) printed: Vec<Vec<u8>>,
    /// The number of groups that have begun.
    groups: u32,
    /// What happens, if somebody wants to know.
    trace: Option<Vec<Event>>,
}

impl Memory {
    /// Memory without buffers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a buffer with the contents `bytes` at `address`.
    ///
    /// # Errors
    /// If it would overlap another one.
    pub fn map(&mut self, address: u64, bytes: Vec<u8>) -> Result<(), MemoryError> {
        let size = bytes.len() as u64;
        let no_room = MemoryError::NoRoom { address, size };
        let end = address.checked_add(size).ok_or(no_room.clone())?;
        let before = self.buffers.range(..end.max(address.saturating_add(1))).next_back();
        if before
            .is_some_and(|(&start, other)| start + other.len() as u64 > address || start == address)
        {
            return Err(no_room);
        }
        self.buffers.insert(address, bytes);
        Ok(())
    }

    /// The buffer that begins at `address`.
    pub fn buffer(&self, address: u64) -> Option<&[u8]> {
        self.buffers.get(&address).map(Vec::as_slice)
    }

    /// The output of kernels, one text for each call of `printf`, in order.
    pub fn printed(&self) -> &[Vec<u8>] {
        &self.printed
    }

    /// Reads bytes.
    ///
    /// # Errors
    /// If not all lie in one allocation.
    pub fn read(&self, address: u64, into: &mut [u8]) -> Result<(), MemoryError> {
        let size = into.len() as u64;
        let found = self.find(address, size).ok_or(MemoryError::OutOfBounds { address, size })?;
        into.copy_from_slice(found);
        Ok(())
    }

    /// Writes bytes.
    ///
    /// # Errors
    /// If not all lie in one allocation.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), MemoryError> {
        let size = bytes.len() as u64;
        let found =
            self.find_mut(address, size).ok_or(MemoryError::OutOfBounds { address, size })?;
        found.copy_from_slice(bytes);
        Ok(())
    }

    /// Copies `size` bytes from one place to another.
    ///
    /// # Errors
    /// If not all of either lie in one allocation.
    pub fn copy(&mut self, to: u64, from: u64, size: u64) -> Result<(), MemoryError> {
        if size == 0 {
            return Ok(());
        }
        let bytes = self.find(from, size).map(<[u8]>::to_vec);
        let out = MemoryError::OutOfBounds { address: from, size };
        self.write(to, &bytes.ok_or(out)?)
    }

    /// The address of a variable of module scope that is not local: for a private one, that of the
    /// running work-item's copy.
    pub fn global(&self, id: GlobalId) -> Option<u64> {
        let private = |offset| PRIVATE_BASE + self.item as u64 * PRIVATE_STRIDE + offset;
        self.globals.get(&id).copied().or_else(|| self.item_globals.get(&id).copied().map(private))
    }

    /// Notes what happens from now on ([`Memory::take_trace`]).
    pub fn begin_trace(&mut self) {
        self.trace = Some(Vec::new());
        self.groups = 0;
    }

    /// What has happened since the last call.
    pub fn take_trace(&mut self) -> Vec<Event> {
        self.trace.take().unwrap_or_default()
    }

    /// Whether anybody wants to know what happens.
    pub(super) fn is_traced(&self) -> bool {
        self.trace.is_some()
    }

    /// Notes what the running group does.
    pub(super) fn note(&mut self, event: impl FnOnce(u32) -> Event) {
        let group = self.groups.saturating_sub(1);
        if let Some(trace) = &mut self.trace {
            trace.push(event(group));
        }
    }

    /// Whether an address is that of private memory, or of local memory.
    pub(super) fn is_private_or_local(address: u64) -> (bool, bool) {
        (address >= PRIVATE_BASE, (LOCAL_BASE..PRIVATE_BASE).contains(&address))
    }

    /// Makes a work-item the running one.
    pub(super) fn enter(&mut self, item: usize) {
        self.item = item;
    }

    /// Allocates the private variables of module scope for a new work-item, which is running.
    pub(super) fn new_item(&mut self) -> Result<(), MemoryError> {
        let address = self.push_private(self.item, self.item_image.len() as u64, 1)?;
        let image = std::mem::take(&mut self.item_image);
        let written = self.write(address, &image);
        self.item_image = image;
        written
    }

    /// Places the variables of a module unless that was done before.
    pub(super) fn place_globals(&mut self, module: &Module) -> Result<(), MemoryError> {
        if !self.globals.is_empty() || !self.item_globals.is_empty() {
            return Ok(());
        }
        for (id, global) in module.globals.iter() {
            if global.space != AddressSpace::Private || global.imported {
                continue;
            }
            let start = (self.item_image.len() as u64).next_multiple_of(global.align.max(1));
            let end = start.saturating_add(global.size);
            if end > MAX_PRIVATE {
                return Err(MemoryError::NoRoom { address: PRIVATE_BASE, size: end });
            }
            self.item_globals.insert(id, start);
            self.item_image.resize(start as usize, 0);
            self.item_image.extend(module.global_image(id).bytes);
            self.item_image.resize(end as usize, 0);
        }
        let mut next = GLOBALS_BASE;
        for (id, global) in module.globals.iter() {
            let shared = !matches!(global.space, AddressSpace::Local | AddressSpace::Private);
            if !shared || global.imported {
                continue;
            }
            let address = next.next_multiple_of(global.align.max(1));
            if global.size > MAX_GLOBAL {
                return Err(MemoryError::NoRoom { address, size: global.size });
            }
            self.globals.insert(id, address);
            // A gap after each variable catches accesses past its end.
            next = address + global.size + 64;
        }
        for (id, global) in module.globals.iter() {
            let Some(&address) = self.globals.get(&id) else { continue };
            let image = module.global_image(id);
            let mut bytes = image.bytes;
            bytes.resize(global.size as usize, 0);
            for reloc in image.relocs {
                let target = self.globals.get(&reloc.global).copied().unwrap_or(0);
                let value = target.wrapping_add(reloc.addend as u64).to_le_bytes();
                let start = reloc.offset as usize;
                if let Some(slot) = bytes.get_mut(start..start + 8) {
                    slot.copy_from_slice(&value);
                }
            }
            self.buffers.insert(address, bytes);
        }
        Ok(())
    }

    /// Gives a group fresh local and private memory.
    pub(super) fn new_group(&mut self, local_bytes: u64) {
        self.groups += 1;
        self.local.clear();
        self.local.resize(local_bytes as usize, 0);
        self.private.clear();
    }

    /// Allocates zeroed memory on the stack of a work-item and returns its address.
    pub(super) fn push_private(
        &mut self,
        item: usize,
        size: u64,
        align: u64,
    ) -> Result<u64, MemoryError> {
        if self.private.len() <= item {
            self.private.resize_with(item + 1, Vec::new);
        }
        let base = PRIVATE_BASE + item as u64 * PRIVATE_STRIDE;
        let stack = &mut self.private[item];
        let start = (stack.len() as u64).next_multiple_of(align.max(1));
        match start.checked_add(size).filter(|&end| end <= MAX_PRIVATE) {
            Some(end) => {
                stack.resize(end as usize, 0);
                Ok(base + start)
            }
            None => Err(MemoryError::NoRoom { address: base + start, size }),
        }
    }

    /// The number of bytes that a work-item uses of its stack.
    pub(super) fn private_mark(&self, item: usize) -> usize {
        self.private.get(item).map_or(0, Vec::len)
    }

    /// Frees the growth of a work-item's stack since a mark.
    pub(super) fn pop_private(&mut self, item: usize, mark: usize) {
        if let Some(stack) = self.private.get_mut(item) {
            stack.truncate(mark);
        }
    }

    fn find(&self, address: u64, size: u64) -> Option<&[u8]> {
        let (area, start) = if address >= PRIVATE_BASE {
            let offset = address - PRIVATE_BASE;
            let stack = self.private.get((offset / PRIVATE_STRIDE) as usize)?;
            (stack, offset % PRIVATE_STRIDE)
        } else if address >= LOCAL_BASE {
            (&self.local, address - LOCAL_BASE)
        } else {
            let (&start, buffer) = self.buffers.range(..=address).next_back()?;
            (buffer, address - start)
        };
        let start = usize::try_from(start).ok()?;
        area.get(start..start.checked_add(usize::try_from(size).ok()?)?)
    }

    fn find_mut(&mut self, address: u64, size: u64) -> Option<&mut [u8]> {
        let (area, start) = if address >= PRIVATE_BASE {
            let offset = address - PRIVATE_BASE;
            let stack = self.private.get_mut((offset / PRIVATE_STRIDE) as usize)?;
            (stack, offset % PRIVATE_STRIDE)
        } else if address >= LOCAL_BASE {
            (&mut self.local, address - LOCAL_BASE)
        } else {
            let (&start, buffer) = self.buffers.range_mut(..=address).next_back()?;
            (buffer, address - start)
        };
        let start = usize::try_from(start).ok()?;
        area.get_mut(start..start.checked_add(usize::try_from(size).ok()?)?)
    }
}
