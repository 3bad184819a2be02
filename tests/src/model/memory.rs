// SPDX-License-Identifier: MIT OR Apache-2.0
//! What commands do to the program's memory, and which of them must not overlap.

use super::order::Work;
use crate::program::{CELLS, Cell, Op, initial_value};

/// How a piece of work uses a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// It reads it.
    Read,
    /// It adds to it atomically.
    Add,
    /// It replaces it.
    Write,
}

impl Access {
    /// Two accesses to one cell need an order unless both read or both add.
    #[must_use]
    pub fn needs_order(self, other: Access) -> bool {
        self != other || self == Access::Write
    }
}

/// The cells that a piece of work uses.
pub fn accesses(work: Work) -> impl Iterator<Item = (Cell, Access)> {
    let (first, second) = match work {
        Work::None => (None, None),
        Work::Read(cell) => (Some((cell, Access::Read)), None),
        Work::Write(cell, _) => (Some((cell, Access::Write)), None),
        Work::Command(op) => match op {
            Op::Mix { dst, src, .. } | Op::Copy { dst, src } => {
                (Some((dst, Access::Write)), Some((src, Access::Read)))
            }
            Op::Fill { dst, .. } => (Some((dst, Access::Write)), None),
            Op::Add { dst, .. } => (Some((dst, Access::Add)), None),
            Op::Barrier | Op::SignalEvent | Op::WaitOnEvents | Op::ResetEvent(_) => (None, None),
        },
    };
    first.into_iter().chain(second)
}

/// The value that a command gives its destination, from the values of destination and source.
#[must_use]
pub fn result(op: Op, read: impl Fn(Cell) -> u32) -> Option<(Cell, u32)> {
    match op {
        Op::Mix { dst, src, add } => {
            Some((dst, read(dst).wrapping_mul(3).wrapping_add(read(src)).wrapping_add(add)))
        }
        Op::Add { dst, add } => Some((dst, read(dst).wrapping_add(add))),
        Op::Copy { dst, src } => Some((dst, read(src))),
        Op::Fill { dst, value } => Some((dst, value)),
        Op::Barrier | Op::SignalEvent | Op::WaitOnEvents | Op::ResetEvent(_) => None,
    }
}

/// The memory before the first step.
#[must_use]
pub fn initial() -> Vec<u32> {
    (0..CELLS).map(|cell| initial_value(Cell(cell))).collect()
}
