// SPDX-License-Identifier: MIT OR Apache-2.0
//! Initialisation and the driver object.

use std::ffi::{CStr, c_char, c_void};
use std::time::Duration;

use tally_ze::{
    Chained, ZE_MAX_EXTENSION_NAME, make_version, ze_api_version_t,
    ze_driver_ddi_handle_ext_flags_t, ze_driver_ddi_handles_ext_properties_t,
    ze_driver_extension_properties_t, ze_driver_handle_t, ze_driver_ipc_properties_t,
    ze_driver_memory_free_ext_properties_t, ze_driver_memory_free_policy_ext_flags_t,
    ze_driver_properties_t, ze_init_driver_type_desc_t, ze_init_driver_type_flags_t,
    ze_init_flags_t, ze_ipc_property_flags_t, ze_result_t,
};

use super::{Call, api};
use crate::core::driver::Driver;
use crate::ddi;
use crate::error::{self, Error, Result};
use crate::record::settle::{self, Settled};
use crate::{handle, settings};

/// The version of the specification that the driver's functions and structures follow.
pub(crate) const VERSION: ze_api_version_t = ze_api_version_t::ZE_API_VERSION_1_17;

/// An extension, and the functions without which it is not offered.
struct Extension {
    name: &'static str,
    version: u32,
    needs: &'static [&'static str],
}

