// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ways to launch a kernel, through the stock loader.

use std::ffi::c_void;
use std::ptr;

use tally_tests::lists::NONE;
use tally_tests::ze::{self, Gpu, Usm};
use tally_tests::{call, check, refused};
use tally_ze::*;

/// Counts work-groups.
const KERNEL: &str = "
    kernel void count(global uint *counts, uint add)
    {
        if (get_local_id(0) == 0)
            atomic_add(&counts[get_group_id(0)], add);
    }";

struct Kernel {
    module: ze_module_handle_t,
    kernel: ze_kernel_handle_t,
    counts: Usm<u32>,
    // The last: a context outlives its memory.
    gpu: Gpu,
}

impl Kernel {
    fn new() -> Self {
        let gpu = Gpu::new();
        let module = gpu.module(&ze::spirv_from(KERNEL), "").expect("it is valid");
        let kernel = gpu.kernel(module, "count");
        let counts = gpu.host(8);
        counts.fill_with(|_| 0);
        check!(zeKernelSetGroupSize(kernel, 4, 1, 1));
        let (address, add) = (counts.ptr(), 1_u32);
        let (address, add) = (ptr::from_ref(&address).cast(), ptr::from_ref(&add).cast());
        check!(zeKernelSetArgumentValue(kernel, 0, 8, address));
        check!(zeKernelSetArgumentValue(kernel, 1, 4, add));
        Self { gpu, module, kernel, counts }
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // The test reports the failure.
        let _ = call!(zeKernelDestroy(self.kernel));
        let _ = call!(zeModuleDestroy(self.module));
    }
}

fn groups(x: u32) -> ze_group_count_t {
    ze_group_count_t { groupCountX: x, groupCountY: 1, groupCountZ: 1 }
}

/// An indirect launch reads the numbers of groups when it runs; zero groups do nothing.
#[test]
fn an_indirect_launch_reads_its_groups_when_it_runs() {
    let it = Kernel::new();
    let (buffer, list) = (it.gpu.host::<ze_group_count_t>(1), it.gpu.immediate(0, true));
    let pool = it.gpu.pool(1, ze_event_pool_flags_t::empty());
    let gate = pool.event(0);
    buffer.set(0, groups(8));
    list.wait(&[&gate]);
    let none = ptr::null_mut();
    check!(zeCommandListAppendLaunchKernelIndirect(list.0, it.kernel, buffer.ptr(), NONE, 0, none));
    buffer.set(0, groups(3));
    gate.signal();
    list.synchronize();
    assert_eq!(it.counts.to_vec(), [1, 1, 1, 0, 0, 0, 0, 0]);
    buffer.set(0, groups(0));
    check!(zeCommandListAppendLaunchKernelIndirect(list.0, it.kernel, buffer.ptr(), NONE, 0, none));
    list.synchronize();
    assert_eq!(it.counts.to_vec(), [1, 1, 1, 0, 0, 0, 0, 0]);
}

/// The count at run time determines how many of several indirect kernels run; the signal is made in any
/// case.
#[test]
fn several_indirect_launches_run_up_to_the_count() {
    let it = Kernel::new();
    let (buffer, count) = (it.gpu.host::<ze_group_count_t>(3), it.gpu.host::<u32>(1));
    buffer.fill_with(|i| groups(i as u32 + 1));
    let mut kernels = [it.kernel; 3];
    for (in_order, many, expected) in
        [(true, 2, [2, 1, 0]), (true, 0, [2, 1, 0]), (false, 3, [5, 3, 1])]
    {
        let (list, event) = (it.gpu.immediate(0, in_order), it.gpu.pool(1, Default::default()));
        let event = event.event(0);
        count.set(0, many);
        check!(zeCommandListAppendLaunchMultipleKernelsIndirect(
            list.0,
            3,
            kernels.as_mut_ptr(),
            count.ptr(),
            buffer.ptr(),
            event.0,
            0,
            ptr::null_mut()
        ));
        list.synchronize();
        assert_eq!(it.counts.to_vec()[..3], expected);
    }
}

