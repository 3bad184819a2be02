// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs.

#![allow(non_snake_case, missing_docs, clippy::missing_safety_doc)] // as in the specification

use std::ffi::{c_char, c_uchar, c_void};

use opencl_sys::*;
use tally_opencl_c::{Failure, is_spirv};

use super::call::{Answer, call, create, error, get, text, write};
use super::context;
use crate::core::object::Ref;
use crate::core::program::{Context, Origin, Program};
use crate::core::{Code, Result, binary};

/// A new program's handle.
unsafe fn made(context: cl_context, origin: impl FnOnce() -> Result<Origin>) -> Result<cl_program> {
    // SAFETY: the caller passes a context of this library, or null.
    let context = Ref::more(unsafe { get::<Context>(context)? });
    Ok(Ref::new(Program::new(context, origin()?)).into_handle())
}

pub unsafe extern "C" fn clCreateProgramWithSource(
    context: cl_context,
    count: cl_uint,
    strings: *mut *const c_char,
    lengths: *const usize,
    errcode_ret: *mut cl_int,
) -> cl_program {
    // SAFETY: the arguments are as the specification says.
    unsafe {
        create(errcode_ret, || {
            made(context, || source(count, strings.cast_const(), lengths).map(Origin::Source))
        })
    }
}

/// Spec: "CL_INVALID_VALUE if count is zero or if strings or any entry in strings is NULL"; "If an element in
/// lengths is zero, its accompanying string is null-terminated. If lengths is NULL, all strings in the strings
/// argument are considered null-terminated."
unsafe fn source(
    count: cl_uint,
    strings: *const *const c_char,
    lengths: *const usize,
) -> Result<String> {
    if count == 0 || strings.is_null() {
        return error(CL_INVALID_VALUE);
    }
    let mut all = String::new();
    for i in 0..count as usize {
        // SAFETY: the caller passes that many strings and lengths.
        unsafe {
            let string = *strings.add(i);
            if string.is_null() {
                return error(CL_INVALID_VALUE);
            }
            let length = if lengths.is_null() { 0 } else { *lengths.add(i) };
            match length {
                0 => all += &text(string),
                _ => {
                    let bytes = std::slice::from_raw_parts(string.cast::<u8>(), length);
                    all += &String::from_utf8_lossy(bytes);
                }
            }
        }
    }
    Ok(all)
}

pub unsafe extern "C" fn clCreateProgramWithIL(
    context: cl_context,
    il: *const c_void,
    length: usize,
    errcode_ret: *mut cl_int,
) -> cl_program {
    let origin = || {
        if il.is_null() || length == 0 {
            return error(CL_INVALID_VALUE);
        }
        // SAFETY: the caller passes that many bytes.
        let bytes = unsafe { std::slice::from_raw_parts(il.cast::<u8>(), length) };
        // Spec: CL_INVALID_VALUE "if the length-byte memory pointed to by il does not contain well-formed
        // intermediate language input that can be consumed by the OpenCL runtime".
        if !is_spirv(bytes) {
            return error(CL_INVALID_VALUE);
        }
        Ok(Origin::Il(bytes.to_vec()))
    };
    // SAFETY: the arguments are as the specification says.
    unsafe { create(errcode_ret, || made(context, origin)) }
}

pub unsafe extern "C" fn clCreateProgramWithBinary(
    context: cl_context,
    num_devices: cl_uint,
    device_list: *const cl_device_id,
    lengths: *const usize,
    binaries: *mut *const c_uchar,
    binary_status: *mut cl_int,
    errcode_ret: *mut cl_int,
) -> cl_program {
    let origin = || {
        if num_devices == 0 || device_list.is_null() || lengths.is_null() || binaries.is_null() {
            return error(CL_INVALID_VALUE);
        }
        let mut result = error(CL_INVALID_BINARY);
        for i in 0..num_devices as usize {
            // SAFETY: the caller passes that many devices, lengths and binaries, and has room for as many codes.
            unsafe {
                of_context(context, *device_list.add(i))?;
                let (len, bytes) = (*lengths.add(i), *binaries.add(i));
                if len == 0 || bytes.is_null() {
                    return error(CL_INVALID_VALUE);
                }
                let spirv = binary::unwrap(std::slice::from_raw_parts(bytes, len));
                let status = if spirv.is_some() { CL_SUCCESS } else { CL_INVALID_BINARY };
                if !binary_status.is_null() {
                    write(binary_status.add(i), status);
                }
                match spirv {
                    // All devices take the same.
                    Some(spirv) => result = Ok(Origin::Binary(spirv.to_vec())),
                    None => return error(CL_INVALID_BINARY),
                }
            }
        }
        result
    };
    // SAFETY: the arguments are as the specification says.
    unsafe { create(errcode_ret, || made(context, origin)) }
}

/// Spec: CL_INVALID_DEVICE "if any device in device_list is not in the list of devices associated with context".
unsafe fn of_context(context: cl_context, device: cl_device_id) -> Result {
    // SAFETY: the caller passes a context of this library, or null.
    let context = unsafe { get::<Context>(context)? };
    let known = context.devices.iter().any(|it| it.handle() == device);
    if known { Ok(()) } else { error(CL_INVALID_DEVICE) }
}

pub unsafe extern "C" fn clRetainProgram(program: cl_program) -> cl_int {
    // SAFETY: the caller passes a program of this library, or null.
    call(|| unsafe { get::<Program>(program) }.map(Ref::retain))
}

