// SPDX-License-Identifier: MIT OR Apache-2.0
//! Appends that copy or fill memory. Source and destination may be any memory of the process.

use std::ffi::c_void;

use tally_uapi::packet::Region;
use tally_ze::*;

use super::{Events, append, no_extensions};
use crate::api::{Call, api};
use crate::checks;
use crate::core::list::List;
use crate::error::{Error, Result};
use crate::list::command::Command;
use crate::log::warn_once;

api! {
    /// Spec: `zeCommandListAppendMemoryCopy`.
    fn zeCommandListAppendMemoryCopy(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        list @ hCommandList: ze_command_list_handle_t,
        dstptr: *mut c_void,
        srcptr: *const c_void,
        size: usize,
        events: Events,
    ) {
        copy(call, list, dstptr, srcptr, size, events)
    }

    /// Spec: `zeCommandListAppendMemoryCopyWithParameters`.
    fn zeCommandListAppendMemoryCopyWithParameters(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        list @ hCommandList: ze_command_list_handle_t,
        dstptr: *mut c_void,
        srcptr: *const c_void,
        size: usize,
        pNext: *const c_void,
        events: Events,
    ) {
        // ZE_RESULT_ERROR_UNSUPPORTED_FEATURE: an extension passed via pNext is not supported
        no_extensions(call, pNext)?;
        copy(call, list, dstptr, srcptr, size, events)
    }

    /// Spec: `zeCommandListAppendMemoryCopyFromContext`. All contexts share one address space.
    fn zeCommandListAppendMemoryCopyFromContext(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        list @ hCommandList: ze_command_list_handle_t,
        dstptr: *mut c_void,
        hContextSrc: ze_context_handle_t,
        srcptr: *const c_void,
        size: usize,
        events: Events,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hContextSrc`
        call.handle(hContextSrc, "hContextSrc")?;
        copy(call, list, dstptr, srcptr, size, events)
    }

    /// Spec: `zeCommandListAppendMemoryFill`.
    fn zeCommandListAppendMemoryFill(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        list @ hCommandList: ze_command_list_handle_t,
        ptr: *mut c_void,
        pattern: *const c_void,
        pattern_size: usize,
        size: usize,
        events: Events,
    ) {
        fill(call, list, ptr, (pattern, pattern_size), size, events)
    }

    /// Spec: `zeCommandListAppendMemoryFillWithParameters`.
    fn zeCommandListAppendMemoryFillWithParameters(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        list @ hCommandList: ze_command_list_handle_t,
        ptr: *mut c_void,
        pattern: *const c_void,
        pattern_size: usize,
        size: usize,
        pNext: *const c_void,
        events: Events,
    ) {
        // ZE_RESULT_ERROR_UNSUPPORTED_FEATURE: an extension passed via pNext is not supported
        no_extensions(call, pNext)?;
        fill(call, list, ptr, (pattern, pattern_size), size, events)
    }

    /// Spec: `zeCommandListAppendMemoryCopyRegion`. Widths and pitches are bytes.
    fn zeCommandListAppendMemoryCopyRegion(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        list @ hCommandList: ze_command_list_handle_t,
        dstptr: *mut c_void,
        dstRegion: *const ze_copy_region_t,
        dstPitch: u32,
        dstSlicePitch: u32,
        srcptr: *const c_void,
        srcRegion: *const ze_copy_region_t,
        srcPitch: u32,
        srcSlicePitch: u32,
        events: Events,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == dstptr`
        call.out(dstptr, "dstptr")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == dstRegion`
        let to = call.read(dstRegion, "dstRegion")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == srcptr`
        call.out(srcptr.cast_mut(), "srcptr")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == srcRegion`
        let from = call.read(srcRegion, "srcRegion")?;
        let dst = Side::new(dstptr as u64, to, dstPitch, dstSlicePitch);
        let src = Side::new(srcptr as u64, from, srcPitch, srcSlicePitch);
        let (dst, src, shape) = region(list, from, to, dst, src)?;
        append(call, list, &Command::CopyRegion { dst, src, shape }, events)
    }

    /// Spec: `zeCommandListAppendMemoryPrefetch`. A hint without effect, since all memory is resident.
    fn zeCommandListAppendMemoryPrefetch(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        list @ hCommandList: ze_command_list_handle_t,
        ptr: *const c_void,
        size: usize,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == ptr`
        call.out(ptr.cast_mut(), "ptr")?;
        range(list, ptr as u64, size as u64, "size")
    }

    /// Spec: `zeCommandListAppendMemAdvise`. A hint without effect, since all memory is the same.
    fn zeCommandListAppendMemAdvise(
        call,
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hCommandList`
        list @ hCommandList: ze_command_list_handle_t,
        hDevice: ze_device_handle_t,
        ptr: *const c_void,
        size: usize,
        advice: ze_memory_advice_t,
    ) {
        // ZE_RESULT_ERROR_INVALID_NULL_HANDLE: `nullptr == hDevice`
        list.context().must_hold(call.handle(hDevice, "hDevice")?, "hDevice")?;
        // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == ptr`
        call.out(ptr.cast_mut(), "ptr")?;
        // Advice has no effect here. Intel's driver takes any value, and Unified Runtime passes its own flags.
        if !advice.is_known() {
            warn_once!("advice: {advice:?} is no advice, and ignored");
        }
        range(list, ptr as u64, size as u64, "size")
    }
}

fn copy(
    call: Call<'_>,
    list: &List,
    dst: *mut c_void,
    src: *const c_void,
    size: usize,
    events: Events,
) -> Result {
    call.out(dst, "dstptr")?;
    call.out(src.cast_mut(), "srcptr")?;
    let (dst, src, size) = (dst as u64, src as u64, size as u64);
    range(list, dst, size, "size")?;
    range(list, src, size, "size")?;
    append(call, list, &Command::Copy { dst, src, size }, events)
}

