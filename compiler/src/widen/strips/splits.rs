// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loops along rows with a condition on their counter, taken apart where it begins to hold or ceases to.
//!
//! ```text
//!   for (; k < n; k++) {            while (k < n)
//!     s += r[k];                      if (k >= 8)
//!     if (k >= 8)                       for (; k < n; k++) { s += r[k]; s -= r[k - 8]; o[k] = s; }
//!       s -= r[k - 8];      ──▶       else
//!     o[k] = s;                         for (; k < min(n, 8); k++) { s += r[k]; o[k] = s; }
//!   }
//! ```
//!
//! Each of the inner loops accesses its rows in every turn, so all of them are taken in strips. The turns for which a
//! comparison stays as it is are counted before each inner loop, modulo two to the power of its bits, so a counter may
//! wrap around, and a condition may change more than once.

use std::collections::{HashMap, HashSet};

use super::write::{Names, Writer, named};
use super::{Body, Lines, Plan, plans};
use crate::ir::arena::Id;
use crate::ir::{
    BinaryOp, BlockId, CompareOp, ConvertOp, Flags, Function, Inst, Module, Op, Operand,
    Terminator, Type, UnaryOp, ValueId,
};
use crate::optimise::cost::{MAX_SPLIT, MAX_SPLITS};
use crate::optimise::{is_skipped, tidied};
use crate::widen::compares::{mirrored, opposite};
use crate::widen::refusal::Refusal;
use crate::widen::shape::{Rows, Shape};
use crate::widen::way::Way;

/// The name by which it is left out.
const NAME: &str = "splits";

/// The operations of a condition that are looked at.
const MAX_DEPTH: usize = 4;

/// Takes loops apart if more accesses are to rows then. Returns the way through the function that it has become.
pub(in crate::widen) fn run(
    module: &mut Module,
    function: &mut Function,
    way: &Way,
    steps: &[i64],
) -> Result<Option<Way>, Refusal> {
    let mut new: Option<(Function, Way)> = None;
    if is_skipped(NAME) {
        return Ok(None);
    }
    for _ in 0..MAX_SPLITS {
        let (before, way) = new.as_ref().map_or((&*function, way), |it| (&it.0, &it.1));
        let headers = way.flow.loops.iter().map(|it| it.header);
        let found = headers.into_iter().find_map(|it| Split::of(module, before, way, it));
        let Some(split) = found else { break };
        let mut after = before.clone();
        split.write(module, &mut after);
        tidied(&mut after);
        let way = Way::new(module, &after, Rows::Whole, steps)?;
        new = Some((after, way));
    }
    let rows = |function: &Function, way: &Way| -> usize {
        let plans = plans(module, function, way);
        plans.iter().flat_map(|plan| &plan.walks).filter(|walk| walk.is_row).count()
    };
    Ok(match new {
        Some((after, split)) if rows(&after, &split) > rows(function, way) => {
            *function = after;
            Some(split)
        }
        _ => None,
    })
}

/// A comparison of what a loop counts with a limit.
#[derive(Clone, Copy)]
struct Condition {
    value: ValueId,
    number: Operand,
    op: CompareOp,
    bound: Operand,
    /// By how much the number grows in a turn.
    step: i64,
}

/// A loop that is taken apart.
struct Split {
    plan: Plan,
    condition: Condition,
}

/// The ways that are left if a condition holds in all turns, or in none.
struct Ways {
    blocks: HashSet<BlockId>,
    edges: HashSet<(BlockId, BlockId)>,
}

impl Split {
    fn of(module: &Module, function: &Function, way: &Way, header: BlockId) -> Option<Self> {
        let body = Body::of(function, &way.flow, header)?;
        let here = way.flow.within[header.index()];
        let innermost = body.blocks.iter().all(|id| way.flow.within[id.index()] == here);
        if body.blocks.len() < 2 || !innermost || body.insts(function).count() > MAX_SPLIT {
            return None;
        }
        let mut lines = Lines::new(module, function, way.shapes.promised(), &body);
        let test = lines.test_of_all(way, &body)?;
        // Accesses to rows that some turns make.
        let rows: Vec<BlockId> = body
            .insts(function)
            .filter(|(place, _)| !way.flow.dominates(place.0, body.latch))
            .filter_map(|(place, inst)| lines.walk(way, 0, place, inst))
            .filter_map(|walk| walk.is_row.then_some(walk.place.0))
            .collect();
        let conditions = body.insts(function).filter_map(|(_, inst)| condition(&lines, way, inst));
        let condition = conditions.into_iter().find(|condition| {
            let [yes, no] = [true, false].map(|holds| ways(&lines, &body, condition, holds));
            rows.iter().any(|row| yes.blocks.contains(row) != no.blocks.contains(row))
        })?;
        let (steps, walks, checks) = (lines.steps, Vec::new(), Vec::new());
        let plan = Plan { body, turns: 1, test, steps, walks, checks };
        Some(Self { plan, condition })
    }

