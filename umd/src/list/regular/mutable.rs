// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mutable lists: numbered commands are changed in the recorded packets.
//!
//! The shape of such a command never changes, so that no other command moves and no signal gets
//! another value. Unused places hold a NOP:
//!
//! ```text
//!  WAIT or NOP, a third as many as waits    STAMP or NOP    the command    NOPs for further signals
//! ```
//!
//! The application waits for the list's executions before it changes a command, so arguments are written
//! directly to the memory that the device reads. The packets are copied there when the list is closed again.

use std::iter;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use tally_uapi::eu::BLOCK_ALIGN;
use tally_uapi::packet::{MAX_OPERANDS, Packet, WAITS_PER_PACKET, flag, opcode};
use tally_ze::{ze_event_handle_t, ze_result_t};

use super::{Recorder, Regular, Signalled, State};
use crate::error::{Error, Result};
use crate::handle::{self, Counted};
use crate::list::command::{self, Command};
use crate::list::launch::{self, Launch};
use crate::list::packets::{nop, stamp};
use crate::list::target::{Condition, Keep, Post, Signal, Target};
use crate::list::waits::{self, WaitList};
use crate::sync::event::{Event, EventKind};
use crate::sync::timestamp::Timestamp;
use crate::sync::wait;

/// Longest wait, in ns, for the end of an execution whose events the application has waited for already.
const ENDING: u64 = 100_000_000;

const MOST_OPERANDS: usize = MAX_OPERANDS as usize;

/// The state that a mutable list has in addition to a regular one.
#[derive(Clone, Default)]
pub(super) struct Mutable {
    /// Number of the first of `commands`; lower numbers belonged to earlier recordings.
    first: u64,
    /// Whether the last number is reserved for the command that is appended next.
    is_asked: bool,
    /// The commands by number; `None`: nothing was appended under that number.
    commands: Vec<Option<Place>>,
    /// The signals of all counter-based events, in the order of the commands.
    signals: Vec<Named>,
}

/// The packets and operands of a command.
#[derive(Clone)]
struct Place {
    /// Its first packet.
    start: usize,
    /// The conditions to wait for, one for each event of the append.
    waits: Vec<Shape>,
    /// Operands of the recording that its waits may use.
    operands: Vec<usize>,
    launch: Option<LaunchPlace>,
    signal: Option<SignalPlace>,
}

#[derive(Clone)]
struct LaunchPlace {
    /// The DISPATCH.
    packet: usize,
    /// Address and size of the argument block, if it belongs to this list and command alone.
    block: Option<(u64, u64)>,
}

#[derive(Clone)]
struct SignalPlace {
    shape: Shape,
    /// Number of the signal, if the list's counter signals the event.
    k: u32,
    /// The packet whose write signals the event, if it is not the list's counter.
    post: Option<usize>,
    /// The packet for STAMP, if the event has times.
    stamp: Option<usize>,
}

/// A signal of a counter-based event.
#[derive(Clone)]
struct Named {
    k: u32,
    handle: Counted<ze_event_handle_t>,
    timestamp: Option<Timestamp>,
}

/// "The type, scope and flags" of an event; an event that replaces it has to have the same.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shape {
    is_counter_based: bool,
    is_aggregated: bool,
    signal_scope: u32,
    wait_scope: u32,
    cb_flags: u32,
    timestamps: bool,
}

impl Shape {
    fn of(event: &Event) -> Self {
        let traits = &event.traits;
        Self {
            is_counter_based: matches!(event.kind, EventKind::CounterBased(_)),
            is_aggregated: matches!(&event.kind, EventKind::CounterBased(it) if it.is_aggregated()),
            signal_scope: traits.signal_scope,
            wait_scope: traits.wait_scope,
            cb_flags: traits.cb_flags,
            timestamps: traits.timestamps,
        }
    }

    fn must_match(self, event: &Event, name: &str) -> Result {
        if self == Self::of(event) {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "{name}: type, scope or flags are not those of the event that the command was appended with"
        )))
    }
}

