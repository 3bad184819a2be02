// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sums of 32 bits that were computed in the upper half of 64.
//!
//! clang computes `int i = get_group_id(0) * 4096 + get_local_id(0)` in 64 bits, and moves what extends it to 64 bits into
//! the sum:
//!
//! ```text
//!   wide = (group << 44) + (local << 32) >> 32          i = (i32) group << 12 + (i32) local, wide = sext i
//!   wide = (turn + (local + (group << 12))) << 32 >> 32    ──▶    the same
//! ```
//!
//! The left forms wrap around at 2^64 for all that their types say, and nothing promises ([`promises`](crate::widen)) what
//! lies in half a number. So such sums are computed in 32 bits, and extended. What is made of one number alone is left as
//! it is: its steps are known in any form, unless it is taken off something, as in `255 - local`.

use std::collections::{HashMap, HashSet};

use super::words::lowered;
use crate::ir::{
    BinaryOp, ConvertOp, Flags, Function, Inst, Loc, Module, Op, Operand, Type, TypeId, ValueId,
};

/// The most operations of a sum.
const MOST_OPERATIONS: usize = 16;

/// Computes such sums in 32 bits.
pub(super) fn run(module: &mut Module, function: &mut Function) {
    let insts = || function.blocks.iter().flat_map(|(_, block)| &block.insts);
    let is_wide = |inst: &&Inst| {
        inst.result.is_some_and(|it| module.types[function.values[it].ty] == Type::Int(64))
    };
    let candidate = |inst: &Inst| lowered(module, &inst.op).is_some();
    if !insts().filter(is_wide).any(candidate) {
        return;
    }
    let is_part = |op: &Op| matches!(op, Op::Binary(..) | Op::Convert(..));
    let made = insts().filter(|inst| is_part(&inst.op));
    let made = made.filter_map(|inst| Some((inst.result?, inst.op.clone()))).collect();
    let short = module.types.int(32);
    let mut shortener = Shortener { module, function, made, short };
    for id in shortener.function.blocks.ids() {
        let insts = std::mem::take(&mut shortener.function.blocks[id].insts);
        let mut to = Vec::with_capacity(insts.len());
        for inst in insts {
            shortener.inst(inst, &mut to);
        }
        shortener.function.blocks[id].insts = to;
    }
}

/// The half of a number of 64 bits that is looked at.
#[derive(Clone, Copy, PartialEq)]
enum Half {
    Lower,
    /// The lower half is 0.
    Upper,
}

/// What one half of a number of 64 bits is made of.
enum Made {
    /// Two halves.
    Of(BinaryOp, (Operand, Half), (Operand, Half)),
    /// What has 32 bits, or is shortened to them.
    Part(Operand),
    Constant(u32),
    /// The lower half of a number, shifted to the left.
    Shifted(Operand, u64),
}

struct Shortener<'a> {
    module: &'a mut Module,
    function: &'a mut Function,
    made: HashMap<ValueId, Op>,
    short: TypeId,
}

