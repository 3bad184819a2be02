// SPDX-License-Identifier: MIT OR Apache-2.0
//! Indices that a test has shown not to be negative, with their sign.
//!
//! Where `x >= 0` holds, an extension of `x` with zeros is the same as one with its sign, and clang writes the former:
//!
//! ```text
//!   int x = first - border + get_local_id(0);
//!   if (x >= 0 && x < n) … = in[x];                     in[zext x]
//! ```
//!
//! In a group at an edge some items have a negative number, which they do not use. An index without a sign is promised not
//! to be negative in any item ([`promises`](super::promises)), so such groups would run one item at a time. With its sign
//! it only has to fit.

use super::compares::{mirrored, opposite};
use super::promises::signed_bits;
use crate::ir::arena::Id;
use crate::ir::{
    BinaryOp, BlockId, CompareOp, ConvertOp, Definition, Dominators, Function, Inst, Module, Op,
    Operand, Terminator, Type, UnaryOp, definitions,
};
use crate::optimise::is_skipped;

/// The name by which it is left out.
const NAME: &str = "signs";

/// The most conditions in one another that are looked at.
const MAX_DEPTH: usize = 8;

/// Extends indices of 32 bits with their sign where that gives the same number.
pub(super) fn run(module: &Module, function: &mut Function) {
    let wanted = candidates(module, function);
    if wanted.is_empty() || is_skipped(NAME) {
        return;
    }
    let predecessors = function.predecessors();
    let dominators = Dominators::of(function, &predecessors);
    let finder = Finder { module, function, definitions: definitions(function) };
    let mut found = Vec::new();
    for (block, index, number) in wanted {
        let mut at = Some(block);
        while let Some(here) = at {
            at = dominators.parent(here);
            if let &[from] = predecessors[here.index()].as_slice()
                && let Terminator::CondBranch(condition, yes, no) = function.blocks[from].terminator
                && yes != no
                && finder.keeps_sign(condition, yes == here, number, 0)
            {
                found.push((block, index, number));
                break;
            }
        }
    }
    for (block, index, number) in found {
        function.blocks[block].insts[index].op = Op::Convert(ConvertOp::SExt, number);
    }
}

/// The extensions with zeros that are indices of addresses: their places, and what they extend.
fn candidates(module: &Module, function: &Function) -> Vec<(BlockId, usize, Operand)> {
    let mut found = Vec::new();
    for (block, body) in function.blocks.iter() {
        for (index, inst) in body.insts.iter().enumerate() {
            let (&Op::Convert(ConvertOp::ZExt, number @ Operand::Value(_)), Some(result)) =
                (&inst.op, inst.result)
            else {
                continue;
            };
            let is_int = |ty, bits| module.types[ty] == Type::Int(bits);
            if is_int(function.values[result].ty, 64)
                && is_int(module.operand_type(function, number), 32)
            {
                found.push((block, index, number, Operand::Value(result)));
            }
        }
    }
    if found.is_empty() {
        return Vec::new();
    }
    let mut indices = rustc_hash::FxHashSet::default();
    for inst in function.blocks.iter().flat_map(|(_, block)| &block.insts) {
        if let Op::Address { terms, .. } = &inst.op {
            indices.extend(terms.iter().map(|term| term.0));
        }
    }
    found.retain(|it| indices.contains(&it.3));
    found.into_iter().map(|(block, index, number, _)| (block, index, number)).collect()
}

struct Finder<'a> {
    module: &'a Module,
    function: &'a Function,
    definitions: Vec<Option<Definition>>,
}

impl<'a> Finder<'a> {
    fn made(&self, operand: Operand) -> Option<&'a Inst> {
        let Operand::Value(value) = operand else { return None };
        match self.definitions[value.index()]? {
            Definition::Inst(block, index) => Some(&self.function.blocks[block].insts[index]),
            Definition::Entry => None,
        }
    }

    fn constant(&self, operand: Operand) -> Option<i64> {
        signed_bits(self.module, operand)
    }

    /// Whether a condition that holds, or does not, says that a number is not negative.
    fn keeps_sign(&self, condition: Operand, holds: bool, number: Operand, depth: usize) -> bool {
        let Some(inst) = self.made(condition).filter(|_| depth < MAX_DEPTH) else { return false };
        let either = |a, b| {
            self.keeps_sign(a, holds, number, depth + 1)
                || self.keeps_sign(b, holds, number, depth + 1)
        };
        let is_bool = |operand, value| self.module.operand_bits(operand) == Some(u64::from(value));
        match inst.op {
            Op::Compare(op, a, b) => {
                let op = if holds { Some(op) } else { opposite(op) };
                op.is_some_and(|op| {
                    self.is_above(op, a, b, number) || self.is_above(mirrored(op), b, a, number)
                })
            }
            Op::Unary(UnaryOp::Not, a) => self.keeps_sign(a, !holds, number, depth + 1),
            Op::Binary(BinaryOp::And, a, b) if holds => either(a, b),
            Op::Binary(BinaryOp::Or, a, b) if !holds => either(a, b),
            // A logical "and" or "or".
            Op::Select(a, b, c) if holds && is_bool(c, false) => either(a, b),
            Op::Select(a, b, c) if !holds && is_bool(b, true) => either(a, c),
            _ => false,
        }
    }

    /// Whether a comparison with a constant says so of a number, which is what is compared, or less by a constant.
    fn is_above(&self, op: CompareOp, a: Operand, b: Operand, number: Operand) -> bool {
        let Some(bound) = self.constant(b) else { return false };
        let less = match self.made(number).map(|inst| &inst.op) {
            _ if number == a => Some(0),
            Some(&Op::Binary(BinaryOp::Add, of, by)) if of == a => self.constant(by),
            Some(&Op::Binary(BinaryOp::Sub, of, by)) if of == a => self.constant(by).map(|by| -by),
            _ => None,
        };
        // What grows may wrap around.
        let Some(less) = less.filter(|less| *less <= 0) else { return false };
        let least = match op {
            CompareOp::SGt => bound + 1,
            CompareOp::SGe | CompareOp::Eq => bound,
            // From 0 to the bound.
            CompareOp::ULt | CompareOp::ULe if bound >= 0 => 0,
            _ => return false,
        };
        least + less >= 0
    }
}
