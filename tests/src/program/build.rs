// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turns intents into a valid program, with the [model](crate::model) as judge.
//!
//! Each intent becomes a step that the model accepts, or nothing. Objects are created when they are
//! first named. A step that is refused because something is still running is tried again after host
//! waits. The steps that the program then owes (signals and executions that something waits for) are
//! checked after each step to be possible, and added at the end.

use super::{
    Action, Cell, Command, Engine, EventId, EventKind, FenceId, ListDesc, ListId, ListKind,
    ListOrder, Object, Op, Program, QueueId, Step,
};
use crate::model::{Model, Owed};
use std::rc::Rc;

mod compound;

/// The action of an intent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each is the action or command of the same name")]
pub enum Verb {
    /// A kernel, copy or fill.
    Work,
    /// Execute one or two regular lists.
    Execute,
    /// Execute a list once more, and let another one use its results, after its event.
    Follow,
    /// An immediate list executes one or two regular lists.
    AppendLists,
    CloneList,
    /// Open an event from another one's handle.
    Share,
    /// A function of the host.
    HostCall,
    Query,
    /// Query the times of an event.
    Times,
    /// Let a list query them.
    QueryTimes,
    Address,
    Synchronize,
    Barrier,
    /// A barrier between two fills of one cell.
    Between,
    SignalEvent,
    WaitOnEvents,
    /// Wait on a new regular event that is signalled later: everything behind it queues up.
    Hold,
    ResetEvent,
    /// Signal an aggregated event, one that something waits for if there is one.
    Increment,
    /// Write the word of an external event.
    SetWord,
    /// Record a wait for a word that is complete, reset the word, and execute the list: the wait is
    /// "never elided".
    Rearm,
    /// Signal an event that something waits for, or any.
    HostSignal,
    HostReset,
    ResetFence,
    Read,
    Write,
    DestroyEvent,
    DestroyList,
    ResetList,
    Join,
}

/// A suggestion for a program's next step. Numbers select among existing objects, or mean "a new one".
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Intent {
    /// The verb.
    pub verb: Verb,
    /// The host thread that executes it.
    pub thread: u8,
    /// The list or queue.
    pub place: u8,
    /// The event, cell or other object.
    pub object: u8,
    /// Constants, kinds, options.
    pub detail: u8,
    /// Events of the wait list.
    pub waits: [Option<u8>; 2],
    /// Signal event.
    pub signal: Option<u8>,
}

const MAX_LISTS: usize = 5;
const MAX_EVENTS: usize = 7;
/// The maximum number of increments that complete an aggregated event.
const MAX_INCREMENTS: u8 = 3;
const MAX_QUEUES: usize = 3;
const MAX_FENCES: usize = 2;
/// Cells that all lists share; the others belong to one list each, by its number.
const SHARED_CELLS: usize = 8;
const PRIVATE_CELLS: usize = super::CELLS - SHARED_CELLS;
/// The number of choices of cells to try for a command.
const CELL_TRIES: u8 = 4;
/// The last one uses only the cell of the list.
const LAST_TRY: u8 = CELL_TRIES - 1;
/// The maximum number of rounds of discharging: a recording that is executed may wait for others.
const DISCHARGE_ROUNDS: usize = 16;

/// The maximum number of commands of a regular list, so that re-executions stay small.
const MAX_RECORDED: usize = 6;

/// A valid program under construction.
#[derive(Clone)]
pub struct Builder {
    threads: usize,
    model: Model,
    steps: Vec<Rc<Step>>,
    /// Places for times that are in use.
    places: usize,
    /// Whether it has only what an observer of the driver's calls can follow.
    is_followed: bool,
}

