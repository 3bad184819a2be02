// SPDX-License-Identifier: MIT OR Apache-2.0
//! Vectors whose components stay interleaved: results, and which vectors do.

use tally_compiler::ir::{Module, Op};
use tally_compiler::widen::widen;

use crate::diff::{Input, Random, Run, requiring, same_in_all};
use crate::harness::clang::Assembly;
use crate::harness::{Grid, module};
use crate::widen::{int, wide};

/// The items of a run: no multiple of a vector's.
const ITEMS: usize = 83;

/// Types of rows from 2 bytes to more than a register, with a wider and a narrower type of as many components.
const TYPES: [(&str, usize, &str, &str); 9] = [
    ("uchar2", 2, "int2", "uchar2"),
    ("uchar4", 4, "int4", "uchar4"),
    ("short4", 8, "float4", "uchar4"),
    ("float2", 8, "double2", "short2"),
    ("int4", 16, "long4", "short4"),
    ("uchar16", 16, "ushort16", "char16"),
    ("float8", 32, "double8", "short8"),
    ("double4", 32, "double4", "int4"),
    ("double16", 128, "double16", "float16"),
];

/// Two small numbers in each buffer of rows, and places for the items in another.
fn runs(row: usize, groups: &[u32]) -> Vec<Run> {
    runs_of(row, ITEMS, groups)
}

fn runs_of(row: usize, items: usize, groups: &[u32]) -> Vec<Run> {
    let mut random = Random::new(row as u64);
    // Bytes that are small numbers as integers, and no NaNs as floats.
    let mut rows = |count: usize| {
        let byte = |i: usize| if i.is_multiple_of(2) { (random.below(50) + 1) as u8 } else { 0x3c };
        Input::bytes((0..count * row).map(byte).collect())
    };
    let (out, a, b) = (rows(2 * items), rows(3 * items), rows(3 * items));
    // No two items have one place.
    let places: Vec<u8> =
        (0..items).flat_map(|i| ((i * 31 % items) as i32).to_le_bytes()).collect();
    let inputs = vec![out, a, b, Input::bytes(places), int(items as i32)];
    let run = |&group: &u32| -> Run { (Grid::line(items as u64, group), inputs.clone()) };
    groups.iter().map(run).collect()
}

fn kernel(ty: &str, wide: &str, narrow: &str, body: &str) -> String {
    let count = ty.trim_start_matches(|it: char| it.is_alphabetic()).parse().unwrap_or(1);
    let scalars: Vec<String> = (0..count).map(|n: u32| format!("t[x] >> {n} & 1")).collect();
    let body = body
        .replace("VEC", ty)
        .replace("SCALARS", &scalars.join(", "))
        .replace("WIDE", wide)
        .replace("NARROW", narrow);
    format!(
        "kernel void k(global {ty} *out, global const {ty} *a, global const {ty} *b,
                       global const int *t, int n) {{
           int x = get_global_id(0);
           {body} }}"
    )
}

