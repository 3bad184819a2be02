// SPDX-License-Identifier: MIT OR Apache-2.0
//! Elements that items have a few bytes apart, which are loaded with what lies between them. The buffers begin and end
//! at inaccessible pages.

use crate::diff::{Input, same};
use crate::harness::Grid;
use crate::transpose::apart;
use crate::widen::wide;

const TYPES: [(&str, usize); 5] =
    [("char", 1), ("ushort", 2), ("int", 4), ("float", 4), ("double", 8)];

/// Small numbers of a type, so that floats are exact.
fn numbers(ty: &str, count: usize) -> Input {
    let number = |i: usize| i * 31 % 61;
    Input::bytes(match ty {
        "float" => (0..count).flat_map(|i| (number(i) as f32).to_le_bytes()).collect(),
        "double" => (0..count).flat_map(|i| (number(i) as f64).to_le_bytes()).collect(),
        "char" => (0..count).map(|i| number(i) as u8).collect(),
        "ushort" => (0..count).flat_map(|i| (number(i) as u16).to_le_bytes()).collect(),
        _ => (0..count).flat_map(|i| (number(i) as u32).to_le_bytes()).collect(),
    })
}

/// Reads some of each item's elements, the first and the last of which are the buffer's.
fn reads(ty: &str, step: usize, parts: &[usize]) -> String {
    let reads: String =
        parts.iter().map(|part| format!("s = s * 3 + in[i * {step} + {part}];\n")).collect();
    format!(
        "kernel void k(global {ty} *out, global const {ty} *in) {{
           size_t i = get_global_id(0); {ty} s = 1; {reads} out[i] = s; }}"
    )
}

#[test]
fn parts_of_a_line_are_picked_out() {
    let items = 96;
    for (ty, size) in TYPES {
        for step in 2..=16 / size {
            let all: Vec<usize> = (0..step).collect();
            for parts in [&all[..1], &all[..], &[0, step - 1], &[step - 1, 0]] {
                let (last, text) = (parts.iter().max().unwrap(), reads(ty, step, parts));
                let count = (items - 1) * step + last + 1;
                let inputs = [numbers(ty, items), numbers(ty, count)];
                let context = format!("{parts:?} of {step} {ty}");
                same(&wide(&text), "k", Grid::line(96, 48), &inputs, &context);
            }
        }
    }
}

#[test]
fn lines_are_not_gathered() {
    assert_eq!(apart(&reads("char", 3, &[0, 1, 2])), (0, 0));
    assert_eq!(apart(&reads("float", 2, &[0])), (0, 0));
    assert_eq!(apart(&reads("float", 3, &[0, 2])), (0, 0));
    assert_eq!(apart(&reads("ushort", 8, &[0, 7])), (0, 0));
    // Too far apart.
    assert_eq!(apart(&reads("float", 5, &[0])), (1, 0));
    assert_eq!(apart(&reads("double", 3, &[0])), (1, 0));
    // Neighbours at places of 32 bits, which are extended each for itself.
    let narrow = "kernel void k(global uchar *out, global const uchar *in, int w) {
                    uint x = get_global_id(0), y = get_global_id(1), i = y * w + x * 3;
                    uchar a = in[(int)(i + 2)], b = in[(int)i], c = in[(int)(i + 1)];
                    out[(int)i] = a; out[(int)(i + 1)] = b; out[(int)(i + 2)] = c; }";
    assert_eq!(apart(narrow), (0, 0));
    // Under a mask, of which short elements have none on all processors.
    let masked = |ty: &str| {
        let reads = reads(ty, 2, &[0]);
        apart(&reads.replace("s = s", "if (out[i] != 0) s = s"))
    };
    for ty in ["int", "float", "double"] {
        assert_eq!(masked(ty), (0, 0), "{ty}");
    }
    for ty in ["char", "ushort"] {
        assert_eq!(masked(ty), (1, 0), "{ty}");
    }
}

