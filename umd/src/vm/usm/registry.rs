// SPDX-License-Identifier: MIT OR Apache-2.0
//! A table that finds the allocation of an address without a lock.
//!
//! ```text
//!  addresses   |  granule 0  |  granule 1  |  granule 2  |  granule 3  |
//!  heads       |      0 ◄────┼──── 0       |   (stale)   |      3      |   first granule of the block
//!  records     | {size, id}  |             |  {size 0}   | {size, id}  |   of the block's first granule
//! ```
//!
//! A granule belongs to one block. Each granule names the first granule of the block to which it belongs
//! or once belonged; a record at the first one shows whether there is an allocation now. So only records
//! change when memory is freed, and a stale name leads to a record that does not extend to the address.
//! Records are never freed before the registry.
//!
//! A record's words are read without its lock: its version is odd while they change and different
//! afterwards, which tells a reader that it has read a mixture.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use tally_ze::ze_memory_type_t;

use super::super::budget::Charge;
use super::allocation::{Allocation, Found, GRANULE};
use crate::space::Space;

/// Number of records that are created at once.
const CHUNK: usize = 1024;

/// See the module's description.
pub(in super::super) struct Registry {
    /// First address of the VA reservation.
    start: u64,
    /// For each granule, the first granule of its block plus one. Unused pages of this array are never
    /// touched.
    heads: Box<[AtomicU32]>,
    records: Box<[OnceLock<Box<[Record]>>]>,
}

/// The record of the allocation that begins at a granule.
#[derive(Default)]
#[repr(align(64))]
struct Record {
    /// Odd while the words change.
    version: AtomicU64,
    words: [AtomicU64; WORDS],
    /// Held while the words change.
    owner: Mutex<Option<Box<Allocation>>>,
}

const WORDS: usize = 4;

/// The words of a record: size in bytes, or 0 if there is no allocation; id; context; the rest.
type Words = [u64; WORDS];

impl Registry {
    pub(in super::super) fn new(space: &Space) -> Self {
        let granules = usize::try_from(space.size() / GRANULE).unwrap_or(usize::MAX);
        let chunks = granules.div_ceil(CHUNK);
        let records = (0..chunks).map(|_| OnceLock::new()).collect();
        Self { start: space.start(), heads: zeros(granules), records }
    }

    fn record(&self, granule: usize) -> Option<&Record> {
        self.records.get(granule / CHUNK)?.get()?.get(granule % CHUNK)
    }

    fn granule(&self, address: u64) -> usize {
        (address.wrapping_sub(self.start) / GRANULE) as usize
    }

    fn base(&self, granule: usize) -> u64 {
        self.start + granule as u64 * GRANULE
    }

    /// The first address and the words of the allocation that contains an address.
    #[inline]
    fn look(&self, address: u64) -> Option<(u64, Words)> {
        let head = self.heads.get(self.granule(address))?.load(Ordering::Acquire);
        let head = (head as usize).checked_sub(1)?;
        let words = self.record(head)?.read();
        let base = self.base(head);
        (address - base < words[0]).then_some((base, words))
    }

    /// Bytes from an address to the end of the allocation that contains it. Every copy and fill calls this for
    /// its memory; a single word is no mixture, so the version is not needed.
    #[inline]
    pub(in super::super) fn rest(&self, address: u64) -> Option<u64> {
        let head = self.heads.get(self.granule(address))?.load(Ordering::Acquire);
        let head = (head as usize).checked_sub(1)?;
        let size = self.record(head)?.words[0].load(Ordering::Relaxed);
        size.checked_sub(address - self.base(head)).filter(|&rest| rest != 0)
    }

    /// The record of the allocation that contains an address.
    #[inline]
    pub(in super::super) fn find(&self, address: u64) -> Option<Found> {
        self.look(address).map(|(base, words)| found(base, words))
    }

    /// Registers an allocation; returns its address.
    pub(in super::super) fn enter(&self, allocation: Box<Allocation>) -> u64 {
        let (base, bytes) = (allocation.mapping.va(), allocation.mapping.size());
        let first = self.granule(base);
        let words = words(&allocation);
        let chunk = self.records[first / CHUNK]
            .get_or_init(|| (0..CHUNK).map(|_| Record::default()).collect());
        let record = &chunk[first % CHUNK];
        let mut owner = record.lock();
        record.write(words);
        *owner = Some(allocation);
        drop(owner);
        let head = first as u32 + 1;
        for granule in first..=self.granule(base + bytes - 1) {
            // The granules of a reused block already have the right name.
            if self.heads[granule].load(Ordering::Relaxed) != head {
                self.heads[granule].store(head, Ordering::Release);
            }
        }
        base
    }

