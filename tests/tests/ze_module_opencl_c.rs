// SPDX-License-Identifier: MIT OR Apache-2.0
//! Modules in OpenCL C, as Intel's driver takes them, through the stock loader.

use std::{env, ptr};

use tally_tests::check;
use tally_tests::ze::{self, Gpu};
use tally_ze::*;

/// `ZE_MODULE_FORMAT_OCLC` of Intel's driver.
const OPENCL_C: ze_module_format_t = ze_module_format_t(3);

const SOURCE: &str = "kernel void fill(global uint *out) {
    size_t i = get_global_id(0);
    out[i] = FACTOR * (uint)i + (uint)sqrt((double)(i * i * 4));
}
kernel void swap(global uint *out) {
    out[get_global_id(0)] = intel_sub_group_shuffle_xor((uint)get_global_id(0), 1);
}";

/// Builds it; the result and the log.
fn build(gpu: &Gpu, text: &[u8], flags: &str) -> (ze_result_t, ze_module_handle_t, String) {
    gpu.create_module(OPENCL_C, text, flags)
}

/// The first four numbers that a kernel of the module writes.
fn run(gpu: &Gpu, module: ze_module_handle_t, name: &str) -> Vec<u32> {
    let out = gpu.host::<u32>(4);
    gpu.run(module, name, [1, 4], &[&out.address().to_ne_bytes()]);
    out.to_vec()
}

/// Programs count the zero at the end, or do not; oneDNN does not, Intel's benchmarks do.
#[test]
fn a_module_is_built_from_its_text() {
    let gpu = Gpu::new();
    for ends in ["", "\0", "\n\0\0\0"] {
        let text = [SOURCE, ends].concat();
        let flags = "-DFACTOR=3 -cl-std=CL3.0 -cl-mad-enable -ze-opt-level=1";
        let (result, module, log) = build(&gpu, text.as_bytes(), flags);
        assert_eq!((result, &log[..]), (ze_result_t::ZE_RESULT_SUCCESS, ""));
        assert_eq!(run(&gpu, module, "fill"), [0, 5, 10, 15]);
        assert_eq!(run(&gpu, module, "swap"), [1, 0, 3, 2]);
        check!(zeModuleDestroy(module));
    }
    // A comment in another encoding is no error.
    let text = [&b"// \xe4\xf6\xfc\n"[..], SOURCE.as_bytes()].concat();
    let (_, module, log) = build(&gpu, &text, "-D FACTOR=10 -cl-intel-256-GRF-per-thread");
    assert_eq!(run(&gpu, module, "fill"), [0, 12, 24, 36], "{log}");
    check!(zeModuleDestroy(module));
}

/// Halves are enabled from the beginning, as with Intel's compilers: oneDNN's kernels have no pragma for it. A
/// message still names the text's own line.
#[test]
fn halves_need_no_pragma() {
    let gpu = Gpu::new();
    let text = "kernel void fill(global uint *out) {
        size_t i = get_global_id(0);
        out[i] = (uint)(half)(1.5h * (half)out[i] + 3.0h);
    }";
    for version in ["", "-cl-std=CL1.2", "-cl-std=CL2.0", "-cl-std=CL3.0"] {
        let (result, module, log) = build(&gpu, text.as_bytes(), version);
        assert_eq!(result, ze_result_t::ZE_RESULT_SUCCESS, "{log}");
        assert_eq!(run(&gpu, module, "fill"), [3; 4]);
        check!(zeModuleDestroy(module));
    }
    let (_, _, log) = build(&gpu, b"kernel void fill() { missing(); }", "");
    assert!(log.contains(":1:22:"), "{log}");
}

/// Its native binary is like that of a module in SPIR-V.
#[test]
fn its_native_binary_loads() {
    let gpu = Gpu::new();
    let (_, module, log) = build(&gpu, SOURCE.as_bytes(), "-DFACTOR=1");
    let mut size = 0;
    assert!(!module.is_null(), "{log}");
    check!(zeModuleGetNativeBinary(module, &raw mut size, ptr::null_mut()));
    let mut bytes = vec![0; size];
    check!(zeModuleGetNativeBinary(module, &raw mut size, bytes.as_mut_ptr()));
    check!(zeModuleDestroy(module));
    let native = ze_module_format_t::ZE_MODULE_FORMAT_NATIVE;
    let (result, module, log) = gpu.create_module(native, &bytes, "");
    assert_eq!(result, ze_result_t::ZE_RESULT_SUCCESS, "{log}");
    assert_eq!(run(&gpu, module, "fill"), [0, 3, 6, 9]);
    check!(zeModuleDestroy(module));
}

