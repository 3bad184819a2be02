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

/// See the module's description.
#[derive(Default)]
pub struct Launches(Mutex<State>);

struct State {
    calls: VecDeque<(Call, Reach)>,
    /// The number of the first launch that is remembered. 0 stands for a launch without a number.
    first: u64,
}

impl Default for State {
    fn default() -> Self {
        Self { calls: VecDeque::new(), first: 1 }
    }
}

impl Launches {
    /// Adds a launch that a call appends, with the memory that it may reach; returns its number.
    pub fn add(&self, call: Call, reach: Reach) -> u64 {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.calls.len() == REMEMBERED {
            state.calls.pop_front();
            state.first += 1;
        }
        state.calls.push_back((call, reach));
        state.first + state.calls.len() as u64 - 1
    }

    /// The call that appended a launch, and the memory that it may reach; `None` if it was too long ago.
    pub fn get(&self, number: u64) -> Option<(Call, Reach)> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = number.checked_sub(state.first)?;
        state.calls.get(usize::try_from(at).ok()?).cloned()
    }
}
