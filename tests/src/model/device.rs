// SPDX-License-Identifier: MIT OR Apache-2.0
//! Appends, submissions and executions: the order of commands.

use super::event::{Bound, CbState, Dependency, RecordingId};
use super::order::{Bond, Node, Work};
use super::{Body, EventState, FutureWait, Model, Queue, Recorded, Recording, Refusal, Stream};
use crate::program::{
    Command, Engine, EventId, EventKind, FenceId, ListDesc, ListId, ListKind, ListOrder, Op,
    PLACES, QueueId,
};

/// The place and the time at which commands are submitted.
#[derive(Clone, Copy)]
struct Place {
    order: ListOrder,
    /// The call that submits.
    call: Node,
    /// The command before the first one, on the same queue.
    behind: Option<Node>,
    /// The last command of the execution before, if an in-order list is executed again.
    last_execution: Option<Node>,
    /// The recording that is being executed.
    own: Option<RecordingId>,
}

impl Model {
    pub(super) fn append(
        &mut self,
        list: ListId,
        command: &Command,
        call: Node,
    ) -> Result<(), Refusal> {
        let desc = self.list(list)?.desc;
        self.check_command(desc, command)?;
        let waits = command.waits.iter().map(|&event| self.capture(event));
        let waits = waits.collect::<Result<Vec<_>, _>>()?;
        let times = match command.op {
            Op::QueryTimes { event, .. } => Some(self.timed(event)?),
            _ => None,
        };
        let step = self.steps.len() - 1;
        let recorded =
            Recorded { op: command.op, waits, signal: command.signal, times, step, is_part: false };
        match &self.lists[list.0].body {
            Body::Regular(recording) => self.record(*recording, recorded),
            Body::Immediate(stream) => {
                let mut stream = stream.clone();
                let (behind, last_execution, own) = (None, None, None);
                let place = Place { order: desc.order, call, behind, last_execution, own };
                let node = self.submit(&mut stream, place, &recorded)?;
                let value = stream.commands.len();
                let retired = match (desc.order, self.signals_cell(command)) {
                    (ListOrder::InOrder, false) => node,
                    _ => self.retire(call, &[node]),
                };
                stream.retired.push(retired);
                self.lists[list.0].body = Body::Immediate(stream);
                self.replace(command.signal, CbState::Counter { list, value });
                if desc.kind == ListKind::ImmediateSynchronous {
                    // "Commands appended into an immediate command list may execute
                    // synchronously, by blocking until the command is complete."
                    self.block(&[retired])?;
                }
                Ok(())
            }
        }
    }

    /// `zeCommandListImmediateAppendCommandListsExp`: the lists begin when the wait list is met and, in
    /// an in-order list, everything before is complete; the signal comes after all of them. No order
    /// among them is guaranteed, and in an out-of-order list none with later commands.
    pub(super) fn append_lists(
        &mut self,
        list: ListId,
        lists: &[ListId],
        (waits, signal): (&[EventId], Option<EventId>),
        call: Node,
    ) -> Result<(), Refusal> {
        let desc = self.list(list)?.desc;
        let Body::Immediate(mut stream) = self.lists[list.0].body.clone() else {
            return Err(Refusal::Misuse("the list is not immediate"));
        };
        if lists.is_empty() {
            return Err(Refusal::Misuse("an execution of no list"));
        }
        let [entry, end] = [(waits, None), (&[], signal)].map(|(waits, signal)| Command {
            op: Op::Barrier,
            waits: waits.to_vec(),
            signal,
        });
        self.check_command(desc, &end)?;
        let waits = entry.waits.iter().map(|&event| self.capture(event));
        let waits = waits.collect::<Result<Vec<_>, _>>()?;
        // In an out-of-order list a barrier would delay later commands.
        let op = match desc.order {
            ListOrder::InOrder => Op::Barrier,
            ListOrder::OutOfOrder => Op::SignalEvent,
        };
        let (times, step) = (None, self.steps.len() - 1);
        let (behind, last_execution, own) = (None, None, None);
        let place = Place { order: desc.order, call, behind, last_execution, own };
        let entry = self.submit(
            &mut stream,
            place,
            &Recorded { op, waits, signal: None, times, step, is_part: true },
        )?;
        let (mut nodes, mut gate) = (Vec::new(), None);
        for (at, &executed) in lists.iter().enumerate() {
            if lists[..at].contains(&executed) {
                return Err(Refusal::Misuse("a list twice in one call"));
            }
            let behind = nodes.last().copied().or(Some(entry));
            let more = self.execute_list(executed, desc.engine, entry, behind)?;
            self.order_barriers(executed, &more, &nodes, &mut gate);
            nodes.extend(more);
        }
        let place = Place { call: self.retire(entry, &nodes), ..place };
        let recorded = Recorded { op, waits: Vec::new(), signal, times, step, is_part: true };
        let node = self.submit(&mut stream, place, &recorded)?;
        self.spans.push((node, entry));
        let value = stream.commands.len();
        let retired = match (desc.order, self.signals_cell(&end)) {
            (ListOrder::InOrder, false) => node,
            _ => self.retire(call, &[node]),
        };
        stream.retired.push(retired);
        self.lists[list.0].body = Body::Immediate(stream);
        self.replace(signal, CbState::Counter { list, value });
        if desc.kind == ListKind::ImmediateSynchronous {
            self.block(&[retired])?;
        }
        Ok(())
    }

