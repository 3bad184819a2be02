// SPDX-License-Identifier: MIT OR Apache-2.0
//! Code of its own for vectors away from edges.
//!
//! Filters of pictures and steps of simulations limit the places of neighbours: to those of the picture, to its other
//! side, or to a mirror image. Such places have no step, although hardly any vector reaches an edge. So the entry
//! finds out whether a vector stays away from all edges, and has the kernel twice:
//!
//! ```text
//!                                          if (all items: clamp(x - 1, 0, w - 1) == x - 1)
//!   in[y * w + clamp(x - 1, 0, w - 1)]       in[y * w + x - 1]                              ; neighbours
//!                                   ──▶    else
//!                                            in[y * w + clamp(x - 1, 0, w - 1)]             ; as before
//! ```
//!
//! An operation on a place has a *usual* result: of the least and greatest of two numbers, a remainder or an absolute
//! value that is the place itself, of a selection the one that is chosen inside. What tells whether all results are the
//! usual ones may only depend on ids and arguments, or on a loop's counter ([`counters`]): then it is asked of
//! the first turn and of the last one. The rest is as [`whole`](super::whole) does it for tests.

mod counters;
mod grows;
mod windows;
mod write;

use std::collections::{HashMap, HashSet};

use self::counters::{Counter, Loops, MOST_FACTOR};
use self::grows::{Growth, Needs};
use self::windows::{Usual, Window};
pub(super) use self::write::Before;
use super::compares::mirrored;
use super::promises::signed_bits;
use super::shape::{Rows, Shape};
use super::way::Way;
use crate::ir::arena::Id;
use crate::ir::{
    BinaryOp, BlockId, CompareOp, ConvertOp, Definition, Function, Inst, Module, Op, Operand,
    Terminator, Type, UnaryOp, ValueId, definitions,
};
use crate::optimise::is_skipped;

/// The name by which it is left out.
const NAME: &str = "edges";

/// The name by which loops over windows are left out.
const WINDOWS: &str = "windows";

/// The maximum number of instructions of a kernel that is copied: it takes about twice as long to build.
const MAX_COPIED: usize = 768;

/// The maximum number of operations with usual results: each is computed once more in front.
const MAX_LIMITS: usize = 48;

/// The longest way from an address back to an operation.
const MAX_DEPTH: usize = 24;

/// The most operations of which such an operation's operands are made.
const MAX_MADE: usize = 32;

/// The longest sum with a counter in it.
const MAX_SUMS: usize = 8;

/// Constants below this are taken for the lower edge, or a distance from it, others for a size.
const MOST_EDGE: i64 = 16;

/// An operation whose result is known inside.
struct Limit {
    result: ValueId,
    usual: Usual,
    test: Test,
    /// The loop's counter on which the test depends, and by how much what is tested grows in a turn.
    counter: Option<(Counter, Growth)>,
    needs: Needs,
}

/// An end of a window.
enum End {
    Lower,
    Upper,
}

/// What holds inside.
#[derive(Clone, Copy)]
enum Test {
    /// An operand is the result; numbers have a sign, or not.
    Same(Operand, bool),
    /// A condition is true, or is not.
    Condition(Operand, bool),
    /// The first number is not less than the second one, as numbers without a sign.
    AtLeast(Operand, Operand),
    /// The first number is not less than 0 and below the second one, as numbers with a sign, or without.
    Below(Operand, Operand, bool),
    /// The first number lies from the second one on, and below twice that.
    Second(Operand, Operand, bool),
}

/// Adds code for vectors away from edges if that has neighbours in place of gathers. Returns the way through both.
pub(super) fn run(
    module: &mut Module,
    function: &mut Function,
    way: &Way,
    steps: &[i64],
) -> Option<Way> {
    let size: usize = function.blocks.iter().map(|(_, block)| block.insts.len()).sum();
    if is_skipped(NAME) || size > MAX_COPIED {
        return None;
    }
    let (limits, windows) = Finder::new(module, function, way).find();
    if limits.is_empty() && windows.is_empty() || limits.len() > MAX_LIMITS {
        return None;
    }
    let mut both = function.clone();
    let inside = write::write(module, &mut both, &limits, &windows);
    let new = Way::new(module, &both, Rows::Whole, steps).ok()?;
    let before = apart(function, way, function.blocks.ids());
    let after = apart(&both, &new, inside.into_iter());
    if after >= before {
        return None;
    }
    *function = both;
    Some(new)
}

