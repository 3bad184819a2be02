// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mathematical functions of counters, which are computed for several turns at once. The form for one item computes
//! them one by one, and a number in a vector has the result that it has alone, so all bits have to agree.

use tally_compiler::ir::{Module, Op};
use tally_compiler::widen::widen;

use crate::diff::Random;
use crate::harness::{Grid, Kernel, buffer, value, widths};
use crate::widen::wide;

/// Items, more than the counts of turns that are tried.
const ITEMS: usize = 96;

/// A kernel of floats with a loop; what it adds up is exact but for the function.
fn kernel(body: &str) -> String {
    format!(
        "#pragma OPENCL FP_CONTRACT OFF
         #pragma OPENCL EXTENSION cl_khr_fp64 : enable
         kernel void k(global float *out, global const float *in, int n, float step) {{
           int x = get_global_id(0), l = get_local_id(0); float a = in[x]; local float tile[64];
           {body}
           out[x] = a; }}"
    )
}

/// How many functions each widened function computes for one turn at a time.
fn left(text: &str) -> usize {
    let module = wide(text);
    let widened = widen(&module, &module.kernels[0], 16).expect("it is widened");
    let function = &widened.module.functions[widened.function];
    let insts = function.blocks.iter().flat_map(|(_, block)| &block.insts);
    let lanes = |op: &Op| match op {
        Op::Math(_, args) => {
            widened.module.types.lanes(widened.module.operand_type(function, args[0]))
        }
        _ => 0,
    };
    insts.filter(|inst| lanes(&inst.op) == 1).count()
}

/// Runs a kernel one item at a time and widened, and compares all bits.
fn agree(module: &Module, counts: &[i32], context: &str) {
    let inputs: Vec<f32> = (0..ITEMS + 64).map(|i| (i * 37 % 101) as f32 * 0.25 - 9.0).collect();
    for (target, lanes) in widths().into_iter().filter(|(_, lanes)| *lanes > 1) {
        let one = Kernel::with_lanes(module, "k", &target, 1);
        // One as a driver gets it, which may have a form for two vectors at a time.
        let many = match target.name.as_str() {
            "x86-64-v4" => Kernel::new(module, "k", &target),
            _ => Kernel::with_lanes(module, "k", &target, lanes),
        };
        for &n in counts {
            for group in [48, 24] {
                let run = |kernel: &Kernel| {
                    let (mut out, mut input) = (vec![0f32; ITEMS], inputs.clone());
                    let args = vec![buffer(&mut out), buffer(&mut input), value(n), value(0.37f32)];
                    kernel.run(Grid::line(ITEMS as u64, group), args);
                    let bits = |x: f32| if x.is_nan() { u32::MAX } else { x.to_bits() };
                    out.into_iter().map(bits).collect::<Vec<u32>>()
                };
                let [one, many] = [&one, &many].map(run);
                assert_eq!(one, many, "{n} turns, {lanes} of {group} items, {target:?}\n{context}");
            }
        }
    }
}

const COUNTS: [i32; 9] = [0, 1, 2, 15, 16, 17, 31, 33, 70];

/// Loops whose functions are all computed ahead.
const AHEAD: [&str; 14] = [
    "for (int t = 0; t < n; t++) a += sin(t * step);",
    "for (int t = n; t > 0; t--) a = a * 0.5f + exp(-t * step);",
    "for (uint t = 3; t < (uint)n; t += 5) a += pow(t + 0.5f, step) * in[x + t / 2];",
    "for (long t = -n; t < n; t++) a = fabs(a) - cospi(t * 0.125f);",
    "for (int t = 0; t < n; t++) { float c, s = sincos(t * step, &c); a = s - a * c; }",
    "for (int t = 0; t < n; t++) { float c, s = sincos(t * step, &c); a = a * 0.5f + s; }",
    "for (int t = 0; t < n; t++) a += pown(step + 1, t % 4096 - 3) + rootn(t + 1.0f, 3);",
    "for (int t = 0; t < n; t++) a += (float)exp((double)t * -0.01) + (float)log(t + 1.5);",
    "for (int j = -1; j < n / 9; j++) for (int i = -j; i < n / 5; i++)
       a += exp(-(i * i + j * j) * step) * in[x + 10 + i];",
    "for (int j = 0; j < n / 4; j++) { float w = sin(j * step); a -= w;
       for (int i = 0; i < j; i++) a = a * 0.75f + cos(i * w) * in[x + i]; }",
    "for (int t = 0; t < n; t++) { float w = exp(sin(t * step)); a += log(w + in[0] * in[0]); }",
    "for (int t = 0; t < n; t++) { a += tanh(t & 4 ? t * step : step - t); if (a > 90.0f) break; }",
    "if (in[x] > -5.0f) for (int t = 0; t < n; t++) a += atan2(t - 8.0f, step);",
    "tile[l] = a; barrier(CLK_LOCAL_MEM_FENCE);
     for (int t = 0; t < n; t++) a += erf(t * step) * tile[(l + t) % 24];
     barrier(CLK_LOCAL_MEM_FENCE); tile[l] = a; barrier(CLK_LOCAL_MEM_FENCE);
     for (int t = 0; t < n; t++) a += exp2(-t * step) * tile[(l + t) % 24];",
];

#[test]
fn functions_of_counters_are_those_of_their_turns() {
    for body in AHEAD {
        let text = kernel(body);
        assert_eq!(left(&text), 0, "{body}");
        agree(&wide(&text), &COUNTS, body);
    }
}

