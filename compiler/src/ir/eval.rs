// SPDX-License-Identifier: MIT OR Apache-2.0
//! The meaning of the operations on scalars, on their bits.
//!
//! The interpreter and the folding of specialization constants share these functions, so there is
//! one definition beside the one that code generation makes. A value is the low bits of a `u64`;
//! the rest is zero.

use super::operators::{BinaryOp, CompareOp, ConvertOp, FloatTest, TernaryOp, UnaryOp};
use super::types::{Float, Scalar};

mod float;
mod fold;
mod library;

pub use float::{float_bits, float_value};
use float::{fused, to_int};
pub use fold::{apply, fold};
pub use library::library;

/// The value of `bits` bits as a signed number.
fn signed(value: u64, bits: u32) -> i64 {
    ((value << (64 - bits)) as i64) >> (64 - bits)
}

/// The least and greatest signed number of `bits` bits.
fn signed_range(bits: u32) -> (i128, i128) {
    (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)
}

/// Applies a unary operation. `None` if it does not exist for the type.
pub fn unary(op: UnaryOp, ty: Scalar, a: u64) -> Option<u64> {
    let mask = ty.mask();
    Some(match (op, ty) {
        (UnaryOp::Not, Scalar::Bool | Scalar::Int(_)) => !a & mask,
        (UnaryOp::Neg, Scalar::Int(_)) => a.wrapping_neg() & mask,
        (UnaryOp::Abs, Scalar::Int(bits)) => signed(a, bits).unsigned_abs() & mask,
        (UnaryOp::Clz, Scalar::Int(bits)) => u64::from(a.leading_zeros() - (64 - bits)),
        (UnaryOp::Ctz, Scalar::Int(bits)) => u64::from(a.trailing_zeros().min(bits)),
        (UnaryOp::PopCount, Scalar::Int(_)) => u64::from(a.count_ones()),
        (UnaryOp::BitReverse, Scalar::Int(bits)) => a.reverse_bits() >> (64 - bits),
        (UnaryOp::FNeg, Scalar::Float(float)) => a ^ (1 << (float.bits() - 1)),
        (UnaryOp::FAbs, Scalar::Float(float)) => a & !(1 << (float.bits() - 1)),
        (_, Scalar::Float(float)) => {
            let x = float_value(float, a);
            let result = match op {
                // The root of an f16 or f32 is the same whether it is rounded once or through f64.
                UnaryOp::Sqrt => x.sqrt(),
                UnaryOp::Floor => x.floor(),
                UnaryOp::Ceil => x.ceil(),
                UnaryOp::Trunc => x.trunc(),
                UnaryOp::Rint => x.round_ties_even(),
                UnaryOp::Round => x.round(),
                _ => return None,
            };
            float_bits(float, result)
        }
        _ => return None,
    })
}

/// Applies a binary operation. `None` if it does not exist for the type.
pub fn binary(op: BinaryOp, ty: Scalar, a: u64, b: u64) -> Option<u64> {
    match ty {
        Scalar::Bool => Some(match op {
            BinaryOp::And => a & b,
            BinaryOp::Or => a | b,
            BinaryOp::Xor => a ^ b,
            _ => return None,
        }),
        Scalar::Int(bits) => binary_int(op, bits, a, b).map(|result| result & ty.mask()),
        Scalar::Float(float) => binary_float(op, float, a, b),
    }
}

