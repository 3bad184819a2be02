// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels.

use std::ffi::{c_char, c_void};

use tally_uapi::eu::MAX_GROUP_ITEMS;
use tally_ze::*;

use super::api;
use crate::core::kernel::Kernel;
use crate::error::Error;
use crate::handle;

api! {
    /// Spec: `zeKernelCreate`. Waits until the kernel's code is generated; nothing waits later.
    fn zeKernelCreate(
        call,
        hModule: ze_module_handle_t,
        desc: *const ze_kernel_desc_t,
        phKernel: *mut ze_kernel_handle_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hModule`
        let module = call.handle(hModule, "hModule")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == desc`
        let desc = call.desc(desc, "desc")?;
        // ZE_RESULT_ERROR_INVALID_ENUMERATION: `0x3 < desc->flags`
        call.flags(desc.flags.has_unknown(), "desc->flags")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == desc->pKernelName`
        let name = call.c_str(desc.pKernelName, "desc->pKernelName")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == phKernel`
        let out = call.out(phKernel, "phKernel")?;
        let kernel = Kernel::create(module, name)?;
        if desc.flags.contains(ze_kernel_flags_t::ZE_KERNEL_FLAG_FORCE_RESIDENCY) {
            kernel.force_residency();
        }
        out.set(handle::create(kernel)?);
        Ok(())
    }

    /// Spec: `zeKernelDestroy`. What was appended does not need the kernel any more.
    fn zeKernelDestroy(call, hKernel: ze_kernel_handle_t) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hKernel`
        call.destroy(hKernel, "hKernel")
    }

    /// Spec: `zeKernelSetGroupSize`.
    fn zeKernelSetGroupSize(
        call,
        hKernel: ze_kernel_handle_t,
        groupSizeX: u32,
        groupSizeY: u32,
        groupSizeZ: u32,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hKernel`
        call.handle(hKernel, "hKernel")?.set_group_size([groupSizeX, groupSizeY, groupSizeZ])
    }

    /// Spec: `zeKernelSuggestGroupSize`.
    fn zeKernelSuggestGroupSize(
        call,
        hKernel: ze_kernel_handle_t,
        globalSizeX: u32,
        globalSizeY: u32,
        globalSizeZ: u32,
        groupSizeX: *mut u32,
        groupSizeY: *mut u32,
        groupSizeZ: *mut u32,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hKernel`
        let kernel = call.handle(hKernel, "hKernel")?;
        let outs = [
            // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == groupSizeX`
            call.out(groupSizeX, "groupSizeX")?,
            // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == groupSizeY`
            call.out(groupSizeY, "groupSizeY")?,
            // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == groupSizeZ`
            call.out(groupSizeZ, "groupSizeZ")?,
        ];
        let global = [globalSizeX, globalSizeY, globalSizeZ];
        if let Some(i) = global.iter().position(|&it| it == 0) {
            return Err(Error::new(
                ze_result_t::ZE_RESULT_ERROR_INVALID_GLOBAL_WIDTH_DIMENSION,
                format!("globalSize{}: it is 0", ["X", "Y", "Z"][i]),
            ));
        }
        for (out, size) in outs.into_iter().zip(kernel.suggest_group_size(global)) {
            out.set(size);
        }
        Ok(())
    }

    /// Spec: `zeKernelSuggestMaxCooperativeGroupCount`. The same for all kernels: each group of a
    /// cooperative launch has a thread of its own.
    fn zeKernelSuggestMaxCooperativeGroupCount(
        call,
        hKernel: ze_kernel_handle_t,
        totalGroupCount: *mut u32,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hKernel`
        call.handle(hKernel, "hKernel")?;
        let most = tally_uapi::eu::MAX_COOPERATIVE_GROUPS;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == totalGroupCount`
        call.out(totalGroupCount, "totalGroupCount")?.set(most);
        Ok(())
    }

    /// Spec: `zeKernelSetArgumentValue`.
    fn zeKernelSetArgumentValue(
        call,
        hKernel: ze_kernel_handle_t,
        argIndex: u32,
        argSize: usize,
        pArgValue: *const c_void,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hKernel`
        let kernel = call.handle(hKernel, "hKernel")?;
        // SAFETY: the caller promises a value of the size that it names, or null.
        unsafe { kernel.set_argument(argIndex, argSize, pArgValue) }
    }

    /// Spec: `zeKernelSetIndirectAccess`. Kernels can always reach all memory; checks tell what they may not.
    fn zeKernelSetIndirectAccess(
        call,
        hKernel: ze_kernel_handle_t,
        flags: ze_kernel_indirect_access_flags_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hKernel`
        let kernel = call.handle(hKernel, "hKernel")?;
        // ZE_RESULT_ERROR_INVALID_ENUMERATION: `0x7 < flags`
        call.flags(flags.has_unknown(), "flags")?;
        *kernel.indirect() = flags;
        Ok(())
    }

    /// Spec: `zeKernelGetIndirectAccess`.
    fn zeKernelGetIndirectAccess(
        call,
        hKernel: ze_kernel_handle_t,
        pFlags: *mut ze_kernel_indirect_access_flags_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hKernel`
        let kernel = call.handle(hKernel, "hKernel")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pFlags`
        call.out(pFlags, "pFlags")?.set(*kernel.indirect());
        Ok(())
    }

    /// Spec: `zeKernelGetSourceAttributes`. The size counts the NUL; `*pString` is the caller's memory.
    fn zeKernelGetSourceAttributes(
        call,
        hKernel: ze_kernel_handle_t,
        pSize: *mut u32,
        pString: *mut *mut c_char,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hKernel`
        let kernel = call.handle(hKernel, "hKernel")?;
        let bytes = kernel.attributes().to_bytes_with_nul();
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pSize`
        let size = call.in_out(pSize, "pSize")?;
        let Some(&string) = call.read(pString.cast_const(), "pString").ok() else {
            *size = bytes.len() as u32;
            return Ok(());
        };
        let mut room = *size as usize;
        call.bytes(&raw mut room, string.cast(), "pSize", bytes)?;
        *size = room as u32;
        Ok(())
    }

    /// Spec: `zeKernelSetCacheConfig`. A hint that is not taken.
    fn zeKernelSetCacheConfig(call, hKernel: ze_kernel_handle_t, flags: ze_cache_config_flags_t) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hKernel`
        call.handle(hKernel, "hKernel")?;
        // ZE_RESULT_ERROR_INVALID_ENUMERATION: `0x3 < flags`
        call.flags(flags.has_unknown(), "flags")
    }

    /// Spec: `zeKernelGetProperties`.
    fn zeKernelGetProperties(
        call,
        hKernel: ze_kernel_handle_t,
        pKernelProperties: *mut ze_kernel_properties_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hKernel`
        let kernel = call.handle(hKernel, "hKernel")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pKernelProperties`
        let out = call.properties(pKernelProperties, "pKernelProperties")?;
        describe(kernel, out);
        let lanes = kernel.module().context().device().info().simd_lanes;
        for link in call.chain(out.pNext) {
            match link.stype() {
                ze_kernel_preferred_group_size_properties_t::STYPE => {
                    if let Some(out) = link.get_mut::<ze_kernel_preferred_group_size_properties_t>() {
                        out.preferredMultiple = lanes;
                    }
                }
                MaxGroupSize::STYPE => {
                    if let Some(out) = link.get_mut::<MaxGroupSize>() {
                        out.0.maxGroupSize = kernel.max_group_items();
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Spec: `zeKernelGetName`. The size counts the NUL.
    fn zeKernelGetName(
        call,
        hKernel: ze_kernel_handle_t,
        pSize: *mut usize,
        pName: *mut c_char,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hKernel`
        let kernel = call.handle(hKernel, "hKernel")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pSize`
        call.bytes(pSize, pName.cast(), "pSize", kernel.name().to_bytes_with_nul())
    }

    /// Spec: `zeKernelSetGlobalOffsetExp`.
    fn zeKernelSetGlobalOffsetExp(
        call,
        hKernel: ze_kernel_handle_t,
        offsetX: u32,
        offsetY: u32,
        offsetZ: u32,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hKernel`
        let kernel = call.handle(hKernel, "hKernel")?;
        kernel.change().global_offset = [offsetX, offsetY, offsetZ].map(u64::from);
        Ok(())
    }

    /// Spec: `zeKernelSchedulingHintExp`. "If a specified scheduling hint is unsupported it will be silently
    /// ignored.": groups start in their order, whatever is asked for.
    fn zeKernelSchedulingHintExp(
        call,
        hKernel: ze_kernel_handle_t,
        pHint: *mut ze_scheduling_hint_exp_desc_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hKernel`
        call.handle(hKernel, "hKernel")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pHint`
        let desc = call.desc(pHint.cast_const(), "pHint")?;
        // ZE_RESULT_ERROR_INVALID_ENUMERATION: `0x7 < pHint->flags`
        call.flags(desc.flags.has_unknown(), "pHint->flags")
    }
}

