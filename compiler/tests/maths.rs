// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernels' maths library (`rt/maths/`) keeps OpenCL's accuracy and special cases.
//!
//! The library is compiled as in the build, but into a shared object, and is called from here: for any
//! x86-64 and (if this processor can run it) with fused multiply-add and with registers of 512 bits.
//! The scalar forms are compared with references of 128 bits (GNU MPFR), and those for vectors with the
//! scalar ones. Run with `--nocapture` to see the largest error of each function, and with
//! `TALLY_MATHS_EFFORT=100` for a hundred times as many numbers.
//!
//! Limits are from the OpenCL C 3.0 specification, "Relative error as ULPs", full profile.
#![cfg(feature = "llvm")]

mod maths {
    pub mod library;
    pub mod mpfr;
    pub mod reference;
    pub mod sample;
}

use std::fmt::Debug;

use maths::library::{Library, all_libraries, libraries};
use maths::mpfr::{self, Exact};
use maths::reference as c;
use maths::sample::{
    Float, Random, effort, error, half_error, halves, samples, special, special_pairs,
};

/// The error limit of floats, whatever OpenCL allows, where only a few roundings lose bits.
const FLOAT_LIMIT: f64 = 3.1;

/// The error limit of halves, which are rounded from floats.
const HALF_LIMIT: f64 = 0.51;

/// Random pairs of arguments for each function of two.
fn pairs() -> u32 {
    20_000 * effort()
}

