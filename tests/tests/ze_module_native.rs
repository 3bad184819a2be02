// SPDX-License-Identifier: MIT OR Apache-2.0
//! Native binaries through the stock loader: they load again without a compiler, and are refused if
//! they are incomplete.

use std::ptr;

use tally_tests::lists::NONE;
use tally_tests::ze::{self, Gpu};
use tally_tests::{call, check, refused};
use tally_ze::*;
use twox_hash::XxHash3_128;

const SOURCE: &str = "
    global uint total = 40;
    constant uint table[4] = {1, 2, 3, 5};
    kernel void fill(global uint *out) {
        out[get_global_id(0)] = total + table[get_global_id(0) & 3];
    }
    kernel void turn(global uint *out) {
        local uint mine[4];
        size_t i = get_local_id(0);
        mine[i] = (uint)i * 7;
        barrier(CLK_LOCAL_MEM_FENCE);
        out[i] = mine[3 - i];
    }";

fn binary(module: ze_module_handle_t) -> Vec<u8> {
    let mut size = 0;
    check!(zeModuleGetNativeBinary(module, &raw mut size, ptr::null_mut()));
    let mut bytes = vec![0; size];
    check!(zeModuleGetNativeBinary(module, &raw mut size, bytes.as_mut_ptr()));
    assert_eq!(size, bytes.len());
    bytes
}

/// Loads a native binary; returns the result, the module and the log.
fn load(gpu: &Gpu, bytes: &[u8]) -> (ze_result_t, ze_module_handle_t, String) {
    let desc = ze_module_desc_t {
        format: ze_module_format_t::ZE_MODULE_FORMAT_NATIVE,
        inputSize: bytes.len(),
        pInputModule: bytes.as_ptr(),
        ..Default::default()
    };
    let (mut module, mut log) = (ze_module_handle_t::NULL, ze_module_build_log_handle_t::NULL);
    let (context, device) = (gpu.context, gpu.device);
    let answer =
        call!(zeModuleCreate(context, device, &raw const desc, &raw mut module, &raw mut log));
    (answer, module, ze::build_log(log))
}

/// The output of a kernel with one buffer for four work-items.
fn run(gpu: &Gpu, module: ze_module_handle_t, name: &str) -> Vec<u32> {
    let out = gpu.host::<u32>(4);
    gpu.run(module, name, [1, 4], &[&out.address().to_ne_bytes()]);
    out.to_vec()
}

const FILE: &str = "TALLY_TEST_BINARY";

