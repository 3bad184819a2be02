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

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering, compiler_fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use super::shared::Shared;

/// A reference to [`Shared`] that is counted in the accounts.
#[derive(Debug)]
pub struct Anchor(ManuallyDrop<Arc<Shared>>);

impl Anchor {
    /// A reference to `shared`.
    #[inline]
    pub fn of(shared: &Arc<Shared>) -> Self {
        enter(shared, 1);
        // SAFETY: a copy that is never dropped as an `Arc`, of one that exists now. What it refers to
        // exists as long as the accounts say that this does.
        Self(ManuallyDrop::new(unsafe { ptr::read(shared) }))
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
    #[inline]
    fn drop(&mut self) {
        enter(&self.0, -1);
    }
}

/// Writes the making or the end of an anchor down. After an end `shared` may be gone when this returns.
#[inline]
fn enter(shared: &Arc<Shared>, change: i64) {
    let known = OWN.try_with(|own| own.enter(shared, change));
    if !known.unwrap_or(false) {
        enter_elsewhere(shared, change);
    }
}

/// The thread has no account of `shared` yet, or ends.
#[cold]
fn enter_elsewhere(shared: &Arc<Shared>, change: i64) {
    if OWN.try_with(|own| own.open(shared)).is_ok() {
        _ = OWN.try_with(|own| own.enter(shared, change));
        return;
    }
    // Kept until the books are closed again.
    let kept = shared.clone();
    kept.anchors().lock().settled += change;
    kept.anchors().look(&kept);
}

/// What a thread has made less what it has destroyed, of one [`Shared`].
#[derive(Debug)]
struct Account {
    balance: AtomicI64,
    /// Whether the thread has to look at the sum after each change.
    watched: AtomicBool,
    /// Keeps the address from being another's.
    shared: Weak<Shared>,
}

thread_local! {
    static OWN: Own = const { Own(Cell::new(ptr::null())) };
}

/// The account of a thread: one, for the `Shared` that it used last; owned, or null.
struct Own(Cell<*const Account>);

impl Own {
    /// False: the thread has no account of this one.
    #[inline]
    fn enter(&self, shared: &Arc<Shared>, change: i64) -> bool {
        // SAFETY: null or owned, and nothing below ends it before it was used for the last time.
        let Some(account) = (unsafe { self.0.get().as_ref() }) else { return false };
        if account.shared.as_ptr() != Arc::as_ptr(shared) {
            return false;
        }
        let balance = account.balance.load(Ordering::Relaxed);
        // Releases what this thread did with the `Shared`, to who finds that it is the last.
        account.balance.store(balance + change, Ordering::Release);
        // The other half of the fence is `membarrier`.
        compiler_fence(Ordering::SeqCst);
        if account.watched.load(Ordering::Relaxed) {
            look(account.shared.upgrade());
        }
        true
    }

    fn open(&self, shared: &Arc<Shared>) {
        let account = shared.anchors().open(shared);
        self.replace(Arc::into_raw(account));
    }

    fn replace(&self, account: *const Account) {
        let old = self.0.replace(account);
        if !old.is_null() {
            // SAFETY: it came from `into_raw`, and is no longer here.
            close(&unsafe { Arc::from_raw(old) });
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.replace(ptr::null());
    }
}

#[cold]
fn look(shared: Option<Arc<Shared>>) {
    if let Some(shared) = shared {
        shared.anchors().look(&shared);
    }
}

/// Ends an account; its balance stays in the sum.
fn close(account: &Arc<Account>) {
    let Some(shared) = account.shared.upgrade() else { return };
    let mut books = shared.anchors().lock();
    books.accounts.retain(|it| !Arc::ptr_eq(it, account));
    books.settled += account.balance.load(Ordering::Relaxed);
}

/// The accounts of a [`Shared`].
#[derive(Debug, Default)]
pub struct Anchors(Mutex<Books>);

#[derive(Debug, Default)]
struct Books {
    /// Contexts that are open, each of which keeps the `Shared`.
    contexts: usize,
    accounts: Vec<Arc<Account>>,
    /// What accounts that were closed have left.
    settled: i64,
    /// The `Shared` itself, while no context is open and anchors are left.
    kept: Option<Arc<Shared>>,
}

impl Books {
    fn is_watched(&self) -> bool {
        self.contexts == 0 || !fences()
    }

    fn watch(&self) {
        let watched = self.is_watched();
        self.accounts.iter().for_each(|it| it.watched.store(watched, Ordering::Relaxed));
    }

    fn sum(&self) -> i64 {
        let balances = self.accounts.iter().map(|it| it.balance.load(Ordering::Acquire));
        self.settled + balances.sum::<i64>()
    }
}

impl Anchors {
    fn lock(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A context opens, which keeps the `Shared` until [`Anchors::context_closes`].
    pub fn context_opens(&self) {
        let mut books = self.lock();
        books.contexts += 1;
        books.watch();
        let kept = books.kept.take();
        drop(books);
        drop(kept);
    }

    /// A context is about to close. `shared` is whose this is.
    pub fn context_closes(&self, shared: &Arc<Shared>) {
        let mut books = self.lock();
        books.contexts -= 1;
        if books.contexts != 0 {
            return;
        }
        books.watch();
        drop(books);
        fence_all();
        self.look(shared);
    }

    /// Has `shared`, whose this is, keep itself if no context does and anchors are left.
    fn look(&self, shared: &Arc<Shared>) {
        let mut books = self.lock();
        if books.contexts != 0 {
            return;
        }
        let old = match books.sum() {
            0 => books.kept.take(),
            _ => books.kept.replace(shared.clone()),
        };
        drop(books);
        drop(old);
    }

    fn open(&self, shared: &Arc<Shared>) -> Arc<Account> {
        let mut books = self.lock();
        let account = Arc::new(Account {
            balance: AtomicI64::new(0),
            watched: AtomicBool::new(books.is_watched()),
            shared: Arc::downgrade(shared),
        });
        books.accounts.push(account.clone());
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
