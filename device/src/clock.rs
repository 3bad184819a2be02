// SPDX-License-Identifier: MIT OR Apache-2.0
//! The device's clock: 1 tick is 1 ns of CLOCK_MONOTONIC, counted from when
//! the device was made.

use std::time::{Duration, Instant};

/// Ticks of the device's clock in a second.
pub const CLOCK_HZ: u64 = 1_000_000_000;

/// A running clock.
#[derive(Debug)]
pub(crate) struct Clock {
    start: Instant,
}

/// Starts well above zero: a timestamp of 0 means "never written" to its reader.
const FIRST_TICK: Duration = Duration::from_secs(1);

impl Clock {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now() }
    }

    /// Ticks now; never goes back.
    pub(crate) fn ticks(&self) -> u64 {
        let elapsed = self.start.elapsed() + FIRST_TICK;
        // 2^64 ns are 584 years.
        elapsed.as_secs() * CLOCK_HZ + u64::from(elapsed.subsec_nanos())
    }

    /// The same moment as (CLOCK_MONOTONIC in ns, device ticks).
    ///
    /// Brackets the host's clock by two reads of the device's and keeps the
    /// narrowest of a few tries, so that a preemption in between does not show.
    pub(crate) fn pair(&self) -> (u64, u64) {
        let sample = || {
            let before = self.ticks();
            let host = monotonic_ns();
            let after = self.ticks();
            (after - before, host, before + (after - before) / 2)
        };
        let best = (0..4).map(|_| sample()).min().unwrap_or_default();
        (best.1, best.2)
    }
}

/// CLOCK_MONOTONIC in ns.
pub fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a timespec that the call fills; the clock id is valid.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