impl Mutable {
    /// Ends the recording: its command numbers become invalid.
    pub(super) fn restart(&mut self) {
        self.first += self.commands.len() as u64;
        self.is_asked = false;
        self.commands.clear();
        self.signals.clear();
    }

    /// Whether the command that is appended next has a number, so that it may be changed later.
    pub(super) fn is_asked(&self) -> bool {
        self.is_asked
    }

    /// Marks the argument blocks as shared by the list and a copy of it: neither may write to them any more.
    pub(super) fn share_blocks(&mut self) {
        for launch in self.commands.iter_mut().flatten().filter_map(|it| it.launch.as_mut()) {
            launch.block = None;
        }
    }

    /// The timestamp slots that the list keeps.
    pub(super) fn timestamps(&mut self) -> impl Iterator<Item = &mut Timestamp> {
        self.signals.iter_mut().filter_map(|it| it.timestamp.as_mut())
    }

    fn slot(&mut self, number: u64) -> Result<&mut Option<Place>> {
        let index = number.checked_sub(self.first).and_then(|it| usize::try_from(it).ok());
        let slot = index.and_then(|it| self.commands.get_mut(it)).filter(|it| it.is_some());
        slot.ok_or_else(|| {
            Error::invalid(format!("commandId: no command of the list has the number {number}"))
        })
    }
}

impl Regular {
    /// Makes the list mutable, so that its commands may be changed.
    ///
    /// # Errors
    /// Those of [`Regular::create`].
    pub fn mutable(self: Arc<Self>) -> Arc<Self> {
        let mut state = self.lock();
        state.mutable = Some(Box::default());
        state.special = true;
        drop(state);
        self
    }

    /// The number of the command that is appended next.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: the list is closed or not mutable.
    pub fn next_command(&self) -> Result<u64> {
        let mut state = self.lock();
        if state.closed {
            return Err(Error::invalid("hCommandList: the list is closed"));
        }
        let mutable = state.as_mutable()?;
        mutable.is_asked = true;
        mutable.commands.push(None);
        Ok(mutable.first + mutable.commands.len() as u64 - 1)
    }

    /// Keeps an object to which a command may refer later.
    pub fn keep(&self, what: &(impl Keep + ?Sized)) {
        self.lock().memory.keep(what);
    }

    /// Refuses to change a list that is running. Its last event may be set a little before the list ends.
    ///
    /// # Errors
    /// HANDLE_OBJECT_IN_USE, DEVICE_LOST.
    pub fn must_rest(&self) -> Result {
        let state = self.lock();
        let counter = state.recording.counter();
        if !state.recording.is_submitted() || counter.is_settled() {
            return Ok(());
        }
        let (cell, value) = (counter.cell(), counter.reserved());
        drop(state);
        if wait::host_wait(self.shared.vm(), cell, value, ENDING)? {
            return Ok(());
        }
        Err(Error::new(
            ze_result_t::ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE,
            "hCommandList: an execution of the list was not waited for",
        ))
    }

    /// Appends to a mutable list; returns the command's number if one was requested.
    #[cold]
    pub(super) fn append_mutable(
        &self,
        state: &mut State,
        command: &Command<'_>,
        signal: Option<Signal<'_>>,
        waits: WaitList<'_, '_>,
    ) -> Result<Option<u64>> {
        let events = waits.collect::<Result<Vec<&Event>>>()?;
        let mut again = events.iter().map(|&event| Ok(event));
        command::append(&mut Recorder { list: self, state }, command, signal, &mut again)?;
        Ok(state.appended(signal, &events))
    }

