// SPDX-License-Identifier: MIT OR Apache-2.0
//! Images: texels in memory, row after row, and a descriptor whose address kernels get.
//!
//! The layout is linear (`device/SPEC.md`, chapter "Images and samplers"), so a copy of an image is
//! a copy of rows of bytes.

use std::sync::Arc;

use tally_uapi::image::{
    ImageDescriptor, MAX_BUFFER_BYTES, MAX_EXTENT_2D, MAX_EXTENT_3D, MAX_LAYERS, ROW_ALIGN, kind,
};
use tally_uapi::packet::Region;
use tally_ze::{
    ze_image_desc_t, ze_image_flags_t, ze_image_region_t, ze_image_type_t as Kind, ze_result_t,
};

use crate::checks;
use crate::core::context::Context;
use crate::core::device::Device;
use crate::core::image::format::Format;
use crate::error::{Error, Result};
use crate::handle::{self, object};
use crate::sync::cell::Cell;
use crate::vm::budget::Charge;
use crate::vm::heap::Block;
use crate::vm::{Mapping, Source, Vm};

pub mod format;

/// An image, or a view of one.
pub struct Image {
    context: Arc<Context>,
    texels: Arc<Texels>,
    block: Block,
    shape: Shape,
    /// Whether kernels may write it.
    writable: bool,
    /// Whether kernels may get its number instead of its handle.
    bindless: bool,
}

object!(ze_image_handle_t => Image, handle::Kind::Image);

/// The memory of the texels of an image and its views.
struct Texels {
    base: u64,
    bytes: u64,
    row_pitch: u64,
    slice_pitch: u64,
    /// The id of the memory, as of allocations.
    id: u64,
    /// Whether it can be exported as a file.
    exportable: bool,
    /// The memory and its charge to the device's share, unless it is an allocation of the application.
    memory: Option<(Mapping, Charge)>,
}

impl Drop for Texels {
    fn drop(&mut self) {
        if let Some(checks) = checks::get().filter(|_| self.memory.is_some()) {
            checks.image_freed(self.base);
        }
    }
}

/// The form of an image, apart from its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The format.
    pub format: Format,
    /// One of [`kind`].
    pub kind: u8,
    /// Texels of a row, rows, slices or layers.
    pub size: [u32; 3],
}

/// The options of an image besides its shape.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traits {
    /// Whether kernels may write it.
    pub writable: bool,
    /// Whether kernels may get its number instead of its handle.
    pub bindless: bool,
    /// The sampler that its number includes.
    pub sampler: u32,
    /// The application's memory to use for it, if any.
    pub user: Option<u64>,
    /// Pitches of that memory in bytes, if the application chooses them; otherwise zero.
    pub pitches: [u64; 2],
}

/// A part of an image, as bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// VA of its first byte.
    pub address: u64,
    /// Bytes of a row, rows, slices.
    pub size: [u64; 3],
    /// Bytes from row to row.
    pub row_pitch: u64,
    /// Bytes from slice to slice.
    pub slice_pitch: u64,
}