    fn check_command(&self, desc: ListDesc, command: &Command) -> Result<(), Refusal> {
        if !command.op.fits(desc.engine) {
            return Err(Refusal::Misuse("a kernel in a copy list"));
        }
        let fits = match command.op {
            Op::SignalEvent => command.waits.is_empty() && command.signal.is_some(),
            Op::WaitOnEvents => !command.waits.is_empty() && command.signal.is_none(),
            Op::ResetEvent(_) | Op::SetWord(_) => {
                command.waits.is_empty() && command.signal.is_none()
            }
            _ => true,
        };
        if !fits {
            return Err(Refusal::Misuse("a wait list or signal event that the call does not have"));
        }
        if let Op::ResetEvent(event) = command.op {
            self.cell_of(event)?;
        }
        if let Op::SetWord(event) = command.op
            && self.event(event)?.kind != EventKind::External
        {
            return Err(Refusal::Misuse("only external events have a word to set"));
        }
        if let Op::QueryTimes { place, .. } = command.op
            && place >= PLACES
        {
            return Err(Refusal::Misuse("no such place"));
        }
        if let Some(event) = command.signal
            && self.event(event)?.kind == EventKind::Opened
        {
            return Err(Refusal::Misuse("an opened event is never signalled"));
        }
        if let Some(event) = command.signal
            && self.event(event)?.kind.is_counter_based()
            && desc.order == ListOrder::OutOfOrder
        {
            // "The CB Event can only be signaled on the GPU using an in-order command list."
            return Err(Refusal::Misuse("a CB event signalled by an out-of-order list"));
        }
        Ok(())
    }

    /// Whether a command signals a cell of its own beside the list's counter.
    fn signals_cell(&self, command: &Command) -> bool {
        let cell = |event: EventId| match self.events[event.0].kind {
            EventKind::Regular | EventKind::RegularTimed | EventKind::Aggregated { .. } => true,
            EventKind::CounterBased | EventKind::Timed => false,
            EventKind::External | EventKind::Opened => false,
        };
        command.signal.is_some_and(cell) || matches!(command.op, Op::SetWord(_))
    }

    /// The dependency of a wait for the event from now on.
    fn capture(&self, event: EventId) -> Result<Dependency, Refusal> {
        Ok(match self.event(event)?.state {
            EventState::CounterBased(state) => Dependency::CounterBased(state),
            EventState::Opened(bound) => Dependency::Opened(bound),
            EventState::Regular(_) => Dependency::Regular(event),
            EventState::Word(cell) => Dependency::Word(cell),
        })
    }

    /// "A new API call just replaces its previous state (counter/allocation)", that of an external
    /// event too. "Signaling" an aggregated event "will not replace its state". Regular events are
    /// not concerned; the state of an event that was destroyed is never asked for.
    fn replace(&mut self, event: Option<EventId>, state: CbState) {
        let Some(event) = event.map(|event| &mut self.events[event.0]) else { return };
        if event.kind.is_replaced() {
            event.state = EventState::CounterBased(state);
        }
    }