    /// Changes the launch of a command. The caller has called [`Regular::must_rest`].
    ///
    /// # Errors
    /// INVALID_ARGUMENT: there is no such command, or it is no launch. Out of memory.
    pub fn update_launch(&self, number: u64, launch: &Launch<'_>) -> Result {
        let mut guard = self.lock();
        let state = &mut *guard;
        let place = state.as_mutable()?.slot(number)?.as_ref().and_then(|it| it.launch.clone());
        let Some(LaunchPlace { packet, block }) = place else {
            return Err(Error::invalid("commandId: the command launches no kernel"));
        };
        let bytes = launch::block_bytes(launch);
        let block = match block {
            Some(block) if bytes <= block.1 => block,
            _ => (Recorder { list: self, state }.memory(bytes, BLOCK_ALIGN)?.va(), bytes),
        };
        let to = ptr::with_exposed_provenance_mut::<u8>(block.0 as usize);
        if let Some(to) = NonNull::new(to) {
            // SAFETY: the recording's arena keeps the block, which was allocated with at least this size
            // and belongs to this command alone; the caller has made sure that no execution reads it.
            unsafe { launch::write_block(to, launch) };
        }
        state.packets[packet] =
            in_place_of(&state.packets[packet], launch::dispatch(launch, block.0));
        state.is_stale = true;
        if let Some(place) = state.as_mutable()?.slot(number)? {
            place.launch = Some(LaunchPlace { packet, block: Some(block) });
        }
        Ok(())
    }

    /// Notes that the list was changed and has to be closed again. It accepts no further commands.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: it is not mutable.
    pub fn reopen(&self) -> Result {
        let mut state = self.lock();
        state.as_mutable()?;
        state.is_stale = true;
        Ok(())
    }

    /// Changes the wait list of a command. `None` in place of an event removes that wait, `None` for the list
    /// removes all. The caller has called [`Regular::must_rest`].
    ///
    /// # Errors
    /// INVALID_SIZE: the number of events differs; INVALID_ARGUMENT: the kinds of events differ, or there is
    /// no such command; INVALID_SYNCHRONIZATION_OBJECT; out of memory.
    pub fn update_waits(&self, number: u64, events: Option<&[Option<&Event>]>) -> Result {
        let mut guard = self.lock();
        let state = &mut *guard;
        let Some(mut place) = state.as_mutable()?.slot(number)?.take() else { return Ok(()) };
        let none = vec![None; place.waits.len()];
        let done = self.rewrite_waits(state, &mut place, events.unwrap_or(&none));
        let index = number - state.as_mutable()?.first;
        state.as_mutable()?.commands[index as usize] = Some(place);
        done
    }

    fn rewrite_waits(
        &self,
        state: &mut State,
        place: &mut Place,
        events: &[Option<&Event>],
    ) -> Result {
        if events.len() != place.waits.len() {
            return Err(Error::new(
                ze_result_t::ZE_RESULT_ERROR_INVALID_SIZE,
                format!(
                    "numWaitEvents: {}, but the command was appended with {}",
                    events.len(),
                    place.waits.len()
                ),
            ));
        }
        for (event, shape) in events.iter().zip(&place.waits) {
            if let Some(event) = event {
                event.check()?;
                shape.must_match(event, "phWaitEvents")?;
            }
        }
        let (first, user_memory) = (state.operands.len(), state.memory.user_memory.len());
        let conditions = self.conditions(state, events);
        let bindings = state.operands.split_off(first);
        let more = bindings.len().saturating_sub(place.operands.len());
        let conditions = conditions.and_then(|conditions| match first + more {
            0..=MOST_OPERANDS => Ok(conditions),
            _ => Err(Error::new(
                ze_result_t::ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY,
                "hCommandList: the list has as many waits as it may have",
            )),
        });
        let conditions =
            conditions.inspect_err(|_| state.memory.user_memory.truncate(user_memory))?;
        place.operands.extend(first..first + more);
        state.operands.resize(first + more, None);
        let mut bindings = bindings.into_iter();
        for &operand in &place.operands {
            state.operands[operand] = bindings.next().flatten();
        }
        let packets = waits::packets(conditions.into_iter().map(|condition| match condition {
            Condition::Operand(new) => {
                Condition::Operand(place.operands[new as usize - first] as u32)
            }
            other => other,
        }));
        let places = wait_places(place.waits.len());
        let packets = packets.into_iter().chain(iter::repeat(nop(0)));
        let mut gone = Vec::new();
        for (to, packet) in state.packets[place.start..][..places].iter_mut().zip(packets) {
            gone.extend(waits::addresses(to));
            *to = packet;
        }
        state.memory.forget(&gone);
        state.is_stale = true;
        Ok(())
    }

