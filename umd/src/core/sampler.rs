// SPDX-License-Identifier: MIT OR Apache-2.0
//! Samplers. A kernel gets a sampler as a number that encodes the mapping from coordinates to texels.

use tally_uapi::image::sampler;
use tally_ze::{
    ze_result_t, ze_sampler_address_mode_t as Address, ze_sampler_desc_t,
    ze_sampler_filter_mode_t as Filter,
};

use crate::error::{Error, Result};
use crate::handle::{Kind, object};

/// A sampler.
pub struct Sampler {
    word: u32,
}

object!(ze_sampler_handle_t => Sampler, Kind::Sampler);

impl Sampler {
    /// The sampler that `desc` describes.
    ///
    /// # Errors
    /// INVALID_ENUMERATION.
    pub fn new(desc: &ze_sampler_desc_t) -> Result<Self> {
        let address = match desc.addressMode {
            Address::ZE_SAMPLER_ADDRESS_MODE_NONE => sampler::NONE,
            Address::ZE_SAMPLER_ADDRESS_MODE_REPEAT => sampler::REPEAT,
            Address::ZE_SAMPLER_ADDRESS_MODE_CLAMP => sampler::CLAMP_TO_EDGE,
            Address::ZE_SAMPLER_ADDRESS_MODE_CLAMP_TO_BORDER => sampler::CLAMP_TO_BORDER,
            Address::ZE_SAMPLER_ADDRESS_MODE_MIRROR => sampler::MIRROR,
            other => return Err(unknown("addressMode", format!("{other:?}"))),
        };
        let filter = match desc.filterMode {
            Filter::ZE_SAMPLER_FILTER_MODE_NEAREST => 0,
            Filter::ZE_SAMPLER_FILTER_MODE_LINEAR => sampler::LINEAR,
            other => return Err(unknown("filterMode", format!("{other:?}"))),
        };
        let normalized = if desc.isNormalized != 0 { sampler::NORMALIZED } else { 0 };
        Ok(Self { word: address | filter | normalized })
    }

    /// The value that kernels get for it.
    pub fn word(&self) -> u32 {
        self.word
    }
}

fn unknown(field: &str, value: String) -> Error {
    Error::new(
        ze_result_t::ZE_RESULT_ERROR_INVALID_ENUMERATION,
        format!("desc->{field}: {value} has no meaning"),
    )
}
