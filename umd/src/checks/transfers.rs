// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies, fills and other commands that access memory. Their ranges are checked when they are appended, and
//! additional commands beside them update the states of the memory that they write.

use std::sync::{Mutex, PoisonError};

use tally_compiler_protocol::checks::DEFINED;
use tally_uapi::packet::Region;

use super::history::Found;
use super::report::{Report, Rule};
use super::rows::{Rows, Transfer};
use super::{Checks, collector, describe};

/// A command that updates states.
#[derive(Clone, Copy, Debug)]
pub enum Move {
    /// Copies states.
    Copy {
        /// To.
        dst: u64,
        /// From.
        src: u64,
        /// Bytes.
        size: u64,
    },
    /// Copies rows of states.
    Region {
        /// To.
        dst: u64,
        /// From.
        src: u64,
        /// Sizes and pitches.
        shape: Region,
    },
    /// Marks bytes as defined.
    Define {
        /// The states.
        dst: u64,
        /// Bytes.
        size: u64,
    },
}

impl Checks {
    /// Checks the memory that a command writes and reads, and returns the updates of the states of the written
    /// memory.
    pub fn moved(&self, transfers: &[Transfer]) -> Vec<Move> {
        transfers.iter().filter_map(|transfer| self.moved_by(transfer)).collect()
    }

    fn moved_by(&self, Transfer { to, from }: &Transfer) -> Option<Move> {
        let good = |rows: &Option<Rows>, verb| {
            rows.as_ref().is_none_or(|rows| self.check_range(rows, verb))
        };
        let (reads, writes) = (good(from, "reads"), good(to, "writes"));
        if let Some(to) = to {
            self.writes(to.address);
        }
        let to = to.as_ref().filter(|_| reads && writes && self.kernels.init)?;
        let (dst, bytes) = (self.state_of(to)?, to.span());
        if bytes == 0 {
            return None;
        }
        let src = from.as_ref().and_then(|from| Some((from, self.state_of(from)?)));
        Some(match src {
            Some((_, src)) if to.is_one() => Move::Copy { dst, src, size: bytes },
            Some((from, src)) => Move::Region { dst, src, shape: shape(to, from) },
            None if to.is_one() => Move::Define { dst, size: bytes },
            None => {
                let row = Rows { row_pitch: 0, slice_pitch: 0, ..*to };
                let src = defined(to.width);
                Move::Region { dst, src, shape: shape(to, &row) }
            }
        })
    }

    /// Notes that a command that is being appended writes these bytes, which count as written from now on.
    pub fn written(&self, rows: Rows) {
        let shadow = self.shadow.as_ref().filter(|_| self.check_range(&rows, "writes"));
        if let Some(shadow) = shadow.filter(|_| self.state_of(&rows).is_some()) {
            shadow.set(rows.address, rows.span(), DEFINED);
        }
    }

    /// The address of the states of rows, if their memory has any.
    fn state_of(&self, rows: &Rows) -> Option<u64> {
        let shadow = self.shadow.as_ref()?;
        if !self.kernels.init {
            return None;
        }
        let is_live =
            matches!(self.history.find(rows.address, self.history.epoch()), Found::Inside(..));
        is_live.then(|| shadow.states() + (rows.address - shadow.start()))
    }

    /// Reports memory of a command that begins among the driver's addresses but is not all in one allocation.
    fn check_range(&self, rows: &Rows, verb: &str) -> bool {
        let span = rows.span();
        if !self.space.contains(rows.address) || span == 0 {
            return true;
        }
        let find = |address| self.history.find(address, self.history.epoch());
        let found = find(rows.address);
        let good = match &found {
            Found::Inside(it, offset) => span <= it.size - offset,
            Found::Freed(..) => false,
            // An image, memory that the application has mapped, or the rest of an allocation's last page.
            _ => {
                let range = self.space.range_of(rows.address);
                range.is_some_and(|(start, _)| !matches!(find(start), Found::Inside(..)))
            }
        };
        if good {
            return true;
        }
        self.tell_of_call(describe::rule_of(&found), verb, rows.address, span);
        false
    }

    /// Reports that the current call is refused because it reaches beyond the allocation in which it begins.
    pub fn reaches_beyond(&self, address: u64, size: u64) {
        self.tell_of_call(Rule::OutOfBounds, "accesses", address, size);
    }

    fn tell_of_call(&self, rule: Rule, verb: &str, address: u64, size: u64) {
        let (memory, place) = self.place(address, size, self.history.epoch());
        let message = format!("a command {verb} {} {place}", describe::bytes(size));
        collector::add(Report { memory, ..Report::of_call(rule, message) }, None);
    }
}

fn shape(to: &Rows, from: &Rows) -> Region {
    Region {
        width: to.width,
        height: to.height,
        depth: to.depth,
        dst_row_pitch: to.row_pitch,
        dst_slice_pitch: to.slice_pitch,
        src_row_pitch: from.row_pitch,
        src_slice_pitch: from.slice_pitch,
        reserved: 0,
    }
}

/// The address of this number of states of defined bytes, which are never freed.
fn defined(bytes: u64) -> u64 {
    static LARGEST: Mutex<&[u8]> = Mutex::new(&[]);
    let mut largest = LARGEST.lock().unwrap_or_else(PoisonError::into_inner);
    if (largest.len() as u64) < bytes {
        *largest = Vec::leak(vec![DEFINED; bytes.next_power_of_two() as usize]);
    }
    largest.as_ptr() as u64
}
