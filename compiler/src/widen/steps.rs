// SPDX-License-Identifier: MIT OR Apache-2.0
//! The arithmetic of steps: by how much a result grows from item to item ([`shape`](super::shape)).

use crate::ir::{Module, Operand, ValueId};

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
pub(super) fn keeps_word(mask: i64) -> bool {
    const WORD: i64 = (1 << 31) - 1;
    mask & WORD == WORD
}

/// The bits of a constant.
pub(super) fn constant_bits(module: &Module, operand: Operand) -> Option<u64> {
    match operand {
        Operand::Const(id) => module.const_bits(id),
        Operand::Value(_) => None,
    }
}
