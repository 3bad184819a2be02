// SPDX-License-Identifier: MIT OR Apache-2.0
//! Control flow that no OpenCL C compiler writes: modules in SPIR-V's assembly language.

use tally_compiler::lower::{LowerError, lower};

use crate::diff::{Input, same};
use crate::harness::{Grid, clang, module};

/// A kernel over `global int *` whose body is given in SPIR-V's assembly; `%i` is the item's cell, `%x`
/// its contents.
fn kernel(body: &str) -> String {
    format!(
        "OpCapability Addresses
         OpCapability Kernel
         OpCapability Int64
         OpMemoryModel Physical64 OpenCL
         OpEntryPoint Kernel %main \"main\" %id
         OpDecorate %id BuiltIn GlobalInvocationId
         OpDecorate %id Constant
         %void = OpTypeVoid
         %bool = OpTypeBool
         %int = OpTypeInt 32 0
         %long = OpTypeInt 64 0
         %v3long = OpTypeVector %long 3
         %pint = OpTypePointer CrossWorkgroup %int
         %pv3long = OpTypePointer Input %v3long
         %fn = OpTypeFunction %void %pint
         %c0 = OpConstant %int 0
         %c1 = OpConstant %int 1
         %c2 = OpConstant %int 2
         %c3 = OpConstant %int 3
         %c7 = OpConstant %int 7
         %c20 = OpConstant %int 20
         %c36 = OpConstant %int 36
         %l32 = OpConstant %long 32
         %l68 = OpConstant %long 68
         %l95 = OpConstant %long 95
         %lall = OpConstant %long 0xffffffffffffffff
         %c272 = OpConstant %int 272
         %id = OpVariable %pv3long Input
         %main = OpFunction %void None %fn
         %p = OpFunctionParameter %pint
         %entry = OpLabel
         %ids = OpLoad %v3long %id
         %g = OpCompositeExtract %long %ids 0
         %i = OpInBoundsPtrAccessChain %pint %p %g
         %x = OpLoad %int %i Aligned 4
         {body}
         OpFunctionEnd"
    )
}

fn agree(body: &str) {
    let module = module(&clang::assemble(&kernel(body)));
    let bytes = (0..64i32).flat_map(|i| (i * 7 - 30).to_le_bytes()).collect();
    same(&module, "main", Grid::line(64, 16), &[Input::bytes(bytes)], body);
}

#[test]
fn a_loop_with_two_entries_runs() {
    agree(
        "%odd = OpBitwiseAnd %int %x %c1
         %is_odd = OpINotEqual %bool %odd %c0
         OpBranchConditional %is_odd %left %right
         %left = OpLabel
         %a = OpPhi %int %x %entry %b2 %right
         %na = OpPhi %int %c0 %entry %nb2 %right
         %a2 = OpIAdd %int %a %c3
         %na2 = OpIAdd %int %na %c1
         %go_a = OpULessThan %bool %na2 %c20
         OpBranchConditional %go_a %right %end
         %right = OpLabel
         %b = OpPhi %int %x %entry %a2 %left
         %nb = OpPhi %int %c0 %entry %na2 %left
         %b2 = OpIMul %int %b %c7
         %nb2 = OpIAdd %int %nb %c2
         %go_b = OpULessThan %bool %nb2 %c20
         OpBranchConditional %go_b %left %end
         %end = OpLabel
         %r = OpPhi %int %a2 %left %b2 %right
         OpStore %i %r Aligned 4
         OpReturn",
    );
}

#[test]
fn a_loop_with_two_entries_and_a_barrier_in_it_keeps_its_values() {
    agree(
        "%odd = OpBitwiseAnd %int %x %c1
         %is_odd = OpINotEqual %bool %odd %c0
         OpBranchConditional %is_odd %left %right
         %left = OpLabel
         %a = OpPhi %int %x %entry %b2 %right
         %na = OpPhi %int %c0 %entry %nb2 %right
         %a2 = OpIAdd %int %a %c3
         OpControlBarrier %c2 %c2 %c272
         %na2 = OpIAdd %int %na %c1
         %go_a = OpULessThan %bool %na2 %c20
         OpBranchConditional %go_a %right %end
         %right = OpLabel
         %b = OpPhi %int %x %entry %a2 %left
         %nb = OpPhi %int %c0 %entry %na2 %left
         %b2 = OpIMul %int %b %c7
         %nb2 = OpIAdd %int %nb %c2
         OpControlBarrier %c2 %c2 %c272
         %go_b = OpULessThan %bool %nb2 %c20
         OpBranchConditional %go_b %left %end
         %end = OpLabel
         %r = OpPhi %int %a2 %left %b2 %right
         OpStore %i %r Aligned 4
         OpReturn",
    );
}

