// SPDX-License-Identifier: MIT OR Apache-2.0
//! The semaphore unit: it tracks which queues wait for which cells. It compares
//! queues (`Q`) only by identity.
//!
//! Cells fall into 512 buckets by their place in the page. Each bucket has a
//! waiters word, which every signaller reads, and a list of the queues that
//! are parked there. A signal looks at one bucket only.
//!
//! A look makes a queue runnable when its wait is met, or its cell cannot be
//! read or has been orphaned. The queue then takes its WAIT again, so a needless
//! look does no harm.

use crate::sync::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Mutex, MutexGuard};
use std::ops::Range;
use std::sync::{Arc, PoisonError};

use tally_uapi::cell::{CellKind, Compare, WAITERS, waiter_enters, waiter_leaves, waiters_index};
use tally_uapi::fault::FaultKind;

use crate::confined::Outside;
use crate::guard::{Guard, Trap, word};

mod orphans;

use orphans::Orphans;

/// A wait for one cell, which a queue can park on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CellWait {
    pub(crate) address: u64,
    pub(crate) value: u64,
    pub(crate) kind: CellKind,
    pub(crate) compare: Compare,
}

impl CellWait {
    /// The wait of a recording's execution for the previous execution.
    pub(crate) fn counter(address: u64, value: u64) -> Self {
        Self { address, value, kind: CellKind::Counter, compare: Compare::GreaterEqual }
    }

    /// Whether a store of `value` at `address` happens no later than the awaited store of this counter.
    pub(crate) fn waits_for(&self, address: u64, value: u64) -> bool {
        address == self.address && value <= self.value
    }

    /// Whether the cell meets the wait now. A trap if it does not and can no
    /// longer be signalled.
    pub(crate) fn met<Q>(&self, guard: &mut Guard, unit: &SemaphoreUnit<Q>) -> Result<bool, Trap> {
        // Read before the cell, so that signals of its signallers while they lived are seen.
        let orphaned = unit.is_orphan(self.address);
        match self.compare.met(guard.load(self.address)?, self.value) {
            false if orphaned => Err(Trap::new(FaultKind::Orphaned, self.address)),
            met => Ok(met),
        }
    }
}

struct Parked<Q> {
    queue: Arc<Q>,
    wait: CellWait,
}

/// A bucket, alone in its cache lines, so that signals of other cells read other lines.
#[repr(align(128))]
struct Bucket<Q> {
    /// The waiters word, unless it lies in memory that other processes can read.
    waiters: AtomicU32,
    /// Queues that are parked here, or about to be. A queue is counted before its half of the handshake with
    /// the waiters word, so a signaller that finds none has no queue to look at. Host threads are not counted.
    queues: AtomicUsize,
    /// Queues parked on foreign cells.
    foreign: AtomicUsize,
    parked: Mutex<Vec<Parked<Q>>>,
}

impl<Q> Bucket<Q> {
    fn new() -> Self {
        Self {
            waiters: AtomicU32::new(0),
            queues: AtomicUsize::new(0),
            foreign: AtomicUsize::new(0),
            parked: Mutex::new(Vec::new()),
        }
    }
}

/// The semaphore unit of a device.
pub(crate) struct SemaphoreUnit<Q> {
    buckets: Box<[Bucket<Q>]>,
    /// In an engine process: others outside, and the words to be used instead.
    pub(crate) outside: Option<Outside>,
    /// Queues parked on foreign cells, in all buckets.
    foreign_total: AtomicUsize,
    /// Number of waits on foreign cells since the start.
    foreign_begun: AtomicU64,
    /// VAs of cells whose signallers are gone, and whether there are any.
    orphans: Mutex<Orphans>,
    any_orphans: AtomicBool,
}

impl<Q> SemaphoreUnit<Q> {
    pub(crate) fn new(outside: Option<Outside>) -> Self {
        Self {
            outside,
            buckets: (0..WAITERS).map(|_| Bucket::new()).collect(),
            foreign_total: AtomicUsize::new(0),
            foreign_begun: AtomicU64::new(0),
            orphans: Mutex::default(),
            any_orphans: AtomicBool::new(false),
        }
    }

    fn orphans(&self) -> MutexGuard<'_, Orphans> {
        self.orphans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Declares that the cells of a range can no longer be signalled. The caller
    /// then looks at the waits that are parked there. False, with nothing changed,
    /// if there are too many ranges.
    pub(crate) fn orphan(&self, cells: Range<u64>) -> bool {
        let mut orphans = self.orphans();
        let added = orphans.add(cells);
        self.any_orphans.store(!orphans.is_empty(), Ordering::SeqCst);
        added
    }

    /// Ends the declaration for a range, which is used for something else from now
    /// on. The rest of a range of orphans that it cuts remains as one range, or two.
    pub(crate) fn adopt(&self, cells: &Range<u64>) {
        if self.any_orphans.load(Ordering::SeqCst) {
            let mut orphans = self.orphans();
            orphans.remove(cells);
            self.any_orphans.store(!orphans.is_empty(), Ordering::SeqCst);
        }
    }

    fn is_orphan(&self, address: u64) -> bool {
        self.any_orphans.load(Ordering::SeqCst) && self.orphans().contains(address)
    }

