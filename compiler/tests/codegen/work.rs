// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a kernel's code is said to do, by which LLVM's passes are chosen, and what these leave.

use tally_compiler::ir::Module;
use tally_compiler::llvm::{self, Level, Output};
use tally_compiler::lower::{self, Work};
use tally_compiler::widen::widen;
use tally_compiler_protocol::TargetCpu;

use crate::harness::{clang, module};

/// What the code of a kernel with this body does, in vectors of 16 items, and one item at a time.
fn work(body: &str) -> [Work; 2] {
    let text = format!(
        "kernel void k(global int *p, int n, local int *q) {{ int i = get_global_id(0); {body} }}"
    );
    let module = module(&clang::compile_text(&text, &["-O2", "-w"]));
    let kernel = &module.kernels[0];
    let widened = widen(&module, kernel, 16).expect("it is widened");
    let wide = lower::lower_widened(&widened, kernel).expect("it is lowered").work;
    [wide, lower::lower(&module, kernel).expect("it is lowered").work]
}

/// Only code without loops and barriers of its own is straight.
#[test]
fn loops_and_barriers_are_found() {
    assert_eq!(work("if (i < n) p[i] += n;"), [Work::Straight, Work::Items]);
    assert_eq!(work("for (int k = 0; k < n; k++) p[i] += p[i + k];"), [Work::Vectors, Work::Items]);
    let barrier = "q[i] = n; barrier(CLK_LOCAL_MEM_FENCE); p[i] = q[i ^ 1];";
    assert_eq!(work(barrier), [Work::Vectors, Work::Items]);
}

/// LLVM's assembly language of a kernel for vectors of 16 items, as it is optimised for AVX-512.
fn optimised(text: &str) -> (String, Work) {
    optimised_for("x86-64-v4", text)
}

/// The same for a processor.
fn optimised_for(processor: &str, text: &str) -> (String, Work) {
    optimised_module(&module(&clang::compile_text(text, &["-O2"])), processor, 16)
}

/// What LLVM makes of a module's first kernel in vectors for a processor.
pub fn optimised_module(module: &Module, processor: &str, lanes: u32) -> (String, Work) {
    let kernel = &module.kernels[0];
    let widened = widen(module, kernel, lanes).expect("it is widened");
    let lowered = lower::lower_widened(&widened, kernel).expect("it is lowered");
    let target = TargetCpu { name: processor.into(), features: String::new() };
    let (work, kind) = (lowered.work, Output::Optimised);
    let text = llvm::compile(&lowered.text, work, &target, Level::Full, kind).expect("it compiles");
    (String::from_utf8(text).expect("text"), work)
}

/// LLVM does not know how many items take turns, or it would write an update for each of them after all.
#[test]
fn updates_of_local_memory_stay_loops() {
    let (text, _) = optimised(
        "kernel void k(global uchar4 *x, local int *p, int n) {
           for (int k = 0; k < n; k++) {
             uchar4 a = x[256 * k + get_local_id(0)];
             atomic_inc(&p[a.x]); atomic_inc(&p[a.y]); atomic_inc(&p[a.z]); atomic_inc(&p[a.w]);
           } }",
    );
    let updates = text.lines().filter(|line| line.contains("add i32") && line.ends_with(", 1"));
    let updates = updates.count();
    assert!((4..=16).contains(&updates), "{updates} updates:\n{text}");
}

/// A function that the library has for vectors is called for vectors, and others become vector code.
#[test]
fn no_function_is_called_for_one_item_of_a_vector() {
    let native = ["cos", "exp", "exp2", "exp10", "log", "log2", "log10", "sin", "tan"]
        .map(|name| format!("native_{name}(x)"));
    let others = [
        "native_powr(x, x)",
        "half_sin(x)",
        "fract(x, &y) + y",
        "ldexp(x, n)",
        "nextafter(x, 2.0f)",
        "frexp(x, &n) + n",
        "ilogb(x)",
        "logb(x)",
        "modf(x, &y) + y",
    ];
    for body in native.iter().map(String::as_str).chain(others) {
        let (text, work) = optimised(&format!(
            "kernel void k(global float *p, global const int *q) {{
               int i = get_global_id(0), n = q[i];
               float x = p[i], y;
               p[i] = {body};
             }}"
        ));
        let from = text.find("@tally_entry").expect("an entry");
        let entry = text[from..].split("\n}").next().expect("its end");
        let one = ["load float,", "call float ", "call i32 @__tally"];
        assert!(!one.iter().any(|one| entry.contains(one)), "{body}:\n{entry}");
        let by_loops = work == Work::Components;
        let has_form = ["native", "half", "ldexp"].iter().any(|name| body.contains(name));
        assert_eq!(by_loops, !has_form, "{body}");
    }
}

