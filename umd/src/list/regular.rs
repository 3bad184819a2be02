// SPDX-License-Identifier: MIT OR Apache-2.0
//! Regular lists: commands are recorded once and executed any number of times by CALL packets.

use std::any::Any;
use std::sync::Arc;

use tally_uapi::cell::{CELL_SIZE, CellKind};
use tally_uapi::packet::{
    Call, Header, MAX_OPERANDS, MAX_RECORDING_PACKETS, Operand, PACKET_SIZE, Packet, Place,
    PostSync, TimestampSlot, opcode,
};
use tally_ze::{ze_event_counter_based_flags_t as CbFlags, ze_event_handle_t, ze_result_t};

use super::command::{self, Command};
use super::fast_path::{self, Single};
use super::target::{Condition, Keep, Post, Signal, Target};
use super::waits::{WaitList, dead};
use crate::error::{Error, Result};
use crate::handle::{self, Counted};
use crate::hang::calls::CallLog;
use crate::hang::observed::{Look, Recorded};
use crate::hang::{self, names};
use crate::submit::arena::{Arena, Span};
use crate::sync::cb_event::{Bound, CbEvent, Resolved, Source};
use crate::sync::cell::Cell;
use crate::sync::cell::SIGNALLED;
use crate::sync::event::{self, Event, EventKind, Lists};
use crate::sync::event_pool::{EventPool, PoolPlace};
use crate::sync::recording::Recording;
use crate::sync::resets::Engine;
use crate::sync::shared::Shared;
use crate::sync::spin::{SpinGuard, SpinLock};
use crate::sync::timestamp::Timestamp;
use crate::vm::Access;
use crate::vm::heap::Block;

mod binding;
mod branch;
mod clone;
mod mutable;
mod user_memory;

use binding::{Binding, operand};
use mutable::Mutable;
use user_memory::{Claim, UserMemory};

/// Bytes by which memory for arguments grows, and the most that a list may have of it.
const ARGUMENTS: (u64, u64) = (16 << 10, 1 << 30);
/// The same for timestamp slots.
const TIMESTAMPS: (u64, u64) = (4 << 10, 256 << 20);
/// Number of kept objects that are searched for one that is kept already.
const RECENT: usize = 8;

/// A regular list.
pub struct Regular {
    shared: Arc<Shared>,
    in_order: bool,
    /// Whether it stands for an immediate list in a graph.
    is_branch: bool,
    state: SpinLock<State>,
}

struct State {
    closed: bool,
    /// Whether it is closed or mutable or its calls are logged, so that an append has to check further.
    special: bool,
    /// Whether commands were changed since it was closed, so that it has to be closed again.
    is_stale: bool,
    recording: Arc<Recording>,
    packets: Vec<Packet>,
    /// `None`: nothing waits for this operand.
    operands: Vec<Option<Binding>>,
    signalled: Vec<Signalled>,
    /// The regular events that every execution resets: pool and index.
    resets: Vec<(Arc<EventPool>, u32)>,
    /// Whether one of the commands makes earlier writes visible to the host.
    publishes: bool,
    memory: Memory,
    /// The lengths to restore when an append fails.
    mark: Mark,
    /// The calls that wrote the packets; only while the hang report is on.
    calls: Option<Box<CallLog>>,
    /// Set in a mutable list only.
    mutable: Option<Box<Mutable>>,
}

/// Memory that the device uses while an execution runs.
struct Memory {
    /// The packets, once the list is closed.
    image: Option<Block>,
    arguments: Arena,
    timestamps: Arena,
    kept: Vec<Arc<dyn Any + Send + Sync>>,
    /// Address of the object that was kept last: often the next command keeps the same one.
    latest: usize,
    /// Ordinary memory that the commands refer to.
    user_memory: Vec<Arc<UserMemory>>,
}

#[derive(Clone, Copy, Default)]
struct Mark {
    packets: usize,
    operands: usize,
    signals: u32,
    user_memory: usize,
}

/// A counter-based event that every execution signals.
#[derive(Clone)]
struct Signalled {
    handle: Counted<ze_event_handle_t>,
    k: u32,
    timestamp: Option<Timestamp>,
}

/// The operand blocks of the executions that a call requests, and the ordinary memory that they use. To
/// be dropped when all executions are submitted.
pub struct Calls {
    blocks: std::vec::IntoIter<(Option<Span>, usize)>,
    claims: Vec<Claim>,
}

