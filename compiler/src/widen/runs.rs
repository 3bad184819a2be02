// SPDX-License-Identifier: MIT OR Apache-2.0
//! Comparisons of ids that grow by one from item to item: two items determine for which items they
//! hold.
//!
//! `id < n` holds for the first items of a vector, up to some place. So it holds for any if it does for
//! the first, and for all if it does for the last. A scalar comparison then determines whether a block
//! has items, in place of a comparison of vectors and a test of its mask.

use super::compares::mirrored;
use super::emit::Widener;
use super::known::Known;
use super::shape::Shape;
use crate::ir::{BinaryOp, CompareOp, Op, Operand, Type};

impl Widener<'_> {
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
