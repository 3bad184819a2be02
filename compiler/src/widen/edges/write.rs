// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes a kernel with code of its own for vectors away from edges.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use super::counters::{Counter, MOST_FACTOR, MOST_STEP, MOST_TURNS, Turns};
use super::windows::{Usual, Window};
use super::{Limit, Test, WINDOWS};
use crate::ir::arena::Id;
use crate::ir::{
    BinaryOp, Block, BlockId, CompareOp, ConvertOp, Definition, ENTRY, Flags, Function, Inst, Loc,
    Module, Op, Operand, Terminator, TypeId, UnaryOp, ValueId, definitions,
};
use crate::optimise::{is_skipped, unused};

/// The turn of a loop in which a value is computed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Turn {
    First,
    Last,
}

/// Copies the function for vectors away from edges, and asks for these in its entry. Returns their blocks.
pub(super) fn write(
    module: &mut Module,
    function: &mut Function,
    limits: &[Limit],
    windows: &[Window],
) -> Vec<BlockId> {
    let source = function.clone();
    let before = Before::new(&source, module, function);
    let positive = positive(before.module, before.source, limits);
    let (insts, inside) = before.write(limits, windows, &positive);
    let mut blocks = copy(function);
    // The entry's code, for either.
    let loc = function.blocks[ENTRY].loc;
    let (first, others) = blocks[0];
    let terminator = Terminator::CondBranch(inside, first, others);
    function.blocks[ENTRY] = Block { insts, terminator, loc };
    let defined = crate::ir::definitions(function);
    windows.iter().for_each(|window| window.write(module, function, &defined));
    let ty = module.types.bool();
    let truths = [0, 1].map(|truth| Operand::Const(module.const_int(ty, truth)));
    simplify(function, limits, &positive, truths, blocks.iter().map(|&(inside, _)| inside));
    unused::run(function);
    blocks.drain(..).map(|(inside, _)| inside).collect()
}

/// Moves the code of the entry to a block of its own, and copies all blocks. Returns them, each with its copy.
fn copy(function: &mut Function) -> Vec<(BlockId, BlockId)> {
    let entry = function.blocks[ENTRY].clone();
    let all: Vec<BlockId> = function.blocks.ids().collect();
    let moved = function.blocks.push(entry);
    for &id in &all {
        function.blocks[id].redirect_phis(ENTRY, moved);
    }
    let originals: Vec<BlockId> =
        all.iter().map(|&id| if id == ENTRY { moved } else { id }).collect();
    let (places, names) = function.copies_of(&originals);
    for &id in &originals {
        let mut block = function.blocks[id].clone();
        block.rename(&names, &places);
        function.blocks[places[&id]] = block;
    }
    originals.into_iter().map(|id| (id, places[&id])).collect()
}

/// The extensions without a sign of limited numbers of 32 bits. Away from edges these are asked not to be negative, and
/// are extended with their sign: an index that is negative at an edge would keep all of its group from running in
/// vectors (see [`ranges`](crate::widen::ranges)).
pub(super) fn positive(
    module: &Module,
    function: &Function,
    limits: &[Limit],
) -> Vec<(ValueId, Operand)> {
    let limited: HashSet<Operand> = limits
        .iter()
        .filter(|limit| limit.counter.is_none() && !matches!(limit.usual, Usual::Holds(_)))
        .map(|limit| Operand::Value(limit.result))
        .collect();
    let insts = function.blocks.iter().flat_map(|(_, block)| &block.insts);
    let extends = |inst: &Inst| match (&inst.op, inst.result) {
        (&Op::Convert(ConvertOp::ZExt, from), Some(result)) => {
            let bits = module.types.scalar_bits(module.operand_type(function, from));
            (bits == 32 && limited.contains(&from)).then_some((result, from))
        }
        _ => None,
    };
    insts.filter_map(extends).filter(|_| !is_skipped(WINDOWS)).collect()
}

/// What the results of limited numbers are inside.
pub(super) fn usual(limits: &[Limit]) -> HashMap<ValueId, Usual> {
    limits.iter().map(|limit| (limit.result, limit.usual)).collect()
}

/// Gives the operations in some blocks their usual results.
fn simplify(
    function: &mut Function,
    limits: &[Limit],
    positive: &[(ValueId, Operand)],
    truths: [Operand; 2],
    blocks: impl Iterator<Item = BlockId>,
) {
    let usual: HashMap<ValueId, Usual> = usual(limits)
        .into_iter()
        .map(|(result, usual)| match usual {
            Usual::Holds(truth) => (result, Usual::Is(truths[usize::from(truth)])),
            other => (result, other),
        })
        .collect();
    let signed: HashSet<ValueId> = positive.iter().map(|&(result, _)| result).collect();
    let rename = |operand: &mut Operand| {
        while let Operand::Value(value) = operand
            && let Some(Usual::Is(other)) = usual.get(value)
        {
            *operand = *other;
        }
    };
    for id in blocks {
        let block = &mut function.blocks[id];
        for inst in &mut block.insts {
            if let Some(Usual::Difference(a, b)) = inst.result.and_then(|result| usual.get(&result))
            {
                inst.op = Op::Binary(BinaryOp::Sub, *a, *b);
            }
            if let Op::Convert(op, _) = &mut inst.op
                && inst.result.is_some_and(|result| signed.contains(&result))
            {
                *op = ConvertOp::SExt;
            }
            inst.op.for_each_operand_mut(rename);
        }
        block.terminator.for_each_operand_mut(rename);
    }
}