    fn write(&self, module: &mut Module, function: &mut Function) {
        let Self { plan, condition } = self;
        let Plan { body, test, .. } = plan;
        let Body { header, latch, entry, after, .. } = *body;
        // What is left of each way is known before anything is written.
        let left = [true, false].map(|holds| {
            let lines = Lines::new(module, function, &[], body);
            ways(&lines, body, condition, holds)
        });
        let first_new = function.blocks.len();
        let mut out = Writer::new(module, function, plan);
        let phis: Vec<(ValueId, Operand, Operand)> = out.phis(entry, latch);
        // In front of both loops.
        let front = out.open;
        let last = out.block();
        let mut at_front = Names::new();
        let mut heads = Vec::new();
        for &(phi, start, _) in &phis {
            let name = out.function.new_value(out.function.values[phi].ty);
            at_front.insert(phi, Operand::Value(name));
            heads.push((name, start));
        }
        let number = out.copied(condition.number, &mut at_front);
        let tested = out.copied(test.number, &mut at_front);
        let holds = out.value(Op::Compare(condition.op, number, condition.bound), out.bool);
        let stays = out.value(Op::Compare(test.stays, tested, test.bound), out.bool);
        let starts = [out.block(), out.block()];
        out.end(Terminator::CondBranch(holds, starts[0], starts[1]), starts[0]);
        // Behind both loops, what either has left.
        let mut arrive: Vec<(BlockId, Names)> = Vec::new();
        for (when, ways) in [true, false].into_iter().zip(&left) {
            let op = if when { condition.op } else { inverted(condition.op) };
            let more = out.turns(number, op, condition.bound, condition.step);
            let (long, one) = (out.long, out.number(out.long, 1));
            let few = out.turns(tested, test.stays, test.bound, test.step);
            let few = out.value(Op::Binary(BinaryOp::Add, few, one), long);
            let none = out.number(long, 0);
            let few = out.value(Op::Select(stays, few, none), long);
            let turns = out.value(Op::Binary(BinaryOp::UMin, few, more), long);
            let ty = out.module.operand_type(out.function, tested);
            let end = out.moved(tested, turns, test.step, ty);
            let start = out.open;
            let header = out.block();
            out.end(Terminator::Branch(header), header);
            arrive.push(out.copy(self, ways, when, (start, &at_front), end, last));
            out.open = starts[1];
        }
        out.open = last;
        // The loop's values that are used behind it, or in the next turn.
        let mut names = Names::new();
        let mut value = |out: &mut Writer, operand: Operand| {
            let Operand::Value(old) = operand else { return operand };
            if !out.made.contains_key(&old) {
                return operand;
            }
            *names.entry(old).or_insert_with(|| {
                let arms = arrive.iter().map(|(from, names)| (*from, named(names, operand)));
                let op = Op::Phi(arms.collect());
                let ty = out.function.values[old].ty;
                out.value(op, ty)
            })
        };
        let nexts: Vec<Operand> = phis.iter().map(|&(.., next)| value(&mut out, next)).collect();
        let tested = value(&mut out, test.number);
        let inside = |id: BlockId| id.index() >= first_new || body.blocks.contains(&id);
        let outside: Vec<BlockId> = out.function.blocks.ids().filter(|&id| !inside(id)).collect();
        for id in outside {
            let mut block = out.function.blocks[id].clone();
            block.redirect_phis(latch, last);
            let mut rename = |operand: &mut Operand| *operand = value(&mut out, *operand);
            block.insts.iter_mut().for_each(|inst| inst.op.for_each_operand_mut(&mut rename));
            block.terminator.for_each_operand_mut(&mut rename);
            if id == entry {
                block.terminator.for_each_successor_mut(|next| {
                    if *next == header {
                        *next = front;
                    }
                });
            }
            out.function.blocks[id] = block;
        }
        let again = out.value(Op::Compare(test.stays, tested, test.bound), out.bool);
        out.end(Terminator::CondBranch(again, front, after), last);
        let loc = out.loc;
        let insts = heads.into_iter().zip(nexts).map(|((name, start), next)| Inst {
            result: Some(name),
            op: Op::Phi(vec![(entry, start), (last, next)]),
            flags: Flags::empty(),
            loc,
        });
        out.function.blocks[front].insts.splice(0..0, insts);
    }
}

