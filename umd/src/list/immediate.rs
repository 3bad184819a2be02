// SPDX-License-Identifier: MIT OR Apache-2.0
//! Immediate lists, and command queues, which are in-order immediate lists that only execute others:
//! a queue of the device, and the counter of what was submitted to it.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tally_uapi::cell::{CELL_SIZE, CellKind};
use tally_uapi::packet::{Packet, TimestampSlot};
use tally_ze::{ze_event_counter_based_flags_t as CbFlags, ze_event_handle_t, ze_result_t};

use super::command::{self, Command};
use super::fast_path::{self, Single};
use super::target::{Condition, Keep, Post, Signal, Target};
use super::waits::{WaitList, dead};
use crate::checks::{self, Checks};
use crate::error::{Error, Result};
use crate::hang::calls::CallLog;
use crate::hang::observed::Stream;
use crate::hang::{self, names};
use crate::submit::arena::{Arena, Span};
use crate::submit::ring::{Place, Ring};
use crate::sync::cb_event::{CbEvent, Resolved, Source};
use crate::sync::cell::Cell;
use crate::sync::cell::SIGNALLED;
use crate::sync::counter::Counter;
use crate::sync::event::{self, Event, EventKind, Lists};
use crate::sync::event_pool::PoolPlace;
use crate::sync::resets::Engine;
use crate::sync::shared::{Shared, Submitter};
use crate::sync::spin::{SpinGuard, SpinLock};
use crate::sync::timestamp::Timestamp;
use crate::sync::wait;
use crate::vm::printf;
use crate::vm::{Access, UserRange};

/// Bytes by which memory for arguments grows, and the most that a list may have of it.
const ARGUMENTS: (u64, u64) = (64 << 10, 64 << 20);
/// The same for timestamp slots.
const TIMESTAMPS: (u64, u64) = (4 << 10, 16 << 20);
/// Bytes of arguments in an out-of-order list after which it has to find out which commands are complete.
const FLUSH: u64 = ARGUMENTS.1 / 4;
/// Number of kept objects after which unused ones are searched for.
const KEPT: usize = 64;

/// A queue of the device with its counter.
pub struct Immediate {
    shared: Arc<Shared>,
    counter: Counter,
    in_order: bool,
    synchronous: bool,
    /// Whether the command that was appended last is to be complete when its call returns, as in synchronous mode.
    at_once: AtomicBool,
    device: u32,
    engine: Engine,
    state: SpinLock<State>,
}

struct State {
    ring: Ring,
    arguments: Arena,
    timestamps: Arena,
    /// Objects that the device uses until the counter has reached a value.
    kept: Vec<(Arc<dyn Any + Send + Sync>, u64)>,
    /// Ordinary memory that the device uses until the counter has reached a value.
    user_ranges: Vec<(UserRange, u64)>,
    /// The length of `kept` at which it is searched.
    prune_at: usize,
    /// Whether the command that is being appended has reserved the counter's next value.
    reserved: bool,
    /// Whether commands were submitted that no value of the counter covers (out-of-order lists).
    uncovered: bool,
    /// Bytes of arguments since the last value that covers all (out-of-order lists).
    uncovered_bytes: u64,
    /// The calls that wrote the packets; only while the hang report is on.
    calls: Option<Box<CallLog>>,
}

impl Immediate {
    /// A queue of the device at `place`.
    ///
    /// # Errors
    /// OUT_OF_DEVICE_MEMORY, OUT_OF_HOST_MEMORY, DEVICE_LOST.
    pub fn create(
        shared: Arc<Shared>,
        place: Place,
        in_order: bool,
        synchronous: bool,
    ) -> Result<Arc<Self>> {
        shared.reap();
        let counter = shared.counter()?;
        let state = SpinLock::new(State {
            ring: Ring::create(shared.vm(), place)?,
            arguments: Arena::new(ARGUMENTS.0, ARGUMENTS.1),
            timestamps: Arena::new(TIMESTAMPS.0, TIMESTAMPS.1),
            kept: Vec::new(),
            user_ranges: Vec::new(),
            prune_at: KEPT,
            reserved: false,
            uncovered: false,
            uncovered_bytes: 0,
            calls: hang::log_calls(),
        });
        let (device, engine) = (place.device, Engine::of(&place));
        let at_once = AtomicBool::new(false);
        let list = Arc::new(Self {
            shared,
            counter,
            in_order,
            synchronous,
            at_once,
            device,
            engine,
            state,
        });
        let submitter: Arc<dyn Submitter> = list.clone();
        list.shared.enlist(Arc::downgrade(&submitter));
        names::enlist(&list);
        Ok(list)
    }

