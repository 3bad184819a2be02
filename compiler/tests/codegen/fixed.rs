// SPDX-License-Identifier: MIT OR Apache-2.0
//! Places at distances that are constants, though not in line. The buffers begin and end at inaccessible pages.

use tally_compiler::widen::widen;

use crate::diff::{Input, Random, same};
use crate::harness::Grid;
use crate::programs::seeds;
use crate::widen::{int, ints, wide};

type Part = (&'static str, fn(i64) -> i64);

/// What is made of a local id.
const PARTS: [Part; 14] = [
    ("0", |_| 0),
    ("(l & 7)", |l| l & 7),
    ("(l % 4)", |l| l % 4),
    ("(l >> 3)", |l| l >> 3),
    ("(l / 4)", |l| l / 4),
    ("(l ^ 4)", |l| l ^ 4),
    ("(l ^ 21)", |l| l ^ 21),
    ("(l | 3)", |l| l | 3),
    ("(63 - l % 16)", |l| 63 - l % 16),
    ("((l & 1) * 8 + ((l & 15) >> 1))", |l| (l & 1) * 8 + ((l & 15) >> 1)),
    ("(l / 8 * 9 + l % 8)", |l| l / 8 * 9 + l % 8),
    ("((l << 4 & 192) | (l & 3))", |l| (l << 4 & 192) | (l & 3)),
    ("(l & ~12)", |l| l & !12),
    ("(l % 6)", |l| l % 6),
];

/// Parts that give each item of a group its own place.
const APART: [Part; 6] = [
    ("(l ^ 5)", |l| l ^ 5),
    ("(l / 8 * W + l % 8)", |_| 0),
    ("(l % 8 * W + l / 8)", |_| 0),
    ("(l / 4 * 16 + (3 - l % 4))", |l| l / 4 * 16 + 3 - l % 4),
    ("((l & ~15) | (l & 1) << 3 | (l & 15) >> 1)", |l| (l & !15) | (l & 1) << 3 | (l & 15) >> 1),
    ("(l / 16 * 17 + l % 16)", |l| l / 16 * 17 + l % 16),
];

const GROUP: i64 = 64;
const GROUPS: i64 = 3;

#[test]
fn fixed_places_agree() {
    for seed in seeds(60) {
        let mut random = Random::new(seed + 91_000);
        let mut of = |n: usize| random.below(n as u64) as usize;
        let (ty, value, bytes) = [
            ("uchar", "X", 1),
            ("ushort", "X", 2),
            ("int", "X", 4),
            ("long", "X", 8),
            ("int2", "(X.x * 3 + X.y)", 8),
            ("int4", "(X.x * 3 + X.y ^ X.z - X.w)", 16),
        ][of(6)];
        let id = ["int", "uint", "ulong", "long"][of(4)];
        let (w, is_argument) = ([1, 8, 9, 64, 0][of(5)], of(2) == 0);
        let by = if is_argument { "w".to_owned() } else { w.to_string() };
        let (b, local) = (of(40) as i64, of(3) == 0);
        let mut reads = String::new();
        let mut last = 0;
        for _ in 0..3 {
            let ((p, at), (q, to)) = (PARTS[of(PARTS.len())], PARTS[of(PARTS.len())]);
            let least = if local { 0 } else { b };
            let most = (0..GROUP).map(|l| least + at(l) * w + to(l)).max().unwrap_or(0);
            last = last.max(most);
            let from = if local { "t[" } else { "in[b + g + " };
            let read = format!("{from}{p} * ({id}){by} + {q}]");
            reads += &format!("s = s * 5 + {};\n", value.replace('X', &read));
        }
        let (apart, to) = APART[of(APART.len())];
        let out_w = 8 + of(4) as i64;
        let apart = apart.replace('W', "v");
        let place = |l: i64| match apart.as_str() {
            "(l / 8 * v + l % 8)" => l / 8 * out_w + l % 8,
            "(l % 8 * v + l / 8)" => l % 8 * out_w + l / 8,
            _ => to(l),
        };
        let room = (0..GROUP).map(place).max().unwrap_or(0) + 1;
        let count = last + 1 + if local { 0 } else { (GROUPS - 1) * 5 };
        let fill = "for (int k = get_local_id(0); k < c; k += get_local_size(0)) t[k] = in[k];
                    barrier(CLK_LOCAL_MEM_FENCE);";
        let fill = if local { fill } else { "" };
        let text = format!(
            "kernel void k(global int *out, global const {ty} *in, local {ty} *t, int c, {id} w, {id} b, {id} v) {{
               {id} l = get_local_id(0), g = get_group_id(0) * 5; int s = 1;
               {fill}
               {reads}
               out[get_group_id(0) * {room} + {apart}] = s; }}"
        );
        let module = wide(&text);
        let number = |x: i64| match id {
            "ulong" | "long" => Input::Value(x.to_le_bytes().to_vec()),
            _ => int(x as i32),
        };
        let inputs = [
            ints((room * GROUPS) as i32, |_| -1),
            Input::bytes((0..count * bytes).map(|i| (i * 37 % 101) as u8).collect()),
            Input::Local((count * bytes) as usize),
            int(count as i32),
            number(w),
            number(b),
            number(out_w),
        ];
        let grid = Grid::line((GROUP * GROUPS) as u64, GROUP as u32);
        same(&module, "k", grid, &inputs, &format!("seed {seed}\n{text}"));
    }
}

