// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reference model: the specification's rules for lists, queues, events, executions and fences, as
//! a state machine without time.
//!
//! [`Model::apply`] takes one step of a program and returns the next state, or the reason why the step
//! would make the program invalid. The state is mostly a happens-before [graph](order): its nodes are
//! host calls and commands, and an edge says that one is complete before the other starts. Only
//! guaranteed order becomes an edge; the device may run everything else in any order. The graph
//! determines the final memory (there is only one, since races are refused), and for each query whether
//! the answer must be "ready", must be "not ready", or may be either.
//!
//! Rules and their modules:
//! - order inside a list, barriers, executions, and when events are bound: `device`;
//! - states of events: [`event`]; signals and resets of regular ones and of user's words: `cell`;
//! - lifetimes of lists and events: `object`;
//! - waits of the host: `wait`; the order of calls when threads share an object: [`host`];
//! - races: [`memory`]; answers: [`expect`];
//! - times of commands: [`times`]; clones and executions by immediate lists: `device`, `object`;
//! - events that another process opens: `object`. Event pools that processes share need no rule: their
//!   events are regular ones, whichever process signals them.
//!
//! Programs with races: [`Model::with_races`] takes a number of them, and [`Model::racing`] names them.
//!
//! Not in the model: memory scopes (every event and barrier is taken to make memory visible).

mod cell;
mod device;
pub mod event;
pub mod expect;
pub mod host;
pub mod memory;
mod object;
pub mod order;
mod shared;
pub mod times;
mod wait;

pub use expect::{Answer, Expected, Outcome};

use crate::program::{
    Action, Cell, Engine, EventId, EventKind, FenceId, ListDesc, ListId, Object, Op, Program,
    QueueId, Step,
};
use event::{Bound, CbState, Dependency, EventCell, RecordingId};
use expect::Question;
use host::HostOrder;
use memory::Access;
use order::{Bond, Graph, Node, Work};
use shared::Shared;
use std::collections::BTreeSet;
use std::fmt;
use std::rc::Rc;
use times::{Reading, TimesOf};

/// The reason why a step would make a program invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Two accesses to the cell have no order.
    Race(Cell),
    /// Waits would form a cycle, also one that runs through the order within a queue. "There are
    /// no protections against events causing deadlocks".
    Deadlock,
    /// A wait that no earlier step can end.
    WouldHang,
    /// A signal, wait or reset of a regular event or fence has no order with another one.
    Unordered,
    /// Something is still in use on the device.
    InUse,
    /// The call is an error in any order; the rule that it breaks.
    Misuse(&'static str),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Race(cell) => write!(f, "accesses to {cell} have no order"),
            Refusal::Deadlock => f.write_str("waits form a cycle"),
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
    /// The nodes that a host wait on the list waits for: see [`Queue::retired`]. In an in-order list
    /// these are the commands, whose counter the wait and all CB events share; but a regular event has
    /// a cell of its own, which may be visible a little before the counter.
    retired: Vec<Node>,
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
    /// The owner of the times that it reads.
    times: Option<TimesOf>,
    /// The step that appends it.
    step: usize,
    /// Whether it is the beginning or the end of executions by an immediate list.
    is_part: bool,
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
    /// The nodes that a host wait on the queue waits for. They come after the commands, perhaps a
    /// little later than their events and fences: the specification does not say that a queue is idle
    /// as soon as its last event is signalled.
    retired: Vec<Node>,
    /// The last barrier of an out-of-order list.
    gate: Option<Node>,
}

#[derive(Clone, Copy)]
enum EventState {
    CounterBased(CbState),
    /// The state that another event had when its handle was made; it never changes.
    Opened(Bound),
    /// Number of its cell.
    Regular(usize),
    /// Number of the cell of the user's word: of an aggregated event always, of an external one until
    /// its state is replaced.
    Word(usize),
}

#[derive(Clone)]
struct Event {
    alive: bool,
    kind: EventKind,
    state: EventState,
    /// Number of its cell: all but ordinary CB events have one, in any state.
    cell: Option<usize>,
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
    after: Rc<[usize]>,
    question: Option<Question>,
    /// The owner of the times that it queries, too.
    times: Option<Bound>,
}

/// A command that waits for the first execution of a recording, not yet submitted.
#[derive(Clone, Copy)]
struct FutureWait {
    recording: RecordingId,
    index: usize,
    waiter: Node,
}

/// A step that a program still owes, so that no wait hangs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owed {
    /// Signal this event, which has a cell.
    Signal(EventId),
    /// Execute this regular list, after closing it if it is open.
    Execute {
        /// The list.
        list: ListId,
        /// Its engine.
        engine: Engine,
        /// Whether it is closed.
        closed: bool,
    },
}

/// The state after some steps of a program. The generator copies it for each step that it tries, so
/// copies share data that seldom changes.
#[derive(Clone, Default)]
pub struct Model {
    graph: Graph,
    host: HostOrder,
    steps: Vec<HostStep>,
    lists: Vec<Shared<List>>,
    recordings: Vec<Shared<Recording>>,
    queues: Vec<Shared<Queue>>,
    events: Vec<Event>,
    fences: Vec<Fence>,
    cells: Vec<Shared<EventCell>>,
    accesses: Vec<(Cell, Access, Node)>,
    /// Pairs of accesses that need an order and have none yet.
    races: Vec<(Cell, Node, Node)>,
    /// The number of pairs of commands that may race; none in a valid program.
    most_races: usize,
    /// Pairs of commands that race.
    found_races: Vec<(Node, Node)>,
    /// The commands, and the steps that append them.
    origins: Vec<(Node, usize)>,
    future_waits: Vec<FutureWait>,
    /// Commands with a wait whose signal was not submitted yet, once for each such wait.
    pending: Vec<Node>,
    /// Commands that read the times of other commands.
    readings: Vec<Reading>,
    /// Executions by immediate lists: the end, whose times may cover the whole span from the beginning.
    spans: Vec<(Node, Node)>,
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

