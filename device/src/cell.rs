// SPDX-License-Identifier: MIT OR Apache-2.0
//! The semaphore unit: which queues wait for which cells.
//!
//! Cells fall into 512 buckets by their place in the page. Each bucket has a
//! waiters word, which every signaller reads, and a list of the queues that
//! are parked there. A signal looks at one bucket only.
//!
//! A look makes a queue runnable when its cell is met, or cannot be read; the
//! queue then takes its WAIT again, so a look too many does no harm.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tally_uapi::cell::{CellKind, Compare, WAITERS, waiter_enters, waiter_leaves, waiters_index};

use crate::guard::{Guard, Trap, word};
use crate::queue::Queue;

/// One wait: what a queue parks on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CellWait {
    pub(crate) address: u64,
    pub(crate) value: u64,
    pub(crate) kind: CellKind,
    pub(crate) compare: Compare,
}

impl CellWait {
    /// The wait of a recording's execution for the one before it.
    pub(crate) fn counter(address: u64, value: u64) -> Self {
        Self { address, value, kind: CellKind::Counter, compare: Compare::GreaterEqual }
    }

    /// Whether the cell meets the wait now.
    pub(crate) fn met(&self, guard: &mut Guard) -> Result<bool, Trap> {
        Ok(self.compare.met(guard.load(self.address)?, self.value))
    }
}

struct Parked {
    queue: Arc<Queue>,
    wait: CellWait,
}

/// The semaphore unit of a device.
pub(crate) struct SemaphoreUnit {
    waiters: Box<[AtomicU32]>,
    parked: Box<[Mutex<Vec<Parked>>]>,
    /// Queues parked on foreign cells, in each bucket and in all.
    foreign: Box<[AtomicUsize]>,
    foreign_total: AtomicUsize,
    /// Waits on foreign cells that ever began.
    foreign_begun: AtomicU64,
}

impl SemaphoreUnit {
    pub(crate) fn new() -> Self {
        Self {
            waiters: (0..WAITERS).map(|_| AtomicU32::new(0)).collect(),
            parked: (0..WAITERS).map(|_| Mutex::new(Vec::new())).collect(),
            foreign: (0..WAITERS).map(|_| AtomicUsize::new(0)).collect(),
            foreign_total: AtomicUsize::new(0),
            foreign_begun: AtomicU64::new(0),
        }
    }

    /// The waiters word of a bucket.
    pub(crate) fn waiters(&self, bucket: usize) -> &AtomicU32 {
        &self.waiters[bucket % WAITERS]
    }

    fn bucket(&self, bucket: usize) -> MutexGuard<'_, Vec<Parked>> {
        self.parked[bucket % WAITERS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Parks a queue. False, with the queue not parked, if it need not wait.
    ///
    /// The bucket stays locked until the queue is both listed and counted: a
    /// look in between would uncount a queue that is not counted yet, and with
    /// it hide another one from a signaller.
    pub(crate) fn park(&self, guard: &mut Guard, queue: &Arc<Queue>, wait: CellWait) -> bool {
        let bucket = waiters_index(wait.address);
        let mut parked = self.bucket(bucket);
        let waiters = self.waiters(bucket);
        let mut sleeps = false;
        let entered = guard.run(|| {
            // SAFETY: in a guarded call; packets with misaligned cells fault
            // before they get here.
            let cell = unsafe { word(wait.address) };
            // Counts first, so it is counted also if the cell cannot be read.
            sleeps = waiter_enters(waiters, cell, wait.compare, wait.value);
        });
        if entered.is_err() || !sleeps {
            waiter_leaves(waiters);
            return false;
        }
        if wait.kind == CellKind::Foreign {
            self.foreign[bucket].fetch_add(1, Ordering::Relaxed);
            self.foreign_total.fetch_add(1, Ordering::Relaxed);
            self.foreign_begun.fetch_add(1, Ordering::Relaxed);
        }
        parked.push(Parked { queue: Arc::clone(queue), wait });
        true
    }

    /// Takes a parked queue out. False if it is not in the bucket of `address`.
    pub(crate) fn remove(&self, queue: &Queue, address: u64) -> bool {
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

    fn leaves(&self, bucket: usize, gone: &Parked) {
        if gone.wait.kind == CellKind::Foreign {
            self.foreign[bucket].fetch_sub(1, Ordering::Relaxed);
            self.foreign_total.fetch_sub(1, Ordering::Relaxed);
        }
        waiter_leaves(self.waiters(bucket));
    }

    /// Queues parked on foreign cells.
    pub(crate) fn foreign(&self) -> usize {
        self.foreign_total.load(Ordering::Relaxed)
    }

    /// Waits on foreign cells that ever began.
    pub(crate) fn foreign_begun(&self) -> u64 {
        self.foreign_begun.load(Ordering::Relaxed)
    }

    /// Looks at a bucket; hands each queue that need not wait to `wake`, in the
    /// order in which they parked.
    pub(crate) fn look(&self, guard: &mut Guard, bucket: usize, wake: impl FnMut(Arc<Queue>)) {
        self.look_at(guard, bucket, false, wake);
    }

    /// Looks at all foreign cells.
    pub(crate) fn look_foreign(&self, guard: &mut Guard, mut wake: impl FnMut(Arc<Queue>)) {
        for bucket in 0..WAITERS {
            if self.foreign[bucket].load(Ordering::Relaxed) != 0 {
                self.look_at(guard, bucket, true, &mut wake);
            }
        }
    }

    fn look_at(
        &self,
        guard: &mut Guard,
        bucket: usize,
        foreign_only: bool,
        mut wake: impl FnMut(Arc<Queue>),
    ) {
        let mut parked = self.bucket(bucket);
        let ready: Vec<Parked> = parked
            .extract_if(.., |p| {
                let kind = p.wait.kind;
                (!foreign_only || kind == CellKind::Foreign) && p.wait.met(guard).unwrap_or(true)
            })
            .collect();
        drop(parked);
        for gone in ready {
            self.leaves(bucket, &gone);
            wake(gone.queue);
        }
    }
}
