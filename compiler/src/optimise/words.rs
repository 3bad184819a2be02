// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers of 64 bits of which only the lower 32 bits count.
//!
//! C compilers keep an `int` that a `size_t` is added to in 64 bits from one turn of a loop to the next:
//!
//! ```text
//!   for (int i = id; i < n; i += get_global_size(0)) y[i] = ...
//!
//!   i = phi id, next: i64                 i = phi (i32) id, next: i32
//!   wide = i << 32 >> 32          ──▶     wide = sext i
//!   next = wide + size                    next = i + (i32) size
//!   go on if (i32) next < n               go on if next < n
//! ```
//!
//! The left form wraps around at 2^64 for all that its types say, and what the right one counts has bounds
//! ([`promises`](crate::widen)). So such numbers become numbers of 32 bits where a phi is among them, or where an extended
//! number of 32 bits is a part, as in code that was not optimised: `i = (i32) (sext i + size)`.

use std::collections::{HashMap, HashSet};

use super::rename::rename;
use crate::ir::arena::Id;
use crate::ir::{
    BinaryOp, BlockId, ConvertOp, Definition, Flags, Function, Inst, Loc, Module, Op, Operand,
    Type, TypeId, Uses, ValueId, definitions,
};

/// Makes such numbers shorter.
pub(super) fn run(module: &mut Module, function: &mut Function) {
    let is_wide = |inst: &Inst| {
        let wide = |result: ValueId| module.types[function.values[result].ty] == Type::Int(64);
        let is_begun =
            matches!(inst.op, Op::Phi(_) | Op::Convert(ConvertOp::SExt | ConvertOp::ZExt, _));
        is_begun && inst.result.is_some_and(wide)
    };
    if !function.blocks.iter().any(|(_, block)| block.insts.iter().any(is_wide)) {
        return;
    }
    let found = Finder::new(module, function).find();
    if !found.is_empty() {
        Shortener::new(module, function, found).run();
    }
}

/// The operands of which the lower bits of a result are made, and no others.
fn parts(op: &Op) -> Vec<Operand> {
    use BinaryOp as B;
    match op {
        Op::Phi(arms) => arms.iter().map(|arm| arm.1).collect(),
        &Op::Binary(B::Add | B::Sub | B::Mul | B::And | B::Or | B::Xor, a, b)
        | &Op::Select(_, a, b) => vec![a, b],
        _ => Vec::new(),
    }
}

/// What an operation takes the lower 32 bits of, as a number of 64 bits with or without a sign.
pub(super) fn masked(module: &Module, op: &Op) -> Option<Operand> {
    let all = |operand| module.operand_bits(operand) == Some(u64::from(u32::MAX));
    match *op {
        Op::Binary(BinaryOp::And, a, b) if all(b) => Some(a),
        Op::Binary(BinaryOp::And, a, b) if all(a) => Some(b),
        _ => None,
    }
}

/// What is shifted to the left by 32 bits.
pub(super) fn raised(module: &Module, op: &Op) -> Option<Operand> {
    match *op {
        Op::Binary(BinaryOp::Shl, a, by) if module.operand_bits(by) == Some(32) => Some(a),
        _ => None,
    }
}

/// What is shifted to the right by at most 32 bits, and by how many.
pub(super) fn lowered(module: &Module, op: &Op) -> Option<(Operand, u64)> {
    match *op {
        Op::Binary(BinaryOp::AShr | BinaryOp::LShr, a, by) => {
            Some((a, module.operand_bits(by).filter(|by| (1..=32).contains(by))?))
        }
        _ => None,
    }
}

struct Finder<'a> {
    module: &'a Module,
    function: &'a Function,
    definitions: Vec<Option<Definition>>,
    uses: Uses,
}

impl<'a> Finder<'a> {
    fn new(module: &'a Module, function: &'a Function) -> Self {
        let (definitions, uses) = (definitions(function), Uses::of_function(function));
        Self { module, function, definitions, uses }
    }

    fn is_wide(&self, value: ValueId) -> bool {
        self.module.types[self.function.values[value].ty] == Type::Int(64)
    }

