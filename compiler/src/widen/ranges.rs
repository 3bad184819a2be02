// SPDX-License-Identifier: MIT OR Apache-2.0
//! Indices whose range a test has shown, as sums and with their sign.
//!
//! Where `x >= 0` holds, an extension of `x` with zeros is the same as one with its sign, and where `x < 1024` holds,
//! `y * 1024 + x` has no carries. clang writes the former of each:
//!
//! ```text
//!   if (x >= 0 && x < n) … = in[x];                     in[zext x]
//!   if (x < 1024 && y < 1024) … = in[y * 1024 + x];     in[(y << 10 | x) & 0xfffff]
//! ```
//!
//! In other code such indices are neither neighbours of others nor the same as them: an index without a sign is promised
//! not to be negative in any item ([`promises`](super::promises)), although in a group at an edge some items have a
//! negative number that they do not use; what an `or` joins has no step; and of `if (edge) out[i] = 0; else out[i] = …` the
//! places differ from one way to the other. So they are written as sums, with their sign.

mod facts;

use std::collections::HashMap;

use rustc_hash::FxHashSet;

use self::facts::{Facts, Known, Range};
use crate::ir::arena::Id;
use crate::ir::{
    BinaryOp, BlockId, ConvertOp, Definition, Flags, Function, Inst, Loc, Module, Op, Operand,
    Type, TypeId, definitions,
};
use crate::optimise::is_skipped;

/// The name by which it is left out.
const NAME: &str = "ranges";

/// The longest way from an index back to what it is made of.
const MAX_DEPTH: usize = 8;

/// The bits of a number in the low half of a longer one.
const HALF: u32 = 32;

/// A number of 32 bits as it is written instead.
enum Written {
    /// As it is, or the low half of it.
    Same(Operand),
    Sum(Box<Written>, Box<Written>),
    Shifted(Box<Written>, u64),
}

/// What becomes of an instruction.
enum Change {
    /// A sum in place of an `or`.
    Add(Operand, Operand),
    /// An extension with the sign of a number of 32 bits.
    Extended(Written),
    /// The low half of a number of 64 bits with its sign.
    Low(Operand),
}

/// Writes indices as sums and with their sign where that gives the same number. Returns whether any was changed.
pub(super) fn run(module: &mut Module, function: &mut Function) -> bool {
    let definitions = definitions(function);
    let wanted = candidates(module, function, &definitions);
    if wanted.is_empty() || is_skipped(NAME) {
        return false;
    }
    let facts = Facts::new(module, function, &definitions);
    let mut known: HashMap<BlockId, Known> = HashMap::new();
    let mut changes = Vec::new();
    for (block, index) in wanted {
        let facts_here = known.entry(block).or_insert_with(|| facts.at(block));
        if !facts_here.is_empty()
            && let Some(change) = change(&facts, facts_here, block, index)
        {
            changes.push((block, index, change));
        }
    }
    // The last ones of a block first, so that the places of the others stay what they are.
    changes.sort_by_key(|&(block, index, _)| (block, std::cmp::Reverse(index)));
    let is_any = !changes.is_empty();
    for (block, index, change) in changes {
        write(module, function, block, index, change);
    }
    is_any
}

/// Instructions that indices of addresses are made of and that may be written in another way: their places.
fn candidates(
    module: &Module,
    function: &Function,
    definitions: &[Option<Definition>],
) -> Vec<(BlockId, usize)> {
    let mut open = Vec::new();
    for inst in function.blocks.iter().flat_map(|(_, block)| &block.insts) {
        if let Op::Address { terms, .. } = &inst.op {
            open.extend(terms.iter().map(|term| term.0));
        }
    }
    let (mut seen, mut found) = (FxHashSet::default(), Vec::new());
    while let Some(operand) = open.pop() {
        let Operand::Value(value) = operand else { continue };
        if !seen.insert(value) {
            continue;
        }
        let Some(Definition::Inst(block, index)) = definitions[value.index()] else { continue };
        let inst = &function.blocks[block].insts[index];
        let ty = function.values[value].ty;
        if is_candidate(module, function, &inst.op, ty) {
            found.push((block, index));
        }
        match &inst.op {
            Op::Phi(arms) => open.extend(arms.iter().map(|arm| arm.1)),
            &Op::Binary(
                BinaryOp::Add
                | BinaryOp::Sub
                | BinaryOp::Or
                | BinaryOp::Mul
                | BinaryOp::Shl
                | BinaryOp::AShr,
                a,
                b,
            ) => open.extend([a, b]),
            &Op::Select(_, a, b) => open.extend([a, b]),
            &Op::Convert(ConvertOp::SExt | ConvertOp::ZExt | ConvertOp::Trunc, a) => open.push(a),
            _ => {}
        }
    }
    found
}

fn is_candidate(module: &Module, function: &Function, op: &Op, ty: TypeId) -> bool {
    let is_int = |ty, bits| module.types[ty] == Type::Int(bits);
    let bits = |operand| module.operand_bits(operand);
    match *op {
        Op::Convert(ConvertOp::ZExt, number) => {
            is_int(ty, 64) && is_int(module.operand_type(function, number), HALF)
        }
        Op::Binary(BinaryOp::And, _, mask) => is_int(ty, 64) && bits(mask).is_some_and(is_low),
        Op::Binary(BinaryOp::AShr, _, by) => is_int(ty, 64) && bits(by) == Some(HALF.into()),
        Op::Binary(BinaryOp::Or, ..) => is_int(ty, 64) || is_int(ty, HALF),
        _ => false,
    }
}

