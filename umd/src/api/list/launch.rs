// SPDX-License-Identifier: MIT OR Apache-2.0
//! Appends that launch kernels.

use std::ffi::c_void;
use std::sync::Arc;

use tally_ze::*;

use super::{Events, append_fast, no_extensions};
use crate::api::{Call, api};
use crate::core::kernel as core_kernel;
use crate::core::list::List;
use crate::error::{Error, Result};
use crate::list::fast_path;
use crate::list::launch::Groups;

api! {
    /// Spec: `zeCommandListAppendLaunchKernel`.
    fn zeCommandListAppendLaunchKernel(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        list @ hCommandList: ze_command_list_handle_t,
        hKernel: ze_kernel_handle_t,
        pLaunchFuncArgs: *const ze_group_count_t,
        events: Events,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hKernel`
        let kernel = call.handle(hKernel, "hKernel")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pLaunchFuncArgs`
        let groups = counts(call.read(pLaunchFuncArgs, "pLaunchFuncArgs")?);
        launch(call, list, kernel, Groups::Direct(groups), events)
    }

    /// Spec: `zeCommandListAppendLaunchKernelWithParameters`.
    fn zeCommandListAppendLaunchKernelWithParameters(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        list @ hCommandList: ze_command_list_handle_t,
        hKernel: ze_kernel_handle_t,
        pGroupCounts: *const ze_group_count_t,
        pNext: *const c_void,
        events: Events,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hKernel`
        let kernel = call.handle(hKernel, "hKernel")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pGroupCounts`
        let groups = counts(call.read(pGroupCounts, "pGroupCounts")?);
        let groups = parameters(call, pNext, groups)?;
        launch(call, list, kernel, groups, events)
    }

    /// Spec: `zeCommandListAppendLaunchKernelWithArguments`. Sets the kernel's group size and
    /// arguments, as the single calls would, and launches it.
    fn zeCommandListAppendLaunchKernelWithArguments(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        list @ hCommandList: ze_command_list_handle_t,
        hKernel: ze_kernel_handle_t,
        groupCounts: ze_group_count_t,
        groupSizes: ze_group_size_t,
        pArguments: *mut *mut c_void,
        pNext: *const c_void,
        events: Events,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hKernel`
        let kernel = call.handle(hKernel, "hKernel")?;
        let groups = counts(&groupCounts);
        let groups = parameters(call, pNext, groups)?;
        let size = [groupSizes.groupSizeX, groupSizes.groupSizeY, groupSizes.groupSizeZ];
        kernel.set_group_size(size)?;
        // SAFETY: the caller promises a pointer to a value for each argument.
        unsafe { kernel.set_all_arguments(pArguments.cast_const().cast()) }?;
        launch(call, list, kernel, groups, events)
    }

    /// Spec: `zeCommandListAppendLaunchCooperativeKernel`.
    fn zeCommandListAppendLaunchCooperativeKernel(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        list @ hCommandList: ze_command_list_handle_t,
        hKernel: ze_kernel_handle_t,
        pLaunchFuncArgs: *const ze_group_count_t,
        events: Events,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hKernel`
        let kernel = call.handle(hKernel, "hKernel")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pLaunchFuncArgs`
        let groups = counts(call.read(pLaunchFuncArgs, "pLaunchFuncArgs")?);
        let groups = Groups::cooperative(groups)?;
        launch(call, list, kernel, groups, events)
    }

    /// Spec: `zeCommandListAppendLaunchKernelIndirect`.
    fn zeCommandListAppendLaunchKernelIndirect(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        list @ hCommandList: ze_command_list_handle_t,
        hKernel: ze_kernel_handle_t,
        pLaunchArgumentsBuffer: *const ze_group_count_t,
        events: Events,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hKernel`
        let kernel = call.handle(hKernel, "hKernel")?;
        let groups = buffer(call, pLaunchArgumentsBuffer.cast(), "pLaunchArgumentsBuffer")?;
        launch(call, list, kernel, Groups::Indirect(groups), events)
    }

    /// Spec: `zeCommandListAppendLaunchMultipleKernelsIndirect`.
    fn zeCommandListAppendLaunchMultipleKernelsIndirect(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        list @ hCommandList: ze_command_list_handle_t,
        numKernels: u32,
        phKernels: *mut ze_kernel_handle_t,
        pCountBuffer: *const u32,
        pLaunchArgumentsBuffer: *const ze_group_count_t,
        events: Events,
    ) {
        list.must_compute()?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == phKernels`
        call.read(phKernels.cast_const(), "phKernels")?;
        let kernels = call.slice(phKernels.cast_const(), numKernels as usize, "phKernels")?;
        let count = buffer(call, pCountBuffer, "pCountBuffer")?;
        let groups = buffer(call, pLaunchArgumentsBuffer.cast(), "pLaunchArgumentsBuffer")?;
        // The array may contain the same kernel several times, so none stays locked.
        let launches = kernels.iter().map(|&raw| {
            let kernel = call.handle(raw, "phKernels")?;
            let launch = kernel.launch().clone();
            launch.check()?;
            Ok((kernel, launch))
        });
        let launches = launches.collect::<Result<Vec<_>>>()?;
        let at = |i: usize| groups + (i * size_of::<ze_group_count_t>()) as u64;
        let launches = launches.iter().enumerate();
        let launches: Vec<_> =
            launches.map(|(i, (kernel, launch))| (*kernel, launch, Groups::Indirect(at(i)))).collect();
        let mut waits = events.waits(call)?;
        list.append_launches(&launches, count, events.signal(call)?, &mut waits)?;
        list.settle()
    }
}

/// Launches a kernel, by the fast path if its groups are known.
#[inline(always)]
fn launch(
    call: Call<'_>,
    list: &List,
    kernel: &Arc<core_kernel::Kernel>,
    groups: Groups,
    events: Events,
) -> Result {
    list.must_compute()?;
    if let Some(groups) = groups.direct() {
        let launch = fast_path::Kernel { prebuilt: kernel.prebuilt(), keep: kernel.code(), groups };
        if append_fast(call, list, &launch, events)? {
            return list.settle();
        }
    }
    launch_general(call, list, kernel, groups, events)
}

#[inline(never)]
fn launch_general(
    call: Call<'_>,
    list: &List,
    kernel: &Arc<core_kernel::Kernel>,
    groups: Groups,
    events: Events,
) -> Result {
    let launch = kernel.launch();
    launch.check()?;
    let mut waits = events.waits(call)?;
    list.append_launch((kernel, &launch, groups), events.signal(call)?, &mut waits)?;
    // Other threads may launch the kernel while this call waits.
    drop(launch);
    list.settle()
}

#[inline(always)]
fn counts(groups: &ze_group_count_t) -> [u32; 3] {
    [groups.groupCountX, groups.groupCountY, groups.groupCountZ]
}

/// Checks the address of 32-bit numbers that the device will read.
fn buffer(call: Call<'_>, ptr: *const u32, name: &'static str) -> Result<u64> {
    call.out(ptr.cast_mut(), name)?;
    if !(ptr as u64).is_multiple_of(4) {
        return Err(Error::new(
            ze_result_t::ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT,
            format!("{name}: {:#x} is not aligned to 4 bytes", ptr as u64),
        ));
    }
    Ok(ptr as u64)
}

/// The extensions of a launch: whether it is cooperative.
fn parameters(call: Call<'_>, next: *const c_void, groups: [u32; 3]) -> Result<Groups> {
    let mut answer = Groups::Direct(groups);
    for link in call.chain(next) {
        match link.get::<ze_command_list_append_launch_kernel_param_cooperative_desc_t>() {
            Some(desc) if desc.isCooperative != 0 => answer = Groups::cooperative(groups)?,
            Some(_) => {}
            None => no_extensions(call, next)?,
        }
    }
    Ok(answer)
}
