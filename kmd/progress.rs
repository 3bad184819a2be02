// SPDX-License-Identifier: GPL-2.0
//! The entries of a wait, which of them are met, and why a wait may end without being met.

use core::ops::Deref;

use kernel::prelude::*;
use kernel::sync::Arc;
use tally_uapi::cell::{waiters_index, Compare, CELL_SIZE};

use crate::buffer::BoRef;
use crate::object::vm::Vm;
use crate::raw::pages::PinnedWord;
use crate::request::Condition;
use crate::sleepers::{About, Sleepers};
use crate::state::State;

/// One entry of a wait.
pub(crate) struct Cell {
    /// Keeps the memory alive.
    _bo: BoRef,
    word: PinnedWord,
    compare: Compare,
    value: u64,
    bucket: usize,
}

impl Cell {
    /// The cell that `condition` names, by its handle.
    ///
    /// # Errors
    /// Those of `lookup`. EINVAL: it is outside of the buffer. ENOMEM; EINTR: killed.
    pub(crate) fn new(
        lookup: &impl Fn(u32) -> Result<BoRef>,
        condition: &Condition,
    ) -> Result<Self> {
        let Condition {
            handle,
            offset,
            compare,
            value,
        } = *condition;
        let bo = lookup(handle)?;
        let word = PinnedWord::new(&bo, offset)?;
        Ok(Self {
            _bo: bo,
            word,
            compare,
            value,
            bucket: waiters_index(offset),
        })
    }

    fn read(&self) -> u64 {
        self.word.load()
    }

    fn met(&self) -> bool {
        self.compare.met(self.read(), self.value)
    }

    fn about(&self, thread: i32) -> About {
        About {
            thread,
            place: self.bucket * CELL_SIZE as usize,
            cell: self.read(),
            compare: self.compare,
            value: self.value,
        }
    }
}

/// The entries of a wait, and which entries of an ALL wait were met.
pub(crate) struct Progress {
    cells: KVec<Cell>,
    met: u64,
    any: bool,
}

impl Progress {
    /// A wait for all of `cells` (one at least, 64 at most), or with `any` for one of them.
    pub(crate) fn new(cells: KVec<Cell>, any: bool) -> Self {
        Self { cells, met: 0, any }
    }

    /// The buckets of the cells, and what the current thread waits for there.
    pub(crate) fn places(&self) -> impl ExactSizeIterator<Item = (usize, About)> + '_ {
        let thread = kernel::current!().pid();
        self.cells
            .iter()
            .map(move |cell| (cell.bucket, cell.about(thread)))
    }

    /// The index of the first entry that is met, once the whole wait is met.
    pub(crate) fn look(&mut self) -> Option<u32> {
        for (index, cell) in self.cells.iter().enumerate() {
            if self.met & 1 << index == 0 && cell.met() {
                self.met |= 1 << index;
            }
        }
        let all = u64::MAX >> (64 - self.cells.len());
        let done = if self.any {
            self.met != 0
        } else {
            self.met == all
        };
        done.then(|| self.met.trailing_zeros())
    }
}

/// Checks that a wait can go on. Called after the cells were read, so that a met condition counts first.
pub(crate) fn ended(state: &State, vm: Option<&Vm>) -> Result {
    if state.gone() {
        Err(ENODEV)
    } else if vm.is_some_and(|vm| vm.lost() || vm.ended()) {
        Err(EIO)
    } else {
        Ok(())
    }
}

/// A reference to the sleepers that outlives the ioctl.
pub(crate) struct Lists(pub(crate) Arc<State>);

impl Deref for Lists {
    type Target = Sleepers;

    fn deref(&self) -> &Sleepers {
        &self.0.sleepers
    }
}
