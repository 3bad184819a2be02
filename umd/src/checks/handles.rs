// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handles that the program has created, each with the call that has created it.
//!
//! Handles are created in many places, which must be fast. So nothing is noted there: calls whose name says that
//! they create objects list the objects before and after the call. Such calls of different threads wait for each
//! other, so that each finds its own objects.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use strum::VariantArray as _;

use super::calls::{self, Call};
use crate::handle::Kind;

/// Words in the names of calls that create objects.
const MAKERS: [&str; 6] = ["Create", "Clone", "Open", "Instantiate", "Capture", "Link"];
/// The most slots of a kind that are looked at; with more objects this would take too long.
const MOST: usize = 1 << 16;

thread_local! {
    /// Whether a call of this thread is creating objects, since some entry points call others.
    static MAKING: Cell<bool> = const { Cell::new(false) };
}

/// The objects of a kind that were seen.
struct Seen {
    /// The generation in each slot, or [`NEVER`]. All slots are compared at each call, and there may be thousands.
    uses: Vec<u64>,
    /// The calls that created them, by slot; none for objects that no call of the program's has created.
    made: HashMap<usize, (Call, u64)>,
}

/// In place of the generation in a slot in which no object was seen.
const NEVER: u64 = u64::MAX;

pub struct Handles(Mutex<[Seen; Kind::VARIANTS.len()]>);

impl Default for Handles {
    fn default() -> Self {
        Self(Mutex::new(std::array::from_fn(|_| Seen { uses: Vec::new(), made: HashMap::new() })))
    }
}

/// A running call that creates objects.
pub struct Making<'h>(MutexGuard<'h, [Seen; Kind::VARIANTS.len()]>);

/// An object that is not destroyed.
pub struct Left {
    pub kind: Kind,
    pub made: Call,
    /// The program's call site ([`calls::caller`]).
    pub maker: u64,
}

/// Whether the program has to destroy objects of a kind.
fn is_the_programs(kind: Kind) -> bool {
    !matches!(kind, Kind::Driver | Kind::Device | Kind::Engines | Kind::Memory)
}

impl Handles {
    /// Begins a call that creates objects; `None`: it creates none, or is a part of a call that does.
    pub fn begin(&self, function: &str) -> Option<Making<'_>> {
        let makes = MAKERS.iter().any(|part| function.contains(part));
        if !makes || MAKING.replace(true) {
            return None;
        }
        let mut making = Making(self.0.lock().unwrap_or_else(PoisonError::into_inner));
        // Existing objects come from calls that return nothing that the program has to destroy.
        making.look(|| None);
        Some(making)
    }

    /// The objects that are not destroyed.
    pub fn left(&self) -> Vec<Left> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left = Vec::new();
        for &kind in Kind::VARIANTS.iter().filter(|&&kind| is_the_programs(kind)) {
            let seen = &seen[kind as usize];
            kind.each_live(MOST, |slot, uses| {
                let is_seen = seen.uses.get(slot) == Some(&uses);
                if let Some((made, maker)) = seen.made.get(&slot).filter(|_| is_seen).cloned() {
                    left.push(Left { kind, made, maker });
                }
            });
        }
        left.sort_by_key(|it| it.made.number);
        left
    }
}

impl Making<'_> {
    /// Notes all objects that were not seen before.
    fn look(&mut self, made: impl Fn() -> Option<(Call, u64)>) {
        for &kind in Kind::VARIANTS.iter().filter(|&&kind| is_the_programs(kind)) {
            let seen = &mut self.0[kind as usize];
            kind.each_live(MOST, |slot, uses| {
                if seen.uses.get(slot) == Some(&uses) {
                    return;
                }
                if seen.uses.len() <= slot {
                    seen.uses.resize(slot + 1, NEVER);
                }
                seen.uses[slot] = uses;
                match made() {
                    Some(call) => seen.made.insert(slot, call),
                    None => seen.made.remove(&slot),
                };
            });
        }
    }
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        self.look(|| Some((calls::current(), calls::caller())));
        MAKING.set(false);
    }
}
