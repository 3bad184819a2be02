// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reference model: what the specification says about lists, queues, events, executions and
//! fences, as a state machine without time.
//!
//! [`Model::apply`] takes one step of a program and answers the next state, or why the step would
//! make the program invalid. The state is mostly a happens-before [graph](order): its nodes are
//! host calls and commands, and an edge says that one is complete before the other starts. Only
//! what is promised becomes an edge; the device may run everything else in any order. From the
//! graph follow the final memory (one, since races are refused), and for each query whether the
//! answer must be "ready", must be "not ready", or may be either.
//!
//! Rules and where they stand:
//! - order inside a list, barriers, waits: [`Model::submit`];
//! - executions of regular lists, and when events are bound to them: [`Model::execute`];
//! - states of events: [`event`];
//! - who calls first when several host threads use one object: [`host`];
//! - answers: [`expect`].
//!
//! Not in the model: external and aggregated events, IPC, timestamps, and memory scopes (every
//! event and barrier is taken to make memory visible).

mod device;
pub mod event;
pub mod expect;
pub mod host;
pub mod memory;
pub mod order;

pub use expect::{Answer, Expected, Outcome};

use crate::program::{
    Action, Cell, Command, Engine, EventId, EventKind, FenceId, ListDesc, ListId, ListKind, Object,
    Op, Program, QueueId, Step,
};
use event::{Bound, CbState, Dependency, EventCell, RecordingId};
use expect::Question;
use host::{HostOrder, Use};
use memory::Access;
use order::{Bond, Graph, Node, Work};
use std::fmt;

/// Why a step would make a program invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Two accesses to the cell have no order.
    Race(Cell),
    /// Waits would form a circle, also one that runs through the order within a queue. "There are
    /// no protections against events causing deadlocks".
    Deadlock,
    /// A wait for what no earlier step brings about.
    WouldHang,
    /// A signal, wait or reset of a regular event or fence has no order with another one.
    Unordered,
    /// Something is still in use on the device.
    InUse,
    /// The call is an error whatever the order: the rule that it breaks.
    Misuse(&'static str),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Race(cell) => write!(f, "accesses to {cell} have no order"),
            Refusal::Deadlock => f.write_str("waits form a circle"),
            Refusal::WouldHang => f.write_str("a wait for what nothing signals"),
            Refusal::Unordered => f.write_str("uses of a regular event have no order"),
            Refusal::InUse => f.write_str("still in use on the device"),
            Refusal::Misuse(rule) => f.write_str(rule),
        }
    }
}

impl std::error::Error for Refusal {}

/// Commands that belong together: all of an immediate list, or one execution of a regular list.
#[derive(Clone, Default)]
struct Stream {
    commands: Vec<Node>,
    /// The last command that blocks all later ones of an out-of-order list.
    gate: Option<Node>,
}

#[derive(Clone)]
enum Body {
    Immediate(Stream),
    Regular(RecordingId),
}

#[derive(Clone)]
struct List {
    desc: ListDesc,
    alive: bool,
    body: Body,
}

/// A command of a recording, with its dependencies as they were when it was appended.
#[derive(Clone)]
struct Recorded {
    op: Op,
    waits: Vec<Dependency>,
    signal: Option<EventId>,
}

#[derive(Clone)]
struct Recording {
    list: ListId,
    commands: Vec<Recorded>,
    closed: bool,
    /// Whether its list still holds it.
    alive: bool,
    executions: Vec<Vec<Node>>,
}

#[derive(Clone)]
struct Queue {
    engine: Engine,
    commands: Vec<Node>,
}

#[derive(Clone, Copy)]
enum EventState {
    CounterBased(CbState),
    /// Number of its cell.
    Regular(usize),
}

#[derive(Clone)]
struct Event {
    alive: bool,
    state: EventState,
}

#[derive(Clone)]
struct Fence {
    queue: QueueId,
    cell: usize,
}

/// A host step in the graph. Two nodes, since a blocking call begins before and ends after others.
#[derive(Clone)]
struct HostStep {
    begin: Node,
    end: Node,
    after: Vec<usize>,
    question: Option<Question>,
}

/// A command that waits for the first execution of a recording, not yet submitted.
#[derive(Clone, Copy)]
struct Promise {
    recording: RecordingId,
    index: usize,
    waiter: Node,
}