/// Whether a mask has the low bits of a half.
fn is_low(mask: u64) -> bool {
    mask != 0 && mask <= u32::MAX.into() && mask & (mask + 1) == 0
}

/// What becomes of an instruction behind tests.
fn change(facts: &Facts, known: &Known, block: BlockId, index: usize) -> Option<Change> {
    let inst = &facts.function.blocks[block].insts[index];
    let low = |number| match facts.written(known, number, 0) {
        Written::Same(number) => Change::Low(number),
        sum => Change::Extended(sum),
    };
    match inst.op {
        Op::Convert(ConvertOp::ZExt, number) => {
            let is_positive = facts.range(known, number, HALF, 0).least >= 0;
            is_positive.then(|| match facts.joins(known, number, 0) {
                true => Change::Extended(facts.written(known, number, 0)),
                false => Change::Extended(Written::Same(number)),
            })
        }
        Op::Binary(BinaryOp::And, number, mask) => {
            let mask = facts.module.operand_bits(mask)?;
            let all = Range { least: 0, most: mask.into() };
            facts.range(known, number, HALF, 0).is_within(all).then(|| low(number))
        }
        Op::Binary(BinaryOp::AShr, up, _) => match facts.made(up)?.op {
            Op::Binary(BinaryOp::Shl, number, by)
                if facts.module.operand_bits(by) == Some(HALF.into()) =>
            {
                facts.joins(known, number, 0).then(|| low(number))
            }
            _ => None,
        },
        Op::Binary(BinaryOp::Or, a, b) => {
            let bits = facts.module.types.scalar_bits(facts.function.values[inst.result?].ty);
            facts.are_apart(known, a, b, bits, 0).then_some(Change::Add(a, b))
        }
        _ => None,
    }
}

impl Facts<'_> {
    /// How the low half of a number is written as a sum.
    fn written(&self, known: &Known, number: Operand, depth: usize) -> Written {
        let next = |operand| Box::new(self.written(known, operand, depth + 1));
        let made = self.made(number).filter(|_| depth < MAX_DEPTH);
        match made.map(|inst| &inst.op) {
            Some(&Op::Binary(BinaryOp::Add, a, b)) => Written::Sum(next(a), next(b)),
            Some(&Op::Binary(BinaryOp::Or, a, b)) if self.are_apart(known, a, b, HALF, depth) => {
                Written::Sum(next(a), next(b))
            }
            Some(&Op::Binary(BinaryOp::Shl, a, by)) => match self.module.operand_bits(by) {
                Some(by) if by < HALF.into() => Written::Shifted(next(a), by),
                _ => Written::Same(number),
            },
            _ => Written::Same(number),
        }
    }

    /// Whether an `or` in what a number is made of can be written as a sum.
    fn joins(&self, known: &Known, number: Operand, depth: usize) -> bool {
        let next = |operand| self.joins(known, operand, depth + 1);
        match self.made(number).filter(|_| depth < MAX_DEPTH).map(|inst| &inst.op) {
            Some(&Op::Binary(BinaryOp::Or, a, b)) => {
                self.are_apart(known, a, b, HALF, depth) || next(a) || next(b)
            }
            Some(&Op::Binary(BinaryOp::Add | BinaryOp::Shl, a, b)) => next(a) || next(b),
            _ => false,
        }
    }
}

/// Changes an instruction.
fn write(
    module: &mut Module,
    function: &mut Function,
    block: BlockId,
    index: usize,
    change: Change,
) {
    let Inst { loc, .. } = function.blocks[block].insts[index];
    let half = module.types.int(HALF);
    let mut writer = Writer { module, function, insts: Vec::new(), half, loc };
    let op = match change {
        Change::Add(a, b) => Op::Binary(BinaryOp::Add, a, b),
        Change::Extended(number) => Op::Convert(ConvertOp::SExt, writer.number(number)),
        Change::Low(number) => {
            let ty = writer.module.operand_type(writer.function, number);
            let by = Operand::Const(writer.module.const_int(ty, HALF.into()));
            Op::Binary(BinaryOp::AShr, writer.make(Op::Binary(BinaryOp::Shl, number, by), ty), by)
        }
    };
    let added = writer.insts;
    let insts = &mut function.blocks[block].insts;
    (insts[index].op, insts[index].flags) = (op, Flags::empty());
    insts.splice(index..index, added);
}

struct Writer<'a> {
    module: &'a mut Module,
    function: &'a mut Function,
    insts: Vec<Inst>,
    /// The type of numbers of 32 bits.
    half: TypeId,
    loc: Loc,
}

impl Writer<'_> {
    fn number(&mut self, written: Written) -> Operand {
        let op = match written {
            Written::Same(number) => {
                if self.module.operand_type(self.function, number) == self.half {
                    return number;
                }
                if let Some(bits) = self.module.operand_bits(number) {
                    return Operand::Const(self.module.const_int(self.half, bits));
                }
                Op::Convert(ConvertOp::Trunc, number)
            }
            Written::Sum(a, b) => Op::Binary(BinaryOp::Add, self.number(*a), self.number(*b)),
            Written::Shifted(a, by) => {
                let by = Operand::Const(self.module.const_int(self.half, by));
                Op::Binary(BinaryOp::Shl, self.number(*a), by)
            }
        };
        self.make(op, self.half)
    }

    fn make(&mut self, op: Op, ty: TypeId) -> Operand {
        let result = self.function.new_value(ty);
        self.insts.push(Inst { result: Some(result), op, flags: Flags::empty(), loc: self.loc });
        Operand::Value(result)
    }
}
