// SPDX-License-Identifier: MIT OR Apache-2.0
//! Indices of 32 bits that are made of ids and arguments: they have no test of their own, and groups in which they wrap
//! around run one item at a time.

use tally_compiler::widen::widen;

use crate::diff::{Input, Run, same_in_all};
use crate::harness::{Grid, Kernel, buffer, clang, module, targets, value};
use crate::widen::{int, ints, wide};

/// How many conditions a kernel has, and whether its widened form has branches.
fn conditions(index: &str) -> (usize, bool) {
    conditions_at("-O2", index)
}

fn conditions_at(level: &str, index: &str) -> (usize, bool) {
    let module = module(&clang::compile_text(
        &format!(
            "kernel void k(global int *out, int n, long m) {{
               int x = get_global_id(0), y = get_global_id(1), lx = get_local_id(0);
               int gy = get_group_id(1), ny = get_local_size(1);
               out[{index}] = n;
             }}"
        ),
        &[level, "-w"],
    ));
    let widened = widen(&module, &module.kernels[0], 16).expect("a plain kernel");
    let text = widened.module.function_text(widened.function).to_string();
    (widened.promises.conditions.len(), text.contains("branch %"))
}

#[test]
fn indices_of_ids_and_arguments_are_promised() {
    let plain = ["y * n + x", "y * n + x + 1", "(gy * ny + 3) * n + x - n", "(y << 4) + x"];
    let scaled = ["(y * n + x) * 3", "(y * n + x) * 4", "5 * (x - n) * 7", "x << 10"];
    // clang adds what is below a power of two as bits.
    let bits = ["(2 * y + 1) * n + x", "(4 * (y + gy) + 3) * n + x", "((y << 9) + 511) * n + x"];
    for index in plain.into_iter().chain(scaled).chain(bits) {
        let (count, tests) = conditions(index);
        assert!(count > 0 && !tests, "{index}");
    }
    let merged = "({ int i = y * n + x; if (m & 1) i += n; i; })";
    assert!(conditions_at("-O0", merged).0 > 0, "one of two");
    let without_sign = [
        "(uint)(y * n + x)",
        "(uint)y * n + x + 7u",
        "min((uint)y * n, (uint)n) + x",
        "(ny + 1u) * n + x",
    ];
    for index in without_sign {
        let (count, tests) = conditions(index);
        assert!(count > 0 && !tests, "{index}");
    }
    // An id less a constant has a sign, or has wrapped around.
    assert!(conditions_at("-O0", "(uint)x - 2").0 > 0);
    assert_eq!(conditions_at("-O0", "x - 2").0, 0);
    // What needs none.
    for index in
        ["x + 1", "lx + 3", "lx * 6", "(uint)x + 1", "(uint)x * 16 + 3", "(uint)lx * 24 + 8"]
    {
        assert_eq!(conditions(index), (0, false), "{index}");
    }
    // What is computed otherwise.
    let (count, tests) = conditions("y / n * 4096 + x + out[0]");
    assert!(count == 0 && tests);
    // A hash may wrap around in any group.
    for index in
        ["(ulong)((uint)x * 40503u + (uint)n) * 77 >> 40", "((ulong)(uint)(x + n) << 3) % 64"]
    {
        assert_eq!(conditions(index).0, 0, "{index}");
    }
}

