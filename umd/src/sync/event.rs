// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events, which commands and the host signal and wait for.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use tally_uapi::ioctl::SemWake;
use tally_uapi::packet::TimestampSlot;
use tally_ze::{
    ze_event_counter_based_flags_t as CbFlags, ze_event_handle_t, ze_event_scope_flags_t as Scopes,
    ze_result_t,
};

use super::cb_event::{CbEvent, Resolved};
use super::cell::SIGNALLED;
use super::counted_ref::CountedRef;
use super::event_pool::{EventPool, PoolPlace};
use super::shared::Shared;
use super::timestamp::Timestamp;
use super::wait;
use crate::checks::order::{Awaited, Effect};
use crate::checks::{self, Checks};
use crate::error::{Error, Result};
use crate::handle::{self, Claimed, Kind, local, object};
use crate::trace;

/// An event.
#[derive(Debug)]
pub struct Event {
    /// Its kind.
    pub kind: EventKind,
    /// The properties with which it was created.
    pub traits: Traits,
    /// The pool from which it was created.
    pub pool: Option<Arc<EventPool>>,
    /// The kinds of lists in which the write that completes a command is the whole signal.
    plain: Lists,
    shared: CountedRef,
}

/// The two kinds of events.
#[derive(Debug)]
pub enum EventKind {
    /// Signalled and reset by host and device.
    Regular(PoolPlace),
    /// A view of a counter.
    CounterBased(CbEvent),
}

/// The properties with which an event was created, as far as they are used.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traits {
    /// `ze_event_desc_t::signal`
    pub signal_scope: u32,
    /// `ze_event_desc_t::wait`
    pub wait_scope: u32,
    /// `ze_event_counter_based_flags_t` of a counter-based event.
    pub cb_flags: u32,
    /// Whether commands write their times.
    pub timestamps: bool,
    /// Whether the host sleeps at once when it waits (`ZE_EVENT_SYNC_MODE_FLAG_LOW_POWER_WAIT`).
    pub low_power: bool,
    /// The handle of the pool from which it was created, or 0.
    pub pool: usize,
    /// Whether it is another process's event, opened here.
    pub imported: bool,
}

impl Traits {
    /// Whether its signal, or a wait for it, makes memory coherent across device and host.
    #[inline]
    pub fn is_seen_by_host(&self) -> bool {
        (self.signal_scope | self.wait_scope) & Scopes::ZE_EVENT_SCOPE_FLAG_HOST.bits() != 0
    }
}

object!(ze_event_handle_t => Event, Kind::Event);

/// Kinds of lists, as the flags of counter-based events name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lists(u32);

impl Lists {
    /// Immediate lists.
    pub const IMMEDIATE: Self = Self(CbFlags::ZE_EVENT_COUNTER_BASED_FLAG_IMMEDIATE.bits());
    /// Regular lists.
    pub const REGULAR: Self = Self(CbFlags::ZE_EVENT_COUNTER_BASED_FLAG_NON_IMMEDIATE.bits());
    const ALL: Self = Self(Self::IMMEDIATE.0 | Self::REGULAR.0);
    /// The kind of an event whose pool may be gone.
    const OF_POOL: u32 = 8;

    /// The kinds of lists in which a signal takes only the write of a counter, according to the event's traits.
    #[inline(always)]
    fn of(shared: &Shared, traits: &Traits) -> Self {
        let publishes = traits.is_seen_by_host() && shared.publishes_late();
        let more = traits.timestamps || traits.imported || publishes;
        if more { Self(0) } else { Self(traits.cb_flags & Self::ALL.0) }
    }
}

impl Event {
    /// An event.
    #[inline]
    pub fn new(
        shared: &Arc<Shared>,
        kind: EventKind,
        traits: Traits,
        pool: Option<Arc<EventPool>>,
    ) -> Self {
        let own = match &kind {
            EventKind::CounterBased(event) => event.is_aggregated(),
            EventKind::Regular(_) => true,
        };
        let plain = if own { Lists(0) } else { Lists::of(shared, &traits) };
        let plain = if pool.is_some() { Lists(plain.0 << Lists::OF_POOL) } else { plain };
        Self { kind, traits, pool, plain, shared: CountedRef::of(shared) }
    }

