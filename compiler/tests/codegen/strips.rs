// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loops along items' rows that are taken several turns at a time: any number of turns, in all forms of counting,
//! and accesses that must stay in their order.

use tally_compiler::ir::{BlockId, Op};
use tally_compiler::widen;

use crate::diff::{Input, Run, same_in_all};
use crate::harness::Grid;
use crate::widen::{int, ints, wide};

/// Numbers of turns: none, less than a strip, whole strips, and some more.
const TURNS: [i32; 8] = [0, 1, 3, 4, 5, 8, 18, 35];

const ROW: Grid = Grid { offset: [0; 3], global: [48, 1, 1], group: [24, 1, 1] };

/// Small numbers of a type, so that floats are exact.
fn numbers(ty: &str, count: usize, by: usize) -> Input {
    let number = |i: usize| i * by % 61;
    Input::bytes(match ty {
        "float" => (0..count).flat_map(|i| (number(i) as f32).to_le_bytes()).collect(),
        "double" => (0..count).flat_map(|i| (number(i) as f64).to_le_bytes()).collect(),
        "char" => (0..count).map(|i| number(i) as u8).collect(),
        "short" => (0..count).flat_map(|i| (number(i) as u16).to_le_bytes()).collect(),
        "int" => (0..count).flat_map(|i| (number(i) as u32).to_le_bytes()).collect(),
        _ => (0..count).flat_map(|i| (number(i) as u64).to_le_bytes()).collect(),
    })
}

#[test]
fn rows_of_any_length_and_type() {
    for ty in ["char", "short", "int", "float", "long", "double"] {
        let module = wide(&format!(
            "kernel void rows(global {ty} *out, global {ty} *copy, global const {ty} *in,
                              global const {ty} *x, int n) {{
               int i = get_global_id(0);
               {ty} s = 0;
               for (int k = 0; k < n; k++) s = in[i * n + k] - s * x[k] / 64;
               for (int k = 0; k < n; k++) copy[i * n + k] = s + in[i * n + k];
               out[i] = s;
             }}"
        ));
        let run = |n| {
            let buffer = |by| numbers(ty, 48 * 35 + 8, by);
            (ROW, vec![buffer(0), buffer(0), buffer(7), buffer(11), int(n)])
        };
        same_in_all(&module, "rows", &TURNS.map(run));
    }
}

/// The forms of a loop's end, and of a row's place, each a kernel of its own.
const FORMS: [&str; 23] = [
    "for (int k = 0; k < n; k++) s = s * 3 + in[i * n + k];",
    "for (uint k = 0; k < (uint)n; k++) s = s * 3 + in[i * 37u + k];",
    "for (long k = 0; k < n; k++) s = s * 3 + in[i * 37l + k];",
    "for (int k = n; k > 0; k--) s = s * 3 + in[i * n + k];",
    "for (int k = n - 1; k >= 0; k--) s = s * 3 + in[i * 40 + k];",
    "for (int k = 0; k <= n; k++) s = s * 3 + in[i * 37 + k];",
    "for (int k = 3; k != n + 3; k++) s = s * 3 + in[i * n + k - 3];",
    "global const int *p = in + i * n; for (int k = n; k--;) s = s * 3 + *p++;",
    "global const int *p = in + i * n; do s = s * 3 + *p++; while (p[-1] < 0 || --n > 0);",
    "global const int *p = in + i * 40; for (int k = 0; k < n; k += 2) s = s * 3 + *p++;",
    "global const int *p = in + i * 40; for (int k = 5; k <= n; k += 3) s = s * 3 + *p++;",
    "global const int *p = in + i * 40; for (uint k = 5; k <= n; k += 3) s = s * 3 + *p++;",
    "global const int *p = in + i * 40; for (int k = n; k > 3; k -= 2) s = s * 3 + *p++;",
    "global const int *p = in + i * 40; for (int k = n; k >= 3; k -= 3) s = s * 3 + *p++;",
    "global const int *p = in + i * 40 + 36; for (long k = n; k >= 3; k -= 2) s = s * 3 + *p--;",
    // Places without a sign.
    "for (uint k = 0; k < n; k++) s = s * 3 + in[(uint)i * (uint)n + k];",
    "for (uint k = (uint)i * 40u, e = k + n; k != e; k++) s = s * 3 + in[k];",
    "for (uint k = (uint)i * n, e = k + n; k < e; k++) s = s * 3 + in[k] - in[k + 2];",
    // Rows that lie in no order, or are read with others.
    "for (int k = 0; k < n; k++) s = s * 3 + in[in[i] % 40 * 36 + k];",
    "for (int k = 0; k < n; k++) s = s * 3 + in[i * n + k] * in[k] - in[(47 - i) * n + k];",
    "for (int k = 0; k < n; k += 2) s = s * 3 + in[i * 40 + k] - in[i * 40 + k + 1];",
    // Items with other numbers of turns, or none.
    "if (i % 3) for (int k = 0; k < n; k++) s = s * 3 + in[i * n + k];",
    "for (int k = 0; k < (n + i) % 40; k++) s = s * 3 + in[i * n + k];",
];

