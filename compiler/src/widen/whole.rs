// SPDX-License-Identifier: MIT OR Apache-2.0
//! Code of its own for vectors whose items are all in range.
//!
//! A kernel that tests its id against a size runs nearly all of its vectors whole, but under a mask. Rows of
//! items are then gathered element by element, since the bytes of items that do not run may not be read, and
//! numbers of one or two bytes one by one where processors have no masks for them. So the code behind such a
//! test is copied, and whole vectors run the copy, which needs no mask:
//!
//! ```text
//!                              if (all items: i < n)
//!   if (i < n)                   body                       ; without a mask
//!     body             ──▶     else if (i < n)
//!                                body                       ; under a mask
//! ```
//!
//! Tests that follow each other, as those of a picture's edges, count as one, whether these are written `x < 1` or `x == 0`. Only code with such accesses is copied, up
//! to [`MAX_COPIED`] instructions, and little code that accesses global memory in line, up to [`MAX_IN_LINE`]; none in
//! which items wait for each other. Sums of rows of 8 floats take 0.87 of the time, grey of `uchar4` 0.9 on processors
//! with such masks.

use std::collections::HashMap;

use super::shape::Shape;
use super::strips;
use super::way::Way;
use crate::ir::arena::Id;
use crate::ir::{
    AddressSpace, BinaryOp, Block, BlockId, CompareOp, ConvertOp, Definition, Dominators, Flags,
    Function, Inst, Module, Op, Operand, Terminator, Type, UnaryOp, definitions,
};
use crate::optimise::is_skipped;
use crate::regions::stop_scope;

/// The name by which it is left out.
const NAME: &str = "whole";

/// The maximum number of instructions that are copied: such a kernel takes about twice as long to build.
const MAX_COPIED: usize = 384;

/// The maximum number of instructions that are copied for accesses of global memory in line alone. On an EPYC (Zen 5)
/// loads and stores under a mask wait longer for memory: `if (i < n) y[i] = a * x[i]` takes 0.5 of the time without,
/// sums of columns 0.55 to 0.7 of it. A Xeon takes as long either way.
const MAX_IN_LINE: usize = 96;

/// The shortest row, in bytes, whose parts are loaded as one ([`transpose`](super::transpose)).
const ROW: u64 = 16;

/// The operations of a condition that are looked at, and those on the way from an address back to an argument.
const MAX_DEPTH: usize = 8;
const MAX_WAY: usize = 12;

/// The most bits of numbers that not all processors load and store under masks.
const SMALL: u32 = 16;

/// Copies the code behind the first tests that most vectors pass whole. Whether it found some.
pub(super) fn run(module: &Module, function: &mut Function, way: &Way) -> bool {
    if is_skipped(NAME) {
        return false;
    }
    let Some(plan) = Finder::new(module, function, way).find() else { return false };
    copy(module, function, &plan);
    true
}

/// Tests that lead to a body if all of them hold.
struct Plan {
    /// The blocks that end with a test, in their order: those behind the first one do nothing else.
    tests: Vec<Test>,
    /// All blocks that are reached only if the first test holds.
    behind: Vec<BlockId>,
}

#[derive(Clone, Copy)]
struct Test {
    block: BlockId,
    condition: Operand,
    /// What the condition is if the test holds.
    when: bool,
    inside: BlockId,
    outside: BlockId,
}

struct Finder<'a> {
    module: &'a Module,
    function: &'a Function,
    way: &'a Way,
    definitions: Vec<Option<Definition>>,
    dominators: Dominators,
    predecessors: Vec<Vec<BlockId>>,
}

impl<'a> Finder<'a> {
    fn new(module: &'a Module, function: &'a Function, way: &'a Way) -> Self {
        let predecessors = function.predecessors();
        let dominators = Dominators::of(function, &predecessors);
        Self { module, function, way, definitions: definitions(function), dominators, predecessors }
    }

    fn find(&self) -> Option<Plan> {
        self.function.blocks.ids().find_map(|block| {
            [true, false].into_iter().find_map(|when| {
                let first = self.test(block, when)?;
                self.plan(first)
            })
        })
    }

    fn plan(&self, first: Test) -> Option<Plan> {
        let mut tests = vec![first];
        let mut last = first;
        while self.only_tests(last.inside) {
            let ways = [true, false].map(|when| self.test(last.inside, when));
            let next = ways.into_iter().flatten().find(|next| next.outside == first.outside);
            let Some(next) = next else { break };
            tests.push(next);
            last = next;
        }
        let behind = self.behind(first.inside);
        let insts = |blocks: &[BlockId]| -> usize {
            blocks.iter().map(|&id| self.function.blocks[id].insts.len()).sum()
        };
        let waits = behind
            .iter()
            .flat_map(|&id| &self.function.blocks[id].insts)
            .any(|inst| stop_scope(&inst.op).is_some() || matches!(inst.op, Op::Collect(..)));
        let gains = !waits && insts(&behind) <= MAX_COPIED && self.gains(last.inside);
        gains.then_some(Plan { tests, behind })
    }

