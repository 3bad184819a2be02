// SPDX-License-Identifier: MIT OR Apache-2.0
//! Barriers, and what the items of a vector exchange.
//!
//! A sub-group is a vector, so its barriers only keep memory in order.

use super::Refusal;
use super::emit::Widener;
use super::shape::Shape;
use crate::ir::{GroupOp, Inst, Op, Scope};

/// How the results of a group operation differ between the items.
pub(super) fn shape(op: GroupOp) -> Shape {
    let _ = op;
    Shape::Varying
}

impl Widener<'_> {
    /// Does what items do together. `false` if the instruction is none of that.
    pub(super) fn exchange(&mut self, inst: &Inst) -> Result<bool, Refusal> {
        match inst.op {
            Op::ControlBarrier { execution: Scope::Subgroup, memory, ordering } => {
                self.out.effect(Op::Fence(memory, ordering), inst.flags);
            }
            Op::Offer(..) | Op::Collect(..) => {
                return Err(Refusal::new("an operation of a group"));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}
