// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unrolls loops whose number of iterations is known.
//!
//! ```text
//!   for (i = 0; i < 3; i++)          a[0] = x;
//!     a[i] = x + i;           ──▶    a[1] = x + 1;
//!                                    a[2] = x + 2;
//! ```
//!
//! LLVM unrolls loops too, but only after widening. So this pass unrolls those alone that something
//! before widening gains by: where the index of a private array or of a constant table becomes
//! constant, or the argument of a mathematical function does. Then `registers` makes values of the
//! array's elements, and `simplify` constants of the table's, and of what the function gives. A loop with
//! one turn (a number of rows for each item that is 1) is always replaced by its body: what moves from
//! turn to turn has no known bounds, and is computed from ids alone then.
//!
//! A loop qualifies if it has one exit, which each of its iterations passes, and no items wait for each
//! other in it. The exit's condition is evaluated for one iteration after the other, so any form of
//! counting works.

use std::collections::HashMap;

use super::blocks::remove_unreachable;
use super::cost::{
    MAX_ELEMENTS_BYTES, MAX_SHORT, MAX_SHORT_TURNS, MAX_TURNS, MAX_UNROLLED, MAX_UNROLLED_BLOCKS,
    MAX_UNROLLED_IN_ALL,
};
use super::simplify;
use crate::ir::eval::apply;
use crate::ir::{
    AddressSpace, BinaryOp, Block, BlockId, ConstId, ConstKind, ConvertOp, Definition, Dominators,
    Function, Id, Inst, Loop, Loops, Module, Op, Operand, Terminator, Type, TypeId, ValueId,
    WorkItemQuery, definitions,
};
use crate::regions::stop_scope;

/// Unrolls the loops of a function whose blocks can all be reached.
pub(super) fn run(module: &mut Module, function: &mut Function) {
    let mut room = MAX_UNROLLED_IN_ALL;
    while let Some(weight) = unroll_one(module, function, room.min(MAX_UNROLLED)) {
        room -= weight;
        // The bounds of an outer or inner loop may be constant now.
        simplify::run(module, function);
    }
}

/// Unrolls the first loop that qualifies, inner ones first. Returns the number of its instructions
/// after that.
fn unroll_one(module: &mut Module, function: &mut Function, limit: usize) -> Option<usize> {
    let predecessors = function.predecessors();
    let dominators = Dominators::of(function, &predecessors);
    let loops = Loops::of(&dominators, &predecessors);
    for index in (0..loops.all.len()).rev() {
        let Some(plan) = Plan::of(function, &loops, index, &predecessors, &dominators) else {
            continue;
        };
        let mut turns = Turns::new(module, function, &loops, &plan);
        let Some(count) = turns.count() else { continue };
        let weight = count * turns.weight();
        let is_short = weight <= MAX_SHORT
            && count <= MAX_SHORT_TURNS
            && plan.is_innermost(&loops, index)
            && plan.is_plain(function);
        let is_simple = plan.it.blocks.len() <= MAX_UNROLLED_BLOCKS;
        let gains = is_simple && (is_short || turns.fixes_something());
        if weight <= limit && (gains || plan.runs_once(count)) {
            unroll(function, &plan, count);
            return Some(weight.max(1));
        }
    }
    None
}

/// A loop of the form that is unrolled.
struct Plan<'a> {
    it: &'a Loop,
    /// The one block from which it is entered.
    entry: BlockId,
    latch: BlockId,
    /// The one block from which it is left, and the two targets of its branch.
    last: BlockId,
    stay: BlockId,
    leave: BlockId,
}

