// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers to test, and the errors of results.

use std::f32::consts as f32_consts;
use std::f64::consts::{FRAC_PI_2, PI};
use std::fmt::{Debug, LowerExp};

use super::mpfr::Exact;
use super::reference::ldexp;

/// The properties of a format.
pub trait Float: Copy + Debug + LowerExp + 'static {
    /// The width in bits.
    const WIDTH: u32;
    /// Digits of the significand.
    const DIGITS: i32;
    /// The exponent of the number that would follow the largest.
    const TOP_EXPONENT: i32;
    /// Numbers around which functions have special cases, without negatives.
    const SPECIAL: &[Self];

    /// The number nearest to a double.
    fn rounded(x: f64) -> Self;
    /// The number as a double.
    fn wide(self) -> f64;
    /// The number with the bits of a hash.
    fn any(hash: u64) -> Self;
}

impl Float for f32 {
    const WIDTH: u32 = 32;
    const DIGITS: i32 = 24;
    const TOP_EXPONENT: i32 = 128;
    #[rustfmt::skip]
    const SPECIAL: &[f32] = &[
        0.0, 1e-45, 3e-45, 1e-39, 1.1754942e-38, f32::MIN_POSITIVE, 1e-30, 1e-10, 2.4e-4, 0.1, 0.25,
        0.49999997, 0.5, 0.75, 0.99999994, 1.0, 1.0000001, 1.5, f32_consts::FRAC_PI_2, 2.0, 2.5, 3.0, f32_consts::PI,
        4.0, 5.0, 7.0, 88.72284, 127.0, 128.0, 1e10, 8388607.5, 16777215.0, 16777216.0, 1e30,
        f32::MAX, f32::INFINITY,
    ];

    fn rounded(x: f64) -> f32 {
        x as f32
    }

    fn wide(self) -> f64 {
        f64::from(self)
    }

    fn any(hash: u64) -> f32 {
        f32::from_bits((hash >> 32) as u32)
    }
}

impl Float for f64 {
    const WIDTH: u32 = 64;
    const DIGITS: i32 = 53;
    const TOP_EXPONENT: i32 = 1024;
    #[rustfmt::skip]
    const SPECIAL: &[f64] = &[
        0.0, 5e-324, 1e-323, 1e-310, f64::MIN_POSITIVE, 1e-300, 1e-160, 1e-30, 1e-17, 1e-9, 1e-4, 0.1,
        0.25, 0.43, 0.5, 0.75, 0.9999999999999999, 1.0, 1.0000000000000002, 1.25,
        1.5, FRAC_PI_2, 2.0, 2.5, 3.0, PI, 4.0, 5.0, 7.0, 28.0, 171.0, 709.78,
        745.1, 1023.0, 1024.0, 1048575.5, 1e10, 4503599627370495.5, 9007199254740991.0,
        9007199254740992.0, 1e22, 1e100,
        1e300, f64::MAX, f64::INFINITY,
    ];

    fn rounded(x: f64) -> f64 {
        x
    }

    fn wide(self) -> f64 {
        self
    }

    fn any(hash: u64) -> f64 {
        f64::from_bits(hash)
    }
}

/// The special numbers of a format: both signs, and NaN.
pub fn special<F: Float>() -> Vec<F> {
    let both = F::SPECIAL.iter().flat_map(|x| [*x, F::rounded(-x.wide())]);
    both.chain([F::rounded(f64::NAN)]).collect()
}

/// All pairs of special numbers.
pub fn special_pairs<F: Float>() -> Vec<(F, F)> {
    let all = special::<F>();
    all.iter().flat_map(|&x| all.iter().map(move |&y| (x, y))).collect()
}

/// Factor for the number of tested numbers: `TALLY_MATHS_EFFORT`, for longer runs by hand.
pub fn effort() -> u32 {
    let asked = std::env::var("TALLY_MATHS_EFFORT").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(1).clamp(1, 100_000)
}

/// The special numbers, numbers of every size and sign, and evenly spaced ones of a range.
pub fn samples<F: Float>((from, to): (f64, f64)) -> impl Iterator<Item = F> {
    let count = 10_000 * effort();
    // The bits of successive numbers are equally far apart.
    let step = (u64::MAX / u64::from(count)) as usize;
    let all = (0..=u64::MAX).step_by(step).map(F::any);
    let spaced = (0..count)
        .map(move |i| F::rounded(from + (to - from) * (f64::from(i) + 0.37) / f64::from(count)));
    special::<F>().into_iter().chain(all).chain(spaced)
}

