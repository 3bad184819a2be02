// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bounds of the numbers that are made of places in a group.
//!
//! A group has at most 1,024 items, so the index of a tile does not wrap around, whatever the launch:
//!
//! ```text
//!   int ty = get_local_id(1), tx = get_local_id(0)      at most 1,087
//!   tile[ty * 16 + tx]                                  at most 18,479
//! ```

use super::flow::{Flow, Node};
use crate::ir::arena::Id;
use crate::ir::{BinaryOp, ConvertOp, Function, Inst, Module, Op, Operand, Type, WorkItemQuery};

/// The most items of a group, and those of a vector's items that may not exist.
const MOST_ITEMS: u64 = 1024 + 63;
/// The most work-items of a sub-group.
const MOST_OF_SUBGROUP: u64 = 32;

/// The greatest number that a value may be, in any item.
pub(super) struct Bounds(Vec<Option<u64>>);

impl Bounds {
    pub(super) fn new(module: &Module, function: &Function, flow: &Flow) -> Self {
        let mut bounds = Self(vec![None; function.values.len()]);
        for node in &flow.order {
            let Node::Block(block) = *node else { continue };
            for inst in &function.blocks[block].insts {
                let Some(result) = inst.result else { continue };
                let ty = function.values[result].ty;
                let Type::Int(bits) = module.types[ty] else { continue };
                // A number that may have the sign's bit is not told from a negative one.
                let fits = |most: &u64| *most >> (bits - 1) == 0;
                bounds.0[result.index()] = bounds.of_inst(module, inst).filter(fits);
            }
        }
        bounds
    }

    /// The greatest number that an operand of integers may be, if it is never negative, nor ever wraps around.
    pub(super) fn most(&self, module: &Module, operand: Operand) -> Option<u64> {
        match operand {
            Operand::Value(value) => self.0[value.index()],
            Operand::Const(id) => {
                let bits = module.types.scalar_bits(module.constants[id].ty);
                module.const_bits(id).filter(|number| number >> (bits.clamp(1, 64) - 1) == 0)
            }
        }
    }

    fn of_inst(&self, module: &Module, inst: &Inst) -> Option<u64> {
        use BinaryOp as B;
        use WorkItemQuery as Q;
        let most = |operand: Operand| self.most(module, operand);
        let constant = |operand: Operand| match operand {
            Operand::Const(_) => most(operand),
            Operand::Value(_) => None,
        };
        match &inst.op {
            Op::WorkItem(query, _) => match query {
                Q::LocalId | Q::LocalLinearId | Q::LocalSize | Q::EnqueuedLocalSize => {
                    Some(MOST_ITEMS)
                }
                Q::SubgroupLocalId => Some(MOST_OF_SUBGROUP - 1),
                _ => None,
            },
            Op::Convert(ConvertOp::Trunc | ConvertOp::SExt | ConvertOp::ZExt, a) => most(*a),
            Op::Binary(op, a, b) => match op {
                B::Add => most(*a)?.checked_add(most(*b)?),
                B::Mul => most(*a)?.checked_mul(most(*b)?),
                B::Shl => most(*a)?.checked_mul(1u64.checked_shl(constant(*b)?.try_into().ok()?)?),
                B::LShr | B::AShr => most(*a),
                B::And | B::UMin => [most(*a), most(*b)].into_iter().flatten().min(),
                // What a division by zero gives is not known.
                B::UDiv | B::SDiv => most(*a)?.checked_div(constant(*b)?),
                B::URem | B::SRem => Some(most(*a)?.min(constant(*b)?.checked_sub(1)?)),
                // No bit above the highest one of both.
                B::Or | B::Xor => {
                    let both = most(*a)? | most(*b)?;
                    Some(both.checked_add(1)?.checked_next_power_of_two()? - 1)
                }
                _ => None,
            },
            Op::Select(_, a, b) => Some(most(*a)?.max(most(*b)?)),
            Op::Phi(incoming) => incoming
                .iter()
                .map(|&(_, operand)| most(operand))
                .try_fold(0, |so_far, most| Some(so_far.max(most?))),
            _ => None,
        }
    }
}