/// A function: its name, OpenCL's limit, and the range to test closely.
type Row = (&'static str, f64, (f64, f64));

const UNARY: &[Row] = &[
    ("acos", 4.0, (-1.0, 1.0)),
    ("acosh", 4.0, (1.0, 4.0)),
    ("acospi", 5.0, (-1.0, 1.0)),
    ("asin", 4.0, (-1.0, 1.0)),
    ("asinh", 4.0, (-3.0, 3.0)),
    ("asinpi", 5.0, (-1.0, 1.0)),
    ("atan", 5.0, (-5.0, 5.0)),
    ("atanh", 5.0, (-1.0, 1.0)),
    ("atanpi", 5.0, (-5.0, 5.0)),
    ("cbrt", 2.0, (-10.0, 10.0)),
    ("cos", 4.0, (-10.0, 10.0)),
    ("cosh", 4.0, (-90.0, 90.0)),
    ("cospi", 4.0, (-3.0, 3.0)),
    ("erf", 16.0, (-6.0, 6.0)),
    ("erfc", 16.0, (-6.0, 10.0)),
    ("exp", 3.0, (-90.0, 90.0)),
    ("exp2", 3.0, (-150.0, 129.0)),
    ("exp10", 3.0, (-46.0, 39.0)),
    ("expm1", 3.0, (-2.0, 2.0)),
    ("log", 3.0, (0.25, 4.0)),
    ("log2", 3.0, (0.25, 4.0)),
    ("log10", 3.0, (0.25, 4.0)),
    ("log1p", 2.0, (-1.0, 2.0)),
    ("rsqrt", 2.0, (0.0, 10.0)),
    ("sin", 4.0, (-10.0, 10.0)),
    ("sinh", 4.0, (-90.0, 90.0)),
    ("sinpi", 4.0, (-3.0, 3.0)),
    ("tan", 5.0, (-10.0, 10.0)),
    ("tanh", 5.0, (-3.0, 3.0)),
    ("tanpi", 6.0, (-3.0, 3.0)),
    ("tgamma", 16.0, (-30.0, 35.0)),
];

const BINARY: &[Row] = &[
    ("atan2", 6.0, (-3.0, 3.0)),
    ("atan2pi", 6.0, (-3.0, 3.0)),
    ("hypot", 4.0, (-10.0, 10.0)),
    ("pow", 16.0, (-12.0, 12.0)),
    ("powr", 16.0, (0.0, 12.0)),
];

/// It has zeros among negative numbers, around which it is not as accurate.
const LGAMMA: &[Row] = &[("lgamma", 0.0, (0.0, 20.0))];

/// Remainders, of quotients of all sizes.
const EXACT: &[Row] = &[("fmod", 0.0, (-100.0, 100.0)), ("remainder", 0.0, (-100.0, 100.0))];

const WITH_INT: &[Row] = &[("pown", 16.0, (-3.0, 3.0)), ("rootn", 16.0, (-10.0, 10.0))];
const EXACT_WITH_INT: &[Row] = &[("ldexp", 0.0, (-100.0, 100.0))];

/// The `native_` and `half_` forms: what they keep here, and where. "The functions that have the
/// half_ prefix are implemented with a minimum of 10-bits of accuracy, i.e. an ULP value <= 8192 ULP";
/// for angles "x must be in the range -2^16 ... +2^16".
const NATIVE: &[Row] = &[
    ("cos", 128.0, (-65536.0, 65536.0)),
    ("exp", 128.0, (-87.3, 88.7)),
    ("exp2", 128.0, (-125.9, 127.9)),
    ("exp10", 128.0, (-37.9, 38.5)),
    ("log", 64.0, (0.25, 4.0)),
    ("log2", 64.0, (0.25, 4.0)),
    ("log10", 64.0, (0.25, 4.0)),
    ("rsqrt", 5.0, (0.0, 10.0)),
    ("sin", 128.0, (-65536.0, 65536.0)),
    ("tan", 128.0, (-65536.0, 65536.0)),
];

const NATIVE_POWER: Row = ("powr", 2048.0, (0.0, 12.0));

const NATIVE_QUOTIENT: Row = ("divide", 1.0, (-10.0, 10.0));

/// The powers that are products, which round once.
const FEW_FACTORS: Row = ("pown", 0.51, (-3.0, 3.0));

#[rustfmt::skip]
const INTEGERS: &[i32] = &[
    0, 1, -1, 2, -2, 3, -3, 4, 5, -5, 7, 10, -10, 17, 63, 64, 126, 127, 128, -126, -149, -150,
    150, 999, 1000, 1022, 1023, 1024,
    -1022, -1023, -1074, -1075, 2098, -2098, 65535, 16777217, i32::MAX, i32::MIN, i32::MIN + 1,
];

/// The largest error of a function on a format, and where it was.
#[derive(Default)]
struct Worst {
    name: String,
    error: f64,
    at: String,
}

impl Worst {
    fn new<F: Float>(library: &Library, name: &str) -> Self {
        let name = format!("{name} f{} ({})", F::WIDTH, library.name);
        Worst { name, error: 0.0, at: String::new() }
    }

    fn add(&mut self, error: f64, what: impl FnOnce() -> String) {
        if error > self.error {
            self.error = error;
            self.at = what();
        }
    }

    /// Prints the error, and returns a complaint if it exceeds the limit.
    fn judge(self, limit: f64) -> Option<String> {
        let line = format!("{:22} {:6.3} of {limit} ulp, {}", self.name, self.error, self.at);
        println!("{line}");
        (self.error > limit).then_some(line)
    }
}

/// The limit on a format.
fn limit<F: Float>(limit: f64) -> f64 {
    if F::WIDTH == 32 { limit.min(FLOAT_LIMIT) } else { limit }
}

/// Compares a function of all libraries with the exact one.
fn compare<F: Float, A: Copy + Debug, G: Fn(A) -> F>(
    &(name, ulps, _): &Row,
    arguments: impl Iterator<Item = A>,
    function: impl Fn(&'static Library) -> G,
    exact: impl Fn(A) -> Exact,
) -> Vec<String> {
    let made = |library| (function(library), Worst::new::<F>(library, name));
    let mut tried: Vec<_> = libraries().iter().map(made).collect();
    for argument in arguments {
        let want = exact(argument);
        for (function, worst) in &mut tried {
            let got = function(argument);
            worst.add(error(got, want), || format!("{argument:?}: {got:e}, not {:e}", want.high));
        }
    }
    tried.into_iter().filter_map(|(_, worst)| worst.judge(limit::<F>(ulps))).collect()
}

fn unary<F: Float>(row: &Row) -> Vec<String> {
    let exact = mpfr::unary(row.0);
    let function = |library: &'static Library| {
        let function = library.unary::<F>(row.0);
        move |x| function(x)
    };
    compare(row, samples::<F>(row.2), function, |x| exact(x.wide()))
}

fn binary<F: Float>(row: &Row) -> Vec<String> {
    let exact = mpfr::binary(row.0);
    let mut random = Random::new();
    let pairs = (0..pairs()).map(|_| random.pair::<F>(row.2));
    let pairs = special_pairs::<F>().into_iter().chain(pairs);
    let function = |library: &'static Library| {
        let function = library.binary::<F>(row.0);
        move |(x, y)| function(x, y)
    };
    compare(row, pairs, function, |(x, y)| exact(x.wide(), y.wide()))
}

