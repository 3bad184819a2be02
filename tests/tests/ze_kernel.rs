// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels through the stock loader: arguments, group sizes, properties.

use std::ffi::{CStr, c_void};
use std::ptr;

use tally_tests::ze::{self, Gpu};
use tally_tests::{call, check, refused};
use tally_ze::*;

const KERNELS: &str = "
    kernel void mixed(global int *out, char c, float4 v, local int *scratch, ulong n)
    {
        scratch[get_local_id(0)] = c;
        barrier(CLK_LOCAL_MEM_FENCE);
        out[get_global_id(0)] = scratch[0] + (int)v.x + (int)n;
    }
    __attribute__((reqd_work_group_size(8, 2, 1)))
    kernel void fixed_size(global int *out) { out[get_global_id(0)] = 1; }
    kernel void none(void) {}";

struct Kernels {
    gpu: Gpu,
    module: ze_module_handle_t,
}

impl Kernels {
    fn new() -> Self {
        let gpu = Gpu::new();
        let module = gpu.module(&ze::spirv_from(KERNELS), "").expect("it is valid");
        Self { gpu, module }
    }

    fn kernel(&self, name: &str) -> ze_kernel_handle_t {
        self.gpu.kernel(self.module, name)
    }
}

impl Drop for Kernels {
    fn drop(&mut self) {
        // The test reports the failure.
        let _ = call!(zeModuleDestroy(self.module));
    }
}

fn set(kernel: ze_kernel_handle_t, index: u32, size: usize, value: *const c_void) -> ze_result_t {
    call!(zeKernelSetArgumentValue(kernel, index, size, value))
}

fn properties(kernel: ze_kernel_handle_t) -> ze_kernel_properties_t {
    let mut properties = ze_kernel_properties_t::default();
    check!(zeKernelGetProperties(kernel, &raw mut properties));
    properties
}

#[test]
fn a_kernel_knows_its_name_its_arguments_and_its_required_size() {
    let kernels = Kernels::new();
    let mixed = kernels.kernel("mixed");
    let mut size = 0;
    check!(zeKernelGetName(mixed, &raw mut size, ptr::null_mut()));
    assert_eq!(size, "mixed".len() + 1);
    let mut name = vec![0_u8; size];
    check!(zeKernelGetName(mixed, &raw mut size, name.as_mut_ptr().cast()));
    assert_eq!(CStr::from_bytes_with_nul(&name), Ok(c"mixed"));
    assert_eq!(properties(mixed).numKernelArgs, 5);
    assert_eq!(properties(mixed).requiredGroupSizeX, 0);
    let fixed = properties(kernels.kernel("fixed_size"));
    let required = [fixed.requiredGroupSizeX, fixed.requiredGroupSizeY, fixed.requiredGroupSizeZ];
    assert_eq!(required, [8, 2, 1]);
    assert_eq!(fixed.uuid.mid, properties(mixed).uuid.mid);
    assert_ne!(fixed.uuid.kid, properties(mixed).uuid.kid);
}

#[test]
fn an_unknown_kernel_is_refused_by_name() {
    let kernels = Kernels::new();
    let desc = ze_kernel_desc_t { pKernelName: c"tea".as_ptr(), ..Default::default() };
    let mut kernel = ze_kernel_handle_t::NULL;
    let text = refused!(
        ZE_RESULT_ERROR_INVALID_KERNEL_NAME,
        zeKernelCreate(kernels.module, &raw const desc, &raw mut kernel)
    );
    assert!(text.contains("tea") && kernel.is_null(), "{text}");
    let unnamed = ze_kernel_desc_t::default();
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_POINTER,
        zeKernelCreate(kernels.module, &raw const unnamed, &raw mut kernel)
    );
}

/// 64 KiB is what the device says (`maxSharedLocalMemory`). Intel's driver answers the same, for the module.
#[test]
fn a_kernel_with_more_local_variables_than_there_is_local_memory_is_refused() {
    let gpu = Gpu::new();
    let source = "
    #define KERNEL(name, n) kernel void name(global int *out)                                  \
    {                                                                                          \
        local int t[n];                                                                        \
        for (int i = get_local_id(0); i < n; i += get_local_size(0))                           \
            t[i] = i ^ (int)get_group_id(0);                                                   \
        barrier(CLK_LOCAL_MEM_FENCE);                                                          \
        out[get_global_id(0)] = t[n - 1 - get_local_id(0)];                                    \
    }
    KERNEL(most, 16384)
    KERNEL(more, 16385)";
    let module = gpu.module(&ze::spirv_from(source), "").expect("it is valid");
    let desc = ze_kernel_desc_t { pKernelName: c"more".as_ptr(), ..Default::default() };
    let mut kernel = ze_kernel_handle_t::NULL;
    let text = refused!(
        ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
        zeKernelCreate(module, &raw const desc, &raw mut kernel)
    );
    assert!(text.contains("65540") && kernel.is_null(), "{text}");
    // The module's other kernels work.
    let out = gpu.host::<i32>(64);
    gpu.run(module, "most", [2, 32], &[&out.address().to_ne_bytes()]);
    let expected: Vec<i32> = (0..64).map(|i| (16383 - i % 32) ^ (i / 32)).collect();
    assert_eq!(out.to_vec(), expected);
    check!(zeModuleDestroy(module));
}

