// SPDX-License-Identifier: MIT OR Apache-2.0
//! The types of the interface's functions, each under the name of the function.
//!
//! A driver coerces its function to the type of the same name before it gives out the address, so
//! that a wrong parameter list does not compile. Most are generated from the headers.

#![allow(non_camel_case_types, non_snake_case)] // C names are kept as they are

use core::ffi::{c_char, c_void};

pub use crate::generated::functions::{commands::*, extensions::*, objects::*, sysman::*};
use crate::zet::zet_module_debug_info_format_t;
use crate::zex::{zex_counter_based_event_desc_t, zex_ipc_counter_based_event_handle_t};
use crate::{
    ze_command_list_handle_t, ze_context_handle_t, ze_device_handle_t, ze_driver_handle_t,
    ze_event_desc_t, ze_event_handle_t, ze_executable_graph_handle_t, ze_graph_handle_t,
    ze_module_handle_t, ze_result_t,
};

/// Spec: `zerGetLastErrorDescription`.
pub type zerGetLastErrorDescription =
    unsafe extern "C" fn(ppString: *mut *const c_char) -> ze_result_t;

/// Spec: `zerTranslateDeviceHandleToIdentifier`; `u32::MAX` on failure.
pub type zerTranslateDeviceHandleToIdentifier =
    unsafe extern "C" fn(hDevice: ze_device_handle_t) -> u32;

/// Spec: `zerTranslateIdentifierToDeviceHandle`; null on failure.
pub type zerTranslateIdentifierToDeviceHandle =
    unsafe extern "C" fn(identifier: u32) -> ze_device_handle_t;

/// Spec: `zerGetDefaultContext`; null on failure.
pub type zerGetDefaultContext = unsafe extern "C" fn() -> ze_context_handle_t;

/// Spec: `zetModuleGetDebugInfo`.
pub type zetModuleGetDebugInfo = unsafe extern "C" fn(
    hModule: ze_module_handle_t,
    format: zet_module_debug_info_format_t,
    pSize: *mut usize,
    pDebugInfo: *mut u8,
) -> ze_result_t;

/// The type of Intel's `zexDriverImportExternalPointer`.
pub type zexDriverImportExternalPointer =
    unsafe extern "C" fn(hDriver: ze_driver_handle_t, ptr: *mut c_void, size: usize) -> ze_result_t;

/// The type of Intel's `zexDriverReleaseImportedPointer`.
pub type zexDriverReleaseImportedPointer =
    unsafe extern "C" fn(hDriver: ze_driver_handle_t, ptr: *mut c_void) -> ze_result_t;

/// The type of Intel's `zexDriverGetHostPointerBaseAddress`.
pub type zexDriverGetHostPointerBaseAddress = unsafe extern "C" fn(
    hDriver: ze_driver_handle_t,
    ptr: *mut c_void,
    baseAddress: *mut *mut c_void,
) -> ze_result_t;

/// Spec: `zexEventGetDeviceAddress`.
pub type zexEventGetDeviceAddress = unsafe extern "C" fn(
    event: ze_event_handle_t,
    completionValue: *mut u64,
    address: *mut u64,
) -> ze_result_t;

/// Spec: `zexCounterBasedEventCreate`.
pub type zexCounterBasedEventCreate = unsafe extern "C" fn(
    hContext: ze_context_handle_t,
    hDevice: ze_device_handle_t,
    deviceAddress: *mut u64,
    hostAddress: *mut u64,
    completionValue: u64,
    desc: *const ze_event_desc_t,
    phEvent: *mut ze_event_handle_t,
) -> ze_result_t;

/// Spec: `zexCounterBasedEventCreate2`.
pub type zexCounterBasedEventCreate2 = unsafe extern "C" fn(
    hContext: ze_context_handle_t,
    hDevice: ze_device_handle_t,
    desc: *const zex_counter_based_event_desc_t,
    phEvent: *mut ze_event_handle_t,
) -> ze_result_t;

/// Spec: `zexCounterBasedEventGetIpcHandle`.
pub type zexCounterBasedEventGetIpcHandle = unsafe extern "C" fn(
    hEvent: ze_event_handle_t,
    phIpc: *mut zex_ipc_counter_based_event_handle_t,
) -> ze_result_t;

