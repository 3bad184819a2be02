// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lists and queues: which commands come after which others because of where they are.

use super::runs::Start;
use super::{Appended, Awaited, Effect, Execution, Order, Role, State};
use crate::checks::{calls, collector};

/// Base of commands that are in no recording.
const NO_BASE: u64 = 0;

/// An immediate list, or a queue.
#[derive(Default)]
pub(super) struct Stream {
    /// The call that made it.
    pub(super) maker: u64,
    pub(super) in_order: bool,
    /// The chain of an in-order list, or of the ends of a queue's executions.
    chain: Option<u32>,
    commands: Commands,
}

/// A regular list from its creation or reset to the next reset.
#[derive(Default)]
pub(super) struct Recording {
    pub(super) maker: u64,
    pub(super) in_order: bool,
    pub(super) chain: Option<u32>,
    pub(super) items: Vec<Item>,
    /// The signals of the latest execution, and what it has as commands.
    pub(super) latest: Option<Latest>,
    /// Waits for signals of the first execution.
    pub(super) awaited: Vec<(u32, Execution)>,
    pub(super) chains: Chains,
    /// If it is the first list of a graph: the end of the graph's latest execution.
    pub(super) ended: Execution,
}

/// A command of a recording.
#[derive(Clone)]
pub(super) struct Item {
    pub(super) number: u32,
    /// Its place among the commands of a graph's lists.
    pub(super) place: u32,
    pub(super) role: Role,
    pub(super) has_waits: bool,
    pub(super) waits: Vec<Awaited>,
    pub(super) effects: Vec<Effect>,
    /// The number of its signal; `None`: it has none.
    pub(super) signal: Option<u32>,
    pub(super) parts: Parts,
}

/// What a command consists of, if it is more than one.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// The lists of a graph that it executes.
    pub graph: Vec<usize>,
    /// The numbers of its launches, as commands.
    pub launches: Vec<u32>,
}

#[derive(Clone)]
pub(super) struct Latest {
    pub(super) signals: Vec<(u32, Execution)>,
    pub(super) last: Execution,
}

/// The commands of an out-of-order list, or of one execution of it, since the last barrier without waits; of an
/// in-order one, the last command.
#[derive(Default)]
pub(super) struct Commands {
    pub(super) gate: Execution,
    /// Barriers and waits that hold up later commands, with those since.
    pub(super) since: Vec<Execution>,
    pub(super) chains: Chains,
}

/// The chains of an out-of-order list's commands.
#[derive(Default)]
pub(super) struct Chains {
    used: Vec<u32>,
    /// The executions of these come before those of the list that follow.
    spare: Vec<u32>,
}

/// A regular list that is executed.
#[derive(Clone, Copy, Debug)]
pub struct Executed {
    /// The recording, by the address of the driver's object.
    pub recording: usize,
    /// The base of the execution.
    pub base: u64,
}

impl Recording {
    /// A recording of these commands that was not executed.
    pub(super) fn of(maker: u64, in_order: bool, items: Vec<Item>) -> Self {
        Self { maker, in_order, items, ..Self::default() }
    }
}

impl Chains {
    pub(super) fn take(&mut self, state: &mut State) -> u32 {
        let chain = self.spare.pop().unwrap_or_else(|| state.take_chain());
        self.used.push(chain);
        chain
    }

    /// All that follows comes after what was used.
    fn pass(&mut self) {
        self.spare.append(&mut self.used);
    }

    pub(super) fn give_back(&mut self, state: &mut State) {
        state.free.extend(self.used.drain(..).chain(self.spare.drain(..)));
    }
}

impl Commands {
    /// Orders a command of an out-of-order list after those before it, as its role says.
    pub(super) fn order(&mut self, state: &mut State, it: Execution, role: Role, has_waits: bool) {
        state.order(self.gate, it);
        let after_all = role == Role::Last || role == Role::Barrier && !has_waits;
        if after_all {
            for &earlier in &self.since {
                state.order(earlier, it);
            }
        }
        if role == Role::Barrier && !has_waits {
            self.since.clear();
            self.chains.pass();
        }
        self.since.push(it);
        if matches!(role, Role::Barrier | Role::Wait) {
            self.gate = it;
        }
    }
}

impl Order {
    /// Notes a new immediate list or queue with this counter, which the current call makes.
    pub fn stream_begins(&self, cell: u64, in_order: bool) {
        let maker = calls::current().number;
        let mut state = self.state();
        let new = Stream { maker, in_order, ..Stream::default() };
        if let Some(mut old) = state.streams.insert(cell, new) {
            state.free.extend(old.chain);
            old.commands.chains.give_back(&mut state);
        }
    }