#[test]
fn loops_count_and_end_in_many_ways() {
    let kernel = |(number, form): (usize, &str)| {
        format!(
            "kernel void form{number}(global int *out, global const int *in, int n) {{
               int i = get_global_id(0), s = i;
               {form}
               out[i] = s; }}"
        )
    };
    let text: String = FORMS.into_iter().enumerate().map(kernel).collect();
    // With less to compute, those whose ends differ would run one item at a time.
    let module = wide(&text.replace("s = s * 3", "s = (s ^ s << 7 ^ (s & 99)) * 3"));
    let run = |n| (ROW, vec![ints(48, |_| 0), ints(48 * 40 + 8, |i| i * 37 % 1009), int(n)]);
    for number in 0..FORMS.len() {
        same_in_all(&module, &format!("form{number}"), &TURNS.map(run));
    }
}

/// Stores that later turns may read, at every distance from what is read.
#[test]
fn accesses_of_a_strip_keep_their_order() {
    let module = wide(
        "kernel void copies(global int *io, int n, int from, int to) {
           global int *row = io + 100 * get_global_id(0);
           for (int k = 0; k < n; k++) row[to + k] = row[from + k] * 3 + k; }
         kernel void sums(global int *io, int n, int from, int to) {
           global int *row = io + 100 * get_global_id(0);
           for (int k = 0; k < n; k++) row[to] += row[from + k]; }
         kernel void two(global int *io, int n, int from, int to) {
           global int *row = io + 100 * get_global_id(0);
           for (int k = 0; k < n; k++) { row[from + k] = k * 5; row[to + k] += 7; } }
         kernel void after(global int *io, int n, int from, int to) {
           global int *row = io + 100 * get_global_id(0);
           int s = 0;
           for (int k = 0; k < n; k++) { row[to + k] = k * 5; s = s * 3 + row[from + k]; }
           row[99] = s; }
         kernel void backwards(global int *io, int n, int from, int to) {
           global int *row = io + 100 * get_global_id(0);
           for (int k = n - 1; k >= 0; k--) row[to + k] = row[from + k] * 3 + k; }
         kernel void across(global int *io, int n, int from, int to) {
           global int *row = io + 100 * get_global_id(0);
           for (int k = 0; k < n; k++) row[to + n - k] = row[from + k] * 3 + k; }
         kernel void behind(global int *io, int n, int from, int to) {
           global int *row = io + 100 * get_global_id(0);
           for (int k = 0; k < n; k++) { row[20 + k] = row[21 + k] * 3 + k; row[19 + k] += k; } }
         kernel void ahead(global int *io, int n, int from, int to) {
           global int *row = io + 100 * get_global_id(0);
           for (int k = 0; k < n; k++) row[23 + k] = row[20 + k] * 3 + k; }",
    );
    let run = |(n, distance): (i32, i32)| -> Run {
        let args = vec![ints(48 * 100, |i| i * 37 % 1009), int(n), int(40), int(40 + distance)];
        (ROW, args)
    };
    let distances = [-30, -9, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 7, 8, 20];
    let runs: Vec<Run> =
        distances.into_iter().flat_map(|by| [(8, by), (19, by)]).map(run).collect();
    for name in ["copies", "sums", "two", "after", "backwards", "across", "behind", "ahead"] {
        same_in_all(&module, name, &runs);
    }
}

