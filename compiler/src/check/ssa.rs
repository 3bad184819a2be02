// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control-flow graph and the SSA form: every use comes after its definition on every path.

use crate::ir::{
    Block, BlockId, Definition, Dominators, Function, Id, Loc, Op, Operand, definitions,
};

/// Checks a function; reports each violation.
pub fn check(function: &Function, report: &mut impl FnMut(Loc, String)) {
    let predecessors = function.predecessors();
    if predecessors.first().is_none_or(|entry| !entry.is_empty()) {
        report(function.loc, "has a first block that is branched to".into());
        return;
    }
    let dominators = Dominators::of(function, &predecessors);
    let definitions = definitions(function);
    for (id, block) in function.blocks.iter() {
        phis(block, &predecessors[id.index()], report);
        for (index, inst) in block.insts.iter().enumerate() {
            if let Op::Phi(incoming) = &inst.op {
                for (from, operand) in incoming {
                    // The use is at the end of the predecessor.
                    if !defined(&definitions, &dominators, *operand, *from, usize::MAX) {
                        report(inst.loc, use_before_definition(function, *operand));
                    }
                }
                continue;
            }
            inst.op.for_each_operand(|operand| {
                if !defined(&definitions, &dominators, operand, id, index) {
                    report(inst.loc, use_before_definition(function, operand));
                }
            });
        }
        block.terminator.for_each_operand(|operand| {
            if !defined(&definitions, &dominators, operand, id, usize::MAX) {
                report(block.loc, use_before_definition(function, operand));
            }
        });
    }
}

fn use_before_definition(function: &Function, operand: Operand) -> String {
    let name = match operand {
        Operand::Value(value) => function.values.get(value).and_then(|value| value.name.as_deref()),
        Operand::Const(_) => None,
    };
    let name = name.map_or_else(|| "a value".to_owned(), |name| format!("{name:?}"));
    format!("uses {name} on a path where it is not defined")
}

/// Phis stand first in a block and name each predecessor once.
fn phis(block: &Block, predecessors: &[BlockId], report: &mut impl FnMut(Loc, String)) {
    let mut behind = false;
    for inst in &block.insts {
        let Op::Phi(incoming) = &inst.op else {
            behind = true;
            continue;
        };
        if behind {
            report(inst.loc, "does not stand at the start of its block".into());
        }
        let mut from: Vec<BlockId> = incoming.iter().map(|&(from, _)| from).collect();
        from.sort();
        if from != predecessors {
            report(inst.loc, "does not name each block that leads to its block once".into());
        }
    }
}

/// Whether an operand is defined before instruction `index` of `block`.
fn defined(
    definitions: &[Option<Definition>],
    dominators: &Dominators,
    operand: Operand,
    block: BlockId,
    index: usize,
) -> bool {
    let Operand::Value(value) = operand else { return true };
    match definitions.get(value.index()).copied().flatten() {
        None => false,
        Some(Definition::Entry) => true,
        Some(Definition::Inst(home, at)) if home == block => at < index,
        Some(Definition::Inst(home, _)) => dominators.dominates(home, block),
    }
}
