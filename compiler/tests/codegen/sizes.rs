// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ids and counters that are `size_t`, beside those that are `int`: comparisons, and numbers that are kept in 64 bits.

use tally_compiler::ir::{Module, Type};
use tally_compiler::optimise::{self, ORDER, Pass};
use tally_compiler::widen::widen;

use crate::diff::{Input, same, same_in_all};
use crate::harness::{Grid, clang, module};
use crate::passes::agree_after_each;
use crate::widen::{int, ints, wide};

fn longs(numbers: &[i64]) -> Input {
    Input::bytes(numbers.iter().flat_map(|number| number.to_le_bytes()).collect())
}

fn widened(module: &Module) -> String {
    let widened = widen(module, &module.kernels[0], 16).expect("a plain kernel");
    widened.module.function_text(widened.function).to_string()
}

/// Numbers with a step, and how many bits vectors that compare them have for each, with signs and without.
const NUMBERS: [(&str, [&[u32]; 2]); 8] = [
    ("i", [&[32], &[32]]),
    ("i + 3", [&[32], &[32]]),
    // As numbers without a sign, some are large: only whether they are equal is found out in 32 bits.
    ("i - 5", [&[32], &[32, 64]]),
    ("i + 0x20000000", [&[32], &[32]]),
    ("i + 0x20000001", [&[64], &[64]]),
    ("i + limits[0]", [&[64], &[64]]),
    ("2 * i", [&[64], &[64]]),
    ("l * 4 + 1", [&[32], &[32]]),
];

const OPERATORS: [&str; 6] = ["<", "<=", ">", ">=", "==", "!="];