/// A call would save all vectors that are needed after it.
#[test]
fn functions_of_vectors_are_in_the_kernels_own_code() {
    for name in ["exp", "log", "sin", "tanh", "pow"] {
        let arguments = if name == "pow" { "x, x" } else { "x" };
        let (text, _) = optimised(&format!(
            "kernel void k(global float *p) {{
               int i = get_global_id(0);
               float x = p[i];
               p[i] = {name}({arguments});
             }}"
        ));
        let called = format!("@__tally_{name}_f32x16(");
        assert!(text.contains("@tally_entry") && !text.contains(&called), "{text}");
    }
}

/// The code of a kernel that computes something of two floats and of two numbers that its items share.
fn code_of(body: &str) -> String {
    let (text, _) = optimised(&format!(
        "kernel void k(global float *p, global const float *q, float u, int n) {{
           int i = get_global_id(0);
           float x = p[i], y = q[i];
           p[i] = {body};
         }}"
    ));
    text
}

/// An estimate and a step, without a division and without a test whether all numbers are usual.
#[test]
fn approximate_roots_and_quotients_are_estimates_and_a_step() {
    let forms = [
        ("native_rsqrt(x)", "rsqrt14"),
        ("half_rsqrt(x)", "rsqrt14"),
        ("rsqrt(x)", "rsqrt14"),
        ("native_divide(x, y)", "rcp14"),
        ("half_divide(x, y)", "rcp14"),
        ("native_divide(x, u)", "rcp14"),
        ("native_recip(x)", "rcp14"),
        ("half_recip(x)", "rcp14"),
    ];
    for (body, estimate) in forms {
        let text = code_of(body);
        let estimates = format!("@llvm.x86.avx512.{estimate}.ps.512(");
        assert!(text.contains(&format!("call <16 x float> {estimates}")), "{body}:\n{text}");
        for slow in ["fdiv <16 x float>", "sqrt.v16f32", "reduce.and.v16"] {
            assert!(!text.contains(slow), "{slow} in {body}:\n{text}");
        }
    }
}

#[test]
fn an_approximate_quotient_by_a_constant_is_a_product() {
    for body in ["native_divide(x, 3.0f)", "half_divide(x, 10.0f)"] {
        let text = code_of(body);
        assert!(text.contains("fmul"), "{body}:\n{text}");
        assert!(!text.contains("fdiv") && !text.contains("rcp14"), "{body}:\n{text}");
    }
}

/// Exponents that all items share are known to be small where they are constants.
#[test]
fn powers_by_small_constants_are_products() {
    for (body, products) in [("pown(x, 2)", 1), ("pown(x, 3)", 2), ("pown(x, -4)", 2)] {
        let text = code_of(body);
        let group = text.split("void @tally.joined(").last().expect("what runs a group");
        let group = group.split("\n}").next().expect("its end");
        let lookups = group.matches("permvar").count() + group.matches("vpermi2var").count();
        assert_eq!(lookups, 0, "{body}:\n{group}");
        let done = group.matches("fmul <").count();
        // A vector may be computed in two halves.
        let range = products..=2 * products;
        assert!(range.contains(&done), "{done} products in {body}:\n{group}");
    }
}

/// LLVM has no vector code of its own for these.
#[test]
fn conversions_to_integers_saturate_in_vectors() {
    for to in ["char", "uchar", "short", "ushort", "int", "uint", "long", "ulong"] {
        for from in ["half", "float", "double"] {
            let (text, _) = optimised(&format!(
                "#pragma OPENCL EXTENSION cl_khr_fp16 : enable
                 kernel void k(global {to} *to, global const {from} *from) {{
                   int i = get_global_id(0);
                   to[i] = convert_{to}_sat(from[i]);
                 }}"
            ));
            let kinds = ["fptosi <16 x", "fptoui <16 x"].map(|kind| text.contains(kind));
            assert!(kinds.contains(&true), "{from} to {to}:\n{text}");
            assert!(!text.contains(".sat.v16"), "{from} to {to}:\n{text}");
        }
    }
}

/// LLVM would compute these one at a time.
#[test]
fn functions_of_half_floats_are_those_of_floats() {
    for call in [
        "fmin(x, y)",
        "fmax(x, y)",
        "floor(x)",
        "ceil(x)",
        "trunc(x)",
        "rint(x)",
        "round(x)",
        "sqrt(x)",
    ] {
        let (text, _) = optimised(&format!(
            "#pragma OPENCL EXTENSION cl_khr_fp16 : enable
             kernel void k(global half *p, global const half *a, global const half *b) {{
               int i = get_global_id(0);
               half x = a[i], y = b[i];
               p[i] = {call};
             }}"
        ));
        assert!(text.contains("v16f32(") && !text.contains("v16f16("), "{call}:\n{text}");
    }
}

