// SPDX-License-Identifier: MIT OR Apache-2.0
//! The examples of the specification as fixed programs, and a [`Script`] to write more.
//!
//! Each program waits for everything at its end, so its memory can be compared.

use super::{
    Action, Cell, Command, Engine, EventId, EventKind, FenceId, ListDesc, ListId, ListKind,
    ListOrder, Object, Op, Program, QueueId, Step,
};

/// Writes a program by hand: assigns names in order, with one method for each common call.
#[derive(Clone, Debug, Default)]
pub struct Script {
    program: Program,
    lists: usize,
    queues: usize,
    events: usize,
    fences: usize,
}

impl Script {
    /// An empty program.
    #[must_use]
    pub fn new() -> Self {
        Script::default()
    }

    /// Any action, by thread 0; returns the number of the step.
    pub fn step(&mut self, action: Action) -> usize {
        self.program.steps.push(Step { thread: 0, action });
        self.program.steps.len() - 1
    }

    /// A new list.
    pub fn list(&mut self, kind: ListKind, order: ListOrder, engine: Engine) -> ListId {
        let list = ListId(self.lists);
        self.lists += 1;
        self.step(Action::CreateList(list, ListDesc { engine, order, kind }));
        list
    }

    /// A new immediate, asynchronous, in-order list.
    pub fn immediate(&mut self, engine: Engine) -> ListId {
        self.list(ListKind::Immediate, ListOrder::InOrder, engine)
    }

    /// A new regular in-order list for the compute engine.
    pub fn regular(&mut self) -> ListId {
        self.list(ListKind::Regular, ListOrder::InOrder, Engine::Compute)
    }

    /// A new queue for the compute engine.
    pub fn queue(&mut self) -> QueueId {
        let queue = QueueId(self.queues);
        self.queues += 1;
        self.step(Action::CreateQueue(queue, Engine::Compute));
        queue
    }

    /// A new event.
    pub fn event(&mut self, kind: EventKind) -> EventId {
        let event = EventId(self.events);
        self.events += 1;
        self.step(Action::CreateEvent(event, kind));
        event
    }

    /// A new CB event.
    pub fn counter_based(&mut self) -> EventId {
        self.event(EventKind::CounterBased)
    }

    /// A new fence.
    pub fn fence(&mut self, queue: QueueId) -> FenceId {
        let fence = FenceId(self.fences);
        self.fences += 1;
        self.step(Action::CreateFence(fence, queue));
        fence
    }

    /// Appends a command.
    pub fn append(&mut self, list: ListId, op: Op, waits: &[EventId], signal: Option<EventId>) {
        self.step(Action::Append(list, Command { op, waits: waits.to_vec(), signal }));
    }

    /// Makes a list wait for a regular event that the host signals later: no later command of the list
    /// can start before, on a device of any speed. Returns the event.
    pub fn hold(&mut self, list: ListId) -> EventId {
        let gate = self.event(EventKind::Regular);
        self.append(list, Op::WaitOnEvents, &[gate], None);
        gate
    }

    /// Releases a list that was held.
    pub fn release(&mut self, gate: EventId) {
        self.step(Action::HostSignal(gate));
    }

    /// Closes a list.
    pub fn close(&mut self, list: ListId) {
        self.step(Action::Close(list));
    }

    /// Executes one list on a queue, without a fence.
    pub fn execute(&mut self, queue: QueueId, list: ListId) {
        self.step(Action::Execute { queue, lists: vec![list], fence: None });
    }

    /// Waits for an object.
    pub fn synchronize(&mut self, object: Object) {
        self.step(Action::Synchronize(object));
    }

    /// Queries an object; returns the number of the step.
    pub fn query(&mut self, object: Object) -> usize {
        self.step(Action::Query(object))
    }

    /// The program.
    #[must_use]
    pub fn program(self) -> Program {
        self.program
    }
}

/// A kernel `dst = dst * 3 + src + add`.
#[must_use]
pub fn mix(dst: usize, src: usize, add: u32) -> Op {
    Op::Mix { dst: Cell(dst), src: Cell(src), add }
}

/// A copy `dst = src`.
#[must_use]
pub fn copy(dst: usize, src: usize) -> Op {
    Op::Copy { dst: Cell(dst), src: Cell(src) }
}

