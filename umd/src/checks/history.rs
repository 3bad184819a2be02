// SPDX-License-Identifier: MIT OR Apache-2.0
//! The allocations that there are and that there were: what is, or was, at an address.
//!
//! Kernels tell of mistakes a little later than they make them, so an allocation is asked for as it was at
//! an *epoch*, a count of allocations and frees.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::calls::{self, Call};

/// Freed allocations that are remembered.
const REMEMBERED: usize = 1 << 16;
/// The farthest that an address may be from an allocation to be said to be near it.
const NEAR: u64 = 16 << 20;

/// What an allocation is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Device memory.
    Device,
    /// Host memory.
    Host,
    /// Shared memory.
    Shared,
    /// Physical memory at reserved addresses.
    Mapped,
    /// A variable of a module, by its name.
    Variable(String),
}

/// A piece of memory.
#[derive(Clone, Debug)]
pub struct Allocation {
    pub base: u64,
    pub size: u64,
    pub kind: Kind,
    pub made: Call,
    /// Where the program has called ([`calls::caller`]).
    pub maker: u64,
    made_at: u64,
    /// The start of the allocation that it is, or is a part of.
    owner: u64,
    pub freed: Option<Call>,
    freed_at: u64,
}

impl Allocation {
    fn existed(&self, epoch: u64) -> bool {
        self.made_at <= epoch && (self.freed.is_none() || epoch < self.freed_at)
    }

    fn end(&self) -> u64 {
        self.base + self.size
    }

    /// Whether an address is in it.
    pub fn contains(&self, address: u64) -> bool {
        (self.base..self.end()).contains(&address)
    }
}

/// How an access lies to an allocation.
#[derive(Clone, Debug)]
pub enum Found {
    /// It begins in it, at an offset; so many bytes are left from there on.
    Inside(Allocation, u64),
    /// It begins in memory that was freed, at an offset.
    Freed(Allocation, u64),
    /// It begins so many bytes behind its end.
    Behind(Allocation, u64),
    /// It begins so many bytes in front of it.
    Before(Allocation, u64),
    /// There is none near.
    Nowhere,
}

/// See the module's description.
#[derive(Default)]
pub struct History(Mutex<State>);

#[derive(Default)]
struct State {
    live: BTreeMap<u64, Allocation>,
    freed: VecDeque<Allocation>,
    epoch: u64,
}

impl History {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory was allocated by the current call.
    pub fn made(&self, base: u64, size: u64, kind: Kind) {
        let (made, maker) = (calls::current(), calls::caller());
        let mut state = self.lock();
        state.epoch += 1;
        let made_at = state.epoch;
        let owner = base;
        let new =
            Allocation { base, size, kind, made, maker, made_at, owner, freed: None, freed_at: 0 };
        state.live.insert(base, new);
    }

    /// The allocation at `owner` is no piece any more: it has this part.
    pub fn part(&self, owner: u64, base: u64, size: u64, kind: Kind) {
        let mut state = self.lock();
        let whole = state.live.get(&owner).cloned();
        let Some(whole) = whole else { return };
        if !matches!(whole.kind, Kind::Variable(_)) {
            state.live.remove(&owner);
        }
        state.live.insert(base, Allocation { base, size, kind, ..whole });
    }

    /// An allocation was freed by the current call; its size, up to the end of its last part.
    pub fn freed(&self, base: u64) -> Option<u64> {
        let call = calls::current();
        let mut state = self.lock();
        let parts = state.live.range(base..).take_while(|(_, it)| it.owner == base);
        let parts: Vec<u64> = parts.map(|(&at, _)| at).collect();
        state.epoch += 1;
        let mut end = None;
        for at in parts {
            let Some(mut part) = state.live.remove(&at) else { continue };
            part.freed = Some(call.clone());
            part.freed_at = state.epoch;
            end = Some(part.end());
            state.freed.push_back(part);
        }
        let surplus = state.freed.len().saturating_sub(REMEMBERED);
        state.freed.drain(..surplus);
        end.map(|end| end - base)
    }

    /// Start and size of each piece of memory that there is.
    pub fn pieces(&self) -> Vec<(u64, u64)> {
        self.lock().live.values().map(|it| (it.base, it.size)).collect()
    }

    /// The application's allocations that are not freed.
    pub fn left(&self) -> Vec<Allocation> {
        let state = self.lock();
        state.live.values().filter(|it| !matches!(it.kind, Kind::Variable(_))).cloned().collect()
    }

    /// The count of allocations and frees.
    pub fn epoch(&self) -> u64 {
        self.lock().epoch
    }

    /// The allocation that was, at an epoch, at an address or near it.
    pub fn find(&self, address: u64, epoch: u64) -> Found {
        let state = self.lock();
        let all = || state.live.values().chain(&state.freed);
        let existing = || all().filter(|it| it.existed(epoch));
        if let Some(found) = existing().find(|it| it.contains(address)) {
            return Found::Inside(found.clone(), address - found.base);
        }
        // The one that was there last.
        let gone = state.freed.iter().rev().find(|it| it.made_at <= epoch && it.contains(address));
        if let Some(found) = gone {
            return Found::Freed(found.clone(), address - found.base);
        }
        let behind = existing().filter(|it| it.end() <= address).max_by_key(|it| it.end());
        let before = existing().filter(|it| it.base > address).min_by_key(|it| it.base);
        let behind = behind.map(|it| (address - it.end(), it)).filter(|(far, _)| *far <= NEAR);
        let before = before.map(|it| (it.base - address, it)).filter(|(far, _)| *far <= NEAR);
        match (behind, before) {
            (Some((far, it)), None) => Found::Behind(it.clone(), far),
            (Some((far, it)), Some((other, _))) if far <= other => Found::Behind(it.clone(), far),
            (_, Some((far, it))) => Found::Before(it.clone(), far),
            (None, None) => Found::Nowhere,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_found_as_it_was_at_an_epoch() {
        let history = History::default();
        history.made(0x1_0000, 100, Kind::Device);
        let first = history.epoch();
        history.made(0x3_0000, 100, Kind::Host);
        assert_eq!(history.freed(0x1_0000), Some(100));
        let second = history.epoch();
        assert!(matches!(history.find(0x1_0063, first), Found::Inside(it, 99) if it.size == 100));
        assert!(matches!(history.find(0x1_0063, second), Found::Freed(_, 99)));
        assert!(matches!(history.find(0x1_0064, first), Found::Behind(_, 0)));
        assert!(matches!(history.find(0x2_ffff, second), Found::Before(_, 1)));
        assert!(
            matches!(history.find(0x2_ffff, first), Found::Behind(it, _) if it.base == 0x1_0000)
        );
        assert!(matches!(history.find(0x7000_0000, second), Found::Nowhere));
        assert_eq!(history.freed(0x1_0000), None);
        history.part(0x3_0000, 0x3_0000, 10, Kind::Variable("a".into()));
        history.part(0x3_0000, 0x3_0020, 10, Kind::Variable("b".into()));
        let third = history.epoch();
        assert!(matches!(history.find(0x3_0010, third), Found::Behind(it, 6) if it.size == 10));
        assert_eq!(history.freed(0x3_0000), Some(0x2a));
    }
}
