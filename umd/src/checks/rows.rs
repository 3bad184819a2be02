// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that commands access, other than by kernels.

/// Rows of bytes that a command reads or writes.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// The first byte.
    pub address: u64,
    /// Bytes of a row.
    pub width: u64,
    /// Rows of a slice.
    pub height: u64,
    /// Slices.
    pub depth: u64,
    /// Bytes from row to row.
    pub row_pitch: u64,
    /// Bytes from slice to slice.
    pub slice_pitch: u64,
}

/// Memory that a command writes or reads.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// The memory that it writes.
    pub to: Option<Rows>,
    /// The memory that it reads; with `to`, the source of the bytes.
    pub from: Option<Rows>,
}

impl Rows {
    /// A range of contiguous bytes.
    pub fn of(address: u64, size: u64) -> Self {
        Self { address, width: size, height: 1, depth: 1, row_pitch: 0, slice_pitch: 0 }
    }

    /// Whether it is a single row.
    pub(super) fn is_one(&self) -> bool {
        self.height <= 1 && self.depth <= 1
    }

    /// The ranges of bytes that it consists of: address and size.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (u64, u64)> + use<> {
        let Self { address, width, height, depth, row_pitch, slice_pitch } = *self;
        let is_row_whole = height <= 1 || row_pitch == width;
        let (rows, size) =
            if is_row_whole { (height.min(1), width * height) } else { (height, width) };
        (0..depth).flat_map(move |z| {
            (0..rows).map(move |y| (address + z * slice_pitch + y * row_pitch, size))
        })
    }

    /// Bytes from the first to the last one.
    pub(super) fn span(&self) -> u64 {
        if self.width == 0 || self.height == 0 || self.depth == 0 {
            return 0;
        }
        (self.depth - 1)
            .saturating_mul(self.slice_pitch)
            .saturating_add((self.height - 1).saturating_mul(self.row_pitch))
            .saturating_add(self.width)
    }
}

impl Transfer {
    /// A write of bytes.
    pub fn write(to: Rows) -> Self {
        Self { to: Some(to), from: None }
    }

    /// A read of bytes.
    pub fn read(from: Rows) -> Self {
        Self { to: None, from: Some(from) }
    }

    /// A copy of bytes.
    pub fn copy(to: Rows, from: Rows) -> Self {
        Self { to: Some(to), from: Some(from) }
    }
}
