// SPDX-License-Identifier: MIT OR Apache-2.0
//! The alignment of spilled vectors.

use tally_compiler::llvm::{self, Level, Output};
use tally_compiler::lower::Work;
use tally_compiler_protocol::TargetCpu;

/// The code of a kernel that adds up `<lanes x float>`.
fn assembly(cpu: &str, lanes: u32) -> String {
    let vector = format!("<{lanes} x float>");
    let text = format!(
        "define void @tally_entry(ptr %p) {{
           %a = load {vector}, ptr %p
           %b = fadd {vector} %a, %a
           store {vector} %b, ptr %p
           ret void
         }}"
    );
    let target = TargetCpu { name: cpu.into(), features: String::new() };
    let bytes =
        llvm::compile(&text, Work::Vectors, &target, Level::Full, Output::Assembly).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn the_stack_is_aligned_to_the_vectors_that_it_may_hold() {
    for (cpu, lanes, bytes) in
        [("x86-64-v4", 16, 64), ("x86-64-v4", 8, 32), ("x86-64-v4", 32, 64), ("x86-64-v3", 16, 32)]
    {
        let text = assembly(cpu, lanes);
        assert!(text.contains(&format!("andq\t$-{bytes}, %rsp")), "{cpu}, {lanes} lanes:\n{text}");
    }
    // Every caller aligns the stack to 16 bytes.
    for (cpu, lanes) in [("x86-64", 16), ("x86-64-v2", 8), ("x86-64-v4", 4), ("x86-64-v4", 1)] {
        let text = assembly(cpu, lanes);
        assert!(!text.contains("%rsp"), "{cpu}, {lanes} lanes:\n{text}");
    }
}
