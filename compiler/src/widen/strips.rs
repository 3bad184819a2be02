// SPDX-License-Identifier: MIT OR Apache-2.0
//! Strips of rows: loops in which each item walks along a row of its own, several turns at a time.
//!
//! ```text
//!                                for (; at least 4 turns are left; k += 4)
//!   for (; k < n; k++)             x0 = a[k]; x1 = a[k + 1]; x2 = a[k + 2]; x3 = a[k + 3];
//!     s += a[k] * b[k];    ──▶     s += x0 * b[k]; s += x1 * b[k + 1]; ...
//!                                for (; k < n; k++)
//!                                  s += a[k] * b[k];
//! ```
//!
//! A loop may have branches: what each turn accesses once, whatever they are, moves. If an access depends on a condition on
//! the loop's counter, the loop is taken apart first ([`splits`]).
//!
//! The number of turns and the places of the rows may be anything, as long as all items take the same turns.
//! What is loaded, or stored, in 16 neighbouring bytes of each item's row is then [`transpose`](super::transpose)d.
//!
//! Loads of rows move to the front of a strip, stores to its end. Whether that exchanges accesses to one place is
//! known from their addresses, or tested before each strip: then the loop goes on as before. Of one item's
//! accesses only, since those of two are not in order.

pub(super) mod counts;
pub(super) mod ragged;
pub(super) mod splits;
mod write;

use std::collections::{HashMap, HashSet};

pub(super) use self::write::{Names, named};
use self::write::{Writer, Written};
use super::flow::Flow;
use super::shape::Shape;
use super::steps::is_near;
use super::way::Way;
use crate::ir::arena::Id;
use crate::ir::{
    AddressSpace, BinaryOp, BlockId, CompareOp, ConvertOp, ENTRY, Flags, Function, Inst, Module,
    Op, Operand, Terminator, Type, ValueId,
};
use crate::optimise::cost::{MAX_STRIP, MAX_STRIP_BLOCKS, MAX_STRIP_TESTS};
use crate::optimise::is_skipped;

/// The name by which it is left out.
const NAME: &str = "strips";

/// The bytes of a row that are accessed as one.
const CHUNK: u64 = 16;

/// The bytes of a row that a strip has whose turns are items: a cache line, which is accessed once then.
const LINE: i64 = 64;

/// The longest way from an address back to what it is computed from.
const MAX_DEPTH: usize = 16;

/// Takes the turns of the loops of a function in strips where no item is masked off. If there are some, the
/// addresses in their rows.
pub(super) fn run(module: &mut Module, function: &mut Function, way: &Way) -> Option<Vec<ValueId>> {
    let mut plans = plans(module, function, way);
    plans.retain(|plan| way.flow.leader[plan.body.header.index()] == ENTRY);
    let mut rows = (!plans.is_empty()).then(Vec::new);
    let mut plans = plans.into_iter();
    while let Some(plan) = plans.next() {
        let written = Writer::new(module, function, &plan).write();
        rows.iter_mut().for_each(|rows| rows.extend_from_slice(&written.rows));
        plans.as_mut_slice().iter_mut().for_each(|later| later.follow(&plan, &written));
    }
    rows
}

/// Takes the loop that a block begins in strips, if each of its turns is an item of its own ([`tiles`](super::tiles)).
pub(super) fn take_tile(
    module: &mut Module,
    function: &mut Function,
    way: &Way,
    header: BlockId,
    (promised, turns): (&[ValueId], u32),
) -> Option<Vec<ValueId>> {
    let plan = Plan::of(module, function, way, header, Turns::Items(promised, turns))?;
    Some(Writer::new(module, function, &plan).write().rows)
}

/// The accesses to rows in such a loop, by their blocks and their places in those.
pub(super) fn rows_of_tile(
    module: &Module,
    function: &Function,
    way: &Way,
    header: BlockId,
    (promised, turns): (&[ValueId], u32),
) -> HashSet<(BlockId, usize)> {
    let plan = Plan::of(module, function, way, header, Turns::Items(promised, turns));
    plan.iter().flat_map(Plan::rows).collect()
}

/// Whether one of some blocks begins a loop that would be taken in strips if it had no mask.
pub(super) fn gains(module: &Module, function: &Function, way: &Way, blocks: &[BlockId]) -> bool {
    blocks.iter().any(|&block| Plan::of(module, function, way, block, Turns::OfItem).is_some())
}