    /// Notes a new recording of a list that the current call makes, or resets: `after`.
    pub fn recording_begins(&self, recording: usize, in_order: bool, after: Option<usize>) {
        let mut state = self.state();
        let maker = after.and_then(|it| state.recordings.get(&it)).map(|it| it.maker);
        let maker = maker.unwrap_or_else(|| calls::current().number);
        state.begin(recording, Recording::of(maker, in_order, Vec::new()));
    }

    /// Forgets a recording that nothing names any more.
    pub fn recording_ends(&self, recording: usize) {
        let mut state = self.state();
        if let Some(mut old) = state.recordings.remove(&recording) {
            state.free.extend(old.chain);
            old.chains.give_back(&mut state);
        }
    }

    /// Adds a command of a regular list, before it is appended; returns its number. [`Order::recorded`] follows.
    pub fn number(&self, recording: usize, it: &Appended) -> u32 {
        let mut state = self.state();
        let maker =
            state.recordings.get(&recording).map_or((0, false), |it| (it.maker, it.in_order));
        state.add_command(maker, it)
    }

    /// Notes that a command was appended to a regular list. `signal`: the number of its signal, if it has one.
    /// Returns its index in the recording.
    pub fn recorded(
        &self,
        recording: usize,
        number: u32,
        it: Appended,
        signal: Option<u32>,
    ) -> Option<usize> {
        self.parts_recorded(recording, number, it, signal, Parts::default())
    }

    /// Notes that a command was appended that has these parts.
    pub fn parts_recorded(
        &self,
        recording: usize,
        number: u32,
        it: Appended,
        signal: Option<u32>,
        parts: Parts,
    ) -> Option<usize> {
        let Appended { role, has_waits, waits, effects, .. } = it;
        let mut state = self.state();
        let items = &mut state.recordings.get_mut(&recording)?.items;
        let place = number;
        items.push(Item { number, place, role, has_waits, waits, effects, signal, parts });
        Some(items.len() - 1)
    }

    /// Adds a command of an immediate list that is captured into a graph, before it is appended; returns its number.
    /// [`Order::recorded`] follows.
    pub fn capture(&self, cell: u64, it: &Appended) -> u32 {
        let mut state = self.state();
        let list = state.streams.get(&cell).map_or((0, false), |it| (it.maker, it.in_order));
        let number = state.add_command(list, it);
        if let Some(command) = state.command_mut(number) {
            command.captured = true;
        }
        number
    }

    /// Adds a command that is about to be appended to an immediate list, whose counter it will raise to `value`;
    /// returns its number.
    pub fn append(&self, cell: u64, value: u64, it: &Appended) -> u32 {
        let mut state = self.state();
        let Some(mut stream) = state.streams.remove(&cell) else { return 0 };
        let number = state.add_command((stream.maker, stream.in_order), it);
        let execution = stream.submit(&mut state, number, it, &[]);
        state.note_value(cell, value, execution, stream.in_order);
        state.streams.insert(cell, stream);
        number
    }

    /// Does the same for a command that consists of launches; also returns their numbers. In an in-order list they come
    /// one after the other.
    pub fn append_launches(
        &self,
        cell: u64,
        value: u64,
        it: &Appended,
        launches: &[Appended],
    ) -> (u32, Vec<u32>) {
        let mut state = self.state();
        let Some(mut stream) = state.streams.remove(&cell) else {
            return (0, vec![0; launches.len()]);
        };
        let (list, in_order) = ((stream.maker, stream.in_order), stream.in_order);
        let number = state.add_command(list, it);
        let begin = Appended { effects: Vec::new(), ..it.clone() };
        let entry = stream.submit(&mut state, number, &begin, &[]);
        let numbers: Vec<u32> = launches.iter().map(|it| state.add_command(list, it)).collect();
        let mut all = vec![entry];
        for &number in &numbers {
            let chain = stream.next_chain(&mut state);
            let execution = state.add_node(number, NO_BASE, chain);
            let before = if in_order { all.last().copied() } else { None };
            state.order(before.unwrap_or(entry), execution);
            all.push(execution);
        }
        let chain = stream.next_chain(&mut state);
        let end = state.add_end(number, chain);
        all.iter().for_each(|&it| state.order(it, end));
        if in_order {
            stream.commands.since.clear();
        }
        stream.commands.since.push(end);
        it.effects.iter().for_each(|&effect| state.affect(end, effect));
        state.note_value(cell, value, end, in_order);
        state.streams.insert(cell, stream);
        (number, numbers)
    }