/// The structure whose stype bears another name than it does.
#[repr(transparent)]
struct MaxGroupSize(ze_kernel_max_group_size_properties_ext_t);

// SAFETY: the inner type is a C structure that begins with stype and pNext, and this has its layout.
unsafe impl Chained for MaxGroupSize {
    const STYPE: ze_structure_type_t =
        ze_structure_type_t::ZE_STRUCTURE_TYPE_KERNEL_MAX_GROUP_SIZE_EXT_PROPERTIES;
}

fn describe(kernel: &Kernel, out: &mut ze_kernel_properties_t) {
    let info = kernel.info();
    let [x, y, z] = info.required_group_size.unwrap_or_default();
    let lanes = info.max_subgroup_size.max(1);
    out.numKernelArgs = info.args.len() as u32;
    (out.requiredGroupSizeX, out.requiredGroupSizeY, out.requiredGroupSizeZ) = (x, y, z);
    out.requiredNumSubGroups = 0;
    out.requiredSubgroupSize = info.required_subgroup_size.unwrap_or(0);
    out.maxSubgroupSize = lanes;
    out.maxNumSubgroups = MAX_GROUP_ITEMS.div_ceil(lanes);
    out.localMemSize = info.local_static_bytes;
    out.privateMemSize = info.private_bytes;
    out.spillMemSize = 0;
    out.uuid.mid = kernel.module().uuid();
    out.uuid.kid = (kernel.index() as u128 + 1).to_le_bytes();
}