fn with_int<F: Float>(row: &Row) -> Vec<String> {
    let exact = mpfr::with_int(row.0);
    let mut random = Random::new();
    let pairs = (0..pairs()).map(|_| (random.pair::<F>(row.2).0, random.integer()));
    let pairs = special_with_int::<F>().into_iter().chain(pairs);
    let function = |library: &'static Library| {
        let function = library.with_int::<F>(row.0);
        move |(x, n)| function(x, n)
    };
    compare(row, pairs, function, |(x, n)| exact(x.wide(), n))
}

/// All pairs of a special number and an integer.
fn special_with_int<F: Float>() -> Vec<(F, i32)> {
    special::<F>().into_iter().flat_map(|x| INTEGERS.iter().map(move |&n| (x, n))).collect()
}

/// The bits of a float, those of all NaN the same.
fn bits<F: Float>(x: F) -> u64 {
    if x.wide().is_nan() { u64::MAX } else { x.wide().to_bits() }
}

/// Compares all functions on vectors with the scalar ones, by their bits.
fn check_vectors<F: Float + Default>(one: &Library, many: &Library) {
    let mut random = Random::new();
    let differ = |name: &str, arguments: String| format!("{name}({arguments}): {}", many.name);
    for &(name, _, range) in UNARY.iter().chain(LGAMMA) {
        let (one, vector) = (one.unary::<F>(name), many.unary::<F>(name));
        for x in samples::<F>(range) {
            assert_eq!(bits(vector(x)), bits(one(x)), "{}", differ(name, format!("{x:e}")));
        }
    }
    let (both, vector) = (one.two_results::<F, F>("sincos"), many.two_results::<F, F>("sincos"));
    for x in samples::<F>((-10.0, 10.0)) {
        let ((sine, cosine), want) = (vector(x), both(x));
        let (got, want) = ((bits(sine), bits(cosine)), (bits(want.0), bits(want.1)));
        assert_eq!(got, want, "{}", differ("sincos", format!("{x:e}")));
    }
    for &(name, _, range) in BINARY.iter().chain(EXACT) {
        let (one, vector) = (one.binary::<F>(name), many.binary::<F>(name));
        let pairs = (0..pairs()).map(|_| random.pair::<F>(range));
        for (x, y) in special_pairs::<F>().into_iter().chain(pairs) {
            let differ = || differ(name, format!("{x:e}, {y:e}"));
            assert_eq!(bits(vector(x, y)), bits(one(x, y)), "{}", differ());
        }
    }
    for &(name, _, range) in WITH_INT.iter().chain(EXACT_WITH_INT) {
        let (one, vector) = (one.with_int::<F>(name), many.with_int::<F>(name));
        let pairs = (0..pairs()).map(|_| (random.pair::<F>(range).0, random.integer()));
        for (x, n) in special_with_int::<F>().into_iter().chain(pairs) {
            let differ = || differ(name, format!("{x:e}, {n}"));
            assert_eq!(bits(vector(x, n)), bits(one(x, n)), "{}", differ());
        }
    }
}

