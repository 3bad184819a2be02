// SPDX-License-Identifier: MIT OR Apache-2.0
//! The driver's answers as values; `--json` prints them under these names.

use std::ffi::{CStr, c_char};
use std::ptr;

use bitflags::Flags;
use serde::Serialize;
use tally_ze::*;
use ze_tally::api::{Call, device, driver};

use crate::Result;

/// Calls an entry point of the driver; `Err` holds the driver's message, which begins with the function's name.
macro_rules! ask {
    ($function:path, $($argument:expr),* $(,)?) => {{
        // SAFETY: pointers refer to variables and arrays of the caller that live during the call,
        // arrays have the length that is passed with them, and no handle is destroyed.
        let result = unsafe { $function($($argument),*) };
        answer(result)
    }};
}

/// All values that are shown.
#[derive(Serialize)]
pub(crate) struct Info {
    pub(crate) drivers: Vec<Driver>,
}

#[derive(Serialize)]
pub(crate) struct Driver {
    pub(crate) name: &'static str,
    pub(crate) version: String,
    pub(crate) api_version: String,
    pub(crate) uuid: String,
    /// Kinds of objects that can be shared with other processes.
    pub(crate) ipc: Vec<String>,
    /// Folder and size of the cache of built kernels, or the reason why there is none.
    pub(crate) kernel_cache: String,
    pub(crate) extensions: Vec<Extension>,
    pub(crate) devices: Vec<Device>,
}

#[derive(Serialize)]
pub(crate) struct Extension {
    pub(crate) name: String,
    pub(crate) version: String,
}

#[derive(Serialize)]
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) lane: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) flags: Vec<String>,
    pub(crate) vendor_id: u32,
    pub(crate) device_id: u32,
    pub(crate) uuid: String,
    pub(crate) execution_units: u32,
    pub(crate) simd_lanes: u32,
    pub(crate) clock_mhz: u32,
    pub(crate) timer_hz: u64,
    pub(crate) timer_bits: u32,
    pub(crate) kernel_timestamp_bits: u32,
    pub(crate) queues: u32,
    pub(crate) max_group_size: u32,
    pub(crate) max_group_sizes: [u32; 3],
    pub(crate) max_group_counts: [u32; 3],
    pub(crate) local_memory_bytes: u32,
    pub(crate) sub_group_sizes: Vec<u32>,
    pub(crate) spirv_version: String,
    pub(crate) kernel_features: Vec<String>,
    pub(crate) fp16: Vec<String>,
    pub(crate) fp32: Vec<String>,
    pub(crate) fp64: Vec<String>,
    pub(crate) max_arguments_bytes: u32,
    pub(crate) queue_groups: Vec<QueueGroup>,
    pub(crate) memories: Vec<Memory>,
    pub(crate) max_allocation_bytes: u64,
    pub(crate) cache_bytes: Vec<u64>,
    pub(crate) access: Access,
    pub(crate) subdevices: Vec<Device>,
}

#[derive(Serialize)]
pub(crate) struct QueueGroup {
    pub(crate) queues: u32,
    pub(crate) can: Vec<String>,
    pub(crate) max_fill_pattern_bytes: u64,
}

#[derive(Serialize)]
pub(crate) struct Memory {
    pub(crate) name: String,
    pub(crate) bytes: u64,
}

/// Kernels' access to each kind of memory.
#[derive(Serialize)]
pub(crate) struct Access {
    pub(crate) host: Vec<String>,
    pub(crate) device: Vec<String>,
    pub(crate) shared: Vec<String>,
    /// Memory of malloc, the stack and mmap.
    pub(crate) system: Vec<String>,
}

/// Queries all values.
pub(crate) fn info() -> Result<Info> {
    ask!(driver::zeInit, ze_init_flags_t::empty())?;
    let drivers = list(|count, out| ask!(driver::zeDriverGet, count, out))?;
    Ok(Info { drivers: drivers.into_iter().map(driver_info).collect::<Result<_>>()? })
}

