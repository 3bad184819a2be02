// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices.

#![allow(non_snake_case, missing_docs, clippy::missing_safety_doc)] // as in the specification

use std::ffi::c_void;

use opencl_sys::*;
use tally_ze::*;

use super::call::{Answer, call, error, get, list};
use super::platform;
use crate::core::Result;
use crate::core::device::{self, Device};
use crate::core::object::Object;

/// Lists the devices for those who ask for GPUs and for nothing else.
///
/// Spec: "clGetDeviceIDs may return all or a subset of the actual physical devices present in the platform and
/// that match device_type." Who asks for all devices, or for the default one, looks for a device to compute on,
/// which these are not. SYCL does, and would offer each twice.
pub unsafe extern "C" fn clGetDeviceIDs(
    platform: cl_platform_id,
    device_type: cl_device_type,
    num_entries: cl_uint,
    devices: *mut cl_device_id,
    num_devices: *mut cl_uint,
) -> cl_int {
    call(|| {
        // SAFETY: the caller passes a platform of this library, or null.
        unsafe { platform::check(platform)? };
        let known = CL_DEVICE_TYPE_DEFAULT
            | CL_DEVICE_TYPE_CPU
            | CL_DEVICE_TYPE_GPU
            | CL_DEVICE_TYPE_ACCELERATOR
            | CL_DEVICE_TYPE_CUSTOM;
        if device_type == 0 || device_type & !known != 0 && device_type != CL_DEVICE_TYPE_ALL {
            return error(CL_INVALID_DEVICE_TYPE);
        }
        let all = if device_type == CL_DEVICE_TYPE_GPU { device::all() } else { &[] };
        let handles: Vec<cl_device_id> = all.iter().map(Object::handle).collect();
        // SAFETY: the places are as the specification says.
        unsafe { list(&handles, num_entries, devices, num_devices, CL_DEVICE_NOT_FOUND) }
    })
}

pub unsafe extern "C" fn clGetDeviceInfo(
    device: cl_device_id,
    param_name: cl_device_info,
    param_value_size: usize,
    param_value: *mut c_void,
    param_value_size_ret: *mut usize,
) -> cl_int {
    call(|| {
        // SAFETY: the caller passes a device of this library, or null.
        let device = unsafe { get::<Device>(device)? };
        let answer =
            Answer { room: param_value_size, place: param_value, size: param_value_size_ret };
        info(device, param_name, &answer)
    })
}

