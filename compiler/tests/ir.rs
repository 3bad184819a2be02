// SPDX-License-Identifier: MIT OR Apache-2.0
//! The textual IR of small modules, word for word. `TALLY_BLESS=1 cargo test -p tally-compiler --test
//! ir` replaces the expected text by the compiler's.

use std::path::Path;

use tally_compiler::check::check;
use tally_compiler::parse::parse;

#[path = "support/clang.rs"]
mod clang;
#[path = "support/spirv.rs"]
mod spirv;

/// Compares the IR of `tests/golden/<name>.spvasm` with `tests/golden/<name>.ir`.
fn golden(name: &str, assemble: fn(&str) -> Vec<u8>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let source = std::fs::read_to_string(folder.join(format!("{name}.spvasm"))).unwrap();
    let mut module = parse(&assemble(&source), &[]).unwrap();
    check(&mut module).unwrap();
    let text = module.to_string();
    let expected = folder.join(format!("{name}.ir"));
    if std::env::var_os("TALLY_BLESS").is_some() {
        std::fs::write(&expected, &text).unwrap();
    }
    let expected = std::fs::read_to_string(&expected).unwrap_or_default();
    assert_eq!(text, expected, "the IR of {name} has changed; see TALLY_BLESS");
}

/// Control flow, calls, built-ins, local memory, flags.
#[test]
fn loops_and_calls() {
    golden("loop", clang::assemble);
}

/// Instructions that are rewritten, parameters that are copied.
#[test]
fn rewrites() {
    golden("rewrites", clang::assemble);
}

/// What untyped pointers lead to, which the packaged assembler does not know.
#[test]
fn untyped_pointers() {
    golden("untyped", spirv::assemble);
}