fn answer(result: ze_result_t) -> Result<()> {
    if result == ze_result_t::ZE_RESULT_SUCCESS {
        return Ok(());
    }
    // zeDriverGetLastErrorDescription cannot be used, since there may be no driver. SAFETY: the
    // string is valid until this thread's next error.
    let why = unsafe { CStr::from_ptr(ze_tally::error::last()) };
    Err(format!("{result:?}: {}", why.to_string_lossy()).into())
}

/// A list by the two-call protocol.
fn list<T: Default + Clone>(mut get: impl FnMut(*mut u32, *mut T) -> Result<()>) -> Result<Vec<T>> {
    let mut count = 0;
    get(&raw mut count, ptr::null_mut())?;
    let mut all = vec![T::default(); count as usize];
    if count != 0 {
        get(&raw mut count, all.as_mut_ptr())?;
        all.truncate(count as usize);
    }
    Ok(all)
}

fn driver_info(driver: ze_driver_handle_t) -> Result<Driver> {
    let mut properties = ze_driver_properties_t::default();
    ask!(driver::zeDriverGetProperties, driver, &raw mut properties)?;
    let mut api = ze_api_version_t::default();
    ask!(driver::zeDriverGetApiVersion, driver, &raw mut api)?;
    let mut ipc = ze_driver_ipc_properties_t::default();
    ask!(driver::zeDriverGetIpcProperties, driver, &raw mut ipc)?;
    let extensions = list::<ze_driver_extension_properties_t>(|count, out| {
        ask!(driver::zeDriverGetExtensionProperties, driver, count, out)
    })?;
    let devices = list(|count, out| ask!(device::zeDeviceGet, driver, count, out))?;
    let number = properties.driverVersion;
    Ok(Driver {
        name: "Tally",
        version: format!("{}.{}.{}", number >> 24, number >> 16 & 0xff, number & 0xffff),
        api_version: version(api.0),
        uuid: uuid(&properties.uuid.id),
        ipc: names(&ipc.flags, "ZE_IPC_PROPERTY_FLAG_"),
        kernel_cache: ze_tally::core::module::cache::describe(),
        extensions: extensions
            .iter()
            .map(|it| Extension { name: string(&it.name), version: version(it.version) })
            .collect(),
        devices: devices.into_iter().map(device_info).collect::<Result<_>>()?,
    })
}