/// Items that do not run read nothing, nor are gaps read for them.
#[test]
fn lines_under_masks_end_with_the_last_item_that_runs() {
    let items = 96;
    for (ty, size) in [("ushort", 2), ("int", 4), ("double", 8)] {
        for step in 2..=16 / size {
            let all: Vec<usize> = (0..step).collect();
            for parts in [&all[..1], &[step - 1, 0]] {
                for (test, first, last) in [
                    ("i < 77", 0, 76),
                    ("i >= 5", 5, items - 1),
                    ("i % 7 == 3", 3, 94),
                    ("i > 40 && i % 3 != 1", 41, 95),
                ] {
                    let reads =
                        reads(ty, step, parts).replace("s = s", &format!("if ({test}) s = s"));
                    let text = reads.replace("in[i *", &format!("in[(i - {first}) *"));
                    let count = (last - first) * step + parts.iter().max().unwrap() + 1;
                    let inputs = [numbers(ty, items), numbers(ty, count)];
                    let context = format!("{parts:?} of {step} {ty} if {test}");
                    same(&wide(&text), "k", Grid::line(96, 48), &inputs, &context);
                }
            }
        }
    }
}

/// Parts of different types, and places that two instructions read.
#[test]
fn structures_are_lines_of_each_type() {
    let text = "struct __attribute__((packed)) s { float a; short b; char c; uchar d; };
                kernel void k(global int *out, global const struct s *in) {
                  size_t i = get_global_id(0);
                  out[i] = as_int(in[i].a) * 3 + in[i].b * in[i].c - in[i].d + in[i].b; }";
    assert_eq!(apart(text), (0, 0));
    let inputs = [numbers("int", 64), numbers("char", 64 * 8)];
    same(&wide(text), "k", Grid::line(64, 32), &inputs, "");
}

/// Three neighbours without a gap are written as a line, in any order; others are not.
#[test]
fn three_parts_are_written() {
    for (ty, _) in TYPES {
        for [a, b, c] in [[0, 1, 2], [2, 0, 1], [1, 2, 0]] {
            let text = format!(
                "kernel void k(global {ty} *out, global const {ty} *in) {{
                   size_t i = get_global_id(0); {ty} v = in[i], w = in[i + 1];
                   out[i * 3 + {a}] = v; out[i * 3 + {b}] = w - v; out[i * 3 + {c}] = v * 2; }}"
            );
            assert_eq!(apart(&text), (0, 0), "{ty}");
            let inputs = [numbers(ty, 3 * 96), numbers(ty, 97)];
            same(&wide(&text), "k", Grid::line(96, 48), &inputs, ty);
        }
    }
    let gap = "kernel void k(global int *out, global const int *in) {
                 size_t i = get_global_id(0); int v = in[i];
                 out[i * 4] = v; out[i * 4 + 1] = v + 1; out[i * 4 + 2] = v + 2; }";
    same(&wide(gap), "k", Grid::line(96, 48), &[numbers("int", 4 * 96), numbers("int", 96)], "");
}

/// Reads of constant memory do not part what is written; those of other memory do.
#[test]
fn tables_are_read_between_writes() {
    let text = |space: &str| {
        format!(
            "kernel void k(global uchar *out, global const uchar *in, {space} uchar *t) {{
               size_t i = get_global_id(0); uchar a = in[i * 3], b = in[i * 3 + 1], c = in[i * 3 + 2];
               out[i * 4] = t[a & 31]; out[i * 4 + 1] = t[b & 31]; out[i * 4 + 2] = t[c & 31];
               out[i * 4 + 3] = t[(a ^ b) & 31]; }}"
        )
    };
    assert_eq!(apart(&text("constant")), (4, 0));
    assert_eq!(apart(&text("global")), (4, 4));
    let inputs = [numbers("char", 4 * 96), numbers("char", 3 * 96), numbers("char", 32)];
    for space in ["constant", "global"] {
        same(&wide(&text(space)), "k", Grid::line(96, 48), &inputs, space);
    }
}