impl Shape {
    /// The shape that `desc` describes.
    ///
    /// # Errors
    /// INVALID_ENUMERATION, UNSUPPORTED_IMAGE_FORMAT; UNSUPPORTED_SIZE: an extent is 0 or beyond the
    /// device's limit; INVALID_ARGUMENT: mipmap levels.
    pub fn new(desc: &ze_image_desc_t) -> Result<Self> {
        if !desc.r#type.is_known() {
            return Err(Error::new(
                ze_result_t::ZE_RESULT_ERROR_INVALID_ENUMERATION,
                format!("desc->type: {:?} has no meaning", desc.r#type),
            ));
        }
        let format = Format::new(&desc.format)?;
        if desc.miplevels != 0 {
            return Err(Error::invalid(format!("desc->miplevels: {}, not 0", desc.miplevels)));
        }
        let d2 = u64::from(MAX_EXTENT_2D);
        let extent = |name, value: u64, max: u64| match u32::try_from(value) {
            Ok(value @ 1..) if u64::from(value) <= max => Ok(value),
            _ => Err(Error::new(
                ze_result_t::ZE_RESULT_ERROR_UNSUPPORTED_SIZE,
                format!("desc->{name}: {value} is not from 1 to {max}"),
            )),
        };
        let layers = || extent("arraylevels", desc.arraylevels.into(), MAX_LAYERS.into());
        let width = || extent("width", desc.width, d2);
        let height = || extent("height", desc.height.into(), d2);
        let (kind, size) = match desc.r#type {
            Kind::ZE_IMAGE_TYPE_1D => (kind::D1, [width()?, 1, 1]),
            Kind::ZE_IMAGE_TYPE_1DARRAY => (kind::D1_ARRAY, [width()?, 1, layers()?]),
            Kind::ZE_IMAGE_TYPE_2D => (kind::D2, [width()?, height()?, 1]),
            Kind::ZE_IMAGE_TYPE_2DARRAY => (kind::D2_ARRAY, [width()?, height()?, layers()?]),
            Kind::ZE_IMAGE_TYPE_3D => {
                let d3 = |name, value| extent(name, value, MAX_EXTENT_3D.into());
                let height = d3("height", desc.height.into())?;
                (kind::D3, [d3("width", desc.width)?, height, d3("depth", desc.depth.into())?])
            }
            // The width of a buffer is its size in bytes.
            _ => {
                extent("width", desc.width, MAX_BUFFER_BYTES)?;
                let texels = desc.width / u64::from(format.texel_bytes);
                (kind::BUFFER, [extent("width in texels", texels, MAX_BUFFER_BYTES)?, 1, 1])
            }
        };
        Ok(Self { format, kind, size })
    }

    /// Bytes of a row's texels.
    fn row_bytes(&self) -> u64 {
        u64::from(self.size[0]) * u64::from(self.format.texel_bytes)
    }

    /// Whether it has rows below each other: 2D, 2D arrays and 3D.
    fn is_flat(&self) -> bool {
        matches!(self.kind, kind::D2 | kind::D2_ARRAY | kind::D3)
    }

    /// The device's preferred pitches of rows and slices, in bytes.
    fn pitches(&self) -> [u64; 2] {
        let row = if self.is_flat() { row_pitch(self.row_bytes()) } else { self.row_bytes() };
        [row, row * u64::from(self.size[1])]
    }

    /// Bytes from the first to the last texel, with these pitches.
    fn span(&self, [row, slice]: [u64; 2]) -> Option<u64> {
        let slices = slice.checked_mul(u64::from(self.size[2] - 1))?;
        let rows = row.checked_mul(u64::from(self.size[1] - 1))?;
        slices.checked_add(rows)?.checked_add(self.row_bytes())
    }
}

/// The row pitch in bytes for rows of `bytes` bytes.
pub fn row_pitch(bytes: u64) -> u64 {
    bytes.next_multiple_of(ROW_ALIGN)
}

impl Image {
    /// Makes an image and its memory from `source`, charged to the share of `device`, or an image over memory of
    /// the application.
    ///
    /// # Errors
    /// INVALID_ARGUMENT, INVALID_SIZE: the application's memory or the file is too small; OUT_OF_DEVICE_MEMORY,
    /// OUT_OF_HOST_MEMORY, DEVICE_LOST.
    pub fn create(
        context: &Arc<Context>,
        device: &Device,
        shape: Shape,
        traits: &Traits,
        source: Source,
    ) -> Result<Self> {
        let texels = match traits.user {
            Some(_) if source.is_file() => {
                return Err(Error::invalid(
                    "desc->pNext: the memory is either the application's or a file's",
                ));
            }
            Some(address) => Texels::of_user(context.vm(), &shape, address, traits.pitches)?,
            None => Texels::allocate(context, device, &shape, source)?,
        };
        Self::over(context, shape, traits, Arc::new(texels))
    }

    /// Makes a view: the same texels with another descriptor.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: other extents, or texels of another size; out of memory.
    pub fn view(&self, context: &Arc<Context>, shape: Shape, traits: &Traits) -> Result<Self> {
        let own = &self.shape;
        if (shape.size, shape.format.texel_bytes) != (own.size, own.format.texel_bytes) {
            return Err(Error::invalid(format!(
                "desc: {:?} texels of {} bytes, but the image has {:?} of {} bytes",
                shape.size, shape.format.texel_bytes, own.size, own.format.texel_bytes
            )));
        }
        if traits.user.is_some() {
            return Err(Error::invalid("desc->pNext: a view has the memory of its image"));
        }
        let writable = traits.writable || self.writable;
        Self::over(context, shape, &Traits { writable, ..*traits }, self.texels.clone())
    }

