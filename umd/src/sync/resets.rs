// SPDX-License-Identifier: MIT OR Apache-2.0
//! The order between a reset of a regular event and the waits that are submitted after it.
//!
//! Level Zero orders nothing between two queues. In Intel's driver the queues and immediate lists of one engine
//! share its command streamer (`Device::getCsrForOrdinalAndIndex` in compute-runtime's device.cpp), which takes
//! commands in the order of their submission. SYCL's Level Zero adapter
//! relies on that: it executes a list that resets an event on a queue, and then appends a wait for the same
//! event to an immediate list of the same engine. The wait must not find the event as it was before the reset.
//!
//! So the device counts the resets of each event in a word beside its cell, and the host counts those that were
//! submitted. A wait of an immediate list waits first until the device has made the resets that were submitted
//! to its engine before. Waits that regular lists have recorded do not, nor do waits of other engines.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::submit::ring::Place;

/// An engine of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Engine(u64);

impl Engine {
    /// The engine of a queue.
    pub fn of(place: &Place) -> Self {
        // The device has far fewer than 2^16 of each.
        let [device, class, index] = [place.device, place.class, place.index].map(u64::from);
        Self(device << 32 | class << 16 | index)
    }
}

/// The resets of a pool's events that were submitted.
#[derive(Debug, Default)]
pub struct Submitted {
    /// One for each event of the pool; allocated by the first reset, since most events are never reset by lists.
    events: OnceLock<Box<[OfEvent]>>,
}

#[derive(Debug, Default)]
struct OfEvent {
    count: AtomicU64,
    /// The engine of the latest one.
    engine: AtomicU64,
}

impl Submitted {
    /// Counts a reset of event `index` of `count`, which an engine will make.
    pub fn add(&self, index: u32, count: u32, engine: Engine) {
        let events = self.events.get_or_init(|| (0..count).map(|_| OfEvent::default()).collect());
        let event = &events[index as usize];
        event.engine.store(engine.0, Ordering::Relaxed);
        event.count.fetch_add(1, Ordering::Release);
    }

    /// The number of resets of event `index` that were submitted, if the latest was submitted to this engine.
    #[inline]
    pub fn of(&self, index: u32, engine: Engine) -> Option<u64> {
        let event = &self.events.get()?[index as usize];
        let count = event.count.load(Ordering::Acquire);
        (count != 0 && event.engine.load(Ordering::Relaxed) == engine.0).then_some(count)
    }
}

#[cfg(test)]
mod tests {
    use super::{Engine, Place, Submitted};

    fn engine(class: u32, index: u32) -> Engine {
        Engine::of(&Place { class, index, priority: 0, device: 0 })
    }

    #[test]
    fn the_latest_engine_counts() {
        let resets = Submitted::default();
        assert_eq!(resets.of(1, engine(0, 0)), None);
        resets.add(1, 2, engine(0, 0));
        assert_eq!(resets.of(1, engine(0, 0)), Some(1));
        assert_eq!(resets.of(1, engine(0, 1)), None, "another engine");
        assert_eq!(resets.of(0, engine(0, 0)), None, "another event");
        resets.add(1, 2, engine(1, 0));
        assert_eq!(resets.of(1, engine(0, 0)), None);
        assert_eq!(resets.of(1, engine(1, 0)), Some(2));
    }
}