/// A program, and the steps in it that a test checks.
#[derive(Clone, Debug)]
pub struct Example {
    /// The program.
    pub program: Program,
    /// Queries, by the behaviour that they show.
    pub queries: Vec<(&'static str, usize)>,
}

/// "reuse without waiting/reset": the first example of counter-based-events.
///
/// List 1 is held, so that the state of the event to which each wait is bound is certain: list 2 waits
/// for list 1; the host, later, for list 3, which does not depend on list 1. The event is destroyed
/// while list 2 still waits.
#[must_use]
pub fn event_reused_without_reset() -> Example {
    let mut script = Script::new();
    let [list1, list2, list3] = [0; 3].map(|_| script.immediate(Engine::Compute));
    let event1 = script.counter_based();
    let mut queries = vec![("created", script.query(Object::Event(event1)))];
    let gate = script.hold(list1);
    script.append(list1, mix(0, 1, 1), &[], Some(event1));
    queries.push(("signalled by list 1", script.query(Object::Event(event1))));
    script.append(list2, copy(2, 0), &[event1], None);
    script.append(list3, mix(3, 1, 3), &[], Some(event1));
    script.synchronize(Object::Event(event1));
    queries.push(("signalled by list 3", script.query(Object::Event(event1))));
    queries.push(("list 2", script.query(Object::List(list2))));
    script.step(Action::DestroyEvent(event1));
    script.release(gate);
    script.synchronize(Object::List(list2));
    script.synchronize(Object::List(list3));
    Example { program: script.program(), queries }
}

/// "Regular command list is a special use case for CB Events": list 1 is executed three times,
/// list 2 waits for the event of its second and third execution.
#[must_use]
pub fn regular_list_executed_three_times() -> Example {
    let mut script = Script::new();
    let (list1, list2) = (script.regular(), script.regular());
    let (queue1, queue2) = (script.queue(), script.queue());
    let event1 = script.counter_based();
    script.append(list1, mix(0, 0, 1), &[], None);
    script.append(list1, copy(1, 0), &[], Some(event1));
    script.append(list1, mix(2, 2, 1), &[], None);
    script.close(list1);
    let mut queries = vec![("recorded", script.query(Object::Event(event1)))];
    script.execute(queue1, list1);
    script.synchronize(Object::Queue(queue1));
    queries.push(("first execution", script.query(Object::Event(event1))));
    script.execute(queue1, list1);
    script.append(list2, mix(3, 1, 0), &[event1], None);
    script.close(list2);
    script.execute(queue2, list2);
    script.synchronize(Object::Queue(queue2));
    queries.push(("second execution", script.query(Object::Event(event1))));
    script.execute(queue1, list1);
    script.execute(queue2, list2);
    script.synchronize(Object::Queue(queue2));
    queries.push(("third execution", script.query(Object::Event(event1))));
    script.synchronize(Object::Queue(queue1));
    Example { program: script.program(), queries }
}

/// "Multi directional dependencies on Regular command lists".
///
/// List 1 is A, (wait for B), C and list 2 is (wait for A), B, D. In the first round list 1 waits
/// for the execution of list 2 that is still to come. In the second it "waits again for "ready"
/// state of regularCmdList2 (first execution)", so it ends before list 2 is executed again, and C
/// sees B's result of the first round; list 2 waits for the second execution of list 1.
///
/// Cells: A writes m0, B computes m1 from m0, C computes m2 from m1, D computes m3 from m1.
#[must_use]
pub fn multi_directional() -> Example {
    let mut script = Script::new();
    let (list1, list2) = (script.regular(), script.regular());
    let (queue1, queue2) = (script.queue(), script.queue());
    let (a, b) = (script.counter_based(), script.counter_based());
    script.append(list1, mix(0, 4, 1), &[], Some(a));
    script.append(list2, Op::WaitOnEvents, &[a], None);
    script.append(list2, mix(1, 0, 0), &[], Some(b));
    script.append(list2, mix(3, 1, 0), &[], None);
    script.append(list1, Op::WaitOnEvents, &[b], None);
    script.append(list1, mix(2, 1, 0), &[], None);
    script.close(list1);
    script.close(list2);
    let mut queries = vec![("all events are not ready", script.query(Object::Event(b)))];
    script.execute(queue1, list1);
    queries.push(("first round, list 2 not executed", script.query(Object::Queue(queue1))));
    script.execute(queue2, list2);
    script.synchronize(Object::Queue(queue1));
    script.synchronize(Object::Queue(queue2));
    queries.push(("all events are ready", script.query(Object::Event(b))));
    script.execute(queue1, list1);
    queries.push(("b, second round, list 2 not executed", script.query(Object::Event(b))));
    script.synchronize(Object::Queue(queue1));
    queries.push(("second round, list 1 alone", script.query(Object::Queue(queue1))));
    script.execute(queue2, list2);
    script.synchronize(Object::Queue(queue2));
    Example { program: script.program(), queries }
}

/// Copy, compute, copy on two engines and two immediate lists, ordered only by CB events; one of
/// the events is used twice (the deadlock-avoidance guide's workload, in its safe order).
#[must_use]
pub fn copy_compute_copy() -> Example {
    let mut script = Script::new();
    let (copies, kernels) = (script.immediate(Engine::Copy), script.immediate(Engine::Compute));
    let (uploaded, computed) = (script.counter_based(), script.counter_based());
    let gate = script.hold(copies);
    script.append(copies, copy(1, 0), &[], Some(uploaded));
    script.append(kernels, mix(2, 1, 5), &[uploaded], Some(computed));
    script.append(copies, copy(3, 2), &[computed], Some(uploaded));
    script.append(kernels, mix(2, 3, 7), &[uploaded], Some(computed));
    let queries = vec![("held", script.query(Object::Event(computed)))];
    script.release(gate);
    script.synchronize(Object::Event(computed));
    Example { program: script.program(), queries }
}

/// All of them, by name.
#[must_use]
pub fn all() -> Vec<(&'static str, Example)> {
    vec![
        ("event reused without reset", event_reused_without_reset()),
        ("regular list executed three times", regular_list_executed_three_times()),
        ("multi-directional dependencies", multi_directional()),
        ("copy, compute, copy", copy_compute_copy()),
    ]
}
