// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pointers that do not say what they point to (SPV_KHR_untyped_pointers).

use tally_compiler::check::check;
use tally_compiler::parse::parse;

use crate::diff::{Input, interpreted, same};
use crate::harness::clang::Assembly;
use crate::harness::{Grid, module};
use crate::spirv;
use crate::widen::ints;

const HEAD: &str = "OpCapability Int8
    OpCapability GenericPointer
    OpCapability Groups
    OpCapability UntypedPointersKHR
    OpExtension \"SPV_KHR_untyped_pointers\"";

/// `%s` is `struct { int a; int b[3]; long c; }`, of 24 bytes.
const DECLARATIONS: &str = "
    %u = OpTypeUntypedPointerKHR CrossWorkgroup
    %ul = OpTypeUntypedPointerKHR Workgroup
    %uf = OpTypeUntypedPointerKHR Function
    %uc = OpTypeUntypedPointerKHR UniformConstant
    %ug = OpTypeUntypedPointerKHR Generic
    %u2 = OpTypeVector %u 2
    %l2 = OpTypeVector %i64 2
    %i8 = OpTypeInt 8 0
    %zero = OpConstant %i32 0
    %one = OpConstant %i32 1
    %two = OpConstant %i32 2
    %three = OpConstant %i32 3
    %seven = OpConstant %i32 7
    %relaxed = OpConstant %i32 0
    %l0 = OpConstant %i64 0
    %l1 = OpConstant %i64 1
    %l3 = OpConstant %i64 3
    %l4 = OpConstant %i64 4
    %l6 = OpConstant %i64 6
    %l8 = OpConstant %i64 8
    %l10 = OpConstant %i64 10
    %l20 = OpConstant %i64 20
    %l24 = OpConstant %i64 24
    %l160 = OpConstant %i64 160
    %l256 = OpConstant %i64 256
    %steps = OpConstantComposite %l2 %l1 %l3
    %a3 = OpTypeArray %i32 %three
    %bytes = OpTypeArray %i8 %l256
    %s = OpTypeStruct %i32 %a3 %i64
    %event = OpTypeEvent
    %pe = OpTypePointer Function %event
    %first = OpConstantNull %event
    %numbers = OpConstantComposite %a3 %three %seven %two
    %table = OpUntypedVariableKHR %uc UniformConstant %a3 %numbers
    %second = OpSpecConstantOp %uc 4424 %a3 %table %l0 %one
    %kept = OpUntypedVariableKHR %uc UniformConstant %uc %second
    %l = OpUntypedVariableKHR %ul Workgroup %bytes";

fn spirv(declarations: &str, variables: &str, body: &str) -> Vec<u8> {
    let declarations = &format!("{DECLARATIONS}\n{declarations}");
    let (head, parameters) = (HEAD, &[("x", "u"), ("y", "u")]);
    let text = Assembly { head, declarations, parameters, variables, body, ..Assembly::default() };
    spirv::assemble(&text.text())
}

fn words(bytes: &[u8]) -> Vec<i32> {
    bytes.chunks_exact(4).map(|it| i32::from_le_bytes(it.try_into().unwrap())).collect()
}

