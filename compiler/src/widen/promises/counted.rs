// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers that loops count, and what grows by the same number in each turn, or in some turns:
//!
//! ```text
//!   for (i = id; i < n; i += size)     i from id to n + size
//!   for (k = 0; k < n; k++)            k from 0 to n + 1
//!     at += step                       at from its first value to that plus n * step
//! ```
//!
//! What else ends a loop may be what keeps its numbers small. So a loop with a second way out, or a second condition, is
//! only looked at if the number of turns is a small constant.

use super::{Extends, Holds, Makers, Number, Trial, product, signed_bits};
use crate::ir::arena::Id;
use crate::ir::{
    BinaryOp, BlockId, CompareOp, ConvertOp, Definition, Function, Op, Operand, Terminator, ValueId,
};
use crate::widen::compares::{mirrored, opposite};
use crate::widen::flow::Flow;

/// The most turns of a loop that may end earlier.
const MOST_TURNS: u64 = 4096;

/// The most sums and their parts that are looked at for a counter.
const MOST_PARTS: usize = 9;

/// A phi of a loop's header.
struct Growth {
    first: Operand,
    next: Operand,
    /// What is added in a turn.
    by: Operand,
    /// Whether turns may leave it as it is.
    sometimes: bool,
}

/// The comparison that ends a loop, which each turn passes.
#[derive(Clone, Copy)]
struct Test {
    /// What is compared is this phi, or its next value.
    phi: ValueId,
    of_next: bool,
    /// The loop goes on as long as this holds.
    stays: CompareOp,
    bound: Operand,
}

impl Test {
    fn is_unsigned(&self) -> bool {
        use CompareOp::{UGe, UGt, ULe, ULt};
        matches!(self.stays, ULt | ULe | UGt | UGe)
    }
}

/// The comparison of two numbers without a sign that are extended with zeros, which a comparison makes.
fn unsigned(op: CompareOp) -> Option<CompareOp> {
    use CompareOp::{SGe, SGt, SLe, SLt, UGe, UGt, ULe, ULt};
    match op {
        SLt | ULt => Some(ULt),
        SLe | ULe => Some(ULe),
        SGt | UGt => Some(UGt),
        SGe | UGe => Some(UGe),
        _ => None,
    }
}

/// The phis of the headers of all loops, and the numbers of the loops.
pub(super) fn headers(function: &Function, flow: &Flow) -> Vec<(ValueId, usize)> {
    let phis = |(index, header): (usize, BlockId)| {
        let phis = function.blocks[header].phis().filter_map(|phi| phi.result);
        phis.map(move |phi| (phi, index)).collect::<Vec<_>>()
    };
    flow.loops.iter().map(|it| it.header).enumerate().flat_map(phis).collect()
}

/// Whether an operand in a block is counted by the smallest loop around that, or a sum or difference with such a number:
/// each item may walk along a row of its own.
pub(in crate::widen) fn is_counted(
    function: &Function,
    flow: &Flow,
    definitions: &[Option<Definition>],
    block: BlockId,
    operand: Operand,
) -> bool {
    let Some(header) = flow.within[block.index()].map(|it| flow.loops[it].header) else {
        return false;
    };
    // Parts of the sum.
    let mut parts = vec![operand];
    for _ in 0..MOST_PARTS {
        let Some(part) = parts.pop() else { break };
        let Operand::Value(value) = part else { continue };
        let Some(Definition::Inst(home, index)) = definitions[value.index()] else { continue };
        match function.blocks[home].insts[index].op {
            Op::Phi(_) if home == header => return true,
            Op::Binary(BinaryOp::Add | BinaryOp::Sub, a, b) => parts.extend([a, b]),
            _ => {}
        }
    }
    false
}