pub unsafe extern "C" fn clReleaseProgram(program: cl_program) -> cl_int {
    // SAFETY: as above, and the caller has a reference.
    call(|| unsafe { Ref::<Program>::from_handle(program) }.map(drop))
}

/// Builds before it returns, also if there is a function to call at the end: "If pfn_notify is not NULL,
/// clBuildProgram does not need to wait for the build to complete and can return immediately".
pub unsafe extern "C" fn clBuildProgram(
    program: cl_program,
    num_devices: cl_uint,
    device_list: *const cl_device_id,
    options: *const c_char,
    pfn_notify: Option<unsafe extern "C" fn(cl_program, *mut c_void)>,
    user_data: *mut c_void,
) -> cl_int {
    call(|| {
        // SAFETY: the caller passes a program of this library, or null.
        let it = unsafe { get::<Program>(program)? };
        // "CL_INVALID_VALUE if device_list is NULL and num_devices is greater than zero, or if device_list is
        // not NULL and num_devices is zero", "if pfn_notify is NULL but user_data is not NULL".
        if device_list.is_null() != (num_devices == 0)
            || pfn_notify.is_none() && !user_data.is_null()
        {
            return error(CL_INVALID_VALUE);
        }
        for i in 0..num_devices as usize {
            // SAFETY: the caller passes that many devices.
            unsafe { of_context(it.context.handle(), *device_list.add(i))? };
        }
        // SAFETY: the caller passes null or a terminated string.
        let built = it.build(unsafe { text(options) });
        if let Some(notify) = pfn_notify {
            // SAFETY: the caller's own function and value.
            unsafe { notify(program, user_data) };
        }
        built.map_err(|failure| {
            Code(match failure {
                Failure::NoCompiler | Failure::NoProgram(_) => CL_COMPILER_NOT_AVAILABLE,
                Failure::Options(_) => CL_INVALID_BUILD_OPTIONS,
                Failure::Refused(_) | Failure::Died(_) => CL_BUILD_PROGRAM_FAILURE,
            })
        })
    })
}

pub unsafe extern "C" fn clGetProgramInfo(
    program: cl_program,
    param_name: cl_program_info,
    param_value_size: usize,
    param_value: *mut c_void,
    param_value_size_ret: *mut usize,
) -> cl_int {
    call(|| {
        // SAFETY: the caller passes a program of this library, or null.
        let it = unsafe { get::<Program>(program)? };
        let answer =
            Answer { room: param_value_size, place: param_value, size: param_value_size_ret };
        let devices = context::handles(&it.context);
        match param_name {
            CL_PROGRAM_REFERENCE_COUNT => answer.value(it.count()),
            CL_PROGRAM_CONTEXT => answer.value(it.context.handle()),
            CL_PROGRAM_NUM_DEVICES => answer.value(devices.len() as cl_uint),
            CL_PROGRAM_DEVICES => answer.values(&devices),
            CL_PROGRAM_SOURCE => match &it.origin {
                Origin::Source(source) => answer.text(source),
                _ => answer.text(""),
            },
            CL_PROGRAM_IL => match &it.origin {
                Origin::Il(spirv) => answer.bytes(spirv),
                _ => answer.bytes(&[]),
            },
            CL_PROGRAM_BINARY_SIZES => {
                answer.values(&vec![it.outcome().binary.len(); devices.len()])
            }
            CL_PROGRAM_BINARIES => {
                let binary = it.outcome().binary;
                let places = size_of::<*mut u8>() * devices.len();
                if param_value.is_null() {
                    return answer.bytes(&vec![0; places]);
                }
                if param_value_size < places {
                    return error(CL_INVALID_VALUE);
                }
                for i in 0..devices.len() {
                    // SAFETY: the caller passes a place for each device, null or with room for the size that
                    // the query above gave.
                    unsafe {
                        let place = *param_value.cast::<*mut u8>().add(i);
                        if !place.is_null() {
                            place.copy_from_nonoverlapping(binary.as_ptr(), binary.len());
                        }
                    }
                }
                // SAFETY: the caller gives null or a place.
                unsafe { write(param_value_size_ret, places) };
                Ok(())
            }
            _ => error(CL_INVALID_VALUE),
        }
    })
}

pub unsafe extern "C" fn clGetProgramBuildInfo(
    program: cl_program,
    device: cl_device_id,
    param_name: cl_program_build_info,
    param_value_size: usize,
    param_value: *mut c_void,
    param_value_size_ret: *mut usize,
) -> cl_int {
    call(|| {
        // SAFETY: the caller passes a program of this library, or null.
        let it = unsafe { get::<Program>(program)? };
        // SAFETY: the context is alive.
        unsafe { of_context(it.context.handle(), device)? };
        let answer =
            Answer { room: param_value_size, place: param_value, size: param_value_size_ret };
        let built = it.outcome();
        match param_name {
            CL_PROGRAM_BUILD_STATUS => answer.value(built.status),
            CL_PROGRAM_BUILD_OPTIONS => answer.text(&built.options),
            CL_PROGRAM_BUILD_LOG => answer.text(&built.log),
            CL_PROGRAM_BINARY_TYPE if built.binary.is_empty() => {
                answer.value(CL_PROGRAM_BINARY_TYPE_NONE)
            }
            CL_PROGRAM_BINARY_TYPE => answer.value(CL_PROGRAM_BINARY_TYPE_EXECUTABLE),
            CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE => answer.value(0_usize),
            _ => error(CL_INVALID_VALUE),
        }
    })
}
