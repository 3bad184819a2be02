// SPDX-License-Identifier: MIT OR Apache-2.0
//! The natural loops of a function.

use super::arena::Id;
use super::dominators::Dominators;
use super::ids::BlockId;

/// A loop: the blocks between a header and the branches back to it, which the header dominates.
pub struct Loop {
    /// The block at which it is entered.
    pub header: BlockId,
    /// The blocks that branch back to the header.
    pub latches: Vec<BlockId>,
    /// All its blocks, the header first.
    pub blocks: Vec<BlockId>,
    /// The smallest loop around it, by index.
    pub parent: Option<usize>,
}

/// The loops of a function. A cycle with several entries is not a natural loop and not listed.
pub struct Loops {
    /// Each precedes the loops within it.
    pub all: Vec<Loop>,
    /// By block, the innermost loop.
    pub within: Vec<Option<usize>>,
}

impl Loops {
    /// Finds the loops of a function.
    pub fn of(dominators: &Dominators, predecessors: &[Vec<BlockId>]) -> Self {
        let mut loops = Self { all: Vec::new(), within: vec![None; predecessors.len()] };
        // A header precedes those of the loops in its loop.
        for &header in dominators.order() {
            let from = predecessors[header.index()].iter().copied();
            let latches: Vec<BlockId> =
                from.filter(|&from| dominators.dominates(header, from)).collect();
            if latches.is_empty() {
                continue;
            }
            let number = loops.all.len();
            let parent = loops.within[header.index()];
            loops.within[header.index()] = Some(number);
            let mut blocks = vec![header];
            let mut work = latches.clone();
            while let Some(block) = work.pop() {
                if loops.within[block.index()] != Some(number) && dominators.reaches(block) {
                    loops.within[block.index()] = Some(number);
                    blocks.push(block);
                    work.extend(&predecessors[block.index()]);
                }
            }
            loops.all.push(Loop { header, latches, blocks, parent });
        }
        loops
    }

    /// Whether a block belongs to a loop, or to one within it.
    pub fn contains(&self, index: usize, block: BlockId) -> bool {
        let mut next = self.within[block.index()];
        while let Some(here) = next {
            // A loop has a greater index than those around it.
            if here <= index {
                return here == index;
            }
            next = self.all[here].parent;
        }
        false
    }
}