/// How many elements are gathered or scattered one by one in the block in which all items' rows are loaded, and stored,
/// in neighbouring elements, if a kernel has such a one.
fn apart_in_strips(text: &str) -> Option<usize> {
    strips_of(text).into_iter().min()
}

/// The same for each such block.
fn strips_of(text: &str) -> Vec<usize> {
    let module = wide(text);
    let widened = widen::widen(&module, &module.kernels[0], 16).expect("it is widened");
    let function = &widened.module.functions[widened.function];
    let strip = |id: BlockId| {
        let ops = || function.blocks[id].insts.iter().map(|inst| &inst.op);
        let apart = ops().filter(|op| matches!(op, Op::Gather(..) | Op::Scatter(..))).count();
        let rows = ops().filter(|op| matches!(op, Op::Load(..) | Op::Store(..))).count();
        (rows >= 16 && ops().any(|op| matches!(op, Op::Phi(_)))).then_some(apart)
    };
    function.blocks.ids().filter_map(strip).collect()
}

fn has_strips(text: &str) -> bool {
    apart_in_strips(text) == Some(0)
}

#[test]
fn rows_are_loaded_in_strips() {
    let sum = "kernel void sum(global float *out, global const float *in, int n, int m) {
                 int i = get_global_id(0);
                 if (i >= m) return;
                 float s = 0;
                 for (int k = 0; k < n; k++) s += in[i * n + k];
                 out[i] = s; }";
    assert!(has_strips(sum));
    assert!(has_strips(&sum.replace("float", "uchar")));
    assert!(has_strips(&sum.replace("i * n", "i * 64")));
    assert!(has_strips(&sum.replace("int", "ulong")));
    assert!(has_strips(&sum.replace("int", "uint")));
    let scale = "kernel void scale(global float *out, global const float *in, int n) {
                   int i = get_global_id(0);
                   for (int k = 0; k < n; k++) out[i * n + k] = in[i * n + k] * 3; }";
    assert!(has_strips(scale));
    assert!(has_strips(&scale.replace("const float *in, int n", "float *in, int n")));
    assert!(!has_strips(
        &scale.replace("in[i * n + k]", "in[k * n + i]").replace("i * n + k", "k * n + i")
    ));
    // Items take turns of their own.
    let roots = sum.replace("in[i * n + k]", "sqrt(in[i * n + k])");
    assert!(has_strips(&roots));
    assert!(!has_strips(&roots.replace("k < n", "k < n + i")));
}

/// Turns that read what the turns before them have read, and what these have written.
#[test]
fn turns_have_elements_in_common() {
    for ty in ["uchar", "short", "int"] {
        let runs = format!(
            "kernel void k(global {ty} *out, global {ty} *in) {{
               int i = get_global_id(0);
               {ty} s = 0;
               for (int k = 1; k < 100; k++) s += (in[i * 128 + k] ^ in[i * 128 + k - 1]) & 3;
               out[i] = s; }}"
        );
        // Only that of the last turn before a strip.
        assert_eq!(apart_in_strips(&runs), Some(1), "{runs}");
        let three = runs.replace("& 3", "& in[i * 128 + k + 1]");
        assert_eq!(apart_in_strips(&three), Some(1), "{three}");
        let written = runs.replace("s += ", "s += in[i * 128 + k] = s * 5 + ");
        for text in [&runs, &three, &written] {
            let inputs = vec![numbers(ty, 48, 0), numbers(ty, 48 * 128, 7)];
            same_in_all(&wide(text), "k", &[(ROW, inputs)]);
        }
    }
}