/// What a program still has to do so that nothing waits for ever.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owed {
    /// Signal this regular event.
    Signal(EventId),
    /// Execute this regular list, after closing it if it is open.
    Execute {
        /// Which list.
        list: ListId,
        /// Its engine.
        engine: Engine,
        /// Whether it is closed.
        closed: bool,
    },
}

/// The state after some steps of a program.
#[derive(Clone, Default)]
pub struct Model {
    graph: Graph,
    host: HostOrder,
    steps: Vec<HostStep>,
    lists: Vec<List>,
    recordings: Vec<Recording>,
    queues: Vec<Queue>,
    events: Vec<Event>,
    fences: Vec<Fence>,
    cells: Vec<EventCell>,
    accesses: Vec<(Cell, Access, Node)>,
    /// Pairs of accesses that need an order and have none yet.
    races: Vec<(Cell, Node, Node)>,
    promises: Vec<Promise>,
    /// Commands with a wait whose signal was not submitted yet, once for each such wait.
    pending: Vec<Node>,
}

impl Model {
    /// The state after all steps of a program.
    ///
    /// # Errors
    /// The number of the first invalid step, and what is wrong with it.
    pub fn of(program: &Program) -> Result<Model, (usize, Refusal)> {
        let mut model = Model::default();
        for (number, step) in program.steps.iter().enumerate() {
            model.take(step).map_err(|refusal| (number, refusal))?;
        }
        Ok(model)
    }

    /// The state after one more step.
    ///
    /// # Errors
    /// Why a program with this step would be invalid.
    pub fn apply(&self, step: &Step) -> Result<Model, Refusal> {
        let mut next = self.clone();
        next.take(step)?;
        Ok(next)
    }

    /// Like [`Model::apply`] in place; after a refusal the state is of no use.
    fn take(&mut self, step: &Step) -> Result<(), Refusal> {
        let uses = self.uses(&step.action)?;
        let after = self.host.enter(step.thread, &uses, step.action == Action::Join);
        let begin = self.graph.add(Work::None);
        for &earlier in &after {
            self.graph.order(self.steps[earlier].end, begin, Bond::Ordered);
        }
        self.steps.push(HostStep { begin, end: begin, after, question: None });
        self.act(&step.action, begin)?;
        self.check_races()
    }

    fn act(&mut self, action: &Action, begin: Node) -> Result<(), Refusal> {
        match action {
            Action::CreateList(list, desc) => self.create_list(*list, *desc),
            Action::CreateQueue(queue, engine) => {
                self.queues.push(Queue { engine: *engine, commands: Vec::new() });
                expect_next(queue.0, self.queues.len())
            }
            Action::CreateEvent(event, kind) => {
                let state = match kind {
                    EventKind::CounterBased => EventState::CounterBased(CbState::Complete),
                    EventKind::Regular => EventState::Regular(self.new_cell(begin)),
                };
                self.events.push(Event { alive: true, state });
                expect_next(event.0, self.events.len())
            }
            Action::CreateFence(fence, queue) => {
                self.queue(*queue)?;
                let cell = self.new_cell(begin);
                self.fences.push(Fence { queue: *queue, cell });
                expect_next(fence.0, self.fences.len())
            }
            Action::Append(list, command) => self.append(*list, command, begin),
            Action::Close(list) => self.close(*list),
            Action::ResetList(list) => self.reset_list(*list, begin),
            Action::DestroyList(list) => self.destroy_list(*list, begin),
            Action::DestroyEvent(event) => self.destroy_event(*event, begin),
            Action::Execute { queue, lists, fence } => self.execute(*queue, lists, *fence, begin),
            Action::Synchronize(object) => self.synchronize(*object),
            Action::Query(object) => self.query(*object),
            Action::Address(event) => self.query_address(*event),
            Action::HostSignal(event) => self.signal_cell(self.regular(*event)?, begin),
            Action::HostReset(event) => self.reset_cell(self.regular(*event)?, begin),
            Action::ResetFence(fence) => self.reset_cell(self.fence(*fence)?.cell, begin),
            Action::Read(cell) => {
                self.perform(begin, Work::Read(*cell));
                Ok(())
            }
            Action::Write(cell, value) => {
                self.perform(begin, Work::Write(*cell, *value));
                Ok(())
            }
            Action::Join => Ok(()),
        }
    }

