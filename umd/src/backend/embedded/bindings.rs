// SPDX-License-Identifier: MIT OR Apache-2.0
//! The mappings of all VMs, which share the process's addresses.

use std::collections::BTreeMap;
use std::sync::Arc;

use tally_uapi::PAGE_SIZE;
use tally_uapi::ioctl::Errno;

use super::buffer::Buffer;
use super::memory::{Part, protection};
use crate::backend::Result;

/// The most pieces of all VMs. Linux allows a process 65,530 mappings by default, and the program needs some.
/// An allocation is two pieces: its memory, and the zeros after it, which leave no hole between allocations.
const MAX_PIECES: usize = 56 << 10;

/// The object that is mapped.
#[derive(Clone)]
pub(super) enum Kind {
    /// A buffer, from an offset on.
    Buffer { buffer: Arc<Buffer>, offset: u64 },
    /// The caller's own memory, at its own address.
    User,
    /// Memory without a buffer.
    Null,
}

#[derive(Clone)]
struct Binding {
    vm: u32,
    size: u64,
    access: u32,
    kind: Kind,
}

impl Binding {
    /// The part of `size` bytes from `skip` on.
    fn part(&self, skip: u64, size: u64) -> Self {
        let kind = match &self.kind {
            Kind::Buffer { buffer, offset } => {
                Kind::Buffer { buffer: Arc::clone(buffer), offset: offset + skip }
            }
            other => other.clone(),
        };
        Self { size, kind, ..*self }
    }
}

/// All mappings, by their first address. They do not overlap.
#[derive(Default)]
pub(super) struct Bindings(BTreeMap<u64, Binding>);

impl Bindings {
    /// The mappings that overlap a range.
    fn overlapping(&self, address: u64, size: u64) -> impl Iterator<Item = (u64, &Binding)> {
        let before = self.0.range(..address).next_back();
        let before = before.filter(move |(start, binding)| *start + binding.size > address);
        before.into_iter().chain(self.0.range(address..address + size)).map(|(&s, b)| (s, b))
    }

    pub(super) fn overlaps(&self, address: u64, size: u64) -> bool {
        self.overlapping(address, size).next().is_some()
    }

    /// Whether exactly this part of the buffer is mapped there for this access.
    pub(super) fn holds(
        &self,
        buffer: &Arc<Buffer>,
        offset: u64,
        address: u64,
        size: u64,
        access: u32,
    ) -> bool {
        let mut covered = address;
        for (start, binding) in self.overlapping(address, size) {
            let Kind::Buffer { buffer: bound, offset: from } = &binding.kind else { return false };
            // The terms of the comparison are rearranged so that both sides stay above 0.
            let same = Arc::ptr_eq(bound, buffer) && from + address == offset + start;
            if start > covered || !same || binding.access != access {
                return false;
            }
            covered = start + binding.size;
        }
        covered >= address + size
    }

    /// Whether all of a range is mapped in a VM for at least this access.
    pub(super) fn covers(&self, vm: u32, address: u64, size: u64, access: u32) -> bool {
        let mut covered = address;
        for (start, binding) in self.overlapping(address, size) {
            if start > covered || binding.vm != vm || binding.access & access != access {
                return false;
            }
            covered = start + binding.size;
        }
        covered >= address + size
    }

    /// Maps a range.
    ///
    /// # Errors
    /// EEXIST, EFAULT (user memory that does not exist), ENOSPC, ENOMEM.
    pub(super) fn map(
        &mut self,
        vm: u32,
        address: u64,
        size: u64,
        access: u32,
        kind: Kind,
    ) -> Result {
        if self.overlaps(address, size) {
            return Err(Errno::Exists);
        }
        if self.0.len() >= MAX_PIECES {
            return Err(Errno::NoSpace);
        }
        match &kind {
            Kind::Buffer { buffer, offset } => {
                let part = Part { offset: *offset, size, access, at: Some(address) };
                if let Err(errno) = buffer.extent().map(part) {
                    // A failure may have left a hole in which the system could place other mappings.
                    reserve(address, size)?;
                    return Err(errno);
                }
            }
            Kind::Null => map_null(address, size, access)?,
            Kind::User if !is_mapped(address, size) => return Err(Errno::Fault),
            Kind::User => {}
        }
        self.0.insert(address, Binding { vm, size, access, kind });
        Ok(())
    }

    /// Unmaps whatever a VM has in a range.
    ///
    /// # Errors
    /// ENOMEM, ENOSPC: the mappings stay.
    pub(super) fn unmap(&mut self, vm: u32, address: u64, size: u64) -> Result {
        let end = address + size;
        let found: Vec<u64> = self
            .overlapping(address, size)
            .filter(|(_, binding)| binding.vm == vm)
            .map(|(start, _)| start)
            .collect();
        for start in found {
            let Some(binding) = self.0.remove(&start) else { continue };
            let (from, to) = (start.max(address), (start + binding.size).min(end));
            let user = matches!(binding.kind, Kind::User);
            if !user && let Err(errno) = reserve(from, to - from) {
                self.0.insert(start, binding);
                return Err(errno);
            }
            if start < from {
                self.0.insert(start, binding.part(0, from - start));
            }
            if to < start + binding.size {
                let rest = binding.part(to - start, start + binding.size - to);
                self.0.insert(to, rest);
            }
        }
        Ok(())
    }
}

/// Restores the reservation: nothing is mapped in the range, and the system places nothing there.
fn reserve(address: u64, size: u64) -> Result {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    // SAFETY: replaces what this kernel mapped in the caller's VA reservation,
    // to which nothing refers any more, by VM_BIND's contract.
    let start =
        unsafe { libc::mmap(address as *mut _, size as usize, libc::PROT_NONE, flags, -1, 0) };
    if start == libc::MAP_FAILED { Err(Errno::NoMemory) } else { Ok(()) }
}

fn map_null(address: u64, size: u64, access: u32) -> Result {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    // SAFETY: as for `reserve`; the range is unmapped in all VMs.
    let start =
        unsafe { libc::mmap(address as *mut _, size as usize, protection(access), flags, -1, 0) };
    if start == libc::MAP_FAILED { Err(Errno::NoMemory) } else { Ok(()) }
}

/// Whether every page of a range is mapped in this process.
fn is_mapped(address: u64, size: u64) -> bool {
    const STEP: u64 = 4096 * PAGE_SIZE;
    let mut pages = [0u8; (STEP / PAGE_SIZE) as usize];
    (address..address + size).step_by(STEP as usize).all(|start| {
        let bytes = STEP.min(address + size - start);
        // SAFETY: writes one byte a page to `pages`, which has room for STEP bytes' worth.
        unsafe { libc::mincore(start as *mut _, bytes as usize, pages.as_mut_ptr()) == 0 }
    })
}
