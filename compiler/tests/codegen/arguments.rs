// SPDX-License-Identifier: MIT OR Apache-2.0
//! Structures that kernels are given by value.

use tally_compiler::ir::{Module, Op};
use tally_compiler::optimise::{self, ORDER};

use crate::diff::{Input, same};
use crate::harness::{Grid, clang, module};
use crate::widen::ints;

/// The copies in a kernel, and its private variables, behind all passes.
fn copies(module: &Module) -> (usize, usize) {
    let (mut part, mut function) =
        optimise::inlined(module, &module.kernels[0], 1 << 20).expect("it is small");
    ORDER.into_iter().for_each(|pass| pass.run(&mut part, &mut function));
    let insts = function.blocks.iter().flat_map(|(_, block)| &block.insts);
    (insts.filter(|inst| matches!(inst.op, Op::Copy(..))).count(), function.variables.len())
}

/// Items read a large structure where it is if none changes it, and have a copy of their own each if one may.
#[test]
fn items_share_a_structure_that_none_changes() {
    let cases = [
        // What is read, at constants and at an index.
        ("x[i] = s.first + s.some[3] * s.last;", 0),
        ("x[i] = s.some[(i * 7) % 90] - s.inner.b[i & 3];", 0),
        ("for (int k = 0; k < s.first % 17; k++) x[i] += s.some[k + i % 50];", 0),
        // A part of it that is copied has a variable.
        ("struct part p = s.inner; x[i] = p.b[i & 3] + p.a;", 1),
        // What is changed, by all items and by some, at an index and at a place that may be in it.
        ("s.some[i % 90] += i; x[i] = s.some[3] + s.some[i % 90];", 1),
        ("if (i & 1) s.some[i % 80] = i; x[i] = s.last + s.some[i % 90];", 1),
        ("int own[90]; for (int k = 0; k < 90; k++) own[k] = k * i; int *p = i % 3 ? own : s.some; p[5] = i;
          x[i] = s.some[5] + own[5] + s.some[(i * 7) % 90] + own[i % 90];", 1),
        ("struct all t = s; t.some[i % 90] = 3; x[i] = t.some[i % 80] - s.some[i % 90];", 1),
    ];
    for (body, least) in cases {
        let module = module(&clang::compile_text(
            &format!(
                "struct part {{ int a, b[4]; }};
                 struct all {{ int first, some[90]; struct part inner; int last; }};
                 kernel void k(struct all s, global int *x) {{ int i = get_global_id(0); {body} }}"
            ),
            &["-O2", "-w"],
        ));
        let (copies, variables) = copies(&module);
        assert_eq!(copies > 0 || variables > 0, least > 0, "{body}: {copies}, {variables}");
        let bytes = (0..97i32).flat_map(|i| (i * i + 3).to_le_bytes()).collect();
        let args = [Input::Value(bytes), ints(80, |i| i)];
        same(&module, "k", Grid::line(80, 40), &args, body);
    }
}