fn binary_int(op: BinaryOp, bits: u32, a: u64, b: u64) -> Option<u64> {
    let (sa, sb) = (signed(a, bits), signed(b, bits));
    let (wide_a, wide_b) = (i128::from(sa), i128::from(sb));
    let (unsigned_a, unsigned_b) = (i128::from(a), i128::from(b));
    let amount = (b % u64::from(bits)) as u32;
    let clamp_signed = |n: i128| {
        let (low, high) = signed_range(bits);
        n.clamp(low, high) as u64
    };
    let clamp_unsigned = |n: i128| n.clamp(0, i128::from(u64::MAX >> (64 - bits))) as u64;
    Some(match op {
        BinaryOp::Add => a.wrapping_add(b),
        BinaryOp::Sub => a.wrapping_sub(b),
        BinaryOp::Mul => a.wrapping_mul(b),
        BinaryOp::UDiv => a.checked_div(b).unwrap_or(0),
        BinaryOp::SDiv => sa.checked_div(sb).unwrap_or(0) as u64,
        BinaryOp::URem => a.checked_rem(b).unwrap_or(0),
        BinaryOp::SRem => sa.checked_rem(sb).unwrap_or(0) as u64,
        BinaryOp::SMod => {
            let rest = sa.checked_rem(sb).unwrap_or(0);
            (if rest != 0 && (rest < 0) != (sb < 0) { rest + sb } else { rest }) as u64
        }
        BinaryOp::And => a & b,
        BinaryOp::Or => a | b,
        BinaryOp::Xor => a ^ b,
        BinaryOp::Shl => a << amount,
        BinaryOp::LShr => a >> amount,
        BinaryOp::AShr => (sa >> amount) as u64,
        BinaryOp::Rotl => a << amount | a.checked_shr(bits - amount).unwrap_or(0),
        BinaryOp::SMin => sa.min(sb) as u64,
        BinaryOp::UMin => a.min(b),
        BinaryOp::SMax => sa.max(sb) as u64,
        BinaryOp::UMax => a.max(b),
        BinaryOp::SAddSat => clamp_signed(wide_a + wide_b),
        BinaryOp::UAddSat => clamp_unsigned(unsigned_a + unsigned_b),
        BinaryOp::SSubSat => clamp_signed(wide_a - wide_b),
        BinaryOp::USubSat => clamp_unsigned(unsigned_a - unsigned_b),
        BinaryOp::SMulHi => ((wide_a * wide_b) >> bits) as u64,
        BinaryOp::UMulHi => ((u128::from(a) * u128::from(b)) >> bits) as u64,
        BinaryOp::SHAdd => ((wide_a + wide_b) >> 1) as u64,
        BinaryOp::UHAdd => ((unsigned_a + unsigned_b) >> 1) as u64,
        BinaryOp::SRHAdd => ((wide_a + wide_b + 1) >> 1) as u64,
        BinaryOp::URHAdd => ((unsigned_a + unsigned_b + 1) >> 1) as u64,
        BinaryOp::SAbsDiff => (wide_a - wide_b).unsigned_abs() as u64,
        BinaryOp::UAbsDiff => a.abs_diff(b),
        BinaryOp::PairDot if bits == 32 => {
            let product = |by: u32| i64::from((a >> by) as i16) * i64::from((b >> by) as i16);
            (product(0) + product(16)) as u64
        }
        _ => return None,
    })
}

fn binary_float(op: BinaryOp, float: Float, a: u64, b: u64) -> Option<u64> {
    if op == BinaryOp::CopySign {
        let sign = 1 << (float.bits() - 1);
        return Some(a & !sign | b & sign);
    }
    let (x, y) = (float_value(float, a), float_value(float, b));
    // One operation in f64 and one rounding to f32 or f16 give what one rounding would: f64 has
    // more than twice their digits and two.
    let result = match op {
        BinaryOp::FAdd => x + y,
        BinaryOp::FSub => x - y,
        BinaryOp::FMul => x * y,
        BinaryOp::FDiv | BinaryOp::FDivNear => x / y,
        BinaryOp::FMin => return Some(if x < y || y.is_nan() { a } else { b }),
        BinaryOp::FMax => return Some(if x > y || y.is_nan() { a } else { b }),
        _ => return None,
    };
    Some(float_bits(float, result))
}

/// Applies a ternary operation. `None` if it does not exist for the type.
pub fn ternary(op: TernaryOp, ty: Scalar, a: u64, b: u64, c: u64) -> Option<u64> {
    match (op, ty) {
        (TernaryOp::Fma, Scalar::Float(float)) => Some(fused(float, a, b, c)),
        (TernaryOp::SMadSat, Scalar::Int(bits)) => {
            let [a, b, c] = [a, b, c].map(|x| i128::from(signed(x, bits)));
            let (low, high) = signed_range(bits);
            Some((a * b + c).clamp(low, high) as u64 & ty.mask())
        }
        (TernaryOp::UMadSat, Scalar::Int(_)) => {
            let [a, b, c] = [a, b, c].map(u128::from);
            Some((a * b + c).min(u128::from(ty.mask())) as u64)
        }
        _ => None,
    }
}

/// Applies a comparison. `None` if it does not exist for the type.
pub fn compare(op: CompareOp, ty: Scalar, a: u64, b: u64) -> Option<bool> {
    if let Scalar::Float(float) = ty {
        let (x, y) = (float_value(float, a), float_value(float, b));
        let unordered = x.is_nan() || y.is_nan();
        return Some(match op {
            CompareOp::FOEq => x == y,
            CompareOp::FONe => !unordered && x != y,
            CompareOp::FOLt => x < y,
            CompareOp::FOLe => x <= y,
            CompareOp::FOGt => x > y,
            CompareOp::FOGe => x >= y,
            CompareOp::FUEq => unordered || x == y,
            CompareOp::FUNe => x != y,
            CompareOp::FULt => unordered || x < y,
            CompareOp::FULe => unordered || x <= y,
            CompareOp::FUGt => unordered || x > y,
            CompareOp::FUGe => unordered || x >= y,
            CompareOp::FOrd => !unordered,
            CompareOp::FUno => unordered,
            _ => return None,
        });
    }
    let (sa, sb) = (signed(a, ty.bits()), signed(b, ty.bits()));
    Some(match op {
        CompareOp::Eq => a == b,
        CompareOp::Ne => a != b,
        CompareOp::ULt => a < b,
        CompareOp::ULe => a <= b,
        CompareOp::UGt => a > b,
        CompareOp::UGe => a >= b,
        CompareOp::SLt => sa < sb,
        CompareOp::SLe => sa <= sb,
        CompareOp::SGt => sa > sb,
        CompareOp::SGe => sa >= sb,
        _ => return None,
    })
}