/// What kernels do with whole vectors: rows in line, backwards, some apart, anywhere, of some items; values that meet;
/// conversions; loops that all leave together, or each at its time; single components.
const BODIES: [&str; 30] = [
    "out[x] = a[x] + b[x];",
    "out[x] = a[n - 1 - x] + b[x]; out[n + n - 1 - x] = b[2 * x] + a[2 * x + 1];",
    "out[t[x]] = a[t[x]] + b[x];",
    "if (t[x] & 1) out[x] = a[x] + b[n - 1 - x];",
    "if (x > 3 && x < n - 2) out[x] = a[x - 1] + a[x + 1]; else if (t[x] % 3) out[x] = b[t[x]];",
    "VEC s = a[x]; if (t[x] & 1) s = s + b[x]; else if (t[x] & 2) s = b[2 * x]; out[x] = s;",
    "out[x] = t[x] & 4 ? a[x] : b[t[x]];",
    "VEC s = a[x]; for (int k = 1; k < 3; k++) s = s + b[k * n / 2 + x]; out[x] = s;",
    "VEC s = a[x]; for (int k = 0; k < (t[x] & 3); k++) s = s + b[x + k]; out[x] = s;",
    "for (int k = x; k < 2 * n; k += (int)get_global_size(0)) out[k] = a[k] + b[k];",
    "WIDE s = __builtin_convertvector(a[x], WIDE); s = s + s;
     NARROW u = __builtin_convertvector(b[x], NARROW);
     out[x] = __builtin_convertvector(s, VEC) + __builtin_convertvector(u, VEC);",
    "out[x] = a[x] * (VEC)(t[x] & 3) + b[x] * (VEC)(n & 3);",
    "out[x] = a[x] + b[x]; out[x + n] = a[x] + (VEC)(a[x].x);",
    "VEC s = a[x]; s.y = b[x].x; out[x] = s + b[x];",
    "out[x] = a[x]; out[x] = out[x] + b[x]; if (x % 5 == 2) out[x] = out[x] + a[t[x]];",
    "out[x] = (VEC)(n & 3) + b[2]; if (t[x] & 1) out[n + n - 1 - x] = (VEC)(7);",
    "out[x % n] = a[x % n] + b[x / 2];",
    "if (t[x] & 1) out[x % n] = a[x % n] + b[x / 2];",
    "VEC s = a[x] + b[x]; out[x] = s; out[n + x] = a[x] - (VEC)(s.y);",
    "out[x] = a[x] + b[x] * (VEC)(SCALARS);",
    "if (t[x] & 1) out[x] = b[x] / (VEC)(t[x] & 3) + a[x];",
    "VEC s = a[x]; int k = 0; do s = s + b[x + k]; while (++k < (t[x] & 3)); out[x] = s;",
    "out[x] = a[x] + b[x];
     out[n + x] = a[x] + (VEC)(((global uchar *)out)[x * (int)sizeof(VEC) + (n & 1)]);",
    "out[x] = a[x] + b[x]; global uchar2 *o = (global uchar2 *)out;
     int k = x * (int)sizeof(VEC) / 2; o[k] = o[k + (n & 1 && sizeof(VEC) > 2)] + (uchar2)(3);",
    "int m = n - 1 + t[0]; out[m - x] = a[m - x] + b[m + 9 - x]; if (t[x] & 1) out[m + n - x] = b[m - x];",
    "uint m = (uint)t[0] - 6; if (x > 2) out[x] = a[2 * (uint)x + m] + b[2 * (uint)x + m + 1];",
    "uint m = (uint)t[0] - 6; if (x > 2 && x < n - 3) out[2 * (uint)x + m] = a[3 * (uint)x + m] + b[x];",
    "int s = t[1] % 3; out[x * (s + 1)] = a[x * (s + 1)] + b[x * s];",
    "int s = t[1] % 3; if (t[x] & 1) out[n - 1 - x * s] = a[x * (s + 1)] + b[x * s + 1];",
    "int s = t[1] % 4; if (t[x] & 1) out[x] = a[x * s] + b[x * (s - 1)];",
];

/// Each with a third of the types.
#[test]
fn vectors_of_all_sizes_agree() {
    for (n, body) in BODIES.iter().enumerate() {
        for &(ty, row, wider, narrower) in TYPES.iter().skip(n % 3).step_by(3) {
            let module = wide(&kernel(ty, wider, narrower, body));
            same_in_all(&module, "k", &runs(row, &[83, 32, 7]));
        }
    }
}

/// Local memory, and barriers between accesses: what is kept back comes before them.
#[test]
fn vectors_in_local_memory_agree() {
    for (ty, row, ..) in TYPES {
        let body = format!(
            "local {ty} s[96];
             int l = get_local_id(0), m = get_local_size(0);
             s[l] = a[x] + b[x];
             barrier(CLK_LOCAL_MEM_FENCE);
             {ty} v = s[m - 1 - l] + s[(l + 5) % m];
             barrier(CLK_LOCAL_MEM_FENCE);
             if (l & 2) s[l] = v;
             barrier(CLK_LOCAL_MEM_FENCE);
             out[x] = s[(l ^ 1) < m ? l ^ 1 : l] + v;"
        );
        let module = wide(&kernel(ty, ty, ty, &body));
        same_in_all(&module, "k", &runs(row, &[83, 32, 7]));
    }
}

/// Groups of several rows whose vectors have parts of 4 or 8 items, in rows that are longer than the group's.
#[test]
fn rows_in_parts_of_vectors_agree() {
    for (ty, row, ..) in TYPES {
        let module = wide(&kernel(ty, ty, ty, &in_parts(ty)));
        let grid = |group: [u32; 3]| Grid { offset: [0; 3], global: [16, 32, 1], group };
        let (_, inputs) = runs_of(row, 17 * 32, &[1]).remove(0);
        let runs = [[4, 32, 1], [8, 8, 1], [4, 6, 1], [2, 16, 1]];
        same_in_all(&module, "k", &runs.map(|group| -> Run { (grid(group), inputs.clone()) }));
    }
}

fn in_parts(ty: &str) -> String {
    format!(
        "local {ty} s[128];
         int l = get_local_id(1) * get_local_size(0) + get_local_id(0), m = get_local_size(0) * get_local_size(1);
         int at = get_global_id(1) * 17 + x;
         s[l] = a[at];
         barrier(CLK_LOCAL_MEM_FENCE);
         {ty} v = s[m - 1 - l] + b[at];
         if (t[at] & 1) v = v + b[at + 1];
         out[at] = v;"
    )
}