/// "The interpreted data type is specified by the Result Type if it exists. The interpreted data type for
/// instructions without a Result Type (e.g. OpStore) comes from the type of the operand of the object being stored":
/// chains, loads, stores, copies, atomics and variables, against Rust and at all widths.
#[test]
fn instructions_say_what_untyped_pointers_point_to() {
    let kernel = module(&spirv(
        "",
        "%v = OpUntypedVariableKHR %uf Function %s
         %w = OpUntypedVariableKHR %uf Function %i32 %seven",
        "%at = OpUntypedInBoundsPtrAccessChainKHR %u %s %y %i
         OpUntypedPrefetchKHR %at %l24
         OpUntypedPrefetchKHR %at %l24 %zero %three %one 0
         %m = OpUMod %i64 %i %l3
         %a = OpLoad %i32 %at 2 4
         %pb = OpUntypedAccessChainKHR %u %s %at %one %m
         %b = OpLoad %i32 %pb
         %pc = OpUntypedInBoundsAccessChainKHR %u %s %at %two
         %c = OpLoad %i64 %pc
         %c32 = OpUConvert %i32 %c
         OpCopyMemorySized %v %at %l24
         %vb = OpUntypedPtrAccessChainKHR %uf %s %v %l0 %one %m
         %again = OpLoad %i32 %vb
         %pt = OpUntypedInBoundsAccessChainKHR %uc %a3 %table %m
         %t = OpLoad %i32 %pt
         %pointer = OpLoad %uc %kept
         %t1 = OpLoad %i32 %pointer
         %away = OpPtrDiff %i64 %pb %at
         %away32 = OpUConvert %i32 %away
         %i4 = OpIMul %i64 %i %l4
         %to = OpUntypedPtrAccessChainKHR %u %i32 %x %i4
         %tos = OpUntypedInBoundsPtrAccessChainKHR %u2 %i32 %to %steps
         %to1 = OpCompositeExtract %u %tos 0
         %to3 = OpCompositeExtract %u %tos 1
         %generic = OpPtrCastToGeneric %ug %to
         %to2 = OpUntypedPtrAccessChainKHR %ug %i32 %generic %two
         %ab = OpIAdd %i32 %a %b
         %abc = OpIAdd %i32 %ab %c32
         OpStore %to %abc
         %vt = OpIAdd %i32 %again %t
         %vt1 = OpIAdd %i32 %vt %t1
         OpStore %to1 %vt1
         OpStore %to2 %away32
         %typed = OpBitcast %p %to3
         OpCopyMemory %typed %w
         OpCopyMemory %to3 %typed
         %old = OpAtomicIAdd %i32 %to3 %one %relaxed %a",
    ));
    let (grid, inputs) = (Grid::line(101, 50), [ints(404, |n| n), ints(606, |n| n * 11 - 300)]);
    let y = |n: usize| n as i32 * 11 - 300;
    let want: Vec<i32> = (0..101)
        .flat_map(|i| {
            let (at, m) = (6 * i, i % 3);
            let b = y(at + 1 + m);
            [y(at) + b + y(at + 4), b + [3, 7, 2][m] + 7, 4 + 4 * m as i32, 7 + y(at)]
        })
        .collect();
    let got = interpreted(&kernel, "k", &(grid, inputs.to_vec())).unwrap();
    assert_eq!(words(&got[0]), want);
    same(&kernel, "k", grid, &inputs, "");
}

/// "Stride defines the stride in bytes when reading from Source pointer", or when writing to global memory.
#[test]
fn asynchronous_copies_count_bytes() {
    let kernel = module(&spirv(
        "%size = OpSpecConstant %i64 4",
        "%ev = OpVariable %pe Function",
        "%e1 = OpUntypedGroupAsyncCopyKHR %event %two %l %y %l6 %l20 %l10 %first
         OpStore %ev %e1
         OpGroupWaitEvents %two %one %ev
         %e2 = OpUntypedGroupAsyncCopyKHR %event %two %x %l %l6 %l20 %l8 %first
         %xs = OpUntypedInBoundsPtrAccessChainKHR %u %i8 %x %l160
         %e3 = OpUntypedGroupAsyncCopyKHR %event %two %xs %l %l4 %l20 %size %first
         OpStore %ev %e3
         OpGroupWaitEvents %two %one %ev",
    ));
    let byte = |i: usize| (i * 7 % 251) as u8;
    let (before, source) = (vec![255; 240], (0..200).map(byte).collect::<Vec<u8>>());
    let local: Vec<u8> = (0..120).map(|i| source[i / 6 * 10 + i % 6]).collect();
    let mut want = before.clone();
    for (i, element) in local.chunks(6).enumerate() {
        want[8 * i..8 * i + 6].copy_from_slice(element);
    }
    want[160..].copy_from_slice(&local[..80]);
    let (grid, inputs) = (Grid::line(16, 16), [Input::bytes(before), Input::bytes(source)]);
    let got = interpreted(&kernel, "k", &(grid, inputs.to_vec())).unwrap();
    assert_eq!(got[0], want);
    same(&kernel, "k", grid, &inputs, "");
}

