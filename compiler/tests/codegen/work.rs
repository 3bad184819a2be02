// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a kernel's code is said to do, by which LLVM's passes are chosen.

use tally_compiler::lower::{self, Work};
use tally_compiler::widen::widen;

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
