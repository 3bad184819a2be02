// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices and their properties.

use std::ffi::c_char;

use tally_compiler_protocol::SUBGROUP_SIZES;
use tally_uapi::eu::{MAX_GROUP_ITEMS, MAX_LOCAL_BYTES};
use tally_uapi::image;
use tally_uapi::ioctl::engine_capability;
use tally_uapi::packet::MAX_FILL_PATTERN;
use tally_ze::*;

use super::api;
use super::memory::external;
use crate::core::device::Device;
use crate::core::host_clock;
use crate::core::list::mutable::MUTABLE;
use crate::core::sysman::Memory;
use crate::error::Result;
use crate::identity::{INTEL, Identity, OWN_IP_VERSION};
use crate::settings;

/// The most bytes of a kernel's arguments.
pub const MAX_ARGUMENT_BYTES: u32 = 4096;

/// Valid bits of kernel timestamps in the device's properties. The device counts with 64 bits. Clients
/// compute the mask as `(1 << bits) - 1`, which 64 would break, and 63 bits last for 292 years.
const KERNEL_TIMESTAMP_BITS: u32 = 63;

/// Images and samplers that every kernel can have as arguments. More work as well, up to the limit of the
/// arguments' bytes.
const IMAGE_ARGS: u32 = 128;
const SAMPLERS: u32 = 16;

/// The largest row pitch in bytes of an image in memory that the program has allocated.
const MAX_PITCH: usize = 1 << 30;

