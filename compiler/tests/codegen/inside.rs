// SPDX-License-Identifier: MIT OR Apache-2.0
//! Items in one dimension whose ids are taken apart by division: vectors within a row have code of their own, and so have
//! those whose items have one turn of a loop over the launch's work.

use tally_compiler::ir::{Op, RowOp};
use tally_compiler::widen::widen;

use crate::diff::{Input, Random, Run, compare_at, same_in_all};
use crate::harness::{Grid, clang, module, widths};
use crate::programs::seeds;
use crate::widen::{int, ints, wide};

/// What goes through the work, with `T` for the ids' type.
const HEADS: [&str; 5] = [
    "T i = get_global_id(0); if (i >= (T)n) return;",
    "for (T i = get_global_id(0); i < (T)n; i += get_global_size(0))",
    "T i = get_global_id(0); if (i < (T)n)",
    "T i = get_global_id(0) + g; if (i < (T)n)",
    "for (T i = get_group_id(0) * get_local_size(0) + get_local_id(0); i < (T)n;
          i += get_local_size(0) * get_num_groups(0))",
];

/// How an id is taken apart.
const PARTS: [&str; 7] = [
    "T x = i % w, y = i / w % h, c = i / w / h;",
    "T c = i / (w * h), q = i % (w * h), y = q / w, x = q - y * w;",
    "T x = i % w, y = (i - x) / w, c = 0;",
    "T x = i & 31, y = i >> 5, c = y / h; y %= h;",
    "T y = i / 40, x = i % 40, c = y % 3;",
    "T r = i / w, x = i - r * w, y = r % h, c = x / 33;",
    "T x = i / h % w, y = i % h, c = i / h / w;",
];

/// What is done at a place.
const WORK: [&str; 9] = [
    "a = in[(c * h + y) % 20 * s * W + x * s];",
    "a = in[x] * 3 + in[y] - in[c];",
    "a = max(in[y * W + x * 2], in[y * W + x * 2 + 1]);",
    "int b = max((int)x * s - p, 0), e = min((int)x * s - p + k, w);
       for (int j = b; j < e; j++) a = a * 3 + in[y * W + j];",
    "int b = (int)x * s - p, e = b + k;
       for (int l = max((int)y * s - p, 0); l < min((int)y * s - p + k, h); l++)
         for (int j = max(b, 0); j < min(e, w); j++) a = max(a, (int)in[l * W + j]) + j - b;",
    "for (int j = 0; j < k; j++) { int at = (int)x * s - p + j; if (at >= 0 && at < W) a += in[y * W + at]; }",
    "if (x > 0 && x < (T)w - 1) a = in[i - 1] - in[i + 1]; else a = in[i];",
    "for (int j = (int)x * s + k; j > (int)x * s - p; j--) { if (a > 300) break; a += in[y * W + j + p]; }",
    "a = in[clamp((int)x - p, 0, w - 1) + y * W] + in[(x + 1) % w];",
];

fn text(random: &mut Random) -> String {
    let of =
        |random: &mut Random, all: &[&'static str]| all[random.below(all.len() as u64) as usize];
    let ty = of(random, &["int", "int", "int", "uint", "long", "size_t"]);
    let element = of(random, &["int", "uchar", "short", "int"]);
    let [head, parts, work] = [&HEADS[..], &PARTS[..], &WORK[..]]
        .map(|all| of(random, all).replace("T ", &format!("{ty} ")));
    let cast = |text: String| text.replace("(T)", &format!("({ty})"));
    let [head, parts, work] = [head, parts, work].map(cast);
    format!(
        "kernel void k(global int *out, global const {element} *from, int n, int w, int h, int s, int p, int k,
                       int W, int g) {{
           global const {element} *in = from + 64;
           {head} {{ {parts} int a = 0; {work} out[i] = a + (int)y; }} }}"
    )
}

