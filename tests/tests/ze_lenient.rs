// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wrong programs that every other driver accepts: they work here too, and `TALLY_LOG=warn` names each
//! kind of mistake once.

use std::ffi::c_void;
use std::ptr;

use tally_tests::lists::List;
use tally_tests::ze::{self, Gpu};
use tally_tests::{call, check, refused};
use tally_ze::*;

const UNSET: ze_structure_type_t = ze_structure_type_t(0);

/// Programs that write `= {}` leave the type of a structure zero. If a call takes one structure, that
/// one is assumed, for input and for output.
#[test]
fn a_structure_without_a_type_is_the_one_that_is_meant() {
    let gpu = Gpu::new();
    let (context, device) = (gpu.context, gpu.device);
    let mut list = ze_command_list_handle_t::NULL;
    let desc = ze_command_list_desc_t { stype: UNSET, ..Default::default() };
    check!(zeCommandListCreate(context, device, &raw const desc, &raw mut list));
    check!(zeCommandListDestroy(list));
    let mut queue = ze_command_queue_handle_t::NULL;
    let desc = ze_command_queue_desc_t { stype: UNSET, ..Default::default() };
    check!(zeCommandQueueCreate(context, device, &raw const desc, &raw mut queue));
    check!(zeCommandQueueDestroy(queue));
    let mut at = ptr::null_mut();
    let desc = ze_host_mem_alloc_desc_t { stype: UNSET, ..Default::default() };
    check!(zeMemAllocHost(context, &raw const desc, 64, 0, &raw mut at));
    check!(zeMemFree(context, at));
    let mut properties = ze_driver_properties_t { stype: UNSET, ..Default::default() };
    check!(zeDriverGetProperties(ze::driver(), &raw mut properties));
    assert_ne!(properties.driverVersion, 0);
    let mut module = ze_device_module_properties_t { stype: UNSET, ..Default::default() };
    check!(zeDeviceGetModuleProperties(device, &raw mut module));
    assert_ne!(module.spirvVersionSupported, 0);
    // The timer's unit is that of the plain structure.
    let mut plain = ze_device_properties_t::default();
    check!(zeDeviceGetProperties(device, &raw mut plain));
    let mut unset = ze_device_properties_t { stype: UNSET, ..Default::default() };
    check!(zeDeviceGetProperties(device, &raw mut unset));
    assert_eq!(unset.timerResolution, plain.timerResolution);
    assert_eq!(unset.stype, UNSET, "it stays as it was");
}

/// Extensions of such a structure are processed, but not what drivers and devices are asked with, as with Intel's
/// driver: programs hand over uninitialised structures there.
#[test]
fn the_chain_of_a_structure_without_a_type_counts() {
    let device = ze::device();
    for (stype, is_filled) in [(ze_device_properties_t::STYPE, true), (UNSET, false)] {
        let mut units = ze_eu_count_ext_t::default();
        let next = (&raw mut units).cast();
        let mut properties = ze_device_properties_t { stype, pNext: next, ..Default::default() };
        check!(zeDeviceGetProperties(device, &raw mut properties));
        assert_eq!(units.numTotalEUs != 0, is_filled, "{stype:?}");
    }
    let gpu = Gpu::new();
    let (mut at, mut out) = (ptr::null_mut(), ptr::null_mut());
    let relaxed = ze_relaxed_allocation_limits_exp_desc_t {
        flags: ze_relaxed_allocation_limits_exp_flags_t::from_bits_retain(1 << 9),
        ..Default::default()
    };
    let desc = ze_device_mem_alloc_desc_t {
        stype: UNSET,
        pNext: (&raw const relaxed).cast(),
        ..Default::default()
    };
    refused!(
        ZE_RESULT_ERROR_INVALID_ENUMERATION,
        zeMemAllocDevice(gpu.context, &raw const desc, 64, 0, gpu.device, &raw mut at)
    );
    // Another structure's type is still refused.
    let wrong = ze_host_mem_alloc_desc_t {
        stype: ze_structure_type_t::ZE_STRUCTURE_TYPE_CONTEXT_DESC,
        ..Default::default()
    };
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeMemAllocHost(gpu.context, &raw const wrong, 64, 0, &raw mut out)
    );
}

