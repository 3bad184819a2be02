// SPDX-License-Identifier: MIT OR Apache-2.0
//! The history of allocations: the one that is, or was, at an address.
//!
//! Kernels report mistakes a little later than they make them, so an allocation is looked up as of an *epoch*,
//! a count of allocations and frees.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::calls::{self, Call};

/// Number of freed allocations that are remembered.
const REMEMBERED: usize = 1 << 16;
/// The largest distance at which an address counts as near an allocation.
const NEAR: u64 = 16 << 20;

/// The kind of an allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Device memory.
    Device,
    /// Host memory.
    Host,
    /// Shared memory.
    Shared,
    /// The texels of an image.
    Image,
    /// Physical memory at reserved addresses.
    Mapped,
    /// A variable of a module, by its name.
    Variable(String),
}

impl Kind {
    /// Whether the host may access it, too.
    pub fn is_for_host(&self) -> bool {
        matches!(self, Self::Host | Self::Shared)
    }
}

/// A piece of memory.
#[derive(Clone, Debug)]
pub struct Allocation {
    pub base: u64,
    pub size: u64,
    pub kind: Kind,
    pub made: Call,
    /// The place of the program's call ([`calls::caller`]).
    pub maker: u64,
    made_at: u64,
    /// The start of the allocation to which it belongs, or which it is.
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

    /// Whether it contains an address.
    pub fn contains(&self, address: u64) -> bool {
        (self.base..self.end()).contains(&address)
    }
}

/// The position of an access relative to an allocation.
#[derive(Clone, Debug)]
pub enum Found {
    /// It begins in the allocation; the number is that of the bytes from there to its end.
    Inside(Allocation, u64),
    /// It begins in memory that was freed, at this offset.
    Freed(Allocation, u64),
    /// It begins this number of bytes behind the end of the allocation.
    Behind(Allocation, u64),
    /// It begins this number of bytes before the allocation.
    Before(Allocation, u64),
    /// There is no allocation nearby.
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

    /// Notes memory that the current call has allocated.
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

    /// Notes a part of the allocation at `owner`, which is no longer a single piece.
    pub fn part(&self, owner: u64, base: u64, size: u64, kind: Kind) {
        let mut state = self.lock();
        let whole = state.live.get(&owner).cloned();
        let Some(whole) = whole else { return };
        if !matches!(whole.kind, Kind::Variable(_)) {
            state.live.remove(&owner);
        }
        state.live.insert(base, Allocation { base, size, kind, ..whole });
    }

    /// Notes that the current call has freed an allocation; returns its size, up to the end of its last part.
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

    /// Start and size of each existing piece of memory.
    pub fn pieces(&self) -> Vec<(u64, u64)> {
        self.lock().live.values().map(|it| (it.base, it.size)).collect()
    }

    /// The application's allocations that are not freed.
    pub fn left(&self) -> Vec<Allocation> {
        let state = self.lock();
        let of_objects = |kind: &Kind| matches!(kind, Kind::Variable(_) | Kind::Image);
        state.live.values().filter(|it| !of_objects(&it.kind)).cloned().collect()
    }

    /// The count of allocations and frees.
    pub fn epoch(&self) -> u64 {
        self.lock().epoch
    }

    /// The allocation that was at or near an address at an epoch.
    pub fn find(&self, address: u64, epoch: u64) -> Found {
        let state = self.lock();
        let all = || state.live.values().chain(&state.freed);
        let existing = || all().filter(|it| it.existed(epoch));
        if let Some(found) = existing().find(|it| it.contains(address)) {
            return Found::Inside(found.clone(), address - found.base);
        }
        // The last one that was there.
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
