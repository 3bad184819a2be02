// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels that check themselves: the blocks to which their code refers, and the ring of their records.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tally_compiler_protocol::checks::{Site, SiteKind, Sites, record, watch};

use super::shadow::Addresses;

/// Number of words of the ring of records.
const RING: usize = record::SIZE as usize / 8;

/// The ring, with the alignment that kernels rely on.
#[repr(C, align(64))]
struct Ring([AtomicU64; RING]);

/// The data to which a kernel's code refers. It is kept until the process ends, since records name it.
pub struct Watched {
    /// The block, as kernels read it.
    block: [u64; watch::SIZE as usize / 8],
    /// Two words for each site.
    counts: Box<[AtomicU64]>,
    /// The places that it has reported as reached.
    _seen: Box<[AtomicU64]>,
    /// The kernel's name.
    pub kernel: String,
    /// The checked places of the kernel.
    pub sites: Sites,
}

/// A mistake, as a kernel has recorded it.
#[derive(Clone)]
pub struct Record {
    pub watched: Arc<Watched>,
    pub site: u32,
    pub launch: u64,
    /// The work-items of a vector that made it, and the index of the first one in the vector.
    pub items: u32,
    pub address: u64,
    pub states: [u8; 8],
    pub epoch: u64,
    pub group: [u64; 3],
    pub local: [u64; 3],
    pub global: [u64; 3],
    /// The run of the group, if accesses are remembered.
    pub run: u32,
    /// Of a race: the other access, and whether both store the same.
    pub other: u64,
    pub same_value: bool,
    /// Work-items of a full group, and groups, in each dimension.
    pub size: [u64; 3],
    pub groups: [u64; 3],
}

/// All checked kernels of the process.
#[derive(Default)]
pub struct Kernels {
    ring: OnceLock<Box<Ring>>,
    by_block: Mutex<HashMap<u64, Arc<Watched>>>,
    /// Held while records are taken.
    reader: Mutex<()>,
}

impl Watched {
    /// The address of the block.
    pub fn block(&self) -> u64 {
        self.block.as_ptr() as u64
    }

    /// Mistakes at a site are told again, of which otherwise only the first ones are.
    pub fn tell_again(&self, site: u32) {
        if let Some(count) = self.counts.get(2 * site as usize + 1) {
            count.store(0, Ordering::Relaxed);
        }
    }

    /// Number of work-items that have made a mistake at a site.
    pub fn count(&self, site: u32) -> u64 {
        self.counts.get(2 * site as usize).map_or(0, |count| count.load(Ordering::Relaxed))
    }
}

impl Record {
    /// The place in the kernel.
    pub fn place(&self) -> &Site {
        &self.watched.sites.sites[self.site as usize]
    }
}

impl Kernels {
    fn ring(&self) -> &Ring {
        self.ring.get_or_init(|| Box::new(Ring([const { AtomicU64::new(0) }; RING])))
    }

    fn kernels(&self) -> MutexGuard<'_, HashMap<u64, Arc<Watched>>> {
        self.by_block.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates the block of a kernel's code. `states`: the address of the shadow, or 0 without one; `cells`: the
    /// fields of the block for what is remembered of accesses.
    pub fn add(
        &self,
        addresses: Addresses,
        states: u64,
        cells: &[(u32, u64)],
        kernel: &str,
        sites: &Sites,
    ) -> Arc<Watched> {
        let zeros =
            |count: usize| -> Box<[AtomicU64]> { (0..count).map(|_| AtomicU64::new(0)).collect() };
        let counts = zeros(2 * sites.sites.len());
        let reaches = sites.sites.iter().any(|site| site.kind == SiteKind::Reach);
        let seen = zeros(if reaches { watch::SEEN_COUNT as usize } else { 0 });
        let mut block = [0; watch::SIZE as usize / 8];
        for (at, word) in [
            (watch::MASK, addresses.mask),
            (watch::SHADOW, states),
            (watch::START, addresses.start),
            (watch::RING, self.ring().0.as_ptr() as u64),
            (watch::COUNTS, counts.as_ptr() as u64),
            (watch::SEEN, seen.as_ptr() as u64),
        ]
        .into_iter()
        .chain(cells.iter().copied())
        {
            block[at as usize / 8] = word;
        }
        let (kernel, sites) = (kernel.to_owned(), sites.clone());
        let watched = Arc::new(Watched { block, counts, _seen: seen, kernel, sites });
        self.kernels().insert(watched.block(), Arc::clone(&watched));
        watched
    }

