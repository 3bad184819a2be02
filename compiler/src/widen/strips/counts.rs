// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels whose items count in private arrays of their own.
//!
//! ```text
//!   for (j = 0; j < k; j++)
//!     for (i = 0; i < 16; i++) counts[in[(y + j) * w + x + i]]++;
//! ```
//!
//! A vector gathers and scatters each count, from as many arrays as it has items: 16 arrays of 4 KiB are twice as large as
//! a first-level cache. One item at a time, the counts of 64 rows like these take 0.56 of the time for arrays of 1 KiB, 0.40
//! for 4 KiB, and a filter that counts four components of each pixel in one array takes 0.19 (EPYC of Zen 4).

use std::collections::HashMap;

use super::ragged::grows;
use super::{Body, LINE, Lines};
use crate::ir::arena::Id;
use crate::ir::{AddressSpace, Function, Inst, Module, Op, Operand, Type, ValueId};
use crate::optimise::is_skipped;
use crate::widen::shape::Shape;
use crate::widen::way::Way;

/// The name by which it is left out.
const NAME: &str = "private-counts";

/// The least bytes of an item's private arrays. Arrays of 16 bytes are faster in vectors, those of 256 bytes are not.
const LEAST_BYTES: u64 = 256;

/// The most instructions of a loop for each count. The filters of pictures that this is for have 10 to 15.
const MOST: usize = 24;

/// The most instructions of the kernel's other loops: to clear the array, and to find its largest number.
const MOST_BESIDE: usize = 128;

/// The least counts for each load that is far from those of other turns. A filter that counts four components of pixels
/// down columns is faster one item at a time.
const FOR_FAR_LOAD: usize = 4;

/// The most turns in which an item may load from a line of its own in each: the next items find the lines in the cache.
/// The counts of columns of 1,000 bytes take 3 times as long one item at a time.
const FEW_TURNS: u64 = 64;

/// The most steps from what was there to what is stored. A component of a vector has three.
const MAX_STEPS: u32 = 3;

/// Whether a kernel is faster one item at a time: one of its innermost loops does little else than count.
pub(in crate::widen) fn prevail(module: &Module, source: &Function, way: &Way) -> bool {
    let bytes: u64 = source.variables.iter().map(|it| it.size).sum();
    if bytes < LEAST_BYTES || is_skipped(NAME) {
        return false;
    }
    let insts = source.blocks.iter().flat_map(|(_, block)| &block.insts);
    let made: HashMap<ValueId, &Op> =
        insts.filter_map(|inst| Some((inst.result?, &inst.op))).collect();
    let in_loops = source.blocks.iter().filter(|(id, _)| way.flow.within[id.index()].is_some());
    let in_loops: usize = in_loops.map(|(_, block)| block.insts.len()).sum();
    let mut innermost = (0..way.flow.loops.len()).filter(|&index| way.flow.is_innermost(index));
    innermost.any(|index| {
        let blocks =
            source.blocks.iter().filter(|(id, _)| way.flow.within[id.index()] == Some(index));
        let (mut size, mut counts) = (0, 0);
        for inst in blocks.flat_map(|(_, block)| &block.insts) {
            size += 1;
            counts += usize::from(counts_privately(module, source, way, &made, &inst.op));
        }
        counts > 0
            && size <= MOST * counts
            && in_loops - size <= MOST_BESIDE
            && far_loads(module, source, way, index).is_some_and(|far| FOR_FAR_LOAD * far <= counts)
    })
}

/// The loads of a loop's turn that are far from those of other turns: for one item, each is another cache line's. Most are
/// next to those of other items, and vectors load them at once. Turns of a loop around are near, too: a window's columns
/// have neighbours. None if that cannot be told.
fn far_loads(module: &Module, source: &Function, way: &Way, index: usize) -> Option<usize> {
    let header = way.flow.loops[index].header;
    if way.shapes.turns_around(&way.flow, header).is_some_and(|turns| turns <= FEW_TURNS) {
        return Some(0);
    }
    let body = Body::of(source, &way.flow, header)?;
    let around = way.flow.around(header).filter(|&outer| outer != index);
    let around =
        around.filter_map(|outer| Body::of(source, &way.flow, way.flow.loops[outer].header));
    let lines = |body: &Body| Lines::new(module, source, way.shapes.promised(), body);
    let (own, around) = (lines(&body), around.map(|body| lines(&body)).collect::<Vec<_>>());
    let is_far = |inst: &Inst| {
        let &Op::Load(at, _) = &inst.op else { return false };
        let is_own = own.space(at) == Some(AddressSpace::Private);
        let moves = |lines: &Lines<'_>| grows(lines, at, 0).unwrap_or(i64::MAX).unsigned_abs();
        let is_near = moves(&own) <= LINE as u64
            || around.iter().any(|lines| (1..=LINE as u64).contains(&moves(lines)));
        !is_own && !is_near
    };
    Some(body.insts(source).filter(|(_, inst)| is_far(inst)).count())
}

/// Whether an operation stores to a place of each item's own what it has computed from what was there.
fn counts_privately(
    module: &Module,
    source: &Function,
    way: &Way,
    made: &HashMap<ValueId, &Op>,
    op: &Op,
) -> bool {
    let &Op::Store(Operand::Value(at), sum, _) = op else { return false };
    module.types[source.values[at].ty] == Type::Pointer(AddressSpace::Private)
        && way.shapes.of(at) == Shape::Varying
        && comes_from(made, sum, at, MAX_STEPS)
}

/// Whether a value is computed in few steps from what a place has.
fn comes_from(made: &HashMap<ValueId, &Op>, value: Operand, at: ValueId, steps: u32) -> bool {
    let Operand::Value(value) = value else { return false };
    match made.get(&value) {
        Some(&&Op::Load(from, _)) => from == Operand::Value(at),
        Some(op @ (Op::Binary(..) | Op::Insert(..) | Op::Extract(..))) if steps > 0 => {
            let mut found = false;
            op.for_each_operand(|operand| found |= comes_from(made, operand, at, steps - 1));
            found
        }
        _ => false,
    }
}