    /// What must still be done so that every submitted wait can end.
    #[must_use]
    pub fn owed(&self) -> Vec<Owed> {
        let signals = (0..self.events.len()).map(EventId).filter(|&event| {
            self.regular(event).is_ok_and(|cell| {
                let epoch = self.cells[cell].current();
                epoch.signals.is_empty() && !epoch.waits.is_empty()
            })
        });
        let mut owed: Vec<Owed> = signals.map(Owed::Signal).collect();
        for promise in &self.promises {
            let Recording { list, closed, .. } = self.recordings[promise.recording.0];
            let engine = self.lists[list.0].desc.engine;
            let execute = Owed::Execute { list, engine, closed };
            if !owed.contains(&execute) {
                owed.push(execute);
            }
        }
        owed
    }

    /// Whether all work of the object is known to be complete when the thread takes its next step.
    #[must_use]
    pub fn is_idle(&self, object: Object, thread: usize) -> bool {
        let step = Step { thread, action: Action::Query(object) };
        let asked = self.apply(&step).ok();
        asked.and_then(|model| {
            let last = model.steps.last()?;
            let Question::Commands(commands) = last.question.as_ref()? else { return None };
            let before = model.graph.before(last.begin);
            Some(commands.iter().all(|&command| before.contains(command)))
        }) == Some(true)
    }

    fn new_cell(&mut self, reset: Node) -> usize {
        self.cells.push(EventCell::new(reset));
        self.cells.len() - 1
    }

    fn list(&self, list: ListId) -> Result<&List, Refusal> {
        let found = self.lists.get(list.0).filter(|list| list.alive);
        found.ok_or(Refusal::Misuse("the list does not exist"))
    }

    /// The recording that a live regular list holds.
    fn recording(&self, list: ListId) -> Result<RecordingId, Refusal> {
        match self.list(list)?.body {
            Body::Regular(recording) => Ok(recording),
            Body::Immediate(_) => Err(Refusal::Misuse("the list is not regular")),
        }
    }

    fn event(&self, event: EventId) -> Result<&Event, Refusal> {
        let found = self.events.get(event.0).filter(|event| event.alive);
        found.ok_or(Refusal::Misuse("the event does not exist"))
    }

    fn queue(&self, queue: QueueId) -> Result<&Queue, Refusal> {
        self.queues.get(queue.0).ok_or(Refusal::Misuse("the queue does not exist"))
    }

    fn fence(&self, fence: FenceId) -> Result<&Fence, Refusal> {
        self.fences.get(fence.0).ok_or(Refusal::Misuse("the fence does not exist"))
    }

    /// The cell of a live regular event. For CB events, "zeEventHostReset is not allowed" and
    /// "zeEventHostSignal is not allowed".
    fn regular(&self, event: EventId) -> Result<usize, Refusal> {
        match self.event(event)?.state {
            EventState::Regular(cell) => Ok(cell),
            EventState::CounterBased(_) => Err(Refusal::Misuse("the event is counter-based")),
        }
    }

