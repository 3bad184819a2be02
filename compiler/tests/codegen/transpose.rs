// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows of items that are transposed in registers: elements of each size, rows that begin anywhere, and
//! accesses that must stay in their order.

use tally_compiler::ir::Op;
use tally_compiler::widen;

use crate::diff::{Input, compare_with, same};
use crate::harness::{Grid, Kernel, targets};
use crate::widen::{int, ints, wide};

/// Reads rows of a type and writes others, each in an order of its own, with a gap at their ends.
fn of_type(ty: &str, count: usize, first: usize) -> String {
    let row = count + 3;
    let reads: String = (0..count)
        .map(|k| {
            let at = (k + count / 2) % count;
            format!("{ty} v{at} = in[i * {row} + {first} + {at}];\n")
        })
        .collect();
    let writes: String = (0..count)
        .map(|k| {
            let (at, from) = (count - 1 - k, (k + 1) % count);
            format!("out[i * {row} + {at} + 1] = v{from} + ({ty})({k});\n")
        })
        .collect();
    format!(
        "kernel void rows(global {ty} *out, global const {ty} *in) {{
           size_t i = get_global_id(0); {reads} {writes} }}"
    )
}

#[test]
fn rows_of_all_sizes_are_read_and_written() {
    let sizes = [("char", 1), ("ushort", 2), ("int", 4), ("float", 4), ("long", 8), ("double", 8)];
    for (ty, size) in sizes {
        for (count, first) in [(16 / size, 0), (32 / size + 1, 1), (48 / size, 2)] {
            let module = wide(&of_type(ty, count, first));
            let bytes = 96 * (count + 3) * size + 16;
            // Small numbers, so that floats are exact.
            let bytes: Vec<u8> = match ty {
                "float" => (0..bytes / 4).flat_map(|i| (i as f32).to_le_bytes()).collect(),
                "double" => (0..bytes / 8).flat_map(|i| (i as f64).to_le_bytes()).collect(),
                _ => (0..bytes).map(|i| (i * 31 % 251) as u8).collect(),
            };
            let args = [Input::bytes(vec![0; bytes.len()]), Input::bytes(bytes)];
            same(&module, "rows", Grid::line(96, 48), &args, &format!("{count} of {ty}"));
        }
    }
}

/// Reads behind writes of what may be the same memory, and rows that overlap.
#[test]
fn accesses_keep_their_order() {
    let module = wide(
        "kernel void order(global int *io, global int *other) {
           size_t i = get_global_id(0);
           int a = io[i * 8], b = io[i * 8 + 1];
           other[i * 8] = a + 1; other[i * 8 + 1] = b + 2; other[i * 8 + 2] = a; other[i * 8 + 3] = b;
           int c = io[i * 8 + 2], d = io[i * 8 + 3];
           io[i * 8 + 4] = a + b + c + d; io[i * 8 + 5] = c; io[i * 8 + 6] = d; io[i * 8 + 5] = a;
           io[i * 8 + 7] = b; io[i * 8 + 6] = c - 1;
         }
         kernel void sliding(global int *out, global const int *in) {
           size_t i = get_global_id(0);
           out[i] = in[i * 2] + in[i * 2 + 1] * 3 + in[i * 2 + 2] * 5 + in[i * 2 + 3] * 7;
         }
         kernel void backwards(global int *out, global const int *in) {
           size_t i = 63 - get_global_id(0);
           for (int k = 0; k < 4; k++) out[i * 4 + k] = in[i * 4 + 3 - k] - k;
         }",
    );
    let row = Grid::line(64, 32);
    let buffer = || ints(64 * 8 + 8, |i| i * 37 % 1009);
    same(&module, "order", row, &[buffer(), buffer()], "");
    same(&module, "sliding", row, &[buffer(), buffer()], "");
    same(&module, "backwards", row, &[buffer(), buffer()], "");
}

/// The number of gathers and scatters that are left of a kernel that is widened to 16 items.
pub fn apart(text: &str) -> (usize, usize) {
    let module = wide(text);
    let widened = widen::widen(&module, &module.kernels[0], 16).expect("it is widened");
    let function = &widened.module.functions[widened.function];
    let ops = || function.blocks.iter().flat_map(|(_, block)| &block.insts).map(|inst| &inst.op);
    (
        ops().filter(|op| matches!(op, Op::Gather(..))).count(),
        ops().filter(|op| matches!(op, Op::Scatter(..))).count(),
    )
}

