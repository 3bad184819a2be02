// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies of regular lists (zeCommandListCreateCloneExp) and their events, through the stock loader.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use tally_tests::gate::Gate;
use tally_tests::lists::{Event, List, NONE};
use tally_tests::ze::{self, Gpu};
use tally_tests::{call, check, refused};
use tally_ze::*;

fn cloneable(gpu: &Gpu, in_order: bool) -> List {
    use ze_command_list_flags_t as flag;
    let mut flags = flag::ZE_COMMAND_LIST_FLAG_EXP_CLONEABLE;
    flags.set(flag::ZE_COMMAND_LIST_FLAG_IN_ORDER, in_order);
    let desc = ze_command_list_desc_t { flags, ..Default::default() };
    let mut list = ze_command_list_handle_t::NULL;
    check!(zeCommandListCreate(gpu.context, gpu.device, &raw const desc, &raw mut list));
    List(list)
}

fn copy_of(list: &List) -> List {
    let mut copy = ze_command_list_handle_t::NULL;
    check!(zeCommandListCreateCloneExp(list.0, &raw mut copy));
    List(copy)
}

const KERNEL: &str = "
    kernel void add(global uint *to, uint value)
    {
        *to += value;
    }";

/// "A command list can be copied to create another command list.": a copy does what its source does,
/// kernels with their arguments, patterns and shapes included, also after the source was reset or
/// destroyed, and "inherits all properties of the source command list".
#[test]
fn a_copy_does_what_its_source_does() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(64);
    memory.fill_with(|_| 0);
    let module = gpu.module(&ze::spirv_from(KERNEL), "").expect("it is valid");
    let kernel = gpu.kernel(module, "add");
    let (to, value) = (memory.ptr(), 5_u32);
    check!(zeKernelSetGroupSize(kernel, 1, 1, 1));
    check!(zeKernelSetArgumentValue(kernel, 0, 8, ptr::from_ref(&to).cast()));
    check!(zeKernelSetArgumentValue(kernel, 1, 4, ptr::from_ref(&value).cast()));
    for in_order in [true, false] {
        let (list, queue) = (cloneable(&gpu, in_order), gpu.queue(0));
        let groups = ze_group_count_t { groupCountX: 1, groupCountY: 1, groupCountZ: 1 };
        let none = ptr::null_mut();
        check!(zeCommandListAppendLaunchKernel(list.0, kernel, &raw const groups, NONE, 0, none));
        list.barrier(None, &[]);
        let pattern: [u32; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
        check!(zeCommandListAppendMemoryFill(
            list.0,
            memory.ptr().wrapping_add(8).cast(),
            pattern.as_ptr().cast(),
            32,
            64,
            NONE,
            0,
            none
        ));
        list.close();
        let copy = copy_of(&list);
        let (mut flags, mut of_copy) =
            (ze_command_list_flags_t::empty(), ze_command_list_flags_t::empty());
        check!(zeCommandListGetFlags(list.0, &raw mut flags));
        check!(zeCommandListGetFlags(copy.0, &raw mut of_copy));
        assert_eq!(flags, of_copy);
        let again = copy_of(&copy);
        let before = memory.get(0);
        for list in [&list, &copy, &again] {
            queue.execute(&[list], None);
        }
        queue.synchronize();
        assert_eq!(memory.get(0), before + 15);
        list.reset();
        for _ in 0..100 {
            // The source's memory is reused for other things, and the copy does not depend on it.
            list.set((&memory, 1), 1, None, &[]);
        }
        drop(list);
        memory.fill_with(|_| 0);
        queue.execute(&[&copy], None);
        queue.synchronize();
        assert_eq!((memory.get(0), memory.get(8), memory.get(23)), (5, 1, 8));
    }
    check!(zeKernelDestroy(kernel));
    check!(zeModuleDestroy(module));
}

/// "The source command list may be cloned while it is running on the device.", and both run at the same
/// time: a copy has a counter of its own. Its events name it when it is executed, not before.
#[test]
fn a_copy_runs_beside_its_source() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(1);
    let gate = Gate::new(&gpu);
    let (list, event) = (cloneable(&gpu, true), gpu.cb_event());
    list.set((&memory, 0), 1, Some(&event), &[&gate.event]);
    list.close();
    let (one, two) = (gpu.queue(0), gpu.queue(0));
    one.execute(&[&list], None);
    let of_source = event.address();
    let copy = copy_of(&list);
    assert_eq!(event.address(), of_source, "a copy that is not executed signals nothing");
    two.execute(&[&copy], None);
    let of_copy = event.address();
    assert_ne!(of_copy.0, of_source.0, "a counter of its own");
    assert!(!event.is_ready());
    gate.open();
    event.synchronize();
    one.synchronize();
    two.synchronize();
    one.execute(&[&list], None);
    assert_eq!(event.address().0, of_source.0, "an execution takes its events back");
    event.synchronize();
    one.synchronize();
}

