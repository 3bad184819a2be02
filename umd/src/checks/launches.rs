// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calls that appended launches, by the numbers by which the launches' kernels know them.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use tally_ze::ze_kernel_indirect_access_flags_t as Indirect;

use super::calls::Call;

/// Number of launches that are remembered.
const REMEMBERED: usize = 1 << 18;

/// The memory that a launch may reach.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    /// The kinds of memory that it may reach through any pointer.
    pub indirect: Indirect,
    /// Its pointers.
    pub pointers: Vec<u64>,
}

/// The place of the words for checks in the argument block of a launch.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    /// Offset of the words.
    pub at: u64,
    /// Bytes of the block.
    pub block: u64,
}

/// See the module's description.
#[derive(Default)]
pub struct Launches(Mutex<State>);

#[derive(Clone)]
struct Entry {
    call: Call,
    reach: Reach,
    words: Option<Words>,
}

struct State {
    calls: VecDeque<Entry>,
    /// The number of the first launch that is remembered. 0 stands for a launch without a number.
    first: u64,
}

impl Default for State {
    fn default() -> Self {
        Self { calls: VecDeque::new(), first: 1 }
    }
}

impl Launches {
    /// Adds a launch that a call appends, with the memory that it may reach and the place of its words; returns its
    /// number.
    pub fn add(&self, call: Call, reach: Reach, words: Option<Words>) -> u64 {
        self.add_entry(Entry { call, reach, words })
    }

    fn add_entry(&self, entry: Entry) -> u64 {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.calls.len() == REMEMBERED {
            state.calls.pop_front();
            state.first += 1;
        }
        state.calls.push_back(entry);
        state.first + state.calls.len() as u64 - 1
    }

    /// The call that appended a launch, and the memory that it may reach; `None` if it was too long ago.
    pub fn get(&self, number: u64) -> Option<(Call, Reach)> {
        self.entry(number).map(|it| (it.call, it.reach))
    }

    /// Adds a copy of a launch; returns its number, or 0 if the launch was too long ago.
    pub fn again(&self, number: u64) -> u64 {
        self.entry(number).map_or(0, |it| self.add_entry(it))
    }

    /// The place of a launch's words.
    pub fn words(&self, number: u64) -> Option<Words> {
        self.entry(number)?.words
    }

    fn entry(&self, number: u64) -> Option<Entry> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = number.checked_sub(state.first)?;
        state.calls.get(usize::try_from(at).ok()?).cloned()
    }
}
