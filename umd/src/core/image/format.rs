// SPDX-License-Identifier: MIT OR Apache-2.0
//! Image formats: the supported ones, and their descriptions for the device.

use tally_uapi::image::{channel, layout, swizzle};
use tally_ze::{
    ze_image_format_layout_t as Layout, ze_image_format_swizzle_t as Swizzle, ze_image_format_t,
    ze_image_format_type_t as Type, ze_image_sampler_filter_flags_t, ze_result_t,
};

use crate::error::{Error, Result};

/// A supported format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// One of [`layout`].
    pub layout: u8,
    /// Components of a texel.
    pub components: u8,
    /// One of [`channel`].
    pub channel: u8,
    /// Bytes of a texel.
    pub texel_bytes: u8,
    /// One of [`swizzle`] for each channel.
    pub swizzle: [u8; 4],
}

impl Format {
    /// The format that `desc` describes.
    ///
    /// # Errors
    /// INVALID_ENUMERATION; UNSUPPORTED_IMAGE_FORMAT.
    pub fn new(desc: &ze_image_format_t) -> Result<Self> {
        let channels = [("x", desc.x), ("y", desc.y), ("z", desc.z), ("w", desc.w)];
        if !desc.layout.is_known() {
            return Err(unknown("layout", format!("{:?}", desc.layout)));
        }
        let Some(channel) = channel_of(desc.r#type) else {
            return Err(unknown("type", format!("{:?}", desc.r#type)));
        };
        if let Some((name, value)) = channels.iter().find(|it| !it.1.is_known()) {
            return Err(unknown(name, format!("{value:?}")));
        }
        let form = form_of(desc.layout).filter(|form| form.holds(channel));
        let form = form.ok_or_else(|| {
            Error::new(
                ze_result_t::ZE_RESULT_ERROR_UNSUPPORTED_IMAGE_FORMAT,
                format!("desc->format: {:?} with {:?}", desc.layout, desc.r#type),
            )
        })?;
        let has_alpha = form.components == 4;
        let map = |i: usize| match channels[i].1 {
            Swizzle::ZE_IMAGE_FORMAT_SWIZZLE_A if !has_alpha => swizzle::ONE,
            Swizzle::ZE_IMAGE_FORMAT_SWIZZLE_1 => swizzle::ONE,
            Swizzle::ZE_IMAGE_FORMAT_SWIZZLE_0 => swizzle::ZERO,
            // Channels marked X ("don't care") read like those of OpenCL's Rx, RGx and RGBx.
            Swizzle::ZE_IMAGE_FORMAT_SWIZZLE_X if i == 3 => swizzle::ONE_INSIDE,
            Swizzle::ZE_IMAGE_FORMAT_SWIZZLE_X => swizzle::ZERO,
            // The depth is the only component of its images.
            Swizzle::ZE_IMAGE_FORMAT_SWIZZLE_D => 0,
            component if component.0 < u32::from(form.components) => component.0 as u8,
            _ => swizzle::ZERO,
        };
        Ok(Self {
            layout: form.layout,
            components: form.components,
            channel,
            texel_bytes: form.texel_bytes,
            swizzle: [map(0), map(1), map(2), map(3)],
        })
    }

    /// The same format with sRGB colours.
    ///
    /// # Errors
    /// UNSUPPORTED_IMAGE_FORMAT: its components are not 8-bit UNORM.
    pub fn srgb(self) -> Result<Self> {
        if (self.layout, self.channel) != (layout::B8, channel::UNORM) {
            return Err(Error::new(
                ze_result_t::ZE_RESULT_ERROR_UNSUPPORTED_IMAGE_FORMAT,
                "ze_srgb_ext_desc_t: only UNORM components of 8 bits are sRGB",
            ));
        }
        Ok(Self { channel: channel::SRGB, ..self })
    }

    /// The filters with which images of the format can be sampled. Integers cannot be
    /// interpolated.
    pub fn filters(&self) -> ze_image_sampler_filter_flags_t {
        use ze_image_sampler_filter_flags_t as filter;
        match self.channel {
            channel::UINT | channel::SINT => filter::ZE_IMAGE_SAMPLER_FILTER_FLAG_POINT,
            _ => filter::all(),
        }
    }

    /// The channel order as SPIR-V's number. An order without a name in SPIR-V is named after its
    /// components.
    pub fn order(&self) -> u8 {
        let order = self.linear_order();
        if self.channel != channel::SRGB {
            return order;
        }
        // Orders that SPIR-V has in sRGB, too: RGB, RGBx, RGBA, BGRA.
        match order {
            4 => 15,
            12 => 16,
            5 => 17,
            6 => 18,
            other => other,
        }
    }

    fn linear_order(&self) -> u8 {
        const LUMINANCE: u8 = 9;
        const INTENSITY: u8 = 8;
        let (zero, one) = (swizzle::ZERO, swizzle::ONE);
        match self.swizzle {
            [0, 0, 0, 0] => INTENSITY,
            [0, 0, 0, 1] if self.components == 2 => LUMINANCE,
            [0, 0, 0, last] if last == one => LUMINANCE,
            [z, _, _, 3] if z == zero => 1,
            [z, _, _, 0] if z == zero => 1,
            [0, z, _, 3] if z == zero => 3,
            [0, 1, z, last] if z == zero && last == swizzle::ONE_INSIDE => 11,
            [0, 1, z, _] if z == zero => 2,
            [0, 1, 2, 3] => 5,
            [2, 1, 0, 3] => 6,
            [1, 2, 3, 0] => 7,
            [3, 2, 1, 0] => 19,
            [0, 1, 2, last] if last == swizzle::ONE_INSIDE => 12,
            [0, 1, 2, _] => 4,
            [0, z, _, last] if z == zero && last == swizzle::ONE_INSIDE => 10,
            [0, z, ..] if z == zero => 0,
            _ => [0, 2, 4, 5][usize::from(self.components - 1)],
        }
    }

    /// The channel data type as SPIR-V's number. A type without a name in SPIR-V is named after the
    /// nearest type with the same number of bits.
    pub fn data_type(&self) -> u8 {
        let float = |half: bool| if half { 13 } else { 14 };
        match (self.layout, self.channel) {
            (layout::B8, channel::SNORM) => 0,
            (layout::B16, channel::SNORM) => 1,
            (layout::B8, channel::UNORM | channel::SRGB) => 2,
            (layout::B16, channel::UNORM) => 3,
            (layout::B5_6_5, _) => 4,
            (layout::B5_5_5_1, _) => 5,
            (layout::B8, channel::SINT) => 7,
            (layout::B16, channel::SINT) => 8,
            (layout::B32, channel::SINT) => 9,
            (layout::B8 | layout::B4_4_4_4, channel::UINT) => 10,
            (layout::B16, channel::UINT) => 11,
            (layout::B32, channel::UINT) => 12,
            (layout::B4_4_4_4, _) => 2,
            (layout::B10_10_10_2, _) => 16,
            (size, _) => float(size == layout::B16 || size == layout::B11_11_10),
        }
    }
}

/// The bits of a layout.
struct Form {
    layout: u8,
    components: u8,
    texel_bytes: u8,
}

impl Form {
    /// Whether the specification's table lists this type for the layout.
    fn holds(&self, channel: u8) -> bool {
        match self.layout {
            layout::B8 => channel != channel::FLOAT,
            layout::B11_11_10 => channel == channel::FLOAT,
            layout::B5_6_5 | layout::B5_5_5_1 | layout::B4_4_4_4 => channel == channel::UNORM,
            _ => true,
        }
    }
}

fn channel_of(ty: Type) -> Option<u8> {
    Some(match ty {
        Type::ZE_IMAGE_FORMAT_TYPE_UINT => channel::UINT,
        Type::ZE_IMAGE_FORMAT_TYPE_SINT => channel::SINT,
        Type::ZE_IMAGE_FORMAT_TYPE_UNORM => channel::UNORM,
        Type::ZE_IMAGE_FORMAT_TYPE_SNORM => channel::SNORM,
        Type::ZE_IMAGE_FORMAT_TYPE_FLOAT => channel::FLOAT,
        _ => return None,
    })
}

/// The supported layouts: all except those for video.
fn form_of(name: Layout) -> Option<Form> {
    let (layout, components, texel_bytes) = match name {
        Layout::ZE_IMAGE_FORMAT_LAYOUT_8 => (layout::B8, 1, 1),
        Layout::ZE_IMAGE_FORMAT_LAYOUT_8_8 => (layout::B8, 2, 2),
        Layout::ZE_IMAGE_FORMAT_LAYOUT_8_8_8 => (layout::B8, 3, 3),
        Layout::ZE_IMAGE_FORMAT_LAYOUT_8_8_8_8 => (layout::B8, 4, 4),
        Layout::ZE_IMAGE_FORMAT_LAYOUT_16 => (layout::B16, 1, 2),
        Layout::ZE_IMAGE_FORMAT_LAYOUT_16_16 => (layout::B16, 2, 4),
        Layout::ZE_IMAGE_FORMAT_LAYOUT_16_16_16 => (layout::B16, 3, 6),
        Layout::ZE_IMAGE_FORMAT_LAYOUT_16_16_16_16 => (layout::B16, 4, 8),
        Layout::ZE_IMAGE_FORMAT_LAYOUT_32 => (layout::B32, 1, 4),
        Layout::ZE_IMAGE_FORMAT_LAYOUT_32_32 => (layout::B32, 2, 8),
        Layout::ZE_IMAGE_FORMAT_LAYOUT_32_32_32 => (layout::B32, 3, 12),
        Layout::ZE_IMAGE_FORMAT_LAYOUT_32_32_32_32 => (layout::B32, 4, 16),
        Layout::ZE_IMAGE_FORMAT_LAYOUT_10_10_10_2 => (layout::B10_10_10_2, 4, 4),
        Layout::ZE_IMAGE_FORMAT_LAYOUT_11_11_10 => (layout::B11_11_10, 3, 4),
        Layout::ZE_IMAGE_FORMAT_LAYOUT_5_6_5 => (layout::B5_6_5, 3, 2),
        Layout::ZE_IMAGE_FORMAT_LAYOUT_5_5_5_1 => (layout::B5_5_5_1, 4, 2),
        Layout::ZE_IMAGE_FORMAT_LAYOUT_4_4_4_4 => (layout::B4_4_4_4, 4, 2),
        _ => return None,
    };
    Some(Form { layout, components, texel_bytes })
}

fn unknown(field: &str, value: String) -> Error {
    Error::new(
        ze_result_t::ZE_RESULT_ERROR_INVALID_ENUMERATION,
        format!("desc->format.{field}: {value} has no meaning"),
    )
}
