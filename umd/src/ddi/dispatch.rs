// SPDX-License-Identifier: MIT OR Apache-2.0
//! Function tables in the handles themselves: `ZE_extension_driver_ddi_handles`, version 1.1.
//!
//! A loader with several drivers wraps every handle in an object of its own, to know its driver; functions that
//! the loader does not know (`zex…`) then get handles that no driver has made. A driver with this extension
//! begins every object with four pointers, to its tables of core, tools, system management and run-time
//! functions. Loaders from 1.23 on dispatch through them and do not wrap handles.
//!
//! The tables have the layout of the API version that they name. Loaders that use them know at least
//! version 1.13, whose layout every later version only extends.

use core::ffi::c_void;
use std::sync::Once;

use tally_ze::tables::{Table, get};
use tally_ze::ze_api_version_t;

use super::address;
use crate::api::driver::VERSION;
use crate::handle;

/// Tables of `ze_dditable_driver_t`, in its order.
const CORE: [&Table; 32] = [
    get("zeGetRTASBuilderProcAddrTable"),
    get("zeGetRTASBuilderExpProcAddrTable"),
    get("zeGetRTASParallelOperationProcAddrTable"),
    get("zeGetRTASParallelOperationExpProcAddrTable"),
    get("zeGetGlobalProcAddrTable"),
    get("zeGetDriverProcAddrTable"),
    get("zeGetDriverExpProcAddrTable"),
    get("zeGetDeviceProcAddrTable"),
    get("zeGetDeviceExpProcAddrTable"),
    get("zeGetContextProcAddrTable"),
    get("zeGetCommandQueueProcAddrTable"),
    get("zeGetCommandListProcAddrTable"),
    get("zeGetCommandListExpProcAddrTable"),
    get("zeGetImageProcAddrTable"),
    get("zeGetImageExpProcAddrTable"),
    get("zeGetMemProcAddrTable"),
    get("zeGetMemExpProcAddrTable"),
    get("zeGetFenceProcAddrTable"),
    get("zeGetEventPoolProcAddrTable"),
    get("zeGetEventProcAddrTable"),
    get("zeGetEventExpProcAddrTable"),
    get("zeGetModuleProcAddrTable"),
    get("zeGetModuleBuildLogProcAddrTable"),
    get("zeGetKernelProcAddrTable"),
    get("zeGetKernelExpProcAddrTable"),
    get("zeGetSamplerProcAddrTable"),
    get("zeGetPhysicalMemProcAddrTable"),
    get("zeGetVirtualMemProcAddrTable"),
    get("zeGetFabricVertexExpProcAddrTable"),
    get("zeGetFabricEdgeExpProcAddrTable"),
    get("zeGetGraphProcAddrTable"),
    get("zeGetExecutableGraphProcAddrTable"),
];

/// Tables of `zet_dditable_driver_t`, in its order.
const TOOLS: [&Table; 19] = [
    get("zetGetMetricProgrammableExpProcAddrTable"),
    get("zetGetMetricTracerExpProcAddrTable"),
    get("zetGetMetricDecoderExpProcAddrTable"),
    get("zetGetDeviceProcAddrTable"),
    get("zetGetDeviceExpProcAddrTable"),
    get("zetGetContextProcAddrTable"),
    get("zetGetCommandListProcAddrTable"),
    get("zetGetCommandListExpProcAddrTable"),
    get("zetGetModuleProcAddrTable"),
    get("zetGetKernelProcAddrTable"),
    get("zetGetMetricProcAddrTable"),
    get("zetGetMetricExpProcAddrTable"),
    get("zetGetMetricGroupProcAddrTable"),
    get("zetGetMetricGroupExpProcAddrTable"),
    get("zetGetMetricStreamerProcAddrTable"),
    get("zetGetMetricQueryPoolProcAddrTable"),
    get("zetGetMetricQueryProcAddrTable"),
    get("zetGetTracerExpProcAddrTable"),
    get("zetGetDebugProcAddrTable"),
];

/// Tables of `zes_dditable_driver_t`, in its order.
const SYSMAN: [&Table; 24] = [
    get("zesGetGlobalProcAddrTable"),
    get("zesGetDeviceProcAddrTable"),
    get("zesGetDeviceExpProcAddrTable"),
    get("zesGetDriverProcAddrTable"),
    get("zesGetDriverExpProcAddrTable"),
    get("zesGetOverclockProcAddrTable"),
    get("zesGetSchedulerProcAddrTable"),
    get("zesGetPerformanceFactorProcAddrTable"),
    get("zesGetPowerProcAddrTable"),
    get("zesGetFrequencyProcAddrTable"),
    get("zesGetEngineProcAddrTable"),
    get("zesGetStandbyProcAddrTable"),
    get("zesGetFirmwareProcAddrTable"),
    get("zesGetFirmwareExpProcAddrTable"),
    get("zesGetMemoryProcAddrTable"),
    get("zesGetFabricPortProcAddrTable"),
    get("zesGetTemperatureProcAddrTable"),
    get("zesGetPsuProcAddrTable"),
    get("zesGetFanProcAddrTable"),
    get("zesGetLedProcAddrTable"),
    get("zesGetRasProcAddrTable"),
    get("zesGetRasExpProcAddrTable"),
    get("zesGetDiagnosticsProcAddrTable"),
    get("zesGetVFManagementExpProcAddrTable"),
];

/// Tables of `zer_dditable_driver_t`.
const RUNTIME: [&Table; 1] = [get("zerGetGlobalProcAddrTable")];

/// The tables behind a handle's four pointers.
#[repr(C)]
struct Dispatch<const N: usize> {
    version: ze_api_version_t,
    is_valid: u8,
    tables: [*const *const c_void; N],
}

/// Puts the tables into all new handles from now on. They are made once and live as long as the process.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        handle::set_tables([dispatch(CORE), dispatch(TOOLS), dispatch(SYSMAN), dispatch(RUNTIME)]);
    });
}

fn dispatch<const N: usize>(tables: [&Table; N]) -> *const c_void {
    let tables = tables.map(|table| {
        let entries: Vec<*const c_void> = table.entries.iter().map(address).collect();
        Vec::leak(entries).as_ptr()
    });
    let dispatch = Box::new(Dispatch { version: VERSION, is_valid: 1, tables });
    Box::into_raw(dispatch).cast_const().cast()
}