/// Rows that are shorter than a vector, longer, and longer than the work; steps from 0; and launches of fewer items than
/// there is work for.
fn runs(random: &mut Random) -> Vec<Run> {
    let of = |random: &mut Random, all: &[i32]| all[random.below(all.len() as u64) as usize];
    (0..3)
        .map(|_| {
            let w = of(random, &[1, 7, 16, 24, 31, 33, 64, 100, 256, 400]);
            let n = of(random, &[700, 512, 333, 90]).min(100 * w);
            let h = of(random, &[1, 3, 24, 57]);
            let [s, p, k] =
                [&[1, 2, 2, 3, 0], &[0, 1, 1, 3, 5], &[3, 2, 3, 5, 0]].map(|all| of(random, all));
            // The elements of a row, with those that a step skips.
            let wide = 2 * w.max(64) * s.max(1) + k + 8;
            let elements = wide * (n / w + 60) + 256;
            let group = [32, 64, 16, 48, 20][random.below(5) as usize];
            let groups = [n as u64, n as u64, 128][random.below(3) as usize].div_ceil(group as u64);
            let grid = Grid::line(groups * group as u64, group);
            let numbers = (0..elements * 4).map(|_| random.below(100) as u8).collect();
            let mut args = vec![ints(n, |_| -1), Input::bytes(numbers)];
            args.extend([n, w, h, s, p, k, wide, of(random, &[0, 5, 32])].map(int));
            (grid, args)
        })
        .collect()
}

#[test]
fn rows_agree() {
    for seed in seeds(48) {
        let mut random = Random::new(seed + 71_000);
        let text = text(&mut random);
        let level = ["-O2", "-O1", "-O2", "-O0"][(seed % 4) as usize];
        let module = module(&clang::compile_text(&text, &[level, "-w"]));
        let runs = runs(&mut random);
        compare_at(&widths(), &module, "k", &runs)
            .unwrap_or_else(|how| panic!("seed {seed} at {level}: {how}\n{text}"));
    }
}

/// Rows of each length: vectors that end with the row, and those that end one behind it. Nothing behind the last row is
/// read.
#[test]
fn vectors_end_with_rows() {
    let module = wide(
        "kernel void k(global int *out, global const int *in, int w, int n) {
           int i = get_global_id(0), x = i % w, y = i / w;
           if (i < n) out[i] = max(in[2 * y * 2 * w + 2 * x], in[(2 * y + 1) * 2 * w + 2 * x + 1]) + y; }",
    );
    let runs: Vec<Run> = [1, 14, 15, 16, 17, 24, 31, 32, 33, 47, 48, 49, 95, 96, 97]
        .into_iter()
        // A buffer begins behind an inaccessible page and ends in front of one in turn.
        .flat_map(|w| [w, w])
        .map(|w| {
            let n = (192 / w).max(1) * w;
            let args = vec![ints(n, |_| -1), ints(4 * n, |i| i * 7 % 1009), int(w), int(n)];
            (Grid::line(192, 48), args)
        })
        .collect();
    same_in_all(&module, "k", &runs);
}

/// Numbers that are not ids: negative ones, which a quotient rounds to zero, and those that wrap around within a vector.
#[test]
fn numbers_of_either_sign() {
    let module = wide(
        "kernel void signed_ints(global int *out, global const int *in, int first, int w) {
           int g = get_global_id(0), i = g + first; out[g] = in[abs(i % w)] + i / w; }
         kernel void unsigned_ints(global int *out, global const int *in, uint first, uint w) {
           uint g = get_global_id(0), i = g + first; out[g] = in[min(i % w, 99u)] + i / w; }",
    );
    let firsts =
        [0, -1, -8, -40, -96, -100, i32::MAX - 95, i32::MAX - 40, i32::MIN, i32::MIN + 1000];
    let runs = |firsts: &[i32], widths: &[i32]| -> Vec<Run> {
        let args =
            |first: i32, w: i32| vec![ints(96, |_| -1), ints(100, |i| i * i), int(first), int(w)];
        let all = firsts.iter().flat_map(|&first| widths.iter().map(move |&w| (first, w)));
        all.map(|(first, w)| (Grid::line(96, 48), args(first, w))).collect()
    };
    // A signed number does not wrap around in a program of C.
    let fits = |first: &&i32| first.checked_add(95).is_some();
    let signed: Vec<i32> = firsts.iter().filter(fits).copied().collect();
    same_in_all(&module, "signed_ints", &runs(&signed, &[100, 33, 1, -1, -33, -100]));
    same_in_all(&module, "unsigned_ints", &runs(&firsts, &[100, 33, 1, i32::MAX, -1, -64]));
}

