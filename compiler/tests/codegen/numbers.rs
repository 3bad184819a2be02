// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arithmetic of all widths, conversions and vectors, compared with Rust's own.

use crate::diff::{Input, interpreted, same};
use crate::harness::clang::{self, Assembly};
use crate::harness::{Grid, buffer, module, value};
use crate::kernels::each;

/// Pairs of interesting integers, cut to each width.
fn pairs() -> Vec<(i64, i64)> {
    let mut values = vec![0, 1, 2, 3, 7, 8, 31, 63, 64, 100, 127, 128, 255, 256, 1000];
    values.extend([0x7fff, 0x8000, 0x7fff_ffff, 0x8000_0000, i64::MAX, i64::MIN]);
    values.extend([0x0123_4567_89ab_cdef, 0x5555_5555_5555_5555]);
    let negative: Vec<i64> = values.iter().map(|v: &i64| v.wrapping_neg()).collect();
    values.extend(negative);
    values.iter().flat_map(|&a| values.iter().map(move |&b| (a, b))).collect()
}

macro_rules! integer_test {
    ($test:ident, $kernel:literal, $t:ty, $u:ty) => {
        #[test]
        fn $test() {
            const BITS: u32 = <$t>::BITS;
            let reference = |x: $t, y: $t| -> [$t; 40] {
                let (ux, uy) = (x as $u, y as $u);
                let shift = (uy as u32) & (BITS - 1);
                let divides = y != 0 && y != -1;
                let clamp = |v: i128| v.clamp(<$t>::MIN.into(), <$t>::MAX.into()) as $t;
                let (wx, wy) = (i128::from(x), i128::from(y));
                let (wux, wuy) = (u128::from(ux), u128::from(uy));
                [
                    x.wrapping_add(y),
                    x.wrapping_sub(y),
                    x.wrapping_mul(y),
                    if divides { x / y } else { 0 },
                    if divides { x % y } else { 0 },
                    ux.checked_div(uy).unwrap_or(0) as $t,
                    ux.checked_rem(uy).unwrap_or(0) as $t,
                    x & y,
                    x | y,
                    x ^ y,
                    x << shift,
                    x >> shift,
                    (ux >> shift) as $t,
                    x.min(y),
                    x.max(y),
                    ux.min(uy) as $t,
                    ux.max(uy) as $t,
                    x.saturating_add(y),
                    x.saturating_sub(y),
                    ux.saturating_add(uy) as $t,
                    ux.saturating_sub(uy) as $t,
                    ((wx + wy) >> 1) as $t,
                    ((wx + wy + 1) >> 1) as $t,
                    ((wux + wuy) >> 1) as $t,
                    ((wux + wuy + 1) >> 1) as $t,
                    ((wx * wy) >> BITS) as $t,
                    ((wux * wuy) >> BITS) as $t,
                    x.unsigned_abs() as $t,
                    x.abs_diff(y) as $t,
                    ux.abs_diff(uy) as $t,
                    x.leading_zeros() as $t,
                    x.trailing_zeros() as $t,
                    x.count_ones() as $t,
                    x.rotate_left(shift),
                    clamp(wx * wy + wx),
                    (wux * wuy + wux).min(<$u>::MAX.into()) as $t,
                    (x < y).into(),
                    (ux < uy).into(),
                    (x == y).into(),
                    !x,
                ]
            };
            each("numbers.cl", $kernel, |kernel| {
                let pairs = pairs();
                let mut a: Vec<$t> = pairs.iter().map(|pair| pair.0 as $t).collect();
                let mut b: Vec<$t> = pairs.iter().map(|pair| pair.1 as $t).collect();
                let mut out = vec![0 as $t; pairs.len() * 40];
                let args = vec![buffer(&mut a), buffer(&mut b), buffer(&mut out)];
                kernel.run(Grid::line(pairs.len() as u64, 64), args);
                for (i, got) in out.chunks(40).enumerate() {
                    assert_eq!(got, reference(a[i], b[i]), "{} and {}", a[i], b[i]);
                }
            });
        }
    };
}