/// AdaptiveCpp asks what a pointer and a driver is with structures whose `stype` it has not written, and
/// chipStar what memory and caches there are with those of other structures. What lies there does not
/// matter, and the `pNext` of such a structure is no pointer.
#[test]
fn properties_are_answered_whatever_the_structure_says_that_it_is() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(1);
    let next = ptr::without_provenance_mut(8);
    let others = [ze_structure_type_t::ZE_STRUCTURE_TYPE_CONTEXT_DESC, ze_structure_type_t(0x7fff)];
    for stype in others {
        let mut facts =
            ze_memory_allocation_properties_t { stype, pNext: next, ..Default::default() };
        let (at, out) = (memory.ptr().cast(), &raw mut facts);
        check!(zeMemGetAllocProperties(gpu.context, at, out, ptr::null_mut()));
        assert_eq!(facts.r#type, ze_memory_type_t::ZE_MEMORY_TYPE_HOST);
        assert_eq!(facts.stype, stype, "it stays as it was");
        let mut count = 1;
        let mut all = ze_device_memory_properties_t { stype, pNext: next, ..Default::default() };
        check!(zeDeviceGetMemoryProperties(gpu.device, &raw mut count, &raw mut all));
        assert_ne!(all.totalSize, 0);
        let mut cache = ze_device_cache_properties_t { stype, pNext: next, ..Default::default() };
        check!(zeDeviceGetCacheProperties(gpu.device, &raw mut count, &raw mut cache));
        assert_eq!(cache.pNext, next);
    }
    // Of drivers and devices VkFFT asks with zero there.
    for stype in [others[0], others[1], UNSET] {
        let mut driver = ze_driver_properties_t { stype, pNext: next, ..Default::default() };
        check!(zeDriverGetProperties(ze::driver(), &raw mut driver));
        assert_ne!(driver.driverVersion, 0);
        let mut device = ze_device_properties_t { stype, pNext: next, ..Default::default() };
        check!(zeDeviceGetProperties(gpu.device, &raw mut device));
        assert_ne!(device.maxMemAllocSize, 0);
    }
}

/// Intel's benchmarks and the conformance suite request as much alignment as memory.
#[test]
fn an_alignment_that_is_no_power_of_two_is_rounded_up() {
    let gpu = Gpu::new();
    let desc = ze_device_mem_alloc_desc_t::default();
    for (alignment, power) in [(3, 4), (24, 32), (4097, 8192), (3 << 20, 4 << 20)] {
        let mut at = ptr::null_mut();
        let out = &raw mut at;
        check!(zeMemAllocDevice(gpu.context, &raw const desc, 64, alignment, gpu.device, out));
        assert_eq!(at as usize % power, 0, "{alignment}");
        check!(zeMemFree(gpu.context, at));
    }
}

/// "phGraph: [out] pointer to the captured graph handle": Intel's driver writes nothing there if it is null
/// and the application has the handle.
#[test]
fn the_end_of_a_capture_into_a_graph_needs_no_place_for_its_handle() {
    let gpu = Gpu::new();
    let list = gpu.immediate(0, true);
    let (mut graph, mut executable) = Default::default();
    check!(zeGraphCreateExt(gpu.context, ptr::null(), &raw mut graph));
    check!(zeCommandListBeginCaptureIntoGraphExt(list.0, graph, ptr::null()));
    list.barrier(None, &[]);
    check!(zeCommandListEndGraphCaptureExt(list.0, ptr::null(), ptr::null_mut()));
    check!(zeGraphInstantiateExt(graph, ptr::null(), &raw mut executable));
    check!(zeExecutableGraphDestroyExt(executable));
    check!(zeGraphDestroyExt(graph));
    // Otherwise the application would not have it.
    check!(zeCommandListBeginGraphCaptureExt(list.0, ptr::null()));
    list.barrier(None, &[]);
    let nowhere = ptr::null_mut();
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_POINTER,
        zeCommandListEndGraphCaptureExt(list.0, ptr::null(), nowhere)
    );
    check!(zeCommandListEndGraphCaptureExt(list.0, ptr::null(), &raw mut graph));
    check!(zeGraphDestroyExt(graph));
}

