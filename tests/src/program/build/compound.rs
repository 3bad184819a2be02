// SPDX-License-Identifier: MIT OR Apache-2.0
//! Intents that need more than one call, or objects of several kinds.

use super::{
    Builder, Intent, MAX_EVENTS, MAX_INCREMENTS, MAX_LISTS, MAX_QUEUES, cell_of, pick, pick_or_new,
};
use crate::program::{
    Action, Command, Engine, EventId, EventKind, ListDesc, ListId, ListKind, ListOrder, Object, Op,
    PLACES,
};

impl Builder {
    pub(super) fn execute(&mut self, thread: usize, intent: &Intent) -> Option<()> {
        let (lists, engine) = self.lists_to_execute(thread, intent)?;
        let all = self.model.queues().count();
        let fitting = self.model.queues().filter(|(_, other)| *other == engine);
        let fitting: Vec<_> = fitting.map(|(queue, _)| queue).collect();
        let queue = match pick_or_new(&fitting, intent.object, all < MAX_QUEUES) {
            Some(Some(queue)) => *queue,
            _ => self.new_queue(thread, engine)?,
        };
        let fence = match intent.detail >> 5 {
            6.. => Some(self.fence(thread, queue, intent.detail)?),
            _ => None,
        };
        self.take_or_wait(thread, Action::Execute { queue, lists, fence })
    }

    /// Two intents in one, since they seldom occur together by chance.
    pub(super) fn follow(&mut self, thread: usize, intent: &Intent) -> Option<()> {
        let events: Vec<_> = self.model.recorded_signals().collect();
        let &(event, list) = pick(&events, intent.object)?;
        let engine = self.model.live_lists().find(|(name, _)| *name == list)?.1.engine;
        if !self.model.recorded(list)?.0 {
            self.take(thread, Action::Close(list))?;
        }
        let queues = self.model.queues().filter(|(_, other)| *other == engine);
        let queues: Vec<_> = queues.map(|(queue, _)| queue).collect();
        let queue = match pick(&queues, intent.detail) {
            Some(queue) => *queue,
            None => self.new_queue(thread, engine)?,
        };
        let execute = Action::Execute { queue, lists: vec![list], fence: None };
        self.take_or_wait(thread, execute)?;
        let immediate =
            self.model.live_lists().filter(|(_, desc)| desc.kind == ListKind::Immediate);
        let immediate: Vec<_> = immediate.map(|(list, _)| list).collect();
        let reader = match pick(&immediate, intent.place) {
            Some(list) => *list,
            None => {
                let (name, _) = self.model.next_names();
                let (order, kind) = (ListOrder::InOrder, ListKind::Immediate);
                let desc = ListDesc { engine: Engine::Compute, order, kind };
                self.take(thread, Action::CreateList(name, desc))?;
                name
            }
        };
        let op = Op::Copy { dst: cell_of(reader), src: cell_of(list) };
        self.try_append(thread, reader, Command { op, waits: vec![event], signal: None })
    }

    /// Several intents in one, since they seldom occur together by chance.
    pub(super) fn rearm(&mut self, thread: usize, intent: &Intent) -> Option<()> {
        if self.model.live_lists().count() >= MAX_LISTS {
            return None;
        }
        let has_word = EventKind::has_word;
        let event = self.event_of(thread, intent.object, EventKind::External, has_word)?;
        for _ in 0..MAX_INCREMENTS {
            self.take_or_wait(thread, Action::HostSignal(event))?;
        }
        let (list, _) = self.model.next_names();
        let (engine, order, kind) = (Engine::Compute, ListOrder::InOrder, ListKind::Regular);
        self.take(thread, Action::CreateList(list, ListDesc { engine, order, kind }))?;
        let op = Op::Fill { dst: cell_of(list), value: u32::from(intent.detail) };
        self.try_append(thread, list, Command { op, waits: vec![event], signal: None })?;
        self.take_or_wait(thread, Action::HostReset(event))?;
        self.take(thread, Action::Close(list))?;
        let queue = self.new_queue(thread, engine)?;
        let execute = Action::Execute { queue, lists: vec![list], fence: None };
        self.take_or_wait(thread, execute)?;
        self.take(thread, Action::Query(Object::Queue(queue)))
    }

    /// One or two regular lists of one engine, closed.
    fn lists_to_execute(
        &mut self,
        thread: usize,
        intent: &Intent,
    ) -> Option<(Vec<ListId>, Engine)> {
        let first = self.existing_regular_list(intent.place)?;
        let engine_of = |builder: &Builder, list| {
            builder.model.live_lists().find(|(name, _)| *name == list).map(|(_, desc)| desc.engine)
        };
        let engine = engine_of(self, first)?;
        let mut lists = vec![first];
        if let Some(selector) = intent.signal {
            let second = self.existing_regular_list(selector)?;
            if second != first && engine_of(self, second)? == engine {
                lists.push(second);
            }
        }
        for &list in &lists {
            if !self.model.recorded(list)?.0 {
                self.take(thread, Action::Close(list))?;
            }
        }
        Some((lists, engine))
    }

