// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debug information: a debugger's file maps an instruction of the processor to the source that the
//! SPIR-V module names.

use std::collections::BTreeSet;

use addr2line::{Context, gimli};
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSection, ObjectSymbol};
use tally_compiler::codegen::{Options, kernel_code, kernel_code_of};
use tally_compiler::ir::Module;
use tally_compiler::llvm::Level;
use tally_compiler_protocol::{KernelCode, TargetCpu, debug};

use super::harness;
use super::harness::clang::assemble;

/// Two kernels. `roots` takes roots in line 13 of one file, after a division in another, in a function
/// there; `quotients` divides in line 30, behind a barrier, and has its line from `DebugLine`.
const SOURCE: &str = r#"
    OpCapability Addresses
    OpCapability Kernel
    OpCapability Int64
    OpExtension "SPV_KHR_non_semantic_info"
    %cl = OpExtInstImport "OpenCL.std"
    %dbg = OpExtInstImport "NonSemantic.Shader.DebugInfo.100"
    OpMemoryModel Physical64 OpenCL
    OpEntryPoint Kernel %roots "roots" %gid
    OpEntryPoint Kernel %quotients "quotients" %gid
    %main = OpString "a/roots.cl"
    %head = OpString "a/\"an odd\\name\".h"
    %other = OpString "b/quotients.cl"
    OpName %divided "divided"
    OpName %roots "roots"
    OpName %quotients "quotients"
    OpDecorate %gid BuiltIn GlobalInvocationId
    %void = OpTypeVoid
    %uint = OpTypeInt 32 0
    %ulong = OpTypeInt 64 0
    %float = OpTypeFloat 32
    %v3 = OpTypeVector %ulong 3
    %in = OpTypePointer Input %v3
    %pointer = OpTypePointer CrossWorkgroup %float
    %two = OpConstant %uint 2
    %semantics = OpConstant %uint 272
    %c1 = OpConstant %uint 1
    %c30 = OpConstant %uint 30
    %by = OpConstant %float 3
    %fdivided = OpTypeFunction %float %float %float
    %fkernel = OpTypeFunction %void %pointer %float
    %gid = OpVariable %in Input
    %source = OpExtInst %void %dbg DebugSource %other
    OpLine %head 2 1
    %divided = OpFunction %float None %fdivided
    %x = OpFunctionParameter %float
    %y = OpFunctionParameter %float
    %d0 = OpLabel
    OpLine %head 3 70000
    %x_y = OpFDiv %float %x %y
    OpReturnValue %x_y
    OpFunctionEnd
    OpLine %main 10 1
    %roots = OpFunction %void None %fkernel
    %p = OpFunctionParameter %pointer
    %q = OpFunctionParameter %float
    %r0 = OpLabel
    %ids = OpLoad %v3 %gid Aligned 32
    %i = OpCompositeExtract %ulong %ids 0
    OpLine %main 11 5
    %at = OpInBoundsPtrAccessChain %pointer %p %i
    %v = OpLoad %float %at Aligned 4
    OpLine %main 12 5
    %called = OpFunctionCall %float %divided %v %q
    OpLine %main 13 5
    %root = OpExtInst %float %cl sqrt %called
    OpLine %main 14 5
    OpStore %at %root Aligned 4
    OpNoLine
    OpReturn
    OpFunctionEnd
    %quotients = OpFunction %void None %fkernel
    %qp = OpFunctionParameter %pointer
    %qq = OpFunctionParameter %float
    %q0 = OpLabel
    %qids = OpLoad %v3 %gid Aligned 32
    %qi = OpCompositeExtract %ulong %qids 0
    %qat = OpInBoundsPtrAccessChain %pointer %qp %qi
    %qv = OpLoad %float %qat Aligned 4
    OpControlBarrier %two %two %semantics
    %l1 = OpExtInst %void %dbg DebugLine %source %c30 %c30 %c1 %c1
    %quotient = OpFDiv %float %qv %qq
    %l2 = OpExtInst %void %dbg DebugNoLine
    OpStore %qat %quotient Aligned 4
    OpReturn
    OpFunctionEnd
"#;

/// The opcodes of `sqrtps` and `divps`, or of the scalar forms behind a prefix.
const SQRT: [u8; 2] = [0x0f, 0x51];
const DIV: [u8; 2] = [0x0f, 0x5e];

fn module() -> Module {
    harness::module(&assemble(SOURCE))
}

fn target() -> TargetCpu {
    TargetCpu { name: "x86-64".into(), features: String::new() }
}

fn build(module: &Module, name: &str, level: Level, lanes: u32) -> KernelCode {
    let (_, kernel) = module.kernel(name).expect("it is there");
    let options = Options { level, debug: true, ..Options::default() };
    kernel_code_of(module, kernel, &target(), options, lanes).expect("it is good")
}

