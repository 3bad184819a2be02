// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is divided.

use crate::ir::{BinaryOp, Operand};

/// 1.5 times the number whose last place is 1, as a double and as a float: an integer that is added to it has its value
/// in the low bits.
pub(super) const ROUNDER: (u64, u64) = (0x4338_0000_0000_0000, 0x4b40_0000);

/// A division in all items.
pub(in crate::widen) struct Division {
    pub(in crate::widen) op: BinaryOp,
    /// A vector.
    pub(in crate::widen) dividend: Operand,
    /// Whether all items' dividends are known to be between 0 and 2^30 - 1.
    pub(in crate::widen) is_small: bool,
    /// A vector.
    pub(in crate::widen) divisor: Operand,
    /// The divisor, if it is the same for all.
    pub(in crate::widen) uniform: Option<Operand>,
}

impl Division {
    pub(super) fn is_signed(&self) -> bool {
        matches!(self.op, BinaryOp::SDiv | BinaryOp::SRem)
    }
}