    fn conditions(&self, state: &mut State, events: &[Option<&Event>]) -> Result<Vec<Condition>> {
        let mut target = Recorder { list: self, state };
        let events = events.iter().flatten();
        let conditions = events.map(|event| match target.orders(event) {
            true => Ok(Condition::Met),
            false => target.condition(event),
        });
        conditions.collect()
    }

    /// Changes the signal event of a command. The caller has called [`Regular::must_rest`].
    ///
    /// # Errors
    /// INVALID_ARGUMENT: the kind of event differs, or there is no such command. Out of memory.
    pub fn update_signal(&self, number: u64, signal: Option<Signal<'_>>) -> Result {
        let mut guard = self.lock();
        let state = &mut *guard;
        let place = state.as_mutable()?.slot(number)?.as_ref().and_then(|it| it.signal.clone());
        let Some(place) = place else {
            return match signal {
                None => Ok(()),
                Some(_) => Err(Error::invalid(
                    "hSignalEvent: the command was appended without a signal event",
                )),
            };
        };
        if let Some(signal) = &signal {
            signal.event.check_signal()?;
            place.shape.must_match(signal.event, "hSignalEvent")?;
        }
        let (slot, timestamp) = match (&signal, place.stamp) {
            (Some(signal), Some(_)) => {
                command::timestamp_of(&mut Recorder { list: self, state }, signal.event)?
            }
            _ => (None, None),
        };
        // This pushes nothing if it fails.
        let mut reach = |word| command::reach_word(&mut Recorder { list: self, state }, word);
        let post = match &signal {
            Some(signal) => command::event_post(signal.event, &mut reach)?,
            None => None,
        };
        if let Some(packet) = place.stamp {
            state.packets[packet] = slot.map_or(nop(0), stamp);
        }
        if let Some(packet) = place.post {
            let packet = &mut state.packets[packet];
            let gone = packet.post.address;
            Post::detach(packet);
            if let Some(post) = post {
                post.attach(packet);
            }
            state.memory.forget(&[gone]);
        }
        if place.shape.is_counter_based {
            match signal.as_ref().filter(|_| place.shape.is_aggregated) {
                None => state.rename(place.k, signal.as_ref(), timestamp),
                Some(signal) => set_timestamp(signal.event, timestamp),
            }
        }
        state.is_stale = true;
        Ok(())
    }
}

impl State {
    fn as_mutable(&mut self) -> Result<&mut Mutable> {
        self.mutable.as_deref_mut().ok_or_else(|| {
            Error::invalid("hCommandList: it was not created as a mutable command list")
        })
    }