    /// An append to a regular list. A CB signal event is "not ready" from here "until the
    /// execution that signals it completes" (ERRATA).
    fn record(&mut self, id: RecordingId, command: Recorded) -> Result<(), Refusal> {
        let recording = &mut self.recordings[id.0];
        if recording.closed {
            return Err(Refusal::Misuse("the list is closed"));
        }
        let index = recording.commands.len();
        let signal = command.signal;
        recording.commands.push(command);
        self.replace(signal, CbState::Recorded { recording: id, index });
        Ok(())
    }

    /// The work that a state refers to now: an event of a recording "resolves to the latest submitted
    /// execution's base + k, or to b(1) + k if none was submitted" (architecture, decision 7).
    /// Inside an execution of the same recording it is that execution.
    pub(super) fn bind(&self, state: CbState, executing: Option<(RecordingId, &[Node])>) -> Bound {
        match state {
            CbState::Complete => Bound::Met,
            CbState::Counter { list, value } => match &self.lists[list.0].body {
                Body::Immediate(stream) => Bound::Command(stream.commands[value - 1]),
                Body::Regular(_) => unreachable!("only immediate lists give counters"),
            },
            CbState::Recorded { recording, index } => {
                if let Some((own, commands)) = executing
                    && own == recording
                {
                    return Bound::Command(commands[index]);
                }
                let Recording { alive, ref executions, .. } = *self.recordings[recording.0];
                match executions.last() {
                    Some(commands) => Bound::Command(commands[index]),
                    None if alive => Bound::FirstExecution { recording, index },
                    None => Bound::Never,
                }
            }
        }
    }

    /// The work that an opened event refers to now: it may have become more specific.
    pub(super) fn settle(&self, bound: Bound) -> Bound {
        match bound {
            Bound::FirstExecution { recording, index } => {
                let Recording { alive, ref executions, .. } = *self.recordings[recording.0];
                match executions.first() {
                    Some(commands) => Bound::Command(commands[index]),
                    None if alive => bound,
                    None => Bound::Never,
                }
            }
            bound => bound,
        }
    }

    /// Submits one command and gives it its place in the order.
    ///
    /// - In-order lists: "The next append call waits for that counter", so each command comes
    ///   after the one before it.
    /// - Out-of-order lists: commands "are only guaranteed to start in the same order in which
    ///   they are submitted; i.e. there is no implicit definition of the order of completion".
    /// - A barrier without a wait list comes after all earlier commands of the list; with one,
    ///   after its events. Either way, all later commands come after it.
    /// - A command comes after all events of its wait list. Waits for CB events are bound here.
    fn submit(
        &mut self,
        stream: &mut Stream,
        place: Place,
        command: &Recorded,
    ) -> Result<Node, Refusal> {
        let (node, own) = (self.start(stream, place), place.own);
        match place.order {
            ListOrder::InOrder => {
                if let Some(&retired) = stream.retired.last() {
                    self.graph.order(retired, node, Bond::Ordered);
                }
            }
            ListOrder::OutOfOrder => {
                if let Some(gate) = stream.gate {
                    self.graph.order(gate, node, Bond::Ordered);
                }
                let after_all = command.op == Op::Barrier && command.waits.is_empty()
                    || self.most_races != 0
                        && !command.is_part
                        && matches!(command.op, Op::SignalEvent | Op::ResetEvent(_));
                if after_all {
                    for &earlier in &stream.commands {
                        self.graph.order(earlier, node, Bond::Ordered);
                    }
                }
                if matches!(command.op, Op::Barrier | Op::WaitOnEvents) {
                    stream.gate = Some(node);
                }
            }
        }
        self.wait(node, own, &stream.commands, &command.waits)?;
        if let (Op::QueryTimes { place, .. }, Some(times)) = (command.op, command.times) {
            self.read_times(node, place, times, (own, &stream.commands))?;
        }
        self.origins.push((node, command.step));
        stream.commands.push(node);
        self.perform(node, Work::Command(command.op));
        // Words belong to the user: what was recorded with one stays even after its event is destroyed.
        if let Op::ResetEvent(event) = command.op
            && let Some(cell) = self.events[event.0].cell
        {
            self.reset_cell(cell, node)?;
        }
        if let Op::SetWord(event) = command.op
            && let Some(cell) = self.events[event.0].cell
        {
            self.signal_cell(cell, node)?;
        }
        if let Some(event) = command.signal.map(|event| &self.events[event.0])
            && (event.kind.is_regular() || matches!(event.kind, EventKind::Aggregated { .. }))
            && let Some(cell) = event.cell
        {
            self.signal_cell(cell, node)?;
        }
        Ok(node)
    }

