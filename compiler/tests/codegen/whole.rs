// SPDX-License-Identifier: MIT OR Apache-2.0
//! Code of its own for vectors whose items are all in range, and values of several parts that only some
//! items read or write.

use tally_compiler::ir::{BlockId, Op};
use tally_compiler::widen;

use crate::diff::{Input, same, same_in_all};
use crate::harness::{Grid, clang, module};
use crate::transpose::apart;
use crate::widen::{int, ints, wide};

/// Sizes below, at, and above whole vectors, and none.
const SIZES: [i32; 5] = [0, 5, 32, 61, 200];

/// Tests in all their forms, around rows and values of several parts.
#[test]
fn ranges_end_anywhere() {
    let text = "kernel void inside(global int4 *out, global const int4 *in, int n) {
           int i = get_global_id(0);
           if (i < n) { int4 x = in[i]; out[i] = x.wzyx + x * 3; } }
         kernel void leaves(global int4 *out, global const int4 *in, int n) {
           int i = get_global_id(0);
           if (i >= n) return;
           int4 x = in[i];
           for (int k = 0; k < (x.x & 3); k++) x += k;
           out[i] = x; }
         kernel void otherwise(global int2 *out, global const int2 *in, int n) {
           int i = get_global_id(0);
           int2 x = 7;
           if (i < n) x = in[i] + 1; else x += i;
           out[i + 100] = x; }
         kernel void rows(global int *out, global const int *in, int n) {
           int i = get_global_id(0), sum = 0;
           if (!(n <= i)) {
             for (int k = 0; k < 8; k++) sum = sum * 5 + in[i * 4 + k];
             out[i] = sum;
           } }
         kernel void between(global int4 *out, global const int4 *in, int n) {
           int i = get_global_id(0);
           if (i > 2 && i + 1 < n) out[i] = in[i - 1] + in[i + 1] * 3; }
         kernel void one_of(global int4 *out, global const int4 *in, int n) {
           int i = get_global_id(0);
           if (i < 3 || i >= n - 1) { out[i] = -1; return; }
           out[i] = in[i - 3] * 2 + in[i + 1]; }
         kernel void not_at(global int4 *out, global const int4 *in, int n) {
           int i = get_global_id(0);
           if (i == 0 || i == n - 1) { out[i] = -1; return; }
           out[i] = in[i - 1] * 2 + in[i + 1]; }
         kernel void but_one(global int *out, global const int *in, int n) {
           int i = get_global_id(0), sum = 0;
           if (i != n) { for (int k = 0; k < 4; k++) sum = sum * 5 + in[i * 4 + k]; out[i] = sum; } }
         kernel void twice(global int4 *out, global const int4 *in, int n) {
           int i = get_global_id(0);
           int4 x = 0;
           if (i < n) { x = in[i]; if (i < n - 20) x += in[i + 20]; }
           out[i] = x; }
         kernel void left(global int *out, global const int *in, int n) {
           int i = get_global_id(0), sum = 0;
           if (i < 3 || i >= n - 1) return;
           for (int k = 0; k < 4; k++) sum = sum * 5 + in[i * 4 + k];
           out[i] = sum; }
         kernel void counted(global int *out, global const int *in, int n) {
           int i = get_global_id(0), sum = 0;
           if (i < n) {
             atomic_inc(&out[200]);
             if (i < n - 20) {
               for (int k = 0; k < 4; k++) sum = sum * 5 + in[i * 4 + k];
               out[i] = sum;
             }
           } }";
    let buffer = |by: i32| ints(240 * 4, move |i| i * by % 1009 - 400);
    let run = |n: i32| (Grid::line(97, 48), vec![buffer(31), buffer(37), int(n)]);
    let rest = ["between", "one_of", "not_at", "but_one", "twice", "left", "counted"];
    // Without optimisation the code behind a test may be on either side of the branch.
    for level in ["-O0", "-O2"] {
        let module = module(&clang::compile_text(text, &[level, "-w"]));
        for name in ["inside", "leaves", "otherwise", "rows"].into_iter().chain(rest) {
            same_in_all(&module, name, &SIZES.map(run));
        }
    }
}

/// In two dimensions, with the tests one after the other.
#[test]
fn edges_of_planes_are_left_out() {
    let module = wide(
        "kernel void inner(global int2 *out, global const int2 *in, int w, int h) {
           int x = get_global_id(0), y = get_global_id(1);
           if (x > 0 && x < w - 1 && y > 0 && y < h - 1) {
             int i = y * 40 + x;
             out[i] = in[i - 1] + in[i + 1] + in[i - 40] - in[i + 40];
           } }",
    );
    let buffer = |by: i32| ints(40 * 10 * 2, move |i| i * by % 1009 - 400);
    let grid = Grid { offset: [0; 3], global: [40, 9, 1], group: [20, 3, 1] };
    let run = |(w, h)| (grid, vec![buffer(31), buffer(37), int(w), int(h)]);
    same_in_all(&module, "inner", &[(40, 5), (33, 9), (2, 9), (17, 1)].map(run));
}

