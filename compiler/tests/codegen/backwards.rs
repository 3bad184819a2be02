// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows that are read and written backwards, and places made of bits: neighbours, the last item's first.

use tally_compiler::ir::{Inst, Op};
use tally_compiler::widen::widen;

use crate::diff::{Input, Run, same_in_all};
use crate::harness::Grid;
use crate::transpose::apart;
use crate::widen::{int, wide};

/// Of each size, with and without masks, whole and partly: buffers begin and end with the row.
#[test]
fn rows_are_taken_backwards() {
    for ty in ["uchar", "short", "int", "float", "long", "double", "uchar2"] {
        let module = wide(&format!(
            "kernel void whole(global {ty} *out, global const {ty} *in, int n) {{
               int x = get_global_id(0);
               out[x] = in[n - 1 - x]; }}
             kernel void there(global {ty} *out, global const {ty} *in, int n) {{
               int x = get_global_id(0);
               out[n - 1 - x] = in[x]; }}
             kernel void some(global {ty} *out, global const {ty} *in, int n) {{
               int x = get_global_id(0), k = n - 1 - x;
               if (k % 3 && x < n - 2) out[k] = in[k] + in[k + 1] + in[n - 3 - x]; }}
             kernel void wraps(global {ty} *out, global const {ty} *in, int n) {{
               uint x = get_global_id(0), k = 5u - x;
               if (k < (uint)n) out[k] = in[k] + in[(n - 6u + k) % (uint)n]; }}
             kernel void shared(global {ty} *out, global const {ty} *in, int n) {{
               local {ty} t[256];
               int l = get_local_id(0), m = get_local_size(0), x = get_global_id(0);
               t[m - 1 - l] = x < n ? in[x] : in[0];
               barrier(CLK_LOCAL_MEM_FENCE);
               for (int d = 0; d < 3; d++) {{
                 int j = d + 7 - l;
                 {ty} v = j >= 0 && j < m ? t[j] : t[l];
                 barrier(CLK_LOCAL_MEM_FENCE);
                 t[l] += v;
                 barrier(CLK_LOCAL_MEM_FENCE);
               }}
               out[x] = t[l]; }}"
        ));
        let bytes = |by: usize| (0..97 * 8).map(|i| (i / 8 * by % 61) as u8).collect();
        let size = module.types.size(
            module
                .globals
                .iter()
                .next()
                .map_or_else(|| panic!("the local array"), |(_, global)| global.ty),
        ) / 256;
        let buffer = |by: usize| {
            let all: Vec<u8> = bytes(by);
            Input::bytes(all[..97 * size as usize].to_vec())
        };
        let run =
            |group: u32| -> Run { (Grid::line(97, group), vec![buffer(3), buffer(5), int(97)]) };
        for name in ["whole", "there", "some", "wraps", "shared"] {
            same_in_all(&module, name, &[run(97), run(32), run(48)]);
        }
    }
}

/// A kernel for rows of `count` elements, mirrored when they are read (`from`), written (`to`), or both under a test.
fn mirrored(ty: &str, count: usize) -> String {
    let own: String = (0..count).map(|k| format!("{ty} v{k} = r[{k}];\n")).collect();
    let put: String = (0..count).map(|k| format!("o[{k}] = v{k} + ({ty})({k});\n")).collect();
    let kernel = |name: &str, from: &str, to: &str, test: &str| {
        format!(
            "kernel void {name}(global {ty} *out, global const {ty} *in, int n) {{
               int x = get_global_id(0);
               if ({test}) {{
                 global const {ty} *r = in + {from} * {count};
                 global {ty} *o = out + {to} * {count};
                 {own} {put} }} }}"
        )
    };
    let mirror = "(n - 1 - x)";
    [
        kernel("from", mirror, "x", "n > 0"),
        kernel("to", "x", mirror, "n > 0"),
        kernel("both", mirror, mirror, "x % 5 && x < n - 2"),
    ]
    .concat()
}

/// Rows of several elements of each size, of the last item first. Buffers begin and end with them.
#[test]
fn rows_of_items_are_taken_backwards() {
    let rows = [
        ("uchar", 1, [2, 3, 4, 8].as_slice()),
        ("short", 2, &[2, 3]),
        ("int", 4, &[2]),
        ("float", 4, &[3, 5]),
        ("long", 8, &[2]),
    ];
    for (ty, size, counts) in rows {
        for &count in counts {
            let module = wide(&mirrored(ty, count));
            let bytes: Vec<u8> = match ty {
                "float" => (0..97 * count).flat_map(|i| (i as f32).to_le_bytes()).collect(),
                _ => (0..97 * count * size).map(|i| (i * 31 % 251) as u8).collect(),
            };
            let buffers = [vec![0; bytes.len()], bytes].map(Input::bytes);
            let args = [buffers.as_slice(), &[int(97)]].concat();
            let run = |group: u32| -> Run { (Grid::line(97, group), args.clone()) };
            for name in ["from", "to", "both"] {
                same_in_all(&module, name, &[run(97), run(32), run(48)]);
            }
        }
    }
}

/// They are accessed as rows are that lie forwards.
#[test]
fn rows_of_items_backwards_are_lines() {
    let one = |ty: &str, count: usize, name: &str| {
        let text = mirrored(ty, count);
        let kernels: Vec<&str> = text.split_inclusive("} }").collect();
        let own = kernels.iter().find(|it| it.contains(&format!("void {name}(")));
        apart(own.expect("the kernel"))
    };
    for (ty, count) in [("uchar", 3), ("uchar", 4), ("short", 2), ("float", 2), ("float", 3)] {
        for name in ["from", "to"] {
            assert_eq!(one(ty, count, name), (0, 0), "{name} {count} of {ty}");
        }
    }
    assert_eq!(one("uchar", 4, "both"), (0, 0));
    assert_eq!(one("float", 2, "both"), (0, 0));
}

