// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels that would be long code: functions that stay functions, and loops that stay loops.

use tally_compiler::ir::{Dominators, Loops, Module};
use tally_compiler::optimise::{self, ORDER};
use tally_compiler::widen::lanes;

use crate::diff::same;
use crate::harness::Grid;
use crate::widen::{ints, wide};
use crate::work::optimised_module;

fn calls(text: &str, function: &str) -> usize {
    let calls = |line: &&str| line.contains("call ") && line.contains(&format!("@{function}"));
    text.lines().filter(calls).count()
}

/// A function of the library is inlined into a few places, and called from many.
#[test]
fn functions_that_many_places_call_stay_functions() {
    for (count, many) in [(4, false), (60, true)] {
        let body: String =
            (0..count).map(|k| format!("s += log1p(x * {k}.5f) * (s < {k}.25f);\n")).collect();
        let module = wide(&format!(
            "kernel void k(global int *out, global const int *in) {{
               int i = get_global_id(0); float x = in[i] & 255, s = 1;
               {body}
               out[i] = s * 64;
             }}"
        ));
        for cpu in ["x86-64-v4", "x86-64-v3"] {
            let lanes = lanes(&module.kernels[0]);
            let (text, _) = optimised_module(&module, cpu, lanes);
            assert_eq!(calls(&text, "__tally_log1p_f32x16") > 0, many, "{count} {cpu}:\n{text}");
        }
        let inputs = [ints(70, |_| 0), ints(70, |i| i * 57)];
        same(&module, "k", Grid::line(70, 70), &inputs, &format!("{count} calls"));
    }
}

/// The number of loops that are left before widening.
fn loops(module: &Module) -> usize {
    let mut part = module.clone();
    let kernel = &module.kernels[0];
    let (_, mut function) = optimise::inlined(module, kernel, 1 << 20).expect("it is small");
    ORDER.into_iter().for_each(|pass| pass.run(&mut part, &mut function));
    let predecessors = function.predecessors();
    Loops::of(&Dominators::of(&function, &predecessors), &predecessors).all.len()
}

/// A loop over a private array is unrolled, but not if its branches would be too many.
#[test]
fn loops_with_many_branches_are_not_unrolled() {
    for (branches, left) in [(1, 0), (16, 1)] {
        let body: String = (0..branches)
            .map(|k| {
                format!(
                    "if (own[j] & {}) out[i * 8 + j] += in[i + {k}] / (own[j] + {k});\n",
                    1 << (k % 8)
                )
            })
            .collect();
        let module = wide(&format!(
            "kernel void k(global int *out, global const int *in) {{
               int i = get_global_id(0), own[8];
               for (int j = 0; j < 8; j++) own[j] = in[i + j] & 255;
               #pragma unroll 1
               for (int j = 0; j < 8; j++) {{ {body} }}
             }}"
        ));
        assert_eq!(loops(&module), left, "{branches} branches");
        let inputs = [ints(8 * 64, |i| i), ints(80, |i| i * 77)];
        same(&module, "k", Grid::line(64, 32), &inputs, &format!("{branches} branches"));
    }
}