impl<'a> Plan<'a> {
    fn of(
        function: &Function,
        loops: &'a Loops,
        index: usize,
        predecessors: &[Vec<BlockId>],
        dominators: &Dominators,
    ) -> Option<Self> {
        let it = &loops.all[index];
        let &[latch] = it.latches.as_slice() else { return None };
        let mut before = predecessors[it.header.index()].iter().filter(|&&from| from != latch);
        let (Some(&entry), None) = (before.next(), before.next()) else { return None };
        let inside = |block: BlockId| loops.contains(index, block);
        let leaves = |&&id: &&BlockId| {
            function.blocks[id].terminator.successors().into_iter().any(|next| !inside(next))
        };
        let mut exits = it.blocks.iter().filter(leaves);
        let (Some(&last), None) = (exits.next(), exits.next()) else { return None };
        let Terminator::CondBranch(_, yes, no) = function.blocks[last].terminator else {
            return None;
        };
        let (stay, leave) = if inside(yes) { (yes, no) } else { (no, yes) };
        // Every iteration passes the exit, and no inner loop does.
        let every = dominators.dominates(last, latch) && loops.within[last.index()] == Some(index);
        let waits = |id: &BlockId| {
            function.blocks[*id].insts.iter().any(|inst| stop_scope(&inst.op).is_some())
        };
        let simple = inside(stay) && every && !it.blocks.iter().any(waits);
        simple.then_some(Self { it, entry, latch, last, stay, leave })
    }

    /// Whether there is no loop within this one, of that number.
    fn is_innermost(&self, loops: &Loops, index: usize) -> bool {
        self.it.blocks.iter().all(|block| loops.within[block.index()] == Some(index))
    }

    /// Whether it only computes, loads and stores. Atomic updates are loops over the items of a mask once widened: the
    /// benchmark's histogram, with 16 turns, took 1.4 times as long unrolled.
    fn is_plain(&self, function: &Function) -> bool {
        let insts = self.it.blocks.iter().flat_map(|&block| &function.blocks[block].insts);
        insts.into_iter().all(|inst| {
            let other =
                matches!(inst.op, Op::Phi(_) | Op::Load(..) | Op::Store(..) | Op::Assume(_));
            other || inst.op.is_pure()
        })
    }

    /// Whether no block runs twice, but the test in front of the body, if the exit is passed so often.
    fn runs_once(&self, count: usize) -> bool {
        let in_front = self.last == self.it.header && self.last != self.latch;
        count == 1 || (count == 2 && in_front)
    }
}

/// The values of a loop that are constant in each of its iterations.
struct Turns<'a> {
    module: &'a mut Module,
    function: &'a Function,
    loops: &'a Loops,
    plan: &'a Plan<'a>,
    definitions: Vec<Option<Definition>>,
    /// The constant values in the current iteration; `None` for values that are not constant.
    known: HashMap<ValueId, Option<ConstId>>,
    /// The header's phis that were constant in all iterations.
    counters: Vec<ValueId>,
}

impl<'a> Turns<'a> {
    fn new(
        module: &'a mut Module,
        function: &'a Function,
        loops: &'a Loops,
        plan: &'a Plan<'a>,
    ) -> Self {
        let definitions = definitions(function);
        let (known, counters) = Default::default();
        Self { module, function, loops, plan, definitions, known, counters }
    }

    /// The number of times that the loop's exit is passed; `None` if that is not known, or too large.
    fn count(&mut self) -> Option<usize> {
        let function = self.function;
        let Terminator::CondBranch(condition, yes, _) = function.blocks[self.plan.last].terminator
        else {
            return None;
        };
        let header = &function.blocks[self.plan.it.header];
        let arm = |inst: &Inst, from: BlockId| match (&inst.op, inst.result) {
            (Op::Phi(arms), Some(result)) => {
                Some((result, arms.iter().find(|arm| arm.0 == from)?.1))
            }
            _ => None,
        };
        let starts = header.phis().filter_map(|inst| arm(inst, self.plan.entry));
        self.known = starts
            .map(|(phi, start)| match start {
                Operand::Const(id) => (phi, Some(id)),
                Operand::Value(_) => (phi, None),
            })
            .collect();
        for turn in 1..=MAX_TURNS {
            let condition = self.constant(condition, 0)?;
            let holds = self.module.const_bits(condition)? != 0;
            if holds != (yes == self.plan.stay) {
                let phis = header.phis().filter_map(|inst| inst.result);
                self.counters =
                    phis.filter(|phi| matches!(self.known.get(phi), Some(Some(_)))).collect();
                return Some(turn);
            }
            let steps = header.phis().filter_map(|inst| arm(inst, self.plan.latch));
            let next: Vec<_> = steps
                .map(|(phi, step)| {
                    // A phi that was not constant once does not become constant later.
                    let was = matches!(self.known.get(&phi), Some(Some(_)));
                    (phi, if was { self.constant(step, 0) } else { None })
                })
                .collect();
            self.known = next.into_iter().collect();
        }
        None
    }