integer_test!(chars_compute_as_rusts_i8, "ops_char", i8, u8);
integer_test!(shorts_compute_as_rusts_i16, "ops_short", i16, u16);
integer_test!(ints_compute_as_rusts_i32, "ops_int", i32, u32);
integer_test!(longs_compute_as_rusts_i64, "ops_long", i64, u64);

#[test]
fn division_by_zero_and_overflow_do_not_trap() {
    each("numbers.cl", "divide_by_zero", |kernel| {
        let mut a = [i32::MIN, 5, 0, i32::MIN];
        let mut b = [-1, 0, 0, 0];
        let mut out = [7i32; 4];
        kernel.run(Grid::line(4, 4), vec![buffer(&mut a), buffer(&mut b), buffer(&mut out)]);
        assert_eq!(out, [1; 4]);
    });
}

/// Interesting floats.
fn floats() -> Vec<f64> {
    let mut values = vec![0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.7, 100.3, 1e4, 65504.0];
    values
        .extend([65519.0, 65520.0, 1e6, 8388607.5, 1e10, 1e30, 1e-3, 6.1e-5, 5.9e-8, 3e-8, 1e-40]);
    values.extend([0.49999997, 0.333251953125, 4503599627370497.5, f64::INFINITY, f64::NAN]);
    let negative: Vec<f64> = values.iter().map(|v: &f64| -v).collect();
    values.extend(negative);
    values
}

fn tests_of(nan: bool, infinite: bool, normal: bool) -> f64 {
    let finite = !nan && !infinite;
    let bit = |set: bool, value: u8| if set { f64::from(value) } else { 0.0 };
    bit(nan, 1) + bit(infinite, 2) + bit(finite, 4) + bit(normal, 8)
}

macro_rules! float_test {
    ($test:ident, $kernel:literal, $t:ty) => {
        #[test]
        fn $test() {
            let reference = |x: $t, y: $t| -> [$t; 20] {
                [
                    x + y,
                    x - y,
                    x * y,
                    x / y,
                    -x,
                    x.abs(),
                    x.abs().sqrt(),
                    x.floor(),
                    x.ceil(),
                    x.trunc(),
                    x.round_ties_even(),
                    x.round(),
                    x.min(y),
                    x.max(y),
                    x.copysign(y),
                    x.mul_add(y, x),
                    if x < y { 1.0 } else { 0.0 },
                    if x == y { 1.0 } else { 0.0 },
                    tests_of(x.is_nan(), x.is_infinite(), x.is_normal()) as $t,
                    if x.is_sign_negative() { 1.0 } else { 0.0 },
                ]
            };
            each("numbers.cl", $kernel, |kernel| {
                let values = floats();
                let pairs = values.iter().flat_map(|&a| values.iter().map(move |&b| (a, b)));
                let (mut a, mut b): (Vec<$t>, Vec<$t>) =
                    pairs.map(|(a, b)| (a as $t, b as $t)).unzip();
                let mut out = vec![0 as $t; a.len() * 20];
                let grid = Grid::line(a.len() as u64, 32);
                let args = vec![buffer(&mut a), buffer(&mut b), buffer(&mut out)];
                kernel.run(grid, args);
                for (i, got) in out.chunks(20).enumerate() {
                    for (k, (&got, &want)) in got.iter().zip(&reference(a[i], b[i])).enumerate() {
                        // fmin and fmax may return either zero.
                        let same = got == want || (got.is_nan() && want.is_nan());
                        let zero = (12..14).contains(&k) || got.is_nan();
                        let signs = zero || got.is_sign_negative() == want.is_sign_negative();
                        assert!(
                            same && signs,
                            "{k}: {:?}, {:?}: {got:?}, not {want:?}",
                            a[i],
                            b[i]
                        );
                    }
                }
            });
        }
    };
}