    fn over(
        context: &Arc<Context>,
        shape: Shape,
        traits: &Traits,
        texels: Arc<Texels>,
    ) -> Result<Self> {
        let format = &shape.format;
        let [width, height, depth] = shape.size;
        let descriptor = ImageDescriptor {
            base: texels.base,
            row_pitch: texels.row_pitch,
            slice_pitch: texels.slice_pitch,
            width,
            height,
            depth,
            kind: shape.kind,
            layout: format.layout,
            components: format.components,
            channel: format.channel,
            swizzle: format.swizzle,
            texel_bytes: format.texel_bytes,
            order: format.order(),
            data_type: format.data_type(),
            sampler: traits.sampler,
            ..Default::default()
        };
        let bytes = size_of::<ImageDescriptor>() as u64;
        let block = context.vm().heap().alloc(bytes, bytes)?;
        // SAFETY: the block has this size and alignment, and nothing else refers to it yet.
        unsafe { block.ptr().cast::<ImageDescriptor>().write(descriptor) };
        let (writable, bindless) = (traits.writable, traits.bindless);
        Ok(Self { context: context.clone(), texels, block, shape, writable, bindless })
    }

    /// The value that kernels get for it: the VA of its descriptor.
    pub fn descriptor(&self) -> u64 {
        self.block.va()
    }

    /// Its form.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Whether kernels may write it.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Whether kernels may get its number.
    pub fn is_bindless(&self) -> bool {
        self.bindless
    }

    /// The id of its memory in this process, the same for views.
    pub fn id(&self) -> u64 {
        self.texels.id
    }

    /// The buffer that contains it, if that can be exported as a file.
    pub fn exportable(&self) -> Option<u32> {
        let memory = self.texels.memory.as_ref().filter(|_| self.texels.exportable);
        memory.map(|(mapping, _)| mapping.bo())
    }

    /// Bytes of its memory, its row pitch and its slice pitch.
    pub fn memory(&self) -> [u64; 3] {
        [self.texels.bytes, self.texels.row_pitch, self.texels.slice_pitch]
    }

    /// Work of the device that may still use it.
    ///
    /// # Errors
    /// Out of memory.
    pub fn unfinished(&self) -> Result<Vec<(Cell, u64)>> {
        self.context.unfinished()
    }

    /// Frees it once `until` is reached.
    pub fn destroy(self, until: Vec<(Cell, u64)>) {
        let Self { context, texels, block, .. } = self;
        context.shared().retire_after(until, Box::new((texels, block)));
    }

    /// The bytes of a region, or of the whole image without one. Fields for which the image has no dimension
    /// are ignored: layers of 1D images are in y, those of 2D images in z. A region may be empty, like one of
    /// memory: a copy of it still waits and signals.
    ///
    /// # Errors
    /// INVALID_SIZE: not inside the image.
    pub fn part(&self, region: Option<&ze_image_region_t>, name: &str) -> Result<Part> {
        let all = self.shape.size;
        let (origin, size) = match (region, self.shape.kind) {
            (None, _) => ([0; 3], all),
            (Some(it), kind::D1 | kind::BUFFER) => ([it.originX, 0, 0], [it.width, 1, 1]),
            (Some(it), kind::D1_ARRAY) => ([it.originX, 0, it.originY], [it.width, 1, it.height]),
            (Some(it), kind::D2) => ([it.originX, it.originY, 0], [it.width, it.height, 1]),
            (Some(it), _) => {
                ([it.originX, it.originY, it.originZ], [it.width, it.height, it.depth])
            }
        };
        for i in 0..3 {
            if u64::from(origin[i]) + u64::from(size[i]) > u64::from(all[i]) {
                return Err(Error::new(
                    ze_result_t::ZE_RESULT_ERROR_INVALID_SIZE,
                    format!("{name}: {size:?} texels from {origin:?} of an image of {all:?}"),
                ));
            }
        }
        let Texels { base, row_pitch, slice_pitch, .. } = *self.texels;
        let texel = u64::from(self.shape.format.texel_bytes);
        let [x, y, z] = origin.map(u64::from);
        let [width, rows, slices] = size.map(u64::from);
        Ok(Part {
            address: base + x * texel + y * row_pitch + z * slice_pitch,
            size: [width * texel, rows, slices],
            row_pitch,
            slice_pitch,
        })
    }
}