/// The operand block of an execution that is bound, and the ordinary memory that it uses.
pub struct Bindings {
    span: Option<Span>,
    _claims: Vec<Claim>,
}

impl Regular {
    /// An open, empty list.
    ///
    /// # Errors
    /// Those of the heap.
    pub fn create(shared: Arc<Shared>, in_order: bool) -> Result<Arc<Self>> {
        Self::create_as(shared, in_order, false)
    }

    fn create_as(shared: Arc<Shared>, in_order: bool, is_branch: bool) -> Result<Arc<Self>> {
        shared.reap();
        let recording = Recording::new(Arc::new(shared.counter()?));
        let mut state = State {
            closed: false,
            special: false,
            is_stale: false,
            recording: recording.clone(),
            packets: Vec::new(),
            operands: Vec::new(),
            signalled: Vec::new(),
            resets: Vec::new(),
            publishes: false,
            memory: Memory::new(),
            mark: Mark::default(),
            calls: None,
            mutable: None,
        };
        state.restart(recording, in_order);
        Ok(Arc::new(Self { shared, in_order, is_branch, state: SpinLock::new(state) }))
    }

    /// Appends a command; returns its number in a mutable list, if one was requested. Nothing is appended to
    /// a closed list.
    ///
    /// # Errors
    /// Those of [`command::append`].
    #[inline]
    pub fn append(
        &self,
        command: &Command<'_>,
        signal: Option<Signal<'_>>,
        waits: WaitList<'_, '_>,
    ) -> Result<Option<u64>> {
        let mut state = self.lock();
        if state.closed {
            return command::lose(waits).map(|()| None);
        }
        state.publishes |= self.shared.publishes_late() && command.publishes(signal.as_ref());
        if state.mutable.is_some() {
            return self.append_mutable(&mut state, command, signal, waits);
        }
        command::append(&mut Recorder { list: self, state: &mut state }, command, signal, waits)?;
        Ok(None)
    }

