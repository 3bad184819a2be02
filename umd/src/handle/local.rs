// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a thread has at hand for events, so that to create and destroy one takes no lock: free slots, and
//! an account of the events that it has made. Both are in one block, since to find a thread's memory is a
//! call in a library that is opened at run time.
//!
//! Slots are used in the order in which they came, as in the slab: what this thread freed rests until
//! it has freed [`REST`] others, what came from the slab has rested there.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering, compiler_fence};
use std::sync::{Arc, Weak};

use super::{Claimed, Kind, REST, RawHandle, Slab, Vacant};
use crate::error::Result;

/// Free slots that a thread keeps at most.
const ROOM: usize = 4 * REST;
/// Slots that a thread takes from the slab, or gives back, at a time.
const BATCH: usize = REST / 2;
/// Number of the first slot that a thread frees: those from the slab are counted down from it.
const START: usize = 1 << 32;

thread_local! {
    static LOCAL: Local = const { Local { slots: Slots::new(), account: Cell::new(ptr::null()) } };
}

/// What a thread has at hand.
pub struct Local {
    slots: Slots,
    /// Of the owner whose events it used last; owned, or null.
    account: Cell<*const Account>,
}

/// What the thread has at hand; `None` while it ends. For those to whom a closure that is not inlined is
/// too much.
///
/// # Safety
/// The answer is used in this call of the driver only: on this thread, before it ends.
#[inline(always)]
pub unsafe fn at_hand<'a>() -> Option<&'a Local> {
    let local: *const Local = LOCAL.try_with(ptr::from_ref).ok()?;
    // SAFETY: it exists until this thread ends; the caller promises to be done by then.
    Some(unsafe { &*local })
}

/// Runs `f` with what the thread has at hand, or answers `None` while it ends.
pub fn with<R>(f: impl FnOnce(&Local) -> Option<R>) -> Option<R> {
    LOCAL.try_with(f).ok().flatten()
}

/// A slot of `size` bytes that nobody uses.
///
/// # Errors
/// As [`Slab::reserve`].
pub(super) fn take(size: usize) -> Result<usize> {
    let taken = LOCAL.try_with(|local| local.slots.take_or_refill(size));
    // None: the thread is ending.
    taken.unwrap_or_else(|_| slab().reserve(size, Kind::Event.span()))
}

/// A slot is free.
pub(super) fn give(address: usize) {
    if LOCAL.try_with(|local| local.slots.give(address)).is_err() {
        slab().growth().free.push_back(address);
    }
}

/// The slab of the kind that is cached.
fn slab() -> &'static Slab {
    Kind::Event.slab()
}

impl Local {
    /// A slot, if one is at hand.
    #[inline(always)]
    pub fn vacant<R: RawHandle>(&self) -> Option<Vacant<R>> {
        const { assert!(matches!(R::KIND, Kind::Event)) };
        Some(Vacant(ptr::with_exposed_provenance_mut(self.slots.take()?)))
    }

    /// Frees the slot of an object that was dropped or has nothing to drop. The claim has ended.
    #[inline(always)]
    pub fn free<R: RawHandle>(&self, claimed: &ManuallyDrop<Claimed<R>>) {
        const { assert!(matches!(R::KIND, Kind::Event)) };
        self.slots.give(ptr::from_ref(claimed.0).expose_provenance());
    }

    /// Writes down that the thread has made one more of `owner`, or one less. False: the thread has no
    /// account of this owner.
    #[inline(always)]
    pub fn enter(&self, owner: usize, change: i64) -> bool {
        // SAFETY: null or owned, and nothing below ends it before it was used for the last time.
        let Some(account) = (unsafe { self.account.get().as_ref() }) else { return false };
        if account.owner != owner {
            return false;
        }
        let balance = account.balance.load(Ordering::Relaxed);
        // Releases what this thread did with the owner, to who finds that it is the last.
        account.balance.store(balance + change, Ordering::Release);
        // The other half of the fence is the owner's (`sync::anchor`).
        compiler_fence(Ordering::SeqCst);
        if account.watched.load(Ordering::Relaxed) {
            account.look();
        }
        true
    }