impl Part {
    /// The shape of a copy of `src` to `dst`.
    pub fn copy(dst: &Self, src: &Self) -> Region {
        let [width, height, depth] = dst.size;
        Region {
            width,
            height,
            depth,
            dst_row_pitch: dst.row_pitch,
            dst_slice_pitch: dst.slice_pitch,
            src_row_pitch: src.row_pitch,
            src_slice_pitch: src.slice_pitch,
            reserved: 0,
        }
    }

    /// Bytes from the first to the last byte of the part.
    pub fn span(&self) -> u64 {
        if self.size.contains(&0) {
            return 0;
        }
        let [width, rows, slices] = self.size;
        let rows = (rows - 1).saturating_mul(self.row_pitch);
        (slices - 1).saturating_mul(self.slice_pitch).saturating_add(rows).saturating_add(width)
    }

    /// Whether the two parts share a byte.
    pub fn overlaps(&self, other: &Self) -> bool {
        let rows = |part: &Self| part.size[1] * part.size[2];
        let (few, many) = if rows(self) < rows(other) { (self, other) } else { (other, self) };
        let (start, end) = (many.address, many.address.saturating_add(many.span()));
        if few.address >= end || start >= few.address.saturating_add(few.span()) {
            return false;
        }
        (0..few.size[2])
            .flat_map(|slice| (0..few.size[1]).map(move |row| few.row(slice, row)))
            .any(|row| many.touches(row, row.saturating_add(few.size[0])))
    }

    /// Address of a row.
    fn row(&self, slice: u64, row: u64) -> u64 {
        self.address.saturating_add(slice * self.slice_pitch).saturating_add(row * self.row_pitch)
    }

    /// Whether a byte in `start..end` belongs to this part, which is not empty.
    fn touches(&self, start: u64, end: u64) -> bool {
        let [width, rows, slices] = self.size;
        let offset = start.saturating_sub(self.address);
        // The last row that does not begin after `start`. The pitch of a single slice or row has no meaning.
        let slice = if slices > 1 { (offset / self.slice_pitch).min(slices - 1) } else { 0 };
        let within = offset - slice * if slices > 1 { self.slice_pitch } else { 0 };
        let row = if rows > 1 { (within / self.row_pitch).min(rows - 1) } else { 0 };
        let begins = self.row(slice, row);
        if begins.saturating_add(width) > start {
            return begins < end;
        }
        let next = match (slice, row) {
            (slice, row) if row + 1 < rows => self.row(slice, row + 1),
            (slice, _) if slice + 1 < slices => self.row(slice + 1, 0),
            _ => return false,
        };
        next < end
    }

    /// Memory at `address` for the texels of this part, with the pitches that the application gives;
    /// 0 means without gaps.
    ///
    /// # Errors
    /// INVALID_SIZE: rows or slices overlap.
    pub fn memory(&self, address: u64, pitches: [u32; 2]) -> Result<Self> {
        let [width, rows, slices] = self.size;
        let too_small = |name, pitch, least| {
            Err(Error::new(
                ze_result_t::ZE_RESULT_ERROR_INVALID_SIZE,
                format!("{name}: {pitch}, but the region takes {least} bytes"),
            ))
        };
        let row_pitch = match u64::from(pitches[0]) {
            0 => width,
            pitch if pitch < width => return too_small("rowPitch", pitch, width),
            pitch => pitch,
        };
        let slice_pitch = match u64::from(pitches[1]) {
            0 => row_pitch * rows,
            pitch if slices > 1 && pitch < row_pitch * rows.saturating_sub(1) + width => {
                return too_small("slicePitch", pitch, row_pitch * rows);
            }
            pitch => pitch,
        };
        Ok(Self { address, row_pitch, slice_pitch, ..*self })
    }
}

