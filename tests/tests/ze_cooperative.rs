// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cooperative kernels through the stock loader. The quotes are from the core programming guide,
//! chapter "Cooperative Kernels".

use std::ffi::c_void;
use std::ptr;

use tally_tests::lists::{List, NONE};
use tally_tests::ze::{self, Gpu, Usm};
use tally_tests::{check, refused};
use tally_ze::*;

/// Each group adds its part of the input, waits for all by an atomic, and then reads what the others
/// have written. (Not by an atomic load: LLVM takes the number of its order for that of its scope.)
const KERNELS: &str = "
    kernel void shares(global const uint *in, global uint *parts, global atomic_uint *arrived,
                       global uint *out, uint each)
    {
        local uint sum;
        uint group = get_group_id(0), groups = get_num_groups(0);
        if (get_local_id(0) == 0)
            sum = 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint i = get_local_id(0); i < each; i += get_local_size(0))
            atomic_add(&sum, in[group * each + i]);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (get_local_id(0) == 0) {
            parts[group] = sum;
            atomic_fetch_add_explicit(arrived, 1, memory_order_acq_rel, memory_scope_device);
            while (atomic_fetch_or_explicit(arrived, 0, memory_order_acquire, memory_scope_device) < groups)
                ;
        }
        barrier(CLK_GLOBAL_MEM_FENCE);
        uint all = 0;
        for (uint g = 0; g < groups; g++)
            all += parts[g];
        out[get_global_id(0)] = all;
    }
    kernel void endless(global volatile uint *flags)
    {
        flags[1] = 1;
        while (flags[0] == 0)
            ;
    }";

const ITEMS: u32 = 64;
const EACH: u32 = 1000;

struct Shares {
    kernel: ze_kernel_handle_t,
    endless: ze_kernel_handle_t,
    most: u32,
    input: Usm<u32>,
    parts: Usm<u32>,
    arrived: Usm<u32>,
    out: Usm<u32>,
    // The last: a context outlives its memory.
    gpu: Gpu,
}

impl Shares {
    fn new() -> Self {
        let gpu = Gpu::new();
        let module = gpu.module(&ze::spirv_from(KERNELS), "").expect("it is valid");
        let (kernel, endless) = (gpu.kernel(module, "shares"), gpu.kernel(module, "endless"));
        check!(zeKernelSetGroupSize(kernel, ITEMS, 1, 1));
        check!(zeKernelSetGroupSize(endless, 1, 1, 1));
        let mut most = 0;
        check!(zeKernelSuggestMaxCooperativeGroupCount(kernel, &raw mut most));
        let len = |n: u32| n as usize;
        let (input, parts) = (gpu.host(len(most * EACH)), gpu.host(len(most)));
        let (arrived, out) = (gpu.host(1), gpu.host(len(most * ITEMS)));
        input.fill_with(|i| i as u32 % 97);
        for (i, address) in
            [input.address(), parts.address(), arrived.address(), out.address()].iter().enumerate()
        {
            let address: *const c_void = ptr::from_ref(address).cast();
            check!(zeKernelSetArgumentValue(kernel, i as u32, 8, address));
        }
        check!(zeKernelSetArgumentValue(kernel, 4, 4, ptr::from_ref(&EACH).cast()));
        Self { gpu, kernel, endless, most, input, parts, arrived, out }
    }

    fn launch(&self, list: &List, groups: u32) {
        let groups = ze_group_count_t { groupCountX: groups, groupCountY: 1, groupCountZ: 1 };
        let (groups, none) = (&raw const groups, ptr::null_mut());
        check!(zeCommandListAppendLaunchCooperativeKernel(
            list.0,
            self.kernel,
            groups,
            NONE,
            0,
            none
        ));
    }

    fn expect(&self, groups: u32) {
        let all: u32 = (0..(groups * EACH) as usize).map(|i| self.input.get(i)).sum();
        let out = self.out.to_vec();
        assert!(out[..(groups * ITEMS) as usize].iter().all(|&it| it == all), "{groups} groups");
        assert_eq!(self.arrived.get(0), groups);
    }
}

#[test]
fn groups_share_data_and_synchronize_across_the_launch() {
    // "Cooperative kernels allow sharing of data and synchronization across all launched groups in a
    // safe manner."
    let it = Shares::new();
    assert!(it.most > 1, "{}", it.most);
    let list = it.gpu.immediate(0, true);
    for groups in [1, 2, it.most / 2, it.most] {
        it.arrived.set(0, 0);
        it.parts.fill_with(|_| 0);
        it.launch(&list, groups);
        list.synchronize();
        it.expect(groups);
    }
    // The same from a recording, twice.
    let (regular, queue) = (it.gpu.regular(0, true), it.gpu.queue(0));
    regular.set((&it.arrived, 0), 0, None, &[]);
    it.launch(&regular, it.most);
    regular.close();
    for _ in 0..2 {
        queue.execute(&[&regular], None);
        queue.synchronize();
        it.expect(it.most);
    }
}