/// Whether all items have as many turns in the code for vectors away from edges, though they have not at edges.
pub(super) fn evens(module: &mut Module, function: &Function, way: &Way, steps: &[i64]) -> bool {
    let masked = |way: &Way| way.flow.loops.iter().filter(|it| it.masked).count();
    let before = masked(way);
    // The new way goes through the code for edges, too.
    before > 0
        && run(module, &mut function.clone(), way, steps).is_some_and(|new| masked(&new) == before)
}

/// The number of accesses in some blocks whose addresses have no step, and of loops that items leave at different
/// times.
pub(super) fn apart(
    function: &Function,
    way: &Way,
    blocks: impl Iterator<Item = BlockId>,
) -> usize {
    let count = |id: BlockId| {
        let varies = |inst: &&Inst| {
            address(inst).is_some_and(|at| way.shapes.at(&way.flow, at, id) == Some(Shape::Varying))
        };
        let accesses = function.blocks[id].insts.iter().filter(varies).count();
        accesses + usize::from(way.flow.loops.iter().any(|it| it.header == id && it.masked))
    };
    blocks.map(count).sum()
}

pub(super) fn address(inst: &Inst) -> Option<Operand> {
    match inst.op {
        Op::Load(at, _) | Op::Store(at, ..) => Some(at),
        _ => None,
    }
}

/// Finds what is known inside.
pub(super) struct Finder<'a> {
    module: &'a Module,
    function: &'a Function,
    way: &'a Way,
    definitions: Vec<Option<Definition>>,
    /// The counter that a phi is, if it is one.
    counters: HashMap<ValueId, Option<Counter>>,
}

impl<'a> Finder<'a> {
    pub(super) fn new(module: &'a Module, function: &'a Function, way: &'a Way) -> Self {
        let definitions = definitions(function);
        Self { module, function, way, definitions, counters: HashMap::new() }
    }

    /// The operations on the way to the addresses of accesses, and to the ends of windows, whose results are known
    /// inside; and the windows.
    fn find(mut self) -> (Vec<Limit>, Vec<Window>) {
        let mut windows = self.windows();
        loop {
            let limits = self.limits(&windows);
            let usual = write::usual(&limits);
            let positive = write::positive(self.module, self.function, &limits);
            let signed = |value: ValueId| positive.iter().any(|&(result, _)| result == value);
            let Self { module, function, way, definitions, .. } = &self;
            let loops = Loops { module, function, way, definitions };
            for window in &mut windows {
                window.left =
                    loops.difference(window, &|value| usual.get(&value).copied(), &signed);
            }
            let before = windows.len();
            // Of a window that begins, or ends, at one place for all items the other end has to be known.
            windows.retain(|window| {
                let ends = [window.first, window.bound];
                window.left.is_some() || ends.iter().all(|&end| self.moves(end))
            });
            if windows.len() == before {
                return (limits, windows);
            }
        }
    }

    fn limits(&mut self, windows: &[Window]) -> Vec<Limit> {
        let mut seen: HashSet<ValueId> = HashSet::new();
        let mut work: Vec<(Operand, usize)> = Vec::new();
        work.extend(windows.iter().flat_map(|window| [(window.first, 0), (window.bound, 0)]));
        let mut limits = Vec::new();
        for (id, block) in self.function.blocks.iter().filter(|_| !is_skipped(WINDOWS)) {
            if let Terminator::CondBranch(condition, ..) = block.terminator
                && self.varies(condition)
            {
                let turns = self.way.flow.within[id.index()];
                if turns.is_some_and(|index| self.way.flow.loops[index].masked) {
                    work.push((condition, 0));
                }
                limits.extend(self.full(condition));
            }
        }
        for (_, block) in self.function.blocks.iter() {
            let places = block.insts.iter().filter_map(address);
            work.extend(places.map(|at| (at, 0)));
        }
        while let Some((operand, depth)) = work.pop() {
            let Some((value, block, inst)) = self.made(operand) else { continue };
            if depth > MAX_DEPTH || !self.varies(operand) || !seen.insert(value) {
                continue;
            }
            if is_simple(&inst.op) {
                inst.op.for_each_operand(|operand| work.push((operand, depth + 1)));
                limits.extend(self.limit(value, block, inst));
            } else if matches!(inst.op, Op::Phi(_)) && !is_skipped(WINDOWS) {
                inst.op.for_each_operand(|operand| work.push((operand, depth + 1)));
            }
        }
        loop {
            let found: HashSet<ValueId> = limits.iter().map(|limit| limit.result).collect();
            let before = limits.len();
            limits.retain(|limit| limit.needs.results.iter().all(|needed| found.contains(needed)));
            if limits.len() == before {
                return limits;
            }
        }
    }

