// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every request for memory, files of memory and threads that a typical program's calls make fails
//! once, each in a process of its own. The call that needed it answers that memory is out, or does
//! without it; and when it is made again, it succeeds, as does all that follows.

use std::ffi::{CStr, CString, c_void};
use std::ptr;

use tally_tests::peer::{Peer, say};
use tally_tests::refusals::Refusals;
use tally_tests::routine::Routine;
use tally_tests::ze;
use tally_tests::{call, check};
use tally_ze::*;

const REFUSE: &str = "TALLY_TEST_REFUSE";
const MODULE: &str = "TALLY_TEST_MODULE";

#[test]
fn out_of_memory_is_an_error_code_and_nothing_else() {
    let file = std::env::temp_dir().join(format!("tally-refusals-{}.spv", std::process::id()));
    std::fs::write(&file, Routine::spirv()).expect("a temporary file can be written");
    let mut answered = 0;
    for refuse in 1_u64.. {
        let variables = [
            (REFUSE, refuse.to_string()),
            (MODULE, file.to_string_lossy().into_owned()),
            // As many threads as it takes, whatever machine this is.
            ("TALLY_WORKERS", "2".to_owned()),
        ];
        let variables = variables.each_ref().map(|(name, value)| (*name, value.as_str()));
        let mut peer = Peer::start_with("child_is_refused_once", &variables);
        let said = peer.hear();
        peer.finish();
        if said == "no filters" {
            eprintln!("skipped: the system has no seccomp filters that ask");
            break;
        }
        let (seen, refused) = said.split_once(' ').expect("two numbers");
        let seen: u64 = seen.parse().expect("a number");
        answered += refused.parse::<u64>().expect("a number");
        if seen < refuse {
            assert!(refuse > 20, "a program asks for memory more often than {seen} times");
            assert!(answered > 5, "only {answered} calls said that memory is out");
            break;
        }
    }
    // What stays is litter, not a failure.
    let _ = std::fs::remove_file(&file);
}

/// Makes a call until it succeeds: at once, or after one answer that memory is out.
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
#[ignore = "started by the test above"]
fn child_is_refused_once() {
    let refuse = std::env::var(REFUSE).expect("the parent sets it").parse().expect("a number");
    let spirv = std::fs::read(std::env::var(MODULE).expect("the parent sets it")).expect("a file");
    let (driver, device) = (ze::driver(), ze::device());
    let Some(system) = Refusals::begin(refuse) else { return say("no filters") };
    let refused = program(driver, device, &spirv, &system);
    say(&format!("{} {refused}", system.seen()));
}

/// What a program does; how many calls said that memory is out.
fn program(
    driver: ze_driver_handle_t,
    device: ze_device_handle_t,
    spirv: &[u8],
    system: &Refusals,
) -> u64 {
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
    let module = system.paused(|| module(context, device, spirv));
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

/// The compiler is another process, and starting it no matter of memory alone.
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
