// SPDX-License-Identifier: MIT OR Apache-2.0
//! The counters of loops, from the first turn to the last one.

use crate::ir::arena::Id;
use crate::ir::{
    BinaryOp, BlockId, CompareOp, Definition, Function, Module, Op, Operand, Terminator, ValueId,
};
use crate::widen::compares::{mirrored, opposite};
use crate::widen::promises::signed_bits;
use crate::widen::way::Way;

/// The greatest argument that a counter is multiplied by, with either sign.
pub(super) const MOST_FACTOR: i64 = 64;

/// The most turns of a loop, and the most by which a place moves in a turn: their product fits 32 bits with a sign.
pub(super) const MOST_TURNS: i64 = 1 << 20;
pub(super) const MOST_STEP: i64 = 512;

/// A phi that grows by the same amount in each turn of a loop.
#[derive(Clone, Copy)]
pub(super) struct Counter {
    pub(super) phi: ValueId,
    /// Its value in the first turn.
    pub(super) first: Operand,
    pub(super) step: i64,
    pub(super) turns: Turns,
}

/// The turns of a loop: of a phi that grows, or shrinks, by one.
#[derive(Clone, Copy)]
pub(super) struct Turns {
    /// Its value in the first turn.
    pub(super) first: Operand,
    /// What it is compared with.
    pub(super) bound: Operand,
    /// Whether that is the last turn's value, not the one behind it.
    pub(super) includes: bool,
    pub(super) shrinks: bool,
    /// The block that is not part of a turn: the header, if the test is there.
    outside: Option<BlockId>,
    /// The number of the loop.
    index: usize,
}

/// A function whose loops count.
pub(super) struct Loops<'a> {
    pub(super) module: &'a Module,
    pub(super) function: &'a Function,
    pub(super) way: &'a Way,
    pub(super) definitions: &'a [Option<Definition>],
}

impl Loops<'_> {
    pub(super) fn counter(&self, phi: ValueId) -> Option<Counter> {
        let Some(Definition::Inst(header, _)) = self.definitions[phi.index()] else { return None };
        let index = self.way.flow.within[header.index()]?;
        let (first, latch, _, step) = self.grows(phi, index)?;
        let turns = self.turns(index, header, latch)?;
        Some(Counter { phi, first, step, turns })
    }

    pub(super) fn made(&self, operand: Operand) -> Option<&Op> {
        let Operand::Value(value) = operand else { return None };
        match self.definitions[value.index()]? {
            Definition::Inst(block, index) => Some(&self.function.blocks[block].insts[index].op),
            Definition::Entry => None,
        }
    }

    /// A phi of a loop's header that a constant is added to in each turn: its first value, the block at the end of the
    /// turn, its next value, and the constant.
    pub(super) fn grows(
        &self,
        phi: ValueId,
        index: usize,
    ) -> Option<(Operand, BlockId, Operand, i64)> {
        let Some(Op::Phi(arms)) = self.made(Operand::Value(phi)) else { return None };
        let &[one, other] = arms.as_slice() else { return None };
        let inside = |block: BlockId| self.way.flow.contains(index, block);
        let ((_, first), (latch, next)) = match (inside(one.0), inside(other.0)) {
            (false, true) => (one, other),
            (true, false) => (other, one),
            _ => return None,
        };
        let &Op::Binary(BinaryOp::Add, a, by @ Operand::Const(_)) = self.made(next)? else {
            return None;
        };
        let by = signed_bits(self.module, by)?;
        (a == Operand::Value(phi)).then_some((first, latch, next, by))
    }

    fn turns(&self, index: usize, header: BlockId, latch: BlockId) -> Option<Turns> {
        let inside = |block: BlockId| self.way.flow.contains(index, block);
        if self.way.flow.loops[index].header != header {
            return None;
        }
        [latch, header].into_iter().find_map(|block| {
            let &Terminator::CondBranch(condition, yes, no) =
                &self.function.blocks[block].terminator
            else {
                return None;
            };
            let &Op::Compare(op, a, b) = self.made(condition)? else { return None };
            let stays = match (inside(yes), inside(no)) {
                (true, false) => op,
                (false, true) => opposite(op)?,
                _ => return None,
            };
            let phis = self.function.blocks[header].phis().filter_map(|phi| phi.result);
            phis.into_iter().find_map(|phi| {
                let (first, _, next, by @ (1 | -1)) = self.grows(phi, index)? else { return None };
                let counts = |operand| operand == next || operand == Operand::Value(phi);
                let (stays, number, bound) = match (counts(a), counts(b)) {
                    (true, false) => (stays, a, b),
                    (false, true) => (mirrored(stays), b, a),
                    _ => return None,
                };
                let ends = match stays {
                    CompareOp::Ne => true,
                    CompareOp::ULt | CompareOp::SLt => by == 1,
                    CompareOp::UGt | CompareOp::SGt => by == -1,
                    _ => false,
                };
                // The latch asks whether there is another turn, the header whether this is one.
                let (includes, outside) = match (block == latch, number == next) {
                    (true, true) => (false, None),
                    (true, false) => (true, None),
                    (false, false) => (false, Some(header)),
                    (false, true) => return None,
                };
                let shrinks = by == -1;
                ends.then_some(Turns { first, bound, includes, shrinks, outside, index })
            })
        })
    }
}

impl Counter {
    /// Whether a block is only executed with the counter between its first and its last value.
    pub(super) fn counts_in(&self, way: &Way, block: BlockId) -> bool {
        way.flow.contains(self.turns.index, block) && self.turns.outside != Some(block)
    }
}
