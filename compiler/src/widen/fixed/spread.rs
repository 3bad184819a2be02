// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers of a vector's items that are constants apart, and what operations make of them.

use crate::ir::BinaryOp;

/// The greatest distance.
pub(super) const FAR: i64 = 1 << 24;

/// Bits that are free in zero.
pub(super) const ALL_BITS: u32 = 64;

/// What the items' numbers, or addresses in bytes, are: each a constant more than a number that the items of a row share.
#[derive(Clone, PartialEq)]
pub(super) struct Spread {
    /// The constants, modulo the width of the number.
    pub(super) items: Vec<i64>,
    /// The items' rows, in their order.
    pub(super) rows: Vec<u32>,
    /// The lowest bits of the rows' numbers are zeros, so many of them.
    pub(super) free: u32,
}

impl Spread {
    /// Whether an item has free bits alone.
    pub(super) fn has_free(&self, item: i64) -> bool {
        (0..1i64 << self.free.min(62)).contains(&item)
    }

    /// Whether all items have.
    pub(super) fn is_below(&self) -> bool {
        self.items.iter().all(|&item| self.has_free(item))
    }

    /// Whether the numbers are the constants.
    pub(super) fn is_constant(&self) -> bool {
        self.free == ALL_BITS && self.is_below()
    }

    fn map(&self, free: u32, of: impl Fn(i64) -> i64) -> Spread {
        let items = self.items.iter().map(|&item| of(item)).collect();
        Spread { items, rows: self.rows.clone(), free }
    }

    pub(super) fn plus(&self, other: &Spread, times: i64) -> Spread {
        let items = self.items.iter().zip(&other.items).map(|(&a, &b)| a + b * times).collect();
        let rows = numbered(self.rows.iter().zip(&other.rows));
        Spread { items, rows, free: self.free.min(other.free) }
    }

    pub(super) fn times(&self, by: i64) -> Option<Spread> {
        let zeros = if by == 0 { ALL_BITS } else { by.trailing_zeros() };
        let free = (self.free + zeros).min(ALL_BITS);
        let fits = by.abs() <= FAR;
        fits.then(|| self.map(free, |item| item.wrapping_mul(by)))
    }

    /// The product with a number that all items share, and whose lowest bits are zeros.
    pub(super) fn in_rows(&self, zeros: u32) -> Spread {
        let rows = numbered(self.rows.iter().zip(&self.items));
        Spread { items: vec![0; rows.len()], rows, free: zeros.min(ALL_BITS) }
    }

    /// An operation with bits, of which the rows' numbers have their own.
    pub(super) fn bits(&self, op: BinaryOp, by: i64) -> Option<Spread> {
        if !self.is_below() {
            return None;
        }
        let low = by & ((1i64 << self.free.min(62)) - 1);
        Some(match op {
            BinaryOp::And => {
                let free = if self.has_free(by) { ALL_BITS } else { self.free };
                self.map(free, |item| item & low)
            }
            BinaryOp::Or => self.map(self.free, |item| item | low),
            BinaryOp::Xor => self.map(self.free, |item| item ^ low),
            BinaryOp::LShr | BinaryOp::AShr => {
                let shifted = self.free.saturating_sub(by as u32);
                let free = if self.free == ALL_BITS { ALL_BITS } else { shifted };
                self.map(free, |item| item >> by.min(62))
            }
            _ => return None,
        })
    }

    /// A quotient or a remainder of a number without a sign.
    pub(super) fn divided(&self, quotient: bool, by: i64) -> Option<Spread> {
        if by & (by - 1) == 0 {
            return match quotient {
                true => self.bits(BinaryOp::LShr, i64::from(by.trailing_zeros())),
                false => self.bits(BinaryOp::And, by - 1),
            };
        }
        let of = |item: i64| if quotient { item / by } else { item % by };
        self.is_constant().then(|| self.map(ALL_BITS, of))
    }
}

/// Numbers of what is different, in the order in which it comes.
fn numbered<T: PartialEq>(of: impl Iterator<Item = T>) -> Vec<u32> {
    let mut seen = Vec::new();
    of.map(|it| {
        let known = seen.iter().position(|other| *other == it);
        let number = known.unwrap_or_else(|| {
            seen.push(it);
            seen.len() - 1
        });
        number as u32
    })
    .collect()
}
