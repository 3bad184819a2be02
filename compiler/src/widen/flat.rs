// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups of several rows that run as if they were one row, in kernels with sub-groups.
//!
//! Sub-groups are numbered through the group, so in groups whose rows are no whole vectors a sub-group has items
//! of several rows. A vector of 16 items of a group of 8 x 8 is two rows:
//!
//! ```text
//!   items of the group                  the kernel asks for            it gets
//!   x  0 1 2 3 4 5 6 7 0 1 2 …          local_id.0                     linear % size.0
//!   y  0 0 0 0 0 0 0 0 1 1 1 …          local_id.1                     linear / size.0 % size.1
//!      └───── a vector ─────┘           sub-groups, linear ids         as before
//! ```
//!
//! The function that is widened has the number of an item in the group for its first local id, and 0 for the
//! others. What the kernel computes from its ids differs between the items in no simple way then, so it gathers.
//! The product of matrices of oneMKL asks for sub-groups of 16 in groups of 8 x 8, and took 50 times as long one
//! item at a time as Intel's library for processors.

use crate::ir::{
    BinaryOp, ENTRY, Flags, Function, Inst, Module, Op, Operand, TypeId, Value, WorkItemQuery as Q,
};

/// Groups have at most 2^10 items, so `number * (2^20 / size rounded up) / 2^20` is exactly `number / size`: the
/// rounding adds less than a 2^10th, and a quotient is at least that far below the next whole number.
const SHIFT: u64 = 20;

/// A function with the kernel's results in which the first local id is an item's number in the group.
pub(super) fn run(module: &mut Module, source: &Function) -> Function {
    let mut function = source.clone();
    let i64_type = module.types.int(64);
    let mut ids = Ids { module, function: &mut function, ty: i64_type, insts: Vec::new() };
    let local = ids.local();
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
    let before = std::mem::take(&mut ids.insts);
    let zero = Operand::Const(module.const_int(i64_type, 0));
    for inst in function.blocks.iter_mut().flat_map(|(_, block)| &mut block.insts) {
        let Op::WorkItem(query, dimension) = inst.op else { continue };
        let d = usize::from(dimension);
        let same = |value| Op::Binary(BinaryOp::Add, value, zero);
        inst.op = match query {
            Q::LocalId => same(local[d]),
            Q::GlobalId => Op::Binary(BinaryOp::Add, offset[d], relative[d]),
            Q::GlobalLinearId => same(sum),
            Q::LocalLinearId => Op::WorkItem(Q::LocalId, 0),
            _ => continue,
        };
    }
    function.blocks[ENTRY].insts.splice(0..0, before);
    function
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
    fn local(&mut self) -> [Operand; 3] {
        let number = self.query(Q::LocalId, 0);
        let (y, x) = self.divided(number, 0);
        let (z, y) = self.divided(y, 1);
        [x, y, z]
    }

    /// A number divided by the group's size in a dimension, and the remainder.
    fn divided(&mut self, number: Operand, dimension: u8) -> (Operand, Operand) {
        let size = self.query(Q::LocalSize, dimension);
        let (one, shift) = (self.number(1 << SHIFT), self.number(SHIFT));
        let last = self.number(1);
        let more = self.binary(BinaryOp::Add, size, one);
        let more = self.binary(BinaryOp::Sub, more, last);
        let factor = self.binary(BinaryOp::UDiv, more, size);
        let product = self.binary(BinaryOp::Mul, number, factor);
        let quotient = self.binary(BinaryOp::LShr, product, shift);
        let whole = self.binary(BinaryOp::Mul, quotient, size);
        (quotient, self.binary(BinaryOp::Sub, number, whole))
    }
}
