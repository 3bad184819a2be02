// SPDX-License-Identifier: MIT OR Apache-2.0
//! The shapes of what queries for an item's place and operations of groups give.

use super::flow::Flow;
use super::shape::Shape;
use crate::ir::arena::Id;
use crate::ir::{BlockId, ENTRY, GroupOp, Module, Op, Operand, Scope, WorkItemQuery};

/// The shape of the answer to a query.
pub(super) fn of_query(query: WorkItemQuery, dimension: u8) -> Shape {
    use WorkItemQuery as Q;
    let by_item = match query {
        Q::GlobalId | Q::LocalId => dimension == 0,
        Q::GlobalLinearId | Q::LocalLinearId | Q::SubgroupLocalId => true,
        _ => false,
    };
    Shape::with_step(i64::from(by_item), None)
}

/// The shape of a group operation's result. `uniform` says whether the index of a shuffle is uniform;
/// `least` is the smallest number of items of a vector.
pub(super) fn of_group(
    module: &Module,
    flow: &Flow,
    block: BlockId,
    op: &Op,
    uniform: bool,
    least: u64,
) -> Shape {
    let Op::Collect(op, scope, index) = op else { return Shape::Varying };
    match (op, scope, index) {
        (GroupOp::Reduce(_, None), ..) => Shape::Uniform,
        (GroupOp::Shuffle, Scope::Subgroup, Some(Operand::Const(index))) => {
            // Items that have diverged may not find the one whose value they want.
            let together = flow.leader[block.index()] == ENTRY;
            let there = module.const_bits(*index).is_some_and(|index| index < least);
            if together && there { Shape::Uniform } else { Shape::Varying }
        }
        (GroupOp::Shuffle, Scope::Workgroup, _) if uniform => Shape::Uniform,
        _ => Shape::Varying,
    }
}
