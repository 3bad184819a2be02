// SPDX-License-Identifier: MIT OR Apache-2.0
//! A toy driver: the smallest implementation that can run programs as the architecture describes.
//!
//! It shares nothing with the [model](crate::model) but the arithmetic of commands. Where the model has
//! a graph, the toy has the parts of a driver: counter slots that grow, bases of executions, events
//! that are pairs of slot and value, rings, and conditions that are polled. So the two can disagree,
//! and each [`Fault`] makes them.

mod calls;
pub mod device;

use crate::faults::Fault;
use crate::program::backend::{Answered, Backend, BackendError, CounterAddress, Times, Wait};
use crate::program::{
    Cell, Command, Engine, EventId, EventKind, FenceId, ListDesc, ListId, ListKind, ListOrder,
    Object, Op, QueueId,
};
use device::{Change, Condition, Device, Packet, Slot};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The time that a host wait makes no progress, with other threads running, before it counts as a hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// The maximum number of device steps between two calls.
const STEPS_BETWEEN_CALLS: usize = 6;

/// The increment of each append to an aggregated event's word.
const INCREMENT: u64 = 3;
/// The value that completes an external event.
const FINAL_VALUE: u64 = 10;

#[derive(Clone, Copy, Debug)]
enum Pair {
    Complete,
    Counter(Slot, u64),
    /// A place in a recording; see decision 7.
    Recorded(usize, usize),
}

#[derive(Clone, Copy, Debug)]
enum Event {
    CounterBased(Pair),
    /// A pair of the user's word and its final value, which is not replaced.
    Aggregated(Pair),
    /// The state that another event had when it was opened.
    Opened(Pair),
    Regular(usize),
    Destroyed,
}

#[derive(Clone, Copy, Debug)]
enum RecordedWait {
    Pair(Pair),
    Cell(usize),
    /// Set by the fault that captures too late.
    Event(EventId),
}

#[derive(Clone, Debug)]
struct RecordedCommand {
    op: Op,
    waits: Vec<RecordedWait>,
    signal: Option<EventId>,
    early: Option<u32>,
    /// The slot for its times.
    timestamp: Option<usize>,
    /// The slot whose times it reads, and the place to which it writes them.
    reads: Option<(usize, usize)>,
}

#[derive(Debug)]
struct Recording {
    slot: Slot,
    /// The counter that its commands write: the same, but for a fault.
    signals: Slot,
    /// Set by a fault: events do not take the states of its executions.
    quiet: bool,
    /// b(1), "fixed when the recording is made, so it is known before any execution".
    first_base: u64,
    /// b(n) of the latest execution.
    base: u64,
    earlier_base: u64,
    executions: usize,
    commands: Vec<RecordedCommand>,
}

#[derive(Debug)]
struct List {
    desc: ListDesc,
    slot: Slot,
    /// The ring of an immediate list, and the last stream there.
    ring: usize,
    stream: usize,
    /// The recording of a regular list.
    recording: usize,
}

/// A word of the user's.
#[derive(Clone, Copy, Debug)]
struct Word {
    slot: Slot,
    /// The event is complete when the word is at least this.
    value: u64,
    /// The change that a signal makes to it.
    signal: Option<Change>,
}

/// A CB event whose state is replaced only when a packet is complete: because of a fault.
#[derive(Debug)]
struct LateReplacement {
    event: EventId,
    state: Pair,
    stream: usize,
    packet: usize,
}

#[derive(Debug)]
struct State {
    device: Device,
    fault: Option<Fault>,
    lists: Vec<Option<List>>,
    recordings: Vec<Recording>,
    events: Vec<Event>,
    /// For each event that has one, the user's word; it stays after the event is destroyed.
    words: Vec<Option<Word>>,
    /// For each event, whether it has times, and the slot that they are in.
    timestamps: Vec<(bool, Option<usize>)>,
    /// Event cells of the fences.
    fences: Vec<usize>,
    /// For each queue its ring.
    queues: Vec<usize>,
    /// The largest reserved value of each slot.
    reserved: Vec<u64>,
    free_slots: Vec<Slot>,
    late: Vec<LateReplacement>,
}

/// The toy driver.
#[derive(Debug)]
pub struct Toy {
    state: Mutex<State>,
    changed: Condvar,
    threaded: bool,
}