    /// Appends a command by the fast path. False: the command has to take the general path.
    ///
    /// # Errors
    /// Those of [`Regular::append`].
    #[inline]
    pub fn append_fast<'e>(
        &self,
        command: &impl Single,
        signal: Option<Signal<'_>>,
        waits: impl ExactSizeIterator<Item = Result<&'e Event>>,
    ) -> Result<bool> {
        let mut state = self.lock();
        if state.special {
            if state.closed {
                return command::lose(waits).map(|()| true);
            }
            if state.mutable.is_some() {
                return Ok(false);
            }
        }
        fast_path::append(&mut Recorder { list: self, state: &mut state }, command, signal, waits)
    }

    /// The recording with the values that the list's commands reserve.
    pub fn recording(&self) -> Arc<Recording> {
        self.lock().recording.clone()
    }

    /// Makes the list ready for execution. Closing it twice is no error.
    ///
    /// # Errors
    /// OUT_OF_DEVICE_MEMORY, OUT_OF_HOST_MEMORY.
    pub fn close(&self) -> Result {
        let mut state = self.lock();
        if state.closed && !state.is_stale {
            return Ok(());
        }
        state.write_image(&self.shared)?;
        if state.recording.signals() == 0 {
            // The execution of an empty list still has a completion to signal.
            state.recording.add_signal();
        }
        state.closed = true;
        state.special = true;
        state.is_stale = false;
        Ok(())
    }

    /// Reopens the list as an empty one. Executions that still run are not affected.
    ///
    /// # Errors
    /// Those of the heap.
    pub fn reset(&self) -> Result {
        let mut state = self.lock();
        let before = state.recording.counter().cell();
        let counter = if state.recording.end() {
            state.recording.counter().clone()
        } else {
            Arc::new(self.shared.counter()?)
        };
        names::moved(before, counter.cell());
        self.retire(&mut state);
        state.restart(Recording::new(counter), self.in_order);
        drop(state);
        self.shared.reap();
        Ok(())
    }

    /// The state that lists, queues and events of the VM share.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Whether an execution makes writes visible to the host before its end. Always true of a mutable list,
    /// since its signals may change.
    pub(super) fn publishes(&self) -> bool {
        let state = self.lock();
        state.publishes || state.mutable.is_some()
    }

    /// Whether the list was closed.
    pub fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Leaves the recording's memory to the executions that still run; if there are none, empties it for reuse.
    fn retire(&self, state: &mut State) {
        let counter = state.recording.counter();
        let submitted = state.recording.is_submitted();
        if !submitted || counter.is_settled() {
            state.memory.clear();
            return;
        }
        let memory = std::mem::replace(&mut state.memory, Memory::new());
        let (cell, value) = (counter.cell(), counter.reserved());
        self.shared.retire(cell, value, Box::new((memory, counter.clone())));
    }

    /// Allocates memory for the operands of all lists before anything is submitted.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: a list is not closed; INVALID_SYNCHRONIZATION_OBJECT; out of memory.
    pub(super) fn prepare<T: Target>(lists: &[&Self], target: &mut T) -> Result<Calls> {
        let mut blocks = Vec::with_capacity(lists.len());
        let mut claims = Vec::new();
        for list in lists {
            let state = list.lock();
            if !state.closed || state.is_stale {
                return Err(Error::invalid("phCommandLists: a list is not closed"));
            }
            for binding in state.operands.iter().flatten() {
                match binding.resolve() {
                    Resolved::Dead(..) => return Err(dead()),
                    Resolved::Captured => return Err(event::internal("phWaitEvents")),
                    _ => {}
                }
            }
            if !state.memory.user_memory.is_empty() {
                claims.push(Claim::new(&state.memory.user_memory, state.recording.counter())?);
            }
            let count = state.operands.len();
            drop(state);
            let bytes = (count * size_of::<Operand>()) as u64;
            let span = if count == 0 { None } else { Some(target.memory(bytes, 8)?) };
            blocks.push((span, count));
        }
        Ok(Calls { blocks: blocks.into_iter(), claims })
    }

    /// Submits one execution: binds its waits to what the events name before it, assigns its base, and makes
    /// the events that it signals name it. The caller has to publish the packet.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: another thread has changed the list since `prepare`.
    pub(super) fn submit(&self, calls: &mut Calls) -> Result<Packet> {
        let state = self.lock();
        let span = state.bind(calls)?;
        let base = state.advance();
        Ok(state.call(base, span))
    }

    /// The first third of [`Regular::submit`] for lists that wait for each other: binds the waits of an
    /// execution to what the events name before it.
    ///
    /// # Errors
    /// Those of [`Regular::submit`].
    pub(super) fn bind(&self, mut calls: Calls) -> Result<Bindings> {
        let span = self.lock().bind(&mut calls)?;
        Ok(Bindings { span, _claims: calls.claims })
    }

    /// The second third, which cannot fail: assigns the execution's base and makes the events that it signals
    /// name it.
    pub(super) fn advance(&self) -> u64 {
        self.lock().advance()
    }

    /// The last third, when all lists have their bases: binds the waits for signals of the other lists and
    /// returns the packet.
    pub(super) fn call(&self, base: u64, bindings: Bindings) -> Packet {
        let state = self.lock();
        if let Some(span) = bindings.span {
            state.bind_signals(span);
        }
        state.call(base, bindings.span)
    }

    /// Counts the resets of an execution that was submitted to an engine.
    pub(super) fn is_submitted(&self, engine: Engine) {
        for (pool, index) in &self.lock().resets {
            pool.reset_is_submitted(*index, engine);
        }
    }

    /// The counter cell of the execution with this base, and the value at which the execution is complete.
    pub(super) fn end_of(&self, base: u64) -> (Cell, u64) {
        let state = self.lock();
        let signals = u64::from(state.recording.signals());
        (state.recording.counter().cell(), base + signals)
    }

    #[inline]
    fn lock(&self) -> SpinGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    /// Writes the operands of the next execution.
    fn bind(&self, calls: &mut Calls) -> Result<Option<Span>> {
        let (span, count) = calls.blocks.next().unwrap_or((None, 0));
        if !self.closed || self.is_stale || count != self.operands.len() {
            return Err(Error::invalid("phCommandLists: a list is changed by another thread"));
        }
        if let Some(span) = span {
            for (i, binding) in self.operands.iter().enumerate() {
                let resolved = binding.as_ref().map_or(Resolved::Met, Binding::resolve);
                let operand = operand(resolved);
                // SAFETY: `prepare` allocated room for this number of operands, and nothing reads it yet.
                unsafe { span.ptr.cast::<Operand>().add(i).write(operand) };
            }
        }
        Ok(span)
    }

    /// Rewrites the operands that are signals of lists rather than events.
    fn bind_signals(&self, span: Span) {
        for (i, binding) in self.operands.iter().enumerate() {
            if let Some(binding @ Binding::Signal(..)) = binding {
                let operand = operand(binding.resolve());
                // SAFETY: as in `bind`, which has written the same operands: a list of a graph is never changed.
                unsafe { span.ptr.cast::<Operand>().add(i).write(operand) };
            }
        }
    }

    /// Begins an execution: assigns its base and makes the events that it signals name it.
    fn advance(&self) -> u64 {
        let base = self.recording.submit();
        for (place, signalled) in self.signalled.iter().enumerate() {
            signalled.renew(&self.recording, place);
        }
        base
    }

    /// The packet of an execution.
    fn call(&self, base: u64, span: Option<Span>) -> Packet {
        let count = if span.is_some() { self.operands.len() } else { 0 };
        let header =
            Header { opcode: opcode::CALL, param: self.recording.signals(), ..Default::default() };
        let packets = self.packets.len() as u32;
        let image = self.memory.image.as_ref().filter(|_| packets != 0);
        Call {
            header,
            recording: image.map_or(0, Block::va),
            packets,
            operand_count: count as u32,
            operands: span.map_or(0, Span::va),
            counter: self.recording.counter().cell().va(),
            base,
            post: PostSync::default(),
        }
        .into()
    }
}

