// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps the control-flow graph small: operations on blocks that several passes share.

use std::collections::HashMap;

use crate::ir::{Arena, BlockId, ENTRY, Function, Id, Op, Terminator};

/// Removes the blocks that cannot be reached. The others keep their order.
pub(super) fn remove_unreachable(function: &mut Function) {
    let mut reached = vec![false; function.blocks.len()];
    reached[ENTRY.index()] = true;
    let mut work = vec![ENTRY];
    while let Some(id) = work.pop() {
        for next in function.blocks[id].terminator.successors() {
            if !std::mem::replace(&mut reached[next.index()], true) {
                work.push(next);
            }
        }
    }
    keep(function, &reached);
}

/// Merges each block with its only successor, if it is that one's only predecessor.
pub(super) fn join_chains(function: &mut Function) {
    let predecessors = function.predecessors();
    let mut kept = vec![true; function.blocks.len()];
    // For each block that was merged into an earlier one, that block.
    let mut within: HashMap<BlockId, BlockId> = HashMap::new();
    for id in function.blocks.ids() {
        if !kept[id.index()] {
            continue;
        }
        while let Terminator::Branch(next) = function.blocks[id].terminator
            && next != id
            && next != ENTRY
            && predecessors[next.index()].len() == 1
            && function.blocks[next].phis().next().is_none()
        {
            let behind = &mut function.blocks[next];
            let loc = behind.loc;
            let insts = std::mem::take(&mut behind.insts);
            let end = std::mem::replace(&mut behind.terminator, Terminator::Unreachable);
            let block = &mut function.blocks[id];
            block.insts.extend(insts);
            block.terminator = end;
            block.loc = loc;
            kept[next.index()] = false;
            within.insert(next, id);
        }
    }
    if within.is_empty() {
        return;
    }
    let home = |mut id: BlockId| {
        while let Some(&before) = within.get(&id) {
            id = before;
        }
        id
    };
    for (_, block) in function.blocks.iter_mut() {
        for inst in &mut block.insts {
            let Op::Phi(incoming) = &mut inst.op else { break };
            incoming.iter_mut().for_each(|(from, _)| *from = home(*from));
        }
    }
    keep(function, &kept);
}

/// Keeps only some blocks, and in phis only the values from these.
fn keep(function: &mut Function, kept: &[bool]) {
    if kept.iter().all(|&kept| kept) {
        return;
    }
    let mut numbers = vec![None; kept.len()];
    let kept = function.blocks.ids().filter(|id| kept[id.index()]);
    for (number, id) in kept.enumerate() {
        numbers[id.index()] = Some(BlockId::from_index(number));
    }
    let mut blocks = Arena::default();
    for (id, mut block) in std::mem::take(&mut function.blocks) {
        if numbers[id.index()].is_none() {
            continue;
        }
        block.terminator.for_each_successor_mut(|next| {
            *next = numbers[next.index()].unwrap_or(*next);
        });
        for inst in &mut block.insts {
            let Op::Phi(incoming) = &mut inst.op else { break };
            incoming.retain_mut(|(from, _)| match numbers[from.index()] {
                Some(number) => {
                    *from = number;
                    true
                }
                None => false,
            });
            incoming.sort_by_key(|&(from, _)| from);
        }
        blocks.push(block);
    }
    function.blocks = blocks;
}
