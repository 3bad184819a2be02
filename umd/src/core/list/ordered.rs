// SPDX-License-Identifier: MIT OR Apache-2.0
//! Appends while the order of commands is followed (`crate::checks::order`): what a command waits for and signals, and
//! the number that the device tells when it starts.

use std::sync::Arc;

use tally_ze::{ze_event_counter_based_flags_t as CbFlags, ze_event_handle_t};

use crate::checks::order::{Appended, Awaited, Effect, Executed, Order, Parts, Role};
use crate::checks::{Rows, Transfer};
use crate::handle::{self, Counted};
use crate::list::command::Command;
use crate::list::immediate::Immediate;
use crate::list::launch::Groups;
use crate::list::regular::Regular;
use crate::list::target::Signal;
use crate::sync::cb_event::Resolved;
use crate::sync::event::{Event, EventKind};
pub(in crate::core) use crate::sync::recording::key;

/// The list to which a command is appended.
pub(super) enum To<'a> {
    Immediate(&'a Immediate),
    Regular(&'a Regular),
    /// A graph, into which the list is captured, and the branch that it has there.
    Graph(&'a Immediate, Option<Arc<Regular>>),
}

/// The place of a command that belongs to a graph.
pub(in crate::core) struct Captured {
    /// The branch.
    pub list: Arc<Regular>,
    /// The number of its signal, if it has one.
    pub signal: Option<u32>,
    /// The lists of the graph that it executes; none of another command.
    pub graph: Vec<Arc<Regular>>,
}

/// A command of a regular list in the order.
#[derive(Clone, Copy)]
pub(super) struct Item {
    /// Its index in the recording.
    pub index: usize,
    /// What its signal does to the word of an event.
    pub signal: Option<Effect>,
}

/// Where a command was appended.
pub(super) enum Place {
    /// Nowhere: the append has failed.
    Nowhere,
    /// In its list; the command's number in a mutable one, if it has one.
    Outside(Option<u64>),
    /// In a graph.
    Graph(Captured),
}

/// An append.
pub(super) struct Ordered<'a> {
    order: &'static Order,
    to: To<'a>,
    signal: Option<Signal<'a>>,
    has_waits: bool,
    waits: Vec<Awaited>,
    /// The launches of which the command consists, if it is not one.
    launches: Vec<Appended>,
    /// Their numbers.
    numbers: Vec<u32>,
    noted: Noted,
}

/// What the order knows of the append.
enum Noted {
    Nothing,
    /// The counter, the value and the number of a command of an immediate list.
    Appended(u64, u64, u32),
    /// A command of a recording, and the number of signals before.
    Recorded(usize, u32, Appended, u32),
    /// A command of a graph.
    Captured(u32, Appended),
}

impl<'a> Ordered<'a> {
    pub(super) fn new(
        order: &'static Order,
        to: To<'a>,
        signal: Option<Signal<'a>>,
        events: &[&Event],
    ) -> Self {
        let own = match &to {
            To::Immediate(_) => None,
            To::Regular(list) => Some(key(&list.recording())),
            To::Graph(_, branch) => branch.as_ref().map(|it| key(&it.recording())),
        };
        let waits = match to {
            To::Graph(..) => {
                let awaited = events.iter().filter_map(|it| captured(it));
                awaited.filter(|it| !is_of(it, own)).collect()
            }
            _ => waits(events.iter().copied(), own),
        };
        let has_waits = !events.is_empty();
        let (launches, numbers) = (Vec::new(), Vec::new());
        Self { order, to, signal, has_waits, waits, launches, numbers, noted: Noted::Nothing }
    }

    /// Adds a command that consists of launches with these numbers, as [`Ordered::number`] does; also returns the numbers
    /// of the launches as commands.
    pub(super) fn launches(&mut self, command: &Command<'_>, words: &[u64]) -> (u32, Vec<u32>) {
        let one = |&launch: &u64| Appended { launch, ..Appended::default() };
        self.launches = words.iter().map(one).collect();
        (self.number(command, &[], 0), self.numbers.clone())
    }

    /// Adds the command. Returns its number if the device has to tell when it starts, and else 0. `launch`: the
    /// number of its launch.
    pub(super) fn number(
        &mut self,
        command: &Command<'_>,
        transfers: &[Transfer],
        launch: u64,
    ) -> u32 {
        if let (Command::Lists(lists), To::Immediate(list)) = (command, &self.to) {
            let (cell, value) = list.next();
            let effects = self.signal.iter().filter_map(|it| effect(it.event)).collect();
            let waits = std::mem::take(&mut self.waits);
            self.order.execute(cell, value, &executed(lists), Some(waits), effects);
            return 0;
        }
        if let (Command::Graph(graph), To::Immediate(list)) = (command, &self.to) {
            let lists = executed(&graph.lists().collect::<Vec<_>>());
            let effects = self.signal.iter().filter_map(|it| effect(it.event)).collect();
            let waits = std::mem::take(&mut self.waits);
            // SAFETY: applications do not destroy an event while they execute a graph that waits for it; the handle's
            // count shows whether it was destroyed before.
            let bound = |event: Counted<ze_event_handle_t>| unsafe { event.get() }?.awaited();
            self.order.execute_graph(list.next(), &lists, (waits, effects), bound);
            return 0;
        }
        let role = match command {
            Command::Wait | Command::WaitSemaphores(_) => Role::Wait,
            Command::Barrier => Role::Barrier,
            Command::Signal | Command::Reset(_) => Role::Last,
            Command::HostFunction(_) => Role::HostFunction,
            _ => Role::Plain,
        };
        let mut effects: Vec<Effect> =
            self.signal.iter().filter_map(|it| effect(it.event)).collect();
        if let Command::Reset(event) = command
            && let Some(Effect::Signal { address, .. }) = effect(event)
        {
            effects.push(Effect::Reset { address });
        }
        let words = self.writes_of_words(command);
        let is_word = !words.is_empty();
        effects.extend(words);
        let mut waits = std::mem::take(&mut self.waits);
        if let Command::WaitSemaphores(_) = command {
            waits.push(Awaited::Unknown);
        }
        // The write of a word that events follow is a signal, and no access.
        let mut transfers = if is_word { Vec::new() } else { transfers.to_vec() };
        transfers.extend(read_by(command));
        let signals = self.signal.is_some();
        let has_waits = self.has_waits;
        let appended = Appended { role, has_waits, signals, waits, effects, transfers, launch };
        let tells = appended.tells();
        let number = match &self.to {
            To::Immediate(list) => {
                let (cell, value) = list.next();
                let number = match self.launches.is_empty() {
                    true => self.order.append(cell, value, &appended),
                    false => {
                        let launches = &self.launches;
                        let (number, numbers) =
                            self.order.append_launches(cell, value, &appended, launches);
                        self.numbers = numbers;
                        number
                    }
                };
                self.noted = Noted::Appended(cell, value, number);
                number
            }
            To::Regular(list) => {
                let recording = list.recording();
                let number = self.order.number(key(&recording), &appended);
                let launches = self.launches.iter();
                self.numbers = launches.map(|it| self.order.number(key(&recording), it)).collect();
                let signals = recording.signals();
                self.noted = Noted::Recorded(key(&recording), number, appended, signals);
                number
            }
            To::Graph(list, _) => {
                let number = self.order.capture(list.cell().va(), &appended);
                let launches = self.launches.iter();
                self.numbers =
                    launches.map(|it| self.order.capture(list.cell().va(), it)).collect();
                self.noted = Noted::Captured(number, appended);
                number
            }
        };
        if let Command::HostFunction(function) = command {
            self.order.calls_function(number, function.cell().va());
        }
        if tells { number } else { 0 }
    }

    /// The append has ended. Returns the command's place in the order of a regular list.
    pub(super) fn end(self, place: &Place) -> Option<Item> {
        match (self.noted, place) {
            (Noted::Captured(number, appended), Place::Graph(Captured { list, signal, graph })) => {
                let graph = graph.iter().map(|it| key(&it.recording())).collect();
                let key = key(&list.recording());
                let parts = Parts { graph, launches: self.numbers };
                self.order.parts_recorded(key, number, appended, *signal, parts);
                None
            }
            (Noted::Appended(cell, value, number), Place::Outside(_)) => {
                let To::Immediate(list) = self.to else { return None };
                if list.next().1 == value {
                    self.order.raises_nothing(cell, value, number);
                }
                None
            }
            (Noted::Appended(cell, value, number), _) => {
                self.order.withdraw(cell, value, number);
                None
            }
            (Noted::Recorded(key, number, appended, before), Place::Outside(_)) => {
                let To::Regular(list) = self.to else { return None };
                let after = list.recording().signals();
                let signal = (after != before).then_some(after);
                let parts = Parts { launches: self.numbers, ..Parts::default() };
                let index = self.order.parts_recorded(key, number, appended, signal, parts)?;
                Some(Item { index, signal: self.signal.and_then(|it| effect(it.event)) })
            }
            _ => None,
        }
    }

    /// What copies and fills of one word do to words that events follow.
    fn writes_of_words(&self, command: &Command<'_>) -> Vec<Effect> {
        let (address, size, is_zero) = match *command {
            Command::Fill { dst, size, pattern } => (dst, size, pattern.iter().all(|it| *it == 0)),
            Command::Copy { dst, size, .. } => (dst, size, false),
            _ => return Vec::new(),
        };
        if size > 8 {
            return Vec::new();
        }
        let words = self.order.words_in(address, size).into_iter();
        words
            .map(|(address, needed)| match is_zero {
                true => Effect::Reset { address },
                false => Effect::Signal { address, amount: needed, needed },
            })
            .collect()
    }
}

/// The effect of a signal of an event, if it has a word of its own.
pub(super) fn effect(event: &Event) -> Option<Effect> {
    event.word().map(|(address, amount, needed)| Effect::Signal { address, amount, needed })
}

/// Whether a wait is for a signal of this recording.
fn is_of(awaited: &Awaited, own: Option<usize>) -> bool {
    matches!(awaited, Awaited::Recorded { recording, .. } if Some(*recording) == own)
}

/// What a command waits for, in a list with this recording, whose own order is sufficient.
pub(super) fn waits<'e>(
    events: impl Iterator<Item = &'e Event>,
    own: Option<usize>,
) -> Vec<Awaited> {
    events.filter_map(Event::awaited).filter(|it| !is_of(it, own)).collect()
}