/// The same for the functions that only floats have.
fn check_native_vectors(one: &Library, many: &Library) {
    let differ = |name: &str, arguments: String| format!("{name}({arguments}): {}", many.name);
    for &(name, _, range) in NATIVE {
        let name = format!("native_{name}");
        let (one, vector) = (one.unary::<f32>(&name), many.unary::<f32>(&name));
        for x in samples::<f32>(range) {
            assert_eq!(bits(vector(x)), bits(one(x)), "{}", differ(&name, format!("{x:e}")));
        }
    }
    let mut random = Random::new();
    for &(name, _, range) in &[NATIVE_POWER, NATIVE_QUOTIENT] {
        let name = format!("native_{name}");
        let (one, vector) = (one.binary::<f32>(&name), many.binary::<f32>(&name));
        let pairs = (0..pairs()).map(|_| random.pair::<f32>(range));
        for (x, y) in special_pairs::<f32>().into_iter().chain(pairs) {
            let differ = || differ(&name, format!("{x:e}, {y:e}"));
            assert_eq!(bits(vector(x, y)), bits(one(x, y)), "{}", differ());
        }
    }
}

#[test]
fn a_number_in_a_vector_has_the_result_that_it_has_alone() {
    for many in all_libraries().filter(|library| library.lanes > 1) {
        let mut alone = libraries().iter();
        let one = alone.find(|one| many.name.starts_with(&format!("{},", one.name)));
        let one = one.expect("each form is there for one number");
        check_vectors::<f32>(one, many);
        check_native_vectors(one, many);
        if many.has::<f64>() {
            check_vectors::<f64>(one, many);
        }
    }
}

/// Fails with all complaints at once.
fn none_of(complaints: impl Iterator<Item = String>) {
    let complaints: Vec<String> = complaints.collect();
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn floats_keep_opencls_accuracy_in_functions_of_one_number() {
    none_of(UNARY.iter().flat_map(unary::<f32>));
}

#[test]
fn doubles_keep_opencls_accuracy_in_functions_of_one_number() {
    none_of(UNARY.iter().flat_map(unary::<f64>));
}

#[test]
fn functions_of_two_numbers_keep_opencls_accuracy() {
    none_of(BINARY.iter().flat_map(|row| [binary::<f32>(row), binary::<f64>(row)].concat()));
}

#[test]
fn powers_and_roots_by_integers_keep_opencls_accuracy() {
    none_of(WITH_INT.iter().flat_map(|row| [with_int::<f32>(row), with_int::<f64>(row)].concat()));
}

/// "Support for denormal values is optional for these functions."
fn is_subnormal(x: f64) -> bool {
    x != 0.0 && x.abs() < f64::from(f32::MIN_POSITIVE)
}

fn native(&(name, ulps, range): &Row) -> Vec<String> {
    let exact = mpfr::unary(name);
    let bounded = matches!(name, "sin" | "cos" | "tan");
    let made = |library: &'static Library| {
        let name = format!("native_{name}");
        (library.unary::<f32>(&name), Worst::new::<f32>(library, &name))
    };
    let mut tried: Vec<_> = libraries().iter().map(made).collect();
    // The arguments closest to zeros and poles.
    let multiples = (1..41_722).map(|n| (f64::from(n) * std::f64::consts::FRAC_PI_2) as f32);
    for x in samples::<f32>(range).chain(multiples) {
        let want = exact(x.into());
        if is_subnormal(x.into()) || is_subnormal(want.high) {
            continue;
        }
        for (function, worst) in &mut tried {
            let got = function(x);
            if bounded && x.abs() > 65536.0 {
                assert_ne!(got.is_nan(), x.is_finite(), "{name}({x:e}): {got:e}");
                assert!(name == "tan" || x.is_infinite() || got.abs() < 1.001, "{name}({x:e})");
                continue;
            }
            worst.add(error(got, want), || format!("{x:e}: {got:e}, not {:e}", want.high));
        }
    }
    tried.into_iter().filter_map(|(_, worst)| worst.judge(ulps)).collect()
}

#[test]
fn native_and_half_functions_keep_more_than_half_functions_have_to() {
    none_of(NATIVE.iter().flat_map(native));
}