    /// Where races are looked for, the barriers of out-of-order lists are taken to hold for their queue: "all
    /// previous commands, enqueued on same command queue, must complete", and "all following commands" wait. So
    /// are signals and resets of events to come after what was appended before them. The driver must not
    /// call a race what a program may rely on; the model does not rely on it otherwise.
    fn order_barriers(
        &mut self,
        list: ListId,
        nodes: &[Node],
        earlier: &[Node],
        gate: &mut Option<Node>,
    ) {
        let Ok(id) = self.recording(list) else { return };
        if self.most_races == 0 {
            return;
        }
        let in_order = self.lists[list.0].desc.order == ListOrder::InOrder;
        let recording = self.recordings[id.0].clone();
        let first_gate = *gate;
        // The execution of an empty list has a node, too.
        for (at, &node) in nodes.iter().enumerate() {
            if let Some(gate) = first_gate {
                self.graph.order(gate, node, Bond::Ordered);
            }
            let barrier = recording.commands.get(at).filter(|it| it.op == Op::Barrier);
            let Some(command) = barrier.filter(|_| !in_order) else { continue };
            if command.waits.is_empty() {
                for &earlier in earlier {
                    self.graph.order(earlier, node, Bond::Ordered);
                }
            }
            *gate = Some(node);
        }
    }

    /// A command behind those before it in its list or queue, and, in an in-order list, after them.
    fn start(&mut self, stream: &Stream, place: Place) -> Node {
        let node = self.graph.add(Work::None);
        self.graph.order(place.call, node, Bond::Ordered);
        let earlier = stream.commands.last().copied();
        if let Some(earlier) = earlier.or(place.behind) {
            self.graph.order(earlier, node, Bond::Queued);
        }
        if let Some(earlier) = earlier.or(place.last_execution)
            && place.order == ListOrder::InOrder
        {
            self.graph.order(earlier, node, Bond::Ordered);
        }
        node
    }

    /// Orders a command after its wait list.
    fn wait(
        &mut self,
        node: Node,
        own: Option<RecordingId>,
        commands: &[Node],
        waits: &[Dependency],
    ) -> Result<(), Refusal> {
        // The events of one wait list are read in any order. So each must be in its epoch without the
        // order that the others would give.
        let before = self.graph.before(node);
        for &wait in waits {
            if let Some(cell) = self.awaited_cell(wait)?
                && !before.contains(self.cells[cell].current().reset)
            {
                return Err(Refusal::Unordered);
            }
        }
        for &wait in waits {
            if let Some(cell) = self.awaited_cell(wait)? {
                self.cells[cell].current_mut().waits.push(node);
                match self.cells[cell].completed() {
                    Some(signals) => {
                        for &signal in signals {
                            self.graph.order(signal, node, Bond::Ordered);
                        }
                    }
                    None => self.pending.push(node),
                }
            }
            let bound = match wait {
                Dependency::Regular(_) | Dependency::Word(_) => continue,
                Dependency::CounterBased(state) => self.bind(state, own.map(|own| (own, commands))),
                Dependency::Opened(bound) => self.settle(bound),
            };
            match bound {
                Bound::Met => {}
                Bound::Command(signal) => self.graph.order(signal, node, Bond::Ordered),
                Bound::FirstExecution { recording, index } => {
                    self.future_waits.push(FutureWait { recording, index, waiter: node });
                    self.pending.push(node);
                }
                Bound::Never => return Err(Refusal::WouldHang),
            }
        }
        Ok(())
    }

    /// The cell that a wait reads whenever it is executed; such waits never count as met in advance.
    fn awaited_cell(&self, wait: Dependency) -> Result<Option<usize>, Refusal> {
        match wait {
            Dependency::Regular(event) => self.cell_of(event).map(Some),
            Dependency::Word(cell) => Ok(Some(cell)),
            Dependency::CounterBased(_) | Dependency::Opened(_) => Ok(None),
        }
    }

