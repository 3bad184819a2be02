// SPDX-License-Identifier: GPL-2.0
//! How the device's clock relates to ours.
//!
//! Both run at the same rate (`device/SPEC.md`, chapter 11), so there is one number to know: what
//! the device's clock is ahead. A read of its register tells it as exactly as the read takes time,
//! and on a busy machine that may be long. So the number is measured well once, and kept as long as
//! no later read contradicts it: then all times are converted alike.

use kernel::prelude::*;
use kernel::sync::{new_mutex, Mutex};
use tally_uapi::ioctl::ClockPair;

use crate::raw::time::monotonic_ns;

/// How often the clock is read to measure well.
const ROUNDS: usize = 16;

/// See the module.
#[pin_data]
pub(crate) struct Clock {
    /// What the device's clock is ahead of ours, once it was measured.
    #[pin]
    ahead: Mutex<Option<i64>>,
}

/// A read of the device's clock between two looks at ours.
#[derive(Clone, Copy)]
struct Sample {
    before: i64,
    ticks: i64,
    after: i64,
}

impl Sample {
    fn take(read: &impl Fn() -> Result<u64>) -> Result<Self> {
        let before = monotonic_ns();
        let ticks = read()? as i64;
        Ok(Self { before, ticks, after: monotonic_ns() })
    }

    /// How long it took.
    fn width(&self) -> i64 {
        self.after.wrapping_sub(self.before)
    }

    /// Whether the device's clock can have been that much ahead.
    fn allows(&self, ahead: i64) -> bool {
        (self.before..=self.after).contains(&self.ticks.wrapping_sub(ahead))
    }

    /// How much it was ahead if the read was made in the middle.
    fn ahead(&self) -> i64 {
        self.ticks.wrapping_sub(self.before.wrapping_add(self.width() / 2))
    }

    /// The moment on both clocks.
    fn pair(&self, ahead: i64) -> ClockPair {
        let host_ns = self.ticks.wrapping_sub(ahead) as u64;
        ClockPair { host_ns, device_ticks: self.ticks as u64 }
    }
}

impl Clock {
    /// A relation that was not measured.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self { ahead <- new_mutex!(None) })
    }

    /// Now, on both clocks. `read` reads the device's.
    ///
    /// # Errors
    /// Those of `read`.
    pub(crate) fn now(&self, read: impl Fn() -> Result<u64>) -> Result<ClockPair> {
        let mut known = self.ahead.lock();
        let mut sample = Sample::take(&read)?;
        let ahead = match *known {
            Some(ahead) if sample.allows(ahead) => ahead,
            _ => {
                for _ in 1..ROUNDS {
                    let other = Sample::take(&read)?;
                    if other.width() < sample.width() {
                        sample = other;
                    }
                }
                sample.ahead()
            }
        };
        *known = Some(ahead);
        Ok(sample.pair(ahead))
    }
}

#[kernel::macros::kunit_tests(tally_clock)]
mod tests {
    use super::*;

    /// QUERY CLOCK: "sampled now": between the two looks, and on one line with other pairs.
    #[test]
    fn pairs_lie_within_their_samples_and_convert_alike() {
        let first = Sample { before: 100, ticks: 1_150, after: 200 };
        let ahead = first.ahead();
        assert_eq!(ahead, 1_000);
        assert_eq!(first.pair(ahead), ClockPair { host_ns: 150, device_ticks: 1_150 });
        // A long read, in which the register was read near the end.
        let long = Sample { before: 300, ticks: 1_390, after: 400 };
        assert!(long.allows(ahead));
        assert_eq!(long.pair(ahead), ClockPair { host_ns: 390, device_ticks: 1_390 });
    }

    /// A read that contradicts what was kept is seen.
    #[test]
    fn a_relation_that_cannot_be_is_noticed() {
        let sample = Sample { before: 300, ticks: 1_390, after: 400 };
        assert!(sample.allows(990) && sample.allows(1_090));
        assert!(!sample.allows(989) && !sample.allows(1_091));
        let behind = Sample { before: 5_000, ticks: 10, after: 5_010 };
        assert!(behind.allows(behind.ahead()));
        assert_eq!(behind.pair(behind.ahead()).host_ns, 5_005);
    }
}
