// SPDX-License-Identifier: MIT OR Apache-2.0
//! Neighbours whose places are limited: to those of a picture, to its other side, or to a mirror image. Vectors away
//! from edges have code of their own.

use std::fmt::Write;

use tally_compiler::ir::{Module, Op};
use tally_compiler::widen::widen;

use crate::diff::{Input, Random, Run, compare_at, same_in_all};
use crate::harness::{Grid, Kernel, buffer, clang, module, targets, value, widths};
use crate::programs::seeds;
use crate::widen::{int, ints, wide};

/// Ways to keep the place `C` within `N` places, if it is at most `N` places outside.
const LIMITS: [&str; 12] = [
    "clamp(C, 0, N - 1)",
    "min(max(C, 0), N - 1)",
    "max(min(C, N - 1), 0)",
    "(C < 0 ? 0 : C >= N ? N - 1 : C)",
    "(C < 0 ? -(C) : C >= N ? 2 * N - 2 - (C) : C)",
    "(N - 1 - (int)abs(N - 1 - (int)abs(C)))",
    "((C + N) % N)",
    "((int)((uint)(C + N) % (uint)N))",
    "(C < 0 ? C + N : C >= N ? C - N : C)",
    "(int)min((uint)max(C, 0), (uint)N - 1)",
    "(C == -1 ? 0 : C == N ? N - 1 : clamp(C, 0, N - 1))",
    "(int)min(sub_sat((ulong)max(C, 0) + 1, (ulong)1), (ulong)(N - 1))",
];

/// Loops over a window around a place, with the expression of the distance.
const WINDOWS: [(&str, &str); 9] = [
    ("for (int i = -r; i <= r; i++)", "i"),
    ("for (int i = 0; i < 2 * r + 1; i++)", "i - r"),
    ("for (int i = r; i >= -r; i--)", "i"),
    ("for (long i = -r; i < r; i++)", "(int)i"),
    ("for (uint i = 0; i != r + 1; i++)", "2 * (int)i - r"),
    ("for (int i = -1; i < 2; i++)", "i"),
    ("for (int i = -r; i <= r; i++)", "i * s"),
    ("for (int i = r; i >= -r; i--)", "(s == 1 ? 2 * i : 0)"),
    ("for (int i = -1; i < r; i++)", "(s > 0 ? i : -3 * i)"),
];

