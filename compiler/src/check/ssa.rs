// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control-flow graph and the SSA form: every use comes after its definition on every path.

use crate::ir::{Block, BlockId, ENTRY, Function, Id, Loc, Op, Operand, ValueId};

/// The place where a value is defined.
#[derive(Clone, Copy)]
enum Definition {
    /// Parameters and private variables: before the entry block.
    Entry,
    /// By the instruction at an index of a block.
    Inst(BlockId, usize),
}

/// Checks a function; reports each violation.
pub fn check(function: &Function, report: &mut impl FnMut(Loc, String)) {
    let predecessors = function.predecessors();
    if predecessors.first().is_none_or(|entry| !entry.is_empty()) {
        report(function.loc, "has a first block that is branched to".into());
        return;
    }
    let dominators = Dominators::new(function, &predecessors);
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

/// Phis come first and name each predecessor once.
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

fn definitions(function: &Function) -> Vec<Option<Definition>> {
    let mut definitions = vec![None; function.values.len()];
    let mut set = |value: ValueId, definition| {
        if let Some(slot) = definitions.get_mut(value.index()) {
            *slot = Some(definition);
        }
    };
    for &param in &function.params {
        set(param, Definition::Entry);
    }
    for variable in &function.variables {
        set(variable.address, Definition::Entry);
    }
    for (id, block) in function.blocks.iter() {
        for (index, inst) in block.insts.iter().enumerate() {
            if let Some(result) = inst.result {
                set(result, Definition::Inst(id, index));
            }
        }
    }
    definitions
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

/// The dominator tree, by the iterative algorithm of Cooper, Harvey and Kennedy.
struct Dominators {
    /// The first and last time a depth-first walk of the tree was in each block.
    times: Vec<(u32, u32)>,
}

impl Dominators {
    fn new(function: &Function, predecessors: &[Vec<BlockId>]) -> Self {
        let order = reverse_postorder(function);
        let mut rank = vec![usize::MAX; function.blocks.len()];
        for (i, block) in order.iter().enumerate() {
            rank[block.index()] = i;
        }
        // Parents by rank; the entry is its own.
        let mut parent: Vec<Option<usize>> = vec![None; order.len()];
        parent[0] = Some(0);
        let mut changed = true;
        while changed {
            changed = false;
            for (i, block) in order.iter().enumerate().skip(1) {
                let mut common: Option<usize> = None;
                for from in &predecessors[block.index()] {
                    let from = rank[from.index()];
                    if from == usize::MAX || parent[from].is_none() {
                        continue;
                    }
                    common = Some(match common {
                        None => from,
                        Some(other) => intersect(&parent, from, other),
                    });
                }
                if parent[i] != common {
                    parent[i] = common;
                    changed = true;
                }
            }
        }
        Self { times: walk(function.blocks.len(), &order, &parent) }
    }

    fn dominates(&self, above: BlockId, below: BlockId) -> bool {
        let (a, b) = (self.times[above.index()], self.times[below.index()]);
        a.0 <= b.0 && b.1 <= a.1 && a.1 != 0
    }
}

fn intersect(parent: &[Option<usize>], mut a: usize, mut b: usize) -> usize {
    while a != b {
        // A parent's rank is below its child's, so this ends at the entry at last.
        if a > b {
            a = parent[a].unwrap_or(0);
        } else {
            b = parent[b].unwrap_or(0);
        }
    }
    a
}

fn reverse_postorder(function: &Function) -> Vec<BlockId> {
    let mut seen = vec![false; function.blocks.len()];
    let mut order = Vec::with_capacity(function.blocks.len());
    let mut stack = vec![(ENTRY, function.blocks[ENTRY].terminator.successors(), 0)];
    seen[ENTRY.index()] = true;
    while let Some((block, successors, next)) = stack.last_mut() {
        match successors.get(*next).copied() {
            Some(successor) => {
                *next += 1;
                if !std::mem::replace(&mut seen[successor.index()], true) {
                    let after = function.blocks[successor].terminator.successors();
                    stack.push((successor, after, 0));
                }
            }
            None => {
                order.push(*block);
                stack.pop();
            }
        }
    }
    order.reverse();
    order
}

/// Entry and exit times of a walk over the dominator tree, from 1; zeros for what it misses.
fn walk(blocks: usize, order: &[BlockId], parent: &[Option<usize>]) -> Vec<(u32, u32)> {
    let mut children = vec![Vec::new(); order.len()];
    for (i, parent) in parent.iter().enumerate().skip(1) {
        if let Some(parent) = parent {
            children[*parent].push(i);
        }
    }
    let mut times = vec![(0, 0); blocks];
    let mut clock = 1;
    let mut stack = vec![(0, 0)];
    times[ENTRY.index()].0 = clock;
    while let Some((node, next)) = stack.last_mut() {
        clock += 1;
        match children[*node].get(*next) {
            Some(&child) => {
                *next += 1;
                times[order[child].index()].0 = clock;
                stack.push((child, 0));
            }
            None => {
                times[order[*node].index()].1 = clock;
                stack.pop();
            }
        }
    }
    times
}
