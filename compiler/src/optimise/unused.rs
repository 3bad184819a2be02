// SPDX-License-Identifier: MIT OR Apache-2.0
//! Removes instructions without effects whose results do not contribute to an effect.

use std::collections::{HashMap, HashSet};

use crate::ir::{Function, Op, Operand, ValueId};

/// Removes instructions whose results are not used.
pub fn run(function: &mut Function) {
    let mut needed: HashSet<ValueId> = HashSet::new();
    let mut work: Vec<ValueId> = Vec::new();
    let mut sources: HashMap<ValueId, Vec<ValueId>> = HashMap::new();
    let value = |operand: Operand| match operand {
        Operand::Value(value) => Some(value),
        Operand::Const(_) => None,
    };
    for (_, block) in function.blocks.iter() {
        block.terminator.for_each_operand(|operand| work.extend(value(operand)));
        for inst in &block.insts {
            let mut operands = Vec::new();
            inst.op.for_each_operand(|operand| operands.extend(value(operand)));
            match inst.result {
                Some(result) if removable(&inst.op) => {
                    sources.insert(result, operands);
                }
                _ => work.extend(operands),
            }
        }
    }
    while let Some(value) = work.pop() {
        if needed.insert(value) {
            work.extend(sources.get(&value).into_iter().flatten());
        }
    }
    for (_, block) in function.blocks.iter_mut() {
        block.insts.retain(|inst| match inst.result {
            Some(result) => needed.contains(&result) || !removable(&inst.op),
            None => true,
        });
    }
}

/// Whether an operation with an unused result can be removed.
fn removable(op: &Op) -> bool {
    if let Op::Load(_, access) | Op::MaskedLoad(_, _, access) | Op::Gather(_, _, access) = op {
        return !access.volatile;
    }
    !matches!(
        op,
        Op::AtomicLoad(..)
            | Op::AtomicRmw(..)
            | Op::AddLater(..)
            | Op::ScatterClose(..)
            | Op::AtomicCompareExchange { .. }
            | Op::Printf(..)
            | Op::Texels(..)
            | Op::Call(..)
            | Op::Collect(..)
    )
}