/// A kernel that sums up such neighbours.
fn text(random: &mut Random) -> String {
    let of =
        |random: &mut Random, all: &[&'static str]| all[random.below(all.len() as u64) as usize];
    let ty = of(random, &["int", "int", "uchar", "short", "long", "uchar4"]);
    let convert = if ty == "uchar4" { "convert_int4" } else { "convert_int" };
    let sum = if ty == "uchar4" { "int4" } else { "int" };
    let mut text = format!(
        "kernel void near(global {sum} *out, global const {ty} *in, int w, int h, int r, int s) {{
           int x = get_global_id(0), y = get_global_id(1);
           {sum} a = 0;\n"
    );
    if random.below(3) == 0 {
        text += "if (x >= w || y >= h - 1) return;\n";
    }
    for _ in 0..1 + random.below(3) {
        let (head, distance) = match random.below(2) {
            0 => WINDOWS[random.below(WINDOWS.len() as u64) as usize],
            _ => ("", of(random, &["-1", "1", "2", "-3", "0", "s", "-r", "x % 3"])),
        };
        // The distance may be anything.
        let ways = if distance.contains('s') { &LIMITS[..4] } else { &LIMITS[..] };
        let mut place = |size: &str, name: &str| {
            let by = if random.below(2) == 0 { distance } else { of(random, &["0", "1", "-2"]) };
            (by, of(random, ways).replace('C', name).replace('N', size))
        };
        let ((right, x), (down, y)) = (place("w", "p.x"), place("h", "p.y"));
        let p = match random.below(3) {
            0 => format!("struct {{ int x, y; }} p = {{ x + {right}, y + {down} }}"),
            1 => format!("int2 p = (int2)(x, y) + (int2)({right}, {down})"),
            _ => format!("int4 p = (int4)(x, y, 0, 1) + (int4)({right}, {down}, x, 2)"),
        };
        writeln!(text, "{head} {{ {p}; a = a * 3 + {convert}(in[{y} * w + {x}]); }}").unwrap();
    }
    text + "out[y * w + x] = a; }"
}

/// Rows and columns of several lengths; windows that are empty, and distances that make numbers wrap around.
fn runs(random: &mut Random) -> Vec<Run> {
    let bytes = |random: &mut Random, n: i32| {
        Input::bytes((0..n).map(|_| random.below(256) as u8).collect())
    };
    let sizes = [(64, 5, [32, 1, 1]), (97, 6, [16, 2, 1]), (18, 9, [20, 3, 1]), (7, 5, [8, 1, 1])];
    let (w, h, group) = sizes[random.below(4) as usize];
    let distances = [0, 1, -3, 0x7fff_fff0, -0x7fff_fff8, -20];
    (0..2)
        .map(|_| {
            let grid = Grid { offset: [0; 3], global: [w as u64, h as u64, 1], group };
            let (r, s) = (random.below(4) as i32 - 1, distances[random.below(6) as usize]);
            let (out, from) = (ints(w * h * 4, |_| -1), bytes(random, w * h * 8));
            (grid, vec![out, from, int(w), int(h), int(r.max(0)), int(s)])
        })
        .collect()
}

#[test]
fn neighbours_near_edges_agree() {
    for seed in seeds(24) {
        let mut random = Random::new(seed + 7_000);
        let text = text(&mut random);
        let level = ["-O2", "-O0", "-O2"][(seed % 3) as usize];
        let module = module(&clang::compile_text(&text, &[level, "-w"]));
        let runs = runs(&mut random);
        compare_at(&widths(), &module, "near", &runs)
            .unwrap_or_else(|how| panic!("seed {seed} at {level}: {how}\n{text}"));
    }
}

/// One-sided limits, in rows whose numbers wrap around, and with windows of no turns, of one, and of many.
#[test]
fn limits_of_one_side() {
    let module = wide(
        "kernel void lower(global int *out, global const int *in, int s) {
           int x = get_global_id(0);
           out[x] = in[(uint)max(x + s, -5) % 61u] + in[max(x - 3, 0)] * 3; }
         kernel void upper(global int *out, global const int *in, int s) {
           uint x = get_global_id(0);
           out[x] = in[min(x + s, 60u)] + in[min(x + 3, 60u)] * 3; }
         kernel void window(global int *out, global const int *in, int s) {
           int x = get_global_id(0), a = 0;
           for (int i = 0; i < s; i++) a = a * 3 + in[max(x - i, 0)];
           out[x] = a; }
         kernel void wraps(global int *out, global const int *in, int s) {
           int x = get_global_id(0), a = 0;
           for (int i = s; i != s + 3; i++) a = a * 3 + in[clamp(x + 0x40000000 * i, 0, 60)];
           for (int i = 0; i != 40; i++) a = a * 3 + in[clamp(x + s - 512 * i, 0, 60)];
           out[x] = a; }",
    );
    let run =
        |s: i32| (Grid::line(61, 61), vec![ints(61, |_| -1), ints(61, |i| i * 37 % 101), int(s)]);
    let runs = [0, 1, 2, 17, -4, 0x7fff_fff0, -0x7fff_fff8].map(run);
    for name in ["lower", "upper", "wraps"] {
        same_in_all(&module, name, &runs);
    }
    same_in_all(&module, "window", &runs[..5]);
}