    /// The loops over windows whose ends are known in front, and of which items have different ones.
    fn windows(&self) -> Vec<Window> {
        if is_skipped(WINDOWS) {
            return Vec::new();
        }
        let Self { module, function, way, definitions, .. } = self;
        let loops = Loops { module, function, way, definitions };
        let all = (0..way.flow.loops.len()).filter(|&index| way.flow.loops[index].masked);
        let is_known = |window: &Window| {
            let ends = [window.first, window.bound];
            ends.iter().any(|&end| self.moves(end))
                && self.phis(&ends).is_some_and(|phis| phis.is_empty())
        };
        all.filter_map(|index| loops.window(index)).filter(is_known).collect()
    }

    /// A condition that tells whether a window is empty, which it is not inside.
    fn full(&self, condition: Operand) -> Option<Limit> {
        let (result, _, inst) = self.made(condition)?;
        let Op::Compare(op, a, b) = inst.op else { return None };
        let op = match (self.end(a, 0)?, self.end(b, 0)?) {
            (End::Lower, End::Upper) => op,
            (End::Upper, End::Lower) => mirrored(op),
            _ => return None,
        };
        let holds = match op {
            CompareOp::ULt | CompareOp::ULe | CompareOp::SLt | CompareOp::SLe => true,
            CompareOp::UGt | CompareOp::UGe | CompareOp::SGt | CompareOp::SGe => false,
            _ => return None,
        };
        self.phis(&[a, b]).filter(HashSet::is_empty)?;
        let (usual, test) = (Usual::Holds(holds), Test::Condition(condition, holds));
        Some(Limit { result, usual, test, counter: None, needs: Needs::default() })
    }

    /// The end of a window that a limited number is.
    fn end(&self, operand: Operand, depth: usize) -> Option<End> {
        use BinaryOp as B;
        match *self.op(operand).filter(|_| depth < 4)? {
            Op::Binary(B::SMax | B::UMax | B::USubSat, ..) => Some(End::Lower),
            Op::Binary(B::SMin | B::UMin, ..) => Some(End::Upper),
            Op::Binary(B::Add, a, Operand::Const(_)) => self.end(a, depth + 1),
            Op::Convert(ConvertOp::SExt | ConvertOp::ZExt, a) => self.end(a, depth + 1),
            _ => None,
        }
    }

    fn limit(&mut self, result: ValueId, block: BlockId, inst: &Inst) -> Option<Limit> {
        use BinaryOp as B;
        if !matches!(self.module.types[self.function.values[result].ty], Type::Int(32 | 64)) {
            return None;
        }
        let (usual, test) = match inst.op {
            Op::Binary(B::UMin, a, b) if self.is_taken_off(a, b) => {
                (Usual::Is(b), Test::AtLeast(a, b))
            }
            Op::Binary(B::UMin, a, b) if self.is_taken_off(b, a) => {
                (Usual::Is(a), Test::AtLeast(b, a))
            }
            Op::Binary(op @ (B::SMax | B::SMin | B::UMax | B::UMin), a, b) => {
                let moving = self.moving(a, b)?;
                let signed = matches!(op, B::SMax | B::SMin);
                (Usual::Is(moving), Test::Same(moving, signed))
            }
            Op::Binary(op @ (B::URem | B::SRem | B::SMod), a, b) if !self.moves(b) => {
                let signed = op != B::URem;
                // A sum that has the size in it: (x + w - 1) % w.
                match self.has_term(a, b, 0) {
                    true => (Usual::Difference(a, b), Test::Second(a, b, signed)),
                    false if self.is_moved(a) => (Usual::Is(a), Test::Below(a, b, signed)),
                    false => return None,
                }
            }
            Op::Binary(B::USubSat, a, b) if self.moves(a) && !self.moves(b) => {
                (Usual::Difference(a, b), Test::AtLeast(a, b))
            }
            Op::Unary(UnaryOp::Abs, a) => (Usual::Is(a), Test::Same(a, true)),
            Op::Select(condition, a, b) if self.moves(condition) => {
                let is = self.likely(condition, 0)?;
                (Usual::Is(if is { a } else { b }), Test::Condition(condition, is))
            }
            _ => return None,
        };
        let mut from = Vec::new();
        inst.op.for_each_operand(|operand| from.push(operand));
        let mut phis = self.phis(&from)?.into_iter();
        let (phi, None) = (phis.next(), phis.next()) else { return None };
        let mut needs = Needs::default();
        let counter = match phi {
            None => None,
            Some(phi) => {
                // What lies between the first turn and the last one is between their results.
                let Test::Same(moving, signed) = test else { return None };
                let counter = self.counter(phi, block)?;
                let mut grows = |operand| self.grows(operand, phi, &mut needs, 0);
                let by = grows(moving)?.times(counter.step)?;
                let others = from.iter().filter(|&&operand| operand != moving);
                let still = others.into_iter().all(|&operand| grows(operand) == Some(Growth::NONE));
                if !still || !signed && by.grows().is_none() {
                    return None;
                }
                Some((counter, by))
            }
        };
        Some(Limit { result, usual, test, counter, needs })
    }

