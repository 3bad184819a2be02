// SPDX-License-Identifier: MIT OR Apache-2.0
//! Steps that hold in most vectors: the code tests whether they do, and has a second path for the
//! others.
//!
//! Two operations have such results. An extension to 64 bits keeps its step unless the narrow number
//! wraps around within the vector. And the low bits of a number with a step, for example an index
//! masked for a table of `n` elements, continue with that step unless they overflow:
//!
//! ```text
//!   (i + 1024) & (n - 1)     n = 4096, first item   0xc40     ... 0xc4f        in line
//!                                                   0xff8     ... 0xfff, 0x000 ... 0x007    not
//! ```

use super::build::Var;
use super::emit::Widener;
use super::refusal::Refusal;
use super::shape::Shape;
use crate::ir::arena::Id;
use crate::ir::{BinaryOp, CompareOp, ConvertOp, Inst, Op, Operand, ValueId};

/// The parts of a guarded step.
#[derive(Clone, Copy)]
pub(super) struct Guard {
    /// Whether the step holds.
    pub(super) holds: Var,
    /// The step.
    pub(super) step: i64,
    /// The first item's value before the operation, and its step.
    before: Var,
    before_step: i64,
    /// The first item's result, from which distances are counted. That of an extension may be another number: a
    /// constant may have been added to it behind the extension, so that neighbours have a common part.
    first: Var,
    then: Then,
}

/// The operation whose result has a guarded step.
#[derive(Clone, Copy)]
enum Then {
    Extend(ConvertOp),
    /// The mask, and how a result of 32 bits is extended.
    Mask(Var, Option<ConvertOp>),
}

impl Guard {
    /// Whether it is that of a mask: items whose step does not hold are still close to each other if the mask is short.
    pub(super) fn is_mask(self) -> bool {
        matches!(self.then, Then::Mask(..))
    }
}

impl Widener<'_> {
    /// Tests whether the result of an operation keeps its step; `first` is the first item's.
    pub(super) fn guard(
        &mut self,
        result: ValueId,
        inst: &Inst,
        first: Operand,
        step: i64,
    ) -> Result<(), Refusal> {
        let (from, holds, then) = match inst.op {
            Op::Convert(convert, from) => {
                (from, self.extension_holds(convert, from, first, step), Then::Extend(convert))
            }
            Op::Binary(BinaryOp::And, a, b) => {
                let (from, mask) = if self.shape(a) == Shape::Uniform { (b, a) } else { (a, b) };
                let mask = self.one(mask);
                let ty = self.out.type_of(mask);
                let mask_var = self.out.var(ty);
                self.out.write(mask_var, mask);
                let extends = self.shapes.extension(result);
                (from, self.mask_holds(mask, first, step), Then::Mask(mask_var, extends))
            }
            _ => return Ok(()),
        };
        let Shape::Strided { step: before_step, guard: None } = self.shape(from) else {
            return Err(Refusal::new("a guard on what has no step"));
        };
        let from = self.one(from);
        let bool = self.out.module.types.bool();
        let narrow = self.out.type_of(from);
        let (holds_var, before) = (self.out.var(bool), self.out.var(narrow));
        let wide = self.out.type_of(first);
        let first_var = self.out.var(wide);
        self.out.write(holds_var, holds);
        self.out.write(before, from);
        self.out.write(first_var, first);
        self.guards[result.index()] =
            Some(Guard { holds: holds_var, step, before, before_step, first: first_var, then });
        Ok(())
    }

    /// Whether no item's number wraps around before it is extended.
    fn extension_holds(
        &mut self,
        convert: ConvertOp,
        from: Operand,
        first: Operand,
        step: i64,
    ) -> Operand {
        let i64_type = self.out.module.types.int(64);
        let bool = self.out.module.types.bool();
        let narrow = self.out.module.operand_type(self.from, from);
        let way = self.way(step);
        let last = self.out.value(Op::Binary(BinaryOp::Add, first, way), i64_type);
        let cut = self.out.value(Op::Convert(ConvertOp::Trunc, last), narrow);
        let again = self.out.value(Op::Convert(convert, cut), i64_type);
        self.out.value(Op::Compare(CompareOp::Eq, again, last), bool)
    }

    /// Whether the lowest bits of the mask, those below its lowest 0, have room for all items. `first`
    /// is already masked.
    fn mask_holds(&mut self, mask: Operand, first: Operand, step: i64) -> Operand {
        let ty = self.out.type_of(first);
        let bool = self.out.module.types.bool();
        let one = self.out.int(ty, 1);
        // The lowest 0 becomes the only 1 of the bits that change: mask ^ (mask + 1) is 0..01..1.
        let above = self.out.value(Op::Binary(BinaryOp::Add, mask, one), ty);
        let changed = self.out.value(Op::Binary(BinaryOp::Xor, mask, above), ty);
        let low = self.out.value(Op::Binary(BinaryOp::LShr, changed, one), ty);
        let start = self.out.value(Op::Binary(BinaryOp::And, first, low), ty);
        let way = step.wrapping_mul(i64::from(self.out.lanes) - 1);
        let way = self.out.int(ty, way);
        // A sum could overflow: a mask may have room for all numbers.
        let room = self.out.value(Op::Binary(BinaryOp::Sub, low, start), ty);
        self.out.value(Op::Compare(CompareOp::UGe, room, way), bool)
    }

    /// The difference between the last item and the first.
    fn way(&mut self, step: i64) -> Operand {
        let i64_type = self.out.module.types.int(64);
        let lanes = i64::from(self.out.lanes);
        self.out.int(i64_type, step.wrapping_mul(lanes - 1))
    }

    /// The difference of each item's value from the first one's if the step does not hold, 64 bits. It
    /// is computed where it is needed, because that path is hardly ever taken.
    pub(super) fn distance(&mut self, guard: Guard) -> Operand {
        let i64_type = self.out.module.types.int(64);
        let wide_type = self.out.vector_of(i64_type);
        let before = self.out.read(guard.before);
        let vector = self.stepped(before, guard.before_step, None);
        let all = match guard.then {
            Then::Extend(convert) => self.out.value(Op::Convert(convert, vector), wide_type),
            Then::Mask(mask, extends) => {
                let mask = self.out.read(mask);
                let masks = self.out.splat(mask);
                let ty = self.out.type_of(vector);
                let all = self.out.value(Op::Binary(BinaryOp::And, vector, masks), ty);
                match extends {
                    Some(how) => self.out.value(Op::Convert(how, all), wide_type),
                    None => all,
                }
            }
        };
        let mut first = self.out.read(guard.first);
        if let Then::Mask(_, Some(how)) = guard.then {
            first = self.out.value(Op::Convert(how, first), i64_type);
        }
        let firsts = self.out.splat(first);
        self.out.value(Op::Binary(BinaryOp::Sub, all, firsts), wide_type)
    }
}
