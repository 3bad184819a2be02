// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cuts a kernel at the points where work-items wait for each other, so that one thread can run a whole
//! group.
//!
//! Items wait at barriers, and at operations of groups and sub-groups. Such an operation is a barrier
//! at which each item shows a value ([`Op::Offer`](crate::ir::Op::Offer)); behind it each computes its
//! result from all of them ([`Op::Collect`](crate::ir::Op::Collect)). In the following, "barrier"
//! includes these.
//!
//! A kernel with barriers becomes a *resumable item*: a function that runs one work-item from where it
//! stopped to the next barrier or to the end. The group runs in phases: each phase resumes every item
//! that has not ended. In a kernel whose barriers are uniform all items stop at the same barrier; one
//! with divergent barriers still ends, with every item having run all of its code.
//!
//! ```text
//!   item:  ── region 0 ──┤ barrier 1 ├── region 1 ──┤ barrier 2 ├── region 2 ── return
//!   phase:      0                          1                             2
//! ```
//!
//! Between phases an item is only its *frame*: private variables and the values that are live
//! across the barrier where it stopped. A value that is live across no barrier stays an SSA value:
//! any path from a barrier to a use of it passes its definition, so the definition dominates the
//! use in the cut graph too.
//!
//! With sub-groups a phase has turns: the items of one sub-group run, from one of its own barriers to
//! the next, until all of them have ended or wait for the work-group; only then the next sub-group runs
//! its part of the phase. Those at the first of these barriers in program order ([`order`]) continue,
//! and the others wait for them: items that have diverged reconverge.

mod barrier;
mod cut;
pub mod inline;
mod live;
pub mod order;
mod private;
mod remade;
pub mod uniform;

use std::collections::{BTreeSet, HashSet};

pub use barrier::{Barrier, stop_scope};

use crate::ir::{BlockId, ENTRY, Function, Module, Terminator, ValueId};

/// A kernel that is cut at its barriers.
#[derive(Clone, Debug)]
pub struct Regions {
    /// The kernel with blocks cut so that each barrier ends its block.
    pub function: Function,
    /// The barriers in the order in which items pass them; an item stopped at the barrier of index `i` has state `i + 1`.
    pub barriers: Vec<Barrier>,
    /// The values that are kept across some barrier, in ascending order.
    pub crossing: Vec<ValueId>,
    /// The values that are live across some barrier and recomputed behind it, and the values needed for
    /// that.
    pub remade: HashSet<ValueId>,
}

/// The places that items may have reached when they have run a region: barriers, by index, or the
/// kernel's end.
pub type Ends = BTreeSet<Option<usize>>;

/// The maximum number of regions that are generated one by one.
const MAX_TOGETHER: usize = 16;

/// The maximum number of instructions of all regions together; one that belongs to several regions
/// counts for each.
const MAX_TOGETHER_INSTRUCTIONS: usize = 4096;

impl Regions {
    /// Whether no address of a private variable is among the values that barriers keep, or in memory.
    pub fn makes_addresses(&self) -> bool {
        private::is_made_anew(&self.function, &self.crossing)
    }

    /// The ends of each region: the first, and those behind each barrier. Empty where they are
    /// too many, or too large, to be generated one by one.
    pub fn ends(&self) -> Vec<Ends> {
        let starts = std::iter::once(ENTRY).chain(self.barriers.iter().map(|it| it.resume));
        let mut size = 0;
        let ends: Vec<Ends> = starts
            .take(MAX_TOGETHER + 1)
            .map(|start| {
                let (ends, instructions) = self.ends_from(start);
                size += instructions;
                ends
            })
            .collect();
        let few = ends.len() <= MAX_TOGETHER && size <= MAX_TOGETHER_INSTRUCTIONS;
        if few { ends } else { Vec::new() }
    }

    /// The ends of a region, and the number of its instructions.
    fn ends_from(&self, start: BlockId) -> (Ends, usize) {
        let mut ends = Ends::new();
        let mut size = 0;
        let mut seen = HashSet::from([start]);
        let mut work = vec![start];
        while let Some(id) = work.pop() {
            let block = &self.function.blocks[id];
            size += block.insts.len() + 1;
            if let Some(barrier) = self.barriers.iter().position(|it| it.block == id) {
                ends.insert(Some(barrier));
                continue;
            }
            let next = block.terminator.successors();
            if matches!(block.terminator, Terminator::Return(_)) {
                ends.insert(None);
            }
            work.extend(next.into_iter().filter(|&next| seen.insert(next)));
        }
        (ends, size)
    }
}

/// Cuts `function`, whose callees must have no barriers (see [`inline`]).
pub fn split(module: &Module, function: &Function) -> Regions {
    let mut function = function.clone();
    let mut barriers = cut::cut(&mut function);
    let ranks = order::ranks(&function);
    barriers.sort_by_key(|barrier| order::rank(&ranks, barrier.block));
    live::find(&function, &mut barriers);
    let remade = remade::take_out(module, &function, &mut barriers);
    let crossing: BTreeSet<_> = barriers.iter().flat_map(|it| &it.live).copied().collect();
    Regions { function, barriers, crossing: crossing.into_iter().collect(), remade }
}
