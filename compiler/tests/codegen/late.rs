// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stores of loops to one place, which happen once behind the loop if nothing else that the loop accesses lies there.

use tally_compiler::ir::{BlockId, Op, Terminator};
use tally_compiler::widen;

use crate::diff::{Run, same_in_all};
use crate::harness::Grid;
use crate::widen::{int, ints, wide};

const ROW: Grid = Grid { offset: [0; 3], global: [24, 1, 1], group: [24, 1, 1] };

/// Loops over the numbers from `from` on in a row of each item's own, with a place in it.
const FORMS: [&str; 16] = [
    "for (int k = 0; k < n; k++) row[to] += row[from + k];",
    "for (int k = 0; k < n; k++) row[to] = row[from + k] * 3 + k;",
    "for (uint k = 0; k < (uint)n; k++) row[to] = row[to] * 3 + row[(uint)from + k];",
    "for (long k = 0; k < n; k++) row[to] = row[to] * 3 + row[from + 3 * k];",
    "for (int k = n - 1; k >= 0; k--) row[to] = row[to] * 3 + row[from + k];",
    "for (int k = 0; k <= n; k += 2) row[to] = row[to] * 3 + row[from + k];",
    "for (int k = n; k > 0; k -= 4) row[to] = row[to] * 3 + row[from + k];",
    "global int *p = row + from; for (int k = n; k-- > 0; p += 2) row[to] = row[to] * 3 + *p;",
    "global int *p = row + from; do row[to] = row[to] * 3 + *p++; while (--n > 0);",
    // Several places, which may be one.
    "for (int k = 0; k < n; k++) { row[to] += k * 5; row[from] = row[to] * 3 + row[to + 4]; }",
    "for (int k = 0; k < n; k++) { row[from] += row[to]; row[to] += row[from] * 3 + k; }",
    // Another store, and values that are needed behind the loop.
    "for (int k = 0; k < n; k++) { row[to] = row[to] * 3 + k; row[from + k] = row[to + 1] * 5; }",
    "int s = 0; for (int k = 0; k < n; k++) { s = s * 5 + row[to]; row[to] = s + row[from + k]; }
     row[9] = s;",
    // A place of other bytes.
    "global long *q = (global long *)(row + to / 2 * 2);
     for (int k = 0; k < n; k++) *q = *q * 3 + row[from + k];",
    // In turns that differ, and one loop behind another.
    "if (i % 3) for (int k = 0; k < n; k++) row[to] = row[to] * 3 + row[from + k];",
    "for (int k = 0; k < n; k++) row[to] = row[to] * 3 + row[from + k];
     for (int k = 0; k < n; k++) row[from + 3] = row[from + 3] * 5 + row[to + k];",
];

/// Places in front of what a loop reads, at each end of it, in it and behind it.
#[test]
fn places_lie_anywhere() {
    let kernel = |(number, form): (usize, &str)| {
        format!(
            "kernel void form{number}(global int *io, int n, int from, int to) {{
               int i = get_global_id(0);
               global int *row = io + 512 * i;
               {form} }}"
        )
    };
    let text: String = FORMS.into_iter().enumerate().map(kernel).collect();
    let module = wide(&text);
    let run = |(n, distance): (i32, i32)| -> Run {
        let args = vec![ints(24 * 512, |i| i * 37 % 1009), int(n), int(80), int(80 + distance)];
        (ROW, args)
    };
    // Few turns, and those for which it is worth a test.
    let runs: Vec<Run> = [2, 19, 70]
        .into_iter()
        .flat_map(|n| [-30, -1, 0, 1, n - 1, n, 3 * n - 3].map(|by| (n, by)))
        .map(run)
        .collect();
    for number in 0..FORMS.len() {
        same_in_all(&module, &format!("form{number}"), &runs);
    }
}

/// Whether a kernel has a loop with a load and without a store.
fn stores_late(text: &str) -> bool {
    let module = wide(text);
    let widened = widen::widen(&module, &module.kernels[0], 16).expect("it is widened");
    let function = &widened.module.functions[widened.function];
    let is_such = |id: BlockId| {
        let block = &function.blocks[id];
        let ops = || block.insts.iter().map(|inst| &inst.op);
        let again = |next: &BlockId| {
            let latch = &function.blocks[*next];
            latch.insts.is_empty() && latch.terminator == Terminator::Branch(id)
        };
        let loads = |op: &Op| matches!(op, Op::Load(..) | Op::MaskedLoad(..));
        let stores = |op: &Op| matches!(op, Op::Store(..) | Op::MaskedStore(..) | Op::Scatter(..));
        block.terminator.successors().iter().any(again) && ops().any(loads) && !ops().any(stores)
    };
    function.blocks.ids().any(is_such)
}

#[test]
fn stores_to_places_apart_follow_the_loop() {
    let columns = "kernel void columns(global float *out, global float *in, int n, int m) {
                     int i = get_global_id(0);
                     for (int k = 0; k < n; k++) out[i * m] += in[k * m + i]; }";
    assert!(stores_late(columns));
    assert!(stores_late(&columns.replace("int k", "long k")));
    assert!(stores_late(&columns.replace("+=", "= 3 *")));
    assert!(stores_late(&columns.replace("k < n; k++", "k < n; k += 4")));
    // Others might see it, or nothing tells what the loop reads.
    assert!(!stores_late(&columns.replace("global float *out", "global volatile float *out")));
    assert!(!stores_late(&columns.replace("in[k * m + i]", "in[(int)in[k * m + i]]")));
    assert!(!stores_late(&columns.replace("k < n; k++", "k < n; k += 3")));
    // A vector in line is stored as fast.
    assert!(!stores_late(&columns.replace("out[i * m]", "out[i]")));
}