impl Recorded for Regular {
    fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn look(&self, look: Look<'_>) {
        let state = self.lock();
        look(&state.recording, &state.packets, state.calls.as_deref());
    }
}

impl Drop for Regular {
    fn drop(&mut self) {
        let mut state = self.lock();
        if !state.recording.end() {
            names::died(state.recording.counter().cell());
        }
        self.retire(&mut state);
    }
}

impl Memory {
    fn new() -> Self {
        Self {
            image: None,
            arguments: Arena::new(ARGUMENTS.0, ARGUMENTS.1),
            timestamps: Arena::new(TIMESTAMPS.0, TIMESTAMPS.1),
            kept: Vec::new(),
            latest: 0,
            user_memory: Vec::new(),
        }
    }

    #[inline(always)]
    fn keep(&mut self, what: &(impl Keep + ?Sized)) {
        if self.latest != what.identity().addr() {
            self.keep_another(what);
        }
    }

    #[inline(never)]
    fn keep_another(&mut self, what: &(impl Keep + ?Sized)) {
        let identity = what.identity();
        let same = |it: &Arc<dyn Any + Send + Sync>| Arc::as_ptr(it).cast() == identity;
        self.latest = identity.addr();
        if !self.kept.iter().rev().take(RECENT).any(same) {
            self.kept.push(what.share());
        }
    }

    /// A slot for the times of a command.
    fn timestamp(&mut self, shared: &Shared) -> Result<Timestamp> {
        let size = size_of::<TimestampSlot>() as u64;
        let span = self.timestamps.take(shared.vm().heap(), size, 8, u64::MAX, || 0)?;
        Ok(Timestamp::new(self.timestamps.chunk()?.clone(), span.va()))
    }

    fn clear(&mut self) {
        self.arguments.clear();
        self.timestamps.clear();
        self.kept.clear();
        self.latest = 0;
        self.user_memory.clear();
    }

    /// Drops ordinary memory that only removed packets used; `gone`: the addresses in these packets.
    fn forget(&mut self, gone: &[u64]) {
        self.user_memory.retain(|memory| !gone.iter().any(|&va| memory.range().holds(va)));
    }
}

impl State {
    fn restart(&mut self, recording: Arc<Recording>, in_order: bool) {
        if !in_order {
            // The end of the CALL is the only signal of an out-of-order recording.
            recording.add_signal();
        }
        self.recording = recording;
        self.closed = false;
        self.is_stale = false;
        self.packets.clear();
        self.operands.clear();
        self.signalled.clear();
        self.resets.clear();
        self.publishes = false;
        self.calls = hang::log_calls();
        if let Some(mutable) = &mut self.mutable {
            mutable.restart();
        }
        self.special = self.calls.is_some() || self.mutable.is_some();
    }

