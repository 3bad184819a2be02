// SPDX-License-Identifier: MIT OR Apache-2.0
//! Graphs under their names from before Level Zero adopted them. Intel's driver keeps these names, and programs
//! that are older than the extension, Intel's benchmarks among them, look for no others. The arguments are in a
//! different order, and results have their own numbers.

use std::ffi::{c_char, c_void};

use tally_ze::*;

use super::graph;

const QUERY_TRUE_EXP: ze_result_t = ze_result_t(0x7fff_0000);
const QUERY_FALSE_EXP: ze_result_t = ze_result_t(0x7fff_0001);
const ERROR_INVALID_GRAPH_EXP: ze_result_t = ze_result_t(0x7fff_0002);

/// Functions that call those of the extension with the same arguments.
macro_rules! renamed {
    ($($name:ident($($arg:ident: $ty:ty),*) => $function:ident($($passed:ident),*) $($answer:ident)?;)*) => {
        $(
            #[doc = concat!("The older name of [`graph::", stringify!($function), "`].")]
            ///
            /// # Safety
            /// The same as for the newer function.
            pub unsafe extern "C" fn $name($($arg: $ty),*) -> ze_result_t {
                // SAFETY: the caller keeps the same promises.
                let result = unsafe { graph::$function($($passed),*) };
                $(let result = $answer(result);)?
                result
            }
        )*
    };
}

renamed! {
    zeGraphCreateExp(
        hContext: ze_context_handle_t, phGraph: *mut ze_graph_handle_t, pNext: *const c_void
    ) => zeGraphCreateExt(hContext, pNext, phGraph);
    zeCommandListBeginGraphCaptureExp(hCommandList: ze_command_list_handle_t, pNext: *const c_void)
        => zeCommandListBeginGraphCaptureExt(hCommandList, pNext);
    zeCommandListBeginCaptureIntoGraphExp(
        hCommandList: ze_command_list_handle_t, hGraph: ze_graph_handle_t, pNext: *const c_void
    ) => zeCommandListBeginCaptureIntoGraphExt(hCommandList, hGraph, pNext);
    zeCommandListEndGraphCaptureExp(
        hCommandList: ze_command_list_handle_t,
        phGraph: *mut ze_graph_handle_t,
        pNext: *const c_void
    ) => zeCommandListEndGraphCaptureExt(hCommandList, pNext, phGraph);
    zeCommandListInstantiateGraphExp(
        hGraph: ze_graph_handle_t,
        phExecutableGraph: *mut ze_executable_graph_handle_t,
        pNext: *const c_void
    ) => zeGraphInstantiateExt(hGraph, pNext, phExecutableGraph);
    zeCommandListAppendGraphExp(
        hCommandList: ze_command_list_handle_t,
        hGraph: ze_executable_graph_handle_t,
        pNext: *const c_void,
        hSignalEvent: ze_event_handle_t,
        numWaitEvents: u32,
        phWaitEvents: *mut ze_event_handle_t
    ) => zeCommandListAppendGraphExt(
        hCommandList, hGraph, pNext, hSignalEvent, numWaitEvents, phWaitEvents
    );
    zeGraphDestroyExp(hGraph: ze_graph_handle_t) => zeGraphDestroyExt(hGraph);
    zeExecutableGraphDestroyExp(hGraph: ze_executable_graph_handle_t)
        => zeExecutableGraphDestroyExt(hGraph);
    zeCommandListIsGraphCaptureEnabledExp(hCommandList: ze_command_list_handle_t)
        => zeCommandListIsGraphCaptureEnabledExt(hCommandList) renumbered;
    zeGraphIsEmptyExp(hGraph: ze_graph_handle_t) => zeGraphIsEmptyExt(hGraph) renumbered;
    zeGraphDumpContentsExp(
        hGraph: ze_graph_handle_t, filePath: *const c_char, pNext: *const c_void
    ) => zeGraphDumpContentsExt(hGraph, filePath, pNext);
}

/// A result with its older number.
fn renumbered(result: ze_result_t) -> ze_result_t {
    match result {
        ze_result_t::ZE_RESULT_QUERY_TRUE => QUERY_TRUE_EXP,
        ze_result_t::ZE_RESULT_QUERY_FALSE => QUERY_FALSE_EXP,
        ze_result_t::ZE_RESULT_ERROR_INVALID_GRAPH => ERROR_INVALID_GRAPH_EXP,
        other => other,
    }
}
