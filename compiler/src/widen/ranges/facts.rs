// SPDX-License-Identifier: MIT OR Apache-2.0
//! What tests say of numbers where they hold.

use std::cell::RefCell;

use rustc_hash::FxHashMap;

use super::{HALF, MAX_DEPTH, is_low};
use crate::ir::arena::Id;
use crate::ir::{
    BinaryOp, BlockId, CompareOp, ConvertOp, Definition, Dominators, Function, Inst, Module, Op,
    Operand, Terminator, UnaryOp,
};
use crate::optimise::multiples::Multiples;
use crate::widen::compares::{mirrored, opposite};
use crate::widen::promises::signed_bits;

/// The numbers from a least one to a greatest one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Range {
    pub(super) least: i128,
    pub(super) most: i128,
}

impl Range {
    /// All numbers of so many bits, with their sign.
    fn of(bits: u32) -> Self {
        Self { least: -(1 << (bits - 1)), most: (1 << (bits - 1)) - 1 }
    }

    pub(super) fn is_within(self, other: Self) -> bool {
        other.least <= self.least && self.most <= other.most
    }

    /// The numbers of both, or all of the first if there are none: such code does not run.
    fn and(self, other: Self) -> Self {
        let both = Self { least: self.least.max(other.least), most: self.most.min(other.most) };
        if both.least <= both.most { both } else { self }
    }

    /// From the least number of both to the greatest.
    fn or(self, other: Self) -> Self {
        Self { least: self.least.min(other.least), most: self.most.max(other.most) }
    }

    fn plus(self, other: Self) -> Self {
        Self { least: self.least + other.least, most: self.most + other.most }
    }

    fn times(self, factor: i128) -> Self {
        let ends = [self.least * factor, self.most * factor];
        Self { least: ends[0].min(ends[1]), most: ends[0].max(ends[1]) }
    }
}

/// What the low bits of the sum of a value and a constant are, with their sign.
#[derive(Clone, Copy)]
struct Fact {
    of: Operand,
    more: i128,
    bits: u32,
    range: Range,
}

impl Fact {
    /// Whether both are about the same number.
    fn is_like(&self, other: &Self) -> bool {
        self.of == other.of && self.more == other.more && self.bits == other.bits
    }
}

/// What the tests in front of a block say.
pub(super) struct Known {
    facts: Vec<Fact>,
    /// Ranges that were asked for, by the number, its bits and the depth: parts of a sum are asked for several times.
    ranges: RefCell<FxHashMap<(Operand, u32, usize), Range>>,
}

impl Known {
    pub(super) fn is_empty(&self) -> bool {
        self.facts.is_empty()
    }
}

/// The tests of a function.
pub(super) struct Facts<'a> {
    pub(super) module: &'a Module,
    pub(super) function: &'a Function,
    definitions: &'a [Option<Definition>],
    dominators: Dominators,
    predecessors: Vec<Vec<BlockId>>,
    multiples: Multiples,
}

impl<'a> Facts<'a> {
    pub(super) fn new(
        module: &'a Module,
        function: &'a Function,
        definitions: &'a [Option<Definition>],
    ) -> Self {
        let predecessors = function.predecessors();
        let dominators = Dominators::of(function, &predecessors);
        let multiples = Multiples::of_function(module, function);
        Self { module, function, definitions, dominators, predecessors, multiples }
    }

    /// What the tests in front of a block say.
    pub(super) fn at(&self, block: BlockId) -> Known {
        let mut facts = Vec::new();
        let mut at = Some(block);
        while let Some(here) = at {
            at = self.dominators.parent(here);
            if let &[from] = self.predecessors[here.index()].as_slice()
                && let Terminator::CondBranch(condition, yes, no) =
                    self.function.blocks[from].terminator
                && yes != no
            {
                self.tested(condition, yes == here, 0, &mut facts);
            }
        }
        Known { facts, ranges: RefCell::default() }
    }

    /// What a condition says that holds, or does not.
    fn tested(&self, condition: Operand, holds: bool, depth: usize, facts: &mut Vec<Fact>) {
        let Some(inst) = self.made(condition).filter(|_| depth < MAX_DEPTH) else { return };
        let is_bool = |operand, value| self.module.operand_bits(operand) == Some(u64::from(value));
        let parts = match inst.op {
            Op::Compare(op, a, b) => {
                let op = match holds {
                    true => Some(op),
                    false if op == CompareOp::Ne => Some(CompareOp::Eq),
                    false => opposite(op),
                };
                if let Some(op) = op {
                    self.compared(op, a, b, facts);
                    self.compared(mirrored(op), b, a, facts);
                }
                return;
            }
            Op::Unary(UnaryOp::Not, a) => return self.tested(a, !holds, depth + 1, facts),
            Op::Binary(BinaryOp::And, a, b) if holds => [a, b],
            Op::Binary(BinaryOp::Or, a, b) if !holds => [a, b],
            // A logical "and" or "or".
            Op::Select(a, b, c) if holds && is_bool(c, false) => [a, b],
            Op::Select(a, b, c) if !holds && is_bool(b, true) => [a, c],
            Op::Binary(BinaryOp::And | BinaryOp::Or, a, b) => {
                return facts.extend(self.of_either([a, b], holds, depth));
            }
            // A logical "or" that holds, or "and" that does not.
            Op::Select(a, b, c) if holds && is_bool(b, true) => {
                return facts.extend(self.of_either([a, c], holds, depth));
            }
            Op::Select(a, b, c) if !holds && is_bool(c, false) => {
                return facts.extend(self.of_either([a, b], holds, depth));
            }
            _ => return,
        };
        for part in parts {
            self.tested(part, holds, depth + 1, facts);
        }
    }