/// A kernel for 16 items.
fn widened(module: &Module) -> tally_compiler::widen::Widened {
    widen(module, &module.kernels[0], 16).expect("a plain kernel")
}

/// How many operations of a kernel for 16 items move components, and its text.
fn shuffles(ty: &str, body: &str) -> (usize, String) {
    let widened = widened(&wide(&kernel(ty, ty, ty, body)));
    let function = &widened.module.functions[widened.function];
    let insts = function.blocks.iter().flat_map(|(_, block)| &block.insts);
    let in_a_row = |two: &[Option<u32>]| two[1] == two[0].map(|first| first + 1);
    let moves = |op: &Op| match op {
        // Halves of a vector, and two vectors as one, stay where they are.
        Op::Shuffle(_, _, pick) => !pick.windows(2).all(in_a_row),
        op => matches!(op, Op::Gather(..) | Op::Scatter(..)),
    };
    let count = insts.filter(|inst| moves(&inst.op)).count();
    (count, widened.module.function_text(widened.function).to_string())
}

/// How often each of some texts is in that of a kernel.
fn counts<const N: usize>(ty: &str, body: &str, texts: [&str; N]) -> [usize; N] {
    let (_, text) = shuffles(ty, body);
    texts.map(|part| text.matches(part).count())
}

/// Rows at constant distances are known by the first one's address, also behind a test whether numbers wrap around. Lines
/// are read backwards as vectors, and written so under masks.
#[test]
fn rows_at_distances_are_found_from_the_first_one() {
    let body = "uint m = t[0]; out[x] = a[m - (uint)x];";
    assert_eq!(counts("float4", body, ["f32x16 = load", "f32x4 = load", "extract"]), [4, 16, 16]);
    let body = "uint m = t[0]; out[x] = a[m + 2 * (uint)x];";
    assert_eq!(counts("float4", body, ["f32x4 = load", "extract"]), [32, 16]);
    let at = "size_t y = get_global_id(0)";
    let body = format!("{at}; out[n - y] = a[y];");
    assert_eq!(counts("float4", &body, ["store", "masked_store"]), [16, 0]);
    let body = format!("{at}; if (t[y] & 1) out[n - y] = a[y];");
    assert_eq!(counts("float4", &body, ["masked_store"]), [4]);
}

/// Where the distance is an argument, scalars tell whether rows are in line.
#[test]
fn strides_of_rows_are_tested_once() {
    let body = "out[x] = a[x * n];";
    assert_eq!(counts("float4", body, ["in_line", "f32x16 = load", "f32x4 = load"]), [0, 4, 16]);
    // Rows of 8 bytes are numbers, of which every second, third or fourth is taken out of long vectors.
    let [tests, loads, gathers] = counts("float2", body, ["in_line", "i64x16 = load", "gather"]);
    assert!(tests == 0 && loads > 1 && gathers == 1, "{tests} {loads} {gathers}");
}

/// Vectors of several rows of a group are lines in each of them.
#[test]
fn parts_of_vectors_are_lines() {
    let module = requiring(&wide(&kernel("float4", "", "", &in_parts("float4"))), [4, 32, 1]);
    let widened = widened(&module);
    let text = widened.module.function_text(widened.function).to_string();
    assert!(text.contains("in_line") && !text.contains("in parts of 16"), "{text}");
}

/// Rows in line are loaded, computed and stored as they lie.
#[test]
fn whole_vectors_are_not_transposed() {
    for (ty, ..) in TYPES {
        for body in [
            "out[x] = a[x] + b[x];",
            "out[x] = (VEC)(3);",
            "VEC s = a[x]; for (int k = 1; k < n; k++) s = s + b[k * n + x]; out[x] = s;",
        ] {
            let (count, text) = shuffles(ty, &body.replace("VEC", ty));
            assert_eq!(count, 0, "{ty}: {body}\n{text}");
        }
    }
}

/// A mask has words of up to 8 bytes, and is repeated as many times as a row has of them.
#[test]
fn rows_under_masks_are_words() {
    let (_, text) = shuffles("float8", "if (t[x] & 1) out[x] = a[x] + b[x];");
    assert!(text.contains("i64x8 = masked_load"), "{text}");
    let (count, text) = shuffles("float2", "if (t[x] & 1) out[x] = a[x] + b[x];");
    assert_eq!(count, 0, "{text}");
}

