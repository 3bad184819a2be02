// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes the strips of a loop in front of it, and what tells whether there is another one.

use std::collections::{HashMap, HashSet};

use super::{Body, Lines, Plan, Test, Walk};
use crate::ir::arena::Id;
use crate::ir::{
    BinaryOp, Block, BlockId, CompareOp, ConvertOp, ENTRY, Flags, Function, Inst, Loc, Module, Op,
    Operand, Terminator, Type, TypeId, UnaryOp, ValueId,
};

/// What a loop has become.
pub(super) struct Written {
    /// The block in front of the strips, and that behind the loop.
    pub(super) front: BlockId,
    pub(super) behind: BlockId,
    /// What the code behind uses in place of the loop's values.
    pub(super) names: HashMap<ValueId, ValueId>,
    /// Addresses in rows.
    pub(super) rows: Vec<ValueId>,
}

/// Writes the strips of a loop.
pub(super) struct Writer<'a> {
    pub(super) module: &'a mut Module,
    pub(super) function: &'a mut Function,
    plan: &'a Plan,
    /// The blocks of the loop as they were, and their instructions by result.
    pub(super) old: Vec<Block>,
    pub(super) made: HashMap<ValueId, Inst>,
    /// The block that is written, and its instructions so far.
    pub(super) open: BlockId,
    pub(super) insts: Vec<Inst>,
    pub(super) loc: Loc,
    rows: Vec<ValueId>,
    pub(super) long: TypeId,
    pub(super) bool: TypeId,
}

/// The values of a turn, by those of the loop.
pub(in crate::widen) type Names = HashMap<ValueId, Operand>;

pub(in crate::widen) fn named(names: &Names, operand: Operand) -> Operand {
    match operand {
        Operand::Value(value) => names.get(&value).copied().unwrap_or(operand),
        Operand::Const(_) => operand,
    }
}

impl<'a> Writer<'a> {
    pub(super) fn new(module: &'a mut Module, function: &'a mut Function, plan: &'a Plan) -> Self {
        let (long, bool) = (module.types.int(64), module.types.bool());
        let old: Vec<Block> =
            plan.body.blocks.iter().map(|&id| function.blocks[id].clone()).collect();
        let loc = function.blocks[plan.body.latch].loc;
        let insts = old.iter().flat_map(|block| &block.insts);
        let made = insts.filter_map(|inst| Some((inst.result?, inst.clone()))).collect();
        let (insts, rows) = Default::default();
        let mut writer =
            Self { module, function, plan, old, made, open: ENTRY, insts, loc, rows, long, bool };
        writer.open = writer.block();
        writer
    }

    /// A block that is written later.
    pub(super) fn block(&mut self) -> BlockId {
        let terminator = Terminator::Unreachable;
        self.function.blocks.push(Block { insts: Vec::new(), terminator, loc: self.loc })
    }

    pub(super) fn value(&mut self, op: Op, ty: TypeId) -> Operand {
        let result = self.function.new_value(ty);
        let (flags, loc) = (Flags::empty(), self.loc);
        self.insts.push(Inst { result: Some(result), op, flags, loc });
        Operand::Value(result)
    }

    pub(super) fn number(&mut self, ty: TypeId, value: i64) -> Operand {
        Operand::Const(self.module.const_int(ty, value as u64))
    }

    /// The phis of the loop, with what they are in its first turn, and in the next one.
    pub(super) fn phis(&self, entry: BlockId, latch: BlockId) -> Vec<(ValueId, Operand, Operand)> {
        let phi = |inst: &Inst| match &inst.op {
            Op::Phi(arms) => {
                let arm = |from| arms.iter().find(|arm| arm.0 == from).map(|arm| arm.1);
                Some((inst.result?, arm(entry)?, arm(latch)?))
            }
            _ => None,
        };
        self.old[0].phis().filter_map(phi).collect()
    }

    /// Ends the block that is written, and goes on with another one.
    pub(super) fn end(&mut self, terminator: Terminator, next: BlockId) -> BlockId {
        let insts = std::mem::take(&mut self.insts);
        let open = std::mem::replace(&mut self.open, next);
        self.function.blocks[open] = Block { insts, terminator, loc: self.loc };
        open
    }