    /// What is known if one of two conditions holds, or does not.
    fn of_either(&self, parts: [Operand; 2], holds: bool, depth: usize) -> Vec<Fact> {
        let [one, other] = parts.map(|part| {
            let mut facts = Vec::new();
            self.tested(part, holds, depth + 1, &mut facts);
            facts
        });
        let joined = |fact: Fact| {
            let about = |it: &&Fact| it.is_like(&fact);
            let both = other.iter().filter(about).map(|it| it.range).reduce(Range::and)?;
            Some(Fact { range: fact.range.or(both), ..fact })
        };
        one.into_iter().filter_map(joined).collect()
    }

    /// What a comparison says of its left side.
    fn compared(&self, op: CompareOp, a: Operand, b: Operand, facts: &mut Vec<Fact>) {
        let bits = self.module.types.scalar_bits(self.module.operand_type(self.function, a));
        if bits != HALF && bits != 64 {
            return;
        }
        let all = Range::of(bits);
        let (of, more) = self.sum(a, bits);
        let Some(bound) = signed_bits(self.module, b).map(i128::from) else {
            // The greatest number is not below any other one.
            let range = match op {
                CompareOp::SLt => Range { most: all.most - 1, ..all },
                CompareOp::SGt => Range { least: all.least + 1, ..all },
                _ => return,
            };
            facts.push(Fact { of, more, bits, range });
            return;
        };
        if op == CompareOp::Eq && bound == 0 {
            facts.extend(self.has_no_high_bits(a));
        }
        let count = 1i128 << bits;
        let unsigned = bound.rem_euclid(count);
        let (least, most) = match op {
            CompareOp::Eq => (bound, bound),
            CompareOp::SLt => (all.least, bound - 1),
            CompareOp::SLe => (all.least, bound),
            CompareOp::SGt => (bound + 1, all.most),
            CompareOp::SGe => (bound, all.most),
            CompareOp::ULt => (0, unsigned - 1),
            CompareOp::ULe => (0, unsigned),
            CompareOp::UGt => (unsigned + 1, count - 1),
            CompareOp::UGe => (unsigned, count - 1),
            _ => return,
        };
        // With their sign, numbers without one may be two ranges.
        let first = (least - all.least).rem_euclid(count) + all.least;
        let range = Range { least: first, most: first + (most - least) };
        if least <= most && range.is_within(all) {
            facts.push(Fact { of, more, bits, range });
        }
    }

    /// What it says of a number that it has no bits of a mask of high ones.
    fn has_no_high_bits(&self, masked: Operand) -> Option<Fact> {
        let Op::Binary(BinaryOp::And, number, mask) = self.made(masked)?.op else { return None };
        let mask = self.module.operand_bits(mask)?;
        let zeros = mask.trailing_zeros();
        let own = self.module.types.scalar_bits(self.module.operand_type(self.function, masked));
        let ends_at = |bits: u32| {
            let all = u64::MAX >> (64 - bits);
            (1..bits).contains(&zeros) && mask == all << zeros & all
        };
        let bits = [HALF, own].into_iter().find(|&bits| ends_at(bits))?;
        let (of, more) = self.sum(number, bits);
        let range = Range { least: 0, most: (1 << zeros) - 1 };
        Some(Fact { of, more, bits, range })
    }