/// Tests a float.
pub fn test(op: FloatTest, float: Float, a: u64) -> bool {
    let fraction_bits = match float {
        Float::F16 => 10,
        Float::F32 => 23,
        Float::F64 => 52,
    };
    let sign = 1u64 << (float.bits() - 1);
    let fraction = a & ((1 << fraction_bits) - 1);
    let exponent = (a & !sign) >> fraction_bits;
    let special = exponent == (sign - 1) >> fraction_bits;
    match op {
        FloatTest::IsNan => special && fraction != 0,
        FloatTest::IsInf => special && fraction == 0,
        FloatTest::IsFinite => !special,
        FloatTest::IsNormal => !special && exponent != 0,
        FloatTest::SignBit => a & sign != 0,
    }
}

/// Applies a conversion of scalars. `None` if it does not exist for the types.
pub fn convert(op: ConvertOp, from: Scalar, to: Scalar, a: u64) -> Option<u64> {
    let result = match (op, from, to) {
        (
            ConvertOp::Trunc
            | ConvertOp::ZExt
            | ConvertOp::Bitcast
            | ConvertOp::PtrToInt
            | ConvertOp::IntToPtr
            | ConvertOp::PtrCast,
            ..,
        ) => a,
        (ConvertOp::SExt, Scalar::Int(bits), _) => signed(a, bits) as u64,
        (ConvertOp::FToS | ConvertOp::FToSSat, Scalar::Float(float), Scalar::Int(bits)) => {
            let (low, high) = signed_range(bits);
            to_int(float_value(float, a), low, high) as u64
        }
        (ConvertOp::FToU | ConvertOp::FToUSat, Scalar::Float(float), Scalar::Int(_)) => {
            to_int(float_value(float, a), 0, i128::from(to.mask())) as u64
        }
        (ConvertOp::SToF, Scalar::Int(bits), Scalar::Float(float)) => {
            float::from_int(float, i128::from(signed(a, bits)))
        }
        (ConvertOp::UToF, Scalar::Int(_), Scalar::Float(float)) => {
            float::from_int(float, i128::from(a))
        }
        (ConvertOp::FToF, Scalar::Float(from), Scalar::Float(to)) => {
            float_bits(to, float_value(from, a))
        }
        _ => return None,
    };
    Some(result & to.mask())
}

#[cfg(test)]
mod tests {
    use super::*;

    const I8: Scalar = Scalar::Int(8);

    /// Every operation on two bytes agrees with Rust's wider arithmetic.
    #[test]
    fn all_pairs_of_bytes() {
        let wrap = |n: i32| u64::from(n as u8);
        for (a, b) in (0..=255u8).flat_map(|a| (0..=255u8).map(move |b| (a, b))) {
            let (sa, sb) = (a as i8, b as i8);
            let (ia, ib) = (i32::from(sa), i32::from(sb));
            let (ua, ub) = (i32::from(a), i32::from(b));
            let cases = [
                (BinaryOp::Add, wrap(ia + ib)),
                (BinaryOp::Sub, wrap(ia - ib)),
                (BinaryOp::Mul, wrap(ia * ib)),
                (BinaryOp::SAddSat, wrap((ia + ib).clamp(-128, 127))),
                (BinaryOp::UAddSat, wrap((ua + ub).min(255))),
                (BinaryOp::SSubSat, wrap((ia - ib).clamp(-128, 127))),
                (BinaryOp::USubSat, wrap((ua - ub).max(0))),
                (BinaryOp::SMulHi, wrap((ia * ib) >> 8)),
                (BinaryOp::UMulHi, wrap((ua * ub) >> 8)),
                (BinaryOp::SHAdd, wrap((ia + ib) >> 1)),
                (BinaryOp::UHAdd, wrap((ua + ub) >> 1)),
                (BinaryOp::SRHAdd, wrap((ia + ib + 1) >> 1)),
                (BinaryOp::URHAdd, wrap((ua + ub + 1) >> 1)),
                (BinaryOp::SAbsDiff, wrap((ia - ib).abs())),
                (BinaryOp::UAbsDiff, wrap((ua - ub).abs())),
                (BinaryOp::Rotl, u64::from(a.rotate_left(u32::from(b)))),
                (BinaryOp::Shl, u64::from(a << (b % 8))),
                (BinaryOp::LShr, u64::from(a >> (b % 8))),
                (BinaryOp::AShr, wrap(ia >> (b % 8))),
                (BinaryOp::SDiv, wrap(i32::from(if b == 0 { 0 } else { sa.wrapping_div(sb) }))),
                (BinaryOp::SRem, wrap(i32::from(if b == 0 { 0 } else { sa.wrapping_rem(sb) }))),
                (BinaryOp::UDiv, u64::from(a.checked_div(b).unwrap_or(0))),
                (BinaryOp::SMin, wrap(ia.min(ib))),
                (BinaryOp::UMax, wrap(ua.max(ub))),
            ];
            for (op, expected) in cases {
                let got = binary(op, I8, u64::from(a), u64::from(b));
                assert_eq!(got, Some(expected), "{} of {a} and {b}", op.name());
            }
            // The sign of a floored remainder is the divisor's, and it differs by whole divisors.
            if let (Some(got), true) =
                (binary(BinaryOp::SMod, I8, u64::from(a), u64::from(b)), b != 0)
            {
                let got = i32::from(got as u8 as i8);
                assert!(got == 0 || (got < 0) == (ib < 0), "{ia} mod {ib}");
                assert!((ia - got) % ib == 0 && got.abs() < ib.abs(), "{ia} mod {ib}");
            }
        }
    }