    /// Whether the kernel also takes the second number off the first one, down to zero: then clang writes the lower
    /// end of a window as `a - min(a, b)`, too.
    fn is_taken_off(&self, a: Operand, b: Operand) -> bool {
        let mut insts = self.function.blocks.iter().flat_map(|(_, block)| &block.insts);
        self.moves(a)
            && !self.moves(b)
            && !is_skipped(WINDOWS)
            && insts.any(|inst| inst.op == Op::Binary(BinaryOp::USubSat, a, b))
    }

    /// The operand that is not the same for all items, of two.
    fn moving(&self, a: Operand, b: Operand) -> Option<Operand> {
        match (self.moves(a), self.moves(b)) {
            (true, false) => Some(a),
            (false, true) => Some(b),
            _ => None,
        }
    }

    fn shape(&self, operand: Operand) -> Shape {
        match operand {
            Operand::Const(_) => Shape::Uniform,
            Operand::Value(value) => self.way.shapes.of(value),
        }
    }

    fn moves(&self, operand: Operand) -> bool {
        self.shape(operand) != Shape::Uniform
    }

    fn varies(&self, operand: Operand) -> bool {
        self.shape(operand) == Shape::Varying
    }

    fn made(&self, operand: Operand) -> Option<(ValueId, BlockId, &'a Inst)> {
        let Operand::Value(value) = operand else { return None };
        match self.definitions[value.index()]? {
            Definition::Inst(block, index) => {
                Some((value, block, &self.function.blocks[block].insts[index]))
            }
            Definition::Entry => None,
        }
    }