/// All operations on the first vector come before those on the second one.
#[test]
fn one_vector_comes_after_the_other() {
    let (_, text) = shuffles("float8", "out[x] = a[x] + b[x];");
    let order: String = text
        .lines()
        .filter_map(|line| ["= load", "= fadd", "store"].iter().position(|op| line.contains(op)))
        .map(|n| ["l", "a", "s"][n])
        .collect();
    assert_eq!(order, "llas".repeat(8), "{text}");
}

/// Vectors whose components are used one by one are transposed once, when they are loaded.
#[test]
fn single_components_are_vectors_of_their_own() {
    let separate = |body: &str| {
        let (_, text) = shuffles("float4", body);
        !text.contains("f32x16 = fmul") || text.contains("f32x16 = shuffle")
    };
    assert!(separate("out[x] = (float4)(dot(a[x] * b[x], a[x]));"));
    assert!(separate("float4 v = a[x] * b[x]; out[x] = v.wzyx + v.yxwz;"));
    assert!(!separate("out[x] = a[x] * b[x];"));
    // Quotients have a form of their own for vectors of one component.
    let (_, text) = shuffles("int4", "out[x] = a[x] / b[x] + a[x];");
    assert!(!text.contains("sdiv"), "{text}");
    // Volatile accesses stay in their order.
    assert!(separate(
        "out[x] = ((volatile global float4 *)a)[x] * ((volatile global float4 *)b)[x];"
    ));
}

/// Instructions on vectors of four numbers that no available compiler writes: rows in line are read, and %y is written.
fn assembled(declarations: &str, body: &str) -> Module {
    module(
        &Assembly {
            declarations: &format!(
                "%v2 = OpTypeVector %i32 2
                 %v4 = OpTypeVector %i32 4
                 %pv2 = OpTypePointer CrossWorkgroup %v2
                 %pv4 = OpTypePointer CrossWorkgroup %v4
                 {declarations}"
            ),
            parameters: &[("out", "pv4"), ("in", "pv4"), ("pairs", "pv2"), ("t", "p")],
            body: &format!(
                "%to = OpPtrAccessChain %pv4 %out %i
                 %from = OpPtrAccessChain %pv4 %in %i
                 %at = OpPtrAccessChain %p %t %i
                 %v = OpLoad %v4 %from Aligned 16
                 %x = OpLoad %i32 %at Aligned 4
                 {body}
                 OpStore %to %y Aligned 16"
            ),
            ..Default::default()
        }
        .module(),
    )
}

/// Runs such a kernel in groups of 32 items.
fn agrees(module: &Module) {
    let mut random = Random::new(3);
    let inputs = [16, 16, 8, 4].map(|row| random.bytes(row * 64));
    same_in_all(module, "k", &[(Grid::line(64, 32), inputs.to_vec())]);
}

/// Vectors that are made of several scalars or of shorter vectors: compilers insert one after the other.
#[test]
fn vectors_of_different_parts_have_all_of_them() {
    for (make, repeated) in [("%x %x %x %x", true), ("%x %n %x %x", false), ("%w %w", false)] {
        let module = assembled(
            "",
            &format!(
                "%n = OpIMul %i32 %x %x
                 %pair = OpPtrAccessChain %pv2 %pairs %i
                 %w = OpLoad %v2 %pair Aligned 8
                 %c = OpCompositeConstruct %v4 {make}
                 %y = OpIAdd %v4 %v %c"
            ),
        );
        agrees(&module);
        let widened = widened(&module);
        let text = widened.module.function_text(widened.function).to_string();
        assert_eq!(text.contains("i32x64 = shuffle"), !repeated, "{make}\n{text}");
    }
}

/// Vectors of conditions in memory, of which a condition is a byte.
#[test]
fn vectors_of_conditions_in_memory_agree() {
    let module = assembled(
        "%c2 = OpConstant %i32 2
         %both = OpConstant %i32 272
         %c5 = OpConstant %i64 5
         %c31 = OpConstant %i64 31
         %c32 = OpConstant %i64 32
         %zeros = OpConstantNull %v4
         %b4 = OpTypeVector %bool 4
         %all = OpTypeArray %b4 %c32
         %pb4 = OpTypePointer Workgroup %b4
         %pall = OpTypePointer Workgroup %all
         %shared = OpVariable %pall Workgroup",
        "%l = OpBitwiseAnd %i64 %i %c31
         %own = OpInBoundsAccessChain %pb4 %shared %l
         %positive = OpSGreaterThan %b4 %v %zeros
         OpStore %own %positive
         OpControlBarrier %c2 %c2 %both
         %m = OpBitwiseXor %i64 %l %c5
         %others = OpInBoundsAccessChain %pb4 %shared %m
         %which = OpLoad %b4 %others
         %twice = OpIAdd %v4 %v %v
         %y = OpSelect %v4 %which %v %twice",
    );
    agrees(&module);
}
