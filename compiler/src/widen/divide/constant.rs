// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers of any 64 bits, divided by constants.
//!
//! LLVM multiplies by a reciprocal of 64 bits, of whose product it needs the upper half, and processors have no such
//! products of vectors: it takes the vectors apart.
//!
//! Numbers that are known to be below 2^50 have exact quotients as doubles. `(a + 1/2) / b - 1/2` is at least `1/2b` away
//! from where its nearest integer changes:
//!
//! ```text
//!   q = round(a * (1 / b) + (1/2b - 1/2))
//! ```
//!
//! `1 / b`, the product and the sum are off by up to 2^-53 of `a / b` each, which is 3/8b together at most; the constant and
//! the half in the sum by less than 2^-53 more, which is below 1/8b if `b` is below 2^50. If it is not, the quotient is 0:
//! `a / b` is below one by more than all that, and -1/2 is rounded to the even number. All this holds where the product is
//! not rounded, too, as with fused instructions. So the rest of `a` is right at once.
//!
//! Of other numbers, a long constant leaves a short quotient, of up to 2^49. That of doubles, rounded to the nearest
//! integer, is the right one or one too large, which the sign of the remainder tells:
//!
//! ```text
//!   q = round(a * (1 / b))     off by three times 2^-53 of a quotient of up to 2^49, so by less than 1/4, and half of one
//!   r = a - q * b              from -3/4 b to 3/4 b; if it is negative, q - 1 and r + b
//! ```
//!
//! Of a remainder by a constant of up to 2^31, only the lower 32 bits are computed: `r` fits these with its sign, for which
//! products of 32 bits are enough. As numbers without a sign, the smaller one of `r` and `r + b` is the remainder: a
//! negative `r` is at least 2^32 - 3/4 b there, more than `r + b`, which is below `b`; and if `r` is not negative, `r + b`
//! is below 2^32, so it is the larger one.
//!
//! The quotients by short constants have more bits than a double's. They are the upper halves of products, by parts of
//! 32 bits.
//!
//! Numbers with a sign are divided without it.

use super::division::{Division, MOST, ROUNDER};
use crate::ir::{BinaryOp, ConvertOp, Flags, Float, Op, Operand, TypeId};
use crate::widen::emit::Widener;

/// Quotients of up to this are estimated as doubles.
const MOST_ESTIMATE: u64 = 1 << 49;

/// Remainders by constants from here on may have no room for a sign.
const TOO_LONG: u64 = 1 << 62;

/// Remainders by constants of up to this are computed in 32 bits.
const MOST_IN_WORDS: u64 = 1 << 31;

/// A constant divisor of 64 bits.
#[derive(Clone, Copy)]
pub(super) enum Constant {
    /// All dividends are below 2^50.
    Exact(u64),
    Short(u64),
    Long(u64),
}