#[test]
fn the_queue_group_says_that_it_takes_cooperative_kernels() {
    // "The command list must be submitted to a command queue that was created with an ordinal of a
    // command queue group that has the ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COOPERATIVE_KERNELS flags
    // set."
    use ze_command_queue_group_property_flags_t as flags;
    let mut groups = [ze_command_queue_group_properties_t::default(); 2];
    let mut count = 2;
    let device = ze::device();
    check!(zeDeviceGetCommandQueueGroupProperties(device, &raw mut count, groups.as_mut_ptr()));
    for group in &groups[..count as usize] {
        let computes = group.flags.contains(flags::ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE);
        let cooperative = flags::ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COOPERATIVE_KERNELS;
        assert_eq!(group.flags.contains(cooperative), computes);
    }
}

#[test]
fn more_groups_than_the_maximum_are_refused() {
    // "The maximum number of groups for a cooperative kernel launch may be determined by calling
    // zeKernelSuggestMaxCooperativeGroupCount."
    let it = Shares::new();
    let list = it.gpu.immediate(0, true);
    for groups in [[it.most + 1, 1, 1], [it.most, 2, 1], [u32::MAX; 3]] {
        let [x, y, z] = groups;
        let groups = ze_group_count_t { groupCountX: x, groupCountY: y, groupCountZ: z };
        let (groups, none) = (&raw const groups, ptr::null_mut());
        let text = refused!(
            ZE_RESULT_ERROR_INVALID_ARGUMENT,
            zeCommandListAppendLaunchCooperativeKernel(list.0, it.kernel, groups, NONE, 0, none)
        );
        assert!(text.contains("zeKernelSuggestMaxCooperativeGroupCount"), "{text}");
    }
}

#[test]
fn a_cooperative_launch_that_waits_keeps_no_other_queue_from_its_work() {
    let it = Shares::new();
    let flag = it.gpu.host::<u32>(2);
    let address = flag.address();
    check!(zeKernelSetArgumentValue(it.endless, 0, 8, ptr::from_ref(&address).cast()));
    let (stuck, list) = (it.gpu.immediate(0, true), it.gpu.immediate(0, true));
    let groups = ze_group_count_t { groupCountX: it.most / 2, groupCountY: 1, groupCountZ: 1 };
    let (groups, none) = (&raw const groups, ptr::null_mut());
    check!(zeCommandListAppendLaunchCooperativeKernel(stuck.0, it.endless, groups, NONE, 0, none));
    it.launch(&list, it.most / 2);
    list.synchronize();
    it.expect(it.most / 2);
    flag.set(0, 1);
    stuck.synchronize();
}

/// The device has threads for the largest launch, but not beside another. The one that runs waits for the host here,
/// and the host waits for a small launch behind the largest.
#[test]
fn a_launch_that_waits_for_threads_holds_up_no_smaller_one() {
    let (it, large) = (Shares::new(), Shares::new());
    let flags = it.gpu.host::<u32>(2);
    let address = flags.address();
    check!(zeKernelSetArgumentValue(it.endless, 0, 8, ptr::from_ref(&address).cast()));
    let stuck = it.gpu.immediate(0, true);
    let groups = ze_group_count_t { groupCountX: it.most / 2, groupCountY: 1, groupCountZ: 1 };
    let (groups, none) = (&raw const groups, ptr::null_mut());
    check!(zeCommandListAppendLaunchCooperativeKernel(stuck.0, it.endless, groups, NONE, 0, none));
    while flags.get(1) == 0 {
        std::thread::yield_now();
    }
    // One queue reads both, and the second need not wait for the first.
    let others = it.gpu.immediate(0, false);
    large.launch(&others, it.most);
    let pool = it.gpu.pool(1, ze_event_pool_flags_t::empty());
    let half = pool.event(0);
    check!(zeCommandListAppendLaunchCooperativeKernel(
        others.0, it.kernel, groups, half.0, 0, none
    ));
    half.synchronize();
    it.expect(it.most / 2);
    flags.set(0, 1);
    stuck.synchronize();
    others.synchronize();
    large.expect(it.most);
}
