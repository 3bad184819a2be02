// SPDX-License-Identifier: MIT OR Apache-2.0
//! Samplers.

use tally_ze::*;

use super::api;
use crate::core::sampler::Sampler;
use crate::handle;

api! {
    /// Spec: `zeSamplerCreate`.
    fn zeSamplerCreate(
        call,
        hContext: ze_context_handle_t,
        hDevice: ze_device_handle_t,
        desc: *const ze_sampler_desc_t,
        phSampler: *mut ze_sampler_handle_t,
    ) {
        let context = call.handle(hContext, "hContext")?;
        context.must_hold(call.handle(hDevice, "hDevice")?, "hDevice")?;
        let desc = call.desc(desc, "desc")?;
        let out = call.out(phSampler, "phSampler")?;
        out.set(handle::create(Sampler::new(desc)?)?);
        Ok(())
    }

    /// Spec: `zeSamplerDestroy`. Kernels that use the sampler have copied its settings.
    fn zeSamplerDestroy(call, hSampler: ze_sampler_handle_t) {
        call.destroy(hSampler, "hSampler")
    }
}
