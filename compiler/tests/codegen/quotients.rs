// SPDX-License-Identifier: MIT OR Apache-2.0
//! Quotients in programs that allow approximations: what is divided by zero and by infinity is the same in vectors
//! and outside of them, and on Intel's GPUs.

use crate::harness::{Grid, Kernel, buffer, clang, module, widths};

const SOURCE: &str = "
kernel void floats(global float *out, global const float *a, global const float *b) {
  size_t i = get_global_id(0);
  out[6 * i] = a[i] / b[i];
  out[6 * i + 1] = 1 / b[i];
  out[6 * i + 2] = 1 / (1 + exp(-b[i]));
  out[6 * i + 3] = native_divide(a[i], b[i]);
  out[6 * i + 4] = native_recip(b[i]);
  out[6 * i + 5] = a[i] / 3;
}
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
kernel void halves(global float *out, global const float *a, global const float *b) {
  size_t i = get_global_id(0);
  out[i] = (half)a[i] / (half)b[i];
}";

/// A program may divide, by what it says itself, only what is not infinite; programs do so all the same.
const OPTIONS: [&str; 3] = ["-O2", "-cl-fast-relaxed-math", "-cl-ext=+all"];

/// All pairs of some numbers; the latter within the limits that OpenCL C gives to approximate quotients.
fn pairs(numbers: &[f32]) -> (Vec<f32>, Vec<f32>) {
    let special = [0.0, f32::INFINITY, -f32::INFINITY];
    let all: Vec<f32> = numbers.iter().chain(&special).copied().collect();
    all.iter().flat_map(|&a| all.iter().map(move |&b| (a, b))).unzip()
}

fn assert_close(got: f32, want: f32, error: f32, what: &str) {
    // Flags say that there is no NaN, and that the sign of zero does not count.
    let right = match want {
        want if want.is_nan() => true,
        want if want.is_infinite() || want == 0.0 => got.abs() == want.abs(),
        want => (got - want).abs() <= error * want.abs(),
    };
    assert!(right, "{what}: {got}, not {want}");
}

#[test]
fn zero_and_infinity_have_exact_reciprocals() {
    let module = module(&clang::compile_text(SOURCE, &OPTIONS));
    let numbers = [1.0, -3.0, 0.7, 90.0, -100.0, 1e-15, 1e15, 2.0];
    let (mut a, mut b) = pairs(&numbers);
    for (target, lanes) in widths() {
        let kernel = Kernel::with_lanes(&module, "floats", &target, lanes);
        let grid = Grid::line(a.len() as u64, 64);
        let mut out = vec![7.0f32; 6 * a.len()];
        let args = vec![buffer(&mut out), buffer(&mut a), buffer(&mut b)];
        kernel.run(grid, args);
        for (i, got) in out.chunks(6).enumerate() {
            let (x, y) = (a[i], b[i]);
            let want = [x / y, 1.0 / y, 1.0 / (1.0 + (-y).exp()), x / y, 1.0 / y, x / 3.0];
            for (n, (&got, want)) in got.iter().zip(want).enumerate() {
                let what = format!("result {n} of {x} and {y}, {lanes} items, {target:?}");
                assert_close(got, want, 1e-6, &what);
            }
        }
        let (mut a, mut b) = pairs(&numbers[..5]);
        let kernel = Kernel::with_lanes(&module, "halves", &target, lanes);
        let grid = Grid::line(a.len() as u64, 64);
        let mut out = vec![7.0f32; a.len()];
        let args = vec![buffer(&mut out), buffer(&mut a), buffer(&mut b)];
        kernel.run(grid, args);
        for (i, &got) in out.iter().enumerate() {
            let what = format!("halves {} and {}, {lanes} items, {target:?}", a[i], b[i]);
            assert_close(got, a[i] / b[i], 2e-3, &what);
        }
    }
}

/// LLVM alone finds that the quotients' remainders are 1, and its selection of instructions has made nothing of what
/// is multiplied with them.
#[test]
fn upper_halves_of_products_with_ones_are_zero_without_optimisation() {
    let text = "kernel void ones(global uint *out, global const uint *in) {
                  size_t i = get_global_id(0), l = get_local_id(0);
                  ulong by = (((l << 55) + 7) & 0xfff) + 1;
                  out[i] = in[i] + mul_hi(in[i], (uint)((ulong)-55 % by));
                }";
    let module = module(&clang::compile_text(text, &["-O0"]));
    let mut numbers: Vec<u32> = (0..64).map(|i| 0xf000_0000 + i).collect();
    for (target, lanes) in widths() {
        let Some(kernel) = Kernel::with_text(&module, "ones", &target, lanes, &|text| text) else {
            continue;
        };
        let mut out = vec![7; numbers.len()];
        let args = vec![buffer(&mut out), buffer(&mut numbers)];
        kernel.run(Grid::line(64, 64), args);
        assert_eq!(out, numbers, "{lanes} items, {target:?}");
    }
}