    /// The values that can be shorter, and hang together with a phi or a sum with an extended number.
    fn find(&self) -> HashSet<ValueId> {
        let insts = || self.function.blocks.iter().flat_map(|(_, block)| &block.insts);
        let made = insts().filter(|inst| !parts(&inst.op).is_empty());
        let mut found: HashSet<ValueId> =
            made.filter_map(|inst| inst.result).filter(|&it| self.is_wide(it)).collect();
        loop {
            let fails = |value: &&ValueId| !self.uses_lower_bits(**value, &found);
            let fails: Vec<ValueId> = found.iter().filter(fails).copied().collect();
            if fails.is_empty() {
                break;
            }
            fails.iter().for_each(|value| {
                found.remove(value);
            });
        }
        let begins = |value: &&ValueId| match self.made(**value) {
            Some(Op::Phi(_)) => true,
            Some(op) => parts(op).into_iter().any(|part| self.is_extended(part)),
            None => false,
        };
        let mut work: Vec<ValueId> = found.iter().filter(begins).copied().collect();
        let mut kept: HashSet<ValueId> = HashSet::new();
        while let Some(value) = work.pop() {
            if kept.insert(value) {
                let users = self.users(value).filter_map(|inst| inst.result);
                let made = self.made(value).map(parts).unwrap_or_default();
                let made = made.into_iter().filter_map(|part| match part {
                    Operand::Value(part) => Some(part),
                    Operand::Const(_) => None,
                });
                work.extend(users.chain(made).filter(|it| found.contains(it)));
            }
        }
        kept
    }

    /// Whether an operand is a number of 32 bits with its sign, or with zeros.
    fn is_extended(&self, operand: Operand) -> bool {
        let Operand::Value(value) = operand else { return false };
        let Some(&Op::Convert(ConvertOp::SExt | ConvertOp::ZExt, from)) = self.made(value) else {
            return false;
        };
        self.module.types[self.module.operand_type(self.function, from)] == Type::Int(32)
    }

    fn made(&self, value: ValueId) -> Option<&'a Op> {
        match self.definitions[value.index()]? {
            Definition::Inst(block, index) => Some(&self.function.blocks[block].insts[index].op),
            Definition::Entry => None,
        }
    }

    /// The instructions that use a value.
    fn users(&self, value: ValueId) -> impl Iterator<Item = &'a Inst> {
        let places = self.uses.of(value).to_vec();
        let function = self.function;
        places
            .into_iter()
            .filter_map(|(block, index)| function.blocks[block].insts.get(index as usize))
    }

    /// Whether all that uses a value takes its lower bits alone.
    fn uses_lower_bits(&self, value: ValueId, found: &HashSet<ValueId>) -> bool {
        let module = self.module;
        let own = Some(Operand::Value(value));
        let short = |inst: &Inst| {
            let Some(result) = inst.result else { return false };
            if found.contains(&result) || masked(module, &inst.op) == own {
                return true;
            }
            if raised(module, &inst.op) == own {
                return self.only_lowered(result);
            }
            matches!(inst.op, Op::Convert(ConvertOp::Trunc, _))
        };
        self.users(value).count() == self.uses.of(value).len() && self.users(value).all(short)
    }

    fn only_lowered(&self, value: ValueId) -> bool {
        let own = Operand::Value(value);
        let lowers = |inst: &Inst| lowered(self.module, &inst.op).is_some_and(|it| it.0 == own);
        self.users(value).count() == self.uses.of(value).len() && self.users(value).all(lowers)
    }
}

struct Shortener<'a> {
    module: &'a mut Module,
    function: &'a mut Function,
    found: HashSet<ValueId>,
    /// What makes each value.
    made: HashMap<ValueId, Op>,
    short: TypeId,
    /// The names of what is replaced.
    names: HashMap<ValueId, Operand>,
}

impl<'a> Shortener<'a> {
    fn new(module: &'a mut Module, function: &'a mut Function, found: HashSet<ValueId>) -> Self {
        let insts = function.blocks.iter().flat_map(|(_, block)| &block.insts);
        let made = insts.filter_map(|inst| Some((inst.result?, inst.op.clone()))).collect();
        let short = module.types.int(32);
        Self { module, function, found, made, short, names: HashMap::new() }
    }

