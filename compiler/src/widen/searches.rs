// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loops whose turns wait for what the turn before has gathered: where they look next, or which items go on.
//!
//! ```text
//!   while (lo < hi) { m = (lo + hi) / 2; if (a[m] < key) lo = m + 1; else hi = m; }
//!   while (keys[h] != key) h = (h + 1) & mask;
//! ```
//!
//! Processors cannot start the next gather meanwhile. With vectors of twice as many items, half of them are gathered during
//! the latency of the others. Gathers that do not wait for each other gain nothing, and need twice the lines.

use std::collections::HashSet;

use super::shape::Shape;
use super::way::Way;
use crate::ir::{BlockId, Function, Inst, Op, Operand, Terminator, ValueId};

/// Whether all innermost loops with gathers are searches, and none of them scatters or has atomics. Rows whose distance is
/// not known are no searches: if it is a multiple of 1 KiB, twice as many take 1.04 to 1.2 of the time.
pub(super) fn searches(source: &Function, way: &Way) -> bool {
    let innermost = (0..way.flow.loops.len()).filter(|&index| way.flow.is_innermost(index));
    let mut loops = innermost.map(|index| Search { source, way, index });
    loops.all(|it| it.may_search() && (!it.gathers() || it.waits()))
}

/// A loop.
struct Search<'a> {
    source: &'a Function,
    way: &'a Way,
    index: usize,
}

impl<'a> Search<'a> {
    fn blocks(&self) -> impl Iterator<Item = BlockId> + 'a {
        self.way.flow.blocks_of(self.index)
    }

    fn insts(&self) -> impl Iterator<Item = (BlockId, &'a Inst)> + 'a {
        let source = self.source;
        self.blocks().flat_map(|id| source.blocks[id].insts.iter().map(move |inst| (id, inst)))
    }

    fn varies(&self, at: Operand, id: BlockId) -> bool {
        self.way.shapes.at(&self.way.flow, at, id) == Some(Shape::Varying)
    }

    /// The address of a gather.
    fn gathered(&self, id: BlockId, inst: &Inst) -> Option<Operand> {
        match inst.op {
            Op::Load(at, _) if self.varies(at, id) => Some(at),
            _ => None,
        }
    }

    fn gathers(&self) -> bool {
        self.insts().any(|(id, inst)| self.gathered(id, inst).is_some())
    }

    fn may_search(&self) -> bool {
        self.insts().all(|(id, inst)| match inst.op {
            Op::Store(at, ..) => !self.varies(at, id),
            Op::Load(at, _) => !self.varies(at, id) || !self.way.shapes.is_computed(at),
            Op::Phi(_) | Op::Assume(_) => true,
            ref op => op.is_pure(),
        })
    }

    /// Whether the way out, or the place of a gather in the next turn, depends on a gather.
    fn waits(&self) -> bool {
        let found = self.dependent(|id, inst| self.gathered(id, inst).is_some());
        let leaves = |id: BlockId| {
            let out = |next: BlockId| !self.way.flow.contains(self.index, next);
            let terminator = &self.source.blocks[id].terminator;
            terminator.successors().into_iter().any(out) && tests(terminator, &found)
        };
        let carried = |id: BlockId, inst: &Inst| {
            let known = inst.result.is_some_and(|it| found.contains(&it));
            known && id == self.header() && matches!(inst.op, Op::Phi(_))
        };
        let next = self.dependent(carried);
        let goes_on = |(id, inst): (BlockId, &Inst)| match self.gathered(id, inst) {
            Some(Operand::Value(at)) => next.contains(&at),
            _ => false,
        };
        self.blocks().any(leaves) || self.insts().any(goes_on)
    }

    fn header(&self) -> BlockId {
        self.way.flow.loops[self.index].header
    }

    /// The values that depend on some instructions' results, in this turn or in an earlier one.
    fn dependent(&self, begins: impl Fn(BlockId, &Inst) -> bool) -> HashSet<ValueId> {
        let mut all = HashSet::new();
        loop {
            let before = all.len();
            let mut blocks = self.blocks();
            // Which arm a phi takes.
            let choice = blocks.any(|id| tests(&self.source.blocks[id].terminator, &all));
            for (id, inst) in self.insts() {
                let Some(result) = inst.result else { continue };
                let chosen = choice && id != self.header() && matches!(inst.op, Op::Phi(_));
                let mut depends = chosen || begins(id, inst);
                inst.op.for_each_operand(|it| {
                    depends |= matches!(it, Operand::Value(it) if all.contains(&it));
                });
                if depends {
                    all.insert(result);
                }
            }
            if all.len() == before {
                return all;
            }
        }
    }
}

/// Whether a block ends with a test of one of some values.
fn tests(terminator: &Terminator, values: &HashSet<ValueId>) -> bool {
    matches!(terminator, Terminator::CondBranch(Operand::Value(it), ..) if values.contains(it))
}
