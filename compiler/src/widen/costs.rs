// SPDX-License-Identifier: MIT OR Apache-2.0
//! What accesses to memory cost a vector, to compare one way of running a kernel with another.

use std::collections::HashSet;

use super::shape::Shape;
use super::way::Way;
use crate::ir::{AddressSpace, BlockId, Function, Module, Op, Operand, Type, TypeId};

/// What an access costs that all items make at one place or side by side, and one that is a gather or a
/// scatter. With a vector of 16 floats in the cache these are 1 to 2 and 12 to 30 cycles.
const TOGETHER: u64 = 1;
const APART: u64 = 12;
/// What one costs of a row that is walked in strips: a quarter of 16 loads and of 20 exchanges, which take 4 to 6
/// cycles.
const IN_STRIPS: u64 = 3;

/// The longest store in bytes that Xeons (Golden Cove) forward to a load of any of its parts, in 6 cycles. A load from the
/// upper half of a store of 64 bytes takes 14, and behind it an atomic operation has to end first: updates of global
/// memory by some items of each vector take 0.6 of the time with stores of 32 bytes.
pub(crate) const FORWARDED: u64 = 32;

/// The cost of a block's accesses to memory that items share. Those to `rows` are taken in strips.
pub(super) fn accesses(
    module: &Module,
    source: &Function,
    way: &Way,
    id: BlockId,
    rows: &HashSet<(BlockId, usize)>,
) -> u64 {
    let each = |at: Operand, ty: TypeId, is_store: bool| {
        let Type::Pointer(space) = module.types[module.operand_type(source, at)] else {
            return 0;
        };
        let size = i64::try_from(module.types.size(ty)).unwrap_or(0);
        match way.shapes.at(&way.flow, at, id) {
            _ if space == AddressSpace::Private => 0,
            Some(Shape::Varying) => APART,
            // Items that only differ in a dimension that places do not depend on do the same work.
            Some(Shape::Uniform) if is_store => APART,
            Some(Shape::Strided { step, .. }) if step != size && step != -size => APART,
            _ => TOGETHER,
        }
    };
    let insts = source.blocks[id].insts.iter().enumerate();
    let costs = insts.map(|(index, inst)| match (&inst.op, inst.result) {
        (Op::Load(..) | Op::Store(..), _) if rows.contains(&(id, index)) => IN_STRIPS,
        (Op::Load(at, _), Some(result)) => each(*at, source.values[result].ty, false),
        (Op::Store(at, value, _), _) => each(*at, module.operand_type(source, *value), true),
        _ => 0,
    });
    costs.sum()
}