    /// The test at the end of a block outside of loops, if it is one of a range.
    fn test(&self, block: BlockId, when: bool) -> Option<Test> {
        let &Terminator::CondBranch(condition, yes, no) = &self.function.blocks[block].terminator
        else {
            return None;
        };
        let (inside, outside) = if when { (yes, no) } else { (no, yes) };
        let here = self.way.parting[block.index()]
            && self.way.flow.within[block.index()].is_none()
            && yes != no
            && self.predecessors[inside.index()] == [block];
        let ranges = here && self.is_range(condition, when, 0);
        ranges.then_some(Test { block, condition, when, inside, outside })
    }

    /// Whether a condition, or its opposite, says that numbers with a step are within bounds.
    fn is_range(&self, condition: Operand, when: bool, depth: usize) -> bool {
        let uniform = |operand| self.shape(operand) == Shape::Uniform;
        if uniform(condition) {
            return true;
        }
        let Some(inst) = self.made(condition).filter(|_| depth < MAX_DEPTH) else { return false };
        let both = |a, b| self.is_range(a, when, depth + 1) && self.is_range(b, when, depth + 1);
        match inst.op {
            Op::Compare(op, a, b) => {
                // Two numbers with steps are the same in one item at most.
                let most = match op {
                    CompareOp::Eq => !when,
                    CompareOp::Ne => when,
                    _ => true,
                };
                let stepped = |operand| matches!(self.shape(operand), Shape::Strided { .. });
                most && (stepped(a) && uniform(b) || stepped(b) && uniform(a))
            }
            Op::Unary(UnaryOp::Not, a) => self.is_range(a, !when, depth + 1),
            Op::Binary(BinaryOp::And, a, b) if when => both(a, b),
            Op::Binary(BinaryOp::Or, a, b) if !when => both(a, b),
            // A logical "and" or "or".
            Op::Select(a, b, c) if when && self.is_bool(c, false) => both(a, b),
            Op::Select(a, b, c) if !when && self.is_bool(b, true) => both(a, c),
            _ => false,
        }
    }

    fn is_bool(&self, operand: Operand, value: bool) -> bool {
        match operand {
            Operand::Const(id) => self.module.const_bits(id) == Some(u64::from(value)),
            Operand::Value(_) => false,
        }
    }

    fn shape(&self, operand: Operand) -> Shape {
        match operand {
            Operand::Const(_) => Shape::Uniform,
            Operand::Value(value) => self.way.shapes.of(value),
        }
    }

    fn made(&self, operand: Operand) -> Option<&'a Inst> {
        let Operand::Value(value) = operand else { return None };
        match self.definitions[value.index()]? {
            Definition::Inst(block, index) => Some(&self.function.blocks[block].insts[index]),
            Definition::Entry => None,
        }
    }

    fn is_global(&self, at: Operand) -> bool {
        let ty = self.module.operand_type(self.function, at);
        matches!(self.module.types[ty], Type::Pointer(AddressSpace::Global))
    }

    /// Whether items' addresses are as far apart as an argument says, as those of a picture's pixels are that have so many
    /// channels: [`strides`](super::strides) finds vectors of small numbers there if there is no mask.
    fn is_apart_by_argument(&self, operand: Operand, depth: usize) -> bool {
        let shape = |operand| self.shape(operand);
        if shape(operand) != Shape::Varying || depth == MAX_WAY {
            return false;
        }
        let next = |operand| self.is_apart_by_argument(operand, depth + 1);
        let sum = |parts: &mut dyn Iterator<Item = Operand>| {
            parts.filter(|&part| shape(part) == Shape::Varying).all(next)
        };
        match self.made(operand).map(|inst| &inst.op) {
            Some(&Op::Convert(ConvertOp::SExt | ConvertOp::ZExt | ConvertOp::PtrCast, a)) => {
                next(a)
            }
            Some(Op::Address { base, terms, .. }) => {
                sum(&mut [*base].into_iter().chain(terms.iter().map(|&(index, _)| index)))
            }
            Some(&Op::Binary(BinaryOp::Add | BinaryOp::Sub, a, b)) => sum(&mut [a, b].into_iter()),
            Some(&Op::Binary(BinaryOp::Mul, a, b)) => match (shape(a), shape(b)) {
                (Shape::Strided { .. }, Shape::Uniform)
                | (Shape::Uniform, Shape::Strided { .. }) => true,
                (Shape::Varying, Shape::Uniform) => next(a),
                (Shape::Uniform, Shape::Varying) => next(b),
                _ => false,
            },
            _ => false,
        }
    }

    /// Whether a block may run once more: it changes nothing.
    fn only_tests(&self, block: BlockId) -> bool {
        self.function.blocks[block].insts.iter().all(|inst| inst.op.is_pure())
    }

    /// The blocks to which all paths lead through one.
    fn behind(&self, first: BlockId) -> Vec<BlockId> {
        let ids = self.function.blocks.ids();
        ids.filter(|&id| self.dominators.dominates(first, id)).collect()
    }

    /// Whether accesses that all items of a block do are faster without a mask: those to rows of items,
    /// those to neighbouring numbers of one or two bytes, for which only the newest processors have masks, or to such
    /// numbers as far apart as an argument says, and in little code all others of global memory.
    fn gains(&self, first: BlockId) -> bool {
        let leader = &self.way.flow.leader;
        let together = |id: &BlockId| leader[id.index()] == leader[first.index()];
        let mut bytes: HashMap<i64, u64> = HashMap::new();
        let behind = self.behind(first);
        let few = behind.iter().map(|&id| self.function.blocks[id].insts.len()).sum::<usize>()
            <= MAX_IN_LINE;
        let blocks: Vec<BlockId> = behind.into_iter().filter(together).collect();
        if strips::gains(self.module, self.function, self.way, &blocks) {
            return true;
        }
        for inst in blocks.iter().flat_map(|&id| &self.function.blocks[id].insts) {
            let (at, ty, access) = match (&inst.op, inst.result) {
                (&Op::Load(at, access), Some(result)) => {
                    (at, self.function.values[result].ty, access)
                }
                (&Op::Store(at, value, access), _) => {
                    (at, self.module.operand_type(self.function, value), access)
                }
                _ => continue,
            };
            let size = self.module.types.size(ty);
            if access.volatile || self.way.shapes.is_own(at) {
                continue;
            }
            let is_small = self.module.types.scalar_bits(ty) <= SMALL;
            let Shape::Strided { step, .. } = self.shape(at) else {
                if is_small && self.is_apart_by_argument(at, 0) {
                    return true;
                }
                continue;
            };
            if step > 0 && step.unsigned_abs() > size && is_line(&inst.op, step) {
                return true;
            }
            if step.unsigned_abs() > size {
                *bytes.entry(step).or_default() += size;
            } else if is_small || few && self.is_global(at) {
                return true;
            }
        }
        bytes.into_iter().any(|(step, bytes)| bytes >= ROW.min(step.unsigned_abs()))
    }
}

