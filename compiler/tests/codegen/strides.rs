// SPDX-License-Identifier: MIT OR Apache-2.0
//! Elements whose distance from item to item is an argument. The buffers end at inaccessible pages.

use tally_compiler::ir::{CompareOp, Op, Operand, Terminator};
use tally_compiler::widen::widen;

use crate::diff::{Input, Random, Run, compare_at, same_in_all};
use crate::harness::{Grid, clang, module, widths};
use crate::programs::seeds;
use crate::widen::{int, ints, wide};

const ITEMS: i32 = 96;

/// Places of elements `s` apart, of which the first is number `b`.
const PLACES: [&str; 7] = [
    "b + x * s",
    "(x + 1) * s + b - s",
    "b + s * (x + 3) - 3 * s",
    "(long)b + (long)x * s",
    "(size_t)(b + x * s)",
    "(uint)b + (uint)x * (uint)s",
    "b + x * s * 2 - s * x",
];

/// What is read, with `P` for a place and `T` for the elements' type.
const READS: [&str; 8] = [
    "a = V(in[P]);",
    "a = V(in[P]) * 3; a -= V(in[P + t]);",
    "for (int k = 0; k < 3; k++) a = a * 3 + V(in[P + k * t]);",
    "global const T *p = in + (P); for (int k = 0; k < m; k++, p += t) a = a * 5 + V(*p);",
    "for (int j = 0; j < m; j += 2) { global const T *p = in + (P) + j * t;
       for (int k = 0; k < m - 1; k++) a = a * 5 + V(p[k * t]); }",
    "if (x < n) a = V(in[P]);",
    "if (x % 3 == 1) a = V(in[P + t]); else a = 7 - V(in[P]);",
    "int f = s; for (int k = 0; k < 3; k++) { if ((x & 3) == k) break; f = s * (k & 1); a += V(in[b + x * f]); }
     a += V(in[b + x * f]);",
];

fn text(random: &mut Random) -> String {
    let of =
        |random: &mut Random, all: &[&'static str]| all[random.below(all.len() as u64) as usize];
    let (ty, value) = match random.below(6) {
        0 => ("uchar", "X"),
        1 => ("short", "X"),
        2 => ("long", "X"),
        3 => ("int2", "(X.x * 3 + X.y)"),
        _ => ("int", "X"),
    };
    let id = of(random, &["int", "int", "uint", "size_t"]);
    let reads = of(random, &READS).replace('P', of(random, &PLACES)).replace('T', ty);
    let guard = of(random, &["", "", "if (x < n)"]);
    let macro_ = value.replace('X', "(E)");
    format!(
        "#define V(E) ((int){macro_})
         kernel void k(global int *out, global const {ty} *in, int s, int b, int t, int m, int n, int u, int c) {{
           {id} x = get_global_id(0); int a = 1;
           {guard} {{ {reads} out[c + x * u] = a; }} }}"
    )
}

/// The number of the first element, and how many there are.
fn extent(by: i32) -> (i32, i32) {
    ((-by).max(0) * (ITEMS - 1), by.abs() * (ITEMS - 1) + 1)
}

fn runs(random: &mut Random) -> Vec<Run> {
    let of = |random: &mut Random, all: &[i32]| all[random.below(all.len() as u64) as usize];
    (0..4)
        .map(|_| {
            let [s, t] =
                [of(random, &[1, 1, 2, 2, 3, 3, 4, 5, 0, -1, -2]), of(random, &[1, 2, 5, 0])];
            let u = of(random, &[1, 1, 2, -1, 3, 3, 4, 5]);
            let ((b, reads), (c, writes)) = (extent(s), extent(u));
            // The most turns take the last element to the buffer's end, for all but the largest elements.
            let bytes = (0..(reads + 3 * t) * 8).map(|_| random.below(100) as u8).collect();
            let n = of(random, &[0, 5, 33, ITEMS, 200]);
            let group = [48, 16, 96, 20][random.below(4) as usize];
            let out = ints(writes, |_| -1);
            let mut args = vec![out, Input::bytes(bytes)];
            args.extend([s, b, t, 3, n, u, c].map(int));
            (Grid::line(ITEMS as u64, group), args)
        })
        .collect()
}

#[test]
fn strides_agree() {
    for seed in seeds(48) {
        let mut random = Random::new(seed + 57_000);
        let text = text(&mut random);
        let level = ["-O2", "-O1", "-O0"][(seed % 3) as usize];
        let module = module(&clang::compile_text(&text, &[level, "-w"]));
        let runs = runs(&mut random);
        compare_at(&widths(), &module, "k", &runs)
            .unwrap_or_else(|how| panic!("seed {seed} at {level}: {how}\n{text}"));
    }
}

/// Nothing behind the last element is read, and nothing in front of the first one, with and without a mask.
#[test]
fn the_last_element_is_the_buffers_last() {
    for (ty, bytes) in [("uchar", 1), ("short", 2), ("int", 4), ("long", 8)] {
        for test in ["", "if (x < n)"] {
            let module = wide(&format!(
                "kernel void k(global int *out, global const {ty} *in, int s, int b, int n) {{
                   int x = get_global_id(0); int a = 3; {test} a = in[b + x * s]; out[x] = a; }}"
            ));
            let runs: Vec<Run> = [1, 2, 3, 4, 5, -1, -2, 0]
                .into_iter()
                // A buffer begins behind an inaccessible page and ends in front of one in turn: both, for each number.
                .flat_map(|s| [ITEMS, 41, 41, ITEMS].map(|n| (s, n)))
                .map(|(s, n)| {
                    let (b, all) = extent(s);
                    // What the items that run have, unless they go down from the end.
                    let runs = if test.is_empty() { ITEMS } else { n };
                    let count = if s > 0 { s * (runs - 1) + 1 } else { all };
                    let numbers = (0..count * bytes).map(|i| (i * 37 % 101) as u8).collect();
                    let out = ints(ITEMS, |_| -1);
                    let args = vec![out, Input::bytes(numbers), int(s), int(b), int(n)];
                    (Grid::line(ITEMS as u64, 48), args)
                })
                .collect();
            same_in_all(&module, "k", &runs);
        }
    }
}

