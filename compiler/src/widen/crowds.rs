// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows whose lines displace each other from the first-level cache.
//!
//! A cache of 48 KiB with 12 lines in each set takes a line's set from bits 6 to 11 of its address. Where items walk along
//! rows that are a multiple of 4 KiB apart, all their lines have one set:
//!
//! ```text
//!   for (k = 0; k < 1024; k++)                   16 items: 32 lines for 12 places, each loaded again for each 16 bytes
//!       b[id * 1024 + k] = f(a[id * 1024 + k])    8 items: 16 lines
//! ```
//!
//! Fewer items have fewer rows.

use std::collections::{HashMap, HashSet};

use super::shape::Shape;
use super::strips;
use super::way::Way;
use crate::ir::{ConvertOp, Function, Module, Op, Operand, ValueId};

/// The bytes of a line, and those after which addresses have the same set again.
const LINE: u64 = 64;
const PERIOD: u64 = 4096;

/// The most lines of one set that a turn of a loop may access, those that it loads and stores counted twice: 16 rows of one
/// array, 4 KiB apart. Such sums of rows take 0.85 to 1.1 of the time with 8 items. Running sums from one array to
/// another, 32 lines, take 0.42 to 0.51, softmax 0.55 to 0.62, and where rows are 2 KiB apart, 16 lines, 0.75 and 1.1.
const MOST: u64 = 16;

/// The longest way from an address back to its array.
const MAX_DEPTH: usize = 16;

/// Whether the rows of so many items crowd a set of the cache in one of the innermost loops. What moves by a line or more in
/// each turn needs no line again: with 8 items that takes 1.1 to 1.6 times as long.
pub(super) fn crowd(module: &Module, source: &Function, way: &Way, lanes: u32) -> bool {
    let insts = source.blocks.iter().flat_map(|(_, block)| &block.insts);
    let made: HashMap<ValueId, &Op> =
        insts.filter_map(|inst| Some((inst.result?, &inst.op))).collect();
    let innermost = (0..way.flow.loops.len()).filter(|&index| way.flow.is_innermost(index));
    innermost
        .map(|index| rows(module, source, way, &made, index))
        .any(|rows| rows.iter().map(|row| row.lines_in_set(lanes)).sum::<u64>() > MOST)
}

/// The rows of all items that a loop loads from or stores to.
#[derive(PartialEq, Eq, Hash)]
struct Rows {
    array: Operand,
    /// The bytes from one item's row to the next one's.
    apart: u64,
    is_store: bool,
}

impl Rows {
    fn lines_in_set(&self, lanes: u32) -> u64 {
        let shared = self.apart.trailing_zeros().min(PERIOD.trailing_zeros());
        let sets = (PERIOD >> shared).min(PERIOD / LINE);
        u64::from(lanes).div_ceil(sets)
    }
}

fn rows(
    module: &Module,
    source: &Function,
    way: &Way,
    made: &HashMap<ValueId, &Op>,
    index: usize,
) -> HashSet<Rows> {
    let moves = strips::moves(module, source, way, way.flow.loops[index].header);
    let blocks = way.flow.blocks_of(index);
    let insts = blocks.flat_map(|id| source.blocks[id].insts.iter().map(move |inst| (id, inst)));
    let rows = insts.filter_map(|(id, inst)| {
        let (at, is_store) = match inst.op {
            Op::Load(at, _) => (at, false),
            Op::Store(at, ..) => (at, true),
            _ => return None,
        };
        let Operand::Value(value) = at else { return None };
        let moved = moves.get(&value)?.unsigned_abs();
        let Some(Shape::Strided { step, .. }) = way.shapes.at(&way.flow, at, id) else {
            return None;
        };
        let apart = step.unsigned_abs();
        let is_row = (1..LINE).contains(&moved) && apart > LINE;
        is_row.then(|| Rows { array: array(made, at), apart, is_store })
    });
    rows.collect()
}

/// The address that another one is computed from.
fn array(made: &HashMap<ValueId, &Op>, mut at: Operand) -> Operand {
    for _ in 0..MAX_DEPTH {
        let Operand::Value(value) = at else { break };
        at = match made.get(&value) {
            Some(Op::Address { base, .. }) => *base,
            Some(Op::Convert(ConvertOp::PtrCast, from)) => *from,
            Some(Op::Phi(arms)) if !arms.is_empty() => arms[0].1,
            _ => break,
        };
    }
    at
}
