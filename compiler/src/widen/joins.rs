// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernels whose groups may join their rows (`lower/joined.rs`): those in which no item can tell which group it
//! belongs to. And those for which the rows are best long.

use super::shape::Shape;
use super::way::Way;
use crate::ir::arena::Id;
use crate::ir::{ArgKind, Function, Inst, Kernel, Op, Operand, WorkItemQuery};
use crate::optimise::is_skipped;

/// The name by which it is left out.
const NAME: &str = "joins";
/// The name by which rows are left no longer than vectors need.
const LONG: &str = "long-rows";

/// Whether groups of a kernel in which no item waits may join. `source` is the kernel with all calls inlined.
pub(super) fn joins(kernel: &Kernel, source: &Function, way: &Way) -> bool {
    let facts = &kernel.facts;
    let local = facts.local_static_bytes > 0
        || kernel.args.iter().any(|arg| arg.kind == ArgKind::LocalPointer);
    if local || facts.watch.is_some() || facts.follows.is_some() || is_skipped(NAME) {
        return false;
    }
    source.blocks.iter().all(|(id, block)| {
        let repeats = way.flow.around(id).next().is_some();
        let hinders = |op: &Op| tells_groups(op) || (repeats && may_wait(op));
        !block.insts.iter().any(|inst| hinders(&inst.op))
    })
}

/// Whether joined rows of groups of several rows are best as long as they can be, in a kernel whose items access memory
/// side by side. What a loop reads for all rows of a group alike stays in the cache from row to row, as columns of a matrix
/// do that is multiplied: such kernels are left out. So are those that look at images, whose texels may be taken from
/// anywhere, and those with loops that only compute, which gain nothing and are shared out better in small parts.
pub(super) fn are_long(source: &Function, way: &Way) -> bool {
    if is_skipped(LONG) {
        return false;
    }
    let of_rows = depends_on_row(source);
    let is_of_row = |at: Operand| matches!(at, Operand::Value(it) if of_rows[it.index()]);
    let accesses = |inst: &Inst| matches!(inst.op, Op::Load(..) | Op::Store(..));
    let computes = |index: usize| {
        !way.flow.blocks_of(index).any(|id| source.blocks[id].insts.iter().any(accesses))
    };
    if (0..way.flow.loops.len()).any(computes) {
        return false;
    }
    source.blocks.iter().all(|(id, block)| {
        let repeats = way.flow.around(id).next().is_some();
        block.insts.iter().all(|inst| match inst.op {
            Op::Load(at, _) | Op::Store(at, ..) => {
                let is_shared = matches!(way.shapes.at(&way.flow, at, id), Some(Shape::Uniform));
                !repeats || is_shared || is_of_row(at)
            }
            Op::Image(..) | Op::Texels(..) => false,
            _ => true,
        })
    })
}

/// By value, whether it depends on an item's place in another dimension than the first one.
fn depends_on_row(source: &Function) -> Vec<bool> {
    use WorkItemQuery as Q;
    let mut depends = vec![false; source.values.len()];
    let mut grows = true;
    while grows {
        grows = false;
        for inst in source.blocks.iter().flat_map(|(_, block)| &block.insts) {
            let Some(value) = inst.result.filter(|value| !depends[value.index()]) else { continue };
            let mut does = matches!(inst.op, Op::WorkItem(Q::GlobalId, 1..))
                || matches!(inst.op, Op::WorkItem(Q::GlobalLinearId, _));
            inst.op.for_each_operand(|operand| {
                does |= matches!(operand, Operand::Value(it) if depends[it.index()]);
            });
            depends[value.index()] = does;
            grows |= does;
        }
    }
    depends
}

/// Whether a result depends on how items are divided into groups.
fn tells_groups(op: &Op) -> bool {
    use WorkItemQuery as Q;
    let Op::WorkItem(query, _) = op else { return false };
    !matches!(
        query,
        Q::GlobalId
            | Q::GlobalSize
            | Q::GlobalOffset
            | Q::GlobalLinearId
            | Q::NumGroups
            | Q::WorkDim
    )
}

/// Whether an item may see in a loop what another one does, and so wait for it: groups that wait for a lock have to
/// run one after the other.
fn may_wait(op: &Op) -> bool {
    match op {
        Op::Load(_, access) | Op::Store(_, _, access) | Op::Copy(.., access) => access.volatile,
        Op::AtomicLoad(..)
        | Op::AtomicStore(..)
        | Op::AtomicRmw(..)
        | Op::AtomicCompareExchange { .. }
        | Op::Fence(..) => true,
        _ => false,
    }
}