    pub(super) fn write(mut self) -> Written {
        let Plan { ref body, turns, ref walks, .. } = *self.plan;
        let Body { header, latch, entry, after, .. } = *body;
        let phis = self.phis(entry, latch);
        // In front of the strips: where everything begins, and whether there is one.
        let starts: Names = phis.iter().map(|&(phi, start, _)| (phi, start)).collect();
        let mut at_start = starts.clone();
        let known = || walks.iter().filter(|walk| walk.step.is_some());
        let firsts: HashMap<usize, Operand> =
            known().map(|walk| (walk.index, self.copied(walk.at, &mut at_start))).collect();
        let number = self.copied(self.plan.test.number, &mut at_start);
        let room = self.room(number);
        let (fixed, moving) = (self.checked(&firsts, true), self.checked(&firsts, false));
        let before = self.all(room, [fixed, moving]);
        let head = self.block();
        let front = self.end(Terminator::CondBranch(before, head, header), head);

        // A strip.
        let turn = self.function.new_value(self.long);
        let (count, zero) = (Operand::Value(turn), self.number(self.long, 0));
        let mut heads = vec![(turn, zero)];
        let mut names = Names::new();
        for &(phi, start, _) in &phis {
            let ty = self.function.values[phi].ty;
            let name = match self.plan.steps.get(&phi) {
                Some(&step) => self.moved(start, count, step, ty),
                None => {
                    let new = self.function.new_value(ty);
                    heads.push((new, start));
                    Operand::Value(new)
                }
            };
            names.insert(phi, name);
        }
        let mut walked = HashMap::new();
        for walk in known() {
            let (first, step) = (firsts[&walk.index], walk.step.unwrap_or(0));
            let ty = self.module.operand_type(self.function, first);
            walked.insert(walk.index, self.moved(first, count, step, ty));
        }
        let first = names.clone();
        let accesses: Vec<Inst> = self.old.iter().flat_map(|block| &block.insts).cloned().collect();
        // What each turn loads from rows, in front of all.
        let mut loaded: HashMap<(usize, i64), Operand> = HashMap::new();
        for walk in walks.iter().filter(|walk| walk.is_row && !walk.is_store) {
            for turn in 0..turns {
                let Inst { result: Some(result), op: Op::Load(_, access), .. } =
                    accesses[walk.index]
                else {
                    continue;
                };
                let (ty, at) = (self.function.values[result].ty, walked[&walk.index]);
                let at = self.in_row(at, turn * walk.step.unwrap_or(0));
                loaded.insert((walk.index, turn), self.value(Op::Load(at, access), ty));
            }
        }
        let mut stores: Vec<(usize, i64, Operand)> = Vec::new();
        for turn in 0..turns {
            if turn > 0 {
                let last = names.clone();
                for &(phi, _, next) in &phis {
                    let name = match self.plan.steps.get(&phi) {
                        Some(&step) => self.ahead(first[&phi], turn * step),
                        None => named(&last, next),
                    };
                    names.insert(phi, name);
                }
            }
            self.turn(turn, &mut names, &walked, &loaded, &mut stores);
        }
        stores.sort_by_key(|&(index, turn, _)| (index, turn));
        for (index, turn, value) in stores {
            let (Op::Store(_, _, access), Some(walk)) =
                (&accesses[index].op, self.plan.walk(index))
            else {
                continue;
            };
            let at = self.in_row(walked[&index], turn * walk.step.unwrap_or(0));
            let (op, loc) = (Op::Store(at, value, *access), accesses[index].loc);
            self.insts.push(Inst { result: None, op, flags: Flags::empty(), loc });
        }
        self.loc = self.function.blocks[latch].loc;
        let by = self.number(self.long, turns);
        let next = self.value(Op::Binary(BinaryOp::Add, count, by), self.long);
        let ends: Vec<Operand> = phis
            .iter()
            .map(|&(phi, _, next)| match self.plan.steps.get(&phi) {
                Some(&step) => self.ahead(first[&phi], turns * step),
                None => named(&names, next),
            })
            .collect();
        // Whether there is another one.
        let condition = named(&names, body.condition);
        let at = self.number_of(&first, turns);
        let room = self.room(at);
        let stays = match body.on {
            true => condition,
            false => self.value(Op::Unary(UnaryOp::Not, condition), self.bool),
        };
        let mut places = HashMap::new();
        for walk in known() {
            let at = self.ahead(walked[&walk.index], turns * walk.step.unwrap_or(0));
            places.insert(walk.index, at);
        }
        let moving = self.checked(&places, false);
        let again = self.all(stays, [Some(room), moving]);
        let rest = self.block();
        let strip = self.end(Terminator::CondBranch(again, head, rest), rest);
        self.end(Terminator::CondBranch(stays, header, after), rest);
        let others =
            phis.iter().zip(&ends).filter(|(phi, _)| !self.plan.steps.contains_key(&phi.0));
        let nexts = std::iter::once(next).chain(others.map(|(_, &end)| end));
        let phi = |((result, start), next)| Inst {
            result: Some(result),
            op: Op::Phi(vec![(front, start), (strip, next)]),
            flags: Flags::empty(),
            loc: self.loc,
        };
        let mut insts: Vec<Inst> = heads.into_iter().zip(nexts).map(phi).collect();
        let first = &mut self.function.blocks[head].insts;
        insts.append(first);
        *first = insts;
        let strips: Vec<BlockId> = self.function.blocks.ids().skip(front.index()).collect();
        self.join(front, rest, &strips, &ends, &names)
    }