float_test!(floats_compute_as_rusts_f32, "fops_float", f32);
float_test!(doubles_compute_as_rusts_f64, "fops_double", f64);

/// The value of a half float.
fn half_value(bits: u16) -> f64 {
    let magnitude = match (bits >> 10 & 31, f64::from(bits & 0x3ff)) {
        (31, 0.0) => f64::INFINITY,
        (31, _) => f64::NAN,
        (0, fraction) => fraction * 2f64.powi(-24),
        (exponent, fraction) => (1024.0 + fraction) * 2f64.powi(i32::from(exponent) - 25),
    };
    if bits & 0x8000 == 0 { magnitude } else { -magnitude }
}

/// The half float nearest to a value, ties to even, by search among all half floats.
fn half_bits(value: f64) -> u16 {
    let sign = if value.is_sign_negative() { 0x8000 } else { 0 };
    let value = value.abs();
    if value.is_nan() {
        return 0x7e00;
    }
    if value >= 65520.0 {
        return sign | 0x7c00;
    }
    let (mut low, mut high) = (0u16, 0x7bff);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if half_value(middle) <= value { low = middle } else { high = middle - 1 }
    }
    let below = value - half_value(low);
    let above = if low == 0x7bff { 65536.0 } else { half_value(low + 1) } - value;
    let up = above < below || (above == below && low & 1 == 1);
    sign | (low + u16::from(up))
}

#[test]
fn halves_are_rounded_once() {
    each("numbers.cl", "fops_half", |kernel| {
        let values = floats();
        let pairs = values.iter().flat_map(|&a| values.iter().map(move |&b| (a, b)));
        let (mut a, mut b): (Vec<u16>, Vec<u16>) =
            pairs.map(|(a, b)| (half_bits(a), half_bits(b))).unzip();
        let mut out = vec![0u16; a.len() * 20];
        let grid = Grid::line(a.len() as u64, 32);
        kernel.run(grid, vec![buffer(&mut a), buffer(&mut b), buffer(&mut out)]);
        for (i, got) in out.chunks(20).enumerate() {
            let (x, y) = (half_value(a[i]), half_value(b[i]));
            let normal = x.is_finite() && x.abs() >= 2f64.powi(-14);
            let truth = |test: bool| if test { 1.0 } else { 0.0 };
            let expected = [
                x + y,
                x - y,
                x * y,
                x / y,
                -x,
                x.abs(),
                x.abs().sqrt(),
                x.floor(),
                x.ceil(),
                x.trunc(),
                x.round_ties_even(),
                x.round(),
                x.min(y),
                x.max(y),
                x.copysign(y),
                x * y + x,
                truth(x < y),
                truth(x == y),
                tests_of(x.is_nan(), x.is_infinite(), normal),
                truth(a[i] & 0x8000 != 0),
            ];
            for (k, (&got, want)) in got.iter().zip(expected).enumerate() {
                let (value, want) = (half_value(got), half_value(half_bits(want)));
                let same = value == want || (value.is_nan() && want.is_nan());
                assert!(same, "{k}: {x}, {y}: {value}, not {want}");
            }
        }
    });
}

/// Random bits (the generator is xorshift64*).
fn random(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d)
}

