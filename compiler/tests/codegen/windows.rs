// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loops over windows whose ends are limited: each item counts from one place of its own to another one. Away from edges,
//! all items of a vector have as many turns.

use tally_compiler::ir::Op;
use tally_compiler::widen::widen;

use crate::diff::{Input, Random, Run, compare_at, same_in_all};
use crate::harness::{Grid, clang, module, widths};
use crate::programs::seeds;
use crate::widen::{int, ints, wide};

/// The lower end of a window around `C`, and the upper one, in a row of `N`.
const LOWER: [&str; 5] = [
    "max(C - r, 0)",
    "(C - r < 0 ? 0 : C - r)",
    "(int)sub_sat((uint)C, (uint)r)",
    "C - r",
    "max(0, C - s)",
];
const UPPER: [&str; 5] = [
    "min(C + r, N - 1)",
    "(C + r >= N ? N - 1 : C + r)",
    "(int)min((uint)C + (uint)r, (uint)N - 1)",
    "C + r",
    "min(N - 1, C + s)",
];

/// Loops from `L` to `U`, with `T` for the counter's type.
const LOOPS: [&str; 7] = [
    "for (T i = L; i <= U; i++)",
    "for (T i = L; i < U + 1; i++)",
    "for (T i = L; i != (T)(U + 1); i++)",
    "for (T i = U; i >= (T)L; i--)",
    "for (T i = (T)(U + 1); i-- > (T)L;)",
    "T i = L; if (i <= (T)U) for (T n = (T)U + 1 - i; n != 0; n--, i++)",
    "T i = L - 1; while (++i <= (T)U)",
];

/// What is done with each number of a window.
const TURNS: [&str; 4] = [
    "a = a * 3 + P;",
    "a = a * 3 + P * (int)(i - (x - r)); m++;",
    "if (P > 90) break; a += P;",
    "if (i == (T)x) continue; a = max(a, (int)P);",
];

fn text(random: &mut Random) -> String {
    let of =
        |random: &mut Random, all: &[&'static str]| all[random.below(all.len() as u64) as usize];
    // A counter without a sign never is below zero.
    let ty = of(random, &["int", "int", "long", "uint", "size_t"]);
    let loops = if matches!(ty, "uint" | "size_t") { &LOOPS[..3] } else { &LOOPS[..] };
    let head = of(random, loops);
    let ends = match ty {
        "uint" | "size_t" => 3,
        // A window from `x + 1` to `x - 1` has no end that is equal.
        _ if head.contains("!= (T)") => 4,
        _ => 5,
    };
    let element = of(random, &["int", "uchar", "short", "long"]);
    let row = random.below(2) == 0;
    let head = head
        .replace('L', of(random, &LOWER[..ends]))
        .replace('U', of(random, &UPPER[..ends]))
        .replace('C', "x")
        .replace('N', "w")
        .replace('T', ty);
    let turn = of(random, &TURNS).replace('T', ty);
    let (around, place) = match row {
        true => ("", "in[y * w + i]"),
        false => ("for (int j = max(y - 1, 0); j <= min(y + 1, h - 1); j++)", "in[j * w + i]"),
    };
    let turn = turn.replace('P', place);
    let guard = of(random, &["", "", "if (x >= w - 3) return;", "if (y & 1)"]);
    format!(
        "kernel void near(global int *out, global const {element} *at, int w, int h, int r, int s) {{
           int x = get_global_id(0), y = get_global_id(1);
           int a = 0, m = 0;
           global const {element} *in = at + 64;
           {guard} {{ {around} {{ {head} {{ {turn} }} }} }}
           out[y * w + x] = a + m; }}"
    )
}

/// Rows and columns of several lengths; windows of no numbers, of one, and of a whole row.
fn runs(random: &mut Random) -> Vec<Run> {
    let sizes = [(64, 5, [32, 1, 1]), (97, 6, [16, 2, 1]), (18, 9, [20, 3, 1]), (7, 5, [8, 1, 1])];
    let (w, h, group) = sizes[random.below(4) as usize];
    (0..2)
        .map(|_| {
            let grid = Grid { offset: [0; 3], global: [w as u64, h as u64, 1], group };
            let r = random.below(5) as i32;
            let s = [r, 0, -1, 5, 0x7fff_ff00][random.below(5) as usize];
            let bytes = (0..(w * h + 128) * 8).map(|_| random.below(100) as u8).collect();
            let out = ints(w * h, |_| -1);
            (grid, vec![out, Input::bytes(bytes), int(w), int(h), int(r), int(s)])
        })
        .collect()
}

