// SPDX-License-Identifier: MIT OR Apache-2.0
//! By how much places grow from one turn of a loop to the next.
//!
//! Filters that are applied to rows, then to columns, have the direction as an argument, and dilated ones the distance:
//!
//! ```text
//!   for (v = -c; v <= c; v++) sum += weight[v] * in[clamp(y + (dim == 1 ? v : 0), 0, h - 1) * w + clamp(x + v * by, 0, w - 1)]
//! ```
//!
//! Such a place grows by the same amount in all turns. That it is not far is asked in front.

use super::Finder;
use super::counters::MOST_STEP;
use crate::ir::{BinaryOp, ConvertOp, Op, Operand, ValueId};

/// The longest sum with a counter in it.
const MAX_SUMS: usize = 8;

/// The greatest argument that a counter is multiplied by, with either sign.
pub(super) const MOST_FACTOR: i64 = 64;

/// The least and the greatest amount.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Growth {
    least: i64,
    most: i64,
}

/// What has to hold for that.
#[derive(Default)]
pub(super) struct Needs {
    /// Operations whose results have to be the usual ones.
    pub(super) results: Vec<ValueId>,
    /// Numbers that must not be above [`MOST_FACTOR`], or below it with the other sign.
    pub(super) factors: Vec<Operand>,
}

impl Growth {
    pub(super) const NONE: Self = Self { least: 0, most: 0 };

    fn new(a: i64, b: i64) -> Option<Self> {
        let (least, most) = (a.min(b), a.max(b));
        (-MOST_STEP <= least && most <= MOST_STEP).then_some(Self { least, most })
    }

    /// Whether a number does not shrink; else it does not grow. `None` if that is not known.
    pub(super) fn grows(self) -> Option<bool> {
        match (self.least >= 0, self.most <= 0) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        }
    }

    pub(super) fn times(self, by: i64) -> Option<Self> {
        Self::new(self.least.checked_mul(by)?, self.most.checked_mul(by)?)
    }

    fn plus(self, other: Self) -> Option<Self> {
        Self::new(self.least + other.least, self.most + other.most)
    }
}

impl Finder<'_> {
    /// By how much a number grows with a phi, inside: adds what has to hold for that.
    pub(super) fn grows(
        &self,
        operand: Operand,
        phi: ValueId,
        needs: &mut Needs,
        depth: usize,
    ) -> Option<Growth> {
        if operand == Operand::Value(phi) {
            return Growth::new(1, 1);
        }
        let Some((value, _, inst)) = self.made(operand) else { return Some(Growth::NONE) };
        if depth > MAX_SUMS {
            return None;
        }
        let mut next = |operand| self.grows(operand, phi, needs, depth + 1);
        match inst.op {
            Op::Binary(BinaryOp::Add, a, b) => next(a)?.plus(next(b)?),
            Op::Binary(BinaryOp::Sub, a, b) => next(a)?.plus(next(b)?.times(-1)?),
            Op::Binary(BinaryOp::Mul, a, Operand::Const(b)) => {
                next(a)?.times(i64::try_from(self.module.const_bits(b)?).ok()?)
            }
            Op::Binary(BinaryOp::Mul, a, b) => match (next(a)?, next(b)?) {
                (Growth::NONE, Growth::NONE) => Some(Growth::NONE),
                (by, Growth::NONE) => self.times_argument(by, b, needs),
                (Growth::NONE, by) => self.times_argument(by, a, needs),
                _ => None,
            },
            // Of two amounts one is that of all turns and of all items.
            Op::Select(condition, a, b) if !self.moves(condition) => {
                let still = next(condition)? == Growth::NONE;
                let (a, b) = (next(a)?, next(b)?);
                let by = Growth::new(a.least.min(b.least), a.most.max(b.most));
                by.filter(|_| still)
            }
            Op::Binary(BinaryOp::SMax | BinaryOp::SMin | BinaryOp::UMax | BinaryOp::UMin, a, b) => {
                let by = [next(a)?, next(b)?];
                match self.moving(a, b) {
                    _ if by == [Growth::NONE; 2] => Some(Growth::NONE),
                    Some(moving) if by.contains(&Growth::NONE) => {
                        let by = self.grows(moving, phi, needs, depth + 1)?;
                        if by == Growth::NONE {
                            return None;
                        }
                        needs.results.push(value);
                        Some(by)
                    }
                    _ => None,
                }
            }
            Op::Convert(ConvertOp::Trunc, a) => next(a),
            Op::Phi(_) => None,
            ref op => {
                let mut still = true;
                op.for_each_operand(|operand| still = still && next(operand) == Some(Growth::NONE));
                still.then_some(Growth::NONE)
            }
        }
    }

    /// What grows, multiplied by a number that is the same for all items and in all turns.
    fn times_argument(&self, by: Growth, factor: Operand, needs: &mut Needs) -> Option<Growth> {
        if self.moves(factor) {
            return None;
        }
        needs.factors.push(factor);
        let most = by.least.abs().max(by.most.abs()).checked_mul(MOST_FACTOR)?;
        Growth::new(-most, most)
    }
}