#[test]
fn fused_multiply_adds_are_rounded_once_with_and_without_the_instruction() {
    let mut state = 1;
    let mut triples = Vec::new();
    for round in 0..200_000 {
        // The exponents are close, so that sums cancel and ties occur; at the ends of the range every
        // fourth time; few significant bits every other time.
        let middle = [1023, 1023, 1023, 0, 1020, 2046, 512, 1535][round % 8];
        let mut number = |spread: u64| {
            let bits = random(&mut state);
            let exponent = (middle + bits % spread).saturating_sub(spread / 2).min(2046);
            let fraction = bits >> 12 & if round % 2 == 0 { !0 << 45 } else { !0 };
            f64::from_bits(bits & 1 << 63 | exponent << 52 | fraction)
        };
        let (a, b) = (number(8), number(60));
        let c = if round % 3 == 0 { -(a * b) * (1.0 + f64::EPSILON) } else { number(120) };
        triples.push((a, b, c));
    }
    let special = floats();
    for &a in &special {
        triples.extend(
            special.iter().flat_map(|&b| [(a, b, -a * b), (a, b, b), (b, a, f64::INFINITY)]),
        );
    }
    each("numbers.cl", "fused", |kernel| {
        let mut a: Vec<f64> = triples.iter().map(|t| t.0).collect();
        let mut b: Vec<f64> = triples.iter().map(|t| t.1).collect();
        let mut c: Vec<f64> = triples.iter().map(|t| t.2).collect();
        let (mut d, mut f) = (vec![0f64; a.len()], vec![0f32; a.len()]);
        let args =
            vec![buffer(&mut a), buffer(&mut b), buffer(&mut c), buffer(&mut d), buffer(&mut f)];
        kernel.run(Grid::line(triples.len() as u64, 64), args);
        for (i, &(a, b, c)) in triples.iter().enumerate() {
            let (want, got) = (a.mul_add(b, c), d[i]);
            assert!(
                got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan()),
                "{a:e} {b:e} {c:e}: {got:e}, not {want:e}"
            );
            let (want, got) = ((a as f32).mul_add(b as f32, c as f32), f[i]);
            assert!(
                got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan()),
                "f32 {a:e} {b:e} {c:e}: {got:e}, not {want:e}"
            );
        }
    });
}

#[test]
fn every_half_becomes_its_float_and_doubles_round_to_the_nearest_half() {
    const N: usize = 1 << 16;
    let mut state = 7;
    // Values across the range of halves, many of them near ties.
    let number = |i: usize| {
        let bits = random(&mut state);
        let tie = (half_value(i as u16 & 0x7bff) + half_value((i as u16 & 0x7bff) + 1)) / 2.0;
        match i % 4 {
            0 => tie,
            1 => tie * (1.0 + 1e-12),
            2 => tie * (1.0 - 1e-12),
            _ => f64::from_bits(bits & 1 << 63 | (995 + bits % 50) << 52 | bits >> 12),
        }
    };
    let doubles: Vec<f64> = (0..N).map(number).collect();
    each("numbers.cl", "halves", |kernel| {
        let mut all: Vec<u16> = (0..=u16::MAX).collect();
        let mut f = vec![0f32; N];
        let (mut h1, mut h2) = (vec![0u16; N], vec![0u16; N]);
        let mut d = doubles.clone();
        let args = vec![
            buffer(&mut all),
            buffer(&mut f),
            buffer(&mut d),
            buffer(&mut h1),
            buffer(&mut h2),
        ];
        kernel.run(Grid::line(N as u64, 64), args);
        for i in 0..N {
            let want = half_value(i as u16);
            assert!(
                f64::from(f[i]) == want || (f[i].is_nan() && want.is_nan()),
                "{i:#x}: {}",
                f[i]
            );
            assert_eq!(h1[i], half_bits(doubles[i]), "{:e}", doubles[i]);
            assert_eq!(h2[i], half_bits(f64::from(doubles[i] as f32)), "float {:e}", doubles[i]);
        }
    });
}

