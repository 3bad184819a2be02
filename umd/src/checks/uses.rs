// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that commands use until they are complete. Freeing it earlier is a mistake, even if the command happens
//! to be faster.
//!
//! The check knows the pointers among a kernel's arguments and the addresses of copies and fills, of commands that
//! signal no event, in in-order immediate lists and in regular lists. A command's event is signalled a moment
//! before the list's counter, by which this check recognises its end.

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::calls::{self, Call};
use super::history::Found;
use super::report::{Report, Rule};
use super::{Checks, collector};

/// Number of uses from which on ended ones are looked for.
const MANY: usize = 1024;

/// Time that a regular list has to reach its counter after it has signalled an event.
const PATIENCE: Duration = Duration::from_millis(50);

/// Returns whether a command is submitted and not complete; `None`: it will never be submitted again.
pub type State = Box<dyn Fn() -> Option<bool> + Send + Sync>;

/// The commands that use memory.
#[derive(Default)]
pub struct Uses(Mutex<Vec<Use>>);

struct Use {
    addresses: Vec<u64>,
    call: Call,
    state: State,
    regular: bool,
}

impl Use {
    /// Whether it is not complete, and does not become complete within a moment.
    fn is_pending(&self) -> bool {
        let start = Instant::now();
        loop {
            if (self.state)() != Some(true) {
                return false;
            }
            if !self.regular || start.elapsed() > PATIENCE {
                return true;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Checks {
    /// Notes that the current call has appended a command that uses memory at these addresses, to a `regular` list
    /// or to an immediate one.
    pub fn uses(&self, addresses: Vec<u64>, state: State, regular: bool) {
        let mut uses = self.uses.0.lock().unwrap_or_else(PoisonError::into_inner);
        if uses.len() >= MANY && uses.len().is_power_of_two() {
            uses.retain(|it| (it.state)().is_some());
        }
        uses.push(Use { addresses, call: calls::current(), state, regular });
    }

    /// Reports a mistake if memory is freed that a command uses that is not complete.
    pub(super) fn check_unused(&self, base: u64) {
        let mut uses = self.uses.0.lock().unwrap_or_else(PoisonError::into_inner);
        uses.retain(|it| (it.state)().is_some());
        let (now, owner) = (self.history.epoch(), base);
        let is_in = |address: &u64| match self.history.find(*address, now) {
            Found::Inside(it, _) => it.base == owner,
            _ => false,
        };
        let user = uses.iter().find(|it| it.addresses.iter().any(is_in) && it.is_pending());
        let Some(call) = user.map(|it| it.call.clone()) else { return };
        drop(uses);
        let Found::Inside(allocation, _) = self.history.find(base, now) else { return };
        let kind = super::describe::name(&allocation.kind);
        let message = format!("{kind} is freed while a command that uses it is not complete");
        let memory = super::describe::memory_of(allocation, base, 0, "its start".to_owned());
        let report = Report {
            memory: Some(memory),
            notes: vec![format!(
                "the command was appended by call {}, {}",
                call.number, call.function
            )],
            ..Report::of_call(Rule::FreeInUse, message)
        };
        collector::add(report, None);
    }
}
