// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Cells: the aligned 64-bit words in memory on which all waits are made, and
//! the waiter's half and the signaller's half of the sleep handshake.
//!
//! `device/SPEC.md`, chapter "Cells".

use crate::sync::{fence, AtomicU32, CellWord, Ordering};

/// Bytes of a cell. Every cell is aligned to its size.
pub const CELL_SIZE: u64 = 8;

/// Words in the waiters table.
///
/// A cell's word is chosen by the bits of its address below the page size, so
/// that every mapping of the same memory chooses the same word.
pub const WAITERS: usize = (crate::PAGE_SIZE / CELL_SIZE) as usize;

/// Index in the waiters table of the cell at `address` (any mapping of it).
#[inline]
pub const fn waiters_index(address: u64) -> usize {
    (address as usize / CELL_SIZE as usize) % WAITERS
}

/// The kind of a cell, which determines what a wait may assume about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CellKind {
    /// Driver-owned and only growing. A value once read as reached stays so.
    Counter = 1,
    /// A regular event: 0 or 1, set and reset by the host and the device.
    Event = 2,
    /// The user's storage or another device's memory: may change without a signal.
    Foreign = 3,
}

impl CellKind {
    /// The kind whose encoding is `raw`.
    pub const fn from_raw(raw: u8) -> Option<Self> {
        match raw {
            1 => Some(Self::Counter),
            2 => Some(Self::Event),
            3 => Some(Self::Foreign),
            _ => None,
        }
    }
}

/// The unsigned comparison of a wait: the cell is left, its value right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Compare {
    /// cell >= value; the only one for counters.
    GreaterEqual = 0,
    /// cell > value
    Greater = 1,
    /// cell <= value
    LessEqual = 2,
    /// cell < value
    Less = 3,
    /// cell == value
    Equal = 4,
    /// cell != value
    NotEqual = 5,
}

impl Compare {
    /// The comparison whose encoding is `raw`.
    pub const fn from_raw(raw: u8) -> Option<Self> {
        match raw {
            0 => Some(Self::GreaterEqual),
            1 => Some(Self::Greater),
            2 => Some(Self::LessEqual),
            3 => Some(Self::Less),
            4 => Some(Self::Equal),
            5 => Some(Self::NotEqual),
            _ => None,
        }
    }

    /// The comparison operator as in C.
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::GreaterEqual => ">=",
            Self::Greater => ">",
            Self::LessEqual => "<=",
            Self::Less => "<",
            Self::Equal => "==",
            Self::NotEqual => "!=",
        }
    }

    /// Whether a cell that holds `cell` meets a wait for `value`.
    #[inline]
    pub const fn met(self, cell: u64, value: u64) -> bool {
        match self {
            Self::GreaterEqual => cell >= value,
            Self::Greater => cell > value,
            Self::LessEqual => cell <= value,
            Self::Less => cell < value,
            Self::Equal => cell == value,
            Self::NotEqual => cell != value,
        }
    }
}

/// Signaller's half, after the store to the cell: returns whether any waiter may sleep on it.
///
/// The fence orders the store of the cell before the load of the waiters word;
/// [`waiter_enters`] orders its two accesses the other way round, so at least
/// one side sees the other.
#[inline]
pub fn signaller_must_wake(waiters: &AtomicU32) -> bool {
    fence(Ordering::SeqCst);
    waiters.load(Ordering::Relaxed) != 0
}

/// Waiter's half: announces the waiter, then returns whether it may sleep.
///
/// Returns false when the cell already meets the wait; either way the waiter
/// calls [`waiter_leaves`] once it no longer sleeps.
#[inline]
pub fn waiter_enters(waiters: &AtomicU32, cell: &CellWord, compare: Compare, value: u64) -> bool {
    waiters.fetch_add(1, Ordering::Relaxed);
    fence(Ordering::SeqCst);
    !compare.met(cell.load(Ordering::Acquire), value)
}

/// Waiter's half, at its end: the waiter is no longer counted.
#[inline]
pub fn waiter_leaves(waiters: &AtomicU32) {
    waiters.fetch_sub(1, Ordering::Release);
}