/// "A build log can optionally be returned to the caller": of warnings, too.
#[test]
fn the_log_has_the_compilers_words() {
    let gpu = Gpu::new();
    let warns = "#warning is this right?\nkernel void fill(global uint *out) { out[0] = 1; }";
    let (result, module, log) = build(&gpu, warns.as_bytes(), "");
    assert!(result == ze_result_t::ZE_RESULT_SUCCESS && log.contains("is this right?"), "{log}");
    check!(zeModuleDestroy(module));
    let wrong = b"kernel void fill(global uint *out) {\n  out[0] = missing; }";
    for (text, flags, words) in [
        (&wrong[..], "", ["missing", "2:12"]),
        (SOURCE.as_bytes(), "-DFACTOR=1 -fno-such-option", ["no-such-option", "unknown argument"]),
        (SOURCE.as_bytes(), "-DFACTOR=\"1", ["quote", "-DFACTOR"]),
        (&b"\x03\x02\x23\x07 no text"[..], "", ["error", "1:1"]),
    ] {
        let (result, module, log) = build(&gpu, text, flags);
        assert_eq!(result, ze_result_t::ZE_RESULT_ERROR_MODULE_BUILD_FAILURE, "{log}");
        assert!(module.is_null());
        assert!(words.iter().all(|word| log.contains(word)), "{log}");
    }
    // A text of nothing has no kernels.
    for nothing in [&b"\0"[..], b"\n"] {
        let (result, module, log) = build(&gpu, nothing, "");
        assert_eq!(result, ze_result_t::ZE_RESULT_SUCCESS, "{log}");
        let mut count = 77;
        check!(zeModuleGetKernelNames(module, &raw mut count, ptr::null_mut()));
        assert_eq!(count, 0);
        check!(zeModuleDestroy(module));
    }
    let (result, _, _) = build(&gpu, b"", "");
    assert_eq!(result, ze_result_t::ZE_RESULT_ERROR_INVALID_SIZE);
}

/// Several threads build at a time, each in a process of its own.
#[test]
fn threads_build_side_by_side() {
    let gpu = &Gpu::new();
    std::thread::scope(|threads| {
        for factor in 1..=4_u32 {
            threads.spawn(move || {
                let flags = format!("-DFACTOR={factor}");
                let (result, module, log) = build(gpu, SOURCE.as_bytes(), &flags);
                assert_eq!(result, ze_result_t::ZE_RESULT_SUCCESS, "{log}");
                let expected: Vec<u32> = (0..4).map(|i| (factor + 2) * i).collect();
                assert_eq!(run(gpu, module, "fill"), expected);
                check!(zeModuleDestroy(module));
            });
        }
    });
}

/// Without a compiler on the machine it says what to install, and modules in SPIR-V are built.
#[test]
fn without_a_compiler_the_log_says_what_to_install() {
    ze::in_child("child_without_a_compiler", &[]);
}

/// "DEPENDENCY_UNAVAILABLE: external required dependency is unavailable or missing": here the program that starts
/// the front end, which lies beside tally-compiler.
#[test]
fn without_the_program_for_the_front_end_the_log_names_it() {
    // The loader passes the driver's compiler to children, so it has to be opened.
    let _gpu = Gpu::new();
    let folder = env::temp_dir().join(format!("tally-front-end-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder can be made");
    let compiler = folder.join("tally-compiler");
    let real = env::var("TALLY_COMPILER").expect("the tests name the compiler");
    std::os::unix::fs::symlink(real, &compiler).expect("our own folder");
    ze::in_child(
        "child_without_the_program",
        &[("TALLY_COMPILER", compiler.to_str().expect("a name in UTF-8"))],
    );
    // If the folder stays, that is no failure.
    let _ = std::fs::remove_dir_all(&folder);
}

#[test]
#[ignore = "runs in a child process"]
fn child_without_the_program() {
    let gpu = Gpu::new();
    let (result, module, log) = build(&gpu, SOURCE.as_bytes(), "-DFACTOR=1");
    assert_eq!(result, ze_result_t::ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE);
    assert!(module.is_null() && log.contains("/tally-opencl-c: "), "{log}");
}

#[test]
#[ignore = "runs in a child process"]
fn child_without_a_compiler() {
    let gpu = Gpu::new();
    let spirv = ze::spirv_from("kernel void fill(global uint *out) { out[1] = 8; }");
    // SAFETY: no other thread of this child reads or changes the environment.
    unsafe { env::set_var("PATH", "/nonexistent") };
    let (result, module, log) = build(&gpu, SOURCE.as_bytes(), "-DFACTOR=1");
    assert_eq!(result, ze_result_t::ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE);
    assert!(module.is_null());
    assert!(log.contains("install intel-opencl-rt") && log.contains("clang"), "{log}");
    let module = gpu.module(&spirv, "").expect("it is valid");
    assert_eq!(run(&gpu, module, "fill"), [0, 8, 0, 0]);
}