    /// Copies the packets to memory that the device reads.
    fn write_image(&mut self, shared: &Shared) -> Result {
        let bytes = self.packets.len() as u64 * PACKET_SIZE;
        if bytes != 0 {
            let fits = self.memory.image.as_ref().is_some_and(|image| image.size() >= bytes);
            if !fits {
                self.memory.image = Some(shared.vm().heap().alloc(bytes, PACKET_SIZE)?);
            }
            if let Some(image) = &self.memory.image {
                let to = image.ptr().cast::<Packet>().as_ptr();
                // SAFETY: the block is large enough, aligned, and no execution uses it yet.
                unsafe { to.copy_from_nonoverlapping(self.packets.as_ptr(), self.packets.len()) };
            }
        }
        if crate::log::wants_packets() {
            let image = self.memory.image.as_ref().filter(|_| bytes != 0).map_or(0, Block::va);
            let packets = self.packets.iter().enumerate().map(|(i, &packet)| (i as u64, packet));
            crate::log::packets(format_args!("list [{image:#x}]"), Place::Recording, packets);
        }
        Ok(())
    }

    #[cold]
    fn note_call(&mut self) {
        if let Some(calls) = &mut self.calls {
            calls.note(self.packets.len() as u64);
        }
    }

    #[cold]
    fn undo_call(&mut self) {
        if let Some(calls) = &mut self.calls {
            calls.undo();
        }
    }
}

impl Signalled {
    /// Makes the event, if it still exists, name this recording.
    fn renew(&self, recording: &Arc<Recording>, place: usize) {
        // SAFETY: applications do not destroy an event while they execute a list that signals it.
        let Some(event) = (unsafe { self.handle.get() }) else { return };
        let EventKind::CounterBased(event) = &event.kind else { return };
        if event.names(recording, self.k) {
            return;
        }
        event.record(recording, self.k, place, self.timestamp.clone());
    }
}

#[inline(never)]
fn add_signalled(signalled: &mut Vec<Signalled>, raw: ze_event_handle_t, k: u32) {
    signalled.push(Signalled { handle: handle::counted(raw), k, timestamp: None });
}

/// The list while a command is appended.
struct Recorder<'a> {
    list: &'a Regular,
    state: &'a mut State,
}