/// Indices without a sign: they run below 0 where no item accesses them, or wrap around in all items.
#[test]
fn indices_have_no_sign() {
    let kernels = [
        "if (x >= m) out[i] = in[x - m];",
        "if (x >= m && y) out[i] = in[(y - 1) * w + x - m] - in[y * w + x];",
        "out[i] = in[x + far] + in[y * w + x + far];",
        "out[i] = in[min(y + 1, h - 1) * w + min(x + 1u, w - 1)] - in[y * w + max(x, 1u) - 1];",
        "int s = 0; for (uint k = 0; k < m; k++) s = s * 3 + in[(y * w + x) * 2 + k]; out[i] = s;",
        "int s = 0; for (uint k = 0; k < 8; k++) s = s * 3 + in[x * 8 + k + y]; out[i] = s;",
        "out[i] = in[(x << 4 | y & 7)] + in[x * 6 + 5];",
        "if (x >= 2) out[i] = in[x - 2] + in[x * 3 - 6];",
        "if (x >= 3) out[i] = in[max(y - 5, 1u) + x + 2];",
        // Bits that are added, and bits that are set already in the first row.
        "out[i] = in[(2 * y + 1) * m + x] - in[(4 * y + 3) * m + x];",
        "if (x >= m) out[i] = in[(y - 1 | 1) * m + x] + in[(2 * y - 2 | 3) * m + x];",
        // Masks that clear bits which the product has.
        "out[i] = in[x * 8 & 0xfffffff0u] + in[(x * 12 + 4) & 0xfffffff8u];",
        "out[i] = (int)((ulong)(x * 0x9e3779b1u + w) * 3 >> 16) ^ in[(x * 0x9e3779b1u + w) >> 24];",
    ];
    for body in kernels {
        let text = format!(
            "kernel void k(global int *out, global const int *in, uint w, uint h, uint m, uint far) {{
               uint x = get_global_id(0), y = get_global_id(1);
               size_t i = y * get_global_size(0) + get_global_id(0) - get_global_offset(0);
               {body}
             }}"
        );
        let mut runs: Vec<Run> = Vec::new();
        for group in [[32, 1, 1], [16, 4, 1], [10, 5, 1]] {
            for (offset, far, m) in [(0, 0, 3), (5, 2, 17), (0xffff_ffd0_u64, 48, 5)] {
                // Only one kernel has places for ids that are so large.
                if offset > 5 && !body.contains("far") {
                    continue;
                }
                let global = [2 * u64::from(group[0]), 2 * u64::from(group[1]), 1];
                let grid = Grid { offset: [offset, 0, 0], global, group };
                let (w, h) = (global[0] as i32 + 5, global[1] as i32);
                let data = |i: i32| i * 7 % 61;
                let out = ints(w * h, |_| -1);
                let values = [w, h, m, far].map(int);
                runs.push((grid, [vec![out, ints(1200, data)], values.to_vec()].concat()));
            }
        }
        // Without optimisation numbers have 32 bits until they are indices.
        for level in ["-O2", "-O0"] {
            let module = module(&clang::compile_text(&text, &[level, "-w"]));
            same_in_all(&module, "k", &runs);
        }
    }
}

/// Tiles with a border, `(get_local_size(0) - 2 * border) * get_group_id(0)`: the promises hold in all groups, also in those
/// at an edge, whose items have negative numbers that they do not use. Two counts tell how many items run beside each
/// other: one at a time, the second of an item is behind its first.
#[test]
fn groups_of_tiles_with_borders_run_in_vectors() {
    const ITEMS: usize = 4 * 64 + 32;
    let (border, n) = (5, 230);
    let bodies =
        [("int", border, "if (x >= 0 && x < n) got = in[x];"), ("uint", 0, "got = in[x];")];
    for (ty, before, body) in bodies {
        let module = wide(&format!(
            "kernel void tiles(global int *out, global int *beside, global int *counts, global const int *in, int n, {ty} border) {{
               {ty} size = get_local_size(0), group = get_group_id(0), l = get_local_id(0);
               {ty} x = (size - 2 * border) * group + l - {before};
               int i = get_global_id(0), got = -1;
               int one = atomic_inc(&counts[group]);
               {body}
               int two = atomic_inc(&counts[group]);
               out[i] = got;
               beside[i] = two - one;
             }}"
        ));
        let kernel = Kernel::with_lanes(&module, "tiles", &targets()[0], 8);
        let (mut out, mut beside, mut counts) = ([0; ITEMS], [0; ITEMS], [0; 8]);
        let mut data: Vec<i32> = (0..n).map(|i| i * 7).collect();
        let buffers = [&mut out[..], &mut beside, &mut counts, &mut data].map(buffer);
        let values = [n, border].map(value);
        kernel.run(Grid::line(ITEMS as u64, 64), buffers.into_iter().chain(values).collect());
        for i in 0..ITEMS as i32 {
            let (group, size) = (i / 64, if i < 256 { 64 } else { 32 });
            let x = (size - 2 * border) * group + i % 64 - before;
            let expected = if (0..n).contains(&x) { x * 7 } else { -1 };
            assert_eq!(out[i as usize], expected, "item {i}");
            assert_eq!(beside[i as usize], 8, "item {i}: {body}");
        }
    }
}

