// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lifetimes of lists and events: creation, reset, destruction, and the existing objects.

use super::event::{Bound, CbState, Dependency, EventCell, RecordingId};
use super::order::Node;
use super::shared::Shared;
use super::times::TimesOf;
use super::{
    Body, Event, EventState, List, Model, Recorded, Recording, Refusal, Stream, expect_next,
};
use crate::program::{
    Engine, EventId, EventKind, FenceId, ListDesc, ListId, ListKind, Op, QueueId,
};

impl Model {
    pub(super) fn create_list(&mut self, list: ListId, desc: ListDesc) -> Result<(), Refusal> {
        let body = match desc.kind {
            ListKind::Regular => Body::Regular(self.new_recording(list)),
            ListKind::Immediate | ListKind::ImmediateSynchronous => {
                Body::Immediate(Stream::default())
            }
        };
        self.lists.push(Shared::new(List { desc, alive: true, body }));
        expect_next(list.0, self.lists.len())
    }

    pub(super) fn new_recording(&mut self, list: ListId) -> RecordingId {
        let (commands, executions) = (Vec::new(), Vec::new());
        let recording = Recording { list, commands, closed: false, alive: true, executions };
        self.recordings.push(Shared::new(recording));
        RecordingId(self.recordings.len() - 1)
    }

    pub(super) fn close(&mut self, list: ListId) -> Result<(), Refusal> {
        let recording = self.recording(list)?;
        if std::mem::replace(&mut self.recordings[recording.0].closed, true) {
            return Err(Refusal::Misuse("the list is closed"));
        }
        Ok(())
    }

    pub(super) fn reset_list(&mut self, list: ListId, now: Node) -> Result<(), Refusal> {
        self.drop_recording(self.recording(list)?, now)?;
        self.lists[list.0].body = Body::Regular(self.new_recording(list));
        Ok(())
    }

    pub(super) fn destroy_list(&mut self, list: ListId, now: Node) -> Result<(), Refusal> {
        match &self.list(list)?.body {
            Body::Immediate(stream) => self.must_be_complete(&stream.commands, now)?,
            Body::Regular(recording) => self.drop_recording(*recording, now)?,
        }
        self.lists[list.0].alive = false;
        Ok(())
    }

    /// "The application is responsible for making sure the device is not currently executing from
    /// a command list before it is reset" or deleted. Events that it signalled stay as they are;
    /// if it was never executed, nothing may wait for it.
    pub(super) fn drop_recording(
        &mut self,
        recording: RecordingId,
        now: Node,
    ) -> Result<(), Refusal> {
        for commands in &self.recordings[recording.0].executions {
            self.must_be_complete(commands, now)?;
        }
        if self.future_waits.iter().any(|wait| wait.recording == recording) {
            return Err(Refusal::WouldHang);
        }
        let promised = |event: &Event| {
            matches!(event.state, EventState::Opened(Bound::FirstExecution { recording: other, .. })
                if event.alive && other == recording)
        };
        if self.recordings[recording.0].executions.is_empty() && self.events.iter().any(promised) {
            return Err(Refusal::WouldHang);
        }
        self.recordings[recording.0].alive = false;
        Ok(())
    }

    /// "A command list can be copied to create another command list": the same commands with a counter
    /// of their own. Events that it signals keep referring to the source until it is executed.
    pub(super) fn clone_list(&mut self, list: ListId, copy: ListId) -> Result<(), Refusal> {
        let source = self.recording(list)?;
        let Recording { closed, ref commands, .. } = *self.recordings[source.0];
        if !closed {
            return Err(Refusal::Misuse("the list is not closed"));
        }
        let (mut commands, desc) = (commands.clone(), self.lists[list.0].desc);
        self.create_list(copy, desc)?;
        let own = self.recording(copy)?;
        let renamed = |state: &mut CbState| {
            if let CbState::Recorded { recording, .. } = state
                && *recording == source
            {
                *recording = own;
            }
        };
        for command in &mut commands {
            for wait in &mut command.waits {
                if let Dependency::CounterBased(state) = wait {
                    renamed(state);
                }
            }
            if let Some(TimesOf::State(state)) = &mut command.times {
                renamed(state);
            }
        }
        let recording = &mut *self.recordings[own.0];
        (recording.commands, recording.closed) = (commands, true);
        Ok(())
    }

    /// "The IPC handle can be opened to create a new event object that points to the same counter
    /// memory location/value": the present ones, regardless of later changes of the event.
    pub(super) fn share(&mut self, event: EventId, opened: EventId) -> Result<(), Refusal> {
        let Event { kind: EventKind::CounterBased, state: EventState::CounterBased(state), .. } =
            *self.event(event)?
        else {
            return Err(Refusal::Misuse("only ordinary counter-based events are shared"));
        };
        let bound = self.bind(state, None);
        if bound == Bound::Never {
            return Err(Refusal::Misuse("the list that would signal the event is gone"));
        }
        let (kind, state) = (EventKind::Opened, EventState::Opened(bound));
        self.events.push(Event { alive: true, kind, state, cell: None });
        expect_next(opened.0, self.events.len())
    }