/// A comparison that a condition of a loop may be, of numbers that all items share.
fn condition(lines: &Lines, way: &Way, inst: &Inst) -> Option<Condition> {
    let (&Op::Compare(op, a, b), Some(value)) = (&inst.op, inst.result) else { return None };
    let outside = |operand| lines.made(operand).is_none();
    let (op, number, bound) = match (outside(a), outside(b)) {
        (false, true) => (op, a, b),
        (true, false) => (mirrored(op), b, a),
        _ => return None,
    };
    let ty = lines.module.operand_type(lines.function, number);
    let counts = matches!(lines.module.types[ty], Type::Int(32 | 64));
    let shared = [number, bound].iter().all(|&it| lines.shape(way, it) == Shape::Uniform);
    let step = lines.step(number, 0).filter(|step| (1..1 << 16).contains(&step.abs()))?;
    let is_known = op == CompareOp::Ne || opposite(op).is_some();
    (counts && shared && is_known).then_some(Condition { value, number, op, bound, step })
}

/// Which blocks are left if a condition holds, or does not.
fn ways(lines: &Lines, body: &Body, condition: &Condition, holds: bool) -> Ways {
    let mut ways = Ways { blocks: HashSet::from([body.header]), edges: HashSet::new() };
    for &id in &body.blocks {
        if !ways.blocks.contains(&id) || id == body.latch {
            continue;
        }
        let end = &lines.function.blocks[id].terminator;
        let next = match *end {
            Terminator::CondBranch(value, yes, no) => match known(lines, value, condition, holds) {
                Some(known) => vec![if known { yes } else { no }],
                None => vec![yes, no],
            },
            _ => end.successors(),
        };
        ways.edges.extend(next.iter().map(|&next| (id, next)));
        ways.blocks.extend(next);
    }
    ways
}

/// What a value is if a condition holds, or does not.
fn known(lines: &Lines, value: Operand, condition: &Condition, holds: bool) -> Option<bool> {
    fn of(lines: &Lines, value: Operand, given: (Operand, bool), depth: usize) -> Option<bool> {
        if value == given.0 {
            return Some(given.1);
        }
        if let Operand::Const(id) = value {
            return lines.module.const_bits(id).map(|bits| bits != 0);
        }
        if depth > MAX_DEPTH {
            return None;
        }
        let of = |value| of(lines, value, given, depth + 1);
        match lines.made(value)?.op {
            Op::Unary(UnaryOp::Not, a) => of(a).map(|a| !a),
            Op::Binary(BinaryOp::And, a, b) => match (of(a), of(b)) {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (Some(true), Some(true)) => Some(true),
                _ => None,
            },
            Op::Binary(BinaryOp::Or, a, b) => match (of(a), of(b)) {
                (Some(true), _) | (_, Some(true)) => Some(true),
                (Some(false), Some(false)) => Some(false),
                _ => None,
            },
            Op::Select(a, b, c) => match (of(a), of(b), of(c)) {
                (Some(a), b, c) => {
                    if a {
                        b
                    } else {
                        c
                    }
                }
                (None, b, c) => b.filter(|_| b == c),
            },
            _ => None,
        }
    }
    let ty = lines.module.operand_type(lines.function, value);
    let is_bool = matches!(lines.module.types[ty], Type::Bool);
    is_bool.then(|| of(lines, value, (Operand::Value(condition.value), holds), 0)).flatten()
}

/// The comparison that holds where one does not.
fn inverted(op: CompareOp) -> CompareOp {
    opposite(op).unwrap_or(CompareOp::Eq)
}

