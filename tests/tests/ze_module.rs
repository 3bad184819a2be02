// SPDX-License-Identifier: MIT OR Apache-2.0
//! Modules through the stock loader: builds and their logs, specialization, global variables.

use std::ffi::{CStr, c_char};
use std::ptr;

use tally_tests::ze::{self, Gpu};
use tally_tests::{call, check, refused};
use tally_ze::*;

const TWO_KERNELS: &str = "
    constant int table[4] = {1, 2, 3, 5};
    kernel void first(global int *out) { out[get_global_id(0)] = table[get_global_id(0) & 3]; }
    kernel void second(global float *x, float a) { x[get_global_id(0)] *= a; }";

fn desc(spirv: &[u8]) -> ze_module_desc_t {
    ze_module_desc_t {
        format: ze_module_format_t::ZE_MODULE_FORMAT_IL_SPIRV,
        inputSize: spirv.len(),
        pInputModule: spirv.as_ptr(),
        ..Default::default()
    }
}

#[test]
fn a_module_lists_its_kernels_and_imports_nothing() {
    let gpu = Gpu::new();
    let module = gpu.module(&ze::spirv_from(TWO_KERNELS), "").expect("it is valid");
    let mut count = 0;
    check!(zeModuleGetKernelNames(module, &raw mut count, ptr::null_mut()));
    let mut names = vec![ptr::null::<c_char>(); count as usize];
    check!(zeModuleGetKernelNames(module, &raw mut count, names.as_mut_ptr()));
    // SAFETY: the driver returns strings that live as long as the module.
    let mut names: Vec<_> = names.iter().map(|it| unsafe { CStr::from_ptr(*it) }).collect();
    names.sort();
    assert_eq!(names, [c"first", c"second"]);
    let mut properties = ze_module_properties_t::default();
    check!(zeModuleGetProperties(module, &raw mut properties));
    assert!(properties.flags.is_empty());
    check!(zeModuleDestroy(module));
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_HANDLE,
        zeModuleGetProperties(module, &raw mut properties)
    );
}

#[test]
fn a_failed_build_leaves_no_module_and_a_log_that_tells_why() {
    let gpu = Gpu::new();
    let spirv = ze::spirv_from(TWO_KERNELS);
    let cut = &spirv[..spirv.len() / 2];
    let mut module = ze_module_handle_t::NULL;
    let mut log = ze_module_build_log_handle_t::NULL;
    let desc = desc(cut);
    let (context, device) = (gpu.context, gpu.device);
    refused!(
        ZE_RESULT_ERROR_MODULE_BUILD_FAILURE,
        zeModuleCreate(context, device, &raw const desc, &raw mut module, &raw mut log)
    );
    assert!(module.is_null());
    let text = ze::build_log(log);
    assert!(!text.is_empty(), "the log tells why");
    refused!(
        ZE_RESULT_ERROR_MODULE_BUILD_FAILURE,
        zeModuleCreate(context, device, &raw const desc, &raw mut module, ptr::null_mut())
    );
    let good = gpu.module(&spirv, "").expect("the compiler still works");
    check!(zeModuleDestroy(good));
}

/// "[out][optional] pointer to handle of module's build log": programs read and destroy it whatever the
/// answer is.
#[test]
fn a_refused_description_has_a_log_too() {
    let gpu = Gpu::new();
    let spirv = ze::spirv_from(TWO_KERNELS);
    let (context, device) = (gpu.context, gpu.device);
    let mut module = ze_module_handle_t::NULL;
    let good = desc(&spirv);
    let unknown = ze_module_desc_t { format: ze_module_format_t(9), ..good };
    let empty = ze_module_desc_t { inputSize: 0, ..good };
    let null = ptr::null::<ze_module_desc_t>();
    for desc in [&raw const unknown, &raw const empty, null] {
        let mut log = ze_module_build_log_handle_t::NULL;
        let answer = call!(zeModuleCreate(context, device, desc, &raw mut module, &raw mut log));
        assert_ne!(answer, ze_result_t::ZE_RESULT_SUCCESS);
        let description = ze::description();
        let text = ze::build_log(log);
        assert!(!text.is_empty() && description.contains(&text), "{text:?}, {description:?}");
        assert!(module.is_null());
    }
    let mut log = ze_module_build_log_handle_t::NULL;
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_POINTER,
        zeModuleCreate(context, device, &raw const good, ptr::null_mut(), &raw mut log)
    );
    assert!(ze::build_log(log).contains("phModule"));
    let mut log = ze_module_build_log_handle_t::NULL;
    refused!(ZE_RESULT_ERROR_INVALID_SIZE, zeModuleDynamicLink(0, ptr::null_mut(), &raw mut log));
    assert!(ze::build_log(log).contains("numModules"));
}

