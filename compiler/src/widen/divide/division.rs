// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is divided.

use crate::ir::{BinaryOp, Operand};

/// 1.5 times the number whose last place is 1, as a double and as a float: an integer that is added to it has its value
/// in the low bits.
pub(super) const ROUNDER: (u64, u64) = (0x4338_0000_0000_0000, 0x4b40_0000);

/// 64-bit numbers below this limit are divided as doubles.
pub(super) const MOST: u64 = 1 << 50;

/// A division in all items.
pub(in crate::widen) struct Division {
    pub(in crate::widen) op: BinaryOp,
    /// A vector.
    pub(in crate::widen) dividend: Operand,
    /// The greatest that any item's dividend may be, if none is negative.
    pub(in crate::widen) most: Option<u64>,
    /// A vector.
    pub(in crate::widen) divisor: Operand,
    /// The greatest that any item's divisor may be, if none is negative.
    pub(in crate::widen) most_divisor: Option<u64>,
    /// The divisor, if it is the same for all.
    pub(in crate::widen) uniform: Option<Operand>,
}

impl Division {
    pub(super) fn is_signed(&self) -> bool {
        matches!(self.op, BinaryOp::SDiv | BinaryOp::SRem)
    }

    /// The greatest dividend without its sign that there may be.
    pub(super) fn greatest(&self) -> u64 {
        self.most.unwrap_or(if self.is_signed() { 1 << 63 } else { u64::MAX })
    }

    /// Whether all items' dividends are known to be between 0 and 2^50 - 1.
    pub(super) fn is_small(&self) -> bool {
        self.most.is_some_and(|most| most < MOST)
    }
}