/// The accesses to rows that would be taken in strips if they had no mask, by their blocks and their places in those.
pub(super) fn rows(module: &Module, function: &Function, way: &Way) -> HashSet<(BlockId, usize)> {
    plans(module, function, way).iter().flat_map(Plan::rows).collect()
}

/// The blocks of loops that are taken in strips, but for those that begin one.
pub(super) fn inner(module: &Module, function: &Function, way: &Way) -> HashSet<BlockId> {
    let plans = plans(module, function, way).into_iter();
    let taken = plans.filter(|plan| way.flow.leader[plan.body.header.index()] == ENTRY);
    let others = |plan: Plan| {
        let Body { blocks, header, .. } = plan.body;
        blocks.into_iter().filter(move |&id| id != header)
    };
    taken.flat_map(others).collect()
}

/// By how many bytes the addresses of loads and stores move in each turn of the loop that a block begins, as far as that is
/// known. Of loops with one way in and one out, at their end.
pub(super) fn moves(
    module: &Module,
    function: &Function,
    way: &Way,
    header: BlockId,
) -> HashMap<ValueId, i64> {
    let Some(body) = Body::of(function, &way.flow, header) else { return HashMap::new() };
    let lines = Lines::new(module, function, way.shapes.promised(), &body);
    let insts = body.insts(function).filter_map(|(_, inst)| match inst.op {
        Op::Load(at @ Operand::Value(value), _) | Op::Store(at @ Operand::Value(value), ..) => {
            Some((value, lines.step(at, 0)?))
        }
        _ => None,
    });
    insts.collect()
}

/// All loops that would be taken in strips if they had no mask: of those within each other, the inner ones.
fn plans(module: &Module, function: &Function, way: &Way) -> Vec<Plan> {
    let headers = way.flow.loops.iter().map(|it| it.header);
    let mut plans: Vec<Plan> = headers
        .filter_map(|header| Plan::of(module, function, way, header, Turns::OfItem))
        .collect();
    plans.sort_by_key(|plan| plan.body.header);
    let headers: Vec<BlockId> = plans.iter().map(|plan| plan.body.header).collect();
    plans.retain(|Plan { body, .. }| {
        !headers.iter().any(|header| *header != body.header && body.blocks.contains(header))
    });
    plans
}

/// An access in a loop.
#[derive(Clone, Copy)]
struct Walk {
    /// The instruction's place in the loop, and in its block.
    index: usize,
    place: (BlockId, usize),
    at: Operand,
    size: i64,
    is_store: bool,
    /// The bytes by which the address moves from turn to turn.
    step: Option<i64>,
    /// Whether it is to the items' own rows, which neighbouring turns access next to each other.
    is_row: bool,
}

/// A distance in bytes from one access's address to another's that must not lie between two numbers.
#[derive(Clone, Copy)]
struct Check {
    from: Walk,
    to: Walk,
    above: i64,
    below: i64,
}

/// The turns that are left.
#[derive(Clone, Copy)]
struct Test {
    /// What is compared in the first of the turns.
    number: Operand,
    bound: Operand,
    /// The loop goes on as long as this holds of the two.
    stays: CompareOp,
    /// By how much the number grows in a turn.
    step: i64,
}

/// A loop with one way in and one out, at its end.
struct Body {
    /// Its blocks, each behind those that lead to it in a turn.
    blocks: Vec<BlockId>,
    header: BlockId,
    latch: BlockId,
    entry: BlockId,
    after: BlockId,
    /// The condition at its end, and whether the loop goes on if it holds.
    condition: Operand,
    on: bool,
}

impl Body {
    fn of(function: &Function, flow: &Flow, header: BlockId) -> Option<Self> {
        let index = flow.within[header.index()].filter(|&it| flow.loops[it].header == header)?;
        let inside = |block: BlockId| flow.contains(index, block);
        let (back, before): (Vec<BlockId>, Vec<BlockId>) =
            flow.predecessors[header.index()].iter().partition(|&&from| inside(from));
        let (&[latch], &[entry]) = (back.as_slice(), before.as_slice()) else { return None };
        let &Terminator::CondBranch(condition, yes, no) = &function.blocks[latch].terminator else {
            return None;
        };
        let (after, on) = if yes == header { (no, true) } else { (yes, false) };
        let blocks: Vec<BlockId> = flow.blocks_of(index).collect();
        let leaves = |&id: &BlockId| {
            let next = function.blocks[id].terminator.successors();
            id != latch && (next.is_empty() || next.into_iter().any(|next| !inside(next)))
        };
        let one_way = !inside(after) && !blocks.iter().any(leaves);
        one_way.then_some(Self { blocks, header, latch, entry, after, condition, on })
    }