impl Builder {
    /// An empty program of up to this many host threads.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        let (model, steps) = (Model::default(), Vec::new());
        Builder { threads: threads.max(1), model, steps, places: 0, is_followed: false }
    }

    /// An empty program of one host thread, in which up to this number of pairs of commands may race. Everything
    /// that orders its commands goes through calls of the driver, and does not depend on time.
    #[must_use]
    pub fn with_races(most: usize) -> Self {
        Builder { model: Model::with_races(most), is_followed: true, ..Builder::new(1) }
    }

    /// Adds the steps of an intent, or none if no valid program can have them.
    pub fn add(&mut self, intent: &Intent) {
        let mut next = self.clone();
        if next.apply(intent).is_some() && next.can_be_finished() {
            *self = next;
        }
    }

    /// Takes the steps that the program owes, waits for everything, and ends.
    #[must_use]
    pub fn finish(mut self) -> Program {
        let done = self.discharge();
        debug_assert!(done.is_some(), "each intent left a program that can be finished");
        self.wait_for_everything(0);
        Program { steps: self.steps.into_iter().map(Rc::unwrap_or_clone).collect() }
    }

    fn can_be_finished(&self) -> bool {
        self.model.owed().is_empty() || self.clone().discharge().is_some()
    }

    fn take(&mut self, thread: usize, action: Action) -> Option<()> {
        let step = Step { thread, action };
        self.model = self.model.apply(&step).ok()?;
        self.steps.push(Rc::new(step));
        Some(())
    }

    /// Takes the step, if necessary after waiting for everything that runs.
    fn take_or_wait(&mut self, thread: usize, action: Action) -> Option<()> {
        if self.take(thread, action.clone()).is_some() {
            return Some(());
        }
        self.wait_for_everything(thread);
        self.take(thread, action)
    }

    /// Waits for each queue and immediate list that may be busy, if it can end by itself.
    fn wait_for_everything(&mut self, thread: usize) {
        let lists = self.model.live_lists().filter(|(_, desc)| desc.kind != ListKind::Regular);
        let lists = lists.map(|(list, _)| Object::List(list));
        let queues = self.model.queues().map(|(queue, _)| Object::Queue(queue));
        for object in lists.chain(queues).collect::<Vec<_>>() {
            if !self.model.is_idle(object, thread) {
                self.take(thread, Action::Synchronize(object));
            }
        }
    }

    /// Signals and executes until no wait depends on steps that are not submitted.
    fn discharge(&mut self) -> Option<()> {
        if self.model.owed().is_empty() {
            return Some(());
        }
        if self.threads > 1 {
            self.take(0, Action::Join)?;
        }
        for _ in 0..DISCHARGE_ROUNDS {
            let Some(&owed) = self.model.owed().first() else { return Some(()) };
            match owed {
                Owed::Signal(event) => self.take(0, Action::HostSignal(event))?,
                Owed::Execute { list, engine, closed } => {
                    if !closed {
                        self.take(0, Action::Close(list))?;
                    }
                    let queue = self.new_queue(0, engine)?;
                    let lists = vec![list];
                    self.take_or_wait(0, Action::Execute { queue, lists, fence: None })?;
                }
            }
        }
        None
    }

    fn apply(&mut self, intent: &Intent) -> Option<()> {
        let thread = usize::from(intent.thread) % self.threads;
        let cannot_follow = matches!(
            intent.verb,
            Verb::HostCall
                | Verb::Query
                | Verb::Times
                | Verb::Address
                | Verb::Share
                | Verb::Increment
                | Verb::SetWord
                | Verb::Rearm
                | Verb::Read
                | Verb::Write
        );
        if self.is_followed && cannot_follow {
            return None;
        }
        match intent.verb {
            Verb::Work
            | Verb::HostCall
            | Verb::Barrier
            | Verb::SignalEvent
            | Verb::WaitOnEvents
            | Verb::Hold
            | Verb::Between
            | Verb::ResetEvent
            | Verb::Increment
            | Verb::SetWord => self.append(thread, intent),
            Verb::Execute => self.execute(thread, intent),
            Verb::Follow => self.follow(thread, intent),
            Verb::Rearm => self.rearm(thread, intent),
            Verb::AppendLists => self.append_lists(thread, intent),
            Verb::CloneList => self.clone_list(thread, intent),
            Verb::Share => self.share(thread, intent),
            Verb::Times => self.times(thread, intent),
            Verb::QueryTimes => self.query_times(thread, intent),
            Verb::Query => {
                let object = self.object(intent.object)?;
                self.take(thread, Action::Query(object))
            }
            Verb::Address => {
                let signalled = |&(event, kind): &(EventId, EventKind)| {
                    kind.has_word() || self.model.signaller(event).is_some()
                };
                let events: Vec<_> = self.model.live_events().filter(signalled).collect();
                let (event, _) = *pick(&events, intent.object)?;
                self.take(thread, Action::Address(event))
            }
            Verb::Synchronize => {
                let object = self.object(intent.object)?;
                self.take(thread, Action::Synchronize(object))
            }
            Verb::HostSignal => {
                let awaited = self.model.owed().into_iter().find_map(|owed| match owed {
                    Owed::Signal(event) => Some(event),
                    Owed::Execute { .. } => None,
                });
                let event = match awaited {
                    Some(event) if intent.detail & 3 != 3 => event,
                    _ => self.event_with_cell(thread, intent.object)?,
                };
                self.take_or_wait(thread, Action::HostSignal(event))
            }
            Verb::HostReset => {
                let event = self.event_with_cell(thread, intent.object)?;
                self.take_or_wait(thread, Action::HostReset(event))
            }
            Verb::ResetFence => {
                let fences: Vec<_> = self.model.fences().collect();
                let (fence, _) = *pick(&fences, intent.object)?;
                self.take_or_wait(thread, Action::ResetFence(fence))
            }
            Verb::Read => {
                let cell = Cell(usize::from(intent.object) % super::CELLS);
                self.take_or_wait(thread, Action::Read(cell))
            }
            Verb::Write => {
                let cell = Cell(usize::from(intent.object) % SHARED_CELLS);
                self.take_or_wait(thread, Action::Write(cell, u32::from(intent.detail)))
            }
            Verb::DestroyEvent => {
                let events: Vec<_> = self.model.live_events().collect();
                let (event, _) = *pick(&events, intent.object)?;
                self.take_or_wait(thread, Action::DestroyEvent(event))
            }
            Verb::DestroyList => {
                let lists: Vec<_> = self.model.live_lists().collect();
                let (list, _) = *pick(&lists, intent.place)?;
                self.take_or_wait(thread, Action::DestroyList(list))
            }
            Verb::ResetList => {
                let list = self.existing_regular_list(intent.place)?;
                self.take_or_wait(thread, Action::ResetList(list))
            }
            Verb::Join => self.take(thread, Action::Join),
        }
    }

    /// Any object that exists and that the host can wait for; half of the time an event of the last
    /// call, which is the most informative.
    fn object(&self, selector: u8) -> Option<Object> {
        let last = self.steps.last().and_then(|step| match &step.action {
            Action::Append(_, Command { op: Op::ResetEvent(event) | Op::SetWord(event), .. }) => {
                Some(*event)
            }
            Action::Append(_, command) => command.signal.or(command.waits.first().copied()),
            Action::AppendLists { waits, signal, .. } => signal.or(waits.first().copied()),
            Action::Share(_, opened) => Some(*opened),
            Action::HostReset(event) | Action::HostSignal(event) => Some(*event),
            _ => None,
        });
        if let Some(event) = last.filter(|_| selector >= 128) {
            return Some(Object::Event(event));
        }
        let events = self.model.live_events().map(|(event, _)| Object::Event(event));
        let lists = self.model.live_lists().filter(|(_, desc)| desc.kind != ListKind::Regular);
        let lists = lists.map(|(list, _)| Object::List(list));
        let queues = self.model.queues().map(|(queue, _)| Object::Queue(queue));
        let fences = self.model.fences().map(|(fence, _)| Object::Fence(fence));
        let all: Vec<_> = events.chain(lists).chain(queues).chain(fences).collect();
        pick(&all, selector).copied()
    }

    fn existing_regular_list(&self, selector: u8) -> Option<ListId> {
        let lists = self.model.live_lists().filter(|(_, desc)| desc.kind == ListKind::Regular);
        let lists: Vec<_> = lists.map(|(list, _)| list).collect();
        pick(&lists, selector).copied()
    }

    /// A list to append to: an open one, or a new one.
    fn list(&mut self, thread: usize, intent: &Intent) -> Option<(ListId, ListDesc)> {
        let open = |&(list, _): &(ListId, ListDesc)| {
            self.model
                .recorded(list)
                .is_none_or(|(closed, commands)| !closed && commands < MAX_RECORDED)
        };
        let open: Vec<_> = self.model.live_lists().filter(open).collect();
        let room = self.model.live_lists().count() < MAX_LISTS;
        if let Some(found) = pick_or_new(&open, intent.place, room)? {
            return Some(*found);
        }
        let (list, _) = self.model.next_names();
        // The high bits, since the low ones have selected "a new one".
        let kind = match intent.place >> 4 & 7 {
            0..=2 => ListKind::Regular,
            3..=6 => ListKind::Immediate,
            _ => ListKind::ImmediateSynchronous,
        };
        let order = match intent.object >> 5 {
            5.. => ListOrder::OutOfOrder,
            _ => ListOrder::InOrder,
        };
        let engine = if intent.detail >> 6 == 3 { Engine::Copy } else { Engine::Compute };
        let desc = ListDesc { engine, order, kind };
        self.take(thread, Action::CreateList(list, desc))?;
        Some((list, desc))
    }

    fn new_event(&mut self, thread: usize, kind: EventKind) -> Option<EventId> {
        let (_, event) = self.model.next_names();
        self.take(thread, Action::CreateEvent(event, kind))?;
        Some(event)
    }

    /// An event of some kinds, or a new one of the given kind.
    fn event_of(
        &mut self,
        thread: usize,
        selector: u8,
        new: EventKind,
        fits: impl Fn(EventKind) -> bool,
    ) -> Option<EventId> {
        let all: Vec<_> = self.model.live_events().collect();
        let fitting = all.iter().filter(|(_, kind)| fits(*kind));
        let fitting: Vec<_> = fitting.map(|(event, _)| *event).collect();
        match pick_or_new(&fitting, selector, all.len() < MAX_EVENTS)? {
            Some(event) => Some(*event),
            None => self.new_event(thread, new),
        }
    }

    fn regular_event(&mut self, thread: usize, selector: u8) -> Option<EventId> {
        let timed = selector >> 5 == 7;
        let new = if timed { EventKind::RegularTimed } else { EventKind::Regular };
        self.event_of(thread, selector, new, EventKind::is_regular)
    }

    /// An event that host and device may set and reset.
    fn event_with_cell(&mut self, thread: usize, selector: u8) -> Option<EventId> {
        let fits = |kind: EventKind| kind.is_regular() || kind.has_word();
        self.event_of(thread, selector, EventKind::Regular, fits)
    }

    /// An aggregated event: half of the time one that something waits for.
    fn aggregated_event(&mut self, thread: usize, selector: u8) -> Option<EventId> {
        let aggregated = |kind: EventKind| matches!(kind, EventKind::Aggregated { .. });
        let awaited = self.model.owed().into_iter().find_map(|owed| match owed {
            Owed::Signal(event) => {
                self.model.live_events().find(|&(name, kind)| name == event && aggregated(kind))
            }
            Owed::Execute { .. } => None,
        });
        if let Some((event, _)) = awaited.filter(|_| selector >= 128) {
            return Some(event);
        }
        let new = EventKind::Aggregated { increments: 1 + (selector >> 4) % MAX_INCREMENTS };
        self.event_of(thread, selector, new, aggregated)
    }

    /// An event of any kind. New ones are mostly counter-based.
    fn any_event(&mut self, thread: usize, selector: u8) -> Option<(EventId, EventKind)> {
        let all: Vec<_> = self.model.live_events().collect();
        if let Some(found) = pick_or_new(&all, selector, all.len() < MAX_EVENTS)? {
            return Some(*found);
        }
        // The high bits, since the low ones have selected "a new one".
        let kind = match selector >> 4 {
            15.. => EventKind::RegularTimed,
            12.. => EventKind::Regular,
            9..=11 if self.is_followed => EventKind::CounterBased,
            11 => EventKind::External,
            10 => EventKind::Aggregated { increments: 2 },
            9 => EventKind::Aggregated { increments: MAX_INCREMENTS },
            7 | 8 => EventKind::Timed,
            _ => EventKind::CounterBased,
        };
        Some((self.new_event(thread, kind)?, kind))
    }

    fn append(&mut self, thread: usize, intent: &Intent) -> Option<()> {
        let (list, desc) = self.list(thread, intent)?;
        let mut waits = Vec::new();
        let mut signal = None;
        // Most barriers have no wait list and order everything.
        let may_wait = match intent.verb {
            Verb::SignalEvent | Verb::ResetEvent | Verb::Hold | Verb::Between => false,
            Verb::Increment | Verb::SetWord => false,
            Verb::Barrier => intent.detail & 3 == 3,
            _ => true,
        };
        if may_wait {
            for selector in intent.waits.into_iter().flatten() {
                let (event, _) = self.any_event(thread, selector)?;
                if !waits.contains(&event) {
                    waits.push(event);
                }
            }
        }
        if let (Verb::Work | Verb::HostCall | Verb::Barrier, Some(selector)) =
            (intent.verb, intent.signal)
        {
            signal = Some(self.signal_event(thread, desc.order, selector)?);
        }
        let op = match intent.verb {
            Verb::Work | Verb::HostCall => {
                return self.append_work(thread, (list, desc), waits, signal, intent);
            }
            Verb::Between => return self.append_between(thread, list),
            Verb::Barrier => Op::Barrier,
            Verb::SignalEvent => {
                signal = Some(self.signal_event(thread, desc.order, intent.object)?);
                Op::SignalEvent
            }
            Verb::Hold => {
                waits = vec![self.new_event(thread, EventKind::Regular)?];
                Op::WaitOnEvents
            }
            Verb::ResetEvent => Op::ResetEvent(self.event_with_cell(thread, intent.object)?),
            Verb::Increment => {
                signal = Some(self.aggregated_event(thread, intent.object)?);
                Op::SignalEvent
            }
            Verb::SetWord => {
                let external = EventKind::External;
                let fits = |kind| kind == external;
                Op::SetWord(self.event_of(thread, intent.object, external, fits)?)
            }
            _ => {
                if waits.is_empty() {
                    waits.push(self.any_event(thread, intent.object)?.0);
                }
                Op::WaitOnEvents
            }
        };
        let command = Command { op, waits, signal };
        let mut next = self.clone();
        if next.try_append(thread, list, command.clone()).is_some() {
            *self = next;
            return Some(());
        }
        self.wait_for_everything(thread);
        self.try_append(thread, list, command)
    }

    fn append_between(&mut self, thread: usize, list: ListId) -> Option<()> {
        let cell = cell_of(list);
        let fills = [1, 2].map(|turn| Op::Fill { dst: cell, value: turn });
        for op in [fills[0], Op::Barrier, fills[1]] {
            self.try_append(thread, list, Command { op, waits: Vec::new(), signal: None })?;
        }
        Some(())
    }

    /// An event that the list may signal.
    fn signal_event(&mut self, thread: usize, order: ListOrder, selector: u8) -> Option<EventId> {
        match order {
            // An opened event cannot be signalled; a new event takes its place.
            ListOrder::InOrder => match self.any_event(thread, selector)? {
                (_, EventKind::Opened) => self.new_event(thread, EventKind::CounterBased),
                (event, _) => Some(event),
            },
            ListOrder::OutOfOrder => self.regular_event(thread, selector),
        }
    }

    /// A kernel, copy or fill on cells that no other command uses at the time, if there are any.
    fn append_work(
        &mut self,
        thread: usize,
        (list, desc): (ListId, ListDesc),
        waits: Vec<EventId>,
        signal: Option<EventId>,
        intent: &Intent,
    ) -> Option<()> {
        let own = cell_of(list);
        // Data flows along events: a command reads the results of the list that it waits for.
        let awaited = waits.iter().find_map(|&event| self.model.signaller(event)).map(cell_of);
        let value = u32::from(intent.detail & 15) + 1;
        let shared = |turn: u8| Cell(usize::from(intent.object.wrapping_add(turn)) % SHARED_CELLS);
        let own_first = intent.detail >> 5 & 1 == 1;
        for attempt in 0..CELL_TRIES {
            let turn = 3 * attempt;
            let source = shared(turn + 1 + (intent.detail >> 4 & 1));
            let (dst, src) = match (own_first, attempt) {
                (true, 0) => (own, awaited.unwrap_or(source)),
                (true, 1) | (_, LAST_TRY) => (own, own),
                (false, 0) => (shared(turn), awaited.unwrap_or(source)),
                _ => (shared(turn), source),
            };
            let op = match intent.detail % 8 {
                _ if intent.verb == Verb::HostCall => Op::HostCall { dst, add: value },
                0..=3 => Op::Mix { dst, src, add: value },
                4 => Op::Add { dst, add: value },
                5 | 6 => Op::Copy { dst, src },
                _ => Op::Fill { dst, value },
            };
            let op = if op.fits(desc.engine) { op } else { Op::Copy { dst, src } };
            let command = Command { op, waits: waits.clone(), signal };
            let mut next = self.clone();
            if next.try_append(thread, list, command).is_some() && next.can_be_finished() {
                *self = next;
                return Some(());
            }
        }
        None
    }

    /// Appends; for a regular list only if it could then be executed.
    fn try_append(&mut self, thread: usize, list: ListId, command: Command) -> Option<()> {
        self.take(thread, Action::Append(list, command))?;
        let regular = self.model.recorded(list).is_some();
        if regular {
            let engine = self.model.live_lists().find(|(name, _)| *name == list)?.1.engine;
            let mut rehearsal = self.clone();
            rehearsal.take(thread, Action::Close(list))?;
            let queue = rehearsal.new_queue(thread, engine)?;
            let lists = vec![list];
            rehearsal.take_or_wait(thread, Action::Execute { queue, lists, fence: None })?;
        }
        Some(())
    }

    fn new_queue(&mut self, thread: usize, engine: Engine) -> Option<QueueId> {
        let queue = QueueId(self.model.queues().count());
        self.take(thread, Action::CreateQueue(queue, engine))?;
        Some(queue)
    }

    fn fence(&mut self, thread: usize, queue: QueueId, selector: u8) -> Option<FenceId> {
        let all: Vec<_> = self.model.fences().collect();
        let fitting = all.iter().filter(|(_, other)| *other == queue);
        let fitting: Vec<_> = fitting.map(|(fence, _)| *fence).collect();
        if let Some(found) = pick_or_new(&fitting, selector, all.len() < MAX_FENCES)? {
            return Some(*found);
        }
        let fence = FenceId(all.len());
        self.take(thread, Action::CreateFence(fence, queue))?;
        Some(fence)
    }
}

/// The cell that belongs to a list.
fn cell_of(list: ListId) -> Cell {
    Cell(SHARED_CELLS + list.0 % PRIVATE_CELLS)
}

fn pick<T>(items: &[T], selector: u8) -> Option<&T> {
    items.get(usize::from(selector).checked_rem(items.len())?)
}

/// `Some(None)` means a new one; `None` means that there is none and no room for one. A selector of 0
/// is the first one, so that shrinking merges objects.
fn pick_or_new<T>(items: &[T], selector: u8, room: bool) -> Option<Option<&T>> {
    let choices = items.len() + usize::from(room);
    let choice = usize::from(selector & 15).checked_rem(choices)?;
    Some(items.get(choice))
}
