// SPDX-License-Identifier: MIT OR Apache-2.0
//! The effects of commands on the program's memory, and the commands that must not overlap.

use super::order::{Node, Work};
use super::{Model, Refusal};
use crate::program::{CELLS, Cell, Op, PLACES, initial_value};

/// The way in which a piece of work uses a cell.
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

/// The cells that a piece of work uses. Places for times follow the program's memory.
pub fn accesses(work: Work) -> impl Iterator<Item = (Cell, Access)> {
    let (first, second) = match work {
        Work::None => (None, None),
        Work::Read(cell) => (Some((cell, Access::Read)), None),
        Work::Write(cell, _) => (Some((cell, Access::Write)), None),
        Work::Command(op) => match op {
            Op::Mix { dst, src, .. } | Op::Copy { dst, src } => {
                (Some((dst, Access::Write)), Some((src, Access::Read)))
            }
            Op::Fill { dst, .. } | Op::HostCall { dst, .. } => (Some((dst, Access::Write)), None),
            Op::QueryTimes { place, .. } => {
                debug_assert!(place < PLACES, "the model refuses others");
                (Some((Cell(CELLS + place), Access::Write)), None)
            }
            Op::Add { dst, .. } => (Some((dst, Access::Add)), None),
            Op::Barrier | Op::SignalEvent | Op::WaitOnEvents => (None, None),
            Op::ResetEvent(_) | Op::SetWord(_) => (None, None),
        },
    };
    first.into_iter().chain(second)
}

/// The value that a command writes to its destination, from the values of destination and source.
#[must_use]
pub fn result(op: Op, read: impl Fn(Cell) -> u32) -> Option<(Cell, u32)> {
    match op {
        Op::Mix { dst, src, add } => {
            Some((dst, read(dst).wrapping_mul(3).wrapping_add(read(src)).wrapping_add(add)))
        }
        Op::Add { dst, add } => Some((dst, read(dst).wrapping_add(add))),
        Op::Copy { dst, src } => Some((dst, read(src))),
        Op::Fill { dst, value } => Some((dst, value)),
        Op::HostCall { dst, add } => Some((dst, read(dst).wrapping_mul(3).wrapping_add(add))),
        Op::Barrier | Op::SignalEvent | Op::WaitOnEvents | Op::QueryTimes { .. } => None,
        Op::ResetEvent(_) | Op::SetWord(_) => None,
    }
}

/// The memory before the first step.
#[must_use]
pub fn initial() -> Vec<u32> {
    (0..CELLS).map(|cell| initial_value(Cell(cell))).collect()
}

impl Model {
    /// Sets the work of a node whose waits are known.
    pub(super) fn perform(&mut self, node: Node, work: Work) {
        self.graph.set_work(node, work);
        let before = self.graph.before(node);
        for (cell, access) in accesses(work) {
            for &(other, kind, earlier) in &self.accesses {
                let conflict = other == cell && earlier != node && kind.needs_order(access);
                if conflict && !before.contains(earlier) {
                    self.races.push((cell, earlier, node));
                }
            }
            self.accesses.push((cell, access, node));
        }
    }

    /// Two accesses may still be ordered later as long as one of them comes after a wait whose signal
    /// was not submitted yet.
    pub(super) fn check_races(&mut self) -> Result<(), Refusal> {
        let mut open = Vec::new();
        for &(cell, first, second) in &self.races {
            let (to_first, to_second) = (self.graph.before(first), self.graph.before(second));
            if to_second.contains(first) || to_first.contains(second) {
                continue;
            }
            let waits = |&node: &Node| {
                node == first
                    || node == second
                    || to_first.contains(node)
                    || to_second.contains(node)
            };
            if !self.pending.iter().any(waits) {
                let is_command = |node| matches!(self.graph.work(node), Work::Command(_));
                let may = is_command(first) && is_command(second);
                if !may || self.found_races.len() >= self.most_races {
                    return Err(Refusal::Race(cell));
                }
                self.found_races.push((first, second));
                continue;
            }
            open.push((cell, first, second));
        }
        self.races = open;
        Ok(())
    }
}