/// Writes code in front of a function.
pub(in crate::widen) struct Before<'a> {
    source: &'a Function,
    definitions: Vec<Option<Definition>>,
    module: &'a mut Module,
    function: &'a mut Function,
    pub(in crate::widen) insts: Vec<Inst>,
    /// What has been computed, by the turns in which that is.
    names: HashMap<(ValueId, Option<(ValueId, Turn)>), Operand>,
}

/// The turn of a loop in which something is computed, if it depends on that.
type In<'c> = Option<(&'c Counter, Turn)>;

impl<'a> Before<'a> {
    /// `source` is the function whose values are computed, and `function` has at least its values.
    pub(in crate::widen) fn new(
        source: &'a Function,
        module: &'a mut Module,
        function: &'a mut Function,
    ) -> Self {
        let (definitions, insts) = (definitions(source), Vec::new());
        Self { source, definitions, module, function, insts, names: HashMap::new() }
    }

    /// Computes whether all results are the usual ones, for all items that run together.
    fn write(
        mut self,
        limits: &[Limit],
        windows: &[Window],
        positive: &[(ValueId, Operand)],
    ) -> (Vec<Inst>, Operand) {
        let mut conditions = Vec::new();
        for &(_, number) in positive {
            let number = self.at(number, None);
            let ty = self.type_of(number);
            let zero = Operand::Const(self.module.const_int(ty, 0));
            conditions.push(self.compare(CompareOp::SGe, number, zero));
        }
        for window in windows {
            let Some((by, op)) = window.holds() else { continue };
            let [first, bound] = [window.first, window.bound].map(|end| self.at(end, None));
            let ty = self.type_of(bound);
            let by = Operand::Const(self.module.const_int(ty, by as u64));
            let behind = self.add(Op::Binary(BinaryOp::Add, bound, by), ty);
            conditions.push(self.compare(op, first, behind));
        }
        let (mut counted, mut factors) = (HashSet::new(), HashSet::new());
        for limit in limits {
            let Some((counter, by)) = &limit.counter else {
                self.test(limit, None, &mut conditions);
                continue;
            };
            if counted.insert(counter.phi) {
                conditions.push(self.counts(counter));
            }
            let turns = [Some((counter, Turn::First)), Some((counter, Turn::Last))];
            turns.iter().for_each(|&turn| self.test(limit, turn, &mut conditions));
            for &factor in &limit.needs.factors {
                if factors.insert(factor) {
                    let factor = self.at(factor, None);
                    conditions.push(self.is_within(factor, MOST_FACTOR));
                }
            }
            if let Test::Same(moving, signed) = limit.test {
                let [first, last] = turns.map(|turn| self.at(moving, turn));
                let op = if signed { CompareOp::SLe } else { CompareOp::ULe };
                conditions.push(match by.grows() {
                    Some(true) => self.compare(op, first, last),
                    Some(false) => self.compare(op, last, first),
                    // No number wraps around that begins near 0.
                    None => self.is_within(first, MOST_TURNS * MOST_STEP),
                });
            }
        }
        let ty = self.module.types.bool();
        let all =
            conditions.into_iter().reduce(|a, b| self.add(Op::Binary(BinaryOp::And, a, b), ty));
        let all = all.unwrap_or_else(|| Operand::Const(self.module.const_int(ty, 1)));
        let inside = self.add(Op::Whole(all), ty);
        (self.insts, inside)
    }

    fn test(&mut self, limit: &Limit, turn: In<'_>, conditions: &mut Vec<Operand>) {
        let zero = |this: &mut Self, of: Operand| {
            let ty = this.type_of(of);
            Operand::Const(this.module.const_int(ty, 0))
        };
        match limit.test {
            Test::Same(moving, _) => {
                let result = self.at(Operand::Value(limit.result), turn);
                let moving = self.at(moving, turn);
                conditions.push(self.compare(CompareOp::Eq, result, moving));
            }
            Test::Condition(condition, is) => {
                let condition = self.at(condition, turn);
                let ty = self.type_of(condition);
                conditions.push(match is {
                    true => condition,
                    false => self.add(Op::Unary(UnaryOp::Not, condition), ty),
                });
            }
            Test::AtLeast(a, b) => {
                let [a, b] = [a, b].map(|operand| self.at(operand, turn));
                conditions.push(self.compare(CompareOp::UGe, a, b));
            }
            Test::Below(a, b, signed) => {
                let [a, b] = [a, b].map(|operand| self.at(operand, turn));
                if signed {
                    let zero = zero(self, b);
                    conditions.push(self.compare(CompareOp::SGt, b, zero));
                }
                conditions.push(self.compare(CompareOp::ULt, a, b));
            }
            Test::Second(a, b, signed) => {
                let [a, b] = [a, b].map(|operand| self.at(operand, turn));
                let least = if signed { CompareOp::SGe } else { CompareOp::UGe };
                if signed {
                    let zero = zero(self, b);
                    conditions.push(self.compare(CompareOp::SGt, b, zero));
                }
                conditions.push(self.compare(least, a, b));
                let ty = self.type_of(a);
                let rest = self.add(Op::Binary(BinaryOp::Sub, a, b), ty);
                conditions.push(self.compare(CompareOp::ULt, rest, b));
            }
        }
    }

