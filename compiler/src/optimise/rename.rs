// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replaces removed values by other operands.

use std::collections::HashMap;

use crate::ir::{Function, Operand, ValueId};

/// Replaces each value by its operand in `names`, which may be replaced in turn.
pub fn rename(function: &mut Function, names: &HashMap<ValueId, Operand>) {
    if names.is_empty() {
        return;
    }
    let change = |operand: &mut Operand| {
        while let Operand::Value(value) = *operand
            && let Some(&name) = names.get(&value)
        {
            *operand = name;
        }
    };
    for (_, block) in function.blocks.iter_mut() {
        block.insts.iter_mut().for_each(|inst| inst.op.for_each_operand_mut(change));
        block.terminator.for_each_operand_mut(change);
    }
}
