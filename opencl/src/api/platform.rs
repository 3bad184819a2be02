// SPDX-License-Identifier: MIT OR Apache-2.0
//! The platform, and what the loader looks up by name.

#![allow(non_snake_case, missing_docs, clippy::missing_safety_doc)] // as in the specification

use std::ffi::c_void;
use std::sync::OnceLock;

use opencl_sys::*;

use super::call::{Answer, call, error, get, list};
use crate::core::object::{Kind, Object};
use crate::core::{Result, device, process};

/// The platform.
pub struct Platform;

impl Kind for Platform {
    const TAG: u32 = 0x7461_6466;
    const INVALID: cl_int = CL_INVALID_PLATFORM;
}

/// Its extensions, and those of its devices.
pub const EXTENSIONS: &str = "cl_khr_icd cl_khr_il_program cl_khr_device_uuid cl_khr_fp16 cl_khr_fp64 \
    cl_khr_int64_base_atomics cl_khr_int64_extended_atomics cl_khr_global_int32_base_atomics \
    cl_khr_global_int32_extended_atomics cl_khr_local_int32_base_atomics \
    cl_khr_local_int32_extended_atomics cl_ext_float_atomics cl_khr_subgroups cl_intel_subgroups \
    cl_intel_subgroups_char cl_intel_subgroups_short cl_intel_subgroups_long \
    cl_intel_required_subgroup_size cl_intel_device_attribute_query cl_intel_unified_shared_memory";
/// The version.
pub const VERSION: &str =
    concat!("OpenCL 3.0 Tally ", env!("CARGO_PKG_VERSION"), ", compiles only");

/// The platform's name. Intel's libraries take devices of Intel's platforms only, which they know by "Intel" in
/// the name.
fn name() -> &'static str {
    if passes_for_intels() { "Intel(R) OpenCL Graphics (Tally)" } else { "Tally" }
}

/// The vendor of the platform and of its devices.
pub fn vendor() -> &'static str {
    if passes_for_intels() { "Intel(R) Corporation" } else { "Tally" }
}

/// Whether its devices pass for Intel's GPUs.
fn passes_for_intels() -> bool {
    device::all().iter().any(|device| device.is_intels())
}

/// The platform's handle.
pub fn handle() -> cl_platform_id {
    static PLATFORM: OnceLock<Object<Platform>> = OnceLock::new();
    PLATFORM.get_or_init(|| Object::new(Platform)).handle()
}

/// "If platform is NULL, the behavior is implementation-defined": it is this one.
pub unsafe fn check(platform: cl_platform_id) -> Result {
    if platform.is_null() {
        return Ok(());
    }
    // SAFETY: the caller passes a platform of this library.
    unsafe { get::<Platform>(platform) }.map(|_| ())
}

/// Spec: `cl_khr_icd`, the list of platforms: this one, if the process computes with Level Zero.
pub unsafe extern "C" fn clIcdGetPlatformIDsKHR(
    num_entries: cl_uint,
    platforms: *mut cl_platform_id,
    num_platforms: *mut cl_uint,
) -> cl_int {
    call(|| {
        let one = [handle()];
        let known = if process::uses_level_zero() { &one[..] } else { &[] };
        // SAFETY: the places are as the specification says.
        unsafe { list(known, num_entries, platforms, num_platforms, CL_PLATFORM_NOT_FOUND_KHR) }
    })
}

pub unsafe extern "C" fn clGetPlatformInfo(
    platform: cl_platform_id,
    param_name: cl_platform_info,
    param_value_size: usize,
    param_value: *mut c_void,
    param_value_size_ret: *mut usize,
) -> cl_int {
    call(|| {
        // SAFETY: the caller passes a platform of this library, or null.
        unsafe { check(platform)? };
        let answer =
            Answer { room: param_value_size, place: param_value, size: param_value_size_ret };
        match param_name {
            CL_PLATFORM_PROFILE => answer.text("EMBEDDED_PROFILE"),
            CL_PLATFORM_VERSION => answer.text(VERSION),
            CL_PLATFORM_NAME => answer.text(name()),
            CL_PLATFORM_VENDOR => answer.text(vendor()),
            CL_PLATFORM_EXTENSIONS => answer.text(EXTENSIONS),
            CL_PLATFORM_ICD_SUFFIX_KHR => answer.text("TALLY"),
            CL_PLATFORM_NUMERIC_VERSION => answer.value(3_u32 << 22),
            CL_PLATFORM_HOST_TIMER_RESOLUTION => answer.value(0_u64),
            _ => error(CL_INVALID_VALUE),
        }
    })
}

pub unsafe extern "C" fn clUnloadCompiler() -> cl_int {
    CL_SUCCESS
}

pub unsafe extern "C" fn clUnloadPlatformCompiler(platform: cl_platform_id) -> cl_int {
    // SAFETY: the caller passes a platform of this library.
    call(|| unsafe { check(platform) })
}