#[test]
fn garbage_of_any_kind_is_a_failed_build() {
    let gpu = Gpu::new();
    let spirv = ze::spirv_from(TWO_KERNELS);
    for garbage in [&[0_u8; 1][..], &[0xff; 64], b"not SPIR-V at all", &spirv[..20], &spirv[1..]] {
        let log = gpu.module(garbage, "").expect_err("it is garbage");
        assert!(!log.is_empty());
    }
}

#[test]
fn a_log_is_read_in_two_steps_and_destroyed_once() {
    let gpu = Gpu::new();
    let mut module = ze_module_handle_t::NULL;
    let mut log = ze_module_build_log_handle_t::NULL;
    let spirv = ze::spirv_from(TWO_KERNELS);
    let desc = desc(&spirv);
    let (context, device) = (gpu.context, gpu.device);
    check!(zeModuleCreate(context, device, &raw const desc, &raw mut module, &raw mut log));
    let mut size = 0;
    check!(zeModuleBuildLogGetString(log, &raw mut size, ptr::null_mut()));
    assert!(size >= 1, "the NUL counts");
    check!(zeModuleBuildLogDestroy(log));
    refused!(ZE_RESULT_ERROR_INVALID_NULL_HANDLE, zeModuleBuildLogDestroy(log));
    check!(zeModuleDestroy(module));
}

#[test]
fn what_a_description_must_have_is_checked() {
    let gpu = Gpu::new();
    let spirv = ze::spirv_from(TWO_KERNELS);
    let mut module = ze_module_handle_t::NULL;
    let good = desc(&spirv);
    let mut create = |desc: *const ze_module_desc_t| {
        let (context, device) = (gpu.context, gpu.device);
        let answer = call!(zeModuleCreate(context, device, desc, &raw mut module, ptr::null_mut()));
        assert!(module.is_null());
        answer
    };
    let native = ze_module_desc_t { format: ze_module_format_t::ZE_MODULE_FORMAT_NATIVE, ..good };
    let unknown = ze_module_desc_t { format: ze_module_format_t(9), ..good };
    let no_input = ze_module_desc_t { pInputModule: ptr::null(), ..good };
    let empty = ze_module_desc_t { inputSize: 0, ..good };
    let stype =
        ze_module_desc_t { stype: ze_structure_type_t::ZE_STRUCTURE_TYPE_KERNEL_DESC, ..good };
    use ze_result_t as code;
    assert_eq!(create(&raw const native), code::ZE_RESULT_ERROR_INVALID_NATIVE_BINARY);
    assert_eq!(create(&raw const unknown), code::ZE_RESULT_ERROR_INVALID_ENUMERATION);
    assert_eq!(create(&raw const no_input), code::ZE_RESULT_ERROR_INVALID_NULL_POINTER);
    assert_eq!(create(&raw const empty), code::ZE_RESULT_ERROR_INVALID_SIZE);
    assert_eq!(create(&raw const stype), code::ZE_RESULT_ERROR_INVALID_ARGUMENT);
    assert_eq!(create(ptr::null()), code::ZE_RESULT_ERROR_INVALID_NULL_POINTER);
    let (context, device) = (gpu.context, gpu.device);
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_POINTER,
        zeModuleCreate(context, device, &raw const good, ptr::null_mut(), ptr::null_mut())
    );
}

#[test]
fn a_variable_that_the_module_does_not_export_is_refused_by_name() {
    let gpu = Gpu::new();
    let module = gpu.module(&ze::spirv_from(TWO_KERNELS), "").expect("it is valid");
    let text = refused!(
        ZE_RESULT_ERROR_INVALID_GLOBAL_NAME,
        zeModuleGetGlobalPointer(module, c"tea".as_ptr(), ptr::null_mut(), ptr::null_mut())
    );
    assert!(text.contains("tea"), "{text}");
    check!(zeModuleDestroy(module));
}

#[test]
fn modules_without_imports_link_and_their_log_is_empty() {
    let gpu = Gpu::new();
    let mut module = gpu.module(&ze::spirv_from(TWO_KERNELS), "").expect("it is valid");
    let mut log = ze_module_build_log_handle_t::NULL;
    check!(zeModuleDynamicLink(1, &raw mut module, &raw mut log));
    assert_eq!(ze::build_log(log), "");
    refused!(
        ZE_RESULT_ERROR_INVALID_SIZE,
        zeModuleDynamicLink(0, &raw mut module, ptr::null_mut())
    );
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_POINTER,
        zeModuleDynamicLink(1, ptr::null_mut(), ptr::null_mut())
    );
    check!(zeModuleDestroy(module));
}

#[test]
fn many_threads_build_at_once() {
    let gpu = Gpu::new();
    let spirv = ze::spirv_from(TWO_KERNELS);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let module = gpu.module(&spirv, "").expect("it is valid");
                let kernel = gpu.kernel(module, "second");
                check!(zeKernelDestroy(kernel));
                check!(zeModuleDestroy(module));
            });
        }
    });
}
