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

/// An object: its generation in its slot, and the call that created it if the program made that call.
struct Object {
    uses: u64,
    made: Option<(Call, u64)>,
}

/// The objects that were seen, by kind and slot.
type Seen = HashMap<(u8, usize), Object>;

#[derive(Default)]
pub struct Handles(Mutex<Seen>);

/// A running call that creates objects.
pub struct Making<'h>(MutexGuard<'h, Seen>);

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
    /// Notes all objects that were not seen before.
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