/// Spec: `zexCounterBasedEventOpenIpcHandle`.
pub type zexCounterBasedEventOpenIpcHandle = unsafe extern "C" fn(
    hContext: ze_context_handle_t,
    hIpc: zex_ipc_counter_based_event_handle_t,
    phEvent: *mut ze_event_handle_t,
) -> ze_result_t;

/// Spec: `zexCounterBasedEventCloseIpcHandle`.
pub type zexCounterBasedEventCloseIpcHandle =
    unsafe extern "C" fn(hEvent: ze_event_handle_t) -> ze_result_t;

/// Spec: `zexDeviceGetAggregatedCopyOffloadIncrementValue`.
pub type zexDeviceGetAggregatedCopyOffloadIncrementValue =
    unsafe extern "C" fn(hDevice: ze_device_handle_t, incrementValue: *mut u32) -> ze_result_t;

/// The type of Intel's `zeGraphPauseCaptureExt`.
pub type zeGraphPauseCaptureExt = unsafe extern "C" fn(hGraph: ze_graph_handle_t) -> ze_result_t;

/// The type of Intel's `zeGraphResumeCaptureExt`.
pub type zeGraphResumeCaptureExt = unsafe extern "C" fn(hGraph: ze_graph_handle_t) -> ze_result_t;

/// The type of Intel's `zeGraphCreateExp`.
pub type zeGraphCreateExp = unsafe extern "C" fn(
    hContext: ze_context_handle_t,
    phGraph: *mut ze_graph_handle_t,
    pNext: *const c_void,
) -> ze_result_t;

/// The type of Intel's `zeCommandListBeginGraphCaptureExp`.
pub type zeCommandListBeginGraphCaptureExp = unsafe extern "C" fn(
    hCommandList: ze_command_list_handle_t,
    pNext: *const c_void,
) -> ze_result_t;

/// The type of Intel's `zeCommandListBeginCaptureIntoGraphExp`.
pub type zeCommandListBeginCaptureIntoGraphExp = unsafe extern "C" fn(
    hCommandList: ze_command_list_handle_t,
    hGraph: ze_graph_handle_t,
    pNext: *const c_void,
) -> ze_result_t;

/// The type of Intel's `zeCommandListEndGraphCaptureExp`.
pub type zeCommandListEndGraphCaptureExp = unsafe extern "C" fn(
    hCommandList: ze_command_list_handle_t,
    phGraph: *mut ze_graph_handle_t,
    pNext: *const c_void,
) -> ze_result_t;

/// The type of Intel's `zeCommandListInstantiateGraphExp`.
pub type zeCommandListInstantiateGraphExp = unsafe extern "C" fn(
    hGraph: ze_graph_handle_t,
    phExecutableGraph: *mut ze_executable_graph_handle_t,
    pNext: *const c_void,
) -> ze_result_t;

/// The type of Intel's `zeCommandListAppendGraphExp`.
pub type zeCommandListAppendGraphExp = unsafe extern "C" fn(
    hCommandList: ze_command_list_handle_t,
    hGraph: ze_executable_graph_handle_t,
    pNext: *const c_void,
    hSignalEvent: ze_event_handle_t,
    numWaitEvents: u32,
    phWaitEvents: *mut ze_event_handle_t,
) -> ze_result_t;

/// The type of Intel's `zeGraphDestroyExp`.
pub type zeGraphDestroyExp = unsafe extern "C" fn(hGraph: ze_graph_handle_t) -> ze_result_t;

/// The type of Intel's `zeExecutableGraphDestroyExp`.
pub type zeExecutableGraphDestroyExp =
    unsafe extern "C" fn(hGraph: ze_executable_graph_handle_t) -> ze_result_t;

/// The type of Intel's `zeCommandListIsGraphCaptureEnabledExp`.
pub type zeCommandListIsGraphCaptureEnabledExp =
    unsafe extern "C" fn(hCommandList: ze_command_list_handle_t) -> ze_result_t;

/// The type of Intel's `zeGraphIsEmptyExp`.
pub type zeGraphIsEmptyExp = unsafe extern "C" fn(hGraph: ze_graph_handle_t) -> ze_result_t;

/// The type of Intel's `zeGraphDumpContentsExp`.
pub type zeGraphDumpContentsExp = unsafe extern "C" fn(
    hGraph: ze_graph_handle_t,
    filePath: *const c_char,
    pNext: *const c_void,
) -> ze_result_t;