#[test]
fn whole_chunks_are_loaded_as_one() {
    assert_eq!(apart(&of_type("float", 4, 0)), (0, 0));
    assert_eq!(apart(&of_type("float", 9, 1)), (1, 1));
    assert_eq!(apart(&of_type("char", 16, 3)), (0, 0));
    assert_eq!(apart(&of_type("double", 3, 0)), (1, 1));
    // A loop along an item's row becomes its turns.
    let dot = "kernel void dot(global int *out, global const char *x, global const char *y) {
                 size_t i = get_global_id(0); int sum = 0;
                 for (int k = 0; k < 32; k++) sum += x[i * 32 + k] * y[k];
                 out[i] = sum; }";
    assert_eq!(apart(dot), (0, 0));
    assert_eq!(apart(&dot.replace("size_t i", "int i")), (0, 0));
    assert_eq!(apart(&dot.replace("size_t i", "uint i").replace("* 32", "* 36")), (0, 0));
    assert_eq!(apart(&of_type("int", 8, 1).replace("size_t i", "int i")), (0, 0));
}

/// Reads and writes `count` neighbours at places that are looked up, of the items that a condition holds for.
fn looked_up(ty: &str, count: usize, condition: &str) -> String {
    let element = |k: usize| format!("n * {} + {}", count + 1, k + 1);
    let reads: String =
        (0..count).map(|k| format!("{ty} v{k} = in[{}];\n", element((k + 1) % count))).collect();
    let writes: String = (0..count)
        .map(|k| format!("out[{}] = v{} + ({ty})({k});\n", element(count - 1 - k), (k + 2) % count))
        .collect();
    format!(
        "kernel void rows(global {ty} *out, global const {ty} *in, global const int *at) {{
           size_t n = at[get_global_id(0)];
           if ({condition}) {{ {reads} {writes} }} }}"
    )
}

/// Neighbours that are less than a chunk, of all items or of some: the buffers begin and end at inaccessible pages.
#[test]
fn words_of_all_sizes_are_gathered_and_scattered() {
    let items = 96;
    for (ty, size) in [("char", 1), ("ushort", 2), ("int", 4), ("float", 4), ("long", 8)] {
        for count in [1, 2, 3, 4, 5, 6, 7, 8] {
            for condition in ["n >= 0", "n % 3 != 1"] {
                let module = wide(&looked_up(ty, count, condition));
                let length = items * (count + 1);
                let bytes: Vec<u8> = match ty {
                    "float" => (0..length).flat_map(|i| (i as f32).to_le_bytes()).collect(),
                    _ => (0..length * size).map(|i| (i * 31 % 251) as u8).collect(),
                };
                let args = [
                    Input::bytes(vec![0; bytes.len()]),
                    Input::bytes(bytes),
                    ints(items as i32, |i| i * 35 % 96),
                ];
                let what = format!("{count} of {ty} if {condition}");
                same(&module, "rows", Grid::line(items as u64, 48), &args, &what);
            }
        }
    }
}

/// Reads some elements of rows of 12 at places that are looked up.
fn gaps(ty: &str, elements: &[usize]) -> String {
    let element = |k: &usize| format!("in[n * 12 + {k}]");
    let sum = elements.iter().map(element).collect::<Vec<_>>().join(" * 3 + ");
    format!(
        "kernel void rows(global int *out, global const {ty} *in, global const int *at, int first) {{
           in += first; size_t i = get_global_id(0), n = at[i];
           out[i] = {sum}; }}"
    )
}

/// Reads some components of vectors at places that are looked up.
fn some(ty: &str, components: &str) -> String {
    let parts = components.chars().map(|it| format!("v.s{it} * (1 + 0x{it}) + w.s{it}"));
    let sum = parts.collect::<Vec<_>>().join(" - ");
    format!(
        "kernel void rows(global int *out, global const {ty} *in, global const int *at) {{
           size_t i = get_global_id(0);
           {ty} v = in[at[i]], w = in[at[i] + 1];
           out[i] = {sum}; }}"
    )
}

/// Vectors of which most components are read are loaded whole, which an alignment allows.
#[test]
fn missing_parts_of_rows_are_read() {
    for (ty, components, gathers) in [
        ("float4", "012", 0),
        ("float4", "023", 0),
        ("float4", "123", 4),
        ("float4", "02", 4),
        ("float3", "012", 0),
        ("int8", "01267", 2),
        ("ushort8", "02467", 0),
        ("short8", "0124", 4),
        ("uchar16", "012345678", 0),
        ("char16", "02468ace1", 0),
        ("double2", "0", 2),
    ] {
        let text = some(ty, components);
        assert_eq!(apart(&text), (gathers, 0), "{components} of {ty}");
        let bytes: Vec<u8> = match ty {
            "float3" | "float4" => (0..65 * 4).flat_map(|i| (i as f32).to_le_bytes()).collect(),
            "double2" => (0..65 * 2).flat_map(|i| (i as f64).to_le_bytes()).collect(),
            "int8" => (0..65 * 32).map(|i| (i * 31 % 251) as u8).collect(),
            _ => (0..65 * 16).map(|i| (i * 31 % 251) as u8).collect(),
        };
        let at = ints(64, |i| i * 27 % 64);
        let args = [ints(64, |_| 0), Input::bytes(bytes), at];
        same(&wide(&text), "rows", Grid::line(64, 32), &args, &format!("{components} of {ty}"));
    }
}

