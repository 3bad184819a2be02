// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets, still without their order and their writes.

use tally_uapi::packet::{
    Copy as CopyPacket, CopyRegion, Fill, Header, INLINE_FILL_PATTERN, MAX_FILL_PATTERN, Nop,
    Packet, PostSync, Region, Stamp as StampPacket, opcode,
};
use zerocopy::IntoBytes;

use super::target::Target;
use crate::error::Result;

pub(super) fn nop(flags: u8) -> Packet {
    let header = Header { opcode: opcode::NOP, flags, ..Default::default() };
    Nop { header, zero: [0; 5], post: PostSync::default() }.into()
}

/// The prefix that makes the next packet write its times to `slot`.
pub(super) fn stamp(slot: u64) -> Packet {
    let header = Header { opcode: opcode::STAMP, ..Default::default() };
    StampPacket { header, slot, zero: [0; 6] }.into()
}

#[inline]
pub(super) fn copy(dst: u64, src: u64, size: u64) -> Packet {
    let header = Header { opcode: opcode::COPY, ..Default::default() };
    CopyPacket { header, dst, src, size, zero: [0; 2], post: PostSync::default() }.into()
}

#[inline]
pub(super) fn fill<T: Target>(
    target: &mut T,
    dst: u64,
    size: u64,
    pattern: &[u8],
) -> Result<Packet> {
    let header = Header { opcode: opcode::FILL, param: pattern.len() as u32, ..Default::default() };
    let mut inline = [0; INLINE_FILL_PATTERN as usize];
    match inline.get_mut(..pattern.len()) {
        Some(place) => place.copy_from_slice(pattern),
        None => {
            let at = target.memory(pattern.len() as u64, 8)?;
            // SAFETY: the memory has this size and is not yet in use.
            unsafe { at.ptr.as_ptr().copy_from_nonoverlapping(pattern.as_ptr(), pattern.len()) };
            if pattern.len() > MAX_FILL_PATTERN as usize {
                return repeat(target, dst, size, (at.va(), pattern.len() as u64));
            }
            inline[..8].copy_from_slice(at.va().as_bytes());
        }
    }
    Ok(Fill { header, dst, size, pattern: inline, zero: 0, post: PostSync::default() }.into())
}

/// A copy of bytes that are known when the list is made.
pub(super) fn bytes<T: Target>(target: &mut T, dst: u64, bytes: &[u8]) -> Result<Packet> {
    let at = target.memory(bytes.len() as u64, 8)?;
    // SAFETY: the memory has this size and is not yet in use.
    unsafe { at.ptr.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    Ok(copy(dst, at.va(), bytes.len() as u64))
}

/// A fill with a pattern that is too large for FILL: a copy of rows that all have the same source.
fn repeat<T: Target>(
    target: &mut T,
    dst: u64,
    size: u64,
    (src, width): (u64, u64),
) -> Result<Packet> {
    let at = target.memory(size_of::<Region>() as u64, 8)?;
    let shape = Region {
        width,
        height: size / width,
        depth: 1,
        dst_row_pitch: width,
        dst_slice_pitch: 0,
        src_row_pitch: 0,
        src_slice_pitch: 0,
        reserved: 0,
    };
    // SAFETY: the memory has this size and alignment and is not yet in use.
    unsafe { at.ptr.cast::<Region>().write(shape) };
    let header = Header { opcode: opcode::COPY_REGION, ..Default::default() };
    let (region, zero, post) = (at.va(), [0; 2], PostSync::default());
    Ok(CopyRegion { header, dst, src, region, zero, post }.into())
}
