// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups of one size that run as if they were one row, in kernels whose items wait for each other.
//!
//! Vectors usually are parts of rows. A group of 1 x 128 has none to take parts of, and sub-groups are numbered through
//! the group, so that one of a group of 8 x 8 has items of two rows. The function for such a group has the number of an
//! item in the group for its first local id, and 0 for the others:
//!
//! ```text
//!   items of a group of 8 x 8           the kernel asks for            it gets
//!   x  0 1 2 3 4 5 6 7 0 1 2 …          local_id.0                     number & 7
//!   y  0 0 0 0 0 0 0 0 1 1 1 …          local_id.1                     number >> 3
//!      └───── a vector ─────┘           local_size.0                   8
//! ```
//!
//! The group's size has to be known: the ids of a group of 1 x 128 are 0 and the number itself, and what is computed
//! from them is as good as in one row. It is done before the passes, which see constants.

use crate::ir::{
    BinaryOp, ENTRY, Flags, Function, Inst, Module, Op, Operand, TypeId, Value, WorkItemQuery as Q,
};

/// The most items of a group, which is the device's limit.
pub(super) const MOST_ITEMS: u64 = 1 << 10;

/// The smallest part of a vector that is an access of its own.
const LEAST_PART: u32 = 4;

/// Groups have at most 2^10 items, so `number * (2^20 / size rounded up) / 2^20` is exactly `number / size`: the
/// rounding adds less than a 2^10th, and a quotient is at least that far below the next whole number.
const SHIFT: u64 = 20;

/// How many items that follow one another are certainly neighbours in one dimension, if vectors have parts of so many.
pub(super) fn row([x, y, z]: [u32; 3]) -> u32 {
    let row = match (x, y, z) {
        (1, 1, _) | (1, _, 1) | (_, 1, 1) => u32::MAX,
        (1, y, _) => y,
        (x, ..) => x,
    };
    if row.is_power_of_two() && row >= LEAST_PART { row } else { u32::MAX }
}

/// Makes the first local id of a kernel with groups of a size an item's number in the group.
pub(super) fn run(module: &mut Module, function: &mut Function, size: [u32; 3]) {
    let i64_type = module.types.int(64);
    let mut ids = Ids { module, function, ty: i64_type, insts: Vec::new() };
    let local = ids.local(size);
    let relative = [0, 1, 2].map(|d| {
        let (group, size) = (ids.query(Q::GroupId, d), ids.query(Q::EnqueuedLocalSize, d));
        let first = ids.binary(BinaryOp::Mul, group, size);
        ids.binary(BinaryOp::Add, first, local[usize::from(d)])
    });
    let offset = [0, 1, 2].map(|d| ids.query(Q::GlobalOffset, d));
    let mut sum = relative[2];
    for d in [1, 0] {
        let size = ids.query(Q::GlobalSize, d);
        let product = ids.binary(BinaryOp::Mul, sum, size);
        sum = ids.binary(BinaryOp::Add, product, relative[usize::from(d)]);
    }
    let sizes = size.map(|size| ids.number(u64::from(size)));
    let zero = ids.number(0);
    let before = std::mem::take(&mut ids.insts);
    for inst in function.blocks.iter_mut().flat_map(|(_, block)| &mut block.insts) {
        let Op::WorkItem(query, dimension) = inst.op else { continue };
        let d = usize::from(dimension);
        let same = |value| Op::Binary(BinaryOp::Add, value, zero);
        inst.op = match query {
            Q::LocalId => same(local[d]),
            Q::LocalSize => same(sizes[d]),
            Q::GlobalId => Op::Binary(BinaryOp::Add, offset[d], relative[d]),
            Q::GlobalLinearId => same(sum),
            Q::LocalLinearId => Op::WorkItem(Q::LocalId, 0),
            _ => continue,
        };
    }
    function.blocks[ENTRY].insts.splice(0..0, before);
}

/// Writes instructions for the function's beginning.
struct Ids<'a> {
    module: &'a mut Module,
    function: &'a mut Function,
    ty: TypeId,
    insts: Vec<Inst>,
}

impl Ids<'_> {
    fn op(&mut self, op: Op) -> Operand {
        let result = self.function.values.push(Value { ty: self.ty, name: None });
        let loc = self.function.loc;
        self.insts.push(Inst { result: Some(result), op, flags: Flags::default(), loc });
        Operand::Value(result)
    }

    fn query(&mut self, query: Q, dimension: u8) -> Operand {
        self.op(Op::WorkItem(query, dimension))
    }

    fn binary(&mut self, op: BinaryOp, a: Operand, b: Operand) -> Operand {
        self.op(Op::Binary(op, a, b))
    }

    fn number(&mut self, number: u64) -> Operand {
        Operand::Const(self.module.const_int(self.ty, number))
    }

    /// The local ids, from the number of the item.
    fn local(&mut self, [x, y, z]: [u32; 3]) -> [Operand; 3] {
        let number = self.query(Q::LocalId, 0);
        let (number, x) = self.divided(number, x, y * z);
        let (number, y) = self.divided(number, y, z);
        [x, y, number]
    }

    /// A number that is less than a product, divided by the first factor, and the remainder.
    fn divided(&mut self, number: Operand, size: u32, other: u32) -> (Operand, Operand) {
        let zero = self.number(0);
        match (size, other) {
            (1, _) => return (number, zero),
            (_, 1) => return (zero, number),
            _ => {}
        }
        if size.is_power_of_two() {
            let (shift, last) =
                (self.number(size.trailing_zeros().into()), self.number(u64::from(size) - 1));
            let quotient = self.binary(BinaryOp::LShr, number, shift);
            return (quotient, self.binary(BinaryOp::And, number, last));
        }
        let factor = self.number((1u64 << SHIFT).div_ceil(size.into()));
        let (shift, size) = (self.number(SHIFT), self.number(size.into()));
        let product = self.binary(BinaryOp::Mul, number, factor);
        let quotient = self.binary(BinaryOp::LShr, product, shift);
        let whole = self.binary(BinaryOp::Mul, quotient, size);
        (quotient, self.binary(BinaryOp::Sub, number, whole))
    }
}
