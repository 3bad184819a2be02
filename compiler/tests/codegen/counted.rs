// SPDX-License-Identifier: MIT OR Apache-2.0
//! Indices of 32 bits that are made of counters of loops: groups in which they wrap around run one item at a time.

use tally_compiler::widen::widen;

use crate::diff::{Run, same_in_all};
use crate::harness::{Grid, Kernel, buffer, clang, module, targets, value};
use crate::transpose::apart;
use crate::widen::{int, ints, wide};

/// A kernel whose items add up what a loop makes.
fn summing(name: &str, statements: &str) -> String {
    format!(
        "kernel void {name}(global long *out, int n, uint m) {{
           uint x = get_global_id(0), y = get_global_id(1);
           long s = y;
           {statements}
           out[y * get_global_size(0) + x] = s;
         }}"
    )
}

/// What a turn adds: a number as it is when it is extended.
const ADD: &str = "s = s * 31 + (long)(int)";

/// Loops that count in all ways, and the name of each.
fn loops() -> Vec<(&'static str, String)> {
    let made = [
        ("upwards", format!("for (int k = 0; k < n; k++) {ADD}(k * m + x);")),
        ("included", format!("for (int k = -2; k <= n; k++) {ADD}(k * m + x);")),
        ("by_three", format!("for (int k = 1; k < n; k += 3) {ADD}(k * m + x);")),
        ("downwards", format!("for (int k = n; k > 0; k--) {ADD}(k * m + x);")),
        ("to_zero", format!("for (int k = n; k >= 0; k += -2) {ADD}(k * m - x);")),
        ("no_sign", format!("for (uint k = 0; k < (uint)n; k++) {ADD}(k * m + x);")),
        ("until", format!("if (n > 0) {{ int k = 0; do {ADD}(k * m + x); while (++k != n); }}")),
        ("wide", format!("for (long k = 0; k < n; k++) {ADD}((uint)k * m + x);")),
        ("walks", format!("uint a = x; for (int k = 0; k < n; k++) {{ {ADD}a; a += m; }}")),
        (
            "at_times",
            format!(
                "uint a = x; for (int k = 0; k < n; k++) {{ {ADD}(a + 1); if (n & 1) a += m; }}"
            ),
        ),
        (
            "early",
            format!("for (int k = 0; k < 8; k++) {{ if (k == n) break; {ADD}(k * m + x); }}"),
        ),
        ("both", format!("for (int k = 0; k < 8 && k * k < n; k++) {ADD}(k * m + x);")),
        (
            "nested",
            format!(
                "for (int j = 0; j < 2; j++) for (int k = j; k < n + j; k++) {ADD}((k + j) * m + x);"
            ),
        ),
        // Items leave at different times, and count from numbers that shrink from item to item.
        ("own_ends", format!("for (int k = 0; k < (int)x + n; k++) {ADD}(k * m + x);")),
        ("own_starts", format!("int b = m; for (int i = b - x; i < b; i++) {ADD}i;")),
    ];
    made.into_iter().map(|(name, statements)| (name, summing(name, &statements))).collect()
}

/// Turns of all loops, with factors with which numbers wrap around in all turns, in the last ones, in some of the items,
/// and in none.
#[test]
fn counters_wrap_around_where_they_do() {
    let mut runs: Vec<Run> = Vec::new();
    for group in [[32, 1, 1], [20, 2, 1]] {
        let grid = Grid { offset: [0; 3], global: [2 * u64::from(group[0]), 2, 1], group };
        let near = i32::MAX;
        for n in [1, 2, 5] {
            for m in [5, 0x2000_0000, near / 3 - 9, near - 70, near - 9, i32::MIN + 40] {
                let out = ints(4 * 2 * group[0] as i32, |_| -1);
                runs.push((grid, vec![out, int(n), int(m)]));
            }
        }
    }
    for level in ["-O0", "-O2"] {
        for (name, text) in loops() {
            same_in_all(&module(&clang::compile_text(&text, &[level, "-w"])), name, &runs);
        }
    }
}

/// All of them are promised, as clang writes them without optimisation.
#[test]
fn counters_have_bounds() {
    for (name, text) in loops() {
        let module = module(&clang::compile_text(&text, &["-O0", "-w"]));
        let widened = widen(&module, &module.kernels[0], 16).expect("a plain kernel");
        let count = widened.promises.conditions.len();
        assert!(count > 0, "{name}");
    }
}

/// Counters that begin at one that grows (the rest of a matrix's row): they stay below their end and above their beginning,
/// so the promises hold. Two counts tell how many items run beside each other: one at a time, the second of an item is
/// behind its first.
#[test]
fn groups_that_count_from_a_counter_run_in_vectors() {
    let module = wide(
        "kernel void rest(global int *out, global int *beside, global int *count, global const int *in, uint n) {
           int i = get_global_id(0), s = 0;
           int one = atomic_inc(count);
           for (uint k = 0; k < n; k++)
             for (uint j = k + 1 + get_global_id(0); j < n; j += get_global_size(0)) s += in[k * n + j];
           int two = atomic_inc(count);
           out[i] = s;
           beside[i] = two - one;
         }",
    );
    let kernel = Kernel::with_lanes(&module, "rest", &targets()[0], 8);
    let n = 100;
    let (mut out, mut beside, mut count) = ([0; 64], [0; 64], [0; 1]);
    let mut data: Vec<i32> = (0..n * n).map(|i| i * i % 1013).collect();
    let buffers = [&mut out[..], &mut beside, &mut count, &mut data].map(buffer);
    kernel.run(Grid::line(64, 64), buffers.into_iter().chain([value(n)]).collect());
    for i in 0..64 {
        let places = (0..n).flat_map(|k| (k + 1 + i..n).step_by(64).map(move |j| k * n + j));
        let sum: i32 = places.map(|place| place * place % 1013).sum();
        assert_eq!(out[i as usize], sum, "item {i}");
        assert_eq!(beside[i as usize], 8, "item {i}");
    }
}

/// Pixels of three bytes in rows, and loops whose bounds say little.
#[test]
fn pixels_in_loops_are_lines() {
    let rows = |test: &str, rest: &str| {
        format!(
            "kernel void k(global uchar *out, global const uchar *in, uint w, int h) {{
               uint x = get_global_id(0);
               for (int y = 0; {test}; y++) {{
                 {rest}
                 uint i = (y * w + x) * 3;
                 uchar a = in[(int)i], b = in[(int)(i + 1)], c = in[(int)(i + 2)];
                 out[(int)i] = b; out[(int)(i + 1)] = c; out[(int)(i + 2)] = a;
               }} }}"
        )
    };
    assert_eq!(apart(&rows("y < h", "")), (0, 0));
    assert_eq!(apart(&rows("y < 100", "if (in[y] == 7) break;")), (0, 0));
    // What ends it may be what keeps the place small.
    assert_eq!(apart(&rows("y < h", "if (in[y] == 7) break;")), (3, 3));
    assert_eq!(apart(&rows("y < 100000", "if (in[y] == 7) break;")), (3, 3));
    assert_eq!(apart(&rows("in[y] != 7", "")), (3, 3));
}
