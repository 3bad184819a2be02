// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes of commands in mutable lists. The executions before are complete by then.

use super::lists::Item;
use super::{Awaited, Effect, Order, State};

impl Order {
    /// Notes that a command of a recording signals another event from now on, or none: what the signals do to words of
    /// their own, before and now.
    pub fn signal_changes(
        &self,
        recording: usize,
        item: usize,
        (old, new): (Option<Effect>, Option<Effect>),
        signals: bool,
    ) {
        let mut state = self.state();
        let Some(item) = state.item(recording, item) else { return };
        // A signal comes before what a command does by itself.
        if let Some(at) = item.effects.iter().position(|it| Some(*it) == old) {
            item.effects.remove(at);
        }
        item.effects.splice(0..0, new);
        let number = item.number;
        if let Some(command) = state.command_mut(number) {
            command.signals = signals;
        }
    }

    /// Notes that a command of a recording waits for something else from now on.
    pub fn waits_change(&self, recording: usize, item: usize, waits: Vec<Awaited>) {
        if let Some(item) = self.state().item(recording, item) {
            item.waits = waits;
        }
    }

    /// Notes that a command of a recording is another launch from now on.
    pub fn launch_changes(&self, recording: usize, item: usize, launch: u64) {
        let mut state = self.state();
        let Some(number) = state.item(recording, item).map(|it| it.number) else { return };
        let Some(command) = state.command_mut(number) else { return };
        let old = std::mem::replace(&mut command.launch, launch);
        state.launches.remove(&old);
        state.accesses.forget(number, old);
        state.launches.insert(launch, number);
    }
}

impl State {
    fn item(&mut self, recording: usize, item: usize) -> Option<&mut Item> {
        self.recordings.get_mut(&recording)?.items.get_mut(item)
    }
}