    fn run(mut self) {
        for &value in &self.found {
            self.function.values[value].ty = self.short;
        }
        // What the arms of phis become at the ends of blocks.
        let mut ends: Vec<(BlockId, Vec<Inst>)> = Vec::new();
        for id in self.function.blocks.ids() {
            let mut insts = Vec::new();
            for inst in std::mem::take(&mut self.function.blocks[id].insts) {
                self.inst(inst, &mut insts, &mut ends);
            }
            self.function.blocks[id].insts = insts;
        }
        for (block, insts) in ends {
            self.function.blocks[block].insts.extend(insts);
        }
        rename(self.function, &self.names);
    }

    fn inst(&mut self, mut inst: Inst, to: &mut Vec<Inst>, ends: &mut Vec<(BlockId, Vec<Inst>)>) {
        let found = |this: &Self, operand: Operand| match operand {
            Operand::Value(value) => this.found.contains(&value),
            Operand::Const(_) => false,
        };
        if inst.result.is_some_and(|result| self.found.contains(&result)) {
            let loc = inst.loc;
            inst.flags = Flags::empty();
            match &mut inst.op {
                Op::Phi(arms) => {
                    for (from, operand) in arms {
                        let mut more = Vec::new();
                        *operand = self.lower(*operand, loc, &mut more);
                        ends.push((*from, more));
                    }
                }
                Op::Binary(_, a, b) | Op::Select(_, a, b) => {
                    *a = self.lower(*a, loc, to);
                    *b = self.lower(*b, loc, to);
                }
                _ => {}
            }
            return to.push(inst);
        }
        if let Op::Convert(ConvertOp::Trunc, a) = inst.op
            && found(self, a)
            && let Some(result) = inst.result
            && self.function.values[result].ty == self.short
        {
            self.names.insert(result, a);
            return;
        }
        if let Some(a) = masked(self.module, &inst.op).filter(|&a| found(self, a)) {
            inst.op = Op::Convert(ConvertOp::ZExt, a);
            return to.push(inst);
        }
        if raised(self.module, &inst.op).is_some_and(|a| found(self, a)) {
            return;
        }
        if let Some((a, by)) = lowered(self.module, &inst.op)
            && let Some(a) = self.raised_value(a).filter(|&a| found(self, a))
        {
            let op = match inst.op {
                Op::Binary(BinaryOp::AShr, ..) => ConvertOp::SExt,
                _ => ConvertOp::ZExt,
            };
            inst.flags = Flags::empty();
            inst.op = Op::Convert(op, a);
            if by < 32
                && let Some(result) = inst.result
            {
                let ty = self.function.values[result].ty;
                let left = Operand::Const(self.module.const_int(ty, 32 - by));
                let wide = self.add(inst.op, ty, inst.loc, to);
                inst.op = Op::Binary(BinaryOp::Shl, wide, left);
            }
            return to.push(inst);
        }
        to.push(inst);
    }

    fn raised_value(&self, operand: Operand) -> Option<Operand> {
        let Operand::Value(value) = operand else { return None };
        raised(self.module, self.made.get(&value)?)
    }

    fn add(&mut self, op: Op, ty: TypeId, loc: Loc, to: &mut Vec<Inst>) -> Operand {
        let result = self.function.new_value(ty);
        to.push(Inst { result: Some(result), op, flags: Flags::empty(), loc });
        Operand::Value(result)
    }

    /// The lower 32 bits of a number.
    fn lower(&mut self, operand: Operand, loc: Loc, to: &mut Vec<Inst>) -> Operand {
        let value = match operand {
            Operand::Const(id) => {
                let bits = self.module.const_bits(id).unwrap_or(0);
                return Operand::Const(self.module.const_int(self.short, bits & 0xffff_ffff));
            }
            Operand::Value(value) if self.found.contains(&value) => return operand,
            Operand::Value(value) => value,
        };
        if let Some(op) = self.made.get(&value) {
            let from = match *op {
                Op::Convert(ConvertOp::SExt | ConvertOp::ZExt, from)
                    if self.module.operand_type(self.function, from) == self.short =>
                {
                    return from;
                }
                _ => masked(self.module, op).or_else(|| {
                    let (from, _) = lowered(self.module, op).filter(|&(_, by)| by == 32)?;
                    self.raised_value(from)
                }),
            };
            if let Some(from) = from {
                return self.lower(from, loc, to);
            }
        }
        self.add(Op::Convert(ConvertOp::Trunc, operand), self.short, loc, to)
    }
}
