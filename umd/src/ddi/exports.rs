// SPDX-License-Identifier: MIT OR Apache-2.0
//! The exported symbols, one for each function table.

#![allow(non_snake_case)] // C names are kept as they are

use core::ffi::c_void;

use tally_ze::tables::{self, Table};
use tally_ze::{ze_api_version_t, ze_result_t};

/// Exports one function for each table. A name that `tally_ze::tables` does not have is a compile
/// error.
macro_rules! export {
    ($($getter:ident)*) => {
        /// The names of all exported functions.
        pub const EXPORTED: &[&str] = &[$(stringify!($getter)),*];

        $(
            #[doc = concat!("Spec: `", stringify!($getter), "`.")]
            ///
            /// # Safety
            /// `table` is null or points to the table as the headers of `version` declare it.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $getter(
                version: ze_api_version_t,
                table: *mut c_void,
            ) -> ze_result_t {
                const TABLE: &Table = tables::get(stringify!($getter));
                // SAFETY: the caller makes the same promise.
                unsafe { super::fill(TABLE, version, table.cast()) }
            }
        )*
    };
}

export! {
    // ze
    zeGetCommandListExpProcAddrTable
    zeGetCommandListProcAddrTable
    zeGetCommandQueueProcAddrTable
    zeGetContextProcAddrTable
    zeGetDeviceExpProcAddrTable
    zeGetDeviceProcAddrTable
    zeGetDriverExpProcAddrTable
    zeGetDriverProcAddrTable
    zeGetEventExpProcAddrTable
    zeGetEventPoolProcAddrTable
    zeGetEventProcAddrTable
    zeGetExecutableGraphProcAddrTable
    zeGetFabricEdgeExpProcAddrTable
    zeGetFabricVertexExpProcAddrTable
    zeGetFenceProcAddrTable
    zeGetGlobalProcAddrTable
    zeGetGraphProcAddrTable
    zeGetImageExpProcAddrTable
    zeGetImageProcAddrTable
    zeGetKernelExpProcAddrTable
    zeGetKernelProcAddrTable
    zeGetMemExpProcAddrTable
    zeGetMemProcAddrTable
    zeGetModuleBuildLogProcAddrTable
    zeGetModuleProcAddrTable
    zeGetPhysicalMemProcAddrTable
    zeGetRTASBuilderExpProcAddrTable
    zeGetRTASBuilderProcAddrTable
    zeGetRTASParallelOperationExpProcAddrTable
    zeGetRTASParallelOperationProcAddrTable
    zeGetSamplerProcAddrTable
    zeGetVirtualMemProcAddrTable
    // zer
    zerGetGlobalProcAddrTable
    // zes
    zesGetDeviceExpProcAddrTable
    zesGetDeviceProcAddrTable
    zesGetDiagnosticsProcAddrTable
    zesGetDriverExpProcAddrTable
    zesGetDriverProcAddrTable
    zesGetEngineProcAddrTable
    zesGetFabricPortProcAddrTable
    zesGetFanProcAddrTable
    zesGetFirmwareExpProcAddrTable
    zesGetFirmwareProcAddrTable
    zesGetFrequencyProcAddrTable
    zesGetGlobalProcAddrTable
    zesGetLedProcAddrTable
    zesGetMemoryProcAddrTable
    zesGetOverclockProcAddrTable
    zesGetPerformanceFactorProcAddrTable
    zesGetPowerProcAddrTable
    zesGetPsuProcAddrTable
    zesGetRasExpProcAddrTable
    zesGetRasProcAddrTable
    zesGetSchedulerProcAddrTable
    zesGetStandbyProcAddrTable
    zesGetTemperatureProcAddrTable
    zesGetVFManagementExpProcAddrTable
    // zet
    zetGetCommandListExpProcAddrTable
    zetGetCommandListProcAddrTable
    zetGetContextProcAddrTable
    zetGetDebugProcAddrTable
    zetGetDeviceExpProcAddrTable
    zetGetDeviceProcAddrTable
    zetGetKernelProcAddrTable
    zetGetMetricDecoderExpProcAddrTable
    zetGetMetricExpProcAddrTable
    zetGetMetricGroupExpProcAddrTable
    zetGetMetricGroupProcAddrTable
    zetGetMetricProcAddrTable
    zetGetMetricProgrammableExpProcAddrTable
    zetGetMetricQueryPoolProcAddrTable
    zetGetMetricQueryProcAddrTable
    zetGetMetricStreamerProcAddrTable
    zetGetMetricTracerExpProcAddrTable
    zetGetModuleProcAddrTable
    zetGetTracerExpProcAddrTable
}
