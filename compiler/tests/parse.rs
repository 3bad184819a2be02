// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parser on what clang writes.

use tally_compiler::parse::parse;

#[path = "support/clang.rs"]
mod clang;

/// A module of an unknown version is refused with a sentence about it.
#[test]
fn refuses_unknown_versions() {
    let bytes = [0x0723_0203u32, 0x0009_0000, 0, 1, 0];
    let bytes: Vec<u8> = bytes.iter().flat_map(|word| word.to_le_bytes()).collect();
    let error = parse(&bytes, &[]).unwrap_err();
    assert_eq!(error.to_string(), "word 1: SPIR-V 9.0 is not one of 1.0 to 1.6");
}
