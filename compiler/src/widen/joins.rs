// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernels whose groups may join their rows (`lower/joined.rs`): those in which no item can tell which group it
//! belongs to.

use super::way::Way;
use crate::ir::{ArgKind, Function, Kernel, Op, WorkItemQuery};
use crate::optimise::is_skipped;

/// The name by which it is left out.
const NAME: &str = "joins";

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
