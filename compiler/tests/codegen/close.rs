// SPDX-License-Identifier: MIT OR Apache-2.0
//! Items that access places close to each other, in one block of memory: sorting networks, Fourier transforms, pictures
//! that are enlarged. The buffers begin and end at inaccessible pages.

use tally_compiler::widen::widen;

use crate::diff::{Input, same};
use crate::harness::Grid;
use crate::widen::{int, ints, wide};

const TYPES: [(&str, usize); 4] = [("uint", 1), ("float", 1), ("float2", 2), ("int2", 2)];

/// Small numbers of a type, so that floats are exact; so many of 32 bits, or of what is shorter.
fn numbers(ty: &str, count: usize) -> Input {
    let number = |i: usize| (i * 37 % 101) as u32;
    Input::bytes(match ty {
        "float" | "float2" => (0..count).flat_map(|i| (number(i) as f32).to_le_bytes()).collect(),
        "uchar" => (0..count).map(|i| number(i) as u8).collect(),
        "short" => (0..count).flat_map(|i| (number(i) as u16).to_le_bytes()).collect(),
        _ => (0..count).flat_map(|i| number(i).to_le_bytes()).collect(),
    })
}

/// Reads and writes at places with strides that are shorter than a vector, as long, and longer.
#[test]
fn networks_exchange_what_lies_at_each_stride() {
    for (ty, n) in TYPES {
        let less = if n == 1 { "a < b" } else { "a.x < b.x" };
        for place in ["2 * l - (l & (s - 1))", "2 * s * (l / s) + l % s"] {
            let module = wide(&format!(
                "kernel void sort(global {ty} *out, global const {ty} *in, int ahead, local {ty} *t) {{
                   uint l = get_local_id(0), n = get_local_size(0), g = get_group_id(0) * 2 * n;
                   t += ahead;
                   t[l] = in[g + l]; t[l + n] = in[g + l + n];
                   for (uint size = 2; size <= 2 * n; size *= 2)
                     for (uint s = size / 2; s > 0; s /= 2) {{
                       barrier(CLK_LOCAL_MEM_FENCE);
                       uint p = {place};
                       {ty} a = t[p], b = t[p + s];
                       if (({less}) != ((l & (size / 2)) == 0)) {{ t[p] = b; t[p + s] = a; }}
                     }}
                   barrier(CLK_LOCAL_MEM_FENCE);
                   out[g + l] = t[l]; out[g + l + n] = t[l + n];
                 }}"
            ));
            for (size, ahead) in [(32, 0), (64, 5)] {
                let local = Input::Local((2 * size as usize + 5) * 4 * n);
                let inputs = [numbers(ty, 256 * n), numbers(ty, 256 * n), int(ahead), local];
                let context = format!("{ty}, {place}, {ahead} ahead");
                same(&module, "sort", Grid::line(128, size), &inputs, &context);
            }
        }
    }
}

/// Reads at computed places of which some vectors have all in a block, some none, for items of all kinds of masks.
#[test]
fn each_item_reads_its_own_place() {
    let places = ["i / by", "i % by", "(i & -by) + 9 - i % 10", "max(i - by, 0)", "i ^ (by & 7)"];
    let reads = places.map(|place| format!("s = s * 3 + in[{place}];")).concat();
    for (ty, n) in TYPES.into_iter().chain([("uchar", 1), ("short", 1)]) {
        for test in ["true", "t[i] % 3 == 1", "t[i] > 1000", "i % 16 > 2", "i > 40 && t[i] < 50"] {
            let module = wide(&format!(
                "kernel void read(global {ty} *out, global const {ty} *in, global const int *t, int by) {{
                   int i = get_global_id(0); {ty} s = 1;
                   if ({test}) {{ {reads} out[i] = s; }}
                 }}"
            ));
            for by in [1, 2, 3, 16, 64] {
                // The first and the last element that items may read are the buffer's.
                let (out, input) = (numbers(ty, 128 * n), numbers(ty, 137 * n));
                let inputs = [out, input, ints(128, |i| i * 31 % 101), int(by)];
                let context = format!("{ty} by {by} if {test}");
                same(&module, "read", Grid::line(128, 64), &inputs, &context);
            }
        }
    }
}