/// Rows so far apart that their places are promised, as a product alone or with the counter.
#[test]
fn rows_lie_far_apart() {
    let forms = [
        "for (INT k = 0; k < 100; k++) s = s * 3 + in[i * FAR + k];",
        "for (INT k = 0; k < n; k++) s = s * 3 + in[i * FAR + k];",
        "global const int *row = in + i * FAR; for (INT k = 0; k < n; k++) s = s * 3 + row[k];",
        "global const int *row = in + i * m; for (INT k = 0; k < n; k++) s = s * 3 + row[k];",
        "global const int *p = in + i * FAR, *end = p + 100; while (p < end) s = s * 3 + *p++;",
    ];
    for (form, ty, far) in forms
        .iter()
        .flat_map(|form| ["int", "uint", "ulong"].map(|ty| (form, ty)))
        .flat_map(|(form, ty)| ["300", "1024"].map(|far| (form, ty, far)))
    {
        let text = "kernel void k(global int *out, global const int *in, INT n, INT m) {
                      INT i = get_global_id(0);
                      int s = 0;
                      FORM
                      out[i] = s; }"
            .replace("FORM", form)
            .replace("INT", ty)
            .replace("FAR", far);
        assert!(has_strips(&text), "{text}");
        let number = |number: i32| match ty {
            "ulong" => Input::Value(i64::from(number).to_le_bytes().to_vec()),
            _ => int(number),
        };
        let run = |n| {
            let buffers = vec![numbers("int", 48, 0), numbers("int", 48 * 1024, 7)];
            (ROW, [buffers, vec![number(n), number(far.parse().expect("a number"))]].concat())
        };
        same_in_all(&wide(&text), "k", &[0, 3, 100].map(run));
    }
}

/// Loops whose counters are bytes of a row, up to one that they reach or count down to, with some turns left behind the
/// last strip or none.
#[test]
fn bytes_are_counted() {
    for (first, last, step) in
        [(0, 128, 4_i32), (4, 128, 4), (8, 64, 8), (124, -4, -4), (60, 4, -4)]
    {
        let text = format!(
            "kernel void k(global int *out, global const int *in) {{
               size_t i = get_global_id(0);
               global const char *row = (global const char *)in + i * 128;
               int s = 1;
               #pragma clang loop unroll(disable)
               for (long k = {first}; k != {last}; k += {step})
                 s = (s ^ s << 7 ^ (s & 99) ^ s >> 3) * 3 + (s >> 9) + *(global const int *)(row + k);
               out[i] = s;
             }}"
        );
        let module = wide(&text);
        let inputs = vec![numbers("int", 48, 0), numbers("int", 48 * 32, 7)];
        same_in_all(&module, "k", &[(ROW, inputs)]);
        assert_eq!(has_strips(&text), step.abs() == 4, "{first} to {last} by {step}");
    }
}

/// Turns with branches: forms of a loop's body, the first ones with accesses that all turns make.
const BRANCHES: [&str; 18] = [
    // Conditions on the counter, that say where a row begins and ends.
    "s += r[k]; if (k >= 9) s -= r[k - 9] * 3; o[k] = s;",
    "s += r[k]; if (k < n - 9) s -= r[k + 9] * 3; o[k] = s;",
    "int x = r[k]; if (k < n / 2) s += x * r[k + n / 2]; else s ^= r[k - n / 2]; o[k] = s;",
    "s += r[k] * 3; if (k == n / 2) s = s / 5 + r[0] + i; o[k] = s;",
    "if (k & 1) s = s / 3 + r[k]; else t = s / (r[k] + 1); o[k] = s - t;",
    // On what was read.
    "int x = r[k]; if (x > 500) s += x * r[x % n] / 3; o[k] = s;",
    "int x = r[k]; if (x > 500) o[99] = s; else if (x > 100) s += w[x] / 3; s += x * x;",
    "int x = r[k]; if (w[k] > 500) { s += x; if (x & 1) s /= 3; else s /= 5; } o[k] = s + x;",
    "int x = r[k]; switch (x & 3) { case 0: s /= 3; break; case 1: s /= w[k] + 1; break; default: s += r[k / 2]; } o[k] = s;",
    // What may only be computed under a condition.
    "int x = r[k]; if (m != 0) s += w[k + 40 / m] * x; else s -= x; o[k] = s;",
    "s += r[k]; if (m != 0 && k + 40 / m > 30) s -= r[n - 1 - k] * 3; o[k] = s;",
    // Loops within.
    "int x = r[k]; for (int j = 0; j < (x & 3) + m; j++) s = s / 3 + x + j; o[k] = s;",
    "int x = r[k]; for (int j = 0; j < (x & 3); j++) { t += w[j + k]; if (t & 1) t += x; } o[k] = s += t;",
    "int x = r[k], j = 0; do { s += w[j] / 3; } while (++j < (x & 3)); o[k] = s;",
    "int x = r[k]; for (int j = 0; j < n; j++) s += r[j] * x; o[k] = s;",
    "int x = r[k], j = 0; do { s = s / 3 + o[k + m]; o[k] = s ^ x; } while (++j < (x & 3)); s += x;",
    // A row that few turns walk along, and stores of which the last one counts.
    "int x = w[k]; if (x > 500) s += r[k] / 3;",
    "int x = r[k]; o[k] = x; if (x > 500) o[k] = s / 3; s += x;",
];