/// Intel's driver does not check the context, with any policy.
#[test]
fn memory_is_freed_through_any_context() {
    use ze_driver_memory_free_policy_ext_flags_t as policy;
    let (gpu, other) = (Gpu::new(), Gpu::new());
    let policies = [
        policy::empty(),
        policy::ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE,
        policy::ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE,
    ];
    for policy in policies.map(Some).into_iter().chain([None]) {
        let mut at = ptr::null_mut();
        let desc = ze_host_mem_alloc_desc_t::default();
        check!(zeMemAllocHost(gpu.context, &raw const desc, 64, 0, &raw mut at));
        if let Some(policy) = policy {
            let desc = ze_memory_free_ext_desc_t { freePolicy: policy, ..Default::default() };
            check!(zeMemFreeExt(other.context, &raw const desc, at));
        } else {
            check!(zeMemFree(other.context, at));
        }
        refused!(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemFree(gpu.context, at));
    }
}

/// Intel's driver writes such commands behind the list's end, where no execution reaches them.
#[test]
fn commands_for_a_closed_list_are_lost() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(3);
    let (event, dead) = (gpu.cb_event(), ze_event_handle_t::NULL);
    let queue = gpu.queue(0);
    let extension = ze_mutable_command_list_exp_desc_t::default();
    let desc =
        ze_command_list_desc_t { pNext: (&raw const extension).cast(), ..Default::default() };
    let mut mutable = ze_command_list_handle_t::NULL;
    check!(zeCommandListCreate(gpu.context, gpu.device, &raw const desc, &raw mut mutable));
    for list in [gpu.regular(0, true), gpu.regular(0, false), List(mutable)] {
        list.set((&memory, 0), 1, None, &[]);
        list.close();
        list.set((&memory, 1), 1, Some(&event), &[]);
        list.copy((&memory, 2), (&memory, 0), 1, None, &[&event]);
        list.barrier(None, &[]);
        // Its arguments are checked, as for an open one.
        refused!(
            ZE_RESULT_ERROR_INVALID_NULL_HANDLE,
            zeCommandListAppendBarrier(list.0, dead, 1, [dead].as_mut_ptr())
        );
        for _ in 0..2 {
            queue.execute(&[&list], None);
            queue.synchronize();
            assert_eq!(memory.to_vec(), [1, 0, 0]);
            list.close();
        }
        list.reset();
        list.set((&memory, 0), 0, None, &[]);
        list.close();
        queue.execute(&[&list], None);
        queue.synchronize();
        assert_eq!(memory.to_vec(), [0, 0, 0]);
    }
}

/// Libraries read a little beyond their arrays. They rely on pages of 64 KiB, and beyond an array that
/// fills its last one on memory that most GPUs provide where nothing is mapped. The values there have
/// no meaning.
#[test]
fn a_kernel_may_read_behind_an_allocation() {
    const SUM: &str = "kernel void sum(global const uint *from, global uint *to, uint count) {
        uint sum = 0;
        for (uint i = 0; i < count; i++) sum |= from[i];
        to[0] = sum;
    }";
    let gpu = Gpu::new();
    let module = gpu.module(&ze::spirv_from(SUM), "").expect("it builds");
    let kernel = gpu.kernel(module, "sum");
    check!(zeKernelSetGroupSize(kernel, 1, 1, 1));
    let (list, result) = (gpu.immediate(0, true), gpu.host::<u32>(1));
    for words in [1, 1024, 16_384, 24_576, 32_768, 262_144, 300_000] {
        for memory in [gpu.host::<u32>(words), gpu.device_memory(words)] {
            // The device reads it, because the adversarial device hides device memory from the host.
            let (one, bytes) = (1_u32, 4 * words);
            check!(zeCommandListAppendMemoryFill(
                list.0,
                memory.ptr().cast(),
                (&raw const one).cast(),
                4,
                bytes,
                ze_event_handle_t::NULL,
                0,
                ptr::null_mut()
            ));
            let from = memory.address();
            let end = (from + 4 * words as u64).next_multiple_of(65_536) + 65_536;
            let (to, count) = (result.address(), ((end - from) / 4) as u32);
            check!(zeKernelSetArgumentValue(kernel, 0, 8, (&raw const from).cast()));
            check!(zeKernelSetArgumentValue(kernel, 1, 8, (&raw const to).cast()));
            check!(zeKernelSetArgumentValue(kernel, 2, 4, (&raw const count).cast()));
            let groups = ze_group_count_t { groupCountX: 1, groupCountY: 1, groupCountZ: 1 };
            let (event, none) = (ze_event_handle_t::NULL, ptr::null_mut());
            check!(zeCommandListAppendLaunchKernel(
                list.0,
                kernel,
                &raw const groups,
                event,
                0,
                none
            ));
            list.synchronize();
            // Behind the words themselves the last page may have any contents.
            assert_eq!(result.get(0) & 1, 1, "{words} words");
            // The driver reports no allocation beyond its end.
            let beyond = memory.ptr().wrapping_add(words).cast();
            refused!(
                ZE_RESULT_ERROR_ADDRESS_NOT_FOUND,
                zeMemGetAddressRange(gpu.context, beyond, ptr::null_mut(), ptr::null_mut())
            );
        }
    }
    check!(zeKernelDestroy(kernel));
    check!(zeModuleDestroy(module));
}