#[test]
fn wrong_uses_are_refused() {
    let refusal = |declarations: &str, variables: &str, body: &str| match parse(
        &spirv(declarations, variables, body),
        &[],
    ) {
        Ok(mut module) => check(&mut module).expect_err("it is wrong").to_string(),
        Err(error) => error.to_string(),
    };
    for (body, what) in [
        (
            "%q = OpUntypedAccessChainKHR %p %a3 %x %one",
            "OpUntypedAccessChainKHR has a result that is not an untyped pointer",
        ),
        (
            "%q = OpInBoundsPtrAccessChain %u %x %i",
            "OpInBoundsPtrAccessChain has a base that is an untyped pointer",
        ),
        ("%q = OpUntypedAccessChainKHR %u %a3 %i %one", "that is not a pointer"),
        ("%q = OpUntypedAccessChainKHR %ul %a3 %x %one", "changes the address space"),
        ("%q = OpUntypedAccessChainKHR %u %s %x %three", "has no member to go to at index 0"),
        ("%q = OpUntypedAccessChainKHR %u %i32 %x %three", "goes into a value of type i32"),
        ("%q = OpUntypedAccessChainKHR %u %x %x %one", "as a type, which it is not"),
        (
            "%q = OpUntypedPtrAccessChainKHR %u %void %x %one\nOpStore %q %one",
            "OpUntypedPtrAccessChainKHR through the type void",
        ),
        ("OpCopyMemory %x %y", "OpCopyMemory has two untyped pointers"),
        ("%q = OpUntypedArrayLengthKHR %i32 %s %x 1", "OpUntypedArrayLengthKHR"),
        ("OpUntypedPrefetchKHR %l %l4", "a pointer that is not to global memory"),
        ("OpUntypedPrefetchKHR %x %x", "a number of bytes that is not an integer"),
        (
            "%e = OpGroupAsyncCopy %event %two %l %x %l4 %l1 %first",
            "OpGroupAsyncCopy has an untyped pointer where it needs a typed one",
        ),
        (
            "%e = OpUntypedGroupAsyncCopyKHR %event %two %x %y %l4 %l1 %l4 %first",
            "is not between global and local memory",
        ),
        (
            "%q = OpBitcast %p %y
             %e = OpUntypedGroupAsyncCopyKHR %event %two %l %q %l4 %l1 %l4 %first",
            "has a pointer that is not untyped",
        ),
    ] {
        let found = refusal("", "", body);
        assert!(found.contains(what), "{body}: {found}");
    }
    let typed = "%pf = OpTypePointer Function %i32";
    for (variable, what) in [
        ("%q = OpUntypedVariableKHR %uf Function", "OpUntypedVariableKHR has no data type"),
        ("%q = OpUntypedVariableKHR %pf Function %i32", "type that is not an untyped pointer"),
        ("%q = OpUntypedVariableKHR %uf Function %void", "OpUntypedVariableKHR of type void"),
    ] {
        let found = refusal(typed, variable, "");
        assert!(found.contains(what), "{variable}: {found}");
    }
    for (variable, what) in [
        ("%q = OpUntypedVariableKHR %ul Workgroup", "OpUntypedVariableKHR has no data type"),
        ("%q = OpUntypedVariableKHR %p CrossWorkgroup %i32", "not an untyped pointer"),
        ("%q = OpUntypedVariableKHR %u CrossWorkgroup %i64 %one", "initialiser of another type"),
    ] {
        let found = refusal(variable, "", "");
        assert!(found.contains(what), "{variable}: {found}");
    }
}
