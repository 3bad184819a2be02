// SPDX-License-Identifier: MIT OR Apache-2.0
//! Asynchronous copies, at every width.

use crate::harness::{Arg, Grid, Kernel, buffer, clang, module, value, widths};

/// Compiles `name`, unoptimised and optimised, for every width, and runs `check` on it.
fn each(name: &str, check: impl Fn(&Kernel)) {
    for level in ["-O0", "-O2"] {
        let module = module(&clang::compile("async_copy.cl", &[level]));
        for (target, lanes) in widths() {
            check(&Kernel::with_lanes(&module, name, &target, lanes));
        }
    }
}

#[test]
fn what_is_copied_is_there_after_the_wait() {
    // OpenCL C, wait_group_events: "Wait for events that identify the
    // async_work_group_copy operations to complete."
    const N: usize = 24;
    const GROUPS: usize = 3;
    let input: Vec<[f32; 4]> = (0..N * GROUPS).map(|i| [i as f32, 0.5, -(i as f32), 1.0]).collect();
    let mut expected = input.clone();
    for (i, out) in expected.iter_mut().enumerate() {
        let other = input[i / N * N + N - 1 - i % N];
        *out = std::array::from_fn(|c| input[i][c] + other[c]);
    }
    each("there_and_back", |kernel| {
        let (mut out, mut input) = (vec![[f32::NAN; 4]; N * GROUPS], input.clone());
        let args = vec![buffer(&mut out), buffer(&mut input), Arg::Local(16 * N), value(N as i32)];
        kernel.run(Grid::line((N * GROUPS) as u64, N as u32), args);
        assert_eq!(out, expected);
    });
}

#[test]
fn a_stride_counts_on_the_side_of_global_memory() {
    // OpenCL C, async_work_group_strided_copy: "Perform an async gather of num_gentypes gentype
    // elements from src to dst. The src_stride is the stride in elements for each gentype element
    // read from src. The dst_stride is the stride in elements for each gentype element written to
    // dst."
    let sizes = [(50_usize, 3_usize, 16_u32), (7, 1, 32), (33, 5, 10), (3, 2, 8)];
    each("strided", |kernel| {
        for (n, stride, items) in sizes {
            let mut input: Vec<i16> =
                (0..n * stride.max(2) + 2).map(|i| (i * 7 % 61) as i16).collect();
            let mut expected = vec![-1_i16; n * stride];
            for i in 0..if n > 3 { n } else { 0 } {
                let product = input[i].wrapping_mul(input[2 * i + 1]);
                expected[i * stride] = input[i * stride].wrapping_add(product);
            }
            let mut out = vec![-1_i16; n * stride];
            let args = vec![
                buffer(&mut out),
                buffer(&mut input),
                Arg::Local(6 * n),
                value(n as i32),
                value(stride as i32),
            ];
            kernel.run(Grid::line(items.into(), items), args);
            assert_eq!(out, expected, "{n} elements {stride} apart by {items} items");
        }
    });
}
