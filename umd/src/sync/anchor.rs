// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reference to [`Shared`] that an event keeps.
//!
//! Events are made and destroyed by the million and all name the same `Shared`: to count each of them
//! would be two atomic operations on a word that all threads write. While a context is open nobody asks
//! for the sum either, since the context keeps the `Shared`. So each thread has an account, how many
//! events it has made less how many it has destroyed, that it alone writes. Only when the last context
//! closes are the accounts added up: if events are left, the `Shared` keeps itself until the last of them
//! is destroyed. From then on each thread that makes or destroys one looks at the sum.
//!
//! A thread writes its account and then reads whether that is watched; who closes the last context
//! has all watched and then reads the accounts. One of the two must see the other, for which both would
//! need a full fence. `membarrier` has the kernel make it for the many, at the cost of the few.

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::shared::Shared;
use crate::handle::local::{self, Account, Books, Local};

/// A reference to [`Shared`] that is counted in the accounts.
#[derive(Debug)]
pub struct Anchor(ManuallyDrop<Arc<Shared>>);

impl Anchor {
    /// A reference to `shared`.
    pub fn of(shared: &Arc<Shared>) -> Self {
        enter(shared, 1);
        Self::entered(shared)
    }

    /// The same, if the thread has an account of `shared`; `local` is what it has at hand.
    #[inline(always)]
    pub fn at_hand(local: &Local, shared: &Arc<Shared>) -> Option<Self> {
        local.enter(owner(shared), 1).then(|| Self::entered(shared))
    }

    #[inline(always)]
    fn entered(shared: &Arc<Shared>) -> Self {
        // SAFETY: a copy that is never dropped as an `Arc`, of one that exists now. What it refers to
        // exists as long as the accounts say that this does.
        Self(ManuallyDrop::new(unsafe { ptr::read(shared) }))
    }

    /// Does what a drop does, if the thread has an account of the `Shared`; else nothing. After it the
    /// anchor is to be forgotten.
    #[inline(always)]
    pub fn leave_at_hand(&self, local: &Local) -> bool {
        local.enter(owner(&self.0), -1)
    }
}

impl Deref for Anchor {
    type Target = Arc<Shared>;

    #[inline]
    fn deref(&self) -> &Arc<Shared> {
        &self.0
    }
}

impl Drop for Anchor {
    fn drop(&mut self) {
        enter(&self.0, -1);
    }
}

/// By what an account names its [`Shared`].
#[inline(always)]
fn owner(shared: &Arc<Shared>) -> usize {
    Arc::as_ptr(shared).addr()
}

/// Writes the making or the end of an anchor down. After an end `shared` may be gone when this returns.
fn enter(shared: &Arc<Shared>, change: i64) {
    let entered = |local: &Local| local.enter(owner(shared), change).then_some(());
    if local::with(entered).is_none() {
        enter_elsewhere(shared, change);
    }
}

/// The thread has no account of `shared` yet, or ends.
#[cold]
fn enter_elsewhere(shared: &Arc<Shared>, change: i64) {
    let entered = local::with(|local| {
        local.open(shared.anchors().open(shared));
        local.enter(owner(shared), change).then_some(())
    });
    if entered.is_none() {
        // Kept until the books are closed again.
        let kept = shared.clone();
        kept.anchors().lock().settled += change;
        kept.anchors().look(&kept);
    }
}

impl Books for Shared {
    fn look(self: Arc<Self>) {
        self.anchors().look(&self);
    }

    fn close(&self, account: &Arc<Account>) {
        let mut ledger = self.anchors().lock();
        ledger.accounts.retain(|it| !Arc::ptr_eq(it, account));
        ledger.settled += account.balance();
    }
}

/// The accounts of a [`Shared`].
#[derive(Default)]
pub struct Anchors(Mutex<Ledger>);

#[derive(Default)]
struct Ledger {
    /// Contexts that are open, each of which keeps the `Shared`.
    contexts: usize,
    accounts: Vec<Arc<Account>>,
    /// What accounts that were closed have left.
    settled: i64,
    /// The `Shared` itself, while no context is open and anchors are left.
    kept: Option<Arc<Shared>>,
}

impl Ledger {
    fn is_watched(&self) -> bool {
        self.contexts == 0 || !fences()
    }

    fn watch(&self) {
        let watched = self.is_watched();
        self.accounts.iter().for_each(|it| it.watch(watched));
    }

    fn sum(&self) -> i64 {
        self.settled + self.accounts.iter().map(|it| it.balance()).sum::<i64>()
    }
}

impl Anchors {
    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A context opens, which keeps the `Shared` until [`Anchors::context_closes`].
    pub fn context_opens(&self) {
        let mut ledger = self.lock();
        ledger.contexts += 1;
        ledger.watch();
        let kept = ledger.kept.take();
        drop(ledger);
        drop(kept);
    }

    /// A context is about to close. `shared` is whose this is.
    pub fn context_closes(&self, shared: &Arc<Shared>) {
        let mut ledger = self.lock();
        ledger.contexts -= 1;
        if ledger.contexts != 0 {
            return;
        }
        ledger.watch();
        drop(ledger);
        fence_all();
        self.look(shared);
    }