fn fill(
    call: Call<'_>,
    list: &List,
    dst: *mut c_void,
    (pattern, pattern_size): (*const c_void, usize),
    size: usize,
    events: Events,
) -> Result {
    // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == ptr`
    call.out(dst, "ptr")?;
    // ZE_RESULT_ERROR_INVALID_NULL_POINTER: `nullptr == pattern`
    call.out(pattern.cast_mut(), "pattern")?;
    let wrong = |text: String| Error::new(ze_result_t::ZE_RESULT_ERROR_INVALID_SIZE, text);
    if !pattern_size.is_power_of_two() {
        return Err(wrong(format!("pattern_size: {pattern_size} is no power of two")));
    }
    // The specification refuses it. Intel's driver ends the fill with the first bytes of the pattern.
    if size & (pattern_size - 1) != 0 {
        warn_once!(
            "size: {size} is no multiple of pattern_size {pattern_size}; the last one is cut"
        );
    }
    let (dst, size) = (dst as u64, size as u64);
    range(list, dst, size, "size")?;
    let pattern = call.slice(pattern.cast::<u8>(), pattern_size, "pattern")?;
    append(call, list, &Command::Fill { dst, size, pattern }, events)
}

/// Refuses a range that begins in an allocation of the driver and ends beyond it, or that wraps.
#[inline]
pub(super) fn range(list: &List, address: u64, size: u64, name: &'static str) -> Result {
    if address.checked_add(size).is_none() {
        return Err(wraps(address, size, name));
    }
    match list.rest(address) {
        Some(rest) if rest < size => Err(reaches_beyond(rest, address, size, name)),
        _ => Ok(()),
    }
}

#[cold]
fn wraps(address: u64, size: u64, name: &str) -> Error {
    Error::invalid(format!("{name}: {size} bytes from {address:#x} do not exist"))
}

#[cold]
fn reaches_beyond(rest: u64, address: u64, size: u64, name: &str) -> Error {
    if let Some(checks) = checks::get() {
        checks.reaches_beyond(address, size);
    }
    Error::invalid(format!(
        "{name}: {size} bytes from {address:#x} reach beyond the allocation, of which {rest} are left"
    ))
}

/// One side of a copy of a region.
struct Side {
    address: u64,
    row_pitch: u64,
    slice_pitch: u64,
}

impl Side {
    fn new(base: u64, region: &ze_copy_region_t, row_pitch: u32, slice_pitch: u32) -> Self {
        // A pitch of 0 means that rows or slices follow each other without a gap.
        let row_pitch = u64::from(if row_pitch == 0 { region.width } else { row_pitch });
        let slice_pitch = match slice_pitch {
            0 => row_pitch * u64::from(region.height),
            pitch => u64::from(pitch),
        };
        let origin = u64::from(region.originX)
            .wrapping_add(u64::from(region.originY).wrapping_mul(row_pitch))
            .wrapping_add(u64::from(region.originZ).wrapping_mul(slice_pitch));
        Self { address: base.wrapping_add(origin), row_pitch, slice_pitch }
    }

    /// Bytes from the first to the last one that is accessed.
    fn span(&self, shape: &Region) -> u64 {
        if shape.width == 0 || shape.height == 0 {
            return 0;
        }
        (shape.depth - 1)
            .saturating_mul(self.slice_pitch)
            .saturating_add((shape.height - 1).saturating_mul(self.row_pitch))
            .saturating_add(shape.width)
    }
}

fn region(
    list: &List,
    from: &ze_copy_region_t,
    to: &ze_copy_region_t,
    dst: Side,
    src: Side,
) -> Result<(u64, u64, Region)> {
    if (from.width, from.height, from.depth.max(1)) != (to.width, to.height, to.depth.max(1)) {
        return Err(Error::new(
            ze_result_t::ZE_RESULT_ERROR_INVALID_SIZE,
            "dstRegion: its width, height and depth are not those of srcRegion",
        ));
    }
    let shape = Region {
        width: from.width.into(),
        height: from.height.into(),
        // Two-dimensional copies omit the depth.
        depth: from.depth.max(1).into(),
        dst_row_pitch: dst.row_pitch,
        dst_slice_pitch: dst.slice_pitch,
        src_row_pitch: src.row_pitch,
        src_slice_pitch: src.slice_pitch,
        reserved: 0,
    };
    range(list, dst.address, dst.span(&shape), "dstRegion")?;
    range(list, src.address, src.span(&shape), "srcRegion")?;
    if overlap(&dst, &src, &shape) {
        return Err(Error::new(
            ze_result_t::ZE_RESULT_ERROR_OVERLAPPING_REGIONS,
            "dstRegion: it overlaps srcRegion",
        ));
    }
    Ok((dst.address, src.address, shape))
}

/// Whether two regions share a byte, as far as their rows show it.
fn overlap(dst: &Side, src: &Side, shape: &Region) -> bool {
    let (low, high) = if dst.address <= src.address { (dst, src) } else { (src, dst) };
    let distance = high.address - low.address;
    if distance >= low.span(shape) || high.span(shape) == 0 {
        return false;
    }
    if dst.row_pitch != src.row_pitch || dst.slice_pitch != src.slice_pitch || shape.depth > 1 {
        // Interleaved rows are legal and rare; where the rows do not show an overlap, trust the caller.
        return distance == 0;
    }
    let shift = distance % low.row_pitch.max(1);
    shift < shape.width || low.row_pitch - shift < shape.width
}
