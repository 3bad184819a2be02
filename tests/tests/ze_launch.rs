// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests a kernel's view of its launch: arguments, local memory, offsets, variables, constants.

use std::ffi::c_void;
use std::ptr;

use tally_tests::ze::{self, Gpu, Usm};
use tally_tests::{call, check};
use tally_ze::*;

/// A context with an immediate list on the first compute engine.
struct Runner {
    gpu: Gpu,
    list: ze_command_list_handle_t,
}

impl Runner {
    fn new() -> Self {
        let gpu = Gpu::new();
        let desc = ze_command_queue_desc_t {
            flags: ze_command_queue_flags_t::ZE_COMMAND_QUEUE_FLAG_IN_ORDER,
            mode: ze_command_queue_mode_t::ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS,
            ..Default::default()
        };
        let mut list = ze_command_list_handle_t::NULL;
        let (context, device) = (gpu.context, gpu.device);
        check!(zeCommandListCreateImmediate(context, device, &raw const desc, &raw mut list));
        Self { gpu, list }
    }

    fn build(&self, source: &str) -> ze_module_handle_t {
        self.gpu.module(&ze::spirv_from(source), "").expect("it is valid")
    }

    fn append(&self, kernel: ze_kernel_handle_t, groups: [u32; 3]) -> ze_result_t {
        let [x, y, z] = groups;
        let groups = ze_group_count_t { groupCountX: x, groupCountY: y, groupCountZ: z };
        let none = ze_event_handle_t::NULL;
        let wait = ptr::null_mut();
        call!(zeCommandListAppendLaunchKernel(self.list, kernel, &raw const groups, none, 0, wait))
    }

    fn run(&self, kernel: ze_kernel_handle_t, groups: [u32; 3]) {
        assert_eq!(self.append(kernel, groups), ze_result_t::ZE_RESULT_SUCCESS);
        check!(zeCommandListHostSynchronize(self.list, u64::MAX));
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        // The test reports the failure.
        let _ = call!(zeCommandListDestroy(self.list));
    }
}

fn set<T>(kernel: ze_kernel_handle_t, index: u32, value: &T) {
    let value = ptr::from_ref(value).cast::<c_void>();
    check!(zeKernelSetArgumentValue(kernel, index, size_of::<T>(), value));
}

fn set_pointer<T: Copy>(kernel: ze_kernel_handle_t, index: u32, memory: &Usm<T>) {
    set(kernel, index, &memory.address());
}

#[test]
fn values_of_every_size_arrive_whole() {
    let runner = Runner::new();
    let module = runner.build(
        "struct pair { char a; double b; };
         kernel void take(global double *out, char c, short s, int i, long l, float f, double d,
                          float4 v, struct pair p)
         {
             out[0] = c; out[1] = s; out[2] = i; out[3] = l; out[4] = f; out[5] = d;
             out[6] = v.x + v.y * 10 + v.z * 100 + v.w * 1000; out[7] = p.a; out[8] = p.b;
         }",
    );
    let kernel = runner.gpu.kernel(module, "take");
    let out = runner.gpu.host::<f64>(9);
    #[repr(C)]
    struct Pair(i8, f64);
    #[repr(C, align(16))]
    struct Float4([f32; 4]);
    check!(zeKernelSetGroupSize(kernel, 1, 1, 1));
    set_pointer(kernel, 0, &out);
    set(kernel, 1, &-1_i8);
    set(kernel, 2, &-300_i16);
    set(kernel, 3, &-70_000_i32);
    set(kernel, 4, &(-1_i64 << 40));
    set(kernel, 5, &1.5_f32);
    set(kernel, 6, &2.25_f64);
    set(kernel, 7, &Float4([1.0, 2.0, 3.0, 4.0]));
    set(kernel, 8, &Pair(-7, 0.125));
    runner.run(kernel, [1, 1, 1]);
    let wide = -(2_f64.powi(40));
    let all = [-1.0, -300.0, -70_000.0, wide, 1.5, 2.25, 4321.0, -7.0, 0.125];
    assert_eq!(out.to_vec(), all);
}