    /// A handle of a counter-based event that follows only counters. Programs create and destroy such events by
    /// the million, so the usual path accesses the thread's memory once and takes no lock.
    ///
    /// # Errors
    /// OUT_OF_HOST_MEMORY.
    #[inline(always)]
    pub fn create_of_counters(shared: &Arc<Shared>, traits: Traits) -> Result<ze_event_handle_t> {
        // SAFETY: used in this function only.
        if let Some(local) = unsafe { local::at_hand() }
            && let Some(vacant) = local.vacant()
            && let Some(counted) = CountedRef::at_hand(local, shared)
        {
            // All steps that can fail are done, so the event is created in its final place.
            return Ok(vacant.fill(Self::of_counters(Lists::of(shared, &traits), traits, counted)));
        }
        Self::create_elsewhere(shared, traits)
    }

    #[cold]
    fn create_elsewhere(shared: &Arc<Shared>, traits: Traits) -> Result<ze_event_handle_t> {
        let (plain, counted) = (Lists::of(shared, &traits), CountedRef::of(shared));
        handle::create(Self::of_counters(plain, traits, counted))
    }

    #[inline(always)]
    fn of_counters(plain: Lists, traits: Traits, shared: CountedRef) -> Self {
        let kind = EventKind::CounterBased(CbEvent::completed());
        Self { kind, traits, pool: None, plain, shared }
    }

    /// Destroys the event behind a handle.
    ///
    /// # Safety
    /// The rules of [`handle::destroy`] hold.
    ///
    /// # Errors
    /// Those of [`handle::destroy`].
    #[inline(always)]
    pub unsafe fn destroy(raw: ze_event_handle_t, name: &'static str) -> Result {
        // SAFETY: as the caller guarantees.
        let mut claimed = ManuallyDrop::new(unsafe { Claimed::claim(raw, name) }?);
        if claimed.object().owns_nothing()
            // SAFETY: used in this function only.
            && let Some(local) = unsafe { local::at_hand() }
            && claimed.object().shared.leave_at_hand(local)
        {
            local.free(&claimed);
            return Ok(());
        }
        ManuallyDrop::into_inner(claimed).end();
        Ok(())
    }

    /// Whether dropping the event only drops its reference.
    #[inline(always)]
    fn owns_nothing(&mut self) -> bool {
        match &mut self.kind {
            EventKind::CounterBased(event) => self.pool.is_none() && event.owns_nothing(),
            EventKind::Regular(_) => false,
        }
    }

    /// The counter-based part, if in-order lists of this kind may signal the event and the signal takes only the
    /// write that completes a command: no times, no memory but the list's counter, no notes.
    ///
    /// # Errors
    /// Those of [`Event::check`].
    #[inline(always)]
    pub fn as_plain(&self, list: Lists) -> Result<Option<&CbEvent>> {
        let EventKind::CounterBased(event) = &self.kind else { return Ok(None) };
        if self.plain.0 & list.0 != 0 {
            return Ok(Some(event));
        }
        if self.plain.0 & list.0 << Lists::OF_POOL != 0 {
            return self.check().map(|()| Some(event));
        }
        Ok(None)
    }

    /// The state that it shares with the lists of its VM.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Refuses an event whose pool is gone.
    ///
    /// # Errors
    /// INVALID_SYNCHRONIZATION_OBJECT.
    #[inline]
    pub fn check(&self) -> Result {
        match &self.pool {
            Some(pool) if pool.is_destroyed() => Err(Error::new(
                ze_result_t::ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT,
                "hEvent: the pool of the event was destroyed",
            )),
            _ => Ok(()),
        }
    }

    /// Refuses an event that this process may not signal.
    ///
    /// # Errors
    /// Those of [`Event::check`]; INVALID_ARGUMENT.
    #[inline]
    pub fn check_signal(&self) -> Result {
        if self.traits.imported {
            return Err(Error::invalid(
                "hSignalEvent: another process has shared the event; it can only be waited for",
            ));
        }
        self.check()
    }