/// Whether the index of a load behind a test has a sign.
fn has_sign(test: &str, index: &str) -> bool {
    let module = wide(&format!(
        "kernel void k(global int *out, global const int *in, int first, int n, int flag) {{
           int i = get_global_id(0), x = first + i;
           if ({test}) out[i] = in[{index}];
         }}"
    ));
    let widened = widen(&module, &module.kernels[0], 16).expect("a plain kernel");
    let text = widened.module.function_text(widened.function).to_string();
    let kinds = [text.contains("i64 = sext"), text.contains("i64 = zext")];
    assert_ne!(kinds[0], kinds[1], "{text}");
    kinds[0]
}

#[test]
fn indices_behind_tests_keep_their_sign() {
    for (test, index) in [
        ("x >= 0 && x < n", "(uint)x"),
        ("flag && x >= 0 && x < n", "(uint)x"),
        ("!(x < 0 || x >= n)", "(uint)x"),
        ("x < n && !(flag || x < 0)", "(uint)x"),
        ("x > 0", "(uint)(x - 1)"),
        ("x >= 3", "(uint)(x - 2)"),
        ("(uint)x < 100", "(uint)x"),
    ] {
        assert!(has_sign(test, index), "{test}: {index}");
    }
    for (test, index) in [
        ("x >= -1 && x < n", "(uint)x"),
        ("x < 0 || x >= n", "(uint)x"),
        ("x >= 0 || flag", "(uint)x"),
        ("!(x >= 0 && flag)", "(uint)x"),
        ("i >= 0 && n > 0", "(uint)x"),
        ("x >= 0", "(uint)(x - 1)"),
        ("x >= -2", "(uint)x + 2u"),
        ("(uint)x < 0x80000001u", "(uint)x"),
    ] {
        assert!(!has_sign(test, index), "{test}: {index}");
    }
}

/// Such indices in groups at the edges of a row, where some are negative, beyond its end or wrap around.
#[test]
fn indices_behind_tests_are_those_of_items_that_pass() {
    let kernels = [
        "if (x >= 0 && x < n) out[i] = in[x];",
        "if (x > 0 && x <= n) out[i] = in[x - 1] * 3; else out[i] = x;",
        "if (!(x < 0 || x >= n)) out[i] = in[x] + in[n - 1 - x];",
        "int s = 0; for (int k = -2; k <= 2; k++) { int at = (int)((uint)x + k); if (at >= 0 && at < n) s = s * 5 + in[at]; } out[i] = s;",
        "for (int k = 0; k < 3; k++) { x -= 7; if (x >= 0 && x < n) out[i] = in[x] - x; }",
        "if (x >= 0) { if (x < n) out[i] = in[x]; else out[i] = in[(uint)x % n]; }",
    ];
    for body in kernels {
        let text = format!(
            "kernel void k(global int *out, global int *in, int first, int n) {{
               int i = get_global_id(0), x = (int)((uint)first + i);
               {body}
             }}"
        );
        let mut runs: Vec<Run> = Vec::new();
        for (first, n) in [(-3, 90), (-40, 30), (5, 64), (-1000, 10), (i32::MAX - 20, 50)] {
            for (global, group) in [(96, 32), (75, 25)] {
                let data = |i: i32| i * 7 % 61;
                let args = vec![ints(96, |_| -1), ints(100, data), int(first), int(n)];
                runs.push((Grid::line(global, group), args));
            }
        }
        same_in_all(&wide(&text), "k", &runs);
    }
}

