// SPDX-License-Identifier: MIT OR Apache-2.0
//! Function pointers through the stock loader: taken in a kernel, or by the host with
//! zeModuleGetFunctionPointer and passed to a kernel.

use std::ffi::c_void;
use std::ptr;

use tally_tests::ze::{Gpu, spirv_from_with};
use tally_tests::{check, refused};
use tally_ze::*;

const SOURCE: &str = "
    #pragma OPENCL EXTENSION __cl_clang_function_pointers : enable
    typedef uint (*unary)(uint);
    __attribute__((noinline)) uint twice(uint x) { return 2 * x; }
    __attribute__((noinline)) uint plus(uint x) {
        barrier(CLK_LOCAL_MEM_FENCE);
        return x + 1;
    }
    kernel void given(global uint *p, ulong f) {
        size_t i = get_global_id(0);
        p[i] = ((unary)f)((uint)i);
    }
    kernel void table(global uint *p, uint shift) {
        size_t i = get_global_id(0);
        unary f = (i + shift) & 1 ? plus : twice;
        p[i] = f((uint)i);
    }
    global uint counter;";

/// OpenCL C with an extension of clang's.
fn spirv() -> Vec<u8> {
    spirv_of(SOURCE)
}

fn spirv_of(source: &str) -> Vec<u8> {
    let extensions = [
        ["-Xclang", "-cl-ext=+__cl_clang_function_pointers"],
        ["-mllvm", "--spirv-ext=+SPV_INTEL_function_pointers"],
    ];
    spirv_from_with(source, &[&["-O1"], extensions.as_flattened()].concat())
}

/// Runs a kernel with a buffer and a value; returns its output for 32 work-items in groups of 16.
fn run(gpu: &Gpu, module: ze_module_handle_t, name: &str, value: &[u8]) -> Vec<u32> {
    let out = gpu.host::<u32>(32);
    gpu.run(module, name, [2, 16], &[&out.address().to_ne_bytes(), value]);
    out.to_vec()
}

fn pointer(module: ze_module_handle_t, name: &std::ffi::CStr) -> u64 {
    let mut pointer = ptr::null_mut::<c_void>();
    check!(zeModuleGetFunctionPointer(module, name.as_ptr(), &raw mut pointer));
    assert!(!pointer.is_null());
    pointer as u64
}

/// "Retrieve a function pointer from a module by name": a kernel of the module calls it.
#[test]
fn the_host_gives_pointers_to_kernels() {
    let gpu = Gpu::new();
    let module = gpu.module(&spirv(), "").expect("it is valid");
    let (twice, plus) = (pointer(module, c"twice"), pointer(module, c"plus"));
    assert_ne!(twice, plus);
    assert_eq!(twice, pointer(module, c"twice"));
    assert_eq!(
        run(&gpu, module, "given", &twice.to_ne_bytes()),
        (0..32).map(|i| 2 * i).collect::<Vec<_>>()
    );
    assert_eq!(run(&gpu, module, "given", &plus.to_ne_bytes()), (1..33).collect::<Vec<_>>());
    assert_eq!(run(&gpu, module, "given", &[0; 8]), [0; 32], "a null pointer calls nothing");
    check!(zeModuleDestroy(module));
}

/// Work-items of one vector may call different functions.
#[test]
fn kernels_choose_among_functions() {
    let gpu = Gpu::new();
    let module = gpu.module(&spirv(), "").expect("it is valid");
    for shift in [0_u32, 1] {
        let each = |i: u32| if (i + shift) & 1 == 1 { i + 1 } else { 2 * i };
        let wanted: Vec<u32> = (0..32).map(each).collect();
        assert_eq!(run(&gpu, module, "table", &shift.to_ne_bytes()), wanted);
    }
    check!(zeModuleDestroy(module));
}

/// After linking, a kernel of one module calls functions of another through pointers, and the other
/// module calls functions of the kernel's.
#[test]
fn pointers_mean_the_same_in_linked_modules() {
    let head = "
        #pragma OPENCL EXTENSION __cl_clang_function_pointers : enable
        typedef uint (*unary)(uint);";
    let caller = "
        uint apply(ulong f, uint x);
        __attribute__((noinline)) uint thrice(uint x) { return 3 * x; }
        kernel void given(global uint *p, ulong f) {
            size_t i = get_global_id(0);
            p[i] = ((unary)f)((uint)i) + 1000 * apply((ulong)thrice, (uint)i);
        }";
    let library = "
        uint square(uint x) { return x * x; }
        uint apply(ulong f, uint x) { return ((unary)f)(x); }";
    let gpu = Gpu::new();
    let [first, second] = [caller, library]
        .map(|source| gpu.module(&spirv_of(&format!("{head}{source}")), "").expect("it is valid"));
    let mut modules = [first, second];
    check!(zeModuleDynamicLink(2, modules.as_mut_ptr(), ptr::null_mut()));
    let square = pointer(second, c"square");
    let wanted: Vec<u32> = (0..32).map(|i| i * i + 3000 * i).collect();
    assert_eq!(run(&gpu, first, "given", &square.to_ne_bytes()), wanted);
    modules.into_iter().for_each(|module| check!(zeModuleDestroy(module)));
}

#[test]
fn names_that_are_no_exported_functions_are_refused() {
    let gpu = Gpu::new();
    let module = gpu.module(&spirv(), "").expect("it is valid");
    let mut pointer = ptr::null_mut::<c_void>();
    for name in [c"thrice", c"counter", c""] {
        let text = refused!(
            ZE_RESULT_ERROR_INVALID_FUNCTION_NAME,
            zeModuleGetFunctionPointer(module, name.as_ptr(), &raw mut pointer)
        );
        assert!(text.contains("pFunctionName"), "{text}");
    }
    check!(zeModuleDestroy(module));
}

/// "The function name should only refer to callable functions within the module." Intel's driver gives the
/// address of a kernel's code, and Unified Runtime expects one. Here a call through it reaches nothing.
#[test]
fn a_kernel_has_an_address_that_reaches_nothing() {
    let gpu = Gpu::new();
    let module = gpu.module(&spirv(), "").expect("it is valid");
    let [given, other] = [c"given", c"table"].map(|name| pointer(module, name));
    assert!(given != 0 && given != other, "{given}, {other}");
    assert_eq!(run(&gpu, module, "given", &given.to_ne_bytes()), vec![0; 32]);
    check!(zeModuleDestroy(module));
}
