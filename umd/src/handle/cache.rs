// SPDX-License-Identifier: MIT OR Apache-2.0
//! Free slots for events at hand for one thread, so that to create and destroy an event takes no lock.
//!
//! Slots are used in the order in which they came, as in the slab: what this thread freed rests until
//! it has freed [`REST`] others, what came from the slab has rested there.

use std::cell::RefCell;

use super::{Kind, REST, Slab};
use crate::error::Result;

/// Free slots that a thread keeps at most.
const ROOM: usize = 4 * REST;
/// Slots that a thread takes from the slab, or gives back, at a time.
const BATCH: usize = REST / 2;

thread_local! {
    static EVENTS: RefCell<Cache> = const { RefCell::new(Cache::new()) };
}

/// Addresses of free slots, in a ring, the oldest first.
struct Cache {
    slots: [usize; ROOM],
    first: usize,
    len: usize,
    /// How many of the first need no rest.
    rested: usize,
}

/// The slab of the kind that is cached.
fn slab() -> &'static Slab {
    Kind::Event.slab()
}

/// A slot of `size` bytes that nobody uses.
///
/// # Errors
/// As [`Slab::reserve`].
#[inline]
pub(super) fn take(size: usize) -> Result<usize> {
    // None: the thread is ending.
    let cached = EVENTS.try_with(|cache| cache.borrow_mut().take(size));
    cached.unwrap_or_else(|_| slab().reserve(size, Kind::Event.span()))
}

/// A slot is free.
#[inline]
pub(super) fn give(address: usize) {
    if EVENTS.try_with(|cache| cache.borrow_mut().give(address)).is_err() {
        slab().growth().free.push_back(address);
    }
}

impl Cache {
    const fn new() -> Self {
        Self { slots: [0; ROOM], first: 0, len: 0, rested: 0 }
    }

    #[inline]
    fn take(&mut self, size: usize) -> Result<usize> {
        if self.rested == 0 && self.len <= REST {
            self.refill(size)?;
        }
        self.rested = self.rested.saturating_sub(1);
        let address = self.slots[self.first % ROOM];
        self.first = self.first.wrapping_add(1);
        self.len -= 1;
        Ok(address)
    }

    #[inline]
    fn give(&mut self, address: usize) {
        if self.len == ROOM {
            self.spill(BATCH);
        }
        self.slots[self.first.wrapping_add(self.len) % ROOM] = address;
        self.len += 1;
    }

    /// Puts slots of the slab before the others.
    #[cold]
    fn refill(&mut self, size: usize) -> Result {
        let mut growth = slab().growth();
        for _ in 0..BATCH {
            match slab().reserve_in(&mut growth, size, Kind::Event.span()) {
                Ok(address) => {
                    self.first = self.first.wrapping_sub(1);
                    self.slots[self.first % ROOM] = address;
                    self.len += 1;
                    self.rested += 1;
                }
                Err(error) if self.rested == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(())
    }

    /// Gives the oldest `count` slots back to the slab.
    #[cold]
    fn spill(&mut self, count: usize) {
        let mut growth = slab().growth();
        for _ in 0..count.min(self.len) {
            growth.free.push_back(self.slots[self.first % ROOM]);
            self.first = self.first.wrapping_add(1);
            self.len -= 1;
        }
        self.rested = self.rested.saturating_sub(count);
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.spill(self.len);
    }
}
