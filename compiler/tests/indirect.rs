// SPDX-License-Identifier: MIT OR Apache-2.0
//! Function pointers (SPV_INTEL_function_pointers), run in the interpreter.

use launch::{Run, front_end};
use tally_compiler::check::check;
use tally_compiler::ir::Module;
use tally_compiler::parse::parse;

#[path = "support/clang.rs"]
#[allow(dead_code, reason = "only part of it is needed here")]
mod clang;
#[path = "support/launch.rs"]
#[allow(dead_code, reason = "only part of it is needed here")]
mod launch;

/// Kernel `k` applies `twice` to even work-items' ids and `plus` to others', through a pointer; kernel
/// `given` applies its argument. `cube` is exported only.
fn assembly(extra: &str) -> String {
    format!(
        "OpCapability Addresses
         OpCapability Kernel
         OpCapability Linkage
         OpCapability Int64
         OpCapability FunctionPointersINTEL
         OpExtension \"SPV_INTEL_function_pointers\"
         OpMemoryModel Physical64 OpenCL
         OpEntryPoint Kernel %k \"k\" %id
         OpEntryPoint Kernel %given \"given\" %id
         OpDecorate %id BuiltIn GlobalInvocationId
         OpDecorate %cube LinkageAttributes \"cube\" Export
         %void = OpTypeVoid
         %bool = OpTypeBool
         %u32 = OpTypeInt 32 0
         %u64 = OpTypeInt 64 0
         %v3 = OpTypeVector %u64 3
         %pv3 = OpTypePointer Input %v3
         %id = OpVariable %pv3 Input
         %one = OpConstant %u32 1
         %two = OpConstant %u32 2
         %null = OpConstant %u32 0
         %pglobal = OpTypePointer CrossWorkgroup %u32
         %unary = OpTypeFunction %u32 %u32
         %punary = OpTypePointer CodeSectionINTEL %unary
         %fk = OpTypeFunction %void %pglobal
         %fgiven = OpTypeFunction %void %pglobal %u64
         %ptwice = OpConstantFunctionPointerINTEL %punary %twice
         %pplus = OpConstantFunctionPointerINTEL %punary %plus
         {extra}
         %twice = OpFunction %u32 None %unary
         %x1 = OpFunctionParameter %u32
         %b1 = OpLabel
         %r1 = OpIMul %u32 %x1 %two
         OpReturnValue %r1
         OpFunctionEnd
         %plus = OpFunction %u32 None %unary
         %x2 = OpFunctionParameter %u32
         %b2 = OpLabel
         %r2 = OpIAdd %u32 %x2 %one
         OpReturnValue %r2
         OpFunctionEnd
         %cube = OpFunction %u32 None %unary
         %x3 = OpFunctionParameter %u32
         %b3 = OpLabel
         %s3 = OpIMul %u32 %x3 %x3
         %r3 = OpIMul %u32 %s3 %x3
         OpReturnValue %r3
         OpFunctionEnd
         %k = OpFunction %void None %fk
         %p4 = OpFunctionParameter %pglobal
         %b4 = OpLabel
         %gid4 = OpLoad %v3 %id
         %i4 = OpCompositeExtract %u64 %gid4 0
         %n4 = OpUConvert %u32 %i4
         %low4 = OpBitwiseAnd %u32 %n4 %one
         %even4 = OpIEqual %bool %low4 %null
         %f4 = OpSelect %punary %even4 %ptwice %pplus
         %r4 = OpFunctionPointerCallINTEL %u32 %f4 %n4
         %at4 = OpInBoundsPtrAccessChain %pglobal %p4 %i4
         OpStore %at4 %r4
         OpReturn
         OpFunctionEnd
         %given = OpFunction %void None %fgiven
         %p5 = OpFunctionParameter %pglobal
         %bits5 = OpFunctionParameter %u64
         %b5 = OpLabel
         %gid5 = OpLoad %v3 %id
         %i5 = OpCompositeExtract %u64 %gid5 0
         %n5 = OpUConvert %u32 %i5
         %f5 = OpConvertUToPtr %punary %bits5
         %r5 = OpFunctionPointerCallINTEL %u32 %f5 %n5
         %at5 = OpInBoundsPtrAccessChain %pglobal %p5 %i5
         OpStore %at5 %r5
         OpReturn
         OpFunctionEnd"
    )
}

fn given(module: &Module, pointer: u64) -> Vec<u32> {
    let mut run = Run::new(module, "given");
    let out = run.buffer(&[9_u32; 4]);
    run.value(pointer);
    run.line(4, 4);
    run.read(out)
}

/// A call through a pointer calls the function whose address was taken, in each work-item its own.
#[test]
fn work_items_may_call_different_functions_through_one_pointer() {
    let module = front_end(&clang::assemble(&assembly("")));
    let mut run = Run::new(&module, "k");
    let out = run.buffer(&[0_u32; 4]);
    run.line(4, 4);
    assert_eq!(run.read::<u32>(out), [0, 2, 4, 4]);
}

/// The pointer of an exported function works as an argument; any other number calls nothing.
#[test]
fn pointers_of_exported_functions_can_be_given() {
    let module = front_end(&clang::assemble(&assembly("")));
    let cube = module.pointers["cube"];
    assert_eq!(module.pointers.len(), 1, "what is not exported has no name outside");
    assert_eq!(given(&module, cube), [0, 1, 8, 27]);
    assert_eq!(given(&module, 0), [0; 4]);
    assert_eq!(given(&module, cube ^ 1 << 40), [0; 4]);
}

/// Only the address of a function can be taken; a cycle through pointers is recursion.
#[test]
fn wrong_pointers_are_refused() {
    let wrong = assembly("%bad = OpConstantFunctionPointerINTEL %punary %one");
    let error = parse(&clang::assemble(&wrong), &[]).expect_err("%one is no function").to_string();
    assert!(error.contains("which is not a function"), "{error}");
    let cycle = assembly("")
        .replace("%r1 = OpIMul %u32 %x1 %two", "%r1 = OpFunctionPointerCallINTEL %u32 %pplus %x1");
    let mut module = parse(&clang::assemble(&cycle), &[]).expect("it is SPIR-V");
    let failure = check(&mut module).expect_err("twice may call itself").to_string();
    assert!(failure.contains("recursion"), "{failure}");
}

/// An exported function that reaches a call through a pointer of its own type, directly or through
/// another function, is not a target of that call: the module is not recursive. Its pointer calls
/// nothing there.
#[test]
fn exported_functions_may_call_through_pointers_of_their_own_type() {
    let helper = "%helper = OpFunction %u32 None %unary
        %x6 = OpFunctionParameter %u32
        %b6 = OpLabel
        %r6 = OpFunctionPointerCallINTEL %u32 %pplus %x6
        OpReturnValue %r6
        OpFunctionEnd
        %cube = OpFunction";
    let direct = "%s3 = OpFunctionPointerCallINTEL %u32 %pplus %x3";
    let by_helper = "%s3 = OpFunctionCall %u32 %helper %x3";
    for call in [direct, by_helper] {
        let text = assembly("")
            .replace("%cube = OpFunction", helper)
            .replace("%s3 = OpIMul %u32 %x3 %x3", call);
        let module = front_end(&clang::assemble(&text));
        let mut run = Run::new(&module, "k");
        let out = run.buffer(&[0_u32; 4]);
        run.line(4, 4);
        assert_eq!(run.read::<u32>(out), [0, 2, 4, 4]);
        assert_eq!(given(&module, module.pointers["cube"]), [0; 4], "{call}");
    }
}
