// SPDX-License-Identifier: MIT OR Apache-2.0
//! The view that shows a kernel's three forms in columns.

#![cfg(feature = "llvm")]

use tally_compiler::beside;
use tally_compiler::check::check;
use tally_compiler::parse::parse;
use tally_compiler_protocol::TargetCpu;

#[path = "support/clang.rs"]
#[allow(dead_code, reason = "only part of it is needed here")]
mod clang;

use clang::Assembly;

/// The lines of the view of a kernel.
fn view(source: &str) -> Vec<String> {
    view_of(&clang::compile_text(source, &["-O2"]))
}

/// Like [`view`], for the first kernel of a module.
fn view_of(spirv: &[u8]) -> Vec<String> {
    let mut module = parse(spirv, &[]).expect("it is SPIR-V");
    check(&mut module).expect("it is good");
    let target = TargetCpu { name: "x86-64-v3".into(), features: String::new() };
    let view = beside::view(&module, &module.kernels[0], &target).expect("it can be built");
    view.lines().map(str::to_owned).collect()
}

/// The columns of a line: the kernel, the widened code, the processor's.
fn columns(line: &str) -> Vec<&str> {
    line.split(" | ").map(str::trim).collect()
}

/// "a kernel as SPIR-V, widened IR and machine code side by side, with uniform and divergent parts,
/// masks and gathers marked, and remarks that say what made it slow".
#[test]
fn an_instruction_stands_beside_what_it_becomes() {
    let lines = view(
        "kernel void k(global float *x, global const int *at, float f) {
            size_t i = get_global_id(0);
            if (at[i] > 0)
                x[i] = x[at[i]] * f + 1.0f;
        }",
    );
    let all = lines.join("\n");
    let find = |what: &dyn Fn(&[&str]) -> bool| lines.iter().any(|line| what(&columns(line)));
    assert!(lines[0].contains("16 items at a time"), "{all}");
    // The multiplication, in SPIR-V, on vectors, and as an instruction of the processor.
    let product = |cells: &[&str]| {
        cells.len() == 3 && cells[1].contains("f32x16 = fmul") && cells[2].contains("vmul")
            || cells.len() == 3 && cells[1].contains("f32x16 = f") && cells[2].contains("vf")
    };
    assert!(find(&product), "{all}");
    assert!(find(&|cells| cells[0].contains(" step 4 ")), "{all}");
    assert!(find(&|cells| cells.len() > 1 && cells[1].starts_with("! ")), "{all}");
    assert!(find(&|cells| cells.len() > 1 && cells[1].starts_with("? ")), "{all}");
    assert!(all.contains(" has a mask") && all.contains("items part"), "{all}");
    assert!(all.contains("^  gathers what its items load"), "{all}");
}

/// "remarks that say what made it slow": also in a module that says which lines its code is from.
#[test]
fn remarks_stand_there_whether_lines_are_known_or_not() {
    for line in ["", "OpLine %file 12 5"] {
        let assembly = Assembly {
            notes: "%file = OpString \"k.cl\"",
            parameters: &[("x", "p")],
            body: &format!(
                "%at = OpInBoundsPtrAccessChain %p %x %i
                 %index = OpLoad %i32 %at Aligned 4
                 %from = OpInBoundsPtrAccessChain %p %x %index
                 {line}
                 %y = OpLoad %i32 %from Aligned 4
                 OpStore %at %y Aligned 4"
            ),
            ..Default::default()
        };
        let all = view_of(&assembly.module()).join("\n");
        assert!(all.contains("^  gathers what its items load"), "{line:?}: {all}");
    }
}

/// A kernel that is not widened is shown in its scalar form, with the reason.
#[test]
fn a_kernel_that_is_not_widened_is_shown_with_the_reason() {
    let lines = view(
        "kernel void k(global float *x) {
            volatile private float much[8192];
            much[(int)x[0]] = 1.0f;
            x[0] = much[(int)x[1]];
        }",
    );
    let all = lines.join("\n");
    assert!(lines[0].contains("one item at a time: too much private memory"), "{all}");
    assert!(
        lines.iter().any(|line| columns(line).get(2).is_some_and(|it| it.contains("ss"))),
        "{all}"
    );
}
