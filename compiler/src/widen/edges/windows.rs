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
//!
//! If the first number has no step, as `x * step - r`, a counter that all items share tells what it has grown by, and the
//! distance to the bound is what is left of their difference when terms cancel each other.

use super::counters::Loops;
use crate::ir::CompareOp as C;
use crate::ir::arena::Id;
use crate::ir::{
    BinaryOp, BlockId, CompareOp, ConvertOp, Definition, Flags, Function, Inst, Loc, Module, Op,
    Operand, Terminator, TypeId, ValueId,
};
use crate::widen::compares::{mirrored, opposite};
use crate::widen::shape::Shape;

/// What a result is inside.
#[derive(Clone, Copy)]
pub(super) enum Usual {
    Is(Operand),
    Difference(Operand, Operand),
    Holds(bool),
}

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
    /// The loop's header, the block at the end of a turn, and the counter's next value there.
    turn: (BlockId, BlockId, Operand),
    /// What is left of the distance between its ends, if these have no step.
    pub(super) left: Option<Difference>,
}

/// What is left of a difference of numbers when terms cancel each other.
pub(super) struct Difference {
    /// What all items share.
    shared: Sum,
    /// What is left of two more numbers, which were extended, and their type before that. If the second one is greater,
    /// the loop is not run, or has more than 2^32 turns.
    extended: Option<(Sum, TypeId)>,
}

/// Numbers, each with its factor, and a constant. Their sum wraps around.
#[derive(Default)]
struct Sum {
    terms: Vec<(Operand, u64)>,
    constant: u64,
    /// The numbers that have been looked at.
    seen: usize,
    /// Whether numbers without a step have cancelled each other, or may.
    varies: bool,
}

/// The most numbers that are looked at for a sum.
const MOST_SEEN: usize = 32;

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
                let (shrinks, turn, left) = (by == -1, (header, latch, next), None);
                ends.then_some(Window { test, op, number, first, bound, shrinks, turn, left })
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
    pub(super) fn write(
        &self,
        module: &mut Module,
        function: &mut Function,
        definitions: &[Option<Definition>],
    ) {
        let Some(Definition::Inst(block, _)) = definitions[self.test.index()] else { return };
        let Operand::Value(number) = self.number else { return };
        let ty = function.values[number].ty;
        let op = unsigned(if self.shrinks { mirrored(self.op) } else { self.op });
        if let Some(left) = &self.left {
            let grown = self.count(module, function, ty);
            let all = left.write(module, function, (block, self.test), ty);
            let mut insts = function.blocks[block].insts.iter_mut();
            if let Some(test) = insts.find(|inst| inst.result == Some(self.test)) {
                test.op = Op::Compare(op, grown, all);
            }
            return;
        }
        let insts = &function.blocks[block].insts;
        let Some(at) = insts.iter().position(|inst| inst.result == Some(self.test)) else { return };
        let mut distance = |to: Operand, at: usize| {
            let (a, b) = if self.shrinks { (self.first, to) } else { (to, self.first) };
            let result = function.new_value(ty);
            let op = Op::Binary(BinaryOp::Sub, a, b);
            let (flags, loc) = (Flags::empty(), Loc::default());
            function.blocks[block].insts.insert(at, Inst { result: Some(result), op, flags, loc });
            Operand::Value(result)
        };
        let [way, all] = [distance(self.number, at), distance(self.bound, at + 1)];
        function.blocks[block].insts[at + 2].op = Op::Compare(op, way, all);
    }

    /// Adds a counter of the loop's turns, and returns what the number has grown by.
    fn count(&self, module: &mut Module, function: &mut Function, ty: TypeId) -> Operand {
        let (header, latch, next) = self.turn;
        let [none, one] = [0, 1].map(|by| Operand::Const(module.const_int(ty, by)));
        let [phi, grown] = [(); 2].map(|()| function.new_value(ty));
        let phis = &mut function.blocks[header].insts;
        let arms = match phis.iter().find_map(|inst| match &inst.op {
            Op::Phi(arms) => Some(arms),
            _ => None,
        }) {
            Some(arms) => arms.iter().map(|&(from, _)| match from == latch {
                true => (from, Operand::Value(grown)),
                false => (from, none),
            }),
            None => return none,
        };
        let (flags, loc) = (Flags::empty(), Loc::default());
        let op = Op::Phi(arms.collect());
        phis.insert(0, Inst { result: Some(phi), op, flags, loc });
        let op = Op::Binary(BinaryOp::Add, Operand::Value(phi), one);
        let grows = Inst { result: Some(grown), op, flags, loc };
        for (_, block) in function.blocks.iter_mut() {
            let is_next = |inst: &Inst| inst.result.map(Operand::Value) == Some(next);
            if let Some(at) = block.insts.iter().position(is_next) {
                block.insts.insert(at + 1, grows);
                break;
            }
        }
        Operand::Value(if self.number == next { grown } else { phi })
    }
}