    /// Notes that the last command of an in-order list raises nothing: all that it would have waited for is complete.
    /// Then the list is complete up to it once the counter has the value before.
    pub fn raises_nothing(&self, cell: u64, value: u64, number: u32) {
        let mut state = self.state();
        let Some(&(_, execution)) = state.command(number).and_then(|it| it.coming.back()) else {
            return;
        };
        if let Some(last) = state.counters.get_mut(&cell).and_then(|values| values.last_mut())
            && *last == (value, execution)
        {
            last.0 = value - 1;
        }
    }

    /// Forgets what the last command of an immediate list would have done, since its append has failed.
    pub fn withdraw(&self, cell: u64, value: u64, number: u32) {
        let mut state = self.state();
        let Some(execution) = state.command_mut(number).and_then(|it| it.coming.pop_back()) else {
            return;
        };
        if let Some(values) = state.counters.get_mut(&cell) {
            values.retain(|&(at, it)| at != value || it != execution.1);
        }
        state.cells.values_mut().for_each(|cell| cell.withdraw(execution.1));
    }

    /// Adds the executions of regular lists that are about to be submitted to an immediate list, which waits for
    /// `waits` before and has the effects when all are complete, or to a queue (`waits` is `None`).
    pub fn execute(
        &self,
        cell: u64,
        value: u64,
        lists: &[Executed],
        waits: Option<Vec<Awaited>>,
        effects: Vec<Effect>,
    ) {
        let mut state = self.state();
        let Some(mut stream) = state.streams.remove(&cell) else { return };
        let of = |role, waits, effects| Appended { role, waits, effects, ..Appended::default() };
        let on_queue = waits.is_none();
        // On an out-of-order list neither holds up later commands.
        let number = state
            .add_command((stream.maker, stream.in_order), &of(Role::Plain, Vec::new(), Vec::new()));
        let entry = match waits {
            Some(waits) => {
                stream.submit(&mut state, number, &of(Role::Plain, waits, Vec::new()), &[])
            }
            None => Execution::NONE,
        };
        // What a barrier of an out-of-order list on a queue comes after.
        let mut so_far: Vec<Execution> =
            if on_queue { stream.commands.since.clone() } else { Vec::new() };
        // Lists may be empty.
        let mut ends = vec![entry];
        let mut gate = if on_queue { stream.commands.gate } else { Execution::NONE };
        for list in lists {
            let last = state.execute(list, &Start { entry, so_far: &so_far }, &mut gate);
            so_far.extend(&last);
            ends.extend(last);
        }
        if on_queue {
            stream.commands.gate = gate;
        }
        let end = of(Role::Plain, Vec::new(), effects);
        let all = if on_queue { so_far } else { ends };
        let execution = if on_queue {
            let chain = stream.chain(&mut state);
            let execution = state.add_node(number, NO_BASE, chain);
            all.iter().for_each(|&it| state.order(it, execution));
            stream.commands.since = vec![execution];
            execution
        } else {
            stream.submit(&mut state, number, &end, &all)
        };
        state.note_value(cell, value, execution, true);
        state.streams.insert(cell, stream);
    }

    /// Notes that the host knows that all commands of an out-of-order list are complete.
    pub fn host_saw_list(&self, cell: u64) {
        let mut state = self.state();
        let Some(stream) = state.streams.get_mut(&cell) else { return };
        let all = stream.commands.since.clone();
        for execution in all {
            state.host_saw(execution);
        }
        // They come before all that follows.
        if let Some(stream) = state.streams.get_mut(&cell) {
            stream.commands.since.clear();
            stream.commands.chains.pass();
        }
    }

    /// Notes that the program has asked for the address of an event's word, which it may read at any time.
    pub fn host_reads_words(&self) {
        if !std::mem::replace(&mut self.state().reads_words, true) {
            collector::note(
                "the program reads events by itself: whatever has started when a command is submitted counts as complete",
            );
        }
    }

    /// Notes that the host knows that all commands of a list are complete, up to a value of its counter.
    pub fn host_saw_up_to(&self, cell: u64, value: u64) {
        let mut state = self.state();
        let in_order = state.streams.get(&cell).is_some_and(|it| it.in_order);
        let values = state.counters.get(&cell).filter(|_| in_order);
        let last = values.and_then(|it| it[..it.partition_point(|it| it.0 <= value)].last());
        match last.copied() {
            Some((_, last)) => state.host_saw(last),
            None => state.host_saw_something(),
        }
    }

