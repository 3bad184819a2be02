// SPDX-License-Identifier: MIT OR Apache-2.0
//! The toy's calls beyond append and execute: copies of lists, executions by immediate lists, opened
//! events, times.

use super::device::{Change, Condition, Slot};
use super::{
    Event, FINAL_VALUE, INCREMENT, List, Pair, RecordedCommand, RecordedWait, State, put, refuse,
};
use crate::faults::Fault;
use crate::program::backend::{Answered, Times};
use crate::program::{Command, EventId, EventKind, ListId, ListOrder, Op};

impl State {
    pub(super) fn create_event(&mut self, event: EventId, kind: EventKind) -> Answered<()> {
        let created = match kind {
            EventKind::CounterBased | EventKind::Timed => Event::CounterBased(Pair::Complete),
            EventKind::Opened => return refuse("zeEventCreate", "no handle"),
            EventKind::External => Event::CounterBased(self.new_word(event, FINAL_VALUE, None)),
            EventKind::Aggregated { increments } => {
                let value = INCREMENT * u64::from(increments);
                Event::Aggregated(self.new_word(event, value, Some(Change::Add(INCREMENT))))
            }
            EventKind::Regular | EventKind::RegularTimed => Event::Regular(self.new_cell()),
        };
        put(&mut self.events, event.0, created, || Event::Destroyed);
        let timestamp = match kind {
            EventKind::Timed => (true, None),
            EventKind::RegularTimed => (true, Some(self.new_times())),
            _ => (false, None),
        };
        put(&mut self.timestamps, event.0, timestamp, || (false, None));
        Ok(())
    }

    /// The same commands on a counter of their own, with slots of their own for times.
    pub(super) fn clone_list(&mut self, list: ListId, copy: ListId) -> Answered<()> {
        let &mut List { desc, ring, stream, recording: source, .. } = self.list(list)?;
        let slot = self.take_slot();
        let recording = self.new_recording(slot);
        let mut commands = self.recordings[source].commands.clone();
        let mut timestamps: Vec<(usize, usize)> = Vec::new();
        for command in &mut commands {
            self.adopt(command, source, &mut timestamps);
        }
        let signals: Slot = match self.faulty(Fault::CloneKeepsCounter) {
            true => self.recordings[source].slot,
            false => slot,
        };
        let quiet = self.faulty(Fault::CloneKeepsState);
        let own = &mut self.recordings[recording];
        (own.commands, own.signals, own.quiet) = (commands, signals, quiet);
        let created = Some(List { desc, slot, ring, stream, recording });
        put(&mut self.lists, copy.0, created, || None);
        Ok(())
    }

    /// A command of a copy: waits for the source's own commands are met by the order, as in the source.
    fn adopt(
        &mut self,
        command: &mut RecordedCommand,
        source: usize,
        timestamps: &mut Vec<(usize, usize)>,
    ) {
        for wait in &mut command.waits {
            if matches!(wait, RecordedWait::Pair(Pair::Recorded(other, _)) if *other == source) {
                *wait = RecordedWait::Pair(Pair::Complete);
            }
        }
        let is_regular =
            command.signal.is_some_and(|it| matches!(self.events[it.0], Event::Regular(_)));
        if let Some(timestamp) = &mut command.timestamp
            && !is_regular
        {
            let own = self.new_times();
            timestamps.push((*timestamp, own));
            *timestamp = own;
        }
        if let Some((slot, _)) = &mut command.reads
            && let Some(&(_, own)) = timestamps.iter().find(|(other, _)| other == slot)
        {
            *slot = own;
        }
    }

    /// The present pair.
    pub(super) fn share(&mut self, event: EventId, opened: EventId) -> Answered<()> {
        let pair = match self.events[event.0] {
            Event::CounterBased(pair) if !self.faulty(Fault::OpenedIsMet) => self.bind(pair),
            _ => None,
        };
        let pair = match pair {
            Some(Condition::Counter(slot, value)) => Pair::Counter(slot, value),
            _ => Pair::Complete,
        };
        put(&mut self.events, opened.0, Event::Opened(pair), || Event::Destroyed);
        put(&mut self.timestamps, opened.0, (false, None), || (false, None));
        Ok(())
    }

