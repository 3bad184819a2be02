// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handles that the program has made, each with the call that has made it.
//!
//! Handles are made in many places, and fast. So nothing is noted there: calls by whose name they make some
//! look before and after which objects there are. Such calls of different threads wait for each other, so
//! that each finds its own.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use strum::VariantArray as _;

use super::calls::{self, Call};
use crate::handle::Kind;

/// What the names of calls that make objects contain.
const MAKERS: [&str; 6] = ["Create", "Clone", "Open", "Instantiate", "Capture", "Link"];
/// Slots of a kind that are looked at: with more objects, looking would take too long.
const MOST: usize = 1 << 16;

thread_local! {
    /// A call of this thread is making objects: some entry points are made of others.
    static MAKING: Cell<bool> = const { Cell::new(false) };
}

/// An object: which of those that its slot has held it is, and what made it if that was the program.
struct Object {
    uses: u64,
    made: Option<(Call, u64)>,
}

/// The objects that were seen, by kind and slot.
type Seen = HashMap<(u8, usize), Object>;

#[derive(Default)]
pub struct Handles(Mutex<Seen>);

/// A call that makes objects runs.
pub struct Making<'h>(MutexGuard<'h, Seen>);

/// An object that is not destroyed.
pub struct Left {
    pub kind: Kind,
    pub made: Call,
    /// Where the program has called ([`calls::caller`]).
    pub maker: u64,
}

/// Whether the program has to destroy objects of a kind.
fn is_the_programs(kind: Kind) -> bool {
    !matches!(kind, Kind::Driver | Kind::Device | Kind::Engines | Kind::Memory)
}

impl Handles {
    /// Begins a call that makes objects; `None`: it makes none, or is a part of one that does.
    pub fn begin(&self, function: &str) -> Option<Making<'_>> {
        let makes = MAKERS.iter().any(|part| function.contains(part));
        if !makes || MAKING.replace(true) {
            return None;
        }
        let mut making = Making(self.0.lock().unwrap_or_else(PoisonError::into_inner));
        // What there is already came from calls that give the program nothing to destroy.
        making.look(|| None);
        Some(making)
    }

    /// What is not destroyed.
    pub fn left(&self) -> Vec<Left> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left = Vec::new();
        for &kind in Kind::VARIANTS.iter().filter(|&&kind| is_the_programs(kind)) {
            kind.each_live(MOST, |slot, uses| {
                let object = seen.get(&(kind as u8, slot)).filter(|it| it.uses == uses);
                if let Some((made, maker)) = object.and_then(|it| it.made.clone()) {
                    left.push(Left { kind, made, maker });
                }
            });
        }
        left.sort_by_key(|it| it.made.number);
        left
    }
}

impl Making<'_> {
    /// Notes all objects that were not seen yet.
    fn look(&mut self, made: impl Fn() -> Option<(Call, u64)>) {
        for &kind in Kind::VARIANTS.iter().filter(|&&kind| is_the_programs(kind)) {
            kind.each_live(MOST, |slot, uses| {
                let key = (kind as u8, slot);
                if self.0.get(&key).is_none_or(|it| it.uses != uses) {
                    self.0.insert(key, Object { uses, made: made() });
                }
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