    /// Appends a command and hands it to the device. [`Immediate::settle`] ends the call.
    ///
    /// # Errors
    /// Those of [`command::append`]; DEVICE_LOST.
    #[inline]
    pub fn append(
        &self,
        command: &Command<'_>,
        signal: Option<Signal<'_>>,
        waits: WaitList<'_, '_>,
    ) -> Result {
        let mut state = self.lock();
        self.note_publication(command, signal.as_ref());
        let at_once = waits.len() == 0
            && command.places().is_some_and(|it| self.is_complete_at_once(it, &state));
        command::append(&mut Appender { list: self, state: &mut state }, command, signal, waits)?;
        if at_once {
            self.at_once.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Appends a command by the fast path. False: the command has to take the general path. [`Immediate::settle`]
    /// ends the call.
    ///
    /// # Errors
    /// Those of [`Immediate::append`].
    #[inline]
    pub fn append_fast<'e>(
        &self,
        command: &impl Single,
        signal: Option<Signal<'_>>,
        waits: impl ExactSizeIterator<Item = Result<&'e Event>>,
    ) -> Result<bool> {
        let mut state = self.lock();
        let at_once = waits.len() == 0
            && command.places().is_some_and(|it| self.is_complete_at_once(it, &state));
        let appender = &mut Appender { list: self, state: &mut state };
        let is_appended = fast_path::append(appender, command, signal, waits)?;
        if at_once && is_appended {
            self.at_once.store(true, Ordering::Relaxed);
        }
        Ok(is_appended)
    }

    /// Waits for the appended command in synchronous mode, and if it is to be complete at once. The caller holds no
    /// lock, since the command may wait for another one that another thread has yet to append.
    ///
    /// # Errors
    /// DEVICE_LOST.
    #[inline]
    pub fn settle(&self) -> Result {
        if !self.synchronous && !self.at_once.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.at_once.store(false, Ordering::Relaxed);
        let ended = self.synchronize(u64::MAX);
        printf::flush(ended.is_ok());
        ended.map(drop)
    }

    /// Submits a command without waits and signal to an in-order list; returns the value of the counter at which
    /// it is complete. [`Immediate::finish`] ends the call.
    ///
    /// # Errors
    /// Those of [`Immediate::append`].
    pub fn submit(&self, command: &Command<'_>) -> Result<u64> {
        let mut state = self.lock();
        self.note_publication(command, None);
        let appender = &mut Appender { list: self, state: &mut state };
        command::append(appender, command, None, &mut std::iter::empty())?;
        Ok(self.counter.reserved())
    }

    /// In synchronous mode, waits for a submitted value.
    ///
    /// # Errors
    /// DEVICE_LOST.
    pub fn finish(&self, value: u64) -> Result {
        if self.synchronous {
            let ended = wait::host_wait(self.shared.vm(), self.counter.cell(), value, u64::MAX);
            printf::flush(ended.is_ok());
            ended?;
            self.shared.all_is_complete();
            if self.shared.publishes_late() {
                self.is_seen(value);
            }
        }
        Ok(())
    }

    /// Whether a command between two places is to be complete when its append returns: one place is ordinary memory of
    /// the process, the other is the driver's, and the command has nothing to wait for.
    ///
    /// Intel's driver does so: it copies ordinary memory on the host, or through a buffer of its own
    /// (`preferCopyThroughLockedPtr`, `StagingBufferManager::isValidForStaging`). Programs rely on it and free the
    /// memory without a wait (VkFFT). In a list with earlier commands Intel's driver waits for these too; here the
    /// command follows them, since they may wait for what the host has yet to do. Checks have to see such programs.
    #[inline]
    fn is_complete_at_once(&self, (one, other): (u64, u64), state: &State) -> bool {
        let vm = self.shared.vm();
        vm.in_reservation(one) != vm.in_reservation(other)
            && (self.in_order || !state.uncovered)
            && self.counter.cell().reached(self.counter.reserved())
            && checks::get().is_none()
    }

    /// The value of the counter at which all appended commands are complete, if the list is in-order.
    pub fn last(&self) -> Option<(Cell, u64)> {
        self.in_order.then(|| (self.counter.cell(), self.counter.reserved()))
    }

    /// The counter's word, and the value that the next command may give it.
    pub fn next(&self) -> (u64, u64) {
        (self.counter.cell().va(), self.counter.next())
    }

    /// Notes for the checks that the host knows that all commands are complete, up to a value of the counter.
    #[cold]
    fn is_seen(&self, value: u64) {
        let Some(order) = checks::get().and_then(Checks::order) else { return };
        let cell = self.counter.cell().va();
        match self.in_order {
            true => order.host_saw_up_to(cell, value),
            false => order.host_saw_list(cell),
        }
        checks::drain();
    }

    /// The counter's word.
    pub fn cell(&self) -> Cell {
        self.counter.cell()
    }

    /// Waits until all appended commands are complete; false if the time passes first.
    ///
    /// # Errors
    /// DEVICE_LOST.
    pub fn synchronize(&self, timeout_ns: u64) -> Result<bool> {
        let (cell, value) = self.reserve()?;
        let complete = wait::host_wait(self.shared.vm(), cell, value, timeout_ns)?;
        if complete && self.shared.vm().attends_completion() {
            self.unpin(&mut self.lock());
            self.shared.all_is_complete();
            self.is_seen(value);
        }
        Ok(complete)
    }

    /// Ends the list. Submitted commands are still completed.
    pub fn destroy(self: Arc<Self>) {
        // The counter says when the device is done only if the list ends in order.
        let covered = self.in_order || self.cover(&mut self.lock()).is_ok();
        if covered {
            let (cell, value) = (self.counter.cell(), self.counter.reserved());
            let shared = self.shared.clone();
            shared.retire(cell, value, Box::new(self));
        }
    }

    /// The state that lists, queues and events of the VM share.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Notes, before a command is appended, if it makes earlier writes visible to the host.
    #[inline]
    fn note_publication(&self, command: &Command<'_>, signal: Option<&Signal<'_>>) {
        if self.shared.publishes_late() && command.publishes(signal) {
            self.shared.will_publish(self.counter.cell(), self.counter.next());
        }
    }

    /// Makes the counter's last value cover all commands of an out-of-order list.
    fn cover(&self, state: &mut State) -> Result {
        if !state.uncovered {
            return Ok(());
        }
        let appender = &mut Appender { list: self, state };
        command::append(appender, &Command::Barrier, None, &mut std::iter::empty())
    }

    /// Unpins ordinary memory that the device no longer uses.
    fn unpin(&self, state: &mut State) {
        let cell = self.counter.cell();
        state.user_ranges.retain(|(_, value)| !cell.reached(*value));
    }

    #[inline]
    fn lock(&self) -> SpinGuard<'_, State> {
        self.state.lock()
    }
}