    pub(super) fn op(&self, operand: Operand) -> Option<&'a Op> {
        self.made(operand).map(|(_, _, inst)| &inst.op)
    }

    /// Whether a number has a term in it. A sum counts if a constant is left out of both.
    fn has_term(&self, sum: Operand, term: Operand, depth: usize) -> bool {
        if depth > 4 {
            return false;
        }
        match self.op(sum) {
            _ if sum == term && depth > 0 => true,
            Some(&Op::Binary(BinaryOp::Add, a, b)) => {
                self.has_term(a, term, depth + 1) || self.has_term(b, term, depth + 1)
            }
            Some(&Op::Binary(BinaryOp::Sub, a, _)) => self.has_term(a, term, depth + 1),
            _ => false,
        }
    }

    /// Whether a number is a sum: the id itself is divided to take it apart.
    pub(super) fn is_moved(&self, operand: Operand) -> bool {
        matches!(self.op(operand), Some(Op::Binary(BinaryOp::Add | BinaryOp::Sub, ..)))
    }

    /// Whether a condition is true inside, as far as that can be guessed.
    fn likely(&self, condition: Operand, depth: usize) -> Option<bool> {
        let next = |operand| self.likely(operand, depth + 1);
        let constant = |operand| self.module.operand_bits(operand);
        match *self.op(condition).filter(|_| depth < 4)? {
            Op::Compare(CompareOp::Eq, ..) => Some(false),
            Op::Compare(CompareOp::Ne, ..) => Some(true),
            Op::Compare(op, a, b) => {
                let moving = self.moving(a, b)?;
                let (op, bound) = if moving == a { (op, b) } else { (mirrored(op), a) };
                let below = match op {
                    CompareOp::ULt | CompareOp::ULe | CompareOp::SLt | CompareOp::SLe => true,
                    CompareOp::UGt | CompareOp::UGe | CompareOp::SGt | CompareOp::SGe => false,
                    _ => return None,
                };
                let lower = signed_bits(self.module, bound).is_some_and(|it| it < MOST_EDGE);
                Some(below != lower)
            }
            Op::Unary(UnaryOp::Not, a) => Some(!next(a)?),
            Op::Binary(BinaryOp::And, a, b) => Some(next(a)? && next(b)?),
            Op::Binary(BinaryOp::Or, a, b) => Some(next(a)? || next(b)?),
            // A logical "and" or "or".
            Op::Select(a, b, c) if constant(c) == Some(0) => Some(next(a)? && next(b)?),
            Op::Select(a, b, c) if constant(b) == Some(1) => Some(next(a)? || next(c)?),
            _ => None,
        }
    }

    /// The phis on which operands depend, if these depend on nothing else but ids and arguments.
    pub(super) fn phis(&self, from: &[Operand]) -> Option<HashSet<ValueId>> {
        let (mut phis, mut seen) = (HashSet::new(), HashSet::new());
        let mut work = from.to_vec();
        while let Some(operand) = work.pop() {
            let Operand::Value(value) = operand else { continue };
            if !seen.insert(value) {
                continue;
            }
            let Some((_, _, inst)) = self.made(operand) else {
                self.definitions[value.index()]?;
                continue;
            };
            match inst.op {
                Op::Phi(_) => {
                    phis.insert(value);
                }
                Op::WorkItem(..) => {}
                ref op if is_simple(op) && seen.len() <= MAX_MADE => {
                    op.for_each_operand(|operand| work.push(operand));
                }
                _ => return None,
            }
        }
        Some(phis)
    }

    /// By how much a number grows with a phi, inside: adds what has to hold for that.
    fn grows(
        &self,
        operand: Operand,
        phi: ValueId,
        needs: &mut Needs,
        depth: usize,
    ) -> Option<Growth> {
        if operand == Operand::Value(phi) {
            return Growth::new(1, 1);
        }
        let Some((value, _, inst)) = self.made(operand) else { return Some(Growth::NONE) };
        if depth > MAX_SUMS {
            return None;
        }
        let mut next = |operand| self.grows(operand, phi, needs, depth + 1);
        match inst.op {
            Op::Binary(BinaryOp::Add, a, b) => next(a)?.plus(next(b)?),
            Op::Binary(BinaryOp::Sub, a, b) => next(a)?.plus(next(b)?.times(-1)?),
            Op::Binary(BinaryOp::Mul, a, b @ Operand::Const(_)) => {
                next(a)?.times(signed_bits(self.module, b)?)
            }
            Op::Binary(BinaryOp::Mul, a, b) => match (next(a)?, next(b)?) {
                (Growth::NONE, Growth::NONE) => Some(Growth::NONE),
                (by, Growth::NONE) => self.times_argument(by, b, needs),
                (Growth::NONE, by) => self.times_argument(by, a, needs),
                _ => None,
            },
            // One of two amounts is that of all turns.
            Op::Select(condition, a, b) => {
                next(condition)?;
                let (a, b) = (next(a)?, next(b)?);
                Growth::new(a.least.min(b.least), a.most.max(b.most))
            }
            Op::Binary(BinaryOp::SMax | BinaryOp::SMin | BinaryOp::UMax | BinaryOp::UMin, a, b) => {
                match [next(a)?, next(b)?] {
                    [Growth::NONE, Growth::NONE] => Some(Growth::NONE),
                    by => {
                        needs.results.push(value);
                        Some(by[usize::from(self.moving(a, b)? == b)])
                    }
                }
            }
            Op::Convert(ConvertOp::Trunc, a) => next(a),
            ref op => {
                let mut still = true;
                op.for_each_operand(|operand| still = still && next(operand) == Some(Growth::NONE));
                still.then_some(Growth::NONE)
            }
        }
    }

    /// What grows, multiplied by a number that is the same in all turns.
    fn times_argument(&self, by: Growth, factor: Operand, needs: &mut Needs) -> Option<Growth> {
        needs.factors.push(factor);
        let most = by.least.abs().max(by.most.abs()).checked_mul(MOST_FACTOR)?;
        Growth::new(-most, most)
    }

    fn counter(&mut self, phi: ValueId, user: BlockId) -> Option<Counter> {
        if !self.counters.contains_key(&phi) {
            let Self { module, function, way, definitions, .. } = &*self;
            let counter = Loops { module, function, way, definitions }.counter(phi);
            let known = counter.filter(|counter| {
                let ends = [counter.turns.first, counter.turns.bound];
                self.phis(&[ends[0], ends[1], counter.first]).is_some_and(|phis| phis.is_empty())
                    && ends.iter().all(|&end| !self.moves(end))
            });
            self.counters.insert(phi, known);
        }
        self.counters[&phi].filter(|counter| counter.counts_in(self.way, user))
    }
}

/// Whether an operation on numbers may be computed once more, in front of everything.
pub(super) fn is_simple(op: &Op) -> bool {
    match op {
        Op::Unary(..) | Op::Binary(..) | Op::Compare(..) | Op::Select(..) | Op::Row(..) => true,
        Op::Convert(op, _) => {
            matches!(op, ConvertOp::Trunc | ConvertOp::SExt | ConvertOp::ZExt | ConvertOp::PtrCast)
        }
        Op::Address { .. } => true,
        _ => false,
    }
}
