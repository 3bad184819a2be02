// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of a guest's VM: parts of the files that the guest's memory consists of, and memory of the engine
//! process itself where the driver asks for NULL memory.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tally_engine::mailbox::Piece;
use tally_uapi::firmware::{Command, MAX_EXTENTS, answer_status, map_flag};

use super::interrupt::Interrupt;
use super::map::{Map, continues};
use super::memory::{GuestMemory, MemoryFile};
use crate::machine::{Machine, View, VmMemory};
use crate::ranges::range;

/// The most bytes of writable NULL mappings of a VM, since kernels can fill them.
const MAX_NULL_BYTES: u64 = 1 << 30;

/// The state that all VMs of a guest share.
#[derive(Debug)]
pub struct Guest {
    /// The guest's memory that QEMU lends to the device.
    pub memory: GuestMemory,
    /// The device's interrupt.
    pub interrupt: Interrupt,
    /// The most mappings of a VM.
    pub max_mappings: usize,
    /// The most bytes of NULL memory of all VMs.
    pub most_null_bytes: u64,
    /// Bytes of NULL memory that they have now.
    pub null_bytes: AtomicU64,
}

/// The guest as a `Machine`, for the rest of the device.
#[derive(Debug)]
pub struct GuestMachine(pub Arc<Guest>);

impl Machine for GuestMachine {
    fn words(&self, address: u64, count: usize) -> Option<View<[AtomicU64]>> {
        self.0.memory.words(address, count)
    }

    fn interrupt(&self) {
        self.0.interrupt.raise();
    }

    fn memory(&self, _vm: u32, waiters: u64) -> io::Result<Box<dyn VmMemory>> {
        let missing = || io::Error::other("the waiters page is not the guest's memory any more");
        Ok(Box::new(Mappings::new(&self.0, waiters).ok_or_else(missing)?))
    }
}

/// The mappings of a VM.
struct Mappings {
    guest: Arc<Guest>,
    map: Map,
    null: NullShare,
    /// The files that the engine process has, by index.
    files: Vec<Arc<MemoryFile>>,
    waiters: (usize, u64),
}

impl Mappings {
    /// No mappings yet. None if the waiters page is not at this bus address.
    fn new(guest: &Arc<Guest>, waiters: u64) -> Option<Self> {
        let files = guest.memory.files();
        let page = guest.memory.resolve(waiters, tally_uapi::PAGE_SIZE, true)?;
        let [page] = &page[..] else { return None };
        let index = files.iter().position(|file| Arc::ptr_eq(file, &page.file))?;
        let null = NullShare { guest: Arc::clone(guest), bytes: 0 };
        let (guest, waiters) = (Arc::clone(guest), (index, page.offset));
        Some(Self { guest, map: Map::default(), null, files, waiters })
    }
}

impl VmMemory for Mappings {
    fn files(&self) -> Vec<RawFd> {
        self.files.iter().map(|file| file.file().as_raw_fd()).collect()
    }

    fn waiters(&self) -> (usize, u64) {
        self.waiters
    }

    fn begin(&mut self, _: &Range<u64>) -> Vec<Piece> {
        Vec::new()
    }

    fn map(&mut self, range: &Range<u64>, command: &Command) -> Result<Vec<Piece>, u32> {
        let [_, _, list, count, ..] = command.args;
        let access = command.flags & !map_flag::NULL;
        let pieces = if command.flags & map_flag::NULL != 0 {
            if list != 0 || count != 0 {
                return Err(answer_status::INVALID);
            }
            let (address, bytes) = (range.start, range.end - range.start);
            vec![Piece { address, bytes, offset: 0, file: None, access }]
        } else {
            let (start, end) = (range.start, range.end);
            let extents = Extents { memory: &self.guest.memory, list, count, start, end, access };
            extents.pieces(&self.files).ok_or(answer_status::INVALID)?
        };
        for &piece in &pieces {
            self.map.apply(piece);
        }
        let null_bytes = self.map.null_bytes();
        let fits = self.map.len() <= self.guest.max_mappings && null_bytes <= MAX_NULL_BYTES;
        if fits && self.null.set(null_bytes) { Ok(pieces) } else { Err(answer_status::NO_SPACE) }
    }

    fn unmap(&mut self, range: &Range<u64>) -> Vec<Piece> {
        let piece = Piece::unmap(range.start, range.end - range.start);
        self.map.apply(piece);
        vec![piece]
    }

    fn unmapped(&mut self) {
        // The engine process does not have this memory any more.
        self.null.set(self.map.null_bytes());
    }

    fn covers(&self, address: u64, bytes: u64, access: u32) -> bool {
        self.map.covers(address, bytes, access)
    }
}

/// A VM's share of the NULL memory of all VMs.
struct NullShare {
    guest: Arc<Guest>,
    bytes: u64,
}

impl NullShare {
    /// Sets the VM's share to `bytes`. False, with nothing changed, if there is not that much left.
    fn set(&mut self, bytes: u64) -> bool {
        let limit = self.guest.most_null_bytes;
        let others = |all: u64| all - self.bytes;
        let changed =
            self.guest.null_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |all| {
                others(all).checked_add(bytes).filter(|&sum| sum <= limit || bytes <= self.bytes)
            });
        if changed.is_ok() {
            self.bytes = bytes;
        }
        changed.is_ok()
    }
}

impl Drop for NullShare {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// The extents of a VM_MAP.
struct Extents<'a> {
    memory: &'a GuestMemory,
    /// Bus address of their page.
    list: u64,
    count: u64,
    start: u64,
    end: u64,
    access: u32,
}

impl Extents<'_> {
    /// The pieces that the extents describe, neighbours joined. None if they are
    /// invalid.
    fn pieces(&self, files: &[Arc<MemoryFile>]) -> Option<Vec<Piece>> {
        let count = usize::try_from(self.count).ok()?;
        if !(1..=MAX_EXTENTS as usize).contains(&count) {
            return None;
        }
        let list = self.memory.words(self.list, count * 2)?;
        let mut pieces: Vec<Piece> = Vec::new();
        let mut at = self.start;
        for extent in list.chunks_exact(2) {
            // Each word is read once.
            let [bus, bytes] = [0, 1].map(|i: usize| extent[i].load(Ordering::Relaxed));
            range(bus, bytes)?;
            if bytes > self.end - at {
                return None;
            }
            let writable = self.access & map_flag::WRITE != 0;
            for part in self.memory.resolve(bus, bytes, writable)? {
                // A file that was lent after the start of the engine process is not in its table.
                let file = files.iter().position(|file| Arc::ptr_eq(file, &part.file))?;
                let piece = Piece {
                    address: at,
                    bytes: part.bytes,
                    offset: part.offset,
                    file: Some(file as u32),
                    access: self.access,
                };
                at += part.bytes;
                match pieces.last_mut() {
                    Some(last) if continues(last, &piece) => last.bytes += piece.bytes,
                    _ => pieces.push(piece),
                }
            }
        }
        (at == self.end).then_some(pieces)
    }
}