/// What a wait that belongs to a graph waits for: an event for use outside of the graph, which nothing in it has
/// signalled, is bound when the graph is executed.
fn captured(event: &Event) -> Option<Awaited> {
    let external = CbFlags::ZE_EVENT_COUNTER_BASED_FLAG_GRAPH_EXTERNAL.bits();
    match &event.kind {
        EventKind::CounterBased(it)
            if event.traits.cb_flags & external != 0
                && !matches!(it.resolve(), Resolved::Captured) =>
        {
            Some(Awaited::Event(handle::counted_of(event)))
        }
        _ => event.awaited(),
    }
}

/// The memory that commands read before they run, other than copies.
fn read_by(command: &Command<'_>) -> Option<Transfer> {
    let (address, size) = match command {
        Command::Launch(launch) => match launch.groups {
            Groups::Indirect(address) => (address, 3 * size_of::<u32>()),
            _ => return None,
        },
        Command::Launches { count, .. } => (*count, size_of::<u32>()),
        _ => return None,
    };
    Some(Transfer::read(Rows::of(address, size as u64)))
}

/// The executions that lists are about to begin.
pub(in crate::core) fn executed(lists: &[&Regular]) -> Vec<Executed> {
    let one = |list: &&Regular| {
        let recording = list.recording();
        Executed { recording: key(&recording), base: recording.next() }
    };
    lists.iter().map(one).collect()
}
