// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels that never end: other work continues beside them, and the process can end.
//!
//! Each case needs a process of its own, since nothing ends the kernel there.

use std::ptr;

use tally_tests::lists::NONE;
use tally_tests::ze::{self, Gpu};
use tally_tests::{call, check};
use tally_ze::*;

const KERNEL: &str = "
    kernel void endless(global volatile uint *flag)
    {
        while (*flag == 0)
            ;
    }";

/// Kernels that never end do not block the work of other lists, waits for them end in time, and the
/// process ends when main returns.
#[test]
fn endless_kernels_stop_neither_other_lists_nor_the_end_of_the_process() {
    // This takes seconds; on an emulated kernel with debug checks and beside other tests, two minutes.
    ze::in_child("child_with_endless_kernels", &[("TALLY_WORKERS", "2")]);
}

#[test]
#[ignore = "runs in a child process"]
fn child_with_endless_kernels() {
    let gpu = Gpu::new();
    let (flag, memory) = (gpu.host::<u32>(1), gpu.host::<u32>(1));
    flag.set(0, 0);
    let module = gpu.module(&ze::spirv_from(KERNEL), "").expect("it is valid");
    let kernel = gpu.kernel(module, "endless");
    check!(zeKernelSetGroupSize(kernel, 1, 1, 1));
    let address = flag.ptr();
    check!(zeKernelSetArgumentValue(kernel, 0, 8, ptr::from_ref(&address).cast()));
    let one = ze_group_count_t { groupCountX: 1, groupCountY: 1, groupCountZ: 1 };
    // One for each worker, on the same engine as the list beside them.
    let stuck = [gpu.immediate(0, true), gpu.immediate(0, true)];
    for list in &stuck {
        let (none, group) = (ptr::null_mut(), &raw const one);
        check!(zeCommandListAppendLaunchKernel(list.0, kernel, group, NONE, 0, none));
    }
    for round in 1..=20 {
        let beside = gpu.immediate(0, true);
        beside.set((&memory, 0), round, None, &[]);
        beside.synchronize();
        assert_eq!(memory.get(0), round);
    }
    let answer = call!(zeCommandListHostSynchronize(stuck[0].0, 10_000_000));
    assert_eq!(answer, ze_result_t::ZE_RESULT_NOT_READY);
    // The lists and their memory are destroyed while the kernels run; the device keeps them.
}
