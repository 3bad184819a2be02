// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the values that an item needs behind each barrier, and those of them that its frame does not
//! hold yet.
//!
//! Only the blocks at which items are resumed matter, so no set of values is kept for each block. One
//! walk for each value, from its uses up to its definition, finds where it is live; one walk for each
//! barrier, up to the barriers before it, finds the values defined since. Both take time in proportion
//! to the blocks that they pass.

use super::barrier::Barrier;
use crate::ir::arena::Id;
use crate::ir::{BlockId, Function, Op, Operand, ValueId};

/// Fills in [`Barrier::live`] and [`Barrier::changed`] of all barriers, in ascending order.
pub(super) fn find(function: &Function, barriers: &mut [Barrier]) {
    let mut graph = Graph::new(function);
    find_live(function, &mut graph, barriers);
    find_changed(&mut graph, barriers);
}

/// The function's edges, and a walk over them.
struct Graph {
    predecessors: Vec<Vec<BlockId>>,
    /// By value, the block that defines it; `None` for parameters and addresses of variables.
    defined_in: Vec<Option<BlockId>>,
    /// By block, the last walk that has reached it.
    seen: Vec<u32>,
    walk: u32,
    /// The blocks that this walk has reached, in order.
    passed: Vec<BlockId>,
}

impl Graph {
    fn new(function: &Function) -> Self {
        let mut defined_in = vec![None; function.values.len()];
        for (id, block) in function.blocks.iter() {
            for result in block.insts.iter().filter_map(|inst| inst.result) {
                defined_in[result.index()] = Some(id);
            }
        }
        let seen = vec![0; function.blocks.len()];
        let predecessors = function.predecessors();
        Self { predecessors, defined_in, seen, walk: 0, passed: Vec::new() }
    }

    /// Walks from `starts` to all blocks before them, but not to those for which `bars` holds.
    fn walk(&mut self, starts: &[BlockId], bars: impl Fn(BlockId) -> bool) {
        self.walk += 1;
        self.passed.clear();
        starts.iter().for_each(|&start| self.pass(start));
        let mut next = 0;
        while let Some(&id) = self.passed.get(next) {
            next += 1;
            for at in 0..self.predecessors[id.index()].len() {
                let before = self.predecessors[id.index()][at];
                if !bars(before) {
                    self.pass(before);
                }
            }
        }
    }

    fn pass(&mut self, block: BlockId) {
        if std::mem::replace(&mut self.seen[block.index()], self.walk) != self.walk {
            self.passed.push(block);
        }
    }

    fn has_seen(&self, block: BlockId) -> bool {
        self.seen[block.index()] == self.walk
    }
}

/// A phi's operands are live at the end of their predecessor; its result is not live at the start of
/// its block.
fn find_live(function: &Function, graph: &mut Graph, barriers: &mut [Barrier]) {
    // By value, the blocks at whose start it is live because they, or phis behind them, use it.
    let mut used_in: Vec<Vec<BlockId>> = vec![Vec::new(); function.values.len()];
    let mut note = |operand: Operand, block: BlockId| {
        let Operand::Value(value) = operand else { return };
        let blocks = &mut used_in[value.index()];
        if graph.defined_in[value.index()] != Some(block) && blocks.last() != Some(&block) {
            blocks.push(block);
        }
    };
    for (id, block) in function.blocks.iter() {
        for inst in &block.insts {
            match &inst.op {
                Op::Phi(arms) => arms.iter().for_each(|&(from, operand)| note(operand, from)),
                op => op.for_each_operand(|operand| note(operand, id)),
            }
        }
        block.terminator.for_each_operand(|operand| note(operand, id));
    }
    let mut resumes = vec![None; function.blocks.len()];
    for (number, barrier) in barriers.iter().enumerate() {
        resumes[barrier.resume.index()] = Some(number);
    }
    for (value, starts) in function.values.ids().zip(&used_in).filter(|(_, it)| !it.is_empty()) {
        let home = graph.defined_in[value.index()];
        graph.walk(starts, |block| home == Some(block));
        for barrier in graph.passed.iter().filter_map(|block| resumes[block.index()]) {
            barriers[barrier].live.push(value);
        }
    }
}

/// Finds the values that were defined since the item began or was last resumed. Behind a barrier all
/// live values have just been loaded from the frame.
fn find_changed(graph: &mut Graph, barriers: &mut [Barrier]) {
    let mut stops = vec![false; graph.seen.len()];
    barriers.iter().for_each(|barrier| stops[barrier.block.index()] = true);
    for barrier in barriers {
        graph.walk(&[barrier.block], |block| stops[block.index()]);
        let changed = |value: &&ValueId| {
            graph.defined_in[value.index()].is_some_and(|home| graph.has_seen(home))
        };
        barrier.changed = barrier.live.iter().filter(changed).copied().collect();
    }
}