/// All half floats that are finite, of both signs, and the infinities and NaN.
pub fn halves() -> impl Iterator<Item = f32> {
    let sizes = (0..31u32).flat_map(|exponent| {
        (0..1024u32).map(move |fraction| {
            let whole = if exponent == 0 { 0 } else { 1024 };
            ((whole + fraction) as f32) * ((exponent.max(1) as i32 - 25) as f32).exp2()
        })
    });
    sizes.chain([f32::INFINITY]).flat_map(|x| [x, -x]).chain([f32::NAN])
}

/// The difference between a float, rounded to a half, and `want`, in units of a half's last place, like
/// [`error`].
pub fn half_error(got: f32, want: Exact) -> f64 {
    let unit = |x: f64| {
        let exponent = ((x.to_bits() >> 52) & 0x7ff) as i32 - 1023;
        ldexp(1.0, exponent.max(-14) - 10)
    };
    let beyond = 65536.0;
    let wide = f64::from(got);
    let rounded = if wide.is_finite() {
        let rounded = (wide / unit(wide)).round_ties_even() * unit(wide);
        rounded.clamp(-beyond, beyond).copysign(wide)
    } else {
        wide.clamp(-beyond, beyond)
    };
    let want = want.high.clamp(-beyond, beyond);
    if rounded.is_nan() && want.is_nan() {
        return 0.0;
    }
    if rounded.is_nan() || want.is_nan() || (rounded == 0.0 && rounded.signum() != want.signum()) {
        return f64::INFINITY;
    }
    (rounded - want).abs() / unit(want)
}

/// The difference in units of the last place that `want` has in the format of `got`. Infinity
/// counts as the number after the largest. The difference is infinite if only one is NaN, or if
/// `got` is a zero of the wrong sign.
pub fn error<F: Float>(got: F, want: impl Into<Exact>) -> f64 {
    let Exact { high: want, low } = want.into();
    let got = got.wide();
    if got.is_nan() && want.is_nan() {
        return 0.0;
    }
    if got.is_nan() || want.is_nan() || (got == 0.0 && got.signum() != want.signum()) {
        return f64::INFINITY;
    }
    // Near the top, the number after the largest does not fit, so both are scaled down.
    const DOWN: i32 = 128;
    let top = F::TOP_EXPONENT - DOWN;
    let (got, want, low) = if got.abs().max(want.abs()) > ldexp(1.0, F::TOP_EXPONENT - 64) {
        let most = ldexp(1.0, top);
        let lowered = |x: f64| ldexp(x, -DOWN).clamp(-most, most);
        let low = if ldexp(want, -DOWN).abs() < most { ldexp(low, -DOWN) } else { 0.0 };
        (lowered(got), lowered(want), low)
    } else {
        (got, want, low)
    };
    // The exponent of a significand below 1; subnormal numbers have that of the least normal one.
    let exponent = ((want.to_bits() >> 52) & 0x7ff) as i32 - 1022;
    let unit = exponent.max(3 - F::TOP_EXPONENT) - F::DIGITS;
    ldexp((got - want) - low, -unit).abs()
}

/// Numbers that are the same in every run (Marsaglia, "Xorshift RNGs", 2003).
pub struct Random(u64);

impl Random {
    pub fn new() -> Self {
        Random(0x9e37_79b9_7f4a_7c15)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below a limit.
    pub fn below(&mut self, limit: u32) -> u32 {
        ((self.next() >> 32) % u64::from(limit)) as u32
    }

    fn within(&mut self, (from, to): (f64, f64)) -> f64 {
        from + (to - from) * ((self.next() >> 11) as f64 / (1u64 << 53) as f64)
    }

    /// An integer of any size.
    pub fn integer(&mut self) -> i32 {
        let shift = self.below(32);
        (self.next() >> 32) as i32 >> shift
    }

    /// Two numbers of any bits, or of a range.
    pub fn pair<F: Float>(&mut self, range: (f64, f64)) -> (F, F) {
        if self.below(2) == 0 {
            return (F::rounded(self.within(range)), F::rounded(self.within(range)));
        }
        (F::any(self.next()), F::any(self.next()))
    }
}