    /// The kernel with a block.
    pub fn find(&self, block: u64) -> Option<Arc<Watched>> {
        self.kernels().get(&block).cloned()
    }

    /// Publishes the count of allocations and frees to kernels.
    pub fn set_epoch(&self, epoch: u64) {
        self.ring().0[record::EPOCH as usize / 8].store(epoch, Ordering::Relaxed);
    }

    /// Takes the records that are complete.
    pub fn take(&self) -> Vec<Record> {
        let Some(ring) = self.ring.get() else { return Vec::new() };
        let _one = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let word = |offset: u32| &ring.0[offset as usize / 8];
        let mut found = Vec::new();
        let mut tail = word(record::TAIL).load(Ordering::Relaxed);
        while tail < word(record::HEAD).load(Ordering::Acquire) {
            let at = record::FIRST as usize / 8
                + (tail % u64::from(record::CAPACITY)) as usize * record::WORDS;
            let words = &ring.0[at..at + record::WORDS];
            if words[record::READY].load(Ordering::Acquire) != tail + 1 {
                // Its kernel is about to complete it; a thread that waits for the kernel finds it complete.
                break;
            }
            found.extend(self.read(words));
            tail += 1;
            word(record::TAIL).store(tail, Ordering::Release);
        }
        found
    }

    /// Number of records for which there was no room.
    pub fn lost(&self) -> u64 {
        self.ring.get().map_or(0, |ring| ring.0[record::LOST as usize / 8].load(Ordering::Relaxed))
    }

    /// Whether accesses were forgotten with which others may race.
    pub fn has_dropped(&self) -> bool {
        let word = self.ring.get().map(|ring| &ring.0[record::DROPPED as usize / 8]);
        word.is_some_and(|word| word.load(Ordering::Relaxed) != 0)
    }

    /// The last access to an address that has no state.
    pub fn outside(&self, address: u64) -> Option<Record> {
        let ring = self.ring.get()?;
        let slots = (0..record::OUTSIDE_COUNT as usize)
            .map(|i| record::OUTSIDE as usize / 8 + i * record::WORDS)
            .map(|at| &ring.0[at..at + record::WORDS]);
        let near = |words: &&[AtomicU64]| {
            // The fault of a vector access may be at any of its bytes.
            address.wrapping_sub(words[record::ADDRESS].load(Ordering::Relaxed)) < 64
                && words[record::WATCH].load(Ordering::Relaxed) != 0
        };
        slots.into_iter().find(near).and_then(|words| self.read(words))
    }

    fn read(&self, words: &[AtomicU64]) -> Option<Record> {
        let word = |at: usize| words[at].load(Ordering::Relaxed);
        // A kernel with stray writes may have damaged it.
        let watched = self.kernels().get(&word(record::WATCH)).cloned()?;
        let site = word(record::SITE) as u32;
        let three = |packed: u64| [0, 21, 42].map(|shift| packed >> shift & ((1 << 21) - 1));
        (site < watched.sites.sites.len() as u32).then(|| Record {
            watched,
            site,
            launch: word(record::LAUNCH),
            items: (word(record::ITEMS) as u32).count_ones(),
            address: word(record::ADDRESS),
            states: word(record::STATES).to_le_bytes(),
            epoch: word(record::WHEN),
            group: three(word(record::GROUP)),
            local: three(word(record::LOCAL_ID)),
            global: [0, 1, 2].map(|d| word(record::GLOBAL_ID + d)),
            run: word(record::RUN) as u32,
            other: word(record::STATES),
            same_value: word(record::RUN) & record::SAME_VALUE != 0,
            size: three(word(record::SIZE_OF_GROUP)),
            groups: three(word(record::GROUPS)),
        })
    }
}