/// Pixels with a number of channels that is an argument: nothing but the items' own elements is written, and the last one
/// is the buffer's last.
#[test]
fn channels_are_written_as_vectors() {
    for (ty, bytes) in [("uchar", 1), ("short", 2), ("int", 4), ("float", 4), ("long", 8)] {
        for test in ["", "if (x < n)"] {
            let module = wide(&format!(
                "kernel void k(global {ty} *out, global const {ty} *in, int s, int c, int n) {{
                   int x = get_global_id(0); {test} out[x * s + c] = in[x * s + c] + 1; }}"
            ));
            let mut runs: Vec<Run> = Vec::new();
            for s in 1..6 {
                for (c, n) in [(0, ITEMS), (s - 1, 41), (s - 1, ITEMS)] {
                    let count = s * (ITEMS - 1) + c + 1;
                    let of = |by: i32| match ty {
                        "float" => {
                            (0..count).flat_map(|i| ((i * by) as f32).to_le_bytes()).collect()
                        }
                        _ => (0..count * bytes).map(|i| (i * by % 101) as u8).collect::<Vec<u8>>(),
                    };
                    let args =
                        vec![Input::bytes(of(3)), Input::bytes(of(7)), int(s), int(c), int(n)];
                    runs.push((Grid::line(ITEMS as u64, 48), args));
                }
            }
            same_in_all(&module, "k", &runs);
        }
    }
}

/// A number that wraps around between two items is no distance: what it is extended to is far away.
#[test]
fn numbers_that_wrap_around_are_no_distance() {
    let module = wide(
        "kernel void k(global int *out, global const int *in, uint s) {
           uint x = get_global_id(0); int a = 3;
           if (x % 16 >= 4 && x >= 4) a = in[(size_t)((x - 4) * s)];
           out[x] = a; }",
    );
    let runs: Vec<Run> = [1, 2]
        .map(|s| {
            let args = vec![ints(ITEMS, |_| -1), ints(s * 92, |i| i * 7), int(s)];
            (Grid::line(ITEMS as u64, 48), args)
        })
        .into();
    same_in_all(&module, "k", &runs);
}

/// How many distances a kernel's accesses are compared with.
fn distances(body: &str) -> usize {
    distances_of("float", body)
}

/// The same of elements of some type.
fn distances_of(ty: &str, body: &str) -> usize {
    let module = wide(&format!(
        "kernel void k(global {ty} *o, global const {ty} *a, int w, int s, int t, int n) {{
           int x = get_global_id(0), y = get_global_id(1); float f = 0;
           {body} }}"
    ));
    let widened = widen(&module, &module.kernels[0], 16).unwrap();
    let function = &widened.module.functions[widened.function];
    let mut found = 0;
    for (_, block) in function.blocks.iter() {
        let Terminator::CondBranch(condition, ..) = block.terminator else { continue };
        // The comparison decides whether the ends are looked at.
        let compares = block.insts.iter().any(|inst| {
            matches!(inst.op, Op::Compare(CompareOp::Eq, ..))
                && inst.result.map(Operand::Value) == Some(condition)
        });
        found += usize::from(compares);
    }
    found
}

/// One to four elements for each load and store, as far as the distance may be so many.
#[test]
fn distances_are_looked_at() {
    assert_eq!(distances("o[y * w + x] = a[y * w + x * s];"), 4);
    assert_eq!(distances("o[y * w + x * s] = a[y * w + x];"), 4);
    assert_eq!(distances("o[y * w + x] = ((global const struct { float x, y; } *)a)[x * s].y;"), 3);
    assert_eq!(
        distances("o[y * w + x] = ((global const struct { float x, y, z; } *)a)[x * s].y;"),
        2
    );
    let filter = "for (int j = 0; j < 3; j++) f += a[(y * s + j) * w + x * s]; o[y * w + x] = f;";
    assert_eq!(distances(filter), 4 * 3);
    let product = "for (int k = 0; k < n; k++) f += a[k * w + x * s]; o[y * w + x] = f;";
    // One more comparison ends the loop.
    assert_eq!(distances(product), 4 + 1);
    // Places that differ otherwise.
    assert_eq!(distances("o[y * w + x] = a[x * x];"), 0);
    assert_eq!(distances("o[y * w + x] = a[x * s / 3];"), 0);
}

/// Bytes behind a test are looked at where all items pass it, up to four apart, and in line under a mask.
#[test]
fn bytes_behind_a_test_are_looked_at() {
    let pixels = "if (x < w && y < n) o[(y * w + x) * s + t] = a[(y * w + x) * s + t];";
    assert_eq!(distances_of("uchar", pixels), 2 * 4 + 2);
    assert_eq!(distances_of("ushort", pixels), 2 * 4 + 2);
    // There are masks for larger ones, so nothing is copied for these.
    assert_eq!(distances_of("float", pixels), 2 * 4);
    assert_eq!(distances_of("uchar", "if (x < w) o[x * x] = a[x * s / 3];"), 0);
}
