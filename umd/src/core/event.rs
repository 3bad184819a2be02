// SPDX-License-Identifier: MIT OR Apache-2.0
//! Event pools: the object behind the handle. Events are objects of [`crate::sync::event`], since lists use
//! them.

use std::sync::Arc;

use tally_ze::{
    ze_event_counter_based_flags_t, ze_event_desc_t, ze_event_pool_flags_t, ze_event_pool_handle_t,
};

use crate::checks::{self, Checks};
use crate::core::context::Context;
use crate::error::{Error, Result};
use crate::handle::{Kind, object};
use crate::hang::names;
use crate::ipc::pool;
use crate::ipc::transport::Handle;
use crate::sync::cb_event::CbEvent;
use crate::sync::event::{Event, EventKind, Traits};
use crate::sync::event_pool::EventPool;
use crate::sync::shared::Shared;

/// An event pool.
pub struct Pool {
    context: Arc<Context>,
    shared: Arc<Shared>,
    flags: ze_event_pool_flags_t,
    /// The flags of a pool of counter-based events; none for regular events.
    counter_based: Option<ze_event_counter_based_flags_t>,
    places: Arc<EventPool>,
}

object!(ze_event_pool_handle_t => Pool, Kind::EventPool);

/// The pool flags that request timestamps.
const TIMESTAMPS: ze_event_pool_flags_t =
    ze_event_pool_flags_t::ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP
        .union(ze_event_pool_flags_t::ZE_EVENT_POOL_FLAG_KERNEL_MAPPED_TIMESTAMP);

/// The pool flag that lets other processes open the pool.
const IPC: ze_event_pool_flags_t = ze_event_pool_flags_t::ZE_EVENT_POOL_FLAG_IPC;

impl Pool {
    /// A pool of `count` events; counter-based ones with the given flags, or regular ones.
    ///
    /// # Errors
    /// OUT_OF_DEVICE_MEMORY, OUT_OF_HOST_MEMORY.
    pub fn create(
        context: &Arc<Context>,
        flags: ze_event_pool_flags_t,
        count: u32,
        counter_based: Option<ze_event_counter_based_flags_t>,
    ) -> Result<Self> {
        let shared = context.shared().clone();
        let places = match counter_based {
            Some(_) => EventPool::counter_based(count),
            None => EventPool::regular(&shared, count, flags.contains(IPC))?,
        };
        Ok(Self { context: context.clone(), shared, flags, counter_based, places })
    }

    /// Sets the pool's name in the hang report, which is its handle.
    pub fn name(&self, raw: ze_event_pool_handle_t) {
        names::name_pool(&self.places, || format!("{:p}", raw.0));
    }

    /// The context.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Whether its events are counter-based.
    pub fn is_counter_based(&self) -> bool {
        self.counter_based.is_some()
    }

    /// The flags.
    pub fn flags(&self) -> ze_event_pool_flags_t {
        self.flags
    }

    /// An event of the pool. `raw` is the pool's handle.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: the index is not free.
    pub fn event(
        &self,
        desc: &ze_event_desc_t,
        raw: ze_event_pool_handle_t,
        low_power: bool,
    ) -> Result<Event> {
        let traits = Traits {
            signal_scope: desc.signal.bits(),
            wait_scope: desc.wait.bits(),
            cb_flags: self.counter_based_flags().bits(),
            timestamps: self.flags.intersects(TIMESTAMPS),
            low_power,
            pool: raw.0 as usize,
            imported: false,
        };
        let kind = match self.counter_based {
            Some(_) => {
                self.places.check(desc.index)?;
                EventKind::CounterBased(CbEvent::completed())
            }
            None => EventKind::Regular(self.places.place(desc.index)?),
        };
        if let (EventKind::Regular(place), Some(order)) =
            (&kind, checks::get().and_then(Checks::order))
        {
            order.word_begins(place.cell().va(), 1, self.places.is_shared());
        }
        Ok(Event::new(&self.shared, kind, traits, Some(self.places.clone())))
    }

    /// The flags of the pool's counter-based events, which have the IPC flag if the pool has it.
    fn counter_based_flags(&self) -> ze_event_counter_based_flags_t {
        let ipc = ze_event_counter_based_flags_t::ZE_EVENT_COUNTER_BASED_FLAG_IPC;
        match self.counter_based {
            Some(flags) if self.flags.contains(IPC) => flags | ipc,
            flags => flags.unwrap_or_default(),
        }
    }

    /// A handle by which other processes open the pool.
    ///
    /// # Errors
    /// INVALID_ARGUMENT: it was created without the IPC flag, or is itself opened from another process.
    /// UNSUPPORTED_FEATURE: it has counter-based events, which are shared one by one. OUT_OF_HOST_MEMORY.
    pub fn share(&self) -> Result<Handle> {
        if !self.flags.contains(IPC) {
            let flag = "ZE_EVENT_POOL_FLAG_IPC";
            return Err(Error::invalid(format!("hEventPool: it was created without {flag}")));
        }
        if self.counter_based.is_some() {
            return Err(Error::unsupported(
                "hEventPool: counter-based events are shared one by one, not by their pool",
            ));
        }
        if self.places.import().is_some() {
            return Err(Error::invalid(
                "hEventPool: another process has shared it; only that one can do so again",
            ));
        }
        let handle = pool::share(self.shared.vm(), &self.places, self.flags.bits())?;
        if let Some(order) = checks::get().and_then(Checks::order) {
            order.words_are_shared(self.places.cells().iter().map(|it| it.va()));
        }
        Ok(handle)
    }

    /// Opens the pool that another process has shared.
    ///
    /// # Errors
    /// Those of [`pool::import`].
    pub fn open(context: &Arc<Context>, handle: &Handle, name: &str) -> Result<Self> {
        let shared = context.shared().clone();
        let (places, flags) = pool::import(shared.vm(), handle, name)?;
        let flags = ze_event_pool_flags_t::from_bits_truncate(flags);
        Ok(Self { context: context.clone(), shared, flags, counter_based: None, places })
    }

    /// Whether it belongs to another process.
    pub fn is_opened(&self) -> bool {
        self.places.import().is_some()
    }

    /// Ends the pool: its events may only be destroyed from now on.
    pub fn destroy(self) {
        self.places.destroy();
    }
}