    /// Waits for it; false if the time passes first.
    ///
    /// # Errors
    /// DEVICE_LOST; INVALID_SYNCHRONIZATION_OBJECT.
    pub fn wait(&self, timeout_ns: u64) -> Result<bool> {
        let complete = self.completes(timeout_ns)?;
        if complete && self.shared.publishes_late() {
            self.is_used_by_host();
            self.is_complete_for_host();
            self.shared.event_is_complete(self.traits.is_seen_by_host());
        }
        Ok(complete)
    }

    fn completes(&self, timeout_ns: u64) -> Result<bool> {
        self.check()?;
        let vm = self.shared.vm();
        let spins = !self.traits.low_power;
        let until = if spins { wait::host_wait } else { wait::sleep };
        match &self.kind {
            EventKind::Regular(place) => match place.pool().import() {
                None => until(vm, place.cell(), SIGNALLED, timeout_ns),
                Some(import) => import.wait(place.cell(), SIGNALLED, timeout_ns, spins),
            },
            EventKind::CounterBased(event) => match event.resolve() {
                Resolved::Met => Ok(true),
                Resolved::Counter(cell, value) if !self.traits.imported => {
                    until(vm, cell, value, timeout_ns)
                }
                Resolved::Counter(cell, value) => match event.import() {
                    None => until(vm, cell, value, timeout_ns),
                    Some(import) => import.imported().wait(cell, value, timeout_ns, spins),
                },
                Resolved::Foreign(word) => {
                    wait::poll(vm, word.host.get(), word.value, timeout_ns, spins)
                }
                Resolved::Captured => Err(Error::new(
                    ze_result_t::ZE_RESULT_ERROR_GRAPH_CAPTURE_UNSUPPORTED,
                    "hEvent: the command that signals it is being captured in a graph",
                )),
                Resolved::Dead(..) if timeout_ns == 0 => Ok(false),
                Resolved::Dead(..) => Err(Error::new(
                    ze_result_t::ZE_RESULT_ERROR_DEVICE_LOST,
                    "hEvent: the list that would signal it was reset or destroyed before it was executed",
                )),
            },
        }
    }

    /// Whether it is complete now.
    ///
    /// # Errors
    /// Those of [`Event::wait`].
    pub fn is_ready(&self) -> Result<bool> {
        self.wait(0)
    }

    /// Signals a regular event from the host.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for a counter-based one.
    pub fn host_signal(&self) -> Result {
        self.host_write(SIGNALLED)
    }

    /// Resets a regular event from the host.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for a counter-based one.
    pub fn host_reset(&self) -> Result {
        self.host_write(0)
    }

    /// Notifies the checks, if there are any.
    #[cold]
    fn is_used_by_host(&self) {
        let Some(checks) = checks::get() else { return };
        let flag = CbFlags::ZE_EVENT_COUNTER_BASED_FLAG_HOST_VISIBLE.bits();
        let visible = self.traits.cb_flags & flag != 0 || self.traits.imported;
        checks.host_uses_event(self.traits.pool, visible);
    }

    /// Notifies the checks that the host knows that the event is complete.
    #[cold]
    fn is_complete_for_host(&self) {
        if let Some(order) = checks::get().and_then(Checks::order)
            && let Some(awaited) = self.awaited()
        {
            order.host_saw(awaited);
        }
    }

    /// What a wait for it waits for at this moment, for the checks; `None`: for nothing.
    pub fn awaited(&self) -> Option<Awaited> {
        match &self.kind {
            EventKind::Regular(place) => {
                Some(Awaited::Word { address: place.cell().va(), needed: 1 })
            }
            EventKind::CounterBased(event) => event.awaited(),
        }
    }

    /// The word of its own that its signals add to: the address, the increment, and the value at which it is complete.
    pub fn word(&self) -> Option<(u64, u64, u64)> {
        match &self.kind {
            EventKind::Regular(place) => Some((place.cell().va(), 1, 1)),
            EventKind::CounterBased(event) => {
                event.aggregated().map(|(word, increment)| (word.device, increment, word.value))
            }
        }
    }