    /// The objects that a call uses, so that threads which share them take turns.
    fn uses(&self, action: &Action) -> Result<Vec<(Object, Use)>, Refusal> {
        use Use::{Exclusive, Shared};
        let mut uses = Vec::new();
        match action {
            Action::CreateList(list, _) | Action::Close(list) => {
                uses.push((Object::List(*list), Exclusive));
            }
            Action::ResetList(list) | Action::DestroyList(list) => {
                uses.push((Object::List(*list), Exclusive));
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
                uses.push((Object::Event(*event), Shared));
            }
            Action::ResetFence(fence) => uses.push((Object::Fence(*fence), Exclusive)),
            Action::Append(list, command) => {
                uses.push((Object::List(*list), Exclusive));
                self.uses_of_command(command, &mut uses)?;
            }
            Action::Execute { queue, lists, fence } => {
                uses.push((Object::Queue(*queue), Exclusive));
                uses.extend(fence.map(|fence| (Object::Fence(fence), Shared)));
                for &list in lists {
                    uses.push((Object::List(list), Exclusive));
                    for command in &self.recordings[self.recording(list)?.0].commands {
                        self.uses_of_recorded(command, &mut uses);
                    }
                }
            }
            Action::Synchronize(object) | Action::Query(object) => {
                uses.push((*object, Shared));
                if let Object::Event(event) = object {
                    self.uses_of_state(self.event(*event)?.state, &mut uses);
                }
            }
            Action::Address(event) => {
                uses.push((Object::Event(*event), Shared));
                self.uses_of_state(self.event(*event)?.state, &mut uses);
            }
            Action::Read(_) | Action::Write(..) | Action::Join => {}
        }
        Ok(uses)
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
            uses.push((Object::Event(event), Use::Shared));
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
            }
        }
        // An event that was destroyed since is not touched by the execution.
        let alive = |event: &EventId| self.events[event.0].alive;
        if let Some(event) = command.signal.filter(alive) {
            uses.push((Object::Event(event), self.use_of_signal(&self.events[event.0])));
        }
        if let Op::ResetEvent(event) = command.op {
            uses.push((Object::Event(event), Use::Shared));
        }
    }

    /// Signalling a CB event replaces its state; a regular one is only a cell that is written.
    fn use_of_signal(&self, event: &Event) -> Use {
        match event.state {
            EventState::CounterBased(_) => Use::Exclusive,
            EventState::Regular(_) => Use::Shared,
        }
    }

    /// Binding an event of a recording depends on how often its list was executed so far.
    fn uses_of_state(&self, state: EventState, uses: &mut Vec<(Object, Use)>) {
        if let EventState::CounterBased(CbState::Recorded { recording, .. }) = state {
            uses.push((Object::List(self.recordings[recording.0].list), Use::Shared));
        }
    }

    fn create_list(&mut self, list: ListId, desc: ListDesc) -> Result<(), Refusal> {
        let body = match desc.kind {
            ListKind::Regular => Body::Regular(self.new_recording(list)),
            ListKind::Immediate | ListKind::ImmediateSynchronous => {
                Body::Immediate(Stream::default())
            }
        };
        self.lists.push(List { desc, alive: true, body });
        expect_next(list.0, self.lists.len())
    }

    fn new_recording(&mut self, list: ListId) -> RecordingId {
        let (commands, executions) = (Vec::new(), Vec::new());
        self.recordings.push(Recording { list, commands, closed: false, alive: true, executions });
        RecordingId(self.recordings.len() - 1)
    }

    fn close(&mut self, list: ListId) -> Result<(), Refusal> {
        let recording = self.recording(list)?;
        if std::mem::replace(&mut self.recordings[recording.0].closed, true) {
            return Err(Refusal::Misuse("the list is closed"));
        }
        Ok(())
    }

    fn reset_list(&mut self, list: ListId, now: Node) -> Result<(), Refusal> {
        self.drop_recording(self.recording(list)?, now)?;
        self.lists[list.0].body = Body::Regular(self.new_recording(list));
        Ok(())
    }

    fn destroy_list(&mut self, list: ListId, now: Node) -> Result<(), Refusal> {
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
    fn drop_recording(&mut self, recording: RecordingId, now: Node) -> Result<(), Refusal> {
        for commands in &self.recordings[recording.0].executions {
            self.must_be_complete(commands, now)?;
        }
        if self.promises.iter().any(|promise| promise.recording == recording) {
            return Err(Refusal::WouldHang);
        }
        self.recordings[recording.0].alive = false;
        Ok(())
    }

    fn must_be_complete(&self, commands: &[Node], now: Node) -> Result<(), Refusal> {
        let before = self.graph.before(now);
        match commands.iter().all(|&command| before.contains(command)) {
            true => Ok(()),
            false => Err(Refusal::InUse),
        }
    }

    /// CB events: "No need to wait for completion before reusing/destroying", and what was
    /// recorded with one stays (ERRATA). A regular event must be out of use.
    fn destroy_event(&mut self, event: EventId, now: Node) -> Result<(), Refusal> {
        if let EventState::Regular(cell) = self.event(event)?.state {
            let uses: Vec<Node> = self.cells[cell].uses().collect();
            self.must_be_complete(&uses, now)?;
            let recorded = |command: &Recorded| {
                command.signal == Some(event)
                    || command.op == Op::ResetEvent(event)
                    || command.waits.contains(&Dependency::Regular(event))
            };
            let alive = |recording: &&Recording| recording.alive;
            if self.recordings.iter().filter(alive).flat_map(|r| &r.commands).any(recorded) {
                return Err(Refusal::InUse);
            }
        }
        self.events[event.0].alive = false;
        Ok(())
    }

    /// The commands whose completion an immediate list, a queue or a CB event stands for.
    fn target(&self, object: Object) -> Result<Question, Refusal> {
        Ok(match object {
            Object::List(list) => match &self.list(list)?.body {
                Body::Immediate(stream) => Question::Commands(stream.commands.clone()),
                Body::Regular(_) => return Err(Refusal::Misuse("the list is not immediate")),
            },
            Object::Queue(queue) => Question::Commands(self.queue(queue)?.commands.clone()),
            Object::Fence(fence) => Question::Cell(self.fence(fence)?.cell),
            Object::Event(event) => match self.event(event)?.state {
                EventState::CounterBased(state) => Question::CounterBased(self.bind(state, None)),
                EventState::Regular(cell) => Question::Cell(cell),
            },
        })
    }

    fn query(&mut self, object: Object) -> Result<(), Refusal> {
        let question = self.target(object)?;
        self.steps.last_mut().expect("the query is a step").question = Some(question);
        Ok(())
    }

    /// The address and value of a CB event that was signalled at least once; "API must be called
    /// again to obtain new data" when its state is replaced.
    fn query_address(&mut self, event: EventId) -> Result<(), Refusal> {
        match self.event(event)?.state {
            EventState::CounterBased(CbState::Counter { .. } | CbState::Recorded { .. }) => {
                self.query(Object::Event(event))
            }
            EventState::CounterBased(CbState::Complete) => {
                Err(Refusal::Misuse("the event was never signalled"))
            }
            EventState::Regular(_) => Err(Refusal::Misuse("the event is not counter-based")),
        }
    }

    /// A host wait. Valid only if earlier steps alone make it end: then no order in which threads
    /// run can leave it waiting for ever.
    fn synchronize(&mut self, object: Object) -> Result<(), Refusal> {
        match self.target(object)? {
            Question::Commands(commands) => self.block(&commands),
            Question::CounterBased(Bound::Met) => Ok(()),
            Question::CounterBased(Bound::Command(command)) => self.block(&[command]),
            Question::CounterBased(_) => Err(Refusal::WouldHang),
            Question::Cell(cell) => {
                let epoch = self.cells[cell].current();
                let (reset, signal) = (epoch.reset, epoch.signals.first().copied());
                let begin = self.steps.last().expect("the wait is a step").begin;
                self.must_come_before(reset, begin)?;
                self.block(&[signal.ok_or(Refusal::WouldHang)?])?;
                let end = self.steps.last().expect("the wait is a step").end;
                self.cells[cell].current_mut().waits.push(end);
                Ok(())
            }
        }
    }

    /// Makes the current step end only when all the given commands are complete.
    fn block(&mut self, commands: &[Node]) -> Result<(), Refusal> {
        let step = self.steps.last().expect("a step is being taken");
        let begin = step.begin;
        let end = self.graph.add(Work::None);
        self.graph.order(begin, end, Bond::Ordered);
        for &command in commands {
            self.graph.order(command, end, Bond::Ordered);
        }
        let before = self.graph.possibly_before(end);
        if self.pending.iter().any(|&node| before.contains(node)) {
            return Err(Refusal::WouldHang);
        }
        self.steps.last_mut().expect("a step is being taken").end = end;
        Ok(())
    }

    fn must_come_before(&self, first: Node, second: Node) -> Result<(), Refusal> {
        match first == second || self.graph.before(second).contains(first) {
            true => Ok(()),
            false => Err(Refusal::Unordered),
        }
    }

    /// Lets a node, whose waits are known, do its work.
    fn perform(&mut self, node: Node, work: Work) {
        self.graph.set_work(node, work);
        let before = self.graph.before(node);
        for (cell, access) in memory::accesses(work) {
            for &(other, kind, earlier) in &self.accesses {
                let conflict = other == cell && earlier != node && kind.needs_order(access);
                if conflict && !before.contains(earlier) {
                    self.races.push((cell, earlier, node));
                }
            }
            self.accesses.push((cell, access, node));
        }
    }

    /// Two accesses may still find their order as long as one of them comes after a wait whose
    /// signal was not submitted yet.
    fn check_races(&mut self) -> Result<(), Refusal> {
        let mut open = Vec::new();
        for &(cell, first, second) in &self.races {
            let (to_first, to_second) = (self.graph.before(first), self.graph.before(second));
            if to_second.contains(first) || to_first.contains(second) {
                continue;
            }
            let waits = |&node: &Node| {
                node == first
                    || node == second
                    || to_first.contains(node)
                    || to_second.contains(node)
            };
            if !self.pending.iter().any(waits) {
                return Err(Refusal::Race(cell));
            }
            open.push((cell, first, second));
        }
        self.races = open;
        Ok(())
    }
}

