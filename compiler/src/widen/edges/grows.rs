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

use super::counters::MOST_STEP;
use crate::ir::{Operand, ValueId};

/// The least and the greatest amount.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Growth {
    pub(super) least: i64,
    pub(super) most: i64,
}

/// What has to hold for that.
#[derive(Default)]
pub(super) struct Needs {
    /// Operations whose results have to be the usual ones.
    pub(super) results: Vec<ValueId>,
    /// Numbers that must not be above [`MOST_FACTOR`](super::counters::MOST_FACTOR), or below it with the other sign.
    pub(super) factors: Vec<Operand>,
}

impl Growth {
    pub(super) const NONE: Self = Self { least: 0, most: 0 };

    pub(super) fn new(a: i64, b: i64) -> Option<Self> {
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

    pub(super) fn plus(self, other: Self) -> Option<Self> {
        Self::new(self.least + other.least, self.most + other.most)
    }
}