    /// A packet that begins, the executions, and a packet in a stream of its own that ends them.
    pub(super) fn append_lists(
        &mut self,
        list: ListId,
        lists: &[ListId],
        waits: &[EventId],
        signal: Option<EventId>,
    ) -> Answered<bool> {
        let mut waits = waits.to_vec();
        if self.faulty(Fault::AppendedListsIgnoreWaits) {
            waits.clear();
        }
        if self.list(list)?.desc.order == ListOrder::OutOfOrder {
            return self.append_lists_unordered(list, lists, waits, signal);
        }
        let barrier = |waits, signal| Command { op: Op::Barrier, waits, signal };
        let &mut List { desc, slot, ring, .. } = self.list(list)?;
        let begun = Condition::Counter(slot, self.reserved[slot] + 1);
        let (mut executions, mut entry) = (vec![begun], Vec::new());
        if !self.faulty(Fault::AppendedListsUnordered) {
            self.append(list, &barrier(waits.clone(), None))?;
            entry.push(begun);
        }
        for &executed in lists {
            executions.push(Condition::Stream(self.execute(ring, executed, entry.clone())?));
        }
        let stream = self.device.stream(ring, desc.order, Vec::new());
        self.list(list)?.stream = stream;
        if entry.is_empty() {
            self.append(list, &barrier(waits, None))?;
        }
        let synchronous = self.append(list, &barrier(Vec::new(), signal))?;
        if let Some(end) = self.device.streams[stream].packets.last_mut() {
            end.waits = executions;
        }
        Ok(synchronous)
    }

    /// The same without a barrier; the executions have a ring of their own.
    fn append_lists_unordered(
        &mut self,
        list: ListId,
        lists: &[ListId],
        waits: Vec<EventId>,
        signal: Option<EventId>,
    ) -> Answered<bool> {
        let nothing = |waits, signal| Command { op: Op::SignalEvent, waits, signal };
        self.append(list, &nothing(waits, None))?;
        let stream = self.list(list)?.stream;
        let begun = Condition::Packet(stream, self.device.streams[stream].packets.len() - 1);
        self.device.rings.push(Vec::new());
        let ring = self.device.rings.len() - 1;
        let mut executions = vec![begun];
        for &executed in lists {
            executions.push(Condition::Stream(self.execute(ring, executed, vec![begun])?));
        }
        if self.faulty(Fault::UnorderedListsSignalEarly) {
            executions.truncate(1);
        }
        let synchronous = self.append(list, &nothing(Vec::new(), signal))?;
        if let Some(end) = self.device.streams[stream].packets.last_mut() {
            end.waits = executions;
        }
        Ok(synchronous)
    }

    fn new_times(&mut self) -> usize {
        self.device.times.push(Times { start: 0, end: 0 });
        self.device.times.len() - 1
    }

    /// A slot for the times of a command that signals an event with times.
    pub(super) fn new_timestamp(&mut self, signal: Option<EventId>) -> Option<usize> {
        let event = signal?;
        let (timed, own) = self.timestamps.get(event.0).copied()?;
        if matches!(self.events[event.0], Event::Regular(_)) {
            return own.filter(|_| !self.faulty(Fault::RegularTimesLost));
        }
        let shared = self.faulty(Fault::TimestampsShared) && !self.device.times.is_empty();
        timed.then(|| if shared { 0 } else { self.new_times() })
    }

    pub(super) fn set_timestamp(&mut self, signal: Option<EventId>, timestamp: Option<usize>) {
        if let (Some(event), Some(timestamp)) = (signal, timestamp) {
            self.timestamps[event.0].1 = Some(timestamp);
        }
    }

    /// The slot that a command reads, and the place to which it writes.
    pub(super) fn reads(&self, op: Op) -> Option<(usize, usize)> {
        let Op::QueryTimes { event, place } = op else { return None };
        self.timestamps[event.0].1.map(|slot| (slot, place))
    }

    pub(super) fn times(&self, event: EventId) -> Times {
        let slot = self.timestamps[event.0].1;
        slot.map_or(Times { start: 1, end: 0 }, |slot| self.device.times[slot])
    }
}
