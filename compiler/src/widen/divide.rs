// SPDX-License-Identifier: MIT OR Apache-2.0
//! Quotients and remainders of integers that differ between the items.
//!
//! Processors cannot divide vectors of integers, so LLVM divides one item after the other. They can
//! divide floats, which give exact quotients of integers far below the precision of a float. With `a +
//! 1/2` instead of `a`, a quotient is at least `1/2b` away from the next integer, which is more than
//! its rounding errors, also those of a product with `1 / b` and one more unit in the last place. So `(a + 1/2) / b - 1/2` rounds to the
//! integer quotient.
//!
//! Numbers of up to 16 bits are computed as floats, those of 32 as doubles, and those of 64 too if all
//! are below 2^50, which is tested at run time unless it is known. Constants divide all in other ways ([`constant`]).

mod constant;
mod division;

pub(super) use division::Division;

use self::constant::Constant;
use self::division::{MOST, ROUNDER};
use super::emit::{Divided, Widener};
use super::ops::Leaf;
use super::refusal::Refusal;
use crate::ir::{BinaryOp, CompareOp, ConvertOp, Flags, Float, Op, Operand, Type, TypeId, UnaryOp};

/// One half, and one, as doubles and as floats.
const HALF: (u64, u64) = (0x3fe0_0000_0000_0000, 0x3f00_0000);
const ONE: (u64, u64) = (0x3ff0_0000_0000_0000, 0x3f80_0000);
/// 2^52, which is also the bits above an integer that is added to it.
const FRONT: u64 = 0x4330_0000_0000_0000;