const fn extension(name: &'static str, needs: &'static [&'static str]) -> Extension {
    Extension { name, version: make_version(1, 0), needs }
}

/// Extensions that the driver knows; each is offered if its functions exist.
const EXTENSIONS: &[Extension] = &[
    extension(tally_ze::ZE_EVENT_POOL_COUNTER_BASED_EXP_NAME, &["zeEventPoolCreate"]),
    extension(tally_ze::zex::ZEX_COUNTER_BASED_EVENT_EXT_NAME, &["zexCounterBasedEventCreate2"]),
    Extension {
        name: tally_ze::ZE_DRIVER_DDI_HANDLES_EXT_NAME,
        version: make_version(1, 1),
        needs: &[],
    },
    extension(tally_ze::ZE_FLOAT_ATOMICS_EXT_NAME, &["zeDeviceGetModuleProperties"]),
    extension(tally_ze::ZE_SUBGROUPS_EXT_NAME, &["zeModuleCreate"]),
    extension(tally_ze::ZE_BFLOAT16_CONVERSIONS_EXT_NAME, &["zeModuleCreate"]),
    extension(tally_ze::ZE_GLOBAL_OFFSET_EXP_NAME, &["zeKernelSetGlobalOffsetExp"]),
    extension(tally_ze::ZE_LINKAGE_INSPECTION_EXT_NAME, &["zeModuleInspectLinkageExt"]),
    extension(tally_ze::ZE_MODULE_PROGRAM_EXP_NAME, &["zeModuleDynamicLink"]),
    extension(tally_ze::ZE_KERNEL_SCHEDULING_HINTS_EXP_NAME, &["zeKernelSchedulingHintExp"]),
    extension(tally_ze::ZE_KERNEL_MAX_GROUP_SIZE_PROPERTIES_EXT_NAME, &["zeKernelGetProperties"]),
    extension(tally_ze::ZE_RELAXED_ALLOCATION_LIMITS_EXP_NAME, &["zeMemAllocDevice"]),
    extension(tally_ze::ZE_MEMORY_FREE_POLICIES_EXT_NAME, &["zeMemFreeExt"]),
    extension(tally_ze::ZE_IPC_MEM_HANDLE_TYPE_EXT_NAME, &["zeMemGetIpcHandleWithProperties"]),
    extension(
        tally_ze::ZE_EXTERNAL_SEMAPHORES_EXTENSION_NAME,
        &["zeDeviceImportExternalSemaphoreExt"],
    ),
    extension(tally_ze::ZE_DEVICE_VECTOR_SIZES_EXT_NAME, &["zeDeviceGetVectorWidthPropertiesExt"]),
    extension(tally_ze::ZE_PCI_PROPERTIES_EXT_NAME, &["zeDevicePciGetPropertiesExt"]),
    extension(tally_ze::ZE_IMAGE_COPY_EXT_NAME, &["zeCommandListAppendImageCopyToMemoryExt"]),
    extension(tally_ze::ZE_IMAGE_VIEW_EXT_NAME, &["zeImageViewCreateExt"]),
    extension(tally_ze::ZE_IMAGE_VIEW_EXP_NAME, &["zeImageViewCreateExp"]),
    extension(tally_ze::ZE_IMAGE_MEMORY_PROPERTIES_EXP_NAME, &["zeImageGetMemoryPropertiesExp"]),
    extension(
        tally_ze::ZE_IMAGE_QUERY_ALLOC_PROPERTIES_EXT_NAME,
        &["zeImageGetAllocPropertiesExt"],
    ),
    extension(tally_ze::ZE_SRGB_EXT_NAME, &["zeImageCreate"]),
    extension(tally_ze::ZE_IMAGE_FORMAT_SUPPORT_EXT_NAME, &["zeImageGetProperties"]),
    extension(tally_ze::ZE_BINDLESS_IMAGE_EXP_NAME, &["zeImageGetDeviceOffsetExp"]),
    extension(tally_ze::ZE_EU_COUNT_EXT_NAME, &["zeDeviceGetProperties"]),
    extension(tally_ze::ZE_DEVICE_IP_VERSION_EXT_NAME, &["zeDeviceGetProperties"]),
    extension(tally_ze::ZE_DEVICE_USABLEMEM_SIZE_PROPERTIES_EXT_NAME, &["zeDeviceGetProperties"]),
    extension(tally_ze::ZE_VIRTUAL_MEM_READONLY_PROPERTIES_EXT_NAME, &["zeDeviceGetProperties"]),
    extension(tally_ze::ZE_CACHELINE_SIZE_EXT_NAME, &["zeDeviceGetCacheProperties"]),
    extension(tally_ze::ZE_EVENT_QUERY_TIMESTAMPS_EXP_NAME, &["zeEventQueryTimestampsExp"]),
    extension(
        tally_ze::ZE_EVENT_QUERY_KERNEL_TIMESTAMPS_EXT_NAME,
        &["zeEventQueryKernelTimestampsExt"],
    ),
    extension(tally_ze::ZE_COMMAND_LIST_CLONE_EXP_NAME, &["zeCommandListCreateCloneExp"]),
    Extension {
        name: tally_ze::ZE_MUTABLE_COMMAND_LIST_EXP_NAME,
        version: make_version(1, 1),
        needs: &[
            "zeCommandListGetNextCommandIdWithKernelsExp",
            "zeCommandListUpdateMutableCommandsExp",
        ],
    },
    extension(
        tally_ze::ZE_RECORD_REPLAY_GRAPH_EXT_NAME,
        &["zeCommandListBeginGraphCaptureExt", "zeCommandListAppendGraphExt"],
    ),
    // The extension's former name.
    extension("ZE_experimental_record_replay_graph", &["zeGraphCreateExp"]),
    extension(
        tally_ze::ZE_IMMEDIATE_COMMAND_LIST_APPEND_EXP_NAME,
        &["zeCommandListImmediateAppendCommandListsExp"],
    ),
];

fn extensions(driver: &Driver) -> Vec<ze_driver_extension_properties_t> {
    let offered =
        EXTENSIONS.iter().filter(|it| it.needs.iter().all(|name| ddi::lookup(name).is_some()));
    // Semaphores are objects of a kernel, which not every lane has.
    let has_semaphores = driver.devices().iter().any(|it| it.backend().syncobjs().is_some());
    let offered = offered
        .filter(|it| has_semaphores || it.name != tally_ze::ZE_EXTERNAL_SEMAPHORES_EXTENSION_NAME);
    offered
        .map(|it| {
            let mut name = [0; ZE_MAX_EXTENSION_NAME];
            for (to, from) in name.iter_mut().zip(it.name.bytes()) {
                *to = from as c_char;
            }
            ze_driver_extension_properties_t { name, version: it.version }
        })
        .collect()
}

api! { always
    /// Spec: `zeInit`.
    fn zeInit(call, flags: ze_init_flags_t) {
        call.flags(flags.has_unknown(), "flags")?;
        if flags == ze_init_flags_t::ZE_INIT_FLAG_VPU_ONLY {
            return Err(Error::new(
                ze_result_t::ZE_RESULT_ERROR_UNINITIALIZED,
                "flags: only VPUs are asked for, and this driver has GPUs only",
            ));
        }
        ddi::dispatch::install();
        Driver::init().map(drop)
    }

    /// Spec: `zeInitDrivers`.
    fn zeInitDrivers(
        call,
        pCount: *mut u32,
        phDrivers: *mut ze_driver_handle_t,
        desc: *mut ze_init_driver_type_desc_t,
    ) {
        call.in_out(pCount, "pCount")?;
        let desc = call.properties(desc, "desc")?;
        // All bits set is ZE_INIT_ALL_DRIVER_TYPES.
        let all = desc.flags.bits() == u32::MAX;
        if desc.flags.is_empty() || (desc.flags.has_unknown() && !all) {
            return Err(Error::new(
                ze_result_t::ZE_RESULT_ERROR_INVALID_ENUMERATION,
                "desc->flags: none, or a bit that has no meaning, is set",
            ));
        }
        if !desc.flags.contains(ze_init_driver_type_flags_t::ZE_INIT_DRIVER_TYPE_FLAG_GPU) {
            return call.list(pCount, phDrivers, "pCount", []);
        }
        ddi::dispatch::install();
        call.list(pCount, phDrivers, "pCount", [Driver::init()?])
    }

    /// Spec: `zeDriverGetLastErrorDescription`. Of the calling thread; valid until its next error.
    fn zeDriverGetLastErrorDescription(
        call,
        hDriver: ze_driver_handle_t,
        ppString: *mut *const c_char,
    ) {
        call.handle(hDriver, "hDriver")?;
        call.out(ppString, "ppString")?.set(error::last());
        Ok(())
    }
}

api! {
    /// Spec: `zeDriverGet`.
    fn zeDriverGet(call, pCount: *mut u32, phDrivers: *mut ze_driver_handle_t) {
        call.list(pCount, phDrivers, "pCount", Driver::get().as_slice().iter().copied())
    }

    /// Spec: `zeDriverGetApiVersion`.
    fn zeDriverGetApiVersion(call, hDriver: ze_driver_handle_t, version: *mut ze_api_version_t) {
        call.handle(hDriver, "hDriver")?;
        call.out(version, "version")?.set(VERSION);
        Ok(())
    }

    /// Spec: `zeDriverGetProperties`.
    fn zeDriverGetProperties(
        call,
        hDriver: ze_driver_handle_t,
        pDriverProperties: *mut ze_driver_properties_t,
    ) {
        call.handle(hDriver, "hDriver")?;
        let (properties, chain) =
            call.named_properties(pDriverProperties, "pDriverProperties", &[])?;
        properties.uuid.id = Driver::uuid();
        properties.driverVersion = Driver::version();
        for link in chain {
            if link.stype() == ze_driver_ddi_handles_ext_properties_t::STYPE {
                if let Some(out) = link.get_mut::<ze_driver_ddi_handles_ext_properties_t>() {
                    out.flags = ze_driver_ddi_handle_ext_flags_t::all();
                }
            } else if let Some(out) = link.get_mut::<ze_driver_memory_free_ext_properties_t>() {
                out.freePolicies = ze_driver_memory_free_policy_ext_flags_t::all();
            }
        }
        Ok(())
    }

    /// Spec: `zeDriverGetIpcProperties`. Everything is supported if the system has files for memory.
    fn zeDriverGetIpcProperties(
        call,
        hDriver: ze_driver_handle_t,
        pIpcProperties: *mut ze_driver_ipc_properties_t,
    ) {
        use ze_ipc_property_flags_t as flags;
        let driver = call.handle(hDriver, "hDriver")?;
        let properties = call.properties(pIpcProperties, "pIpcProperties")?;
        properties.flags = flags::empty();
        if driver.devices().iter().any(|it| it.can_share()) {
            properties.flags =
                flags::ZE_IPC_PROPERTY_FLAG_MEMORY | flags::ZE_IPC_PROPERTY_FLAG_EVENT_POOL;
        }
        Ok(())
    }

    /// Spec: `zeDriverGetExtensionProperties`.
    fn zeDriverGetExtensionProperties(
        call,
        hDriver: ze_driver_handle_t,
        pCount: *mut u32,
        pExtensionProperties: *mut ze_driver_extension_properties_t,
    ) {
        let driver = call.handle(hDriver, "hDriver")?;
        call.list(pCount, pExtensionProperties, "pCount", extensions(driver))
    }

    /// Spec: `zeDriverGetExtensionFunctionAddress`. Finds core functions, too.
    fn zeDriverGetExtensionFunctionAddress(
        call,
        hDriver: ze_driver_handle_t,
        name: *const c_char,
        ppFunctionAddress: *mut *mut c_void,
    ) {
        call.handle(hDriver, "hDriver")?;
        function_address(call, name, ppFunctionAddress)
    }
}

/// Functions that only `tally-replay` gets.
fn for_replays(name: &CStr) -> Option<*const c_void> {
    match name.to_bytes() {
        _ if !settings::get().replay => None,
        b"tallyPlaceNext" => Some(place_next as *const c_void),
        b"tallySettle" => Some(settle_all as *const c_void),
        _ => None,
    }
}

/// The next allocation of this thread lies at this address, or fails.
unsafe extern "C" fn place_next(address: u64) -> ze_result_t {
    crate::space::place_next(address);
    ze_result_t::ZE_RESULT_SUCCESS
}

/// Waits until nothing is left that the first device could run, for no longer than so many milliseconds; NOT_READY: it
/// waits for a function of the host.
unsafe extern "C" fn settle_all(patience: u64) -> ze_result_t {
    // SAFETY: takes a number, and devices live as long as the process.
    let device = unsafe {
        let first = super::runtime::zerTranslateIdentifierToDeviceHandle(0);
        handle::get(first, "")
    };
    let vm = device.ok().and_then(|device| device.gpu().vm());
    match vm.map(|vm| settle::settle(&vm, Duration::from_millis(patience))) {
        Some(Settled::Calls) => ze_result_t::ZE_RESULT_NOT_READY,
        _ => ze_result_t::ZE_RESULT_SUCCESS,
    }
}

/// Looks up a function of the core or of an extension.
pub(super) fn function_address(
    call: Call<'_>,
    name: *const c_char,
    out: *mut *mut c_void,
) -> Result {
    let name = call.c_str(name, "name")?;
    let out = call.out(out, "ppFunctionAddress")?;
    let address = name.to_str().ok().and_then(ddi::lookup);
    let address = address
        .or_else(|| for_replays(name))
        .ok_or_else(|| Error::invalid(format!("name: the driver has no function {name:?}")))?;
    out.set(address.cast_mut());
    Ok(())
}
