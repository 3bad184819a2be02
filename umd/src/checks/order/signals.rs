// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events with a word of their own: regular ones, and those whose signals add to a word of the user's. Their
//! history is cut into epochs by resets, in the order of submission.

use std::collections::{HashSet, VecDeque};

use super::{Appended, Effect, Execution, Named, Order, State};
use crate::checks::collector;
use crate::checks::report::Report;

/// Number of executions before a signal among which waits for it are looked for.
const LOOKED_AT: usize = 1024;

/// A rule of `sync` that two executions may break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// A wait, and a reset that comes after it or not.
    Wait,
    /// A reset that has started, and a wait that comes after it or not.
    Reset,
    /// A signal, and a reset that comes after it or not.
    SignalAndReset,
    /// Two signals of the event with this word, of which neither comes after another one.
    Signals(u64),
}

/// The word of an event, since its last reset.
#[derive(Default)]
pub(super) struct Cell {
    /// Whether others write it, too: the host and kernels the user's word, other processes an event of a shared pool.
    pub(super) has_others: bool,
    /// The value at which the event is complete.
    needed: u64,
    signals: Vec<(Execution, u64)>,
    waits: Vec<Execution>,
    /// Those of the waits whose signals are not submitted.
    open: Vec<Execution>,
    /// Resets that come after all of these, and so after the next signal; each with the waits that come after it.
    to_come: VecDeque<(Execution, Vec<Execution>)>,
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
        self.to_come.retain(|it| it.0 != execution);
        self.to_come.iter_mut().for_each(|it| it.1.retain(|it| *it != execution));
    }

    /// The signal has come for which the open waits wait, and after it the next reset.
    fn go_on(&mut self) {
        if let Some((_, open)) = self.to_come.pop_front() {
            self.signals.clear();
            self.waits.clone_from(&open);
            self.open = open;
        }
    }
}

impl Order {
    /// Notes a new event with this word, which is complete from `needed` on. `has_others`: others write the word, too.
    pub fn word_begins(&self, address: u64, needed: u64, has_others: bool) {
        self.state().cells.insert(address, Cell { has_others, needed, ..Cell::default() });
    }

    /// Notes that other processes may write the words of events from now on, since their pool is shared.
    pub fn words_are_shared(&self, addresses: impl Iterator<Item = u64>) {
        let mut state = self.state();
        for address in addresses {
            if let Some(cell) = state.cells.get_mut(&address) {
                cell.has_others = true;
            }
        }
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
        let number = state.add_command((0, false), &Appended::default());
        let execution = state.add_node(number, 0, chain);
        state.free.push_back(chain);
        state.affect(execution, effect);
        state.starts(execution);
        state.host_saw(execution);
        let broken = state.broken(execution);
        drop(state);
        for (rule, other) in broken {
            self.tell_broken(rule, other, execution);
        }
    }

    /// Reports resets that were to come behind waits that have not ended and may never do so.
    pub fn tell_what_still_waits(&self) {
        let found = self.state().still_waiting();
        found
            .into_iter()
            .for_each(|(reset, waiter)| self.tell_broken(Broken::Reset, reset, waiter));
    }

    /// Reports two uses of an event that nothing orders.
    pub(super) fn tell_broken(&self, broken: Broken, other: Execution, execution: Execution) {
        let (first, second) = match broken {
            Broken::Reset => (execution, other),
            _ => (other, execution),
        };
        let (Some(first), Some(second)) = (self.named(first), self.named(second)) else { return };
        let who = |it: &Named| if it.list == 0 { "the host" } else { "a command" };
        let (one, two) = (who(&first), who(&second));
        let both = if one == two { "two commands" } else { "the host and a command" };
        let message = match broken {
            Broken::Wait | Broken::Reset => {
                format!("{two} resets an event while {one} may still wait for it")
            }
            Broken::SignalAndReset => {
                format!("{both} signal and reset an event, and nothing orders the two")
            }
            Broken::Signals(_) => {
                format!("{both} signal the same event, and nothing orders the two")
            }
        };
        let report = Report {
            call: Some(second.call.clone()),
            other: Some(first.call.clone()),
            ..Report::of_call(broken.rule(), message)
        };
        collector::add_of_caller(first.place_with(&second), report);
    }
}

impl State {
    /// The claims of an execution that starts now and do not hold. The order of submission may be another one: then the
    /// one that starts later decides.
    pub(super) fn broken(&mut self, execution: Execution) -> Vec<(Broken, Execution)> {
        let Some(node) = self.node_mut(execution) else { return Vec::new() };
        node.has_started = true;
        let mut broken = Vec::new();
        for (rule, other) in std::mem::take(&mut node.claims) {
            if self.ordered(other, execution)
                || self.is_signalled_before(rule, other, execution)
                || self.is_never_told(other)
            {
                continue;
            }
            match self.node_mut(other) {
                Some(node) if !node.has_started => {
                    let rule = if rule == Broken::Wait { Broken::Reset } else { rule };
                    node.claims.push((rule, execution));
                }
                _ => broken.push((rule, other)),
            }
        }
        broken
    }