    /// The instructions in their order, with their blocks and their places in those.
    fn insts<'a>(
        &self,
        function: &'a Function,
    ) -> impl Iterator<Item = ((BlockId, usize), &'a Inst)> {
        let insts = move |&id| {
            let insts = function.blocks[id].insts.iter().enumerate();
            insts.map(move |(index, inst)| ((id, index), inst))
        };
        self.blocks.iter().flat_map(insts)
    }
}

/// What the turns of a loop are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turns<'a> {
    /// Turns of each item, one after the other.
    OfItem,
    /// Items, of which none waits for another one: nothing has to be known of where they access memory. The extensions
    /// of numbers that do not wrap around in any group, and the number of turns.
    Items(&'a [ValueId], u32),
}

impl Turns<'_> {
    /// How many turns have the elements of a strip.
    fn of_strip(self, element: i64) -> i64 {
        match self {
            Self::OfItem => CHUNK as i64 / element,
            Self::Items(_, all) => (LINE / element).min(i64::from(all)),
        }
    }

    /// Whether loads of rows may precede all other accesses of one item, and stores follow them, whatever the addresses
    /// are.
    fn keep_order(walks: &[Walk]) -> bool {
        let first = walks.iter().position(|walk| walk.is_store).unwrap_or(walks.len());
        let stores = &walks[first..];
        stores.iter().all(|walk| walk.is_store && walk.is_row == stores[0].is_row)
    }
}

/// A loop that is taken in strips.
struct Plan {
    body: Body,
    /// The turns of a strip.
    turns: i64,
    test: Test,
    /// By phi, the amount by which it grows in a turn.
    steps: HashMap<ValueId, i64>,
    walks: Vec<Walk>,
    checks: Vec<Check>,
}

impl Plan {
    /// A loop that begins with a block.
    fn of(
        module: &Module,
        function: &Function,
        way: &Way,
        header: BlockId,
        kind: Turns<'_>,
    ) -> Option<Self> {
        if is_skipped(NAME) {
            return None;
        }
        let body = Body::of(function, &way.flow, header)?;
        let promised = match kind {
            Turns::OfItem => way.shapes.promised(),
            Turns::Items(promised, _) => promised,
        };
        let mut lines = Lines::new(module, function, promised, &body);
        let test = lines.test_of_all(way, &body)?;
        // Whether each turn passes a block, and passes it once.
        let here = way.flow.within[header.index()];
        let once = |block: BlockId| {
            way.flow.within[block.index()] == here && way.flow.dominates(block, body.latch)
        };
        let mut walks = Vec::new();
        for (index, (place, inst)) in body.insts(function).enumerate() {
            if matches!(inst.op, Op::Phi(_) | Op::Assume(_)) || inst.op.is_pure() {
                continue;
            }
            let mut walk = lines.walk(way, index, place, inst)?;
            walk.is_row &= once(place.0);
            walks.push(walk);
        }
        let insts = body.insts(function).count();
        let fits = |walks: &[Walk]| {
            let rows = walks.iter().filter(|walk| walk.is_row);
            let turns = rows.map(|walk| kind.of_strip(walk.size)).max()?;
            if lines.turns(&test).is_some_and(|all| all < turns) {
                return None;
            }
            let few = turns as usize * insts <= MAX_STRIP
                && turns as usize * (body.blocks.len() - 1) <= MAX_STRIP_BLOCKS;
            let checks = match kind {
                _ if !few => return None,
                Turns::OfItem => lines.checks(walks, turns)?,
                Turns::Items(..) => Turns::keep_order(walks).then(Vec::new)?,
            };
            Some((turns, checks))
        };
        let (turns, checks) = fits(&walks).or_else(|| {
            // Where a branch accesses what may be anywhere, stores stay in their places.
            walks.iter_mut().filter(|walk| walk.is_store).for_each(|walk| walk.is_row = false);
            (body.blocks.len() > 1).then(|| fits(&walks)).flatten()
        })?;
        let steps = lines.steps;
        Some(Self { body, turns, test, steps, walks, checks })
    }

