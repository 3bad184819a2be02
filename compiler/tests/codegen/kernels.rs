// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whole kernels against their plain Rust counterparts.

use std::fs;

use crate::harness::{Grid, Kernel, buffer, kernels, module, spirv, targets, value};

/// Compiles `name` of `file` for each target, unoptimised and optimised, and has `check` run it.
fn each(file: &str, name: &str, check: impl Fn(&Kernel)) {
    let source = fs::read_to_string(kernels().join(file)).expect("the kernel's source is there");
    each_of(&source, name, check);
}

fn each_of(source: &str, name: &str, check: impl Fn(&Kernel)) {
    for level in ["-O0", "-O2"] {
        let module = module(&spirv(source, &[level]));
        for target in targets() {
            check(&Kernel::new(&module, name, &target));
        }
    }
}

#[test]
fn saxpy_computes_every_element_and_no_other() {
    each("saxpy.cl", "saxpy", |kernel| {
        let mut x: Vec<f32> = (0..1000).map(|i| i as f32 * 0.5).collect();
        let mut y: Vec<f32> = (0..1000).map(|i| 3.0 - i as f32).collect();
        let mut expected = y.clone();
        // 970 items in groups of 64: the last group is partial; 960 elements are wanted.
        (0..960).for_each(|i| expected[i] += 2.5 * x[i]);
        let args = vec![value(2.5f32), buffer(&mut x), buffer(&mut y), value(960u32)];
        kernel.run(Grid::line(970, 64), args);
        assert_eq!(y, expected);
    });
}

#[test]
fn a_tiled_matrix_product_with_barriers_in_a_loop_is_right() {
    const N: usize = 24;
    each("matmul.cl", "matmul", |kernel| {
        let mut a: Vec<f32> = (0..N * N).map(|i| (i % 7) as f32 - 3.0).collect();
        let mut b: Vec<f32> = (0..N * N).map(|i| (i % 5) as f32 * 0.5).collect();
        let mut expected = vec![0f32; N * N];
        for y in 0..N {
            for x in 0..N {
                expected[y * N + x] = (0..N).map(|k| a[y * N + k] * b[k * N + x]).sum();
            }
        }
        let mut c = vec![f32::NAN; N * N];
        let grid = Grid { offset: [0; 3], global: [N as u64, N as u64, 1], group: [8, 8, 1] };
        let args = vec![buffer(&mut a), buffer(&mut b), buffer(&mut c), value(N as u32)];
        kernel.run(grid, args);
        assert_eq!(c, expected);
    });
}
