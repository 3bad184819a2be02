// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fences.

use tally_ze::*;

use super::api;
use super::queue::ended;
use crate::core::fence::Fence;
use crate::handle;

api! {
    /// Spec: `zeFenceCreate`.
    fn zeFenceCreate(
        call,
        hCommandQueue: ze_command_queue_handle_t,
        desc: *const ze_fence_desc_t,
        phFence: *mut ze_fence_handle_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandQueue`
        let queue = call.handle(hCommandQueue, "hCommandQueue")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == desc`
        let desc = call.desc(desc, "desc")?;
        // ZE_RESULT_ERROR_INVALID_ENUMERATION: `0x1 < desc->flags`
        call.flags(desc.flags.has_unknown(), "desc->flags")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == phFence`
        let out = call.out(phFence, "phFence")?;
        let signalled = desc.flags.contains(ze_fence_flags_t::ZE_FENCE_FLAG_SIGNALED);
        out.set(handle::create(Fence::new(queue, signalled))?);
        Ok(())
    }

    /// Spec: `zeFenceDestroy`.
    fn zeFenceDestroy(call, hFence: ze_fence_handle_t) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hFence`
        call.destroy(hFence, "hFence")
    }

    /// Spec: `zeFenceHostSynchronize`.
    fn zeFenceHostSynchronize(call, hFence: ze_fence_handle_t, timeout: u64) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hFence`
        // ZE_RESULT_NOT_READY: timeout expired
        ended(call.handle(hFence, "hFence")?.wait(timeout))
    }

    /// Spec: `zeFenceQueryStatus`.
    fn zeFenceQueryStatus(call, hFence: ze_fence_handle_t) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hFence`
        // ZE_RESULT_NOT_READY: not signaled
        ended(call.handle(hFence, "hFence")?.wait(0))
    }

    /// Spec: `zeFenceReset`.
    fn zeFenceReset(call, hFence: ze_fence_handle_t) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hFence`
        call.handle(hFence, "hFence")?.reset();
        Ok(())
    }
}
