// SPDX-License-Identifier: MIT OR Apache-2.0
//! References on doubles: the C library's functions, and OpenCL's own ones in terms of them.

use std::f64::consts::{FRAC_1_PI, PI};

// SAFETY: these are the C standard's functions (exp10 is a GNU extension, also in musl) with their
// prototypes. Those that are marked safe read and write nothing but numbers.
unsafe extern "C" {
    pub safe fn acos(x: f64) -> f64;
    pub safe fn acosh(x: f64) -> f64;
    pub safe fn asin(x: f64) -> f64;
    pub safe fn asinh(x: f64) -> f64;
    pub safe fn atan(x: f64) -> f64;
    pub safe fn atan2(y: f64, x: f64) -> f64;
    pub safe fn atanh(x: f64) -> f64;
    pub safe fn cbrt(x: f64) -> f64;
    pub safe fn cos(x: f64) -> f64;
    pub safe fn cosh(x: f64) -> f64;
    pub safe fn erf(x: f64) -> f64;
    pub safe fn erfc(x: f64) -> f64;
    pub safe fn exp(x: f64) -> f64;
    pub safe fn exp2(x: f64) -> f64;
    pub safe fn exp10(x: f64) -> f64;
    pub safe fn expm1(x: f64) -> f64;
    pub safe fn fmod(x: f64, y: f64) -> f64;
    pub safe fn hypot(x: f64, y: f64) -> f64;
    pub safe fn ldexp(x: f64, n: i32) -> f64;
    fn lgamma_r(x: f64, sign: *mut i32) -> f64;
    pub safe fn log(x: f64) -> f64;
    pub safe fn log2(x: f64) -> f64;
    pub safe fn log10(x: f64) -> f64;
    pub safe fn log1p(x: f64) -> f64;
    pub safe fn logb(x: f64) -> f64;
    pub safe fn nextafter(x: f64, y: f64) -> f64;
    pub safe fn nextafterf(x: f32, y: f32) -> f32;
    pub safe fn pow(x: f64, y: f64) -> f64;
    pub safe fn remainder(x: f64, y: f64) -> f64;
    pub safe fn sin(x: f64) -> f64;
    pub safe fn sinh(x: f64) -> f64;
    pub safe fn tan(x: f64) -> f64;
    pub safe fn tanh(x: f64) -> f64;
    pub safe fn tgamma(x: f64) -> f64;
}

/// The logarithm of the gamma function's magnitude, and its sign.
pub fn lgamma(x: f64) -> (f64, i32) {
    let mut sign = 0;
    // SAFETY: `sign` is a valid place for the second result.
    let value = unsafe { lgamma_r(x, &mut sign) };
    (value, sign)
}

/// An angle in units of pi. Rounding pi adds half an ulp to rounding the product.
pub fn in_half_turns(angle: f64) -> f64 {
    // pi = PI + 1.22e-16, so 1/pi is a little less than 1/PI.
    const LOW: f64 = -1.967_867_667_518_248_6e-17;
    // A zero keeps its sign.
    if angle == 0.0 { angle } else { angle.mul_add(FRAC_1_PI, angle * LOW) }
}

/// The angle pi * x for a small x, as two doubles.
fn turn(x: f64) -> (f64, f64) {
    const LOW: f64 = 1.224_646_799_147_353_2e-16;
    let high = x * PI;
    (high, x.mul_add(PI, -high) + x * LOW)
}

/// The number of quarter turns nearest to pi * x, modulo 4, and what is left of x.
fn quarters(x: f64) -> (u32, f64) {
    let x = x % 2.0;
    let count = (2.0 * x).round();
    ((count as i32).rem_euclid(4) as u32, x - 0.5 * count)
}

fn sin_turn(x: f64) -> f64 {
    let (high, low) = turn(x);
    sin(high) + cos(high) * low
}

fn cos_turn(x: f64) -> f64 {
    let (high, low) = turn(x);
    cos(high) - sin(high) * low
}

/// Zeros have the sign of `x`.
pub fn sinpi(x: f64) -> f64 {
    if !x.is_finite() {
        return f64::NAN;
    }
    let (count, rest) = quarters(x);
    let result = match count {
        0 => sin_turn(rest),
        1 => cos_turn(rest),
        2 => -sin_turn(rest),
        _ => -cos_turn(rest),
    };
    if result == 0.0 { 0f64.copysign(x) } else { result }
}

/// Zeros are positive.
pub fn cospi(x: f64) -> f64 {
    if !x.is_finite() {
        return f64::NAN;
    }
    let (count, rest) = quarters(x);
    let result = match count {
        0 => cos_turn(rest),
        1 => -sin_turn(rest),
        2 => -cos_turn(rest),
        _ => sin_turn(rest),
    };
    if result == 0.0 { 0.0 } else { result }
}

/// Zeros are those of `x` at even, of `-x` at odd numbers; infinities are positive at n + 1/2 for
/// even n.
pub fn tanpi(x: f64) -> f64 {
    if !x.is_finite() {
        return f64::NAN;
    }
    match quarters(x) {
        (0, 0.0) => 0f64.copysign(x),
        (2, 0.0) => 0f64.copysign(-x),
        (1, 0.0) => f64::INFINITY,
        (3, 0.0) => f64::NEG_INFINITY,
        (0 | 2, rest) => sin_turn(rest) / cos_turn(rest),
        (_, rest) => -cos_turn(rest) / sin_turn(rest),
    }
}

/// 1 / sqrt(x).
pub fn rsqrt(x: f64) -> f64 {
    1.0 / x.sqrt()
}

/// x^y by its logarithm, for x >= 0 only (OpenCL C 3.0, "Edge Case Behavior").
pub fn powr(x: f64, y: f64) -> f64 {
    let undefined = x < 0.0
        || x.is_nan()
        || y.is_nan()
        || (y == 0.0 && (x == 0.0 || x.is_infinite()))
        || (x == 1.0 && y.is_infinite());
    if undefined { f64::NAN } else { pow(x.abs(), y) }
}

/// x^n.
pub fn pown(x: f64, n: i32) -> f64 {
    pow(x, f64::from(n))
}

/// The real n-th root (OpenCL C 3.0, "Edge Case Behavior").
pub fn rootn(x: f64, n: i32) -> f64 {
    let odd = n % 2 != 0;
    if n == 0 || (x < 0.0 && !odd) {
        return f64::NAN;
    }
    let size = x.abs();
    let exponent = 1.0 / f64::from(n);
    // What the exponent's rounding has taken, to first order.
    let rest = -exponent.mul_add(f64::from(n), -1.0) / f64::from(n);
    let root = pow(size, exponent);
    let normal = size > 0.0 && size.is_finite() && root.is_finite();
    let root = if normal { root + root * (rest * log(size)) } else { root };
    if odd { root.copysign(x) } else { root }
}