#[test]
fn turns_have_branches() {
    let kernel = |(number, body): (usize, &str)| {
        format!(
            "kernel void form{number}(global int *out, global int *io, global const int *in,
                                      global const int *w, int n, int m) {{
               int i = get_global_id(0), s = i, t = 1;
               global const int *r = in + i * n;
               global int *o = io + i * 100;
               #pragma clang loop unroll(disable)
               for (int k = 0; k < n; k++) {{ {body} }}
               out[i] = s - t; }}"
        )
    };
    let numbers = |count, by: i32| ints(count, |i| i * by % 1009);
    for (number, body) in BRANCHES.into_iter().enumerate() {
        let text = kernel((number, body));
        // The last row ends with its buffer.
        let run = |(n, m): (i32, i32)| {
            let rows = numbers(48 * n.max(1), 37);
            let buffers = [ints(48, |_| 0), ints(4800, |_| 0), rows, numbers(1009, 11)];
            (ROW, [buffers.as_slice(), &[int(n), int(m)]].concat())
        };
        let runs: Vec<Run> = TURNS.into_iter().flat_map(|n| [(n, 0), (n, 2)]).map(run).collect();
        same_in_all(&wide(&text), &format!("form{number}"), &runs);
        let strips = !body.starts_with("int x = w");
        assert_eq!(apart_in_strips(&text).is_some(), strips, "{text}");
    }
}

/// Of loops within each other, the inner one is taken: it has more turns.
#[test]
fn inner_loops_are_taken() {
    let text = "kernel void k(global int *out, global const int *in, int n, int m) {
                  int i = get_global_id(0), s = 0;
                  global const int *r = in + i * n, *q = r;
                  for (int k = 0; k < n; k++) {
                    s = s / 3 + r[k];
                    for (int j = 0; j < m; j++) s += q[j] * s;
                    q += m; }
                  out[i] = s; }";
    assert_eq!(strips_of(text), [0]);
    let inputs = |n| vec![ints(48, |_| 0), ints(6000, |i| i * 37 % 1009), int(n), int(6)];
    same_in_all(&wide(text), "k", &TURNS.map(|n| (ROW, inputs(n))));
}

/// Several accesses to a row in different blocks of a loop, at all distances from a store: one test does for all.
#[test]
fn one_test_for_accesses_at_fixed_distances() {
    let text = "kernel void k(global int *io, int n, int from, int to) {
                  global int *row = io + 100 * get_global_id(0), *out = row + to;
                  row += from;
                  int s = 0;
                  #pragma clang loop unroll(disable)
                  for (int k = 0; k < n; k++) {
                    s += row[k + 3];
                    if (k > 8) s = s / 3 + row[k - 3];
                    s += row[k - 7] - row[k + 9] + row[k + 12] - row[k + 15];
                    out[k] = s; } }";
    let run = |(n, distance): (i32, i32)| -> Run {
        let args = vec![ints(48 * 100, |i| i * 37 % 1009), int(n), int(40), int(40 + distance)];
        (ROW, args)
    };
    let distances = (-20..=24).flat_map(|by| [(8, by), (19, by)]);
    same_in_all(&wide(text), "k", &distances.map(run).collect::<Vec<_>>());
    assert!(apart_in_strips(text).is_some());
}