impl Constant {
    /// The divisor of numbers that are at most `most` without their sign. `None` where shifts are as good, and for
    /// constants that are too long, negative ones among them.
    pub(super) fn of(by: u64, most: u64) -> Option<Self> {
        match by {
            0 | TOO_LONG.. => None,
            _ if by.is_power_of_two() => None,
            _ if most < MOST => Some(Self::Exact(by)),
            _ if most / by < MOST_ESTIMATE => Some(Self::Long(by)),
            _ => Some(Self::Short(by)),
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
    /// Quotients of numbers below 2^50.
    pub(super) fn exact_quotient(&mut self, division: &Division, by: u64) -> Operand {
        let rounded = self.exact_rounded(division, by);
        self.without_front(rounded)
    }

    /// Remainders of numbers below 2^50.
    pub(super) fn exact_rest(&mut self, division: &Division, by: u64) -> Operand {
        let numbers = division.dividend;
        let rounded = self.exact_rounded(division, by);
        let rest = self.low_rest(numbers, rounded, by);
        match division.greatest() / by > i32::MAX as u64 {
            // Of the quotient, only the lower bits were multiplied. The constant is below 2^19 then.
            true => self.low_word(rest),
            false => rest,
        }
    }

    /// The quotients of numbers below 2^50, as bits below those of a large double.
    fn exact_rounded(&mut self, division: &Division, by: u64) -> Operand {
        let floats = self.doubles();
        let number = self.float_of(division.dividend, false, floats);
        let inverse = 1.0 / by as f64;
        self.rounded(number, inverse, Some(0.5 * inverse - 0.5))
    }

    /// The rounded products of doubles with a constant, and a constant more, as bits below those of a large double.
    fn rounded(&mut self, numbers: Operand, factor: f64, more: Option<f64>) -> Operand {
        let floats = self.out.type_of(numbers);
        let int = self.out.module.types.int(64);
        let ints = self.out.vector_of(int);
        let rounder = f64::from_bits(ROUNDER.0);
        let factor = self.out.int(floats, factor.to_bits() as i64);
        let product = Op::Binary(BinaryOp::FMul, numbers, factor);
        let mut sum = self.out.def(product, floats, Flags::CONTRACT);
        for addend in more.into_iter().chain([rounder]) {
            let addend = self.out.int(floats, addend.to_bits() as i64);
            sum = self.out.def(Op::Binary(BinaryOp::FAdd, sum, addend), floats, Flags::CONTRACT);
        }
        self.out.value(Op::Convert(ConvertOp::Bitcast, sum), ints)
    }

    /// The integers in the lower bits of a large double.
    fn without_front(&mut self, rounded: Operand) -> Operand {
        let ty = self.out.type_of(rounded);
        let front = self.out.int(ty, ROUNDER.0 as i64);
        self.out.value(Op::Binary(BinaryOp::Sub, rounded, front), ty)
    }

    /// What quotients leave: all of it if they are below 2^31, else the lower 32 bits. Of the quotients, only the lower 32
    /// bits count.
    ///
    /// LLVM makes sums of differences from products with constants. So the constant is negative, and the product has signs:
    /// it is one of 32 bits if the constant is at most 2^31.
    fn low_rest(&mut self, numbers: Operand, quotient: Operand, by: u64) -> Operand {
        let ty = self.out.type_of(numbers);
        let places = self.out.int(ty, 32);
        let quotient = self.out.value(Op::Binary(BinaryOp::Shl, quotient, places), ty);
        let quotient = self.out.value(Op::Binary(BinaryOp::AShr, quotient, places), ty);
        let by = self.out.int(ty, (by as i64).wrapping_neg());
        let product = self.out.value(Op::Binary(BinaryOp::Mul, quotient, by), ty);
        self.out.value(Op::Binary(BinaryOp::Add, numbers, product), ty)
    }

    fn low_word(&mut self, numbers: Operand) -> Operand {
        let ty = self.out.type_of(numbers);
        let mask = self.out.int(ty, u32::MAX.into());
        self.out.value(Op::Binary(BinaryOp::And, numbers, mask), ty)
    }

    fn doubles(&mut self) -> TypeId {
        let float = self.out.module.types.float(Float::F64);
        self.out.vector_of(float)
    }

    /// Quotients or remainders by a long constant.
    pub(super) fn by_estimate(&mut self, division: &Division, by: u64) -> Operand {
        let Magnitude { numbers, signs } = self.magnitude(division);
        let ty = self.out.type_of(numbers);
        let floats = self.doubles();
        // Without an instruction for it, LLVM converts both halves.
        let number = self.out.value(Op::Convert(ConvertOp::UToF, numbers), floats);
        let rounded = self.rounded(number, 1.0 / by as f64, None);
        let is_quotient = matches!(division.op, BinaryOp::UDiv | BinaryOp::SDiv);
        if !is_quotient && by <= MOST_IN_WORDS {
            let rest = self.low_rest(numbers, rounded, by);
            let result = self.least_rest(rest, by);
            return self.with_signs(result, signs);
        }
        let quotient = self.without_front(rounded);
        let by = self.out.int(ty, by as i64);
        let product = self.out.value(Op::Binary(BinaryOp::Mul, quotient, by), ty);
        let rest = self.out.value(Op::Binary(BinaryOp::Sub, numbers, product), ty);
        // All bits where the rest is negative.
        let places = self.out.int(ty, 63);
        let less = self.out.value(Op::Binary(BinaryOp::AShr, rest, places), ty);
        let result = match is_quotient {
            true => Op::Binary(BinaryOp::Add, quotient, less),
            false => {
                let more = self.out.value(Op::Binary(BinaryOp::And, less, by), ty);
                Op::Binary(BinaryOp::Add, rest, more)
            }
        };
        let result = self.out.value(result, ty);
        self.with_signs(result, signs)
    }

    /// The smaller ones of numbers in 32 bits, and of their sums with another one.
    fn least_rest(&mut self, rest: Operand, by: u64) -> Operand {
        let ty = self.out.type_of(rest);
        let int = self.out.module.types.int(32);
        let words = 2 * self.out.lanes;
        let words = self.out.vector(int, words);
        let low = self.out.value(Op::Convert(ConvertOp::Bitcast, rest), words);
        let by = self.out.int(words, by as i64);
        let more = self.out.value(Op::Binary(BinaryOp::Add, low, by), words);
        let least = self.out.value(Op::Binary(BinaryOp::UMin, low, more), words);
        let least = self.out.value(Op::Convert(ConvertOp::Bitcast, least), ty);
        self.low_word(least)
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
        if !division.is_signed() || division.most.is_some() {
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