    /// Writes a turn of a strip, behind the turns before it.
    fn turn(
        &mut self,
        turn: i64,
        names: &mut Names,
        walked: &HashMap<usize, Operand>,
        loaded: &HashMap<(usize, i64), Operand>,
        stores: &mut Vec<(usize, i64, Operand)>,
    ) {
        let Body { blocks, latch, .. } = &self.plan.body;
        let mut places: HashMap<BlockId, BlockId> = HashMap::from([(blocks[0], self.open)]);
        for &id in &blocks[1..] {
            places.insert(id, self.block());
        }
        let old = std::mem::take(&mut self.old);
        // An inner loop's phis have values of blocks behind them.
        let mut index = 0;
        for inst in old.iter().flat_map(|block| &block.insts) {
            if let Some(result) = inst.result
                && let Some(name) = match loaded.get(&(index, turn)) {
                    Some(&name) => Some(name),
                    None if index < old[0].phis().count() => None,
                    None => {
                        let ty = self.function.values[result].ty;
                        Some(Operand::Value(self.function.new_value(ty)))
                    }
                }
            {
                names.insert(result, name);
            }
            index += 1;
        }
        index = 0;
        for (&id, block) in blocks.iter().zip(&old) {
            for inst in &block.insts {
                let here = index;
                index += 1;
                self.loc = inst.loc;
                let walk = self.plan.walk(here);
                let mut new = inst.clone();
                new.op.for_each_operand_mut(|operand| *operand = named(names, *operand));
                match (&mut new.op, walk) {
                    (Op::Phi(_), _) if id == blocks[0] => continue,
                    (Op::Phi(arms), _) => arms.iter_mut().for_each(|arm| arm.0 = places[&arm.0]),
                    (Op::Load(..), Some(walk)) if walk.is_row => continue,
                    (Op::Store(_, value, _), Some(walk)) if walk.is_row => {
                        stores.push((here, turn, *value));
                        continue;
                    }
                    (Op::Load(at, _) | Op::Store(at, ..), Some(walk)) => {
                        if let Some(&there) = walked.get(&here) {
                            *at = self.ahead(there, turn * walk.step.unwrap_or(0));
                        }
                    }
                    _ => {}
                }
                if let Some(Operand::Value(name)) = inst.result.map(|it| names[&it]) {
                    new.result = Some(name);
                }
                self.insts.push(new);
            }
            if id == *latch {
                continue;
            }
            self.loc = block.loc;
            let mut terminator = block.terminator.clone();
            terminator.for_each_operand_mut(|operand| *operand = named(names, *operand));
            terminator.for_each_successor_mut(|next| *next = places[next]);
            let next = blocks.iter().skip_while(|it| **it != id).nth(1).unwrap_or(latch);
            self.end(terminator, places[next]);
        }
        self.old = old;
    }