    /// Resets that were to come behind waits, which have not ended: each once.
    pub(super) fn still_waiting(&mut self) -> Vec<(Execution, Execution)> {
        let mut found = Vec::new();
        for (at, node) in self.nodes.iter_mut().enumerate().filter(|(_, node)| !node.has_started) {
            let waiter = Execution(self.dropped + at as u32 + 1);
            let resets = node.claims.extract_if(.., |it| it.0 == Broken::Reset);
            found.extend(resets.map(|it| (it.1, waiter)));
        }
        found
    }

    /// Whether the device does not tell when an execution starts: the waits and the signal of a call that appends
    /// lists.
    fn is_never_told(&self, execution: Execution) -> bool {
        self.node(execution).is_some_and(|it| !it.tells && !it.has_started)
    }

    /// Whether a third signal comes before both, so that they change nothing.
    fn is_signalled_before(&mut self, rule: Broken, one: Execution, two: Execution) -> bool {
        let Broken::Signals(address) = rule else { return false };
        let signals = self.cells.get(&address).map_or(Vec::new(), |it| it.signals.clone());
        let mut others = signals.into_iter().map(|it| it.0).filter(|&it| it != one && it != two);
        others.any(|it| self.ordered(it, one) && self.ordered(it, two))
    }

    /// Whether an execution is one of these, or comes after one of them by what is submitted. It looks at
    /// [`LOOKED_AT`] executions at most: what it misses then is a circle, which orders less ([`State::clock`]).
    fn comes_after_one_of(&self, execution: Execution, earlier: &[Execution]) -> bool {
        let mut left = if earlier.is_empty() { Vec::new() } else { vec![execution] };
        let mut seen = HashSet::new();
        while let Some(it) = left.pop() {
            if earlier.contains(&it) {
                return true;
            }
            // What comes before one that has started has ended.
            if let Some(node) = self.node(it).filter(|it| !it.is_final)
                && seen.insert(it)
                && seen.len() <= LOOKED_AT
            {
                left.extend(&node.after);
            }
        }
        false
    }

    pub(super) fn wait_for_word(&mut self, execution: Execution, address: u64, needed: u64) {
        let cell = self.cells.entry(address).or_default();
        cell.needed = needed;
        cell.waits.push(execution);
        let has_others = cell.has_others;
        match cell.completed() {
            Some(signals) => signals.into_iter().for_each(|it| self.order(it, execution)),
            None => {
                let resets: Vec<Execution> = cell.to_come.iter().map(|it| it.0).collect();
                let mut behind = resets.iter().rev();
                let behind = behind.position(|&it| self.comes_after_one_of(execution, &[it]));
                let cell = self.cells.entry(address).or_default();
                match behind.and_then(|it| cell.to_come.get_mut(resets.len() - 1 - it)) {
                    Some(reset) => reset.1.push(execution),
                    None => cell.open.push(execution),
                }
                self.open(execution);
            }
        }
        // Others may have signalled it.
        if has_others {
            self.open(execution);
        }
    }

    /// Signals or resets an event.
    pub(super) fn affect(&mut self, execution: Execution, effect: Effect) {
        match effect {
            Effect::Signal { address, amount, needed } => {
                let cell = self.cells.entry(address).or_default();
                cell.needed = needed;
                let open = cell.open.clone();
                // Another signal has to come first.
                if self.comes_after_one_of(execution, &open) {
                    return;
                }
                let cell = self.cells.entry(address).or_default();
                let (before, has_others) = (cell.completed(), cell.has_others);
                cell.signals.push((execution, amount));
                match before {
                    // A second signal of a regular event.
                    Some(signals) if !has_others => {
                        let claims = signals.into_iter().map(|it| (Broken::Signals(address), it));
                        let claims: Vec<_> = claims.filter(|it| it.1 != execution).collect();
                        if let Some(node) = self.node_mut(execution) {
                            node.claims.extend(claims);
                        }
                    }
                    Some(_) => {}
                    None => {
                        let Some(signals) = cell.completed() else { return };
                        let waiters = std::mem::take(&mut cell.open);
                        cell.go_on();
                        for waiter in waiters {
                            self.fulfil(waiter, &signals);
                        }
                    }
                }
            }
            Effect::Reset { address } => {
                let cell = self.cells.entry(address).or_default();
                // Nothing changes as long as nothing signals it.
                if cell.signals.is_empty() {
                    let open = cell.open.clone();
                    let is_behind = |it: &Execution| self.comes_after_one_of(execution, &[*it]);
                    if !open.is_empty() && open.iter().all(is_behind) {
                        let cell = self.cells.entry(address).or_default();
                        cell.to_come.push_back((execution, Vec::new()));
                    }
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
