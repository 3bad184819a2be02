// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows whose accesses have others in between, in memory that may be the same: random kernels, with views of one buffer
//! that overlap within the rows of an item, or not at all.

use std::fmt::Write;

use tally_compiler::ir::{ConvertOp, Op};
use tally_compiler::widen;

use crate::diff::{Input, Random, Run, same, same_at, same_in_all};
use crate::harness::{Grid, clang, module, widths};
use crate::programs::seeds;
use crate::widen::{int, ints, wide};

const ITEMS: u64 = 96;
/// The elements of an item's row, and those that a kernel accesses in a view of it: both ends of all views are in the row.
const ROW: u64 = 12;
const USED: u64 = 6;

/// A kernel that reads and writes elements of its rows in three views, in any order.
fn text(random: &mut Random, ty: &str) -> String {
    let mut text = format!(
        "kernel void k(global {ty} *out, global {ty} *v0, global const {ty} *u, int d1, int d2) {{
           size_t i = get_global_id(0);
           global {ty} *v1 = v0 + d1, *v2 = v0 + d2;
           {ty} t = i, r0 = 1, r1 = 2, r2 = 3;\n"
    );
    // Most kernels access neighbours one after the other, as loops do.
    let in_order = random.below(3) > 0;
    for step in 0..6 + random.below(14) {
        let (view, at) = (random.below(3), random.below(USED));
        let at = if in_order { step / 2 % USED } else { at };
        let (r, place) = (random.below(3), format!("v{view}[i * {ROW} + {at}]"));
        let line = match random.below(8) {
            0..3 => format!("r{r} = {place};"),
            3..6 => format!("{place} = r{r} * 3 + t;"),
            6 => format!("t += u[{at}];"),
            _ => format!("t = t * 5 + r{r};"),
        };
        writeln!(text, "{line}").expect("a string grows");
    }
    text + "out[i] = t + r0 * 7 + r1 * 11 + r2 * 13; }"
}

fn is_checked(text: &str) -> bool {
    let module = module(&clang::compile_text(text, &["-O2", "-w"]));
    let kernel = &module.kernels[0];
    let Ok(wide) = widen::widen(&module, kernel, 16) else { return false };
    let blocks = &wide.module.functions[wide.function].blocks;
    let mut insts = blocks.iter().flat_map(|(_, block)| &block.insts);
    insts.any(|inst| matches!(inst.op, Op::Convert(ConvertOp::PtrToInt, _)))
}

#[test]
fn random_rows_keep_the_order_of_what_may_be_the_same_memory() {
    let mut checked = 0;
    for seed in seeds(40) {
        let mut random = Random::new(seed);
        let (ty, size) =
            [("uchar", 1), ("ushort", 2), ("int", 4), ("long", 8)][random.below(4) as usize];
        let text = text(&mut random, ty);
        checked += u32::from(is_checked(&text));
        let module = module(&clang::compile_text(&text, &["-O2", "-w"]));
        let all = ITEMS * ROW;
        let mut runs: Vec<Run> = Vec::new();
        for _ in 0..6 {
            let mut distance = || random.below(3) * all + random.below(ROW - USED + 1);
            let [d1, d2] = [distance(), distance()].map(|it| int(it as i32));
            let bytes = |n: u64, random: &mut Random| random.bytes((n * size) as usize);
            let buffers = [ITEMS, 3 * all, USED].map(|n| bytes(n, &mut random));
            runs.push((Grid::line(ITEMS, 48), buffers.into_iter().chain([d1, d2]).collect()));
        }
        println!("seed {seed}:\n{text}");
        same_in_all(&module, "k", &runs);
    }
    assert!(checked > 0, "no kernel has rows that are checked");
}

/// What three arrays have, an item at a time, as one array.
#[test]
fn rows_that_lie_apart_are_written_as_such() {
    let text = "kernel void k(global float *out, global const float *x, global const float *y,
                              global const float *z) {
         int i = get_global_id(0);
         out[3 * i] = x[i]; out[3 * i + 1] = y[i]; out[3 * i + 2] = z[i];
       }";
    assert!(is_checked(text));
    let module = wide(text);
    let args = [ints(288, |_| 0), ints(96, |i| i), ints(96, |i| 2 * i + 1), ints(96, |i| 5 * i)];
    same(&module, "k", Grid::line(96, 32), &args, "");
}

/// What all items read does not concern what each writes, and an item's own elements are not each other's.
#[test]
fn rows_need_no_test_where_only_a_race_could_show() {
    for text in [
        "kernel void k(global int *p, global const int *w) {
           size_t i = get_global_id(0);
           for (int n = 0; n < 4; n++) p[i * 4 + n] = i * w[n];
         }",
        "kernel void k(global int *p, global const int *w) {
           size_t i = get_global_id(0);
           for (int n = 0; n < 4; n++) p[i * 4 + n] = p[i * 4 + n] * 3 + 1;
         }",
    ] {
        assert!(!is_checked(text), "{text}");
        let module = wide(text);
        let (_, kernel) = module.kernel("k").expect("it is there");
        let wide = widen::widen(&module, kernel, 16).expect("it is widened");
        let blocks = &wide.module.functions[wide.function].blocks;
        let mut insts = blocks.iter().flat_map(|(_, block)| &block.insts);
        assert!(insts.all(|inst| !matches!(inst.op, Op::Scatter(..) | Op::Gather(..))), "{text}");
        let args = [ints(384, |i| i * 7 - 90), ints(4, |i| i + 2)];
        same(&module, "k", Grid::line(96, 48), &args, text);
    }
}

/// Members of structures that an item reads and writes in turns are read together, in front of the first write, and none of
/// them is looked up in a table.
#[test]
fn members_are_read_together_though_they_are_written() {
    let module = wide(
        "typedef struct { float x, y, z, vx, vy, vz; } P;
         typedef struct { float x, y, z, vx, vy, vz, m; } Q;
         kernel void moved(global P *p) {
           int i = get_global_id(0);
           p[i].x += p[i].vx * 0.5f; p[i].y += p[i].vy * 0.5f; p[i].z += p[i].vz * 0.5f;
         }
         kernel void again(global P *p) {
           int i = get_global_id(0);
           p[i].x += p[i].vx; p[i].vx = p[i].x * p[i].y; p[i].y -= p[i].vx; p[i].z = p[i].y + p[i].vx;
         }
         kernel void scaled(global Q *p) { p[get_global_id(0)].m *= 0.5f; }",
    );
    let ops = |name: &str| {
        let kernel = module.kernels.iter().find(|it| it.name == name).expect("a kernel");
        let wide = widen::widen(&module, kernel, 16).expect("a plain kernel");
        let blocks = wide.module.functions[wide.function].blocks.iter();
        let insts = blocks.flat_map(|(_, block)| block.insts.clone());
        insts.map(|inst| inst.op).collect::<Vec<Op>>()
    };
    let gathers = |name| ops(name).iter().filter(|op| matches!(op, Op::Gather(..))).count();
    // The first four are rows, the last two words.
    assert_eq!(gathers("moved"), 1);
    assert!(!ops("scaled").iter().any(|op| matches!(op, Op::LookUp(..))));
    for (name, members) in [("moved", 6), ("again", 6), ("scaled", 7)] {
        let floats =
            Input::bytes((0..96 * members).flat_map(|i| (i as f32).to_le_bytes()).collect());
        same_at(&widths(), &module, name, Grid::line(96, 48), &[floats], "");
    }
}
