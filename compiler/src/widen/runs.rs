// SPDX-License-Identifier: MIT OR Apache-2.0
//! Comparisons of ids that grow by one from item to item: two items determine for which items they
//! hold.
//!
//! `id < n` holds for the first items of a vector, up to some place. So it holds for any if it does for
//! the first, and for all if it does for the last. A scalar comparison then determines whether a block
//! has items, in place of a comparison of vectors and a test of its mask.
//!
//! Where ids are numbers of 64 bits, the vectors that are compared have 32 bits for each item, as ids fit. The limit is
//! clamped to 32 bits for that:
//!
//! ```text
//!   size_t i = get_global_id(0);  i <= k     (uint)i <= (uint)min(k, 2^31 - 1)
//! ```

use super::compares::mirrored;
use super::emit::Widener;
use super::known::Known;
use super::shape::Shape;
use crate::ir::{BinaryOp, CompareOp, ConvertOp, Op, Operand, Type};
use crate::optimise::is_skipped;

/// The name by which comparisons in fewer bits are left out.
const NAME: &str = "compares";

impl Widener<'_> {
    /// A comparison of 64-bit numbers with a step, which fit 32 bits, with what all items share: the mask.
    pub(super) fn compare_narrow(&mut self, op: &Op) -> Option<Operand> {
        use BinaryOp as B;
        use CompareOp as C;
        let &Op::Compare(kind, a, b) = op else { return None };
        let wide = self.type_in(a);
        if self.out.module.types[wide] != Type::Int(64) || is_skipped(NAME) {
            return None;
        }
        let (kind, number, limit) = match (self.shape(a), self.shape(b)) {
            (Shape::Strided { .. }, Shape::Uniform) => (kind, a, b),
            (Shape::Uniform, Shape::Strided { .. }) => (mirrored(kind), b, a),
            _ => return None,
        };
        let Shape::Strided { step, guard: None } = self.shape(number) else { return None };
        // Neither the numbers nor their comparison with a clamped limit reach the ends of 32 bits.
        let least = self.least_of(number)?;
        let signed = !matches!(kind, C::ULt | C::ULe | C::UGt | C::UGe);
        if !signed && least < 0 {
            return None;
        }
        let fits = self.least_of(limit).is_some_and(|least| least >= 0);
        let (first, mut limit) = (self.one(number), self.one(limit));
        let [low, high] = [i32::MIN, i32::MAX].map(|end| self.out.int(wide, end.into()));
        let ends = match signed {
            _ if fits => [None, None],
            true => [Some((B::SMax, low)), Some((B::SMin, high))],
            false => [Some((B::UMin, high)), None],
        };
        for (op, end) in ends.into_iter().flatten() {
            limit = self.out.value(Op::Binary(op, limit, end), wide);
        }
        let narrow = self.out.module.types.int(32);
        let [first, limit] =
            [first, limit].map(|it| self.out.value(Op::Convert(ConvertOp::Trunc, it), narrow));
        let (numbers, limits) = (self.stepped(first, step, None), self.out.splat(limit));
        let masks = self.out.mask_type();
        Some(self.out.value(Op::Compare(kind, numbers, limits), masks))
    }

    /// The least number that a value may be in any item, if all are far from the ends of 32 bits.
    fn least_of(&self, operand: Operand) -> Option<i64> {
        const FAR: i64 = 1 << 29;
        let most = self.shapes.most(&self.out.module, operand);
        if most.is_some_and(|most| most < FAR as u64) {
            return Some(0);
        }
        // A small number, moved.
        let product = self.shapes.product(operand).filter(|it| it.factor == 1)?;
        Some(product.moved).filter(|moved| moved.abs() <= FAR)
    }

    /// Records the scalars that describe the mask of a comparison.
    pub(super) fn note_compare(&mut self, op: &Op, mask: Operand) {
        let (&Op::Compare(kind, a, b), Operand::Value(mask)) = (op, mask) else { return };
        if !matches!(self.out.module.types[self.type_in(a)], Type::Int(_)) {
            return;
        }
        let grows = |this: &Self, operand| {
            this.shapes.is_small(operand)
                && this.shape(operand) == Shape::Strided { step: 1, guard: None }
        };
        let same = |this: &Self, operand| this.shape(operand) == Shape::Uniform;
        let (kind, id, limit) = if grows(self, a) && same(self, b) {
            (kind, a, b)
        } else if same(self, a) && grows(self, b) {
            (mirrored(kind), b, a)
        } else {
            return;
        };
        let (first, limit) = (self.one(id), self.one(limit));
        let ty = self.out.type_of(first);
        let bool = self.out.module.types.bool();
        let ends = self.out.int(ty, i64::from(self.out.lanes) - 1);
        // Ids are below 2^31 for every item, so nothing wraps around.
        let last = self.out.value(Op::Binary(BinaryOp::Add, first, ends), ty);
        use CompareOp as C;
        let known = match kind {
            C::ULt | C::ULe | C::SLt | C::SLe => Known {
                any: self.out.value(Op::Compare(kind, first, limit), bool),
                all: self.out.value(Op::Compare(kind, last, limit), bool),
            },
            C::UGt | C::UGe | C::SGt | C::SGe => Known {
                any: self.out.value(Op::Compare(kind, last, limit), bool),
                all: self.out.value(Op::Compare(kind, first, limit), bool),
            },
            C::Eq => {
                let distance = self.out.value(Op::Binary(BinaryOp::Sub, limit, first), ty);
                Known {
                    any: self.out.value(Op::Compare(C::ULe, distance, ends), bool),
                    all: Operand::Const(self.out.module.const_int(bool, 0)),
                }
            }
            _ => return,
        };
        self.out.known.insert(mask, known);
    }
}
