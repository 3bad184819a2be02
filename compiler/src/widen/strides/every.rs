// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every second, third, or fourth element, as pictures with a number of channels that is an argument have them:
//!
//! ```text
//!   vectors   0 1 2 3 4 5 6 7 | 8 9 ...        items   0 3 6 9 ...
//! ```
//!
//! All vectors from the first item's element to the last item's one are loaded, and the items' elements are picked. What
//! is stored is spread over such vectors, which are stored under masks.

use super::Stride;
use crate::ir::{Access, ConstKind, Op, Operand, TypeId};
use crate::optimise::is_skipped;
use crate::widen::emit::Widener;
use crate::widen::ops::Leaf;
use crate::widen::picks::{Pick, Source, picks};

/// The name by which it is left out.
const NAME: &str = "channels";

/// Bytes of elements that all processors load and store under masks.
const MASKED: std::ops::RangeInclusive<u64> = 4..=8;

/// The most elements from an item's to the next one's, and of those of 8 bytes: vectors of 64 bytes that are loaded.
const MOST: u32 = 4;
const MOST_LONG: u32 = 2;

impl Widener<'_> {
    /// The least number of elements, from some number on, that items may be apart by to be accessed in vectors.
    pub(super) fn step(
        &self,
        stride: &Stride,
        leaves: &[Leaf],
        size: u64,
        access: Access,
        from: u32,
    ) -> Option<u32> {
        let masked = self.mask.is_some();
        let is_one = leaves.len() == 1 && !access.volatile;
        let most = match size {
            _ if !is_one || masked && !MASKED.contains(&size) => return None,
            _ if is_skipped(NAME) => return None,
            8 => MOST_LONG,
            _ => MOST,
        };
        (from..=most).find(|&step| (u64::from(step) * size).is_multiple_of(stride.unit.max(1)))
    }

    /// Loads the first of each so many elements. The last vector ends with the last item's.
    pub(super) fn load_every(
        &mut self,
        step: u32,
        first: Operand,
        element: TypeId,
        size: u64,
        access: Access,
    ) -> Operand {
        let lanes = self.out.lanes;
        let ty = self.out.vector_of(element);
        let access = Access { align: access.align.min(size as u32), ..access };
        let last = (lanes - 1) * step + 1 - lanes;
        let begins: Vec<u32> = (0..step).map(|piece| (piece * lanes).min(last)).collect();
        let mut pieces = Vec::with_capacity(begins.len());
        for &begin in &begins {
            let at = self.behind(first, begin, size);
            let op = match self.mask {
                None => Op::Load(at, access),
                Some(_) => Op::MaskedLoad(at, self.mask_of_every(step, begin), access),
            };
            pieces.push(self.out.value(op, ty));
        }
        let wanted: Vec<u32> = (0..lanes).map(|item| item * step).collect();
        let mut picked = Vec::new();
        for Pick { of, places } in picks(&begins, lanes, &wanted) {
            let [a, b] = of.map(|source| match source {
                Source::Vector(number) => pieces[number],
                Source::Shuffle(number) => picked[number],
            });
            picked.push(self.out.value(Op::Shuffle(a, b, places), ty));
        }
        picked.pop().unwrap_or(pieces[0])
    }

    /// Stores to the first of each so many elements.
    pub(super) fn store_every(
        &mut self,
        step: u32,
        first: Operand,
        value: Operand,
        size: u64,
        access: Access,
    ) {
        let lanes = self.out.lanes;
        let ty = self.out.type_of(value);
        let access = Access { align: access.align.min(size as u32), ..access };
        for begin in (0..step).map(|piece| piece * lanes) {
            let at = self.behind(first, begin, size);
            let mask = self.mask_of_every(step, begin);
            let spread = (0..lanes).map(|place| item_of(step, begin + place, lanes)).collect();
            let spread = self.out.value(Op::Shuffle(value, value, spread), ty);
            self.out.effect(Op::MaskedStore(at, spread, mask, access), Default::default());
        }
    }

    /// The address so many elements behind another one.
    fn behind(&mut self, first: Operand, elements: u32, size: u64) -> Operand {
        let pointer = self.out.type_of(first);
        let offset = (u64::from(elements) * size) as i64;
        let at = Op::Address { base: first, offset, terms: Vec::new(), inbounds: false };
        self.out.value(at, pointer)
    }

    /// The elements of a vector that belong to items of the mask.
    fn mask_of_every(&mut self, step: u32, begin: u32) -> Operand {
        let (lanes, masks) = (self.out.lanes, self.out.mask_type());
        let items = (0..lanes).map(|place| item_of(step, begin + place, lanes));
        let Some(mask) = self.mask else {
            let bool = self.out.module.types.bool();
            let parts = items.map(|item| self.out.module.const_int(bool, item.is_some().into()));
            let parts = ConstKind::Composite(parts.collect());
            return Operand::Const(self.out.module.constant(masks, parts));
        };
        let none = Operand::Const(self.out.module.constant(masks, ConstKind::Null));
        let items = items.map(|item| Some(item.unwrap_or(lanes))).collect();
        self.out.value(Op::Shuffle(mask, none, items), masks)
    }
}

/// The item that an element belongs to.
fn item_of(step: u32, element: u32, lanes: u32) -> Option<u32> {
    (element.is_multiple_of(step) && element / step < lanes).then_some(element / step)
}
