// SPDX-License-Identifier: MIT OR Apache-2.0
//! An order of the blocks in which later blocks wait for earlier ones.
//!
//! Diverged items of a sub-group reconverge if those that are behind continue first: in program order,
//! with the whole of a loop before the code behind it. This computes that order for any graph: strongly
//! connected components are in topological order, and within one its entry comes first and the rest is
//! ordered in the same way without it.

use crate::ir::arena::Id;
use crate::ir::{BlockId, ENTRY, Function};

/// The depth of nested loops beyond which blocks keep their original order.
const MAX_DEPTH: u32 = 64;

/// A function's blocks in order, and its loops as ranges of that order.
pub struct Nest {
    /// All blocks.
    pub order: Vec<BlockId>,
    /// Loops: places of the first block, which is the loop's entry, and of the last. Outer loops
    /// precede those in them.
    pub loops: Vec<(usize, usize)>,
    /// Whether loops are nested too deeply to be distinguished.
    pub too_deep: bool,
}

/// The place of each block in the order, indexed by block number.
pub fn ranks(function: &Function) -> Vec<u32> {
    let mut ranks = vec![0; function.blocks.len()];
    for (rank, block) in (0..).zip(nest(function).order) {
        ranks[block.index()] = rank;
    }
    ranks
}

/// The order of a function's blocks.
pub fn nest(function: &Function) -> Nest {
    let next = function
        .blocks
        .iter()
        .map(|(_, block)| block.terminator.successors().iter().map(|id| id.index()).collect())
        .collect();
    let count = function.blocks.len();
    let mut order = Order {
        next,
        within: vec![1; count],
        order: Vec::with_capacity(count),
        loops: Vec::new(),
        too_deep: false,
    };
    let mut nodes: Vec<usize> = (0..count).collect();
    // The walk begins at the entry, so that the order of alternatives is that of the branches.
    nodes.sort_by_key(|&node| node != ENTRY.index());
    order.arrange(&nodes, 1);
    Nest {
        order: order.order.into_iter().map(BlockId::from_index).collect(),
        loops: order.loops,
        too_deep: order.too_deep,
    }
}

/// The place of a block.
pub fn rank(ranks: &[u32], block: BlockId) -> u32 {
    ranks.get(block.index()).copied().unwrap_or(u32::MAX)
}

struct Order {
    next: Vec<Vec<usize>>,
    /// The level of the part of the graph to which each node belongs now; 0 when it is placed.
    within: Vec<u32>,
    order: Vec<usize>,
    loops: Vec<(usize, usize)>,
    too_deep: bool,
}

impl Order {
    /// Places nodes, which are all connected nodes of a level.
    fn arrange(&mut self, nodes: &[usize], level: u32) {
        for mut part in self.components(nodes, level) {
            let first = self.order.len();
            if part.len() > 1 || self.next[part[0]].contains(&part[0]) {
                self.loops.push((first, first + part.len() - 1));
            }
            if part.len() == 1 || level >= MAX_DEPTH {
                self.too_deep |= part.len() > 1;
                part.sort_unstable();
                self.place(&part);
                continue;
            }
            // The walk has reached the entry of the part first.
            let entry = part.remove(0);
            self.place(&[entry]);
            part.iter().for_each(|&node| self.within[node] = level + 1);
            self.arrange(&part, level + 1);
        }
    }

    fn place(&mut self, nodes: &[usize]) {
        for &node in nodes {
            self.within[node] = 0;
            self.order.push(node);
        }
    }

    /// The strongly connected components of a level in topological order, each with its nodes in the
    /// order in which they were reached: Tarjan's algorithm without recursion.
    fn components(&self, nodes: &[usize], level: u32) -> Vec<Vec<usize>> {
        #[derive(Clone, Copy, Default)]
        struct Seen {
            /// The number of the visit, from 1.
            number: u32,
            /// The lowest number that is reached on the stack.
            low: u32,
            done: bool,
        }
        let mut seen = std::collections::HashMap::<usize, Seen>::with_capacity(nodes.len());
        let (mut stack, mut parts, mut count) = (Vec::new(), Vec::new(), 0);
        for &root in nodes {
            if seen.contains_key(&root) {
                continue;
            }
            let mut path = vec![(root, 0)];
            while let Some((node, edge)) = path.last_mut() {
                let node = *node;
                if *edge == 0 {
                    count += 1;
                    seen.insert(node, Seen { number: count, low: count, done: false });
                    stack.push(node);
                }
                let target = self.next[node].get(*edge).copied();
                *edge += 1;
                let Some(target) = target else {
                    path.pop();
                    let own = seen[&node];
                    if let Some((parent, _)) = path.last()
                        && let Some(parent) = seen.get_mut(parent)
                    {
                        parent.low = parent.low.min(own.low);
                    }
                    if own.low == own.number {
                        let from = stack.iter().rposition(|&other| other == node).unwrap_or(0);
                        let part = stack.split_off(from);
                        for member in &part {
                            seen.entry(*member).or_default().done = true;
                        }
                        parts.push(part);
                    }
                    continue;
                };
                if self.within[target] != level {
                    continue;
                }
                match seen.get(&target).copied() {
                    None => path.push((target, 0)),
                    Some(other) if !other.done => {
                        if let Some(own) = seen.get_mut(&node) {
                            own.low = own.low.min(other.number);
                        }
                    }
                    Some(_) => {}
                }
            }
        }
        parts.reverse();
        parts
    }
}