    /// Takes out the allocation with this first address, if it belongs to `context`.
    pub(in super::super) fn take(&self, base: u64, context: u64) -> Option<Box<Allocation>> {
        let record = self.at(base)?;
        let mut owner = record.lock();
        owner.as_ref().filter(|it| it.context == context)?;
        record.write([0; WORDS]);
        owner.take()
    }

    /// Runs `f` with the allocation that begins at `base`, if it still has this id; it is not taken out
    /// meanwhile.
    pub(in super::super) fn with<R>(
        &self,
        base: u64,
        id: u64,
        f: impl FnOnce(&mut Allocation) -> R,
    ) -> Option<R> {
        let mut owner = self.at(base)?.lock();
        owner.as_mut().filter(|it| it.id == id).map(|it| f(it))
    }

    /// The record of an address at which a block may begin.
    fn at(&self, base: u64) -> Option<&Record> {
        let granule = self.granule(base);
        if base.is_multiple_of(GRANULE) && granule < self.heads.len() {
            self.record(granule)
        } else {
            None
        }
    }

    /// The first addresses of the allocations for which `wanted` is true.
    pub(in super::super) fn bases(&self, wanted: impl Fn(&Found) -> bool) -> Vec<u64> {
        let mut bases = Vec::new();
        for (i, chunk) in self.records.iter().enumerate() {
            for (j, record) in chunk.get().into_iter().flat_map(|it| it.iter().enumerate()) {
                let (base, words) = (self.base(i * CHUNK + j), record.read());
                if words[0] != 0 && wanted(&found(base, words)) {
                    bases.push(base);
                }
            }
        }
        bases
    }
}

impl Record {
    fn lock(&self) -> MutexGuard<'_, Option<Box<Allocation>>> {
        self.owner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A consistent snapshot of the words.
    #[inline]
    fn read(&self) -> Words {
        loop {
            let version = self.version.load(Ordering::Acquire);
            if version.is_multiple_of(2) {
                let words = self.words.each_ref().map(|it| it.load(Ordering::Relaxed));
                // The reads above are ordered before the second read of the version.
                fence(Ordering::Acquire);
                if self.version.load(Ordering::Relaxed) == version {
                    return words;
                }
            } else {
                // Writers hold the lock.
                drop(self.lock());
            }
        }
    }

    /// Changes the words. The caller holds the lock.
    fn write(&self, words: Words) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        // A reader that sees one of the writes below also sees the odd version.
        fence(Ordering::Release);
        for (place, word) in self.words.iter().zip(words) {
            place.store(word, Ordering::Relaxed);
        }
        self.version.store(version + 2, Ordering::Release);
    }
}

const IMPORTED: u64 = 1 << 8;
const EXPORTABLE: u64 = 1 << 9;

fn words(it: &Allocation) -> Words {
    let device = it.charge.as_ref().map_or(0, |it| u64::from(Charge::device(it)) + 1);
    let mut facts = u64::from(it.mapping.bo()) << 32 | device << 16 | u64::from(it.kind.0 as u8);
    if it.import.is_some() {
        facts |= IMPORTED;
    }
    if it.exportable {
        facts |= EXPORTABLE;
    }
    [it.size, it.id, it.context, facts]
}

fn found(base: u64, [size, id, context, facts]: Words) -> Found {
    let kinds = [
        ze_memory_type_t::ZE_MEMORY_TYPE_HOST,
        ze_memory_type_t::ZE_MEMORY_TYPE_DEVICE,
        ze_memory_type_t::ZE_MEMORY_TYPE_SHARED,
    ];
    let kind = kinds.into_iter().find(|it| it.0 as u8 == facts as u8);
    Found {
        base,
        size,
        bo: (facts >> 32) as u32,
        kind: kind.unwrap_or(ze_memory_type_t::ZE_MEMORY_TYPE_UNKNOWN),
        id,
        context,
        device: u32::from((facts >> 16) as u16).checked_sub(1),
        imported: facts & IMPORTED != 0,
        exportable: facts & EXPORTABLE != 0,
    }
}

/// Zeroed words, in pages that the system provides when they are touched.
fn zeros(count: usize) -> Box<[AtomicU32]> {
    let words = Box::into_raw(vec![0_u32; count].into_boxed_slice());
    // SAFETY: an atomic word has the size, alignment and representation of a plain one, and nothing else
    // refers to these.
    unsafe { Box::from_raw(words as *mut [AtomicU32]) }
}