impl Makers<'_> {
    /// The number that a phi of a loop's header is.
    pub(super) fn counted(&self, trial: &mut Trial, phi: ValueId, index: usize) -> Option<usize> {
        if let Some((first, before)) = self.delayed(phi, index) {
            let (first, before) = (self.number(trial, first)?, self.number(trial, before)?);
            return Some(trial.promises.number(Number::Either(first, before)));
        }
        let growth = self.growth(phi, index)?;
        let test = self.test(index)?;
        if test.phi == phi {
            return self.counter(trial, &growth, test);
        }
        let first = self.number(trial, growth.first)?;
        let turns = self.most_turns(trial, index, test)?;
        let by = self.number(trial, growth.by)?;
        let way = product(&mut trial.promises, turns, by);
        trial.promises.sum(Number::Sum(first, way))
    }

    /// What is compared in the end of a loop.
    fn counter(&self, trial: &mut Trial, growth: &Growth, test: Test) -> Option<usize> {
        let constant = self.constant(growth.by);
        let up = self.grows(growth, test)?;
        let first = self.number(trial, growth.first)?;
        let by = self.number(trial, growth.by)?;
        if constant.is_none() {
            trial.promises.require(by, Holds::Positive);
        }
        let bound = self.bound(trial, first, test, up)?;
        // The value behind the last one. A vector goes on until its last item leaves the loop, so another item's number
        // may be as far beyond the bound as the items are from each other in the beginning.
        let end = trial.promises.sum(Number::Sum(bound, by))?;
        let spread = trial.promises.sum(Number::Difference(first, first))?;
        // None is before the first number.
        let none = trial.promises.number(Number::Constant(0));
        let beyond = if up { Number::Most(spread, none) } else { Number::Least(spread, none) };
        let spread = trial.promises.number(beyond);
        let end = trial.promises.sum(Number::Sum(end, spread))?;
        trial.promises.require(end, Holds::Fits);
        Some(trial.promises.number(Number::Either(first, end)))
    }

    /// The most turns of a loop whose counter moves by one.
    fn most_turns(&self, trial: &mut Trial, index: usize, test: Test) -> Option<usize> {
        let growth = self.growth(test.phi, index)?;
        let up = self.grows(&growth, test)?;
        let (1 | -1) = self.constant(growth.by)? else { return None };
        let first = self.number(trial, growth.first)?;
        let bound = self.bound(trial, first, test, up)?;
        let by = self.number(trial, growth.by)?;
        // One more if the bound is one of the values.
        let end = trial.promises.sum(Number::Sum(bound, by))?;
        trial.promises.require(end, Holds::Fits);
        let way = if up { Number::Difference(end, first) } else { Number::Difference(first, end) };
        let way = trial.promises.sum(way)?;
        let none = trial.promises.number(Number::Constant(0));
        Some(trial.promises.number(Number::Either(none, way)))
    }

    /// Whether a counter grows until its loop's test fails; `None` if the test does not end that way.
    fn grows(&self, growth: &Growth, test: Test) -> Option<bool> {
        use CompareOp::{Ne, SGe, SGt, SLe, SLt, ULe, ULt};
        let by = self.constant(growth.by);
        let up = match test.stays {
            SLt | SLe | ULt | ULe => true,
            SGt | SGe => false,
            Ne => match by? {
                1 => true,
                -1 => false,
                _ => return None,
            },
            _ => return None,
        };
        let fits = match by {
            Some(by) => by != 0 && (by > 0) == up,
            None => up,
        };
        (fits && !growth.sometimes).then_some(up)
    }

    /// The number that a counter is compared with. It is reached from the first one without wrapping around.
    fn bound(&self, trial: &mut Trial, first: usize, test: Test, up: bool) -> Option<usize> {
        let bound = self.number(trial, test.bound)?;
        trial.promises.require(bound, Holds::Fits);
        trial.promises.require(first, Holds::Fits);
        if test.is_unsigned() {
            trial.promises.require(bound, Holds::Positive);
            trial.promises.require(first, Holds::Positive);
        }
        if test.stays == CompareOp::Ne {
            // Numbers that differ between groups may be those of a loop that some do not enter.
            if [first, bound].iter().any(|&it| trial.promises.differs(it)) {
                return None;
            }
            let way = if up { (bound, first) } else { (first, bound) };
            let mut way = trial.promises.sum(Number::Difference(way.0, way.1))?;
            if test.of_next {
                let one = trial.promises.number(Number::Constant(1));
                way = trial.promises.sum(Number::Difference(way, one))?;
            }
            trial.promises.require(way, Holds::Positive);
        }
        Some(bound)
    }

    pub(super) fn constant(&self, operand: Operand) -> Option<i64> {
        signed_bits(self.module, operand)
    }

    /// What arrives at a phi of a loop's header from outside, and from a turn.
    fn arms(&self, phi: ValueId, index: usize) -> Option<(Operand, Operand)> {
        let Op::Phi(arms) = &self.of.get(&phi)?.op else { return None };
        let &[one, other] = arms.as_slice() else { return None };
        let inside = |block: BlockId| self.flow.contains(index, block);
        match (inside(one.0), inside(other.0)) {
            (false, true) => Some((one.1, other.1)),
            (true, false) => Some((other.1, one.1)),
            _ => None,
        }
    }

    /// The first number of a phi that is, in each other turn, what another phi of the header was in the turn before, and
    /// that one: clang keeps a counter and its next value.
    fn delayed(&self, phi: ValueId, index: usize) -> Option<(Operand, Operand)> {
        let (first, next) = self.arms(phi, index)?;
        let Operand::Value(other) = next else { return None };
        (other != phi && self.headers.get(&other) == Some(&index)).then_some((first, next))
    }

    /// How a phi of a loop's header grows.
    fn growth(&self, phi: ValueId, index: usize) -> Option<Growth> {
        let (first, next) = self.arms(phi, index)?;
        let own = Operand::Value(phi);
        let added = |operand: Operand| {
            let Operand::Value(value) = operand else { return None };
            match self.of.get(&value)?.op {
                Op::Binary(BinaryOp::Add, a, by) if a == own => Some(by),
                Op::Binary(BinaryOp::Add, by, a) if a == own => Some(by),
                _ => None,
            }
        };
        if let Some(by) = added(next) {
            return Some(Growth { first, next, by, sometimes: false });
        }
        let Operand::Value(value) = next else { return None };
        let ways: Vec<Operand> = match &self.of.get(&value)?.op {
            Op::Phi(arms) => arms.iter().map(|arm| arm.1).collect(),
            &Op::Select(_, yes, no) => vec![yes, no],
            _ => return None,
        };
        let mut by = None;
        for way in ways.into_iter().filter(|way| *way != own) {
            let more = added(way)?;
            by = match by {
                Some(other) if other != more => return None,
                _ => Some(more),
            };
        }
        Some(Growth { first, next, by: by?, sometimes: true })
    }

    /// The test of a loop in its first block or in its last one.
    fn test(&self, index: usize) -> Option<Test> {
        let header = self.flow.loops[index].header;
        let inside = |block: BlockId| self.flow.contains(index, block);
        let back = self.flow.predecessors[header.index()].iter().filter(|&&from| inside(from));
        let leaves = |block: BlockId| {
            let next = self.function.blocks[block].terminator.successors();
            next.into_iter().any(|next| !inside(next))
        };
        let exits = self.function.blocks.ids().filter(|&id| inside(id) && leaves(id)).count();
        back.copied().chain([header]).find_map(|last| {
            let Terminator::CondBranch(condition, yes, no) = self.function.blocks[last].terminator
            else {
                return None;
            };
            if inside(yes) == inside(no) {
                return None;
            }
            if let Some(test) = self.comparison(index, condition, inside(yes)) {
                return (exits == 1 || self.is_short(index, test)).then_some(test);
            }
            // All of several conditions.
            let Operand::Value(condition) = condition else { return None };
            let (a, b) = match self.of.get(&condition)?.op {
                Op::Binary(BinaryOp::And, a, b) if inside(yes) => (a, b),
                Op::Select(a, b, no) if inside(yes) && self.constant(no) == Some(0) => (a, b),
                _ => return None,
            };
            let tests = [a, b].map(|it| self.comparison(index, it, true));
            tests.into_iter().flatten().find(|&test| self.is_short(index, test))
        })
    }

    /// Whether a counter has few turns before it, whatever the arguments.
    fn is_short(&self, index: usize, test: Test) -> bool {
        self.distance(index, test).is_some_and(|it| it <= MOST_TURNS)
    }

    /// The constant number of which a loop has at most as many turns, or one more.
    pub(super) fn constant_turns(&self, index: usize) -> Option<u64> {
        self.distance(index, self.test(index)?)
    }

    fn distance(&self, index: usize, test: Test) -> Option<u64> {
        let first = self.growth(test.phi, index).and_then(|it| self.constant(it.first))?;
        Some(first.abs_diff(self.constant(test.bound)?))
    }

    /// A condition that holds, or does not, as long as a loop goes on, if it compares a counter.
    fn comparison(&self, index: usize, condition: Operand, holds: bool) -> Option<Test> {
        let Operand::Value(condition) = condition else { return None };
        let Op::Compare(op, a, b) = self.of.get(&condition)?.op else { return None };
        let stays = if holds { op } else { opposite(op)? };
        let header = self.flow.loops[index].header;
        let phis = self.function.blocks[header].phis().filter_map(|phi| phi.result);
        phis.into_iter().find_map(|phi| {
            let growth = self.growth(phi, index)?;
            let counts = |it: Operand| it == Operand::Value(phi) || it == growth.next;
            let (of_a, of_b) = (self.narrow(a), self.narrow(b));
            let (stays, number, extends, bound) = match (counts(of_a.0), counts(of_b.0)) {
                (true, false) => (stays, of_a.0, of_a.1, b),
                (false, true) => (mirrored(stays), of_b.0, of_b.1, a),
                _ => return None,
            };
            let stays = match extends {
                Some(Extends::Unsigned) => unsigned(stays)?,
                _ => stays,
            };
            Some(Test { phi, of_next: number == growth.next, stays, bound })
        })
    }

    /// What an operand is, or what has 32 bits and is extended to it: `int i` is compared with a `size_t` in 64 bits.
    fn narrow(&self, operand: Operand) -> (Operand, Option<Extends>) {
        let Operand::Value(value) = operand else { return (operand, None) };
        match self.of.get(&value).map(|inst| &inst.op) {
            Some(&Op::Convert(op @ (ConvertOp::SExt | ConvertOp::ZExt), from))
                if self.module.types.scalar_bits(self.module.operand_type(self.function, from))
                    == 32 =>
            {
                let extends = match op {
                    ConvertOp::SExt => Extends::Signed,
                    _ => Extends::Unsigned,
                };
                (from, Some(extends))
            }
            _ => (operand, None),
        }
    }
}
