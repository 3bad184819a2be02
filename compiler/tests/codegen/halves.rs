// SPDX-License-Identifier: MIT OR Apache-2.0
//! Half floats, with instructions for them and without: fused multiply-adds are rounded once, functions and conversions give
//! what the interpreter gives.

use tally_compiler_protocol::TargetCpu;

use crate::diff::{Input, Random, same_at};
use crate::harness::{Grid, widths};
use crate::widen::wide;

/// The processors of the other tests, and each without arithmetic of half floats.
fn processors() -> Vec<(TargetCpu, u32)> {
    let mut all = widths();
    let plain = all.iter().filter(|it| !it.0.features.is_empty()).cloned();
    let plain: Vec<_> = plain.collect();
    let without = |(target, lanes): (TargetCpu, u32)| {
        (TargetCpu { features: String::new(), ..target }, lanes)
    };
    all.extend(plain.into_iter().map(without));
    all
}

const KERNEL: &str = "
    #pragma OPENCL EXTENSION cl_khr_fp16 : enable
    kernel void fused(global half *out, global const half *a, global const half *b,
                      global const half *c) {
      size_t i = get_global_id(0);
      out[i] = fma(a[i], b[i], c[i]);
    }
    kernel void fused4(global half4 *out, global const half4 *a, global const half4 *b,
                       global const half4 *c) {
      size_t i = get_global_id(0);
      out[i] = fma(a[i], b[i], c[i]);
    }";

fn halves(values: &[u16]) -> Input {
    Input::bytes(values.iter().flat_map(|it| it.to_le_bytes()).collect())
}

/// Numbers of any exponent, and sums that lie near the middle between two half floats, where a product's last bits
/// decide.
#[test]
fn products_and_sums_are_rounded_once() {
    let module = wide(KERNEL);
    let mut random = Random::new(7);
    let special =
        [0, 0x8000, 1, 0x8001, 0x3ff, 0x400, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x3c00, 0x3c01];
    let (mut a, mut b, mut c) = (Vec::new(), Vec::new(), Vec::new());
    for x in special {
        for y in special {
            for z in special {
                a.push(x);
                b.push(y);
                c.push(z);
            }
        }
    }
    // 2048 + 2 k, and a product that is 2^-20 less than half the distance to the next number: floats make it the middle.
    for k in 0..1024 {
        a.push(0x3c01 | (k & 1) << 15);
        b.push(0x3bfe);
        c.push(0x6800 + k);
        a.push(0x3c01 | (!k & 1) << 15);
        b.push(0x3bfe);
        c.push(0x6800 + k);
    }
    while a.len() < 16384 {
        let any = |random: &mut Random| match random.below(1 << 16) as u16 {
            // No NaN: its bits may be any.
            nan if nan & 0x7fff > 0x7c00 => nan & 0x83ff,
            number => number,
        };
        let near = |random: &mut Random, exponent: u16| {
            (exponent << 10) | random.below(1 << 10) as u16 | (random.below(2) << 15) as u16
        };
        if a.len() % 2 == 0 {
            a.push(any(&mut random));
            b.push(any(&mut random));
            c.push(any(&mut random));
        } else {
            // The product is up to 2^12 times as small as the sum, or as large.
            let (x, y) = (10 + random.below(8) as u16, 10 + random.below(8) as u16);
            let z = (x + y).saturating_sub(15) + random.below(24) as u16;
            a.push(near(&mut random, x));
            b.push(near(&mut random, y));
            c.push(near(&mut random, z.saturating_sub(12).clamp(1, 30)));
        }
    }
    let len = a.len();
    let inputs = [halves(&vec![0; len]), halves(&a), halves(&b), halves(&c)];
    let grid = Grid::line(len as u64, 64);
    same_at(&processors(), &module, "fused", grid, &inputs, "");
    let grid = Grid::line(len as u64 / 4, 64);
    same_at(&processors(), &module, "fused4", grid, &inputs, "");
}

