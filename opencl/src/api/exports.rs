// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of functions, and the symbols that OpenCL's loader looks up in this library.
//!
//! The table holds other functions than the symbols: a loader that the program is linked with has a
//! `clGetPlatformInfo` of its own, the dynamic linker would put that into the table, and the loader would call
//! itself forever.

#![allow(non_snake_case, clippy::missing_safety_doc)] // as in the specification

use std::ffi::{CStr, c_char, c_void};

use opencl_sys::cl_icd::cl_icd_dispatch;
use opencl_sys::{cl_int, cl_platform_id, cl_platform_info, cl_uint};

use super::{context, device, platform, program, refused};
use crate::core::object;

/// What the loader calls. Functions of queues, buffers, kernels, samplers and events are missing: the loader
/// takes a function from the table of its first argument, and there are no such objects.
static TABLE: cl_icd_dispatch = cl_icd_dispatch {
    clGetPlatformIDs: Some(platform::clIcdGetPlatformIDsKHR),
    clGetPlatformInfo: Some(platform::clGetPlatformInfo),
    clGetExtensionFunctionAddress: Some(extension),
    clGetExtensionFunctionAddressForPlatform: Some(extension_for),
    clUnloadCompiler: Some(platform::clUnloadCompiler),
    clUnloadPlatformCompiler: Some(platform::clUnloadPlatformCompiler),
    clGetDeviceIDs: Some(device::clGetDeviceIDs),
    clGetDeviceInfo: Some(device::clGetDeviceInfo),
    clCreateSubDevices: Some(device::clCreateSubDevices),
    clRetainDevice: Some(device::clRetainDevice),
    clReleaseDevice: Some(device::clReleaseDevice),
    clGetDeviceAndHostTimer: Some(refused::clGetDeviceAndHostTimer),
    clGetHostTimer: Some(refused::clGetHostTimer),
    clCreateContext: Some(context::clCreateContext),
    clCreateContextFromType: Some(context::clCreateContextFromType),
    clRetainContext: Some(context::clRetainContext),
    clReleaseContext: Some(context::clReleaseContext),
    clGetContextInfo: Some(context::clGetContextInfo),
    clSetContextDestructorCallback: Some(refused::clSetContextDestructorCallback),
    clCreateProgramWithSource: Some(program::clCreateProgramWithSource),
    clCreateProgramWithIL: Some(program::clCreateProgramWithIL),
    clCreateProgramWithBinary: Some(program::clCreateProgramWithBinary),
    clCreateProgramWithBuiltInKernels: Some(refused::clCreateProgramWithBuiltInKernels),
    clRetainProgram: Some(program::clRetainProgram),
    clReleaseProgram: Some(program::clReleaseProgram),
    clBuildProgram: Some(program::clBuildProgram),
    clCompileProgram: Some(refused::clCompileProgram),
    clLinkProgram: Some(refused::clLinkProgram),
    clGetProgramInfo: Some(program::clGetProgramInfo),
    clGetProgramBuildInfo: Some(program::clGetProgramBuildInfo),
    clSetProgramReleaseCallback: Some(refused::clSetProgramReleaseCallback),
    clSetProgramSpecializationConstant: Some(refused::clSetProgramSpecializationConstant),
    clCreateCommandQueue: Some(refused::clCreateCommandQueue),
    clCreateCommandQueueWithProperties: Some(refused::clCreateCommandQueueWithProperties),
    clCreateBuffer: Some(refused::clCreateBuffer),
    clCreateBufferWithProperties: Some(refused::clCreateBufferWithProperties),
    clCreateImage: Some(refused::clCreateImage),
    clCreateImage2D: Some(refused::clCreateImage2D),
    clCreateImage3D: Some(refused::clCreateImage3D),
    clCreateImageWithProperties: Some(refused::clCreateImageWithProperties),
    clGetSupportedImageFormats: Some(refused::clGetSupportedImageFormats),
    clCreatePipe: Some(refused::clCreatePipe),
    clCreateSampler: Some(refused::clCreateSampler),
    clCreateSamplerWithProperties: Some(refused::clCreateSamplerWithProperties),
    clSVMAlloc: Some(refused::clSVMAlloc),
    clSVMFree: Some(refused::clSVMFree),
    clCreateUserEvent: Some(refused::clCreateUserEvent),
    clCreateKernel: Some(refused::clCreateKernel),
    clCreateKernelsInProgram: Some(refused::clCreateKernelsInProgram),
    // SAFETY: every field is an optional function or a number, for which zero is a value.
    ..unsafe { std::mem::zeroed() }
};

/// The functions that are found by name: that of the loader, and that of an extension.
unsafe extern "C" fn extension(name: *const c_char) -> *mut c_void {
    if name.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: the caller passes a terminated name.
    match unsafe { CStr::from_ptr(name) }.to_bytes() {
        b"clIcdGetPlatformIDsKHR" => platform::clIcdGetPlatformIDsKHR as *mut c_void,
        b"clCreateProgramWithILKHR" => program::clCreateProgramWithIL as *mut c_void,
        _ => std::ptr::null_mut(),
    }
}

unsafe extern "C" fn extension_for(platform: cl_platform_id, name: *const c_char) -> *mut c_void {
    // SAFETY: the caller passes a platform of this library, or null.
    match unsafe { platform::check(platform) } {
        // SAFETY: the caller passes a terminated name.
        Ok(()) => unsafe { extension(name) },
        Err(_) => std::ptr::null_mut(),
    }
}

/// Spec: `clGetExtensionFunctionAddress`, by which a loader finds the rest.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetExtensionFunctionAddress(name: *const c_char) -> *mut c_void {
    object::use_table(&TABLE);
    // SAFETY: the caller makes the same promise.
    unsafe { extension(name) }
}

/// Spec: `clIcdGetPlatformIDsKHR`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clIcdGetPlatformIDsKHR(
    num_entries: cl_uint,
    platforms: *mut cl_platform_id,
    num_platforms: *mut cl_uint,
) -> cl_int {
    object::use_table(&TABLE);
    // SAFETY: the caller makes the same promise.
    unsafe { platform::clIcdGetPlatformIDsKHR(num_entries, platforms, num_platforms) }
}

/// Spec: `clGetPlatformInfo`; ocl-icd asks for the extensions before it takes the table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetPlatformInfo(
    platform: cl_platform_id,
    name: cl_platform_info,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> cl_int {
    object::use_table(&TABLE);
    // SAFETY: the caller makes the same promise.
    unsafe { platform::clGetPlatformInfo(platform, name, size, value, size_ret) }
}