/// "If null then argument value is considered null." SYCL's adapters give null for each value of eight
/// bytes that is zero.
#[test]
fn a_value_that_is_null_arrives_as_zeroes() {
    let runner = Runner::new();
    let module = runner.build(
        "struct pair { long a; double b; };
         kernel void take(global double *out, long l, double d, struct pair p, char c)
         {
             out[0] += l; out[1] += d; out[2] += p.a; out[3] += p.b; out[4] += c;
         }",
    );
    let kernel = runner.gpu.kernel(module, "take");
    let out = runner.gpu.host::<f64>(5);
    out.fill_with(|_| 0.0);
    #[repr(C)]
    struct Pair(i64, f64);
    check!(zeKernelSetGroupSize(kernel, 1, 1, 1));
    set_pointer(kernel, 0, &out);
    set(kernel, 1, &7_i64);
    set(kernel, 2, &0.5_f64);
    set(kernel, 3, &Pair(-3, 2.5));
    set(kernel, 4, &9_i8);
    runner.run(kernel, [1, 1, 1]);
    for (index, size) in [(1, 8), (2, 8), (3, 16), (4, 1)] {
        check!(zeKernelSetArgumentValue(kernel, index, size, ptr::null()));
    }
    runner.run(kernel, [1, 1, 1]);
    assert_eq!(out.to_vec(), [7.0, 0.5, -3.0, 2.5, 9.0], "the second launch adds nothing");
    // A value that was never set may be null.
    let fresh = runner.gpu.kernel(module, "take");
    check!(zeKernelSetGroupSize(fresh, 1, 1, 1));
    set_pointer(fresh, 0, &out);
    for (index, size) in [(1, 8), (2, 8), (3, 16), (4, 1)] {
        check!(zeKernelSetArgumentValue(fresh, index, size, ptr::null()));
    }
    runner.run(fresh, [1, 1, 1]);
    assert_eq!(out.to_vec(), [7.0, 0.5, -3.0, 2.5, 9.0]);
}

/// The first bytes of a value that is longer than its argument arrive (oneMKL passes eight bytes for an
/// int), and the lower bytes of a number that is shorter.
#[test]
fn values_of_other_sizes_arrive_as_far_as_they_fit() {
    let runner = Runner::new();
    let module = runner.build(
        "kernel void take(global long *out, int i, char c, long l, float4 v)
         {
             out[0] = i; out[1] = c; out[2] = l; out[3] = (long)(v.x + v.w);
         }",
    );
    let kernel = runner.gpu.kernel(module, "take");
    let out = runner.gpu.host::<i64>(4);
    check!(zeKernelSetGroupSize(kernel, 1, 1, 1));
    // A pointer with more bytes behind it.
    set(kernel, 0, &[out.address(), u64::MAX]);
    set(kernel, 1, &(0x7777_7777_u64 << 32 | 0xffff_fffe));
    set(kernel, 2, &[-5_i8, 17, 17, 17]);
    set(kernel, 3, &0x7000_0001_u32);
    set(kernel, 4, &[1.0_f32, 0.0, 0.0, 41.0, f32::NAN, f32::NAN]);
    runner.run(kernel, [1, 1, 1]);
    assert_eq!(out.to_vec(), [-2, -5, 0x7000_0001, 42]);
}

#[test]
fn an_append_keeps_the_arguments_that_it_saw() {
    let runner = Runner::new();
    let module = runner.build("kernel void put(global int *out, int at, int x) { out[at] = x; }");
    let kernel = runner.gpu.kernel(module, "put");
    let out = runner.gpu.host::<i32>(8);
    check!(zeKernelSetGroupSize(kernel, 1, 1, 1));
    set_pointer(kernel, 0, &out);
    for i in 0..8_i32 {
        set(kernel, 1, &i);
        set(kernel, 2, &(i * i));
        assert_eq!(runner.append(kernel, [1, 1, 1]), ze_result_t::ZE_RESULT_SUCCESS);
    }
    check!(zeKernelDestroy(kernel));
    check!(zeModuleDestroy(module));
    check!(zeCommandListHostSynchronize(runner.list, u64::MAX));
    assert_eq!(out.to_vec(), [0, 1, 4, 9, 16, 25, 36, 49], "the code outlives kernel and module");
}

