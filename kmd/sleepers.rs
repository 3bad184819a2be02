// SPDX-License-Identifier: GPL-2.0
//! The threads that sleep in SEM_WAIT, by the bucket of the cell that they wait for. The file of a wait,
//! which is polled, counts as a sleeper, and so does a wait that tells a target.
//!
//! A sleeper is in the list of every bucket that one of its cells is in, and is
//! counted there in the waiters page, which the device reads after each signal
//! (`device/SPEC.md`, chapters 6 and 14). Only after that it reads its cells and
//! sleeps: so either it sees the signal, or the signaller sees it.
//!
//! All this outlives the hardware: sleepers are woken when the device goes, and
//! leave their lists later.

use core::ops::Deref;
use core::sync::atomic::{fence, Ordering};

use kernel::list::{impl_list_arc_safe, impl_list_item, List, ListArc, ListLinks};
use kernel::prelude::*;
use kernel::sync::{new_spinlock, Arc, SpinLock};
use tally_uapi::cell::{Compare, WAITERS};
use tally_uapi::firmware::WaitersPage;

use crate::raw::wait::Waiter;
use crate::shared::Shared;

/// A sleeping thread, or an object that waits in its place.
pub(crate) trait Sleeper: Send + Sync {
    /// Has the sleeper look again: a cell may have changed, or a VM or the device has ended. The caller holds a
    /// spinlock.
    fn wake(&self);
}

impl Sleeper for Waiter {
    fn wake(&self) {
        Waiter::wake(self);
    }
}

/// An entry of a sleeper, one for each bucket of its cells.
#[pin_data]
struct Link {
    sleeper: Arc<dyn Sleeper>,
    about: About,
    #[pin]
    links: ListLinks,
}

/// The cell that a thread sleeps on, for debugfs: the first of its cells in a bucket.
#[derive(Clone, Copy)]
pub(crate) struct About {
    /// The thread.
    pub(crate) thread: i32,
    /// The cell's offset in its page, in bytes.
    pub(crate) place: usize,
    /// The cell's value when the thread first read it.
    pub(crate) cell: u64,
    /// The comparison of the cell with `value`.
    pub(crate) compare: Compare,
    /// The awaited value.
    pub(crate) value: u64,
}

impl_list_arc_safe! {
    impl ListArcSafe<0> for Link { untracked; }
}
impl_list_item! {
    impl ListItem<0> for Link { using ListLinks { self.links }; }
}

/// All sleepers, by bucket.
#[pin_data]
pub(crate) struct Sleepers {
    #[pin]
    inner: SpinLock<Inner>,
}

struct Inner {
    lists: KVVec<List<Link>>,
    /// The page that the device reads; none while there is no device.
    page: Option<Arc<Shared<WaitersPage>>>,
}

impl Inner {
    /// Wakes the sleepers of `bucket`, and returns their number.
    fn wake(&self, bucket: usize) -> u32 {
        let links = self.lists.get(bucket).into_iter().flat_map(List::iter);
        links.map(|link| link.sleeper.wake()).count() as u32
    }

    fn count(&self, bucket: usize, change: impl Fn(&tally_uapi::sync::AtomicU32)) {
        let page = self.page.as_ref().and_then(|page| page.atomics());
        if let Some(word) = page.and_then(|page| page.waiters.get(bucket)) {
            change(word);
        }
    }
}