#[test]
fn native_powers_keep_more_than_half_powers_have_to() {
    let (name, ulps, range) = NATIVE_POWER;
    let exact = mpfr::binary(name);
    none_of(libraries().iter().filter_map(|library| {
        let function = library.binary::<f32>("native_powr");
        let mut worst = Worst::new::<f32>(library, "native_powr");
        let mut random = Random::new();
        let pairs = (0..pairs()).map(|_| random.pair::<f32>(range));
        for (x, y) in special_pairs().into_iter().chain(pairs) {
            let want = exact(x.into(), y.into());
            if !is_subnormal(x.into()) && !is_subnormal(want.high) {
                let got = function(x, y);
                worst.add(error(got, want), || {
                    format!("{x:e}, {y:e}: {got:e}, not {:e}", want.high)
                });
            }
        }
        worst.judge(ulps)
    }));
}

#[test]
fn native_quotients_are_hardly_less_exact() {
    let (name, ulps, range) = NATIVE_QUOTIENT;
    none_of(libraries().iter().filter_map(|library| {
        let name = format!("native_{name}");
        let function = library.binary::<f32>(&name);
        let mut worst = Worst::new::<f32>(library, &name);
        let mut random = Random::new();
        let pairs = (0..pairs()).map(|_| random.pair::<f32>(range));
        let inverses = samples::<f32>(range).map(|x| (1.0, x));
        for (x, y) in special_pairs::<f32>().into_iter().chain(pairs).chain(inverses) {
            // A double of two floats is rounded at less than 2^-28 of a float's last place.
            let want = f64::from(x) / f64::from(y);
            let is_usual = [x.into(), y.into(), want].iter().all(|&it| !is_subnormal(it));
            // Half of what floats hold: the estimate of a larger quotient may be infinite.
            if is_usual && (want.is_infinite() || want.is_nan() || want.abs() < 2f64.powi(127)) {
                let got = function(x, y);
                worst.add(error(got, want), || format!("{x:e} / {y:e}: {got:e}, not {want:e}"));
            }
        }
        worst.judge(ulps)
    }));
}

#[test]
fn powers_that_are_products_round_once() {
    let (name, ulps, range) = FEW_FACTORS;
    let exact = mpfr::with_int(name);
    none_of(libraries().iter().filter_map(|library| {
        let function = library.with_int::<f32>(name);
        let mut worst = Worst::new::<f32>(library, name);
        for n in -15..=15 {
            for x in samples::<f32>(range).step_by(7).chain(special::<f32>()) {
                let (got, want) = (function(x, n), exact(x.into(), n));
                worst.add(error(got, want), || format!("{x:e}, {n}: {got:e}, not {:e}", want.high));
            }
        }
        worst.judge(ulps)
    }));
}

/// Halves are computed as floats. All of them are tested; of OpenCL's 2 to 4 ulp only the rounding
/// remains.
#[test]
fn all_halves_are_rounded_from_accurate_floats() {
    let complaints = UNARY.iter().flat_map(|&(name, ..)| {
        let exact = mpfr::unary(name);
        let made = |library: &'static Library| {
            let worst =
                Worst { name: format!("{name} f16 ({})", library.name), ..Worst::default() };
            (library.unary::<f32>(name), worst)
        };
        let mut tried: Vec<_> = libraries().iter().map(made).collect();
        for x in halves() {
            let want = exact(x.into());
            for (function, worst) in &mut tried {
                let got = function(x);
                worst.add(half_error(got, want), || format!("{x:e}: {got:e}, not {:e}", want.high));
            }
        }
        tried.into_iter().filter_map(|(_, worst)| worst.judge(HALF_LIMIT)).collect::<Vec<_>>()
    });
    none_of(complaints);
}

fn check_exact<F: Float>(library: &Library) {
    let logb = library.unary::<F>("logb");
    for x in samples::<F>((-10.0, 10.0)) {
        assert_eq!(error(logb(x), c::logb(x.wide())), 0.0, "logb({x:e})");
    }
    let (fmod, remainder) = (library.binary::<F>("fmod"), library.binary::<F>("remainder"));
    let mut random = Random::new();
    let pairs = (0..pairs()).map(|turn| {
        let (x, y) = random.pair::<F>((-100.0, 100.0));
        // Quotients just below, at and just above integers and halves of such.
        let near = F::rounded(y.wide() * f64::from(random.integer()) / 2.0);
        (if turn % 3 == 0 { near } else { x }, y)
    });
    for (x, y) in special_pairs::<F>().into_iter().chain(pairs) {
        let want = c::fmod(x.wide(), y.wide());
        assert_eq!(error(fmod(x, y), want), 0.0, "fmod({x:e}, {y:e})");
        let want = c::remainder(x.wide(), y.wide());
        assert_eq!(error(remainder(x, y), want), 0.0, "remainder({x:e}, {y:e})");
    }
}