    /// From here on the thread has this account; its last one is closed.
    pub fn open(&self, account: Arc<Account>) {
        self.replace(Arc::into_raw(account));
    }

    fn replace(&self, account: *const Account) {
        let old = self.account.replace(account);
        if !old.is_null() {
            // SAFETY: it came from `into_raw`, and is no longer here.
            let old = unsafe { Arc::from_raw(old) };
            if let Some(books) = old.books.upgrade() {
                books.close(&old);
            }
        }
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.replace(ptr::null());
        self.slots.spill(usize::MAX);
    }
}

/// Who adds accounts up.
pub trait Books: Send + Sync {
    /// An account that is watched has changed.
    fn look(self: Arc<Self>);

    /// Ends an account; its balance stays in the sum.
    fn close(&self, account: &Arc<Account>);
}

/// What a thread has made less what it has destroyed, of one owner.
pub struct Account {
    /// The owner's address.
    owner: usize,
    balance: AtomicI64,
    /// Whether the thread has to tell the books after each change.
    watched: AtomicBool,
    /// Keeps the address from being another's.
    books: Weak<dyn Books>,
}

impl Account {
    /// An account of `owner`, whose books these are.
    pub fn new(owner: usize, books: Weak<dyn Books>, watched: bool) -> Self {
        Self { owner, balance: AtomicI64::new(0), watched: AtomicBool::new(watched), books }
    }

    /// What it comes to; what its thread did before is visible.
    pub fn balance(&self) -> i64 {
        self.balance.load(Ordering::Acquire)
    }

    /// Whether the thread has to tell the books after each change.
    pub fn watch(&self, watched: bool) {
        self.watched.store(watched, Ordering::Relaxed);
    }

    #[cold]
    fn look(&self) {
        if let Some(books) = self.books.upgrade() {
            books.look();
        }
    }
}

/// Addresses of free slots, in a ring, the oldest first.
struct Slots {
    ring: [Cell<usize>; ROOM],
    /// Number of the next to be used, of the first that has to rest, and of the next to come.
    next: Cell<usize>,
    resting: Cell<usize>,
    end: Cell<usize>,
}

impl Slots {
    const fn new() -> Self {
        Self {
            ring: [const { Cell::new(0) }; ROOM],
            next: Cell::new(START),
            resting: Cell::new(START),
            end: Cell::new(START),
        }
    }

    #[inline(always)]
    fn take(&self) -> Option<usize> {
        let next = self.next.get();
        if next == self.resting.get() {
            return None;
        }
        self.next.set(next + 1);
        Some(self.ring[next % ROOM].get())
    }

    #[inline(always)]
    fn give(&self, address: usize) {
        let end = self.end.get();
        if end - self.next.get() == ROOM {
            self.spill(BATCH);
        }
        self.ring[end % ROOM].set(address);
        self.end.set(end + 1);
        self.resting.set(self.resting.get().max(end + 1 - REST));
    }

    #[cold]
    fn take_or_refill(&self, size: usize) -> Result<usize> {
        if let Some(address) = self.take() {
            return Ok(address);
        }
        let mut growth = slab().growth();
        // One for the caller; if there are more, they are put before the others.
        let first = slab().reserve_in(&mut growth, size, Kind::Event.span())?;
        for _ in 1..BATCH {
            let Ok(address) = slab().reserve_in(&mut growth, size, Kind::Event.span()) else {
                break;
            };
            let next = self.next.get() - 1;
            self.ring[next % ROOM].set(address);
            self.next.set(next);
        }
        Ok(first)
    }

    /// Gives the oldest `count` slots back to the slab, or all.
    #[cold]
    fn spill(&self, count: usize) {
        let mut growth = slab().growth();
        let until = self.end.get().min(self.next.get().saturating_add(count));
        while self.next.get() != until {
            let next = self.next.get();
            growth.free.push_back(self.ring[next % ROOM].get());
            self.next.set(next + 1);
        }
        self.resting.set(self.resting.get().max(until));
    }
}