impl Toy {
    /// Creates one for programs on one thread: the seed determines everything.
    #[must_use]
    pub fn new(seed: u64, fault: Option<Fault>) -> Self {
        let state = State {
            device: Device::new(seed, fault),
            fault,
            lists: Vec::new(),
            recordings: Vec::new(),
            events: Vec::new(),
            words: Vec::new(),
            timestamps: Vec::new(),
            fences: Vec::new(),
            queues: Vec::new(),
            reserved: Vec::new(),
            free_slots: Vec::new(),
            late: Vec::new(),
        };
        Toy { state: Mutex::new(state), changed: Condvar::new(), threaded: false }
    }

    /// Creates one for programs on several threads: a wait that cannot continue waits for their calls.
    #[must_use]
    pub fn threaded(seed: u64, fault: Option<Fault>) -> Self {
        Toy { threaded: true, ..Toy::new(seed, fault) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One call: the device runs a little before and after it.
    fn call<T>(&self, call: impl FnOnce(&mut State) -> Answered<T>) -> Answered<T> {
        let mut state = self.lock();
        state.run_a_little();
        let answer = call(&mut state);
        state.run_a_little();
        drop(state);
        self.changed.notify_all();
        answer
    }

    /// Runs the device until `done` holds; `false` when nothing is left that could make it hold.
    fn run_until(&self, done: impl Fn(&State) -> bool) -> bool {
        let mut state = self.lock();
        loop {
            if done(&state) {
                return true;
            }
            if state.advance() {
                continue;
            }
            if !self.threaded {
                return false;
            }
            self.changed.notify_all();
            let waited = self.changed.wait_timeout(state, PATIENCE);
            let (guard, result) = waited.unwrap_or_else(PoisonError::into_inner);
            state = guard;
            if result.timed_out() {
                return false;
            }
        }
    }
}

fn refuse<T>(call: &str, answer: &str) -> Answered<T> {
    Err(BackendError { call: call.into(), answer: answer.into() })
}

impl State {
    fn faulty(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    fn advance(&mut self) -> bool {
        let moved = self.device.advance();
        let (device, events) = (&self.device, &mut self.events);
        self.late.retain(|late| {
            let wait = !device.is_packet_done(late.stream, late.packet);
            if !wait && matches!(events[late.event.0], Event::CounterBased(_)) {
                events[late.event.0] = Event::CounterBased(late.state);
            }
            wait
        });
        moved
    }

    fn run_a_little(&mut self) {
        // Now and then it runs until nothing moves, so that a query sees everything that can be ready.
        let steps = match self.device.below(8) {
            0 => usize::MAX,
            1..=4 => 0,
            _ => self.device.below(STEPS_BETWEEN_CALLS),
        };
        for _ in 0..steps {
            if !self.advance() {
                break;
            }
        }
    }

    fn list(&mut self, list: ListId) -> Answered<&mut List> {
        match self.lists.get_mut(list.0).and_then(Option::as_mut) {
            Some(list) => Ok(list),
            None => refuse("a list function", "invalid handle"),
        }
    }

    /// "A counter slot is never zeroed on reuse: the next owner goes on from its last value."
    fn take_slot(&mut self) -> Slot {
        match self.free_slots.pop() {
            Some(slot) => {
                if self.faulty(Fault::SlotZeroed) {
                    self.device.counters[slot] = 0;
                    self.reserved[slot] = 0;
                }
                slot
            }
            None => {
                self.device.counters.push(0);
                self.reserved.push(0);
                self.reserved.len() - 1
            }
        }
    }

    /// A counter that no list owns.
    fn new_word(&mut self, event: EventId, value: u64, signal: Option<Change>) -> Pair {
        self.device.counters.push(0);
        self.reserved.push(0);
        let slot = self.reserved.len() - 1;
        put(&mut self.words, event.0, Some(Word { slot, value, signal }), || None);
        Pair::Counter(slot, value)
    }

    fn word(&self, event: EventId) -> Option<Word> {
        self.words.get(event.0).copied().flatten()
    }

    fn new_recording(&mut self, slot: Slot) -> usize {
        let base = self.reserved[slot];
        self.recordings.push(Recording {
            slot,
            signals: slot,
            quiet: false,
            first_base: base,
            base,
            earlier_base: base,
            executions: 0,
            commands: Vec::new(),
        });
        self.recordings.len() - 1
    }

    /// A slot with a reserved value that was not reached is retired.
    fn must_retire(&self, recording: usize) -> bool {
        let Recording { executions, ref commands, .. } = self.recordings[recording];
        executions == 0 && !commands.is_empty() && !self.faulty(Fault::ReservedNotRetired)
    }

    /// The condition that a CB event's state stands for at this moment.
    fn bind(&self, pair: Pair) -> Option<Condition> {
        match pair {
            Pair::Complete => None,
            Pair::Counter(slot, value) => Some(Condition::Counter(slot, value)),
            Pair::Recorded(recording, index) => {
                let recording = &self.recordings[recording];
                let base = match recording.executions {
                    0 if self.faulty(Fault::UnsubmittedIsMet) => return None,
                    0 => recording.first_base,
                    _ if self.faulty(Fault::WaitBoundToEarlierExecution) => recording.earlier_base,
                    _ => recording.base,
                };
                Some(Condition::Counter(recording.slot, base + index as u64 + 1))
            }
        }
    }

    fn capture(&self, event: EventId) -> RecordedWait {
        match self.events[event.0] {
            Event::Regular(cell) => RecordedWait::Cell(cell),
            Event::CounterBased(_) if self.faulty(Fault::WaitCapturedLate) => {
                RecordedWait::Event(event)
            }
            Event::CounterBased(pair) | Event::Aggregated(pair) if self.is_elided(event, pair) => {
                RecordedWait::Pair(Pair::Complete)
            }
            Event::CounterBased(pair) | Event::Aggregated(pair) => RecordedWait::Pair(pair),
            Event::Opened(pair) => RecordedWait::Pair(pair),
            Event::Destroyed => RecordedWait::Pair(Pair::Complete),
        }
    }

    /// Whether a fault leaves out a wait for a word that is met when the wait is appended.
    fn is_elided(&self, event: EventId, pair: Pair) -> bool {
        self.faulty(Fault::WordWaitElided)
            && matches!((pair, self.word(event)), (Pair::Counter(slot, value), Some(word))
                if slot == word.slot && self.device.holds(Condition::Counter(slot, value)))
    }

    fn conditions(&self, waits: &[RecordedWait]) -> Vec<Condition> {
        let dropped = usize::from(self.faulty(Fault::WaitDropped));
        let condition = |wait: &RecordedWait| match *wait {
            RecordedWait::Cell(cell) => Some(Condition::Cell(cell)),
            RecordedWait::Pair(pair) => self.bind(pair),
            RecordedWait::Event(event) => match self.events[event.0] {
                Event::CounterBased(pair) | Event::Aggregated(pair) => self.bind(pair),
                Event::Opened(pair) => self.bind(pair),
                Event::Regular(_) | Event::Destroyed => None,
            },
        };
        waits.iter().skip(dropped).filter_map(condition).collect()
    }

    /// A packet, without its counter.
    fn packet(&self, command: &RecordedCommand) -> Packet {
        let waits = self.conditions(&command.waits);
        let mut packet = Packet::new(command.op, waits, !command.waits.is_empty());
        packet.early = command.early;
        packet.timestamp = command.timestamp;
        packet.reads = command.reads;
        if let Some(Event::Regular(cell)) = command.signal.map(|event| self.events[event.0]) {
            packet.cells.push((cell, true));
        }
        if let Op::ResetEvent(event) = command.op
            && let Event::Regular(cell) = self.events[event.0]
            && !self.faulty(Fault::DeviceResetIgnored)
        {
            packet.cells.push((cell, false));
        }
        packet.word = self.change(command);
        packet
    }

    /// The change that a command makes to a word of the user's.
    fn change(&self, command: &RecordedCommand) -> Option<(Slot, Change)> {
        match (command.op, command.signal) {
            (Op::ResetEvent(event), _) => self.word(event).map(|word| (word.slot, Change::Set(0))),
            (Op::SetWord(event), _) => {
                self.word(event).map(|word| (word.slot, Change::Set(word.value)))
            }
            (_, Some(event)) => self.word(event).and_then(|word| Some((word.slot, word.signal?))),
            _ => None,
        }
    }

    fn replace(&mut self, event: Option<EventId>, state: Pair) {
        let Some(event) = event else { return };
        let aggregated = matches!(self.events[event.0], Event::Aggregated(_));
        if matches!(self.events[event.0], Event::CounterBased(_))
            || aggregated && self.faulty(Fault::AggregateReplaced)
        {
            self.events[event.0] = Event::CounterBased(state);
        }
    }

    fn append(&mut self, list: ListId, command: &Command) -> Answered<bool> {
        let waits = command.waits.iter().map(|&event| self.capture(event)).collect();
        let early = match command.op {
            Op::Copy { src, .. } if self.faulty(Fault::CopyReadsAtAppend) => {
                Some(self.device.memory[src.0])
            }
            _ => None,
        };
        let &mut List { desc, slot, stream, recording, .. } = self.list(list)?;
        let (timestamp, reads) = (self.new_timestamp(command.signal), self.reads(command.op));
        let signal = command.signal;
        let recorded = RecordedCommand { op: command.op, waits, signal, early, timestamp, reads };
        if desc.kind == ListKind::Regular {
            let index = self.recordings[recording].commands.len();
            self.recordings[recording].commands.push(recorded);
            if !self.faulty(Fault::RecordedKeepsState) {
                self.replace(command.signal, Pair::Recorded(recording, index));
                self.set_timestamp(signal, timestamp);
            }
            return Ok(false);
        }
        let mut packet = self.packet(&recorded);
        // Only in-order lists have a counter.
        if desc.order == ListOrder::InOrder {
            self.reserved[slot] += 1;
            packet.counter = Some((slot, self.reserved[slot]));
        }
        let value = self.reserved[slot];
        let packets = &mut self.device.streams[stream].packets;
        packets.push(packet);
        let packet = packets.len() - 1;
        match command.signal {
            Some(event) if self.faulty(Fault::EventReplacedLate) => {
                let state = Pair::Counter(slot, value);
                self.late.push(LateReplacement { event, state, stream, packet });
            }
            event => self.replace(event, Pair::Counter(slot, value)),
        }
        self.set_timestamp(signal, timestamp);
        Ok(desc.kind == ListKind::ImmediateSynchronous)
    }

    /// Starts an execution as a new stream of a ring, once some conditions hold.
    fn execute(&mut self, ring: usize, list: ListId, mut entry: Vec<Condition>) -> Answered<usize> {
        let &mut List { desc, recording: id, .. } = self.list(list)?;
        let recording = &self.recordings[id];
        let signals = recording.commands.len() as u64;
        let (slot, earlier_base) = (recording.slot, recording.base);
        let (signalled, quiet) = (recording.signals, recording.quiet);
        let base = match recording.executions {
            0 => recording.first_base,
            _ if self.faulty(Fault::BaseOffByOne) => (recording.base + signals).saturating_sub(1),
            _ => recording.base + signals,
        };
        // Waits are bound before this execution becomes the latest one, except those for itself.
        let commands = recording.commands.clone();
        let mut packets: Vec<Packet> =
            commands.iter().map(|command| self.packet(&self.without_own(id, command))).collect();
        let counts = desc.order == ListOrder::InOrder;
        if counts {
            for (index, packet) in packets.iter_mut().enumerate() {
                packet.counter = Some((signalled, base + index as u64 + 1));
            }
            self.reserved[slot] = base + signals;
        }
        let serial = counts && !self.faulty(Fault::ExecutionsOverlap);
        entry.extend(serial.then_some(Condition::Counter(slot, base)));
        let stream = self.device.stream(ring, desc.order, entry);
        self.device.streams[stream].packets = packets;
        let recording = &mut self.recordings[id];
        (recording.base, recording.earlier_base) = (base, earlier_base);
        recording.executions += 1;
        for (index, command) in commands.iter().enumerate() {
            let Some(event) = command.signal else { continue };
            let state = self.events[event.0];
            let elsewhere =
                !matches!(state, Event::CounterBased(Pair::Recorded(own, _)) if own == id);
            let recorded_late = self.faulty(Fault::RecordedKeepsState);
            let kept = self.faulty(Fault::ExecutionKeepsState) && elsewhere && !recorded_late;
            if !kept && !quiet {
                self.replace(Some(event), Pair::Recorded(id, index));
                self.set_timestamp(Some(event), command.timestamp);
            }
        }
        Ok(stream)
    }

    /// Without the waits for the list's own earlier commands, which an in-order list meets by its
    /// order.
    fn without_own(&self, own: usize, command: &RecordedCommand) -> RecordedCommand {
        let mut command = command.clone();
        for wait in &mut command.waits {
            if matches!(wait, RecordedWait::Pair(Pair::Recorded(recording, _)) if *recording == own)
            {
                *wait = RecordedWait::Pair(Pair::Complete);
            }
        }
        command
    }

    fn fence(&mut self, ring: usize, fence: FenceId) {
        let cell = self.fences[fence.0];
        if self.faulty(Fault::FenceEarly) {
            self.device.cells[cell] = true;
        }
        let stream = self.device.stream(ring, ListOrder::InOrder, Vec::new());
        let mut packet = Packet::new(Op::SignalEvent, Vec::new(), false);
        packet.cells.push((cell, true));
        self.device.streams[stream].packets.push(packet);
        self.device.streams[stream].fence = true;
    }

    fn regular(&self, event: EventId) -> Answered<usize> {
        match self.events[event.0] {
            Event::Regular(cell) => Ok(cell),
            _ => refuse("an event function", "no cell"),
        }
    }

    fn new_cell(&mut self) -> usize {
        self.device.cells.push(false);
        self.device.cells.len() - 1
    }

    /// The target of a host wait on the object, determined when it is called.
    fn target(&mut self, object: Object) -> Answered<Target> {
        Ok(match object {
            Object::List(list) => {
                let ring = self.list(list)?.ring;
                Target::Streams(self.device.rings[ring].clone())
            }
            Object::Queue(queue) => {
                Target::Streams(self.device.rings[self.queues[queue.0]].clone())
            }
            Object::Fence(fence) => Target::Condition(Condition::Cell(self.fences[fence.0])),
            Object::Event(event) => match self.events[event.0] {
                Event::Regular(cell) => Target::Condition(Condition::Cell(cell)),
                Event::CounterBased(pair) | Event::Aggregated(pair) | Event::Opened(pair) => {
                    match self.bind(pair) {
                        Some(condition) => Target::Condition(condition),
                        None => Target::Streams(Vec::new()),
                    }
                }
                Event::Destroyed => return refuse("zeEventQueryStatus", "invalid handle"),
            },
        })
    }

    fn is_ready(&self, target: &Target) -> bool {
        match target {
            Target::Streams(streams) => self.device.is_done(streams),
            Target::Condition(condition) => self.device.holds(*condition),
        }
    }
}

/// Sets an element; threads create objects in any order, so earlier ones may still be missing.
fn put<T>(all: &mut Vec<T>, index: usize, item: T, missing: impl FnMut() -> T) {
    if all.len() <= index {
        all.resize_with(index + 1, missing);
    }
    all[index] = item;
}

enum Target {
    Streams(Vec<usize>),
    Condition(Condition),
}

impl Backend for Toy {
    fn create_list(&self, list: ListId, desc: ListDesc) -> Answered<()> {
        self.call(|state| {
            let slot = state.take_slot();
            let (mut ring, mut stream, mut recording) = (0, 0, 0);
            if desc.kind == ListKind::Regular {
                recording = state.new_recording(slot);
            } else {
                state.device.rings.push(Vec::new());
                ring = state.device.rings.len() - 1;
                stream = state.device.stream(ring, desc.order, Vec::new());
            }
            let created = Some(List { desc, slot, ring, stream, recording });
            put(&mut state.lists, list.0, created, || None);
            Ok(())
        })
    }

    fn create_queue(&self, queue: QueueId, _engine: Engine) -> Answered<()> {
        self.call(|state| {
            state.device.rings.push(Vec::new());
            let ring = state.device.rings.len() - 1;
            put(&mut state.queues, queue.0, ring, || 0);
            Ok(())
        })
    }

    fn create_event(&self, event: EventId, kind: EventKind) -> Answered<()> {
        self.call(|state| state.create_event(event, kind))
    }

    fn create_fence(&self, fence: FenceId, _queue: QueueId) -> Answered<()> {
        self.call(|state| {
            let cell = state.new_cell();
            put(&mut state.fences, fence.0, cell, || 0);
            Ok(())
        })
    }

    fn append(&self, list: ListId, command: &Command) -> Answered<()> {
        let synchronous = self.call(|state| state.append(list, command))?;
        if synchronous && !self.synchronize(Object::List(list), Wait::Completion)? {
            return refuse("an append to a synchronous list", "nothing, for ever");
        }
        Ok(())
    }

    fn clone_list(&self, list: ListId, copy: ListId) -> Answered<()> {
        self.call(|state| state.clone_list(list, copy))
    }

    fn share(&self, event: EventId, opened: EventId) -> Answered<()> {
        self.call(|state| state.share(event, opened))
    }

    fn append_lists(
        &self,
        list: ListId,
        lists: &[ListId],
        waits: &[EventId],
        signal: Option<EventId>,
    ) -> Answered<()> {
        let synchronous = self.call(|state| state.append_lists(list, lists, waits, signal))?;
        if synchronous && !self.synchronize(Object::List(list), Wait::Completion)? {
            return refuse("an execution by a synchronous list", "nothing, for ever");
        }
        Ok(())
    }

    fn close(&self, list: ListId) -> Answered<()> {
        self.call(|state| state.list(list).map(|_| ()))
    }

    fn reset_list(&self, list: ListId) -> Answered<()> {
        self.call(|state| {
            let &mut List { mut slot, recording, .. } = state.list(list)?;
            if state.must_retire(recording) {
                slot = state.take_slot();
            }
            let recording = state.new_recording(slot);
            let list = state.list(list)?;
            (list.slot, list.recording) = (slot, recording);
            Ok(())
        })
    }

    fn destroy_list(&self, list: ListId) -> Answered<()> {
        self.call(|state| {
            let &mut List { slot, recording, desc, .. } = state.list(list)?;
            if desc.kind != ListKind::Regular || !state.must_retire(recording) {
                state.free_slots.push(slot);
            }
            state.lists[list.0] = None;
            Ok(())
        })
    }

    fn destroy_event(&self, event: EventId) -> Answered<()> {
        self.call(|state| {
            state.events[event.0] = Event::Destroyed;
            Ok(())
        })
    }

    fn execute(&self, queue: QueueId, lists: &[ListId], fence: Option<FenceId>) -> Answered<()> {
        self.call(|state| {
            let ring = state.queues[queue.0];
            for &list in lists {
                state.execute(ring, list, Vec::new())?;
            }
            if let Some(fence) = fence {
                state.fence(ring, fence);
            }
            Ok(())
        })
    }

    fn synchronize(&self, object: Object, wait: Wait) -> Answered<bool> {
        match wait {
            Wait::Poll => self.call(|state| {
                let target = state.target(object)?;
                Ok(state.is_ready(&target))
            }),
            Wait::Completion => {
                let target = self.lock().target(object)?;
                Ok(self.run_until(|state| state.is_ready(&target)))
            }
        }
    }

    fn times(&self, event: EventId) -> Answered<Option<Times>> {
        self.call(|state| {
            let target = state.target(Object::Event(event))?;
            Ok(state.is_ready(&target).then(|| state.times(event)))
        })
    }

    fn times_at(&self, place: usize) -> Answered<Times> {
        self.call(|state| Ok(state.device.places[place]))
    }

    fn address(&self, event: EventId) -> Answered<CounterAddress> {
        self.call(|state| {
            let pair = match state.events[event.0] {
                Event::CounterBased(pair) | Event::Aggregated(pair) => state.bind(pair),
                Event::Opened(_) | Event::Regular(_) | Event::Destroyed => None,
            };
            match pair {
                Some(Condition::Counter(slot, value)) => {
                    Ok(CounterAddress { address: slot as u64, value })
                }
                _ => refuse("zexEventGetDeviceAddress", "no counter"),
            }
        })
    }

    fn reached(&self, CounterAddress { address, value }: CounterAddress) -> Answered<bool> {
        self.call(|state| Ok(state.device.holds(Condition::Counter(address as Slot, value))))
    }

    fn host_signal(&self, event: EventId) -> Answered<()> {
        self.call(|state| {
            if let Some(word) = state.word(event) {
                match word.signal {
                    Some(_) => state.device.counters[word.slot] += INCREMENT,
                    None => state.device.counters[word.slot] = word.value,
                }
                return Ok(());
            }
            let cell = state.regular(event)?;
            state.device.cells[cell] = true;
            Ok(())
        })
    }

    fn host_reset(&self, event: EventId) -> Answered<()> {
        self.call(|state| {
            if let Some(word) = state.word(event) {
                state.device.counters[word.slot] = 0;
                return Ok(());
            }
            let cell = state.regular(event)?;
            state.device.cells[cell] =
                state.faulty(Fault::HostResetIgnored) && state.device.cells[cell];
            Ok(())
        })
    }

    fn reset_fence(&self, fence: FenceId) -> Answered<()> {
        self.call(|state| {
            let cell = state.fences[fence.0];
            state.device.cells[cell] = false;
            Ok(())
        })
    }

    fn read(&self, cell: Cell) -> Answered<u32> {
        self.call(|state| Ok(state.device.memory[cell.0]))
    }

    fn write(&self, cell: Cell, value: u32) -> Answered<()> {
        self.call(|state| {
            state.device.memory[cell.0] = value;
            Ok(())
        })
    }
}