/// Where what is written may be what is read, the copy of the block for the case that it is keeps each access.
#[test]
fn mirrored_pixels_have_one_path_with_lines() {
    let text = |index: &str| {
        format!(
            "kernel void mirror(global uchar *out, global const uchar *in, int w) {{
               {index}
               for (int c = 0; c < 4; c++) out[to * 4 + c] = in[from * 4 + c]; }}"
        )
    };
    let mirror = "int x = get_global_id(0), y = get_global_id(1);
                  int to = y * w + x, from = y * w + (w - 1 - x);";
    assert_eq!((apart(&text(mirror)), lines(&text(mirror))), ((0, 4), 1));
    // Bits of a number without a sign that an element's number does not share.
    let forwards = "uint to = get_global_id(0), from = to;";
    assert_eq!((apart(&text(forwards)), lines(&text(forwards))), ((0, 4), 1));
}

/// How many vectors a kernel that is widened to 16 items stores as such.
fn lines(text: &str) -> usize {
    let module = wide(text);
    let widened = widen(&module, &module.kernels[0], 16).expect("it is widened");
    let function = &widened.module.functions[widened.function];
    let stores = |inst: &&Inst| matches!(inst.op, Op::Store(..));
    function.blocks.iter().flat_map(|(_, block)| &block.insts).filter(stores).count()
}

/// Rows that a kernel turns round where they lie, and rows that lie elsewhere.
#[test]
fn rows_that_may_overlap_are_turned_round() {
    let module = wide(
        "kernel void turn(global uchar *io, uint to) {
           uint i = get_global_id(0);
           global uchar *out = io + to;
           for (int k = 0; k < 8; k++) out[i * 8 + k] = io[i * 8 + 7 - k] - k; }",
    );
    let bytes = || Input::bytes((0..1600).map(|i| (i * 37 % 251) as u8).collect());
    let runs = [0, 768, 800].map(|to| (Grid::line(96, 32), vec![bytes(), int(to)]));
    same_in_all(&module, "turn", &runs);
}

/// Pairs of a network, whose first place is made of an id and a bit.
#[test]
fn places_made_of_bits() {
    let module = wide(
        "kernel void network(global int *out, local int *t, int n) {
           int l = get_local_id(0), m = get_local_size(0);
           t[2 * l] = out[2 * get_global_id(0)]; t[2 * l + 1] = out[2 * get_global_id(0) + 1];
           barrier(CLK_LOCAL_MEM_FENCE);
           for (int p = 0; p < n; p++) {
             int i = 2 * l | (p & 1);
             if (i + 1 < 2 * m) { int x = t[i], y = t[i + 1]; t[i] = min(x, y); t[i + 1] = max(x, y); }
             barrier(CLK_LOCAL_MEM_FENCE);
             int k = 4 * l | (p & 3), h = 4 * l | (p & 7);
             if (k < 2 * m && h < 2 * m) out[2 * get_global_id(0)] += t[k] * 3 + t[h];
             barrier(CLK_LOCAL_MEM_FENCE);
           }
           out[2 * get_global_id(0) + 1] = t[2 * l + 1]; }",
    );
    let out = || crate::widen::ints(192, |i| (i * 37 + i / 5) % 101);
    let run = |group: u32, n: i32| -> Run {
        (Grid::line(96, group), vec![out(), Input::Local(8 * group as usize), int(n)])
    };
    same_in_all(&module, "network", &[run(96, 9), run(32, 12), run(48, 3)]);
}

/// A vector's row is one load, and one store.
#[test]
fn rows_backwards_are_not_gathered() {
    for body in [
        "out[x] = in[n - 1 - x];",
        "out[n - 1 - x] = in[x];",
        "if (in[x] > 3) out[n - 1 - x] = in[n - 5 - x];",
    ] {
        let module = wide(&format!(
            "kernel void k(global float *out, global const float *in, int n) {{
               int x = get_global_id(0);
               {body} }}"
        ));
        let widened = widen(&module, &module.kernels[0], 16).unwrap();
        let function = &widened.module.functions[widened.function];
        let mut insts = function.blocks.iter().flat_map(|(_, block)| &block.insts);
        let apart =
            insts.any(|inst| matches!(inst.op, Op::Gather(..) | Op::Scatter(..) | Op::InLine(..)));
        assert!(!apart, "{}", widened.module.function_text(widened.function));
    }
}

/// clang computes `255 - l` in the upper half of 64 bits.
#[test]
fn local_rows_backwards_are_not_gathered() {
    for ty in ["uchar", "short", "float", "float2", "double4"] {
        let module = wide(&format!(
            "kernel void k(global {ty} *out, global const {ty} *in) {{
               int x = get_global_id(0), l = get_local_id(0);
               local {ty} t[256];
               t[l] = in[x];
               barrier(CLK_LOCAL_MEM_FENCE);
               out[x] = t[255 - l] + t[(63 - l) & 255]; }}"
        ));
        let widened = widen(&module, &module.kernels[0], 16).unwrap();
        let text = widened.module.function_text(widened.function).to_string();
        // The place that is cut to 8 bits is looked up.
        assert!(text.matches(" gather ").count() <= 1, "{ty}: {text}");
        let size = module.types.size(module.globals.iter().next().expect("the array").1.ty);
        let row = |by: usize| (0..size as usize).map(|i| (i * by % 61) as u8).collect();
        let buffers = vec![Input::bytes(row(3)), Input::bytes(row(5))];
        same_in_all(&module, "k", &[(Grid::line(256, 256), buffers)]);
    }
}