/// Names are given in order, so that two programs with the same steps are the same.
fn expect_next(name: usize, count: usize) -> Result<(), Refusal> {
    match name + 1 == count {
        true => Ok(()),
        false => Err(Refusal::Misuse("names are given in order")),
    }
}

/// Uses of one event by the device, in the order of submission.
impl Model {
    fn signal_cell(&mut self, cell: usize, node: Node) -> Result<(), Refusal> {
        let epoch = self.cells[cell].current();
        let first = epoch.signals.first().copied();
        self.must_come_before(first.unwrap_or(epoch.reset), node)?;
        self.cells[cell].current_mut().signals.push(node);
        if first.is_none() {
            for waiter in self.cells[cell].current().waits.clone() {
                self.fulfil(node, waiter)?;
            }
        }
        Ok(())
    }

    fn reset_cell(&mut self, cell: usize, node: Node) -> Result<(), Refusal> {
        let epoch = self.cells[cell].current();
        if epoch.signals.is_empty() && !epoch.waits.is_empty() {
            return Err(Refusal::Deadlock);
        }
        let before = self.graph.before(node);
        let ordered = |node: &Node| before.contains(*node);
        if !epoch.signals.iter().chain(&epoch.waits).chain([&epoch.reset]).all(ordered) {
            return Err(Refusal::Unordered);
        }
        self.cells[cell].epochs.push(event::Epoch {
            reset: node,
            signals: Vec::new(),
            waits: Vec::new(),
        });
        Ok(())
    }