    /// Leads to the loop from in front of the strips and from behind them, and from either on.
    fn join(
        self,
        front: BlockId,
        rest: BlockId,
        strips: &[BlockId],
        ends: &[Operand],
        names: &Names,
    ) -> Written {
        let Body { header, latch, entry, after, .. } = self.plan.body;
        let Function { blocks, values, .. } = self.function;
        let insts = Vec::new();
        let behind = Block { insts, terminator: Terminator::Branch(after), loc: self.loc };
        let behind = blocks.push(behind);
        for (from, old, new) in
            [(entry, header, front), (latch, after, behind), (rest, after, behind)]
        {
            blocks[from].terminator.for_each_successor_mut(|next| {
                if *next == old {
                    *next = new;
                }
            });
        }
        for (inst, &end) in blocks[header].insts.iter_mut().zip(ends) {
            if let Op::Phi(arms) = &mut inst.op {
                arms.iter_mut().filter(|arm| arm.0 == entry).for_each(|arm| arm.0 = front);
                arms.push((rest, end));
            }
        }
        blocks[after].redirect_phis(latch, behind);
        // The code behind uses the values of the last turn, wherever that was.
        let own: HashSet<ValueId> = self.made.keys().copied().collect();
        let inside = |id| strips.contains(&id) || self.plan.body.blocks.contains(&id);
        let (mut used, mut order) = (HashMap::new(), Vec::new());
        for (_, here) in blocks.iter_mut().filter(|(id, _)| !inside(*id)) {
            let mut rename = |operand: &mut Operand| {
                if let Operand::Value(value) = *operand
                    && own.contains(&value)
                {
                    let name = *used.entry(value).or_insert_with(|| {
                        order.push(value);
                        values.push(values[value].clone())
                    });
                    *operand = Operand::Value(name);
                }
            };
            here.insts.iter_mut().for_each(|inst| inst.op.for_each_operand_mut(&mut rename));
            here.terminator.for_each_operand_mut(&mut rename);
        }
        let phi = |value: ValueId| {
            let (one, other) = (Operand::Value(value), named(names, Operand::Value(value)));
            let op = Op::Phi(vec![(latch, one), (rest, other)]);
            Inst { result: Some(used[&value]), op, flags: Flags::empty(), loc: self.loc }
        };
        blocks[behind].insts = order.into_iter().map(phi).collect();
        Written { front, behind, names: used, rows: self.rows }
    }

    /// What a value of the loop is in the first turn.
    pub(super) fn copied(&mut self, operand: Operand, names: &mut Names) -> Operand {
        let Operand::Value(value) = operand else { return operand };
        if let Some(&name) = names.get(&value) {
            return name;
        }
        let Some(inst) = self.made.get(&value).cloned() else { return operand };
        // Those of addresses that are not known are copied nowhere.
        if !inst.op.is_pure() {
            return operand;
        }
        let mut new = inst;
        // A condition may be what makes it hold.
        new.flags = Flags::empty();
        if let Op::Address { inbounds, .. } = &mut new.op {
            *inbounds = false;
        }
        let mut operands = Vec::new();
        new.op.for_each_operand(|operand| operands.push(operand));
        let copies: Vec<Operand> =
            operands.into_iter().map(|operand| self.copied(operand, names)).collect();
        let mut copies = copies.into_iter();
        new.op.for_each_operand_mut(|operand| {
            if let Some(copy) = copies.next() {
                *operand = copy;
            }
        });
        let name = self.function.new_value(self.function.values[value].ty);
        new.result = Some(name);
        self.insts.push(new);
        names.insert(value, Operand::Value(name));
        Operand::Value(name)
    }

    /// A value so many steps further.
    pub(super) fn moved(
        &mut self,
        start: Operand,
        count: Operand,
        step: i64,
        ty: TypeId,
    ) -> Operand {
        if step == 0 {
            return start;
        }
        if let Type::Pointer(_) = self.module.types[ty] {
            let terms = vec![(count, step)];
            let op = Op::Address { base: start, offset: 0, terms, inbounds: false };
            return self.value(op, ty);
        }
        let count = match ty == self.long {
            true => count,
            false => self.value(Op::Convert(ConvertOp::Trunc, count), ty),
        };
        let by = self.number(ty, step);
        let distance = self.value(Op::Binary(BinaryOp::Mul, count, by), ty);
        self.value(Op::Binary(BinaryOp::Add, start, distance), ty)
    }

