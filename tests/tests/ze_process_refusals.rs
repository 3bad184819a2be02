// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every request for memory, memory files and threads that a typical program's calls make fails once,
//! each in a process of its own. The call that needed it reports that memory is exhausted, or does
//! without it; and when it is repeated, it succeeds, like all later calls.

use std::ffi::{CStr, CString, c_void};
use std::ptr;

use tally_tests::images::{format, image_desc};
use tally_tests::peer::{Peer, say};
use tally_tests::refusals::Refusals;
use tally_tests::routine::Routine;
use tally_tests::ze;
use tally_tests::{call, check};
use tally_ze::*;

const REFUSE: &str = "TALLY_TEST_REFUSE";
const MODULES: &str = "TALLY_TEST_MODULES";

#[test]
#[ignore = "needs seccomp notifications"]
fn out_of_memory_is_an_error_code_and_nothing_else() {
    let spirv = Routine::spirv();
    refuse_each("child_is_refused_once", &[&spirv], 20, 5);
}

/// The same for features that fewer programs use: images, printf, cooperative launches, linked modules,
/// host functions, reserved memory, memory and events for other processes, copies of lists.
#[test]
#[ignore = "needs seccomp notifications"]
fn nor_is_it_anything_else_where_few_programs_come() {
    let modules = [RARE, IMPORT, EXPORT].map(ze::spirv_from);
    refuse_each("child_with_more_is_refused_once", &modules.each_ref().map(Vec::as_slice), 30, 8);
}

/// Refuses a child its first request, another one its second, until a child makes no more requests.
/// There are at least `requests` of them; at least `answers` calls report that memory is exhausted.
fn refuse_each(child: &str, modules: &[&[u8]], requests: u64, answers: u64) {
    let file = |i: usize| {
        let name = format!("tally-refusals-{child}-{}-{i}.spv", std::process::id());
        std::env::temp_dir().join(name)
    };
    for (i, spirv) in modules.iter().enumerate() {
        std::fs::write(file(i), spirv).expect("a temporary file can be written");
    }
    let files: Vec<_> =
        (0..modules.len()).map(|i| file(i).to_string_lossy().into_owned()).collect();
    let mut answered = 0;
    for refuse in 1_u64.. {
        let variables = [
            (REFUSE, refuse.to_string()),
            (MODULES, files.join(":")),
            // The test needs this number of threads on any machine.
            ("TALLY_WORKERS", "2".to_owned()),
        ];
        let variables = variables.each_ref().map(|(name, value)| (*name, value.as_str()));
        let mut peer = Peer::start_with(child, &variables);
        let said = peer.hear();
        peer.finish();
        let (seen, refused) = said.split_once(' ').expect("two numbers");
        let seen: u64 = seen.parse().expect("a number");
        answered += refused.parse::<u64>().expect("a number");
        if seen < refuse {
            eprintln!("{seen} requests; {answered} calls said that memory is out");
            assert!(refuse > requests, "a program asks for memory more often than {seen} times");
            assert!(answered > answers, "only {answered} calls said that memory is out");
            break;
        }
    }
    for file in files {
        // If the file stays, that is no failure.
        let _ = std::fs::remove_file(file);
    }
}

/// Repeats a call until it succeeds: at once, or after one result that memory is exhausted.
macro_rules! step {
    ($refused:ident, $name:ident($($arg:expr),* $(,)?)) => {
        match call!($name($($arg),*)) {
            ze_result_t::ZE_RESULT_SUCCESS => {}
            ze_result_t::ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY
            | ze_result_t::ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY => {
                $refused += 1;
                check!($name($($arg),*));
            }
            other => panic!("{}: {other:?}: {}", stringify!($name), ze::description()),
        }
    };
}

#[test]
#[ignore = "runs in a child process"]
fn child_is_refused_once() {
    child(program);
}

#[test]
#[ignore = "runs in a child process"]
fn child_with_more_is_refused_once() {
    child(rare_program);
}

/// Driver, device, modules.
type Given<'a> = (ze_driver_handle_t, ze_device_handle_t, &'a [Vec<u8>]);

