// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host's side of the order: the steps that must have returned before another one is called.

use super::event::{Bound, CbState, Dependency, RecordingId};
use super::shared::Shared;
use super::times::TimesOf;
use super::{Event, EventState, Model, Recorded, Refusal};
use crate::program::{Action, Command, EventId, EventKind, ListId, Object, Op};

/// The way in which a step uses an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// Many threads may use it at once.
    Shared,
    /// It changes the meaning of other calls on the object, so its place among them matters. "The
    /// application is responsible for ensuring that multiple Host threads do not access the same
    /// command list simultaneously", and a CB event is state of the host program.
    Exclusive,
}

#[derive(Clone)]
struct Users {
    object: Object,
    exclusive: Option<usize>,
    shared: Vec<usize>,
}

/// The steps so far, by thread and by object.
#[derive(Clone, Default)]
pub struct HostOrder {
    steps: usize,
    /// The last step of each thread.
    threads: Vec<Option<usize>>,
    join: Option<usize>,
    objects: Vec<Shared<Users>>,
}

impl HostOrder {
    /// Adds the next step; returns the earlier ones that must have returned, of its own thread and of
    /// others.
    pub fn enter(&mut self, thread: usize, uses: &[(Object, Use)], join: bool) -> Vec<usize> {
        let step = self.steps;
        self.steps += 1;
        if self.threads.len() <= thread {
            self.threads.resize(thread + 1, None);
        }
        let mut after: Vec<usize> = if join {
            (0..step).collect()
        } else {
            self.threads[thread].into_iter().chain(self.join).collect()
        };
        for &(object, kind) in uses {
            after.extend(self.touch(step, object, kind));
        }
        self.threads[thread] = Some(step);
        if join {
            self.join = Some(step);
        }
        after.sort_unstable();
        after.dedup();
        after.retain(|&earlier| earlier != step);
        after
    }

    fn touch(&mut self, step: usize, object: Object, kind: Use) -> Vec<usize> {
        let at = self.objects.iter().position(|users| users.object == object);
        let at = at.unwrap_or_else(|| {
            self.objects.push(Shared::new(Users { object, exclusive: None, shared: Vec::new() }));
            self.objects.len() - 1
        });
        let users = &mut self.objects[at];
        match kind {
            Use::Shared => {
                users.shared.push(step);
                users.exclusive.into_iter().collect()
            }
            Use::Exclusive => {
                let earlier = users.exclusive.replace(step);
                users.shared.drain(..).chain(earlier).collect()
            }
        }
    }
}

impl Model {
    /// The objects that a call uses, so that threads which share them take turns.
    pub(super) fn uses(&self, action: &Action) -> Result<Vec<(Object, Use)>, Refusal> {
        use Use::{Exclusive, Shared};
        let mut uses = Vec::new();
        match action {
            Action::CreateList(list, _) | Action::Close(list) => {
                uses.push((Object::List(*list), Exclusive));
            }
            Action::ResetList(list) | Action::DestroyList(list) => {
                uses.push((Object::List(*list), Exclusive));
                uses.extend(self.opened_of(*list).map(|event| (Object::Event(event), Exclusive)));
            }
            Action::CreateQueue(queue, _) => uses.push((Object::Queue(*queue), Exclusive)),
            Action::CreateFence(fence, queue) => {
                uses.push((Object::Fence(*fence), Exclusive));
                uses.push((Object::Queue(*queue), Shared));
            }
            Action::CreateEvent(event, _) | Action::DestroyEvent(event) => {
                uses.push((Object::Event(*event), Exclusive));
            }
            Action::HostSignal(event) | Action::HostReset(event) => {
                uses.push((Object::Event(*event), self.use_of_write(*event)));
            }
            Action::ResetFence(fence) => uses.push((Object::Fence(*fence), Exclusive)),
            Action::Append(list, command) => {
                uses.push((Object::List(*list), Exclusive));
                self.uses_of_command(command, &mut uses)?;
            }
            Action::CloneList(list, copy) => {
                uses.push((Object::List(*list), Exclusive));
                uses.push((Object::List(*copy), Exclusive));
            }
            Action::Share(event, opened) => {
                uses.push((Object::Event(*event), Shared));
                uses.push((Object::Event(*opened), Exclusive));
                self.uses_of_state(self.event(*event)?.state, &mut uses);
            }
            Action::AppendLists { list, lists, waits, signal } => {
                uses.push((Object::List(*list), Exclusive));
                let (op, waits) = (Op::Barrier, waits.clone());
                self.uses_of_command(&Command { op, waits, signal: *signal }, &mut uses)?;
                self.uses_of_lists(lists, &mut uses)?;
            }
            Action::Execute { queue, lists, fence } => {
                uses.push((Object::Queue(*queue), Exclusive));
                uses.extend(fence.map(|fence| (Object::Fence(fence), Shared)));
                self.uses_of_lists(lists, &mut uses)?;
            }
            Action::Synchronize(object) | Action::Query(object) => {
                uses.push((*object, Shared));
                if let Object::Event(event) = object {
                    self.uses_of_state(self.event(*event)?.state, &mut uses);
                }
            }
            Action::Address(event) | Action::Times(event) => {
                uses.push((Object::Event(*event), Shared));
                self.uses_of_state(self.event(*event)?.state, &mut uses);
            }
            Action::Read(_) | Action::Write(..) | Action::Join => {}
        }
        Ok(uses)
    }