/// Conditions that are no ranges: values of two and four parts of each size are read and written for the
/// items of a mask.
#[test]
fn values_of_several_parts_under_masks() {
    for ty in ["char", "short", "int", "long", "float", "double"] {
        for parts in [2, 4] {
            let module = wide(&format!(
                "kernel void some(global {ty}{parts} *out, global const {ty}{parts} *in,
                                  global const int *which) {{
                   int i = get_global_id(0);
                   {ty}{parts} x = 1;
                   if (which[i] & 1) x += in[i];
                   if (which[i] & 2) out[i + 1] = x;
                   else if (which[i] & 4) out[i + 1].s1 = in[i + 3].s0; }}"
            ));
            let bytes = |by: usize| (0..110 * 32).map(|i| (i / 8 * by % 64) as u8).collect();
            let which = ints(100, |i| (i * 2_654_435) >> 9);
            let args = [Input::bytes(bytes(3)), Input::bytes(bytes(5)), which];
            same(&module, "some", Grid::line(100, 50), &args, &format!("{ty}{parts}"));
        }
    }
}

/// Small kernels read and write global memory in line without masks where a vector is in range. Larger ones, tests that
/// are no ranges, and accesses of local memory alone gain nothing.
#[test]
fn small_kernels_are_copied_for_accesses_in_line() {
    let more = "x = x * 5 + (x ^ n) / 3;".repeat(40);
    let bodies = [
        ("yes_return", "if (i >= n) return; out[i] = 3 * in[i];".to_owned()),
        ("yes_loop", "if (i < n) for (int k = 0; k < n; k++) out[i] += in[k * n + i];".to_owned()),
        ("yes_unequal", "if (i != n) out[i] = 3 * in[i];".to_owned()),
        ("yes_edges", "if (i == 0 || i == n) return; out[i] = 3 * in[i];".to_owned()),
        ("no_equal", "if (i == n) out[i] = 3 * in[i];".to_owned()),
        ("no_but_equal", "if (i != n) return; out[i] = 3 * in[i];".to_owned()),
        ("no_large", format!("if (i < n) {{ int x = in[i]; {more} out[i] = x; }}")),
        ("no_range", "if (in[i] < n) out[i] = 3;".to_owned()),
        ("no_global", "if (i < n) t[get_local_id(0)] = i;".to_owned()),
    ];
    for (name, body) in bodies {
        let module = wide(&format!(
            "kernel void k(global int *out, global const int *in, local int *t, int n) {{
               int i = get_global_id(0); {body}
             }}"
        ));
        let widened = widen::widen(&module, &module.kernels[0], 16).unwrap();
        let function = &widened.module.functions[widened.function];
        let mut insts = function.blocks.iter().flat_map(|(_, block)| &block.insts);
        let is_whole = insts.any(|inst| match inst.op {
            Op::Store(_, value, _) => {
                let types = &widened.module.types;
                types.lanes(widened.module.operand_type(function, value)) == 16
            }
            _ => false,
        });
        assert_eq!(is_whole, name.starts_with("yes"), "{name}");
        for n in [0, 3, 16, 21, 40] {
            let args = [ints(64, |_| 5), ints(1700, |i| i * 7), Input::Local(64), int(n)];
            same(&module, "k", Grid::line(48, 16), &args, &format!("{name} of {n}"));
        }
    }
}

/// The vectors in range run without gathers.
#[test]
fn whole_vectors_have_code_of_their_own() {
    let module = wide(
        "kernel void rows(global int *out, global const int *in, int n) {
           int i = get_global_id(0), sum = 0;
           if (i < n) { for (int k = 0; k < 8; k++) sum = sum * 3 + in[i * 8 + k]; out[i] = sum; } }",
    );
    let widened = widen::widen(&module, &module.kernels[0], 16).unwrap();
    let function = &widened.module.functions[widened.function];
    let gathers = |id: BlockId| {
        let insts = function.blocks[id].insts.iter();
        insts.filter(|inst| matches!(inst.op, Op::Gather(..))).count()
    };
    let stores = function.blocks.ids().filter(|&id| {
        let insts = &function.blocks[id].insts;
        gathers(id) == 0 && insts.iter().any(|inst| matches!(inst.op, Op::Store(..)))
    });
    assert_eq!(stores.count(), 1, "{}", widened.module.function_text(widened.function));
}