/// Intel's driver launches kernels whose arguments are not set: a number is zero then.
#[test]
fn a_number_that_is_not_set_is_zero() {
    let gpu = Gpu::new();
    let source = "kernel void put(global int *out, int x, float2 y) { out[0] = x + (int)y.x; }";
    let module = gpu.module(&ze::spirv_from(source), "").expect("it is valid");
    let kernel = gpu.kernel(module, "put");
    let (out, list) = (gpu.host::<i32>(1), gpu.immediate(0, true));
    let one = ze_group_count_t { groupCountX: 1, groupCountY: 1, groupCountZ: 1 };
    check!(zeKernelSetArgumentValue(kernel, 0, 8, ptr::from_ref(&out.address()).cast()));
    for (set, expected) in [(None, 0), (Some(5), 5)] {
        out.set(0, 7);
        if let Some(number) = set {
            check!(zeKernelSetArgumentValue(kernel, 1, 4, ptr::from_ref::<i32>(&number).cast()));
        }
        let (none, no_waits) = (ze_event_handle_t::NULL, ptr::null_mut());
        let groups = &raw const one;
        check!(zeCommandListAppendLaunchKernel(list.0, kernel, groups, none, 0, no_waits));
        list.synchronize();
        assert_eq!(out.get(0), expected);
    }
    check!(zeKernelDestroy(kernel));
    check!(zeModuleDestroy(module));
}

/// Intel's torch_benchmark passes the address of an `int` where a launch takes that of a size.
#[test]
fn of_a_size_of_local_memory_the_lower_half_counts() {
    let gpu = Gpu::new();
    let source = "kernel void take(global int *out, local int *l) {
        l[get_local_id(0)] = (int)get_local_id(0) + 1;
        barrier(CLK_LOCAL_MEM_FENCE);
        out[get_local_id(0)] = l[3 - get_local_id(0)];
    }";
    let module = gpu.module(&ze::spirv_from(source), "").expect("it is valid");
    let kernel = gpu.kernel(module, "take");
    let (out, list) = (gpu.host::<i32>(4), gpu.immediate(0, true));
    let one = ze_group_count_t { groupCountX: 1, groupCountY: 1, groupCountZ: 1 };
    let four = ze_group_size_t { groupSizeX: 4, groupSizeY: 1, groupSizeZ: 1 };
    let (address, size) = (out.address(), 16_u64 | 0x7ffc << 32);
    let mut arguments: [*mut c_void; 2] =
        [ptr::from_ref(&address).cast_mut().cast(), ptr::from_ref(&size).cast_mut().cast()];
    check!(zeCommandListAppendLaunchKernelWithArguments(
        list.0,
        kernel,
        one,
        four,
        arguments.as_mut_ptr(),
        ptr::null(),
        ze_event_handle_t::NULL,
        0,
        ptr::null_mut()
    ));
    list.synchronize();
    assert_eq!(out.to_vec(), [4, 3, 2, 1]);
    check!(zeKernelDestroy(kernel));
    check!(zeModuleDestroy(module));
}