impl Widener<'_> {
    /// The vector of results, or `None` if LLVM's code is better: it multiplies by the reciprocal of a
    /// constant divisor.
    pub(super) fn divide(&mut self, division: &Division) -> Result<Option<Operand>, Refusal> {
        use BinaryOp as B;
        if !matches!(division.op, B::UDiv | B::SDiv | B::URem | B::SRem) {
            return Ok(None);
        }
        let vector = self.out.type_of(division.dividend);
        let ty = self.out.module.types.element(vector);
        let bits = self.out.module.types.scalar_bits(ty);
        let constant = match division.uniform {
            Some(Operand::Const(id)) => {
                let by = self.out.module.const_bits(id).filter(|_| bits == 64);
                match by.and_then(|by| Constant::of(by, division.greatest())) {
                    Some(constant) => Some(constant),
                    None => return Ok(None),
                }
            }
            _ => None,
        };
        if bits <= 32 {
            return Ok(Some(self.by_floats(division, ty)));
        }
        if bits != 64 {
            return Ok(None);
        }
        // What is divided is often also what a rest is taken of: digits, places in rows.
        let key = Divided {
            block: self.block,
            is_signed: division.is_signed(),
            dividend: division.dividend,
            divisor: division.divisor,
        };
        let is_quotient = matches!(division.op, B::UDiv | B::SDiv);
        let quotient = match (self.divided, constant) {
            (Some((of, quotient)), _) if of == key => quotient,
            (_, Some(Constant::Long(by))) => return Ok(Some(self.by_estimate(division, by))),
            (_, Some(Constant::Exact(by))) if !is_quotient => {
                return Ok(Some(self.exact_rest(division, by)));
            }
            (_, Some(Constant::Exact(by))) => self.exact_quotient(division, by),
            (_, Some(Constant::Short(by))) => self.by_reciprocal(division, by),
            _ => self.quotient(division, ty)?,
        };
        self.divided = Some((key, quotient));
        Ok(Some(match is_quotient {
            true => quotient,
            false => self.rest(division, quotient),
        }))
    }

    /// Quotients of 64 bits that are no constants.
    fn quotient(&mut self, division: &Division, ty: TypeId) -> Result<Operand, Refusal> {
        let op = if division.is_signed() { BinaryOp::SDiv } else { BinaryOp::UDiv };
        let division = &Division { op, ..*division };
        if division.is_small() && division.most_divisor.is_some_and(|most| most < MOST) {
            return Ok(self.by_floats(division, ty));
        }
        let holds = Some(self.fits(division));
        let results = self.guarded(
            holds,
            &[Leaf { ty, offset: 0 }],
            |this| Ok(vec![this.by_floats(division, ty)]),
            |this| {
                let divisor = this.divisor(op, division.divisor);
                let vector = this.out.type_of(division.dividend);
                Ok(vec![this.out.value(Op::Binary(op, division.dividend, divisor), vector)])
            },
        )?;
        Ok(results[0])
    }

    /// What quotients leave.
    fn rest(&mut self, division: &Division, quotient: Operand) -> Operand {
        let vector = self.out.type_of(division.dividend);
        let most = [division.most, division.most_divisor];
        let product = self.multiply([quotient, division.divisor], most, Flags::empty());
        self.out.value(Op::Binary(BinaryOp::Sub, division.dividend, product), vector)
    }

    /// The product of two integers of each item, and the greatest that each may be, if it is known and none is negative.
    ///
    /// Processors multiply 32 by 32 bits in a third of the time of 64 by 64: LLVM does so where both are seen to have no
    /// upper bits, which it does not see of what comes from a loop's last turn or from a float.
    pub(super) fn multiply(
        &mut self,
        numbers: [Operand; 2],
        most: [Option<u64>; 2],
        flags: Flags,
    ) -> Operand {
        let ty = self.out.type_of(numbers[0]);
        let is_word = |most: Option<u64>| most.is_some_and(|most| most <= u32::MAX.into());
        let may = self.out.module.types.scalar_bits(ty) == 64 && most.into_iter().all(is_word);
        let [a, b] = numbers.map(|number| if may { self.word_of(number) } else { number });
        self.out.def(Op::Binary(BinaryOp::Mul, a, b), ty, flags)
    }

    /// The lower 32 bits of each number of 64 bits, unless it is seen to have no others.
    fn word_of(&mut self, number: Operand) -> Operand {
        match number {
            Operand::Const(_) => return number,
            Operand::Value(value) => {
                if let Some(Op::Convert(ConvertOp::ZExt, _)) = self.out.made.get(&value) {
                    return number;
                }
            }
        }
        let ty = self.out.type_of(number);
        let mask = self.out.int(ty, u32::MAX.into());
        self.out.value(Op::Binary(BinaryOp::And, number, mask), ty)
    }

    /// Whether the 64-bit numbers of all running items are below the limit.
    fn fits(&mut self, division: &Division) -> Operand {
        let divisor = match division.uniform {
            Some(divisor) => self.is_below(divisor),
            None => self.all_below(division.divisor),
        };
        if division.is_small() {
            return divisor;
        }
        let bool = self.out.module.types.bool();
        let dividend = self.all_below(division.dividend);
        self.out.value(Op::Binary(BinaryOp::And, divisor, dividend), bool)
    }

    /// Compares a number, or each one of a vector, with the limit.
    fn is_below(&mut self, number: Operand) -> Operand {
        let ty = self.out.type_of(number);
        let limit = self.out.int(ty, MOST as i64);
        let bool = self.out.module.types.bool();
        let truth = if self.out.module.types.lanes(ty) == 1 { bool } else { self.out.mask_type() };
        self.out.value(Op::Compare(CompareOp::ULt, number, limit), truth)
    }

    fn all_below(&mut self, numbers: Operand) -> Operand {
        let mask_type = self.out.mask_type();
        let bool = self.out.module.types.bool();
        let below = self.is_below(numbers);
        let mut beyond = self.out.value(Op::Unary(UnaryOp::Not, below), mask_type);
        if let Some(mask) = self.mask {
            beyond = self.out.value(Op::Binary(BinaryOp::And, beyond, mask), mask_type);
        }
        let any = self.out.value(Op::Any(beyond), bool);
        self.out.value(Op::Unary(UnaryOp::Not, any), bool)
    }

    fn by_floats(&mut self, division: &Division, ty: TypeId) -> Operand {
        let bits = self.out.module.types.scalar_bits(ty);
        let is_double = bits > 16;
        let format = if is_double { Float::F64 } else { Float::F32 };
        let float = self.out.module.types.float(format);
        let int = self.out.module.types.int(if is_double { 64 } else { 32 });
        let vector = self.out.vector_of(ty);
        let (floats, ints) = (self.out.vector_of(float), self.out.vector_of(int));
        let pick = |(double, single): (u64, u64)| (if is_double { double } else { single }) as i64;
        let half = self.out.int(floats, pick(HALF));
        let is_signed = division.is_signed() && bits != 64;
        let half_of = |this: &mut Self, sign: Operand| match is_signed {
            true => this.out.value(Op::Binary(BinaryOp::CopySign, half, sign), floats),
            false => half,
        };

        let a = self.float_of(division.dividend, is_signed, floats);
        let half_a = if division.is_small() { half } else { half_of(self, a) };
        let a = self.out.value(Op::Binary(BinaryOp::FAdd, a, half_a), floats);
        let quotient = match division.uniform {
            Some(divisor) => {
                let divisor = self.float_of(divisor, is_signed, float);
                let one = self.out.int(float, pick(ONE));
                let inverse = self.out.value(Op::Binary(BinaryOp::FDiv, one, divisor), float);
                let inverse = self.out.splat(inverse);
                self.out.value(Op::Binary(BinaryOp::FMul, a, inverse), floats)
            }
            None => {
                let divisor = self.float_of(division.divisor, is_signed, floats);
                let divide = if is_double { BinaryOp::FDivNear } else { BinaryOp::FDiv };
                self.out.value(Op::Binary(divide, a, divisor), floats)
            }
        };
        let half = half_of(self, quotient);
        let quotient = self.out.value(Op::Binary(BinaryOp::FSub, quotient, half), floats);
        let rounder = self.out.int(floats, pick(ROUNDER));
        let rounded = self.out.value(Op::Binary(BinaryOp::FAdd, quotient, rounder), floats);
        let rounded = self.out.value(Op::Convert(ConvertOp::Bitcast, rounded), ints);
        let quotient = if ints == vector {
            let front = self.out.int(ints, pick(ROUNDER));
            self.out.value(Op::Binary(BinaryOp::Sub, rounded, front), ints)
        } else {
            self.out.value(Op::Convert(ConvertOp::Trunc, rounded), vector)
        };
        if matches!(division.op, BinaryOp::UDiv | BinaryOp::SDiv) {
            return quotient;
        }
        self.rest(division, quotient)
    }

    /// Converts an integer, or each one of a vector, to a float.
    fn float_of(&mut self, number: Operand, is_signed: bool, to: TypeId) -> Operand {
        let ty = self.out.type_of(number);
        let bits = self.out.module.types.scalar_bits(ty);
        if bits == 64 && matches!(self.out.module.types[to], Type::Vector(..)) {
            // Processors without registers of 512 bits cannot convert such vectors.
            let front = self.out.int(ty, FRONT as i64);
            let number = self.out.value(Op::Binary(BinaryOp::Or, number, front), ty);
            let number = self.out.value(Op::Convert(ConvertOp::Bitcast, number), to);
            let front = self.out.int(to, FRONT as i64);
            return self.out.value(Op::Binary(BinaryOp::FSub, number, front), to);
        }
        // 64-bit numbers are below the limit.
        let op = if is_signed || bits == 64 { ConvertOp::SToF } else { ConvertOp::UToF };
        self.out.value(Op::Convert(op, number), to)
    }
}
