// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every instruction of the OpenCL.std set, each in a kernel of its own, through the front end and
//! the lowering.

use rspirv::spirv::OpenclStd100Op as Cl;
use tally_compiler::check::check;
use tally_compiler::lower::lower;
use tally_compiler::parse::parse;

#[path = "support/clang.rs"]
#[allow(dead_code, reason = "only part of it is needed here")]
mod clang;

/// Types and values for the instructions.
const PRELUDE: &str = "
    OpCapability Addresses
    OpCapability Kernel
    OpCapability Int8
    OpCapability Int16
    OpCapability Int64
    OpCapability Float16
    OpCapability Float64
    OpCapability Vector16
    %set = OpExtInstImport \"OpenCL.std\"
    OpMemoryModel Physical64 OpenCL
    OpEntryPoint Kernel %k \"k\"
    %void = OpTypeVoid
    %u8 = OpTypeInt 8 0
    %u16 = OpTypeInt 16 0
    %u32 = OpTypeInt 32 0
    %u64 = OpTypeInt 64 0
    %half = OpTypeFloat 16
    %f32 = OpTypeFloat 32
    %f64 = OpTypeFloat 64
    %v4f = OpTypeVector %f32 4
    %v4u = OpTypeVector %u32 4
    %v8f = OpTypeVector %f32 8
    %pu = OpTypePointer CrossWorkgroup %u32
    %pf = OpTypePointer CrossWorkgroup %f32
    %ph = OpTypePointer CrossWorkgroup %half
    %size = OpConstant %u32 6
    %array = OpTypeArray %u8 %size
    %pc = OpTypePointer UniformConstant %array
    %pchar = OpTypePointer UniformConstant %u8
    %zero = OpConstant %u32 0
    %zero64 = OpConstant %u64 0
    %c1 = OpConstant %u8 97
    %c0 = OpConstant %u8 0
    %text = OpConstantComposite %array %c1 %c1 %c1 %c1 %c1 %c0
    %format = OpVariable %pc UniformConstant %text
    %type = OpTypeFunction %void %pu %pf %ph %u32 %u64 %f32 %v4f %v4u
    %k = OpFunction %void None %type
    %U = OpFunctionParameter %pu
    %F = OpFunctionParameter %pf
    %H = OpFunctionParameter %ph
    %u = OpFunctionParameter %u32
    %n = OpFunctionParameter %u64
    %f = OpFunctionParameter %f32
    %v = OpFunctionParameter %v4f
    %w = OpFunctionParameter %v4u
    %entry = OpLabel
    %string = OpInBoundsPtrAccessChain %pchar %format %zero64 %zero64";

/// Ways to use an instruction: the type of the result, and the operands. Literals are numbers.
const FORMS: [&str; 35] = [
    "%f32 . %f",
    "%f32 . %f %f",
    "%f32 . %f %f %f",
    "%u32 . %u",
    "%u32 . %u %u",
    "%u32 . %u %u %u",
    "%f32 . %f %F",
    "%f32 . %f %u",
    "%f32 . %f %U",
    "%f32 . %f %f %U",
    "%u32 . %f",
    "%f32 . %u",
    "%f32 . %f %f %u",
    "%u64 . %u %u",
    "%f32 . %v",
    "%f32 . %v %v",
    "%v4f . %v",
    "%v4f . %v %v",
    "%v4f . %n %F !4",
    "%void . %v %n %F",
    "%f32 . %n %H",
    "%v4f . %n %H !4",
    "%void . %f %n %H",
    "%void . %f %n %H !1",
    "%void . %v %n %H",
    "%void . %v %n %H !1",
    "%v4f . %v %w",
    "%v4f . %v %v %w",
    "%u32 . %string",
    "%u32 . %string %u",
    "%void . %F %n",
    "%void . %U %n",
    "%v4f . %f %f %v",
    "%f64 . %f",
    "%half . %f",
];

/// "All of OpenCL.std": each of its instructions is accepted in some form.
#[test]
fn every_instruction_is_taken() {
    let all: Vec<Cl> = (0..1024).filter_map(Cl::from_u32).collect();
    assert_eq!(all.len(), 162, "instructions of the set");
    // Assembled once for each form, with the instruction's number to be filled in.
    let marker = Cl::printf as u32;
    let forms = FORMS.map(|form| {
        let (ty, operands) = form.split_once(" . ").expect("two parts");
        let body = format!("%r = OpExtInst {ty} %set printf {operands}\nOpReturn\nOpFunctionEnd");
        clang::assemble(&format!("{PRELUDE}\n{body}"))
    });
    let with = |form: &[u8], cl: Cl| {
        let mut words: Vec<u32> =
            form.chunks(4).map(|w| u32::from_le_bytes(w.try_into().expect("a word"))).collect();
        let mut at = 5;
        while words[at] & 0xffff != 12 {
            at += (words[at] >> 16) as usize;
        }
        assert_eq!(words[at + 4], marker);
        words[at + 4] = cl as u32;
        words.into_iter().flat_map(u32::to_le_bytes).collect::<Vec<u8>>()
    };
    let taken = |cl: Cl| {
        forms.iter().any(|form| {
            let Ok(mut module) = parse(&with(form, cl), &[]) else { return false };
            check(&mut module).is_ok() && lower(&module, &module.kernels[0]).is_ok()
        })
    };
    let refused: Vec<Cl> = all.into_iter().filter(|&cl| !taken(cl)).collect();
    assert_eq!(refused, [], "are taken in no form");
}
