// SPDX-License-Identifier: MIT OR Apache-2.0
//! A thread's own data for events: free slots, and a count of the events that it has created. With them it creates
//! and destroys events without a lock. Both are in one block, because in a library that is opened at run time each
//! access to thread-local memory costs a call.
//!
//! Slots are used first in, first out, as in the slab: a slot that this thread has freed rests until the thread
//! has freed [`REST`] others. A slot from the slab has rested there.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering, compiler_fence};
use std::sync::{Arc, Weak};

use super::{Claimed, Kind, REST, RawHandle, Slab, Vacant};
use crate::error::Result;

/// The most free slots that a thread keeps.
const ROOM: usize = 4 * REST;
/// Number of slots that a thread takes from the slab, or gives back, at a time.
const BATCH: usize = REST / 2;
/// Number of the first slot that a thread frees; those from the slab are numbered downwards from it.
const START: usize = 1 << 32;

thread_local! {
    static LOCAL: Local = const { Local { slots: Slots::new(), count: Cell::new(ptr::null()) } };
}

/// A thread's own data.
pub struct Local {
    slots: Slots,
    /// The count for the owner whose events the thread used last: the pointer of an `Arc`, or null.
    count: Cell<*const ThreadCount>,
}

/// The thread's own data; `None` while the thread ends. For callers that cannot afford a closure that is not
/// inlined.
///
/// # Safety
/// The caller uses the result only within this call of the driver: on this thread, before it ends.
#[inline(always)]
pub unsafe fn at_hand<'a>() -> Option<&'a Local> {
    let local: *const Local = LOCAL.try_with(ptr::from_ref).ok()?;
    // SAFETY: it exists until this thread ends; the caller promises not to use it longer.
    Some(unsafe { &*local })
}

/// Runs `f` with the thread's own data, or returns `None` while the thread ends.
pub fn with<R>(f: impl FnOnce(&Local) -> Option<R>) -> Option<R> {
    LOCAL.try_with(f).ok().flatten()
}

/// A free slot of `size` bytes.
///
/// # Errors
/// Those of [`Slab::reserve`].
pub(super) fn take(size: usize) -> Result<usize> {
    let taken = LOCAL.try_with(|local| local.slots.take_or_refill(size));
    // None: the thread is ending.
    taken.unwrap_or_else(|_| slab().reserve(size, Kind::Event.span()))
}

/// Gives back a free slot.
pub(super) fn give(address: usize) {
    if LOCAL.try_with(|local| local.slots.give(address)).is_err() {
        slab().growth().free.push_back(address);
    }
}

/// The slab of the kind whose slots are cached.
fn slab() -> &'static Slab {
    Kind::Event.slab()
}

impl Local {
    /// A slot, if the thread has one.
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

    /// Counts one more object of `owner` by this thread, or one less. False: the thread has no count of this
    /// owner.
    #[inline(always)]
    pub fn enter(&self, owner: usize, change: i64) -> bool {
        // SAFETY: null or owned, and nothing below ends it before its last use.
        let Some(count) = (unsafe { self.count.get().as_ref() }) else { return false };
        if count.owner != owner {
            return false;
        }
        let balance = count.balance.load(Ordering::Relaxed);
        // Releases this thread's accesses to the owner, for the thread that finds that it is the last.
        count.balance.store(balance + change, Ordering::Release);
        // The owner has the other half of the fence (`sync::counted_ref`).
        compiler_fence(Ordering::SeqCst);
        if count.watched.load(Ordering::Relaxed) {
            count.look();
        }
        true
    }

    /// Makes this the thread's count, and closes the previous one.
    pub fn open(&self, count: Arc<ThreadCount>) {
        self.replace(Arc::into_raw(count));
    }

    fn replace(&self, count: *const ThreadCount) {
        let old = self.count.replace(count);
        if !old.is_null() {
            // SAFETY: it came from `into_raw`, and was just removed.
            let old = unsafe { Arc::from_raw(old) };
            if let Some(counted) = old.counted.upgrade() {
                counted.close(&old);
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

/// An object whose references are counted per thread. It adds up the counts.
pub trait Counted: Send + Sync {
    /// Called when a watched count has changed.
    fn look(self: Arc<Self>);

    /// Removes a count whose thread ends or changes to another owner; its balance stays in the sum.
    fn close(&self, count: &Arc<ThreadCount>);
}

/// The number of references to one owner that a thread has made, minus those that it has dropped.
pub struct ThreadCount {
    /// The owner's address.
    owner: usize,
    balance: AtomicI64,
    /// Whether the thread has to notify the owner after each change.
    watched: AtomicBool,
    /// Keeps the address from being reused.
    counted: Weak<dyn Counted>,
}

impl ThreadCount {
    /// A count of zero for `counted`, whose address is `owner`.
    pub fn new(owner: usize, counted: Weak<dyn Counted>, watched: bool) -> Self {
        Self { owner, balance: AtomicI64::new(0), watched: AtomicBool::new(watched), counted }
    }

    /// Its value. Everything that the thread did before it wrote that value is visible.
    pub fn balance(&self) -> i64 {
        self.balance.load(Ordering::Acquire)
    }

    /// Whether the thread has to notify the owner after each change.
    pub fn watch(&self, watched: bool) {
        self.watched.store(watched, Ordering::Relaxed);
    }

    #[cold]
    fn look(&self) {
        if let Some(counted) = self.counted.upgrade() {
            counted.look();
        }
    }
}

/// Addresses of free slots, in a ring, the oldest first.
struct Slots {
    ring: [Cell<usize>; ROOM],
    /// Number of the next slot to use, of the first that has to rest, and of the next one to be freed.
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
        // One for the caller; further ones are put before the others.
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