    /// The state before the first step of a program in which up to this number of pairs of commands may race.
    #[must_use]
    pub fn with_races(most: usize) -> Model {
        Model { most_races: most, ..Model::default() }
    }

    /// The state after all steps of a program, in which commands may race.
    ///
    /// # Errors
    /// Those of [`Model::of`].
    pub fn of_racing(program: &Program) -> Result<Model, (usize, Refusal)> {
        let mut model = Model::with_races(usize::MAX);
        for (number, step) in program.steps.iter().enumerate() {
            model.take(step).map_err(|refusal| (number, refusal))?;
        }
        Ok(model)
    }

    /// The pairs of commands that race, by the steps that append them.
    #[must_use]
    pub fn racing(&self) -> BTreeSet<(usize, usize)> {
        let step = |node| self.origins.iter().find(|it| it.0 == node).map(|it| it.1);
        let steps = |&(first, second): &(Node, Node)| {
            let (first, second) = (step(first)?, step(second)?);
            Some((first.min(second), first.max(second)))
        };
        self.found_races.iter().filter_map(steps).collect()
    }

    /// The state after one more step.
    ///
    /// # Errors
    /// The reason why a program with this step would be invalid.
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
        self.steps.push(HostStep {
            begin,
            end: begin,
            after: after.into(),
            question: None,
            times: None,
        });
        self.act(&step.action, begin)?;
        self.check_races()
    }

    fn act(&mut self, action: &Action, begin: Node) -> Result<(), Refusal> {
        match action {
            Action::CreateList(list, desc) => self.create_list(*list, *desc),
            Action::CreateQueue(queue, engine) => {
                self.queues.push(Shared::new(Queue {
                    engine: *engine,
                    commands: Vec::new(),
                    retired: Vec::new(),
                    gate: None,
                }));
                expect_next(queue.0, self.queues.len())
            }
            Action::CreateEvent(event, kind) => {
                self.create_event(*kind, begin)?;
                expect_next(event.0, self.events.len())
            }
            Action::CreateFence(fence, queue) => {
                self.queue(*queue)?;
                let cell = self.new_cell(EventCell::new(begin, 1));
                self.fences.push(Fence { queue: *queue, cell });
                expect_next(fence.0, self.fences.len())
            }
            Action::CloneList(list, copy) => self.clone_list(*list, *copy),
            Action::Share(event, opened) => self.share(*event, *opened),
            Action::Append(list, command) => self.append(*list, command, begin),
            Action::AppendLists { list, lists, waits, signal } => {
                self.append_lists(*list, lists, (waits, *signal), begin)
            }
            Action::Close(list) => self.close(*list),
            Action::ResetList(list) => self.reset_list(*list, begin),
            Action::DestroyList(list) => self.destroy_list(*list, begin),
            Action::DestroyEvent(event) => self.destroy_event(*event, begin),
            Action::Execute { queue, lists, fence } => self.execute(*queue, lists, *fence, begin),
            Action::Synchronize(object) => self.synchronize(*object),
            Action::Query(object) => self.query(*object),
            Action::Times(event) => self.query_times(*event),
            Action::Address(event) => self.query_address(*event),
            Action::HostSignal(event) => self.signal_cell(self.cell_of(*event)?, begin),
            Action::HostReset(event) => self.reset_cell(self.cell_of(*event)?, begin),
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

    /// Steps that must still be taken so that every submitted wait can end.
    #[must_use]
    pub fn owed(&self) -> Vec<Owed> {
        let awaited = self.events.iter().enumerate().filter(|(_, event)| {
            event.cell.is_some_and(|cell| {
                let cell = &self.cells[cell];
                cell.completed().is_none() && !cell.current().waits.is_empty()
            })
        });
        let mut owed: Vec<Owed> = awaited.map(|(event, _)| Owed::Signal(EventId(event))).collect();
        for wait in &self.future_waits {
            let Recording { list, closed, .. } = *self.recordings[wait.recording.0];
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

    fn list(&self, list: ListId) -> Result<&List, Refusal> {
        let found = self.lists.get(list.0).map(|list| &**list).filter(|list| list.alive);
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
        self.queues
            .get(queue.0)
            .map(|queue| &**queue)
            .ok_or(Refusal::Misuse("the queue does not exist"))
    }

    fn fence(&self, fence: FenceId) -> Result<&Fence, Refusal> {
        self.fences.get(fence.0).ok_or(Refusal::Misuse("the fence does not exist"))
    }

    /// The cell of a live event that host and device may set and reset. For CB events,
    /// "zeEventHostReset is not allowed" and "zeEventHostSignal is not allowed", but "device storage
    /// is under Users control".
    fn cell_of(&self, event: EventId) -> Result<usize, Refusal> {
        self.event(event)?.cell.ok_or(Refusal::Misuse("the event is counter-based"))
    }
}

/// Requires that names are given in order, so that two programs with the same steps are equal.
fn expect_next(name: usize, count: usize) -> Result<(), Refusal> {
    match name + 1 == count {
        true => Ok(()),
        false => Err(Refusal::Misuse("names are given in order")),
    }
}