    /// What has become of another loop in front of this one, or behind it.
    fn follow(&mut self, other: &Plan, written: &Written) {
        if self.body.entry == other.body.latch {
            self.body.entry = written.behind;
        }
        if self.body.after == other.body.header {
            self.body.after = written.front;
        }
        let walked = self.walks.iter_mut().map(|walk| &mut walk.at);
        let checked = self.checks.iter_mut().flat_map(|it| [&mut it.from.at, &mut it.to.at]);
        for operand in walked.chain(checked).chain([&mut self.test.number, &mut self.test.bound]) {
            if let Operand::Value(value) = *operand
                && let Some(&name) = written.names.get(&value)
            {
                *operand = Operand::Value(name);
            }
        }
    }

    /// The accesses to rows, by their blocks and their places in those.
    fn rows(&self) -> impl Iterator<Item = (BlockId, usize)> {
        self.walks.iter().filter(|walk| walk.is_row).map(|walk| walk.place)
    }

    /// The access that is made by an instruction, by its place.
    fn walk(&self, index: usize) -> Option<&Walk> {
        self.walks.iter().find(|walk| walk.index == index)
    }
}

/// What is known of the values of a loop.
struct Lines<'a> {
    module: &'a Module,
    function: &'a Function,
    header: BlockId,
    latch: BlockId,
    /// The extensions of numbers that do not wrap around in any group that runs this.
    promised: &'a [ValueId],
    /// The loop's instructions, by result.
    own: HashMap<ValueId, &'a Inst>,
    steps: HashMap<ValueId, i64>,
    tested: Option<Test>,
}

impl<'a> Lines<'a> {
    fn new(
        module: &'a Module,
        function: &'a Function,
        promised: &'a [ValueId],
        body: &Body,
    ) -> Self {
        let Body { header, latch, .. } = *body;
        let own = body.insts(function).filter_map(|(_, inst)| Some((inst.result?, inst))).collect();
        let (steps, tested) = Default::default();
        let mut lines = Self { module, function, header, latch, promised, own, steps, tested };
        for inst in function.blocks[header].phis() {
            if let (Op::Phi(arms), Some(phi)) = (&inst.op, inst.result)
                && let Some(step) = lines.step_of_phi(phi, arms)
                && is_near(step)
            {
                lines.steps.insert(phi, step);
            }
        }
        lines
    }

