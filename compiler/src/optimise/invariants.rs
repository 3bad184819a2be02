// SPDX-License-Identifier: MIT OR Apache-2.0
//! Moves what is the same in each turn of a loop in front of it.
//!
//! ```text
//!   for (...) s += a[r * n + k];      ──▶      at = r * n; for (...) s += a[at + k];
//! ```
//!
//! LLVM does so too, but only after widening. What takes loops in strips asks for the distance from one turn's address to
//! the next one's, and for a limit that is known in front of the loop. SPIR-V that was optimised has this form.
//!
//! A quotient or a function moves only if each turn computes it. Where items wait for each other in a loop, only what
//! takes an instruction moves: it is computed again behind the wait.

use super::simplify::is_cheap;
use crate::ir::{
    BinaryOp, BlockId, Definition, Dominators, Function, Id, Inst, Loops, Op, Operand, Terminator,
    UnaryOp, definitions,
};
use crate::regions::stop_scope;

/// Runs the pass over a function whose blocks can all be reached.
pub(super) fn run(function: &mut Function) {
    let predecessors = function.predecessors();
    let dominators = Dominators::of(function, &predecessors);
    let loops = Loops::of(&dominators, &predecessors);
    if loops.all.is_empty() {
        return;
    }
    // The block of each value.
    let mut homes: Vec<Option<BlockId>> = definitions(function)
        .into_iter()
        .map(|definition| match definition {
            Some(Definition::Inst(block, _)) => Some(block),
            _ => None,
        })
        .collect();
    // The blocks of a loop in an order in which each is behind those that dominate it.
    let mut places = vec![0; function.blocks.len()];
    for (place, block) in dominators.order().iter().enumerate() {
        places[block.index()] = place;
    }
    for (index, it) in loops.all.iter().enumerate().rev() {
        let inside = |block: BlockId| loops.contains(index, block);
        let mut before = predecessors[it.header.index()].iter().filter(|&&from| !inside(from));
        let (Some(&entry), None) = (before.next(), before.next()) else { continue };
        if !matches!(function.blocks[entry].terminator, Terminator::Branch(_)) {
            continue;
        }
        let mut blocks = it.blocks.clone();
        blocks.sort_by_key(|block| places[block.index()]);
        let all = || blocks.iter().flat_map(|&id| &function.blocks[id].insts);
        let waits = all().any(|inst| stop_scope(&inst.op).is_some());
        // Blocks behind which the loop may end or begin anew.
        let ends = |id: &&BlockId| {
            let next = function.blocks[**id].terminator.successors();
            next.into_iter().any(|next| next == it.header || !inside(next))
        };
        let ends: Vec<BlockId> = blocks.iter().filter(ends).copied().collect();
        let mut moved = Vec::new();
        for &id in &blocks {
            let always = ends.iter().all(|&end| dominators.dominates(id, end));
            let homes = &mut homes;
            function.blocks[id].insts.retain_mut(|inst| {
                let Some(result) = inst.result else { return true };
                let mut same = inst.op.is_pure() && (always || is_harmless(&inst.op));
                same = same && (!waits || is_cheap(&inst.op));
                inst.op.for_each_operand(|operand| {
                    if let Operand::Value(value) = operand {
                        same = same && !homes[value.index()].is_some_and(inside);
                    }
                });
                if same {
                    homes[result.index()] = Some(entry);
                    moved.push(Inst { op: inst.op.clone(), ..*inst });
                }
                !same
            });
        }
        function.blocks[entry].insts.append(&mut moved);
    }
}

/// Whether an operation costs little, and does nothing but give a result, whatever its operands are.
pub(super) fn is_harmless(op: &Op) -> bool {
    use BinaryOp::{SDiv, SRem, UDiv, URem};
    match op {
        Op::Binary(op, ..) => !matches!(op, SDiv | SRem | UDiv | URem | BinaryOp::FDiv),
        Op::Unary(op, _) => *op != UnaryOp::Sqrt,
        Op::Ternary(..)
        | Op::Compare(..)
        | Op::Select(..)
        | Op::Convert(..)
        | Op::Address { .. }
        | Op::WorkItem(..) => true,
        _ => false,
    }
}
