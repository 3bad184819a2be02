// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whole kernels against their plain Rust counterparts.

use crate::harness::{Arg, Grid, Kernel, buffer, clang, module, targets, value};

/// Compiles `name` of `file` for each target, unoptimised and optimised, and runs `check` on it.
pub fn each(file: &str, name: &str, check: impl Fn(&Kernel)) {
    for level in ["-O0", "-O2"] {
        let module = module(&clang::compile(file, &[level]));
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

#[test]
fn switches_with_fallthrough_loops_and_jumps_take_the_right_way() {
    each("control.cl", "switches", |kernel| {
        let mut input: Vec<i32> = vec![0, 1, 7, 2, -3, 100, 5, i32::MIN, -1];
        let expected: Vec<i32> = input
            .iter()
            .map(|&x: &i32| match x {
                0 => 10,
                1 | 7 | 2 => x.wrapping_add(5),
                -3 => -1,
                100 => (0..).map(|k| 7 * k).find(|r| *r >= 100 || r % 5 == 3).unwrap_or(0),
                _ => x.wrapping_mul(x),
            })
            .collect();
        let mut out = vec![0i32; input.len()];
        let grid = Grid::line(input.len() as u64, 4);
        kernel.run(grid, vec![buffer(&mut input), buffer(&mut out)]);
        assert_eq!(out, expected);
    });
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
struct Pair {
    a: i32,
    b: f32,
    c: [i8; 3],
    padding: [u8; 5],
    d: f64,
}

#[test]
fn structures_pass_through_calls_by_value_and_keep_their_layout() {
    each("control.cl", "structs", |kernel| {
        let pair = |i: i32| Pair {
            a: i,
            b: i as f32 / 4.0,
            c: [1, 2, 3],
            padding: [0; 5],
            d: f64::from(i),
        };
        let mut pairs: Vec<Pair> = (0..10).map(pair).collect();
        let mut expected = pairs.clone();
        for q in &mut expected {
            for n in 0..5 {
                q.a += n;
                q.b *= 2.0;
                q.c[(n & 1) as usize] += 1;
                q.d -= f64::from(q.a);
            }
            q.a += 1000;
            q.c[2] = 2;
        }
        kernel.run(Grid::line(10, 3), vec![buffer(&mut pairs), value(pair(1000))]);
        pairs.iter_mut().for_each(|pair| pair.padding = [0; 5]);
        assert_eq!(pairs, expected);
    });
}

#[test]
fn items_know_their_place_in_three_dimensions_with_offsets_and_partial_groups() {
    let grid = Grid { offset: [100, 20, 3], global: [5, 7, 3], group: [2, 4, 3] };
    each("control.cl", "places", |kernel| {
        let mut out = vec![u64::MAX; 5 * 7 * 3 * 24];
        kernel.run(grid, vec![buffer(&mut out)]);
        for (linear, place) in out.chunks(24).enumerate() {
            let linear = linear as u64;
            let relative = [linear % 5, linear / 5 % 7, linear / 35];
            let mut expected = Vec::new();
            let (mut local, mut size) = ([0; 3], [0; 3]);
            for d in 0..3 {
                let full = u64::from(grid.group[d]);
                let group = relative[d] / full;
                local[d] = relative[d] % full;
                size[d] = full.min(grid.global[d] - group * full);
                expected.extend([grid.offset[d] + relative[d], local[d], group, size[d], full]);
                expected.extend([grid.global[d].div_ceil(full), grid.offset[d]]);
            }
            let local_linear = (local[2] * size[1] + local[1]) * size[0] + local[0];
            expected.extend([3, local_linear, 5]);
            assert_eq!(place, expected, "item {linear}");
        }
    });
}

#[test]
fn constants_and_globals_with_addresses_in_them_are_read() {
    each("control.cl", "globals", |kernel| {
        let mut out = vec![0i32; 20];
        kernel.run(Grid::line(20, 7), vec![buffer(&mut out)]);
        let table = [3, 1, 4, 1, 5, 9, 2, 6];
        let expected: Vec<i32> = (0..20).map(|i| table[i & 7] + 5).collect();
        assert_eq!(out, expected);
    });
}

#[test]
fn a_scan_in_local_memory_sums_each_group_also_the_partial_one() {
    each("control.cl", "sum_local", |kernel| {
        let mut input: Vec<i32> = (0..77).map(|i| i * i - 50).collect();
        let expected: Vec<i32> = input.chunks(16).map(|group| group.iter().sum()).collect();
        let mut out = vec![0i32; expected.len()];
        let args = vec![buffer(&mut input), buffer(&mut out), Arg::Local(64)];
        kernel.run(Grid::line(77, 16), args);
        assert_eq!(out, expected);
    });
}

#[test]
fn a_function_with_barriers_keeps_each_items_values() {
    each("control.cl", "barrier_in_call", |kernel| {
        let before: Vec<i32> = (0..48).map(|i| i * 3 - 7).collect();
        let mut io = before.clone();
        kernel.run(Grid::line(48, 16), vec![buffer(&mut io)]);
        for (i, &got) in io.iter().enumerate() {
            let group = i / 16 * 16;
            let at = |n: usize| before[group + (i - group + n) % 16];
            let expected = at(3) + 1 + at(1) + 10 * (2 + at(2)) + 100 * (3 + at(3)) + 4;
            assert_eq!(got, expected, "item {i}");
        }
    });
}

#[test]
fn items_of_a_three_dimensional_group_have_frames_of_their_own() {
    let (global, group) = ([5, 7, 3], [2, 4, 3]);
    each("control.cl", "reverse", |kernel| {
        let before: Vec<i32> = (0..105).map(|i| i * i).collect();
        let mut io = before.clone();
        let grid = Grid { offset: [0; 3], global, group: group.map(|n| n as u32) };
        kernel.run(grid, vec![buffer(&mut io), Arg::Local(96)]);
        for (i, &got) in io.iter().enumerate() {
            let place = [i as u64 % 5, i as u64 / 5 % 7, i as u64 / 35];
            // The mirror image within a group that may be partial.
            let mirror = std::array::from_fn(|d| {
                let first = place[d] / group[d] * group[d];
                let size = group[d].min(global[d] - first);
                first + size - 1 - (place[d] - first)
            });
            let [x, y, z]: [u64; 3] = mirror;
            let other = before[((z * 7 + y) * 5 + x) as usize];
            assert_eq!(got, other + 2 * before[i], "item {i}");
        }
    });
}

#[test]
fn divergent_barriers_end_and_every_item_runs_all_its_code() {
    each("control.cl", "divergent", |kernel| {
        let mut out = vec![-1i32; 20];
        kernel.run(Grid::line(20, 10), vec![buffer(&mut out)]);
        for (i, &got) in out.iter().enumerate() {
            let local = i as i32 % 10;
            assert_eq!(got, if local == 3 { -1 } else { local % 5 * 11 }, "item {i}");
        }
    });
}

#[test]
fn a_histogram_by_atomics_counts_everything_once() {
    each("control.cl", "histogram", |kernel| {
        let mut input: Vec<u8> = (0..500u32).map(|i| (i * i % 251) as u8).collect();
        let mut expected = [0u32; 16];
        input.iter().for_each(|&byte| expected[usize::from(byte & 15)] += 1);
        let mut bins = [0u32; 16];
        let args = vec![buffer(&mut input), buffer(&mut bins), Arg::Local(64)];
        kernel.run(Grid::line(500, 64), args);
        assert_eq!(bins, expected);
    });
}

#[test]
fn every_atomic_operation_updates_global_and_local_memory() {
    each("control.cl", "atomics", |kernel| {
        let mut c = [0, 3, 3, 0, -1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let mut u = [5u32, u32::MAX];
        let args = vec![buffer(&mut c), buffer(&mut u), Arg::Local(16)];
        kernel.run(Grid::line(24, 24), args);
        let sum: i32 = (0..24).sum();
        let xor = (0..24).fold(0, |all, i| all ^ i);
        let (or, and) = ((1 << 24) - 1, !0xffff);
        assert_eq!(c, [-sum, -23, 23, or, and, xor, sum, 48, 77, 77, sum, 0, 23, 5]);
        assert_eq!(u, [u32::MAX, 7]);
    });
}

#[test]
fn private_memory_beyond_the_stack_lies_in_scratch_memory() {
    each("control.cl", "big_private", |kernel| {
        assert!(kernel.code.scratch_bytes_fixed >= 80_000);
        let mut out = vec![0u32; 6];
        kernel.run(Grid::line(6, 3), vec![buffer(&mut out), value(11u32)]);
        for (item, &got) in out.iter().enumerate() {
            let mut x = 11 + item as u32;
            let mut next = || {
                x = x.wrapping_mul(1664525).wrapping_add(1013904223);
                x
            };
            let state: Vec<u32> = (0..20000).map(|_| next()).collect();
            let at = |i: u32| state[(x.wrapping_add(i) % 20000) as usize];
            let sum = (0..20000).step_by(97).fold(0u32, |sum, i| sum.wrapping_add(at(i)));
            assert_eq!(got, sum, "item {item}");
        }
    });
}