/// A kernel's text once it is widened.
fn widened(attributes: &str, body: &str, lanes: u32) -> String {
    let text = format!(
        "{attributes} kernel void k(global float *out, global const float *in, int w) {{ {body} }}"
    );
    let module =
        crate::harness::module(&crate::harness::clang::compile_text(&text, &["-O2", "-w"]));
    let widened = widen(&module, &module.kernels[0], lanes).expect("a plain kernel");
    widened.module.function_text(widened.function).to_string()
}

/// Rows that items share, parts of rows, and rows in another order are loaded and stored as vectors.
#[test]
fn stretches_are_vectors() {
    let id = "int l = get_local_id(0); size_t g = get_group_id(0) * 64;";
    let of = |reads: &str| widened("", &format!("{id} {reads}"), 16);
    let shared = of("out[g + l] = in[g + (l & 7)];");
    assert!(shared.contains("f32x8 = load"), "{shared}");
    // No index may wrap around.
    assert!(!shared.contains("gather") && !shared.contains("in_line"), "{shared}");
    let rows = of("out[g + l] = in[(l >> 3) * w + (l & 7)];");
    assert_eq!(rows.matches("f32x8 = load").count(), 2, "{rows}");
    let other = of("out[g + (l ^ 3)] = in[g + l];");
    assert!(!other.contains("scatter") && !other.contains("in_line"), "{other}");
    // Eight rows of 16 items are too many.
    let many = of("out[g + l] = in[g + l / 2 * 100 + l % 2];");
    assert!(many.contains("gather"), "{many}");
    // Those of a few elements for each item are transposed.
    let own = of("out[g + l] = in[4 * l & ~3] + in[4 * l & ~3 | 1] + in[4 * l & ~3 | 3];");
    assert!(!own.contains("f32x13"), "{own}");
    // The id of an item in its sub-group is a constant.
    let attributes = "__attribute__((intel_reqd_sub_group_size(32)))";
    let sixths = "out[get_global_id(0)] = in[get_sub_group_local_id() % 6u];";
    let sixths = widened(attributes, sixths, 32);
    assert!(sixths.contains("f32x6 = load") && !sixths.contains("gather"), "{sixths}");
}

/// Numbers of 32 bits may wrap around between the items of a vector, which a comparison tells.
#[test]
fn a_test_says_whether_indices_wrap_around() {
    for (ty, test) in [("int", "sle"), ("uint", "ule")] {
        let body =
            format!("{ty} l = get_local_id(0), b = w; out[get_global_id(0)] = in[b + (l & 7)];");
        let text = widened("", &body, 16);
        assert!(text.contains(&format!("bool = {test} ")) && text.contains("gather"), "{text}");
        assert!(text.contains("f32x8 = load"), "{text}");
    }
}