    /// Has `shared`, whose this is, keep itself if no context does and anchors are left.
    fn look(&self, shared: &Arc<Shared>) {
        let mut ledger = self.lock();
        if ledger.contexts != 0 {
            return;
        }
        let old = match ledger.sum() {
            0 => ledger.kept.take(),
            _ => ledger.kept.replace(shared.clone()),
        };
        drop(ledger);
        drop(old);
    }

    fn open(&self, shared: &Arc<Shared>) -> Arc<Account> {
        let mut ledger = self.lock();
        let books = Arc::downgrade(shared);
        let account = Arc::new(Account::new(owner(shared), books, ledger.is_watched()));
        ledger.accounts.push(account.clone());
        account
    }
}

const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;
const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: it reads no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Whether the kernel makes fences for other threads. If not, all accounts are always watched.
fn fences() -> bool {
    static FENCES: OnceLock<bool> = OnceLock::new();
    *FENCES.get_or_init(|| membarrier(REGISTER_PRIVATE_EXPEDITED))
}

/// Every thread of the process passes a full fence between begin and end of this call.
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

    /// A `Shared`, and how to ask whether it still is.
    fn shared() -> (Arc<Shared>, Weak<Shared>) {
        let (_, vm) = fake();
        let shared = Shared::of(&vm);
        let weak = Arc::downgrade(&shared);
        (shared, weak)
    }

    #[test]
    fn what_a_context_keeps_is_not_counted_and_then_kept_by_the_last_event() {
        let (shared, weak) = shared();
        shared.anchors().context_opens();
        let before = weak.strong_count();
        let (first, second) = (Anchor::of(&shared), Anchor::of(&shared));
        assert_eq!(weak.strong_count(), before);
        drop(first);
        shared.anchors().context_closes(&shared);
        drop(shared);
        assert_eq!(weak.strong_count(), 1, "the second keeps it");
        let third = Anchor::of(&second);
        drop(second);
        assert_eq!(weak.strong_count(), 1, "the third keeps it");
        drop(third);
        assert_eq!(weak.strong_count(), 0);
    }

    /// A thread that has used events and does nothing any more keeps nothing.
    #[test]
    fn idle_threads_keep_nothing() {
        let (shared, weak) = shared();
        shared.anchors().context_opens();
        let (used, is_used) = std::sync::mpsc::channel();
        let (end, may_end) = std::sync::mpsc::channel::<()>();
        let idle = {
            let event = Anchor::of(&shared);
            let shared = shared.clone();
            std::thread::spawn(move || {
                drop((event, Anchor::of(&shared), shared));
                used.send(()).expect("the test waits");
                may_end.recv().expect_err("nothing is sent");
            })
        };
        is_used.recv().expect("the thread lives");
        shared.anchors().context_closes(&shared);
        drop(shared);
        assert_eq!(weak.strong_count(), 0);
        drop(end);
        idle.join().expect("no panic");
    }

    #[test]
    fn threads_that_end_and_change_leave_their_balance() {
        let (first, weak) = shared();
        let (other, other_weak) = shared();
        first.anchors().context_opens();
        other.anchors().context_opens();
        let make = || [Anchor::of(&first), Anchor::of(&other), Anchor::of(&first)];
        let made = std::thread::scope(|scope| scope.spawn(make).join().expect("no panic"));
        for shared in [&first, &other] {
            shared.anchors().context_closes(shared);
        }
        drop((first, other));
        assert_eq!((weak.strong_count(), other_weak.strong_count()), (1, 1));
        drop(made);
        assert_eq!((weak.strong_count(), other_weak.strong_count()), (0, 0));
    }

    /// Contexts open and close while threads make events and hand them to each other to be destroyed.
    #[test]
    fn it_lives_as_long_as_any_event_and_no_longer() {
        const THREADS: usize = 3;
        for _ in 0..20 {
            let (shared, weak) = shared();
            shared.anchors().context_opens();
            let places: [Mutex<Vec<Anchor>>; THREADS] = Default::default();
            std::thread::scope(|scope| {
                for own in 0..THREADS {
                    let (shared, places) = (shared.clone(), &places);
                    scope.spawn(move || {
                        for i in 0..1000 {
                            let made = [Anchor::of(&shared), Anchor::of(&shared)];
                            let next = &places[(own + i) % THREADS];
                            let got = {
                                let mut place = next.lock().expect("no panic");
                                std::mem::replace(&mut *place, made.into())
                            };
                            // It has to be there to be asked.
                            assert!(got.iter().all(|it| it.vm().id() == shared.vm().id()));
                        }
                    });
                }
                for _ in 0..50 {
                    shared.anchors().context_closes(&shared);
                    shared.anchors().context_opens();
                }
            });
            shared.anchors().context_closes(&shared);
            drop(shared);
            let left: Vec<_> =
                places.into_iter().flat_map(|it| it.into_inner().expect("no panic")).collect();
            assert_eq!(weak.strong_count(), usize::from(!left.is_empty()));
            drop(left);
            assert_eq!(weak.strong_count(), 0);
        }
    }
}