#[test]
fn local_arguments_lie_apart_and_behind_the_kernels_own_memory() {
    let runner = Runner::new();
    let module = runner.build(
        "kernel void share(global int *out, local int *a, local long *b)
         {
             local int own[16];
             int i = get_local_id(0);
             own[i] = i; a[i] = 100 + i; b[i] = 1000 + i;
             barrier(CLK_LOCAL_MEM_FENCE);
             int j = 15 - i;
             out[get_global_id(0)] = own[j] + a[j] + (int)b[j];
         }",
    );
    let kernel = runner.gpu.kernel(module, "share");
    let out = runner.gpu.host::<i32>(64);
    check!(zeKernelSetGroupSize(kernel, 16, 1, 1));
    set_pointer(kernel, 0, &out);
    check!(zeKernelSetArgumentValue(kernel, 2, 16 * 8, ptr::null()));
    check!(zeKernelSetArgumentValue(kernel, 1, 16 * 4, ptr::null()));
    runner.run(kernel, [4, 1, 1]);
    let expected: Vec<i32> = (0..64).map(|i| 1100 + 3 * (15 - i % 16)).collect();
    assert_eq!(out.to_vec(), expected);
}

/// Only a launch needs all its local memory at once, so sizes that are too long beside those of the launch before
/// are no mistake if these change, too.
#[test]
fn local_memory_beyond_the_device_is_refused_at_the_launch() {
    let runner = Runner::new();
    let module = runner.build(
        "kernel void share(global int *out, local int *a, local int *b)
         {
             int i = get_local_id(0);
             a[i] = i; b[i] = 10 * i;
             barrier(CLK_LOCAL_MEM_FENCE);
             out[get_global_id(0)] = a[15 - i] + b[15 - i];
         }",
    );
    let kernel = runner.gpu.kernel(module, "share");
    let out = runner.gpu.host::<i32>(16);
    let local = |index, bytes| check!(zeKernelSetArgumentValue(kernel, index, bytes, ptr::null()));
    check!(zeKernelSetGroupSize(kernel, 16, 1, 1));
    set_pointer(kernel, 0, &out);
    // Each size fits, and the two together do not.
    local(1, 48 << 10);
    local(2, 48 << 10);
    let too_much = ze_result_t::ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
    assert_eq!(runner.append(kernel, [1, 1, 1]), too_much);
    let text = ze::description();
    assert!(text.contains("share has 98304 bytes of local memory in all"), "{text}");
    local(1, 16 << 10);
    runner.run(kernel, [1, 1, 1]);
    let expected: Vec<i32> = (0..16).map(|i| 11 * (15 - i)).collect();
    assert_eq!(out.to_vec(), expected);
    for bytes in [(16 << 10) + 1, 64 << 10, u32::MAX as usize, usize::MAX] {
        local(1, bytes);
        assert_eq!(runner.append(kernel, [1, 1, 1]), too_much, "{bytes}");
    }
}