/// Behind a barrier, too, if none is in the copy.
#[test]
fn code_behind_barriers_is_copied() {
    let text = "kernel void table(global uchar *out, global const uchar *in, int n) {
           local uchar t[256];
           int i = get_global_id(0), l = get_local_id(0);
           for (int k = l; k < 256; k += get_local_size(0)) t[k] = k * 7 + n;
           barrier(CLK_LOCAL_MEM_FENCE);
           if (i < n) {
             uchar a = in[3 * i], b = in[3 * i + 1], c = in[3 * i + 2];
             out[3 * i] = t[a]; out[3 * i + 1] = t[b] + 1; out[3 * i + 2] = t[c] + 2;
           } }
         kernel void again(global uchar *out, global const uchar *in, int n) {
           local uchar t[64];
           int i = get_global_id(0), l = get_local_id(0);
           t[l] = in[i];
           barrier(CLK_LOCAL_MEM_FENCE);
           uchar a = 3;
           if (i < n) { a += in[2 * i] * t[(l + 1) % get_local_size(0)]; out[i] = a; }
           barrier(CLK_LOCAL_MEM_FENCE);
           t[l] = a;
           barrier(CLK_LOCAL_MEM_FENCE);
           if (i + 5 < n) out[300 + i] = t[(l + 2) % get_local_size(0)] + in[2 * i + 1]; }
         kernel void inside(global uchar *out, global const uchar *in, int n) {
           local uchar t[64];
           int i = get_global_id(0), l = get_local_id(0);
           t[l] = in[i];
           if (i < n) {
             barrier(CLK_LOCAL_MEM_FENCE);
             out[i] = in[2 * i] + t[l ^ 1];
           } }";
    let module = wide(text);
    let buffer = |by: i32| ints(240, move |i| i.wrapping_mul(by));
    for group in [48, 40, 16] {
        let grid = Grid::line(4 * group, group as u32);
        let run = |n: i32| (grid, vec![buffer(0x0101_3577), buffer(0x0731_2505), int(n)]);
        same_in_all(&module, "table", &SIZES.map(run));
        same_in_all(&module, "again", &SIZES.map(run));
        // All items of a group reach it, or none does.
        same_in_all(&module, "inside", &[0, 1, 4].map(|groups| run(groups * group as i32)));
    }
    // The places in the table are looked up; the pixels are lines, and rows under the mask.
    let copies = |name: &str| {
        let kernel = module.kernels.iter().find(|it| it.name == name).unwrap();
        let widened = widen::widen(&module, kernel, 16).unwrap();
        let function = &widened.module.functions[widened.function];
        let insts = function.blocks.iter().flat_map(|(_, block)| &block.insts);
        insts.filter(|inst| matches!(inst.op, Op::Store(..))).count()
    };
    assert!(copies("table") >= 3, "{}", copies("table"));
    let kernel = module.kernels.iter().find(|it| it.name == "inside").unwrap();
    let widened = widen::widen(&module, kernel, 16).unwrap();
    let text = widened.module.function_text(widened.function).to_string();
    assert_eq!(text.matches("barrier workgroup").count(), 1, "{text}");
}

/// What is written to one address space is not parted by accesses of another one, but by those of any.
#[test]
fn other_address_spaces_do_not_part_rows() {
    let text =
        "kernel void local_table(global uchar *out, global const uchar *in, local uchar *t) {
           size_t i = get_global_id(0);
           t[get_local_id(0)] = i * 5;
           barrier(CLK_LOCAL_MEM_FENCE);
           uchar a = in[3 * i] & 15, b = in[3 * i + 1] & 15, c = in[3 * i + 2] & 15;
           out[3 * i] = t[a]; out[3 * i + 1] = t[b]; out[3 * i + 2] = t[c]; }";
    assert_eq!(apart(text), (3, 0));
    let any = "kernel void any(global uchar *out, local uchar *t, int n) {
           size_t l = get_local_id(0);
           global uchar *o = out + 3 * get_group_id(0) * get_local_size(0);
           uchar *p = n ? (uchar *)o : (uchar *)t;
           t[3 * l] = l; t[3 * l + 1] = 2; t[3 * l + 2] = 3;
           o[3 * l] = l * 7; uchar a = p[3 * l];
           o[3 * l + 1] = a + 9; uchar b = p[3 * l + 1];
           o[3 * l + 2] = b * 3; }";
    let grid = Grid::line(64, 32);
    let bytes = |by: i32| ints(48, move |i| i.wrapping_mul(by));
    let inputs = [bytes(0x0101_3577), bytes(0x0731_2505), Input::Local(32)];
    same(&wide(text), "local_table", grid, &inputs, "");
    // As clang writes it without optimisation: otherwise it knows what is read.
    let any = module(&clang::compile_text(any, &["-O0", "-w"]));
    for n in [0, 1] {
        same(&any, "any", grid, &[bytes(3), Input::Local(96), int(n)], "");
    }
}
