// SPDX-License-Identifier: MIT OR Apache-2.0
//! Indices behind tests that show their range: what clang joins with `or`, masks, or extends with zeros.

use tally_compiler::ir::{Module, Op};
use tally_compiler::widen;

use crate::diff::same;
use crate::harness::{Grid, clang, module};
use crate::widen::{int, ints};

/// What a kernel's items do with rows of 64 numbers, and whether these are read and written in lines.
const KERNELS: [(&str, bool, &str); 23] = [
    ("uints", true, "uint x = X, y = Y; if (x >= 64 || y >= 16) return; out[y * 64 + x] = in[y * 64 + x];"),
    ("sizes", true, "size_t x = X, y = Y; if (x < 64 && y < 16) out[y * 64 + x] = in[y * 64 + x];"),
    ("ints", true, "int x = X, y = Y; if (x >= 0 && y >= 0 && x < 64 && y < 16) out[y * 64 + x] = in[y * 64 + x];"),
    (
        "inner",
        true,
        "int x = X, y = Y; if (x > 0 && y > 0 && x < 63 && y < 15)
           out[y * 64 + x] = in[y * 64 + x + 1] + in[y * 64 + x - 1] * 3 + in[(y + 1) * 64 + x] * 5 + in[(y - 1) * 64 + x] * 7;",
    ),
    (
        "outer",
        true,
        "size_t x = X, y = Y; if (x == 0 || y == 0 || x >= 63 || y >= 15) return;
         out[y * 64 + x] = in[(y + 1) * 64 + x] * 5 + in[(y - 1) * 64 + x] * 7;",
    ),
    ("volumes", true, "int x = X, y = Y; if (x < 1 || y < 1 || x > 62 || y > 14) return; int i = y % 4 << 8 | y / 4 << 6 | x; out[i] = in[i - 1] + in[i + 1];"),
    ("next", true, "uint x = X, y = Y; if (x < 64 && y < 16) out[y << 6 | x] = in[(y << 6 | x) + 1];"),
    ("added", true, "uint x = X, y = Y; if (x < 60 && y < 15) out[y * 64 + x + 3] = in[y * 64 + x];"),
    ("signed_or", true, "int x = X, y = Y; if (x > 3 && x < 60) out[y * 64 + x] = in[y * 64 + x - 4]; else if (x < 64) out[y * 64 + x] = 5;"),
    ("not_negative", true, "int i = X + Y * 70 - 5; if (i >= 0 && i < n) out[i] = in[i];"),
    ("above", true, "int i = X + Y * 70 - 5; if (i > 2 && i < n - 1) out[i] = in[i - 3] + in[i + 1]; else if (i >= 0 && i < 1100) out[i] = in[i];"),
    ("of_two", true, "int i = X + Y * 64; if (i == 0 || i >= 900) out[i] = in[i]; else out[i] = max(in[i - 1], in[i + 1]);"),
    ("minus", true, "int i = X + Y * 64; if (i - 7 >= 0 && i < n) out[i - 7] = in[i];"),
    ("words", true, "uint x = X, y = Y; ulong z = y; if (x < 64 && z < 16) out[z * 64 + x] = in[z * 64 + x];"),
    // What may have carries, wrap around or be negative.
    ("too_far", false, "uint x = X, y = Y; if (x < 65 && y < 16) out[y << 6 | x] = in[y << 6 | x];"),
    ("no_upper", false, "int x = X, y = Y; if (x >= 0 && y < 16) out[(y << 6 | x) & 1023] = in[(y << 6 | x) & 1023];"),
    ("no_lower", false, "int x = (int)X - 3, y = Y; if (x < 64 && y < 15) out[(y + 1 << 6 | x) & 1023] = in[(y + 1 << 6 | x) & 1023];"),
    ("sizes_too_far", false, "size_t x = X, y = Y; if (x < 65 && y < 16) out[y << 6 | x] = in[y << 6 | x];"),
    ("few_zeros", false, "uint x = X, y = Y; if (x < 64 && y < 16) out[y * 32 | x] = in[y * 32 | x];"),
    ("other_number", false, "uint x = X, y = Y; if (x * 2 < 64 && y < 16) out[(x & 1) << 9 | (y << 5 ^ x)] = in[y << 5 | x];"),
    ("either", false, "uint x = X, y = Y; if (x < 64 || y < 3) out[(y << 6 | x) & 1023] = in[(y << 6 | x) & 1023];"),
    ("masked", false, "uint x = X, y = Y; if (x < 64 && y < 16) out[(y << 6 | x) & 511] = in[(y << 6 | x) & 511];"),
    ("elsewhere", false, "uint x = X, y = Y; int a = 3; if (x < 64) a = in[x]; if (y < 16) out[(y << 6 | x) & 1023] = a;"),
];

