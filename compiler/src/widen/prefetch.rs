// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prefetches of what later vectors load.
//!
//! Loops walk down columns as often as along rows, and each turn needs a cache line of its own then, which the processor
//! does not foresee. The next vectors need the adjacent lines:
//!
//! ```text
//!   for (r = 0; r < h; r++)
//!       search(m[r * w + id])      lines id / 16 of all rows; the next vector's are lines id / 16 + 1
//! ```
//!
//! A processor finds loads among the next few hundred instructions. So short turns have as many loads in flight as it can
//! keep, and prefetches only get in their way.

use super::emit::Widener;
use super::flow::Flow;
use crate::ir::arena::Id;
use crate::ir::{AddressSpace, Function, Inst, Op, Operand, Type};

/// The number of instructions of a vector from which on the next one's loads are prefetched: with more
/// than a third of the 512 that a large processor looks ahead, few loads are in flight at once. exp +
/// log + sin takes 0.5 times as long with it.
const LONG: usize = 96;
/// The approximate number of instructions of a mathematical function.
const OF_FUNCTION: usize = 32;

/// The number of instructions for each load from which on that is so, also of a turn of a loop. With fewer the processor
/// has many loads in flight anyway, and lines that are prefetched displace each other: SHOC's rdwdot, which adds 145 rows
/// of 16 KiB, takes 0.5 times as long without it. The greatest 8 of each column take 19 instructions a turn, and 0.3 to
/// 1.01 times as long with prefetches; sums of polynomials that take 13 would take 0.3 to 1.14 times as long.
const FOR_EACH_LOAD: usize = 16;

/// The most turns of loops in which loads are prefetched however short a turn is. Where rows are 1, 2 or 4 KiB apart, the
/// lines of more turns displace each other from the few sets of the cache that they have: products of such matrices take
/// 1.4, 1.35 and 2.1 times as long with prefetches.
const FEW_TURNS: u64 = 64;

/// The bytes of a cache line. A vector of 16 doubles, or of 32 floats, has two: sums of exponentials down columns of a
/// matrix of 40 MB take 0.3 to 0.7 of the time with prefetches of both, 0.8 to 0.9 with prefetches of one.
const LINE: i64 = 64;

/// The instructions, with those of functions, and how many of them are loads.
fn cost<'a>(insts: impl Iterator<Item = &'a Inst>) -> (usize, usize) {
    let (mut all, mut loads) = (0, 0);
    for inst in insts {
        match inst.op {
            Op::Math(..) => all += OF_FUNCTION,
            Op::Load(..) => (all, loads) = (all + 1, loads + 1),
            _ => all += 1,
        }
    }
    (all, loads)
}

/// Whether a vector takes so long that the processor does not look ahead to the next one's loads, without counting the
/// turns of loops.
pub(super) fn is_long(function: &Function) -> bool {
    let (all, loads) = cost(function.blocks.iter().flat_map(|(_, block)| &block.insts));
    all >= LONG.max(FOR_EACH_LOAD * loads)
}

/// Whether the turns of each loop are so long that the processor does not look ahead to many loads; of loops without
/// other loops in them.
pub(super) fn long_turns(function: &Function, flow: &Flow) -> Vec<bool> {
    let is_long = |index: usize| {
        let blocks = function.blocks.iter().filter(|(id, _)| flow.contains(index, *id));
        let insts = blocks.flat_map(|(_, block)| &block.insts);
        let (all, loads) = cost(insts.filter(|inst| !matches!(inst.op, Op::Phi(_))));
        all >= FOR_EACH_LOAD * loads
    };
    let has_loops = |index: usize| flow.loops.iter().any(|other| other.parent == Some(index));
    (0..flow.loops.len()).map(|index| !has_loops(index) && is_long(index)).collect()
}

impl Widener<'_> {
    /// Prefetches what a vector will load that comes soon, where the processor has few loads in flight otherwise.
    pub(super) fn prefetch(&mut self, at: Operand, first: Operand, size: u64) {
        let ty = self.type_in(at);
        let Operand::Value(value) = at else { return };
        if !matches!(self.out.module.types[ty], Type::Pointer(AddressSpace::Global)) {
            return;
        }
        let turns = self.shapes.turns_around(self.flow, self.block);
        let few = turns.is_some_and(|it| it <= FEW_TURNS);
        let ahead = match self.flow.within[self.block.index()] {
            None if self.long => 4,
            Some(index)
                if few
                    || self.long_turns[index]
                        && self.shapes.moves_in_loop(self.flow, value, self.block) =>
            {
                2
            }
            _ => return,
        };
        let bytes = i64::from(self.out.lanes) * size as i64;
        for line in (0..bytes).step_by(LINE as usize) {
            let offset = ahead * bytes + line;
            let op = Op::Address { base: first, offset, terms: Vec::new(), inbounds: false };
            let at = self.out.value(op, ty);
            self.out.effect(Op::Prefetch(at), Default::default());
        }
    }
}
