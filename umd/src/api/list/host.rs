// SPDX-License-Identifier: MIT OR Apache-2.0
//! Appends of functions that run on the host.

use std::ffi::c_void;

use tally_ze::*;

use super::{Events, append, no_extensions};
use crate::api::api;
use crate::error::Error;
use crate::list::command::Command;
use crate::sync::host_function::Callback;

api! {
    /// Spec: `zeCommandListAppendHostFunction`. A thread of the driver calls the function; later commands
    /// of the list wait for it, and in an in-order list it waits for the earlier ones.
    fn zeCommandListAppendHostFunction(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        list @ hCommandList: ze_command_list_handle_t,
        pfnHostFunction: ze_host_function_callback_t,
        pUserData: *mut c_void,
        pNext: *const c_void,
        events: Events,
    ) {
        let function = pfnHostFunction.ok_or_else(|| {
            let code = ze_result_t::ZE_RESULT_ERROR_INVALID_NULL_POINTER;
            Error::new(code, "pfnHostFunction: the pointer is null")
        })?;
        // ZE_RESULT_ERROR_UNSUPPORTED_FEATURE: an extension passed via pNext is not supported
        no_extensions(call, pNext)?;
        let callback = Callback { function, data: pUserData };
        let function = list.context().shared().host_function(callback)?;
        append(call, list, &Command::HostFunction(&function), events)
    }
}