#[test]
fn ids_count_from_the_global_offset_in_three_dimensions() {
    let runner = Runner::new();
    let module = runner.build(
        "kernel void ids(global uint *out)
         {
             size_t n = get_global_size(0), m = get_global_size(1);
             size_t x = get_global_id(0) - get_global_offset(0);
             size_t y = get_global_id(1) - get_global_offset(1);
             size_t z = get_global_id(2) - get_global_offset(2);
             out[(z * m + y) * n + x] =
                 get_global_id(0) + 1000 * get_global_id(1) + 1000000 * get_global_id(2);
         }",
    );
    let kernel = runner.gpu.kernel(module, "ids");
    let out = runner.gpu.host::<u32>(4 * 6 * 2);
    check!(zeKernelSetGroupSize(kernel, 2, 3, 1));
    check!(zeKernelSetGlobalOffsetExp(kernel, 5, 7, 9));
    set_pointer(kernel, 0, &out);
    runner.run(kernel, [2, 2, 2]);
    for (i, id) in out.to_vec().into_iter().enumerate() {
        let (x, y, z) = (i as u32 % 4, i as u32 / 4 % 6, i as u32 / 24);
        assert_eq!(id, (x + 5) + 1000 * (y + 7) + 1_000_000 * (z + 9));
    }
}

#[test]
fn a_launch_without_all_pointers_is_refused_by_name() {
    let runner = Runner::new();
    let module = runner.build("kernel void put(int x, global int *out) { out[0] = x; }");
    let kernel = runner.gpu.kernel(module, "put");
    let out = runner.gpu.host::<i32>(1);
    check!(zeKernelSetGroupSize(kernel, 1, 1, 1));
    set(kernel, 0, &5);
    let answer = runner.append(kernel, [1, 1, 1]);
    assert_eq!(answer, ze_result_t::ZE_RESULT_ERROR_INVALID_ARGUMENT);
    let text = ze::description();
    assert!(text.contains("argument 1 of put is not set"), "{text}");
    set_pointer(kernel, 1, &out);
    runner.run(kernel, [1, 1, 1]);
    assert_eq!(out.get(0), 5);
}

/// "If a group size is not set prior to appending a kernel into a command list then a default will
/// be chosen." (Kernel Group Size)
#[test]
fn a_kernel_without_a_group_size_runs_with_a_default() {
    let runner = Runner::new();
    let module = runner.build(
        "kernel void any(global uint *out) {
             out[get_global_id(0)] = get_local_size(0) * get_local_size(1) * get_local_size(2);
         }
         kernel __attribute__((reqd_work_group_size(4, 1, 1))) void four(global uint *out) {
             out[get_global_id(0)] = get_local_size(0);
         }",
    );
    for (name, items) in [("any", 1), ("four", 4)] {
        let kernel = runner.gpu.kernel(module, name);
        let out = runner.gpu.host::<u32>(16);
        set_pointer(kernel, 0, &out);
        runner.run(kernel, [16 / items, 1, 1]);
        assert_eq!(out.to_vec(), [items; 16], "{name}");
    }
}

#[test]
fn a_modules_variables_keep_their_values_and_their_address_is_known() {
    let runner = Runner::new();
    let module = runner.build(
        "global int counter = 40;
         global int *global where = &counter;
         constant int table[3] = {7, 8, 9};
         kernel void bump(global int *out) { *where += 1; out[0] = counter; out[1] = table[2]; }",
    );
    let kernel = runner.gpu.kernel(module, "bump");
    let out = runner.gpu.host::<i32>(2);
    check!(zeKernelSetGroupSize(kernel, 1, 1, 1));
    set_pointer(kernel, 0, &out);
    runner.run(kernel, [1, 1, 1]);
    runner.run(kernel, [1, 1, 1]);
    assert_eq!(out.to_vec(), [42, 9]);
    let (mut size, mut address) = (0, ptr::null_mut());
    let name = c"counter".as_ptr();
    check!(zeModuleGetGlobalPointer(module, name, &raw mut size, &raw mut address));
    assert_eq!(size, 4);
    // SAFETY: the variable is four bytes in memory that the host sees, and nothing runs.
    unsafe { address.cast::<i32>().write_volatile(-1) };
    runner.run(kernel, [1, 1, 1]);
    assert_eq!(out.get(0), 0);
}