    /// The instruction that makes an operand.
    pub(super) fn made(&self, operand: Operand) -> Option<&'a Inst> {
        let Operand::Value(value) = operand else { return None };
        match self.definitions[value.index()]? {
            Definition::Inst(block, index) => Some(&self.function.blocks[block].insts[index]),
            Definition::Entry => None,
        }
    }

    /// What the low bits of a number are made of, and a constant that is added to it, as a number of so many bits.
    fn sum(&self, number: Operand, bits: u32) -> (Operand, i128) {
        let (mut at, mut more) = (number, 0);
        for _ in 0..MAX_DEPTH {
            let Some(inst) = self.made(at) else { break };
            match inst.op {
                Op::Convert(ConvertOp::Trunc, of) if bits <= HALF => at = of,
                Op::Binary(BinaryOp::Add, of, Operand::Const(id))
                | Op::Binary(BinaryOp::Add, Operand::Const(id), of) => {
                    let Some(by) = self.constant(Operand::Const(id), bits) else { break };
                    (at, more) = (of, more + by);
                }
                _ => break,
            }
        }
        (at, more)
    }

    /// The low bits of a constant, with their sign.
    fn constant(&self, operand: Operand, bits: u32) -> Option<i128> {
        let all = signed_bits(self.module, operand)?;
        Some(i128::from(all << (64 - bits) >> (64 - bits)))
    }

    /// The range of the low bits of a number, with their sign.
    pub(super) fn range(&self, known: &Known, number: Operand, bits: u32, depth: usize) -> Range {
        let key = (number, bits, depth);
        let seen = known.ranges.borrow().get(&key).copied();
        seen.unwrap_or_else(|| {
            let range = self.find_range(known, number, bits, depth);
            known.ranges.borrow_mut().insert(key, range);
            range
        })
    }

    fn find_range(&self, known: &Known, number: Operand, bits: u32, depth: usize) -> Range {
        let all = Range::of(bits);
        if let Some(number) = self.constant(number, bits) {
            return Range { least: number, most: number };
        }
        // Beyond this the bits wrap around.
        let if_fits = |range: Range| if range.is_within(all) { range } else { all };
        let (of, more) = self.sum(number, bits);
        let mut range = all;
        for fact in known.facts.iter().filter(|fact| fact.of == of && fact.bits >= bits) {
            let like = known.facts.iter().filter(|it| it.is_like(fact));
            let whole = like.map(|it| it.range).reduce(Range::and).unwrap_or(fact.range);
            let by = more - fact.more;
            let moved = whole.plus(Range { least: by, most: by });
            if whole.is_within(all) && moved.is_within(all) {
                range = range.and(moved);
            }
        }
        let Some(inst) = self.made(number).filter(|_| depth < MAX_DEPTH) else { return range };
        let next = |operand| self.range(known, operand, bits, depth + 1);
        let made = match inst.op {
            Op::Binary(BinaryOp::Add, a, b) => if_fits(next(a).plus(next(b))),
            Op::Binary(BinaryOp::Or, a, b) if self.are_apart(known, a, b, bits, depth) => {
                if_fits(next(a).plus(next(b)))
            }
            Op::Binary(BinaryOp::Mul, a, b) => match self.constant(b, bits) {
                Some(factor) => if_fits(next(a).times(factor)),
                None => all,
            },
            Op::Binary(BinaryOp::Shl, a, by) => match self.module.operand_bits(by) {
                Some(by) if by < u64::from(bits) => if_fits(next(a).times(1 << by)),
                _ => all,
            },
            // Bits of the high half move into the low one.
            Op::Binary(BinaryOp::LShr, a, by) => {
                let own = self.module.types.scalar_bits(self.module.operand_type(self.function, a));
                match (self.range(known, a, own, depth + 1), self.module.operand_bits(by)) {
                    (of, Some(by)) if of.least >= 0 && by < u64::from(own) => {
                        if_fits(Range { least: of.least >> by, most: of.most >> by })
                    }
                    _ => all,
                }
            }
            Op::Binary(BinaryOp::And, a, mask) => match self.constant(mask, bits) {
                Some(mask) if mask >= 0 => {
                    let masked = Range { least: 0, most: mask };
                    let low = self.range(known, a, HALF, depth + 1);
                    let is_same = low.is_within(masked) && is_low(mask as u64);
                    if is_same { low } else { masked }
                }
                _ => all,
            },
            // The low half with its sign.
            Op::Binary(BinaryOp::AShr, up, by) if self.module.operand_bits(by) == Some(32) => {
                match self.made(up).map(|inst| &inst.op) {
                    Some(&Op::Binary(BinaryOp::Shl, a, up))
                        if self.module.operand_bits(up) == Some(32) =>
                    {
                        self.range(known, a, HALF, depth + 1)
                    }
                    _ => all,
                }
            }
            Op::Convert(ConvertOp::Trunc, a) if bits <= HALF => next(a),
            Op::Convert(op @ (ConvertOp::SExt | ConvertOp::ZExt), a) => {
                let own = self.module.types.scalar_bits(self.module.operand_type(self.function, a));
                let inner = |own| self.range(known, a, own, depth + 1);
                match own {
                    HALF if bits == HALF => next(a),
                    HALF if op == ConvertOp::SExt || inner(HALF).least >= 0 => inner(HALF),
                    own if op == ConvertOp::ZExt && own < bits => {
                        Range { least: 0, most: (1 << own) - 1 }
                    }
                    _ => all,
                }
            }
            _ => all,
        };
        range.and(made)
    }

    /// Whether two numbers have no low bits in common.
    pub(super) fn are_apart(
        &self,
        known: &Known,
        a: Operand,
        b: Operand,
        bits: u32,
        depth: usize,
    ) -> bool {
        let below = |low: Operand, high: Operand| {
            let zeros = self.multiples.zeros(self.module, high).min(bits - 1);
            let room = Range { least: 0, most: (1 << zeros) - 1 };
            zeros > 0 && self.range(known, low, bits, depth + 1).is_within(room)
        };
        depth < MAX_DEPTH && (below(a, b) || below(b, a))
    }
}
