// SPDX-License-Identifier: MIT OR Apache-2.0
//! Watchers: objects that are notified of signals without sleeping in SEM_WAIT.
//!
//! For the device a watcher is a sleeping host thread: it is counted in the
//! waiters words of its cells, which makes every signaller raise an interrupt.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tally_device::Device;
use tally_uapi::cell::{WAITERS, waiter_leaves};

use crate::backend::Watcher;

/// A watched cell in its bucket.
struct Watched {
    watch: u64,
    cell: usize,
    watcher: Arc<dyn Watcher>,
}

struct Watch {
    vm: u32,
    buckets: Vec<usize>,
    watcher: Arc<dyn Watcher>,
}

/// All watchers.
pub(super) struct Watches {
    buckets: Box<[Mutex<Vec<Watched>>]>,
    /// The number of watched cells in each bucket. It is raised before the watcher's half of the handshake
    /// with the waiters words, so a signaller that finds none has no watcher to notify.
    counts: Box<[AtomicUsize]>,
    all: Mutex<(u64, HashMap<u64, Watch>)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Default for Watches {
    fn default() -> Self {
        let buckets = (0..WAITERS).map(|_| Mutex::default()).collect();
        let counts = (0..WAITERS).map(|_| AtomicUsize::new(0)).collect();
        Self { buckets, counts, all: Mutex::default() }
    }
}

impl Watches {
    /// Watches a cell in each of these buckets, all of one VM.
    pub(super) fn add(
        &self,
        device: &Device,
        vm: u32,
        buckets: Vec<usize>,
        watcher: Arc<dyn Watcher>,
    ) -> u64 {
        let mut all = lock(&self.all);
        all.0 += 1;
        let watch = all.0;
        for (cell, &bucket) in buckets.iter().enumerate() {
            let watcher = Arc::clone(&watcher);
            lock(&self.buckets[bucket]).push(Watched { watch, cell, watcher });
            self.counts[bucket].fetch_add(1, Ordering::Relaxed);
            device.waiters(bucket).fetch_add(1, Ordering::Relaxed);
        }
        let count = buckets.len();
        all.1.insert(watch, Watch { vm, buckets, watcher: Arc::clone(&watcher) });
        drop(all);
        // The waiter's half of the handshake: count, fence, look.
        fence(Ordering::SeqCst);
        (0..count).for_each(|cell| watcher.look(cell));
        watch
    }

    /// Ends a watch. Its watcher is not called any more when this returns.
    pub(super) fn remove(&self, device: &Device, watch: u64) {
        let Some(gone) = lock(&self.all).1.remove(&watch) else { return };
        for bucket in gone.buckets {
            let mut watched = lock(&self.buckets[bucket]);
            let before = watched.len();
            watched.retain(|it| it.watch != watch);
            // A watch may have several cells in a bucket; the first pass removes all of them.
            (watched.len()..before).for_each(|_| waiter_leaves(device.waiters(bucket)));
            self.counts[bucket].fetch_sub(before - watched.len(), Ordering::Relaxed);
        }
    }

    /// Notifies the watchers of a bucket in which a cell was signalled.
    pub(super) fn signalled(&self, bucket: usize) {
        if self.counts[bucket].load(Ordering::Relaxed) == 0 {
            return;
        }
        for it in lock(&self.buckets[bucket]).iter() {
            it.watcher.look(it.cell);
        }
    }

    /// Notifies the watchers of a VM that is lost or destroyed.
    pub(super) fn vm_lost(&self, vm: u32) {
        let all = lock(&self.all);
        all.1.values().filter(|it| it.vm == vm).for_each(|it| it.watcher.lost());
    }
}
