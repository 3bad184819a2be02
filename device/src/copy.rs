// SPDX-License-Identifier: MIT OR Apache-2.0
//! COPY, COPY_REGION and FILL. A unit of work is a block of up to 256 KiB.

use tally_uapi::packet::{self, INLINE_FILL_PATTERN, MAX_FILL_PATTERN, Region};

use crate::guard::{Guard, Trap};
use crate::work::bad_field;

/// Bytes of a unit: long beside the cost of a claim, short beside 5 ms.
const UNIT_BYTES: u64 = 256 << 10;

/// COPY.
#[derive(Debug)]
pub(crate) struct Copy {
    dst: u64,
    src: u64,
    size: u64,
    /// Bytes of a unit.
    unit: u64,
}

impl Copy {
    /// The copy and its units.
    pub(crate) fn new(packet: &packet::Copy) -> (Self, u64) {
        let (dst, src, size) = (packet.dst, packet.src, packet.size);
        // Overlapping ranges are one memmove: its parts have an order.
        let unit = if dst.abs_diff(src) < size { size } else { UNIT_BYTES };
        (Self { dst, src, size, unit }, if size == 0 { 0 } else { size.div_ceil(unit) })
    }

    pub(crate) fn run(&self, guard: &mut Guard, first: u64, count: u64) -> Result<(), Trap> {
        let start = first * self.unit;
        let bytes = (self.size - start).min(count.saturating_mul(self.unit));
        guard.copy(self.dst + start, self.src + start, bytes as usize)
    }
}

/// COPY_REGION.
#[derive(Debug)]
pub(crate) struct CopyRegion {
    dst: u64,
    src: u64,
    shape: Region,
    /// Rows of a unit.
    rows: u64,
}

impl CopyRegion {
    /// The copy and its units. Faults a region that leaves the address space.
    pub(crate) fn new(guard: &mut Guard, packet: &packet::CopyRegion) -> Result<(Self, u64), Trap> {
        let shape: Region = guard.read(packet.region)?;
        let bad = || bad_field(packet.region);
        if shape.reserved != 0 {
            return Err(bad());
        }
        let all = shape.height.checked_mul(shape.depth).ok_or_else(bad)?;
        if all == 0 || shape.width == 0 {
            return Ok((Self { dst: 0, src: 0, shape, rows: 1 }, 0));
        }
        let fits = |start: u64, row_pitch: u64, slice_pitch: u64| {
            let rows = row_pitch.checked_mul(shape.height - 1)?;
            let slices = slice_pitch.checked_mul(shape.depth - 1)?;
            start.checked_add(slices)?.checked_add(rows)?.checked_add(shape.width)
        };
        fits(packet.dst, shape.dst_row_pitch, shape.dst_slice_pitch).ok_or_else(bad)?;
        fits(packet.src, shape.src_row_pitch, shape.src_slice_pitch).ok_or_else(bad)?;
        let rows = (UNIT_BYTES / shape.width).clamp(1, 4096);
        let this = Self { dst: packet.dst, src: packet.src, shape, rows };
        let units = all.div_ceil(rows);
        if units > crate::work::MAX_UNITS {
            return Err(bad());
        }
        Ok((this, units))
    }

    pub(crate) fn run(&self, guard: &mut Guard, first: u64, count: u64) -> Result<(), Trap> {
        let shape = &self.shape;
        let end = (first + count).saturating_mul(self.rows).min(shape.height * shape.depth);
        guard.run(|| {
            for row in first * self.rows..end {
                let (y, z) = (row % shape.height, row / shape.height);
                let dst = self.dst + z * shape.dst_slice_pitch + y * shape.dst_row_pitch;
                let src = self.src + z * shape.src_slice_pitch + y * shape.src_row_pitch;
                // SAFETY: in a guarded call; client memory by raw address.
                unsafe { libc::memmove(dst as *mut _, src as *const _, shape.width as usize) };
            }
        })
    }
}

/// FILL.
#[derive(Debug)]
pub(crate) struct Fill {
    dst: u64,
    size: u64,
    /// Bytes of a unit: a multiple of the pattern.
    unit: u64,
    /// Whole repetitions of the pattern.
    pattern: Box<[u8]>,
}

/// Fills go out in pieces of about this size.
const FILL_BLOCK: usize = 4096;

impl Fill {
    /// The fill and its units. Reads the pattern, if it is in memory.
    pub(crate) fn new(guard: &mut Guard, packet: &packet::Fill) -> Result<(Self, u64), Trap> {
        let length = packet.header.param as usize;
        let mut pattern = [0; MAX_FILL_PATTERN as usize];
        if packet.header.param <= INLINE_FILL_PATTERN {
            pattern[..length].copy_from_slice(&packet.pattern[..length]);
        } else {
            let [a, b, c, d, e, f, g, h, ..] = packet.pattern;
            let address = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
            guard.copy_in(&mut pattern[..length], address)?;
        }
        let pattern = &pattern[..length];
        // Repeated up to a block, but no further than the fill itself.
        let wanted = FILL_BLOCK.min(packet.size as usize).max(length);
        let pattern: Box<[u8]> = pattern.repeat(wanted / length).into();
        let unit = UNIT_BYTES / pattern.len() as u64 * pattern.len() as u64;
        let this = Self { dst: packet.dst, size: packet.size, unit, pattern };
        Ok((this, packet.size.div_ceil(unit)))
    }

    pub(crate) fn run(&self, guard: &mut Guard, first: u64, count: u64) -> Result<(), Trap> {
        let start = first * self.unit;
        let end = self.size.min((first + count).saturating_mul(self.unit));
        let uniform = self.pattern.iter().all(|&byte| byte == self.pattern[0]);
        guard.run(|| {
            if uniform {
                let (to, byte) = (self.dst + start, i32::from(self.pattern[0]));
                // SAFETY: in a guarded call; client memory by raw address.
                unsafe { libc::memset(to as *mut _, byte, (end - start) as usize) };
                return;
            }
            let mut at = start;
            while at < end {
                let bytes = (end - at).min(self.pattern.len() as u64);
                let (to, from) = (self.dst + at, self.pattern.as_ptr());
                // SAFETY: as above; the source is ours and has that many bytes.
                unsafe { libc::memmove(to as *mut _, from.cast(), bytes as usize) };
                at += bytes;
            }
        })
    }
}
