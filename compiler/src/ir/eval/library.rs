// SPDX-License-Identifier: MIT OR Apache-2.0
//! Library functions of OpenCL.std, computed in `f64`.
//!
//! For `f32` that leaves one rounding at the end, far below OpenCL's limits. For `f64` the results are
//! as good as the `libm` crate's, within a few units in the last place.

use std::f64::consts::PI;

use super::float::{float_bits, float_value};
use crate::ir::operators::{MathOp, SecondResult};
use crate::ir::types::Float;

/// The bits of both results of a function of numbers of a type. The second is 0 where there is none. A
/// function whose only result is an integer gives it first.
pub fn library(op: MathOp, float: Float, args: &[u64]) -> (u64, u64) {
    let bits = |i: usize| args.get(i).copied().unwrap_or(0);
    if op == MathOp::Nextafter && float == Float::F32 {
        let [a, b] = [0, 1].map(|i| f32::from_bits(bits(i) as u32));
        return (u64::from(libm::nextafterf(a, b).to_bits()), 0);
    }
    let int = if op.takes_int() { bits(args.len().saturating_sub(1)) as u32 as i32 } else { 0 };
    let number = |i: usize| float_value(float, bits(i));
    let (first, second) = call(op, number(0), number(1), int);
    let of_int = |number: f64| u64::from(number as i32 as u32);
    if op.returns_int() {
        return (of_int(second), 0);
    }
    let second = match op.second_result() {
        Some(SecondResult::Int) => of_int(second),
        _ => float_bits(float, second),
    };
    (float_bits(float, first), second)
}

/// Both results of a function; the second is 0 where there is none. `int` is the argument of the
/// functions that take an integer. A function whose only result is an integer gives it second.
fn call(op: MathOp, x: f64, y: f64, int: i32) -> (f64, f64) {
    match op {
        MathOp::Fract => {
            let floor = x.floor();
            let below_one = 1.0 - f64::EPSILON / 2.0;
            let fraction = if x.is_infinite() { 0.0 } else { (x - floor).min(below_one) };
            (if x.is_nan() { x } else { fraction.copysign(x_sign(x, fraction)) }, floor)
        }
        MathOp::Frexp => {
            if x == 0.0 || !x.is_finite() {
                return (x, 0.0);
            }
            let (fraction, exponent) = libm::frexp(x);
            (fraction, f64::from(exponent))
        }
        MathOp::Modf => {
            let whole = x.trunc();
            let fraction = if x.is_infinite() { 0.0 } else { x - whole };
            (fraction.copysign(x), whole)
        }
        MathOp::Sincos => (libm::sin(x), libm::cos(x)),
        MathOp::LgammaR => {
            let (value, sign) = libm::lgamma_r(x);
            (value, f64::from(sign))
        }
        MathOp::Remquo => {
            let (rest, quotient) = libm::remquo(x, y);
            // OpenCL keeps the sign and seven bits of the quotient.
            (rest, f64::from(quotient % 128))
        }
        MathOp::Ilogb => (0.0, f64::from(ilogb(x))),
        _ => (single(op, x, y, int), 0.0),
    }
}

/// Zero keeps its sign, every other fraction is positive.
fn x_sign(x: f64, fraction: f64) -> f64 {
    if fraction == 0.0 { x } else { 1.0 }
}

/// The exponent; OpenCL leaves the results for zero, infinity and NaN to the implementation.
fn ilogb(x: f64) -> i32 {
    if x == 0.0 {
        i32::MIN
    } else if x.is_finite() {
        libm::ilogb(x)
    } else {
        i32::MAX
    }
}

