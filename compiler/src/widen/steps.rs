// SPDX-License-Identifier: MIT OR Apache-2.0
//! The arithmetic of steps: by how much a result grows from item to item ([`shape`](super::shape)).

use crate::ir::ValueId;

/// The maximum distance, in either direction, by which a small number may be moved and still fit 32
/// bits.
const MOST_MOVED: i64 = 1 << 30;

/// The largest factor of an id that is taken not to overflow 32 bits. Launches for which it would run one
/// item at a time ([`Shapes::factor`](super::shape::Shapes::factor)); with this factor, those of more than four million
/// items.
const MOST_FACTOR: i64 = 256;

/// A small number times a factor, moved by a constant of at most [`MOST_MOVED`].
#[derive(Clone, Copy)]
pub(super) struct Product {
    pub(super) factor: i64,
    pub(super) moved: i64,
}

impl Product {
    /// Whether it is the small number itself.
    pub(super) fn is_same(self) -> bool {
        (self.factor, self.moved) == (1, 0)
    }

    pub(super) fn times(self, by: i64) -> Option<Self> {
        let (factor, moved) = (self.factor.checked_mul(by)?, self.moved.checked_mul(by)?);
        let fits = (1..=MOST_FACTOR).contains(&factor) && moved.abs() <= MOST_MOVED;
        fits.then_some(Self { factor, moved })
    }

    pub(super) fn plus(self, more: i64) -> Option<Self> {
        let moved = self.moved.checked_add(more)?;
        (moved.abs() <= MOST_MOVED).then_some(Self { moved, ..self })
    }

    /// Whether a mask has all bits that it may have. Those below the lowest of the factor and the constant are 0.
    pub(super) fn is_kept_by(self, mask: i64) -> bool {
        let none = (1 << (self.factor | self.moved).trailing_zeros()) - 1;
        self.moved >= 0 && keeps_word(mask | none)
    }
}

/// Whether a distance in bytes, or a step, is as programs have them: sums and multiples of such ones fit 64 bits.
pub(super) fn is_near(distance: i64) -> bool {
    distance.unsigned_abs() <= 1 << 40
}

/// A step, and the operation that must not wrap around for it to hold.
pub(super) type Step = (i64, Option<ValueId>);

/// The step of a sum, or with the sign -1 of a difference.
pub(super) fn sum(a: Option<Step>, b: Option<Step>, sign: i64) -> Option<Step> {
    let ((a, guard_a), (b, guard_b)) = (a?, b?);
    let guard = match (guard_a, guard_b) {
        (None, None) => None,
        // A guarded value is only corrected by multiples of its own step.
        (Some(guard), None) if b == 0 => Some(guard),
        (None, Some(guard)) if a == 0 => Some(guard),
        (Some(one), Some(other)) if one == other => Some(one),
        _ => return None,
    };
    let step = match guard {
        None => a.wrapping_add(b.wrapping_mul(sign)),
        Some(_) => a.checked_add(b.checked_mul(sign)?)?,
    };
    Some((step, guard))
}

/// The step of a product.
///
/// A guarded step stays a multiple of its guard's, by which it is divided if the guard fails; after a
/// wrap-around it is not a multiple any more.
pub(super) fn times(a: Option<Step>, factor: i64) -> Option<Step> {
    let (step, guard) = a?;
    let step = match guard {
        None => step.wrapping_mul(factor),
        Some(_) => step.checked_mul(factor)?,
    };
    Some((step, guard))
}

/// The step of a number that is shifted to the right, if it is never negative nor wraps around: then the bits that are
/// lost are the same in all items if the step has none there.
pub(super) fn shifted_right(a: Option<Step>, by: Option<i64>) -> Option<Step> {
    let ((step, None), by @ 0..=62) = (a?, by?) else { return None };
    (step.trailing_zeros() >= by as u32).then_some((step >> by, None))
}

/// Whether a mask has all bits that a small number may have.
pub(super) fn keeps_small(mask: i64) -> bool {
    const SMALL: i64 = (1 << 30) - 1;
    mask & SMALL == SMALL
}

/// Whether a mask has all bits that a product may have that is not negative.
fn keeps_word(mask: i64) -> bool {
    const WORD: i64 = (1 << 31) - 1;
    mask & WORD == WORD
}
