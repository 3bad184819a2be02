// SPDX-License-Identifier: MIT OR Apache-2.0
//! COPY, COPY_REGION and FILL. A unit of work is a block of up to 256 KiB.
//!
//! A copy or fill larger than most caches bypasses them with non-temporal stores: otherwise each line would be
//! read before it is written, and other data would be evicted. The C library does the same in one large
//! memmove, but cannot see that a block is a part of one.

use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};

use tally_uapi::packet::{self, INLINE_FILL_PATTERN, MAX_FILL_PATTERN, Region};

use crate::fields::{MAX_UNITS, bad_field};
use crate::guard::{Guard, LINE, Trap, move_bytes, set_bytes, set_lines};

/// Bytes of a unit: it takes long compared to a claim, and short compared to 5 ms.
pub(crate) const UNIT_BYTES: u64 = 256 << 10;

/// Size in bytes from which on a copy bypasses the caches.
const STREAM_BYTES: u64 = 32 << 20;
/// The same for a fill. It reads nothing, so it has to be larger to gain by it.
const STREAM_FILL_BYTES: u64 = 128 << 20;

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
        // A copy between overlapping ranges is one memmove, since its parts have an order.
        let unit = if dst.abs_diff(src) < size { size } else { UNIT_BYTES };
        (Self { dst, src, size, unit }, if size == 0 { 0 } else { size.div_ceil(unit) })
    }

    /// Whether its units are short: it is cut into units, or is short as a whole.
    pub(crate) fn has_short_units(&self) -> bool {
        self.unit <= UNIT_BYTES
    }

    pub(crate) fn run(&self, guard: &mut Guard, first: u64, count: u64) -> Result<(), Trap> {
        let start = first * self.unit;
        let bytes = (self.size - start).min(count.saturating_mul(self.unit)) as usize;
        let (dst, src) = (self.dst + start, self.src + start);
        // A unit that is the whole copy may overlap itself.
        if self.size < STREAM_BYTES || self.unit == self.size {
            // SAFETY: in a guarded call; client memory by raw address.
            return guard.run(|| unsafe { move_bytes(dst, src, bytes) });
        }
        // SAFETY: in a guarded call; client memory by raw address, and the ranges are apart.
        guard.run(|| unsafe {
            stream(dst, bytes, |at| line_at(src + at), |at, n| move_bytes(dst + at, src + at, n))
        })
    }
}

/// Writes the aligned lines of a range with non-temporal stores: `line` returns the line at an offset. The two
/// unaligned ends are passed to `rest` as offset and bytes.
///
/// # Safety
/// In a guarded call; `dst` is an address of a client.
#[inline(always)]
unsafe fn stream(
    dst: u64,
    bytes: usize,
    line: impl Fn(u64) -> [__m128i; 4],
    rest: impl Fn(u64, usize),
) {
    let head = (dst.wrapping_neg() as usize % LINE).min(bytes);
    let body = (bytes - head) / LINE * LINE;
    rest(0, head);
    for at in (head..head + body).step_by(LINE) {
        let words = line(at as u64);
        let to = (dst + at as u64) as *mut __m128i;
        for (i, word) in words.into_iter().enumerate() {
            // SAFETY: aligned to a line; traps if there is no memory.
            unsafe { _mm_stream_si128(to.wrapping_add(i), word) };
        }
    }
    rest((head + body) as u64, bytes - head - body);
    // Non-temporal stores are ordered with later ones only by this fence.
    // SAFETY: every x86-64 CPU has the instruction.
    unsafe { _mm_sfence() };
}

/// The 64 bytes at `src`, which need not be aligned.
///
/// # Safety
/// In a guarded call; `src` is an address of a client.
unsafe fn line_at(src: u64) -> [__m128i; 4] {
    let from = src as *const __m128i;
    // SAFETY: as the caller promises; traps if there is no memory.
    [0, 1, 2, 3].map(|i| unsafe { _mm_loadu_si128(from.wrapping_add(i)) })
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
        if units > MAX_UNITS {
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
                unsafe { move_bytes(dst, src, shape.width as usize) };
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
    pattern: Pattern,
}

/// A pattern that needs no memory.
#[derive(Clone, Copy, Debug)]
enum Small {
    /// The same byte everywhere.
    Byte(u8),
    /// Whole repetitions of the pattern in a line.
    Line([__m128i; 4]),
}

#[derive(Debug)]
enum Pattern {
    Small(Small),
    /// Whole repetitions of the pattern in our own memory.
    Block(Box<[u8]>),
}

/// Fills with patterns that do not divide a line are written in pieces of about this size.
const FILL_BLOCK: usize = 4096;

impl Small {
    /// A pattern whose size is a power of two up to a line, or whose bytes are equal. None: it is another.
    fn new(pattern: &[u8]) -> Option<Self> {
        let (&first, rest) = pattern.split_first()?;
        if rest.iter().all(|&byte| byte == first) {
            return Some(Self::Byte(first));
        }
        if !LINE.is_multiple_of(pattern.len()) {
            return None;
        }
        let line: [u8; LINE] = std::array::from_fn(|i| pattern[i % pattern.len()]);
        Some(Self::Line(words(line)))
    }

    /// Writes it to `bytes` bytes.
    ///
    /// # Safety
    /// In a guarded call; `to` is an address of a client.
    #[inline]
    unsafe fn write(self, to: u64, bytes: usize) {
        match self {
            // SAFETY: as the caller promises.
            Self::Byte(byte) => unsafe { set_bytes(to, byte, bytes) },
            // SAFETY: as the caller promises.
            Self::Line(line) => unsafe { lines(to, bytes, line) },
        }
    }
}

/// The pattern of a fill that has it in its packet, with a size that is a power of two.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inline {
    pattern: [u8; INLINE_FILL_PATTERN as usize],
    /// Its size less one: the bits of an offset that are the offset in the pattern.
    mask: u8,
}