const SPECIALIZED: &str = "
    OpCapability Kernel
    OpCapability Addresses
    OpCapability Int64
    OpCapability Int16
    OpMemoryModel Physical64 OpenCL
    OpEntryPoint Kernel %main \"put\"
    OpDecorate %wide SpecId 3
    OpDecorate %narrow SpecId 4
    OpDecorate %flag SpecId 5
    %void = OpTypeVoid
    %u16 = OpTypeInt 16 0
    %u64 = OpTypeInt 64 0
    %bool = OpTypeBool
    %ptr = OpTypePointer CrossWorkgroup %u64
    %fn = OpTypeFunction %void %ptr
    %wide = OpSpecConstant %u64 1
    %narrow = OpSpecConstant %u16 2
    %flag = OpSpecConstantFalse %bool
    %million = OpConstant %u64 1000000
    %none = OpConstant %u64 0
    %main = OpFunction %void None %fn
    %out = OpFunctionParameter %ptr
    %entry = OpLabel
    %n = OpUConvert %u64 %narrow
    %sum = OpIAdd %u64 %wide %n
    %extra = OpSelect %u64 %flag %million %none
    %all = OpIAdd %u64 %sum %extra
    OpStore %out %all Aligned 8
    OpReturn
    OpFunctionEnd";

#[test]
fn specialization_constants_are_read_at_their_own_width() {
    let runner = Runner::new();
    let spirv = ze::assemble(SPECIALIZED);
    let out = runner.gpu.host::<u64>(1);
    // The narrow ones end where the next one begins: a longer read would show.
    let (wide, narrow, flag) = (1_u64 << 33, [500_u16, 0xffff], [1_u8, 0xff]);
    let ids = [3_u32, 4, 5, 99];
    let mut values: [*const c_void; 4] = [
        (&raw const wide).cast(),
        narrow.as_ptr().cast(),
        flag.as_ptr().cast(),
        ptr::without_provenance(0x10),
    ];
    let run = |constants: *const ze_module_constants_t| {
        let desc = ze_module_desc_t {
            format: ze_module_format_t::ZE_MODULE_FORMAT_IL_SPIRV,
            inputSize: spirv.len(),
            pInputModule: spirv.as_ptr(),
            pConstants: constants,
            ..Default::default()
        };
        let (mut module, mut log) = (ze_module_handle_t::NULL, ze_module_build_log_handle_t::NULL);
        let (context, device) = (runner.gpu.context, runner.gpu.device);
        let answer =
            call!(zeModuleCreate(context, device, &raw const desc, &raw mut module, &raw mut log));
        assert_eq!(answer, ze_result_t::ZE_RESULT_SUCCESS, "{}", ze::build_log(log));
        let kernel = runner.gpu.kernel(module, "put");
        check!(zeKernelSetGroupSize(kernel, 1, 1, 1));
        set_pointer(kernel, 0, &out);
        runner.run(kernel, [1, 1, 1]);
        out.get(0)
    };
    assert_eq!(run(ptr::null()), 3, "the module's own values");
    let constants = ze_module_constants_t {
        numConstants: 4,
        pConstantIds: ids.as_ptr(),
        pConstantValues: values.as_mut_ptr(),
    };
    assert_eq!(run(&raw const constants), (1 << 33) + 500 + 1_000_000);
}

#[test]
fn a_wild_pointer_loses_the_device_until_everything_is_destroyed() {
    ze::in_child("child_with_a_wild_pointer", &[]);
}