#[test]
fn exponents_and_remainders_are_exact() {
    for library in libraries() {
        check_exact::<f32>(library);
        check_exact::<f64>(library);
    }
}

#[test]
fn ldexp_is_rounded_once() {
    let mut random = Random::new();
    for library in libraries() {
        let (narrow, wide) = (library.with_int::<f32>("ldexp"), library.with_int::<f64>("ldexp"));
        for (x, n) in special_with_int::<f32>() {
            // A double holds all bits that matter to a float, so the conversion rounds once.
            let want = c::ldexp(f64::from(x), n.clamp(-500, 500)) as f32;
            assert_eq!(error(narrow(x, n), f64::from(want)), 0.0, "ldexp({x:e}, {n})");
        }
        let pairs = (0..pairs()).map(|_| (random.pair::<f64>((-100.0, 100.0)).0, random.integer()));
        for (x, n) in special_with_int::<f64>().into_iter().chain(pairs) {
            assert_eq!(error(wide(x, n), c::ldexp(x, n)), 0.0, "ldexp({x:e}, {n})");
        }
    }
}

#[test]
fn nextafter_takes_one_step() {
    for library in libraries() {
        let narrow = library.binary::<f32>("nextafter");
        for (x, y) in special_pairs::<f32>() {
            let want = f64::from(c::nextafterf(x, y));
            assert_eq!(error(narrow(x, y), want), 0.0, "nextafter({x:e}, {y:e})");
        }
        let wide = library.binary::<f64>("nextafter");
        for (x, y) in special_pairs::<f64>() {
            let want = c::nextafter(x, y);
            assert_eq!(error(wide(x, y), want), 0.0, "nextafter({x:e}, {y:e})");
        }
    }
}

/// 6381956970095103 * 2^797 comes closest to a multiple of pi/2 of all doubles (Muller, "Elementary
/// Functions", section on range reduction); 61 digits cancel. The C library is not trusted here.
#[test]
fn the_hardest_argument_of_a_cosine_is_reduced() {
    let x = c::ldexp(6_381_956_970_095_103.0, 797);
    for library in libraries() {
        let cosine = library.unary::<f64>("cos")(x);
        assert!(error(cosine, -4.687_165_924_254_628e-19) <= 1.0, "{cosine:e}");
        assert_eq!(library.unary::<f64>("sin")(x), 1.0);
    }
}

fn check_ilogb<F: Float>(library: &Library) {
    let function = library.to_int::<F>("ilogb");
    for x in samples::<F>((-4.0, 4.0)) {
        let want = match x.wide() {
            0.0 => i32::MIN,
            wide if !wide.is_finite() => i32::MAX,
            wide => c::logb(wide) as i32,
        };
        assert_eq!(function(x), want, "ilogb({x:e})");
    }
}

#[test]
fn ilogb_is_the_exponent() {
    for library in libraries() {
        check_ilogb::<f32>(library);
        check_ilogb::<f64>(library);
    }
}

fn check_sincos<F: Float + Default>(library: &Library) -> Vec<String> {
    let both = library.two_results::<F, F>("sincos");
    let (sin, cos) = (mpfr::unary("sin"), mpfr::unary("cos"));
    let mut sines = Worst::new::<F>(library, "sincos");
    let mut cosines = Worst::new::<F>(library, "sincos cosine");
    for x in samples::<F>((-10.0, 10.0)) {
        let (sine, cosine) = both(x);
        sines.add(error(sine, sin(x.wide())), || format!("{x:e}: {sine:e}"));
        cosines.add(error(cosine, cos(x.wide())), || format!("{x:e}: {cosine:e}"));
    }
    [sines, cosines].into_iter().filter_map(|worst| worst.judge(limit::<F>(4.0))).collect()
}

