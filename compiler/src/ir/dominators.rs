// SPDX-License-Identifier: MIT OR Apache-2.0
//! The dominator tree of a function, by the iterative algorithm of Cooper, Harvey and Kennedy
//! ("A simple, fast dominance algorithm", 2001).

use super::arena::Id;
use super::ids::BlockId;
use super::module::{ENTRY, Function};

/// The dominator tree. Blocks that cannot be reached are not in it.
pub struct Dominators {
    /// The blocks in reverse postorder.
    order: Vec<BlockId>,
    /// By block, its immediate dominator; `None` for the entry.
    parent: Vec<Option<BlockId>>,
    /// By block, the blocks that it immediately dominates, in reverse postorder.
    children: Vec<Vec<BlockId>>,
    /// The first and last time a depth-first walk of the tree was in each block; zeros for blocks that
    /// cannot be reached.
    times: Vec<(u32, u32)>,
}

impl Dominators {
    /// The tree of a function, whose predecessors are known.
    pub fn of(function: &Function, predecessors: &[Vec<BlockId>]) -> Self {
        let order = reverse_postorder(function);
        let mut rank = vec![usize::MAX; function.blocks.len()];
        for (i, block) in order.iter().enumerate() {
            rank[block.index()] = i;
        }
        // Parents by rank; the entry is its own parent.
        let mut above: Vec<Option<usize>> = vec![None; order.len()];
        above[0] = Some(0);
        let mut changed = true;
        while changed {
            changed = false;
            for (i, block) in order.iter().enumerate().skip(1) {
                let mut common: Option<usize> = None;
                for from in &predecessors[block.index()] {
                    let from = rank[from.index()];
                    if from == usize::MAX || above[from].is_none() {
                        continue;
                    }
                    common = Some(match common {
                        None => from,
                        Some(other) => intersect(&above, from, other),
                    });
                }
                if above[i] != common {
                    above[i] = common;
                    changed = true;
                }
            }
        }
        let mut parent = vec![None; function.blocks.len()];
        let mut children = vec![Vec::new(); function.blocks.len()];
        for (&block, above) in order.iter().zip(above).skip(1) {
            let above: Option<BlockId> = above.map(|above| order[above]);
            parent[block.index()] = above;
            if let Some(above) = above {
                children[above.index()].push(block);
            }
        }
        let times = walk(&children);
        Self { order, parent, children, times }
    }

    /// The blocks that can be reached, in reverse postorder: each follows those that dominate it.
    pub fn order(&self) -> &[BlockId] {
        &self.order
    }

    /// The immediate dominator of a block; `None` for the entry and blocks that cannot be reached.
    pub fn parent(&self, block: BlockId) -> Option<BlockId> {
        self.parent[block.index()]
    }

    /// The blocks that a block immediately dominates.
    pub fn children(&self, block: BlockId) -> &[BlockId] {
        &self.children[block.index()]
    }

    /// Whether all paths to `below` pass `above`, which may be the same block.
    pub fn dominates(&self, above: BlockId, below: BlockId) -> bool {
        let (a, b) = (self.times[above.index()], self.times[below.index()]);
        a.0 <= b.0 && b.1 <= a.1 && a.1 != 0
    }

    /// Whether a block can be reached.
    pub fn reaches(&self, block: BlockId) -> bool {
        self.times[block.index()].1 != 0
    }

    /// By block, its dominance frontier: the blocks at which its dominance ends.
    pub fn frontiers(&self, predecessors: &[Vec<BlockId>]) -> Vec<Vec<BlockId>> {
        let mut frontiers = vec![Vec::new(); self.parent.len()];
        for &block in &self.order {
            if predecessors[block.index()].len() < 2 {
                continue;
            }
            for &from in &predecessors[block.index()] {
                let mut above = Some(from).filter(|&from| self.reaches(from));
                while let Some(here) = above.filter(|&here| Some(here) != self.parent(block)) {
                    let frontier: &mut Vec<BlockId> = &mut frontiers[here.index()];
                    if frontier.last() == Some(&block) {
                        break;
                    }
                    frontier.push(block);
                    above = self.parent(here);
                }
            }
        }
        frontiers
    }
}

fn intersect(parent: &[Option<usize>], mut a: usize, mut b: usize) -> usize {
    while a != b {
        // A parent's rank is below its child's, so this ends at the entry in the end.
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

/// Entry and exit times of a walk over the tree, from 1; zeros for blocks that it does not reach.
fn walk(children: &[Vec<BlockId>]) -> Vec<(u32, u32)> {
    let mut times = vec![(0, 0); children.len()];
    let mut clock = 1;
    let mut stack = vec![(ENTRY, 0)];
    times[ENTRY.index()].0 = clock;
    while let Some((block, next)) = stack.last_mut() {
        clock += 1;
        match children[block.index()].get(*next) {
            Some(&child) => {
                *next += 1;
                times[child.index()].0 = clock;
                stack.push((child, 0));
            }
            None => {
                times[block.index()].1 = clock;
                stack.pop();
            }
        }
    }
    times
}
