// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reference to [`Shared`] that an event keeps.
//!
//! Programs create and destroy events by the million, and all of them refer to the same `Shared`. An
//! `Arc` for each would cost two atomic operations on a word that all threads write. The sum is not
//! needed while a context is open, because the context keeps the `Shared`. So each thread counts, in a
//! word that it alone writes, the events that it has created less those that it has destroyed. The
//! counts are added up when the last context closes: if events are left, the `Shared` keeps itself
//! until the last of them is destroyed. From then on each thread that creates or destroys one looks at
//! the sum.
//!
//! A thread writes its count and then reads whether the count is watched. The thread that closes the
//! last context marks all counts as watched and then reads them. One of the two must see the other's
//! write, for which both would need a full fence. With `membarrier` the kernel makes that fence for all
//! threads, and only the thread that closes the context pays for it.

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::shared::Shared;
use crate::handle::local::{self, Counted, Local, ThreadCount};

/// A reference to [`Shared`] that its thread counts.
#[derive(Debug)]
pub struct CountedRef(ManuallyDrop<Arc<Shared>>);

impl CountedRef {
    /// A reference to `shared`.
    pub fn of(shared: &Arc<Shared>) -> Self {
        enter(shared, 1);
        Self::entered(shared)
    }

    /// The same, if the thread has a count for `shared`; `local` is the thread's own data.
    #[inline(always)]
    pub fn at_hand(local: &Local, shared: &Arc<Shared>) -> Option<Self> {
        local.enter(owner(shared), 1).then(|| Self::entered(shared))
    }

    #[inline(always)]
    fn entered(shared: &Arc<Shared>) -> Self {
        // SAFETY: a copy of an `Arc` that exists now; the copy is never dropped as one. The `Shared`
        // exists as long as the counts include this reference.
        Self(ManuallyDrop::new(unsafe { ptr::read(shared) }))
    }

    /// Does the work of a drop, if the thread has a count for the `Shared`, else nothing. If it returns true,
    /// the caller forgets the reference.
    #[inline(always)]
    pub fn leave_at_hand(&self, local: &Local) -> bool {
        local.enter(owner(&self.0), -1)
    }
}

impl Deref for CountedRef {
    type Target = Arc<Shared>;

    #[inline]
    fn deref(&self) -> &Arc<Shared> {
        &self.0
    }
}

impl Drop for CountedRef {
    fn drop(&mut self) {
        enter(&self.0, -1);
    }
}

/// The number by which a count identifies its [`Shared`].
#[inline(always)]
fn owner(shared: &Arc<Shared>) -> usize {
    Arc::as_ptr(shared).addr()
}

/// Counts a reference that was made or dropped. After a drop `shared` may be gone when this returns.
fn enter(shared: &Arc<Shared>, change: i64) {
    let entered = |local: &Local| local.enter(owner(shared), change).then_some(());
    if local::with(entered).is_none() {
        enter_elsewhere(shared, change);
    }
}

/// [`enter`] for a thread that has no count for `shared` yet, or is ending.
#[cold]
fn enter_elsewhere(shared: &Arc<Shared>, change: i64) {
    let entered = local::with(|local| {
        local.open(shared.ref_counts().open(shared));
        local.enter(owner(shared), change).then_some(())
    });
    if entered.is_none() {
        // The clone keeps it until this returns.
        let kept = shared.clone();
        kept.ref_counts().lock().settled += change;
        kept.ref_counts().look(&kept);
    }
}

impl Counted for Shared {
    fn look(self: Arc<Self>) {
        self.ref_counts().look(&self);
    }

    fn close(&self, count: &Arc<ThreadCount>) {
        let mut totals = self.ref_counts().lock();
        totals.counts.retain(|it| !Arc::ptr_eq(it, count));
        totals.settled += count.balance();
    }
}

/// The counts of a [`Shared`].
#[derive(Default)]
pub struct RefCounts(Mutex<Totals>);

#[derive(Default)]
struct Totals {
    /// Contexts that are open, each of which keeps the `Shared`.
    contexts: usize,
    counts: Vec<Arc<ThreadCount>>,
    /// The sum of the counts that were closed.
    settled: i64,
    /// The `Shared` itself, while no context is open and references are left.
    kept: Option<Arc<Shared>>,
}

impl Totals {
    fn is_watched(&self) -> bool {
        self.contexts == 0 || !fences()
    }

    fn watch(&self) {
        let watched = self.is_watched();
        self.counts.iter().for_each(|it| it.watch(watched));
    }

    fn sum(&self) -> i64 {
        self.settled + self.counts.iter().map(|it| it.balance()).sum::<i64>()
    }
}

impl RefCounts {
    fn lock(&self) -> MutexGuard<'_, Totals> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a context opens; it keeps the `Shared` until [`RefCounts::context_closes`].
    pub fn context_opens(&self) {
        let mut totals = self.lock();
        totals.contexts += 1;
        totals.watch();
        let kept = totals.kept.take();
        drop(totals);
        drop(kept);
    }

    /// Notes that a context is about to close. `shared` owns these counts.
    pub fn context_closes(&self, shared: &Arc<Shared>) {
        let mut totals = self.lock();
        totals.contexts -= 1;
        if totals.contexts != 0 {
            return;
        }
        totals.watch();
        drop(totals);
        fence_all();
        self.look(shared);
    }