fn device_info(device: ze_device_handle_t) -> Result<Device> {
    let stype = ze_structure_type_t::ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2;
    let mut info = ze_device_properties_t { stype, ..Default::default() };
    ask!(device::zeDeviceGetProperties, device, &raw mut info)?;
    let mut compute = ze_device_compute_properties_t::default();
    ask!(device::zeDeviceGetComputeProperties, device, &raw mut compute)?;
    let mut module = ze_device_module_properties_t::default();
    ask!(device::zeDeviceGetModuleProperties, device, &raw mut module)?;
    let caches = list::<ze_device_cache_properties_t>(|count, out| {
        ask!(device::zeDeviceGetCacheProperties, device, count, out)
    })?;
    let subdevices = list(|count, out| ask!(device::zeDeviceGetSubDevices, device, count, out))?;
    let fp = |flags| names(&flags, "ZE_DEVICE_FP_FLAG_");
    let sizes = compute.subGroupSizes.iter().take(compute.numSubGroupSizes as usize);
    Ok(Device {
        name: string(&info.name),
        lane: lane(device)?,
        kind: format!("{:?}", info.r#type).replace("ZE_DEVICE_TYPE_", ""),
        flags: names(&info.flags, "ZE_DEVICE_PROPERTY_FLAG_"),
        vendor_id: info.vendorId,
        device_id: info.deviceId,
        uuid: uuid(&info.uuid.id),
        execution_units: info.numSlices * info.numSubslicesPerSlice * info.numEUsPerSubslice,
        simd_lanes: info.physicalEUSimdWidth,
        clock_mhz: info.coreClockRate,
        timer_hz: info.timerResolution,
        timer_bits: info.timestampValidBits,
        kernel_timestamp_bits: info.kernelTimestampValidBits,
        queues: info.maxHardwareContexts,
        max_group_size: compute.maxTotalGroupSize,
        max_group_sizes: [compute.maxGroupSizeX, compute.maxGroupSizeY, compute.maxGroupSizeZ],
        max_group_counts: [compute.maxGroupCountX, compute.maxGroupCountY, compute.maxGroupCountZ],
        local_memory_bytes: compute.maxSharedLocalMemory,
        sub_group_sizes: sizes.copied().collect(),
        spirv_version: version(module.spirvVersionSupported),
        kernel_features: names(&module.flags, "ZE_DEVICE_MODULE_FLAG_"),
        fp16: fp(module.fp16flags),
        fp32: fp(module.fp32flags),
        fp64: fp(module.fp64flags),
        max_arguments_bytes: module.maxArgumentsSize,
        queue_groups: queue_groups(device)?,
        memories: memories(device)?,
        max_allocation_bytes: info.maxMemAllocSize,
        cache_bytes: caches.iter().map(|it| it.cacheSize as u64).collect(),
        access: access(device)?,
        subdevices: subdevices.into_iter().map(device_info).collect::<Result<_>>()?,
    })
}

/// The lane by which the driver reaches the device.
fn lane(device: ze_device_handle_t) -> Result<String> {
    // SAFETY: used only for a handle that the driver returned and that lives as long as the process.
    let call = unsafe { Call::new() };
    let device = call.handle(device, "hDevice").map_err(|error| error.to_string())?;
    Ok(device.backend().lane().to_owned())
}

fn queue_groups(device: ze_device_handle_t) -> Result<Vec<QueueGroup>> {
    let groups = list::<ze_command_queue_group_properties_t>(|count, out| {
        ask!(device::zeDeviceGetCommandQueueGroupProperties, device, count, out)
    })?;
    let group = |it: &ze_command_queue_group_properties_t| QueueGroup {
        queues: it.numQueues,
        can: names(&it.flags, "ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_"),
        max_fill_pattern_bytes: it.maxMemoryFillPatternSize as u64,
    };
    Ok(groups.iter().map(group).collect())
}

fn memories(device: ze_device_handle_t) -> Result<Vec<Memory>> {
    let memories = list::<ze_device_memory_properties_t>(|count, out| {
        ask!(device::zeDeviceGetMemoryProperties, device, count, out)
    })?;
    Ok(memories.iter().map(|it| Memory { name: string(&it.name), bytes: it.totalSize }).collect())
}

fn access(device: ze_device_handle_t) -> Result<Access> {
    let mut it = ze_device_memory_access_properties_t::default();
    ask!(device::zeDeviceGetMemoryAccessProperties, device, &raw mut it)?;
    let names = |flags| names(&flags, "ZE_MEMORY_ACCESS_CAP_FLAG_");
    Ok(Access {
        host: names(it.hostAllocCapabilities),
        device: names(it.deviceAllocCapabilities),
        shared: names(it.sharedSingleDeviceAllocCapabilities),
        system: names(it.sharedSystemAllocCapabilities),
    })
}

/// A version as Level Zero encodes it.
fn version(number: u32) -> String {
    format!("{}.{}", number >> 16, number & 0xffff)
}

fn uuid(bytes: &[u8]) -> String {
    let digits = bytes.iter().enumerate().map(|(i, byte)| {
        let dash = if matches!(i, 4 | 6 | 8 | 10) { "-" } else { "" };
        format!("{dash}{byte:02x}")
    });
    digits.collect()
}

/// Names of the flags that are set, in lower case and without their common prefix.
fn names(flags: &impl Flags, prefix: &str) -> Vec<String> {
    let short = |name: &str| name.strip_prefix(prefix).unwrap_or(name).to_lowercase();
    flags.iter_names().map(|(name, _)| short(name).replace('_', " ")).collect()
}

/// The text in an array that ends with a NUL.
fn string(chars: &[c_char]) -> String {
    let bytes = chars.iter().map(|&it| it as u8).take_while(|&it| it != 0);
    String::from_utf8_lossy(&bytes.collect::<Vec<_>>()).into_owned()
}