/// An index that is made of one number by squares of squares: two ways lead from each to the one before it, 2^40 in all.
#[test]
fn numbers_that_are_used_often_are_looked_at_once() {
    let module = wide(
        "kernel void k(global int *out, int n) {
           int h = get_global_id(0);
           #pragma unroll
           for (int t = 0; t < 40; t++) h = h * h + n;
           out[h] = 1;
         }",
    );
    let widened = widen(&module, &module.kernels[0], 16).expect("a plain kernel");
    assert_eq!(widened.promises.conditions.len(), 0);
}

/// A sum whose bounds would wrap around 64 bits is tested as others are: doubled so often, what differs between the
/// items comes to lie behind the highest bit.
#[test]
fn bounds_do_not_wrap_around() {
    let conditions = |turns: u32| {
        let twice = "h = h + h;".repeat(turns as usize);
        let text = format!(
            "kernel void k(global int *out, int n) {{
               int h = (int)get_global_id(0) + n; {twice} out[h + (int)get_global_id(0)] = 1;
             }}"
        );
        let module = module(&clang::compile_text(&text, &["-O0", "-w"]));
        let widened = widen(&module, &module.kernels[0], 16).expect("a plain kernel");
        widened.promises.conditions.len()
    };
    assert!(conditions(4) > 0);
    assert_eq!(conditions(33), 0);
}

const KERNELS: &str = "
    // The numbers themselves, extended.
    kernel void numbers(global long *out, int n, long m) {
      int x = get_global_id(0), y = get_global_id(1), z = get_global_id(2);
      int lx = get_local_id(0), ly = get_local_id(1), gx = get_group_id(0), gy = get_group_id(1);
      int sx = get_local_size(0), sy = get_local_size(1), cx = get_num_groups(0);
      size_t at = (get_global_id(2) - get_global_offset(2)) * get_global_size(1);
      at = (at + get_global_id(1) - get_global_offset(1)) * get_global_size(0);
      global long *o = out + 8 * (at + get_global_id(0) - get_global_offset(0));
      o[0] = (long)(y * n + x);
      o[1] = (long)(x - y * n);
      o[2] = (long)((gy * sy + ly) * n + gx * sx + lx);
      o[3] = (long)((int)m * z + x + n);
      o[4] = (long)((y << 20) * n - x);
      o[5] = (long)((x + n) * (y + 3) + x);
      o[6] = (long)(n - x) + (long)(cx * n + x);
      o[7] = (long)(ulong)(uint)(z + n) + (long)(x * n * y + x);
    }
    // The same with a barrier, and in vectors of another dimension.
    kernel void waits(global long *out, local int *t, int n) {
      int x = get_global_id(0), y = get_global_id(1), lx = get_local_id(0), ly = get_local_id(1);
      int sx = get_local_size(0);
      t[ly * sx + lx] = y * n + x;
      barrier(CLK_LOCAL_MEM_FENCE);
      size_t at = (get_global_id(1) - get_global_offset(1)) * get_global_size(0);
      at += get_global_id(0) - get_global_offset(0);
      out[2 * at] = (long)(y * n + x) - t[ly * sx + (lx ^ 1) % sx];
      out[2 * at + 1] = (long)(int)((uint)ly + n);
    }
    // A difference of two that vary, without products that leave no room.
    kernel void moves(global long *out, int n) {
      uint x = get_global_id(0), y = get_global_id(1);
      size_t at = (get_global_id(1) - get_global_offset(1)) * get_global_size(0);
      out[at + get_global_id(0) - get_global_offset(0)] = (long)(int)(n + 2 * y - x);
    }
    // Sums times a constant.
    kernel void scaled(global long *out, int n, int m) {
      uint x = get_global_id(0), y = get_global_id(1);
      size_t at = (get_global_id(1) - get_global_offset(1)) * get_global_size(0);
      at += get_global_id(0) - get_global_offset(0);
      out[3 * at] = (long)(int)((y * n + x) * 3);
      out[3 * at + 1] = (long)(int)((x - m) << 2);
      out[3 * at + 2] = (long)(int)((m - x - y) * -5u);
    }
    // One of two numbers, and neighbours of a number.
    kernel void either(global long *out, int n, int m) {
      uint x = get_global_id(0), i = x + n;
      if (m & 1) i = x + m;
      out[(get_global_id(1) - get_global_offset(1)) * get_global_size(0) + x] = (long)(int)i;
    }
    kernel void other(global long *out, int n, int m) {
      uint x = get_global_id(0), i = x + m;
      if (m & 1) i = x + n;
      out[(get_global_id(1) - get_global_offset(1)) * get_global_size(0) + x] = (long)(int)i;
    }
    kernel void beside(global long *out, int n, int m) {
      uint x = get_global_id(0), i = x + n;
      out[(get_global_id(1) - get_global_offset(1)) * get_global_size(0) + x] = (long)(int)(i - 1000);
    }
    kernel void turns(global int *out, int columns, int n) {
      int i = get_global_id(0), j = get_global_id(1);
      int from = get_global_offset(0), off = get_global_offset(1);
      long far = (long)(i * n + j);
      out[(i - from) * columns + (j - off)] = (int)(far >> 3) ^ (int)(far >> 32);
    }";