/// Values that are longer than their argument, and numbers and vectors that are shorter, are accepted, as by
/// Intel's driver; a pointer that is cut off is not.
#[test]
fn argument_sizes_are_taken_as_far_as_they_make_sense() {
    use ze_result_t as code;
    let kernels = Kernels::new();
    let kernel = kernels.kernel("mixed");
    let bytes = [0_u8; 64];
    let value: *const c_void = bytes.as_ptr().cast();
    let wrong = code::ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE;
    for (index, size) in [(0, 8), (1, 1), (2, 16), (4, 8)] {
        for enough in [size, size + 1, 2 * size, usize::MAX] {
            assert_eq!(set(kernel, index, enough, value), code::ZE_RESULT_SUCCESS, "{index}");
        }
        assert_eq!(set(kernel, index, 0, value), wrong, "{index}");
    }
    for short in [1, 4, 7] {
        assert_eq!(set(kernel, 0, short, value), wrong, "a pointer of {short} bytes");
        assert_eq!(set(kernel, 2, short, value), code::ZE_RESULT_SUCCESS, "a vector of {short}");
        assert_eq!(set(kernel, 4, short, value), code::ZE_RESULT_SUCCESS, "a long of {short}");
    }
    let beyond = set(kernel, 5, 8, value);
    assert_eq!(beyond, code::ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX);
    assert!(ze::description().contains("5 arguments"), "{}", ze::description());
}

/// "If null then argument value is considered null."
#[test]
fn null_is_the_value_of_a_pointer_or_of_bytes() {
    use ze_result_t as code;
    let kernels = Kernels::new();
    let kernel = kernels.kernel("mixed");
    for (index, size) in [(0, 8), (1, 1), (2, 16), (4, 8)] {
        assert_eq!(set(kernel, index, size, ptr::null()), code::ZE_RESULT_SUCCESS, "{index}");
    }
    assert_eq!(set(kernel, 2, 8, ptr::null()), code::ZE_RESULT_SUCCESS, "a part of a vector");
    // The memory of a null pointer is not read, so its size is ignored.
    assert_eq!(set(kernel, 0, 4, ptr::null()), code::ZE_RESULT_SUCCESS);
}

#[test]
fn local_memory_is_given_by_its_size_alone() {
    use ze_result_t as code;
    let kernels = Kernels::new();
    let kernel = kernels.kernel("mixed");
    let number = 0_u64;
    assert_eq!(set(kernel, 3, 256, ptr::null()), code::ZE_RESULT_SUCCESS);
    assert_eq!(set(kernel, 3, 64 << 10, ptr::null()), code::ZE_RESULT_SUCCESS);
    // Its value is not read.
    assert_eq!(set(kernel, 3, 256, (&raw const number).cast()), code::ZE_RESULT_SUCCESS);
    // Its limit counts at the launch (`ze_launch.rs`).
    for size in [(64 << 10) + 1, usize::MAX] {
        assert_eq!(set(kernel, 3, size, ptr::null()), code::ZE_RESULT_SUCCESS, "{size}");
    }
    let refused = set(kernel, 3, 0, ptr::null());
    assert_eq!(refused, code::ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE);
}

#[test]
fn group_sizes_keep_to_the_device_and_to_the_kernel() {
    let kernels = Kernels::new();
    let kernel = kernels.kernel("mixed");
    for [x, y, z] in [[1, 1, 1], [1024, 1, 1], [1, 1024, 1], [8, 8, 16]] {
        check!(zeKernelSetGroupSize(kernel, x, y, z));
    }
    for [x, y, z] in [[0, 1, 1], [1, 1, 0], [1025, 1, 1], [32, 33, 1], [u32::MAX; 3]] {
        refused!(
            ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION,
            zeKernelSetGroupSize(kernel, x, y, z)
        );
    }
    let fixed = kernels.kernel("fixed_size");
    check!(zeKernelSetGroupSize(fixed, 8, 2, 1));
    let text = refused!(
        ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION,
        zeKernelSetGroupSize(fixed, 16, 1, 1)
    );
    assert!(text.contains("[8, 2, 1]"), "{text}");
}

#[test]
fn a_suggested_size_divides_the_global_size_and_can_be_set() {
    let kernels = Kernels::new();
    let kernel = kernels.kernel("mixed");
    for [x, y, z] in [[1024, 1, 1], [1000, 30, 7], [997, 3, 1], [1, 1, 1], [u32::MAX, 1, 1]] {
        let (mut a, mut b, mut c) = (0, 0, 0);
        let (px, py, pz) = (&raw mut a, &raw mut b, &raw mut c);
        check!(zeKernelSuggestGroupSize(kernel, x, y, z, px, py, pz));
        assert_eq!((x % a, y % b, z % c), (0, 0, 0), "{a} {b} {c} for {x} {y} {z}");
        check!(zeKernelSetGroupSize(kernel, a, b, c));
    }
    let (mut a, mut b, mut c) = (0, 0, 0);
    let (px, py, pz) = (&raw mut a, &raw mut b, &raw mut c);
    refused!(
        ZE_RESULT_ERROR_INVALID_GLOBAL_WIDTH_DIMENSION,
        zeKernelSuggestGroupSize(kernel, 1, 0, 1, px, py, pz)
    );
    let fixed = kernels.kernel("fixed_size");
    check!(zeKernelSuggestGroupSize(fixed, 64, 64, 1, px, py, pz));
    assert_eq!([a, b, c], [8, 2, 1]);
}

