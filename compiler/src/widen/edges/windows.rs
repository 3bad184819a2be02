// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loops over windows: each item counts from one place of its own to another one.
//!
//! ```text
//!   for (int i = max(x - r, 0); i <= min(x + r, w - 1); i++) sum += in[y * w + i];
//! ```
//!
//! Away from edges all items have as many turns, but their counters differ, and so the loop ran under a mask. What the
//! counter has grown by, and the distance to its bound, are the same for all. Comparing these gives the same result
//! unless numbers wrap around, which is asked in front:
//!
//! ```text
//!   i <= x + r     where i began at x - r    ──▶    i - (x - r) <= x + r - (x - r)
//! ```

use super::counters::Loops;
use crate::ir::CompareOp as C;
use crate::ir::arena::Id;
use crate::ir::{
    BinaryOp, CompareOp, Definition, Flags, Function, Inst, Loc, Op, Operand, Terminator, ValueId,
};
use crate::widen::compares::{mirrored, opposite};

/// A loop that counts by one from one number to another one.
pub(super) struct Window {
    /// The comparison that tells whether it ends.
    pub(super) test: ValueId,
    /// It compares this with the bound.
    op: CompareOp,
    number: Operand,
    pub(super) first: Operand,
    pub(super) bound: Operand,
    shrinks: bool,
}

impl Loops<'_> {
    /// The window over which a loop counts.
    pub(super) fn window(&self, index: usize) -> Option<Window> {
        let header = self.way.flow.loops[index].header;
        let inside = |block| self.way.flow.contains(index, block);
        let phis: Vec<ValueId> =
            self.function.blocks[header].phis().filter_map(|phi| phi.result).collect();
        phis.into_iter().find_map(|phi| {
            let (first, latch, next, by @ (1 | -1)) = self.grows(phi, index)? else { return None };
            let counts = |operand| operand == next || operand == Operand::Value(phi);
            [latch, header].into_iter().find_map(|block| {
                let &Terminator::CondBranch(Operand::Value(test), yes, no) =
                    &self.function.blocks[block].terminator
                else {
                    return None;
                };
                let Some(&Op::Compare(op, a, b)) = self.made(Operand::Value(test)) else {
                    return None;
                };
                let (op, number, bound) = match (counts(a), counts(b)) {
                    (true, false) => (op, a, b),
                    (false, true) => (mirrored(op), b, a),
                    _ => return None,
                };
                let stays = match (inside(yes), inside(no)) {
                    (true, false) => op,
                    (false, true) => opposite(op)?,
                    _ => return None,
                };
                let ends = match stays {
                    C::Ne => true,
                    C::SLt | C::SLe | C::ULt | C::ULe => by == 1,
                    C::SGt | C::SGe | C::UGt | C::UGe => by == -1,
                    _ => false,
                };
                let shrinks = by == -1;
                ends.then_some(Window { test, op, number, first, bound, shrinks })
            })
        })
    }
}

impl Window {
    /// What has to hold in front for the comparison of distances: the first number does not lie behind the bound, and
    /// the number behind the bound does not wrap around. The result is the constant that the bound is moved by, and
    /// how the first number compares with that.
    pub(super) fn holds(&self) -> Option<(i64, CompareOp)> {
        let signed = matches!(self.op, C::SLt | C::SLe | C::SGt | C::SGe);
        match self.op {
            C::Eq | C::Ne => None,
            _ if self.shrinks => Some((-1, if signed { C::SGt } else { C::UGt })),
            _ => Some((1, if signed { C::SLt } else { C::ULt })),
        }
    }

    /// Compares distances from the first number in place of numbers.
    pub(super) fn write(&self, function: &mut Function, definitions: &[Option<Definition>]) {
        let Some(Definition::Inst(block, _)) = definitions[self.test.index()] else { return };
        let insts = &function.blocks[block].insts;
        let Some(at) = insts.iter().position(|inst| inst.result == Some(self.test)) else { return };
        let Operand::Value(number) = self.number else { return };
        let ty = function.values[number].ty;
        let mut distance = |to: Operand, at: usize| {
            let (a, b) = if self.shrinks { (self.first, to) } else { (to, self.first) };
            let result = function.new_value(ty);
            let op = Op::Binary(BinaryOp::Sub, a, b);
            let (flags, loc) = (Flags::empty(), Loc::default());
            function.blocks[block].insts.insert(at, Inst { result: Some(result), op, flags, loc });
            Operand::Value(result)
        };
        let [way, all] = [distance(self.number, at), distance(self.bound, at + 1)];
        let op = if self.shrinks { mirrored(self.op) } else { self.op };
        let op = match op {
            C::SLt => C::ULt,
            C::SLe => C::ULe,
            C::SGt => C::UGt,
            C::SGe => C::UGe,
            other => other,
        };
        function.blocks[block].insts[at + 2].op = Op::Compare(op, way, all);
    }
}
