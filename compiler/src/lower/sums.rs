// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reductions and scans of a work-group among its vectors, where these surely stop at the same places.
//!
//! One thread runs a group's vectors in order, so that each can combine its value with what those before it have
//! left, in a place that the group shares. No vector looks at another's frame then, and LLVM makes the place a register:
//!
//! ```text
//!   for all vectors: value = f(x[i]); sum = is first ? value : sum + value
//!   for all vectors: use sum
//! ```
//!
//! The place is one of the values that all vectors share (`GroupValues` of `frame.rs`): the
//! sum is made in the place of the next values, and handed on at the barrier. So a vector may begin the next sum while
//! others have not read the last one yet. What a vector needs of those before it alone is kept in its frame.

use crate::ir::{BinaryOp, BlockId, GroupOp, Op, Operand, Scope, TypeId, ValueId};
use crate::regions::{Barrier, Regions};

/// A sum that vectors make on their way to a barrier.
pub(super) struct Sum {
    /// The block that ends with the barrier.
    pub(super) block: BlockId,
    /// The value that a vector adds.
    pub(super) value: Operand,
    /// The value behind the barrier, and its type.
    pub(super) result: ValueId,
    pub(super) ty: TypeId,
    pub(super) op: BinaryOp,
    /// Whether it is the sum of all vectors, not of those before one.
    pub(super) of_all: bool,
    /// The offset of the sum in the group's places, and of what is kept in a frame.
    pub(super) shared: u64,
    pub(super) own: u64,
}

/// The sums of a function by barrier; `None` if vectors exchange values in other ways, too.
pub(super) fn find(regions: &Regions) -> Option<Vec<(usize, Sum)>> {
    let function = &regions.function;
    let mut sums = Vec::new();
    for (number, &Barrier { block, resume, scope, named, .. }) in
        regions.barriers.iter().enumerate()
    {
        if named || scope == Scope::Subgroup {
            return None;
        }
        let Some(&Op::Offer(_, value)) = function.blocks[block].insts.last().map(|inst| &inst.op)
        else {
            continue;
        };
        let collects = function.blocks[resume].insts.first()?;
        let (op, of_all) = match collects.op {
            Op::Collect(GroupOp::Reduce(op, None), Scope::Workgroup, None) => (op, true),
            Op::Collect(GroupOp::ExclusiveScan(op), Scope::Workgroup, None) => (op, false),
            _ => return None,
        };
        let result = collects.result?;
        let ty = function.values[result].ty;
        sums.push((number, Sum { block, value, result, ty, op, of_all, shared: 0, own: 0 }));
    }
    Some(sums)
}