const FUNCTIONS: &str = "
    #pragma OPENCL EXTENSION cl_khr_fp16 : enable
    kernel void k(global half *out, global const half *a, global const half *b) {
      size_t i = get_global_id(0);
      half x = a[i], y = b[i];
      out += 8 * i;
      out[0] = fmin(x, y); out[1] = fmax(x, y); out[2] = floor(x); out[3] = ceil(x);
      out[4] = trunc(x); out[5] = rint(x); out[6] = round(x); out[7] = sqrt(fabs(x));
    }";

/// All half floats but NaN, whose bits may be any.
fn numbers() -> Vec<u16> {
    (0..=u16::MAX).filter(|bits| bits & 0x7fff <= 0x7c00).collect()
}

#[test]
fn functions_of_all_half_floats() {
    let a = numbers();
    let mut random = Random::new(11);
    // Which zero is less is not said.
    let zeros = |bits: &u16| bits & 0x7fff == 0;
    let others: Vec<u16> = a.iter().copied().filter(|bits| !zeros(bits)).collect();
    let b: Vec<u16> =
        a.iter().map(|_| others[random.below(others.len() as u64) as usize]).collect();
    let inputs = [halves(&vec![0; 8 * a.len()]), halves(&a), halves(&b)];
    let grid = Grid::line(a.len() as u64, 64);
    same_at(&processors(), &wide(FUNCTIONS), "k", grid, &inputs, "");
}

/// All half floats, infinities and NaN among them, as integers.
#[test]
fn integers_of_all_half_floats() {
    let a: Vec<u16> = (0..=u16::MAX).collect();
    let none = || Input::bytes(vec![0; 8 * a.len()]);
    for (small, large) in
        [("char", "int"), ("uchar", "uint"), ("short", "long"), ("ushort", "ulong")]
    {
        let module = wide(&format!(
            "#pragma OPENCL EXTENSION cl_khr_fp16 : enable
             kernel void k(global {small} *p, global {large} *q, global const half *a) {{
               size_t i = get_global_id(0);
               p[i] = convert_{small}_sat(a[i]); q[i] = convert_{large}_sat_rte(a[i]);
             }}"
        ));
        let grid = Grid::line(a.len() as u64, 64);
        let inputs = [none(), none(), halves(&a)];
        same_at(&processors(), &module, "k", grid, &inputs, large);
    }
}

/// Doubles at, and next to, half floats and the middles between them.
#[test]
fn doubles_become_half_floats_in_one_rounding() {
    let module = wide(
        "#pragma OPENCL EXTENSION cl_khr_fp16 : enable
         kernel void k(global half *out, global const double *a) {
           size_t i = get_global_id(0);
           out[i] = a[i];
         }",
    );
    let mut doubles =
        vec![0.0, 1e-300, f64::MIN_POSITIVE, 1e300, f64::INFINITY, 65519.999, 65520.0];
    for bits in 0..0x7c00u16 {
        let size = |bits: u16| {
            let (exponent, mantissa) = (i32::from(bits >> 10), f64::from(bits & 0x3ff));
            match exponent {
                0 => mantissa * 2f64.powi(-24),
                _ => (mantissa + 1024.0) * 2f64.powi(exponent - 25),
            }
        };
        let middle = (size(bits) + size(bits + 1)) / 2.0;
        doubles.extend([size(bits), middle, middle.next_up(), middle.next_down()]);
        // Less than a float can tell from the middle.
        doubles.push(middle * (1.0 + 2f64.powi(-30)));
    }
    doubles.resize(doubles.len().next_multiple_of(64), 1.0);
    let minus: Vec<f64> = doubles.iter().map(|it| -it).collect();
    for doubles in [doubles, minus] {
        let out = Input::bytes(vec![0; 2 * doubles.len()]);
        let from = Input::bytes(doubles.iter().flat_map(|it| it.to_le_bytes()).collect());
        let grid = Grid::line(doubles.len() as u64, 64);
        same_at(&processors(), &module, "k", grid, &[out, from], "");
    }
}