impl Writer<'_> {
    /// The number of further turns in which a comparison that holds of a number still does, or a smaller one.
    fn turns(&mut self, number: Operand, op: CompareOp, bound: Operand, step: i64) -> Operand {
        use CompareOp::{Eq, Ne, SGe, SGt, SLe, SLt, UGe, UGt, ULe, ULt};
        let ty = self.module.operand_type(self.function, number);
        let bits = self.module.types.scalar_bits(ty);
        if op == Eq {
            return self.number(self.long, 0);
        }
        // The last number of which it holds, in the direction of the steps.
        let signed = matches!(op, SLt | SLe | SGt | SGe);
        let (most, least) = match signed {
            true => (i64::MAX >> (64 - bits), i64::MIN >> (64 - bits)),
            false => (-1, 0),
        };
        let up = step > 0;
        let last = match (op, up) {
            (SLe | ULe, true) | (SGe | UGe, false) => bound,
            (Ne | SLt | ULt, true) => self.ahead(bound, -1),
            (Ne | SGt | UGt, false) => self.ahead(bound, 1),
            (_, true) => self.number(ty, most),
            (_, false) => self.number(ty, least),
        };
        let (from, to) = if up { (number, last) } else { (last, number) };
        let mut turns = self.value(Op::Binary(BinaryOp::Sub, to, from), ty);
        let step = step.unsigned_abs();
        if step > 1 {
            let (op, by) = match step.is_power_of_two() {
                true => (BinaryOp::LShr, step.ilog2().into()),
                false => (BinaryOp::UDiv, step as i64),
            };
            let by = self.number(ty, by);
            turns = self.value(Op::Binary(op, turns, by), ty);
        }
        match ty == self.long {
            true => turns,
            false => self.value(Op::Convert(ConvertOp::ZExt, turns), self.long),
        }
    }

    /// Copies the loop for the turns in which its condition holds, or does not: the open block is the first one's. It
    /// goes on until a number is reached, and then to `last`. Returns its last block, and what its values are there.
    fn copy(
        &mut self,
        split: &Split,
        ways: &Ways,
        holds: bool,
        (start, at_start): (BlockId, &Names),
        end: Operand,
        last: BlockId,
    ) -> (BlockId, Names) {
        use CompareOp::{SGe, SGt, SLe, SLt, UGe, UGt, ULe, ULt};
        let Split { plan, condition } = split;
        let Plan { body, test, .. } = plan;
        let lines = Lines::new(self.module, self.function, &[], body);
        let values = self.made.keys().map(|&value| Operand::Value(value));
        let all: Vec<(Operand, bool)> = values
            .filter_map(|value| Some((value, known(&lines, value, condition, holds)?)))
            .collect();
        let mut names = Names::new();
        for (value, is) in all {
            let is = Operand::Const(self.module.const_int(self.bool, u64::from(is)));
            if let Operand::Value(value) = value {
                names.insert(value, is);
            }
        }
        let header = self.open;
        let mut places = HashMap::from([(body.header, header)]);
        for &id in body.blocks[1..].iter().filter(|id| ways.blocks.contains(id)) {
            places.insert(id, self.block());
        }
        let old = self.old.clone();
        let mut heads = Vec::new();
        for (&id, block) in body.blocks.iter().zip(&old) {
            let Some(&here) = places.get(&id) else { continue };
            self.open = here;
            for inst in &block.insts {
                self.loc = inst.loc;
                let mut new = inst.clone();
                if let Some(result) = inst.result {
                    if names.contains_key(&result) {
                        continue;
                    }
                    let name = self.function.new_value(self.function.values[result].ty);
                    new.result = Some(name);
                    names.insert(result, Operand::Value(name));
                    if let (Op::Phi(arms), true) = (&inst.op, id == body.header) {
                        let next = arms.iter().find(|arm| arm.0 == body.latch).map(|arm| arm.1);
                        heads.push((name, at_start[&result], next));
                        continue;
                    }
                }
                if let Op::Phi(arms) = &mut new.op {
                    arms.retain(|arm| ways.edges.contains(&(arm.0, id)));
                    arms.iter_mut().for_each(|arm| arm.0 = places[&arm.0]);
                }
                new.op.for_each_operand_mut(|operand| *operand = named(&names, *operand));
                self.insts.push(new);
            }
            self.loc = block.loc;
            if id == body.latch {
                break;
            }
            let left: Vec<BlockId> = block.terminator.successors();
            let left: Vec<BlockId> =
                left.into_iter().filter(|&next| ways.edges.contains(&(id, next))).collect();
            let terminator = match left.as_slice() {
                &[next] => Terminator::Branch(places[&next]),
                _ => {
                    let mut terminator = block.terminator.clone();
                    terminator.for_each_operand_mut(|operand| *operand = named(&names, *operand));
                    terminator.for_each_successor_mut(|next| *next = places[next]);
                    terminator
                }
            };
            self.end(terminator, header);
        }
        // What is compared is on its way to the number, and does not wrap around.
        let op = match test.stays {
            SLt | SLe => SLt,
            ULt | ULe => ULt,
            SGt | SGe => SGt,
            UGt | UGe => UGt,
            other => other,
        };
        let number = named(&names, test.number);
        let again = self.value(Op::Compare(op, number, end), self.bool);
        let latch = self.end(Terminator::CondBranch(again, header, last), last);
        let loc = self.loc;
        let insts = heads.into_iter().filter_map(|(name, first, next)| {
            let op = Op::Phi(vec![(start, first), (latch, named(&names, next?))]);
            Some(Inst { result: Some(name), op, flags: Flags::empty(), loc })
        });
        self.function.blocks[header].insts.splice(0..0, insts);
        (latch, names)
    }
}