impl Texels {
    fn allocate(context: &Context, device: &Device, shape: &Shape, source: Source) -> Result<Self> {
        let pitches = shape.pitches();
        // Extents are limited, so this cannot overflow.
        let bytes = shape.span(pitches).unwrap_or(u64::MAX);
        // Memory that was freed with a delay may be available now.
        context.shared().reap();
        let charge = device.budget().charge(bytes)?;
        let exportable = source.is_file();
        let memory = context.vm().map_content(source, bytes)?;
        let [row_pitch, slice_pitch] = pitches;
        let (base, id) = (memory.va(), Vm::allocation_id());
        if let Some(checks) = checks::get() {
            checks.allocated(base, bytes, checks::Kind::Image, exportable);
        }
        let memory = Some((memory, charge));
        Ok(Self { base, bytes, row_pitch, slice_pitch, id, exportable, memory })
    }

    /// Texels in an allocation of the application, which has to outlive the image.
    fn of_user(vm: &Vm, shape: &Shape, base: u64, given: [u64; 2]) -> Result<Self> {
        let own = shape.pitches();
        let row = if given[0] == 0 { own[0] } else { given[0] };
        let slice = match given[1] {
            0 => row.checked_mul(u64::from(shape.size[1])),
            pitch => Some(pitch),
        };
        let slice = slice.filter(|&slice| {
            let rows = row.checked_mul(u64::from(shape.size[1]));
            row >= shape.row_bytes() && rows.is_some_and(|rows| slice >= rows)
        });
        let slice = slice.ok_or_else(|| {
            Error::invalid(format!(
                "ze_custom_pitch_exp_desc_t: pitches {given:?} are too small for {:?} texels",
                shape.size
            ))
        })?;
        let found = vm.find(base).ok_or_else(|| {
            Error::invalid(format!(
                "ze_image_pitched_exp_desc_t: {base:#x} is in no allocation of the driver's"
            ))
        })?;
        let bytes = shape.span([row, slice]).filter(|&it| it <= found.size - (base - found.base));
        let bytes = bytes.ok_or_else(|| {
            Error::new(
                ze_result_t::ZE_RESULT_ERROR_INVALID_SIZE,
                format!(
                    "ze_image_pitched_exp_desc_t: the image does not fit the {} bytes at {:#x}",
                    found.size, found.base
                ),
            )
        })?;
        let (row_pitch, slice_pitch, id) = (row, slice, found.id);
        Ok(Self { base, bytes, row_pitch, slice_pitch, id, exportable: false, memory: None })
    }
}

/// Whether kernels may write an image with these flags.
pub fn is_writable(flags: ze_image_flags_t) -> bool {
    flags.contains(ze_image_flags_t::ZE_IMAGE_FLAG_KERNEL_WRITE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(address: u64, size: [u64; 3], row_pitch: u64, slice_pitch: u64) -> Part {
        Part { address, size, row_pitch, slice_pitch }
    }

    /// Every byte of a part.
    fn bytes(part: &Part) -> impl Iterator<Item = u64> {
        let [width, rows, slices] = part.size;
        let rows = (0..slices).flat_map(move |slice| (0..rows).map(move |row| (slice, row)));
        rows.flat_map(move |(slice, row)| (0..width).map(move |byte| part.row(slice, row) + byte))
    }

    #[test]
    fn parts_overlap_if_they_share_a_byte() {
        let shapes = [
            part(0, [4, 3, 2], 8, 32),
            part(0, [4, 3, 2], 4, 12),
            part(0, [1, 5, 3], 3, 17),
            part(0, [9, 1, 2], 1, 11),
            part(0, [7, 4, 1], 10, 0),
            part(0, [20, 1, 1], 0, 0),
            part(0, [4, 0, 2], 8, 32),
        ];
        for a in shapes {
            for b in shapes {
                for address in 0..140 {
                    let (a, b) = (Part { address: 70, ..a }, Part { address, ..b });
                    let share = bytes(&a).any(|byte| bytes(&b).any(|other| byte == other));
                    assert_eq!(a.overlaps(&b), share, "{a:?} {b:?}");
                }
            }
        }
    }
}
