// SPDX-License-Identifier: MIT OR Apache-2.0
//! Event pools: the object behind the handle. Events are objects of [`crate::sync::event`], since
//! lists work with them.

use std::sync::Arc;

use tally_ze::{
    ze_event_counter_based_flags_t, ze_event_desc_t, ze_event_pool_flags_t, ze_event_pool_handle_t,
};

use crate::core::context::Context;
use crate::error::Result;
use crate::handle::{Kind, object};
use crate::hang::names;
use crate::sync::cb_event::CbEvent;
use crate::sync::event::{Event, EventKind, Traits};
use crate::sync::event_pool::EventPool;
use crate::sync::shared::Shared;

/// An event pool.
pub struct Pool {
    context: Arc<Context>,
    shared: Arc<Shared>,
    flags: ze_event_pool_flags_t,
    /// Set for pools of counter-based events.
    counter_based: Option<ze_event_counter_based_flags_t>,
    places: Arc<EventPool>,
}

object!(ze_event_pool_handle_t => Pool, Kind::EventPool);

/// The pool flags that ask for times.
const TIMESTAMPS: ze_event_pool_flags_t =
    ze_event_pool_flags_t::ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP
        .union(ze_event_pool_flags_t::ZE_EVENT_POOL_FLAG_KERNEL_MAPPED_TIMESTAMP);

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
            None => EventPool::regular(&shared, count)?,
        };
        Ok(Self { context: context.clone(), shared, flags, counter_based, places })
    }

    /// Gives the pool its name in the hang report: its handle.
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
            cb_flags: self.counter_based.unwrap_or_default().bits(),
            timestamps: self.flags.intersects(TIMESTAMPS),
            low_power,
            pool: raw.0 as usize,
        };
        let kind = match self.counter_based {
            Some(_) => {
                self.places.check(desc.index)?;
                EventKind::CounterBased(CbEvent::completed())
            }
            None => EventKind::Regular(self.places.place(desc.index)?),
        };
        Ok(Event::new(self.shared.clone(), kind, traits, Some(self.places.clone())))
    }

    /// Ends the pool: its events may only be destroyed from now on.
    pub fn destroy(self) {
        self.places.destroy();
    }
}