/// A launch of zero kernels is a command too: it signals, and later commands run.
#[test]
fn several_indirect_launches_of_no_kernel_are_complete() {
    let it = Kernel::new();
    let (buffer, count) = (it.gpu.host::<ze_group_count_t>(1), it.gpu.host::<u32>(1));
    let mut kernels = [it.kernel];
    for in_order in [true, false] {
        let (list, pool) = (it.gpu.immediate(0, in_order), it.gpu.pool(1, Default::default()));
        let mut events = vec![pool.event(0)];
        // Only in-order lists signal counter-based events.
        events.extend(in_order.then(|| it.gpu.cb_event()));
        for event in events {
            check!(zeCommandListAppendLaunchMultipleKernelsIndirect(
                list.0,
                0,
                kernels.as_mut_ptr(),
                count.ptr(),
                buffer.ptr(),
                event.0,
                0,
                ptr::null_mut()
            ));
            event.synchronize();
            list.synchronize();
        }
    }
}

/// Everything that a launch needs in one call.
#[test]
fn a_launch_brings_its_sizes_and_arguments() {
    let it = Kernel::new();
    let list = it.gpu.immediate(0, true);
    let size = ze_group_size_t { groupSizeX: 2, groupSizeY: 1, groupSizeZ: 1 };
    let (address, add) = (it.counts.ptr(), 5_u32);
    let mut arguments: [*mut c_void; 2] =
        [ptr::from_ref(&address).cast_mut().cast(), ptr::from_ref(&add).cast_mut().cast()];
    check!(zeCommandListAppendLaunchKernelWithArguments(
        list.0,
        it.kernel,
        groups(2),
        size,
        arguments.as_mut_ptr(),
        ptr::null(),
        NONE,
        0,
        ptr::null_mut()
    ));
    list.synchronize();
    assert_eq!(it.counts.to_vec(), [5, 5, 0, 0, 0, 0, 0, 0]);
}

/// A cooperative launch accepts as many groups as were suggested, not more; copy-only engines accept no
/// kernels.
#[test]
fn what_cannot_be_launched_is_refused() {
    let it = Kernel::new();
    let (list, copies) = (it.gpu.immediate(0, true), it.gpu.immediate(1, true));
    let mut most = 0;
    check!(zeKernelSuggestMaxCooperativeGroupCount(it.kernel, &raw mut most));
    let (fits, too_many, none) = (groups(most), groups(most + 1), ptr::null_mut());
    let (fits, too_many) = (&raw const fits, &raw const too_many);
    let counts = it.gpu.host::<u32>(most as usize);
    let address = counts.address();
    check!(zeKernelSetArgumentValue(it.kernel, 0, 8, ptr::from_ref(&address).cast()));
    check!(zeCommandListAppendLaunchCooperativeKernel(list.0, it.kernel, fits, NONE, 0, none));
    list.synchronize();
    assert_eq!(counts.to_vec(), vec![1; most as usize]);
    refused!(
        ZE_RESULT_ERROR_INVALID_ARGUMENT,
        zeCommandListAppendLaunchCooperativeKernel(list.0, it.kernel, too_many, NONE, 0, none)
    );
    refused!(
        ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE,
        zeCommandListAppendLaunchKernel(copies.0, it.kernel, fits, NONE, 0, none)
    );
    refused!(
        ZE_RESULT_ERROR_INVALID_NULL_POINTER,
        zeCommandListAppendLaunchKernel(list.0, it.kernel, ptr::null(), NONE, 0, none)
    );
}

/// Two threads launch one kernel; one of them waits, in a synchronous list, for the other.
#[test]
fn a_synchronous_launch_keeps_nobody_from_the_kernel() {
    let it = Kernel::new();
    let pool = it.gpu.pool(1, ze_event_pool_flags_t::empty());
    let event = pool.event(0);
    let synchronous = it.gpu.immediate_of(&ze_command_queue_desc_t {
        mode: ze_command_queue_mode_t::ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS,
        ..Default::default()
    });
    let other = it.gpu.immediate(0, true);
    let one = groups(1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut waits, groups) = ([event.0], &raw const one);
            let (list, waits) = (synchronous.0, waits.as_mut_ptr());
            check!(zeCommandListAppendLaunchKernel(list, it.kernel, groups, NONE, 1, waits));
        });
        std::thread::sleep(std::time::Duration::from_millis(5));
        let (groups, none) = (&raw const one, ptr::null_mut());
        check!(zeCommandListAppendLaunchKernel(other.0, it.kernel, groups, event.0, 0, none));
    });
    assert_eq!(it.counts.get(0), 2);
}