fn comparisons(number: &str, ty: &str) -> Module {
    let mut text = format!(
        "kernel void k(global int *out, global const {ty} *limits, int n) {{
           {ty} i = get_global_id(0), l = get_local_id(0), number = {number};
           for (int k = 0; k < n; k++) {{
             {ty} limit = limits[k]; int bits = 0;\n"
    );
    for (bit, operator) in OPERATORS.iter().enumerate() {
        text += &format!(
            "if (number {operator} limit) bits |= {}; if (limit {operator} number) bits |= {};\n",
            1 << bit,
            1 << (bit + 8)
        );
    }
    text += "out[k * get_global_size(0) + i] = bits; } }";
    wide(&text)
}

/// Ids fit 32 bits, but not what they are compared with.
#[test]
fn ids_are_compared_with_numbers_of_64_bits() {
    let mut limits = vec![0];
    for end in [0, 1 << 29, 1 << 30, 1 << 31, 1 << 32, 3 << 32, i64::MAX, i64::MIN, 1 << 63] {
        limits.extend([-17, -5, -1, 0, 1, 9, 19, 20].map(|more| i64::wrapping_add(end, more)));
    }
    for (number, bits) in NUMBERS {
        for (ty, expected) in ["long", "ulong"].into_iter().zip(bits) {
            let module = comparisons(number, ty);
            let text = widened(&module);
            let compares = |bits: &u32| {
                let vector = format!("i{bits}x16");
                text.lines().any(|line| {
                    let compared = line.split_once("boolx16 = ").map(|it| it.1);
                    compared.and_then(|it| it.split(' ').nth(1)).is_some_and(|first| {
                        let first = first.trim_end_matches(',');
                        text.contains(&format!("{first}: {vector} ="))
                    })
                })
            };
            let found: Vec<u32> = [32, 64].into_iter().filter(compares).collect();
            assert_eq!(found, expected, "{number} {ty}:\n{text}");
            let out = ints(64 * limits.len() as i32, |_| -1);
            let inputs = [out, longs(&limits), int(limits.len() as i32)];
            same(&module, "k", Grid::line(64, 32), &inputs, &format!("{number} {ty}"));
        }
    }
}

/// An `int` id is compared with a counter that clang keeps in 64 bits, and so extends the id.
#[test]
fn extended_ids_are_compared_in_32_bits() {
    let module = wide(
        "kernel void k(global int *out, global const int *in, int n) {
           int i = get_global_id(0), sum = 0;
           for (int k = 0; k < n; k++) if (k > i) sum += in[k] ^ in[i];
           out[i] = sum;
         }",
    );
    let text = widened(&module);
    assert!(!text.contains("i64x16"), "{text}");
    let inputs = [ints(64, |_| 0), ints(64, |k| k.wrapping_mul(0x3c6e_f35f)), int(50)];
    same(&module, "k", Grid::line(64, 32), &inputs, "");
}

/// The phis of 64 bits that are left before widening.
fn wide_phis(module: &Module, passes: impl Iterator<Item = Pass>) -> usize {
    let mut part = module.clone();
    let kernel = module.kernels[0].clone();
    let (_, mut function) = optimise::inlined(module, &kernel, 1 << 20).expect("it is small");
    passes.for_each(|pass| pass.run(&mut part, &mut function));
    let phis = function.blocks.iter().flat_map(|(_, block)| block.phis());
    let types = phis.filter_map(|phi| phi.result).map(|it| function.values[it].ty);
    types.filter(|&ty| part.types[ty] == Type::Int(64)).count()
}

/// Loops whose counters clang keeps in 64 bits, though they are `int`, and numbers of which half is used: bodies, and
/// how many phis of 64 bits there are without the pass and with it.
const LOOPS: [(&str, [usize; 2]); 8] = [
    ("for (int k = i; k < n; k += get_global_size(0)) out[k] = in[k] * 3 + 1;", [1, 0]),
    ("for (uint k = i; k < n; k += get_global_size(0)) out[k] = in[k] * 3 + 1;", [1, 0]),
    ("for (int k = i; k < n; k += s) { out[k] += in[k] ^ k; k ^= 0; }", [1, 0]),
    (
        "long at = 0; for (int k = 0; k < n; k++) if (in[k] > in[i]) at = k + s; out[i] = (int)at;",
        [3, 1],
    ),
    (
        "ulong a = i; for (int k = 0; k < n; k++) a = a * s + (in[k] ^ a);
         out[i] = (short)a + (int)(a & 0xffffffff);",
        [3, 1],
    ),
    // The index in bytes is `a << 32 >> 30`, and negative.
    (
        "long a = i - 64; for (int k = 0; k < n; k++) { a ^= s; (out + 128)[(int)a] += k; }
         out[i + 128] += a;",
        [2, 0],
    ),
    ("ulong a = i; for (int k = 0; k < n; k++) a = a * s + in[k]; out[i] = a >> 7;", [3, 3]),
    ("ulong a = i; for (int k = 0; k < n; k++) a += (a >> 1) * s; out[i] = a;", [2, 1]),
];

/// Numbers of 64 bits are numbers of 32 bits where only those count.
#[test]
fn half_numbers_are_kept_in_32_bits() {
    for (body, phis) in LOOPS {
        let text = format!(
            "kernel void k(global int *out, global const int *in, int n, ulong s) {{
               int i = get_global_id(0);
               {body}
             }}"
        );
        let step = |s: u64| Input::Value(s.to_le_bytes().to_vec());
        let mut runs = Vec::new();
        for (n, s) in [(64, 64), (50, 0x1_0000_0040), (3, 64)] {
            let out = ints(256, |k| k * 5);
            let inputs = vec![out, ints(64, |k| k.wrapping_mul(0x3c6e_f35f)), int(n), step(s)];
            runs.push((Grid::line(64, 32), inputs));
        }
        for level in ["-O0", "-O2"] {
            let module = module(&clang::compile_text(&text, &[level, "-w"]));
            agree_after_each(&module, "k", &runs).unwrap_or_else(|how| panic!("{body}: {how}"));
            same_in_all(&module, "k", &runs);
            if level == "-O2" {
                let all = wide_phis(&module, ORDER.into_iter());
                let others = ORDER.into_iter().filter(|pass| *pass != Pass::Words);
                assert_eq!([wide_phis(&module, others), all], phis, "{body}");
            }
        }
    }
}

/// Items that share the elements of an array find them in line, whatever type counts them.
#[test]
fn shared_loops_are_in_line() {
    for ty in ["int", "long", "size_t"] {
        let text = widened(&wide(&format!(
            "kernel void k(global float *out, global const float *in, int n, float a) {{
               for ({ty} i = get_global_id(0); i < n; i += get_global_size(0)) out[i] = in[i] * a;
             }}"
        )));
        assert!(!text.contains("gather") && !text.contains("scatter"), "{ty}:\n{text}");
        assert!(!text.contains("i64x16") || ty != "int", "{text}");
    }
}
