// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bounds of numbers, as far as what they are made of tells, whatever the launch and the data.
//!
//! A group has at most 1,024 items, so the index of a tile does not wrap around. A byte is at most 255, so it may be looked
//! up in a small table ([`tables`](super::tables)):
//!
//! ```text
//!   int ty = get_local_id(1), tx = get_local_id(0)      at most 1,087
//!   tile[ty * 16 + tx]                                  at most 18,479
//!   values[bytes[i] >> 4]                               at most 15
//! ```

use super::flow::{Flow, Node};
use crate::ir::arena::Id;
use crate::ir::{
    BinaryOp, BlockId, ConstId, ConstKind, ConvertOp, Function, Inst, Module, Op, Operand, RowOp,
    Type, TypeId, WorkItemQuery,
};

/// The most items of a group, and those of a vector's items that may not exist.
const MOST_ITEMS: u64 = 1024 + 63;
/// The most work-items of a sub-group.
const MOST_OF_SUBGROUP: u64 = 32;

/// The passes that raise the bounds of phis before one withdraws them: a phi behind a branch in a loop takes what it
/// brings to the loop's own, whose bound is then right.
const MOST_RAISED: u32 = 3;

/// The greatest number that a value, or a component of a vector, may be, in any item.
pub(super) struct Bounds(Vec<Option<u64>>);

impl Bounds {
    pub(super) fn new(module: &Module, function: &Function, flow: &Flow) -> Self {
        Self::of_blocks(
            module,
            function,
            flow.order.iter().filter_map(|node| match node {
                Node::Block(block) => Some(*block),
                _ => None,
            }),
        )
    }

    /// Those of a function whose values are defined in the order of its blocks; of others, less is known.
    pub(super) fn in_order(module: &Module, function: &Function) -> Self {
        Self::of_blocks(module, function, function.blocks.iter().map(|(block, _)| block))
    }

    fn of_blocks(
        module: &Module,
        function: &Function,
        blocks: impl Iterator<Item = BlockId>,
    ) -> Self {
        let mut bounds = Self(vec![None; function.values.len()]);
        let blocks: Vec<BlockId> = blocks.collect();
        // What comes from the last turn of a loop is not known when its phi is seen first. It is taken to be no more than
        // what comes from elsewhere; where that turns out to be wrong it is more, and at last has no bound.
        let mut seen = vec![false; function.values.len()];
        for number in 0.. {
            if !bounds.pass(module, function, &blocks, &mut seen, number) {
                break;
            }
        }
        bounds
    }

    /// Finds bounds, and in further passes greater ones; returns whether the next pass may find still greater ones.
    /// `seen` are the values that passes have seen so far.
    fn pass(
        &mut self,
        module: &Module,
        function: &Function,
        blocks: &[BlockId],
        seen: &mut [bool],
        number: u32,
    ) -> bool {
        let mut changes = false;
        for inst in blocks.iter().flat_map(|block| &function.blocks[*block].insts) {
            let Some(result) = inst.result else { continue };
            let Some(bits) = bits(module, function.values[result].ty) else { continue };
            // A number that may have the sign's bit is not told from a negative one.
            let fits = |most: &u64| *most >> (bits - 1) == 0;
            let index = result.index();
            let found = match &inst.op {
                Op::Phi(_) if seen[index] && self.0[index].is_none() => None,
                Op::Phi(arms) if number == 0 => {
                    let is_seen = |arm: &&(BlockId, Operand)| match arm.1 {
                        Operand::Value(value) => seen[value.index()],
                        Operand::Const(_) => true,
                    };
                    self.greatest(module, arms.iter().filter(is_seen).map(|arm| arm.1))
                }
                _ => self.of_inst(module, function, inst),
            };
            let mut found = found.filter(fits);
            let is_phi = matches!(inst.op, Op::Phi(_));
            if seen[index] && found != self.0[index] {
                changes = true;
                // What a loop counts is greater each time.
                found = found.filter(|_| !is_phi || number < MOST_RAISED);
            }
            changes |= number == 0 && is_phi;
            seen[index] = true;
            self.0[index] = found;
        }
        changes
    }

    /// The greatest bound, if all have one.
    fn greatest(&self, module: &Module, mut all: impl Iterator<Item = Operand>) -> Option<u64> {
        all.try_fold(0, |so_far: u64, it| Some(so_far.max(self.most(module, it)?)))
    }

