// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Images and samplers as kernels access them: descriptors in memory.
//!
//! `device/SPEC.md`, chapter "Images and samplers".

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The descriptor of an image, whose VA is a kernel's image argument. Aligned to 64 bytes.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct ImageDescriptor {
    /// VA of the first texel.
    pub base: u64,
    /// Bytes from row to row.
    pub row_pitch: u64,
    /// Bytes from slice to slice, or from layer to layer of an array.
    pub slice_pitch: u64,
    /// Texels of a row, 1 to 2^31 - 1.
    pub width: u32,
    /// Rows; 1 where there is no such dimension.
    pub height: u32,
    /// Slices or layers; 1 where there is no such dimension.
    pub depth: u32,
    /// One of [`kind`].
    pub kind: u8,
    /// One of [`layout`].
    pub layout: u8,
    /// Components of a texel, 1 to 4.
    pub components: u8,
    /// One of [`channel`].
    pub channel: u8,
    /// The source of each channel of a kernel's value: one of [`swizzle`].
    pub swizzle: [u8; 4],
    /// Bytes of a texel, 1 to 16.
    pub texel_bytes: u8,
    /// The channel order by SPIR-V's numbers, for queries.
    pub order: u8,
    /// The channel data type by SPIR-V's numbers, for queries.
    pub data_type: u8,
    /// Zero.
    pub reserved: u8,
    /// The sampler of an image that is sampled through its own handle.
    pub sampler: u32,
    /// Zero.
    pub zero: [u32; 3],
}

/// The ways in which an image is addressed.
pub mod kind {
    /// x
    pub const D1: u8 = 0;
    /// x, layer
    pub const D1_ARRAY: u8 = 1;
    /// x, y
    pub const D2: u8 = 2;
    /// x, y, layer
    pub const D2_ARRAY: u8 = 3;
    /// x, y, z
    pub const D3: u8 = 4;
    /// x, over memory without a sampler
    pub const BUFFER: u8 = 5;
}

/// The layouts of the components of a texel in memory. Components of whole bytes follow each other;
/// others are parts of a little-endian word.
pub mod layout {
    /// 8 bits each
    pub const B8: u8 = 0;
    /// 16 bits each
    pub const B16: u8 = 1;
    /// 32 bits each
    pub const B32: u8 = 2;
    /// 10, 10, 10 and 2 bits, the first one lowest
    pub const B10_10_10_2: u8 = 3;
    /// 11, 11 and 10 bits, the first one lowest
    pub const B11_11_10: u8 = 4;
    /// 5, 6 and 5 bits, the first one highest
    pub const B5_6_5: u8 = 5;
    /// 5, 5 and 5 bits, the first one highest, below a fourth of 1 bit
    pub const B5_5_5_1: u8 = 6;
    /// 4 bits each, the first one highest, below the fourth
    pub const B4_4_4_4: u8 = 7;
}

/// The meanings of a component's bits.
pub mod channel {
    /// An unsigned integer.
    pub const UINT: u8 = 0;
    /// A signed integer.
    pub const SINT: u8 = 1;
    /// 0 to 1.
    pub const UNORM: u8 = 2;
    /// -1 to 1.
    pub const SNORM: u8 = 3;
    /// binary16 or binary32; in 11 and 10 bits 5 of exponent and no sign.
    pub const FLOAT: u8 = 4;
    /// 0 to 1 on the curve of sRGB, of 8 bits; the fourth component as UNORM.
    pub const SRGB: u8 = 5;
}

/// The source of a channel of a kernel's value. Less than 4: this component of the texel.
pub mod swizzle {
    /// Zero.
    pub const ZERO: u8 = 4;
    /// One.
    pub const ONE: u8 = 5;
    /// One, and zero beyond the border.
    pub const ONE_INSIDE: u8 = 6;
}

/// A sampler is a number, not an object in memory: an addressing mode of
/// [`sampler`] and flags.
pub mod sampler {
    /// The program guarantees that coordinates are inside.
    pub const NONE: u32 = 0;
    /// Beyond the edge is the texel at the edge.
    pub const CLAMP_TO_EDGE: u32 = 1;
    /// Beyond the edge is the border.
    pub const CLAMP_TO_BORDER: u32 = 2;
    /// The image repeats.
    pub const REPEAT: u32 = 3;
    /// The image repeats, every other time mirrored.
    pub const MIRROR: u32 = 4;
    /// The bits of the addressing mode.
    pub const ADDRESS_MASK: u32 = 7;
    /// Coordinates from 0 to 1 span the image.
    pub const NORMALIZED: u32 = 1 << 3;
    /// The neighbouring texels are interpolated; otherwise the nearest texel is taken.
    pub const LINEAR: u32 = 1 << 4;
}

/// Maximum number of texels in a row of 1D and 2D images and their arrays, and of rows of 2D images.
pub const MAX_EXTENT_2D: u32 = 16384;
/// Maximum number of texels in a row, of rows and of slices of a 3D image.
pub const MAX_EXTENT_3D: u32 = 2048;
/// Maximum number of layers of an array.
pub const MAX_LAYERS: u32 = 2048;
/// Maximum size of a buffer image, in bytes.
pub const MAX_BUFFER_BYTES: u64 = 1 << 30;
/// The alignment of row pitches in bytes, unless the program chooses a pitch.
pub const ROW_ALIGN: u64 = 64;

const _: () = {
    use core::mem::{offset_of, size_of};
    assert!(size_of::<ImageDescriptor>() == 64);
    assert!(offset_of!(ImageDescriptor, kind) == 36);
    assert!(offset_of!(ImageDescriptor, texel_bytes) == 44);
    assert!(offset_of!(ImageDescriptor, sampler) == 48);
};