/// Three floats that are not aligned like four may end where their page does.
#[test]
fn rows_of_three_stay_in_their_pages() {
    let text = "kernel void rows(global float *out, global const float *in, global const int *at) {
                  size_t i = get_global_id(0); float3 v = vload3(0, in + 4 * at[i]);
                  out[i] = v.x * v.y - v.z; }";
    assert_eq!(apart(text), (2, 0));
    let floats = (0..64 * 4 - 1).flat_map(|i| (i as f32).to_le_bytes()).collect();
    let at = ints(64, |i| i * 27 % 64);
    let args = [ints(64, |_| 0), Input::bytes(floats), at];
    same(&wide(text), "rows", Grid::line(64, 32), &args, "");
}

/// What is read around them lies in pages that they lie in: the buffers begin and end at inaccessible pages.
#[test]
fn words_with_gaps_stay_in_their_pages() {
    for (ty, size) in [("char", 1), ("uchar", 1), ("short", 2), ("ushort", 2)] {
        for elements in [[0, 2, 4], [1, 2, 3], [0, 5, 7], [5, 8, 11], [9, 10, 11], [0, 1, 11]] {
            let module = wide(&gaps(ty, &elements));
            let (least, most) = (elements[0] as i32, 11 - elements[2]);
            // The first row's first element, and the last row's last one, are the buffer's.
            let length = 12 * 64 - elements[0] - most;
            let bytes = (0..length * size).map(|i| (i * 31 % 251) as u8).collect();
            let at = ints(64, |i| i * 27 % 64);
            let args = [ints(64, |_| 0), Input::bytes(bytes), at, int(-least)];
            same(&module, "rows", Grid::line(64, 32), &args, &format!("{elements:?} of {ty}"));
        }
    }
}

/// A part of a word that another item writes, or this one, is not read too early.
#[test]
fn words_keep_their_order() {
    let module = wide(
        "kernel void order(global short *p, global const int *at, global int *out) {
           int i = get_global_id(0);
           global short *r = p + 4 * at[i];
           short a = r[0];
           r[1] = a + 7;
           short b = r[1], c = r[2];
           r[2] = b; r[1] = c; r[2] = a;
           if (a & 1) { short d = r[3]; r[3] = 5; out[i] = r[3] + d + r[2]; }
         }",
    );
    let places = ints(64, |i| i * 27 % 64);
    let shorts = Input::bytes((0..4 * 64 * 2).map(|i| (i * 37 % 211) as u8).collect());
    same(&module, "order", Grid::line(64, 32), &[shorts, places, ints(64, |_| 0)], "");
}

/// Words without a gap, of all items and of some, are lines.
#[test]
fn complex_numbers_are_loaded_and_stored_as_lines() {
    let text = |ty: &str, condition: &str| {
        format!(
            "kernel void square(global {ty} *out, global const {ty} *in, int n) {{
               size_t i = get_global_id(0);
               if ({condition}) {{
                 {ty} a = in[2 * i], b = in[2 * i + 1];
                 out[2 * i + 1] = a * b * 2; out[2 * i] = a * a - b * b;
               }} }}"
        )
    };
    let sizes = [("char", 1), ("uchar", 1), ("short", 2), ("ushort", 2), ("int", 4), ("uint", 4)];
    for (ty, size) in sizes {
        for condition in ["i < 1000", "i + 7 < n"] {
            let text = text(ty, condition);
            // Two bytes are stored as lines under a mask, but not loaded.
            assert_eq!(apart(&text), ((size == 1).into(), 0), "{ty} if {condition}");
            let bytes = (0..192 * size).map(|i| (i * 31 % 251) as u8).collect::<Vec<_>>();
            let args = [Input::bytes(vec![0; bytes.len()]), Input::bytes(bytes), int(80)];
            same(
                &wide(&text),
                "square",
                Grid::line(96, 48),
                &args,
                &format!("{ty} if {condition}"),
            );
        }
    }
}

