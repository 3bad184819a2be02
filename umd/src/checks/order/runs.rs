// SPDX-License-Identifier: MIT OR Apache-2.0
//! Executions of recordings: of regular lists one by one, and of graphs, whose lists are executed together.

use std::collections::HashSet;

use tally_ze::ze_event_handle_t;

use super::lists::{Commands, Executed, Item, Latest, Parts, Recording};
use super::{Appended, Awaited, Effect, Execution, Order, Role, State};
use crate::handle::Counted;

/// What an execution comes after.
pub(super) struct Start<'a> {
    /// The command that executes it.
    pub(super) entry: Execution,
    /// What barriers come after, too: all that was submitted to the queue.
    pub(super) so_far: &'a [Execution],
}

/// An execution of a recording, while its commands are submitted.
struct Run {
    recording: usize,
    base: u64,
    in_order: bool,
    /// What was submitted so far of an out-of-order list.
    commands: Commands,
    /// The last command of an in-order list.
    last: Execution,
    all: Vec<Execution>,
}

/// What is executed together, and what its waits for events stand for.
struct Together<'a> {
    lists: &'a [Executed],
    bound: &'a [(Counted<ze_event_handle_t>, Bound)],
}

/// What a wait for an event is when a graph is executed.
#[derive(Clone, Copy)]
enum Bound {
    Nothing,
    After(Execution),
    For(Awaited),
}

impl Order {
    /// Adds an execution of a graph that is about to be submitted to an immediate list, which waits for `waits` before
    /// and has the effects when all of the graph's lists are complete. `bound`: what a wait for an event waits for.
    pub fn execute_graph(
        &self,
        (cell, value): (u64, u64),
        lists: &[Executed],
        (waits, effects): (Vec<Awaited>, Vec<Effect>),
        bound: impl Fn(Counted<ze_event_handle_t>) -> Option<Awaited>,
    ) {
        let mut state = self.state();
        let Some(first) = lists.first() else { return };
        let Some(mut stream) = state.streams.remove(&cell) else { return };
        let (maker, in_order) = (stream.maker, stream.in_order);
        let number = state.add_command((maker, in_order), &Appended::default());
        let begin = Appended { has_waits: !waits.is_empty(), waits, ..Appended::default() };
        let entry = stream.submit(&mut state, number, &begin, &[]);
        let before = state.recordings.get(&first.recording).map_or(Execution::NONE, |it| it.ended);
        // "If this function is called while the executable graph is already running, the new execution is scheduled
        // after the current execution completes."
        state.order(before, entry);
        let (branches, events) = state.parts_of(lists);
        let bound: Vec<_> = events.into_iter().map(|it| (it, state.bind(bound(it)))).collect();
        let together = Together { lists, bound: &bound };
        let mut ends = state.execute_all(&together, &branches, entry);
        ends.push(entry);
        let end = Appended { effects, ..Appended::default() };
        let end = stream.submit(&mut state, number, &end, &ends);
        if let Some(first) = state.recordings.get_mut(&first.recording) {
            first.ended = end;
        }
        state.note_value(cell, value, end, in_order);
        state.streams.insert(cell, stream);
    }
}

impl State {
    /// Of the lists of a graph those that no command of another one executes, and the events that are bound when the
    /// graph is executed.
    fn parts_of(&self, lists: &[Executed]) -> (Vec<usize>, Vec<Counted<ze_event_handle_t>>) {
        let all = || lists.iter().filter_map(|it| self.recordings.get(&it.recording));
        let items = || all().flat_map(|it| &it.items);
        let inner: HashSet<usize> = items().flat_map(|it| it.parts.graph.iter().copied()).collect();
        let branches = lists.iter().map(|it| it.recording).filter(|it| !inner.contains(it));
        let events = items().flat_map(|it| &it.waits).filter_map(|it| match it {
            Awaited::Event(event) => Some(*event),
            _ => None,
        });
        (branches.collect(), events.collect())
    }

    /// What a wait stands for, before the graph's own commands are submitted.
    fn bind(&self, awaited: Option<Awaited>) -> Bound {
        let Some(awaited) = awaited else { return Bound::Nothing };
        let found = match awaited {
            Awaited::Recorded { recording, signal } => self.latest(recording, signal),
            Awaited::Counter { cell, value } => self.at_value(cell, value),
            _ => None,
        };
        found.map_or(Bound::For(awaited), Bound::After)
    }

    /// Submits an execution of a regular list, which also comes after `gate` of the queue. Returns the executions of
    /// its commands.
    pub(super) fn execute(
        &mut self,
        list: &Executed,
        start: &Start<'_>,
        gate: &mut Execution,
    ) -> Vec<Execution> {
        let Some((mut run, items)) = Run::begin(self, list, *gate) else { return Vec::new() };
        let alone = Together { lists: &[], bound: &[] };
        for item in &items {
            let execution = run.submit(self, item, start, &alone);
            if !run.in_order && item.role == Role::Barrier {
                *gate = execution;
            }
        }
        run.end(self, items, start)
    }

    /// Submits the lists of a graph, or of one within another one, after `entry`. Returns the executions of the ends.
    fn execute_all(
        &mut self,
        together: &Together<'_>,
        branches: &[usize],
        entry: Execution,
    ) -> Vec<Execution> {
        let lists = together.lists.iter().filter(|it| branches.contains(&it.recording));
        let mut runs: Vec<(Run, Vec<Item>)> =
            lists.filter_map(|list| Run::begin(self, list, Execution::NONE)).collect();
        // In the order of the capture signals come before their waits, and events have the epochs that they had then.
        let places = runs.iter().enumerate().flat_map(|(run, (_, items))| {
            items.iter().enumerate().map(move |(item, it)| (it.place, run, item))
        });
        let mut places: Vec<(u32, usize, usize)> = places.collect();
        places.sort_unstable();
        let start = Start { entry, so_far: &[] };
        for (_, run, item) in places {
            let (run, items) = &mut runs[run];
            run.submit(self, &items[item], &start, together);
        }
        runs.into_iter().flat_map(|(run, items)| run.end(self, items, &start)).collect()
    }
}

