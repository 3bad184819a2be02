// SPDX-License-Identifier: MIT OR Apache-2.0
//! Places where items stop.

use crate::ir::{BlockId, Op, Scope, ValueId};

/// A place where items stop and are resumed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Barrier {
    /// The block that ends with the barrier, its last instruction.
    pub block: BlockId,
    /// The block in which items continue. It has no phis and no other predecessor.
    pub resume: BlockId,
    /// The scope of the items that wait: a sub-group or a work-group.
    pub scope: Scope,
    /// Whether it is a named barrier, at which some sub-groups of the work-group wait.
    pub named: bool,
    /// The values to keep, in ascending order.
    pub live: Vec<ValueId>,
    /// Those of them that may differ from the values in the frame: they were defined since the item was
    /// last resumed. In ascending order.
    pub changed: Vec<ValueId>,
}

/// The scope in which an operation makes items wait for each other, if it does: a sub-group or a work-group.
pub fn stop_scope(op: &Op) -> Option<Scope> {
    match op {
        Op::ControlBarrier { execution: scope, .. } | Op::Offer(scope, _) => match scope {
            Scope::WorkItem => None,
            Scope::Subgroup => Some(Scope::Subgroup),
            Scope::Workgroup | Scope::Device | Scope::System => Some(Scope::Workgroup),
        },
        Op::NamedBarrier(..) => Some(Scope::Workgroup),
        _ => None,
    }
}
