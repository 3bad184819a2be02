// SPDX-License-Identifier: MIT OR Apache-2.0
//! zetModuleGetDebugInfo through the stock loader. The compiler's own test shows that the lines are
//! right (`compiler/tests/codegen/debug.rs`).

use std::ptr;

use tally_tests::ze::{self, Gpu};
use tally_tests::{call, check, refused};
use tally_ze::zet::zet_module_debug_info_format_t;
use tally_ze::*;

const FORMAT: zet_module_debug_info_format_t =
    zet_module_debug_info_format_t::ZET_MODULE_DEBUG_INFO_FORMAT_ELF_DWARF;

/// Stores 7, with a line for the instruction.
const SOURCE: &str = "
    OpCapability Kernel
    OpCapability Addresses
    OpMemoryModel Physical64 OpenCL
    OpEntryPoint Kernel %seven \"seven\"
    %file = OpString \"some/folder/seven.cl\"
    OpName %seven \"seven\"
    %void = OpTypeVoid
    %uint = OpTypeInt 32 0
    %c7 = OpConstant %uint 7
    %pointer = OpTypePointer CrossWorkgroup %uint
    %kernel = OpTypeFunction %void %pointer
    OpLine %file 40 1
    %seven = OpFunction %void None %kernel
    %p = OpFunctionParameter %pointer
    %start = OpLabel
    OpLine %file 41 5
    OpStore %p %c7 Aligned 4
    OpReturn
    OpFunctionEnd";

fn debug_info(module: ze_module_handle_t) -> Vec<u8> {
    let mut size = usize::MAX;
    check!(zetModuleGetDebugInfo(module, FORMAT, &raw mut size, ptr::null_mut()));
    let mut bytes = vec![0; size];
    if size != 0 {
        check!(zetModuleGetDebugInfo(module, FORMAT, &raw mut size, bytes.as_mut_ptr()));
    }
    assert_eq!(size, bytes.len());
    bytes
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|part| part == text.as_bytes())
}

/// "Retrieve debug info from module": an ELF file with DWARF if the module was built with it, and
/// nothing otherwise. "The caller can pass nullptr for pDebugInfo when querying only for size."
#[test]
fn a_module_has_the_debug_information_that_it_was_built_with() {
    let gpu = Gpu::new();
    let spirv = ze::assemble(SOURCE);
    let with = gpu.module(&spirv, "-g").expect("it is valid");
    let without = gpu.module(&spirv, "").expect("it is valid");
    let bytes = debug_info(with);
    assert!(bytes.starts_with(b"\x7fELF"), "it is an ELF file");
    for text in ["seven", "some/folder/seven.cl", ".debug_line", ".debug_info", ".symtab"] {
        assert!(holds(&bytes, text), "{text}");
    }
    assert_eq!(debug_info(without), []);
    for module in [with, without] {
        let out = gpu.host::<u32>(1);
        gpu.run(module, "seven", [1, 1], &[&out.address().to_ne_bytes()]);
        assert_eq!(out.get(0), 7);
        check!(zeModuleDestroy(module));
    }
}

/// Native binaries preserve it.
#[test]
fn a_native_binary_has_the_debug_information_of_its_module() {
    let gpu = Gpu::new();
    let module = gpu.module(&ze::assemble(SOURCE), "-g").expect("it is valid");
    let mut size = 0;
    check!(zeModuleGetNativeBinary(module, &raw mut size, ptr::null_mut()));
    let mut binary = vec![0; size];
    check!(zeModuleGetNativeBinary(module, &raw mut size, binary.as_mut_ptr()));
    let desc = ze_module_desc_t {
        format: ze_module_format_t::ZE_MODULE_FORMAT_NATIVE,
        inputSize: binary.len(),
        pInputModule: binary.as_ptr(),
        ..Default::default()
    };
    let mut loaded = ze_module_handle_t::NULL;
    let (context, device) = (gpu.context, gpu.device);
    check!(zeModuleCreate(context, device, &raw const desc, &raw mut loaded, ptr::null_mut()));
    assert_eq!(debug_info(loaded), debug_info(module));
    check!(zeModuleDestroy(loaded));
    check!(zeModuleDestroy(module));
}

/// "ZE_RESULT_ERROR_INVALID_ENUMERATION: ZET_MODULE_DEBUG_INFO_FORMAT_ELF_DWARF < format";
/// "ZE_RESULT_ERROR_INVALID_NULL_POINTER: nullptr == pSize".
#[test]
fn other_formats_and_no_place_for_the_size_are_refused() {
    let gpu = Gpu::new();
    let module = gpu.module(&ze::assemble(SOURCE), "-g").expect("it is valid");
    let (mut size, none) = (0, ptr::null_mut::<u8>());
    let other = zet_module_debug_info_format_t(1);
    let text = refused!(
        ZE_RESULT_ERROR_INVALID_ENUMERATION,
        zetModuleGetDebugInfo(module, other, &raw mut size, none)
    );
    assert!(text.contains("format"), "{text}");
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_POINTER,
        zetModuleGetDebugInfo(module, FORMAT, ptr::null_mut(), none)
    );
    let null = ze_module_handle_t::NULL;
    let answer = call!(zetModuleGetDebugInfo(null, FORMAT, &raw mut size, none));
    assert_eq!(answer, ze_result_t::ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
    check!(zeModuleDestroy(module));
}