impl Run {
    /// Begins an execution; also returns the commands.
    fn begin(state: &mut State, list: &Executed, gate: Execution) -> Option<(Self, Vec<Item>)> {
        let mut recording = state.recordings.remove(&list.recording)?;
        let mut commands = Commands { gate, ..Commands::default() };
        // Nothing orders this execution after the one before, other than what the host has seen.
        recording.chains.give_back(state);
        std::mem::swap(&mut commands.chains, &mut recording.chains);
        let items = std::mem::take(&mut recording.items);
        let last = recording.latest.as_ref().map_or(Execution::NONE, |it| it.last);
        recording.latest = Some(Latest { signals: Vec::new(), last });
        let in_order = recording.in_order;
        state.recordings.insert(list.recording, recording);
        let &Executed { recording, base } = list;
        Some((Self { recording, base, in_order, commands, last, all: Vec::new() }, items))
    }

    fn recording<'a>(&self, state: &'a mut State) -> Option<&'a mut Recording> {
        state.recordings.get_mut(&self.recording)
    }

    fn chain(&mut self, state: &mut State) -> u32 {
        if !self.in_order {
            return self.commands.chains.take(state);
        }
        if let Some(chain) = self.recording(state).and_then(|it| it.chain) {
            return chain;
        }
        let new = state.take_chain();
        if let Some(recording) = self.recording(state) {
            recording.chain = Some(new);
        }
        new
    }

    /// Submits a command; returns its execution, or the end of the graph that it executes.
    fn submit(
        &mut self,
        state: &mut State,
        item: &Item,
        start: &Start<'_>,
        together: &Together<'_>,
    ) -> Execution {
        let chain = self.chain(state);
        let execution = match item.parts.graph.is_empty() {
            true => state.add_node(item.number, self.base, chain),
            false => state.add_end(item.number, chain),
        };
        state.order(start.entry, execution);
        if self.in_order {
            state.order(self.commands.gate, execution);
            state.order(self.last, execution);
        } else {
            if item.role == Role::Barrier && !item.has_waits {
                start.so_far.iter().for_each(|&it| state.order(it, execution));
            }
            self.commands.order(state, execution, item.role, item.has_waits);
        }
        for &awaited in &item.waits {
            let known = together.bound.iter().find(|it| Awaited::Event(it.0) == awaited);
            match known.map_or(Bound::For(awaited), |it| it.1) {
                Bound::Nothing => {}
                Bound::After(earlier) => state.order(earlier, execution),
                Bound::For(awaited) => state.wait(execution, awaited),
            }
        }
        let end = match &item.parts {
            Parts { graph, launches } if graph.is_empty() && launches.is_empty() => execution,
            parts => self.parts(state, item.number, parts, execution, together),
        };
        item.effects.iter().for_each(|&effect| state.affect(end, effect));
        if let (Some(signal), Some(recording)) = (item.signal, self.recording(state))
            && let Some(latest) = &mut recording.latest
        {
            latest.signals.push((signal, end));
        }
        self.last = end;
        self.all.push(end);
        end
    }

    /// Submits the parts of a command with this number; returns its end.
    fn parts(
        &mut self,
        state: &mut State,
        number: u32,
        parts: &Parts,
        entry: Execution,
        together: &Together<'_>,
    ) -> Execution {
        let mut ends = state.execute_all(together, &parts.graph, entry);
        ends.push(entry);
        for &launch in &parts.launches {
            let chain = self.chain(state);
            let execution = state.add_node(launch, self.base, chain);
            let before = if self.in_order { ends.last().copied() } else { None };
            state.order(before.unwrap_or(entry), execution);
            ends.push(execution);
        }
        let chain = self.chain(state);
        let end = state.add_end(number, chain);
        ends.into_iter().for_each(|it| state.order(it, end));
        if !self.in_order {
            self.commands.since.push(end);
        }
        end
    }

    /// Ends the execution; returns the executions of its commands.
    fn end(mut self, state: &mut State, items: Vec<Item>, start: &Start<'_>) -> Vec<Execution> {
        // An execution of an empty list takes its turn, too.
        if self.in_order && items.is_empty() {
            let chain = self.chain(state);
            let execution = state.add_end(0, chain);
            let earlier = [start.entry, self.commands.gate, self.last];
            earlier.into_iter().for_each(|it| state.order(it, execution));
            self.last = execution;
            self.all.push(execution);
        }
        let (mut awaited, mut signals) = (Vec::new(), Vec::new());
        let (last, chains) = (self.last, self.commands.chains);
        if let Some(recording) = state.recordings.get_mut(&self.recording) {
            recording.items = items;
            recording.chains = chains;
            awaited = std::mem::take(&mut recording.awaited);
            if let Some(latest) = &mut recording.latest {
                latest.last = last;
                signals.clone_from(&latest.signals);
            }
        }
        for (signal, waiter) in awaited {
            let signalled = signals.iter().find(|it| it.0 >= signal).map(|it| it.1);
            state.fulfil(waiter, signalled.as_slice());
        }
        // All of an in-order list come before its last one.
        if self.in_order { self.all.pop().into_iter().collect() } else { self.all }
    }
}