#[test]
fn hints_are_remembered_or_checked() {
    let kernels = Kernels::new();
    let kernel = kernels.kernel("none");
    let all = ze_kernel_indirect_access_flags_t::all();
    check!(zeKernelSetIndirectAccess(kernel, all));
    let mut flags = ze_kernel_indirect_access_flags_t::empty();
    check!(zeKernelGetIndirectAccess(kernel, &raw mut flags));
    assert_eq!(flags, all);
    let unknown = ze_kernel_indirect_access_flags_t::from_bits_retain(1 << 9);
    refused!(ZE_RESULT_ERROR_INVALID_ENUMERATION, zeKernelSetIndirectAccess(kernel, unknown));
    check!(zeKernelSetCacheConfig(kernel, ze_cache_config_flags_t::all()));
    let mut groups = 0;
    check!(zeKernelSuggestMaxCooperativeGroupCount(kernel, &raw mut groups));
    assert!(groups > 1, "{groups}");
    check!(zeKernelSetGlobalOffsetExp(kernel, 1, 2, 3));
}

#[test]
fn chained_properties_tell_the_largest_group() {
    let kernels = Kernels::new();
    let kernel = kernels.kernel("none");
    let mut max = ze_kernel_max_group_size_properties_ext_t {
        stype: ze_structure_type_t::ZE_STRUCTURE_TYPE_KERNEL_MAX_GROUP_SIZE_EXT_PROPERTIES,
        ..Default::default()
    };
    let mut preferred = ze_kernel_preferred_group_size_properties_t {
        pNext: (&raw mut max).cast(),
        ..Default::default()
    };
    let mut properties =
        ze_kernel_properties_t { pNext: (&raw mut preferred).cast(), ..Default::default() };
    check!(zeKernelGetProperties(kernel, &raw mut properties));
    assert_eq!(max.maxGroupSize, 1024);
    assert!(preferred.preferredMultiple >= 1);
}

#[test]
fn attributes_come_in_two_steps() {
    let kernels = Kernels::new();
    let kernel = kernels.kernel("fixed_size");
    let mut size = 0;
    check!(zeKernelGetSourceAttributes(kernel, &raw mut size, ptr::null_mut()));
    let mut text = vec![0_u8; size as usize];
    let mut place = text.as_mut_ptr().cast();
    check!(zeKernelGetSourceAttributes(kernel, &raw mut size, &raw mut place));
    assert_eq!(text.last(), Some(&0));
}

#[test]
fn a_kernel_outlives_its_module_and_is_destroyed_once() {
    let gpu = Gpu::new();
    let module = gpu.module(&ze::spirv_from(KERNELS), "").expect("it is valid");
    let kernel = gpu.kernel(module, "none");
    check!(zeModuleDestroy(module));
    assert_eq!(properties(kernel).numKernelArgs, 0);
    check!(zeKernelDestroy(kernel));
    refused!(ZE_RESULT_ERROR_INVALID_NULL_HANDLE, zeKernelDestroy(kernel));
}

/// "If a specified scheduling hint is unsupported it will be silently ignored.": every hint is
/// accepted, the properties report the actual one, and a bit without meaning is refused.
#[test]
fn scheduling_hints_are_taken_or_ignored() {
    use ze_scheduling_hint_exp_flags_t as hint;
    let kernels = Kernels::new();
    let mut hints = ze_scheduling_hint_exp_properties_t {
        schedulingHintFlags: hint::all(),
        ..Default::default()
    };
    let mut properties =
        ze_device_module_properties_t { pNext: (&raw mut hints).cast(), ..Default::default() };
    check!(zeDeviceGetModuleProperties(kernels.gpu.device, &raw mut properties));
    assert_eq!(hints.schedulingHintFlags, hint::ZE_SCHEDULING_HINT_EXP_FLAG_OLDEST_FIRST);
    let kernel = kernels.kernel("none");
    for flags in hint::all().iter().chain([hint::empty(), hint::all()]) {
        let mut desc = ze_scheduling_hint_exp_desc_t { flags, ..Default::default() };
        check!(zeKernelSchedulingHintExp(kernel, &raw mut desc));
    }
    let flags = hint::from_bits_retain(1 << 9);
    let mut desc = ze_scheduling_hint_exp_desc_t { flags, ..Default::default() };
    refused!(ZE_RESULT_ERROR_INVALID_ENUMERATION, zeKernelSchedulingHintExp(kernel, &raw mut desc));
    check!(zeKernelDestroy(kernel));
}