    /// The waiters word of a bucket.
    pub(crate) fn waiters(&self, bucket: usize) -> &AtomicU32 {
        match &self.outside {
            None => &self.buckets[bucket % WAITERS].waiters,
            Some(outside) => &outside.confined.waiters[bucket % WAITERS],
        }
    }

    fn tell_outside(&self, bucket: usize) {
        if let Some(outside) = &self.outside {
            outside.host.waiters_changed(bucket);
        }
    }

    fn bucket(&self, bucket: usize) -> MutexGuard<'_, Vec<Parked<Q>>> {
        self.buckets[bucket % WAITERS].parked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Parks a queue. False, with the queue not parked, if it need not wait.
    ///
    /// The bucket stays locked until the queue is both listed and counted: a
    /// look in between would uncount a queue that is not counted yet, and with
    /// it hide another one from a signaller.
    pub(crate) fn park(&self, guard: &mut Guard, queue: &Arc<Q>, wait: CellWait) -> bool {
        let bucket = waiters_index(wait.address);
        let mut parked = self.bucket(bucket);
        let waiters = self.waiters(bucket);
        let mut sleeps = false;
        self.buckets[bucket].queues.fetch_add(1, Ordering::Relaxed);
        let entered = guard.run(|| {
            // SAFETY: in a guarded call; packets with misaligned cells fault
            // before they get here.
            let cell = unsafe { word(wait.address) };
            // It counts first, so the queue is counted even if the cell cannot be read.
            sleeps = waiter_enters(waiters, cell, wait.compare, wait.value);
        });
        // Checked after the count and under the bucket's lock, so that a thread that orphans the cell then looks.
        if entered.is_err() || !sleeps || self.is_orphan(wait.address) {
            waiter_leaves(waiters);
            self.buckets[bucket].queues.fetch_sub(1, Ordering::Relaxed);
            self.tell_outside(bucket);
            return false;
        }
        if wait.kind == CellKind::Foreign {
            self.buckets[bucket].foreign.fetch_add(1, Ordering::Relaxed);
            self.foreign_total.fetch_add(1, Ordering::Relaxed);
            self.foreign_begun.fetch_add(1, Ordering::Relaxed);
        }
        parked.push(Parked { queue: Arc::clone(queue), wait });
        drop(parked);
        self.tell_outside(bucket);
        true
    }

    /// Removes a parked queue. False if it is not in the bucket of `address`.
    pub(crate) fn remove(&self, queue: &Q, address: u64) -> bool {
        let bucket = waiters_index(address);
        let mut parked = self.bucket(bucket);
        let Some(at) = parked.iter().position(|p| std::ptr::eq(&*p.queue, queue)) else {
            return false;
        };
        let gone = parked.swap_remove(at);
        drop(parked);
        self.leaves(bucket, &gone);
        true
    }

    fn leaves(&self, bucket: usize, gone: &Parked<Q>) {
        if gone.wait.kind == CellKind::Foreign {
            self.buckets[bucket].foreign.fetch_sub(1, Ordering::Relaxed);
            self.foreign_total.fetch_sub(1, Ordering::Relaxed);
        }
        waiter_leaves(self.waiters(bucket));
        self.buckets[bucket].queues.fetch_sub(1, Ordering::Relaxed);
        self.tell_outside(bucket);
    }

    /// Queues parked on foreign cells.
    pub(crate) fn foreign(&self) -> usize {
        self.foreign_total.load(Ordering::Relaxed)
    }

    /// Number of waits on foreign cells since the start.
    pub(crate) fn foreign_begun(&self) -> u64 {
        self.foreign_begun.load(Ordering::Relaxed)
    }

    /// Whether queues wait in a bucket. The caller has learned from
    /// [`signaller_must_wake`](tally_uapi::cell::signaller_must_wake) that there is a waiter.
    pub(crate) fn has_queues(&self, bucket: usize) -> bool {
        self.buckets[bucket % WAITERS].queues.load(Ordering::Relaxed) != 0
    }

    /// Looks at a bucket; hands each queue that need not wait to `wake`, in the
    /// order in which they parked.
    pub(crate) fn look(&self, guard: &mut Guard, bucket: usize, wake: impl FnMut(Arc<Q>)) {
        self.look_at(guard, bucket, false, wake);
    }

    /// Looks at all foreign cells.
    pub(crate) fn look_foreign(&self, guard: &mut Guard, mut wake: impl FnMut(Arc<Q>)) {
        for bucket in 0..WAITERS {
            if self.buckets[bucket].foreign.load(Ordering::Relaxed) != 0 {
                self.look_at(guard, bucket, true, &mut wake);
            }
        }
    }

    fn look_at(
        &self,
        guard: &mut Guard,
        bucket: usize,
        foreign_only: bool,
        mut wake: impl FnMut(Arc<Q>),
    ) {
        let mut parked = self.bucket(bucket);
        let ready: Vec<Parked<Q>> = parked
            .extract_if(.., |p| {
                let kind = p.wait.kind;
                (!foreign_only || kind == CellKind::Foreign)
                    && p.wait.met(guard, self).unwrap_or(true)
            })
            .collect();
        drop(parked);
        for gone in ready {
            self.leaves(bucket, &gone);
            wake(gone.queue);
        }
    }
}