/// An immediate list whose lock is held.
pub(super) struct Held<'a> {
    list: &'a Immediate,
    state: SpinGuard<'a, State>,
}

impl Immediate {
    /// Takes the list's lock, for a command that has parts in several lists.
    pub(super) fn hold(&self) -> Held<'_> {
        Held { list: self, state: self.lock() }
    }
}

impl Held<'_> {
    /// The list, to append to.
    pub(super) fn target(&mut self) -> impl Target + use<'_> {
        Appender { list: self.list, state: &mut self.state }
    }
}

impl Submitter for Immediate {
    fn wait_idle(&self, timeout_ns: u64) -> Result<bool> {
        self.synchronize(timeout_ns)
    }

    fn reserve(&self) -> Result<(Cell, u64)> {
        if !self.in_order {
            self.cover(&mut self.lock())?;
        }
        Ok((self.counter.cell(), self.counter.reserved()))
    }

    fn device(&self) -> u32 {
        self.device
    }
}

/// The list while a command is appended.
struct Appender<'a> {
    list: &'a Immediate,
    state: &'a mut State,
}

impl Appender<'_> {
    /// The value at which the command that is being appended is complete.
    #[inline]
    fn value(&self) -> u64 {
        self.list.counter.next()
    }

    fn prune(&mut self) {
        let cell = self.list.counter.cell();
        self.state.kept.retain(|(_, value)| !cell.reached(*value));
        self.state.prune_at = KEPT.max(2 * self.state.kept.len());
    }
}

