// SPDX-License-Identifier: MIT OR Apache-2.0
//! Record-and-replay graphs: `ZE_extension_record_replay_graph`, version 1.0.

use std::ffi::{OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;

use tally_ze::*;

use super::list::{Events, append, no_extensions};
use super::{Call, api};
use crate::core::graph::{Callback, Detail, Graph};
use crate::error::{Error, Result};
use crate::handle;
use crate::list::command::Command;
use crate::log::warn_once;

api! {
    /// Spec: `zeGraphCreateExt`.
    fn zeGraphCreateExt(
        call,
        hContext: ze_context_handle_t,
        pNext: *const c_void,
        phGraph: *mut ze_graph_handle_t,
    ) {
        let context = call.handle(hContext, "hContext")?;
        no_extensions(call, pNext)?;
        let out = call.out(phGraph, "phGraph")?;
        out.set(handle::create(Graph::create(context, true))?);
        Ok(())
    }

    /// Spec: `zeCommandListBeginGraphCaptureExt`.
    fn zeCommandListBeginGraphCaptureExt(
        call,
        list @ hCommandList: ze_command_list_handle_t,
        pNext: *const c_void,
    ) {
        no_extensions(call, pNext)?;
        let graph = Graph::create(list.context(), false);
        let raw: ze_graph_handle_t = handle::create(graph.clone())?;
        graph.begin(list, (hCommandList, raw)).inspect_err(|_| {
            // No other thread knows the handle yet.
            let _ = call.destroy(raw, "hGraph");
        })
    }

    /// Spec: `zeCommandListBeginCaptureIntoGraphExt`.
    fn zeCommandListBeginCaptureIntoGraphExt(
        call,
        list @ hCommandList: ze_command_list_handle_t,
        hGraph: ze_graph_handle_t,
        pNext: *const c_void,
    ) {
        let graph = call.handle(hGraph, "hGraph")?;
        no_extensions(call, pNext)?;
        graph.begin(list, (hCommandList, hGraph))
    }

    /// Spec: `zeCommandListIsGraphCaptureEnabledExt`.
    fn zeCommandListIsGraphCaptureEnabledExt(call, list @ hCommandList: ze_command_list_handle_t) {
        answer(list.capture().is_some())
    }

    /// Spec: `zeCommandListEndGraphCaptureExt`. The graph is returned even if it is invalid.
    fn zeCommandListEndGraphCaptureExt(
        call,
        list @ hCommandList: ze_command_list_handle_t,
        pNext: *const c_void,
        phGraph: *mut ze_graph_handle_t,
    ) {
        no_extensions(call, pNext)?;
        let capture = list.capture();
        // The same as in Intel's driver: the application has the handle, whatever it passes here.
        let is_known = capture.as_ref().is_some_and(|(graph, _)| graph.is_applications());
        let out = match call.optional_out(phGraph) {
            None if is_known => {
                warn_once!("phGraph: it is null; the graph is the one that the capture began with");
                None
            }
            _ => Some(call.out(phGraph, "phGraph")?),
        };
        let (graph, branch) = capture.ok_or_else(not_capturing)?;
        if branch != 0 {
            return Err(Error::invalid(
                "hCommandList: the capture began with another list, which has to end it",
            ));
        }
        let ended = graph.end();
        if let Some(out) = out {
            out.set(graph.raw());
        }
        ended
    }

    /// Spec: `zeCommandListGetGraphExt`.
    fn zeCommandListGetGraphExt(
        call,
        list @ hCommandList: ze_command_list_handle_t,
        phGraph: *mut ze_graph_handle_t,
    ) {
        let out = call.out(phGraph, "phGraph")?;
        let capture = list.capture();
        out.set(capture.as_ref().map_or(ze_graph_handle_t::NULL, |(graph, _)| graph.raw()));
        capture.map(drop).ok_or_else(not_capturing)
    }

    /// Spec: `zeGraphGetPrimaryCommandListExt`.
    fn zeGraphGetPrimaryCommandListExt(
        call,
        hGraph: ze_graph_handle_t,
        phCommandList: *mut ze_command_list_handle_t,
    ) {
        let graph = call.handle(hGraph, "hGraph")?;
        call.out(phCommandList, "phCommandList")?.set(graph.primary()?);
        Ok(())
    }

    /// The function of Intel's driver: until the capture is resumed, commands that are appended to its lists are
    /// submitted, as with other lists.
    fn zeGraphPauseCaptureExt(call, hGraph: ze_graph_handle_t) {
        call.handle(hGraph, "hGraph")?.pause(true)
    }

    /// The same as in Intel's driver.
    fn zeGraphResumeCaptureExt(call, hGraph: ze_graph_handle_t) {
        call.handle(hGraph, "hGraph")?.pause(false)
    }

    /// Spec: `zeGraphSetDestructionCallbackExt`.
    fn zeGraphSetDestructionCallbackExt(
        call,
        hGraph: ze_graph_handle_t,
        pfnCallback: zex_mem_graph_free_callback_fn_t,
        pUserData: *mut c_void,
        pNext: *const c_void,
    ) {
        let graph = call.handle(hGraph, "hGraph")?;
        no_extensions(call, pNext)?;
        let function = pfnCallback.ok_or_else(|| {
            let code = ze_result_t::ZE_RESULT_ERROR_INVALID_NULL_POINTER;
            Error::new(code, "pfnCallback: the pointer is null")
        })?;
        graph.on_destruction(Callback { function, data: pUserData });
        Ok(())
    }

    /// Spec: `zeGraphInstantiateExt`.
    fn zeGraphInstantiateExt(
        call,
        hGraph: ze_graph_handle_t,
        pNext: *const c_void,
        phExecutableGraph: *mut ze_executable_graph_handle_t,
    ) {
        let graph = call.handle(hGraph, "hGraph")?;
        no_extensions(call, pNext)?;
        let out = call.out(phExecutableGraph, "phExecutableGraph")?;
        out.set(handle::create(graph.instantiate(hGraph)?)?);
        Ok(())
    }

    /// Spec: `zeCommandListAppendGraphExt`.
    fn zeCommandListAppendGraphExt(
        call,
        list @ hCommandList: ze_command_list_handle_t,
        hGraph: ze_executable_graph_handle_t,
        pNext: *const c_void,
        events: Events,
    ) {
        let graph = call.handle(hGraph, "hGraph")?;
        no_extensions(call, pNext)?;
        let execution = graph.for_list(list.as_immediate()?.0)?;
        append(call, list, &Command::Graph(execution), events)
    }

    /// Spec: `zeExecutableGraphGetSourceGraphExt`.
    fn zeExecutableGraphGetSourceGraphExt(
        call,
        hGraph: ze_executable_graph_handle_t,
        phSourceGraph: *mut ze_graph_handle_t,
    ) {
        let graph = call.handle(hGraph, "hGraph")?;
        call.out(phSourceGraph, "phSourceGraph")?.set(graph.source());
        Ok(())
    }

    /// Spec: `zeGraphIsEmptyExt`.
    fn zeGraphIsEmptyExt(call, hGraph: ze_graph_handle_t) {
        answer(call.handle(hGraph, "hGraph")?.is_empty()?)
    }

    /// Spec: `zeGraphDumpContentsExt`. A file that cannot be written is UNKNOWN, as with Intel's driver.
    fn zeGraphDumpContentsExt(
        call,
        hGraph: ze_graph_handle_t,
        filePath: *const c_char,
        pNext: *const c_void,
    ) {
        let graph = call.handle(hGraph, "hGraph")?;
        let path = call.c_str(filePath, "filePath")?;
        let text = graph.dot(detail(call, pNext)?)?;
        std::fs::write(OsStr::from_bytes(path.to_bytes()), text).map_err(|error| {
            let text = format!("filePath: {path:?}: {error}");
            Error::new(ze_result_t::ZE_RESULT_ERROR_UNKNOWN, text)
        })
    }

    /// Spec: `zeExecutableGraphDestroyExt`. Submitted executions still complete.
    fn zeExecutableGraphDestroyExt(call, hGraph: ze_executable_graph_handle_t) {
        call.destroy(hGraph, "hGraph")
    }

    /// Spec: `zeGraphDestroyExt`.
    fn zeGraphDestroyExt(call, hGraph: ze_graph_handle_t) {
        call.handle(hGraph, "hGraph")?.must_be_free()?;
        call.take(hGraph, "hGraph")?.destroy();
        Ok(())
    }
}

/// ZE_RESULT_QUERY_TRUE or ZE_RESULT_QUERY_FALSE.
fn answer(yes: bool) -> Result {
    Err(Error::status(match yes {
        true => ze_result_t::ZE_RESULT_QUERY_TRUE,
        false => ze_result_t::ZE_RESULT_QUERY_FALSE,
    }))
}

fn not_capturing() -> Error {
    let code = ze_result_t::ZE_RESULT_ERROR_COMMAND_LIST_NOT_CAPTURING;
    Error::new(code, "hCommandList: it is not being captured")
}

/// The detail of a dump: everything, unless the extension asks for less.
fn detail(call: Call<'_>, next: *const c_void) -> Result<Detail> {
    let mut answer = Detail::Full;
    for link in call.chain(next) {
        let Some(desc) = link.get::<ze_record_replay_graph_ext_dump_desc_t>() else {
            return no_extensions(call, next).map(|()| answer);
        };
        use ze_record_replay_graph_ext_dump_mode_t as mode;
        answer = match desc.mode {
            mode::ZE_RECORD_REPLAY_GRAPH_EXT_DUMP_MODE_DETAILED => Detail::Full,
            mode::ZE_RECORD_REPLAY_GRAPH_EXT_DUMP_MODE_SIMPLE => Detail::Simple,
            other => {
                let code = ze_result_t::ZE_RESULT_ERROR_INVALID_ENUMERATION;
                return Err(Error::new(code, format!("pNext->mode: {other:?} is no mode")));
            }
        };
    }
    Ok(answer)
}