fn child(program: fn(Given<'_>, &Refusals) -> u64) {
    let refuse = std::env::var(REFUSE).expect("the parent sets it").parse().expect("a number");
    let files = std::env::var(MODULES).expect("the parent sets it");
    let modules: Vec<_> =
        files.split(':').map(|file| std::fs::read(file).expect("the parent wrote it")).collect();
    let (driver, device) = (ze::driver(), ze::device());
    let system = Refusals::begin(refuse).expect("the system has seccomp filters that ask");
    let refused = program((driver, device, &modules), &system);
    say(&format!("{} {refused}", system.seen()));
}

/// The calls of a program; returns how many of them reported that memory is exhausted.
fn program((driver, device, modules): Given<'_>, system: &Refusals) -> u64 {
    let mut refused = 0;
    let desc = ze_context_desc_t::default();
    let mut context = ze_context_handle_t::NULL;
    step!(refused, zeContextCreate(driver, &raw const desc, &raw mut context));
    let (host, on_device) =
        (ze_host_mem_alloc_desc_t::default(), ze_device_mem_alloc_desc_t::default());
    let mut memory = [ptr::null_mut::<c_void>(); 3];
    let [a, b, c] = &mut memory;
    step!(refused, zeMemAllocHost(context, &raw const host, 1 << 20, 0, a));
    step!(refused, zeMemAllocDevice(context, &raw const on_device, 8 << 20, 0, device, b));
    step!(
        refused,
        zeMemAllocShared(context, &raw const on_device, &raw const host, 4096, 0, device, c)
    );
    let queue_desc = ze_command_queue_desc_t::default();
    let mut queue = ze_command_queue_handle_t::NULL;
    step!(refused, zeCommandQueueCreate(context, device, &raw const queue_desc, &raw mut queue));
    let list_desc = ze_command_list_desc_t::default();
    let (mut regular, mut immediate) =
        (ze_command_list_handle_t::NULL, ze_command_list_handle_t::NULL);
    step!(refused, zeCommandListCreate(context, device, &raw const list_desc, &raw mut regular));
    step!(
        refused,
        zeCommandListCreateImmediate(context, device, &raw const queue_desc, &raw mut immediate)
    );
    let pool_desc = ze_event_pool_desc_t {
        flags: ze_event_pool_flags_t::ZE_EVENT_POOL_FLAG_HOST_VISIBLE,
        count: 4,
        ..Default::default()
    };
    let (mut pool, mut event) = (ze_event_pool_handle_t::NULL, ze_event_handle_t::NULL);
    step!(
        refused,
        zeEventPoolCreate(context, &raw const pool_desc, 0, ptr::null_mut(), &raw mut pool)
    );
    let event_desc = ze_event_desc_t::default();
    step!(refused, zeEventCreate(pool, &raw const event_desc, &raw mut event));
    let fence_desc = ze_fence_desc_t::default();
    let mut fence = ze_fence_handle_t::NULL;
    step!(refused, zeFenceCreate(queue, &raw const fence_desc, &raw mut fence));
    let module = system.paused(|| module(context, device, &modules[0]));
    let kernel_desc = ze_kernel_desc_t { pKernelName: CStr::as_ptr(c"step"), ..Default::default() };
    let mut kernel = ze_kernel_handle_t::NULL;
    step!(refused, zeKernelCreate(module, &raw const kernel_desc, &raw mut kernel));
    let (address, by) = (memory[0], 1_u32);
    step!(refused, zeKernelSetArgumentValue(kernel, 0, 8, (&raw const address).cast()));
    step!(refused, zeKernelSetArgumentValue(kernel, 1, 4, (&raw const by).cast()));
    step!(refused, zeKernelSetGroupSize(kernel, 64, 1, 1));
    let (zero, none) = (0_u32, ptr::null_mut());
    let count = ze_group_count_t { groupCountX: 4, groupCountY: 1, groupCountZ: 1 };
    let pattern = (&raw const zero).cast();
    step!(
        refused,
        zeCommandListAppendMemoryFill(regular, memory[0], pattern, 4, 1024, event, 0, none)
    );
    let no_event = ze_event_handle_t::NULL;
    step!(refused, zeCommandListAppendBarrier(regular, no_event, 0, none));
    step!(
        refused,
        zeCommandListAppendLaunchKernel(regular, kernel, &raw const count, no_event, 0, none)
    );
    step!(refused, zeCommandListClose(regular));
    step!(refused, zeCommandQueueExecuteCommandLists(queue, 1, &raw mut regular, fence));
    step!(refused, zeFenceHostSynchronize(fence, u64::MAX));
    step!(
        refused,
        zeCommandListAppendMemoryCopy(
            immediate,
            memory[1],
            memory[0],
            1024,
            no_event,
            1,
            &raw mut event
        )
    );
    step!(refused, zeCommandListHostSynchronize(immediate, u64::MAX));
    // SAFETY: the allocation has these bytes, and the device is done with them.
    let result = unsafe { memory[1].cast::<u32>().add(255).read_volatile() };
    assert_eq!(result, 256, "255 by its place, and 1");
    check!(zeKernelDestroy(kernel));
    check!(zeModuleDestroy(module));
    check!(zeFenceDestroy(fence));
    check!(zeEventDestroy(event));
    check!(zeEventPoolDestroy(pool));
    check!(zeCommandListDestroy(immediate));
    check!(zeCommandListDestroy(regular));
    check!(zeCommandQueueDestroy(queue));
    for memory in memory {
        check!(zeMemFree(context, memory));
    }
    check!(zeContextDestroy(context));
    refused
}

const RARE: &str = r#"
    kernel void texel(read_only image2d_t image, sampler_t sampler, global uint *out)
    {
        out[0] = read_imageui(image, sampler, (int2)(1, 1)).x;
    }
    kernel void tell(global uint *out, uint aloud)
    {
        if (aloud)
            printf("%u\n", out[0]);
        out[1] = 7;
    }"#;
const IMPORT: &str = "
    uint three(void);
    kernel void calls(global uint *out) { out[0] = three(); }
    kernel void meet(global atomic_uint *arrived)
    {
        atomic_fetch_add_explicit(arrived, 1, memory_order_acq_rel, memory_scope_device);
        while (atomic_load_explicit(arrived, memory_order_acquire, memory_scope_device) <
               get_num_groups(0))
            ;
    }";
const EXPORT: &str = "
    global uint number = 3;
    uint three(void) { return number; }";

unsafe extern "C" fn host_function(data: *mut c_void) {
    // SAFETY: the program waits until this word of its memory is written.
    unsafe { data.cast::<u32>().write_volatile(9) };
}

/// Requests a handle for other processes. Memory for which no file could be created is usable, but
/// cannot be shared.
fn share(refused: &mut u64, mut get: impl FnMut() -> ze_result_t) {
    match get() {
        ze_result_t::ZE_RESULT_SUCCESS | ze_result_t::ZE_RESULT_ERROR_UNSUPPORTED_FEATURE => return,
        ze_result_t::ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY => *refused += 1,
        other => panic!("{other:?}: {}", ze::description()),
    }
    assert_eq!(get(), ze_result_t::ZE_RESULT_SUCCESS, "{}", ze::description());
}

/// The calls of less common programs; returns how many of them reported that memory is exhausted.
fn rare_program((driver, device, modules): Given<'_>, system: &Refusals) -> u64 {
    let (mut refused, none) = (0, ptr::null_mut());
    let no_event = ze_event_handle_t::NULL;
    let desc = ze_context_desc_t::default();
    let mut context = ze_context_handle_t::NULL;
    step!(refused, zeContextCreate(driver, &raw const desc, &raw mut context));
    let host = ze_host_mem_alloc_desc_t::default();
    let mut memory = ptr::null_mut();
    step!(refused, zeMemAllocHost(context, &raw const host, 4096, 0, &raw mut memory));
    // SAFETY: the program writes and reads words of the allocation when the device is done with them.
    let word = |i: usize| unsafe { memory.cast::<u32>().add(i).read_volatile() };
    let queue_desc = ze_command_queue_desc_t {
        flags: ze_command_queue_flags_t::ZE_COMMAND_QUEUE_FLAG_IN_ORDER,
        ..Default::default()
    };
    let mut list = ze_command_list_handle_t::NULL;
    step!(
        refused,
        zeCommandListCreateImmediate(context, device, &raw const queue_desc, &raw mut list)
    );
    // The first module starts the compiler.
    let rare = system.paused(|| module(context, device, &modules[0]));
    let mut kernels = [ze_kernel_handle_t::NULL; 4];
    for (kernel, name) in kernels.iter_mut().zip([c"texel", c"tell"]) {
        let desc = ze_kernel_desc_t { pKernelName: name.as_ptr(), ..Default::default() };
        step!(refused, zeKernelCreate(rare, &raw const desc, &raw mut *kernel));
        step!(refused, zeKernelSetGroupSize(*kernel, 1, 1, 1));
    }
    let groups = |count| ze_group_count_t { groupCountX: count, groupCountY: 1, groupCountZ: 1 };

    let image_desc = image_desc(
        ze_image_type_t::ZE_IMAGE_TYPE_2D,
        format(
            ze_image_format_layout_t::ZE_IMAGE_FORMAT_LAYOUT_32,
            ze_image_format_type_t::ZE_IMAGE_FORMAT_TYPE_UINT,
        ),
        [300, 200, 1],
    );
    let sampler_desc = ze_sampler_desc_t::default();
    let (mut image, mut view) = (ze_image_handle_t::NULL, ze_image_handle_t::NULL);
    let mut sampler = ze_sampler_handle_t::NULL;
    step!(refused, zeImageCreate(context, device, &raw const image_desc, &raw mut image));
    step!(
        refused,
        zeImageViewCreateExt(context, device, &raw const image_desc, image, &raw mut view)
    );
    step!(refused, zeSamplerCreate(context, device, &raw const sampler_desc, &raw mut sampler));
    let texels = vec![5_u32; 300 * 200];
    let from = texels.as_ptr().cast();
    step!(
        refused,
        zeCommandListAppendImageCopyFromMemory(list, image, from, ptr::null(), no_event, 0, none)
    );
    step!(refused, zeKernelSetArgumentValue(kernels[0], 0, 8, (&raw const view).cast()));
    step!(refused, zeKernelSetArgumentValue(kernels[0], 1, 8, (&raw const sampler).cast()));
    step!(refused, zeKernelSetArgumentValue(kernels[0], 2, 8, (&raw const memory).cast()));
    let silent = 0_u32;
    step!(refused, zeKernelSetArgumentValue(kernels[1], 0, 8, (&raw const memory).cast()));
    step!(refused, zeKernelSetArgumentValue(kernels[1], 1, 4, (&raw const silent).cast()));
    for kernel in &kernels[..2] {
        let one = groups(1);
        step!(
            refused,
            zeCommandListAppendLaunchKernel(list, *kernel, &raw const one, no_event, 0, none)
        );
    }
    step!(refused, zeCommandListHostSynchronize(list, u64::MAX));
    assert_eq!([word(0), word(1)], [5, 7]);

    let mut linked = [ze_module_handle_t::NULL; 2];
    for (linked, spirv) in linked.iter_mut().zip(&modules[1..]) {
        let desc = ze_module_desc_t {
            format: ze_module_format_t::ZE_MODULE_FORMAT_IL_SPIRV,
            inputSize: spirv.len(),
            pInputModule: spirv.as_ptr(),
            ..Default::default()
        };
        let out = &raw mut *linked;
        step!(refused, zeModuleCreate(context, device, &raw const desc, out, ptr::null_mut()));
    }
    step!(refused, zeModuleDynamicLink(2, linked.as_mut_ptr(), ptr::null_mut()));
    for (kernel, name) in kernels[2..].iter_mut().zip([c"meet", c"calls"]) {
        let desc = ze_kernel_desc_t { pKernelName: name.as_ptr(), ..Default::default() };
        step!(refused, zeKernelCreate(linked[0], &raw const desc, &raw mut *kernel));
        step!(refused, zeKernelSetGroupSize(*kernel, 1, 1, 1));
    }
    step!(refused, zeKernelSetArgumentValue(kernels[3], 0, 8, (&raw const memory).cast()));
    let one = groups(1);
    step!(
        refused,
        zeCommandListAppendLaunchKernel(list, kernels[3], &raw const one, no_event, 0, none)
    );
    let data = memory.wrapping_byte_add(4);
    step!(
        refused,
        zeCommandListAppendHostFunction(
            list,
            Some(host_function),
            data,
            ptr::null(),
            no_event,
            0,
            none
        )
    );
    step!(refused, zeCommandListHostSynchronize(list, u64::MAX));
    assert_eq!([word(0), word(1)], [3, 9]);

    let arrived = memory.wrapping_byte_add(64);
    step!(refused, zeKernelSetArgumentValue(kernels[2], 0, 8, (&raw const arrived).cast()));
    let eight = groups(8);
    // SAFETY: no command of the device uses it now.
    unsafe { arrived.cast::<u32>().write_volatile(0) };
    step!(
        refused,
        zeCommandListAppendLaunchCooperativeKernel(
            list,
            kernels[2],
            &raw const eight,
            no_event,
            0,
            none
        )
    );
    step!(refused, zeCommandListHostSynchronize(list, u64::MAX));
    assert_eq!(word(16), 8);

    let (size, mut reserved) = (2 << 20, ptr::null_mut());
    step!(refused, zeVirtualMemReserve(context, ptr::null(), size, &raw mut reserved));
    let mut physical_desc = ze_physical_mem_desc_t { size, ..Default::default() };
    let mut physical = ze_physical_mem_handle_t::default();
    step!(refused, zePhysicalMemCreate(context, device, &raw mut physical_desc, &raw mut physical));
    let access = ze_memory_access_attribute_t::ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE;
    step!(refused, zeVirtualMemMap(context, reserved, size, physical, 0, access));
    step!(refused, zeCommandListAppendMemoryCopy(list, reserved, memory, 8, no_event, 0, none));
    step!(refused, zeCommandListHostSynchronize(list, u64::MAX));
    step!(refused, zeVirtualMemUnmap(context, reserved, size));

    let flags = ze_event_counter_based_flags_t::ZE_EVENT_COUNTER_BASED_FLAG_IMMEDIATE
        | ze_event_counter_based_flags_t::ZE_EVENT_COUNTER_BASED_FLAG_IPC;
    let event_desc = ze_event_counter_based_desc_t { flags, ..Default::default() };
    let mut event = ze_event_handle_t::NULL;
    step!(
        refused,
        zeEventCounterBasedCreate(context, device, &raw const event_desc, &raw mut event)
    );
    step!(refused, zeCommandListAppendSignalEvent(list, event));
    let mut event_handle = ze_ipc_event_counter_based_handle_t::default();
    let mut memory_handle = ze_ipc_mem_handle_t::default();
    share(&mut refused, || call!(zeEventCounterBasedGetIpcHandle(event, &raw mut event_handle)));
    share(&mut refused, || call!(zeMemGetIpcHandle(context, memory, &raw mut memory_handle)));
    step!(refused, zeCommandListHostSynchronize(list, u64::MAX));

    let list_desc = ze_command_list_desc_t {
        flags: ze_command_list_flags_t::ZE_COMMAND_LIST_FLAG_EXP_CLONEABLE,
        ..Default::default()
    };
    let (mut regular, mut copy) = (ze_command_list_handle_t::NULL, ze_command_list_handle_t::NULL);
    step!(refused, zeCommandListCreate(context, device, &raw const list_desc, &raw mut regular));
    step!(
        refused,
        zeCommandListAppendLaunchKernel(regular, kernels[1], &raw const one, no_event, 0, none)
    );
    step!(refused, zeCommandListClose(regular));
    step!(refused, zeCommandListCreateCloneExp(regular, &raw mut copy));
    // SAFETY: no command of the device uses it now.
    unsafe { data.cast::<u32>().write_volatile(0) };
    step!(
        refused,
        zeCommandListImmediateAppendCommandListsExp(list, 1, &raw mut copy, no_event, 0, none)
    );
    step!(refused, zeCommandListHostSynchronize(list, u64::MAX));
    assert_eq!(word(1), 7);

    check!(zeCommandListDestroy(copy));
    check!(zeCommandListDestroy(regular));
    check!(zeEventDestroy(event));
    check!(zePhysicalMemDestroy(context, physical));
    check!(zeVirtualMemFree(context, reserved, size));
    check!(zeImageDestroy(view));
    check!(zeImageDestroy(image));
    check!(zeSamplerDestroy(sampler));
    for kernel in kernels {
        check!(zeKernelDestroy(kernel));
    }
    for module in linked.into_iter().chain([rare]) {
        check!(zeModuleDestroy(module));
    }
    check!(zeCommandListDestroy(list));
    check!(zeMemFree(context, memory));
    check!(zeContextDestroy(context));
    refused
}

/// The compiler is another process, and starting it needs more than memory.
fn module(
    context: ze_context_handle_t,
    device: ze_device_handle_t,
    spirv: &[u8],
) -> ze_module_handle_t {
    let options = CString::default();
    let desc = ze_module_desc_t {
        format: ze_module_format_t::ZE_MODULE_FORMAT_IL_SPIRV,
        inputSize: spirv.len(),
        pInputModule: spirv.as_ptr(),
        pBuildFlags: options.as_ptr(),
        ..Default::default()
    };
    let (mut module, no_log) = (ze_module_handle_t::NULL, ptr::null_mut());
    check!(zeModuleCreate(context, device, &raw const desc, &raw mut module, no_log));
    module
}
