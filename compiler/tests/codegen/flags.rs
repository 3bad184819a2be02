// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bits of words that conditions set: the bit is shifted, not the condition.

use tally_compiler::widen;

use crate::diff::{Run, same_in_all};
use crate::harness::{Grid, clang, module};
use crate::widen::{int, ints, wide};

/// A kernel that sets the bits of a word in a loop.
fn setting(ty: &str, bit: &str) -> String {
    format!(
        "kernel void set(global {ty} *out, global const int *in, int n, int m) {{
           int i = get_global_id(0), x = in[i];
           {ty} word = 0;
           for (int k = 0; k < n; k++) word |= {bit};
           out[i] = word; }}"
    )
}

const BITS: [&str; 6] = [
    "(uint)(in[k] == x) << k",
    "(ulong)(in[k] > x) << (k & 63)",
    "(ulong)(uint)(in[k] < x ? 5 : 0) << (k + m & 31)",
    "(in[k] < x ? 3u : 0u) << (x + k & 31)",
    "(in[k] < x ? 3u : 1u) << (k & 31)",
    "(in[k] < x ? 0u : 9u) << (k & 31)",
];

#[test]
fn bits_are_shifted_for_all_items_at_once() {
    let shifts = |bit: &str| {
        let module = wide(&setting("uint", bit));
        let widened = widen::widen(&module, &module.kernels[0], 16).expect("it is widened");
        let text = widened.module.function_text(widened.function).to_string();
        text.lines().filter(|line| line.contains("x16 = shl")).count()
    };
    assert_eq!(shifts(BITS[0]), 0);
    assert_eq!(shifts(BITS[4]), 1, "it has no condition that is left out");
}

#[test]
fn bits_that_conditions_set_are_the_same() {
    let runs: Vec<Run> = [(48, 24), (40, 10)]
        .into_iter()
        .flat_map(|(items, group)| [0, 1, 31].map(|n| (items, group, n)))
        .map(|(items, group, n)| {
            let inputs =
                vec![ints(2 * items, |_| -1), ints(64, |i| i * 37 % 11 - 5), int(n), int(n * 7)];
            (Grid::line(items as u64, group), inputs)
        })
        .collect();
    for level in ["-O0", "-O2"] {
        for ty in ["uint", "ulong"] {
            for bit in BITS {
                let spirv = clang::compile_text(&setting(ty, bit), &[level, "-w"]);
                same_in_all(&module(&spirv), "set", &runs);
            }
        }
    }
}
