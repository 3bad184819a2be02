// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations of groups and sub-groups.
//!
//! Most of them are expressed by two operations of the IR: combining the values of all items, and
//! reading the value of another one. For example, a ballot combines bits by `or`, and the first active
//! item is the lowest bit of a ballot in which every item votes true.

use rspirv::spirv::{GroupOperation, Op as Spv};

use super::body::Body;
use super::error::Result;
use super::memory::{plain_access, scope};
use super::words::Instruction;
use crate::ir::{
    BinaryOp, CompareOp, GroupOp, Op, Operand, Scope, Type, TypeId, UnaryOp, WorkItemQuery,
};

/// Translates an operation of a group. `false` if it is another one.
pub fn translate(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<bool> {
    let result = match inst.op() {
        Spv::SubgroupBlockWriteINTEL => return block_write(body, inst).map(|()| true),
        Spv::SubgroupBlockReadINTEL => block_read(body, inst)?,
        spv => {
            let arithmetic = arithmetic(spv);
            if let Some(op) = arithmetic {
                match combine(body, inst, op)? {
                    Some(operand) => operand,
                    None => return body.unsupported(inst, &what(inst)).map(|()| true),
                }
            } else if let Some(operand) = vote(body, inst)? {
                operand
            } else if let Some(operand) = ballot(body, inst)? {
                operand
            } else if let Some(operand) = shuffle(body, inst)? {
                operand
            } else if let Some(operand) = without_scope(body, inst)? {
                operand
            } else {
                return Ok(false);
            }
        }
    };
    body.set_result(inst, result)?;
    Ok(true)
}

fn what(inst: &Instruction<'_>) -> String {
    format!("{} with this group operation", inst.grammar.name)
}

/// The operator with which an instruction combines values.
fn arithmetic(op: Spv) -> Option<BinaryOp> {
    Some(match op {
        Spv::GroupIAdd | Spv::GroupNonUniformIAdd => BinaryOp::Add,
        Spv::GroupFAdd | Spv::GroupNonUniformFAdd => BinaryOp::FAdd,
        Spv::GroupIMulKHR | Spv::GroupNonUniformIMul => BinaryOp::Mul,
        Spv::GroupFMulKHR | Spv::GroupNonUniformFMul => BinaryOp::FMul,
        Spv::GroupSMin | Spv::GroupNonUniformSMin => BinaryOp::SMin,
        Spv::GroupUMin | Spv::GroupNonUniformUMin => BinaryOp::UMin,
        Spv::GroupFMin | Spv::GroupNonUniformFMin => BinaryOp::FMin,
        Spv::GroupSMax | Spv::GroupNonUniformSMax => BinaryOp::SMax,
        Spv::GroupUMax | Spv::GroupNonUniformUMax => BinaryOp::UMax,
        Spv::GroupFMax | Spv::GroupNonUniformFMax => BinaryOp::FMax,
        Spv::GroupBitwiseAndKHR | Spv::GroupNonUniformBitwiseAnd => BinaryOp::And,
        Spv::GroupBitwiseOrKHR | Spv::GroupNonUniformBitwiseOr => BinaryOp::Or,
        Spv::GroupBitwiseXorKHR | Spv::GroupNonUniformBitwiseXor => BinaryOp::Xor,
        Spv::GroupLogicalAndKHR | Spv::GroupNonUniformLogicalAnd => BinaryOp::And,
        Spv::GroupLogicalOrKHR | Spv::GroupNonUniformLogicalOr => BinaryOp::Or,
        Spv::GroupLogicalXorKHR | Spv::GroupNonUniformLogicalXor => BinaryOp::Xor,
        _ => return None,
    })
}

/// A reduction or a scan; `None` if the instruction is neither.
fn combine(
    body: &mut Body<'_, '_>,
    inst: &Instruction<'_>,
    op: BinaryOp,
) -> Result<Option<Operand>> {
    let scope = scope(body, inst, 0)?;
    let op = match GroupOperation::from_u32(inst.arg(1)?) {
        Some(GroupOperation::Reduce) => GroupOp::Reduce(op, None),
        Some(GroupOperation::InclusiveScan) => GroupOp::InclusiveScan(op),
        Some(GroupOperation::ExclusiveScan) => GroupOp::ExclusiveScan(op),
        Some(GroupOperation::ClusteredReduce) => {
            let size = body.b.int(inst, inst.arg(3)?)?;
            let size = u32::try_from(size).ok().filter(|size| size.is_power_of_two());
            let size = size.ok_or_else(|| inst.error("has clusters of no power of two".into()))?;
            GroupOp::Reduce(op, Some(size))
        }
        _ => return Ok(None),
    };
    let value = body.arg(inst, 2)?;
    Ok(Some(body.collective(scope, op, value, None)))
}

/// Queries with the same result for all items.
fn vote(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<Option<Operand>> {
    let op = match inst.op() {
        Spv::GroupAll | Spv::GroupNonUniformAll => BinaryOp::And,
        Spv::GroupAny | Spv::GroupNonUniformAny => BinaryOp::Or,
        Spv::GroupNonUniformAllEqual => {
            let scope = scope(body, inst, 0)?;
            let value = body.arg(inst, 1)?;
            return Ok(Some(body.all_equal(scope, value)));
        }
        Spv::GroupNonUniformElect => {
            scope(body, inst, 0)?;
            let first = body.first_active();
            let lane = body.lane();
            let bool = body.b.module.types.bool();
            return Ok(Some(body.emit(bool, Op::Compare(CompareOp::Eq, lane, first))));
        }
        _ => return Ok(None),
    };
    let (scope, value) = (scope(body, inst, 0)?, body.arg(inst, 1)?);
    Ok(Some(body.collective(scope, GroupOp::Reduce(op, None), value, None)))
}

/// Ballots, and queries on them. A sub-group has at most 32 items: of the four words of a ballot only
/// the first has bits.
fn ballot(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<Option<Operand>> {
    let i32 = body.b.module.types.int(32);
    let word = |body: &mut Body<'_, '_>| -> Result<Operand> {
        let value = body.arg(inst, 1)?;
        Ok(body.emit(i32, Op::Extract(value, vec![0])))
    };
    let bit = |body: &mut Body<'_, '_>, word: Operand, index: Operand| {
        let bool = body.b.module.types.bool();
        let (one, zero) = (body.int(i32, 1), body.int(i32, 0));
        let shifted = body.emit(i32, Op::Binary(BinaryOp::LShr, word, index));
        let bit = body.emit(i32, Op::Binary(BinaryOp::And, shifted, one));
        body.emit(bool, Op::Compare(CompareOp::Ne, bit, zero))
    };
    Ok(Some(match inst.op() {
        Spv::GroupNonUniformBallot => {
            let value = body.arg(inst, 1)?;
            let (bits, zero) = (body.ballot(value), body.int(i32, 0));
            let ty = body.result_type(inst)?;
            body.emit(ty, Op::Construct(vec![bits, zero, zero, zero]))
        }
        Spv::GroupNonUniformInverseBallot => {
            let word = word(body)?;
            let lane = body.lane();
            bit(body, word, lane)
        }
        Spv::GroupNonUniformBallotBitExtract => {
            let word = word(body)?;
            let index = body.arg(inst, 2)?;
            let index = body.resize_int(index, i32, false);
            bit(body, word, index)
        }
        Spv::GroupNonUniformBallotBitCount => {
            let value = body.arg(inst, 2)?;
            let word = body.emit(i32, Op::Extract(value, vec![0]));
            let lane = body.lane();
            let mask = match GroupOperation::from_u32(inst.arg(1)?) {
                Some(GroupOperation::Reduce) => body.live_lanes(),
                Some(GroupOperation::InclusiveScan) => {
                    let two = body.int(i32, 2);
                    let above = body.emit(i32, Op::Binary(BinaryOp::Shl, two, lane));
                    let one = body.int(i32, 1);
                    // In the last of 32 lanes the two is shifted out, and this is all ones.
                    body.emit(i32, Op::Binary(BinaryOp::Sub, above, one))
                }
                Some(GroupOperation::ExclusiveScan) => {
                    let one = body.int(i32, 1);
                    let own = body.emit(i32, Op::Binary(BinaryOp::Shl, one, lane));
                    body.emit(i32, Op::Binary(BinaryOp::Sub, own, one))
                }
                _ => return Err(inst.error("counts bits in a way that does not exist".into())),
            };
            let bits = body.emit(i32, Op::Binary(BinaryOp::And, word, mask));
            let count = body.emit(i32, Op::Unary(UnaryOp::PopCount, bits));
            let ty = body.result_type(inst)?;
            body.resize_int(count, ty, false)
        }
        Spv::GroupNonUniformBallotFindLSB => {
            let (word, mask) = (word(body)?, body.live_lanes());
            let bits = body.emit(i32, Op::Binary(BinaryOp::And, word, mask));
            let lowest = body.emit(i32, Op::Unary(UnaryOp::Ctz, bits));
            let ty = body.result_type(inst)?;
            body.resize_int(lowest, ty, false)
        }
        Spv::GroupNonUniformBallotFindMSB => {
            let (word, mask) = (word(body)?, body.live_lanes());
            let bits = body.emit(i32, Op::Binary(BinaryOp::And, word, mask));
            let above = body.emit(i32, Op::Unary(UnaryOp::Clz, bits));
            let last = body.int(i32, 31);
            let highest = body.emit(i32, Op::Binary(BinaryOp::Sub, last, above));
            let ty = body.result_type(inst)?;
            body.resize_int(highest, ty, false)
        }
        _ => return Ok(None),
    }))
}

/// The older forms of SPV_KHR_shader_ballot and SPV_KHR_subgroup_vote, which name no scope.
fn without_scope(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<Option<Operand>> {
    let vote = |body: &mut Body<'_, '_>, op| -> Result<Operand> {
        let value = body.arg(inst, 0)?;
        Ok(body.collective(Scope::Subgroup, GroupOp::Reduce(op, None), value, None))
    };
    Ok(Some(match inst.op() {
        Spv::SubgroupAllKHR => vote(body, BinaryOp::And)?,
        Spv::SubgroupAnyKHR => vote(body, BinaryOp::Or)?,
        Spv::SubgroupAllEqualKHR => {
            let value = body.arg(inst, 0)?;
            body.all_equal(Scope::Subgroup, value)
        }
        Spv::SubgroupBallotKHR => {
            let (i32, value) = (body.b.module.types.int(32), body.arg(inst, 0)?);
            let (bits, zero) = (body.ballot(value), body.int(i32, 0));
            let ty = body.result_type(inst)?;
            body.emit(ty, Op::Construct(vec![bits, zero, zero, zero]))
        }
        Spv::SubgroupFirstInvocationKHR => {
            let value = body.arg(inst, 0)?;
            let first = body.first_active();
            body.shuffle(Scope::Subgroup, value, first)
        }
        Spv::SubgroupReadInvocationKHR => {
            let (value, index) = (body.arg(inst, 0)?, body.arg(inst, 1)?);
            let i32 = body.b.module.types.int(32);
            let index = body.resize_int(index, i32, false);
            body.shuffle(Scope::Subgroup, value, index)
        }
        _ => return Ok(None),
    }))
}

/// Values of other items.
fn shuffle(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<Option<Operand>> {
    use BinaryOp::{Add, And, Sub, Xor};
    let i32 = body.b.module.types.int(32);
    // The indices of value and index; the older instructions name no scope.
    let (value, index) = match inst.op() {
        Spv::SubgroupShuffleINTEL | Spv::SubgroupShuffleXorINTEL => (0, 1),
        Spv::SubgroupShuffleUpINTEL | Spv::SubgroupShuffleDownINTEL => {
            return two_sided(body, inst).map(Some);
        }
        Spv::GroupNonUniformBroadcastFirst => {
            scope(body, inst, 0)?;
            let value = body.arg(inst, 1)?;
            let first = body.first_active();
            return Ok(Some(body.shuffle(Scope::Subgroup, value, first)));
        }
        Spv::GroupBroadcast => {
            let (scope, value) = (scope(body, inst, 0)?, body.arg(inst, 1)?);
            let id = body.arg(inst, 2)?;
            let index = body.linear_id(scope, id);
            return Ok(Some(body.shuffle(scope, value, index)));
        }
        Spv::GroupNonUniformBroadcast
        | Spv::GroupNonUniformShuffle
        | Spv::GroupNonUniformShuffleXor
        | Spv::GroupNonUniformShuffleUp
        | Spv::GroupNonUniformShuffleDown
        | Spv::GroupNonUniformRotateKHR => (1, 2),
        _ => return Ok(None),
    };
    let scope = if value == 0 { Scope::Subgroup } else { scope(body, inst, 0)? };
    let (value, index) = (body.arg(inst, value)?, body.arg(inst, index)?);
    let index = body.resize_int(index, i32, false);
    let from_lane = |body: &mut Body<'_, '_>, op| {
        let lane = body.lane();
        body.emit(i32, Op::Binary(op, lane, index))
    };
    let index = match inst.op() {
        Spv::GroupNonUniformShuffleXor | Spv::SubgroupShuffleXorINTEL => from_lane(body, Xor),
        Spv::GroupNonUniformShuffleUp => from_lane(body, Sub),
        Spv::GroupNonUniformShuffleDown => from_lane(body, Add),
        Spv::GroupNonUniformRotateKHR => {
            let size = match inst.arg(3) {
                Ok(id) => {
                    let size = body.b.int(inst, id)?;
                    body.int(i32, size)
                }
                Err(_) => body.emit(i32, Op::WorkItem(WorkItemQuery::SubgroupMaxSize, 0)),
            };
            let (lane, one) = (body.lane(), body.int(i32, 1));
            let moved = from_lane(body, Add);
            let within = body.emit(i32, Op::Binary(Sub, size, one));
            let outside = body.emit(i32, Op::Unary(UnaryOp::Not, within));
            let low = body.emit(i32, Op::Binary(And, moved, within));
            let high = body.emit(i32, Op::Binary(And, lane, outside));
            body.emit(i32, Op::Binary(BinaryOp::Or, high, low))
        }
        _ => index,
    };
    Ok(Some(body.shuffle(scope, value, index)))
}

/// Shuffles over two adjacent values: lane `lane + delta` of the current and the next, or `lane -
/// delta` of the current and the previous one.
fn two_sided(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<Operand> {
    let i32 = body.b.module.types.int(32);
    let bool = body.b.module.types.bool();
    let (first, second) = (body.arg(inst, 0)?, body.arg(inst, 1)?);
    let delta = body.arg(inst, 2)?;
    let delta = body.resize_int(delta, i32, false);
    let lane = body.lane();
    let size = body.emit(i32, Op::WorkItem(WorkItemQuery::SubgroupMaxSize, 0));
    // In both cases the index counts from the first lane of the first value.
    let index = if inst.op() == Spv::SubgroupShuffleDownINTEL {
        body.emit(i32, Op::Binary(BinaryOp::Add, lane, delta))
    } else {
        let back = body.emit(i32, Op::Binary(BinaryOp::Sub, size, delta));
        body.emit(i32, Op::Binary(BinaryOp::Add, lane, back))
    };
    let beyond = body.emit(i32, Op::Binary(BinaryOp::Sub, index, size));
    let in_first = body.emit(bool, Op::Compare(CompareOp::ULt, index, size));
    let from_first = body.shuffle(Scope::Subgroup, first, index);
    let from_second = body.shuffle(Scope::Subgroup, second, beyond);
    let ty = body.result_type(inst)?;
    Ok(body.emit(ty, Op::Select(in_first, from_first, from_second)))
}

/// The elements of a block that belong to the item: every `n`th from its lane on, for sub-groups of `n`
/// items, with their addresses.
fn block_elements(body: &mut Body<'_, '_>, base: Operand, ty: TypeId) -> (TypeId, Vec<Operand>) {
    let i32 = body.b.module.types.int(32);
    let element = body.b.module.types.element(ty);
    let lanes = body.b.module.types.lanes(ty);
    let stride = body.b.module.types.size(element) as i64;
    let lane = body.lane();
    let size = body.emit(i32, Op::WorkItem(WorkItemQuery::SubgroupMaxSize, 0));
    let mut index = lane;
    let mut places = Vec::new();
    for _ in 0..lanes {
        places.push(body.address(base, 0, vec![(index, stride)], false));
        index = body.emit(i32, Op::Binary(BinaryOp::Add, index, size));
    }
    (element, places)
}

fn block_read(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<Operand> {
    let ty = body.result_type(inst)?;
    let base = body.arg(inst, 0)?;
    let (element, places) = block_elements(body, base, ty);
    let access = plain_access(body.b.module.types.align(element));
    let parts: Vec<Operand> =
        places.into_iter().map(|at| body.emit(element, Op::Load(at, access))).collect();
    Ok(match parts.as_slice() {
        [part] => *part,
        _ => body.emit(ty, Op::Construct(parts)),
    })
}

fn block_write(body: &mut Body<'_, '_>, inst: &Instruction<'_>) -> Result<()> {
    let (base, value) = (body.arg(inst, 0)?, body.arg(inst, 1)?);
    let ty = body.type_of(value);
    let (element, places) = block_elements(body, base, ty);
    let access = plain_access(body.b.module.types.align(element));
    for (index, at) in places.into_iter().enumerate() {
        let part = match body.b.module.types[ty] {
            Type::Vector(..) => body.emit(element, Op::Extract(value, vec![index as u32])),
            _ => value,
        };
        body.emit_void(Op::Store(at, part, access));
    }
    Ok(())
}

impl Body<'_, '_> {
    /// Offers a value to the items of a scope and collects the combined result.
    fn collective(
        &mut self,
        scope: Scope,
        op: GroupOp,
        value: Operand,
        index: Option<Operand>,
    ) -> Operand {
        let ty = self.type_of(value);
        self.emit_void(Op::Offer(scope, value));
        self.emit(ty, Op::Collect(op, scope, index))
    }

    /// The value of the item with an index in a group; the item's own if there is none.
    pub fn shuffle(&mut self, scope: Scope, value: Operand, index: Operand) -> Operand {
        self.collective(scope, GroupOp::Shuffle, value, Some(index))
    }

    /// The item's place in its sub-group.
    fn lane(&mut self) -> Operand {
        let i32 = self.b.module.types.int(32);
        self.emit(i32, Op::WorkItem(WorkItemQuery::SubgroupLocalId, 0))
    }

    /// The lanes of the sub-group as bits.
    fn live_lanes(&mut self) -> Operand {
        let i32 = self.b.module.types.int(32);
        let size = self.emit(i32, Op::WorkItem(WorkItemQuery::SubgroupSize, 0));
        let (ones, all) = (self.int(i32, u64::from(u32::MAX)), self.int(i32, 32));
        let rest = self.emit(i32, Op::Binary(BinaryOp::Sub, all, size));
        self.emit(i32, Op::Binary(BinaryOp::LShr, ones, rest))
    }

    /// The lanes whose numbers compare in this way with the item's own, as a ballot.
    pub fn lane_mask(&mut self, ty: TypeId, compare: CompareOp) -> Operand {
        use BinaryOp::{And, Shl, Sub};
        let i32 = self.b.module.types.int(32);
        let (lane, one) = (self.lane(), self.int(i32, 1));
        // In the last of 32 lanes the two is shifted out, and all lanes are up to it.
        let above = matches!(compare, CompareOp::UGt | CompareOp::ULe);
        let first = self.int(i32, if above { 2 } else { 1 });
        let bit = self.emit(i32, Op::Binary(Shl, first, lane));
        let below = self.emit(i32, Op::Binary(Sub, bit, one));
        let bits = match compare {
            CompareOp::UGe | CompareOp::UGt => {
                let (live, rest) =
                    (self.live_lanes(), self.emit(i32, Op::Unary(UnaryOp::Not, below)));
                self.emit(i32, Op::Binary(And, rest, live))
            }
            CompareOp::Eq => bit,
            _ => below,
        };
        let zero = self.int(i32, 0);
        self.emit(ty, Op::Construct(vec![bits, zero, zero, zero]))
    }

    /// The lanes where a `bool` is true, as bits.
    fn ballot(&mut self, value: Operand) -> Operand {
        let i32 = self.b.module.types.int(32);
        let (lane, one, zero) = (self.lane(), self.int(i32, 1), self.int(i32, 0));
        let own = self.emit(i32, Op::Binary(BinaryOp::Shl, one, lane));
        let bit = self.emit(i32, Op::Select(value, own, zero));
        self.collective(Scope::Subgroup, GroupOp::Reduce(BinaryOp::Or, None), bit, None)
    }

    /// The first lane whose item has reached this point.
    fn first_active(&mut self) -> Operand {
        let (i32, bool) = (self.b.module.types.int(32), self.b.module.types.bool());
        let yes = self.int(bool, 1);
        let bits = self.ballot(yes);
        self.emit(i32, Op::Unary(UnaryOp::Ctz, bits))
    }

    fn all_equal(&mut self, scope: Scope, value: Operand) -> Operand {
        let first = self.first_active();
        let other = self.shuffle(scope, value, first);
        let ty = self.type_of(value);
        let bool = self.b.module.types.bool();
        let truth = self.b.module.types.with_element(ty, bool);
        let element = self.b.module.types.element(ty);
        let compare = match self.b.module.types[element] {
            Type::Float(_) => CompareOp::FOEq,
            _ => CompareOp::Eq,
        };
        let mut equal = self.emit(truth, Op::Compare(compare, value, other));
        let lanes = self.b.module.types.lanes(ty);
        if lanes > 1 {
            let parts: Vec<Operand> =
                (0..lanes).map(|lane| self.emit(bool, Op::Extract(equal, vec![lane]))).collect();
            equal = parts[0];
            for &part in &parts[1..] {
                equal = self.emit(bool, Op::Binary(BinaryOp::And, equal, part));
            }
        }
        self.collective(scope, GroupOp::Reduce(BinaryOp::And, None), equal, None)
    }

    /// The number of an item given by an id: in a work-group a linear id, or a vector of the ids per
    /// dimension.
    fn linear_id(&mut self, scope: Scope, id: Operand) -> Operand {
        let (i32, i64) = (self.b.module.types.int(32), self.b.module.types.int(64));
        let ty = self.type_of(id);
        let dimensions = self.b.module.types.lanes(ty).min(3);
        if dimensions == 1 || scope == Scope::Subgroup {
            return self.resize_int(id, i32, false);
        }
        let element = self.b.module.types.element(ty);
        let mut parts = Vec::new();
        for dimension in 0..dimensions {
            let part = self.emit(element, Op::Extract(id, vec![dimension]));
            parts.push(self.resize_int(part, i64, false));
        }
        let mut sum = parts[parts.len() - 1];
        for dimension in (0..parts.len() - 1).rev() {
            let size = Op::WorkItem(WorkItemQuery::LocalSize, dimension as u8);
            let size = self.emit(i64, size);
            let rows = self.emit(i64, Op::Binary(BinaryOp::Mul, sum, size));
            sum = self.emit(i64, Op::Binary(BinaryOp::Add, rows, parts[dimension]));
        }
        self.resize_int(sum, i32, false)
    }
}