#[test]
fn sincos_is_sin_and_cos() {
    none_of(
        libraries().iter().flat_map(|library| {
            [check_sincos::<f32>(library), check_sincos::<f64>(library)].concat()
        }),
    );
}

/// A result above 1 would make NaN of the roots and arcs that programs compute from it.
#[test]
fn no_sine_or_cosine_is_beyond_one() {
    fn check<F: Float>(library: &Library) {
        let turns = [("sin", 0.0), ("cos", 0.5), ("sinpi", 0.0), ("cospi", 0.5)];
        for (name, quarter) in turns {
            let function = library.unary::<F>(name);
            let unit = if name.ends_with("pi") { 1.0 } else { std::f64::consts::PI };
            for n in -200..200 {
                let top = (f64::from(n) + 0.5 - quarter) * unit;
                for step in -2000_i32..2000 {
                    let x = F::rounded(top + f64::from(step) * 1e-9 * f64::from(step.abs()));
                    let got = function(x).wide();
                    assert!(got.abs() <= 1.0, "{name}({x:e}) of {}: {got:e}", library.name);
                }
            }
        }
    }
    for library in libraries() {
        check::<f32>(library);
        check::<f64>(library);
    }
}

/// Results that need no rounding are exact.
#[test]
fn powers_and_roots_of_small_integers_are_exact() {
    fn check<F: Float>(library: &Library) {
        let is = |name: &str, x: f64, want: f64| {
            let got = library.unary::<F>(name)(F::rounded(x)).wide();
            assert!(got == want, "{name}({x}) of {}: {got:e}, not {want:e}", library.name);
        };
        for (name, want) in [("exp", 1.0), ("exp10", 1.0), ("cos", 1.0), ("cosh", 1.0)] {
            is(name, 0.0, want);
            is(name, -0.0, want);
        }
        let pow = library.binary::<F>("pow");
        for n in 0..100 {
            let whole = f64::from(n);
            is("exp2", whole, whole.exp2());
            is("exp2", -whole, (-whole).exp2());
            is("log2", whole.exp2(), whole);
            is("cbrt", whole * whole * whole, whole);
            is("cospi", whole, if n % 2 == 0 { 1.0 } else { -1.0 });
            is("sinpi", whole, 0.0);
            is("sinpi", whole + 0.5, if n % 2 == 0 { 1.0 } else { -1.0 });
            let (square, cube) =
                (pow(F::rounded(whole), F::rounded(2.0)), pow(F::rounded(-whole), F::rounded(3.0)));
            assert_eq!(square.wide(), whole * whole, "{whole} squared, {}", library.name);
            assert_eq!(cube.wide(), -whole * whole * whole, "cube of -{whole}, {}", library.name);
            let hypot =
                library.binary::<F>("hypot")(F::rounded(3.0 * whole), F::rounded(4.0 * whole));
            assert_eq!(hypot.wide(), 5.0 * whole, "{}", library.name);
        }
        for n in 0..8 {
            is("log10", 10f64.powi(n), n.into());
            is("exp10", n.into(), 10f64.powi(n));
        }
    }
    for library in libraries() {
        check::<f32>(library);
        check::<f64>(library);
    }
}

fn check_parts<F: Float + Default>(library: &Library) {
    let modf = library.two_results::<F, F>("modf");
    let fract = library.two_results::<F, F>("fract");
    let below_one = F::rounded(1.0 - c::ldexp(1.0, -F::DIGITS)).wide();
    for x in samples::<F>((-10.0, 10.0)) {
        let wide = x.wide();
        let none = wide == 0.0 || wide.is_infinite();
        let zero = 0f64.copysign(wide);

        let (rest, whole) = modf(x);
        let want = if none { zero } else { wide.fract().copysign(wide) };
        assert_eq!(error(rest, want), 0.0, "modf({x:e}): {rest:e}");
        assert_eq!(error(whole, wide.trunc()), 0.0, "modf({x:e}): {whole:e}");

        let (rest, floor) = fract(x);
        // The rounded difference, but less than 1.
        let difference = F::rounded(wide - wide.floor()).wide();
        let want = if none { zero } else { difference.clamp(0.0, below_one) };
        assert_eq!(error(rest, want), 0.0, "fract({x:e}): {rest:e}");
        assert_eq!(error(floor, wide.floor()), 0.0, "fract({x:e}): {floor:e}");
    }
}