    /// The constant value of an operand in this iteration.
    fn constant(&mut self, operand: Operand, depth: usize) -> Option<ConstId> {
        let value = match operand {
            Operand::Const(id) => return Some(id),
            Operand::Value(value) => value,
        };
        if let Some(&known) = self.known.get(&value) {
            return known;
        }
        let inst = self.made(value)?;
        let mut operands = Vec::new();
        inst.op.for_each_operand(|operand| operands.push(operand));
        let constant = match &inst.op {
            Op::Phi(_) => None,
            _ if depth > MAX_DEPTH || operands.is_empty() => None,
            op => {
                let ty = self.function.values[value].ty;
                let constants = operands.into_iter().map(|it| self.constant(it, depth + 1));
                let constants: Option<Vec<_>> = constants.collect();
                constants.and_then(|constants| apply(self.module, op, ty, &constants))
            }
        };
        self.known.insert(value, constant);
        constant
    }

    /// The instruction that defines a value.
    fn made(&self, value: ValueId) -> Option<&'a Inst> {
        match self.definitions[value.index()]? {
            Definition::Inst(block, index) => Some(&self.function.blocks[block].insts[index]),
            Definition::Entry => None,
        }
    }

    /// The number of instructions of an iteration that are not constant.
    fn weight(&mut self) -> usize {
        let function = self.function;
        let blocks = self.plan.it.blocks.iter().map(|&id| &function.blocks[id]);
        let stays = |inst: &&Inst| {
            let constant = inst.result.and_then(|it| self.constant(Operand::Value(it), 0));
            constant.is_none() && !matches!(inst.op, Op::Phi(_))
        };
        blocks.flat_map(|block| &block.insts).filter(stays).count()
    }

    /// Whether an access to a private array or a constant table has an index that counts the turns, or a
    /// mathematical function has an argument that does, or a float is made of what does, so that it is constant
    /// if this loop is unrolled and those around it are.
    fn fixes_something(&self) -> bool {
        let function = self.function;
        let mut insts = self.plan.it.blocks.iter().flat_map(|&id| &function.blocks[id].insts);
        insts.any(|inst| match &inst.op {
            Op::Load(at, _) => {
                let ty = inst.result.map(|result| function.values[result].ty);
                self.is_fixed(*at) || ty.is_some_and(|ty| self.walks_a_row(*at, ty))
            }
            Op::Store(at, value, _) => {
                let ty = self.module.operand_type(function, *value);
                self.is_fixed(*at) || self.walks_a_row(*at, ty)
            }
            Op::Copy(to, from, ..) => self.is_fixed(*to) || self.is_fixed(*from),
            Op::Math(_, args) => {
                let mut all = args.iter().map(|&arg| self.counts(arg, 0));
                all.try_fold(false, |any, it| Some(any | it?)) == Some(true)
            }
            // Conversions of scalars, and copies of their results into vectors, take as long as the arithmetic.
            Op::Convert(ConvertOp::SToF | ConvertOp::UToF, a) => self.counts(*a, 0) == Some(true),
            // Places in a window, which a counter of its elements is taken apart into.
            Op::Binary(
                BinaryOp::UDiv | BinaryOp::URem | BinaryOp::SDiv | BinaryOp::SRem,
                a,
                Operand::Const(_),
            ) => self.counts(*a, 0) == Some(true),
            _ => false,
        })
    }

    /// Whether an address is that of the next element of an item's row in each turn, where the items' rows
    /// lie a known number of bytes apart. Widening transposes such rows.
    fn walks_a_row(&self, at: Operand, ty: TypeId) -> bool {
        let (mut at, mut turn, mut item) = (at, 0i64, 0i64);
        if !matches!(self.module.types[ty], Type::Int(_) | Type::Float(_)) {
            return false;
        }
        while let Operand::Value(value) = at
            && let Some(inst) = self.made(value)
        {
            at = match &inst.op {
                Op::Address { base, terms, .. } => {
                    for &(index, by) in terms {
                        let Some((turns, items)) = self.steps(index, 0) else { return false };
                        turn = turn.wrapping_add(turns.wrapping_mul(by));
                        item = item.wrapping_add(items.wrapping_mul(by));
                    }
                    *base
                }
                Op::Convert(_, base) => *base,
                _ => return false,
            };
        }
        let size = self.module.types.size(ty) as i64;
        turn == size && item.unsigned_abs() >= LEAST_ROW
    }

    /// The amount by which an integer grows from turn to turn and from item to item, as far as additions and
    /// multiplications with constants tell.
    fn steps(&self, operand: Operand, depth: usize) -> Option<(i64, i64)> {
        let Operand::Value(value) = operand else { return Some((0, 0)) };
        if self.counters.contains(&value) {
            return Some((1, 0));
        }
        let Some(inst) = self.made(value) else { return Some((0, 0)) };
        if depth > MAX_DEPTH {
            return None;
        }
        let constant = |operand: Operand| match operand {
            Operand::Const(id) => self.module.const_bits(id).map(|bits| bits as i64),
            Operand::Value(_) => None,
        };
        let steps = |operand| self.steps(operand, depth + 1);
        match &inst.op {
            Op::WorkItem(WorkItemQuery::GlobalId | WorkItemQuery::LocalId, 0) => Some((0, 1)),
            Op::WorkItem(..) => Some((0, 0)),
            Op::Phi(_) => match self.definitions[value.index()] {
                Some(Definition::Inst(block, _)) if !self.plan.it.blocks.contains(&block) => {
                    Some((0, 0))
                }
                _ => None,
            },
            Op::Convert(ConvertOp::SExt | ConvertOp::ZExt | ConvertOp::Trunc, a) => steps(*a),
            // Extensions in other forms.
            Op::Binary(BinaryOp::AShr, a, b) => {
                let ((turn, item), right) = (steps(*a)?, u32::try_from(constant(*b)?).ok()?);
                Some((turn.checked_shr(right)?, item.checked_shr(right)?))
            }
            Op::Binary(BinaryOp::And, a, b) if constant(*b) == Some(i64::from(u32::MAX)) => {
                steps(*a)
            }
            // The bits of an index that counts are below those of the rows.
            Op::Binary(BinaryOp::Add | BinaryOp::Or, a, b) => {
                let ((turn, item), (more, others)) = (steps(*a)?, steps(*b)?);
                Some((turn.wrapping_add(more), item.wrapping_add(others)))
            }
            Op::Binary(BinaryOp::Sub, a, b) => {
                let ((turn, item), (less, others)) = (steps(*a)?, steps(*b)?);
                Some((turn.wrapping_sub(less), item.wrapping_sub(others)))
            }
            Op::Binary(op @ (BinaryOp::Mul | BinaryOp::Shl), a, b) => {
                let (turn, item) = steps(*a)?;
                if (turn, item) == (0, 0) && steps(*b)? == (0, 0) {
                    return Some((0, 0));
                }
                let by = constant(*b)?;
                let by = match op {
                    BinaryOp::Mul => by,
                    _ => 1i64.checked_shl(by.try_into().ok()?)?,
                };
                Some((turn.wrapping_mul(by), item.wrapping_mul(by)))
            }
            _ => None,
        }
    }

    /// Whether an address is that of an element whose index depends on the iteration.
    fn is_fixed(&self, mut at: Operand) -> bool {
        let mut counts = false;
        loop {
            let value = match at {
                Operand::Const(id) => return counts && self.is_table(id),
                Operand::Value(value) => value,
            };
            if let Some(inst) = self.made(value) {
                at = match &inst.op {
                    Op::Address { base, terms, .. } => {
                        let mut all = terms.iter().map(|&(index, _)| self.counts(index, 0));
                        let Some(any) = all.try_fold(false, |any, it| Some(any | it?)) else {
                            return false;
                        };
                        counts |= any;
                        *base
                    }
                    Op::Convert(_, base) => *base,
                    _ => return false,
                };
                continue;
            }
            let mut variables = self.function.variables.iter();
            let small = variables.any(|it| it.address == value && it.size <= MAX_ELEMENTS_BYTES);
            return counts && small;
        }
    }

    /// Whether a constant is the address of a table that never changes.
    fn is_table(&self, id: ConstId) -> bool {
        match self.module.constants[id].kind {
            ConstKind::Address(global, _) => {
                let global = &self.module.globals[global];
                global.space == AddressSpace::Constant && global.init.is_some()
            }
            _ => false,
        }
    }

    /// Whether an operand depends on the iteration of this loop; `None` if it depends on anything
    /// besides the iterations of this loop and of others.
    fn counts(&self, operand: Operand, depth: usize) -> Option<bool> {
        let Operand::Value(value) = operand else { return Some(false) };
        if self.counters.contains(&value) {
            return Some(true);
        }
        let inst = self.made(value)?;
        match &inst.op {
            Op::Phi(arms) => {
                let Some(Definition::Inst(block, _)) = self.definitions[value.index()] else {
                    return None;
                };
                let heads = self.loops.all.iter().any(|it| it.header == block);
                let starts = arms.iter().any(|arm| matches!(arm.1, Operand::Const(_)));
                (heads && starts && block != self.plan.it.header).then_some(false)
            }
            Op::Unary(..)
            | Op::Binary(..)
            | Op::Ternary(..)
            | Op::Convert(..)
            | Op::Select(..)
            | Op::Compare(..)
                if depth <= MAX_DEPTH =>
            {
                let mut any = Some(false);
                inst.op.for_each_operand(|operand| {
                    any = any.and_then(|any| Some(any | self.counts(operand, depth + 1)?));
                });
                any
            }
            _ => None,
        }
    }
}

