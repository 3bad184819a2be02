// SPDX-License-Identifier: MIT OR Apache-2.0
//! Work that stays unfinished until a test releases it.

use tally_ze::ze_event_pool_flags_t;

use crate::call;
use crate::lists::{Event, List, Pool};
use crate::ze::Gpu;

/// A regular event that the host signals to open the gate.
pub struct Gate {
    /// The event that [`Gate::open`] signals.
    pub event: Event,
    _pool: Pool,
}

impl Gate {
    /// A closed gate.
    pub fn new(gpu: &Gpu) -> Self {
        let pool = gpu.pool(1, ze_event_pool_flags_t::empty());
        Self { event: pool.event(0), _pool: pool }
    }

    /// Releases everything that waits for the event, now and later.
    pub fn open(&self) {
        self.event.signal();
    }

    /// A counter-based event that is complete when the gate is open, and the list that signals it.
    pub fn cb_event(&self, gpu: &Gpu) -> (Event, List) {
        let (event, list) = (gpu.cb_event(), gpu.immediate(0, true));
        list.barrier(Some(&event), &[&self.event]);
        (event, list)
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        // A failing test must not leave work behind that never ends.
        let _ = call!(zeEventHostSignal(self.event.0));
    }
}
