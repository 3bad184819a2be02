// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels that clang has not optimised: the passes before widening bring loops, conditions and loads into the form that
//! clang's optimiser gives them, and what is found in that form is found in these, too.

use tally_compiler::ir::{Dominators, Function, Inst, Loops, Module, Op, Terminator};
use tally_compiler::optimise;
use tally_compiler::widen;

use crate::diff::{Input, Run, same_in_all};
use crate::harness::{Grid, clang, module};
use crate::passes::agree_after_each;
use crate::widen::{int, ints};

/// A limit above the weight of these kernels.
const LIMIT: usize = 1 << 20;

const ROW: Grid = Grid { offset: [0; 3], global: [48, 1, 1], group: [24, 1, 1] };

fn plain(text: &str) -> Module {
    module(&clang::compile_text(text, &["-O0", "-w"]))
}

/// A kernel behind all passes before it is widened.
fn passed(text: &str) -> Function {
    let mut module = plain(text);
    let kernel = module.kernels[0].clone();
    let (_, mut function) = optimise::inlined(&module, &kernel, LIMIT).expect("it is small");
    optimise::passes().for_each(|pass| pass.run(&mut module, &mut function));
    function
}

fn count(function: &Function, is: impl Fn(&Inst) -> bool) -> usize {
    let insts = function.blocks.iter().flat_map(|(_, block)| &block.insts);
    insts.filter(|inst| is(inst)).count()
}

/// Bodies with loops of all forms.
const LOOPS: [&str; 14] = [
    "for (int k = 0; k < n; k++) s = s * 3 + in[k];",
    "for (int k = n; k > 0; k -= 2) s = s * 3 + in[k];",
    "int k = 0; while (k < n && in[k] < 900) { s += in[k]; k++; } s += k;",
    "int k = 0; while (k < n) { k++; if (in[k] & 1) continue; s += k; }",
    "for (int k = 0; k < n; k++) { if (in[k] == 37) break; s += k; }",
    "int a = 1, b = s; for (int k = 0; k < n; k++) { int c = a; a = b; b = c + a; } s = a ^ b;",
    "for (int j = 0; j < n; j++) for (int k = j; k < n; k++) s = s * 3 + in[k];",
    "for (int j = 0; j < n; j++) { int k = j; do { s += in[k]; k++; } while (k < n); }",
    "int k = s; while (in[k % 64] % (n + 2)) k++; s = k;",
    "for (int k = 0, e = s % 7; k < e && s < 5000; k++) s += in[k] * k;",
    "int last = 0; for (int k = 0; k < n; last = k++) s = s * 3 + last; s += last;",
    "for (int k = 0; k < n * 2 && (k < 9 || s & 1); k++) s = s * 5 + k;",
    "for (int j = 0; j < n; j++) { if (j & 1) for (int k = 0; k < j; k++) s += in[j + k]; else s++; }",
    "for (int k = 0; k < n; k++) { for (int j = 0; j < 3; j++) if (in[j + k] == s) goto out; s++; } out:;",
];

fn looping(number: usize, body: &str) -> String {
    format!(
        "kernel void loops{number}(global int *out, global const int *in, int n) {{
           int i = get_global_id(0), s = i; {body} out[i] = s; }}"
    )
}

#[test]
fn loops_of_all_forms_are_rotated() {
    let text: String = (0..).zip(LOOPS).map(|(number, body)| looping(number, body)).collect();
    let module = plain(&text);
    for (number, body) in LOOPS.into_iter().enumerate() {
        let run = |n| -> Run { (ROW, vec![ints(48, |_| 0), ints(128, |i| i * 37 % 1009), int(n)]) };
        let (name, runs) = (format!("loops{number}"), [0, 1, 2, 7, 20].map(run));
        agree_after_each(&module, &name, &runs).unwrap_or_else(|how| panic!("{body}: {how}"));
        same_in_all(&module, &name, &runs);
    }
}

/// Whether some loop of a kernel goes on where its first block's test holds, and is left nowhere else.
fn has_tests_in_front(text: &str) -> bool {
    let function = passed(text);
    let predecessors = function.predecessors();
    let loops = Loops::of(&Dominators::of(&function, &predecessors), &predecessors);
    assert!(!loops.all.is_empty(), "{text}");
    loops.all.iter().enumerate().any(|(index, it)| {
        let block = &function.blocks[it.header];
        let mut next = block.terminator.successors().into_iter();
        !it.latches.contains(&it.header) && next.any(|next| !loops.contains(index, next))
    })
}

#[test]
fn tests_are_at_the_ends_of_loops() {
    for body in [LOOPS[0], LOOPS[1], LOOPS[3], LOOPS[5], LOOPS[6], LOOPS[9], LOOPS[10]] {
        assert!(!has_tests_in_front(&looping(0, body)), "{body}");
    }
}

/// How many elements are gathered and scattered in the blocks that load, or store, items' rows as vectors.
fn apart_in_strips(text: &str) -> Option<usize> {
    let module = plain(text);
    let widened = widen::widen(&module, &module.kernels[0], 16).expect("it is widened");
    let function = &widened.module.functions[widened.function];
    let strips = function.blocks.iter().filter_map(|(_, block)| {
        let ops = || block.insts.iter().map(|inst| &inst.op);
        let rows = ops().filter(|op| matches!(op, Op::Load(..) | Op::Store(..))).count();
        let apart = ops().filter(|op| matches!(op, Op::Gather(..) | Op::Scatter(..))).count();
        (rows >= 16 && ops().any(|op| matches!(op, Op::Phi(_)))).then_some(apart)
    });
    strips.min()
}