    /// The events, including destroyed ones, by which other processes wait for the first execution of a
    /// list's recording. Without that recording they would refer to nothing.
    fn opened_of(&self, list: ListId) -> impl Iterator<Item = EventId> + '_ {
        let unexecuted = |id: &RecordingId| self.recordings[id.0].executions.is_empty();
        let recording = self.recording(list).ok().filter(unexecuted);
        let waits_for = move |event: &Event| {
            matches!(event.state, EventState::Opened(Bound::FirstExecution { recording: own, .. })
                if Some(own) == recording)
        };
        let events = self.events.iter().enumerate();
        events.filter(move |(_, event)| waits_for(event)).map(|(number, _)| EventId(number))
    }

    fn uses_of_command(
        &self,
        command: &Command,
        uses: &mut Vec<(Object, Use)>,
    ) -> Result<(), Refusal> {
        for &event in &command.waits {
            uses.push((Object::Event(event), Use::Shared));
            self.uses_of_state(self.event(event)?.state, uses);
        }
        if let Some(event) = command.signal {
            uses.push((Object::Event(event), self.use_of_signal(self.event(event)?)));
        }
        if let Op::ResetEvent(event) = command.op {
            uses.push((Object::Event(event), Use::Exclusive));
        }
        if let Op::SetWord(event) = command.op {
            uses.push((Object::Event(event), self.use_of_write(event)));
        }
        if let Op::QueryTimes { event, .. } = command.op {
            uses.push((Object::Event(event), Use::Shared));
            self.uses_of_state(self.event(event)?.state, uses);
        }
        Ok(())
    }

    fn uses_of_lists(
        &self,
        lists: &[ListId],
        uses: &mut Vec<(Object, Use)>,
    ) -> Result<(), Refusal> {
        for &list in lists {
            uses.push((Object::List(list), Use::Exclusive));
            for command in &self.recordings[self.recording(list)?.0].commands {
                self.uses_of_recorded(command, uses);
            }
        }
        Ok(())
    }

    fn uses_of_recorded(&self, command: &Recorded, uses: &mut Vec<(Object, Use)>) {
        for wait in &command.waits {
            match wait {
                Dependency::Regular(event) => uses.push((Object::Event(*event), Use::Shared)),
                Dependency::CounterBased(state) => {
                    self.uses_of_state(EventState::CounterBased(*state), uses);
                }
                // It belongs to the user, and stays after the event is destroyed.
                Dependency::Word(_) => {}
                Dependency::Opened(_) => {}
            }
        }
        if let Some(TimesOf::Event(event)) = command.times {
            uses.push((Object::Event(event), Use::Shared));
        }
        // This includes destroyed events: an earlier execution would still write to them.
        if let Some(event) = command.signal {
            uses.push((Object::Event(event), self.use_of_signal(&self.events[event.0])));
        }
        if let Op::ResetEvent(event) = command.op {
            uses.push((Object::Event(event), Use::Exclusive));
        }
        if let Op::SetWord(event) = command.op {
            uses.push((Object::Event(event), self.use_of_write(event)));
        }
    }

    /// A write to a cell or word has an order of its own; but the timestamps of an event depend on
    /// which calls were made before. A reset by a list does, too: a wait that its engine is given later comes
    /// behind it (docs/limits.md), so it must not be submitted before waits that are to see the event as it was.
    fn use_of_write(&self, event: EventId) -> Use {
        match self.events.get(event.0).map(|event| event.kind) {
            Some(EventKind::RegularTimed) => Use::Exclusive,
            _ => Use::Shared,
        }
    }

    /// A signal of a CB event replaces its state; a signal of a regular one only writes a cell, and
    /// that of an aggregated one adds to a word.
    fn use_of_signal(&self, event: &Event) -> Use {
        match event.kind {
            EventKind::RegularTimed => Use::Exclusive,
            kind if kind.is_replaced() => Use::Exclusive,
            _ => Use::Shared,
        }
    }

    /// The binding of a recording's event depends on the number of earlier executions of its list.
    fn uses_of_state(&self, state: EventState, uses: &mut Vec<(Object, Use)>) {
        if let EventState::CounterBased(CbState::Recorded { recording, .. }) = state {
            uses.push((Object::List(self.recordings[recording.0].list), Use::Shared));
        }
    }
}