/// Loops of which vectors may seem to be away from edges in the first turn and in the last one, but are not in between:
/// places that wrap around, places that do not grow by the same amount in each turn, and limits that differ between turns.
/// Each with its loop and its arguments `n`, `s` and `t`.
const BETWEEN: [(&str, &str, [i32; 3]); 25] = [
    // All of 2^32 in four, eight and sixteen turns.
    (UP, "clamp(x + i * s, 0, 95)", [5, 1 << 30, 0]),
    (UP, "clamp(x - i * s, 0, 95)", [5, 1 << 30, 0]),
    (UP, "clamp(x + s * i, 0, 95)", [5, -1 << 30, 0]),
    (UP, "clamp(x + i * 4 * s, 0, 95)", [9, 1 << 27, 0]),
    (UP, "clamp(s * i - t * i + x, 0, 95)", [17, 1 << 28, 0]),
    ("for (long i = 0; i < n; i++)", "clamp(x + (int)(i * s), 0, 95)", [5, -1 << 30, 0]),
    (UP, "clamp(x + i * 0x40000000, 0, 95)", [5, 0, 0]),
    (UP, "clamp(x + (s == 1 ? i * 0x40000000 : 0), 0, 95)", [5, 1, 0]),
    ("for (int i = 0, k = 0; i < n; i++, k += 0x40000000)", "clamp(x + k, 0, 95)", [5, 0, 0]),
    // From above 2^31 - 100 to the numbers below it with the other sign, and back.
    (UP, "max(x + s + i * t, -0x7fffff9c)", [4, ABOVE, 60]),
    (UP, "max(x + s + i * 60, -0x7fffff9c)", [4, ABOVE, 0]),
    (UP, "max(x + s + (t == 1 ? i * 60 : -i), -0x7fffff9c)", [4, ABOVE, 1]),
    (UP, "min(i * t - s - x, 0x7fffff9b)", [4, ABOVE, -60]),
    (UP, "min(i * -60 - s - x, 0x7fffff9b)", [4, ABOVE, 0]),
    (UP, "min(0 - s - x - i * 60, 0x7fffff9b)", [4, ABOVE, 0]),
    (UP, "min((t == 1 ? i : i * -60) - s - x, 0x7fffff9b)", [4, ABOVE, 0]),
    ("for (int i = 0; i > -n; i--)", "min(i * 60 - s - x, 0x7fffff9b)", [4, ABOVE, 0]),
    // The same for numbers without a sign.
    (UP, "max((uint)(x - 100 + i * 60), 100u)", [4, 0, 0]),
    (UP, "max((uint)(x + i * s), 50u)", [4, -40, 0]),
    // A place that does not grow by the same amount in each turn.
    (UP, "clamp(x + i * (i - 8) * 8, 0, 95)", [9, 0, 0]),
    (UP, "clamp(x + (i & 1) * 200, 0, 95)", [3, 0, 0]),
    (UP, "clamp(x + (i == 1 ? 200 : 0), 0, 95)", [3, 0, 0]),
    // It is the greatest of two, of which the first one is the place at the beginning, and the other one at the end.
    (UP, "max(max(x - 16 * i, 16 * i - 120), 0)", [11, 0, 0]),
    // The test of the loop has a turn more than its body.
    ("for (int i = 0; out[x] = a ^= in[clamp(x + i, 0, 95)], i < n; i++)", "x + i", [33, 0, 0]),
    // A limit that differs.
    (UP, "min(x + i, 96 - (i & 1) * 96)", [3, 0, 0]),
];

const UP: &str = "for (int i = 0; i < n; i++)";

/// A place of which 32 more are below 2^31.
const ABOVE: i32 = i32::MAX - 100;

#[test]
fn turns_between_the_first_and_the_last_one_agree() {
    for (head, place, args) in BETWEEN {
        let text = format!(
            "kernel void k(global int *out, global const int *in, int n, int s, int t) {{
               int x = get_global_id(0), a = in[max(x - 1, 0)];
               {head} a = a * 3 + in[({place}) & 127];
               out[x] = a; }}"
        );
        // clang's optimiser makes numbers that grow of products.
        let module = module(&clang::compile_text(&text, &["-O0", "-w"]));
        let (tests, loads) = gathers_of(&module);
        assert!(loads > tests, "{place}: there is no code for vectors away from edges");
        let mut inputs = vec![ints(96, |_| -1), ints(128, |i| i * 37 % 101)];
        inputs.extend(args.map(int));
        compare_at(&widths(), &module, "k", &[(Grid::line(96, 96), inputs)])
            .unwrap_or_else(|how| panic!("{head} {place}: {how}"));
    }
}