    /// Every operation on one byte agrees with Rust's.
    #[test]
    fn all_bytes() {
        for a in 0..=255u8 {
            let cases = [
                (UnaryOp::Neg, a.wrapping_neg()),
                (UnaryOp::Not, !a),
                (UnaryOp::Abs, (a as i8).wrapping_abs() as u8),
                (UnaryOp::Clz, a.leading_zeros() as u8),
                (UnaryOp::Ctz, a.trailing_zeros() as u8),
                (UnaryOp::PopCount, a.count_ones() as u8),
                (UnaryOp::BitReverse, a.reverse_bits()),
            ];
            for (op, expected) in cases {
                assert_eq!(unary(op, I8, u64::from(a)), Some(u64::from(expected)));
            }
        }
    }

    /// Every half survives the conversion to `f64` and back, and a number between two halves becomes
    /// the nearer one, or the even one if it is in the middle.
    #[test]
    fn halves_round_to_nearest_even() {
        let to_half = |x: f64| float_bits(Float::F16, x);
        let mut last: Option<(u64, f64)> = None;
        for bits in 0..=0x7c00u64 {
            let value = float_value(Float::F16, bits);
            assert_eq!(to_half(value), bits);
            assert_eq!(to_half(-value), bits | 0x8000);
            if let (Some((below, low)), true) = (last, value.is_finite()) {
                let middle = (low + value) / 2.0;
                let even = if below % 2 == 0 { below } else { bits };
                assert_eq!(to_half(middle), even, "between {low} and {value}");
                assert_eq!(to_half(middle.next_down()), below);
                assert_eq!(to_half(middle.next_up()), bits);
            }
            last = Some((bits, value));
        }
        assert_eq!(to_half(65519.99), 0x7bff);
        assert_eq!(to_half(65520.0), 0x7c00);
        assert_eq!(to_half(f64::NAN) & 0x7fff, 0x7e00);
    }

    /// Conversions to integers clamp, and convert NaN to zero.
    #[test]
    fn conversions_saturate() {
        let to = |op, x: f64, bits| {
            convert(op, Scalar::Float(Float::F64), Scalar::Int(bits), x.to_bits()).unwrap()
        };
        assert_eq!(to(ConvertOp::FToSSat, 1e30, 32), 0x7fff_ffff);
        assert_eq!(to(ConvertOp::FToSSat, -1e30, 32), 0x8000_0000);
        assert_eq!(to(ConvertOp::FToSSat, -1.9, 8), 0xff);
        assert_eq!(to(ConvertOp::FToUSat, -1.0, 16), 0);
        assert_eq!(to(ConvertOp::FToUSat, 1e30, 64), u64::MAX);
        assert_eq!(to(ConvertOp::FToUSat, f64::NAN, 32), 0);
        assert_eq!(to(ConvertOp::FToSSat, f64::NAN, 64), 0);
    }

    /// Minimum and maximum prefer the number to the NaN.
    #[test]
    fn minimum_and_maximum_of_nan() {
        let ty = Scalar::Float(Float::F32);
        let (one, nan) = (u64::from(1f32.to_bits()), u64::from(f32::NAN.to_bits()));
        for op in [BinaryOp::FMin, BinaryOp::FMax] {
            assert_eq!(binary(op, ty, one, nan), Some(one));
            assert_eq!(binary(op, ty, nan, one), Some(one));
        }
    }
}