    /// A wait that was submitted before its signal finds it.
    fn fulfil(&mut self, signal: Node, waiter: Node) -> Result<(), Refusal> {
        if signal == waiter || self.graph.possibly_before(signal).contains(waiter) {
            return Err(Refusal::Deadlock);
        }
        self.graph.order(signal, waiter, Bond::Ordered);
        if let Some(at) = self.pending.iter().position(|&node| node == waiter) {
            self.pending.swap_remove(at);
        }
        Ok(())
    }
}

/// Names of what exists, for the generator.
impl Model {
    /// The live lists.
    pub fn live_lists(&self) -> impl Iterator<Item = (ListId, ListDesc)> + '_ {
        let all = self.lists.iter().enumerate();
        all.filter(|(_, list)| list.alive).map(|(name, list)| (ListId(name), list.desc))
    }

    /// The live events.
    pub fn live_events(&self) -> impl Iterator<Item = (EventId, EventKind)> + '_ {
        let all = self.events.iter().enumerate().filter(|(_, event)| event.alive);
        all.map(|(name, event)| match event.state {
            EventState::Regular(_) => (EventId(name), EventKind::Regular),
            EventState::CounterBased(_) => (EventId(name), EventKind::CounterBased),
        })
    }

    /// All queues.
    pub fn queues(&self) -> impl Iterator<Item = (QueueId, Engine)> + '_ {
        self.queues.iter().enumerate().map(|(name, queue)| (QueueId(name), queue.engine))
    }

    /// All fences and their queues.
    pub fn fences(&self) -> impl Iterator<Item = (FenceId, QueueId)> + '_ {
        self.fences.iter().enumerate().map(|(name, fence)| (FenceId(name), fence.queue))
    }

    /// How many lists and events there ever were: the next names.
    #[must_use]
    pub fn next_names(&self) -> (ListId, EventId) {
        (ListId(self.lists.len()), EventId(self.events.len()))
    }

    /// The list whose command a CB event stands for.
    #[must_use]
    pub fn signaller(&self, event: EventId) -> Option<ListId> {
        match self.event(event).ok()?.state {
            EventState::CounterBased(CbState::Counter { list, .. }) => Some(list),
            EventState::CounterBased(CbState::Recorded { recording, .. }) => {
                Some(self.recordings[recording.0].list)
            }
            EventState::CounterBased(CbState::Complete) | EventState::Regular(_) => None,
        }
    }

    /// The live CB events that live regular lists signal, whatever state they have now.
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
