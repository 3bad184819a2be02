// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers of any 64 bits, divided by constants.
//!
//! LLVM multiplies by a reciprocal of 64 bits, of whose product it needs the upper half, and processors have no such
//! products of vectors: it takes the vectors apart.
//!
//! A long constant leaves a short quotient. That of doubles, rounded to the nearest integer, is the right one or one
//! too large, which the sign of the remainder tells:
//!
//! ```text
//!   q = round(a * (1 / b))     off by less than 2^46 * 2^-51, and half of one
//!   r = a - q * b              from -0.54 b to 0.54 b; if it is negative, q - 1 and r + b
//! ```
//!
//! The quotients by short constants have more bits than a double's. They are the upper halves of products, by parts of
//! 32 bits.
//!
//! Numbers with a sign are divided without it.

use super::division::{Division, ROUNDER};
use crate::ir::{BinaryOp, ConvertOp, Float, Op, Operand};
use crate::widen::emit::Widener;

/// Constants below this limit are short: quotients by others are below 2^46.
const SHORT: u64 = 1 << 18;

/// Remainders by constants from here on may have no room for a sign.
const TOO_LONG: u64 = 1 << 62;

/// A constant divisor of 64 bits.
#[derive(Clone, Copy)]
pub(super) enum Constant {
    Short(u64),
    Long(u64),
}

impl Constant {
    /// `None` where shifts are as good, and for constants that are too long, negative ones among them.
    pub(super) fn of(by: u64) -> Option<Self> {
        match by {
            _ if by.is_power_of_two() => None,
            1..SHORT => Some(Self::Short(by)),
            SHORT..TOO_LONG => Some(Self::Long(by)),
            _ => None,
        }
    }
}

/// How a number of 64 bits is divided by a constant (Granlund and Montgomery, "Division by Invariant Integers using
/// Multiplication"): shifted by `first`, multiplied by `factor` / 2^64, and shifted by `last`.
#[derive(Debug, PartialEq, Eq)]
struct Reciprocal {
    first: u32,
    factor: u64,
    /// Whether the factor has one more bit in front of those.
    more: bool,
    last: u32,
}

impl Reciprocal {
    /// That of a constant of at least 3 that is no power of two.
    fn of(by: u64) -> Self {
        // The factor is rounded up. The quotient is right if it is not too large by more than what all numbers have
        // room for.
        let try_with = |by: u64, bits: u32, last: u32| {
            let (by, whole) = (u128::from(by), 1u128 << (64 + last));
            let factor = whole.div_ceil(by);
            let fits = factor * by - whole <= 1 << (last + 64 - bits);
            u64::try_from(factor).ok().filter(|_| fits)
        };
        let least = u64::BITS - by.leading_zeros();
        let first = by.trailing_zeros();
        for (first, by) in [(0, by), (first, by >> first)] {
            for last in 0..least {
                if let Some(factor) = try_with(by, 64 - first, last) {
                    return Self { first, factor, more: false, last };
                }
            }
        }
        let (by, whole) = (u128::from(by), 1u128 << (64 + least));
        let factor = (whole.div_ceil(by) - (1 << 64)) as u64;
        Self { first: 0, factor, more: true, last: least - 1 }
    }
}

/// Numbers without their signs.
struct Magnitude {
    numbers: Operand,
    /// All bits of the negative ones, or none, if there may be such.
    signs: Option<Operand>,
}