impl Sleepers {
    /// Empty lists.
    pub(crate) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            inner <- new_spinlock!(Inner {
                lists: {
                    let mut lists = KVVec::with_capacity(WAITERS, GFP_KERNEL)?;
                    for _ in 0..WAITERS {
                        lists.push(List::new(), GFP_KERNEL)?;
                    }
                    lists
                },
                page: None,
            }),
        }? Error)
    }

    /// Counts the present sleepers in `page`, which the device reads from now on. `None`:
    /// the previous page is not written any more.
    pub(crate) fn publish_to(&self, page: Option<Arc<Shared<WaitersPage>>>) {
        let mut inner = self.inner.lock();
        let before = core::mem::replace(&mut inner.page, page);
        for bucket in 0..WAITERS {
            let sleeping = inner
                .lists
                .get(bucket)
                .map_or(0, |list| list.iter().count()) as u32;
            inner.count(bucket, |word| word.store(sleeping, Ordering::Relaxed));
        }
        drop(inner);
        // Dropped without the lock, since freeing it may sleep.
        drop(before);
    }

    fn enter(&self, bucket: usize, link: ListArc<Link>) -> Arc<Link> {
        let arc = link.clone_arc();
        let mut inner = self.inner.lock();
        if let Some(list) = inner.lists.get_mut(bucket) {
            list.push_back(link);
        }
        inner.count(bucket, |word| {
            word.fetch_add(1, Ordering::Relaxed);
        });
        arc
    }

    fn leave(&self, bucket: usize, link: &Link) {
        let mut inner = self.inner.lock();
        let removed = inner.lists.get_mut(bucket).and_then(|list| {
            // SAFETY: a link is never in another list than that of its bucket.
            unsafe { list.remove(link) }
        });
        inner.count(bucket, |word| {
            word.fetch_sub(1, Ordering::Release);
        });
        drop(inner);
        drop(removed);
    }

    /// Wakes the sleepers of `bucket`.
    pub(crate) fn wake(&self, bucket: usize) {
        self.inner.lock().wake(bucket);
    }

    /// Like [`Self::wake`], after a host has written a cell of the bucket and executed a full fence.
    /// Returns whether the device has waiters there, too, which then have to be woken.
    #[must_use]
    pub(crate) fn wake_for_host(&self, bucket: usize) -> bool {
        let inner = self.inner.lock();
        let ours = inner.wake(bucket);
        // Our count changes under this lock only, and waiters that the device counts read their cells after that.
        let page = inner.page.as_ref().and_then(|page| page.atomics());
        let word = page.and_then(|page| page.waiters.get(bucket));
        word.is_some_and(|word| word.load(Ordering::SeqCst) != ours)
    }

    /// Wakes all sleepers: something other than a cell has changed.
    pub(crate) fn wake_all(&self) {
        for bucket in 0..WAITERS {
            self.wake(bucket);
        }
    }

    /// Number of sleepers, counted once for each bucket of their cells.
    pub(crate) fn asleep(&self) -> usize {
        self.inner
            .lock()
            .lists
            .iter()
            .map(|list| list.iter().count())
            .sum()
    }

    /// Lists the sleepers, as far as `out` has room; returns the number of those that it had no room for.
    pub(crate) fn about(&self, out: &mut KVec<About>) -> usize {
        let inner = self.inner.lock();
        let all = inner.lists.iter().flat_map(List::iter);
        all.filter(|link| out.push_within_capacity(link.about).is_err())
            .count()
    }
}

/// A sleeper's places in the lists, which it leaves on drop. `S` refers to the lists.
pub(crate) struct Places<S: Deref<Target = Sleepers>> {
    sleepers: S,
    links: KVec<(usize, Arc<Link>)>,
}

impl<S: Deref<Target = Sleepers>> Places<S> {
    /// Counts `sleeper` in each of these buckets, once.
    ///
    /// # Errors
    /// ENOMEM.
    pub(crate) fn enter(
        sleepers: S,
        sleeper: Arc<dyn Sleeper>,
        cells: impl ExactSizeIterator<Item = (usize, About)>,
    ) -> Result<Self> {
        let mut places = Self {
            sleepers,
            links: KVec::with_capacity(cells.len(), GFP_KERNEL_ACCOUNT)?,
        };
        for (bucket, about) in cells {
            if places.links.iter().any(|(other, _)| *other == bucket) {
                continue;
            }
            let sleeper = sleeper.clone();
            let link = ListArc::pin_init(
                try_pin_init!(Link { sleeper, about, links <- ListLinks::new() }),
                GFP_KERNEL_ACCOUNT,
            )?;
            places.links.push(
                (bucket, places.sleepers.enter(bucket, link)),
                GFP_KERNEL_ACCOUNT,
            )?;
        }
        // Orders the counting before the caller's reads of the cells (`uapi/src/cell.rs`).
        fence(Ordering::SeqCst);
        Ok(places)
    }
}

impl<S: Deref<Target = Sleepers>> Drop for Places<S> {
    fn drop(&mut self) {
        for (bucket, link) in &self.links {
            self.sleepers.leave(*bucket, link);
        }
    }
}
