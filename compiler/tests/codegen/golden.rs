// SPDX-License-Identifier: MIT OR Apache-2.0
//! Golden texts of the cut at barriers and of the lowering, for readers. `TALLY_BLESS=1` rewrites the
//! files.

use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

use tally_compiler::ir::ValueId;
use tally_compiler::{lower, regions};

use crate::harness::{clang, module};

/// Compares a text with the file of that name.
pub fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if env::var_os("TALLY_BLESS").is_some() {
        fs::write(&path, text).expect("the source tree is writable");
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert!(text == expected, "{} differs; TALLY_BLESS=1 accepts this:\n{text}", path.display());
}

/// A prefix sum within a group: two barriers in a loop.
const SCAN: &str = "
kernel void scan(global int *p, local int *t) {
  size_t l = get_local_id(0);
  int sum = p[get_global_id(0)];
  for (uint step = 1; step < 8; step *= 2) {
    t[l] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (l >= step)
      sum += t[l - step];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  p[get_global_id(0)] = sum;
}";

const SCALE: &str = "
kernel void scale(global float *p, float a) {
  p[get_global_id(0)] *= a;
}";

#[test]
fn barriers_cut_blocks_and_keep_what_is_live() {
    let mut module = module(&clang::compile_text(SCAN, &["-O1"]));
    let kernel = module.kernels[0].function;
    let cut = regions::split(&module, &module.functions[kernel]);
    let mut text = String::new();
    for (state, barrier) in (1..).zip(&cut.barriers) {
        let list = |values: &[ValueId]| {
            values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        let (block, resume) = (barrier.block, barrier.resume);
        let _ = writeln!(text, "barrier {state} ends {block}, resumes {resume}");
        let _ = writeln!(text, "  saves {}", list(&barrier.changed));
        let _ = writeln!(text, "  keeps {}", list(&barrier.live));
    }
    module.functions[kernel] = cut.function;
    let _ = write!(text, "\n{}", module.function_text(kernel));
    golden("regions-scan.txt", &text);
}

#[test]
fn a_kernel_without_barriers_is_a_loop_around_an_item_function() {
    let module = module(&clang::compile_text(SCALE, &["-O1"]));
    let lowered = lower::lower(&module, &module.kernels[0]).expect("a small kernel");
    golden("lower-scale.ll", &lowered.text);
}

#[test]
fn a_kernel_with_barriers_is_a_function_that_resumes() {
    let module = module(&clang::compile_text(SCAN, &["-O1"]));
    let lowered = lower::lower(&module, &module.kernels[0]).expect("a small kernel");
    golden("lower-scan.ll", &lowered.text);
}

/// Ends of blocks before several phis, whose copies are in one order.
#[test]
fn the_same_module_has_the_same_text_each_time() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/kernels/matmul.cl");
    let source = fs::read_to_string(path).expect("a kernel of the tests");
    let module = module(&clang::compile_text(&source, &["-O2"]));
    let text = || lower::lower(&module, &module.kernels[0]).expect("a small kernel").text;
    let first = text();
    for _ in 0..16 {
        assert!(text() == first);
    }
}
