// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is known of addresses that have no step: whether arithmetic alone has made them, and what that began with.

use std::collections::HashSet;

use super::{Shape, Shapes};
use crate::ir::arena::Id;
use crate::ir::{BinaryOp, ConvertOp, Function, Op, Operand, ValueId};
use crate::widen::flow::{Flow, Node};

impl Shapes {
    /// Takes phis too for computed, whose values all are. An address that a loop moves on is.
    pub(in crate::widen) fn follow_phis(&mut self, function: &Function, flow: &Flow) {
        let phis = || function.blocks.iter().flat_map(|(_, block)| block.phis());
        let mut trusted: HashSet<ValueId> = phis().filter_map(|phi| phi.result).collect();
        loop {
            self.find_computed(function, flow, &trusted);
            let before = trusted.len();
            for phi in phis() {
                let mut all = true;
                phi.op.for_each_operand(|operand| all &= self.is_computed(operand));
                if let Some(result) = phi.result.filter(|_| !all) {
                    trusted.remove(&result);
                }
            }
            if trusted.len() == before {
                return;
            }
        }
    }

    /// Finds what is computed, if some phis are.
    pub(super) fn find_computed(
        &mut self,
        function: &Function,
        flow: &Flow,
        phis: &HashSet<ValueId>,
    ) {
        for &phi in phis {
            self.computed[phi.index()] = true;
        }
        for node in &flow.order {
            let Node::Block(block) = *node else { continue };
            for inst in &function.blocks[block].insts {
                let Some(result) = inst.result else { continue };
                let arithmetic = matches!(
                    inst.op,
                    Op::Unary(..)
                        | Op::Binary(..)
                        | Op::Compare(..)
                        | Op::Convert(..)
                        | Op::Select(..)
                        | Op::Address { .. }
                        | Op::Shadow(_)
                );
                self.readable[result.index()] = matches!(inst.op, Op::Shadow(_));
                // What floats say is nearly never in line: positions in scaled pictures, cells of noise.
                let from_float = matches!(
                    inst.op,
                    Op::Convert(
                        ConvertOp::FToS | ConvertOp::FToU | ConvertOp::FToSSat | ConvertOp::FToUSat,
                        _
                    )
                );
                let arithmetic = arithmetic && !from_float;
                if phis.contains(&result) {
                    continue;
                }
                let mut computed = self.of(result) != Shape::Varying || arithmetic;
                if self.of(result) == Shape::Varying {
                    inst.op.for_each_operand(|operand| computed &= self.is_computed(operand));
                }
                self.computed[result.index()] = computed;
                // What is found by bits of such a number is as good as random.
                let hashes = matches!(
                    inst.op,
                    Op::Binary(BinaryOp::And | BinaryOp::Xor | BinaryOp::URem | BinaryOp::SRem, ..)
                );
                let mut placed = computed || from_float || arithmetic && !hashes;
                if !computed && !from_float {
                    inst.op.for_each_operand(|operand| placed &= self.is_placed(operand));
                }
                self.placed[result.index()] = placed;
                self.own[result.index()] = match &inst.op {
                    Op::Address { base: Operand::Value(base), terms, .. } => {
                        let uniform = |&(index, _): &(Operand, i64)| {
                            self.at(flow, index, block) == Some(Shape::Uniform)
                        };
                        self.own[base.index()] && terms.iter().all(uniform)
                    }
                    Op::Convert(ConvertOp::PtrCast, Operand::Value(base)) => self.own[base.index()],
                    _ => false,
                };
            }
        }
    }

    /// Whether a value is computed from ids and uniform values by arithmetic alone.
    pub(in crate::widen) fn is_computed(&self, operand: Operand) -> bool {
        match operand {
            Operand::Const(_) => true,
            Operand::Value(value) => {
                self.computed[value.index()]
                    || (self.home[value.index()].is_none() && self.of(value) != Shape::Varying)
            }
        }
    }

    /// Whether a value is computed from ids, uniform values and floats that were converted.
    pub(in crate::widen) fn is_placed(&self, operand: Operand) -> bool {
        let is = |value: ValueId| self.placed[value.index()];
        self.is_computed(operand) || matches!(operand, Operand::Value(value) if is(value))
    }

    /// Takes addresses as computed in no way: it is not worth testing whether they happen to be contiguous, or how far
    /// apart they are.
    pub(in crate::widen) fn keep_apart(&mut self, addresses: &[ValueId]) {
        for at in addresses {
            self.computed[at.index()] = false;
            self.placed[at.index()] = false;
            self.apart[at.index()] = true;
        }
    }

    /// Whether that was said.
    pub(in crate::widen) fn is_kept_apart(&self, operand: Operand) -> bool {
        matches!(operand, Operand::Value(value) if self.apart[value.index()])
    }

    /// Whether an address is one in the items' own variables, with the same offset in all items: that
    /// memory exists for an item whether the item runs or not.
    pub(in crate::widen) fn is_own(&self, operand: Operand) -> bool {
        matches!(operand, Operand::Value(value) if self.own[value.index()])
    }

    /// Whether an address may be read for items that do not run.
    pub(in crate::widen) fn is_readable(&self, operand: Operand) -> bool {
        self.is_own(operand)
            || matches!(operand, Operand::Value(value) if self.readable[value.index()])
    }
}
