// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scalars that describe masks.

use rustc_hash::FxHashMap;

use super::names::Names;
use crate::ir::{Function, Op, Operand, UnaryOp, ValueId};

/// Two scalars of type `bool` that describe a mask.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    /// Whether it has any lane.
    pub(super) any: Operand,
    /// Whether it has all lanes.
    pub(super) all: Operand,
}

/// Tests scalars, where they are known, instead of masks for lanes. `names` maps replaced values to
/// their operands.
pub(super) fn ask_scalars(
    function: &mut Function,
    known: &FxHashMap<ValueId, Known>,
    names: &mut Names,
) {
    let mut negated: FxHashMap<ValueId, Operand> = FxHashMap::default();
    for inst in function.blocks.iter().flat_map(|(_, block)| &block.insts) {
        if let (Some(result), &Op::Unary(UnaryOp::Not, a)) = (inst.result, &inst.op) {
            negated.insert(result, names.find(a));
        }
    }
    let known = |operand: Operand| match operand {
        Operand::Value(value) => known.get(&value),
        Operand::Const(_) => None,
    };
    for (_, block) in function.blocks.iter_mut() {
        for inst in &mut block.insts {
            let (Some(result), &Op::Any(mask)) = (inst.result, &inst.op) else { continue };
            let mask = names.find(mask);
            let opposite = match mask {
                Operand::Value(value) => negated.get(&value).copied(),
                Operand::Const(_) => None,
            };
            if let Some(known) = known(mask) {
                names.set(result, known.any);
            } else if let Some(known) = opposite.and_then(known) {
                inst.op = Op::Unary(UnaryOp::Not, known.all);
            }
        }
    }
}