fn single(op: MathOp, x: f64, y: f64, int: i32) -> f64 {
    match op {
        MathOp::Acos => libm::acos(x),
        MathOp::Acosh => libm::acosh(x),
        MathOp::Acospi => libm::acos(x) / PI,
        MathOp::Asin => libm::asin(x),
        MathOp::Asinh => libm::asinh(x),
        MathOp::Asinpi => libm::asin(x) / PI,
        MathOp::Atan => libm::atan(x),
        MathOp::Atan2 => libm::atan2(x, y),
        MathOp::Atanh => libm::atanh(x),
        MathOp::Atanpi => libm::atan(x) / PI,
        MathOp::Atan2pi => libm::atan2(x, y) / PI,
        MathOp::Cbrt => libm::cbrt(x),
        MathOp::Cos => libm::cos(x),
        MathOp::Cosh => libm::cosh(x),
        MathOp::Cospi => cospi(x),
        MathOp::Erf => libm::erf(x),
        MathOp::Erfc => libm::erfc(x),
        MathOp::Exp => libm::exp(x),
        MathOp::Exp2 => libm::exp2(x),
        MathOp::Exp10 => libm::exp10(x),
        MathOp::Expm1 => libm::expm1(x),
        MathOp::Fmod => libm::fmod(x, y),
        MathOp::Hypot => libm::hypot(x, y),
        MathOp::Ldexp => libm::ldexp(x, int),
        MathOp::Lgamma => libm::lgamma(x),
        MathOp::Log => libm::log(x),
        MathOp::Log2 => libm::log2(x),
        MathOp::Log10 => libm::log10(x),
        MathOp::Log1p => libm::log1p(x),
        MathOp::Logb => match x {
            _ if x == 0.0 => f64::NEG_INFINITY,
            _ if x.is_infinite() => f64::INFINITY,
            _ if x.is_nan() => x,
            _ => f64::from(libm::ilogb(x)),
        },
        MathOp::Nextafter => libm::nextafter(x, y),
        MathOp::Pow => libm::pow(x, y),
        MathOp::Pown => libm::pow(x, f64::from(int)),
        MathOp::Powr => powr(x, y),
        MathOp::Remainder => libm::remquo(x, y).0,
        MathOp::Rootn => rootn(x, int),
        MathOp::Rsqrt => 1.0 / x.sqrt(),
        MathOp::Sin => libm::sin(x),
        MathOp::Sinh => libm::sinh(x),
        MathOp::Sinpi => sinpi(x),
        MathOp::Tan => libm::tan(x),
        MathOp::Tanh => libm::tanh(x),
        MathOp::Tanpi => tanpi(x),
        MathOp::Tgamma => libm::tgamma(x),
        // Functions with a second result are in `call`.
        MathOp::Fract
        | MathOp::Frexp
        | MathOp::Ilogb
        | MathOp::LgammaR
        | MathOp::Modf
        | MathOp::Remquo
        | MathOp::Sincos => f64::NAN,
    }
}

/// `sin(pi * x)`, exact at multiples of one half.
fn sinpi(x: f64) -> f64 {
    if !x.is_finite() {
        return f64::NAN;
    }
    let turn = libm::fmod(x.abs(), 2.0);
    let (half, sign) = if turn >= 1.0 { (turn - 1.0, -1.0) } else { (turn, 1.0) };
    let quarter = if half > 0.5 { 1.0 - half } else { half };
    let value = if quarter == 0.5 { 1.0 } else { libm::sin(PI * quarter) };
    (if quarter == 0.0 { 0.0 } else { value * sign }) * 1f64.copysign(x)
}

/// `cos(pi * x)`, exact at multiples of one half.
fn cospi(x: f64) -> f64 {
    if !x.is_finite() {
        return f64::NAN;
    }
    let turn = libm::fmod(x.abs(), 2.0);
    let half = if turn > 1.0 { 2.0 - turn } else { turn };
    if half == 0.5 {
        0.0
    } else if half > 0.5 {
        -libm::cos(PI * (1.0 - half))
    } else {
        libm::cos(PI * half)
    }
}

fn tanpi(x: f64) -> f64 {
    let (sin, cos) = (sinpi(x), cospi(x));
    if sin == 0.0 {
        // Zeros alternate in sign from one whole number to the next.
        return if cos < 0.0 { -sin } else { sin };
    }
    sin / cos
}

/// `pow` for `x >= 0`, with the special cases of `exp2(y * log2(x))`.
fn powr(x: f64, y: f64) -> f64 {
    let undefined = x < 0.0
        || x.is_nan()
        || y.is_nan()
        || (x == 0.0 && y == 0.0)
        || (x.is_infinite() && y == 0.0)
        || (x == 1.0 && y.is_infinite());
    if undefined { f64::NAN } else { libm::pow(x.abs(), y) }
}

fn rootn(x: f64, n: i32) -> f64 {
    if n == 0 || (x < 0.0 && n % 2 == 0) {
        return f64::NAN;
    }
    let root = match n {
        1 => x.abs(),
        2 => x.abs().sqrt(),
        3 => libm::cbrt(x.abs()),
        _ => libm::pow(x.abs(), 1.0 / f64::from(n)),
    };
    // Odd roots keep the sign, of zero too.
    if n % 2 == 0 { root } else { root.copysign(x) }
}