/// A loop's items that have another turn, all of them or only some, have all of theirs.
#[test]
fn launches_of_fewer_items() {
    let module = wide(
        "kernel void k(global int *out, global const int *in, int n, int w) {
           int all = 0;
           for (int i = get_global_id(0); i < n; i += get_global_size(0)) {
             int x = i % w, y = i / w; all += in[y * 2 * w + 2 * x] + y; out[i] = all; } }",
    );
    let runs: Vec<Run> = [0, 1, 95, 96, 97, 100, 150, 191, 192, 193, 400]
        .into_iter()
        .flat_map(|n| [(n, 50), (n, 400), (n, 9)])
        .map(|(n, w)| {
            let args =
                vec![ints(n.max(1), |_| -1), ints(2 * 400 + 2 * w, |i| i * 7), int(n), int(w)];
            (Grid::line(96, 48), args)
        })
        .collect();
    same_in_all(&module, "k", &runs);
}

/// How many rows a kernel asks for in front, gathers in each of its codes, and loops under a mask.
fn found(body: &str) -> (usize, usize, usize) {
    let module = wide(&format!(
        "kernel void k(global float *out, global const float *in, int n, int w, int h, int s, int W) {{
           {body} }}"
    ));
    let widened = widen(&module, &module.kernels[0], 16).unwrap();
    let source = &widened.source;
    let insts = || source.blocks.iter().flat_map(|(_, block)| &block.insts);
    let rows = insts().filter(|inst| matches!(inst.op, Op::Row(RowOp::Fits, ..))).count();
    let function = &widened.module.functions[widened.function];
    let insts = || function.blocks.iter().flat_map(|(_, block)| &block.insts);
    let gathers = insts().filter(|inst| matches!(inst.op, Op::Gather(..))).count();
    let is_masked = |id| widened.block_text(id).contains("loops until no item is left");
    (rows, gathers, source.blocks.ids().filter(|&id| is_masked(id)).count())
}

/// The code for vectors within a row has no gathers, and the other one has one for each load.
#[test]
fn rows_are_asked_for() {
    let id = "int i = get_global_id(0), x = i % w, y = i / w;";
    assert_eq!(found(&format!("{id} out[i] = in[2 * y * W + 2 * x];")), (1, 1, 0));
    // Places in the row of a picture, and in the picture.
    let three = "int i = get_global_id(0), c = i / (w * h), q = i % (w * h), y = q / w, x = q % w;";
    assert_eq!(found(&format!("{three} out[i] = in[(c * h + y) * W + 2 * x];")), (2, 1, 0));
    let constant = "int i = get_global_id(0), x = i & 63, y = i >> 6;";
    // clang takes twice of either: `i >> 5 & -2` and `2 * i & 126`.
    assert_eq!(found(&format!("{constant} out[i] = in[2 * y * W + 2 * x];")), (2, 1, 0));
    // A row of a vector's length, and shorter ones.
    let short = "int i = get_global_id(0), x = i % 12, y = i / 12;";
    assert_eq!(found(&format!("{short} out[i] = in[2 * y * W + 2 * x];")).0, 0);
    let table = "int i = get_global_id(0), x = i % w; out[i] = in[(int)in[i]] + x;";
    assert_eq!(found(table).0, 0);
    // What is known anyway.
    assert_eq!(found(&format!("{id} out[i] = in[i] + x;")).0, 0);
}

/// A pooling's windows, whose places grow by an argument, have as many turns for all items of a row. At edges, and outside
/// of rows, they run under a mask.
#[test]
fn windows_with_a_step() {
    let pool = "int i = get_global_id(0), x = i % w, y = i / w; float a = 0;
       for (int j = max(x * s - 1, 0); j < min(x * s + 2, W); j++) a += in[y * W + j];
       out[i] = a;";
    let (rows, _, masked) = found(pool);
    // At edges of rows, and in two codes outside.
    assert_eq!((rows, masked), (1, 2));
    let two = "int x = get_global_id(0), y = get_global_id(1); float a = 0;
       for (int j = max(x * s - 1, 0); j < min(x * s + 2, W); j++) a += in[y * W + j];
       out[y * w + x] = a;";
    assert_eq!((found(two).0, found(two).2), (0, 1));
}