    /// An address in rows, so many bytes further.
    fn in_row(&mut self, from: Operand, by: i64) -> Operand {
        let at = self.ahead(from, by);
        if let Operand::Value(value) = at {
            self.rows.push(value);
        }
        at
    }

    /// A value plus a constant.
    pub(super) fn ahead(&mut self, from: Operand, by: i64) -> Operand {
        if by == 0 {
            return from;
        }
        let ty = self.module.operand_type(self.function, from);
        if let Type::Pointer(_) = self.module.types[ty] {
            let op = Op::Address { base: from, offset: by, terms: Vec::new(), inbounds: false };
            return self.value(op, ty);
        }
        let by = self.number(ty, by);
        self.value(Op::Binary(BinaryOp::Add, from, by), ty)
    }

    /// The number that is compared, so many turns behind the first one of a strip.
    fn number_of(&mut self, first: &Names, turns: i64) -> Operand {
        let lines = Lines::new(self.module, self.function, &[], &self.plan.body);
        let Test { number, step, .. } = self.plan.test;
        let (phi, more) = lines.origin(number);
        self.ahead(named(first, phi), more.wrapping_add(turns * step))
    }

    /// Whether a strip's turns are left, from the number on that is compared in the first one.
    fn room(&mut self, number: Operand) -> Operand {
        use CompareOp::{Ne, SGe, SGt, SLe, SLt, UGe, UGt, ULe, ULt};
        let Test { bound, stays, step, .. } = self.plan.test;
        let ty = self.module.operand_type(self.function, number);
        let (a, b) = if step > 0 { (bound, number) } else { (number, bound) };
        let left = self.value(Op::Binary(BinaryOp::Sub, a, b), ty);
        let turns = self.plan.turns;
        let (least, how) = match stays {
            Ne => ((turns - 1) * step.abs(), UGe),
            SLt | ULt | SGt | UGt => ((turns - 2) * step.abs(), UGt),
            SLe | ULe | SGe | UGe => ((turns - 2) * step.abs(), UGe),
            _ => (i64::MAX, UGt),
        };
        let least = self.number(ty, least);
        let enough = self.value(Op::Compare(how, left, least), self.bool);
        if stays == Ne {
            return enough;
        }
        let before = self.value(Op::Compare(stays, number, bound), self.bool);
        self.value(Op::Binary(BinaryOp::And, before, enough), self.bool)
    }

    /// Whether the checks hold of addresses, for all items: those of accesses that keep their distance, or of
    /// the others.
    fn checked(&mut self, at: &HashMap<usize, Operand>, fixed: bool) -> Option<Operand> {
        let mut all = None;
        for check in &self.plan.checks {
            if (check.from.step == check.to.step) != fixed {
                continue;
            }
            let (long, bool) = (self.long, self.bool);
            let place = |this: &mut Self, walk: &Walk| {
                this.value(Op::Convert(ConvertOp::PtrToInt, at[&walk.index]), long)
            };
            let (from, to) = (place(self, &check.from), place(self, &check.to));
            let distance = self.value(Op::Binary(BinaryOp::Sub, to, from), long);
            let (lowest, room) = (check.above + 1, check.below - check.above - 1);
            let (lowest, room) = (self.number(long, lowest), self.number(long, room));
            let above = self.value(Op::Binary(BinaryOp::Sub, distance, lowest), long);
            let apart = self.value(Op::Compare(CompareOp::UGe, above, room), bool);
            all = Some(match all {
                Some(all) => self.value(Op::Binary(BinaryOp::And, all, apart), bool),
                None => apart,
            });
        }
        all.map(|all| self.value(Op::Whole(all), self.bool))
    }

    fn all<const N: usize>(&mut self, first: Operand, others: [Option<Operand>; N]) -> Operand {
        others.into_iter().flatten().fold(first, |all, condition| {
            self.value(Op::Binary(BinaryOp::And, all, condition), self.bool)
        })
    }
}
