// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions of what there is not: queues, memory, kernels, samplers, events, linking. Each answers an error
//! that its description in the specification has, or CL_INVALID_OPERATION.

#![allow(non_snake_case, missing_docs, clippy::missing_safety_doc, clippy::too_many_arguments)]

use std::ffi::{c_char, c_void};

use opencl_sys::*;

use super::call::write;

/// Functions that create something from these arguments, with the code that they answer.
macro_rules! creates_nothing {
    ($($name:ident($($argument:ty),*) = $code:expr;)*) => {$(
        pub unsafe extern "C" fn $name($(_: $argument,)* code: *mut cl_int) -> *mut c_void {
            // SAFETY: the place is as the specification says.
            unsafe { write(code, $code) };
            std::ptr::null_mut()
        }
    )*};
}

creates_nothing! {
    clCreateCommandQueue(cl_context, cl_device_id, cl_command_queue_properties) = CL_INVALID_OPERATION;
    clCreateCommandQueueWithProperties(cl_context, cl_device_id, *const cl_queue_properties) = CL_INVALID_OPERATION;
    clCreateBuffer(cl_context, cl_mem_flags, usize, *mut c_void) = CL_INVALID_OPERATION;
    clCreateBufferWithProperties(cl_context, *const cl_mem_properties, cl_mem_flags, usize, *mut c_void) = CL_INVALID_OPERATION;
    clCreateImage(cl_context, cl_mem_flags, *const cl_image_format, *const cl_image_desc, *mut c_void) = CL_INVALID_OPERATION;
    clCreateImageWithProperties(cl_context, *const cl_mem_properties, cl_mem_flags, *const cl_image_format, *const cl_image_desc, *mut c_void) = CL_INVALID_OPERATION;
    clCreateImage2D(cl_context, cl_mem_flags, *const cl_image_format, usize, usize, usize, *mut c_void) = CL_INVALID_OPERATION;
    clCreateImage3D(cl_context, cl_mem_flags, *const cl_image_format, usize, usize, usize, usize, usize, *mut c_void) = CL_INVALID_OPERATION;
    clCreatePipe(cl_context, cl_mem_flags, cl_uint, cl_uint, *const cl_pipe_properties) = CL_INVALID_OPERATION;
    clCreateSampler(cl_context, cl_bool, cl_addressing_mode, cl_filter_mode) = CL_INVALID_OPERATION;
    clCreateSamplerWithProperties(cl_context, *const cl_sampler_properties) = CL_INVALID_OPERATION;
    clCreateUserEvent(cl_context) = CL_INVALID_OPERATION;
    clCreateKernel(cl_program, *const c_char) = CL_INVALID_PROGRAM_EXECUTABLE;
    clCreateProgramWithBuiltInKernels(cl_context, cl_uint, *const cl_device_id, *const c_char) = CL_INVALID_VALUE;
    clLinkProgram(cl_context, cl_uint, *const cl_device_id, *const c_char, cl_uint, *const cl_program, Option<unsafe extern "C" fn(cl_program, *mut c_void)>, *mut c_void) = CL_LINKER_NOT_AVAILABLE;
}

/// Functions that do something else with these arguments, with the code that they answer.
macro_rules! does_nothing {
    ($($name:ident($($argument:ty),*) = $code:expr;)*) => {$(
        pub unsafe extern "C" fn $name($(_: $argument),*) -> cl_int {
            $code
        }
    )*};
}

does_nothing! {
    clCompileProgram(cl_program, cl_uint, *const cl_device_id, *const c_char, cl_uint, *const cl_program, *mut *const c_char, Option<unsafe extern "C" fn(cl_program, *mut c_void)>, *mut c_void) = CL_INVALID_OPERATION;
    clCreateKernelsInProgram(cl_program, cl_uint, *mut cl_kernel, *mut cl_uint) = CL_INVALID_PROGRAM_EXECUTABLE;
    clGetDeviceAndHostTimer(cl_device_id, *mut cl_ulong, *mut cl_ulong) = CL_INVALID_OPERATION;
    clGetHostTimer(cl_device_id, *mut cl_ulong) = CL_INVALID_OPERATION;
    clSetContextDestructorCallback(cl_context, Option<unsafe extern "C" fn(cl_context, *mut c_void)>, *mut c_void) = CL_INVALID_OPERATION;
    clSetProgramReleaseCallback(cl_program, Option<unsafe extern "C" fn(cl_program, *mut c_void)>, *mut c_void) = CL_INVALID_OPERATION;
    clSetProgramSpecializationConstant(cl_program, cl_uint, usize, *const c_void) = CL_INVALID_OPERATION;
}

/// There are no images, so no formats.
pub unsafe extern "C" fn clGetSupportedImageFormats(
    _: cl_context,
    _: cl_mem_flags,
    _: cl_mem_object_type,
    _: cl_uint,
    _: *mut cl_image_format,
    count: *mut cl_uint,
) -> cl_int {
    // SAFETY: the place is as the specification says.
    unsafe { write(count, 0) };
    CL_SUCCESS
}

/// Spec: "NULL" if there is no shared virtual memory.
pub unsafe extern "C" fn clSVMAlloc(
    _: cl_context,
    _: cl_svm_mem_flags,
    _: usize,
    _: cl_uint,
) -> *mut c_void {
    std::ptr::null_mut()
}

pub unsafe extern "C" fn clSVMFree(_: cl_context, _: *mut c_void) {}