impl Loops<'_> {
    fn shape(&self, operand: Operand) -> Shape {
        match operand {
            Operand::Const(_) => Shape::Uniform,
            Operand::Value(value) => self.way.shapes.of(value),
        }
    }

    /// How far a window's bound lies from its first number, if they have no step, but what is left of the difference is the
    /// same for all items. `usual` are the results of limited numbers, of which the extensions in `signed` keep the sign.
    pub(super) fn difference(
        &self,
        window: &Window,
        usual: &impl Fn(ValueId) -> Option<Usual>,
        signed: &impl Fn(ValueId) -> bool,
    ) -> Option<Difference> {
        let (first, bound) = (window.first, window.bound);
        let (from, to) = if window.shrinks { (bound, first) } else { (first, bound) };
        let mut shared = self.left(from, to, usual)?;
        let is_shared = |&(term, _): &(Operand, u64)| self.shape(term) == Shape::Uniform;
        let others: Vec<_> = shared.terms.iter().copied().filter(|it| !is_shared(it)).collect();
        shared.terms.retain(is_shared);
        let extends = |operand: Operand| match (self.made(operand)?, operand) {
            (&Op::Convert(ConvertOp::SExt, from), _) => Some((true, from)),
            (&Op::Convert(ConvertOp::ZExt, from), Operand::Value(value)) => {
                Some((signed(value), from))
            }
            _ => None,
        };
        let extended = match *others.as_slice() {
            [] => None,
            [a, b] => {
                let less = |(_, factor): (Operand, u64)| factor == u64::MAX;
                let ((to, 1), (from, u64::MAX)) = (if less(a) { (b, a) } else { (a, b) }) else {
                    return None;
                };
                let ((signed, to), (also, from)) = (extends(to)?, extends(from)?);
                let ty = self.module.operand_type(self.function, to);
                let alike = signed == also && ty == self.module.operand_type(self.function, from);
                let left = self.left(from, to, usual).filter(|_| alike)?;
                if !left.terms.iter().all(is_shared) {
                    return None;
                }
                Some((left, ty))
            }
            _ => return None,
        };
        let varies = shared.varies || extended.as_ref().is_some_and(|it| it.0.varies);
        varies.then_some(Difference { shared, extended })
    }

    /// What is left of a number less another one.
    fn left(
        &self,
        from: Operand,
        to: Operand,
        usual: &impl Fn(ValueId) -> Option<Usual>,
    ) -> Option<Sum> {
        let mut sum = Sum::default();
        self.add(&mut sum, to, 1, usual)?;
        self.add(&mut sum, from, u64::MAX, usual)?;
        let ty = self.module.operand_type(self.function, from);
        let unused = 64 - self.module.types.scalar_bits(ty).clamp(1, 64);
        sum.terms.retain(|(_, factor)| factor << unused != 0);
        Some(sum)
    }

    /// Adds a number, times a factor.
    fn add(
        &self,
        sum: &mut Sum,
        operand: Operand,
        by: u64,
        usual: &impl Fn(ValueId) -> Option<Usual>,
    ) -> Option<()> {
        sum.seen += 1;
        if sum.seen > MOST_SEEN {
            return None;
        }
        if let Some(bits) = self.module.operand_bits(operand) {
            sum.constant = sum.constant.wrapping_add(bits.wrapping_mul(by));
            return Some(());
        }
        let minus = by.wrapping_neg();
        let Operand::Value(value) = operand else { return None };
        let op = self.made(operand);
        match (usual(value), op) {
            (Some(Usual::Is(other)), _) => self.add(sum, other, by, usual),
            (Some(Usual::Difference(a, b)), _) | (None, Some(&Op::Binary(BinaryOp::Sub, a, b))) => {
                self.add(sum, a, by, usual)?;
                self.add(sum, b, minus, usual)
            }
            (None, Some(&Op::Binary(BinaryOp::Add, a, b))) => {
                self.add(sum, a, by, usual)?;
                self.add(sum, b, by, usual)
            }
            (None, Some(&Op::Binary(BinaryOp::Mul, a, Operand::Const(b)))) => {
                let factor = self.module.const_bits(b)?;
                self.add(sum, a, by.wrapping_mul(factor), usual)
            }
            _ => {
                match sum.terms.iter_mut().find(|(term, _)| *term == operand) {
                    Some((_, factor)) => *factor = factor.wrapping_add(by),
                    None => sum.terms.push((operand, by)),
                }
                let extends = matches!(op, Some(Op::Convert(..)));
                sum.varies |= self.shape(operand) == Shape::Varying && !extends;
                Some(())
            }
        }
    }
}

impl Difference {
    /// Computes it in front of a test.
    fn write(
        &self,
        module: &mut Module,
        function: &mut Function,
        (block, test): (BlockId, ValueId),
        ty: TypeId,
    ) -> Operand {
        let mut insts = Vec::new();
        let mut add = |function: &mut Function, op: Op, ty: TypeId| {
            let result = function.new_value(ty);
            let (flags, loc) = (Flags::empty(), Loc::default());
            insts.push(Inst { result: Some(result), op, flags, loc });
            Operand::Value(result)
        };
        let mut total = |function: &mut Function, sum: &Sum, ty: TypeId| {
            let mut total = Operand::Const(module.const_int(ty, sum.constant));
            for &(term, factor) in &sum.terms {
                let factor = Operand::Const(module.const_int(ty, factor));
                let product = add(function, Op::Binary(BinaryOp::Mul, term, factor), ty);
                total = add(function, Op::Binary(BinaryOp::Add, total, product), ty);
            }
            total
        };
        let mut all = total(function, &self.shared, ty);
        if let Some((left, narrow)) = &self.extended {
            let narrow = total(function, left, *narrow);
            let more = add(function, Op::Convert(ConvertOp::ZExt, narrow), ty);
            all = add(function, Op::Binary(BinaryOp::Add, all, more), ty);
        }
        let body = &mut function.blocks[block].insts;
        let at = body.iter().position(|inst| inst.result == Some(test)).unwrap_or(body.len());
        body.splice(at..at, insts);
        all
    }
}

fn unsigned(op: CompareOp) -> CompareOp {
    match op {
        C::SLt => C::ULt,
        C::SLe => C::ULe,
        C::SGt => C::UGt,
        C::SGe => C::UGe,
        other => other,
    }
}
