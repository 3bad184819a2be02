// SPDX-License-Identifier: MIT OR Apache-2.0
//! The toy's calls beyond append and execute: copies of lists, executions by immediate lists, opened
//! events, times.

use super::device::{Condition, Slot};
use super::{Event, List, Pair, RecordedCommand, RecordedWait, State, put};
use crate::faults::Fault;
use crate::program::backend::{Answered, Times};
use crate::program::{Command, EventId, ListId, Op};

impl State {
    /// The same commands on a counter of their own, with slots of their own for times.
    pub(super) fn clone_list(&mut self, list: ListId, copy: ListId) -> Answered<()> {
        let &mut List { desc, ring, stream, recording: source, .. } = self.list(list)?;
        let slot = self.take_slot();
        let recording = self.new_recording(slot);
        let mut commands = self.recordings[source].commands.clone();
        let mut stamps: Vec<(usize, usize)> = Vec::new();
        for command in &mut commands {
            self.adopt(command, source, &mut stamps);
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

    /// A command of a copy: waits for the source's own commands are met by the order, as there.
    fn adopt(
        &mut self,
        command: &mut RecordedCommand,
        source: usize,
        stamps: &mut Vec<(usize, usize)>,
    ) {
        for wait in &mut command.waits {
            if matches!(wait, RecordedWait::Pair(Pair::Recorded(other, _)) if *other == source) {
                *wait = RecordedWait::Pair(Pair::Complete);
            }
        }
        if let Some(stamp) = &mut command.stamp {
            let own = self.new_times();
            stamps.push((*stamp, own));
            *stamp = own;
        }
        if let Some((slot, _)) = &mut command.reads
            && let Some(&(_, own)) = stamps.iter().find(|(other, _)| other == slot)
        {
            *slot = own;
        }
    }

    /// The pair as it is now.
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
        put(&mut self.stamps, opened.0, (false, None), || (false, None));
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
        let barrier = |waits, signal| Command { op: Op::Barrier, waits, signal };
        let &mut List { desc, slot, ring, .. } = self.list(list)?;
        let begun = Condition::Counter(slot, self.promised[slot] + 1);
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

    fn new_times(&mut self) -> usize {
        self.device.times.push(Times { start: 0, end: 0 });
        self.device.times.len() - 1
    }

    /// A slot for the times of a command that signals an event with times.
    pub(super) fn new_stamp(&mut self, signal: Option<EventId>) -> Option<usize> {
        let timed = signal.and_then(|event| self.stamps.get(event.0)).is_some_and(|it| it.0);
        let shared = self.faulty(Fault::StampsShared) && !self.device.times.is_empty();
        timed.then(|| if shared { 0 } else { self.new_times() })
    }

    pub(super) fn set_stamp(&mut self, signal: Option<EventId>, stamp: Option<usize>) {
        if let (Some(event), Some(stamp)) = (signal, stamp) {
            self.stamps[event.0].1 = Some(stamp);
        }
    }

    /// Which slot a command reads, and where to.
    pub(super) fn reads(&self, op: Op) -> Option<(usize, usize)> {
        let Op::QueryTimes { event, place } = op else { return None };
        self.stamps[event.0].1.map(|slot| (slot, place))
    }

    pub(super) fn times(&self, event: EventId) -> Times {
        let slot = self.stamps[event.0].1;
        slot.map_or(Times { start: 1, end: 0 }, |slot| self.device.times[slot])
    }
}
