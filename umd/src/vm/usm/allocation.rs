// SPDX-License-Identifier: MIT OR Apache-2.0
//! A piece of unified shared memory, in use or cached.

use std::collections::BTreeMap;

use tally_uapi::PAGE_SIZE;
use tally_ze::ze_memory_type_t;

use crate::backend::Hold;
use crate::process;
use crate::space;
use crate::vm::bindings::Mapping;
use crate::vm::budget::Charge;

/// Blocks begin and end at multiples of this.
pub(in crate::vm) const GRANULE: u64 = 64 << 10;
/// The largest block that stays accessible while it is cached. It is zeroed when it is used again.
pub(super) const MOST_KEPT: u64 = 1 << 20;

/// A piece of unified shared memory, or a cached block.
pub struct Allocation {
    /// Its addresses.
    pub mapping: Mapping,
    /// The requested size in bytes.
    pub size: u64,
    /// Host, device or shared memory.
    pub kind: ze_memory_type_t,
    /// Its id in this process; never reused.
    pub id: u64,
    /// The `Context::id` of the context to which it belongs.
    pub context: u64,
    /// The charge on the device for which it was allocated; `None`: it was allocated for the host alone.
    pub charge: Option<Charge>,
    /// Keeps memory that another process has shared alive there.
    pub import: Option<Hold>,
    /// Whether it can be exported as a file.
    pub exportable: bool,
    /// Attributes of atomics, by the device; see [`Vm::set_atomics`](crate::vm::Vm::set_atomics).
    pub atomics: BTreeMap<u32, u32>,
    /// Number of bytes that the kernel counts for it.
    pub(super) counted: u64,
    /// Number of bytes at its start that may be nonzero while it is cached.
    pub(super) dirty: u64,
    /// Number of bytes at its start whose pages it keeps while it is closed.
    pub(super) warm: u64,
    /// Whether the block may be reused, because no other process has it.
    pub(super) reusable: bool,
}

impl Allocation {
    pub(super) fn new(mapping: Mapping) -> Self {
        Self {
            mapping,
            size: 0,
            kind: ze_memory_type_t::ZE_MEMORY_TYPE_UNKNOWN,
            id: 0,
            context: 0,
            charge: None,
            import: None,
            exportable: false,
            atomics: BTreeMap::new(),
            counted: 0,
            dirty: 0,
            warm: 0,
            reusable: false,
        }
    }

    /// Returns its buffer for another process. Since that keeps the pages, they are not reused for another
    /// allocation.
    pub fn export(&mut self) -> u32 {
        self.reusable = false;
        self.mapping.bo()
    }

    /// Ends the accounting for it.
    pub(super) fn uncount(&mut self) {
        self.charge = None;
        if self.counted != 0 {
            self.mapping.bo.bindings.backend.give_memory(self.counted);
            self.counted = 0;
        }
    }

    /// Zeroes the bytes that may be nonzero.
    pub(super) fn clear(&mut self) {
        let dirty = std::mem::take(&mut self.dirty) as usize;
        // SAFETY: the block is mapped for reading and writing and has at least this many bytes. It is
        // freed, so no correct program uses its address.
        unsafe { self.mapping.ptr().write_bytes(0, dirty) };
    }

    /// Removes all access, so that an access to freed memory is a fault. The pages from the start on that were
    /// touched, up to `most` bytes, are zeroed and kept; the others are returned to the system. Returns whether
    /// this succeeded.
    pub(super) fn close(&mut self, most: u64) -> bool {
        self.dirty = touched(self.mapping.va(), self.mapping.size().min(most));
        self.warm = self.dirty;
        self.clear();
        let (start, bytes) = (self.mapping.ptr().as_ptr(), self.mapping.size() as usize);
        let kept = self.warm as usize;
        // SAFETY: as for `clear`; the pages belong to a file that only this block uses.
        unsafe {
            let rest = start.wrapping_add(kept).cast();
            (kept == bytes || libc::madvise(rest, bytes - kept, libc::MADV_REMOVE) == 0)
                && libc::mprotect(start.cast(), bytes, libc::PROT_NONE) == 0
        }
    }

    /// Undoes [`Allocation::close`]; the pages are zero. Returns whether this succeeded.
    pub(super) fn open(&mut self) -> bool {
        self.warm = 0;
        let (start, bytes) = (self.mapping.ptr().as_ptr().cast(), self.mapping.size() as usize);
        // SAFETY: this is the block's own mapping, which nothing uses.
        unsafe { libc::mprotect(start, bytes, libc::PROT_READ | libc::PROT_WRITE) == 0 }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if !process::is_gone() {
            self.uncount();
        }
    }
}

/// Bytes from an address to the first page that is not in memory, at most `size`, in whole pages. Pages that
/// were swapped out are not in memory.
fn touched(va: u64, size: u64) -> u64 {
    const PAGES: u64 = 4096;
    let mut states = [0_u8; PAGES as usize];
    let end = va + size / PAGE_SIZE * PAGE_SIZE;
    let mut at = va;
    while at < end {
        let bytes = (end - at).min(PAGES * PAGE_SIZE);
        // SAFETY: writes one byte a page to `states`, which has room for that many pages.
        let known = unsafe {
            libc::mincore(space::pointer(at).cast(), bytes as usize, states.as_mut_ptr()) == 0
        };
        let pages = &states[..(bytes / PAGE_SIZE) as usize];
        let found = pages.iter().position(|it| !known || it & 1 == 0);
        let Some(found) = found else {
            at += bytes;
            continue;
        };
        at += found as u64 * PAGE_SIZE;
        break;
    }
    at - va
}

/// The answer of [`Vm::find`](crate::vm::Vm::find) about an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// First address of the allocation.
    pub base: u64,
    /// The requested size in bytes.
    pub size: u64,
    /// The buffer; the allocation begins at its start.
    pub bo: u32,
    /// Host, device or shared.
    pub kind: ze_memory_type_t,
    /// The id of the allocation.
    pub id: u64,
    /// The context to which it belongs.
    pub context: u64,
    /// The number of the device for which it was allocated.
    pub device: Option<u32>,
    /// Whether another process has shared it.
    pub imported: bool,
    /// Whether it can be exported as a file.
    pub exportable: bool,
}