#[test]
fn conversions_saturate_and_round_as_they_say() {
    each("numbers.cl", "converts", |kernel| {
        let mut values = floats();
        values.extend([127.4, 127.6, -128.9, 255.5, 32767.9, -32769.0, 65535.9, 2147483647.5]);
        values.extend([4294967295.9, 9.3e18, 1.9e19, -9.3e18, 1.5, 2.5, -0.5, -1.5, 1e300]);
        // Just above a tie of half floats, by less than a float can represent.
        values.extend([1.0 + 2f64.powi(-11) + 2f64.powi(-40), 1.0 + 2f64.powi(-11)]);
        let mut out = vec![0i64; values.len() * 16];
        let grid = Grid::line(values.len() as u64, 8);
        kernel.run(grid, vec![buffer(&mut values.clone()), buffer(&mut out)]);
        for (&x, got) in values.iter().zip(out.chunks(16)) {
            let float = |x: f32| i64::from(x.to_bits() as i32);
            let half = |x: f64| i64::from(half_bits(x) as i16);
            let mut expected = [
                i64::from(x as i8),
                i64::from(x as u8),
                i64::from(x as f32 as i16),
                i64::from(x as u16),
                i64::from(x as i32),
                i64::from(x as u32),
                x as i64,
                x as u64 as i64,
                float(x as f32),
                half(x),
                half(f64::from(x as f32)),
                half_value(half_bits(x)).to_bits() as i64,
                f64::from(x as i32).to_bits() as i64,
                float(x as i64 as f32),
                float(x as u64 as f32),
                i64::from(x.round_ties_even() as i32),
            ];
            let mut got = got.to_vec();
            if x.is_nan() {
                // The bits of a NaN are unspecified.
                (8..12).for_each(|k| (expected[k], got[k]) = (0, 0));
            }
            assert_eq!(got, expected, "{x:?}");
        }
    });
}

#[test]
fn vectors_are_built_shuffled_selected_and_indexed() {
    each("numbers.cl", "vectors", |kernel| {
        for pick in 0..4i32 {
            let mut input: Vec<i32> = (0..40).map(|i| i * 37 % 23 - 9).collect();
            let mut out = vec![0i32; 10 * 32];
            let args = vec![buffer(&mut input), buffer(&mut out), value(pick)];
            kernel.run(Grid::line(10, 4), args);
            for (a, got) in input.chunks(4).zip(out.chunks(32)) {
                assert_eq!(got, vectors(a, pick), "{a:?}, {pick}");
            }
        }
    });
}

/// The results of the kernel `vectors`.
fn vectors(a: &[i32], pick: i32) -> Vec<i32> {
    let b = [a[2] + 1, a[1] + 2, a[0] + 3];
    let mut c = [a[0], a[1], a[2], a[3], a[3], a[2], a[1], a[0]];
    let factor = [b[0], b[0], b[1], b[2]];
    (0..4).for_each(|k| c[2 * k + 1] = c[2 * k].wrapping_mul(factor[k]));
    c[3] = pick;
    let mut d: Vec<i32> = c.iter().chain(c.iter().rev()).copied().collect();
    d.iter_mut().for_each(|d| *d = if *d > 5 { -*d } else { *d });
    let e = b.map(|b| (b * 40).clamp(-128, 127));
    let f: Vec<f32> = a.iter().map(|&a| a as f32 * 0.5).collect();
    let mut out = d;
    out.extend(b);
    out.push(e[0] + 10 * e[1] + 100 * e[2]);
    out.extend(f.iter().map(|&f| f as i32));
    out.extend(a[..2].iter().map(|&a| if a > 3 { -1 } else { 0 }));
    out.extend([a[pick as usize & 3]; 2]);
    let bytes = a[0].to_le_bytes();
    out.push(i32::from(bytes[0]) + i32::from(bytes[3]));
    out.push((f[0] + f[1] * 2.0 + f[2] * 3.0 + f[3] * 4.0) as i32);
    out.push(a[3]);
    out.push((a[0] > pick && a[1] < pick).into());
    out
}