    /// Whether a number is not above another one, and not below that with the other sign.
    fn is_within(&mut self, number: Operand, most: i64) -> Operand {
        let ty = self.type_of(number);
        let mut constant = |number: i64| Operand::Const(self.module.const_int(ty, number as u64));
        let (by, all) = (constant(most), constant(2 * most));
        let from_zero = self.add(Op::Binary(BinaryOp::Add, number, by), ty);
        self.compare(CompareOp::ULe, from_zero, all)
    }

    /// Whether a loop has at least a turn and not too many.
    fn counts(&mut self, counter: &Counter) -> Operand {
        let turns = self.turns(&counter.turns);
        let ty = self.type_of(turns);
        let most = Operand::Const(self.module.const_int(ty, MOST_TURNS as u64));
        self.compare(CompareOp::ULt, turns, most)
    }

    /// The turns of a loop, less one.
    fn turns(&mut self, turns: &Turns) -> Operand {
        let [first, bound] = [turns.first, turns.bound].map(|operand| self.at(operand, None));
        let ty = self.type_of(first);
        let (from, to) = if turns.shrinks { (bound, first) } else { (first, bound) };
        let turns_or_one_more = self.add(Op::Binary(BinaryOp::Sub, to, from), ty);
        if turns.includes {
            return turns_or_one_more;
        }
        let less = Operand::Const(self.module.const_int(ty, u64::MAX));
        self.add(Op::Binary(BinaryOp::Add, turns_or_one_more, less), ty)
    }

    /// A counter's value in a loop's last turn.
    fn last(&mut self, counter: &Counter) -> Operand {
        let (first, mut turns) = (self.at(counter.first, None), self.turns(&counter.turns));
        let ty = self.type_of(first);
        let bits = |this: &Self, operand| this.module.types.scalar_bits(this.type_of(operand));
        // There are few.
        match bits(self, turns).cmp(&bits(self, first)) {
            Ordering::Greater => turns = self.add(Op::Convert(ConvertOp::Trunc, turns), ty),
            Ordering::Less => turns = self.add(Op::Convert(ConvertOp::ZExt, turns), ty),
            Ordering::Equal => {}
        }
        let step = Operand::Const(self.module.const_int(ty, counter.step as u64));
        let all = self.add(Op::Binary(BinaryOp::Mul, turns, step), ty);
        self.add(Op::Binary(BinaryOp::Add, first, all), ty)
    }

    /// A value of the function that depends on no loop, computed in front of it.
    pub(in crate::widen) fn known(&mut self, operand: Operand) -> Operand {
        self.at(operand, None)
    }

    /// A value of the function, computed in front of it.
    fn at(&mut self, operand: Operand, turn: In<'_>) -> Operand {
        let Operand::Value(value) = operand else { return operand };
        let Some(Definition::Inst(block, index)) = self.definitions[value.index()] else {
            return operand;
        };
        let key = (value, turn.map(|(counter, turn)| (counter.phi, turn)));
        if let Some(&name) = self.names.get(&key) {
            return name;
        }
        let inst = &self.source.blocks[block].insts[index];
        let new = match (&inst.op, turn) {
            (Op::Phi(_), Some((counter, Turn::First))) => self.at(counter.first, None),
            (Op::Phi(_), Some((counter, Turn::Last))) => self.last(counter),
            (op, _) => {
                let mut op = op.clone();
                op.for_each_operand_mut(|operand| *operand = self.at(*operand, turn));
                // In front of the function, nothing is promised.
                if let Op::Address { inbounds, .. } = &mut op {
                    *inbounds = false;
                }
                let ty = self.source.values[value].ty;
                self.add(op, ty)
            }
        };
        self.names.insert(key, new);
        new
    }

    fn type_of(&self, operand: Operand) -> TypeId {
        self.module.operand_type(self.function, operand)
    }

    fn compare(&mut self, op: CompareOp, a: Operand, b: Operand) -> Operand {
        let ty = self.module.types.bool();
        self.add(Op::Compare(op, a, b), ty)
    }

    pub(in crate::widen) fn add(&mut self, op: Op, ty: TypeId) -> Operand {
        let result = self.function.new_value(ty);
        let (flags, loc) = (Flags::empty(), Loc::default());
        self.insts.push(Inst { result: Some(result), op, flags, loc });
        Operand::Value(result)
    }
}