/// Items' rows that are closer to each other, in bytes, are not transposed.
const LEAST_ROW: u64 = 16;

/// The maximum depth of a value's computation.
const MAX_DEPTH: usize = 16;

/// Replaces a loop by `count` copies of it. The exit of the last one is taken, that of no other.
fn unroll(function: &mut Function, plan: &Plan<'_>, count: usize) {
    let before = function.blocks.len();
    let place: HashMap<BlockId, usize> =
        plan.it.blocks.iter().enumerate().map(|(place, &id)| (id, place)).collect();
    let copies: Vec<Vec<BlockId>> = (0..count)
        .map(|_| {
            let empty = |id: &BlockId| Block {
                insts: Vec::new(),
                terminator: Terminator::Unreachable,
                loc: function.blocks[*id].loc,
            };
            let blocks: Vec<Block> = plan.it.blocks.iter().map(empty).collect();
            blocks.into_iter().map(|block| function.blocks.push(block)).collect()
        })
        .collect();
    let head = place[&plan.it.header];
    // The operands that replace the loop's values in the current copy.
    let mut names: HashMap<ValueId, Operand> = HashMap::new();
    for turn in 0..count {
        let from = if turn == 0 { plan.entry } else { plan.latch };
        names = names_of_turn(function, plan, from, &names);
        let rename = |operand: &mut Operand| {
            if let Operand::Value(value) = operand
                && let Some(&name) = names.get(value)
            {
                *operand = name;
            }
        };
        for (&id, &copy) in plan.it.blocks.iter().zip(&copies[turn]) {
            let Block { insts, terminator, loc } = &function.blocks[id];
            let (mut insts, mut terminator, loc) = (insts.clone(), terminator.clone(), *loc);
            if id == plan.it.header {
                insts.retain(|inst| !matches!(inst.op, Op::Phi(_)));
            }
            for inst in &mut insts {
                inst.op.for_each_operand_mut(rename);
                if let Op::Phi(arms) = &mut inst.op {
                    arms.iter_mut().for_each(|arm| arm.0 = copies[turn][place[&arm.0]]);
                }
                if let Some(Operand::Value(name)) =
                    inst.result.and_then(|it| names.get(&it).copied())
                {
                    inst.result = Some(name);
                }
            }
            terminator.for_each_operand_mut(rename);
            if id == plan.last {
                let to = if turn + 1 == count { plan.leave } else { plan.stay };
                terminator = Terminator::Branch(to);
            }
            terminator.for_each_successor_mut(|next| {
                // The latch of the last copy cannot be reached.
                let turn = if *next == plan.it.header { (turn + 1).min(count - 1) } else { turn };
                if let Some(&place) = place.get(next) {
                    *next = copies[turn][place];
                }
            });
            function.blocks[copy] = Block { insts, terminator, loc };
        }
    }
    // The code behind the loop uses the values of the last iteration.
    let last = copies[count - 1][place[&plan.last]];
    for id in (0..before).map(BlockId::from_index).filter(|id| !place.contains_key(id)) {
        let block = &mut function.blocks[id];
        let rename = |operand: &mut Operand| {
            if let Operand::Value(value) = operand
                && let Some(&name) = names.get(value)
            {
                *operand = name;
            }
        };
        for inst in &mut block.insts {
            inst.op.for_each_operand_mut(rename);
            if let Op::Phi(arms) = &mut inst.op {
                let left = arms.iter_mut().filter(|arm| arm.0 == plan.last);
                left.for_each(|arm| arm.0 = last);
            }
        }
        block.terminator.for_each_operand_mut(rename);
    }
    function.blocks[plan.entry].terminator.for_each_successor_mut(|next| {
        if *next == plan.it.header {
            *next = copies[0][head];
        }
    });
    remove_unreachable(function);
}

/// The operands that replace the values of a loop in a copy that is entered from a block: for the
/// header's phis the values that arrive from there, renamed for the previous copy, and for all others a
/// new value.
fn names_of_turn(
    function: &mut Function,
    plan: &Plan<'_>,
    from: BlockId,
    before: &HashMap<ValueId, Operand>,
) -> HashMap<ValueId, Operand> {
    let mut names = HashMap::new();
    for &id in &plan.it.blocks {
        for index in 0..function.blocks[id].insts.len() {
            let inst = &function.blocks[id].insts[index];
            let Some(result) = inst.result else { continue };
            let name = match &inst.op {
                Op::Phi(arms) if id == plan.it.header => {
                    let arm = arms.iter().find(|arm| arm.0 == from).map(|arm| arm.1);
                    match arm {
                        Some(Operand::Value(value)) => {
                            before.get(&value).copied().unwrap_or(Operand::Value(value))
                        }
                        Some(constant) => constant,
                        // A phi has an arm for each predecessor.
                        None => Operand::Value(result),
                    }
                }
                _ => Operand::Value(function.values.push(function.values[result].clone())),
            };
            names.insert(result, name);
        }
    }
    names
}