#[test]
#[ignore = "runs in a child process"]
fn child_with_a_wild_pointer() {
    use ze_result_t as code;
    let runner = Runner::new();
    let kernel = {
        let module = runner.build("kernel void poke(global int *out) { *out = 1; }");
        runner.gpu.kernel(module, "poke")
    };
    check!(zeKernelSetGroupSize(kernel, 1, 1, 1));
    set(kernel, 0, &0x1000_u64);
    assert_eq!(runner.append(kernel, [1, 1, 1]), code::ZE_RESULT_SUCCESS);
    let answer = call!(zeCommandListHostSynchronize(runner.list, u64::MAX));
    assert_eq!(answer, code::ZE_RESULT_ERROR_DEVICE_LOST);
    let status = call!(zeContextGetStatus(runner.gpu.context));
    assert_eq!(status, code::ZE_RESULT_ERROR_DEVICE_LOST);
    let status = call!(zeDeviceGetStatus(runner.gpu.device));
    assert_eq!(status, code::ZE_RESULT_ERROR_DEVICE_LOST, "the context still exists");
    let desc = ze_context_desc_t::default();
    let mut context = ze_context_handle_t::NULL;
    let answer = call!(zeContextCreate(ze::driver(), &raw const desc, &raw mut context));
    assert_eq!(answer, code::ZE_RESULT_ERROR_DEVICE_LOST, "{}", ze::description());
    // Kernel and module are not destroyed: only contexts count.
    let device = runner.gpu.device;
    drop(runner);
    let answer = call!(zeContextCreate(ze::driver(), &raw const desc, &raw mut context));
    assert_eq!(answer, code::ZE_RESULT_ERROR_DEVICE_LOST, "nobody has asked for the status");
    check!(zeDeviceGetStatus(device));
    let again = Runner::new();
    check!(zeContextGetStatus(again.gpu.context));
}

/// Groups with barriers may have any size: if a row does not consist of whole vectors, the last one has
/// fewer items (compiler/docs/widening.md).
#[test]
fn groups_of_any_size_wait_at_barriers() {
    let runner = Runner::new();
    let module = runner.build(
        "kernel void turn(global int *out, global const int *in, local int *t)
         {
             size_t l = get_local_linear_id(), at = get_global_linear_id();
             size_t n = get_local_size(0) * get_local_size(1) * get_local_size(2);
             t[l] = in[at];
             barrier(CLK_LOCAL_MEM_FENCE);
             int sum = work_group_reduce_add(t[n - 1 - l]);
             out[at] = 10 * sum + (int)(t[n - 1 - l] & 7);
         }",
    );
    let kernel = runner.gpu.kernel(module, "turn");
    for [x, y, z] in [[10, 10, 1], [100, 1, 1], [17, 3, 2], [1, 64, 1], [4, 4, 1], [33, 1, 1]] {
        let size = [x, y, z].map(|n: u32| n as usize);
        let (groups, rows) = ([2, 2, 1], [2 * size[0], 2 * size[1], size[2]]);
        let count = rows.iter().product();
        let (out, input) = (runner.gpu.host::<i32>(count), runner.gpu.host::<i32>(count));
        let values: Vec<i32> = (0..count as i32).map(|i| i * 37 % 1009).collect();
        input.fill_with(|i| values[i]);
        set_pointer(kernel, 0, &out);
        set_pointer(kernel, 1, &input);
        let bytes = 4 * size.iter().product::<usize>();
        check!(zeKernelSetArgumentValue(kernel, 2, bytes, ptr::null()));
        check!(zeKernelSetGroupSize(kernel, x, y, z));
        runner.run(kernel, groups);
        // The items of a group, in its order, by their places in the launch.
        let members = |first: [usize; 2]| {
            let place = move |x: usize, y: usize, z: usize| {
                (z * rows[1] + first[1] + y) * rows[0] + first[0] + x
            };
            let line = move |y, z| (0..size[0]).map(move |x| place(x, y, z));
            let plane = move |z| (0..size[1]).flat_map(move |y| line(y, z));
            (0..size[2]).flat_map(plane).collect::<Vec<usize>>()
        };
        let mut expected = vec![0; count];
        for group in 0..4 {
            let items = members([group % 2 * size[0], group / 2 * size[1]]);
            let sum: i32 = items.iter().map(|&at| values[at]).sum();
            for (&to, &from) in items.iter().zip(items.iter().rev()) {
                expected[to] = 10 * sum + (values[from] & 7);
            }
        }
        assert!(out.to_vec() == expected, "groups of {x} x {y} x {z}");
    }
}