    /// Notes that the host knows that something is complete.
    pub fn host_saw(&self, awaited: Awaited) {
        let mut state = self.state();
        let found = match awaited {
            Awaited::Counter { cell, value } => state.at_value(cell, value).map(|it| vec![it]),
            Awaited::Recorded { recording, signal } => {
                state.latest(recording, signal).map(|it| vec![it])
            }
            Awaited::Word { address, .. } => {
                // Others may have signalled it.
                if state.cells.get(&address).is_some_and(|it| it.has_others) {
                    state.host_saw_something();
                }
                state.cells.get(&address).and_then(super::Cell::completed)
            }
            Awaited::Unknown | Awaited::Event(_) => None,
        };
        match found {
            Some(found) => found.into_iter().for_each(|it| state.host_saw(it)),
            None => state.host_saw_something(),
        }
    }
}

impl Stream {
    fn chain(&mut self, state: &mut State) -> u32 {
        *self.chain.get_or_insert_with(|| state.take_chain())
    }

    /// The chain of the next command.
    fn next_chain(&mut self, state: &mut State) -> u32 {
        match self.in_order {
            true => self.chain(state),
            false => self.commands.chains.take(state),
        }
    }

    /// Submits a command, which comes after `earlier`, too.
    pub(super) fn submit(
        &mut self,
        state: &mut State,
        number: u32,
        it: &Appended,
        earlier: &[Execution],
    ) -> Execution {
        let chain = self.next_chain(state);
        let execution = state.add_node(number, NO_BASE, chain);
        earlier.iter().for_each(|&it| state.order(it, execution));
        if self.in_order {
            if let Some(&last) = self.commands.since.last() {
                state.order(last, execution);
            }
            self.commands.since = vec![execution];
        } else {
            self.commands.order(state, execution, it.role, it.has_waits);
        }
        it.waits.iter().for_each(|&awaited| state.wait(execution, awaited));
        it.effects.iter().for_each(|&effect| state.affect(execution, effect));
        execution
    }
}

impl State {
    /// Begins a recording, in place of one that had the same address.
    pub(super) fn begin(&mut self, recording: usize, new: Recording) {
        if let Some(mut old) = self.recordings.insert(recording, new) {
            self.free.extend(old.chain);
            old.chains.give_back(self);
        }
    }

    pub(super) fn note_value(&mut self, cell: u64, value: u64, execution: Execution, is: bool) {
        if !is {
            return;
        }
        let first = self.dropped;
        let values = self.counters.entry(cell).or_default();
        if values.len() >= 1024 && values.len().is_power_of_two() {
            values.retain(|it| it.1.0 > first);
        }
        // A command takes the place of one that failed.
        values.retain_tail(value);
        values.push((value, execution));
    }

    pub(super) fn at_value(&self, cell: u64, value: u64) -> Option<Execution> {
        let values = self.counters.get(&cell)?;
        let at = values.partition_point(|it| it.0 < value);
        values.get(at).map(|it| it.1)
    }

    pub(super) fn latest(&self, recording: usize, signal: u32) -> Option<Execution> {
        let latest = self.recordings.get(&recording)?.latest.as_ref()?;
        latest.signals.iter().find(|it| it.0 >= signal).map(|it| it.1)
    }

    /// Orders an execution after what it waits for.
    pub(super) fn wait(&mut self, execution: Execution, awaited: Awaited) {
        match awaited {
            Awaited::Counter { cell, value } => match self.at_value(cell, value) {
                Some(earlier) => self.order(earlier, execution),
                None => self.open(execution),
            },
            Awaited::Recorded { recording, signal } => match self.latest(recording, signal) {
                Some(earlier) => self.order(earlier, execution),
                None => {
                    self.open(execution);
                    if let Some(it) = self.recordings.get_mut(&recording) {
                        it.awaited.push((signal, execution));
                    }
                }
            },
            Awaited::Word { address, needed } => self.wait_for_word(execution, address, needed),
            Awaited::Unknown | Awaited::Event(_) => self.open(execution),
        }
    }

    /// Notes that an execution waits for something that is not submitted.
    pub(super) fn open(&mut self, execution: Execution) {
        if let Some(node) = self.node_mut(execution) {
            node.open += 1;
        }
    }

    /// Notes that something for which an execution waits was submitted.
    pub(super) fn fulfil(&mut self, execution: Execution, earlier: &[Execution]) {
        self.changes += 1;
        if let Some(node) = self.node_mut(execution) {
            node.open = node.open.saturating_sub(1);
            node.after.extend(earlier.iter().filter(|&&it| it != execution));
        }
    }
}

/// Values of a counter, in their order.
trait Values {
    fn retain_tail(&mut self, value: u64);
}

impl Values for Vec<(u64, Execution)> {
    /// Removes values from `value` on.
    fn retain_tail(&mut self, value: u64) {
        while self.last().is_some_and(|it| it.0 >= value) {
            self.pop();
        }
    }
}
