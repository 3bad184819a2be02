// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one list of functions that the driver implements.
//!
//! A line here puts a function into its table and makes it known to
//! `zeDriverGetExtensionFunctionAddress`. The function must have the type that
//! `tally_ze::functions` has under its name, or the list does not compile.

use core::ffi::c_void;

use super::sysman;
use crate::api::{
    context, device, driver, event, fence, image, ipc, kernel, list, memory, module, queue,
    sampler, virtual_memory,
};

/// `name => path` lines to [`IMPLEMENTED`] and [`lookup`]. A name given twice does not compile.
macro_rules! implemented {
    ($($name:ident => $function:path,)*) => {
        /// The names of all implemented functions.
        pub const IMPLEMENTED: &[&str] = &[$(stringify!($name)),*];

        /// The driver's function of this name, core or `zex`; `None` if there is none.
        pub fn lookup(name: &str) -> Option<*const c_void> {
            match name {
                $(stringify!($name) => {
                    let function: tally_ze::functions::$name = $function;
                    Some(function as *const c_void)
                })*
                _ => None,
            }
        }
    };
}

implemented! {
    // driver
    zeInit => driver::zeInit,
    zeInitDrivers => driver::zeInitDrivers,
    zeDriverGetLastErrorDescription => driver::zeDriverGetLastErrorDescription,
    zeDriverGet => driver::zeDriverGet,
    zeDriverGetApiVersion => driver::zeDriverGetApiVersion,
    zeDriverGetProperties => driver::zeDriverGetProperties,
    zeDriverGetIpcProperties => driver::zeDriverGetIpcProperties,
    zeDriverGetExtensionProperties => driver::zeDriverGetExtensionProperties,
    zeDriverGetExtensionFunctionAddress => driver::zeDriverGetExtensionFunctionAddress,
    // device
    zeDeviceGet => device::zeDeviceGet,
    zeDeviceGetRootDevice => device::zeDeviceGetRootDevice,
    zeDeviceGetSubDevices => device::zeDeviceGetSubDevices,
    zeDeviceGetProperties => device::zeDeviceGetProperties,
    zeDeviceGetComputeProperties => device::zeDeviceGetComputeProperties,
    zeDeviceGetModuleProperties => device::zeDeviceGetModuleProperties,
    zeDeviceGetCommandQueueGroupProperties => device::zeDeviceGetCommandQueueGroupProperties,
    zeDeviceGetMemoryProperties => device::zeDeviceGetMemoryProperties,
    zeDeviceGetMemoryAccessProperties => device::zeDeviceGetMemoryAccessProperties,
    zeDeviceGetCacheProperties => device::zeDeviceGetCacheProperties,
    zeDeviceGetImageProperties => device::zeDeviceGetImageProperties,
    zeDeviceGetExternalMemoryProperties => device::zeDeviceGetExternalMemoryProperties,
    zeDeviceGetP2PProperties => device::zeDeviceGetP2PProperties,
    zeDeviceCanAccessPeer => device::zeDeviceCanAccessPeer,
    zeDeviceGetStatus => device::zeDeviceGetStatus,
    zeDeviceGetGlobalTimestamps => device::zeDeviceGetGlobalTimestamps,
    zeDevicePciGetPropertiesExt => device::zeDevicePciGetPropertiesExt,
    zeDeviceGetVectorWidthPropertiesExt => device::zeDeviceGetVectorWidthPropertiesExt,
    // context
    zeContextCreate => context::zeContextCreate,
    zeContextCreateEx => context::zeContextCreateEx,
    zeContextDestroy => context::zeContextDestroy,
    zeContextGetStatus => context::zeContextGetStatus,
    zeContextSystemBarrier => context::zeContextSystemBarrier,
    zeContextMakeMemoryResident => context::zeContextMakeMemoryResident,
    zeContextEvictMemory => context::zeContextEvictMemory,
    zeContextMakeImageResident => context::zeContextMakeImageResident,
    zeContextEvictImage => context::zeContextEvictImage,
    // memory
    zeMemAllocShared => memory::zeMemAllocShared,
    zeMemAllocDevice => memory::zeMemAllocDevice,
    zeMemAllocHost => memory::zeMemAllocHost,
    zeMemFree => memory::zeMemFree,
    zeMemFreeExt => memory::zeMemFreeExt,
    zeMemGetAllocProperties => memory::zeMemGetAllocProperties,
    zeMemGetAddressRange => memory::zeMemGetAddressRange,
    // images and samplers
    zeImageGetProperties => image::zeImageGetProperties,
    zeImageCreate => image::zeImageCreate,
    zeImageDestroy => image::zeImageDestroy,
    zeImageViewCreateExt => image::zeImageViewCreateExt,
    zeImageViewCreateExp => image::zeImageViewCreateExp,
    zeImageGetMemoryPropertiesExp => image::zeImageGetMemoryPropertiesExp,
    zeImageGetAllocPropertiesExt => image::zeImageGetAllocPropertiesExt,
    zeImageGetDeviceOffsetExp => image::zeImageGetDeviceOffsetExp,
    zeMemGetPitchFor2dImage => image::zeMemGetPitchFor2dImage,
    zeSamplerCreate => sampler::zeSamplerCreate,
    zeSamplerDestroy => sampler::zeSamplerDestroy,
    // virtual memory
    zeVirtualMemReserve => virtual_memory::zeVirtualMemReserve,
    zeVirtualMemFree => virtual_memory::zeVirtualMemFree,
    zeVirtualMemQueryPageSize => virtual_memory::zeVirtualMemQueryPageSize,
    zePhysicalMemCreate => virtual_memory::zePhysicalMemCreate,
    zePhysicalMemGetProperties => virtual_memory::zePhysicalMemGetProperties,
    zePhysicalMemDestroy => virtual_memory::zePhysicalMemDestroy,
    zeVirtualMemMap => virtual_memory::zeVirtualMemMap,
    zeVirtualMemUnmap => virtual_memory::zeVirtualMemUnmap,
    zeVirtualMemSetAccessAttribute => virtual_memory::zeVirtualMemSetAccessAttribute,
    zeVirtualMemGetAccessAttribute => virtual_memory::zeVirtualMemGetAccessAttribute,
    // module
    zeModuleCreate => module::zeModuleCreate,
    zeModuleDestroy => module::zeModuleDestroy,
    zeModuleDynamicLink => module::zeModuleDynamicLink,
    zeModuleBuildLogDestroy => module::zeModuleBuildLogDestroy,
    zeModuleBuildLogGetString => module::zeModuleBuildLogGetString,
    zeModuleGetGlobalPointer => module::zeModuleGetGlobalPointer,
    zeModuleGetKernelNames => module::zeModuleGetKernelNames,
    zeModuleGetProperties => module::zeModuleGetProperties,
    // kernel
    zeKernelCreate => kernel::zeKernelCreate,
    zeKernelDestroy => kernel::zeKernelDestroy,
    zeKernelSetGroupSize => kernel::zeKernelSetGroupSize,
    zeKernelSuggestGroupSize => kernel::zeKernelSuggestGroupSize,
    zeKernelSuggestMaxCooperativeGroupCount => kernel::zeKernelSuggestMaxCooperativeGroupCount,
    zeKernelSetArgumentValue => kernel::zeKernelSetArgumentValue,
    zeKernelSetIndirectAccess => kernel::zeKernelSetIndirectAccess,
    zeKernelGetIndirectAccess => kernel::zeKernelGetIndirectAccess,
    zeKernelGetSourceAttributes => kernel::zeKernelGetSourceAttributes,
    zeKernelSetCacheConfig => kernel::zeKernelSetCacheConfig,
    zeKernelGetProperties => kernel::zeKernelGetProperties,
    zeKernelGetName => kernel::zeKernelGetName,
    zeKernelSetGlobalOffsetExp => kernel::zeKernelSetGlobalOffsetExp,
    zeKernelSchedulingHintExp => kernel::zeKernelSchedulingHintExp,
    // queue
    zeCommandQueueCreate => queue::zeCommandQueueCreate,
    zeCommandQueueDestroy => queue::zeCommandQueueDestroy,
    zeCommandQueueExecuteCommandLists => queue::zeCommandQueueExecuteCommandLists,
    zeCommandQueueSynchronize => queue::zeCommandQueueSynchronize,
    zeCommandQueueGetOrdinal => queue::zeCommandQueueGetOrdinal,
    zeCommandQueueGetIndex => queue::zeCommandQueueGetIndex,
    zeCommandQueueGetFlags => queue::zeCommandQueueGetFlags,
    zeCommandQueueGetMode => queue::zeCommandQueueGetMode,
    zeCommandQueueGetPriority => queue::zeCommandQueueGetPriority,
    zeDeviceSynchronize => queue::zeDeviceSynchronize,
    // fence
    zeFenceCreate => fence::zeFenceCreate,
    zeFenceDestroy => fence::zeFenceDestroy,
    zeFenceHostSynchronize => fence::zeFenceHostSynchronize,
    zeFenceQueryStatus => fence::zeFenceQueryStatus,
    zeFenceReset => fence::zeFenceReset,
    // command list
    zeCommandListCreate => list::zeCommandListCreate,
    zeCommandListCreateCloneExp => list::zeCommandListCreateCloneExp,
    zeCommandListCreateImmediate => list::zeCommandListCreateImmediate,
    zeCommandListDestroy => list::zeCommandListDestroy,
    zeCommandListClose => list::zeCommandListClose,
    zeCommandListReset => list::zeCommandListReset,
    zeCommandListHostSynchronize => list::zeCommandListHostSynchronize,
    zeCommandListImmediateAppendCommandListsExp => list::zeCommandListImmediateAppendCommandListsExp,
    zeCommandListImmediateAppendCommandListsWithParameters => list::zeCommandListImmediateAppendCommandListsWithParameters,
    zeCommandListGetDeviceHandle => list::zeCommandListGetDeviceHandle,
    zeCommandListGetContextHandle => list::zeCommandListGetContextHandle,
    zeCommandListGetOrdinal => list::zeCommandListGetOrdinal,
    zeCommandListIsImmediate => list::zeCommandListIsImmediate,
    zeCommandListGetFlags => list::zeCommandListGetFlags,
    zeCommandListImmediateGetIndex => list::zeCommandListImmediateGetIndex,
    zeCommandListImmediateGetFlags => list::zeCommandListImmediateGetFlags,
    zeCommandListImmediateGetMode => list::zeCommandListImmediateGetMode,
    zeCommandListImmediateGetPriority => list::zeCommandListImmediateGetPriority,
    // command list: events
    zeCommandListAppendBarrier => list::event::zeCommandListAppendBarrier,
    zeCommandListAppendMemoryRangesBarrier => list::event::zeCommandListAppendMemoryRangesBarrier,
    zeCommandListAppendSignalEvent => list::event::zeCommandListAppendSignalEvent,
    zeCommandListAppendWaitOnEvents => list::event::zeCommandListAppendWaitOnEvents,
    zeCommandListAppendEventReset => list::event::zeCommandListAppendEventReset,
    zeCommandListAppendWriteGlobalTimestamp => list::event::zeCommandListAppendWriteGlobalTimestamp,
    zeCommandListAppendQueryKernelTimestamps => list::event::zeCommandListAppendQueryKernelTimestamps,
    // command list: memory
    zeCommandListAppendMemoryCopy => list::copy::zeCommandListAppendMemoryCopy,
    zeCommandListAppendMemoryCopyWithParameters => list::copy::zeCommandListAppendMemoryCopyWithParameters,
    zeCommandListAppendMemoryCopyFromContext => list::copy::zeCommandListAppendMemoryCopyFromContext,
    zeCommandListAppendMemoryFill => list::copy::zeCommandListAppendMemoryFill,
    zeCommandListAppendMemoryFillWithParameters => list::copy::zeCommandListAppendMemoryFillWithParameters,
    zeCommandListAppendMemoryCopyRegion => list::copy::zeCommandListAppendMemoryCopyRegion,
    zeCommandListAppendMemoryPrefetch => list::copy::zeCommandListAppendMemoryPrefetch,
    zeCommandListAppendMemAdvise => list::copy::zeCommandListAppendMemAdvise,
    // command list: images
    zeCommandListAppendImageCopy => list::image::zeCommandListAppendImageCopy,
    zeCommandListAppendImageCopyRegion => list::image::zeCommandListAppendImageCopyRegion,
    zeCommandListAppendImageCopyToMemory => list::image::zeCommandListAppendImageCopyToMemory,
    zeCommandListAppendImageCopyToMemoryExt => list::image::zeCommandListAppendImageCopyToMemoryExt,
    zeCommandListAppendImageCopyFromMemory => list::image::zeCommandListAppendImageCopyFromMemory,
    zeCommandListAppendImageCopyFromMemoryExt => list::image::zeCommandListAppendImageCopyFromMemoryExt,
    // command list: kernels
    zeCommandListAppendLaunchKernel => list::launch::zeCommandListAppendLaunchKernel,
    zeCommandListAppendLaunchKernelWithParameters => list::launch::zeCommandListAppendLaunchKernelWithParameters,
    zeCommandListAppendLaunchKernelWithArguments => list::launch::zeCommandListAppendLaunchKernelWithArguments,
    zeCommandListAppendLaunchCooperativeKernel => list::launch::zeCommandListAppendLaunchCooperativeKernel,
    zeCommandListAppendLaunchKernelIndirect => list::launch::zeCommandListAppendLaunchKernelIndirect,
    zeCommandListAppendLaunchMultipleKernelsIndirect => list::launch::zeCommandListAppendLaunchMultipleKernelsIndirect,
    // command list: host functions
    zeCommandListAppendHostFunction => list::host::zeCommandListAppendHostFunction,
    // event
    zeEventPoolCreate => event::zeEventPoolCreate,
    zeEventPoolDestroy => event::zeEventPoolDestroy,
    zeEventPoolGetContextHandle => event::zeEventPoolGetContextHandle,
    zeEventPoolGetFlags => event::zeEventPoolGetFlags,
    zeEventCreate => event::zeEventCreate,
    zeEventDestroy => event::zeEventDestroy,
    zeEventHostSignal => event::zeEventHostSignal,
    zeEventHostReset => event::zeEventHostReset,
    zeEventHostSynchronize => event::zeEventHostSynchronize,
    zeEventQueryStatus => event::zeEventQueryStatus,
    zeEventQueryKernelTimestamp => event::zeEventQueryKernelTimestamp,
    zeEventQueryTimestampsExp => event::zeEventQueryTimestampsExp,
    zeEventQueryKernelTimestampsExt => event::zeEventQueryKernelTimestampsExt,
    zeEventGetEventPool => event::zeEventGetEventPool,
    zeEventGetSignalScope => event::zeEventGetSignalScope,
    zeEventGetWaitScope => event::zeEventGetWaitScope,
    // counter-based event
    zeEventCounterBasedCreate => event::counter_based::zeEventCounterBasedCreate,
    zeEventCounterBasedGetDeviceAddress => event::counter_based::zeEventCounterBasedGetDeviceAddress,
    zeEventGetCounterBasedFlags => event::counter_based::zeEventGetCounterBasedFlags,
    zeDeviceGetCounterBasedEventMaxValue => event::counter_based::zeDeviceGetCounterBasedEventMaxValue,
    zeDeviceGetAggregatedCopyOffloadIncrementValue => event::counter_based::zeDeviceGetAggregatedCopyOffloadIncrementValue,
    zexDeviceGetAggregatedCopyOffloadIncrementValue => event::counter_based::zexDeviceGetAggregatedCopyOffloadIncrementValue,
    zexCounterBasedEventCreate2 => event::counter_based::zexCounterBasedEventCreate2,
    zexCounterBasedEventCreate => event::counter_based::zexCounterBasedEventCreate,
    zexEventGetDeviceAddress => event::counter_based::zexEventGetDeviceAddress,
    // sharing with other processes
    zeMemGetIpcHandle => ipc::zeMemGetIpcHandle,
    zeMemGetIpcHandleWithProperties => ipc::zeMemGetIpcHandleWithProperties,
    zeMemPutIpcHandle => ipc::zeMemPutIpcHandle,
    zeMemOpenIpcHandle => ipc::zeMemOpenIpcHandle,
    zeMemCloseIpcHandle => ipc::zeMemCloseIpcHandle,
    zeMemGetFileDescriptorFromIpcHandleExp => ipc::zeMemGetFileDescriptorFromIpcHandleExp,
    zeMemGetIpcHandleFromFileDescriptorExp => ipc::zeMemGetIpcHandleFromFileDescriptorExp,
    zeEventPoolGetIpcHandle => ipc::zeEventPoolGetIpcHandle,
    zeEventPoolPutIpcHandle => ipc::zeEventPoolPutIpcHandle,
    zeEventPoolOpenIpcHandle => ipc::zeEventPoolOpenIpcHandle,
    zeEventPoolCloseIpcHandle => ipc::zeEventPoolCloseIpcHandle,
    zeEventCounterBasedGetIpcHandle => ipc::zeEventCounterBasedGetIpcHandle,
    zeEventCounterBasedOpenIpcHandle => ipc::zeEventCounterBasedOpenIpcHandle,
    zeEventCounterBasedCloseIpcHandle => ipc::zeEventCounterBasedCloseIpcHandle,
    zexCounterBasedEventGetIpcHandle => ipc::zexCounterBasedEventGetIpcHandle,
    zexCounterBasedEventOpenIpcHandle => ipc::zexCounterBasedEventOpenIpcHandle,
    zexCounterBasedEventCloseIpcHandle => ipc::zexCounterBasedEventCloseIpcHandle,
    // sysman
    zesInit => sysman::zesInit,
    zesDriverGet => sysman::zesDriverGet,
}