/// A query: of what a compiler needs to know, and of what tells devices apart.
fn info(device: &Object<Device>, name: cl_device_info, answer: &Answer) -> Result {
    let (it, groups) = (&device.device, &device.compute);
    match name {
        CL_DEVICE_TYPE => answer.value(CL_DEVICE_TYPE_GPU),
        CL_DEVICE_VENDOR_ID => answer.value(it.vendorId),
        CL_DEVICE_VENDOR => answer.text(platform::vendor()),
        CL_DEVICE_NAME => answer.text(&device.name()),
        CL_DEVICE_VERSION => answer.text(platform::VERSION),
        CL_DRIVER_VERSION => answer.text(env!("CARGO_PKG_VERSION")),
        CL_DEVICE_PROFILE => answer.text("EMBEDDED_PROFILE"),
        CL_DEVICE_OPENCL_C_VERSION => answer.text("OpenCL C 1.2"),
        CL_DEVICE_IL_VERSION => {
            let version = device.module.spirvVersionSupported;
            answer.text(&format!("SPIR-V_{}.{}", version >> 16, version & 0xffff))
        }
        CL_DEVICE_EXTENSIONS => answer.text(platform::EXTENSIONS),
        CL_DEVICE_NUMERIC_VERSION => answer.value(3_u32 << 22),
        CL_DEVICE_BUILT_IN_KERNELS => answer.text(""),
        CL_DEVICE_PLATFORM => answer.value(platform::handle()),
        CL_DEVICE_PARENT_DEVICE => answer.value(std::ptr::null_mut::<c_void>()),
        CL_DEVICE_REFERENCE_COUNT => answer.value(1_u32),
        CL_DEVICE_MAX_CLOCK_FREQUENCY => answer.value(it.coreClockRate),
        CL_DEVICE_MAX_COMPUTE_UNITS => answer.value(device.units()),
        CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS => answer.value(3_u32),
        CL_DEVICE_MAX_WORK_ITEM_SIZES => answer.values(
            &[groups.maxGroupSizeX, groups.maxGroupSizeY, groups.maxGroupSizeZ].map(|n| n as usize),
        ),
        CL_DEVICE_MAX_WORK_GROUP_SIZE => answer.value(groups.maxTotalGroupSize as usize),
        CL_DEVICE_LOCAL_MEM_SIZE => answer.value(u64::from(groups.maxSharedLocalMemory)),
        CL_DEVICE_GLOBAL_MEM_SIZE => answer.value(device.memory),
        CL_DEVICE_GLOBAL_MEM_CACHE_SIZE => answer.value(device.cache),
        CL_DEVICE_MAX_PARAMETER_SIZE => answer.value(device.module.maxArgumentsSize as usize),
        CL_DEVICE_MAX_MEM_ALLOC_SIZE => answer.value(it.maxMemAllocSize),
        CL_DEVICE_ADDRESS_BITS => answer.value(64_u32),
        CL_DEVICE_ENDIAN_LITTLE | CL_DEVICE_COMPILER_AVAILABLE => answer.value(CL_TRUE),
        // It runs nothing, has no linker and no images, and cannot be divided.
        CL_DEVICE_AVAILABLE | CL_DEVICE_LINKER_AVAILABLE | CL_DEVICE_IMAGE_SUPPORT => {
            answer.value(CL_FALSE)
        }
        CL_DEVICE_EXECUTION_CAPABILITIES => answer.value(0_u64),
        CL_DEVICE_PARTITION_MAX_SUB_DEVICES => answer.value(0_u32),
        CL_DEVICE_PARTITION_PROPERTIES | CL_DEVICE_PARTITION_TYPE => answer.value(0_isize),
        CL_DEVICE_HALF_FP_CONFIG => answer.value(floats(device.module.fp16flags)),
        CL_DEVICE_SINGLE_FP_CONFIG => answer.value(floats(device.module.fp32flags)),
        CL_DEVICE_DOUBLE_FP_CONFIG => answer.value(floats(device.module.fp64flags)),
        _ => of_extensions(device, name, answer),
    }
}

/// The queries of extensions: which Level Zero device it is, and what Intel's libraries ask before they build.
fn of_extensions(device: &Object<Device>, name: cl_device_info, answer: &Answer) -> Result {
    /// `cl_ext_float_atomics`, for half, single and double; the bits are Level Zero's.
    const FLOAT_ATOMICS: [cl_device_info; 3] = [0x4233, 0x4231, 0x4232];
    let it = &device.device;
    if let Some(width) = FLOAT_ATOMICS.iter().position(|atomics| *atomics == name) {
        return answer.value(u64::from(device.float_atomics[width].bits()));
    }
    // The bits of `cl_intel_unified_shared_memory` are Level Zero's, too.
    let access = |flags: ze_memory_access_cap_flags_t| answer.value(u64::from(flags.bits()));
    match name {
        CL_DEVICE_UUID_KHR => answer.bytes(&it.uuid.id),
        CL_DEVICE_IP_VERSION_INTEL => answer.value(device.ip_version),
        CL_DEVICE_ID_INTEL => answer.value(it.deviceId),
        CL_DEVICE_NUM_SLICES_INTEL => answer.value(it.numSlices),
        CL_DEVICE_NUM_SUB_SLICES_PER_SLICE_INTEL => answer.value(it.numSubslicesPerSlice),
        CL_DEVICE_NUM_EUS_PER_SUB_SLICE_INTEL => answer.value(it.numEUsPerSubslice),
        CL_DEVICE_NUM_THREADS_PER_EU_INTEL => answer.value(it.numThreadsPerEU),
        CL_DEVICE_FEATURE_CAPABILITIES_INTEL => answer.value(CL_DEVICE_FEATURE_FLAG_DP4A_INTEL),
        CL_DEVICE_HOST_MEM_CAPABILITIES_INTEL => access(device.access.hostAllocCapabilities),
        CL_DEVICE_DEVICE_MEM_CAPABILITIES_INTEL => access(device.access.deviceAllocCapabilities),
        CL_DEVICE_SINGLE_DEVICE_SHARED_MEM_CAPABILITIES_INTEL => {
            access(device.access.sharedSingleDeviceAllocCapabilities)
        }
        CL_DEVICE_CROSS_DEVICE_SHARED_MEM_CAPABILITIES_INTEL => {
            access(device.access.sharedCrossDeviceAllocCapabilities)
        }
        CL_DEVICE_SHARED_SYSTEM_MEM_CAPABILITIES_INTEL => {
            access(device.access.sharedSystemAllocCapabilities)
        }
        _ => error(CL_INVALID_VALUE),
    }
}