/// Whether elements so many bytes apart are loaded with what lies between them
/// ([`transpose`](super::transpose)).
fn is_line(op: &Op, step: i64) -> bool {
    matches!(op, Op::Load(..)) && step.unsigned_abs() <= ROW
}

/// Copies what is behind the tests, and leads the items there if all pass all of them.
fn copy(module: &Module, function: &mut Function, plan: &Plan) {
    let first = plan.tests[0];
    let bool = module.operand_type(function, first.condition);
    // The masked way begins with a block of its own.
    let terminator = function.blocks[first.block].terminator.clone();
    let loc = function.blocks[first.block].loc;
    let masked = function.blocks.push(Block { insts: Vec::new(), terminator, loc });
    for next in [first.inside, first.outside] {
        function.blocks[next].redirect_phis(first.block, masked);
    }
    let (places, names) = function.copies_of(&plan.behind);
    let named = |operand: Operand| match operand {
        Operand::Value(value) => Operand::Value(names.get(&value).copied().unwrap_or(value)),
        constant => constant,
    };
    for &id in &plan.behind {
        let mut block = function.blocks[id].clone();
        for inst in &mut block.insts {
            inst.op.for_each_operand_mut(|operand| *operand = named(*operand));
            if let Op::Phi(arms) = &mut inst.op {
                let from = |id: BlockId| match places.get(&id) {
                    _ if id == masked => first.block,
                    Some(&place) => place,
                    None => id,
                };
                arms.iter_mut().for_each(|arm| arm.0 = from(arm.0));
            }
            inst.result = inst.result.map(|result| names[&result]);
        }
        block.terminator.for_each_operand_mut(|operand| *operand = named(*operand));
        let here = places[&id];
        if !plan.tests.iter().any(|test| test.block == id) {
            let mut outside = Vec::new();
            block.terminator.for_each_successor_mut(|next| match places.get(next) {
                Some(&place) => *next = place,
                None => outside.push(*next),
            });
            outside.sort();
            outside.dedup();
            for next in outside {
                for inst in &mut function.blocks[next].insts {
                    let Op::Phi(arms) = &mut inst.op else { break };
                    let arm = arms.iter().find(|arm| arm.0 == id).map(|arm| (here, named(arm.1)));
                    arms.extend(arm);
                }
            }
        }
        function.blocks[here] = block;
    }
    for test in &plan.tests {
        let block = places.get(&test.block).copied().unwrap_or(test.block);
        let mut condition = named(test.condition);
        let loc = function.blocks[block].loc;
        let mut add = |op: Op| {
            let result = function.new_value(bool);
            let flags = Flags::empty();
            function.blocks[block].insts.push(Inst { result: Some(result), op, flags, loc });
            Operand::Value(result)
        };
        if !test.when {
            condition = add(Op::Unary(UnaryOp::Not, condition));
        }
        let whole = add(Op::Whole(condition));
        function.blocks[block].terminator =
            Terminator::CondBranch(whole, places[&test.inside], masked);
    }
}