#[test]
fn windows_agree() {
    for seed in seeds(32) {
        let mut random = Random::new(seed + 41_000);
        let text = text(&mut random);
        let level = ["-O2", "-O1", "-O2"][(seed % 3) as usize];
        let module = module(&clang::compile_text(&text, &[level, "-w"]));
        let runs = runs(&mut random);
        compare_at(&widths(), &module, "near", &runs)
            .unwrap_or_else(|how| panic!("seed {seed} at {level}: {how}\n{text}"));
    }
}

/// Windows that end at the greatest number, or begin at the least one, and empty ones, which have no turns.
#[test]
fn ends_of_numbers() {
    let module = wide(
        "kernel void up(global int *out, int first, int last) {
           int x = get_global_id(0), n = 0;
           for (int i = x + first; i <= x + last; i++) if (++n > 20) break;
           out[x] = n; }
         kernel void up_before(global int *out, int first, int last) {
           int x = get_global_id(0), n = 0;
           for (int i = x + first; i < x + last; i++) if (++n > 20) break;
           out[x] = n; }
         kernel void down(global int *out, int first, int last) {
           int x = get_global_id(0), n = 0;
           for (int i = x + last; i >= x + first; i--) if (++n > 20) break;
           out[x] = n; }
         kernel void unsigned_up(global int *out, uint first, uint last) {
           uint x = get_global_id(0), n = 0;
           for (uint i = x + first; i <= x + last; i++) if (++n > 20) break;
           out[x] = n; }
         kernel void exactly(global int *out, int first, int last) {
           int x = get_global_id(0), n = 0;
           for (int i = x + first; i != x + last; i++) if (++n > 20) break;
           out[x] = n; }",
    );
    let ends = [(0, 5), (3, 2), (4, 4), (5, 0), (-4, 0), (-40, -38)];
    let at =
        |from: i32| ends.map(|(first, last)| (from.wrapping_add(first), from.wrapping_add(last)));
    // Of the first numbers, 64 are left to either side.
    let starts = [0, -20, i32::MAX - 66, i32::MIN + 41, i32::MAX, i32::MAX - 40];
    let runs: Vec<Run> = starts
        .iter()
        .flat_map(|&from| at(from))
        .map(|(first, last)| (Grid::line(64, 32), vec![ints(64, |_| -1), int(first), int(last)]))
        .collect();
    for name in ["up", "up_before", "down", "unsigned_up", "exactly"] {
        same_in_all(&module, name, &runs);
    }
}

/// How many gathers and loads a kernel has.
fn accesses(body: &str) -> (usize, usize) {
    let module = wide(&format!(
        "kernel void k(global float *out, global const float *in, int w, int h, int r) {{
           int x = get_global_id(0), y = get_global_id(1);
           float a = 0;
           {body}
           out[y * w + x] = a; }}"
    ));
    let widened = widen(&module, &module.kernels[0], 16).unwrap();
    let function = &widened.module.functions[widened.function];
    let insts = || function.blocks.iter().flat_map(|(_, block)| &block.insts);
    let count = |of: &dyn Fn(&Op) -> bool| insts().filter(|inst| of(&inst.op)).count();
    (count(&|op| matches!(op, Op::Gather(..))), count(&|op| matches!(op, Op::Load(..))))
}

/// Away from edges, the numbers of a window are loads without a mask.
#[test]
fn windows_are_loads_away_from_edges() {
    for body in [
        "for (int i = max(x - r, 0); i <= min(x + r, w - 1); i++) a += in[y * w + i];",
        "int first = max(x - r, 0), last = min(x + r, w - 1);
         for (int j = max(y - r, 0); j <= min(y + r, h - 1); j++)
           for (int i = first; i <= last; i++) a += in[j * w + i];",
        "for (int i = min(x + r, w - 1); i >= max(x - r, 0); i--) a = a * 0.5f + in[y * w + i];",
        "for (uint i = sub_sat((uint)x, (uint)r); i < min((uint)(x + r + 1), (uint)w); i++) a += in[i];",
        "for (size_t i = sub_sat((size_t)x, (size_t)r); i < min((size_t)(x + r + 1), (size_t)w); i++)
           a += in[i];",
    ] {
        assert_eq!(accesses(body), (1, 1), "{body}");
    }
    // Nothing is limited, but the loop ran under a mask.
    let (gathers, loads) = accesses("for (int i = x - r; i <= x + r; i++) a += in[i];");
    assert_eq!((gathers, loads), (0, 1));
}
