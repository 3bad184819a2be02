// SPDX-License-Identifier: MIT OR Apache-2.0
//! Masked numbers of 32 bits that are nothing but places: `t[(i + 3) & 2047]` with an `int`.

use std::collections::HashMap;

use crate::ir::{BinaryOp, ConvertOp, Function, Module, Op, Operand, TypeId, ValueId, definitions};
use crate::ir::{Definition, arena::Id};
use crate::optimise::is_skipped;

/// The name by which it is left out.
const NAME: &str = "masks";

/// The fewest low bits of a constant mask: a vector of 16 items wraps around in less than half of its places.
const LEAST: u32 = 5;

/// The masked numbers of 32 bits that are extended to 64 bits for indices, all in one way, and used for nothing else. A
/// constant mask has room for two vectors.
pub(super) fn find(
    module: &Module,
    function: &Function,
    indices: &[bool],
) -> HashMap<ValueId, ConvertOp> {
    let mut found = HashMap::new();
    if is_skipped(NAME) {
        return found;
    }
    let bits = |ty: TypeId| match module.types.lanes(ty) {
        1 => module.types.scalar_bits(ty),
        _ => 0,
    };
    let definitions = definitions(function);
    let is_masked = |value: ValueId| {
        let Some(Definition::Inst(block, index)) = definitions[value.index()] else { return false };
        let Op::Binary(BinaryOp::And, a, b) = function.blocks[block].insts[index].op else {
            return false;
        };
        let roomy = |operand: Operand| {
            module.operand_bits(operand).is_none_or(|mask| mask.trailing_ones() >= LEAST)
        };
        bits(function.values[value].ty) == 32 && roomy(a) && roomy(b)
    };
    let mut others = Vec::new();
    for (_, block) in function.blocks.iter() {
        for inst in &block.insts {
            match (&inst.op, inst.result) {
                (
                    &Op::Convert(how @ (ConvertOp::SExt | ConvertOp::ZExt), Operand::Value(from)),
                    Some(to),
                ) if indices[to.index()] && bits(function.values[to].ty) == 64 => {
                    if is_masked(from) && *found.entry(from).or_insert(how) != how {
                        others.push(Operand::Value(from));
                    }
                }
                (op, _) => op.for_each_operand(|operand| others.push(operand)),
            }
        }
        block.terminator.for_each_operand(|operand| others.push(operand));
    }
    for operand in others {
        if let Operand::Value(value) = operand {
            found.remove(&value);
        }
    }
    found
}
