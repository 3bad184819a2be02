// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events with a word of their own: regular ones, and those whose signals add to a word of the user's. Their
//! history is cut into epochs by resets, in the order of submission.

use super::{Effect, Execution, Order, State};
use crate::checks::commands::place_of;
use crate::checks::report::Report;
use crate::checks::{calls, collector};

/// A rule of `sync` that two executions may break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// A wait, and a reset that comes after it or not.
    Wait,
    /// A signal, and a reset that comes after it or not.
    SignalAndReset,
    /// Two signals.
    Signals,
}

/// The word of an event, since its last reset.
#[derive(Default)]
pub(super) struct Cell {
    /// Whether it is the user's word, which the host and kernels can write as well.
    is_users: bool,
    /// The value at which the event is complete.
    needed: u64,
    signals: Vec<(Execution, u64)>,
    waits: Vec<Execution>,
    /// Those of the waits whose signals are not submitted.
    open: Vec<Execution>,
}

impl Cell {
    /// The signals that complete it, once there are enough.
    pub(super) fn completed(&self) -> Option<Vec<Execution>> {
        let mut sum = 0_u64;
        let mut found = Vec::new();
        for &(signal, amount) in &self.signals {
            sum = sum.saturating_add(amount);
            found.push(signal);
            if sum >= self.needed.max(1) {
                return Some(found);
            }
        }
        None
    }

    /// Forgets an execution that was not submitted after all.
    pub(super) fn withdraw(&mut self, execution: Execution) {
        self.signals.retain(|it| it.0 != execution);
        self.waits.retain(|it| *it != execution);
        self.open.retain(|it| *it != execution);
    }
}

impl Order {
    /// Notes a new event with this word, which is complete from `needed` on. `is_users`: the word is the user's, and
    /// others write it, too.
    pub fn word_begins(&self, address: u64, needed: u64, is_users: bool) {
        self.state().cells.insert(address, Cell { is_users, needed, ..Cell::default() });
    }

    /// The words of events in a range of memory, and the values at which their events are complete.
    pub fn words_in(&self, address: u64, size: u64) -> Vec<(u64, u64)> {
        let state = self.state();
        let range = address..address.saturating_add(size);
        state.cells.range(range).map(|(&at, it)| (at, it.needed)).collect()
    }

    /// Notes that the host signals or resets an event.
    pub fn host_affects(&self, effect: Effect) {
        let mut state = self.state();
        let chain = state.take_chain();
        let execution = state.add_node(0, 0, chain);
        state.free.push_back(chain);
        state.affect(execution, effect);
        state.host_saw(execution);
        let claims =
            state.node_mut(execution).map_or(Vec::new(), |it| std::mem::take(&mut it.claims));
        let broken: Vec<_> =
            claims.into_iter().filter(|claim| !state.ordered(claim.1, execution)).collect();
        drop(state);
        for (rule, earlier) in broken {
            self.tell_broken(rule, earlier, None);
        }
    }

    /// Reports two uses of an event that nothing orders. `later`: `None` for the current call of the host.
    pub(super) fn tell_broken(&self, broken: Broken, earlier: Execution, later: Option<Execution>) {
        let (first, second) = (self.named(earlier), later.map(|it| self.named(it)));
        // The host's own signals and resets have no command, and are ordered.
        let (Some(first), Some(second)) = (first, second.map_or(Some(None), |it| it.map(Some)))
        else {
            return;
        };
        let by = if second.is_some() { "a command" } else { "the host" };
        let message = match broken {
            Broken::Wait => format!("{by} resets an event while a command may still wait for it"),
            Broken::SignalAndReset => {
                format!("{by} resets an event, and nothing orders a command's signal before that")
            }
            Broken::Signals => format!(
                "{by} signals an event that another command signals, and nothing orders them"
            ),
        };
        let mut report = Report::of_call(broken.rule(), message);
        let place = second.as_ref().map_or_else(calls::caller, |it| place_of(&first, it));
        if let Some(second) = second {
            report.call = Some(second.call);
        }
        report.other = Some(first.call);
        collector::add_of_caller(place, report);
    }
}

impl State {
    pub(super) fn wait_for_word(&mut self, execution: Execution, address: u64, needed: u64) {
        let cell = self.cells.entry(address).or_default();
        cell.needed = needed;
        cell.waits.push(execution);
        let is_users = cell.is_users;
        match cell.completed() {
            Some(signals) => signals.into_iter().for_each(|it| self.order(it, execution)),
            None => {
                cell.open.push(execution);
                self.open(execution);
            }
        }
        // Others may have signalled it.
        if is_users {
            self.open(execution);
        }
    }

    /// Signals or resets an event.
    pub(super) fn affect(&mut self, execution: Execution, effect: Effect) {
        match effect {
            Effect::Signal { address, amount, needed } => {
                let cell = self.cells.entry(address).or_default();
                cell.needed = needed;
                let before = cell.completed();
                cell.signals.push((execution, amount));
                match before {
                    // A second signal of a regular event.
                    Some(signals) if needed == 1 => {
                        let claims = signals.into_iter().map(|it| (Broken::Signals, it));
                        let claims: Vec<_> = claims.filter(|it| it.1 != execution).collect();
                        if let Some(node) = self.node_mut(execution) {
                            node.claims.extend(claims);
                        }
                    }
                    Some(_) => {}
                    None => {
                        let Some(signals) = cell.completed() else { return };
                        for waiter in std::mem::take(&mut cell.open) {
                            self.fulfil(waiter, &signals);
                        }
                    }
                }
            }
            Effect::Reset { address } => {
                let cell = self.cells.entry(address).or_default();
                // Nothing changes as long as nothing signals it.
                if cell.signals.is_empty() {
                    return;
                }
                let signals = std::mem::take(&mut cell.signals);
                let waits = std::mem::take(&mut cell.waits);
                cell.waits.clone_from(&cell.open);
                let signals = signals.into_iter().map(|it| (Broken::SignalAndReset, it.0));
                let waits = waits.into_iter().map(|it| (Broken::Wait, it));
                let claims: Vec<_> = waits.chain(signals).filter(|it| it.1 != execution).collect();
                if let Some(node) = self.node_mut(execution) {
                    node.claims.extend(claims);
                }
            }
        }
    }
}