impl Shortener<'_> {
    fn inst(&mut self, mut inst: Inst, to: &mut Vec<Inst>) {
        let sum = inst
            .result
            .filter(|it| self.module.types[self.function.values[*it].ty] == Type::Int(64));
        if let Some(result) = sum
            && let Some((sum, by)) = lowered(self.module, &inst.op)
            && self.is_of_several(sum)
        {
            let loc = inst.loc;
            let sum = self.half(sum, Half::Upper, loc, to);
            let extends = match inst.op {
                Op::Binary(BinaryOp::AShr, ..) => ConvertOp::SExt,
                _ => ConvertOp::ZExt,
            };
            inst.flags = Flags::empty();
            inst.op = Op::Convert(extends, sum);
            if by < 32 {
                let ty = self.function.values[result].ty;
                let left = Operand::Const(self.module.const_int(ty, 32 - by));
                let wide = self.add(inst.op, ty, loc, to);
                inst.op = Op::Binary(BinaryOp::Shl, wide, left);
            }
        }
        to.push(inst);
    }

    /// Whether an operand is a number in the upper half that is made of several ones, or of one that is taken off.
    fn is_of_several(&self, sum: Operand) -> bool {
        let mut work = vec![(sum, Half::Upper)];
        let mut parts: HashSet<Operand> = HashSet::new();
        let (mut operations, mut is_taken_off) = (0, false);
        while let Some((operand, half)) = work.pop() {
            operations += 1;
            match self.made_of(operand, half) {
                _ if operations > MOST_OPERATIONS => return false,
                None => return false,
                Some(Made::Of(op, a, b)) => {
                    is_taken_off |= op == BinaryOp::Sub;
                    work.extend([a, b]);
                }
                Some(Made::Part(part)) => {
                    parts.insert(part);
                }
                Some(Made::Constant(_)) => {}
                Some(Made::Shifted(from, _)) => work.push((from, Half::Lower)),
            }
        }
        parts.len() > 1 || is_taken_off
    }

    /// What half of a number is made of, if its other half does not matter.
    fn made_of(&self, operand: Operand, half: Half) -> Option<Made> {
        use BinaryOp::{Add, Mul, Shl, Sub};
        let module = &*self.module;
        let value = match operand {
            Operand::Const(id) => {
                let bits = module.const_bits(id)?;
                return match half {
                    Half::Lower => Some(Made::Constant(bits as u32)),
                    Half::Upper if bits as u32 == 0 => Some(Made::Constant((bits >> 32) as u32)),
                    Half::Upper => None,
                };
            }
            Operand::Value(value) => value,
        };
        let constant = |it: Operand| module.operand_bits(it);
        match (self.made.get(&value), half) {
            (Some(&Op::Binary(op @ (Add | Sub), a, b)), _) => {
                Some(Made::Of(op, (a, half), (b, half)))
            }
            (Some(&Op::Binary(Mul, a, b)), Half::Lower) => {
                Some(Made::Of(Mul, (a, half), (b, half)))
            }
            (Some(&Op::Binary(Mul, a, b)), Half::Upper) => match (constant(a), constant(b)) {
                (_, Some(by)) if by as u32 == 0 => Some(Made::Of(Mul, (a, Half::Lower), (b, half))),
                (Some(by), _) if by as u32 == 0 => Some(Made::Of(Mul, (a, half), (b, Half::Lower))),
                _ => None,
            },
            (Some(&Op::Binary(Shl, a, by)), Half::Upper) => {
                let by = constant(by).filter(|by| (32..64).contains(by))?;
                Some(Made::Shifted(a, by - 32))
            }
            (Some(&Op::Binary(Shl, a, by)), Half::Lower) if let Some(by @ 0..32) = constant(by) => {
                Some(Made::Shifted(a, by))
            }
            (Some(&Op::Convert(ConvertOp::SExt | ConvertOp::ZExt, from)), Half::Lower)
                if module.operand_type(self.function, from) == self.short =>
            {
                Some(Made::Part(from))
            }
            (_, Half::Lower) => Some(Made::Part(operand)),
            (_, Half::Upper) => None,
        }
    }

    /// Half of a number, in 32 bits.
    fn half(&mut self, operand: Operand, half: Half, loc: Loc, to: &mut Vec<Inst>) -> Operand {
        let short = self.short;
        match self.made_of(operand, half) {
            Some(Made::Of(op, (a, of_a), (b, of_b))) => {
                let a = self.half(a, of_a, loc, to);
                let b = self.half(b, of_b, loc, to);
                self.add(Op::Binary(op, a, b), short, loc, to)
            }
            Some(Made::Shifted(from, by)) => {
                let from = self.half(from, Half::Lower, loc, to);
                if by == 0 {
                    return from;
                }
                let by = Operand::Const(self.module.const_int(short, by));
                self.add(Op::Binary(BinaryOp::Shl, from, by), short, loc, to)
            }
            Some(Made::Constant(bits)) => Operand::Const(self.module.const_int(short, bits.into())),
            Some(Made::Part(part)) if self.module.operand_type(self.function, part) == short => {
                part
            }
            _ => self.add(Op::Convert(ConvertOp::Trunc, operand), short, loc, to),
        }
    }

    fn add(&mut self, op: Op, ty: TypeId, loc: Loc, to: &mut Vec<Inst>) -> Operand {
        let result = self.function.new_value(ty);
        to.push(Inst { result: Some(result), op, flags: Flags::empty(), loc });
        Operand::Value(result)
    }
}