/// A loop of so many turns that a place wraps around. It is odd, and the limit is even, which counts the turns at the edge.
#[test]
fn many_turns_agree() {
    let module = module(&clang::compile_text(
        "kernel void k(global int *out, global const int *in, int n, int s) {
           int i = get_global_id(0), x = 2 * i + 1, a = in[max(i - 1, -1) + 1];
           for (int k = 0; k < n; k++) a += in[max(x + k * 8 * s, -0x7ff00000) & 1];
           out[i] = a; }",
        &["-O0", "-w"],
    ));
    let (tests, loads) = gathers_of(&module);
    assert!(loads > tests, "there is no code for vectors away from edges");
    let turns = (1 << 22) + 4096;
    let limited = |i: i32| {
        let at = |k: i32| (2 * i + 1).wrapping_add(k.wrapping_mul(512));
        (i + 1) % 2 + (0..turns).filter(|&k| at(k) < -0x7ff0_0000).count() as i32
    };
    let expected: Vec<i32> = (0..32).map(limited).collect();
    for target in targets() {
        let (mut out, mut from) = ([0; 32], [[1, 0]; 16]);
        let args = vec![buffer(&mut out), buffer(&mut from), value(turns), value(64)];
        Kernel::new(&module, "k", &target).run(Grid::line(32, 32), args);
        assert_eq!(out.to_vec(), expected, "{}", target.name);
    }
}

/// The gathers in the code for vectors away from edges: behind the first branch.
fn gathers_inside(body: &str) -> (usize, usize) {
    let module = wide(&format!(
        "kernel void k(global float *out, global const float *in, int w, int h, int r) {{
           int x = get_global_id(0), y = get_global_id(1);
           {body} }}"
    ));
    gathers_of(&module)
}

/// The tests whether elements are in line, and the loads, of a kernel.
fn gathers_of(module: &Module) -> (usize, usize) {
    let widened = widen(module, &module.kernels[0], 16).unwrap();
    let function = &widened.module.functions[widened.function];
    let insts = || function.blocks.iter().flat_map(|(_, block)| &block.insts);
    let count = |of: &dyn Fn(&Op) -> bool| insts().filter(|inst| of(&inst.op)).count();
    (count(&|op| matches!(op, Op::InLine(..))), count(&|op| matches!(op, Op::Load(..))))
}

/// Each access of the kernel that is not in line stays once, in the code for vectors at edges; in the other code it is
/// a load.
#[test]
fn vectors_away_from_edges_have_code_of_their_own() {
    for body in [
        "out[y * w + x] = in[y * w + max(x - 1, 0)] + in[y * w + min(x + 1, w - 1)];",
        "out[x] = in[x == 0 ? w - 1 : x - 1] + in[x == w - 1 ? 0 : x + 1];",
        "out[x] = in[(x + w - 1) % w] + in[(x + 1) % w];",
        "out[y * w + x] = in[y * w + (x > 0 ? x - 1 : x)] + in[y * w + (x < w - 1 ? x + 1 : x)];",
        "out[x] = in[abs(x - 1)] + in[x + 1 >= w ? 2 * w - x - 3 : x + 1];",
        // Places in vectors.
        "int2 at = (int2)(x, y), a = at + (int2)(-1, 1), b = at + (int2)(1, 2);
         out[y * w + x] = in[a.y * w + max(a.x, 0)] + in[b.y * w + min(b.x, w - 1)];",
        "int4 at = (int4)(x, y, 0, 0), a = max(at - 1, 0), b = min(at + r, w - 1);
         out[y * w + x] = in[a.y * w + a.x] + in[b.y * w + b.x];",
    ] {
        let (tests, loads) = gathers_inside(body);
        assert_eq!((tests, loads), (2, 4), "{body}");
    }
    for turn in [
        "a += in[clamp(x + i, 0, w - 1)];",
        "a += in[clamp(x + (h == 1 ? i : 0), 0, w - 1)];",
        "int2 p = (int2)(x, y) + i * (int2)(h, 2); a += in[p.y * w + clamp(p.x, 0, w - 1)];",
    ] {
        let (tests, loads) = gathers_inside(&format!(
            "float a = 0; for (int i = -r; i <= r; i++) {{ {turn} }}
             out[x] = a;",
        ));
        assert_eq!((tests, loads), (1, 2), "{turn}");
    }
    // What is read decides: not known in front.
    let (tests, _) = gathers_inside("out[x] = in[clamp(x + (int)in[x], 0, w - 1)];");
    assert_eq!(tests, 0);
}