#[test]
fn phis_take_their_values_at_once_and_switches_may_reach_a_block_twice() {
    agree(
        "OpSwitch %x %other 5 %swap 12 %swap 19 %done
         %other = OpLabel
         OpBranch %swap
         %swap = OpLabel
         %a = OpPhi %int %x %entry %c20 %other %b %swap
         %b = OpPhi %int %c7 %entry %x %other %a %swap
         %n = OpPhi %int %c0 %entry %c0 %other %n2 %swap
         %n2 = OpIAdd %int %n %c1
         %more = OpULessThan %bool %n2 %c3
         OpBranchConditional %more %swap %done
         %done = OpLabel
         %r = OpPhi %int %c2 %entry %a %swap
         OpStore %i %r Aligned 4
         OpReturn",
    );
}

/// Amounts of shifts count modulo the width, also if they are constants and ids are shifted.
#[test]
fn ids_are_shifted_by_amounts_modulo_the_width() {
    let cases = [
        "%n = OpUConvert %int %g\n%r = OpShiftLeftLogical %int %n %c36",
        "%n = OpShiftLeftLogical %long %g %l68\n%r = OpUConvert %int %n",
        "%n = OpShiftLeftLogical %long %g %l32\n%m = OpShiftRightArithmetic %long %n %l95
         %r = OpUConvert %int %m",
        "%n = OpShiftLeftLogical %long %g %l32\n%m = OpShiftRightArithmetic %long %n %lall
         %r = OpUConvert %int %m",
    ];
    for case in cases {
        agree(&format!("{case}\nOpStore %i %r Aligned 4\nOpReturn"));
    }
}

/// Functions with barriers are inlined, and a function that calls another one twice doubles it. The
/// cost of a copy is not only its instructions: a switch of a thousand cases is as long as they are.
#[test]
fn what_calls_grow_beyond_the_limit_is_refused_however_few_its_instructions() {
    let calls = |levels: usize| {
        let cases: Vec<String> = (0..1000).map(|case| format!("{case} %case")).collect();
        let mut text = format!(
            "OpCapability Addresses
             OpCapability Kernel
             OpMemoryModel Physical64 OpenCL
             OpEntryPoint Kernel %main \"main\"
             %void = OpTypeVoid
             %int = OpTypeInt 32 0
             %c1 = OpConstant %int 1
             %c2 = OpConstant %int 2
             %c528 = OpConstant %int 528
             %pint = OpTypePointer CrossWorkgroup %int
             %of_kernel = OpTypeFunction %void %pint
             %of_function = OpTypeFunction %int %int
             %f0 = OpFunction %int None %of_function
             %x0 = OpFunctionParameter %int
             %entry = OpLabel
             OpSelectionMerge %meet None
             OpSwitch %x0 %meet {}
             %case = OpLabel
             OpBranch %meet
             %meet = OpLabel
             %y0 = OpPhi %int %x0 %entry %c1 %case
             OpControlBarrier %c2 %c2 %c528
             OpReturnValue %y0
             OpFunctionEnd\n",
            cases.join(" ")
        );
        for (before, level) in (0..levels).zip(1..) {
            text += &format!(
                "%f{level} = OpFunction %int None %of_function
                 %x{level} = OpFunctionParameter %int
                 %l{level} = OpLabel
                 %a{level} = OpFunctionCall %int %f{before} %x{level}
                 %b{level} = OpFunctionCall %int %f{before} %a{level}
                 OpReturnValue %b{level}
                 OpFunctionEnd\n"
            );
        }
        text + &format!(
            "%main = OpFunction %void None %of_kernel
             %p = OpFunctionParameter %pint
             %l = OpLabel
             %v = OpLoad %int %p Aligned 4
             %r = OpFunctionCall %int %f{levels} %v
             OpStore %p %r Aligned 4
             OpReturn
             OpFunctionEnd"
        )
    };
    let lowered = |levels| {
        let module = module(&clang::assemble(&calls(levels)));
        lower(&module, &module.kernels[0]).map(|_| ())
    };
    assert_eq!(lowered(3), Ok(()));
    assert_eq!(lowered(11), Err(LowerError::Size));
}