/// Turns that never come have counters that wrap around, which the program has promised not to do.
#[test]
fn counters_may_wrap_around_behind_the_last_turn() {
    for body in [
        "for (int t = 0x7fffffff - n; t < 0x7fffffff; t++) a += sin((t - 0x7fffff00) * step);",
        "for (int t = 0x7fffffff - n; t < 0x7fffffff; t++) a += exp((t + 1 < t ? 1 : 2) * step - (t & 7));",
        "for (uint t = 5u - n; t != 5; t++) a += exp(-(t & 31) * step) * in[x + (t & 15)];",
    ] {
        let text = kernel(body);
        assert_eq!(left(&text), 0, "{body}");
        agree(&wide(&text), &COUNTS, body);
    }
}

/// What each turn has to compute for itself: what comes from memory or from the turn before, what not every turn
/// computes, and functions in loops in which items wait for each other.
#[test]
fn other_functions_stay_where_they_are() {
    for body in [
        "for (int t = 0; t < n; t++) a += sin(in[t] * step);",
        "float w = step; for (int t = 0; t < n; t++) { w = sin(w + t); a += w; }",
        "for (int t = 0; t < n; t++) if (in[t] > 0) a += sin(t * step);",
        "for (int t = 0; t < n; t += t / 2 + 1) a += sin(t * step);",
        "for (int t = 0; t < n; t++) { tile[l] = a + sin(t * step); barrier(CLK_LOCAL_MEM_FENCE);
           a = tile[(l + t) % 24]; barrier(CLK_LOCAL_MEM_FENCE); }",
    ] {
        let text = kernel(body);
        assert_eq!(left(&text), 1, "{body}");
        agree(&wide(&text), &COUNTS, body);
    }
}

/// An expression of counters and of what all items share.
fn expression(random: &mut Random, counters: &[&str], depth: u32) -> String {
    let mut next = |depth| expression(random, counters, depth);
    if depth == 0 {
        return match random.below(7) {
            0 => "step".to_owned(),
            // What is constant is computed by the compiler, for the widened form alone.
            1 => format!("(step + {}.5f)", random.below(9)),
            2 if random.below(3) == 0 => "in[3]".to_owned(),
            3 => format!("(float)({} & {})", counters[0], random.below(64)),
            n => format!("(float)({})", counters[n as usize % counters.len()]),
        };
    }
    let (a, b) = (next(depth - 1), next(depth - 1));
    match random.below(13) {
        0 => format!("({a} + {b})"),
        1 => format!("({a} - {b})"),
        2 => format!("{a} * {b}"),
        3 => format!("{a} / ({b})"),
        4 => format!("fmin({a}, {b})"),
        5 => format!("({a} < {b} ? {a} : step)"),
        6 => format!("sin({a})"),
        7 => format!("exp({a} * -0.01f)"),
        8 => format!("(float)log((double)fabs({a}) + 1)"),
        9 => format!("fma({a}, {b}, step)"),
        10 => format!("floor({a})"),
        11 => format!("atan2({a}, {b})"),
        _ => format!("sqrt(fabs({a}))"),
    }
}

/// Statements with loops and functions.
fn statements(random: &mut Random, counters: &[&str]) -> String {
    let name = ["t", "u", "v"][counters.len()];
    let mut all = counters.to_vec();
    all.push(name);
    let ty = ["int", "uint", "long"][random.below(3) as usize];
    let most = if counters.is_empty() { "n" } else { "n / 8" };
    let step = 1 + random.below(3);
    let head = match random.below(3) {
        0 => format!("for ({ty} {name} = {most}; {name} > 0; {name}--)"),
        1 => format!("for ({ty} {name} = {step}; {name} < ({ty})({most}); {name} += {step})"),
        _ => format!("for ({ty} {name} = 0; {name} != ({ty})({most}); {name}++)"),
    };
    let mut body = String::new();
    for _ in 0..1 + random.below(3) {
        let depth = 1 + random.below(3) as u32;
        let value = expression(random, &all, depth);
        body += &match random.below(9) {
            0 => format!("if (in[x + ({name} & 7)] > 0) a += sin({value});\n"),
            1 => format!("if (a > 50.0f) a = in[x] - cos({value});\n"),
            2 => {
                format!(
                    "if (in[x + 3] > 12.0f && (int){name} == n - 2) break; a -= exp2(-fabs({value}));\n"
                )
            }
            3 => format!("if (({name} & 3) == 1) continue; a = a * 0.5f + cos({value});\n"),
            4 if all.len() < 3 => statements(random, &all),
            5 => format!("{{ float c, s = sincos({value}, &c); a = a * c + s; }}\n"),
            _ => format!("a = a * 0.5f + tanh({value});\n"),
        };
    }
    format!("{head} {{ {body} }}\n")
}

/// Random loops, of which `TALLY_SEED` chooses others. No turn has a number that is known before: LLVM would compute
/// the function of such a constant itself, and its last bit may differ.
#[test]
fn random_loops_agree() {
    const COUNT: u64 = 12;
    let first = std::env::var("TALLY_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut ahead = 0;
    for seed in first..first + COUNT {
        let mut random = Random::new(seed);
        let body = match random.below(3) {
            0 => format!(
                "tile[l] = a; barrier(CLK_LOCAL_MEM_FENCE); a = tile[l ^ 1]; {}",
                statements(&mut random, &[])
            ),
            1 => format!("if (in[x] > -6.0f) {}", statements(&mut random, &[])),
            _ => statements(&mut random, &[]) + &statements(&mut random, &[]),
        };
        let module = wide(&kernel(&body));
        let widened = widen(&module, &module.kernels[0], 16).expect("it is widened");
        ahead += usize::from(!widened.module.functions[widened.function].variables.is_empty());
        agree(&module, &[0, 1, 7, 16, 40], &format!("seed {seed}: {body}"));
    }
    assert!(ahead > 0, "none of {COUNT} computes ahead");
}