    /// `zeCommandQueueExecuteCommandLists`.
    ///
    /// Nothing orders the completion of two lists on one queue. A fence comes after everything on
    /// its queue: "all previous commands must complete prior to the fence being signaled".
    pub(super) fn execute(
        &mut self,
        queue: QueueId,
        lists: &[ListId],
        fence: Option<FenceId>,
        call: Node,
    ) -> Result<(), Refusal> {
        for (at, &list) in lists.iter().enumerate() {
            if lists[..at].contains(&list) {
                return Err(Refusal::Misuse("a list twice in one call"));
            }
            let Queue { engine, ref commands, .. } = *self.queue(queue)?;
            let behind = commands.last().copied();
            let nodes = self.execute_list(list, engine, call, behind)?;
            let Queue { ref commands, mut gate, .. } = *self.queues[queue.0].clone();
            self.order_barriers(list, &nodes, commands, &mut gate);
            self.queues[queue.0].gate = gate;
            self.queues[queue.0].commands.extend(nodes);
        }
        if let Some(fence) = fence {
            if self.fence(fence)?.queue != queue {
                return Err(Refusal::Misuse("a fence of another queue"));
            }
            let node = self.graph.add(Work::None);
            self.graph.order(call, node, Bond::Ordered);
            for &command in &self.queue(queue)?.commands.clone() {
                self.graph.order(command, node, Bond::Ordered);
            }
            self.queues[queue.0].commands.push(node);
            self.signal_cell(self.fence(fence)?.cell, node)?;
        }
        let commands = self.queue(queue)?.commands.clone();
        let retired = self.retire(call, &commands);
        self.queues[queue.0].retired.push(retired);
        Ok(())
    }

    /// The moment when a list or queue reports that some commands are complete.
    fn retire(&mut self, call: Node, commands: &[Node]) -> Node {
        let retired = self.graph.add(Work::None);
        self.graph.order(call, retired, Bond::Ordered);
        for &command in commands {
            self.graph.order(command, retired, Bond::Ordered);
        }
        retired
    }

    /// "L0 doesn't allow to execute the same regular command list multiple times in parallel."
    /// For in-order lists Tally still promises an order: the execution "first waits
    /// counter >= b(n), so … overlapping executions of one list serialise" (decision 7). An
    /// out-of-order list must be complete before it is executed again.
    fn execute_list(
        &mut self,
        list: ListId,
        engine: Engine,
        call: Node,
        behind: Option<Node>,
    ) -> Result<Vec<Node>, Refusal> {
        let id = self.recording(list)?;
        let desc = self.lists[list.0].desc;
        if engine != desc.engine {
            return Err(Refusal::Misuse("a list of another queue group"));
        }
        if !self.recordings[id.0].closed {
            return Err(Refusal::Misuse("the list is not closed"));
        }
        let last_execution = self.recordings[id.0].executions.last().cloned().unwrap_or_default();
        if desc.order == ListOrder::OutOfOrder {
            self.must_be_complete(&last_execution, call)?;
        }
        let place = Place {
            order: desc.order,
            call,
            behind,
            last_execution: last_execution.last().copied(),
            own: Some(id),
        };
        let mut stream = Stream::default();
        let recording = self.recordings[id.0].clone();
        for command in &recording.commands {
            self.submit(&mut stream, place, command)?;
        }
        if recording.commands.is_empty() {
            // An execution of an empty list takes its turn too, behind the previous one.
            stream.commands.push(self.start(&Stream::default(), place));
        }
        self.finish_execution(id, &recording, &stream.commands)?;
        Ok(stream.commands)
    }

    /// "Each regular command list execution updates state of the events that will be signaled in
    /// that command list", also when another list has signalled them since (ERRATA).
    fn finish_execution(
        &mut self,
        id: RecordingId,
        recording: &Recording,
        nodes: &[Node],
    ) -> Result<(), Refusal> {
        for (index, command) in recording.commands.iter().enumerate() {
            self.replace(command.signal, CbState::Recorded { recording: id, index });
        }
        let (kept, met): (Vec<_>, Vec<_>) =
            self.future_waits.iter().partition(|wait| wait.recording != id);
        self.future_waits = kept;
        for wait in met {
            self.fulfil(&[nodes[wait.index]], wait.waiter)?;
        }
        self.recordings[id.0].executions.push(nodes.to_vec());
        Ok(())
    }
}