impl Inline {
    /// None: the pattern is another, for [`Fill`].
    #[inline]
    pub(crate) fn of(packet: &packet::Fill) -> Option<Self> {
        let length = packet.header.param;
        let fits = length.is_power_of_two() && length <= INLINE_FILL_PATTERN;
        fits.then(|| Self { pattern: packet.pattern, mask: (length - 1) as u8 })
    }

    /// Writes it to `bytes` bytes.
    ///
    /// # Safety
    /// In a guarded call; `to` is an address of a client.
    #[inline]
    pub(crate) unsafe fn write(&self, to: u64, bytes: usize) {
        if self.mask == 0 {
            // SAFETY: as the caller promises.
            return unsafe { set_bytes(to, self.pattern[0], bytes) };
        }
        let line: [u8; LINE] = std::array::from_fn(|i| self.pattern[i & usize::from(self.mask)]);
        // SAFETY: as the caller promises.
        unsafe { lines(to, bytes, words(line)) };
    }
}

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
        let (pattern, unit) = match Small::new(pattern) {
            Some(small) => (Pattern::Small(small), UNIT_BYTES),
            None => {
                // Repeated up to the size of a block, but not beyond that of the fill.
                let wanted = FILL_BLOCK.min(packet.size as usize).max(length);
                let block: Box<[u8]> = pattern.repeat(wanted / length).into();
                let unit = UNIT_BYTES / block.len() as u64 * block.len() as u64;
                (Pattern::Block(block), unit)
            }
        };
        let this = Self { dst: packet.dst, size: packet.size, unit, pattern };
        Ok((this, packet.size.div_ceil(unit)))
    }

    pub(crate) fn run(&self, guard: &mut Guard, first: u64, count: u64) -> Result<(), Trap> {
        let start = first * self.unit;
        let end = self.size.min((first + count).saturating_mul(self.unit));
        // SAFETY: in a guarded call; client memory by raw address.
        guard.run(|| unsafe { self.write(start, end) })
    }

    /// The bytes from `start` to `end`.
    ///
    /// # Safety
    /// In a guarded call.
    unsafe fn write(&self, start: u64, end: u64) {
        let (to, bytes) = (self.dst + start, (end - start) as usize);
        let small = match &self.pattern {
            Pattern::Small(small) => *small,
            // SAFETY: as the caller promises; client memory by raw address.
            Pattern::Block(block) => return unsafe { repeat(to, bytes, block) },
        };
        if self.size < STREAM_FILL_BYTES {
            // SAFETY: as above.
            return unsafe { small.write(to, bytes) };
        }
        let line = match small {
            Small::Byte(byte) => words([byte; LINE]),
            Small::Line(line) => line,
        };
        let turned = turn(line, to.wrapping_neg() as usize % LINE);
        // SAFETY: as above.
        unsafe {
            stream(
                to,
                bytes,
                |_| turned,
                |at, bytes| lines(to + at, bytes, if at == 0 { line } else { turned }),
            )
        };
    }
}

fn words(line: [u8; LINE]) -> [__m128i; 4] {
    // SAFETY: both types have the same size, and any bits are a valid vector.
    unsafe { std::mem::transmute(line) }
}

/// The line that begins `by` bytes further in the pattern.
fn turn(line: [__m128i; 4], by: usize) -> [__m128i; 4] {
    // SAFETY: both types have the same size, and any bits are valid bytes.
    let mut bytes: [u8; LINE] = unsafe { std::mem::transmute(line) };
    bytes.rotate_left(by);
    words(bytes)
}

/// Writes a line repeatedly.
///
/// # Safety
/// In a guarded call; `to` is an address of a client.
unsafe fn lines(to: u64, bytes: usize, line: [__m128i; 4]) {
    // SAFETY: both types have the same size; the rest is the caller's promise.
    if unsafe { set_lines(to, std::mem::transmute::<[__m128i; 4], [u8; LINE]>(line), bytes) } {
        return;
    }
    // More than one line at a time, unless the whole fill is short.
    let (one, many);
    let block = if bytes <= 4 * LINE {
        one = [line];
        one.as_flattened()
    } else {
        many = [line; 16];
        many.as_flattened()
    };
    // SAFETY: vectors are bytes without padding, and the length is their size.
    let block = unsafe { std::slice::from_raw_parts(block.as_ptr().cast(), size_of_val(block)) };
    // SAFETY: as the caller promises.
    unsafe { repeat(to, bytes, block) };
}

/// Writes a block repeatedly.
///
/// # Safety
/// In a guarded call; `to` is an address of a client.
unsafe fn repeat(to: u64, bytes: usize, block: &[u8]) {
    for at in (0..bytes).step_by(block.len()) {
        let from = block.as_ptr().expose_provenance() as u64;
        // SAFETY: as the caller promises; the source is ours and has that many bytes.
        unsafe { move_bytes(to + at as u64, from, block.len().min(bytes - at)) };
    }
}
