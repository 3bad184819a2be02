// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows of pictures and tensors whose items are in one dimension: quotients and remainders of ids.

use crate::ir::{BinaryOp, BlockId, CompareOp, Function, Module, Op, Operand, RowOp, Type};
use crate::optimise::is_skipped;
use crate::widen::edges::Finder;
use crate::widen::emit::Widener;
use crate::widen::shape::Shape;
use crate::widen::way::Way;

/// The name by which they are left out.
const NAME: &str = "rows-by-division";

/// The shortest row of a constant length for which there is code: in rows of 16 a vector of 16 lies only if it begins there.
const LEAST_ROW: u64 = 24;
/// The longest one whose length is a constant, as a power of two.
const MOST_SHIFT: u64 = 24;

/// What a number is divided by.
pub(super) enum Divisor {
    Is(Operand),
    Constant(u64),
}

/// An operation that becomes one on rows.
pub(super) struct Quotient {
    pub(super) block: BlockId,
    pub(super) index: usize,
    pub(super) op: RowOp,
    pub(super) number: Operand,
    pub(super) divisor: Divisor,
}

/// The quotients and remainders of numbers that grow by a constant from item to item, and may be asked for in front of the
/// function.
pub(super) fn quotients(module: &Module, function: &Function, way: &Way) -> Vec<Quotient> {
    if is_skipped(NAME) {
        return Vec::new();
    }
    let finder = Finder::new(module, function, way);
    let mut found = Vec::new();
    for (block, body) in function.blocks.iter() {
        for (index, inst) in body.insts.iter().enumerate() {
            let Some(result) = inst.result else { continue };
            let Some((op, number, divisor)) = divides(module, &finder, &inst.op) else { continue };
            let (by, long) = match divisor {
                Divisor::Is(by) => (by, module.operand_bits(by).is_none_or(is_long)),
                Divisor::Constant(by) => (number, is_long(by)),
            };
            let is_int = matches!(module.types[function.values[result].ty], Type::Int(32 | 64));
            let shape = |operand| way.shapes.at(&way.flow, operand, block);
            let grows = matches!(shape(number), Some(Shape::Strided { step: 1.., guard: None }));
            let known = || {
                (by == number || shape(by) == Some(Shape::Uniform))
                    && finder.phis(&[number, by]).is_some_and(|phis| phis.is_empty())
            };
            // What is left of a number after a quotient has a step already, but not all is known of it.
            let is_known = matches!(way.shapes.of(result), Shape::Strided { guard: None, .. })
                && !matches!(inst.op, Op::Binary(BinaryOp::Sub, ..));
            let wraps =
                matches!(inst.op, Op::Binary(BinaryOp::URem | BinaryOp::SRem | BinaryOp::SMod, ..))
                    && finder.is_moved(number)
                    && !is_divided(function, number, by);
            if is_int && long && grows && !is_known && !wraps && known() {
                found.push(Quotient { block, index, op, number, divisor });
            }
        }
    }
    found
}

/// Whether a number is divided by another one: what is left of a sum alone is a place in a ring, as `(x + 1) % w`, which
/// is limited like others at edges.
fn is_divided(function: &Function, number: Operand, by: Operand) -> bool {
    let divides = |op: &Op| match *op {
        Op::Binary(BinaryOp::UDiv | BinaryOp::SDiv, a, b) => (a, b) == (number, by),
        _ => false,
    };
    function.blocks.iter().any(|(_, block)| block.insts.iter().any(|inst| divides(&inst.op)))
}

fn is_long(row: u64) -> bool {
    (LEAST_ROW..=1 << MOST_SHIFT).contains(&row)
}

/// The quotient or the remainder that an operation gives.
fn divides(module: &Module, finder: &Finder<'_>, op: &Op) -> Option<(RowOp, Operand, Divisor)> {
    use BinaryOp as B;
    let &Op::Binary(op, number, by) = op else { return None };
    Some(match (op, module.operand_bits(by)) {
        (B::UDiv | B::SDiv, _) => (RowOp::Number, number, Divisor::Is(by)),
        (B::URem | B::SRem | B::SMod, _) => (RowOp::Place, number, Divisor::Is(by)),
        (B::LShr | B::AShr, Some(shift @ 0..=MOST_SHIFT)) => {
            (RowOp::Number, number, Divisor::Constant(1 << shift))
        }
        // Bits that a shift has left free may be missing.
        (B::And, Some(mask)) if mask > 0 && mask < 1 << MOST_SHIFT => {
            let free = match finder.op(number) {
                Some(&Op::Binary(B::Shl, _, by)) => module.operand_bits(by).unwrap_or(0),
                _ => 0,
            };
            let row = mask + (1 << mask.trailing_zeros());
            if !row.is_power_of_two() || u64::from(mask.trailing_zeros()) > free {
                return None;
            }
            (RowOp::Place, number, Divisor::Constant(row))
        }
        // A number less its quotient times the divisor.
        (B::Sub, None) => {
            let &Op::Binary(B::Mul, a, b) = finder.op(by)? else { return None };
            let (Op::Row(RowOp::Number, of, divisor), times) = (match finder.op(a) {
                Some(row @ Op::Row(..)) => (row, b),
                _ => (finder.op(b)?, a),
            }) else {
                return None;
            };
            let is = (*of, *divisor) == (number, times);
            is.then_some((RowOp::Place, number, Divisor::Is(times)))?
        }
        _ => return None,
    })
}

impl Widener<'_> {
    /// What is known of the items' numbers, divided by one that they share: of the first item's.
    pub(in crate::widen) fn row(
        &mut self,
        op: RowOp,
        number: Operand,
        divisor: Operand,
    ) -> Operand {
        let ty = self.type_in(number);
        let (first, by) = (self.one(number), self.one(divisor));
        let divide = match op {
            RowOp::Number => BinaryOp::UDiv,
            RowOp::Place | RowOp::Fits => BinaryOp::URem,
        };
        let divided = self.out.value(Op::Binary(divide, first, by), ty);
        if op != RowOp::Fits {
            return divided;
        }
        let bool = self.out.module.types.bool();
        let Shape::Strided { step, guard: None } = self.shape(number) else {
            return self.out.int(bool, 0);
        };
        // The others are so far from the first one, and the row has so many places behind that.
        let way = self.out.int(ty, step * (i64::from(self.out.lanes) - 1));
        let behind = self.out.value(Op::Binary(BinaryOp::Sub, by, divided), ty);
        let last = self.out.value(Op::Binary(BinaryOp::Add, first, way), ty);
        let none = self.out.int(ty, 0);
        let tests = [
            (CompareOp::SGt, by, way),
            (CompareOp::UGt, behind, way),
            (CompareOp::SGe, first, none),
            (CompareOp::SGe, last, none),
        ];
        let known = if self.shapes.is_small(number) { 2 } else { 0 };
        let tests = &tests[..tests.len() - known];
        let mut all = None;
        for &(op, a, b) in tests {
            let holds = self.out.value(Op::Compare(op, a, b), bool);
            all = Some(match all {
                Some(all) => self.out.value(Op::Binary(BinaryOp::And, all, holds), bool),
                None => holds,
            });
        }
        all.expect("there are tests")
    }
}