/// Writes at computed places that ascend, descend, or are in no order, and what lies between them stays.
#[test]
fn each_item_writes_its_own_place() {
    for place in
        ["2 * i - i % by", "i + i / by", "i ^ (by & 15)", "(i & -16) + 15 - i % 16", "3 * i % 128"]
    {
        for test in ["true", "t[i] % 3 == 1", "t[i] > 1000", "i % 16 > 2"] {
            let module = wide(&format!(
                "kernel void write(global int *out, global const int *t, int by) {{
                   int i = get_global_id(0), p = {place};
                   if ({test}) out[p] = i * 7 + by;
                 }}"
            ));
            for by in [1, 2, 4, 8, 16] {
                let inputs = [ints(256, |i| -i), ints(128, |i| i * 31 % 101), int(by)];
                let context = format!("{place} by {by} if {test}");
                same(&module, "write", Grid::line(128, 64), &inputs, &context);
            }
        }
    }
}

/// Which accesses have code for places that are close: words, and pairs and parts of them that are read, at places
/// that arithmetic alone has made.
#[test]
fn words_at_computed_places_may_be_close() {
    let has = |ty: &str, access: &str| {
        let module = wide(&format!(
            "#pragma OPENCL EXTENSION cl_khr_fp16 : enable
             kernel void k(global {ty} *out, global const {ty} *in, global const int *t, int by) {{
               int i = get_global_id(0); {access};
             }}"
        ));
        let widened = widen(&module, &module.kernels[0], 16).expect("a plain kernel");
        let text = widened.module.function_text(widened.function).to_string();
        [text.contains("gather_close"), text.contains("scatter_close")]
    };
    for ty in ["int", "float"] {
        assert_eq!(has(ty, "out[i] = in[i / by]"), [true, false]);
        assert_eq!(has(ty, "out[i + i / by] = in[i]"), [false, true]);
        assert_eq!(has(ty, "out[i] = in[t[i]]"), [false, false]);
        assert_eq!(has(ty, "out[i] = in[i]"), [false, false]);
    }
    assert_eq!(has("float2", "out[i] = in[i / by]"), [true, false]);
    assert_eq!(has("float2", "out[i + i / by] = in[i]"), [false, false]);
    for ty in ["char", "short", "half"] {
        assert_eq!(has(ty, "out[i + i / by] = in[i / by]"), [true, false], "{ty}");
    }
    for ty in ["long", "float4"] {
        assert_eq!(has(ty, "out[i + i / by] = in[i / by]"), [false, false], "{ty}");
    }
}

/// Bytes and shorts of pictures that are scaled: of some vectors in one block, of others not, up to the last one of the
/// buffer. Larger elements, and bits of such places, are not looked at.
#[test]
fn short_elements_of_scaled_pictures_may_be_close() {
    let text = |ty: &str, place: &str| {
        format!(
            "kernel void k(global int *out, global const {ty} *in, float by, int w) {{
               int x = get_global_id(0), y = get_global_id(1), s = 7;
               int p = min((int)floor(x * by + 0.25f), w - 1);
               if (x % 11 != 5) s = in[y * w + p] * 3 + in[y * w + {place}];
               out[y * get_global_size(0) + x] = s; }}"
        )
    };
    let looks = |ty: &str, place: &str| {
        let module = wide(&text(ty, place));
        let widened = widen(&module, &module.kernels[0], 16).expect("a plain kernel");
        let text = widened.module.function_text(widened.function).to_string();
        text.matches("= close ").count()
    };
    for ty in ["uchar", "short"] {
        assert_eq!(looks(ty, "max(p - 1, 0)"), 2);
        assert_eq!(looks(ty, "(p & 3)"), 1);
        for (by, w) in [(0.3f32, 29), (1.56, 150), (4.5, 432), (17.0, 1616)] {
            let inputs = [
                ints(96 * 3, |_| -1),
                numbers(ty, 3 * w),
                Input::Value(by.to_le_bytes().to_vec()),
                int(w as i32),
            ];
            let grid = Grid { offset: [0; 3], global: [96, 3, 1], group: [32, 1, 1] };
            let context = format!("{ty} by {by}");
            same(&wide(&text(ty, "max(p - 1, 0)")), "k", grid, &inputs, &context);
            same(&wide(&text(ty, "(p & 3)")), "k", grid, &inputs, &context);
        }
    }
    assert_eq!(looks("int", "max(p - 1, 0)"), 0);
}