impl Widener<'_> {
    /// Quotients or remainders by a long constant.
    pub(super) fn by_estimate(&mut self, division: &Division, by: u64) -> Operand {
        let Magnitude { numbers, signs } = self.magnitude(division);
        let ty = self.out.type_of(numbers);
        let float = self.out.module.types.float(Float::F64);
        let floats = self.out.vector_of(float);
        // Without an instruction for it, LLVM converts both halves.
        let number = self.out.value(Op::Convert(ConvertOp::UToF, numbers), floats);
        let inverse = self.out.int(floats, (1.0 / by as f64).to_bits() as i64);
        let quotient = self.out.value(Op::Binary(BinaryOp::FMul, number, inverse), floats);
        let rounder = self.out.int(floats, ROUNDER.0 as i64);
        let quotient = self.out.value(Op::Binary(BinaryOp::FAdd, quotient, rounder), floats);
        let quotient = self.out.value(Op::Convert(ConvertOp::Bitcast, quotient), ty);
        let front = self.out.int(ty, ROUNDER.0 as i64);
        let quotient = self.out.value(Op::Binary(BinaryOp::Sub, quotient, front), ty);
        let by = self.out.int(ty, by as i64);
        let product = self.out.value(Op::Binary(BinaryOp::Mul, quotient, by), ty);
        let rest = self.out.value(Op::Binary(BinaryOp::Sub, numbers, product), ty);
        // All bits where the rest is negative.
        let places = self.out.int(ty, 63);
        let less = self.out.value(Op::Binary(BinaryOp::AShr, rest, places), ty);
        let result = match division.op {
            BinaryOp::UDiv | BinaryOp::SDiv => Op::Binary(BinaryOp::Add, quotient, less),
            _ => {
                let more = self.out.value(Op::Binary(BinaryOp::And, less, by), ty);
                Op::Binary(BinaryOp::Add, rest, more)
            }
        };
        let result = self.out.value(result, ty);
        self.with_signs(result, signs)
    }

    /// Quotients by a short constant.
    pub(super) fn by_reciprocal(&mut self, division: &Division, by: u64) -> Operand {
        let Magnitude { numbers, signs } = self.magnitude(division);
        let ty = self.out.type_of(numbers);
        let mut op = |op, a, b: u64| {
            let b = self.out.int(ty, b as i64);
            self.out.value(Op::Binary(op, a, b), ty)
        };
        let Reciprocal { first, factor, more, last } = Reciprocal::of(by);
        let quotient = match first {
            0 => numbers,
            places => op(BinaryOp::LShr, numbers, places.into()),
        };
        let mut quotient = op(BinaryOp::UMulHi, quotient, factor);
        if more {
            // A factor of 65 bits, half of whose last addend is added in front of the shift.
            let rest = self.out.value(Op::Binary(BinaryOp::Sub, numbers, quotient), ty);
            let one = self.out.int(ty, 1);
            let half = self.out.value(Op::Binary(BinaryOp::LShr, rest, one), ty);
            quotient = self.out.value(Op::Binary(BinaryOp::Add, half, quotient), ty);
        }
        let last = self.out.int(ty, last.into());
        let quotient = self.out.value(Op::Binary(BinaryOp::LShr, quotient, last), ty);
        self.with_signs(quotient, signs)
    }

    /// The dividends without their signs.
    fn magnitude(&mut self, division: &Division) -> Magnitude {
        let numbers = division.dividend;
        if !division.is_signed() {
            return Magnitude { numbers, signs: None };
        }
        let ty = self.out.type_of(numbers);
        let places = self.out.int(ty, 63);
        let signs = self.out.value(Op::Binary(BinaryOp::AShr, numbers, places), ty);
        Magnitude { numbers: self.with_signs(numbers, Some(signs)), signs: Some(signs) }
    }

    /// Negates the numbers whose signs have all bits.
    fn with_signs(&mut self, numbers: Operand, signs: Option<Operand>) -> Operand {
        let Some(signs) = signs else { return numbers };
        let ty = self.out.type_of(numbers);
        let turned = self.out.value(Op::Binary(BinaryOp::Xor, numbers, signs), ty);
        self.out.value(Op::Binary(BinaryOp::Sub, turned, signs), ty)
    }
}

#[cfg(test)]
mod tests {
    use super::Reciprocal;

    fn quotient(number: u64, by: u64) -> u64 {
        let Reciprocal { first, factor, more, last } = Reciprocal::of(by);
        let product = (u128::from(number >> first) * u128::from(factor)) >> 64;
        match more {
            true => (((number - product as u64) >> 1) + product as u64) >> last,
            false => product as u64 >> last,
        }
    }

    #[test]
    fn products_are_quotients() {
        let mut random = 1u64;
        for by in (3..1u64 << 18).filter(|by| !by.is_power_of_two()) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            // Where quotients change.
            let ends = [1, 2, random / by, u64::MAX / by].map(|times| times * by);
            let edges = ends.into_iter().flat_map(|end| [end - 1, end, end.saturating_add(1)]);
            for number in edges.chain([0, random, u64::MAX - 1, u64::MAX]) {
                assert_eq!(quotient(number, by), number / by, "{number} / {by}");
            }
        }
    }
}