/// One line for each kind of mistake, however often it is made, and none for a correct program.
#[test]
fn the_log_names_each_mistake_once() {
    let text = ze::in_child("child_with_mistakes", &[("TALLY_LOG", "warn")]);
    for (what, times) in [
        ("desc->stype: 0, taken for ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC", 1),
        ("stype: 0", 1),
        ("argSize: 8, but argument 0 of take has 4 bytes; 4 are taken", 1),
        ("argSize:", 1),
        ("pArgValue: argument 1 of take is local memory", 1),
        ("belongs to another context; it is freed", 1),
        ("alignment: 24 is not a power of two; 32 is taken", 1),
        ("hCommandList: the list is closed; commands that are appended to it are lost", 1),
        ("advice: ze_memory_advice_t(0x1000) is no advice, and ignored", 1),
        ("pFunctionName: \"take\" is a kernel", 1),
        ("hKernel: argument 0 of number is not set; it is zero", 1),
        ("pArguments[0]: 0x700000004 bytes of local memory; 0x4 are taken", 1),
        ("WARN", 10),
    ] {
        assert_eq!(text.matches(what).count(), times, "{what} in: {text}");
    }
    let silent = ze::in_child("child_with_mistakes", &[]);
    assert!(!silent.contains("stype"), "{silent}");
}

#[test]
#[ignore = "runs in a child process"]
fn child_with_mistakes() {
    let (gpu, other) = (Gpu::new(), Gpu::new());
    let source = "kernel void take(int i, local int *l, global int *p) { p[0] = i; l[0] = i; }
        kernel void number(int i) {}
        kernel void size(local int *l) {}";
    let module = gpu.module(&ze::spirv_from(source), "").expect("it is valid");
    let kernel = gpu.kernel(module, "take");
    let (number, sized) = (gpu.kernel(module, "number"), gpu.kernel(module, "size"));
    let mut size = 7_u64 << 32 | 4;
    let mut sizes: [*mut c_void; 1] = [(&raw mut size).cast()];
    let one = ze_group_count_t { groupCountX: 1, groupCountY: 1, groupCountZ: 1 };
    let single = ze_group_size_t { groupSizeX: 1, groupSizeY: 1, groupSizeZ: 1 };
    let (none, no_waits) = (ze_event_handle_t::NULL, ptr::null_mut());
    let value = 7_u64;
    let value: *const c_void = ptr::from_ref(&value).cast();
    for _ in 0..3 {
        let desc = ze_command_list_desc_t { stype: UNSET, ..Default::default() };
        let mut list = ze_command_list_handle_t::NULL;
        check!(zeCommandListCreate(gpu.context, gpu.device, &raw const desc, &raw mut list));
        check!(zeCommandListDestroy(list));
        let mut at = ptr::null_mut();
        let desc = ze_host_mem_alloc_desc_t::default();
        check!(zeMemAllocHost(gpu.context, &raw const desc, 64, 24, &raw mut at));
        check!(zeMemFree(other.context, at));
        let list = gpu.regular(0, true);
        let unknown = ze_memory_advice_t(1 << 12);
        let memory = gpu.host::<u32>(1);
        check!(zeCommandListAppendMemAdvise(list.0, gpu.device, memory.ptr().cast(), 4, unknown));
        check!(zeCommandListAppendLaunchKernel(list.0, number, &raw const one, none, 0, no_waits));
        check!(zeCommandListAppendLaunchKernelWithArguments(
            list.0,
            sized,
            one,
            single,
            sizes.as_mut_ptr(),
            ptr::null(),
            none,
            0,
            no_waits
        ));
        list.close();
        list.barrier(None, &[]);
        let mut function = ptr::null_mut();
        check!(zeModuleGetFunctionPointer(module, c"take".as_ptr(), &raw mut function));
        check!(zeKernelSetArgumentValue(kernel, 0, 8, value));
        check!(zeKernelSetArgumentValue(kernel, 1, 64, value));
        assert_eq!(
            call!(zeKernelSetArgumentValue(kernel, 2, 8, ptr::null())),
            ze_result_t::ZE_RESULT_SUCCESS
        );
    }
    for kernel in [number, sized] {
        check!(zeKernelDestroy(kernel));
    }
    check!(zeKernelDestroy(kernel));
    check!(zeModuleDestroy(module));
}
