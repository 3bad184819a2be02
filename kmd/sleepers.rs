// SPDX-License-Identifier: GPL-2.0
//! Who sleeps in SEM_WAIT, by the bucket of the cell that is waited for. A file of a wait, which is
//! polled, counts as a sleeper.
//!
//! A sleeper is in the list of every bucket that one of its cells is in, and is
//! counted there in the waiters page, which the device reads after each signal
//! (`device/SPEC.md`, chapters 6 and 14). Only then it looks at its cells and
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

/// A thread in SEM_WAIT, as the lists have it: one for each bucket of its cells.
#[pin_data]
struct Link {
    waiter: Arc<Waiter>,
    about: About,
    #[pin]
    links: ListLinks,
}

/// What somebody sleeps on, for people: of the cells in a bucket the first.
#[derive(Clone, Copy)]
pub(crate) struct About {
    /// The thread.
    pub(crate) thread: i32,
    /// The cell's place in its page, in bytes.
    pub(crate) place: usize,
    /// What it held when the thread looked first.
    pub(crate) cell: u64,
    /// How it is compared with `value`.
    pub(crate) compare: Compare,
    /// What it is compared with.
    pub(crate) value: u64,
}

impl_list_arc_safe! {
    impl ListArcSafe<0> for Link { untracked; }
}
impl_list_item! {
    impl ListItem<0> for Link { using ListLinks { self.links }; }
}

/// Everybody who sleeps, by bucket.
#[pin_data]
pub(crate) struct Sleepers {
    #[pin]
    inner: SpinLock<Inner>,
}

struct Inner {
    lists: KVVec<List<Link>>,
    /// What the device reads; none while there is no device.
    page: Option<Arc<Shared<WaitersPage>>>,
}

impl Inner {
    /// Wakes who sleeps on a cell of `bucket`; how many they are.
    fn wake(&self, bucket: usize) -> u32 {
        let links = self.lists.get(bucket).into_iter().flat_map(List::iter);
        links.map(|link| link.waiter.wake()).count() as u32
    }

    fn count(&self, bucket: usize, change: impl Fn(&tally_uapi::sync::AtomicU32)) {
        let page = self.page.as_ref().and_then(|page| page.atomics());
        if let Some(word) = page.and_then(|page| page.waiters.get(bucket)) {
            change(word);
        }
    }
}

impl Sleepers {
    /// Nobody sleeps.
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

    /// From now on the device reads `page`: counts in it who sleeps already. `None`:
    /// the page is not written any more.
    pub(crate) fn publish_to(&self, page: Option<Arc<Shared<WaitersPage>>>) {
        let mut inner = self.inner.lock();
        let before = core::mem::replace(&mut inner.page, page);
        for bucket in 0..WAITERS {
            let sleeping = inner.lists.get(bucket).map_or(0, |list| list.iter().count()) as u32;
            inner.count(bucket, |word| word.store(sleeping, Ordering::Relaxed));
        }
        drop(inner);
        // Outside of the lock: freeing it may sleep.
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
        // SAFETY: a link is only ever in the list of its bucket.
        let removed = inner.lists.get_mut(bucket).and_then(|list| unsafe { list.remove(link) });
        inner.count(bucket, |word| {
            word.fetch_sub(1, Ordering::Release);
        });
        drop(inner);
        drop(removed);
    }

    /// Wakes who sleeps on a cell of `bucket`.
    pub(crate) fn wake(&self, bucket: usize) {
        self.inner.lock().wake(bucket);
    }

    /// As [`Self::wake`], after a host has written a cell there, and a full fence. Whether the device
    /// has waiters there, too, which are to be told.
    #[must_use]
    pub(crate) fn wake_for_host(&self, bucket: usize) -> bool {
        let inner = self.inner.lock();
        let ours = inner.wake(bucket);
        // Ours change under this lock only, and what the device counts reads its cells afterwards.
        let page = inner.page.as_ref().and_then(|page| page.atomics());
        let word = page.and_then(|page| page.waiters.get(bucket));
        word.is_some_and(|word| word.load(Ordering::SeqCst) != ours)
    }

    /// Wakes everybody: something else than a cell has changed.
    pub(crate) fn wake_all(&self) {
        for bucket in 0..WAITERS {
            self.wake(bucket);
        }
    }

    /// How many cells are slept on.
    pub(crate) fn asleep(&self) -> usize {
        self.inner.lock().lists.iter().map(|list| list.iter().count()).sum()
    }

    /// Who sleeps on what, as far as there is room in `out`; returns for how many there was none.
    pub(crate) fn about(&self, out: &mut KVec<About>) -> usize {
        let inner = self.inner.lock();
        let all = inner.lists.iter().flat_map(List::iter);
        all.filter(|link| out.push_within_capacity(link.about).is_err()).count()
    }
}

/// A sleeper's places in the lists; leaves them when dropped. `S` leads to the lists.
pub(crate) struct Places<S: Deref<Target = Sleepers>> {
    sleepers: S,
    links: KVec<(usize, Arc<Link>)>,
}

impl<S: Deref<Target = Sleepers>> Places<S> {
    /// Counts `waiter` in each of these buckets, once.
    ///
    /// # Errors
    /// ENOMEM.
    pub(crate) fn enter(
        sleepers: S,
        waiter: &Arc<Waiter>,
        cells: impl ExactSizeIterator<Item = (usize, About)>,
    ) -> Result<Self> {
        let mut places =
            Self { sleepers, links: KVec::with_capacity(cells.len(), GFP_KERNEL_ACCOUNT)? };
        for (bucket, about) in cells {
            if places.links.iter().any(|(other, _)| *other == bucket) {
                continue;
            }
            let waiter = waiter.clone();
            let link = ListArc::pin_init(
                try_pin_init!(Link { waiter, about, links <- ListLinks::new() }),
                GFP_KERNEL_ACCOUNT,
            )?;
            places.links.push((bucket, places.sleepers.enter(bucket, link)), GFP_KERNEL_ACCOUNT)?;
        }
        // Between the counting and the look at the cells (`uapi/src/cell.rs`).
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