    pub(super) fn create_event(&mut self, kind: EventKind, now: Node) -> Result<(), Refusal> {
        let needed = match kind {
            EventKind::Aggregated { increments: 0 } => {
                return Err(Refusal::Misuse("an aggregated event that nothing completes"));
            }
            EventKind::Aggregated { increments } => usize::from(increments),
            EventKind::Opened => {
                return Err(Refusal::Misuse("an opened event is made of another one"));
            }
            EventKind::Regular | EventKind::RegularTimed | EventKind::CounterBased => 1,
            EventKind::Timed | EventKind::External => 1,
        };
        // "The completion state changes if […] external storage is specified during creation."
        let (state, cell) = match kind {
            EventKind::CounterBased | EventKind::Timed | EventKind::Opened => {
                (EventState::CounterBased(CbState::Complete), None)
            }
            EventKind::Regular | EventKind::RegularTimed => {
                let timed = kind == EventKind::RegularTimed;
                let cell = self.new_cell(EventCell { timed, ..EventCell::new(now, needed) });
                (EventState::Regular(cell), Some(cell))
            }
            EventKind::External | EventKind::Aggregated { .. } => {
                let cell = self.new_cell(EventCell::new(now, needed));
                (EventState::Word(cell), Some(cell))
            }
        };
        self.events.push(Event { alive: true, kind, state, cell });
        Ok(())
    }

    pub(super) fn must_be_complete(&self, commands: &[Node], now: Node) -> Result<(), Refusal> {
        let before = self.graph.before(now);
        match commands.iter().all(|&command| before.contains(command)) {
            true => Ok(()),
            false => Err(Refusal::InUse),
        }
    }

    /// CB events: "No need to wait for completion before reusing/destroying", and commands recorded
    /// with one stay (ERRATA). A regular event must not be in use.
    pub(super) fn destroy_event(&mut self, event: EventId, now: Node) -> Result<(), Refusal> {
        // A word stays the user's after its event is destroyed.
        if let EventState::Regular(cell) = self.event(event)?.state {
            let uses: Vec<Node> = self.cells[cell].uses().collect();
            self.must_be_complete(&uses, now)?;
            let recorded = |command: &Recorded| {
                command.signal == Some(event)
                    || command.op == Op::ResetEvent(event)
                    || command.times == Some(TimesOf::Event(event))
                    || command.waits.contains(&Dependency::Regular(event))
            };
            let alive = |recording: &&Shared<Recording>| recording.alive;
            if self.recordings.iter().filter(alive).flat_map(|r| &r.commands).any(recorded) {
                return Err(Refusal::InUse);
            }
        }
        self.events[event.0].alive = false;
        Ok(())
    }
}

/// Names of the existing objects, for the generator.
impl Model {
    /// The live lists.
    pub fn live_lists(&self) -> impl Iterator<Item = (ListId, ListDesc)> + '_ {
        let all = self.lists.iter().enumerate();
        all.filter(|(_, list)| list.alive).map(|(name, list)| (ListId(name), list.desc))
    }

    /// The live events.
    pub fn live_events(&self) -> impl Iterator<Item = (EventId, EventKind)> + '_ {
        let all = self.events.iter().enumerate().filter(|(_, event)| event.alive);
        all.map(|(name, event)| (EventId(name), event.kind))
    }

    /// All queues.
    pub fn queues(&self) -> impl Iterator<Item = (QueueId, Engine)> + '_ {
        self.queues.iter().enumerate().map(|(name, queue)| (QueueId(name), queue.engine))
    }

    /// All fences and their queues.
    pub fn fences(&self) -> impl Iterator<Item = (FenceId, QueueId)> + '_ {
        self.fences.iter().enumerate().map(|(name, fence)| (FenceId(name), fence.queue))
    }

    /// The numbers of lists and events that were ever created: the next names.
    #[must_use]
    pub fn next_names(&self) -> (ListId, EventId) {
        (ListId(self.lists.len()), EventId(self.events.len()))
    }

    /// The list whose command a CB event refers to.
    #[must_use]
    pub fn signaller(&self, event: EventId) -> Option<ListId> {
        match self.event(event).ok()?.state {
            EventState::CounterBased(CbState::Counter { list, .. }) => Some(list),
            EventState::CounterBased(CbState::Recorded { recording, .. }) => {
                Some(self.recordings[recording.0].list)
            }
            EventState::CounterBased(CbState::Complete) => None,
            EventState::Opened(_) | EventState::Regular(_) | EventState::Word(_) => None,
        }
    }

    /// The live CB events that live regular lists signal, in any state.
    pub fn recorded_signals(&self) -> impl Iterator<Item = (EventId, ListId)> + '_ {
        let alive = self.recordings.iter().filter(|recording| recording.alive);
        let signals = alive.flat_map(|recording| {
            let events = recording.commands.iter().filter_map(|command| command.signal);
            events.map(|event| (event, recording.list))
        });
        signals.filter(|(event, _)| {
            let event = self.event(*event).map(|event| event.state);
            matches!(event, Ok(EventState::CounterBased(_)))
        })
    }

    /// Whether a list is regular and closed, and how many commands it holds.
    #[must_use]
    pub fn recorded(&self, list: ListId) -> Option<(bool, usize)> {
        let recording = &self.recordings[self.recording(list).ok()?.0];
        Some((recording.closed, recording.commands.len()))
    }
}