impl Target for Appender<'_> {
    const KIND: Lists = Lists::IMMEDIATE;

    #[inline]
    fn in_order(&self) -> bool {
        self.list.in_order
    }

    #[inline]
    fn begin(&mut self, packets: usize) -> Result {
        if self.list.shared.vm().is_lost() {
            return Err(Error::new(
                ze_result_t::ZE_RESULT_ERROR_DEVICE_LOST,
                "the device stopped after a fault; its work is lost",
            ));
        }
        if self.state.uncovered_bytes > FLUSH {
            self.state.uncovered_bytes = 0;
            self.list.cover(self.state)?;
        }
        self.state.reserved = false;
        self.state.ring.reserve(packets)?;
        if let Some(calls) = &mut self.state.calls {
            calls.note(self.state.ring.next());
        }
        Ok(())
    }

    #[inline]
    fn push(&mut self, packet: Packet) {
        self.state.ring.push(packet);
    }

    #[inline]
    fn memory(&mut self, size: u64, align: u64) -> Result<Span> {
        if !self.list.in_order {
            self.state.uncovered_bytes += size;
        }
        let (cell, value) = (self.list.counter.cell(), self.value());
        let heap = self.list.shared.vm().heap();
        self.state.arguments.take(heap, size, align, value, || cell.load())
    }

    #[inline]
    fn reach(&mut self, address: u64, size: u64, access: Access) -> Result<u64> {
        let vm = self.list.shared.vm();
        if vm.reaches(address, size) {
            return Ok(address);
        }
        self.list.unpin(self.state);
        let range = vm.user_range(address, size, access)?;
        range.pin()?;
        let va = range.translate(address);
        let value = self.value();
        self.state.user_ranges.push((range, value));
        Ok(va)
    }

    fn timestamp(&mut self) -> Result<Timestamp> {
        let (cell, value) = (self.list.counter.cell(), self.value());
        let heap = self.list.shared.vm().heap();
        let size = size_of::<TimestampSlot>() as u64;
        let span = self.state.timestamps.take(heap, size, 8, value, || cell.load())?;
        Ok(Timestamp::new(self.state.timestamps.chunk()?.clone(), span.va()))
    }

    #[inline]
    fn keep(&mut self, what: &(impl Keep + ?Sized)) {
        let value = self.value();
        let identity = what.identity();
        let same = |(kept, _): &&mut (Arc<dyn Any + Send + Sync>, u64)| {
            Arc::as_ptr(kept).cast::<()>() == identity
        };
        if let Some((_, until)) = self.state.kept.iter_mut().rev().find(same) {
            *until = value;
            return;
        }
        if self.state.kept.len() >= self.state.prune_at {
            self.prune();
        }
        self.state.kept.push((what.share(), value));
    }

    #[inline]
    fn orders(&self, event: &Event) -> bool {
        let own = Source::counter(self.list.counter.cell());
        self.list.in_order
            && matches!(&event.kind, EventKind::CounterBased(event) if event.source().is_ordered_by(own))
    }

    fn condition(&mut self, event: &Event) -> Result<Condition> {
        let event = match &event.kind {
            EventKind::Regular(place) => {
                return Ok(Condition::AtLeast(place.cell().va(), CellKind::Event, SIGNALLED));
            }
            EventKind::CounterBased(event) => event,
        };
        Ok(match event.resolve() {
            Resolved::Met => Condition::Met,
            Resolved::Counter(cell, value) if cell.reached(value) => Condition::Met,
            Resolved::Counter(cell, value) => {
                Condition::AtLeast(cell.va(), CellKind::Counter, value)
            }
            Resolved::Foreign(word) => {
                let at = self.reach(word.device, CELL_SIZE, Access::Read)?;
                Condition::AtLeast(at, CellKind::Foreign, word.value)
            }
            Resolved::Dead(..) => return Err(dead()),
            Resolved::Captured => return Err(event::internal("phWaitEvents")),
        })
    }

    #[inline]
    fn reserve(&mut self) -> Option<Post> {
        self.state.reserved = true;
        Some(Post::store(self.list.counter.cell().va(), self.value()))
    }

    #[inline]
    fn may_signal(&self, event: &Event) -> Result {
        if CbFlags::from_bits_retain(event.traits.cb_flags)
            .contains(CbFlags::ZE_EVENT_COUNTER_BASED_FLAG_IMMEDIATE)
        {
            return Ok(());
        }
        Err(Error::invalid("hSignalEvent: it was created for regular lists only"))
    }

    #[inline]
    fn name(&mut self, signal: &Signal<'_>, timestamp: Option<Timestamp>) {
        if let EventKind::CounterBased(event) = &signal.event.kind {
            if event.is_aggregated() {
                event.set_timestamp(timestamp);
            } else {
                event.signal(self.list.counter.cell(), self.value(), timestamp);
            }
        }
    }

    #[inline]
    fn name_plain(&mut self, event: &CbEvent, _: ze_event_handle_t) {
        event.signal(self.list.counter.cell(), self.value(), None);
    }

    fn rollback(&mut self) {
        self.state.ring.rollback();
        if let Some(calls) = &mut self.state.calls {
            calls.undo();
        }
        self.state.reserved = false;
    }

    #[inline]
    fn commit(&mut self) -> Result {
        if self.state.reserved {
            self.list.counter.reserve_next();
        }
        if !self.list.in_order {
            self.state.uncovered = !self.state.reserved;
            if self.state.reserved {
                self.state.uncovered_bytes = 0;
            }
        }
        self.state.ring.publish()
    }

    #[inline]
    fn engine(&self) -> Option<Engine> {
        Some(self.list.engine)
    }

    fn note_reset(&mut self, event: &PoolPlace) {
        event.reset_is_submitted(self.list.engine);
    }
}

impl Stream for Immediate {
    fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn cell(&self) -> Cell {
        self.counter.cell()
    }

    fn reserved(&self) -> u64 {
        self.counter.reserved()
    }

    fn look(&self, look: &mut dyn FnMut(&Ring, Option<&CallLog>)) {
        let state = self.lock();
        look(&state.ring, state.calls.as_deref());
    }
}