    fn made(&self, operand: Operand) -> Option<&'a Inst> {
        let Operand::Value(value) = operand else { return None };
        self.own.get(&value).copied()
    }

    /// Whether an operand is a phi of the loop itself, not of one inside it.
    fn is_of_header(&self, operand: Operand) -> bool {
        let mut phis = self.function.blocks[self.header].phis();
        phis.any(|phi| phi.result.map(Operand::Value) == Some(operand))
    }

    /// By how much a phi grows in a turn, if it is a pointer or a number of 32 or 64 bits to which a constant
    /// is added.
    fn step_of_phi(&self, phi: ValueId, arms: &[(BlockId, Operand)]) -> Option<i64> {
        let next = self.made(arms.iter().find(|arm| arm.0 == self.latch)?.1)?;
        match &next.op {
            Op::Address { base, offset, terms, .. } if terms.is_empty() => {
                (*base == Operand::Value(phi)).then_some(*offset)
            }
            &Op::Binary(op @ (BinaryOp::Add | BinaryOp::Sub), a, b) => {
                let Type::Int(32 | 64) = self.module.types[self.function.values[phi].ty] else {
                    return None;
                };
                let by = self.constant(b).filter(|_| a == Operand::Value(phi))?;
                Some(if op == BinaryOp::Add { by } else { by.wrapping_neg() })
            }
            _ => None,
        }
    }

    /// A constant of 32 or 64 bits, with its sign.
    fn constant(&self, operand: Operand) -> Option<i64> {
        let Operand::Const(id) = operand else { return None };
        let bits = self.module.const_bits(id)?;
        match self.module.types[self.module.constants[id].ty] {
            Type::Int(32) => Some(i64::from(bits as i32)),
            Type::Int(64) => Some(bits as i64),
            _ => None,
        }
    }

    /// By how much a pointer or a number of 64 bits grows in a turn, always.
    fn step(&self, operand: Operand, depth: usize) -> Option<i64> {
        let Some(inst) = self.made(operand) else { return Some(0) };
        if depth > MAX_DEPTH {
            return None;
        }
        let step = |operand| self.step(operand, depth + 1);
        match &inst.op {
            Op::Phi(_) => inst.result.and_then(|phi| self.steps.get(&phi).copied()),
            Op::Address { base, terms, .. } => {
                let whole = |index: Operand| {
                    let ty = self.module.operand_type(self.function, index);
                    self.module.types.scalar_bits(ty) == 64 || self.made(index).is_none()
                };
                terms.iter().try_fold(step(*base)?, |sum, &(index, by)| {
                    let step = step(index).filter(|_| whole(index))?;
                    Some(sum.wrapping_add(step.wrapping_mul(by)))
                })
            }
            Op::Convert(ConvertOp::PtrCast, a) => step(*a),
            &Op::Binary(BinaryOp::Add, a, b) => Some(step(a)?.wrapping_add(step(b)?)),
            &Op::Binary(BinaryOp::Sub, a, b) => Some(step(a)?.wrapping_sub(step(b)?)),
            &Op::Binary(BinaryOp::Mul, a, b) => Some(step(a)?.wrapping_mul(self.constant(b)?)),
            // `-1 - a`.
            &Op::Binary(BinaryOp::Xor, a, b) if self.constant(b) == Some(-1) => {
                Some(step(a)?.wrapping_neg())
            }
            &Op::Binary(BinaryOp::Shl, a, b) => {
                let by = u32::try_from(self.constant(b)?).ok().filter(|by| *by < 32)?;
                Some(step(a)?.wrapping_mul(1 << by))
            }
            &Op::Convert(op @ (ConvertOp::SExt | ConvertOp::ZExt), a) => {
                let promised = inst.result.is_some_and(|it| self.promised.contains(&it));
                (promised || self.is_within(a, op, depth)).then(|| step(a)).flatten()
            }
            // A number without a sign, of 32 bits of what is computed in 64.
            &Op::Binary(BinaryOp::And, a, _)
                if inst.result.is_some_and(|it| self.promised.contains(&it)) =>
            {
                step(a)
            }
            // All others only if they are the same in each turn.
            op if op.is_pure() => {
                let mut same = true;
                op.for_each_operand(|operand| same &= self.is_same(operand, depth + 1));
                same.then_some(0)
            }
            _ => None,
        }
    }

    /// An access that keeps its order; `None` if another operation, or an access of another kind.
    fn walk(&self, way: &Way, index: usize, place: (BlockId, usize), inst: &Inst) -> Option<Walk> {
        let (at, value, access, is_store) = match (&inst.op, inst.result) {
            (&Op::Load(at, access), Some(value)) => (at, Operand::Value(value), access, false),
            (&Op::Store(at, value, access), _) => (at, value, access, true),
            _ => return None,
        };
        let ty = self.module.operand_type(self.function, value);
        let size = i64::try_from(self.module.types.size(ty)).ok()?;
        if access.volatile {
            return None;
        }
        let step = self.step(at, 0).filter(|&step| is_near(step));
        let number = matches!(self.module.types[ty], Type::Int(_) | Type::Float(_));
        let apart = match self.shape(way, at) {
            Shape::Varying => true,
            Shape::Strided { step, .. } => step.unsigned_abs() >= CHUNK,
            Shape::Uniform => false,
        };
        let is_row = number
            && apart
            && !access.nontemporal
            && size as u64 * 2 <= CHUNK
            && step.is_some_and(|step| step.abs() == size)
            && self.space(at) != Some(AddressSpace::Private);
        Some(Walk { index, place, at, size, is_store, step, is_row })
    }

    /// Whether a value is the same in each turn.
    fn is_same(&self, operand: Operand, depth: usize) -> bool {
        let Some(inst) = self.made(operand) else { return true };
        let mut same = inst.op.is_pure() && depth <= MAX_DEPTH;
        inst.op.for_each_operand(|operand| same = same && self.is_same(operand, depth + 1));
        same
    }

    /// Whether a number of 32 bits does not wrap around in the turns of a strip: the one that is counted and
    /// compared with a limit, or one whose sum says so.
    fn is_within(&self, operand: Operand, how: ConvertOp, depth: usize) -> bool {
        let Some(inst) = self.made(operand) else { return true };
        let signed = how == ConvertOp::SExt;
        let flag = if signed { Flags::NSW } else { Flags::NUW };
        match inst.op {
            Op::Phi(ref arms) => {
                let next = arms.iter().find(|arm| arm.0 == self.latch).map(|arm| arm.1);
                let says = |next| self.made(next).is_some_and(|inst| inst.flags.contains(flag));
                let limit = if signed { CompareOp::SLt } else { CompareOp::ULt };
                let limited = self.tested.is_some_and(|test| {
                    let (counted, more) = self.origin(test.number);
                    counted == operand
                        && (0..=1).contains(&more)
                        && (test.step, test.stays) == (1, limit)
                });
                limited || next.is_some_and(says)
            }
            Op::Binary(BinaryOp::Add, a, b) if depth <= MAX_DEPTH => {
                inst.flags.contains(flag)
                    && self.is_within(a, how, depth + 1)
                    && self.is_within(b, how, depth + 1)
            }
            _ => false,
        }
    }

    /// What a value is a constant away from, and the constant.
    fn origin(&self, operand: Operand) -> (Operand, i64) {
        match self.made(operand).map(|inst| &inst.op) {
            Some(&Op::Binary(op @ (BinaryOp::Add | BinaryOp::Sub), a, b)) => match self.constant(b)
            {
                Some(by) => (a, if op == BinaryOp::Add { by } else { by.wrapping_neg() }),
                None => (operand, 0),
            },
            Some(Op::Address { base, offset, terms, .. }) if terms.is_empty() => (*base, *offset),
            _ => (operand, 0),
        }
    }

    /// What the loop makes an address of, and the constant in it.
    fn parts(&self, mut at: Operand) -> ((Operand, Vec<(Operand, i64)>), i64) {
        let (mut all, mut sum) = (Vec::new(), 0_i64);
        while let Some(Op::Address { base, offset, terms, .. }) = self.made(at).map(|it| &it.op) {
            all.extend_from_slice(terms);
            (at, sum) = (*base, sum.wrapping_add(*offset));
        }
        ((at, all), sum)
    }

    /// The test at the loop's end, if all items pass or fail it together.
    fn test_of_all(&mut self, way: &Way, body: &Body) -> Option<Test> {
        let test = self.test(body.condition, body.on)?;
        let together = |operand| self.shape(way, operand) == Shape::Uniform;
        let all = !way.parting[body.latch.index()] && together(test.number) && together(test.bound);
        self.tested = Some(test).filter(|_| all);
        self.tested
    }

    /// The test at the loop's end: of a number that grows by a constant, with a limit.
    fn test(&self, condition: Operand, on: bool) -> Option<Test> {
        use CompareOp::{Eq, Ne, SGe, SGt, SLe, SLt, UGe, UGt, ULe, ULt};
        let Op::Compare(op, a, b) = self.made(condition)?.op else { return None };
        let same = |operand| self.is_same(operand, 0);
        let (op, number, bound) = match (same(a), same(b)) {
            (false, true) => (op, a, b),
            (true, false) => {
                let turned = match op {
                    SLt => SGt,
                    SLe => SGe,
                    SGt => SLt,
                    SGe => SLe,
                    ULt => UGt,
                    ULe => UGe,
                    UGt => ULt,
                    UGe => ULe,
                    same => same,
                };
                (turned, b, a)
            }
            _ => return None,
        };
        let stays = match (op, on) {
            (op, true) => op,
            (Eq, false) => Ne,
            (SLt, false) => SGe,
            (SLe, false) => SGt,
            (SGt, false) => SLe,
            (SGe, false) => SLt,
            (ULt, false) => UGe,
            (ULe, false) => UGt,
            (UGt, false) => ULe,
            (UGe, false) => ULt,
            _ => return None,
        };
        let (phi, more) = self.origin(number);
        let Operand::Value(phi) = phi else { return None };
        let ty = self.function.values[phi].ty;
        let step = *self.steps.get(&phi)?;
        let Type::Int(32 | 64) = self.module.types[ty] else { return None };
        let stays = match self.way_to(phi, more, bound) {
            Some(way) if stays == Ne && way.checked_rem(step) == Some(0) => match step {
                1.. if way >= 0 => SLt,
                ..=-1 if way <= 0 => SGt,
                _ => Ne,
            },
            _ => stays,
        };
        let fits = match stays {
            Ne => (1..1 << 16).contains(&step.abs()),
            SLt | SLe | ULt | ULe => (1..1 << 16).contains(&step),
            SGt | SGe | UGt | UGe => (1 - (1 << 16)..0).contains(&step),
            _ => false,
        };
        // The limit is computed in front of the loop.
        (fits && self.made(bound).is_none()).then_some(Test { number, bound, stays, step })
    }

    /// The distance from a number to its bound in the first turn, if both are constant: a phi's first value, and so much
    /// more. Where clang counts the bytes of a row, a loop goes on as long as the number is not the bound.
    fn way_to(&self, phi: ValueId, more: i64, bound: Operand) -> Option<i64> {
        let Op::Phi(arms) = &self.made(Operand::Value(phi))?.op else { return None };
        let first = self.constant(arms.iter().find(|arm| arm.0 != self.latch)?.1)?;
        self.constant(bound)?.checked_sub(first.checked_add(more)?)
    }

    /// The number of turns, if that is constant and the number grows.
    fn turns(&self, test: &Test) -> Option<i64> {
        let (Operand::Value(phi), more) = self.origin(test.number) else { return None };
        let one_more = match test.stays {
            CompareOp::SLt | CompareOp::ULt | CompareOp::Ne => 0,
            CompareOp::SLe | CompareOp::ULe => 1,
            _ => return None,
        };
        // The test follows the first turn.
        let way = self.way_to(phi, more, test.bound)?.checked_add(one_more + test.step - 1)?;
        (test.step > 0).then(|| way / test.step + 1)
    }

    fn shape(&self, way: &Way, operand: Operand) -> Shape {
        way.shapes.at(&way.flow, operand, self.header).unwrap_or(Shape::Varying)
    }

    fn space(&self, at: Operand) -> Option<AddressSpace> {
        match self.module.types[self.module.operand_type(self.function, at)] {
            Type::Pointer(space) => Some(space),
            _ => None,
        }
    }

    /// What has to be tested so that loads of rows may precede all other accesses, and stores follow them.
    /// `None` if that cannot be told, or is known not to hold.
    fn checks(&self, walks: &[Walk], turns: i64) -> Option<Vec<Check>> {
        let mut checks = Vec::new();
        for store in walks.iter().filter(|walk| walk.is_store) {
            for other in walks.iter().filter(|other| other.index != store.index) {
                let moves = store.is_row || other.is_row;
                let (from, to) = (self.space(store.at)?, self.space(other.at)?);
                let generic = [from, to].contains(&AddressSpace::Generic);
                // Of two stores, the second one finds the pair.
                let twice = other.is_store && other.index > store.index;
                if !moves || twice || (from != to && !generic) || to == AddressSpace::Constant {
                    continue;
                }
                let (step, by) = (store.step?, other.step?);
                // The turns by which the other access may follow, in its old order, the store.
                let least = match other.is_store {
                    true => 1 - turns,
                    false => i64::from(store.index > other.index),
                };
                let ends = |from: i64, to: i64, by: i64| {
                    let (a, b) = (from.wrapping_mul(by), to.wrapping_mul(by));
                    (a.min(b), a.max(b))
                };
                let (above, below) = if step == by {
                    let (min, max) = ends(least, turns - 1, by);
                    (min - store.size, max + other.size)
                } else {
                    let (mine, others) = (ends(0, turns - 1, step), ends(0, turns - 1, by));
                    (others.0 - mine.1 - store.size, others.1 + other.size - mine.0)
                };
                let (one, two) = (self.parts(store.at), self.parts(other.at));
                if one.0 == two.0 && step == by {
                    let distance = one.1.wrapping_sub(two.1);
                    if above < distance && distance < below {
                        return None;
                    }
                    continue;
                }
                // Of accesses that keep their distance, one test does for all.
                let same = checks.iter_mut().find_map(|check: &mut Check| {
                    let (place, offset) = self.parts(check.from.at);
                    let fits = check.to.index == store.index
                        && check.from.step == other.step
                        && place == two.0;
                    fits.then_some((check, offset.wrapping_sub(two.1)))
                });
                match same {
                    Some((check, apart)) if is_near(apart) => {
                        check.above = check.above.min(above - apart);
                        check.below = check.below.max(below - apart);
                    }
                    _ => checks.push(Check { from: *other, to: *store, above, below }),
                }
            }
        }
        (checks.len() <= MAX_STRIP_TESTS).then_some(checks)
    }
}