#[test]
fn modf_and_fract_split_a_number() {
    for library in libraries() {
        check_parts::<f32>(library);
        check_parts::<f64>(library);
    }
}

fn check_frexp<F: Float>(library: &Library) {
    let function = library.two_results::<F, i32>("frexp");
    for x in samples::<F>((-4.0, 4.0)) {
        let (fraction, exponent) = function(x);
        let none = x.wide() == 0.0 || !x.wide().is_finite();
        let size = fraction.wide().abs();
        assert!(none || (0.5..1.0).contains(&size), "frexp({x:e}): {fraction:e}");
        let back = if none { fraction.wide() } else { c::ldexp(fraction.wide(), exponent) };
        assert_eq!(error(x, back), 0.0, "frexp({x:e}): {fraction:e}, {exponent}");
    }
}

#[test]
fn frexp_gives_a_half_to_one_and_a_power_of_two() {
    for library in libraries() {
        check_frexp::<f32>(library);
        check_frexp::<f64>(library);
    }
}

fn check_remquo<F: Float>(library: &Library) {
    let (remquo, remainder) = (library.remquo::<F>(), library.binary::<F>("remainder"));
    let mut random = Random::new();
    let count = pairs();
    let pairs = (0..count).map(|_| random.pair::<F>((-100.0, 100.0)));
    for (x, y) in special_pairs::<F>().into_iter().chain(pairs) {
        let (rest, quotient) = remquo(x, y);
        assert_eq!(error(rest, remainder(x, y).wide()), 0.0, "remquo({x:e}, {y:e}): {rest:e}");
        assert!((-127..=127).contains(&quotient), "remquo({x:e}, {y:e}): {quotient}");
    }
    // For integers of 24 bits, a double determines the nearest quotient.
    for _ in 0..count {
        let (x, y) = (random.integer() >> 8, random.integer() >> 8);
        if x != 0 && y != 0 {
            let ratio = f64::from(x) / f64::from(y);
            let want = (ratio.abs().round_ties_even() as i32 & 0x7f) * ratio.signum() as i32;
            let (_, quotient) = remquo(F::rounded(x.into()), F::rounded(y.into()));
            assert_eq!(quotient, want, "remquo({x}, {y})");
        }
    }
}

#[test]
fn remquo_gives_seven_bits_of_the_nearest_quotient() {
    for library in libraries() {
        check_remquo::<f32>(library);
        check_remquo::<f64>(library);
    }
}

/// OpenCL sets no limit. For negative numbers the result may cancel to any degree; the sign is
/// right all the same.
fn check_lgamma<F: Float>(library: &Library) -> Option<String> {
    let function = library.unary::<F>("lgamma");
    let with_sign = library.two_results::<F, i32>("lgamma_r");
    let mut worst = Worst::new::<F>(library, "lgamma");
    for x in samples::<F>((-30.0, 30.0)) {
        let (got, (want, want_sign)) = (function(x), mpfr::lgamma(x.wide()));
        if x.wide() >= 0.0 {
            worst.add(error(got, want), || format!("{x:e}: {got:e}, not {:e}", want.high));
        }
        let (same, sign) = with_sign(x);
        assert_eq!(error(same, got.wide()), 0.0, "lgamma_r({x:e}): {same:e}");
        let pole = x.wide() <= 0.0 && x.wide().fract() == 0.0;
        assert!(pole || !x.wide().is_finite() || sign == want_sign, "lgamma_r({x:e}): {sign}");
    }
    worst.judge(limit::<F>(4.0))
}

#[test]
fn lgamma_is_accurate_for_positive_numbers_and_knows_the_sign() {
    none_of(libraries().iter().flat_map(|library| {
        [check_lgamma::<f32>(library), check_lgamma::<f64>(library)].into_iter().flatten()
    }));
}