impl Target for Recorder<'_> {
    const KIND: Lists = Lists::REGULAR;

    #[inline]
    fn in_order(&self) -> bool {
        self.list.in_order
    }

    fn may_change(&self) -> bool {
        self.state.mutable.as_ref().is_some_and(|it| it.is_asked())
    }

    #[inline]
    fn begin(&mut self, packets: usize) -> Result {
        let state = &mut *self.state;
        if state.special {
            state.note_call();
        }
        if state.packets.len() + packets > MAX_RECORDING_PACKETS as usize
            || state.operands.len() + packets * 3 > MAX_OPERANDS as usize
        {
            state.undo_call();
            return Err(Error::new(
                ze_result_t::ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY,
                "hCommandList: the list has as many commands as it may have",
            ));
        }
        state.mark = Mark {
            packets: state.packets.len(),
            operands: state.operands.len(),
            signals: state.recording.signals(),
            user_memory: state.memory.user_memory.len(),
        };
        state.packets.reserve(packets);
        Ok(())
    }

    #[inline]
    fn push(&mut self, packet: Packet) {
        self.state.packets.push(packet);
    }

    #[inline]
    fn memory(&mut self, size: u64, align: u64) -> Result<Span> {
        let heap = self.list.shared.vm().heap();
        self.state.memory.arguments.take(heap, size, align, u64::MAX, || 0)
    }

    #[inline]
    fn reach(&mut self, address: u64, size: u64, access: Access) -> Result<u64> {
        let vm = self.list.shared.vm();
        if vm.reaches(address, size) {
            return Ok(address);
        }
        let range = vm.user_range(address, size, access)?;
        let va = range.translate(address);
        self.state.memory.user_memory.push(UserMemory::new(range));
        Ok(va)
    }

    fn timestamp(&mut self) -> Result<Timestamp> {
        self.state.memory.timestamp(&self.list.shared)
    }

    #[inline]
    fn keep(&mut self, what: &(impl Keep + ?Sized)) {
        self.state.memory.keep(what);
    }

    #[inline]
    fn orders(&self, event: &Event) -> bool {
        if self.list.is_branch && branch::is_external(event) {
            return matches!(&event.kind, EventKind::CounterBased(it) if it.is_of(&self.state.recording));
        }
        let own = Source::recording(&self.state.recording);
        matches!(&event.kind, EventKind::CounterBased(event) if event.source().is_ordered_by(own))
    }

    fn condition(&mut self, whole: &Event) -> Result<Condition> {
        let event = match &whole.kind {
            EventKind::Regular(place) => {
                return Ok(Condition::AtLeast(place.cell().va(), CellKind::Event, SIGNALLED));
            }
            EventKind::CounterBased(event) => event,
        };
        let state = &mut *self.state;
        let bound = event.bind(&state.recording);
        if self.list.is_branch {
            branch::may_wait(whole)?;
        }
        if self.list.is_branch && branch::is_outside(whole, &bound) {
            let binding = Binding::Event(handle::counted_of(whole));
            state.operands.push(Some(binding));
            return Ok(Condition::Operand(state.operands.len() as u32 - 1));
        }
        let binding = match bound {
            Bound::Met => return Ok(Condition::Met),
            Bound::Counter(cell, value) => {
                return Ok(Condition::AtLeast(cell.va(), CellKind::Counter, value));
            }
            Bound::Foreign(word) => {
                let at = self.reach(word.device, CELL_SIZE, Access::Read)?;
                return Ok(Condition::AtLeast(at, CellKind::Foreign, word.value));
            }
            Bound::Recording(recording, _) if recording.is_dead() => return Err(dead()),
            Bound::Recording(recording, _) if recording.is_captured() && !self.list.is_branch => {
                return Err(event::internal("phWaitEvents"));
            }
            Bound::Recording(recording, k) => Binding::Signal(recording, k),
        };
        state.operands.push(Some(binding));
        Ok(Condition::Operand(state.operands.len() as u32 - 1))
    }

    #[inline]
    fn reserve(&mut self) -> Option<Post> {
        if !self.list.in_order {
            return None;
        }
        let recording = &self.state.recording;
        let k = recording.add_signal();
        Some(Post::from_base(recording.counter().cell().va(), u64::from(k)))
    }

    #[inline]
    fn may_signal(&self, event: &Event) -> Result {
        let flags = CbFlags::from_bits_retain(event.traits.cb_flags);
        if self.list.is_branch {
            return branch::may_signal(flags);
        }
        if flags.contains(CbFlags::ZE_EVENT_COUNTER_BASED_FLAG_NON_IMMEDIATE) {
            return Ok(());
        }
        Err(Error::invalid("hSignalEvent: it was created for immediate lists only"))
    }

    #[inline]
    fn name(&mut self, signal: &Signal<'_>, timestamp: Option<Timestamp>) {
        let EventKind::CounterBased(event) = &signal.event.kind else { return };
        if event.is_aggregated() {
            event.set_timestamp(timestamp);
            return;
        }
        let k = self.state.recording.signals();
        let next = self.state.signalled.len();
        let place = event.record(&self.state.recording, k, next, timestamp.clone());
        match self.state.signalled.get_mut(place) {
            Some(known) => (known.k, known.timestamp) = (k, timestamp),
            None => self.state.signalled.push(Signalled {
                handle: handle::counted(signal.raw),
                k,
                timestamp,
            }),
        }
    }

    // This is most of a signal's cost, of which a call would be a fifth.
    #[inline(always)]
    fn name_plain(&mut self, event: &CbEvent, raw: ze_event_handle_t) {
        let State { recording, signalled, .. } = &mut *self.state;
        let k = recording.signals();
        let place = event.record_plain(recording, k, signalled.len());
        match signalled.get_mut(place) {
            Some(known) => known.k = k,
            None => add_signalled(signalled, raw, k),
        }
    }

    fn rollback(&mut self) {
        let Mark { packets, operands, signals, user_memory } = self.state.mark;
        self.state.memory.user_memory.truncate(user_memory);
        self.state.packets.truncate(packets);
        self.state.operands.truncate(operands);
        self.state.recording.truncate(signals);
        self.state.undo_call();
    }

    #[inline]
    fn commit(&mut self) -> Result {
        Ok(())
    }

    #[inline]
    fn engine(&self) -> Option<Engine> {
        None
    }

    fn note_reset(&mut self, event: &PoolPlace) {
        self.state.resets.push((event.pool().clone(), event.index()));
    }
}