    /// The greatest number that an operand of integers, or a component of it, may be, if it is never negative, nor ever
    /// wraps around.
    pub(super) fn most(&self, module: &Module, operand: Operand) -> Option<u64> {
        match operand {
            Operand::Value(value) => self.0[value.index()],
            Operand::Const(id) => {
                let bits = bits(module, module.constants[id].ty)?;
                constant(module, id).map(|(_, most)| most).filter(|most| most >> (bits - 1) == 0)
            }
        }
    }

    fn of_inst(&self, module: &Module, function: &Function, inst: &Inst) -> Option<u64> {
        use BinaryOp as B;
        use WorkItemQuery as Q;
        let most = |operand: Operand| self.most(module, operand);
        let width = |operand| bits(module, module.operand_type(function, operand));
        // As a number without a sign.
        let unsigned = |operand| most(operand).or_else(|| Some(u64::MAX >> (64 - width(operand)?)));
        // The least component of a constant and the greatest one, if none is negative.
        let constant = |operand: Operand| match operand {
            Operand::Const(id) => constant(module, id).filter(|_| most(operand).is_some()),
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
            Op::Convert(ConvertOp::Trunc | ConvertOp::SExt, a) => most(*a),
            Op::Convert(ConvertOp::ZExt, a) => unsigned(*a),
            Op::Binary(op, a, b) => match op {
                B::Add => most(*a)?.checked_add(most(*b)?),
                B::Mul => most(*a)?.checked_mul(most(*b)?),
                B::Shl => {
                    most(*a)?.checked_mul(1u64.checked_shl(constant(*b)?.1.try_into().ok()?)?)
                }
                // Larger shifts are taken modulo the width.
                B::LShr => match constant(*b) {
                    Some((by, greatest)) if greatest < u64::from(width(*a)?) => {
                        Some(unsigned(*a)? >> by)
                    }
                    _ => most(*a),
                },
                B::AShr => most(*a),
                B::And | B::UMin => [most(*a), most(*b)].into_iter().flatten().min(),
                B::SMin => Some(most(*a)?.min(most(*b)?)),
                // One of two that is not negative.
                B::SMax => match (most(*a), most(*b)) {
                    (None, None) => None,
                    (Some(a), Some(b)) => Some(a.max(b)),
                    _ => Some(u64::MAX >> (65 - width(*a)?)),
                },
                // What a division by zero gives is not known.
                B::UDiv => unsigned(*a)?.checked_div(constant(*b)?.0),
                B::SDiv => most(*a)?.checked_div(constant(*b)?.0),
                B::URem => remainder(unsigned(*a)?, constant(*b)?),
                B::SRem => remainder(most(*a)?, constant(*b)?),
                // No bit above the highest one of both.
                B::Or | B::Xor => {
                    let both = most(*a)? | most(*b)?;
                    Some(both.checked_add(1)?.checked_next_power_of_two()? - 1)
                }
                _ => None,
            },
            Op::Row(RowOp::Number, a, b) => most(*a)?.checked_div(constant(*b)?.0),
            Op::Row(RowOp::Place, a, b) => remainder(most(*a)?, constant(*b)?),
            Op::Select(_, a, b) => self.greatest(module, [*a, *b].into_iter()),
            Op::Phi(arms) => self.greatest(module, arms.iter().map(|arm| arm.1)),
            Op::Construct(parts) => self.greatest(module, parts.iter().copied()),
            Op::Extract(a, _) | Op::Splat(a) => most(*a),
            _ => None,
        }
    }
}

/// The bits of a number, or of each component of a vector of numbers.
fn bits(module: &Module, ty: TypeId) -> Option<u32> {
    let number = match module.types[ty] {
        Type::Vector(component, _) => component,
        _ => ty,
    };
    match module.types[number] {
        Type::Int(bits) => Some(bits),
        _ => None,
    }
}

/// The greatest remainder of a division by constants from the least to the greatest one.
fn remainder(dividend: u64, (least, greatest): (u64, u64)) -> Option<u64> {
    (least > 0).then(|| dividend.min(greatest - 1))
}

/// The least and the greatest component of a constant, as numbers without a sign.
fn constant(module: &Module, id: ConstId) -> Option<(u64, u64)> {
    let parts = match &module.constants[id].kind {
        ConstKind::Composite(parts) => parts.clone(),
        ConstKind::Null => return Some((0, 0)),
        _ => vec![id],
    };
    let bits: Option<Vec<u64>> = parts.iter().map(|&part| module.const_bits(part)).collect();
    let bits = bits?;
    Some((*bits.iter().min()?, *bits.iter().max()?))
}