#[test]
fn words_are_accessed_as_one() {
    for (ty, count, expected) in [
        ("float", 2, (1, 1)),
        ("float", 3, (2, 2)),
        ("uchar", 4, (1, 1)),
        ("short", 4, (1, 1)),
        ("short", 3, (1, 2)),
        ("uchar", 2, (1, 2)),
        ("uchar", 3, (1, 3)),
        ("uchar", 6, (1, 3)),
        ("uchar", 7, (1, 4)),
        ("uchar", 12, (2, 2)),
        ("double", 2, (2, 2)),
    ] {
        let some = looked_up(ty, count, "n > 0");
        assert_eq!(apart(&some), expected, "{count} of {ty}");
    }
    // Gaps of up to a word.
    assert_eq!(apart(&gaps("uchar", &[0, 2])), (1, 0));
    assert_eq!(apart(&gaps("uchar", &[1, 4, 8])), (1, 0));
    assert_eq!(apart(&gaps("uchar", &[1, 4, 9])), (2, 0));
    assert_eq!(apart(&gaps("ushort", &[0, 2])), (1, 0));
    assert_eq!(apart(&gaps("float", &[0, 2])), (2, 0));
    // Pixels of three bytes, which are read through pointers to any memory.
    let pixels = "kernel void pair(global int *out, global const uchar *in, global const int *at) {
                    int i = get_global_id(0); global const uchar *p = in + at[i];
                    uchar3 v = vload3(0, p), w = vload3(0, p + 3);
                    out[i] = v.x * w.x + v.y * w.y - v.z * w.z; }";
    assert_eq!(apart(pixels), (1, 0));
    // An index of 32 bits may wrap around between neighbours, but not within a word of its own.
    let narrow = |row: u32| {
        looked_up("float", 2, "n > 0")
            .replace("size_t n", "uint n")
            .replace("* 3", &format!("* {row}"))
    };
    assert_eq!(apart(&narrow(3)), (2, 2));
    assert_eq!(apart(&narrow(4)), (1, 1));
    let pair = "kernel void pair(global int *out, global const char2 *in, global const int *at) {
                  int i = get_global_id(0); char2 v = in[at[i]]; out[i] = v.x * v.y; }";
    assert_eq!(apart(pair), (1, 0));
}

/// A row's number that does not fit 32 bits wraps around.
#[test]
fn numbers_of_rows_wrap_around() {
    let module = wide(
        "kernel void wrap(global int *out, global const int *in) {
           int i = get_global_id(0);
           out[get_global_id(0) - get_global_offset(0)] = in[i * 7] + in[i * 7 + 1] * 3 + in[i * 7 + 3];
         }",
    );
    // Seven times the first one is 2^32 + 3.
    for first in [0, 613_566_757] {
        let grid = Grid { offset: [first, 0, 0], global: [64, 1, 1], group: [32, 1, 1] };
        same(&module, "wrap", grid, &[ints(64, |_| 0), ints(460, |i| i * 13)], "");
    }
}

/// The comparison detects parts that are exchanged wrongly.
#[test]
fn a_wrong_exchange_shows() {
    let module = wide(&of_type("int", 8, 1));
    let target = targets().pop().expect("the oldest is always there");
    let args = vec![ints(64 * 11 + 16, |_| 0), ints(64 * 11 + 16, |i| i)];
    let agrees = |fault: &dyn Fn(&mut Op)| {
        let kernel =
            Kernel::with_fault(&module, "rows", &target, 16, fault).expect("it is widened");
        compare_with(&kernel, &module, "rows", &[(Grid::line(64, 32), args.clone())]).is_ok()
    };
    assert!(agrees(&|_| {}));
    let wrong = |op: &mut Op| {
        if let Op::Shuffle(_, _, pick) = op
            && pick.len() == 16
        {
            pick.swap(1, 2);
        }
    };
    assert!(!agrees(&wrong));
}

/// What is read behind a write to an item's row is what was written, wherever in the row that was.
#[test]
fn reads_of_rows_stay_behind_writes() {
    let module = wide(
        "kernel void order(global int *p, global int *out, int n) {
           int i = get_global_id(0);
           global int *r = p + 4 * i;
           int a = r[0];
           r[n & 3] = a + 7;
           int b = r[1], c = r[2], d = r[3];
           out[i] = a + 2 * b + 3 * c + 5 * d;
         }",
    );
    for n in 0..4 {
        let inputs = [ints(4 * 64, |i| i * 37 % 211), ints(64, |_| 0), int(n)];
        same(&module, "order", Grid::line(64, 32), &inputs, "");
    }
}

/// A write that overlaps the last element of a row comes behind it and before those that follow.
#[test]
fn overlapping_writes_of_rows_keep_their_order() {
    let module = wide(
        "struct __attribute__((packed)) far { int it; };
         kernel void order(global int *p, global const int *x) {
           int i = get_global_id(0), a = x[i];
           global int *r = p + 6 * i + 1;
           r[3] = a * 3; r[0] = a;
           ((global struct far *)((global char *)r + 14))->it = a * 5;
           r[2] = a * 7; r[1] = a * 11;
           ((global struct far *)((global char *)r - 2))->it = a * 13;
         }",
    );
    let inputs = [ints(6 * 64, |_| 0), ints(64, |i| i.wrapping_mul(0x3c6e_f35f))];
    same(&module, "order", Grid::line(64, 32), &inputs, "");
}