    /// Records the place of the command that was just appended, and gives it its fixed shape.
    fn appended(&mut self, signal: Option<Signal<'_>>, waits: &[&Event]) -> Option<u64> {
        let (start, k) = (self.mark.packets, self.recording.signals());
        let operands = (self.mark.operands..self.operands.len()).collect();
        let mutable = self.mutable.as_deref_mut()?;
        if let Some(signal) = signal.filter(|it| is_view(it.event)) {
            let timestamp = self.signalled.iter().rev().find(|it| it.k == k);
            let timestamp = timestamp.and_then(|it| it.timestamp.clone());
            mutable.signals.push(Named { k, handle: handle::counted(signal.raw), timestamp });
        }
        if !std::mem::take(&mut mutable.is_asked) {
            return None;
        }
        let is_wait = |packet: &&Packet| packet.header.opcode == opcode::WAIT;
        let used = self.packets[start..].iter().take_while(is_wait).count();
        let places = wait_places(waits.len());
        let spare = iter::repeat_n(nop(0), places.saturating_sub(used));
        self.packets.splice(start + used..start + used, spare);
        let body = start + places.max(used);
        let packets = self.packets.get(body..).unwrap_or_default();
        let find = |code| packets.iter().position(|it| it.header.opcode == code).map(|i| body + i);
        let several = find(opcode::PREDICATE).is_some();
        let launch = find(opcode::DISPATCH).filter(|_| !several);
        // A word in ordinary memory is written at the address that the command has found.
        let user_memory = self.memory.user_memory.get(self.mark.user_memory..).unwrap_or_default();
        let posts = |event| {
            let found = user_memory.iter().map(move |memory| {
                command::event_post(event, |word| Ok(memory.range().finds(word).unwrap_or(word)))
            });
            iter::once(command::event_post(event, Ok)).chain(found).filter_map(Result::ok).flatten()
        };
        let signal = signal.map(|signal| SignalPlace {
            shape: Shape::of(signal.event),
            k,
            post: posts(signal.event)
                .find_map(|post| packets.iter().rposition(|it| post.is_of(it)))
                .map(|i| body + i),
            stamp: find(opcode::STAMP),
        });
        let place = Place {
            start,
            waits: waits.iter().map(|event| Shape::of(event)).collect(),
            operands,
            launch: launch.map(|packet| LaunchPlace { packet, block: None }),
            signal,
        };
        let last = mutable.commands.last_mut()?;
        *last = Some(place);
        Some(mutable.first + mutable.commands.len() as u64 - 1)
    }

    /// From now on signal `k` belongs to another event, or to none.
    fn rename(&mut self, k: u32, signal: Option<&Signal<'_>>, timestamp: Option<Timestamp>) {
        let Some(mutable) = self.mutable.as_deref_mut() else { return };
        let handle = signal.map_or_else(Counted::none, |it| handle::counted(it.raw));
        let old = mutable.signals.iter_mut().find(|it| it.k == k);
        let Some(old) = old.map(|it| std::mem::replace(it, Named { k, handle, timestamp })) else {
            return;
        };
        if old.handle != handle {
            self.settle(old.handle);
        }
        self.settle(handle);
    }

    /// Makes an event name the last of its signals in the list, or none.
    fn settle(&mut self, handle: Counted<ze_event_handle_t>) {
        let Some(mutable) = &self.mutable else { return };
        // SAFETY: applications do not destroy an event while they change a list that signals it; the
        // handle's count shows whether it was destroyed before.
        let Some(event) = (unsafe { handle.get() }) else { return };
        let EventKind::CounterBased(event) = &event.kind else { return };
        let last = mutable.signals.iter().rev().find(|it| it.handle == handle).cloned();
        let known = self.signalled.iter().position(|it| it.handle == handle);
        match (last, known) {
            (Some(Named { k, timestamp, .. }), known) => {
                let place = known.unwrap_or(self.signalled.len());
                let entry = Signalled { handle, k, timestamp: timestamp.clone() };
                match self.signalled.get_mut(place) {
                    Some(it) => *it = entry,
                    None => self.signalled.push(entry),
                }
                event.record(&self.recording, k, place, timestamp);
            }
            (None, Some(known)) => {
                self.signalled[known].handle = Counted::none();
                event.leave(&self.recording);
            }
            (None, None) => {}
        }
    }
}

/// Whether the list's counter signals the event.
fn is_view(event: &Event) -> bool {
    matches!(&event.kind, EventKind::CounterBased(event) if !event.is_aggregated())
}

fn set_timestamp(event: &Event, timestamp: Option<Timestamp>) {
    if let EventKind::CounterBased(event) = &event.kind {
        event.set_timestamp(timestamp);
    }
}

/// Number of packets that a command reserves for its waits.
fn wait_places(waits: usize) -> usize {
    waits.div_ceil(WAITS_PER_PACKET)
}

/// A launch with the order and the signal of the one that it replaces.
fn in_place_of(old: &Packet, mut new: Packet) -> Packet {
    let kept = flag::ORDERED | flag::POST_SYNC | flag::FROM_BASE;
    new.header.flags |= old.header.flags & kept;
    new.header.post_op = old.header.post_op;
    new.post = old.post;
    new
}
