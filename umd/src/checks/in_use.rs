// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that commands use which the host does not know to be complete. It is closed to the program, for writing where
//! commands only read, so that an access raises a signal ([`super::keys`]).
//!
//! ```text
//!            a command that uses it is submitted          the host accesses a page
//!  open ───────────────────────────────────────► closed ───────────────────────► the page is open
//!    ▲                                            │  ▲                                    │
//!    └────── the host knows that all are complete ┘  └─ the next submission, or wait ─────┘
//! ```
//!
//! So of several accesses to a page between two submissions or waits only the first one is seen. After some pages the
//! whole allocation is open, since a program that reads much of it has been seen to do so.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tally_uapi::PAGE_SIZE;

use super::keys::Right;

/// Number of pages that are opened one by one.
const PAGES: u32 = 64;

/// Changes what the program may do with the memory at an address, of this size.
type Protect = fn(u64, u64, Right) -> bool;

/// An address in place of memory of which nothing is known. It may be used, and is never closed.
pub const ANYWHERE: u64 = 0;

/// See the module's description.
pub struct InUse {
    state: Mutex<State>,
    protect: Protect,
}

#[derive(Default)]
struct State {
    /// The sizes of the allocations that can be closed, by their starts.
    allocations: BTreeMap<u64, u64>,
    /// Those that are used.
    pieces: BTreeMap<u64, Piece>,
}

struct Piece {
    size: u64,
    users: Vec<User>,
    /// What the program may do with those pages that were not opened since.
    right: Right,
    /// Number of pages that were opened since.
    opened: u32,
}

/// The last of a chain's executions that use an allocation.
struct User {
    chain: u32,
    tick: u32,
    writes: bool,
}

impl InUse {
    pub fn new(protect: Protect) -> Self {
        let state = State { allocations: BTreeMap::from([(ANYWHERE, 0)]), ..State::default() };
        Self { state: Mutex::new(state), protect }
    }

    // A thread that has it makes no access to memory that is closed.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes an allocation that can be closed.
    pub fn add(&self, base: u64, size: u64) {
        self.lock().allocations.insert(base, size);
    }

    /// Notes that an execution is about to be submitted that uses an allocation, if there is one at the address.
    pub fn uses(&self, address: u64, (chain, tick): (u32, u32), writes: bool) {
        let State { allocations, pieces } = &mut *self.lock();
        let found = allocations.range(..=address).next_back();
        let found = found.filter(|(base, size)| address == **base || address - **base < **size);
        let Some((&base, &size)) = found else { return };
        let new = || Piece { size, users: Vec::new(), right: Right::All, opened: 0 };
        let piece = pieces.entry(base).or_insert_with(new);
        match piece.users.iter_mut().find(|it| it.chain == chain && it.writes == writes) {
            Some(user) => user.tick = user.tick.max(tick),
            None => piece.users.push(User { chain, tick, writes }),
        }
        piece.close(base, self.protect);
    }

    /// The host knows that further executions are complete: those of a chain up to a tick that `is_complete` names.
    pub fn review(&self, is_complete: impl Fn(u32, u32) -> bool) {
        self.lock().pieces.retain(|&base, piece| {
            piece.users.retain(|it| !is_complete(it.chain, it.tick));
            piece.close(base, self.protect);
            !piece.users.is_empty()
        });
    }

    /// Whether a command uses the allocation that contains an address.
    pub fn is_used(&self, address: u64) -> bool {
        let pieces = &self.lock().pieces;
        pieces.range(..=address).next_back().is_some_and(|(&base, it)| it.contains(address - base))
    }

    /// Opens the page of an address. Whether that could be done; then the access is tried again.
    pub fn open(&self, address: u64) -> bool {
        let pieces = &mut self.lock().pieces;
        let page = address / PAGE_SIZE * PAGE_SIZE;
        let found = pieces.range_mut(..=address).next_back();
        // It may have been opened, or freed, since the access was refused.
        let Some((&base, piece)) = found.filter(|(base, it)| it.contains(address - **base)) else {
            return (self.protect)(page, PAGE_SIZE, Right::All);
        };
        piece.opened += 1;
        match piece.opened > PAGES {
            true => {
                piece.right = Right::All;
                (self.protect)(base, piece.size, Right::All)
            }
            false => (self.protect)(page, PAGE_SIZE, Right::All),
        }
    }