/// A file of debug information, parsed as a debugger does.
struct File<'a> {
    elf: ElfFile64<'a, Endianness>,
    lines: Context<gimli::EndianSlice<'a, gimli::LittleEndian>>,
}

impl<'a> File<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        let elf = ElfFile64::parse(bytes).expect("it is an ELF file");
        let section = |id: gimli::SectionId| {
            let section = elf.section_by_name(id.name());
            let bytes = section.map_or(&[][..], |it| it.data().expect("it is in the file"));
            Ok::<_, gimli::Error>(gimli::EndianSlice::new(bytes, gimli::LittleEndian))
        };
        let dwarf = gimli::Dwarf::load(section).expect("nothing fails");
        Self { lines: Context::from_dwarf(dwarf).expect("it is DWARF"), elf }
    }

    /// The code of a kernel with its address.
    fn kernel(&self, name: &str) -> (u64, &'a [u8]) {
        let symbol = self.elf.symbol_by_name(name).expect("each kernel has a symbol");
        let text = self.elf.section_by_name(".text").expect("there is code");
        let from = (symbol.address() - text.address()) as usize;
        let bytes = text.data().expect("it is in the file");
        (symbol.address(), &bytes[from..][..symbol.size() as usize])
    }

    /// The places in the source of a kernel's instructions with this opcode: functions, file and line.
    fn places(&self, kernel: &str, code: [u8; 2]) -> BTreeSet<String> {
        let (base, bytes) = self.kernel(kernel);
        let found = (0..bytes.len()).filter(|&at| bytes[at..].starts_with(&code));
        found.map(|at| self.place(base + at as u64)).collect()
    }

    fn place(&self, address: u64) -> String {
        let mut frames = self.lines.find_frames(address).skip_all_loads().expect("it is DWARF");
        let mut text = String::new();
        while let Some(frame) = frames.next().expect("it is DWARF") {
            if text.is_empty() {
                let place = frame.location.expect("each instruction has a place");
                text = format!("{}:{}", place.file.unwrap_or("?"), place.line.unwrap_or(0));
            }
            let name = frame.function.map(|it| it.raw_name().expect("it is text").into_owned());
            text += &format!(" {}", name.unwrap_or_default());
        }
        text
    }
}

/// The debug information of both kernels of a module, compiled with these options.
fn file(module: &Module, level: Level, lanes: u32) -> Vec<u8> {
    let kernels = ["roots", "quotients"].map(|name| (name, build(module, name, level, lanes)));
    debug::elf(kernels.iter().map(|(name, code)| (*name, code))).expect("it is small")
}

/// The file's name contains characters that LLVM's assembly language has to quote.
const HEAD: &str = "a/\"an odd\\name\".h:3";

#[test]
fn instructions_are_found_in_the_source_widened_or_not() {
    let module = module();
    let file = file(&module, Level::Full, 16);
    let file = File::new(&file);
    let wide = "roots for 16 items roots";
    let roots = ["a/roots.cl:13 roots".to_owned(), format!("a/roots.cl:13 {wide}")];
    assert_eq!(file.places("roots", SQRT), roots.into());
    // Widening inlines calls itself: only the line tells the origin of the code.
    let divided = [format!("{HEAD} divided roots"), format!("{HEAD} {wide}")];
    assert_eq!(file.places("roots", DIV), divided.into());
    assert_eq!(file.places("quotients", SQRT), BTreeSet::new());
}

#[test]
fn instructions_are_found_at_every_level_and_behind_barriers() {
    let module = module();
    for (level, lanes) in
        [(Level::Full, 16), (Level::Full, 1), (Level::None, 1), (Level::Little, 8)]
    {
        let file = file(&module, level, lanes);
        let file = File::new(&file);
        for (kernel, code, line) in [
            ("roots", SQRT, "a/roots.cl:13 "),
            ("roots", DIV, &format!("{HEAD} ")),
            ("quotients", DIV, "b/quotients.cl:30 "),
        ] {
            let mut places = file.places(kernel, code);
            // LLVM has no line for one instruction that it has made of two inlined ones.
            places.retain(|place| !place.contains(":0 "));
            let good = !places.is_empty() && places.iter().all(|place| place.starts_with(line));
            assert!(good, "{kernel} at {level:?} with {lanes} items: {places:?}");
        }
    }
}

#[test]
fn the_code_is_the_same_with_and_without() {
    let module = module();
    for kernel in &module.kernels {
        for debug in [false, true] {
            let options = Options { debug, ..Options::default() };
            let code = kernel_code(&module, kernel, &target(), options).expect("it is good");
            let other = build(&module, &kernel.name, Level::Full, 16);
            assert_eq!(code.blob, other.blob, "{}", kernel.name);
            assert_eq!(code.debug.is_empty(), !debug);
        }
    }
}