/// A counter that moves by more than one, until it is a number that is only known at run time.
#[test]
fn counters_reach_a_number() {
    let text = "kernel void k(global int *out, global const int *in, int n) {
                  int i = get_global_id(0);
                  global const int *row = in + i * 40;
                  int s = 1;
                  for (int k = 12; k != n * 3 + 15; k += 3) s = s * 3 + *row++;
                  for (int k = n * 3 + 15; k != 12; k -= 3) s = s * 5 + *row++;
                  out[i] = s; }";
    assert!(has_strips(text));
    let inputs = |n| vec![numbers("int", 48, 0), numbers("int", 48 * 80, 7), int(n)];
    same_in_all(&wide(text), "k", &TURNS.map(|n| (ROW, inputs(n))));
}

/// Loops with a condition on their counter for accesses to rows, which are taken apart.
fn with_condition(ty: &str, loops: &[&str], condition: &str) -> String {
    let loops: String = loops
        .iter()
        .map(|head| {
            format!(
                "p = row; _Pragma(\"clang loop unroll(disable)\")
                 for ({ty} {head}) {{
                   s = s * 3 + *p;
                   if ({condition}) s -= p[9] / 3; else s ^= p[-9];
                   p++; }}"
            )
        })
        .collect();
    format!(
        "kernel void k(global int *out, global const int *in, int n, {ty} m) {{
           int i = get_global_id(0), s = i;
           global const int *row = in + i * 100 + 30, *p;
           {loops}
           out[i] = s; }}"
    )
}

#[test]
fn loops_are_taken_apart_at_conditions() {
    let loops = ["k = 0; k < n; k++", "k = n; k-- != 0; ", "k = 0; k < 3 * n; k += 3"];
    for (ty, op) in ["int", "uint"]
        .into_iter()
        .flat_map(|ty| ["<", "<=", ">", ">=", "==", "!="].map(|op| (ty, op)))
    {
        let text = with_condition(ty, &loops, &format!("k {op} m"));
        let strips = strips_of(&text);
        assert!(strips.len() >= 6 && strips.iter().all(|apart| *apart == 0), "{strips:?} {text}");
        let run = |(n, m): (i32, i32)| {
            let buffers = vec![ints(48, |_| 0), ints(4800, |i| i * 37 % 1009)];
            (ROW, [buffers, vec![int(n), int(m)]].concat())
        };
        let runs = [1, 6, 19, 35]
            .into_iter()
            .flat_map(|n| [i32::MIN, -1, 0, 1, 8, 9, n, 2 * n, i32::MAX].map(|m| (n, m)));
        same_in_all(&wide(&text), "k", &runs.map(run).collect::<Vec<_>>());
    }
}

/// A counter that wraps around, and conditions that change more than once.
#[test]
fn conditions_change_more_than_once() {
    let wraps =
        ["k = m; k != m + n; k++", "k = m; k != m - n; k--", "k = m; k != m + n * 5; k += 5"];
    let twice = ["k = 0; k < n; k++", "k = 0; k != n; k++", "k = n; k > 0; k--"];
    let texts = [
        with_condition("uint", &wraps, "k > 9"),
        with_condition("uint", &wraps, "k <= 0x80000003"),
        with_condition("int", &wraps, "k < 9"),
        with_condition("int", &wraps[..2], "k >= -9"),
        with_condition("uint", &twice, "k - 5 < 12"),
        with_condition("uint", &twice, "k - m < 12"),
        with_condition("int", &twice[..1], "k > 5 && k < n - 9"),
        with_condition("int", &twice[..1], "k < 6 || k == 19 || k == m"),
    ];
    for text in &texts {
        let run = |(n, m): (i32, i32)| {
            let buffers = vec![ints(48, |_| 0), ints(4800, |i| i * 37 % 1009)];
            (ROW, [buffers, vec![int(n), int(m)]].concat())
        };
        let runs = [1, 6, 19, 35]
            .into_iter()
            .flat_map(|n| [i32::MIN, i32::MAX - 13, -17, -1, 0, 1, 8].map(|m| (n, m)));
        same_in_all(&wide(text), "k", &runs.map(run).collect::<Vec<_>>());
        assert!(strips_of(text).len() >= 2, "{text}");
    }
}