/// The bits of a checksum are tested in one value, and what each adds has been shifted at build time.
#[test]
fn steps_of_a_checksum_need_few_shifts() {
    let (text, _) = optimised(
        "kernel void k(global uint *out, global const uint *in) {
           uint crc = ~in[get_global_id(0)];
           for (int bit = 0; bit < 32; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
           out[get_global_id(0)] = ~crc;
         }",
    );
    let count = |what: &str| text.matches(what).count();
    let (shifts, bits) = (count(" = lshr <16 x i32>"), count(" = select <16 x i1>"));
    assert!(bits >= 4 && 2 * shifts <= bits, "{shifts} shifts for {bits} bits:\n{text}");
}

/// LLVM's code for rotations on AVX2 may be wrong, unless all amounts are known. The results are compared in
/// `numbers.rs`.
#[test]
fn rotations_by_unknown_amounts_are_shifts_for_avx2() {
    for (processor, amount, rotates) in [
        ("x86-64-v3", "in[i]", false),
        ("x86-64-v3", "-in[i]", false),
        ("x86-64-v3", "7", true),
        ("x86-64-v4", "in[i]", true),
        ("x86-64", "in[i]", true),
    ] {
        for ty in ["ushort", "uint", "ulong"] {
            let (text, _) = optimised_for(
                processor,
                &format!(
                    "kernel void k(global {ty} *out, global const {ty} *in) {{
                       int i = get_global_id(0);
                       out[i] = rotate(out[i], ({ty})({amount}));
                     }}"
                ),
            );
            let rotation = |line: &str| line.contains("call <16 x i") && line.contains("@llvm.fsh");
            let found = text.lines().any(rotation);
            assert_eq!(found, rotates, "{processor}, {ty}, {amount}:\n{text}");
        }
    }
}

/// Processors gather words. What is smaller lies in one, if it is aligned.
#[test]
fn small_elements_are_gathered_as_words() {
    for (processor, ty, gathered) in [
        ("x86-64-v4", "uchar", "v16i32"),
        ("x86-64-v4", "ushort", "v16i32"),
        ("x86-64-v4", "half", "v16i32"),
        ("x86-64-v3", "uchar", "v16i32"),
        ("x86-64", "uchar", "v16i8"),
    ] {
        let (text, _) = optimised_for(
            processor,
            &format!(
                "#pragma OPENCL EXTENSION cl_khr_fp16: enable
                 kernel void k(global {ty} *out, global const {ty} *from, global const int *at) {{
                   int i = get_global_id(0);
                   if (at[i] > 0) out[i] = from[at[i]];
                 }}"
            ),
        );
        let gathers =
            text.lines().filter(|line| line.contains("call") && line.contains(".gather."));
        let names: Vec<&str> = gathers.collect();
        assert!(!names.is_empty(), "{text}");
        assert!(names.iter().all(|line| line.contains(gathered)), "{processor}, {ty}:\n{names:?}");
    }
}

/// Elements that may straddle words are read one by one.
#[test]
fn elements_at_odd_addresses_are_no_part_of_a_word() {
    let (text, _) = optimised(
        "struct __attribute__((packed)) record { char first; short second; };
         kernel void k(global short *out, global const struct record *from, global const int *at) {
           int i = get_global_id(0);
           out[i] = from[at[i]].second;
         }",
    );
    assert!(text.contains("llvm.masked.gather.v16i16"), "{text}");
}

/// LLVM would take a test, a branch and a load for each item otherwise.
#[test]
fn processors_with_avx2_gather() {
    let module = module(&clang::compile_text(
        "kernel void k(global float *out, global const float *from, global const int *at) {
           int i = get_global_id(0);
           if (at[i] > 0) out[i] = from[at[i]];
         }",
        &["-O2"],
    ));
    let kernel = &module.kernels[0];
    let widened = widen(&module, kernel, 16).expect("it is widened");
    let lowered = lower::lower_widened(&widened, kernel).expect("it is lowered");
    let target = TargetCpu { name: "x86-64-v3".into(), features: String::new() };
    let (work, kind) = (lowered.work, Output::Assembly);
    let text = llvm::compile(&lowered.text, work, &target, Level::Full, kind).expect("it compiles");
    let text = String::from_utf8(text).expect("text");
    assert!(text.contains("vgather") || text.contains("vpgather"), "{text}");
}