/// Each execution of the copy binds the waits that the source has recorded again.
#[test]
fn a_copy_waits_for_the_latest_execution() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(3);
    let (producer, event) = (gpu.regular(0, true), gpu.cb_event());
    producer.copy((&memory, 1), (&memory, 0), 1, Some(&event), &[]);
    producer.close();
    let waits = cloneable(&gpu, true);
    waits.copy((&memory, 2), (&memory, 1), 1, None, &[&event]);
    waits.close();
    let copy = copy_of(&waits);
    let (one, two) = (gpu.queue(0), gpu.queue(0));
    for round in 1..100 {
        memory.set(0, round);
        one.execute(&[&producer], None);
        two.execute(&[if round % 2 == 0 { &waits } else { &copy }], None);
        two.synchronize();
        assert_eq!(memory.get(2), round);
        one.synchronize();
    }
}

/// Times of a copy's commands are its own, both for queries by the copy itself and by the host.
#[test]
fn a_copy_keeps_its_own_times() {
    let gpu = Gpu::new();
    let memory = gpu.host::<u32>(1);
    let read = gpu.host::<ze_kernel_timestamp_result_t>(1);
    let flag = ze_event_counter_based_flags_t::ZE_EVENT_COUNTER_BASED_FLAG_DEVICE_TIMESTAMP;
    let (list, event) = (cloneable(&gpu, true), gpu.cb_event_with(flag));
    list.set((&memory, 0), 1, Some(&event), &[]);
    let mut raws = [event.0];
    check!(zeCommandListAppendQueryKernelTimestamps(
        list.0,
        1,
        raws.as_mut_ptr(),
        read.ptr().cast(),
        ptr::null(),
        NONE,
        0,
        ptr::null_mut()
    ));
    list.close();
    let copy = copy_of(&list);
    let queue = gpu.queue(0);
    let times = |event: &Event| {
        let mut times = ze_kernel_timestamp_result_t::default();
        check!(zeEventQueryKernelTimestamp(event.0, &raw mut times));
        times
    };
    let mut last = 0;
    for round in 0..6 {
        queue.execute(&[if round % 2 == 0 { &list } else { &copy }], None);
        queue.synchronize();
        let now = times(&event).global;
        assert!(last < now.kernelStart && now.kernelStart <= now.kernelEnd, "{now:?}");
        assert_eq!(read.get(0).global.kernelStart, now.kernelStart);
        last = now.kernelEnd;
    }
}

/// "The source command list must be created with the ZE_COMMAND_LIST_FLAG_EXP_CLONEABLE flag." "The
/// source command list must be closed prior to cloning."
#[test]
fn lists_that_cannot_be_copied_are_refused() {
    let gpu = Gpu::new();
    let mut copy = ze_command_list_handle_t::NULL;
    let open = cloneable(&gpu, true);
    let without = gpu.regular(0, true);
    without.close();
    for list in [&open, &without, &gpu.immediate(0, true)] {
        refused!(
            ZE_RESULT_ERROR_INVALID_ARGUMENT,
            zeCommandListCreateCloneExp(list.0, &raw mut copy)
        );
        assert!(copy.is_null());
    }
    open.close();
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_POINTER,
        zeCommandListCreateCloneExp(open.0, ptr::null_mut())
    );
    let result = call!(zeCommandListCreateCloneExp(ze_command_list_handle_t::NULL, &raw mut copy));
    assert_eq!(result, ze_result_t::ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
}

/// A copy has the host functions of its source, and calls them itself: the two run at the same time,
/// and each makes all its calls.
#[test]
fn a_copy_calls_host_functions_itself() {
    extern "C" fn count(data: *mut c_void) {
        // SAFETY: the test passes a counter that outlives the lists.
        unsafe { &*data.cast::<AtomicU32>() }.fetch_add(1, Ordering::Relaxed);
    }
    let gpu = Gpu::new();
    let called = AtomicU32::new(0);
    let data = (&raw const called).cast_mut().cast();
    let list = cloneable(&gpu, true);
    for _ in 0..20 {
        let none = ptr::null_mut();
        check!(zeCommandListAppendHostFunction(
            list.0,
            Some(count),
            data,
            ptr::null(),
            NONE,
            0,
            none
        ));
    }
    list.close();
    let copy = copy_of(&list);
    let (one, two) = (gpu.queue(0), gpu.queue(0));
    for _ in 0..20 {
        one.execute(&[&list], None);
        two.execute(&[&copy], None);
    }
    one.synchronize();
    two.synchronize();
    assert_eq!(called.load(Ordering::Relaxed), 2 * 20 * 20);
}