/// LLVM 22 now and then leaves out the truncation of an operand.
#[test]
fn operations_on_wider_integers_take_their_low_bits() {
    let assembly = Assembly {
        declarations: "%some = OpConstant %i64 0x1234567fedcba98
            %mask_bits = OpConstant %i32 3
            %mask = OpConstant %i32 65535",
        parameters: &[("x", "p")],
        body: "%wide = OpIMul %i64 %i %some
            %low = OpBitwiseAnd %i32 %wide %mask
            %other = OpBitwiseAnd %i32 %mask %wide
            %shifted = OpShiftLeftLogical %i32 %wide %mask_bits
            %sum = OpIAdd %i32 %wide %shifted
            %product = OpIMul %i32 %sum %wide
            %difference = OpISub %i32 %product %wide
            %set = OpBitwiseOr %i32 %difference %wide
            %turned = OpBitwiseXor %i32 %wide %set
            %masked = OpIAdd %i32 %low %other
            %both = OpIAdd %i32 %masked %turned
            %at = OpInBoundsPtrAccessChain %p %x %i
            OpStore %at %both Aligned 4",
        ..Assembly::default()
    };
    let module = module(&assembly.module());
    same(&module, "k", Grid::line(40, 20), &[Input::bytes(vec![0; 160])], "");
    let want = |i: u64| {
        let low = i.wrapping_mul(0x0123_4567_fedc_ba98) as u32;
        let product = low.wrapping_add(low << 3).wrapping_mul(low);
        let turned = low ^ (product.wrapping_sub(low) | low);
        (2 * (low & 0xffff)).wrapping_add(turned)
    };
    let run = (Grid::line(40, 20), vec![Input::bytes(vec![0; 160])]);
    let got = interpreted(&module, "k", &run).unwrap();
    let want: Vec<u8> = (0..40).flat_map(|i| want(i).to_le_bytes()).collect();
    assert_eq!(got[0], want);
}

/// Conversions to integers in vectors: numbers around the limits, far ones, infinities and NaN.
#[test]
fn numbers_out_of_range_saturate_in_vectors() {
    let numbers = [
        0.0,
        -0.0,
        0.5,
        -0.5,
        -0.999,
        1.5,
        126.9,
        127.0,
        127.5,
        128.0,
        -127.5,
        -128.0,
        -128.9,
        -129.0,
        254.9,
        255.0,
        255.5,
        256.0,
        32766.5,
        32767.0,
        32768.0,
        -32768.0,
        -32768.9,
        -32769.0,
        65534.5,
        65535.0,
        65536.0,
        1e9,
        -1e9,
        2147483520.0,
        2147483647.0,
        2147483648.0,
        -2147483648.0,
        -2147483904.0,
        3e9,
        4294967040.0,
        4294967295.0,
        4294967296.0,
        9223371487098961920.0,
        9223372036854774784.0,
        9223372036854775808.0,
        -9223372036854775808.0,
        -9223373136366403584.0,
        18446742974197923840.0,
        18446744073709551616.0,
        1e30,
        -1e30,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        -f64::NAN,
        1e-40,
        -1e-40,
    ];
    let n = 64;
    let all = || (0..n).map(|i| numbers[i * 7 % numbers.len()]);
    let bytes = Input::bytes;
    let floats = bytes(all().flat_map(|x| (x as f32).to_le_bytes()).collect());
    let doubles = bytes(all().flat_map(f64::to_le_bytes).collect());
    for from in ["float", "double"] {
        for to in ["char", "uchar", "short", "ushort", "int", "uint", "long", "ulong"] {
            let module = module(&clang::compile_text(
                &format!(
                    "kernel void k(global {to} *to, global const {from} *from) {{
                       int i = get_global_id(0);
                       to[i] = convert_{to}_sat(from[i]);
                     }}"
                ),
                &["-O1"],
            ));
            let input = if from == "float" { &floats } else { &doubles };
            let inputs = [bytes(vec![0; 8 * n]), input.clone()];
            same(&module, "k", Grid::line(n as u64, 32), &inputs, &format!("{from} to {to}"));
        }
    }
}
