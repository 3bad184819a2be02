// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time limits of the host's waits, and waits that end at their limit instead of some time after it.
//!
//! A sleep ends late: by the kernel's timer slack of 50 µs and by the time until a processor is free.
//! So a wait ends its sleep a little before the limit, measures how late it woke, sleeps again if there is
//! time for it, and stays awake for the rest.
//!
//! ```text
//!  |------------- sleep -------------|~late~|---- sleep ----|~late~|-- awake --|
//!  start                            lead                                     limit
//! ```

use std::time::{Duration, Instant};

/// The longest time by which the first sleep ends before the limit.
const LEAD: u64 = 500_000;
/// The same time as a fraction of the wait (1/32), so that time awake stays small compared with time asleep.
const SHARE: u64 = 32;
/// The smallest delay with which a sleep ends, in nanoseconds.
const SLACK: u64 = 50_000;

/// A time limit as in Level Zero: 0 only queries, the largest value waits without a limit.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    start: Instant,
    timeout_ns: u64,
}

impl Deadline {
    /// The deadline `timeout_ns` from now.
    pub fn after(timeout_ns: u64) -> Self {
        Self { start: Instant::now(), timeout_ns }
    }

    /// The remaining time, in the form of a time limit.
    pub fn left(&self) -> u64 {
        if self.timeout_ns == u64::MAX {
            return u64::MAX;
        }
        self.timeout_ns.saturating_sub(nanoseconds(self.passed()))
    }

    /// The time since the start.
    pub fn passed(&self) -> Duration {
        self.start.elapsed()
    }
}

/// The sleeps of one wait with a limit.
#[derive(Debug)]
pub struct Approach {
    deadline: Deadline,
    /// The time before the limit, in nanoseconds, at which the next sleep is to end.
    aim: u64,
}

impl Approach {
    /// Creates the approach of a wait that ends at the limit if `precise`, else when its sleep ends.
    pub fn new(deadline: Deadline, precise: bool) -> Self {
        let lead = LEAD.min(deadline.timeout_ns / SHARE);
        Self { deadline, aim: if precise { lead } else { 0 } }
    }

    /// The limit.
    pub fn deadline(&self) -> &Deadline {
        &self.deadline
    }

    /// The number of nanoseconds to sleep now, in the form of a time limit. `None` if it is too late to
    /// sleep: then [`Approach::stay`] follows.
    pub fn sleep(&mut self) -> Option<u64> {
        self.sleep_of(self.deadline.left())
    }

    /// [`Approach::sleep`] with `left` nanoseconds remaining.
    fn sleep_of(&mut self, left: u64) -> Option<u64> {
        if left > self.aim || left == u64::MAX {
            return Some(left - self.aim.min(left));
        }
        // The next sleep is expected to be as late as this one.
        let late = self.aim - left;
        self.aim = 2 * late + SLACK;
        left.checked_sub(self.aim).filter(|&sleep| sleep >= SLACK)
    }

    /// Stays awake until `met` or the limit; returns the last result of `met`. It does not yield the
    /// processor, which would return only after the other threads' turn, milliseconds later.
    pub fn stay(&self, met: impl Fn() -> bool) -> bool {
        while self.deadline.left() != 0 {
            if met() {
                return true;
            }
            std::hint::spin_loop();
        }
        met()
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A deadline of which `left` nanoseconds remain.
    fn with_left(timeout_ns: u64, left: u64) -> Deadline {
        let start = Instant::now() - Duration::from_nanos(timeout_ns - left);
        Deadline { start, timeout_ns }
    }

    #[test]
    fn a_wait_without_a_limit_sleeps_without_one() {
        let mut approach = Approach::new(Deadline::after(u64::MAX), true);
        approach.aim = 0;
        assert_eq!(approach.sleep(), Some(u64::MAX));
    }

    #[test]
    fn the_first_sleep_ends_before_the_limit_and_the_last_far_enough() {
        let limit = 3_600_000_000_000;
        let mut approach = Approach::new(Deadline::after(limit), true);
        assert_eq!(approach.sleep_of(limit), Some(limit - LEAD));
        // It was late by next to nothing: there is time for another sleep.
        let sleep = approach.sleep_of(LEAD - 1).expect("there is time");
        assert!(sleep < LEAD, "{sleep}");
        // Nothing is left.
        approach.deadline = with_left(limit, 0);
        assert_eq!(approach.sleep(), None);
        assert!(!approach.stay(|| false));
    }

    #[test]
    fn a_sleep_that_was_late_is_not_tried_again() {
        let limit = 3_600_000_000_000;
        let mut approach = Approach::new(with_left(limit, LEAD / 4), true);
        assert_eq!(approach.sleep(), None);
    }

    #[test]
    fn a_wait_that_need_not_be_precise_sleeps_to_its_end() {
        let mut approach = Approach::new(with_left(1_000_000_000, 0), false);
        assert_eq!(approach.sleep(), None);
        let limit = 3_600_000_000_000;
        let mut approach = Approach::new(Deadline::after(limit), false);
        assert_eq!(approach.sleep_of(limit), Some(limit));
    }

    #[test]
    fn who_stays_awake_sees_what_happens() {
        let approach = Approach::new(Deadline::after(u64::MAX), true);
        assert!(approach.stay(|| true));
    }
}
