// SPDX-License-Identifier: MIT OR Apache-2.0
//! Items whose places are at distances that are constants, though not in line: rows that several items share, parts of
//! rows, rows that are taken in another order.
//!
//! ```text
//!   items                             0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15
//!   row[l % 8]                        0  1  2  3  4  5  6  7  0  1  2  3  4  5  6  7
//!   tile[l / 8 * 64 + l % 8]          0  1  2  3  4  5  6  7 64 65 66 67 68 69 70 71
//!   sums[l ^ 4]                       4  5  6  7  0  1  2  3 12 13 14 15  8  9 10 11
//! ```
//!
//! The first local id of a vector is a multiple of its items, and the number of an item in its sub-group is a constant.
//! So what lies side by side is known, and each stretch of it is loaded or stored as a vector, whose elements are
//! exchanged. Numbers of 32 bits must not wrap around between the items, which scalars tell.

use self::find::{Check, Search};
use super::emit::Widener;
use super::ops::Leaf;
use super::shape::Rows;
use crate::ir::{Access, Operand, Type};
use crate::optimise::is_skipped;

mod code;
mod find;
mod spread;

/// The name by which it is left out.
const NAME: &str = "fixed-places";

/// So many items have one vector in memory, at least.
const FEWEST_ITEMS: usize = 4;

/// Elements that lie side by side, or nearly so.
struct Stretch {
    /// An item of the row, and the distance in bytes from its address.
    item: u32,
    offset: i64,
    /// The elements, and how many of them the items have. Rows of which each item reads some elements are transposed.
    len: u32,
    used: u32,
}

/// Where the parts of the items' elements lie.
pub(super) struct Fixed {
    at: Operand,
    stretches: Vec<Stretch>,
    /// For each part of an element and each item, the stretch and the place in it.
    picks: Vec<Vec<(usize, u32)>>,
    checks: Vec<Check>,
}

impl Widener<'_> {
    /// Where elements lie that are loaded, if these are fixed places.
    pub(super) fn fixed_loads(
        &self,
        at: Operand,
        leaves: &[Leaf],
        access: Access,
        readable: bool,
    ) -> Option<Fixed> {
        let runs = self.mask.is_none() || readable;
        if !runs { None } else { self.fixed(at, leaves, access, true) }
    }

    /// Where elements lie that are stored, if these are fixed places.
    pub(super) fn fixed_stores(
        &self,
        at: Operand,
        leaves: &[Leaf],
        access: Access,
    ) -> Option<Fixed> {
        if self.mask.is_some() { None } else { self.fixed(at, leaves, access, false) }
    }

    fn fixed(&self, at: Operand, leaves: &[Leaf], access: Access, gaps: bool) -> Option<Fixed> {
        let types = &self.out.module.types;
        let first = leaves.first()?;
        let plain = |leaf: &Leaf| {
            leaf.ty == first.ty && matches!(types[leaf.ty], Type::Int(_) | Type::Float(_))
        };
        if !self.may_spread(at)
            || self.part != self.out.lanes
            || self.rows != Rows::Whole
            || access.volatile
            || self.is_private(at)
            || !leaves.iter().all(plain)
            || !(gaps || leaves.len().is_power_of_two())
            || is_skipped(NAME)
        {
            return None;
        }
        let mut search = Search::default();
        let spread = self.spread(at, &mut search)?;
        let size = types.size(first.ty) as i64;
        let lanes = spread.items.len();
        let mut all = Vec::with_capacity(lanes * leaves.len());
        for (item, (&distance, &row)) in spread.items.iter().zip(&spread.rows).enumerate() {
            for (part, leaf) in leaves.iter().enumerate() {
                all.push((row, distance + leaf.offset as i64, item, part));
            }
        }
        all.sort_unstable();
        let mut stretches: Vec<(u32, i64, Stretch)> = Vec::new();
        let mut picks = vec![vec![(0, 0); lanes]; leaves.len()];
        for (row, offset, item, part) in all {
            let open = stretches.last_mut().filter(|(of, from, stretch)| {
                let (distance, most) = (offset - from, size * lanes as i64);
                let next = i64::from(stretch.len) * size;
                let next = if gaps { next + size } else { next };
                *of == row && distance % size == 0 && distance < most && distance <= next
            });
            match open {
                Some((_, from, stretch)) => {
                    let len = ((offset - *from) / size + 1) as u32;
                    stretch.used += u32::from(len != stretch.len);
                    stretch.len = len;
                }
                None => {
                    let first = spread.rows.iter().position(|of| *of == row)?;
                    let distance = offset - spread.items[first];
                    let item = first as u32;
                    let stretch = Stretch { item, offset: distance, len: 1, used: 1 };
                    stretches.push((row, offset, stretch));
                }
            }
            let (_, from, _) = stretches.last()?;
            picks[part][item] = (stretches.len() - 1, ((offset - from) / size) as u32);
        }
        let few = stretches.len() * FEWEST_ITEMS <= lanes;
        let stretches: Vec<Stretch> = stretches.into_iter().map(|(.., stretch)| stretch).collect();
        let dense = stretches.iter().all(|it| 4 * it.used >= 3 * it.len);
        (few && dense).then_some(Fixed { at, stretches, picks, checks: search.checks })
    }
}