    fn host_write(&self, value: u64) -> Result {
        self.check()?;
        let EventKind::Regular(place) = &self.kind else {
            return Err(Error::invalid(
                "hEvent: a counter-based event is signalled by in-order lists only and never reset",
            ));
        };
        let (cell, vm) = (place.cell(), self.shared.vm());
        if self.shared.publishes_late() {
            self.is_used_by_host();
            if let Some(order) = checks::get().and_then(Checks::order) {
                let address = cell.va();
                order.host_affects(match value {
                    SIGNALLED => Effect::Signal { address, amount: 1, needed: 1 },
                    _ => Effect::Reset { address },
                });
            }
            vm.flush_host();
        }
        if value == SIGNALLED {
            trace::host_signal(cell.va(), value);
        }
        cell.store(value);
        let wake = SemWake { handle: cell.bo(), offset: cell.offset(), ..Default::default() };
        vm.backend().sem_wake(&wake).map_err(|errno| vm.failed("SEM_WAKE", errno))
    }

    /// The slot of the append that signals it, for a command that reads it later.
    ///
    /// # Errors
    /// INVALID_SYNCHRONIZATION_OBJECT: an event without timestamps.
    pub fn slot(&self) -> Result<(u64, Option<Timestamp>)> {
        self.check()?;
        if !self.traits.timestamps {
            return Err(no_timestamps());
        }
        match &self.kind {
            EventKind::Regular(place) => Ok((place.slot(), None)),
            EventKind::CounterBased(event) => {
                let timestamp = event.timestamp().ok_or_else(|| {
                    Error::new(
                        ze_result_t::ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT,
                        "hEvent: no append has signalled it, so it has no times",
                    )
                })?;
                Ok((timestamp.va(), Some(timestamp)))
            }
        }
    }

    /// The times of the command that signalled it; none if it is not complete.
    ///
    /// # Errors
    /// Those of [`Event::slot`] and [`Event::wait`].
    pub fn times(&self) -> Result<Option<TimestampSlot>> {
        if !self.traits.timestamps {
            return Err(no_timestamps());
        }
        // The slot is read first: with the other order, an append in between would give wrong times.
        let timestamp = match &self.kind {
            EventKind::Regular(_) => None,
            EventKind::CounterBased(event) => event.timestamp(),
        };
        if !self.is_ready()? {
            return Ok(None);
        }
        Ok(Some(match (&self.kind, timestamp) {
            (EventKind::Regular(place), _) => place.times(),
            (EventKind::CounterBased(_), Some(timestamp)) => timestamp.read(),
            (EventKind::CounterBased(_), None) => TimestampSlot::default(),
        }))
    }

    /// The pair that completes it now, for use outside the driver.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: not counter-based, or never signalled, so that there is no address.
    pub fn address(&self) -> Result<(u64, u64)> {
        self.check()?;
        let EventKind::CounterBased(event) = &self.kind else {
            return Err(Error::invalid("hEvent: the event is not counter-based"));
        };
        match event.resolve() {
            Resolved::Met => Err(Error::invalid(
                "hEvent: no append has signalled it, so it has no counter; it is complete",
            )),
            Resolved::Counter(cell, value) | Resolved::Dead(cell, value) => Ok((cell.va(), value)),
            Resolved::Foreign(word) => Ok((word.device, word.value)),
            Resolved::Captured => Err(internal("hEvent")),
        }
    }
}

/// The error for a use, outside of a graph, of an event that a capture has tied to the graph.
#[cold]
pub fn internal(name: &str) -> Error {
    Error::new(
        ze_result_t::ZE_RESULT_ERROR_GRAPH_INTERNAL_EVENT,
        format!(
            "{name}: the command that signals it is being captured in a graph, where this is not"
        ),
    )
}

fn no_timestamps() -> Error {
    Error::new(
        ze_result_t::ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT,
        "hEvent: it was created without a timestamp flag",
    )
}