api! {
    /// Spec: `zeDeviceGet`.
    fn zeDeviceGet(
        call,
        hDriver: ze_driver_handle_t,
        pCount: *mut u32,
        phDevices: *mut ze_device_handle_t,
    ) {
        let driver = call.handle(hDriver, "hDriver")?;
        call.list(pCount, phDevices, "pCount", driver.devices().iter().map(|it| it.raw()))
    }

    /// Spec: `zeDeviceGetRootDevice`. A root device answers null.
    fn zeDeviceGetRootDevice(
        call,
        hDevice: ze_device_handle_t,
        phRootDevice: *mut ze_device_handle_t,
    ) {
        let root = call.handle(hDevice, "hDevice")?.parent();
        let out = call.out(phRootDevice, "phRootDevice")?;
        out.set(root.map_or(ze_device_handle_t::NULL, Device::raw));
        Ok(())
    }

    /// Spec: `zeDeviceGetSubDevices`.
    fn zeDeviceGetSubDevices(
        call,
        hDevice: ze_device_handle_t,
        pCount: *mut u32,
        phSubdevices: *mut ze_device_handle_t,
    ) {
        let device = call.handle(hDevice, "hDevice")?;
        call.list(pCount, phSubdevices, "pCount", device.parts().iter().map(|it| it.raw()))
    }

    /// Spec: `zeDeviceGetProperties`.
    fn zeDeviceGetProperties(
        call,
        hDevice: ze_device_handle_t,
        pDeviceProperties: *mut ze_device_properties_t,
    ) {
        let device = call.handle(hDevice, "hDevice")?;
        let in_hz = ze_structure_type_t::ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2;
        let (out, chain) =
            call.named_properties(pDeviceProperties, "pDeviceProperties", &[in_hz])?;
        describe(device, out, out.stype == in_hz);
        for link in chain {
            match link.stype() {
                ze_eu_count_ext_t::STYPE => {
                    if let Some(out) = link.get_mut::<ze_eu_count_ext_t>() {
                        out.numTotalEUs = execution_units(device);
                    }
                }
                ze_device_ip_version_ext_t::STYPE => {
                    if let Some(out) = link.get_mut::<ze_device_ip_version_ext_t>() {
                        out.ipVersion =
                            settings::get().device_as.map_or(OWN_IP_VERSION, |it| it.ip_version);
                    }
                }
                ze_device_usablemem_size_ext_properties_t::STYPE => {
                    if let Some(out) = link.get_mut::<ze_device_usablemem_size_ext_properties_t>() {
                        out.currUsableMemSize = Memory { device }.free();
                    }
                }
                ze_device_readonly_memory_ext_properties_t::STYPE => {
                    if let Some(out) = link.get_mut::<ze_device_readonly_memory_ext_properties_t>()
                    {
                        out.readonlyCapability = ze_device_readonly_memory_capability_t::
                            ZE_DEVICE_READONLY_MEMORY_CAPABILITY_ENFORCED;
                    }
                }
                ze_device_event_properties_t::STYPE => {
                    if let Some(out) = link.get_mut::<ze_device_event_properties_t>() {
                        out.flags = event_flags(device);
                    }
                }
                ze_mutable_command_list_exp_properties_t::STYPE => {
                    if let Some(out) = link.get_mut::<ze_mutable_command_list_exp_properties_t>() {
                        out.mutableCommandListFlags = ze_mutable_command_list_exp_flags_t::empty();
                        out.mutableCommandFlags = MUTABLE;
                    }
                }
                ze_record_replay_graph_ext_properties_t::STYPE => {
                    if let Some(out) = link.get_mut::<ze_record_replay_graph_ext_properties_t>() {
                        use ze_record_replay_graph_ext_flags_t as it;
                        out.graphFlags = it::ZE_RECORD_REPLAY_GRAPH_EXT_FLAG_IMMUTABLE_GRAPH
                            | it::ZE_RECORD_REPLAY_GRAPH_EXT_FLAG_SUBGRAPHS;
                    }
                }
                ze_event_query_kernel_timestamps_ext_properties_t::STYPE => {
                    if let Some(out) =
                        link.get_mut::<ze_event_query_kernel_timestamps_ext_properties_t>()
                    {
                        out.flags = ze_event_query_kernel_timestamps_ext_flags_t::all();
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Spec: `zeDeviceGetComputeProperties`.
    fn zeDeviceGetComputeProperties(
        call,
        hDevice: ze_device_handle_t,
        pComputeProperties: *mut ze_device_compute_properties_t,
    ) {
        call.handle(hDevice, "hDevice")?;
        let (out, _) = call.raw_properties(pComputeProperties, "pComputeProperties", &[])?;
        out.maxTotalGroupSize = MAX_GROUP_ITEMS;
        [out.maxGroupSizeX, out.maxGroupSizeY, out.maxGroupSizeZ] = [MAX_GROUP_ITEMS; 3];
        [out.maxGroupCountX, out.maxGroupCountY, out.maxGroupCountZ] = [u32::MAX; 3];
        out.maxSharedLocalMemory = MAX_LOCAL_BYTES;
        out.numSubGroupSizes = SUBGROUP_SIZES.len() as u32;
        out.subGroupSizes = [0; ZE_SUBGROUPSIZE_COUNT];
        out.subGroupSizes[..SUBGROUP_SIZES.len()].copy_from_slice(&SUBGROUP_SIZES);
        Ok(())
    }

    /// Spec: `zeDeviceGetModuleProperties`.
    fn zeDeviceGetModuleProperties(
        call,
        hDevice: ze_device_handle_t,
        pModuleProperties: *mut ze_device_module_properties_t,
    ) {
        use ze_device_fp_flags_t as fp;
        use ze_device_module_flags_t as module;
        call.handle(hDevice, "hDevice")?;
        let out = call.properties(pModuleProperties, "pModuleProperties")?;
        let ieee = fp::ZE_DEVICE_FP_FLAG_DENORM
            | fp::ZE_DEVICE_FP_FLAG_INF_NAN
            | fp::ZE_DEVICE_FP_FLAG_ROUND_TO_NEAREST
            | fp::ZE_DEVICE_FP_FLAG_ROUND_TO_ZERO
            | fp::ZE_DEVICE_FP_FLAG_ROUND_TO_INF
            | fp::ZE_DEVICE_FP_FLAG_FMA;
        out.spirvVersionSupported = make_version(1, 6);
        out.flags = module::ZE_DEVICE_MODULE_FLAG_FP16
            | module::ZE_DEVICE_MODULE_FLAG_FP64
            | module::ZE_DEVICE_MODULE_FLAG_INT64_ATOMICS
            | module::ZE_DEVICE_MODULE_FLAG_DP4A;
        out.fp16flags = ieee;
        out.fp32flags = ieee | fp::ZE_DEVICE_FP_FLAG_ROUNDED_DIVIDE_SQRT;
        out.fp64flags = ieee | fp::ZE_DEVICE_FP_FLAG_ROUNDED_DIVIDE_SQRT;
        out.maxArgumentsSize = MAX_ARGUMENT_BYTES;
        out.printfBufferSize = crate::vm::printf::BUFFER_BYTES;
        for link in call.chain(out.pNext) {
            if link.stype() == ze_scheduling_hint_exp_properties_t::STYPE {
                if let Some(hints) = link.get_mut::<ze_scheduling_hint_exp_properties_t>() {
                    hints.schedulingHintFlags =
                        ze_scheduling_hint_exp_flags_t::ZE_SCHEDULING_HINT_EXP_FLAG_OLDEST_FIRST;
                }
            } else if let Some(atomics) = link.get_mut::<ze_float_atomic_ext_properties_t>() {
                let all = ze_device_fp_atomic_ext_flags_t::all();
                (atomics.fp16Flags, atomics.fp32Flags, atomics.fp64Flags) = (all, all, all);
            }
        }
        out.nativeKernelSupported = ze_native_kernel_uuid_t::default();
        Ok(())
    }

    /// Spec: `zeDeviceGetCommandQueueGroupProperties`. A group is an engine class.
    fn zeDeviceGetCommandQueueGroupProperties(
        call,
        hDevice: ze_device_handle_t,
        pCount: *mut u32,
        pCommandQueueGroupProperties: *mut ze_command_queue_group_properties_t,
    ) {
        use ze_command_queue_group_property_flags_t as group;
        let device = call.handle(hDevice, "hDevice")?;
        let count = *call.in_out(pCount, "pCount")?;
        if count == 0 || pCommandQueueGroupProperties.is_null() {
            *call.in_out(pCount, "pCount")? = device.engines().len() as u32;
            return Ok(());
        }
        let count = (count as usize).min(device.engines().len());
        *call.in_out(pCount, "pCount")? = count as u32;
        for (i, engine) in device.engines().iter().take(count).enumerate() {
            let out = pCommandQueueGroupProperties.wrapping_add(i);
            let (out, _) = call.raw_properties(out, "pCommandQueueGroupProperties", &[])?;
            out.flags = group::empty();
            // What an engine repeats itself. Longer patterns are copied row by row on any engine. As Intel's driver,
            // this promises any length for groups that compute.
            out.maxMemoryFillPatternSize = MAX_FILL_PATTERN as usize;
            if engine.capabilities & engine_capability::COMPUTE != 0 {
                out.flags |= group::ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE
                    | group::ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COOPERATIVE_KERNELS;
                out.maxMemoryFillPatternSize = usize::MAX;
            }
            if engine.capabilities & engine_capability::COPY != 0 {
                out.flags |= group::ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY;
            }
            out.numQueues = engine.count;
        }
        Ok(())
    }

    /// Spec: `zeDeviceGetMemoryProperties`. One memory: the system's.
    fn zeDeviceGetMemoryProperties(
        call,
        hDevice: ze_device_handle_t,
        pCount: *mut u32,
        pMemProperties: *mut ze_device_memory_properties_t,
    ) {
        let device = call.handle(hDevice, "hDevice")?;
        let Some((out, _)) = one(call, pCount, pMemProperties, "pMemProperties")? else {
            return Ok(());
        };
        out.flags = ze_device_memory_property_flags_t::empty();
        out.maxClockRate = 0;
        out.maxBusWidth = 64;
        out.totalSize = device.budget().limit();
        set_name(&mut out.name, "system memory");
        Ok(())
    }

    /// Spec: `zeDeviceGetMemoryAccessProperties`. A device in the process reaches memory that was not
    /// allocated by the driver ("system"); a device behind a kernel module reaches only memory that was
    /// bound for it.
    fn zeDeviceGetMemoryAccessProperties(
        call,
        hDevice: ze_device_handle_t,
        pMemAccessProperties: *mut ze_device_memory_access_properties_t,
    ) {
        use ze_memory_access_cap_flags_t as access;
        let device = call.handle(hDevice, "hDevice")?;
        let out = call.properties(pMemAccessProperties, "pMemAccessProperties")?;
        out.hostAllocCapabilities = access::all();
        out.deviceAllocCapabilities = access::all();
        out.sharedSingleDeviceAllocCapabilities = access::all();
        let others = device.gpu().devices().len() > 1;
        out.sharedCrossDeviceAllocCapabilities =
            if others { access::all() } else { access::empty() };
        out.sharedSystemAllocCapabilities =
            if device.backend().sees_process() { access::all() } else { access::empty() };
        Ok(())
    }

    /// Spec: `zeDeviceGetCacheProperties`.
    fn zeDeviceGetCacheProperties(
        call,
        hDevice: ze_device_handle_t,
        pCount: *mut u32,
        pCacheProperties: *mut ze_device_cache_properties_t,
    ) {
        let device = call.handle(hDevice, "hDevice")?;
        let Some((out, chain)) = one(call, pCount, pCacheProperties, "pCacheProperties")? else {
            return Ok(());
        };
        out.flags = ze_device_cache_property_flags_t::empty();
        out.cacheSize = device.info().cache_bytes as usize;
        for link in chain {
            if let Some(out) = link.get_mut::<ze_device_cache_line_size_ext_t>() {
                out.cacheLineSize = device.info().cache_line_bytes as usize;
            }
        }
        Ok(())
    }

    /// Spec: `zeDeviceGetImageProperties`. Some programs call it with the stype of an image's
    /// properties.
    fn zeDeviceGetImageProperties(
        call,
        hDevice: ze_device_handle_t,
        pImageProperties: *mut ze_device_image_properties_t,
    ) {
        call.handle(hDevice, "hDevice")?;
        let also = [ze_image_properties_t::STYPE];
        let out = call.properties_or(pImageProperties, "pImageProperties", &also)?;
        out.maxImageDims1D = image::MAX_EXTENT_2D;
        out.maxImageDims2D = image::MAX_EXTENT_2D;
        out.maxImageDims3D = image::MAX_EXTENT_3D;
        out.maxImageBufferSize = image::MAX_BUFFER_BYTES;
        out.maxImageArraySlices = image::MAX_LAYERS;
        out.maxSamplers = SAMPLERS;
        out.maxReadImageArgs = IMAGE_ARGS;
        out.maxWriteImageArgs = IMAGE_ARGS;
        for link in call.chain(out.pNext) {
            match link.stype() {
                ze_device_pitched_alloc_exp_properties_t::STYPE => {
                    if let Some(out) = link.get_mut::<ze_device_pitched_alloc_exp_properties_t>() {
                        out.maxImageLinearWidth = image::MAX_EXTENT_2D as usize;
                        out.maxImageLinearHeight = image::MAX_EXTENT_2D as usize;
                    }
                }
                ze_pitched_alloc_2dimage_linear_pitch_exp_info_t::STYPE => {
                    let info = link.get_mut::<ze_pitched_alloc_2dimage_linear_pitch_exp_info_t>();
                    if let Some(out) = info {
                        out.pitchAlign = image::ROW_ALIGN as usize;
                        out.maxSupportedPitch = MAX_PITCH;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Spec: `zeDeviceGetExternalMemoryProperties`. Memory and images, as files.
    fn zeDeviceGetExternalMemoryProperties(
        call,
        hDevice: ze_device_handle_t,
        pExternalMemoryProperties: *mut ze_device_external_memory_properties_t,
    ) {
        let device = call.handle(hDevice, "hDevice")?;
        let out = call.properties(pExternalMemoryProperties, "pExternalMemoryProperties")?;
        let (stype, pNext) = (out.stype, out.pNext);
        *out = ze_device_external_memory_properties_t { stype, pNext, ..Default::default() };
        let (import, export) = (external::imported_types(device), external::exported_types(device));
        out.memoryAllocationImportTypes = import;
        out.memoryAllocationExportTypes = export;
        out.imageImportTypes = import;
        out.imageExportTypes = export;
        Ok(())
    }

    /// Spec: `zeDeviceGetP2PProperties`. All devices of a GPU reach all of its memory.
    fn zeDeviceGetP2PProperties(
        call,
        hDevice: ze_device_handle_t,
        hPeerDevice: ze_device_handle_t,
        pP2PProperties: *mut ze_device_p2p_properties_t,
    ) {
        use ze_device_p2p_property_flags_t as p2p;
        let device = call.handle(hDevice, "hDevice")?;
        let peer = call.handle(hPeerDevice, "hPeerDevice")?;
        let out = call.properties(pP2PProperties, "pP2PProperties")?;
        out.flags = if reaches(device, peer) { p2p::all() } else { p2p::empty() };
        Ok(())
    }

    /// Spec: `zeDeviceCanAccessPeer`.
    fn zeDeviceCanAccessPeer(
        call,
        hDevice: ze_device_handle_t,
        hPeerDevice: ze_device_handle_t,
        value: *mut ze_bool_t,
    ) {
        let device = call.handle(hDevice, "hDevice")?;
        let peer = call.handle(hPeerDevice, "hPeerDevice")?;
        call.out(value, "value")?.set(ze_bool_t::from(reaches(device, peer)));
        Ok(())
    }

    /// Spec: `zeDeviceGetStatus`.
    fn zeDeviceGetStatus(call, hDevice: ze_device_handle_t) {
        call.handle(hDevice, "hDevice")?.status()
    }

    /// Spec: `zeDeviceGetGlobalTimestamps`. The host's is that of [`host_clock`], in ns.
    fn zeDeviceGetGlobalTimestamps(
        call,
        hDevice: ze_device_handle_t,
        hostTimestamp: *mut u64,
        deviceTimestamp: *mut u64,
    ) {
        let device = call.handle(hDevice, "hDevice")?;
        let host = call.out(hostTimestamp, "hostTimestamp")?;
        let ticks = call.out(deviceTimestamp, "deviceTimestamp")?;
        let pair = host_clock::pair(device)?;
        host.set(pair.host_ns);
        ticks.set(pair.device_ticks);
        Ok(())
    }

    /// Spec: `zeDevicePciGetPropertiesExt`. The device in this process is on no bus: its address is 0, and
    /// unknown values are -1.
    fn zeDevicePciGetPropertiesExt(
        call,
        hDevice: ze_device_handle_t,
        pPciProperties: *mut ze_pci_ext_properties_t,
    ) {
        let device = call.handle(hDevice, "hDevice")?;
        // The conformance suite's helper passes no stype.
        let (out, _) = call.raw_properties(pPciProperties, "pPciProperties", &[])?;
        let [domain, bus, slot, function] = device.backend().pci_address().unwrap_or_default();
        out.address = ze_pci_address_ext_t { domain, bus, device: slot, function };
        out.maxSpeed = ze_pci_speed_ext_t { genVersion: -1, width: -1, maxBandwidth: -1 };
        Ok(())
    }

    /// Spec: `zeDeviceGetVectorWidthPropertiesExt`. Kernels are widened across work-items, so
    /// explicit vectors are not preferred.
    fn zeDeviceGetVectorWidthPropertiesExt(
        call,
        hDevice: ze_device_handle_t,
        pCount: *mut u32,
        pVectorWidthProperties: *mut ze_device_vector_width_properties_ext_t,
    ) {
        let device = call.handle(hDevice, "hDevice")?;
        let out = one(call, pCount, pVectorWidthProperties, "pVectorWidthProperties")?;
        let Some((out, _)) = out else { return Ok(()) };
        let (stype, pNext) = (out.stype, out.pNext);
        let lanes = device.info().simd_lanes;
        *out = ze_device_vector_width_properties_ext_t {
            stype,
            pNext,
            vector_width_size: lanes,
            preferred_vector_width_char: 1,
            preferred_vector_width_short: 1,
            preferred_vector_width_int: 1,
            preferred_vector_width_long: 1,
            preferred_vector_width_float: 1,
            preferred_vector_width_double: 1,
            preferred_vector_width_half: 1,
            native_vector_width_char: lanes * 4,
            native_vector_width_short: lanes * 2,
            native_vector_width_int: lanes,
            native_vector_width_long: lanes.div_ceil(2),
            native_vector_width_float: lanes,
            native_vector_width_double: lanes.div_ceil(2),
            native_vector_width_half: lanes * 2,
        };
        Ok(())
    }
}

/// The two-call protocol for a list with one entry: the place for the entry and what extends it, if it is
/// asked for.
pub(super) fn one<'c, T: Chained>(
    call: super::Call<'c>,
    count: *mut u32,
    out: *mut T,
    name: &'static str,
) -> Result<Option<(&'c mut T, super::Chain<'c>)>> {
    let count = call.in_out(count, "pCount")?;
    let wanted = *count != 0 && !out.is_null();
    *count = 1;
    if wanted { call.raw_properties(out, name, &[]).map(Some) } else { Ok(None) }
}

/// Whether a device can access the memory of another.
fn reaches(device: &Device, peer: &Device) -> bool {
    std::ptr::eq(device.gpu(), peer.gpu())
}

/// The storage of counter-based events beside the lists' own counters, and whether they can be
/// shared.
fn event_flags(device: &Device) -> ze_device_event_properties_flags_t {
    use ze_device_event_properties_flags_t as event;
    let always = event::ZE_DEVICE_EVENT_PROPERTIES_FLAG_COUNTER_BASED_EXTERNAL_AGGREGATE_STORAGE
        | event::ZE_DEVICE_EVENT_PROPERTIES_FLAG_COUNTER_BASED_EXTERNAL_SYNC_ALLOCATION;
    match device.can_share() {
        true => always | event::ZE_DEVICE_EVENT_PROPERTIES_FLAG_COUNTER_BASED_IPC,
        false => always,
    }
}

/// Fills the properties of `device`, with the timer as a frequency or as ns per tick.
pub(super) fn describe(device: &Device, out: &mut ze_device_properties_t, in_hz: bool) {
    let info = device.info();
    out.r#type = ze_device_type_t::ZE_DEVICE_TYPE_GPU;
    out.vendorId = info.vendor_id;
    out.deviceId = info.device_id;
    out.flags = ze_device_property_flags_t::ZE_DEVICE_PROPERTY_FLAG_INTEGRATED;
    if device.parent().is_some() {
        out.flags |= ze_device_property_flags_t::ZE_DEVICE_PROPERTY_FLAG_SUBDEVICE;
    }
    out.subdeviceId = device.part();
    out.coreClockRate = info.core_clock_mhz;
    out.maxMemAllocSize = device.budget().limit();
    out.maxHardwareContexts = info.max_queues;
    out.maxCommandQueuePriority = 0;
    out.numThreadsPerEU = 1;
    out.physicalEUSimdWidth = info.simd_lanes;
    // Each sub-device is one slice.
    out.numSlices = device.parts().len().max(1) as u32;
    out.numSubslicesPerSlice = 1;
    out.numEUsPerSubslice = device.execution_units() / out.numSlices;
    let hz = info.clock_hz.max(1);
    out.timerResolution = if in_hz { hz } else { (1_000_000_000 / hz).max(1) };
    out.timestampValidBits = 64;
    out.kernelTimestampValidBits = KERNEL_TIMESTAMP_BITS;
    out.uuid.id = device.uuid();
    set_name(&mut out.name, NAME);
    if let Some(identity) = settings::get().device_as {
        pass_for(identity, device, out);
    }
}

/// The device's own name.
pub(super) const NAME: &str = "Tally virtual GPU";

/// Puts the name and the numbers of another GPU into properties. A sub-device has its share of the slices.
fn pass_for(identity: &Identity, device: &Device, out: &mut ze_device_properties_t) {
    set_name(&mut out.name, identity.name);
    out.vendorId = INTEL;
    out.deviceId = identity.device_id;
    out.coreClockRate = identity.clock_mhz;
    out.numThreadsPerEU = identity.threads;
    out.physicalEUSimdWidth = identity.lanes;
    let [slices, sub_slices, units] = identity.slices;
    out.numSlices = (slices / siblings(device)).max(1);
    out.numSubslicesPerSlice = sub_slices;
    out.numEUsPerSubslice = units;
}

/// The number of execution units that a device reports.
fn execution_units(device: &Device) -> u32 {
    match settings::get().device_as {
        None => device.execution_units(),
        Some(identity) => {
            let [slices, sub_slices, units] = identity.slices;
            (slices / siblings(device)).max(1) * sub_slices * units
        }
    }
}

/// The number of sub-devices of this sub-device's root device; 1 for a root device.
fn siblings(device: &Device) -> u32 {
    device.parent().map_or(1, |root| root.parts().len().max(1) as u32)
}

/// Writes a name that is shorter than its field, with a NUL.
pub(super) fn set_name(field: &mut [c_char], name: &str) {
    field.fill(0);
    for (to, from) in field.iter_mut().zip(name.bytes()) {
        *to = from as c_char;
    }
}
