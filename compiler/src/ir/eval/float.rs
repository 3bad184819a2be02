// SPDX-License-Identifier: MIT OR Apache-2.0
//! Floats as bits: conversions between formats and the fused multiply-add.

use tally_compiler_protocol::half_value;

use crate::ir::Float;

/// Decodes a float. Every `f16` and `f32` is an `f64` too.
pub fn float_value(float: Float, bits: u64) -> f64 {
    match float {
        Float::F16 => half_value(bits as u16),
        Float::F32 => f64::from(f32::from_bits(bits as u32)),
        Float::F64 => f64::from_bits(bits),
    }
}

/// The bits of a number rounded to a format, to nearest with ties to even.
pub fn float_bits(float: Float, value: f64) -> u64 {
    match float {
        Float::F16 => u64::from(half_bits(value)),
        Float::F32 => u64::from((value as f32).to_bits()),
        Float::F64 => value.to_bits(),
    }
}

fn half_bits(value: f64) -> u16 {
    let sign = if value.is_sign_negative() { 0x8000 } else { 0 };
    let magnitude = value.abs();
    if magnitude.is_nan() {
        return sign | 0x7e00;
    }
    // 65520 lies half-way between the largest number and the next one if there were more exponents.
    if magnitude >= 65520.0 {
        return sign | 0x7c00;
    }
    // The unit in the last place, at least that of subnormal numbers. Scaling by it is exact, and a
    // fraction that rounds up to 2048 correctly carries into the exponent.
    let exponent = ((magnitude.to_bits() >> 52) as i32 - 1023).max(-14);
    let steps = (magnitude * 2f64.powi(10 - exponent)).round_ties_even() as u16;
    let biased = (exponent + 14) as u16;
    sign | ((biased << 10) + steps)
}

/// A number truncated towards zero and clamped to a range; 0 for NaN.
pub fn to_int(value: f64, low: i128, high: i128) -> i128 {
    // The conversion itself saturates and converts NaN to 0.
    (value as i128).clamp(low, high)
}

/// An integer of at most 65 bits rounded to a format.
pub fn from_int(float: Float, value: i128) -> u64 {
    match float {
        // Rounding to f64 first could round twice.
        Float::F32 => u64::from((value as f32).to_bits()),
        Float::F64 => (value as f64).to_bits(),
        // Above 2^53 every integer is infinite as a half.
        Float::F16 => float_bits(float, value as f64),
    }
}

/// `a * b + c` rounded once.
pub fn fused(float: Float, a: u64, b: u64, c: u64) -> u64 {
    match float {
        Float::F32 => {
            let [a, b, c] = [a, b, c].map(|x| f32::from_bits(x as u32));
            u64::from(a.mul_add(b, c).to_bits())
        }
        _ => {
            let [a, b, c] = [a, b, c].map(|x| float_value(float, x));
            float_bits(float, a.mul_add(b, c))
        }
    }
}