/// "Modules can be created from an IL or directly from native format": in another process, with no
/// compiler there.
#[test]
fn a_native_binary_loads_and_runs_without_a_compiler() {
    let gpu = Gpu::new();
    let module = gpu.module(&ze::spirv_from(SOURCE), "").expect("it is valid");
    let bytes = binary(module);
    assert_eq!(bytes, binary(module), "it is the same each time");
    let path = std::env::temp_dir().join(format!("tally-native-{}", std::process::id()));
    std::fs::write(&path, &bytes).expect("a temporary file can be written");
    let variables = [
        (FILE, path.to_str().expect("it is ASCII")),
        ("TALLY_COMPILER", "/nonexistent"),
        ("TALLY_LOG", "debug"),
    ];
    let said = ze::in_child("child_that_loads_a_binary", &variables);
    assert!(said.contains("for uneven rows is at"), "four work-items are no whole vector: {said}");
    // If the file stays, that is no failure.
    let _ = std::fs::remove_file(&path);
    check!(zeModuleDestroy(module));
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_loads_a_binary() {
    let gpu = Gpu::new();
    let path = std::env::var(FILE).expect("the parent names the file");
    let bytes = std::fs::read(path).expect("the parent has written it");
    gpu.module(&ze::spirv_from("kernel void k() {}"), "").expect_err("there is no compiler");
    let (answer, module, log) = load(&gpu, &bytes);
    assert_eq!(answer, ze_result_t::ZE_RESULT_SUCCESS, "{log}");
    assert_eq!(run(&gpu, module, "fill"), [41, 42, 43, 45]);
    assert_eq!(run(&gpu, module, "turn"), [21, 14, 7, 0]);
    assert_eq!(binary(module), bytes, "what was loaded is written again");
    let (mut size, mut address) = (0, ptr::null_mut());
    check!(zeModuleGetGlobalPointer(module, c"total".as_ptr(), &raw mut size, &raw mut address));
    assert_eq!(size, 4);
    check!(zeModuleDestroy(module));
}

/// docs/limits.md: "Native binaries hold no code for groups of a size … it is built from the SPIR-V that they carry".
#[test]
fn code_that_a_binary_lacks_is_built_from_its_source() {
    let gpu = Gpu::new();
    let module = gpu.module(&ze::spirv_from(SIZES), "").expect("it is valid");
    let path = std::env::temp_dir().join(format!("tally-sizes-{}", std::process::id()));
    std::fs::write(&path, binary(module)).expect("a temporary file can be written");
    check!(zeModuleDestroy(module));
    let says = |compiler: &[(&str, &str)]| {
        let file = (FILE, path.to_str().expect("it is ASCII"));
        let variables = [&[file, ("TALLY_LOG", "debug")], compiler].concat();
        ze::in_child("child_that_loads_a_binary_and_runs_columns", &variables)
    };
    let said = says(&[]);
    assert!(said.contains("kernel \"waits\" for [1, 20, 1] is at"), "{said}");
    assert!(said.contains("kernel \"alone\" for uneven rows is at"), "{said}");
    let said = says(&[("TALLY_COMPILER", "/nonexistent"), ("TALLY_CACHE", "0")]);
    assert!(!said.contains("[1, 20, 1] is at"), "{said}");
    assert!(said.contains("\"waits\" runs groups of [1, 20, 1] one item at a time"), "{said}");
    // A compiler that describes the kernels otherwise, as another version may, does not make it.
    let bytes = std::fs::read(&path).expect("it was written");
    std::fs::write(&path, described_otherwise(&bytes)).expect("our own file");
    let said = says(&[]);
    assert!(!said.contains("[1, 20, 1] is at"), "{said}");
    let why = "one item at a time: the compiler is not that of the native binary";
    assert!(said.contains(why), "{said}");
    // If the file stays, that is no failure.
    let _ = std::fs::remove_file(&path);
}

/// The binary with another attribute of a kernel in its description. `compiler/protocol/src/native.rs` says where the
/// hash of its contents is.
fn described_otherwise(bytes: &[u8]) -> Vec<u8> {
    let (old, new) = (b"work_group_size_hint", b"work_group_size_HINT");
    let at = bytes.windows(old.len()).position(|it| it == old).expect("it is described");
    let mut bytes = bytes.to_vec();
    bytes[at..][..new.len()].copy_from_slice(new);
    let hash = XxHash3_128::oneshot(&bytes[40..]);
    bytes[24..40].copy_from_slice(&hash.to_le_bytes());
    bytes
}

/// A kernel whose items wait for each other, and one whose items do not.
const SIZES: &str = "
    kernel __attribute__((work_group_size_hint(1, 20, 1))) void waits(global uint *out) {
        local uint mine[20];
        mine[get_local_id(1)] = get_local_id(1) * 7;
        barrier(CLK_LOCAL_MEM_FENCE);
        out[get_local_id(1)] = mine[19 - get_local_id(1)];
    }
    kernel void alone(global uint *out) {
        out[get_local_id(1) * get_local_size(0) + get_local_id(0)] = get_local_id(0) + 10 * get_local_id(1);
    }";

#[test]
#[ignore = "runs in a child process"]
fn child_that_loads_a_binary_and_runs_columns() {
    let gpu = Gpu::new();
    let path = std::env::var(FILE).expect("the parent names the file");
    let bytes = std::fs::read(path).expect("the parent has written it");
    let (answer, module, log) = load(&gpu, &bytes);
    assert_eq!(answer, ze_result_t::ZE_RESULT_SUCCESS, "{log}");
    let out = gpu.host::<u32>(64);
    let run = |name, [x, y]: [u32; 2]| {
        let kernel = gpu.kernel(module, name);
        let (address, list) = (out.address(), gpu.immediate(0, true));
        check!(zeKernelSetGroupSize(kernel, x, y, 1));
        check!(zeKernelSetArgumentValue(kernel, 0, 8, (&raw const address).cast()));
        let one = ze_group_count_t { groupCountX: 1, groupCountY: 1, groupCountZ: 1 };
        let none = ptr::null_mut();
        check!(zeCommandListAppendLaunchKernel(list.0, kernel, &raw const one, NONE, 0, none));
        list.synchronize();
        check!(zeKernelDestroy(kernel));
        out.to_vec()[..(x * y) as usize].to_vec()
    };
    assert_eq!(run("waits", [1, 20]), (0..20).map(|i| (19 - i) * 7).collect::<Vec<_>>());
    assert_eq!(run("alone", [8, 8]), (0..64).map(|i| i % 8 + i / 8 * 10).collect::<Vec<_>>());
    check!(zeModuleDestroy(module));
}

/// TALLY_CPU: "kernels are built for every processor of this level, so that native binaries … serve
/// other machines".
#[test]
fn a_binary_for_a_level_uses_no_feature_beyond_it() {
    let gpu = Gpu::new();
    let path = std::env::temp_dir().join(format!("tally-level-{}", std::process::id()));
    let written = |level: &str| {
        let variables = [(FILE, path.to_str().expect("a name in UTF-8")), ("TALLY_CPU", level)];
        ze::in_child("child_that_writes_a_binary", &variables);
        let bytes = std::fs::read(&path).expect("the child has written it");
        // If the file stays, that is no failure.
        let _ = std::fs::remove_file(&path);
        bytes
    };
    let uses = |bytes: &[u8], feature: &[u8]| bytes.windows(feature.len()).any(|it| it == feature);
    assert!(uses(&written(""), b"+sse3"), "every processor since 2004 has it");
    let bytes = written("x86-64");
    assert!(!uses(&bytes, b"+sse3"), "the level does not");
    let (answer, module, log) = load(&gpu, &bytes);
    assert_eq!(answer, ze_result_t::ZE_RESULT_SUCCESS, "{log}");
    assert_eq!(run(&gpu, module, "fill"), [41, 42, 43, 45]);
    check!(zeModuleDestroy(module));
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_writes_a_binary() {
    let gpu = Gpu::new();
    let module = gpu.module(&ze::spirv_from(SOURCE), "").expect("it builds");
    std::fs::write(std::env::var(FILE).expect("the parent names the file"), binary(module))
        .expect("the folder is there");
}

/// No part of a binary, no changed byte and no other format is loaded; the log and the description give
/// the reason, and the driver still works.
#[test]
fn what_is_not_a_whole_binary_is_refused() {
    let gpu = Gpu::new();
    let spirv = ze::spirv_from(SOURCE);
    let module = gpu.module(&spirv, "").expect("it is valid");
    let whole = binary(module);
    let refuse = |bytes: &[u8], what: &str| {
        let (answer, module, log) = load(&gpu, bytes);
        assert_eq!(answer, ze_result_t::ZE_RESULT_ERROR_INVALID_NATIVE_BINARY, "{what}");
        assert!(module.is_null() && log.starts_with("native binary: "), "{what}: {log}");
        assert!(ze::description().contains("pInputModule"), "{what}");
    };
    refuse(&spirv, "SPIR-V");
    refuse(b"\x7fELF", "four bytes");
    for len in (1..whole.len()).step_by(whole.len() / 50 + 1).chain(1..60) {
        refuse(&whole[..len], "a part");
    }
    let mut state = 0x9e37_79b9_u64;
    for _ in 0..400 {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (at, bit) = ((state >> 16) as usize % whole.len(), (state >> 60) as u32 % 8);
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << bit;
        refuse(&bytes, &format!("bit {bit} of byte {at}"));
    }
    let (answer, again, log) = load(&gpu, &whole);
    assert_eq!(answer, ze_result_t::ZE_RESULT_SUCCESS, "{log}");
    assert_eq!(run(&gpu, again, "fill"), [41, 42, 43, 45]);
    check!(zeModuleDestroy(again));
    check!(zeModuleDestroy(module));
}

/// A module that imports or exports stays one that can be linked.
#[test]
fn native_binaries_can_be_linked() {
    let gpu = Gpu::new();
    let user = "uint twice(uint); kernel void k(global uint *p) {
        p[get_global_id(0)] = twice((uint)get_global_id(0)); }";
    let maker = "uint twice(uint x) { return 2 * x; }";
    let mut loaded = [user, maker].map(|source| {
        let module = gpu.module(&ze::spirv_from(source), "").expect("it is valid");
        let bytes = binary(module);
        check!(zeModuleDestroy(module));
        let (answer, module, log) = load(&gpu, &bytes);
        assert_eq!(answer, ze_result_t::ZE_RESULT_SUCCESS, "{log}");
        module
    });
    let mut kernel = ze_kernel_handle_t::NULL;
    let desc = ze_kernel_desc_t { pKernelName: c"k".as_ptr(), ..Default::default() };
    refused!(
        ZE_RESULT_ERROR_INVALID_MODULE_UNLINKED,
        zeKernelCreate(loaded[0], &raw const desc, &raw mut kernel)
    );
    check!(zeModuleDynamicLink(2, loaded.as_mut_ptr(), ptr::null_mut()));
    assert_eq!(run(&gpu, loaded[0], "k"), [0, 2, 4, 6]);
    for module in loaded {
        check!(zeModuleDestroy(module));
    }
}

/// "INVALID_MODULE_UNLINKED" also where only an export needs the import: a binary with imports has no
/// code for any kernel before it is linked.
#[test]
fn a_binary_with_imports_has_no_kernels_before_it_is_linked() {
    let gpu = Gpu::new();
    let user = "uint twice(uint); uint four_times(uint x) { return twice(twice(x)); }
        kernel void k(global uint *p) { p[get_global_id(0)] = 9; }";
    let made = gpu.module(&ze::spirv_from(user), "").expect("it is valid");
    assert_eq!(run(&gpu, made, "k"), [9; 4], "the compiler makes what does not need the import");
    let (answer, user, log) = load(&gpu, &binary(made));
    assert_eq!(answer, ze_result_t::ZE_RESULT_SUCCESS, "{log}");
    check!(zeModuleDestroy(made));
    let mut kernel = ze_kernel_handle_t::NULL;
    let desc = ze_kernel_desc_t { pKernelName: c"k".as_ptr(), ..Default::default() };
    refused!(
        ZE_RESULT_ERROR_INVALID_MODULE_UNLINKED,
        zeKernelCreate(user, &raw const desc, &raw mut kernel)
    );
    assert!(ze::description().contains("twice"), "{}", ze::description());
    let maker = gpu.module(&ze::spirv_from("uint twice(uint x) { return 2 * x; }"), "");
    let mut both = [user, maker.expect("it is valid")];
    check!(zeModuleDynamicLink(2, both.as_mut_ptr(), ptr::null_mut()));
    assert_eq!(run(&gpu, user, "k"), [9; 4]);
    for module in both {
        check!(zeModuleDestroy(module));
    }
}

/// An ELF file with one section, of the type that Intel's compilers use for SPIR-V.
fn elf_with_spirv(spirv: &[u8]) -> Vec<u8> {
    const STRINGS: u32 = 3;
    const SPIRV: u32 = 0xff00_0009;
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    file.extend([2, 0xff, 0, 0, 1, 0, 0, 0]);
    [0_u64, 0, 64].iter().for_each(|offset| file.extend(offset.to_le_bytes()));
    file.extend([0; 4]);
    [64_u16, 56, 0, 64, 3, 1].iter().for_each(|field| file.extend(field.to_le_bytes()));
    file.resize(128, 0);
    let mut at = 64 * 4_u64;
    for (kind, size) in [(STRINGS, 1), (SPIRV, spirv.len() as u64)] {
        file.extend([0; 4]);
        file.extend(kind.to_le_bytes());
        [0, 0, at, size, 0, 1, 0].iter().for_each(|field| file.extend(u64::to_le_bytes(*field)));
        at += size;
    }
    file.push(0);
    file.extend(spirv);
    file
}

/// A program that was compiled ahead of time for Intel's GPUs brings an archive: a binary for each of them, and
/// SPIR-V for all others.
#[test]
fn the_spirv_of_an_archive_for_several_gpus_is_built() {
    let gpu = Gpu::new();
    let spirv = ze::spirv_from(SOURCE);
    let archive = |general: &[u8]| {
        let mut bytes = b"!<arch>\n".to_vec();
        for (name, file) in [("64.dg2/", &b"\x7fELF, but of no use"[..]), ("generic_ir/", general)]
        {
            bytes.extend(
                format!("{name:<16}{0:<12}{0:<6}{0:<6}{0:<8}{1:<10}`\n", 0, file.len()).bytes(),
            );
            bytes.extend(file);
            bytes.resize(bytes.len().next_multiple_of(2), b'\n');
        }
        bytes
    };
    for bytes in [archive(&elf_with_spirv(&spirv)), elf_with_spirv(&spirv)] {
        let (answer, module, log) = load(&gpu, &bytes);
        assert_eq!(answer, ze_result_t::ZE_RESULT_SUCCESS, "{log}");
        assert_eq!(run(&gpu, module, "fill"), [41, 42, 43, 45]);
        check!(zeModuleDestroy(module));
    }
    let (answer, _, log) = load(&gpu, &archive(&elf_with_spirv(&spirv[..40])));
    assert_eq!(answer, ze_result_t::ZE_RESULT_ERROR_MODULE_BUILD_FAILURE, "{log}");
    let (answer, _, log) = load(&gpu, &archive(b"something else"));
    assert_eq!(answer, ze_result_t::ZE_RESULT_ERROR_INVALID_NATIVE_BINARY);
    assert!(log.contains("no native binary of this driver"), "{log}");
}
