// SPDX-License-Identifier: MIT OR Apache-2.0
//! The device's clock: 1 tick is 1 ns of CLOCK_MONOTONIC, counted from the
//! device's creation.

/// Ticks of the device's clock in a second.
pub const CLOCK_HZ: u64 = 1_000_000_000;

/// A running clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// CLOCK_MONOTONIC in ns at the first tick.
    start: u64,
}

/// Starts well above zero: a timestamp of 0 means "never written" to its reader.
const FIRST_TICK: u64 = CLOCK_HZ;

impl Clock {
    /// A clock that starts now.
    pub fn new() -> Self {
        Self::starting_at(monotonic_ns())
    }

    /// A clock that started at this time of CLOCK_MONOTONIC, in ns: clocks of
    /// several processes agree if they have the same start.
    pub fn starting_at(start: u64) -> Self {
        Self { start }
    }

    /// CLOCK_MONOTONIC in ns when it started.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// CLOCK_MONOTONIC in ns at tick 0, modulo 2^64: that may have been before the machine started.
    pub fn zero(&self) -> u64 {
        self.start.wrapping_sub(FIRST_TICK)
    }

    /// Ticks now; never goes back.
    pub fn ticks(&self) -> u64 {
        self.ticks_at(monotonic_ns())
    }

    /// The same moment as (CLOCK_MONOTONIC in ns, device ticks). Both come from one
    /// reading, so that every pair converts a time alike.
    pub(crate) fn pair(&self) -> (u64, u64) {
        let host = monotonic_ns();
        (host, self.ticks_at(host))
    }

    fn ticks_at(&self, host: u64) -> u64 {
        // 2^64 ns are 584 years.
        host.saturating_sub(self.start) + FIRST_TICK
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

/// The model's time in ns. It advances with each call, so that a schedule can be replayed.
#[cfg(shuttle)]
pub fn monotonic_ns() -> u64 {
    crate::sync::model_ticks() * 100
}

/// CLOCK_MONOTONIC in ns.
#[cfg(not(shuttle))]
pub fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a timespec that the call fills; the clock id is valid.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    /// SPEC.md, chapter 17: "the CLOCK_MONOTONIC time at which its clock was 0"
    #[test]
    fn a_time_and_the_zero_of_the_clock_give_the_ticks() {
        for start in [0, 5, monotonic_ns()] {
            let (host, ticks) = Clock::starting_at(start).pair();
            assert_eq!(host.wrapping_sub(Clock::starting_at(start).zero()), ticks);
        }
    }
}
