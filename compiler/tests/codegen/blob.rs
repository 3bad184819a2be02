// SPDX-License-Identifier: MIT OR Apache-2.0
//! Linking: the contents of a blob, and the messages of refusals.

use std::collections::HashMap;

use tally_compiler::blob::{self, Blob, BlobError};
use tally_compiler::llvm::{self, Level, LlvmError, Output};
use tally_compiler::lower::{ENTRY, Work};
use tally_compiler_protocol::{Reloc, TargetCpu};

fn baseline() -> TargetCpu {
    TargetCpu { name: String::new(), features: String::new() }
}

/// Links LLVM assembly; `g` is global number 5.
fn link(text: &str) -> Result<Blob, BlobError> {
    let object = llvm::compile(text, Work::Items, &baseline(), Level::Full, Output::Object)
        .expect("good assembly");
    let globals = HashMap::from([("g".to_owned(), 5)]);
    blob::link(&object, llvm::support(), ENTRY, &globals)
}

#[test]
fn a_symbol_that_nobody_defines_is_named() {
    let result = link(
        "declare void @nowhere()\ndefine void @tally_entry(ptr %c) { call void @nowhere() ret void }",
    );
    assert_eq!(result.err(), Some(BlobError::Undefined("nowhere".into())));
}

#[test]
fn without_the_entry_point_there_is_no_blob() {
    let result = link("define void @other(ptr %c) { ret void }");
    assert_eq!(result.err(), Some(BlobError::Undefined(ENTRY.into())));
}

#[test]
fn writable_data_is_refused() {
    let text = "@count = internal global i32 7
        define void @tally_entry(ptr %c) {
          %n = load volatile i32, ptr @count
          store volatile i32 %n, ptr @count
          ret void
        }";
    let Some(BlobError::Section { name, why }) = link(text).err() else {
        panic!("writable data was linked");
    };
    assert!(name.starts_with(".data") && why.contains("writable"), "{name} {why}");
}

#[test]
fn the_address_of_a_global_is_one_slot_however_often_it_is_used() {
    let text = "@g = external global i8
        define void @tally_entry(ptr %c) {
          store volatile ptr @g, ptr %c
          %second = getelementptr i8, ptr @g, i64 12
          store volatile ptr %second, ptr %c
          ret void
        }";
    let blob = link(text).expect("a blob");
    let [Reloc { offset, global: 5, addend: 0 }] = blob.relocs[..] else {
        panic!("{:?}", blob.relocs);
    };
    assert!(offset % 8 == 0 && offset + 8 <= blob.bytes.len() as u64);
}

#[test]
fn an_address_in_constant_data_is_filled_in_with_its_addend() {
    let text = "@g = external global i8
        @table = internal constant [2 x ptr] [ptr null, ptr getelementptr (i8, ptr @g, i64 -3)]
        define void @tally_entry(ptr %c) {
          %i = load volatile i64, ptr %c
          %at = getelementptr ptr, ptr @table, i64 %i
          %p = load ptr, ptr %at
          store volatile ptr %p, ptr %c
          ret void
        }";
    let blob = link(text).expect("a blob");
    assert!(matches!(blob.relocs[..], [Reloc { global: 5, addend: -3, .. }]), "{:?}", blob.relocs);
}

#[test]
fn only_what_is_called_of_the_support_library_is_linked() {
    let without = link("define void @tally_entry(ptr %c) { ret void }").expect("a blob");
    assert!(without.bytes.len() < 64, "{}", without.bytes.len());
    let text = "declare double @llvm.fma.f64(double, double, double)
        define void @tally_entry(ptr %c) {
          %x = load double, ptr %c
          %y = call double @llvm.fma.f64(double %x, double %x, double %x)
          store double %y, ptr %c
          ret void
        }";
    let with = link(text).expect("a blob");
    assert!(with.bytes.len() > without.bytes.len() && with.bytes.len() < 4096);
}

#[test]
fn a_damaged_object_file_is_an_error() {
    let text = "define void @tally_entry(ptr %c) { store volatile i32 1, ptr %c ret void }";
    let object = llvm::compile(text, Work::Items, &baseline(), Level::Full, Output::Object)
        .expect("good assembly");
    for len in 0..object.len() {
        let result = blob::link(&object[..len], llvm::support(), ENTRY, &HashMap::new());
        assert!(result.is_err(), "{len} of {} bytes were linked", object.len());
    }
    for at in 0..object.len() {
        let mut object = object.clone();
        object[at] ^= 0x41;
        // Whatever the damaged file is now, it gives a blob or an error.
        let _ = blob::link(&object, llvm::support(), ENTRY, &HashMap::new());
    }
}

#[test]
fn what_llvm_cannot_read_or_verify_is_a_message() {
    let parse =
        llvm::compile("define nonsense", Work::Items, &baseline(), Level::Full, Output::Object);
    assert!(matches!(parse, Err(LlvmError::Parse(_))), "{parse:?}");
    let text = "define void @tally_entry(ptr %c) {
        a:
          br i1 true, label %b, label %d
        b:
          %x = load i32, ptr %c
          br label %d
        d:
          store i32 %x, ptr %c
          ret void
        }";
    let verify = llvm::compile(text, Work::Items, &baseline(), Level::Full, Output::Object);
    assert!(verify.is_err(), "{verify:?}");
    let target = TargetCpu { name: "a\0b".into(), features: String::new() };
    let target = llvm::compile("", Work::Items, &target, Level::Full, Output::Object);
    assert!(matches!(target, Err(LlvmError::Target(_))), "{target:?}");
}
