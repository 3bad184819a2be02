// SPDX-License-Identifier: MIT OR Apache-2.0
//! The dimension in which the items of a vector follow one another.
//!
//! Usually that is the first one: most kernels have their neighbours in memory there. Others count rows of a
//! matrix by the first dimension, and columns by the second:
//!
//! ```text
//!   i = get_global_id(0), j = get_global_id(1)
//!   c[i * n + j] = a[i * n + j] + ...               ; a gather and a scatter in the first dimension
//! ```
//!
//! Such a kernel is also built for vectors in the other dimension, for groups that are long enough there, and where
//! that gains enough, also for shorter ones, whose vectors have a mask. It is
//! widened as if that dimension were the first one: the dimensions of its queries are exchanged
//! ([`exchanged`]), and exchanged back where they are lowered. Groups run along that dimension too
//! (`lower/order.rs`).

use super::costs::accesses;
use super::least_row;
use super::shape::{Rows, Shape};
use super::strips;
use super::way::Way;
use crate::ir::{AddressSpace, Function, Module, Op, Type, WorkItemQuery};

/// How many turns a loop is taken to have.
const TURNS: u64 = 8;
/// The deepest loop whose turns are counted.
const MAX_DEPTH: u32 = 4;
/// By how much accesses have to become cheaper, as a fraction: the kernel is built twice then. Transposing a matrix costs
/// the same in both dimensions. A loop along rows that are as far apart in both dimensions hides what it leaves, so that a
/// scatter behind it seems to be a third of the accesses; it was half of the time.
const GAIN: (u64, u64) = (5, 4);

/// A dimension in which a kernel's items are better taken together.
pub(super) struct Other {
    pub(super) axis: u8,
    /// The kernel with that dimension as the first one.
    pub(super) function: Function,
    /// How many times cheaper its accesses are.
    gain: u64,
    /// Whether its items access memory side by side.
    pub(super) side_by_side: bool,
}

impl Other {
    /// The shortest row of that dimension that goes in a vector of so many items, if that may be shorter than the
    /// vector: the others are masked off, and the whole has to take two thirds of the usual time at most.
    pub(super) fn least(&self, lanes: u32) -> Option<u32> {
        let worth = (u64::from(lanes) * 3).div_ceil(2 * self.gain);
        let least = u32::try_from(worth).ok()?.max(least_row(lanes));
        (least < lanes).then_some(least)
    }
}

/// The other dimension in which a kernel's items are better taken together, if there is one. `way` is that of the
/// first dimension.
pub(super) fn other(module: &Module, source: &Function, way: &Way, steps: &[i64]) -> Option<Other> {
    let asks = |wanted: &dyn Fn(WorkItemQuery, u8) -> bool| {
        let mut insts = source.blocks.iter().flat_map(|(_, block)| &block.insts);
        insts.any(
            |inst| matches!(inst.op, Op::WorkItem(query, dimension) if wanted(query, dimension)),
        )
    };
    use WorkItemQuery as Q;
    if asks(&|query, _| matches!(query, Q::GlobalLinearId | Q::LocalLinearId)) {
        return None;
    }
    let usual = cost(module, source, way);
    let mut best: Option<(Cost, u8, Function, bool)> = None;
    for axis in 1..=2 {
        if !asks(&|query, dimension| matches!(query, Q::GlobalId | Q::LocalId) && dimension == axis)
        {
            continue;
        }
        let function = exchanged(source, axis);
        let Ok(way) = Way::new(module, &function, Rows::Whole, steps) else { continue };
        let cost = cost(module, &function, &way);
        let cheaper = best.as_ref().is_none_or(|(least, ..)| cost < *least);
        // A kernel that only accesses images costs nothing in either dimension.
        let gains = usual.accesses > 0 && GAIN.1 * usual.accesses >= GAIN.0 * cost.accesses;
        if cheaper && gains && cost.masked <= usual.masked {
            let side_by_side = is_side_by_side(module, &function, &way);
            best = Some((cost, axis, function, side_by_side));
        }
    }
    best.map(|(cost, axis, function, side_by_side)| Other {
        axis,
        function,
        gain: usual.accesses / cost.accesses.max(1),
        side_by_side,
    })
}

/// A function in whose queries two dimensions are exchanged: the first one, and `axis`.
pub(super) fn exchanged(source: &Function, axis: u8) -> Function {
    let mut function = source.clone();
    for inst in function.blocks.iter_mut().flat_map(|(_, block)| &mut block.insts) {
        if let Op::WorkItem(_, dimension) = &mut inst.op {
            *dimension = physical(axis, *dimension);
        }
    }
    function
}

/// The dimension of the launch that a query means in a function whose vectors lie in `axis`.
pub fn physical(axis: u8, dimension: u8) -> u8 {
    match dimension {
        0 => axis,
        same if same == axis => 0,
        other => other,
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    accesses: u64,
    /// Loops that items leave at different times.
    masked: usize,
}

/// The greatest distance in bytes at which neighbours access memory side by side: a cache line.
const NEAR: u64 = 64;

/// Whether items that follow one another in a vector's dimension access the memory that they share at one place or
/// side by side, all of them. Then long rows are best. Where places are far apart or not known, as when a matrix is
/// transposed, the rows of a group may share cache lines.
pub(super) fn is_side_by_side(module: &Module, source: &Function, way: &Way) -> bool {
    source.blocks.iter().all(|(id, block)| {
        block.insts.iter().all(|inst| {
            let (Op::Load(at, _) | Op::Store(at, ..)) = &inst.op else { return true };
            let Type::Pointer(space) = module.types[module.operand_type(source, *at)] else {
                return true;
            };
            match way.shapes.at(&way.flow, *at, id) {
                _ if space == AddressSpace::Private => true,
                // Places that depend on data lie anywhere, whatever the rows.
                Some(Shape::Varying) => {
                    matches!(inst.op, Op::Load(..)) && !way.shapes.is_computed(*at)
                }
                Some(Shape::Strided { step, .. }) => step.unsigned_abs() <= NEAR,
                Some(Shape::Uniform) | None => true,
            }
        })
    })
}

/// The cost of a kernel's accesses to memory that items share.
fn cost(module: &Module, source: &Function, way: &Way) -> Cost {
    let rows = strips::rows(module, source, way);
    let accesses = source.blocks.ids().map(|id| {
        let depth = u32::try_from(way.flow.around(id).count()).unwrap_or(MAX_DEPTH);
        accesses(module, source, way, id, &rows) * TURNS.pow(depth.min(MAX_DEPTH))
    });
    let masked = way.flow.loops.iter().filter(|it| it.masked).count();
    Cost { accesses: accesses.sum(), masked }
}