#[test]
fn rows_are_loaded_in_strips() {
    let sum = "kernel void sum(global float *out, global const float *in, int n) {
                 int i = get_global_id(0);
                 float s = 0;
                 for (int k = 0; k < n; k++) s += in[i * n + k];
                 out[i] = s; }";
    assert_eq!(apart_in_strips(sum), Some(0));
    // Where a row begins is not made of ids and arguments alone.
    assert_eq!(apart_in_strips(&sum.replace("i * n", "i * n + n / 4")), None);
    assert_eq!(apart_in_strips(&sum.replace("i * n", "(i * n - n)")), Some(0));
    // The second load is the first one.
    let most = sum.replace("s += in[i * n + k]", "if (in[i * n + k] > s) s = in[i * n + k]");
    assert_eq!(apart_in_strips(&most), Some(0));
    // Fewer turns than a strip has.
    let few = sum.replace("k < n", "k < 9").replace("float", "uchar");
    assert_eq!(apart_in_strips(&few.replace("k < 9", "k < 70")), Some(0));
    assert_eq!(apart_in_strips(&few), None);
}

#[test]
fn items_that_stride_through_a_buffer_do_not_gather() {
    let module = plain(
        "kernel void stride(global float *out, global const float *in, int n) {
           for (int i = get_global_id(0); i < n; i += get_global_size(0)) out[i] = in[i] * 3; }",
    );
    let widened = widen::widen(&module, &module.kernels[0], 16).expect("it is widened");
    let function = &widened.module.functions[widened.function];
    let apart = |inst: &Inst| matches!(inst.op, Op::Gather(..) | Op::Scatter(..));
    assert_eq!(count(function, apart), 0);
    let run = |n| -> Run { (ROW, vec![ints(200, |_| 0), ints(200, |i| i * 37), int(n)]) };
    same_in_all(&module, "stride", &[0, 5, 48, 49, 111, 200].map(run));
}

/// Loads that are known, each with the number that is left, and some that are not.
const LOADS: [(&str, usize); 12] = [
    ("int x = p[i], y = p[i]; s = x * 3 + y;", 1),
    ("s = p[i]; if (p[i] > 5) s += p[i];", 1),
    ("if (p[i] > 5) s = p[i]; else s = p[i] * 3;", 1),
    ("p[i] = s * 3; s = p[i];", 0),
    // Loads for what was stored through another pointer, in a loop, or behind where ways meet.
    ("s = p[i]; q[i] = 7; s += p[i];", 2),
    ("s = p[i]; l[i & 7] = 7; s += p[i];", 1),
    ("s = c[i & 3]; q[i] = 7; s += c[i & 3];", 1),
    ("s = p[i]; barrier(CLK_GLOBAL_MEM_FENCE); s += p[i];", 2),
    ("if (s & 1) q[i] = 7; s = p[i]; if (s & 2) q[i] = 9; s += p[i];", 2),
    ("s = p[i]; atomic_inc(q + i); s += p[i];", 2),
    ("if (s & 1) s = p[i]; else s = p[i] * 5;", 2),
    ("s = p[i]; s += ((volatile global int *)p)[i];", 2),
];

#[test]
fn loads_of_what_is_known_are_removed() {
    let kernel = |(number, (body, _)): (usize, (&str, usize))| {
        format!(
            "kernel void loads{number}(global int *p, global int *q, constant int *c, local int *l) {{
               int i = get_global_id(0), s = i; {body} p[i] = s; }}"
        )
    };
    for (number, (body, left)) in LOADS.into_iter().enumerate() {
        let text = kernel((number, (body, left)));
        let loads = |inst: &Inst| matches!(inst.op, Op::Load(..));
        assert_eq!(count(&passed(&text), loads), left, "{body}");
        let args =
            [ints(48, |i| i * 37 % 11), ints(48, |i| i), ints(4, |i| i * 5), Input::Local(64)];
        same_in_all(&plain(&text), &format!("loads{number}"), &[(ROW, args.to_vec())]);
    }
}

/// Conditions, and the branches that are left of them.
const CONDITIONS: [(&str, usize); 8] = [
    ("if (s < 3) return; if (s > 40) return; out[i] = n;", 1),
    ("if (s < 3 || s > 40 || n == 5) return; out[i] = n;", 1),
    ("if (s > 3) if (s < 40) if (n != 5) out[i] = n;", 1),
    ("if (s > 3) { if (s > 40) return; out[i] = n; }", 1),
    ("if (s < 3) return; if (s < 40) out[i] = n;", 1),
    // One way does something else, or what is between is long, or has an effect.
    ("if (s < 3) { out[i] = 1; return; } if (s > 40) return; out[i] = n;", 2),
    ("if (s < 3) return; if (in[i] > 40) return; out[i] = n;", 2),
    ("if (s < 3) return; out[i] = 5; if (n > 9) return; out[i] = n;", 2),
];

#[test]
fn conditions_with_a_way_in_common_are_one() {
    for (number, (body, left)) in CONDITIONS.into_iter().enumerate() {
        let name = format!("ways{number}");
        let text = format!(
            "kernel void {name}(global int *out, global const int *in, int n) {{
               int i = get_global_id(0), s = i; {body} }}"
        );
        let function = passed(&text);
        let ends = function.blocks.iter().map(|(_, block)| &block.terminator);
        let branches = ends.filter(|end| matches!(end, Terminator::CondBranch(..))).count();
        assert_eq!(branches, left, "{body}");
        let run = |n| -> Run { (ROW, vec![ints(48, |_| 0), ints(48, |i| i * 37 % 61), int(n)]) };
        let runs = [5, 6, 12].map(run);
        agree_after_each(&plain(&text), &name, &runs).unwrap_or_else(|how| panic!("{body}: {how}"));
        same_in_all(&plain(&text), &name, &runs);
    }
}