    /// Makes `shared`, which owns these counts, keep itself if no context does and references are left.
    fn look(&self, shared: &Arc<Shared>) {
        let mut totals = self.lock();
        if totals.contexts != 0 {
            return;
        }
        let old = match totals.sum() {
            0 => totals.kept.take(),
            _ => totals.kept.replace(shared.clone()),
        };
        drop(totals);
        drop(old);
    }

    fn open(&self, shared: &Arc<Shared>) -> Arc<ThreadCount> {
        let mut totals = self.lock();
        let counted = Arc::downgrade(shared);
        let count = Arc::new(ThreadCount::new(owner(shared), counted, totals.is_watched()));
        totals.counts.push(count.clone());
        count
    }
}

const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;
const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: the call accesses none of our memory.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Whether the system has `membarrier`. If not, all counts are always watched.
fn fences() -> bool {
    static FENCES: OnceLock<bool> = OnceLock::new();
    *FENCES.get_or_init(|| membarrier(REGISTER_PRIVATE_EXPEDITED))
}

/// Executes a full fence on every thread of the process between the begin and the end of this call.
fn fence_all() {
    if fences() {
        membarrier(PRIVATE_EXPEDITED);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use super::*;
    use crate::vm::tests::fake;

    /// A `Shared`, and a weak reference that shows whether it still exists.
    fn shared() -> (Arc<Shared>, Weak<Shared>) {
        let (_, vm) = fake();
        let shared = Shared::of(&vm);
        let weak = Arc::downgrade(&shared);
        (shared, weak)
    }

    #[test]
    fn what_a_context_keeps_is_not_counted_and_then_kept_by_the_last_event() {
        let (shared, weak) = shared();
        shared.ref_counts().context_opens();
        let before = weak.strong_count();
        let (first, second) = (CountedRef::of(&shared), CountedRef::of(&shared));
        assert_eq!(weak.strong_count(), before);
        drop(first);
        shared.ref_counts().context_closes(&shared);
        drop(shared);
        assert_eq!(weak.strong_count(), 1, "the second keeps it");
        let third = CountedRef::of(&second);
        drop(second);
        assert_eq!(weak.strong_count(), 1, "the third keeps it");
        drop(third);
        assert_eq!(weak.strong_count(), 0);
    }

    /// A thread that has used events and is now idle keeps nothing alive.
    #[test]
    fn idle_threads_keep_nothing() {
        let (shared, weak) = shared();
        shared.ref_counts().context_opens();
        let (used, is_used) = std::sync::mpsc::channel();
        let (end, may_end) = std::sync::mpsc::channel::<()>();
        let idle = {
            let event = CountedRef::of(&shared);
            let shared = shared.clone();
            std::thread::spawn(move || {
                drop((event, CountedRef::of(&shared), shared));
                used.send(()).expect("the test waits");
                may_end.recv().expect_err("nothing is sent");
            })
        };
        is_used.recv().expect("the thread lives");
        shared.ref_counts().context_closes(&shared);
        drop(shared);
        assert_eq!(weak.strong_count(), 0);
        drop(end);
        idle.join().expect("no panic");
    }

    #[test]
    fn threads_that_end_and_change_leave_their_balance() {
        let (first, weak) = shared();
        let (other, other_weak) = shared();
        first.ref_counts().context_opens();
        other.ref_counts().context_opens();
        let make = || [CountedRef::of(&first), CountedRef::of(&other), CountedRef::of(&first)];
        let made = std::thread::scope(|scope| scope.spawn(make).join().expect("no panic"));
        for shared in [&first, &other] {
            shared.ref_counts().context_closes(shared);
        }
        drop((first, other));
        assert_eq!((weak.strong_count(), other_weak.strong_count()), (1, 1));
        drop(made);
        assert_eq!((weak.strong_count(), other_weak.strong_count()), (0, 0));
    }

    /// Contexts open and close while threads create events and pass them to each other to be destroyed.
    #[test]
    fn it_lives_as_long_as_any_event_and_no_longer() {
        const THREADS: usize = 3;
        for _ in 0..20 {
            let (shared, weak) = shared();
            shared.ref_counts().context_opens();
            let places: [Mutex<Vec<CountedRef>>; THREADS] = Default::default();
            std::thread::scope(|scope| {
                for own in 0..THREADS {
                    let (shared, places) = (shared.clone(), &places);
                    scope.spawn(move || {
                        for i in 0..1000 {
                            let made = [CountedRef::of(&shared), CountedRef::of(&shared)];
                            let next = &places[(own + i) % THREADS];
                            let got = {
                                let mut place = next.lock().expect("no panic");
                                std::mem::replace(&mut *place, made.into())
                            };
                            // The `Shared` must still exist for this access.
                            assert!(got.iter().all(|it| it.vm().id() == shared.vm().id()));
                        }
                    });
                }
                for _ in 0..50 {
                    shared.ref_counts().context_closes(&shared);
                    shared.ref_counts().context_opens();
                }
            });
            shared.ref_counts().context_closes(&shared);
            drop(shared);
            let left: Vec<_> =
                places.into_iter().flat_map(|it| it.into_inner().expect("no panic")).collect();
            has_owners(&weak, usize::from(!left.is_empty()));
            drop(left);
            has_owners(&weak, 0);
        }
    }

    /// Another test may look at all of the process's for a moment, as a hang report does.
    fn has_owners(weak: &Weak<Shared>, count: usize) {
        let begun = std::time::Instant::now();
        while weak.strong_count() != count && begun.elapsed().as_secs() < 60 {
            std::thread::yield_now();
        }
        assert_eq!(weak.strong_count(), count);
    }
}