/// Level Zero's flags in OpenCL's bits.
fn floats(flags: ze_device_fp_flags_t) -> cl_device_fp_config {
    use ze_device_fp_flags_t as Flags;
    [
        (Flags::ZE_DEVICE_FP_FLAG_DENORM, CL_FP_DENORM),
        (Flags::ZE_DEVICE_FP_FLAG_INF_NAN, CL_FP_INF_NAN),
        (Flags::ZE_DEVICE_FP_FLAG_ROUND_TO_NEAREST, CL_FP_ROUND_TO_NEAREST),
        (Flags::ZE_DEVICE_FP_FLAG_ROUND_TO_ZERO, CL_FP_ROUND_TO_ZERO),
        (Flags::ZE_DEVICE_FP_FLAG_ROUND_TO_INF, CL_FP_ROUND_TO_INF),
        (Flags::ZE_DEVICE_FP_FLAG_FMA, CL_FP_FMA),
        (Flags::ZE_DEVICE_FP_FLAG_ROUNDED_DIVIDE_SQRT, CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT),
    ]
    .iter()
    .filter(|(flag, _)| flags.contains(*flag))
    .fold(0, |bits, (_, bit)| bits | bit)
}

/// Spec: "CL_DEVICE_PARTITION_FAILED if the partition name is supported by the implementation but in_device could
/// not be further partitioned", as Intel's driver answers for a device of one part; "CL_INVALID_VALUE if values
/// specified in properties are not valid or [...] not supported by the device".
pub unsafe extern "C" fn clCreateSubDevices(
    in_device: cl_device_id,
    properties: *const cl_device_partition_property,
    _num_devices: cl_uint,
    _out_devices: *mut cl_device_id,
    _num_devices_ret: *mut cl_uint,
) -> cl_int {
    call(|| {
        // SAFETY: the caller passes a device of this library, or null.
        unsafe { get::<Device>(in_device)? };
        // SAFETY: the caller passes null or a list that ends with a zero.
        let first = unsafe { properties.as_ref() };
        error(match first {
            Some(&CL_DEVICE_PARTITION_BY_AFFINITY_DOMAIN) => CL_DEVICE_PARTITION_FAILED,
            _ => CL_INVALID_VALUE,
        })
    })
}

/// Spec: "If device is a root level device [...] the device reference count is not changed", here and below.
pub unsafe extern "C" fn clRetainDevice(device: cl_device_id) -> cl_int {
    // SAFETY: the caller passes a device of this library, or null.
    call(|| unsafe { get::<Device>(device) }.map(|_| ()))
}

pub unsafe extern "C" fn clReleaseDevice(device: cl_device_id) -> cl_int {
    // SAFETY: as above.
    unsafe { clRetainDevice(device) }
}