/// The same where clang leaves what is written: numbers that wrap around, or have bits beyond what is tested.
const UNOPTIMISED: [(&str, &str); 9] = [
    (
        "a long mask",
        "ulong h = (ulong)(n == 1000) << 27, y = Y + h, x = X + (h << 6);
         if ((uint)x < 64) {
           ulong at = (y << 6 | (x & 0xffffffffffl)) - (h << 6); out[at] = in[at];
         }",
    ),
    (
        "a mask of high bits",
        "int x = X; if (x >= 21 && x < 32) { uint i = (x & 0xf0) - 20; out[X + Y * 64] = (in + 8 - 0x100000000l)[i]; }",
    ),
    (
        "bits that move down",
        "ulong h = (ulong)(n == 1000) << 34, x = X + h;
         if ((uint)x < 64) { ulong at = (x >> 4 & 0x3fffff) + X + Y * 64; out[at] = in[at]; }",
    ),
    (
        "below zero",
        "int x = (int)X - 3, y = Y;
         if (x > -4 && x < 60 && y >= 0 && y < 15) {
           ulong at = (ulong)((y + 1) << 6 | x) & 1023; out[at] = in[at];
         }",
    ),
    (
        "negative",
        "uint i = X - 3; if (i > n && Y < 16) out[X + Y * 64] = (in + 8 - 0x100000000l)[i];",
    ),
    (
        "one of two negative",
        "int i = (int)X - 40; if (Y == 0 && (i == 3 || i < 0)) out[(ulong)i & 1023] = in[(ulong)i & 1023];",
    ),
    (
        "beyond the greatest",
        "uint x = X + 2147483600u;
         if (X < 64 && (int)x > 2147483605) out[X + Y * 64] = (in + 64 - 0x80000000l)[x + 20];",
    ),
    (
        "two ranges",
        "uint x = X - 3;
         if (x > 5 && (int)x < 10 && X < 5) out[X + Y * 64] = (in + 8 - 0x100000000l)[x];",
    ),
    (
        "bits beyond",
        "ulong h = (ulong)(n == 1000) << 26, y = Y + h, x = X + (h << 6);
         if ((uint)x < 64) out[(y << 6 | x) - (h << 6)] = in[(y << 6 | x) - (h << 6)];",
    ),
];

#[test]
fn indices_behind_tests_are_sums_with_a_sign() {
    let mut others = Vec::new();
    for (name, in_lines, body) in KERNELS {
        let module = kernel(body, "-O2");
        let widened = widen::widen(&module, &module.kernels[0], 16).expect("it can be widened");
        let function = &widened.module.functions[widened.function];
        let mut insts = function.blocks.iter().flat_map(|(_, block)| &block.insts);
        let is_apart = insts.any(|inst| matches!(inst.op, Op::Gather(..) | Op::Scatter(..)));
        if is_apart == in_lines {
            others.push(name);
        }
        same_in_planes(&module, name);
    }
    assert_eq!(others, [""; 0]);
}

#[test]
fn indices_that_wrap_around_stay_as_they_are() {
    for (name, body) in UNOPTIMISED {
        same_in_planes(&kernel(body, "-O0"), name);
    }
}

fn kernel(body: &str, level: &str) -> Module {
    let text = format!(
        "#define X get_global_id(0)
         #define Y get_global_id(1)
         kernel void k(global int *out, global const int *in, int n) {{ {body} }}"
    );
    module(&clang::compile_text(&text, &[level, "-w"]))
}

/// Runs a kernel in rows of as many items as a row has numbers, and of more.
fn same_in_planes(module: &Module, name: &str) {
    for (width, group) in [(64, 16), (80, 40), (70, 35)] {
        let args = [ints(2048, |i| -i), ints(2048, |i| i * 37 % 101 + (i << 8)), int(1000)];
        let grid = Grid { offset: [0; 3], global: [width, 16, 1], group: [group, 2, 1] };
        same(module, "k", grid, &args, &format!("{name}, groups of {group}"));
    }
}
