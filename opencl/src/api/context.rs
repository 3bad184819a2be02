// SPDX-License-Identifier: MIT OR Apache-2.0
//! Contexts.

#![allow(non_snake_case, missing_docs, clippy::missing_safety_doc)] // as in the specification

use std::ffi::{c_char, c_void};

use opencl_sys::*;

use super::call::{Answer, call, create, error, get};
use super::platform;
use crate::core::Result;
use crate::core::device::{self, Device};
use crate::core::object::{Object, Ref};
use crate::core::program::Context;

/// What a context calls when something goes wrong later; nothing does here.
type Notify = Option<unsafe extern "C" fn(*const c_char, *const c_void, usize, *mut c_void)>;

pub unsafe extern "C" fn clCreateContext(
    properties: *const cl_context_properties,
    num_devices: cl_uint,
    devices: *const cl_device_id,
    pfn_notify: Notify,
    user_data: *mut c_void,
    errcode_ret: *mut cl_int,
) -> cl_context {
    let body = || {
        // SAFETY: the caller passes null or a list that ends with zero.
        let properties = unsafe { list_of(properties)? };
        if devices.is_null() || num_devices == 0 || pfn_notify.is_none() && !user_data.is_null() {
            return error(CL_INVALID_VALUE);
        }
        // SAFETY: the caller passes that many devices.
        let handles = unsafe { std::slice::from_raw_parts(devices, num_devices as usize) };
        let devices = handles
            .iter()
            // SAFETY: they are this library's, whose devices stay forever.
            .map(|&it| unsafe { get::<Device>(it) })
            .collect::<Result<Vec<&'static Object<Device>>>>()?;
        Ok(Ref::new(Context { devices, properties }).into_handle())
    };
    // SAFETY: the place is as the specification says.
    unsafe { create(errcode_ret, body) }
}

/// Only a platform can be asked for: "CL_INVALID_PROPERTY if [...] context property name in properties is not a
/// supported property name, [...] or if the same property name is specified more than once."
unsafe fn list_of(properties: *const cl_context_properties) -> Result<Vec<cl_context_properties>> {
    let mut list = Vec::new();
    if properties.is_null() {
        return Ok(list);
    }
    loop {
        // SAFETY: the list ends with a zero in place of a name, which has not come yet.
        let name = unsafe { *properties.add(list.len()) };
        list.push(name);
        if name == 0 {
            return Ok(list);
        }
        if name != CL_CONTEXT_PLATFORM as cl_context_properties || list.len() > 1 {
            return error(CL_INVALID_PROPERTY);
        }
        // SAFETY: a value follows a name.
        let value = unsafe { *properties.add(list.len()) };
        if value as *mut c_void != platform::handle() {
            return error(CL_INVALID_PLATFORM);
        }
        list.push(value);
    }
}

pub unsafe extern "C" fn clCreateContextFromType(
    properties: *const cl_context_properties,
    device_type: cl_device_type,
    pfn_notify: Notify,
    user_data: *mut c_void,
    errcode_ret: *mut cl_int,
) -> cl_context {
    let all: Vec<cl_device_id> = match device_type {
        CL_DEVICE_TYPE_GPU => device::all().iter().map(Object::handle).collect(),
        _ => Vec::new(),
    };
    if all.is_empty() {
        // SAFETY: the place is as the specification says.
        return unsafe { create(errcode_ret, || error(CL_DEVICE_NOT_FOUND)) };
    }
    let count = all.len() as cl_uint;
    // SAFETY: as the caller promises, and the devices are in the list.
    unsafe { clCreateContext(properties, count, all.as_ptr(), pfn_notify, user_data, errcode_ret) }
}

pub unsafe extern "C" fn clRetainContext(context: cl_context) -> cl_int {
    // SAFETY: the caller passes a context of this library, or null.
    call(|| unsafe { get::<Context>(context) }.map(Ref::retain))
}

pub unsafe extern "C" fn clReleaseContext(context: cl_context) -> cl_int {
    // SAFETY: as above, and the caller has a reference.
    call(|| unsafe { Ref::<Context>::from_handle(context) }.map(drop))
}

pub unsafe extern "C" fn clGetContextInfo(
    context: cl_context,
    param_name: cl_context_info,
    param_value_size: usize,
    param_value: *mut c_void,
    param_value_size_ret: *mut usize,
) -> cl_int {
    call(|| {
        // SAFETY: the caller passes a context of this library, or null.
        let context = unsafe { get::<Context>(context)? };
        let answer =
            Answer { room: param_value_size, place: param_value, size: param_value_size_ret };
        match param_name {
            CL_CONTEXT_REFERENCE_COUNT => answer.value(context.count()),
            CL_CONTEXT_NUM_DEVICES => answer.value(context.devices.len() as cl_uint),
            CL_CONTEXT_DEVICES => answer.values(&handles(context)),
            CL_CONTEXT_PROPERTIES => answer.values(&context.properties),
            _ => error(CL_INVALID_VALUE),
        }
    })
}

/// The handles of a context's devices.
pub fn handles(context: &Context) -> Vec<cl_device_id> {
    context.devices.iter().map(|it| it.handle()).collect()
}