    /// Opens an allocation that is freed.
    pub fn forget(&self, base: u64) {
        let mut state = self.lock();
        state.allocations.remove(&base);
        if let Some(mut piece) = state.pieces.remove(&base) {
            piece.users.clear();
            piece.close(base, self.protect);
        }
    }
}

impl Piece {
    /// Whether it has an address this number of bytes behind its start. What has no size has its start.
    fn contains(&self, offset: u64) -> bool {
        offset == 0 || offset < self.size.next_multiple_of(PAGE_SIZE)
    }

    /// Closes it as its users need it.
    fn close(&mut self, base: u64, protect: Protect) {
        let right = match self.users.iter().map(|it| it.writes).max() {
            None => Right::All,
            Some(false) => Right::Read,
            Some(true) => Right::None,
        };
        let changes = self.size != 0 && (right != self.right || self.opened != 0);
        if changes && protect(base, self.size, right) {
            self.right = right;
        }
        self.opened = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    thread_local! {
        static DONE: std::cell::RefCell<Vec<(u64, u64, Right)>> = const { std::cell::RefCell::new(Vec::new()) };
    }

    fn note(base: u64, size: u64, right: Right) -> bool {
        DONE.with_borrow_mut(|done| done.push((base, size, right)));
        true
    }

    fn new() -> InUse {
        let it = InUse::new(note);
        it.add(BASE, SIZE);
        it
    }

    fn done() -> Vec<(u64, u64, Right)> {
        DONE.take()
    }

    const BASE: u64 = 16 * PAGE_SIZE;
    const SIZE: u64 = 100 * PAGE_SIZE - 8;

    #[test]
    fn memory_is_closed_until_all_that_uses_it_is_complete() {
        let it = new();
        it.uses(BASE + 9, (1, 1), false);
        assert_eq!(done(), [(BASE, SIZE, Right::Read)]);
        it.uses(BASE + 9, (1, 2), false);
        assert_eq!(done(), [], "it is closed already");
        it.uses(BASE + 9, (2, 1), true);
        assert_eq!(done(), [(BASE, SIZE, Right::None)]);
        it.review(|chain, tick| chain == 1 && tick <= 1);
        assert_eq!(done(), []);
        it.review(|chain, tick| chain == 2 && tick <= 1);
        assert_eq!(done(), [(BASE, SIZE, Right::Read)], "it is only read from now on");
        assert!(
            it.is_used(BASE + SIZE + 7) && !it.is_used(BASE + SIZE + 8) && !it.is_used(BASE - 1)
        );
        it.review(|chain, tick| chain == 1 && tick <= 2);
        assert_eq!(done(), [(BASE, SIZE, Right::All)]);
        assert!(!it.is_used(BASE));
    }

    #[test]
    fn what_is_not_known_is_used_and_never_closed() {
        let it = new();
        it.uses(ANYWHERE, (1, 1), true);
        it.uses(1, (1, 1), true);
        it.uses(BASE + SIZE, (1, 1), true);
        assert!(!it.is_used(BASE), "its end is another's");
        assert!(it.is_used(ANYWHERE) && !it.is_used(1));
        it.review(|_, _| true);
        assert!(!it.is_used(ANYWHERE));
        assert_eq!(done(), []);
    }

    #[test]
    fn pages_are_opened_one_by_one_and_closed_by_the_next_submission() {
        let it = new();
        it.uses(BASE + 9, (1, 1), true);
        done();
        for page in 0..u64::from(PAGES) {
            assert!(it.open(BASE + page * PAGE_SIZE + 5));
            assert_eq!(done(), [(BASE + page * PAGE_SIZE, PAGE_SIZE, Right::All)]);
        }
        assert!(it.open(BASE + 80 * PAGE_SIZE));
        assert_eq!(done(), [(BASE, SIZE, Right::All)], "many pages were opened");
        it.review(|_, _| false);
        assert_eq!(done(), [(BASE, SIZE, Right::None)], "a wait");
        it.open(BASE);
        it.uses(BASE + 9, (1, 2), true);
        assert_eq!(done(), [(BASE, PAGE_SIZE, Right::All), (BASE, SIZE, Right::None)]);
        it.forget(BASE);
        assert_eq!(done(), [(BASE, SIZE, Right::All)]);
        assert!(it.open(BASE + PAGE_SIZE + 1), "another thread had it closed a moment ago");
        assert_eq!(done(), [(BASE + PAGE_SIZE, PAGE_SIZE, Right::All)]);
    }
}
