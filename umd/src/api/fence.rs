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
        let queue = call.handle(hCommandQueue, "hCommandQueue")?;
        let desc = call.desc(desc, "desc")?;
        call.flags(desc.flags.has_unknown(), "desc->flags")?;
        let out = call.out(phFence, "phFence")?;
        let signalled = desc.flags.contains(ze_fence_flags_t::ZE_FENCE_FLAG_SIGNALED);
        out.set(handle::create(Fence::new(queue, signalled))?);
        Ok(())
    }

    /// Spec: `zeFenceDestroy`.
    fn zeFenceDestroy(call, hFence: ze_fence_handle_t) {
        call.destroy(hFence, "hFence")
    }

    /// Spec: `zeFenceHostSynchronize`.
    fn zeFenceHostSynchronize(call, hFence: ze_fence_handle_t, timeout: u64) {
        ended(call.handle(hFence, "hFence")?.wait(timeout))
    }

    /// Spec: `zeFenceQueryStatus`.
    fn zeFenceQueryStatus(call, hFence: ze_fence_handle_t) {
        ended(call.handle(hFence, "hFence")?.wait(0))
    }

    /// Spec: `zeFenceReset`.
    fn zeFenceReset(call, hFence: ze_fence_handle_t) {
        call.handle(hFence, "hFence")?.reset();
        Ok(())
    }
}
