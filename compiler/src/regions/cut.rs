// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cuts blocks at barriers.

use std::collections::HashSet;

use super::barrier::{Barrier, stop_scope};
use crate::ir::{Block, BlockId, Function, Op, Terminator};

/// Cuts blocks behind each barrier. New blocks follow the old ones.
pub(super) fn cut(function: &mut Function) -> Vec<Barrier> {
    let mut barriers = Vec::new();
    let mut work: Vec<BlockId> = function.blocks.ids().rev().collect();
    while let Some(head) = work.pop() {
        let block = &mut function.blocks[head];
        let stop = block.insts.iter().enumerate();
        let stop = stop.filter_map(|(at, inst)| Some((at, stop_scope(&inst.op)?))).next();
        let Some((at, scope)) = stop else { continue };
        let named = matches!(block.insts[at].op, Op::NamedBarrier(..));
        let tail = Block {
            insts: block.insts.split_off(at + 1),
            terminator: Terminator::Unreachable,
            loc: block.loc,
        };
        let resume = function.blocks.push(tail);
        let end = Terminator::Branch(resume);
        let end = std::mem::replace(&mut function.blocks[head].terminator, end);
        rename_predecessor(function, &end, head, resume);
        function.blocks[resume].terminator = end;
        barriers.push(Barrier {
            block: head,
            resume,
            scope,
            named,
            live: Vec::new(),
            changed: Vec::new(),
        });
        work.push(resume);
    }
    barriers
}

/// In the phis behind `end`, replaces the predecessor `from` by `to`.
pub(super) fn rename_predecessor(
    function: &mut Function,
    end: &Terminator,
    from: BlockId,
    to: BlockId,
) {
    let next: HashSet<_> = end.successors().into_iter().collect();
    for next in next {
        function.blocks[next].redirect_phis(from, to);
    }
}