    /// An immediate list executes regular ones.
    pub(super) fn append_lists(&mut self, thread: usize, intent: &Intent) -> Option<()> {
        let (lists, engine) = self.lists_to_execute(thread, intent)?;
        let fits = |&(_, desc): &(ListId, ListDesc)| {
            desc.kind != ListKind::Regular && desc.engine == engine
        };
        let immediate: Vec<_> = self.model.live_lists().filter(fits).collect();
        let (list, order) = match pick(&immediate, intent.object) {
            Some(&(list, desc)) => (list, desc.order),
            None => {
                let order = match intent.detail >> 6 {
                    3 => ListOrder::OutOfOrder,
                    _ => ListOrder::InOrder,
                };
                (
                    self.new_list(thread, ListDesc { engine, order, kind: ListKind::Immediate })?,
                    order,
                )
            }
        };
        let [first, second] = intent.waits;
        // There is at most one wait event: the selector of a second one selects the signal event here.
        let waits = match first {
            Some(selector) => vec![self.any_event(thread, selector)?.0],
            None => Vec::new(),
        };
        let signal = match second.or(intent.signal) {
            Some(selector) => Some(self.signal_event(thread, order, selector)?),
            None => None,
        };
        let last = lists.last().copied();
        self.take_or_wait(thread, Action::AppendLists { list, lists, waits, signal })?;
        if let (ListOrder::OutOfOrder, Some(event), Some(last)) = (order, signal, last) {
            // Without an order, only the event tells that the lists are complete.
            let mut next = self.clone();
            let waited = next.take(thread, Action::Synchronize(Object::Event(event)));
            if waited.and_then(|()| next.take(thread, Action::Read(cell_of(last)))).is_some() {
                *self = next;
            }
        }
        Some(())
    }

    fn new_list(&mut self, thread: usize, desc: ListDesc) -> Option<ListId> {
        let (list, _) = self.model.next_names();
        self.take(thread, Action::CreateList(list, desc))?;
        Some(list)
    }

    /// A copy of a list, and half of the time an execution of both without a wait between.
    pub(super) fn clone_list(&mut self, thread: usize, intent: &Intent) -> Option<()> {
        if self.model.live_lists().count() >= MAX_LISTS {
            return None;
        }
        // A list and its copy write times to the same places, and nothing may order the two.
        if self.is_followed && self.places > 0 {
            return None;
        }
        let list = self.existing_regular_list(intent.place)?;
        if !self.model.recorded(list)?.0 {
            self.take(thread, Action::Close(list))?;
        }
        let (copy, _) = self.model.next_names();
        self.take(thread, Action::CloneList(list, copy))?;
        if intent.detail >= 128 {
            let engine = self.model.live_lists().find(|(name, _)| *name == copy)?.1.engine;
            for executed in [list, copy] {
                let queue = self.new_queue(thread, engine)?;
                let execute = Action::Execute { queue, lists: vec![executed], fence: None };
                self.take_or_wait(thread, execute)?;
            }
        }
        Some(())
    }

    /// Shares an event, and often signals it again before the handle is used.
    pub(super) fn share(&mut self, thread: usize, intent: &Intent) -> Option<()> {
        let all: Vec<_> = self.model.live_events().collect();
        if all.len() >= MAX_EVENTS {
            return None;
        }
        let fits = |(event, kind): &&(EventId, EventKind)| {
            *kind == EventKind::CounterBased && self.model.signaller(*event).is_some()
        };
        let events: Vec<_> = all.iter().filter(fits).map(|(event, _)| *event).collect();
        let event = *pick(&events, intent.object)?;
        let (_, opened) = self.model.next_names();
        self.take(thread, Action::Share(event, opened))?;
        if intent.detail >= 128 {
            let (engine, order, kind) = (Engine::Compute, ListOrder::InOrder, ListKind::Immediate);
            let list = self.new_list(thread, ListDesc { engine, order, kind })?;
            let op = Op::Fill { dst: cell_of(list), value: u32::from(intent.detail) };
            let command = Command { op, waits: vec![opened], signal: Some(event) };
            self.try_append(thread, list, command)?;
        }
        self.take(thread, Action::Query(Object::Event(opened)))
    }

    /// Queries the times of an event on the host.
    pub(super) fn times(&mut self, thread: usize, intent: &Intent) -> Option<()> {
        let event = self.timed_event(intent.object)?;
        self.take(thread, Action::Times(event))
    }

    /// Queries the times in a list, behind the command to which they belong.
    pub(super) fn query_times(&mut self, thread: usize, intent: &Intent) -> Option<()> {
        let place = self.places;
        if place >= PLACES {
            return None;
        }
        let event = match self.timed_event(intent.object) {
            Some(event) if intent.detail & 3 != 3 => event,
            _ => {
                let list = self.list(thread, intent)?;
                // Out-of-order lists can signal only regular events.
                let regular = intent.place & 1 == 1 || list.1.order == ListOrder::OutOfOrder;
                let kind = if regular { EventKind::RegularTimed } else { EventKind::Timed };
                let event = self.new_event(thread, kind)?;
                let signal = Some(event);
                let op = Op::Fill { dst: cell_of(list.0), value: u32::from(intent.detail) };
                self.try_append(thread, list.0, Command { op, waits: Vec::new(), signal })?;
                event
            }
        };
        let list = match self.model.signaller(event) {
            Some(list)
                if intent.detail >= 64 && self.model.recorded(list).is_none_or(|it| !it.0) =>
            {
                list
            }
            _ => self.list(thread, intent)?.0,
        };
        let op = Op::QueryTimes { event, place };
        self.try_append(thread, list, Command { op, waits: vec![event], signal: None })?;
        self.places += 1;
        Some(())
    }

    fn timed_event(&self, selector: u8) -> Option<EventId> {
        let fits = |&(event, _): &(EventId, EventKind)| self.model.has_times(event);
        let events: Vec<_> = self.model.live_events().filter(fits).collect();
        pick(&events, selector).map(|(event, _)| *event)
    }
}