/// Groups of several shapes, offsets, and arguments with which the numbers wrap around within some of the vectors, in
/// all, or in none.
#[test]
fn numbers_wrap_around_where_they_do() {
    let module = wide(KERNELS);
    let groups =
        [[32, 1, 1], [16, 16, 1], [64, 4, 2], [10, 10, 1], [5, 20, 1], [16, 2, 3], [1, 100, 1]];
    let offsets = [[0, 0, 0], [0x7fff_ffe8, 0x7fff_fffc, 0], [3, 0x1_0000_0007, 0xffff_ffff]];
    let limits = [3, -9, 1 << 20, 0x7fff_fff0, i32::MAX - 70, -0x7fff_fff8, i32::MIN];
    let mut runs: [Vec<Run>; 8] = Default::default();
    const NEAR: i32 = i32::MAX - 40;
    for group in groups {
        for offset in offsets {
            let global = [2 * group[0], 2 * group[1], group[2]].map(u64::from);
            let items = global.iter().product::<u64>() as i32;
            let grid = Grid { offset, global, group };
            let flat = Grid { offset: [offset[0], offset[1], 0], ..grid };
            for n in limits {
                let long = Input::Value(i64::from(n).wrapping_mul(5).to_le_bytes().to_vec());
                let out = |each: i32| ints(items * each, |_| -1);
                runs[0].push((grid, vec![out(16), int(n), long]));
                if group[2] == 1 {
                    let local = Input::Local(4 * group.iter().product::<u32>() as usize);
                    runs[1].push((flat, vec![out(4), local, int(n)]));
                    runs[2].push((flat, vec![out(1), int(global[1] as i32), int(n)]));
                    runs[3].push((flat, vec![out(2), int(n)]));
                }
            }
            // The sums fit, their multiples wrap around within vectors.
            const FIRST: i32 = i32::MAX / 3 - 8;
            let offset = [FIRST as u64, 0, 0];
            for m in [0, FIRST - (1 << 29) + 5, FIRST - i32::MAX / 5 + 5] {
                let out = ints(items * 6, |_| -1);
                runs[4].push((Grid { offset, ..grid }, vec![out, int(3), int(m)]));
            }
            // One of two numbers fits, or a sum fits of a number that does not.
            for (n, m) in [(3, 7), (3, NEAR), (3, NEAR + 1), (NEAR, 4), (NEAR, 5)] {
                let near = Grid { offset: [0, offset[1], 0], ..grid };
                let run = (near, vec![ints(items * 2, |_| -1), int(n), int(m)]);
                runs[5..].iter_mut().for_each(|runs| runs.push(run.clone()));
            }
        }
    }
    let names = ["numbers", "waits", "turns", "moves", "scaled", "either", "other", "beside"];
    // As clang writes them without optimisation, where one of two numbers is a phi.
    let plain = crate::harness::module(&clang::compile_text(KERNELS, &["-O0", "-w"]));
    for (name, runs) in names.into_iter().zip(&runs) {
        let is_plain = ["either", "other", "beside"].contains(&name);
        same_in_all(if is_plain { &plain } else { &module }, name, runs);
    }
}
