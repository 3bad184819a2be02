// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times of commands. The model has no clock: it knows which command's times a query must return, and
//! that a command that is ordered after another one does not start before that one's end.

use super::event::{Bound, CbState, RecordingId};
use super::order::{Node, Work};
use super::{EventState, Model, Refusal};
use crate::program::{EventId, EventKind, Op};

/// The owner of the queried times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimesOf {
    /// Those of the command that a CB event referred to when the query was appended.
    State(CbState),
    /// Those of the command that has signalled a regular event when the query is executed.
    Event(EventId),
}

/// A command that reads the times of another one.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// The command that reads.
    reader: Node,
    /// The place to which they are written.
    place: usize,
    /// The command whose times they are.
    command: Node,
}

/// The expected times, with numbers for commands.
#[derive(Clone, Default, Debug)]
pub struct ExpectedTimes {
    /// For each step that queries times, the command whose times it gets if there are any.
    pub steps: Vec<Option<usize>>,
    /// For each place that is written, its number and the command whose times it holds after the last
    /// step.
    pub places: Vec<(usize, usize)>,
    /// Pairs of commands: the first is complete before the second starts.
    pub order: Vec<(usize, usize)>,
}

impl Model {
    /// The owner of the times that an event has, if it has any.
    pub(super) fn timed(&self, name: EventId) -> Result<TimesOf, Refusal> {
        let event = self.event(name)?;
        match event.state {
            EventState::CounterBased(CbState::Complete) => {
                Err(Refusal::Misuse("the event was never signalled"))
            }
            EventState::CounterBased(state) if event.kind == EventKind::Timed => {
                Ok(TimesOf::State(state))
            }
            EventState::Regular(_) if event.kind == EventKind::RegularTimed => {
                Ok(TimesOf::Event(name))
            }
            _ => Err(Refusal::Misuse("the event has no times")),
        }
    }

    /// The command that has signalled a regular event, or that will when it is complete. A signal of
    /// the host has no times.
    pub(super) fn signalling_command(&self, event: EventId) -> Result<Node, Refusal> {
        let signals = self.cells[self.cell_of(event)?].completed();
        match signals.map(|signals| (signals, self.graph.work(signals[0]))) {
            Some((&[node], Work::Command(_))) => Ok(node),
            _ => Err(Refusal::Misuse("no command has signalled the event")),
        }
    }

    /// Whether an event's times can be queried.
    #[must_use]
    pub fn has_times(&self, event: EventId) -> bool {
        match self.timed(event) {
            Ok(TimesOf::State(_)) => true,
            Ok(TimesOf::Event(event)) => self.signalling_command(event).is_ok(),
            Err(_) => false,
        }
    }

    /// "The value(s) written to the destination buffer are undefined if any timestamp event has not
    /// been signaled prior to the command": the order must guarantee that it was. The command is
    /// determined when the query is appended. An event of another regular list is left out: that list's
    /// next execution may overwrite the times.
    pub(super) fn read_times(
        &mut self,
        reader: Node,
        place: usize,
        times: TimesOf,
        (own, commands): (Option<RecordingId>, &[Node]),
    ) -> Result<(), Refusal> {
        let command = match times {
            TimesOf::State(state) => self.timestamps(state, (own, commands))?,
            TimesOf::Event(event) => {
                let command = self.signalling_command(event)?;
                // The reset of the event, which must precede another signal, comes after the reader.
                let cell = self.cell_of(event)?;
                self.cells[cell].current_mut().waits.push(reader);
                command
            }
        };
        self.must_come_before(command, reader)?;
        self.readings.push(Reading { reader, place, command });
        Ok(())
    }

    fn timestamps(
        &self,
        state: CbState,
        (own, commands): (Option<RecordingId>, &[Node]),
    ) -> Result<Node, Refusal> {
        if let CbState::Recorded { recording, .. } = state
            && Some(recording) != own
        {
            return Err(Refusal::Misuse("times of another regular list"));
        }
        match self.bind(state, own.map(|own| (own, commands))) {
            Bound::Command(command) => Ok(command),
            _ => Err(Refusal::Misuse("the event was never signalled")),
        }
    }

    pub(super) fn expected_times(&self) -> ExpectedTimes {
        let mut commands = Vec::new();
        let mut number = |node: Node| {
            commands.iter().position(|&other| other == node).unwrap_or_else(|| {
                commands.push(node);
                commands.len() - 1
            })
        };
        let asked = self.steps.iter().map(|step| match self.settle(step.times?) {
            Bound::Command(node) => Some(number(node)),
            _ => None,
        });
        let steps = asked.collect();
        let mut places: Vec<(usize, usize)> = Vec::new();
        for node in self.graph.sequence(|_| 0) {
            let Work::Command(Op::QueryTimes { .. }) = self.graph.work(node) else { continue };
            let reading = self.readings.iter().find(|reading| reading.reader == node);
            let &Reading { place, command, .. } = reading.expect("each reader is noted");
            places.retain(|&(other, _)| other != place);
            places.push((place, number(command)));
        }
        let mut order = Vec::new();
        for (second, &node) in commands.iter().enumerate() {
            let span = self.spans.iter().find(|(end, _)| *end == node);
            let before = self.graph.before(span.map_or(node, |&(_, begin)| begin));
            let earlier = commands.iter().enumerate().filter(|(_, node)| before.contains(**node));
            order.extend(earlier.map(|(first, _)| (first, second)));
        }
        ExpectedTimes { steps, places, order }
    }
}
