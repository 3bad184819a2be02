// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bits of a word that conditions set.
//!
//! ```text
//!   eq |= (uint)(pattern[k] == c) << k        shl (select c, 1, 0), k    ──▶    select c, (shl 1, k), 0
//! ```
//!
//! In a vector of items the left form is a vector of ones and zeros, and a shift of it. Items mostly share the place of the
//! bit, so the right one is a scalar shift, and the condition is the mask of what the bit is used for.

use std::collections::HashMap;

use crate::ir::{BinaryOp, Flags, Function, Inst, Module, Op, Operand, ValueId};

/// Chooses between a shifted constant and 0, in place of shifting what was chosen.
pub(super) fn run(module: &Module, function: &mut Function) {
    let flag = |inst: &Inst| match inst.op {
        Op::Select(condition, set, clear)
            if module.operand_bits(set).is_some() && module.operand_bits(clear) == Some(0) =>
        {
            Some((inst.result?, (condition, set, clear)))
        }
        _ => None,
    };
    let insts = function.blocks.iter().flat_map(|(_, block)| &block.insts);
    let flags: HashMap<ValueId, (Operand, Operand, Operand)> = insts.filter_map(flag).collect();
    if flags.is_empty() {
        return;
    }
    for id in function.blocks.ids() {
        let mut place = 0;
        while place < function.blocks[id].insts.len() {
            let inst = &function.blocks[id].insts[place];
            let shifted = match (&inst.op, inst.result) {
                (&Op::Binary(BinaryOp::Shl, Operand::Value(flag), by), Some(result))
                    if module.operand_bits(by).is_none() =>
                {
                    flags.get(&flag).map(|&parts| (parts, by, result, inst.loc))
                }
                _ => None,
            };
            if let Some(((condition, set, clear), by, result, loc)) = shifted {
                let bit = function.new_value(function.values[result].ty);
                let insts = &mut function.blocks[id].insts;
                insts[place].op = Op::Select(condition, Operand::Value(bit), clear);
                insts[place].flags = Flags::empty();
                let op = Op::Binary(BinaryOp::Shl, set, by);
                insts.insert(place, Inst { result: Some(bit), op, flags: Flags::empty(), loc });
                place += 1;
            }
            place += 1;
        }
    }
}
